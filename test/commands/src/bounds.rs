//! `zirconia-commands bounds [FILE_SYSTEMS [ROUNDS]]`: figures that have a bound. How long `zpool list` takes while a vendor's library aborts and hangs
//! at every place where it is called, ROUNDS times each; and memory and threads of a daemon with so many mounted file systems: after they were made,
//! with a file in each, after an import, and when each file was read.

use crate::vendors;
use crate::world::{Failure, Options, World};
use std::time::Duration;

const FILE_SYSTEMS: u32 = 1000;
const ROUNDS: u32 = 3;
/// Bounds of a daemon with [`FILE_SYSTEMS`].
const MEMORY_KIB: u64 = 400 << 10;
const THREADS: u64 = 100;
/// Bound of one look.
const LOOK: Duration = Duration::from_secs(1);
/// Time by which all file systems are mounted.
const PATIENCE: Duration = Duration::from_secs(600);

/// Prints a figure beside its bound; a failure when it is above.
fn bounded(what: &str, figure: u64, bound: u64) -> Result<(), Failure> {
    println!("      {what}: {figure} (at most {bound})");
    if figure <= bound { Ok(()) } else { Err(format!("      {what}: {figure} is above {bound}").into()) }
}

/// Judges memory and threads of the daemon.
fn daemon(world: &World, when: &str) -> Result<(), Failure> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.daemon()?))?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok()).ok_or(format!("no {name}"))
    };
    bounded(&format!("KiB resident {when}"), number("VmRSS:")?, MEMORY_KIB)?;
    bounded(&format!("threads {when}"), number("Threads:")?, THREADS)
}

fn crowd(world: &World, count: u32) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    std::fs::OpenOptions::new().write(true).open(world.path("vdevs/a"))?.set_len(2 << 30)?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    let places: Vec<String> = (0..count).map(|number| format!("tank/{number:04}")).collect();
    for place in &places {
        world.ok(&format!("zfs create {place}"))?;
    }
    daemon(world, "after they were made")?;
    for place in &places {
        std::fs::write(world.path(&format!("mnt/{place}/file")), place)?;
    }
    world.ok("zpool sync tank")?;
    daemon(world, "with a file in each")?;
    world.start("zpool export tank", PATIENCE)?.finish()?;
    let (ran, took) = world.start("zpool import -d {vdevs} tank", PATIENCE)?.finish()?;
    if ran.code != 0 {
        return Err(ran.fault("it is not imported again"));
    }
    daemon(world, &format!("after an import of {} ms", took.as_millis()))?;
    for place in &places {
        let found = std::fs::read_to_string(world.path(&format!("mnt/{place}/file")))?;
        crate::world::same(place, &found, place)?;
    }
    daemon(world, "when each file was read")
}

fn looks(world: &World, rounds: u32) -> Result<(), Failure> {
    let (mut looks, files) = vendors::looked_at(world, rounds)?;
    looks.sort_unstable();
    let (median, most) = (looks.get(looks.len() / 2).copied().unwrap_or_default(), looks.last().copied().unwrap_or_default());
    println!("      looks: {}, median {} ms; files, each read again and again: {files}", looks.len(), median.as_millis());
    bounded("milliseconds of the longest look", most.as_millis() as u64, LOOK.as_millis() as u64)
}

/// Reads the command line: numbers of file systems and of rounds.
fn wish(words: impl Iterator<Item = String>) -> Option<(u32, u32)> {
    let numbers = words.map(|word| word.parse().ok()).collect::<Option<Vec<u32>>>()?;
    match numbers[..] {
        [] => Some((FILE_SYSTEMS, ROUNDS)),
        [count] => Some((count, ROUNDS)),
        [count, rounds] => Some((count, rounds)),
        _ => None,
    }
}

/// Measures; true when every bound is kept.
pub fn main(words: impl Iterator<Item = String>) -> bool {
    let Some((count, rounds)) = wish(words) else {
        eprintln!("usage: zirconia-commands bounds [FILE_SYSTEMS [ROUNDS]]");
        return false;
    };
    let measured = [
        ("looks beside a library that harms itself", World::new(Options::default()).and_then(|world| looks(&world, rounds))),
        ("mounted file systems", World::new(Options::default()).and_then(|world| crowd(&world, count))),
    ];
    measured.into_iter().fold(true, |kept, (what, outcome)| match outcome {
        Ok(()) => {
            println!("ok    {what}");
            kept
        }
        Err(failure) => {
            println!("FAIL  {what}\n{failure}");
            false
        }
    })
}
