//! What devices hold before they become part of a pool, and pools whose devices are not there.

use crate::world::{Failure, World, same};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// What the daemon does by itself is done within this time.
const PATIENCE: Duration = Duration::from_secs(30);

fn put(world: &World, vdev: &str, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
    Ok(std::fs::OpenOptions::new().write(true).open(world.path(&format!("vdevs/{vdev}")))?.write_all_at(bytes, offset)?)
}

fn get(world: &World, vdev: &str, offset: u64, length: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; length];
    std::fs::File::open(world.path(&format!("vdevs/{vdev}")))?.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// File systems and partition tables of others are refused by every verb that takes a device, and go only with `-f`; then nothing
/// is left that would make others take the device for theirs.
pub fn foreign(world: &World) -> Result<(), Failure> {
    const LVM: &[u8] = b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001";
    world.vdevs(&["a", "b", "xfs", "lvm", "mbr", "gone"])?;
    put(world, "xfs", 0, b"XFSB")?;
    put(world, "lvm", 512, LVM)?;
    let mut entry = vec![0; 66];
    (entry[4], entry[8], entry[12], entry[64], entry[65]) = (0x83, 8, 64, 0x55, 0xAA);
    put(world, "mbr", 446, &entry)?;
    let of = |kind: &str| format!("contains a filesystem of type '{kind}'");
    let refused = world.refused("zpool create -O canmount=off tank {vdevs}/xfs {vdevs}/lvm", 1, "invalid vdev specification\n")?;
    refused.says("use '-f' to override the following errors:\n")?.says(&of("xfs"))?.says(&of("LVM2_member"))?;
    world.refused("zpool create -n tank {vdevs}/xfs", 1, &of("xfs"))?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    for verb in ["add tank", "add tank spare", "attach tank {vdevs}/a", "replace tank {vdevs}/a"] {
        world.refused(&format!("zpool {verb} {{vdevs}}/xfs"), 1, &of("xfs"))?;
    }
    world.refused("zpool add tank {vdevs}/mbr", 1, "contains a partition table of type 'dos'")?;
    same("what was refused", (get(world, "xfs", 0, 4)?, get(world, "lvm", 512, 8)?), (b"XFSB".to_vec(), b"LABELONE".to_vec()))?;
    // A blank device may take the place of one that is gone by itself; one with somebody's data not.
    world.ok("zpool attach -w tank {vdevs}/a {vdevs}/gone")?;
    world.ok("zpool set autoreplace=on tank")?;
    world.ok("zpool export tank")?;
    world.vdevs(&["gone"])?;
    put(world, "gone", 0, b"XFSB")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool detach tank gone")?;
    same("on a device that came", get(world, "gone", 0, 4)?, b"XFSB".to_vec())?;
    world.ok("zpool add -f tank {vdevs}/xfs {vdevs}/lvm {vdevs}/mbr")?.prints("")?;
    world.ok("zpool sync tank")?;
    same("what was there", [get(world, "xfs", 0, 4)?, get(world, "lvm", 512, 4)?, get(world, "mbr", 508, 4)?], [0; 3].map(|_| vec![0; 4]))?;
    world.refused("zpool create -f two {vdevs}/xfs", 1, "the following errors must be manually repaired:")?;
    world.ok("zpool export tank")?;
    let exported = world.refused("zpool create two {vdevs}/xfs", 1, "use '-f' to override the following errors:")?;
    exported.says("/vdevs/xfs is part of exported pool 'tank'")?;
    world.refused("zpool create two nosuchdisk", 1, "must be a full path or shorthand device name")?;
    world.refused("zpool create two {vdevs}/nowhere", 1, "cannot resolve path")?;
    Ok(())
}

/// One name is one pool, however many ask for it at once. Pools whose devices are away when the daemon starts stay known, say why
/// they are not open, and open by themselves.
pub fn absent(world: &World) -> Result<(), Failure> {
    let names: Vec<String> = (0..6).map(|number| format!("n{number}")).collect();
    world.vdevs(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -O canmount=off tank raidz {vdevs}/a {vdevs}/b {vdevs}/c")?;
    let create = |name: &String| world.start(&format!("zpool create -O canmount=off same {{vdevs}}/{name}"), PATIENCE);
    let begun = names.iter().map(create).collect::<Result<Vec<_>, _>>()?;
    let mut codes = Vec::new();
    for running in begun {
        codes.push(running.finish()?.0.code);
    }
    same("pools of one name", codes.iter().filter(|code| **code == 0).count(), 1)?;
    world.ok("zpool destroy same")?;
    // One device can't be opened: that is what parity is for.
    world.ok("zirconia stop")?;
    std::fs::rename(world.path("vdevs/a"), world.path("a"))?;
    std::fs::create_dir(world.path("vdevs/a"))?;
    world.ok("zpool status tank")?.shows("state: DEGRADED")?;
    world.ok("zirconia stop")?;
    // Two are away.
    std::fs::rename(world.path("vdevs/b"), world.path("b"))?;
    world.ok("zpool list -H -o name,health")?.prints("tank\tUNAVAIL")?;
    world.ok("zpool status tank")?.shows("state: UNAVAIL")?.shows("The pool could not be opened")?.shows("vdevs/c  ONLINE")?;
    world.refused("zpool create tank {vdevs}/n0", 1, "pool already exists")?;
    world.refused("zfs list tank", 1, "tank")?;
    world.refused("zpool scrub tank", 1, "pool is unavailable")?;
    world.refused("zpool clear tank", 1, "cannot open 'tank' again")?;
    // Still known to the next daemon, and to one after another pool came.
    world.ok("zpool create -O canmount=off other {vdevs}/n1")?;
    world.ok("zirconia stop")?;
    world.ok("zpool list -H -o name,health")?.prints("other\tONLINE\ntank\tUNAVAIL")?;
    std::fs::rename(world.path("b"), world.path("vdevs/b"))?;
    let start = Instant::now();
    while !world.ok("zpool list -H -o health tank")?.out.contains("DEGRADED") {
        if start.elapsed() > PATIENCE {
            return Err(world.ok("zpool status tank")?.fault("it is not opened again"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    std::fs::remove_dir(world.path("vdevs/a"))?;
    std::fs::rename(world.path("a"), world.path("vdevs/a"))?;
    world.ok("zpool online tank {vdevs}/a")?;
    world.ok("zpool wait tank")?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?;
    // Forgotten when that is wanted.
    world.ok("zirconia stop")?;
    std::fs::rename(world.path("vdevs"), world.path("away"))?;
    world.ok("zpool export tank")?.prints("")?;
    world.ok("zpool list -H -o name,health")?.prints("other\tUNAVAIL")?;
    std::fs::rename(world.path("away"), world.path("vdevs"))?;
    world.ok("zpool import -d {vdevs} other")?;
    world.ok("zpool import -d {vdevs} tank")?;
    Ok(())
}

/// A pool on files in a file system that the same daemon serves would wait for itself: no verb takes them, by whatever way.
pub fn on_itself(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    std::fs::File::create(world.path("mnt/tank/file"))?.set_len(128 << 20)?;
    std::os::unix::fs::symlink(world.path("mnt/tank/file"), world.path("vdevs/link"))?;
    let why = "lies in the file system 'tank', which this daemon serves";
    for verb in ["create two", "add tank", "add tank spare", "attach tank {vdevs}/a", "replace tank {vdevs}/a"] {
        world.refused(&format!("zpool {verb} {{mnt}}/tank/file"), 1, why)?;
        world.refused(&format!("zpool {verb} {{vdevs}}/link"), 1, why)?;
    }
    world.refused("zpool import -d {mnt}/tank", 1, why)?;
    world.ok("zpool add tank {vdevs}/b")?;
    Ok(())
}
