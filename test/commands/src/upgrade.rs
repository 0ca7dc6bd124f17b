//! The daemon is replaced while programs use its mounts: what users lose if this fails is a program that sees an error, a write that is lost or
//! done twice, a file that is deleted while it is open.

use crate::mapped::{Mapped, PAGE};
use crate::world::{Failure, World, judge, same};
use need::Need;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of replacements under programs.
const UPGRADES: usize = 6;
/// Number of files of the directory that is listed meanwhile: many replies.
const NAMES: usize = 3000;
/// Bytes of a file that is read past the kernel's cache.
const BYTES: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(120);

fn bytes_of(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed) as u8).collect()
}

/// Error with what a program did.
fn failed(what: &str) -> impl FnOnce(std::io::Error) -> String {
    move |error| format!("      {what}: {error}")
}

/// Appends lines, and looks at the whole file in the end.
fn append(path: &Path, stop: &AtomicBool) -> Result<(), String> {
    let mut file = OpenOptions::new().create_new(true).append(true).open(path).map_err(failed("create"))?;
    let mut count = 0_usize;
    while !stop.load(Ordering::Acquire) {
        writeln!(file, "{count}").map_err(failed("append"))?;
        if count.is_multiple_of(64) {
            file.sync_data().map_err(failed("fdatasync"))?;
        }
        count += 1;
    }
    let wanted: String = (0..count).map(|line| format!("{line}\n")).collect();
    let found = std::fs::read_to_string(path).map_err(failed("read"))?;
    if found == wanted { Ok(()) } else { Err(format!("      {}: a line is missing, or there twice", path.display())) }
}

/// Makes, reads, renames and removes trees of files, each once: what is done twice says so.
fn trees(folder: &Path, stop: &AtomicBool) -> Result<(), String> {
    for round in 0.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let (first, last) = (folder.join(format!("t{round}")), folder.join(format!("u{round}")));
        std::fs::create_dir(&first).map_err(failed("mkdir"))?;
        for file in 0..20 {
            let path = first.join(format!("f{file}"));
            let write = |mut made: File| made.write_all(&bytes_of(round ^ file, 5000 + file * 777));
            File::create_new(&path).and_then(write).map_err(failed("create"))?;
        }
        std::fs::rename(&first, &last).map_err(failed("rename"))?;
        for file in 0..20 {
            let path = last.join(format!("f{file}"));
            if std::fs::read(&path).map_err(failed("read"))? != bytes_of(round ^ file, 5000 + file * 777) {
                return Err(format!("      {}: other bytes", path.display()));
            }
            std::fs::hard_link(&path, last.join("link")).map_err(failed("link"))?;
            std::fs::remove_file(last.join("link")).map_err(failed("unlink"))?;
            std::fs::remove_file(&path).map_err(failed("unlink"))?;
        }
        std::fs::remove_dir(&last).map_err(failed("rmdir"))?;
    }
    Ok(())
}

/// Stores through a mapping, page after page, and compares with read(2) in the end.
fn store(path: &Path, stop: &AtomicBool) -> Result<(), String> {
    const PAGES: usize = 64;
    let file = OpenOptions::new().create_new(true).read(true).write(true).open(path).map_err(failed("create"))?;
    file.set_len((PAGES * PAGE) as u64).map_err(failed("truncate"))?;
    let mapped = Mapped::new(&file, PAGES * PAGE).map_err(failed("mmap"))?;
    let mut wanted = vec![0; PAGES * PAGE];
    for count in 0_usize.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let at = count % PAGES * PAGE + count % 4000;
        let bytes = count.to_le_bytes();
        mapped.write(at, &bytes);
        wanted[at..at + bytes.len()].copy_from_slice(&bytes);
        if count.is_multiple_of(512) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    file.sync_all().map_err(failed("fsync"))?;
    let mut found = vec![0; PAGES * PAGE];
    let direct = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path).map_err(failed("open"))?;
    direct.read_exact_at(&mut found, 0).map_err(failed("read"))?;
    if found == wanted { Ok(()) } else { Err(format!("      {}: what was stored is not in the file", path.display())) }
}

fn replaced(world: &World, line: &str) -> Result<(), Failure> {
    let before = world.daemon()?;
    world.ok(line)?;
    same("the daemon is another one", world.daemon()? == before, false)
}

/// Bytes of a file that is open, past the kernel's cache.
fn direct(path: &Path) -> Result<File, Failure> {
    Ok(OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)?)
}

fn holds(file: &File, seed: usize, what: &str) -> Result<(), Failure> {
    let mut found = vec![0; BYTES];
    file.read_exact_at(&mut found, 0).map_err(|error| format!("      {what}: {error}"))?;
    same(what, found == bytes_of(seed, BYTES), true)
}

/// Open files, names and locks of programs that go on.
struct Held {
    nameless: File,
    later: File,
    in_snapshot: File,
    locked: File,
    list: std::fs::ReadDir,
    names: BTreeSet<String>,
}

impl Held {
    fn take(world: &World) -> Result<Held, Failure> {
        let at = |name: &str| world.path(&format!("mnt/tank/{name}"));
        for (seed, name) in ["nameless", "later", "kept"].into_iter().enumerate() {
            std::fs::write(at(name), bytes_of(seed, BYTES))?;
        }
        std::fs::write(at("locked"), "")?;
        std::fs::create_dir(at("many"))?;
        for name in 0..NAMES {
            File::create_new(at(&format!("many/file-with-a-long-name-{name}")))?;
        }
        world.ok("zfs snapshot tank@s")?;
        let (nameless, later, in_snapshot) = (direct(&at("nameless"))?, direct(&at("later"))?, direct(&at(".zfs/snapshot/s/kept"))?);
        std::fs::remove_file(at("nameless"))?;
        let locked = File::open(at("locked"))?;
        flock(&locked, FlockOperation::NonBlockingLockExclusive)?;
        let mut list = std::fs::read_dir(at("many"))?;
        let names = list.by_ref().take(10).flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        Ok(Held { nameless, later, in_snapshot, locked, list, names })
    }

    fn check(mut self, world: &World) -> Result<(), Failure> {
        holds(&self.nameless, 0, "a file without a name")?;
        std::fs::remove_file(world.path("mnt/tank/later"))?;
        holds(&self.later, 1, "a file that lost its name later")?;
        replaced(world, "zirconia upgrade")?;
        holds(&self.later, 1, "a file that lost its name between")?;
        holds(&self.in_snapshot, 2, "a file of a snapshot")?;
        let other = File::open(world.path("mnt/tank/locked"))?;
        same("the lock is held", flock(&other, FlockOperation::NonBlockingLockExclusive).is_err(), true)?;
        flock(&self.locked, FlockOperation::Unlock)?;
        for entry in self.list.by_ref() {
            let name = entry?.file_name().to_string_lossy().into_owned();
            same("a name is listed once", self.names.insert(name.clone()), true).map_err(|_| format!("      {name} is listed twice"))?;
        }
        same("names that are listed", self.names.len(), NAMES)
    }
}

/// Programs that write, store, make and remove, hold files and locks, and list, go on under one daemon after the other.
pub fn under_programs(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    for name in ["tank/append", "tank/trees", "tank/store"] {
        world.ok(&format!("zfs create {name}"))?;
    }
    // What is mounted by hand, and elsewhere, goes on too.
    world.ok("zfs create -o canmount=noauto tank/byhand")?;
    world.ok("zfs mount -o ro tank/byhand")?;
    let held = Held::take(world)?;
    let script =
        "cd {mnt}/tank && for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do cat kept | cksum && sleep 0.2 || exit 1; done";
    std::fs::write(world.path("works.sh"), script.replace("{mnt}", &world.at("mnt")))?;
    let works = world.start("sh -e {dir}/works.sh", PATIENCE)?;
    let stop = AtomicBool::new(false);
    let at = |name: &str| world.path(&format!("mnt/tank/{name}"));
    let outcome = std::thread::scope(|scope| {
        let programs = [
            scope.spawn(|| append(&at("append/log"), &stop)),
            scope.spawn(|| trees(&at("trees"), &stop)),
            scope.spawn(|| store(&at("store/mapped"), &stop)),
        ];
        let upgraded =
            (0..UPGRADES).try_for_each(|_| replaced(world, "zirconia upgrade").inspect_err(|_| stop.store(true, Ordering::Release)));
        let held = upgraded.and_then(|()| held.check(world));
        stop.store(true, Ordering::Release);
        for program in programs {
            program.join().map_err(|_| "      a program failed")??;
        }
        held
    });
    if outcome.is_err() {
        println!("--- the daemon's log\n{}", std::fs::read_to_string(world.path("state/zirconiad.log")).unwrap_or_default());
    }
    outcome?;
    let (worked, _) = works.finish()?;
    if worked.code != 0 {
        return Err(worked.fault("a program that works in the mount should see no error"));
    }
    world.ok("zfs list -H -o mounted tank/byhand")?.prints("yes")?;
    same("it is read-only", std::fs::write(world.path("mnt/tank/byhand/f"), "").is_err(), true)?;
    world.logged(&["leaves its mounts to the next daemon", "replaces the daemon"])?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool export tank")?;
    let judged = world.ok(&format!("{} -e -p {{vdevs}} -bcc tank", judge("upgrade: OpenZFS's judgement")?))?;
    judged.shows("No leaks").map(drop)
}

/// A program that is no daemon, one that is not there, mounts that cannot be left: programs see no error, and the daemon goes on.
pub fn refused(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    let path = world.path("mnt/tank/log");
    let mut log = OpenOptions::new().create_new(true).append(true).open(&path)?;
    log.write_all(b"1")?;
    world.refused("zirconia upgrade {dir}/nowhere", 1, "cannot replace the daemon")?;
    for program in ["/bin/false", "/bin/true"] {
        let program = std::fs::canonicalize(program)?.display().to_string();
        world.refused(&format!("zirconia upgrade {program}"), 1, "did not start")?;
        log.write_all(b"2")?;
    }
    let mut text = String::new();
    File::open(&path)?.read_to_string(&mut text)?;
    same("what was written", text.as_str(), "122")?;
    // A daemon that dies is another matter, also after a replacement.
    replaced(world, "zirconia upgrade")?;
    // One that is killed before it goes on with a mount leaves that to the next.
    log.write_all(b"3")?;
    let daemon = world.daemon()?;
    world.ok(&format!("kill -9 {daemon}"))?;
    let begun = Instant::now();
    // It is served until the process is gone.
    while log.write_all(b"4").is_ok() {
        same("its open files are lost", begun.elapsed() < PATIENCE, true)?;
    }
    crate::hidden::comes_back(world, "tank")?;
    same("what is on disk", std::fs::read(&path)?.starts_with(b"122"), true)?;
    if !need::lacks(Need::Root, "upgrade: a pool in a mounted file system")? {
        File::create(world.path("mnt/tank/vdev"))?.set_len(crate::world::VDEV_BYTES / 4)?;
        world.ok("zpool create -m none inner {mnt}/tank/vdev")?;
        world.refused("zirconia upgrade", 1, "files in a mounted file system")?;
        world.ok("zpool destroy inner")?;
    }
    replaced(world, "zirconia upgrade")
}
