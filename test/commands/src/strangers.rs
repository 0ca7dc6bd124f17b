//! What people found who used it without knowing how it is made: paths, names and copies of any kind, and what the answers say.

use crate::world::{Failure, World, same};
use std::fs::{File, create_dir_all, metadata, read_to_string, write};
use std::os::unix::fs::FileTypeExt;

/// Whatever path a command is given: it is answered, the daemon goes on, and what lies there is not replaced. Otherwise a typing error takes the
/// memory of the machine, or a thread of the daemon for ever.
pub fn endless(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    let fifo = world.at("fifo");
    world.ok(&format!("mkfifo {fifo}"))?;
    for wrong in ["/dev/zero", &fifo] {
        world.refused(&format!("zpool import -c {wrong} tank"), 1, &format!("failed to open cache file '{wrong}': not a regular file"))?;
        let create = format!("zpool create -O canmount=off -o compatibility={wrong} tank {{vdevs}}/a");
        world.refused(&create, 1, &format!("error reading compatibility file '{wrong}'"))?;
        let create = format!("zpool create -O canmount=off -o cachefile={wrong} tank {{vdevs}}/a");
        world.refused(&create, 1, &format!("'{wrong}' is not a valid file"))?;
        world.refused(&format!("zpool create -O canmount=off tank mirror {{vdevs}}/a {wrong}"), 1, "")?;
        world.run(&format!("zdb -l {wrong}"))?.shows("not a block device or regular file")?;
        world.run(&format!("zdb -U {wrong} -C"))?.shows("not a regular file")?;
    }
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    world.refused(&format!("zpool set cachefile={fifo} tank"), 1, "is not a valid file")?;
    world.refused(&format!("zpool set cachefile={} tank", world.at("vdevs")), 1, "is not a valid file")?;
    same("a FIFO still", metadata(&fifo)?.file_type().is_fifo(), true)?;
    // What is too large is not read either.
    world.refused("zpool import -c {vdevs}/b tank", 1, "larger than 67108864 bytes")?;
    Ok(())
}

/// A copy of a device beside it, for a backup, is never taken in its place: its owner would write to the backup, and with an old one go back in time.
pub fn copies(world: &World) -> Result<(), Failure> {
    world.vdevs(&["x"])?;
    let copy = |to: &str| world.ok(&format!("cp --sparse=always {{vdevs}}/x {{vdevs}}/{to}")).map(drop);
    let is_own = || world.ok("zpool status -P tank")?.shows("/x ").and_then(|ran| ran.hides("copy")).map(drop);
    world.ok("zpool create -O canmount=off tank {vdevs}/x")?;
    world.ok("zpool export tank")?;
    copy("a.copy")?;
    copy("z.copy")?;
    world.ok("zpool import -d {vdevs} tank")?;
    is_own()?;
    world.ok("zfs create -o canmount=off tank/later")?;
    world.ok("zpool export tank")?;
    // Now they are old.
    world.ok("zpool import -d {vdevs} tank")?;
    is_own()?;
    world.ok("zfs list -H -o name tank/later")?.prints("tank/later")?;
    world.ok("zpool export tank")?;
    // A folder that was moved as a whole: the names are what is left.
    copy("a.copy")?;
    std::fs::rename(world.path("vdevs"), world.path("moved"))?;
    world.ok("zpool import -d {dir}/moved tank")?;
    is_own()
}

/// Lists of pools that cannot be read are kept, each of them: the first may be the one that somebody can still mend.
pub fn damaged_lists(world: &World) -> Result<(), Failure> {
    for text in ["{ one", "{ two", "{ three"] {
        world.ok("zpool list")?;
        world.ok("zirconia stop")?;
        write(world.path("state/pools.json"), text)?;
    }
    world.ok("zpool list")?;
    for (kept, text) in [("", "{ one"), (".1", "{ two"), (".2", "{ three")] {
        same(kept, read_to_string(world.path(&format!("state/pools.json.damaged{kept}")))?, text.to_string())?;
    }
    Ok(())
}

/// `import -a` that leaves a pool out says so by its exit code too: a script would go on without the data.
pub fn all_but_one(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    for vdev in ["a", "b"] {
        world.ok(&format!("zpool create -O canmount=off twin {{vdevs}}/{vdev}"))?;
        world.ok("zpool export twin")?;
    }
    world.refused("zpool import -d {vdevs} -a", 1, "cannot import 'twin': a pool named 'twin' is already imported")?;
    world.ok("zpool list -H -o name")?.prints("twin")?;
    world.ok("zpool export twin")?;
    std::fs::remove_file(world.path("vdevs/b"))?;
    world.ok("zpool import -d {vdevs} -a")?;
    Ok(())
}

/// Of several snapshots the message names the one that cannot be taken: whoever reads it looks there.
pub fn which_snapshot(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    world.ok("zfs create -o canmount=off tank/x")?;
    let several = "zfs snapshot tank@a tank/x@b tank/nope@c";
    world.refused(several, 1, "cannot create snapshot 'tank/nope@c': dataset does not exist")?;
    world.ok("zfs snapshot tank/x@b")?;
    world.refused("zfs snapshot tank@a tank/x@b", 1, "cannot create snapshot 'tank/x@b': dataset already exists")?;
    world.ok("zfs list -H -o name -t snapshot")?.prints("tank/x@b")?;
    Ok(())
}

/// Properties of what is in use: the advice is a command that there is.
pub fn advice(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create -o mountpoint={mnt}/own tank/x")?;
    create_dir_all(world.path("mnt/own/folder"))?;
    let held = File::create(world.path("mnt/own/folder/file"))?;
    for change in ["set mountpoint={mnt}/elsewhere", "set canmount=off", "inherit mountpoint"] {
        let refused = world.refused(&format!("zfs {change} tank/x"), 1, "or use 'zfs unmount -f' first")?;
        same("an option that it lacks", refused.err.contains("use '-f'"), false)?;
    }
    world.ok("zfs unmount -f tank/x")?;
    world.ok("zfs set mountpoint={mnt}/elsewhere tank/x")?;
    drop(held);
    Ok(())
}
