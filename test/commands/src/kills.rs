//! `zirconia-commands kills [N] [--seed S]`: the daemon is killed N times at random moments while programs write; nothing acknowledged is lost.
//!
//! A pool of a raidz1 has file systems in one another. Programs append cells to files that they keep open, and remember what fsync(2), or
//! syncfs(2) on a mount that forwards it, acknowledged; others write whole files ([`Writer`]). After each kill the supervisor starts the
//! daemon, the mounts come back by themselves, and the programs open their files again as soon as they can, making them where they are
//! missing: so a file system that is not there for a moment, while the one around it is, shows as a loss. In the end every cell and file
//! is there, nothing lies beneath the mountpoints, and `zdb` finds no leak.

use crate::campaign::writer::Writer;
use crate::world::{Failure, Options, World, same};
use need::Need;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Number of kills of one pool: the supervisor waits longer after each, and leaves a daemon alone that died six times in ten minutes.
const KILLS_OF_A_POOL: u64 = 3;
const KILLS: u64 = 200;
/// Time within which the daemon does what it does by itself.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(5);
/// Pause between two tries to open a file that cannot be opened.
const AGAIN: Duration = Duration::from_micros(200);
/// Bytes of a cell.
const CELL: usize = 64;

/// Numbers that follow from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn cell(number: u64) -> [u8; CELL] {
    let mut bytes = [b'.'; CELL];
    bytes[..20].copy_from_slice(format!("{number:020}").as_bytes());
    bytes[CELL - 1] = b'\n';
    bytes
}

/// Way in which a program learns that what it wrote is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acknowledged {
    ByFsync,
    BySyncfs,
}

/// Program that appends cells to a file.
struct Cells {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<u64>>>,
    thread: Option<JoinHandle<()>>,
}

impl Cells {
    fn start(path: PathBuf, how: Acknowledged) -> Cells {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (told, kept, place) = (stop.clone(), acknowledged.clone(), path.clone());
        let work = move || {
            let mut file: Option<File> = None;
            let mut number = 0;
            while !told.load(Ordering::Acquire) {
                number += 1;
                match append(&mut file, &place, number, how) {
                    Ok(()) => kept.lock().unwrap_or_else(PoisonError::into_inner).push(number),
                    Err(_) => {
                        file = None;
                        std::thread::sleep(AGAIN);
                    }
                }
            }
        };
        Cells { path, stop, acknowledged, thread: Some(std::thread::spawn(work)) }
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        until("a program comes back from its last call", || Ok(thread.is_finished()))?;
        thread.join().map_err(|_| "      a program failed".into())
    }

    /// Checks that every cell that was acknowledged is in the file, and nothing but cells.
    fn check(&self, when: &str) -> Result<(), Failure> {
        let bytes = std::fs::read(&self.path).map_err(|error| format!("      {when}: {}: {error}", self.path.display()))?;
        let name = self.path.display();
        let mut found = std::collections::BTreeSet::new();
        for (index, piece) in bytes.chunks(CELL).enumerate() {
            let number = std::str::from_utf8(piece.get(..20).unwrap_or_default()).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
            if piece != cell(number) {
                return Err(format!("      {when}: {name} has something else in the place of cell {index}").into());
            }
            found.insert(number);
        }
        let acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        let lost: Vec<&u64> = acknowledged.iter().filter(|number| !found.contains(number)).collect();
        match lost.first() {
            None => Ok(()),
            Some(first) => Err(format!(
                "      {when}: {name} lacks {} of {} acknowledged cells, the first is {first}, of {} that are there",
                lost.len(),
                acknowledged.len(),
                found.len()
            )
            .into()),
        }
    }
}

/// Appends a cell and waits until it is on disk; opens the file first when it is not open.
fn append(file: &mut Option<File>, path: &Path, number: u64, how: Acknowledged) -> std::io::Result<()> {
    let open = match file {
        Some(open) => open,
        None => file.insert(OpenOptions::new().create(true).append(true).open(path)?),
    };
    open.write_all(&cell(number))?;
    match how {
        Acknowledged::ByFsync => open.sync_all(),
        Acknowledged::BySyncfs => Ok(rustix::fs::syncfs(&*open)?),
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > PATIENCE {
            return Err(format!("      {what}: does not come").into());
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// Load: everything that writes.
struct Load {
    cells: Vec<Cells>,
    files: Writer,
}

impl Load {
    fn start(world: &World, forwards: bool, seed: u64) -> Load {
        let cells = |name: &str, how| Cells::start(world.path(&format!("mnt/tank/{name}")), how);
        let mut list = vec![cells("cells", Acknowledged::ByFsync), cells("fsync/cells", Acknowledged::ByFsync)];
        list.push(cells("noauto/cells", Acknowledged::ByFsync));
        if forwards {
            list.push(cells("syncfs/cells", Acknowledged::BySyncfs));
        }
        Load { cells: list, files: Writer::start(world.path("mnt/tank/files"), seed) }
    }

    /// Waits until every program got something acknowledged that it had not before.
    fn goes_on(&self) -> Result<(), Failure> {
        let before: Vec<usize> = self.cells.iter().map(Cells::count).collect();
        until("what programs write is acknowledged again", || {
            Ok(self.cells.iter().zip(&before).all(|(cells, before)| cells.count() > before + 1))
        })
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.cells.iter_mut().try_for_each(Cells::finish)?;
        self.files.finish(PATIENCE)
    }

    fn check(&self, when: &str) -> Result<(), Failure> {
        self.cells.iter().try_for_each(|cells| cells.check(when))?;
        self.files.check(when)
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Runs some kills of one pool, and the judgement. Returns how many cells and files were acknowledged.
fn pool(world: &World, kills: u64, seed: u64) -> Result<(usize, usize), Failure> {
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m {mnt}/tank tank raidz {vdevs}/a {vdevs}/b {vdevs}/c")?;
    for name in ["tank/fsync", "tank/files", "-o canmount=noauto tank/noauto"] {
        world.ok(&format!("zfs create {name}"))?;
    }
    world.ok("zfs mount tank/noauto")?;
    let forwards = !need::lacks(Need::Loops, "kills: a mount that forwards syncfs")?;
    if forwards {
        world.ok("zfs create -o canmount=noauto tank/syncfs")?;
        world.ok("zfs mount -o syncfs tank/syncfs")?;
    }
    let mut load = Load::start(world, forwards, seed);
    load.goes_on()?;
    for _ in 0..kills {
        let daemon = world.daemon()?;
        std::thread::sleep(Duration::from_millis(chance.below(1200)));
        world.ok(&format!("kill -9 {daemon}"))?;
        // The next one may be killed while it still mounts.
        until("the daemon is started again", || Ok(world.daemon().is_ok_and(|next| next != daemon)))?;
        if chance.below(3) > 0 {
            load.goes_on()?;
        } else {
            std::thread::sleep(Duration::from_millis(chance.below(150)));
        }
    }
    load.goes_on()?;
    load.finish()?;
    load.check("through the mounts that came back")?;
    judge(world, &load, forwards)?;
    Ok((load.cells.iter().map(Cells::count).sum(), load.files.promised()))
}

/// Checks that nothing is beneath the mounts, everything is there after an import, and zdb agrees.
fn judge(world: &World, load: &Load, forwards: bool) -> Result<(), Failure> {
    world.ok("zpool export tank")?;
    same("names beneath the pool's mount", names_in(&world.path("mnt/tank")), Vec::new())?;
    world.ok("zpool import -N -d {vdevs} tank")?;
    world.ok("zfs mount tank")?;
    for child in ["fsync", "files", "noauto", "syncfs"] {
        same(&format!("names beneath the mount of {child}"), names_in(&world.path(&format!("mnt/tank/{child}"))), Vec::new())?;
    }
    world.ok("zfs mount -a")?;
    world.ok("zfs mount tank/noauto")?;
    if forwards {
        world.ok("zfs mount tank/syncfs")?;
    }
    load.check("after an import")?;
    world.ok("zpool export tank")?;
    let judged = world.ok(&format!("{} -e -p {{vdevs}} -bcc tank", crate::world::judge("kills: OpenZFS's judgement")?))?;
    judged.shows("No leaks")?;
    Ok(())
}

fn run(world: &World, kills: u64, seed: u64) -> Result<(usize, usize), Failure> {
    pool(world, kills, seed).inspect_err(|_| {
        if let Ok(log) = std::fs::read_to_string(world.path("state/zirconiad.log")) {
            println!("--- the daemon's log\n{log}");
        }
    })
}

/// Runs three kills, for the gate. Without root there is a moment without a mount after each.
pub fn sample(world: &World) -> Result<(), Failure> {
    run(world, KILLS_OF_A_POOL, world.options().seed.unwrap_or(1)).map(drop)
}

fn wish(mut words: impl Iterator<Item = String>) -> Option<(u64, u64)> {
    let (mut kills, mut seed) = (KILLS, 1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seed" => seed = words.next()?.parse().ok()?,
            number => kills = number.parse().ok()?,
        }
    }
    Some((kills, seed))
}

/// Runs the campaign; false when something was lost.
pub fn main(words: impl Iterator<Item = String>) -> bool {
    let Some((kills, seed)) = wish(words) else {
        eprintln!("usage: zirconia-commands kills [N] [--seed S]");
        return false;
    };
    if let Err(ended) = crate::needs::begins(crate::needs::ROOT, "the kills") {
        return ended;
    }
    let (mut done, mut failed, mut cells, mut files) = (0, 0, 0, 0);
    for seed in seed.. {
        if done >= kills {
            break;
        }
        let now = KILLS_OF_A_POOL.min(kills - done);
        done += now;
        let begun = Instant::now();
        match World::new(Options::default()).and_then(|world| run(&world, now, seed)) {
            Ok(acknowledged) => {
                (cells, files) = (cells + acknowledged.0, files + acknowledged.1);
                let seconds = begun.elapsed().as_secs_f64();
                println!("ok    {done} of {kills} kills ({seconds:.1} s; {} cells, {} files acknowledged)", acknowledged.0, acknowledged.1);
            }
            Err(failure) => {
                println!("FAIL  kills up to {done}\n{failure}\n      again: cargo xtask kills {now} --seed {seed}");
                failed += 1;
            }
        }
    }
    println!("{done} kills, {failed} pools failed; {cells} cells and {files} files were acknowledged");
    failed == 0 && done > 0
}
