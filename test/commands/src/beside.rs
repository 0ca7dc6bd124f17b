//! File systems at several places: mounted once more by hand, shown elsewhere by bind mounts, mounted where their properties do not say any more.
//! What users lose is a directory of theirs, a write that lands beneath a mount that was there, or a place that does not come back.

use crate::hidden::comes_back;
use crate::mounts::kill_both;
use crate::world::{Failure, World, same};
use std::fs::File;
use std::os::unix::fs::DirBuilderExt;

/// Error number of a write to a file in this folder, if it fails.
fn write(world: &World, folder: &str) -> Option<i32> {
    std::fs::write(world.path(folder).join("file"), b"x").err().and_then(|error| error.raw_os_error())
}

/// Number of the error of whatever was cut off from its server.
const CUT_OFF: Option<i32> = Some(107);

/// Makes a directory and shows a file system there.
fn bind(world: &World, from: &str, to: &str) -> Result<(), Failure> {
    std::fs::create_dir_all(world.path(to))?;
    world.ok(&format!("mount --bind {} {}", world.at(from), world.at(to))).map(drop)
}

/// Checks that the directory is there, empty, once nothing is mounted on it.
fn is_left(world: &World, folder: &str) -> Result<(), Failure> {
    same(&format!("the user's directory {folder}"), std::fs::read_dir(world.path(folder))?.count(), 0)
}

/// By force a file system leaves its own place; bind mounts go on, or are dead where it had to be cut off, and no directory of theirs goes.
pub fn forced(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/t t {vdevs}/a")?;
    world.ok("zfs create t/a")?;
    world.ok("zfs create t/a/b")?;
    bind(world, "mnt/t/a", "bound")?;
    world.ok("zfs rename -f t/a t/z")?;
    same("a write through the bind mount after a rename", write(world, "bound"), None)?;
    same("the file at the new place", world.path("mnt/t/z/file").exists(), true)?;
    same("the old place", world.path("mnt/t/a").exists(), false)?;
    world.ok("zfs unmount -f t/z")?;
    same("a write through the bind mount after an unmount", write(world, "bound"), None)?;
    // What shows one of its directories is no place of it, and what is only there goes from there: the directory stays.
    std::fs::create_dir(world.path("bound/dir"))?;
    bind(world, "bound/dir", "part")?;
    world.ok("zfs list -H -o mounted t/z")?.prints("yes")?;
    world.refused("zpool export t", 1, "shows a directory of 't/z'")?;
    world.ok("zfs rename -f t/z t/a")?;
    same("nothing is mounted in its own place and at none that went", world.path("mnt/t/a/file").exists(), true)?;
    is_left(world, "bound")?;
    same("what shows a directory", write(world, "part"), None)?;
    world.ok("umount {dir}/part")?;
    // In use, it is cut off: nobody writes beneath the bind mount.
    for line in ["zfs unmount -f t/a", "zfs rename -f t/a t/z", "zfs unmount -a -f"] {
        bind(world, &format!("mnt/t/{}", if line.contains("-a") { "z" } else { "a" }), "bound")?;
        let held = File::open(world.path(&format!("mnt/t/{}/file", if line.contains("-a") { "z" } else { "a" })))?;
        world.ok(line)?;
        same(&format!("a write through the bind mount after {line}"), write(world, "bound"), CUT_OFF)?;
        drop(held);
        world.ok("zfs mount -a")?;
        world.ok("umount {dir}/bound")?;
        is_left(world, "bound")?;
    }
    // What is gone has no other place either.
    bind(world, "mnt/t/z", "bound")?;
    // Nothing is open, and nothing is destroyed for a rollback that cannot be.
    world.ok("zfs snapshot t/z@one")?;
    world.ok("zfs snapshot t/z@two")?;
    for line in ["zfs rollback -r t/z@one", "zfs destroy -r t/z"] {
        world.refused(line, 1, "dataset is busy")?.says(&world.at("bound"))?;
    }
    world.ok("zfs list t/z@two")?;
    same("a write through the bind mount of what was not destroyed", write(world, "bound"), None)?;
    world.ok("zfs destroy -rf t/z")?;
    same("a write through the bind mount of what was destroyed", write(world, "bound"), CUT_OFF)?;
    same("its own directory", world.path("mnt/t/z").exists(), false)?;
    world.ok("umount {dir}/bound")?;
    is_left(world, "bound")?;
    world.ok("zfs create t/e")?;
    bind(world, "mnt/t/e", "bound")?;
    world.ok("zpool export -f t")?;
    is_left(world, "bound")
}

/// Several places of one file system, all of which come back after the death of the daemon, and none that it had left.
pub fn come_back(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/t t {vdevs}/a")?;
    for name in ["moved", "two", "by_hand", "off"] {
        world.ok(&format!("zfs create t/{name}"))?;
    }
    world.ok("zfs create t/two/child")?;
    std::os::unix::fs::symlink(world.program("zfs"), world.path("mount.zfs"))?;
    for (name, place) in [("two", "second"), ("by_hand", "only")] {
        std::fs::create_dir_all(world.path(place))?;
        world.ok(&format!("{{dir}}/mount.zfs -o zfsutil t/{name} {}", world.at(place)))?;
    }
    world.ok("zfs unmount t/by_hand")?;
    world.ok("zfs set -u mountpoint={mnt}/elsewhere t/moved")?;
    world.ok("zfs set -u canmount=off t/off")?;
    let places = ["mnt/t/moved", "mnt/t/two", "mnt/t/two/child", "second", "only", "mnt/t/off"];
    for round in ["once", "and once more"] {
        kill_both(world)?;
        world.ok("zpool list -H -o name")?;
        comes_back(world, "t")?;
        // Commands wait for whoever mounts.
        world.ok("zfs mount -a")?;
        for place in places {
            same(&format!("a write in {place}, after a kill, {round}"), write(world, place), None)?;
        }
        let list = world.ok("zfs mount")?.out;
        let shown: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().last()).collect();
        let expected = ["mnt/t", "only", "mnt/t/moved", "mnt/t/off", "mnt/t/two", "mnt/t/two/child"].map(|place| world.at(place));
        same("places that are meant", shown, expected.iter().map(String::as_str).collect())?;
        same("what had been left", world.path("mnt/t/by_hand/file").exists(), false)?;
        same("what the properties say", world.path("mnt/elsewhere").exists(), false)?;
    }
    // One of several places goes alone, whoever is in it.
    let held = File::open(world.path("second/file"))?;
    world.refused("zfs unmount {dir}/second", 1, "busy")?;
    world.ok("zfs unmount -f {dir}/second")?;
    same("its own place", write(world, "mnt/t/two"), None)?;
    drop(held);
    world.ok("zfs list -H -o mounted t/two t/two/child")?.prints("yes\nyes")?;
    world.ok("zfs rename t/moved t/went")?;
    same("where the properties say, once it moves", world.path("mnt/elsewhere/file").exists(), true)?;
    same("the place that it left", world.path("mnt/t/moved/file").exists(), false)?;
    world.ok("zfs rename t/by_hand t/still")?;
    same("what was mounted by hand stays", write(world, "only"), None)?;
    // A second place in another file system, which leaves later, does not keep the pool.
    std::fs::create_dir(world.path("mnt/t/inside"))?;
    world.ok("{dir}/mount.zfs -o zfsutil t/went {mnt}/t/inside")?;
    world.ok("zpool export t")?;
    is_left(world, "second")?;
    is_left(world, "only")
}

/// If this fails, an administrator's view of a snapshot goes when somebody unmounts, moves or rolls back the file system, or hinders that; or it cannot be
/// unmounted any more once the snapshot has another name, and whoever destroys it is told to wait for a stream that nobody sends.
pub fn snapshots_by_hand(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/t t {vdevs}/a")?;
    world.ok("zfs create t/n")?;
    std::fs::write(world.path("mnt/t/n/file"), b"then")?;
    world.ok("zfs snapshot -r t@s")?;
    std::os::unix::fs::symlink(world.program("zfs"), world.path("mount.zfs"))?;
    std::fs::create_dir_all(world.path("seen"))?;
    world.ok("{dir}/mount.zfs t/n@s {dir}/seen")?;
    // It is in use, and keeps nobody from anything.
    let held = File::open(world.path("seen/file"))?;
    let changes = [
        ("zfs unmount t/n", "zfs mount t/n"),
        ("zfs unmount -f t/n", "zfs mount t/n"),
        ("zfs unmount t", "zfs mount -a"),
        ("zfs set mountpoint={mnt}/other t/n", "zfs inherit mountpoint t/n"),
        ("zfs rename t/n t/m", "zfs rename t/m t/n"),
        ("zfs rollback t/n@s", "zfs mount -a"),
        ("zfs set canmount=off t/n", "zfs set canmount=on t/n"),
    ];
    for (line, back) in changes {
        world.ok(line)?;
        same(&format!("the snapshot after {line}"), std::fs::read(world.path("seen/file"))?, b"then".to_vec())?;
        world.ok(back)?;
    }
    drop(held);
    let place = format!("is mounted at {}: unmount it first", world.at("seen"));
    world.refused("zfs destroy t/n@s", 1, "cannot destroy snapshot t/n@s: dataset is busy")?.says(&place)?;
    world.refused("zfs destroy -r t@s", 1, "cannot destroy snapshot t/n@s: dataset is busy")?.says(&place)?;
    world.ok("zfs clone -o canmount=off t/n@s t/c")?;
    world.refused("zfs promote t/c", 1, "cannot promote 't/c': dataset is busy")?.says(&place)?;
    world.ok("zfs destroy t/c")?;
    world.ok("zfs rename t/n@s t/n@now")?;
    world.refused("zfs destroy t/n@now", 1, "cannot destroy snapshot t/n@now: dataset is busy")?.says(&place)?;
    world.ok("zfs unmount {dir}/seen")?;
    is_left(world, "seen")?;
    world.ok("zfs destroy t/n@now").map(drop)
}

/// If this fails, what died with a daemon stays when its pool is given up: programs get errors there, and nothing names it any more.
pub fn dead_with_their_pool(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/t t {vdevs}/a")?;
    world.ok("zfs create t/child")?;
    std::fs::rename(world.path("vdevs/a"), world.path("hidden"))?;
    kill_both(world)?;
    world.ok("zpool status t")?.shows("UNAVAIL")?;
    same("a write, while the pool is not there", write(world, "mnt/t"), CUT_OFF)?;
    world.ok("zpool export t")?;
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    same("mounts that are left", table.contains(&world.at("mnt/t")), false)
}

/// Two daemons have pools of the same name, and one of them dies. If this fails, the other one mounts its own file system there when it starts
/// next, and what programs write and make durable lands in the wrong pool.
pub fn of_another_daemon(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/one tank {vdevs}/a")?;
    world.ok("zfs create tank/child")?;
    let state = world.path("state-other");
    let other = |line: &str| world.ok_with(("ZIRCONIA_STATE", &state), line);
    std::fs::DirBuilder::new().mode(0o700).create(&state)?;
    other("zpool create -m {mnt}/two tank {vdevs}/b")?;
    other("zfs create tank/child")?;
    kill_both(world)?;
    other("zirconia upgrade")?;
    for line in ["zirconia stop", "zpool list -H -o name tank", "zfs unmount -a", "zirconia upgrade", "zfs mount -a"] {
        other(line)?;
        same(&format!("a write to the dead mount after {line}"), write(world, "mnt/one"), CUT_OFF)?;
        same(&format!("and to the one in it after {line}"), write(world, "mnt/one/child").is_some(), true)?;
    }
    for folder in ["mnt/two", "mnt/two/child"] {
        same("a write to what is the other's", write(world, folder), None)?;
    }
    world.ok("zpool list -H -o name tank")?;
    comes_back(world, "tank/child")?;
    world.ok("zfs mount -a")?;
    for folder in ["mnt/one", "mnt/one/child"] {
        same("a write to what came back", write(world, folder), None)?;
        other("zpool export tank")?;
        same("it is in its own pool", world.path(&format!("{folder}/file")).exists(), true)?;
        other("zpool import -d {vdevs}/b tank")?;
    }
    other("zpool export tank")?;
    other("zirconia stop").map(drop)
}

/// If this fails, a file system that forwards syncs is nowhere after a rename, because a bind mount shows it too.
pub fn forwarded(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/t t {vdevs}/a")?;
    world.ok("zfs create -o canmount=noauto t/a")?;
    world.ok("zfs mount -o syncfs t/a")?;
    bind(world, "mnt/t/a", "bound")?;
    world.ok("mount -o remount,bind,ro {dir}/bound")?;
    for (from, to, force) in [("a", "b", ""), ("b", "c", "-f")] {
        world.ok(&format!("zfs rename {force} t/{from} t/{to}"))?;
        same("a write at the new place", write(world, &format!("mnt/t/{to}")), None)?;
        same("a write through a bind mount that is read-only", write(world, "bound"), Some(30))?;
    }
    world.ok("sync -f {mnt}/t/c/file")?;
    world.ok("zpool export t")?;
    is_left(world, "bound")
}
