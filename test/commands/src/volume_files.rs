//! Contents of volumes as programs use them: through their files in the daemon's state directory, and through loop devices over these.

use crate::waiting::{PATIENCE, until};
use crate::ways::Loop;
use crate::world::{Failure, World, same};
use need::pattern;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

const MIB: u64 = 1 << 20;
/// Words about a device that is a volume of the same daemon.
const ITSELF: &str = "the pool would wait for itself";

/// Path of a volume's file.
fn file(world: &World, name: &str) -> PathBuf {
    world.path("state/dev/zvol").join(name)
}

fn open(world: &World, name: &str) -> Result<File, Failure> {
    Ok(OpenOptions::new().read(true).write(true).open(file(world, name))?)
}

fn reads(file: &File, offset: u64, length: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Checks that something failed with this errno.
fn fails<T>(what: &str, result: std::io::Result<T>, errno: rustix::io::Errno) -> Result<(), Failure> {
    same(what, result.err().and_then(|error| error.raw_os_error()), Some(errno.raw_os_error()))
}

/// If this fails, a program that uses a volume as a disk reads other bytes than it wrote, or loses what was synced.
pub fn bytes(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O mountpoint=none tank {vdevs}/a")?;
    world.ok("zfs create -V 16m tank/vol")?.says("is the file dev/zvol/tank/vol in the daemon's state directory")?;
    world.ok("zfs create -p -s -V 1m tank/a/b/small")?;
    let listed = |path: &str| -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(file(world, path))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    };
    same("the pool's folder", listed("tank")?, vec!["a".to_string(), "vol".to_string()])?;
    same("a folder below", listed("tank/a/b")?, vec!["small".to_string()])?;
    let facts = std::fs::metadata(file(world, "tank/vol"))?;
    same("size and mode", (facts.len(), facts.mode() & 0o7777), (16 * MIB, 0o600))?;
    let volume = open(world, "tank/vol")?;
    let (first, second) = (pattern(300_001, 1), pattern(2 << 20, 2));
    volume.write_all_at(&first, 4097)?;
    volume.write_all_at(&second, 8 * MIB)?;
    volume.sync_all()?;
    // Nobody was promised anything of this.
    volume.write_all_at(&[7; 512], 4 * MIB)?;
    let check = |volume: &File, when: &str| -> Result<(), Failure> {
        same(when, reads(volume, 4097, first.len())? == first && reads(volume, 8 * MIB, second.len())? == second, true)
    };
    check(&volume, "what was written")?;
    drop(volume);
    world.ok(&format!("kill -9 {}", world.daemon()?))?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?;
    let volume = open(world, "tank/vol")?;
    check(&volume, "after the daemon was killed")?;
    drop(volume);
    direct(world)?;
    world.ok("zpool export tank")?;
    same("without its pool", file(world, "tank").exists(), false)?;
    world.ok("zpool import -d {vdevs} tank")?;
    check(&open(world, "tank/vol")?, "after an import")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("errors: No known data errors").map(drop)
}

/// Writes past every cache, durably, and by dd(1), which truncates what it opens unless it is told not to.
fn direct(world: &World) -> Result<(), Failure> {
    let path = file(world, "tank/vol").display().to_string();
    world.ok(&format!("dd if=/dev/zero of={path} bs=64k count=4 seek=200 oflag=direct,dsync conv=notrunc status=none"))?;
    let counts = std::fs::read_to_string(world.path("state/proc/spl/kstat/zfs/tank/direct"))?;
    let written = counts.lines().find_map(|line| line.strip_prefix("direct_write_bytes")?.split_whitespace().last()?.parse::<u64>().ok());
    same("bytes that were written directly", written, Some(4 * (64 << 10)))?;
    let small = file(world, "tank/a/b/small").display().to_string();
    world.ok(&format!("dd if=/dev/zero of={small} bs=64k count=2 status=none"))?;
    same("the size of what dd opened", std::fs::metadata(&small)?.len(), MIB)?;
    let synced = OpenOptions::new().read(true).write(true).custom_flags(OFlags::DSYNC.bits() as i32).open(&path)?;
    synced.write_all_at(&pattern(5000, 3), 13 * MIB)?;
    same("durable bytes", reads(&synced, 13 * MIB, 5000)?, pattern(5000, 3))?;
    drop(synced);
    same("the size", std::fs::metadata(&path)?.len(), 16 * MIB)
}

/// Number of volumes of a suspended pool that somebody waits for: more than there are threads that read the requests of volumes, and of the
/// pool's own. This program, too, closes them in each command that it begins.
const WAITED_FOR: usize = 40;
/// Number of threads that the suspended pool has of its own.
const OWN: usize = 16;

/// Number of threads of a process that have this name.
fn threads(pid: &str, name: &str) -> Result<usize, Failure> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?.filter_map(Result::ok);
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    Ok(names.filter(|found| found.trim() == name).count())
}

/// If this fails, requests that wait for a suspended pool take every thread that serves volumes, and those of all other pools stand still.
pub fn suspended(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -O mountpoint=none one {vdevs}/a")?;
    world.ok("zpool create -O mountpoint=none two {vdevs}/b")?;
    world.ok("zfs create -s -V 16m two/vol")?;
    let mut waited_for = Vec::new();
    for number in 0..WAITED_FOR {
        world.ok(&format!("zfs create -s -V 1m one/v{number}"))?;
        waited_for.push(open(world, &format!("one/v{number}"))?);
    }
    world.ok("zinject -d {vdevs}/a -e io -T write one")?;
    let write = |volume: File| std::thread::spawn(move || volume.write_all_at(&[1; 5000], 4096).and_then(|()| volume.sync_all()));
    let writers: Vec<_> = waited_for.into_iter().map(write).collect();
    until("the pool is suspended", || Ok(world.ok("zpool list -H -o health one")?.out.contains("SUSPENDED")))?;
    let daemon = world.daemon()?;
    until("threads of the suspended pool's own wait", || Ok(threads(&daemon, "z-fuse-lane")? >= OWN))?;
    let other = file(world, "two/vol").display().to_string();
    for line in
        ["dd if=/dev/urandom of={} bs=64k count=16 conv=notrunc,fsync status=none", "dd if={} of=/dev/null bs=64k count=16 status=none"]
    {
        let (ran, _) = world.start(&line.replace("{}", &other), PATIENCE)?.finish()?;
        same("what was done to another pool's volume", ran.code, 0)?;
    }
    world.start(&format!("ls {}", file(world, "").display()), PATIENCE)?.finish()?.0.shows("one\ntwo\n")?;
    world.ok("zinject -c all")?;
    world.ok("zpool clear one")?;
    for writer in writers {
        same("a write that waited", writer.join().is_ok_and(|written| written.is_ok()), true)?;
    }
    let bytes = reads(&open(world, "one/v0")?, 4096, 5000)?;
    same("what it wrote", bytes, vec![1; 5000])
}

/// If this fails, a volume grows, shrinks or vanishes under who uses it, or shows what was freed.
pub fn changes(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O mountpoint=none tank {vdevs}/a")?;
    world.ok("zfs create -s -V 16m tank/vol")?;
    let volume = open(world, "tank/vol")?;
    fails("a write behind the end", volume.write_at(&[1], 16 * MIB), rustix::io::Errno::FBIG)?;
    same("a write over the end", volume.write_at(&[1; 1000], 16 * MIB - 100)?, 100)?;
    same("a read over the end", volume.read_at(&mut [0; 1000], 16 * MIB - 100)?, 100)?;
    world.ok("zfs set volsize=32m tank/vol")?;
    same("larger", volume.metadata()?.len(), 32 * MIB)?;
    volume.write_all_at(&pattern(4096, 1), 30 * MIB)?;
    world.ok("zfs set volsize=8m tank/vol")?;
    same("smaller", volume.metadata()?.len(), 8 * MIB)?;
    fails("a write behind the new end", volume.write_at(&[1], 30 * MIB), rustix::io::Errno::FBIG)?;
    world.ok("zfs set volsize=32m tank/vol")?;
    same("what was cut off", reads(&volume, 30 * MIB, 4096)?, vec![0; 4096])?;
    // Holes: what is punched is zeros to the byte.
    volume.write_all_at(&pattern(256 << 10, 2), 0)?;
    rustix::fs::fallocate(&volume, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1000, 100_000)?;
    let mut expected = pattern(256 << 10, 2);
    expected[1000..101_000].fill(0);
    same("a hole", reads(&volume, 0, expected.len())? == expected, true)?;
    same("the next data", rustix::fs::seek(&volume, SeekFrom::Data(16 << 10))?, 96 << 10)?;
    fails("another size", volume.set_len(5), rustix::io::Errno::INVAL)?;
    drop(File::create(file(world, "tank/vol"))?);
    same("the size", volume.metadata()?.len(), 32 * MIB)?;
    same("a new file", File::create(file(world, "tank/other")).is_err(), true)?;
    for line in ["zfs destroy tank/vol", "zfs rename tank/vol tank/other", "zpool export tank", "zfs destroy -r tank"] {
        world.refused(line, 1, "dataset is busy")?;
    }
    same("nothing changed", reads(&volume, 0, expected.len())? == expected, true)?;
    snapshots(world, &volume, &expected)?;
    drop(volume);
    world.ok("zfs rename tank/vol tank/moved")?;
    same("the old name", file(world, "tank/vol").exists(), false)?;
    hidden(world)?;
    let volume = open(world, "tank/moved")?;
    world.ok("zfs destroy -rf tank/moved")?;
    fails("a read of what is gone", volume.read_at(&mut [0; 512], 0), rustix::io::Errno::IO)
}

/// Snapshots are files where `snapdev` says so, and stay as they were.
fn snapshots(world: &World, volume: &File, old: &[u8]) -> Result<(), Failure> {
    world.ok("zfs snapshot tank/vol@s")?;
    volume.write_all_at(&[9; 5000], 0)?;
    same("a hidden snapshot", file(world, "tank/vol@s").exists(), false)?;
    world.ok("zfs set snapdev=visible tank/vol")?;
    let snapshot = File::open(file(world, "tank/vol@s"))?;
    same("the snapshot", reads(&snapshot, 0, old.len())? == old, true)?;
    same("writing to it", writable(world, "tank/vol@s").is_err(), true)?;
    world.refused("zfs destroy tank/vol@s", 1, "dataset is busy")?.says("close what has the volume 'tank/vol@s' open")?;
    drop(snapshot);
    Ok(())
}

fn writable(world: &World, name: &str) -> std::io::Result<File> {
    OpenOptions::new().write(true).open(file(world, name))
}

/// Volumes that are not to be seen, and such as nobody may write to.
fn hidden(world: &World) -> Result<(), Failure> {
    world.ok("zfs set volmode=none tank/moved")?;
    same("volmode=none", file(world, "tank/moved").exists(), false)?;
    world.ok("zfs inherit volmode tank/moved")?;
    let volume = open(world, "tank/moved")?;
    world.ok("zfs set readonly=on tank/moved")?;
    fails("a write to what became read-only", volume.write_at(&[1], 0), rustix::io::Errno::ROFS)?;
    drop(volume);
    same("opening it for writing", writable(world, "tank/moved").is_err(), true)?;
    world.ok("zfs inherit readonly tank/moved").map(drop)
}

/// If this fails, a file system on a volume is damaged by a clean unmount and a new import.
pub fn loops(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O mountpoint=none tank {vdevs}/a")?;
    world.ok("zfs create -V 64m tank/vol")?;
    std::fs::create_dir_all(world.path("guest"))?;
    let path = file(world, "tank/vol").display().to_string();
    let bytes = pattern(5 << 20, 4);
    {
        let device = Loop::over(world, "", &path)?;
        world.ok(&format!("mkfs.ext4 -q {}", device.device))?;
        world.ok(&format!("mount {} {{dir}}/guest", device.device))?;
        let written = std::fs::write(world.path("guest/file"), &bytes);
        let refused = world.refused("zfs destroy tank/vol", 1, "dataset is busy");
        world.ok("umount {dir}/guest")?;
        written?;
        refused?;
        world.ok(&format!("e2fsck -f -n {}", device.device))?;
        world.refused(&format!("zpool create -f two {}", device.device), 1, ITSELF)?;
    }
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    let device = Loop::over(world, "--direct-io=on", &path)?;
    world.ok(&format!("e2fsck -f -n {}", device.device))?;
    world.ok(&format!("mount -o discard {} {{dir}}/guest", device.device))?;
    let found = std::fs::read(world.path("guest/file"));
    let removed = std::fs::remove_file(world.path("guest/file"));
    world.ok("umount {dir}/guest")?;
    same("the file", found? == bytes, true)?;
    removed?;
    world.ok(&format!("e2fsck -f -n {}", device.device))?;
    drop(device);
    world.ok("zfs destroy tank/vol").map(drop)
}

/// If this fails, a daemon that is killed waits for its own answer, where not even SIGKILL reaches, and no pool of it comes back.
pub fn beneath(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -O mountpoint=none tank {vdevs}/a")?;
    world.ok("zfs create -s -V 128m tank/vol")?;
    let path = file(world, "tank/vol").display().to_string();
    std::os::unix::fs::symlink(&path, world.path("link"))?;
    for device in [path.as_str(), "{dir}/link"] {
        world.refused(&format!("zpool create -f -O mountpoint=none two {device}"), 1, ITSELF)?;
    }
    world.ok("zpool create -O mountpoint=none two {vdevs}/b")?;
    for verb in ["add -f two", "add -f two log", "add -f two spare", "attach -f two {vdevs}/b", "replace -f two {vdevs}/b"] {
        world.refused(&format!("zpool {verb} {path}"), 1, ITSELF)?;
    }
    world.ok(&format!("kill -9 {}", world.daemon()?))?;
    world.ok("zpool status tank two")?.shows("pool: tank")?.shows("pool: two").map(drop)
}
