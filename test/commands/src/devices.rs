//! What devices hold before they become part of a pool, and pools whose devices are not there.

use crate::waiting::until;
use crate::world::{Failure, World, mebibytes, same};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Time within which the daemon does what it does by itself.
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
    put(world, "xfs", 1 << 20, &[0x0d, 0xd0, 0x01, 0xc0])?;
    put(world, "xfs", 0, b"XFSB")?;
    put(world, "lvm", 512, LVM)?;
    let mut entry = vec![0; 66];
    (entry[4], entry[8], entry[12], entry[64], entry[65]) = (0x83, 8, 64, 0x55, 0xAA);
    put(world, "mbr", 446, &entry)?;
    let of = |kind: &str| format!("contains a filesystem of type '{kind}'");
    let refused = world.refused("zpool create -O canmount=off tank {vdevs}/xfs {vdevs}/lvm", 1, "invalid vdev specification\n")?;
    refused.says("use '-f' to override the following errors:\n")?.says(&of("xfs"))?.says(&of("LVM2_member"))?;
    world.refused("zpool create -n tank {vdevs}/xfs", 1, &of("xfs"))?;
    // Disks of virtual machines, and other files that somebody mistyped.
    world.vdevs(&["vm", "database"])?;
    put(world, "vm", 0, b"QFI\xfb\0\0\0\x03")?;
    put(world, "database", 0, b"SQLite format 3\0")?;
    world.refused("zpool create tank {vdevs}/vm {vdevs}/database", 1, &of("qcow2"))?.says(&of("sqlite"))?;
    put(world, "database", 0, b"BZh91AY&SY\x01\x02")?;
    world.refused("zpool create tank {vdevs}/database", 1, &of("bzip2"))?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    for verb in ["add tank", "add tank spare", "attach tank {vdevs}/a", "replace tank {vdevs}/a"] {
        world.refused(&format!("zpool {verb} {{vdevs}}/xfs"), 1, &of("xfs"))?;
    }
    world.refused("zpool add tank {vdevs}/mbr", 1, "contains a partition table of type 'dos'")?;
    let absent = world.refused("zpool add tank mirror {vdevs}/xfs {vdevs}/nowhere", 1, "cannot resolve path")?;
    let holds = format!("{} {}\n", world.at("vdevs/xfs"), of("xfs"));
    same("what it says of a mistyped path", absent.err, format!("cannot resolve path '{}'\n{holds}", world.at("vdevs/nowhere")))?;
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
    same("what no label is written over", get(world, "xfs", 1 << 20, 4)?, vec![0; 4])?;
    world.refused("zpool create -f two {vdevs}/xfs", 1, "the following errors must be manually repaired:")?;
    world.ok("zpool export tank")?;
    let exported = world.refused("zpool create two {vdevs}/xfs", 1, "use '-f' to override the following errors:")?;
    exported.says("/vdevs/xfs is part of exported pool 'tank'")?;
    world.refused("zpool create two vdevs/a", 1, "must be a full path or shorthand device name")?;
    world.refused("zpool create two nosuchdisk", 1, "must be a full path or shorthand device name")?;
    // In the same words, wherever it stands.
    let exported = format!("{} is part of exported pool 'tank'\n", world.at("vdevs/xfs"));
    for (line, others) in [
        ("zpool create two {vdevs}/nowhere", ""),
        ("zpool create two mirror {vdevs}/xfs {vdevs}/nowhere", exported.as_str()),
        ("zpool create -f two {vdevs}/xfs log {vdevs}/nowhere", ""),
    ] {
        let refused = world.refused(line, 1, "cannot resolve path")?;
        same(line, refused.err, format!("cannot resolve path '{}'\n{others}", world.at("vdevs/nowhere")))?;
    }
    // Also where it makes the others look as if they did not go together.
    let absent = world.refused("zpool create two mirror {vdevs}/xfs {vdevs}/nowhere", 1, "cannot resolve path")?;
    same("advice to use force", absent.err.contains("'-f'"), false)?;
    Ok(())
}

/// Who is told of one objection and forces the command overrides all: each is told at once, what devices hold before what does not go together. Force
/// is advised where it helps alone, and who has a device is named.
pub fn objections(world: &World) -> Result<(), Failure> {
    const OVERRIDE: &str = "invalid vdev specification\nuse '-f' to override the following errors:\n";
    const LOST: &str = "with '-f' what these devices hold is lost\n";
    world.vdevs(&["a", "b", "tar", "xfs", "old", "big"])?;
    std::fs::File::options().write(true).open(world.path("vdevs/big"))?.set_len(512 << 20)?;
    put(world, "tar", 257, b"ustar\x0000")?;
    put(world, "xfs", 0, b"XFSB")?;
    world.ok("zpool create -O canmount=off gone {vdevs}/old")?;
    world.ok("zpool export gone")?;
    let at = |name: &str| world.at(&format!("vdevs/{name}"));
    let tar = format!("{} contains a filesystem of type 'tar'\n", at("tar"));
    let others = format!("{} contains a filesystem of type 'xfs'\n{} is part of exported pool 'gone'\n", at("xfs"), at("old"));
    let mixed = "mismatched replication level: both file and mirror vdevs are present\n";
    for option in ["", "-n"] {
        let refused =
            world.refused(&format!("zpool create {option} tank {{vdevs}}/tar mirror {{vdevs}}/xfs {{vdevs}}/old"), 1, OVERRIDE)?;
        same(refused.line(), &refused.err, &format!("{OVERRIDE}{tar}{others}{mixed}{LOST}"))?;
    }
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    let apart = "mismatched replication level: pool uses file and new vdev is mirror\nmirror contains devices of different sizes\n";
    for option in ["", "-n"] {
        let refused = world.refused(&format!("zpool add {option} tank mirror {{vdevs}}/tar {{vdevs}}/big"), 1, OVERRIDE)?;
        same(refused.line(), &refused.err, &format!("{OVERRIDE}{tar}{apart}{LOST}"))?;
    }
    let allowed = world.refused("zpool add --allow-in-use tank mirror {vdevs}/tar {vdevs}/big", 1, OVERRIDE)?;
    same(allowed.line(), &allowed.err, &format!("{OVERRIDE}{apart}"))?;
    same("the archive", get(world, "tar", 257, 5)?, b"ustar".to_vec())?;
    // Of a pool of this daemon, whatever the device is called.
    std::fs::hard_link(world.path("vdevs/a"), world.path("vdevs/hard"))?;
    for line in ["add tank", "add tank spare", "add -f tank spare", "create two", "create -f two"] {
        for name in ["a", "hard"] {
            let refused = world.refused(&format!("zpool {line} {{vdevs}}/{name}"), 1, "is part of active pool 'tank'")?;
            let repair = "invalid vdev specification\nthe following errors must be manually repaired:\n";
            same(refused.line(), &refused.err, &format!("{repair}{} is part of active pool 'tank'\n", at(name)))?;
        }
    }
    // One device by two names.
    std::fs::hard_link(world.path("vdevs/b"), world.path("vdevs/again"))?;
    std::os::unix::fs::symlink(world.path("vdevs/b"), world.path("vdevs/link"))?;
    for name in ["again", "link"] {
        let why = format!("the same device is named twice, as '{}' and as '{}'\n", at("b"), at(name));
        for line in ["create two mirror {vdevs}/b", "add tank {vdevs}/b", "add -f tank spare {vdevs}/b", "add tank {vdevs}/b spare"] {
            world.refused(&format!("zpool {line} {{vdevs}}/{name}"), 1, &why)?;
        }
    }
    Ok(())
}

/// Where force does not help, what the devices hold is told all the same, and no force advised: who mends the one reason and forces the rest loses it.
pub fn objections_beside(world: &World) -> Result<(), Failure> {
    const REPAIR: &str = "invalid vdev specification\nthe following errors must be manually repaired:\n";
    world.vdevs(&["a", "s", "xfs", "small"])?;
    put(world, "xfs", 0, b"XFSB")?;
    std::fs::File::options().write(true).open(world.path("vdevs/small"))?.set_len(63 << 20)?;
    put(world, "small", 0, b"XFSB")?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a spare {vdevs}/s")?;
    let at = |name: &str| world.at(&format!("vdevs/{name}"));
    let holds = |name: &str| format!("{} contains a filesystem of type 'xfs'\n", at(name));
    let told = |line: &str, said: &str, name: &str| -> Result<(), Failure> {
        let refused = world.refused(line, 1, said)?;
        refused.says(&holds(name))?;
        same(line, refused.err.contains("'-f'"), false)
    };
    for option in ["", "-n"] {
        for (name, what) in [("a", "is part of active pool 'tank'"), ("s", "is reserved as a hot spare for pool tank")] {
            let refused = world.refused(&format!("zpool create {option} q mirror {{vdevs}}/{name} {{vdevs}}/xfs"), 1, REPAIR)?;
            same(refused.line(), &refused.err, &format!("{REPAIR}{} {what}\n{}", at(name), holds("xfs")))?;
        }
    }
    told("zpool replace tank {vdevs}/a {vdevs}/small", "device is too small", "small")?;
    told("zpool attach tank {vdevs}/a {vdevs}/small", "device is too small", "small")?;
    told("zpool create -O canmount=off q {vdevs}/small", "is smaller than 64 MiB", "small")?;
    told("zpool add tank {vdevs}/small", "is smaller than 64 MiB", "small")?;
    told("zpool create -m {vdevs} q {vdevs}/xfs", "exists and is not empty", "xfs")?;
    world.refused("zpool create -m {vdevs} q {vdevs}/xfs", 1, "give '-m' a directory that is empty")?;
    told("zpool create -O recordsize=7 q {vdevs}/xfs", "recordsize", "xfs")?;
    told("zpool create tank {vdevs}/xfs", "pool already exists", "xfs")?;
    told("zpool create q mirror {vdevs}/xfs {vdevs}/xfs", "is named twice", "xfs")?;
    told("zpool create q mirror {vdevs}/xfs {vdevs}/nowhere", "cannot resolve path", "xfs")?;
    let forced = world.refused("zpool replace -f tank {vdevs}/a {vdevs}/small", 1, "device is too small")?;
    same("what is to be lost", forced.err.contains("contains"), false)
}

/// Of a copy of a pool that is open its id is said to be in the way, which another name does not help against; what is advised does.
pub fn twins(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    world.ok("zpool export tank")?;
    std::fs::create_dir(world.path("copies"))?;
    std::fs::copy(world.path("vdevs/a"), world.path("copies/a"))?;
    world.ok("zpool import -d {vdevs} tank")?;
    let id = world.ok("zpool get -H -o value guid tank")?.out.trim().to_string();
    let why = format!("a pool with this id ({id}) is already imported as 'tank'");
    for line in ["tank".to_string(), "tank other".to_string(), id] {
        world.refused(&format!("zpool import -d {{dir}}/copies {line}"), 1, &why)?.says("'zpool reguid'")?;
    }
    // The pool itself, for which somebody wants another name, or has it already.
    world.refused("zpool import -d {vdevs} tank other", 1, &why)?.says("'zpool export tank' first")?;
    world.refused("zpool import -d {vdevs} tank", 1, "a pool with that name already exists")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {dir}/copies tank other")?;
    world.ok("zpool reguid other")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool list -H -o name,health")?.prints("other\tONLINE\ntank\tONLINE").map(drop)
}

/// Waits until a new daemon has tried to open its pool: it answers before.
fn until_tried(world: &World) -> Result<(), Failure> {
    until("the opening of the pool has ended", || Ok(!world.ok("zpool status tank")?.out.contains("The pool is being opened.")))
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
    until_tried(world)?;
    world.ok("zpool status tank")?.shows("state: DEGRADED")?;
    world.ok("zirconia stop")?;
    // Two are away.
    std::fs::rename(world.path("vdevs/b"), world.path("b"))?;
    world.ok("zpool list -H -o name,health")?.prints("tank\tUNAVAIL")?;
    until_tried(world)?;
    world.ok("zpool status tank")?.shows("state: UNAVAIL")?.shows("The pool could not be opened")?.shows("vdevs/c  ONLINE")?;
    world.refused("zpool create tank {vdevs}/n0", 1, "pool already exists")?;
    // Its datasets are not there, and nobody says that they are gone.
    for line in ["zfs list tank", "zfs list tank/a", "zfs get all tank/a", "zfs send -n tank/a@b", "zfs create tank/a"] {
        world.refused(line, 1, "pool 'tank' is not open: ")?;
    }
    world.ok("zfs list -H -o name")?.prints("")?.says("warning: pool 'tank' is not open, its datasets are not shown: ")?;
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

/// A pool on files in a file system of the same daemon, and one on files in that: through the kernel they would wait for themselves, beyond
/// SIGKILL. They work, come back after a kill, end in their order, and circles are refused.
pub fn on_itself(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    for name in ["x", "y", "z", "more"] {
        std::fs::File::create(world.path(&format!("mnt/tank/{name}")))?.set_len(80 << 20)?;
    }
    std::os::unix::fs::symlink(world.path("mnt/tank/z"), world.path("vdevs/link"))?;
    world.ok("zpool create -m {mnt}/inner inner raidz {mnt}/tank/x {mnt}/tank/y {vdevs}/link")?;
    std::fs::File::create(world.path("mnt/inner/file"))?.set_len(64 << 20)?;
    world.ok("zpool create -m {mnt}/third third {mnt}/inner/file")?;
    for verb in ["add tank", "add tank spare", "attach tank {vdevs}/a", "replace tank {vdevs}/a"] {
        for file in ["inner/file", "third/file", "tank/more"] {
            std::fs::File::options().create(true).truncate(false).write(true).open(world.path("mnt/third/file"))?.set_len(64 << 20)?;
            let ran = world.run(&format!("zpool {verb} {{mnt}}/{file}"))?;
            same(ran.line(), ran.code, 1)?;
        }
        world.refused(&format!("zpool {verb} {{mnt}}/tank/more"), 1, "which rests on 'tank': the pool would wait for itself")?;
    }
    world.refused("zpool create two {mnt}/tank/x", 1, "is part of active pool 'inner'")?;
    let data = mebibytes(20);
    // What the kernel has of a device's file from a look at it must not be what a later one is shown.
    let device = world.path("mnt/inner/file");
    std::fs::read(&device)?;
    for name in ["inner", "third"] {
        std::fs::write(world.path(&format!("mnt/{name}/data")), &data)?;
        world.ok(&format!("zpool sync {name}"))?;
    }
    world.ok("zpool export third")?;
    std::fs::create_dir(world.path("copies"))?;
    std::fs::write(world.path("copies/file"), std::fs::read(&device)?)?;
    for place in ["{dir}/copies", "{mnt}/inner"] {
        world.ok(&format!("zpool import -d {place} third"))?;
        same(place, std::fs::read(world.path("mnt/third/data"))?, data.clone())?;
        world.ok("zpool export third")?;
    }
    world.ok("zpool import -d {mnt}/inner third")?;
    let is_there = |name: &str| std::fs::read(world.path(&format!("mnt/{name}/data"))).is_ok_and(|read| read == data);
    for command in ["zpool export tank", "zpool export -f tank", "zpool destroy -f tank", "zfs unmount -f tank"] {
        world.refused(command, 1, "busy")?.says("'inner'")?;
    }
    // Damage through the mount is damage to the device.
    let device = std::fs::File::options().write(true).open(world.path("mnt/tank/x"))?;
    std::os::unix::fs::FileExt::write_all_at(&device, &vec![7; 20 << 20], 8 << 20)?;
    drop(device);
    world.ok("zpool scrub -w inner")?;
    world.ok("zpool status inner")?.shows("with 0 errors")?.hides("repaired 0B")?;
    world.ok("zpool clear inner")?;
    // A restart without a goodbye, and one with it.
    for end in [format!("kill -9 {}", world.daemon()?), "zirconia stop".to_string()] {
        world.ok(&end)?;
        world.run("zpool list")?;
        let start = Instant::now();
        while !(is_there("inner") && is_there("third")) {
            if start.elapsed() > PATIENCE {
                return Err(world.ok("zpool status")?.fault("pools in pools did not come back with their data"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        world.ok("zpool list -H -o name,health")?.prints("inner\tONLINE\ntank\tONLINE\nthird\tONLINE")?;
    }
    world.ok("zpool export -a")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool import -d {mnt}/tank inner")?;
    world.ok("zpool import -d {mnt}/inner third")?;
    same("what is in the third", is_there("third"), true)?;
    world.ok("zpool add tank {vdevs}/b")?;
    Ok(())
}

/// What properties and devices do not do here is said each time; what looks like protection and is none is refused.
pub fn without_effect(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "log"])?;
    world.ok("zpool create -O sharenfs=on -O canmount=off tank {vdevs}/a")?.says("warning: without effect: property 'sharenfs'")?;
    world.ok("zpool set multihost=off tank")?.prints("")?;
    world.ok("zpool set listsnapshots=on tank")?.says("'zfs list -t all' lists snapshots")?;
    same("what adding a log device says", world.ok("zpool add tank log {vdevs}/log")?.err, String::new())?;
    world.ok("zfs set zoned=on tank")?.says("containers")?;
    world.ok("zfs set zoned=off tank")?.prints("")?;
    world.refused("zfs create -o keyformat=raw tank/secret", 1, "Encryption must be turned on to set encryption properties.")?;
    world.ok("zfs create -o canmount=off -o logbias=throughput tank/fs")?.prints("")?;
    world.ok("zfs get -H -o value logbias tank/fs")?.prints("throughput")?;
    world.ok("zfs set sharesmb=on tank/fs")?.says("nothing is shared")?;
    world.ok("zfs set sharesmb=off tank/fs")?.prints("")?;
    world.refused("zfs share", 2, "missing filesystem argument")?;
    world.refused("zfs unshare tank/fs", 1, "cannot unshare 'tank/fs': not currently shared")?;
    world.ok("zfs set sharenfs=off tank")?.prints("")?;
    world.refused("zfs share tank/fs", 1, "cannot share 'tank/fs': legacy share")?;
    world.ok("zfs set sharenfs=rw=nohost tank/fs")?.says("nothing is shared before")?;
    world.refused("zfs share tank/fs", 1, "cannot share 'tank/fs': 'canmount' property is set to 'off'")?;
    world.ok("zfs share -a nfs")?.prints("")?;
    world.ok("zfs unshare -a smb")?.prints("")?;
    Ok(())
}

/// A pool gets another guid, and is found by it; one that goes as if the machine had stopped is still in its cache file.
pub fn identity(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    let cache = world.at("cache");
    world.ok(&format!("zpool create -m none -o cachefile={cache} tank mirror {{vdevs}}/a {{vdevs}}/b"))?;
    let guid = || world.ok("zpool get -H -o value guid tank").map(|ran| ran.out.trim().to_string());
    let first = guid()?;
    let long = format!("zpool get x:{} tank", "a".repeat(254));
    world.refused(&long, 2, "bad property list: invalid property 'x:aaa")?;
    world.refused("zpool reguid -g 0xa tank", 2, "invalid GUID: 0xa")?;
    world.refused("zpool reguid -g 0 tank", 1, "cannot reguid 'tank': 0 is no guid")?;
    world.ok("zpool reguid tank")?.prints("")?;
    same("a random guid", guid()? == first, false)?;
    world.ok("zpool reguid -g -1 tank")?.prints("")?;
    same("the last guid", guid()?, u64::MAX.to_string())?;
    world.ok("zpool reguid -g 042 tank")?.prints("")?;
    world.refused("zpool reguid -g 42 tank", 1, "the guid 42 is in use")?;
    world.ok("zpool history -i tank")?.shows("guid change")?;
    world.ok("zpool export -F tank")?.prints("")?;
    world.ok(&format!("zpool import -c {cache} -o cachefile={cache} tank"))?.prints("")?;
    same("the guid after an import", guid()?, "42".to_string())?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?;
    world.ok("zpool export tank")?;
    same("the cache file of a pool that was exported", std::path::Path::new(&cache).exists(), false)?;
    world.ok("zpool import -d {vdevs} -o readonly=on tank")?;
    world.refused("zpool clear tank", 1, "cannot clear errors for tank: pool is read-only")?;
    world.ok("zpool export tank")?;
    Ok(())
}

/// A device is replaced by what is at its own place; labels of others stay; cache files, sizes, names as OpenZFS has them.
pub fn verbs(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c", "d", "e"])?;
    let cache = world.at("cache");
    world.refused("zpool create -o cachefile=relative tank {vdevs}/a", 1, "must be empty, an absolute path, or 'none'")?;
    world.refused("zpool create -o cachefile=/nosuch/folder/x tank {vdevs}/a", 1, "'/nosuch/folder' is not a valid directory")?;
    world.refused("zpool create -R relative tank {vdevs}/a", 1, "bad alternate root 'relative'")?;
    world.refused("zpool create sparepool {vdevs}/a", 1, "name is reserved")?;
    world.refused("zpool create -m {vdevs} tank {vdevs}/a", 1, "exists and is not empty")?;
    // If this fails, a pool is made whose file system cannot be mounted, and the command says that it failed.
    world.refused("zpool create -m {vdevs}/b tank {vdevs}/a", 1, "exists and is not a directory")?;
    world.refused("zpool list tank", 1, "no such pool")?;
    // If this fails, nobody is told that the pool is in no cache file.
    world.refused("zpool create -o cachefile={vdevs} tank {vdevs}/a", 1, "is not a valid file")?;
    world.refused("zpool create -n -O doesnotexist=on tank {vdevs}/a", 1, "property 'doesnotexist' is not a valid filesystem property")?;
    world.refused("zpool create -o compatibility=nothing tank {vdevs}/a", 1, "error reading compatibility file 'nothing'")?;
    world.ok("zpool create -O canmount=off -o compatibility=legacy tank {vdevs}/a")?.prints("")?;
    world.ok("zpool get -H -o value compatibility,feature@lz4_compress tank")?.prints("legacy\ndisabled")?;
    world.ok("zpool destroy tank")?;
    world.ok(&format!("zpool create -O canmount=off -o cachefile={cache} tank raidz {{vdevs}}/a {{vdevs}}/b {{vdevs}}/c"))?;
    world.ok("zpool get -H -o value cachefile tank")?.prints(&cache)?;
    world.refused("zpool trim -d tank {vdevs}/a", 255, "trim operations are not supported by this device")?;
    // In place: not while it is what it was; then what was put there.
    world.refused("zpool replace -f tank {vdevs}/a {vdevs}/a", 1, "/vdevs/a is part of active pool 'tank'")?;
    let file = std::fs::OpenOptions::new().write(true).open(world.path("vdevs/a"))?;
    let size = file.metadata()?.len();
    file.set_len(0)?;
    file.set_len(size)?;
    world.ok("zpool replace -w tank {vdevs}/a {vdevs}/a")?.prints("")?;
    world.ok("zpool scrub -w tank")?;
    let status = world.ok("zpool status tank")?;
    status.shows("state: ONLINE")?.shows("repaired 0B")?.hides("/old")?;
    // A file that was removed is still open here; another one is at its place.
    std::fs::remove_file(world.path("vdevs/a"))?;
    std::fs::File::create(world.path("vdevs/a"))?.set_len(size)?;
    world.ok("zpool replace -w tank {vdevs}/a {vdevs}/a")?.prints("")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?.shows("repaired 0B")?.hides("/old")?;
    // Room that nobody uses yet.
    world.ok("zpool list -H -o expandsize tank")?.prints("-")?;
    for name in ["a", "b", "c"] {
        std::fs::OpenOptions::new().write(true).open(world.path(&format!("vdevs/{name}")))?.set_len(2 * size)?;
    }
    let room: u64 = world.ok("zpool list -Hp -o expandsize tank")?.out.trim().parse()?;
    same("room to grow", room > size, true)?;
    world.ok("zpool online -e tank a b c")?;
    world.ok("zpool list -H -o expandsize tank")?.prints("-")?;
    world.ok("zpool history -i tank")?.shows("vdev online pool 'tank' size: ")?;
    let rings = world.ok("zdb -lu {vdevs}/a")?.out;
    let partial = rings.lines().find(|line| line.contains("labels = ") && !line.contains("labels = 0 1 2 3"));
    same("uberblocks that not all labels have", partial, None)?;
    // The sectors of what is added.
    world.ok("zpool set ashift=12 tank")?;
    world.refused("zpool set ashift=8 tank", 1, "ashift")?;
    world.refused("zpool add -f --allow-in-use tank {vdevs}/d", 2, "not allowed")?;
    world.ok("zpool add -f tank {vdevs}/d")?;
    world.ok("zpool get -H -o value ashift tank {vdevs}/d")?.prints("12")?;
    from_cache_file(world, &cache)?;
    // Labels go that are valid; what was written over others stays.
    world.ok("zpool create -O canmount=off two {vdevs}/e")?;
    world.ok("zpool export two")?;
    put(world, "e", 0, &[0xA5; 1 << 20])?;
    world.ok("zpool labelclear -f {vdevs}/e")?;
    same("what lies over the first labels", get(world, "e", 0, 1 << 20)?, vec![0xA5; 1 << 20])?;
    world.refused("zpool labelclear -f {vdevs}/e", 1, "no valid label")?;
    Ok(())
}

/// Checks that a pool is where its cache file says, and can have another name for now.
fn from_cache_file(world: &World, cache: &str) -> Result<(), Failure> {
    std::fs::copy(cache, world.path("kept"))?;
    world.ok("zpool export tank")?;
    same("nobody is in it", world.path("cache").exists(), false)?;
    world.refused("zpool import -c {dir}/nowhere tank", 1, "failed to open cache file")?;
    world.refused("zpool import -c {dir}/kept -d {vdevs} tank", 2, "-c is incompatible")?;
    world.ok("zpool import -c {dir}/kept")?.shows("pool: tank")?;
    // Devices have other names since, in the same place.
    std::fs::rename(world.path("vdevs/b"), world.path("vdevs/renamed"))?;
    world.ok("zpool import -c {dir}/kept -N tank")?;
    world.ok("zpool status -P tank")?.shows("state: ONLINE")?.shows("/vdevs/renamed ")?;
    // A name for now is nobody's business later.
    world.ok("zpool export tank")?;
    world.refused("zpool import -d {vdevs} -t tank", 2, "-t needs a new pool name")?;
    world.ok("zpool import -d {vdevs} -N -t tank now")?;
    world.ok("zpool get -H -o value cachefile now")?.prints("none")?;
    world.ok("zpool export now")?;
    world.ok("zpool import -d {vdevs} -N tank")?;
    world.ok("zpool destroy tank")?;
    world.ok("zpool create -O canmount=off -t now tank {vdevs}/e")?;
    world.ok("zpool list -H -o name")?.prints("now")?;
    world.ok("zpool export now")?;
    world.ok("zpool import -d {vdevs} -N tank")?;
    world.ok("zpool destroy tank")?;
    Ok(())
}
