//! Checksums that are keyed with the pool's salt, and names above 255 bytes, as users see them; pools are judged by OpenZFS's `zdb`.

use crate::world::{Failure, World, judge, same};

const SALTED: [&str; 3] = ["skein", "edonr", "blake3"];
const FEATURES: &str = "zpool get -H -o value feature@skein,feature@edonr,feature@blake3 tank";
const BYTES: usize = 700_001;

fn content(checksum: &str) -> Vec<u8> {
    (0..BYTES).map(|at| (at / 7 % 251) as u8 ^ checksum.len() as u8).collect()
}

/// Files with each checksum are right after an import and a scrub, and for OpenZFS; the pool says what it uses, and refuses what it lacks by its name.
pub fn salted(world: &World) -> Result<(), Failure> {
    let zdb = judge("salted checksums: OpenZFS's judgement")?;
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m {mnt}/tank tank mirror {vdevs}/a {vdevs}/b")?;
    let file = |checksum: &str| world.path(&format!("mnt/tank/{checksum}/file"));
    for checksum in SALTED {
        world.ok(&format!("zfs create -o checksum={checksum} tank/{checksum}"))?;
        std::fs::write(file(checksum), content(checksum))?;
    }
    world.ok("zpool sync tank")?;
    world.ok(FEATURES)?.prints("active\nactive\nactive")?;
    world.ok("zpool export tank")?;
    world.clean(&zdb, "-e -p {vdevs} -bcch tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    for checksum in SALTED {
        same("the file after the import", std::fs::read(file(checksum))? == content(checksum), true)?;
    }
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?.shows("No known data errors")?;
    for checksum in SALTED {
        world.ok(&format!("zfs destroy tank/{checksum}"))?;
    }
    world.ok(FEATURES)?.prints("enabled\nenabled\nenabled")?;
    world.ok("zpool create -O mountpoint=none -o feature@blake3=disabled other {vdevs}/c")?;
    world.refused("zfs set checksum=blake3 other", 1, "the value needs feature@blake3, which is not enabled on the pool")?;
    world.ok("zpool set feature@blake3=enabled other")?;
    world.ok("zfs set checksum=blake3 other")?;
    Ok(())
}

/// Names of more than 255 bytes are made while the property is on, and stay when it is off.
pub fn long_names(world: &World) -> Result<(), Failure> {
    let zdb = judge("long names: OpenZFS's judgement")?;
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    let named = |bytes: usize| world.path(&format!("mnt/tank/{}", "n".repeat(bytes)));
    let made = |bytes: usize| std::fs::write(named(bytes), b"x").is_ok();
    let longest = || -> Result<u64, Failure> { Ok(rustix::fs::statvfs(world.path("mnt/tank"))?.f_namemax) };
    same("the longest name at first", longest()?, 255)?;
    same("names without the property", [255, 256, 1023].map(made), [true, false, false])?;
    world.ok("zfs set longname=on tank")?;
    same("the longest name", longest()?, 1023)?;
    same("names with the property", [256, 1023, 1024].map(made), [true, true, false])?;
    world.ok("zpool sync tank")?;
    world.ok("zpool get -H -o value feature@longname tank")?.prints("active")?;
    world.ok("zfs set longname=off tank")?;
    same("the longest name again", longest()?, 255)?;
    same("a new name without the property", made(300), false)?;
    world.ok("zpool export tank")?;
    world.clean(&zdb, "-e -p {vdevs} -bcch tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("a long name that is there", std::fs::read(named(1023))?, b"x".to_vec())?;
    same("to a longer one", std::fs::rename(named(255), named(257)).is_err(), true)?;
    std::fs::rename(named(1023), named(3))?;
    std::fs::remove_file(named(256))?;
    world.ok("zpool destroy tank").map(drop)
}
