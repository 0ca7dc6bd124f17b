//! Sweeps over the devices of a pool in use: sequential rebuild, initializing, trimming.

use crate::world::{Failure, World, mebibytes, same};

/// Devices are filled by sequential rebuild, a scrub follows, and every command says so.
pub fn rebuild(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c", "d", "e", "f", "g", "h"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank {vdevs}/a")?;
    let data = mebibytes(10);
    std::fs::write(world.path("mnt/tank/file"), &data)?;
    world.ok("zpool attach -s -w tank {vdevs}/a {vdevs}/b")?.prints("")?;
    world.ok("zpool wait -t scrub tank")?;
    world.ok("zpool status tank")?.shows("scan: resilvered (mirror-0) ")?.shows("scan: scrub repaired 0B")?.shows("state: ONLINE")?;
    world.ok("zpool replace -s -w tank {vdevs}/a {vdevs}/c")?.prints("")?;
    world.ok("zpool wait tank")?;
    let status = world.ok("zpool status tank")?;
    status.hides("vdevs/a ")?.hides("replacing")?.shows("scan: resilvered (mirror-0) ")?.shows(" with 0 errors on ")?;
    world.ok("zpool status -j tank")?.shows("\"rebuild_stats\"")?.shows("\"state\":\"COMPLETE\"")?;
    world.ok("zpool history -i tank")?.shows("rebuild vdev_id=0")?;
    world.ok("zpool events -v tank")?.shows("sysevent.fs.zfs.resilver_start")?.shows("resilver_type = \"sequential\"")?;
    // Only the new ones are left.
    world.ok("zpool offline tank b")?;
    same("read from the rebuilt device", std::fs::read(world.path("mnt/tank/file"))? == data, true)?;
    world.ok("zpool destroy tank")?;

    world.ok("zpool create -f -m {mnt}/d -O compression=off d draid1:2d:4c {vdevs}/a {vdevs}/b {vdevs}/c {vdevs}/d")?;
    std::fs::write(world.path("mnt/d/file"), &data)?;
    world.ok("zpool offline -f d a")?;
    world.ok("zpool replace -s -w d a {vdevs}/e")?;
    world.ok("zpool wait d")?;
    let status = world.ok("zpool status d")?;
    status.shows("state: ONLINE")?.shows("scan: resilvered (draid1:2d:4c:0s-0) ")?.shows("scrub repaired 0B")?;
    world.ok("zpool offline d b")?;
    same("with another device away", std::fs::read(world.path("mnt/d/file"))? == data, true)?;
    world.ok("zpool destroy d")?;

    // A raidz knows where its blocks are only by their pointers.
    world.ok("zpool create -f z raidz {vdevs}/f {vdevs}/g {vdevs}/h")?;
    let why = "only mirror and dRAID vdevs support sequential reconstruction";
    // The device still has the label of a pool that it failed in.
    world.refused("zpool replace -f -s z {vdevs}/f {vdevs}/a", 1, why)?;
    world.ok("zpool destroy z")?;
    world.ok("zpool create -f -o feature@device_rebuild=disabled m {vdevs}/f")?;
    let why = "device_rebuild feature must be enabled in order to use sequential reconstruction";
    world.refused("zpool attach -s m {vdevs}/f {vdevs}/g", 1, why)?;
    world.ok("zpool set feature@device_rebuild=enabled m")?;
    world.ok("zpool attach -s -w m {vdevs}/f {vdevs}/g")?;
    Ok(())
}

/// Free space is initialized and trimmed; files stay, sparse files of devices get their holes back.
pub fn free_space(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c", "d"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank mirror {vdevs}/a {vdevs}/b")?;
    let data = mebibytes(10);
    std::fs::write(world.path("mnt/tank/file"), &data)?;
    world.ok("zpool sync tank")?;
    world.ok("zpool status -i tank")?.shows("(uninitialized)")?;
    world.ok("zpool status -t tank")?.shows("(untrimmed)")?;
    world.refused("zpool initialize -c tank", 255, "there is no active initialization")?;
    world.refused("zpool trim -s tank a", 255, "there is no active trim")?;
    world.refused("zpool trim tank nothing", 255, "cannot trim 'nothing': no such device in pool")?;
    world.refused("zpool initialize -c -w tank", 2, "-w cannot be used with -c, -s or -u")?;
    world.refused("zpool initialize -c -s tank", 2, "cannot be combined")?;
    world.refused("zpool trim -r much tank", 2, "invalid value for rate")?;
    let blocks =
        |vdev: &str| std::fs::metadata(world.path(&format!("vdevs/{vdev}"))).map(|file| std::os::unix::fs::MetadataExt::blocks(&file));
    let before = blocks("a")?;
    world.ok("zpool initialize -w tank {vdevs}/a")?.prints("")?;
    world.ok("zpool status -i tank")?.shows("(100% initialized, completed at ")?.shows("(uninitialized)")?;
    let filled = blocks("a")?;
    same("the whole file has blocks", filled > before * 2, true)?;
    same("the other one is as it was", blocks("b")? < filled / 2, true)?;
    world.ok("zpool initialize -u tank a")?;
    world.ok("zpool status -i tank")?.hides("% initialized")?;
    world.ok("zpool events -c")?;
    world.ok("zpool trim -w tank")?.prints("")?;
    world.ok("zpool events -H tank")?.shows("sysevent.fs.zfs.trim_start")?.shows("sysevent.fs.zfs.trim_finish")?;
    world.ok("zpool status -t tank")?.shows("(100% trimmed, completed at ")?.hides("(untrimmed)")?;
    same("the file has holes again", blocks("a")? < filled / 2, true)?;
    // Who removes a file and trims means what the file had, too.
    std::fs::write(world.path("mnt/tank/removed"), &data)?;
    world.ok("zpool sync tank")?;
    let full = blocks("a")?;
    std::fs::remove_file(world.path("mnt/tank/removed"))?;
    world.ok("zpool trim -w tank")?;
    same("holes where the file was", blocks("a")? + (data.len() as u64 / 512) * 3 / 4 < full, true)?;
    world.ok("zpool wait -t initialize,trim tank")?;
    // Who waits for one device does not wait for others.
    world.ok("zpool create -O canmount=off two {vdevs}/c {vdevs}/d")?;
    world.ok("zpool trim -r 1M two d")?;
    world.ok("zpool trim -w two c")?;
    world.ok("zpool status -t two")?.shows("(100% trimmed, completed at ")?.shows("trimmed, started at ")?;
    world.ok("zpool export -a")?;
    world.ok("zpool list -H")?.prints("")?;
    world.ok("zpool import -d {vdevs} tank")?;
    // A slow one is seen, stopped, and goes on with the next daemon.
    world.ok("zpool trim -r 1M tank")?;
    world.ok("zpool status -t tank")?.shows("% trimmed, started at ")?;
    world.ok("zpool status tank")?.shows("(trimming)")?;
    world.refused("zpool trim tank", 255, "currently trimming")?;
    world.ok("zpool trim -s tank")?;
    world.ok("zpool status -t tank")?.shows("suspended, started at ")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool status -t tank")?.shows("suspended, started at ")?;
    // Whoever watches is told of each of these, as of the import.
    world.ok("zpool trim tank")?;
    world.ok("zpool trim -s tank")?;
    world.ok("zpool trim -c tank")?;
    let events = world.ok("zpool events -H tank")?;
    ["suspend", "resume", "cancel"].iter().try_for_each(|word| events.shows(&format!("sysevent.fs.zfs.trim_{word}")).map(drop))?;
    world.ok("zpool history -i tank")?.shows("import pool version 5000")?;
    world.ok("zpool set autotrim=on tank")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("scrub repaired 0B")?.shows("errors: No known data errors")?;
    world.ok("zpool history -i tank")?.shows("trim vdev=")?.shows("initialize vdev=")?;
    same("the file", std::fs::read(world.path("mnt/tank/file"))? == data, true)
}
