//! Programs that use mounts while one daemon follows another: each says what it finds to be other than it wrote it.

use crate::mapped::{Mapped, PAGE};
use crate::world::{Failure, World, same};
use rustix::fs::{FlockOperation, OFlags, flock};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// Number of files of the directory that is listed meanwhile: many replies.
const NAMES: usize = 3000;
/// Bytes of a file that is read past the kernel's cache.
const BYTES: usize = 256 << 10;

fn bytes_of(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed) as u8).collect()
}

/// Stops programs, and waits for their ends: the first failure of one is that of all, else `outcome`; with a failure the daemon's log is shown.
pub fn ended<const N: usize>(
    world: &World,
    stop: &AtomicBool,
    programs: [ScopedJoinHandle<'_, Result<(), String>>; N],
    outcome: Result<(), Failure>,
) -> Result<(), Failure> {
    stop.store(true, Ordering::Release);
    let mut outcome = outcome;
    for program in programs {
        let ended = program.join().unwrap_or_else(|_| Err("      a program failed".to_string()));
        outcome = ended.map_err(Failure::from).and(outcome);
    }
    if outcome.is_err() {
        println!("--- the daemon's log\n{}", std::fs::read_to_string(world.path("state/zirconiad.log")).unwrap_or_default());
    }
    outcome
}

/// Error with what a program did.
fn failed(what: &str) -> impl FnOnce(std::io::Error) -> String {
    move |error| format!("      {what}: {error}")
}

/// Appends lines, and looks at the whole file in the end.
pub fn append(path: &Path, stop: &AtomicBool) -> Result<(), String> {
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
pub fn trees(folder: &Path, stop: &AtomicBool) -> Result<(), String> {
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
pub fn store(path: &Path, stop: &AtomicBool) -> Result<(), String> {
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
pub struct Held {
    nameless: File,
    later: File,
    in_snapshot: File,
    locked: File,
    list: std::fs::ReadDir,
    names: BTreeSet<String>,
}

impl Held {
    /// Makes and opens them.
    pub fn take(world: &World) -> Result<Held, Failure> {
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

    /// Checks that they are as they were; `next` has another daemon go on.
    pub fn check(mut self, world: &World, next: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        holds(&self.nameless, 0, "a file without a name")?;
        std::fs::remove_file(world.path("mnt/tank/later"))?;
        holds(&self.later, 1, "a file that lost its name later")?;
        next()?;
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
