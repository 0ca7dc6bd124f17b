//! `zirconia-commands kills [--keep] [N] [--seed S]`: the daemon is killed N times at random moments while programs write; nothing acknowledged is lost.
//!
//! A pool of a raidz1 has file systems in one another. Programs append cells to files that they keep open, and remember what fsync(2), or
//! syncfs(2) on a mount that forwards it, acknowledged; others write whole files ([`Writer`]). After each kill the supervisor starts the
//! daemon, the mounts come back by themselves, and the programs open their files again as soon as they can, making them where they are
//! missing: so a file system that is not there for a moment, while the one around it is, shows as a loss. In the end every cell and file
//! is there, nothing lies beneath the mountpoints, and `zdb` finds no leak.
//!
//! Beside them programs of others do what they are trusted for: messages are delivered ([`mail`]), and in the campaign transactions are committed to
//! SQLite ([`sqlite`]) and PostgreSQL ([`postgres`]), which are asked afterwards for what they acknowledged, and whether they are sound.
//!
//! With `--keep` the mounts outlive the daemon, and no program sees an error ([`keep`]).

pub mod keep;
mod load;
mod mail;
mod postgres;
mod sqlite;

use crate::campaign::writer::Writer;
use crate::waiting::{PATIENCE, STEP, until};
use crate::world::{Failure, Options, World, same};
use need::Need;
use std::collections::BTreeMap;
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
/// Pause between two tries to open a file that cannot be opened.
const AGAIN: Duration = Duration::from_micros(200);
/// Bytes of a cell.
const CELL: usize = 64;

/// Numbers that follow from a seed.
pub struct Chance(pub u64);

impl Chance {
    /// Returns a number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
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

/// Load: everything that writes.
struct Load {
    cells: Vec<Cells>,
    files: Writer,
    others: Vec<Box<dyn load::Load>>,
}

impl Load {
    fn start(world: &World, forwards: bool, seed: u64, others: Vec<Box<dyn load::Load>>) -> Load {
        let cells = |name: &str, how| Cells::start(world.path(&format!("mnt/tank/{name}")), how);
        let mut list = vec![cells("cells", Acknowledged::ByFsync), cells("fsync/cells", Acknowledged::ByFsync)];
        list.push(cells("noauto/cells", Acknowledged::ByFsync));
        if forwards {
            list.push(cells("syncfs/cells", Acknowledged::BySyncfs));
        }
        Load { cells: list, files: Writer::start(world.path("mnt/tank/files"), seed), others }
    }

    /// Waits until every program got something acknowledged that it had not before.
    fn goes_on(&self) -> Result<(), Failure> {
        let counts = || -> Vec<(&'static str, usize)> {
            let cells = self.cells.iter().map(|cells| ("cells", cells.count()));
            let others = self.others.iter().flat_map(|other| other.acknowledged().into_iter().map(|count| (other.name(), count)));
            cells.chain(others).collect()
        };
        let (before, begun) = (counts(), Instant::now());
        loop {
            let waits = counts().iter().zip(&before).find(|((_, now), (_, before))| *now <= before + 1).map(|((name, _), _)| *name);
            let Some(name) = waits else { return Ok(()) };
            if begun.elapsed() > PATIENCE {
                return Err(format!("      {name} are not acknowledged again").into());
            }
            std::thread::sleep(STEP);
        }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.cells.iter_mut().try_for_each(Cells::finish)?;
        self.others.iter_mut().try_for_each(|other| other.finish())?;
        self.files.finish(PATIENCE)
    }

    fn check(&mut self, when: &str) -> Result<(), Failure> {
        self.cells.iter().try_for_each(|cells| cells.check(when))?;
        self.others.iter_mut().try_for_each(|other| other.check(when))?;
        self.files.check(when)
    }

    /// Numbers of what was acknowledged, by its name.
    fn acknowledged(&self) -> BTreeMap<&'static str, usize> {
        let others = self.others.iter().map(|other| (other.name(), other.acknowledged().iter().sum()));
        [("cells", self.cells.iter().map(Cells::count).sum()), ("files", self.files.promised())].into_iter().chain(others).collect()
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Starts programs of others, each in a file system of its own; messages alone for the gate.
fn others(world: &World, (has_databases, are_kept): (bool, bool), seed: u64) -> Result<Vec<Box<dyn load::Load>>, Failure> {
    world.ok("zfs create tank/mail")?;
    let mut others: Vec<Box<dyn load::Load>> = vec![Box::new(mail::Mail::start(world.path("mnt/tank/mail"), seed)?)];
    if !has_databases {
        return Ok(others);
    }
    if !sqlite::is_missing()? {
        world.ok("zfs create -o recordsize=8K tank/sqlite")?;
        others.push(Box::new(sqlite::Sqlite::start(world.path("mnt/tank/sqlite"))));
    }
    if let Some(programs) = postgres::find()? {
        world.ok("zfs create -o recordsize=8K tank/postgres")?;
        others.push(Box::new(postgres::Postgres::start(world, programs, &world.path("mnt/tank/postgres"), (seed, are_kept))?));
    }
    Ok(others)
}

/// Runs some kills of one pool, and the judgement. Returns how much was acknowledged, by its name.
fn pool(world: &World, kills: u64, seed: u64, has_databases: bool) -> Result<BTreeMap<&'static str, usize>, Failure> {
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
    let mut load = Load::start(world, forwards, seed, others(world, (has_databases, false), seed)?);
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
    judge(world, &mut load, forwards)?;
    Ok(load.acknowledged())
}

/// Checks that nothing is beneath the mounts, everything is there after an import, and zdb agrees.
fn judge(world: &World, load: &mut Load, forwards: bool) -> Result<(), Failure> {
    world.ok("zpool export tank")?;
    same("names beneath the pool's mount", names_in(&world.path("mnt/tank")), Vec::new())?;
    world.ok("zpool import -N -d {vdevs} tank")?;
    world.ok("zfs mount tank")?;
    for child in ["fsync", "files", "noauto", "syncfs", "mail", "sqlite", "postgres"] {
        same(&format!("names beneath the mount of {child}"), names_in(&world.path(&format!("mnt/tank/{child}"))), Vec::new())?;
    }
    world.ok("zfs mount -a")?;
    world.ok("zfs mount tank/noauto")?;
    if forwards {
        world.ok("zfs mount tank/syncfs")?;
    }
    load.check("after an import")?;
    world.ok("zpool export tank")?;
    world.clean(&crate::world::judge("kills: OpenZFS's judgement")?, "-e -p {vdevs} -bcch tank")?;
    Ok(())
}

fn run(world: &World, kills: u64, seed: u64, has_databases: bool) -> Result<BTreeMap<&'static str, usize>, Failure> {
    pool(world, kills, seed, has_databases).inspect_err(|_| {
        for log in ["state/zirconiad.log", "pg/log"] {
            if let Ok(text) = std::fs::read_to_string(world.path(log)) {
                println!("--- {log}\n{text}");
            }
        }
    })
}

/// Runs three kills, for the gate. Without root there is a moment without a mount after each.
pub fn sample(world: &World) -> Result<(), Failure> {
    run(world, KILLS_OF_A_POOL, world.options().seed.unwrap_or(1), false).map(drop)
}

/// Wish of the command line.
struct Wish {
    kills: Option<u64>,
    seed: u64,
    keep: bool,
}

fn wish(mut words: impl Iterator<Item = String>) -> Option<Wish> {
    let mut wish = Wish { kills: None, seed: 1, keep: false };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seed" => wish.seed = words.next()?.parse().ok()?,
            "--keep" => wish.keep = true,
            number => wish.kills = Some(number.parse().ok()?),
        }
    }
    Some(wish)
}

/// Runs the campaign; false when something was lost.
pub fn main(words: impl Iterator<Item = String>) -> bool {
    let Some(Wish { kills, seed, keep }) = wish(words) else {
        eprintln!("usage: zirconia-commands kills [--keep] [N] [--seed S]");
        return false;
    };
    if let Err(ended) = crate::needs::begins(crate::needs::ROOT, "the kills") {
        return ended;
    }
    if keep {
        return keep::main(kills, seed);
    }
    let kills = kills.unwrap_or(KILLS);
    let mut total = BTreeMap::new();
    let (done, failed) = by_pools(
        (kills, KILLS_OF_A_POOL),
        seed,
        "",
        |world, now, seed| run(world, now, seed, true),
        |acknowledged, so_far| {
            println!("ok    {so_far}; acknowledged: {}", told(&acknowledged));
            acknowledged.into_iter().for_each(|(name, count)| *total.entry(name).or_default() += count);
        },
    );
    println!("{done} kills, {failed} pools failed; acknowledged were {}", told(&total));
    failed == 0 && done > 0
}

/// Runs kills, so many of each pool, in a world of its own; `option` is the one that a repetition needs. `tell` gets what each pool gave, and how
/// far that is. Returns the number of kills, and of pools that failed.
fn by_pools<T>(
    (kills, of_a_pool): (u64, u64),
    seed: u64,
    option: &str,
    pool: impl Fn(&World, u64, u64) -> Result<T, Failure>,
    mut tell: impl FnMut(T, &str),
) -> (u64, u64) {
    let (mut done, mut failed) = (0, 0);
    for seed in seed.. {
        if done >= kills {
            break;
        }
        let now = of_a_pool.min(kills - done);
        done += now;
        let begun = Instant::now();
        match World::new(Options::default()).and_then(|world| pool(&world, now, seed)) {
            Ok(given) => tell(given, &format!("{done} of {kills} kills ({:.1} s)", begun.elapsed().as_secs_f64())),
            Err(failure) => {
                println!("FAIL  kills up to {done}\n{failure}\n      again: cargo xtask kills {option}{now} --seed {seed}");
                failed += 1;
            }
        }
    }
    (done, failed)
}

fn told(acknowledged: &BTreeMap<&'static str, usize>) -> String {
    acknowledged.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}
