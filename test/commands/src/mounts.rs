//! Mounts that are in use, dead, nested or not wanted: what users lose when one of them is handled wrongly.

use crate::campaign::deadlines::CUT;
use crate::waiting::until;
use crate::world::{Failure, World, same, supervisor};
use need::Need;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Time within which a command that is forced answers, whatever has files open.
const FORCED: Duration = Duration::from_secs(CUT.seconds / 2);

fn bytes_of(world: &World, name: &str) -> Result<String, Failure> {
    Ok(String::from_utf8_lossy(&std::fs::read(world.path(name))?).into_owned())
}

/// Runs a command that must succeed in time.
fn forced(world: &World, line: &str) -> Result<(), Failure> {
    let (ran, _) = world.start(line, FORCED)?.finish()?;
    if ran.code == 0 { Ok(()) } else { Err(ran.fault("it should succeed")) }
}

fn open(world: &World, name: &str) -> Result<File, Failure> {
    Ok(OpenOptions::new().create(true).append(true).open(world.path(name))?)
}

/// Everything forced ends while files are open, and there are never two caches of one file system.
pub fn forced_ends(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/a")?;
    world.ok("zfs create tank/a/b")?;
    let mut file = open(world, "mnt/tank/a/b/file")?;
    file.write_all(b"kept ")?;
    file.sync_all()?;
    world.refused("zfs unmount tank/a", 1, "mnt/tank/a/b': pool or dataset is busy")?;
    world.refused("zpool export tank", 1, "pool or dataset is busy")?;
    forced(world, "zfs unmount -f tank/a")?;
    same("a write through what was cut off", file.write_all(b"lost").map_err(|error| error.raw_os_error()), Err(Some(107)))?;
    world.ok("zfs mount tank/a")?;
    world.ok("zfs mount tank/a/b")?;
    same("what fsync acknowledged", bytes_of(world, "mnt/tank/a/b/file")?, "kept ".to_string())?;
    // Somebody else detaches it while a file is open: one cache, also when it is mounted again.
    let mut file = open(world, "mnt/tank/a/b/file")?;
    if !need::lacks(Need::Root, "mounts: a lazy unmount by somebody else")? {
        world.ok("umount -l {mnt}/tank/a/b")?;
        world.ok("zfs list -H -o mounted tank/a/b")?.prints("no")?;
        world.refused("zfs rename tank/a/b tank/x", 1, "busy")?;
        world.ok("zfs mount tank/a/b")?;
        file.write_all(b"one ")?;
        open(world, "mnt/tank/a/b/file")?.write_all(b"two")?;
        same("appends of both", bytes_of(world, "mnt/tank/a/b/file")?, "kept one two".to_string())?;
    }
    forced(world, "zfs rename -f tank/a tank/c")?;
    let held = open(world, "mnt/tank/c/b/file")?;
    forced(world, "zfs destroy -rf tank/c")?;
    drop(held);
    let held = open(world, "mnt/tank/file")?;
    forced(world, "zpool export -f tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    drop(held);
    let held = open(world, "mnt/tank/file")?;
    forced(world, "zirconia stop")?;
    drop(held);
    world.ok("zpool list -H -o name")?.prints("tank")?;
    Ok(())
}

/// What is forced while its pool waits for a device, and so does not end, stays in its place: nobody writes beneath it what the next mount hides.
pub fn forced_in_vain(world: &World) -> Result<(), Failure> {
    const DEAD: Result<(), Option<i32>> = Err(Some(107));
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/a")?;
    world.ok("zfs create tank/a/b")?;
    world.ok("zpool sync tank")?;
    world.ok("zinject -d {vdevs}/a -e io -T write tank")?;
    let file = world.path("mnt/tank/a/b/file");
    let writer = std::thread::spawn(move || File::create(file).and_then(|file| file.sync_all()));
    until("the pool is suspended", || Ok(world.ok("zpool list -H -o health tank")?.out.contains("SUSPENDED")))?;
    let beneath = |name: &str| std::fs::create_dir(world.path(name)).map_err(|error| error.raw_os_error());
    for _ in 0..2 {
        world.refused("zfs unmount -f tank/a", 1, "it stays in its place, dead")?;
        same("a write to what could not be unmounted", beneath("mnt/tank/a/b/new"), DEAD)?;
        world.ok("zfs list -H -o mounted tank/a/b")?.prints("yes")?;
        world.ok("zfs mount")?.shows(&world.at("mnt/tank/a/b"))?;
    }
    world.refused("zfs mount tank/a/b", 1, "mountpoint or dataset is busy")?;
    world.refused("zfs rename -f tank/a tank/c", 1, "suspended")?;
    world.ok("zinject -c all")?;
    world.ok("zpool clear tank")?;
    until("what was dead is away", || Ok(std::fs::read_dir(world.path("mnt/tank/a/b")).is_ok()))?;
    world.ok("zfs list -H -o mounted tank/a tank/a/b")?.prints("yes\nno")?;
    same("whether the writer was told of it", writer.join().is_ok_and(|written| written.is_err()), true)?;
    world.ok("zfs mount tank/a/b")?;
    world.ok("zfs unmount tank/a")?;
    world.ok("zpool destroy tank").map(drop)
}

/// Places and not names decide the order; directories inside file systems are their users'; nobody hears of mounts that nobody wanted.
pub fn places(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m none tank {vdevs}/a")?;
    world.ok("zfs create -o mountpoint={mnt}/m tank/y")?;
    world.ok("zfs create -o mountpoint={mnt}/m/0/1 tank/x")?;
    std::fs::write(world.path("mnt/m/0/1/file"), b"x")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("the file of what lies deeper", bytes_of(world, "mnt/m/0/1/file")?, "x".to_string())?;
    world.ok("zfs unmount -a")?;
    world.ok("zfs mount -a")?;
    same("after mount -a", bytes_of(world, "mnt/m/0/1/file")?, "x".to_string())?;
    world.ok("zfs create tank/y/child")?;
    world.ok("zpool export tank")?;
    // The directories of children stay in their parents, or a read-only import could not mount them.
    world.ok("zpool import -d {vdevs} -o readonly=on tank")?;
    world.ok("zfs list -H -o mounted tank/y/child")?.prints("yes")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.refused("zfs set mountpoint=none tank/y", 1, "pool or dataset is busy")?;
    world.ok("zfs get -H -o value mountpoint tank/y")?.shows("mnt/m")?;
    world.ok("zfs unmount tank/x")?;
    world.ok("zfs set mountpoint=none tank/y")?;
    world.ok("zfs list -H -o mounted tank/y/child")?.prints("no")?;
    world.ok("zfs set mountpoint={mnt}/n tank/y")?;
    world.ok("zfs list -H -o mounted tank/y/child")?.prints("yes")?;
    // Setting a place mounts there, and brings what inherits it along; with -u it does not.
    world.ok("zfs unmount tank/y")?;
    world.ok("zfs set -u mountpoint={mnt}/n2 tank/y")?;
    world.ok("zfs list -H -o mounted tank/y tank/y/child")?.prints("no\nno")?;
    world.ok("zfs set mountpoint={mnt}/n tank/y")?;
    world.ok("zfs list -H -o mounted tank/y tank/y/child")?.prints("yes\nyes")?;
    world.ok("zfs create -o mountpoint={mnt}/own tank/y/own")?;
    world.ok("zfs unmount tank/y/own")?;
    world.ok("zfs unmount tank/y")?;
    world.ok("zfs set mountpoint={mnt}/n3 tank/y")?;
    world.ok("zfs list -H -o mounted tank/y tank/y/child tank/y/own")?.prints("yes\nyes\nno")?;
    world.ok("zfs unmount tank/y")?;
    world.ok("zfs mount -R tank/y tank/y/own")?;
    world.ok("zfs list -H -o mounted tank/y tank/y/child tank/y/own")?.prints("yes\nyes\nyes")?;
    world.refused("zfs create -o utf8only=off -o normalization=formC tank/norm", 1, "'utf8only' must be 'on'")?;
    for options in ["canmount=off", "canmount=noauto", "mountpoint=none", "mountpoint=legacy"] {
        let ran = world.ok(&format!("zfs create -o {options} tank/quiet"))?;
        same("what is said of a mount that nobody wanted", (ran.out.as_str(), ran.err.as_str()), ("", ""))?;
        world.ok("zfs destroy tank/quiet")?;
    }
    std::fs::create_dir_all(world.path("mnt/full/x"))?;
    let ran = world.refused("zfs create -o overlay=off -o mountpoint={mnt}/full tank/full", 1, "directory is not empty")?;
    ran.says("filesystem successfully created, but not mounted")?;
    // Over the root of the system no path leads to it, and nobody gets rid of it.
    let ran = world.refused("zfs create -o mountpoint=/ tank/over", 1, "'/' is the root of the running system")?;
    ran.says("filesystem successfully created, but not mounted")?;
    world.ok("zfs create -o canmount=off -o mountpoint=/ tank/above")?;
    world.vdevs(&["b"])?;
    world.refused("zpool create -m {mnt}/full other {vdevs}/b", 1, "exists and is not empty")?;
    // If this fails, who is told that the mount failed does not know that there is a pool now.
    let ran =
        world.refused("zpool create -m /proc/nowhere other {vdevs}/b", 1, "cannot mount '/proc/nowhere': failed to create mountpoint")?;
    ran.says("pool successfully created, but not mounted\n'zfs mount other' tries it again")?;
    world.ok("zfs set mountpoint={mnt}/other other")?;
    world.ok("zfs list -H -o mounted other")?.prints("yes")?;
    world.ok("zpool destroy other")?;
    options(world)
}

/// What `-o` asks for has an effect, at once and with `remount`.
fn options(world: &World) -> Result<(), Failure> {
    world.ok("zfs create -o mountpoint={mnt}/o tank/o")?;
    world.ok("zfs unmount tank/o")?;
    world.refused("zfs mount -o nonsense tank/o", 1, "cannot mount 'tank/o'")?;
    world.ok("zfs mount -o ro,noatime tank/o")?;
    let refused = |world: &World| std::fs::write(world.path("mnt/o/file"), b"x").map_err(|error| error.raw_os_error());
    same("a write with -o ro", refused(world), Err(Some(30)))?;
    world.ok("zfs get -H -o value,source atime tank/o")?.prints("off\ttemporary")?;
    world.refused("zfs mount tank/o", 1, "filesystem already mounted")?;
    world.refused("zfs mount tank@x", 1, "cannot open 'tank@x'")?;
    if need::lacks(Need::Root, "mounts: options, legacy mounts and helpers")? {
        return Ok(());
    }
    world.ok("zfs mount -o remount,rw tank/o")?;
    same("a write after remount,rw", refused(world), Ok(()))?;
    world.ok("zfs set readonly=on tank/o")?;
    same("a write after readonly=on", refused(world), Err(Some(30)))?;
    world.ok("zfs snapshot tank/o@s")?;
    world.ok("zfs set mountpoint=legacy tank/o")?;
    let (helper, place) = (world.path("mount.zfs"), world.path("mnt/legacy"));
    std::fs::create_dir_all(&place)?;
    std::os::unix::fs::symlink(Path::new(&world.program("zfs")), &helper)?;
    world.ok("{dir}/mount.zfs tank/o {mnt}/legacy -o rw")?;
    same("through mount.zfs", bytes_of(world, "mnt/legacy/file")?, "x".to_string())?;
    world.refused("zfs unmount tank/o", 1, "use umount(8)")?;
    world.ok("umount {mnt}/legacy")?;
    world.ok("{dir}/mount.zfs -o auto,async,silent,loud,symfollow,nolazytime,x-systemd.requires=a,X-b tank/o {mnt}/legacy")?;
    world.ok("umount {mnt}/legacy")?;
    world.refused("{dir}/mount.zfs -o nosymfollow tank/o {mnt}/legacy", 1, "invalid option")?;
    world.ok("{dir}/mount.zfs tank/o@s {mnt}/legacy")?;
    same("a snapshot", bytes_of(world, "mnt/legacy/file")?, "x".to_string())?;
    world.ok("{dir}/mount.zfs -o remount,ro tank/o@s {mnt}/legacy")?;
    world.refused("{dir}/mount.zfs -o remount,rw tank/o@s {mnt}/legacy", 2, "Read-only file system")?;
    world.ok("umount {mnt}/legacy")?;
    several_places(world)
}

/// One file system at several places, by bind mounts and by mount(8): one is as good as the other, and none keeps it from being renamed.
fn several_places(world: &World) -> Result<(), Failure> {
    world.ok("zfs create -o mountpoint={mnt}/p tank/p")?;
    std::fs::write(world.path("mnt/p/file"), b"one")?;
    for place in ["second", "bound"] {
        std::fs::create_dir_all(world.path(&format!("mnt/{place}")))?;
    }
    world.refused("{dir}/mount.zfs -o nonsense,zfsutil tank/p {mnt}/second", 1, "invalid option")?;
    world.ok("{dir}/mount.zfs -s -o nonsense,zfsutil tank/p {mnt}/second")?;
    std::fs::write(world.path("mnt/second/file"), b"two")?;
    same("one file system", bytes_of(world, "mnt/p/file")?, "two".to_string())?;
    world.refused("{dir}/mount.zfs -o zfsutil tank/p {mnt}/second", 255, "already mounted")?;
    world.ok("zfs unmount {mnt}/second")?;
    same("the other place", bytes_of(world, "mnt/p/file")?, "two".to_string())?;
    same("the place that was named", world.path("mnt/second/file").exists(), false)?;
    world.ok("mount --bind {mnt}/p {mnt}/bound")?;
    world.ok("zfs set mountpoint={mnt}/p2 tank/p")?;
    world.ok("zfs set mountpoint={mnt}/p tank/p")?;
    world.ok("zfs rename tank/p tank/q")?;
    std::fs::write(world.path("mnt/bound/file"), b"three")?;
    same("through the renamed", bytes_of(world, "mnt/p/file")?, "three".to_string())?;
    world.ok("zfs list -H -o name,mounted tank/q")?.prints("tank/q\tyes")?;
    // What is refused because of it stays in its own place as well.
    world.refused("zfs destroy tank/q", 1, "dataset is busy")?;
    same("its own place", bytes_of(world, "mnt/p/file")?, "three".to_string())?;
    world.ok("umount {mnt}/bound")?;
    // A pool's device stands for its own file system.
    world.ok("zfs set mountpoint={mnt}/pool tank")?;
    world.ok("zfs unmount tank")?;
    world.ok("{dir}/mount.zfs -o zfsutil {vdevs}/a {mnt}/second")?;
    world.ok("zfs list -H -o mounted tank")?.prints("yes")?;
    world.ok("umount {mnt}/second")?;
    world.ok("zfs set mountpoint=none tank")?;
    world.ok("zfs destroy tank/q")?;
    Ok(())
}

/// What is in use keeps its place while its name changes, and whoever makes something below meanwhile finds it mounted.
pub fn renamed(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create -p tank/a/b")?;
    let mut file = open(world, "mnt/tank/a/b/file")?;
    world.refused("zfs rename tank/a tank/c", 1, "pool or dataset is busy")?;
    world.ok("zfs rename -u tank/a tank/c")?;
    file.write_all(b"kept")?;
    same("at its old place", bytes_of(world, "mnt/tank/a/b/file")?, "kept".to_string())?;
    let list = world.ok("zfs mount")?;
    same("listed with its new name", list.out.lines().any(|line| line.starts_with("tank/c/b ") && line.ends_with("mnt/tank/a/b")), true)?;
    world.ok("zfs set readonly=on tank/c")?;
    same("it follows", std::fs::write(world.path("mnt/tank/a/x"), b"").map_err(|error| error.raw_os_error()), Err(Some(30)))?;
    world.ok("zfs inherit readonly tank/c")?;
    drop(file);
    world.ok("zfs unmount tank/c")?;
    world.ok("zfs mount -R tank/c")?;
    same("at its new place", bytes_of(world, "mnt/tank/c/b/file")?, "kept".to_string())?;
    // A name without a slash at its beginning is a dataset.
    world.refused("zfs unmount ./tank", 1, "./tank")?;
    for round in 0..5 {
        let (from, to) = if round % 2 == 0 { ("tank/c", "tank/d") } else { ("tank/d", "tank/c") };
        let renames = world.start(&format!("zfs rename {from} {to}"), FORCED)?;
        let (made, _) = world.start(&format!("zfs create {from}/new{round}"), FORCED)?.finish()?;
        let (moved, _) = renames.finish()?;
        same("renamed", moved.code, 0)?;
        if made.code == 0 {
            world.ok(&format!("zfs list -H -o mounted {to}/new{round}"))?.prints("yes")?;
        } else {
            made.says("does not exist")?;
        }
    }
    Ok(())
}

/// The daemon dies; nothing is written beneath its mounts, and they come back by themselves.
pub fn revival(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/a")?;
    world.ok("zfs create -o canmount=noauto tank/n")?;
    world.ok("zfs mount tank/n")?;
    let places = ["mnt/tank", "mnt/tank/a", "mnt/tank/n"].map(|place| world.path(place));
    world.ok(&format!("kill -9 {}", world.daemon()?))?;
    let begun = std::time::Instant::now();
    // Programs that live on: they get errors until the file systems are there again, and no command is typed.
    for (index, place) in places.iter().enumerate() {
        let file = place.join(format!("stray{index}"));
        while std::fs::write(&file, b"x").is_err() {
            if begun.elapsed() > FORCED {
                return Err(format!("      {} did not come back", place.display()).into());
            }
        }
    }
    world.ok("zfs list -H -o name,mounted")?.prints("tank\tyes\ntank/a\tyes\ntank/n\tyes")?;
    world.ok("zpool export tank")?;
    let beneath: Vec<_> = std::fs::read_dir(world.path("mnt/tank")).map(|entries| entries.flatten().collect()).unwrap_or_default();
    same("files beneath the mounts", beneath.len(), 0)?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zfs mount tank/n")?;
    for (index, place) in places.iter().enumerate() {
        same("what was written while it came back", place.join(format!("stray{index}")).exists(), true)?;
    }
    Ok(())
}

/// Kills the daemon and whoever would start it again, so that the next command does.
pub fn kill_both(world: &World) -> Result<(), Failure> {
    let daemon = world.daemon()?;
    if let Some(supervisor) = supervisor(&daemon) {
        world.ok(&format!("kill -9 {supervisor}"))?;
    }
    world.ok(&format!("kill -9 {daemon}"))?;
    Ok(())
}

/// What was mounted comes back where it was and with its options, whatever became of its dead mount, and whoever else shows it.
pub fn as_it_was(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create -o canmount=noauto tank/n")?;
    world.ok("zfs mount -o noatime tank/n")?;
    world.ok("zfs create -o canmount=noauto tank/not")?;
    // A second place of a mount, and one that a daemon which was killed had not put in its place yet.
    for place in ["mnt/bound", "state/stage/tree"] {
        std::fs::create_dir_all(world.path(place))?;
        world.ok(&format!("mount --bind {{mnt}}/tank {}", world.at(place)))?;
    }
    kill_both(world)?;
    // The kernel does the same when it finds a name on the way to a dead mount invalid.
    world.ok("umount -l {mnt}/tank/n")?;
    let come = "tank\tyes\t{mnt}/tank\ntank/n\tyes\t{mnt}/tank/n\ntank/not\tno\t{mnt}/tank/not".replace("{mnt}", &world.at("mnt"));
    let again = |world: &World| -> Result<(), Failure> {
        world.ok("zpool list -H -o name")?;
        let begun = std::time::Instant::now();
        while world.ok("zfs list -H -o name,mounted,mountpoint")?.out.trim() != come {
            if begun.elapsed() > FORCED {
                world.ok("zfs list -H -o name,mounted,mountpoint")?.prints(&come)?;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::write(world.path("mnt/tank/n/file"), b"x")?;
        Ok(())
    };
    again(world)?;
    world.ok("zfs get -H -o value,source atime tank/n")?.prints("off\ttemporary")?;
    let table = std::fs::read_to_string("/proc/self/mounts")?;
    same("mounts in the state directory", table.lines().filter(|line| line.contains(&world.at("state/stage"))).count(), 0)?;
    world.ok("umount -l {mnt}/bound")?;
    // A daemon that ends in order is asked for nothing that is not mounted by itself.
    world.ok("zirconia stop")?;
    world.ok("zpool list -H -o name")?;
    world.ok("zfs mount -a")?;
    world.ok("zfs list -H -o mounted tank/n")?.prints("no")?;
    world.ok("zfs mount tank/n")?;
    // One that was unmounted by umount(8) stays so.
    world.ok("umount {mnt}/tank/n")?;
    let noted = || std::fs::read_to_string(world.path("state/mounts.json")).is_ok_and(|text| text.contains("tank/n"));
    let begun = std::time::Instant::now();
    while noted() && begun.elapsed() < FORCED {
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_both(world)?;
    world.ok("zpool list -H -o name")?;
    world.ok("zfs mount -a")?;
    world.ok("zfs list -H -o name,mounted")?.prints("tank\tyes\ntank/n\tno\ntank/not\tno")?;
    Ok(())
}

/// True when a thread of the process waits for an answer to a request of a mount.
fn waits_for_a_mount(process: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads
        .map(|thread| std::fs::read_to_string(thread.path().join("wchan")))
        .any(|place| place.is_ok_and(|place| place.contains("request_wait")))
}

/// A daemon that is killed while it waits for a mount of its own is gone, and the next one takes its place.
pub fn waits_for_itself(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create -o canmount=noauto tank/s")?;
    let (daemon, begun) = (world.daemon()?, std::time::Instant::now());
    world.ok("zinject -d {vdevs}/a -D 1000:1 -T write tank")?;
    std::fs::write(world.path("mnt/tank/file"), vec![1; 4 << 20])?;
    // It tries whether a sync is forwarded, which takes as long as a txg does.
    let mounting = world.start("zfs mount -o syncfs tank/s", FORCED)?;
    while !waits_for_a_mount(&daemon) {
        if begun.elapsed() > FORCED {
            return Err("      the daemon does not wait for its mount".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    world.ok(&format!("kill -9 {daemon}"))?;
    let process = format!("/proc/{daemon}");
    while Path::new(&process).exists() {
        if begun.elapsed() > 2 * FORCED {
            return Err("      the killed daemon is still there: it waits for itself".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    mounting.finish()?;
    world.ok("zpool list -H -o name,health")?.prints("tank\tONLINE")?;
    world.ok("zpool export tank")?;
    Ok(())
}

/// Whoever unmounts with `-u` would leave keys in memory, or lose one that others still need.
pub fn keys(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    std::fs::write(world.path("key"), "12345678\n")?;
    let key = world.at("key");
    let status = |wanted: &str| world.ok("zfs get -H -o value keystatus tank/root")?.prints(wanted).map(drop);
    world.ok("zpool create -O mountpoint={mnt}/tank tank {vdevs}/a")?;
    world.ok(&format!("zfs create -o encryption=on -o keyformat=passphrase -o keylocation=file://{key} tank/root"))?;
    world.ok("zfs create tank/root/below")?;
    // It has the key of what is above it.
    world.ok("zfs unmount -u tank/root/below")?;
    status("available")?;
    world.ok("zfs mount tank/root/below")?;
    world.ok("zfs unmount -u tank/root")?;
    status("unavailable")?;
    world.ok("zfs mount -fl tank/root")?;
    status("available")?;
    // Where others have the key it is not forgotten, and what lost its mount for that gets it back.
    world.ok("zfs snapshot tank/root@s")?;
    world.ok("zfs clone tank/root@s tank/clone")?;
    world.refused("zfs unmount -u tank/root", 1, "'tank/root' is busy.")?;
    status("available")?;
    world.ok("zfs mount")?.shows("tank/root ")?;
    world.ok("zfs destroy tank/clone")?;
    world.ok("zfs unmount -u -a")?;
    status("unavailable")
}
