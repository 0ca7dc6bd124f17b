//! `torture [SEED] [OPERATIONS]`: every power cut of a long program, every fault of a short one, damaged and hostile devices.
//! `torture direct [SEED] [OPERATIONS]`: a million operations of direct and buffered I/O compared with a model of bytes.
//! `torture lives [SEED] [PROGRAMS] [EVERY]`: a hundred thousand lives of pools whose devices fail, return and are replaced; OpenZFS's zdb
//! judges one of EVERY (10; 0 for none). `torture life SEED [FOLDER]`: one of them again, step by step; its devices are left
//! in FOLDER.
//!
//! `torture log [SEED] [OPERATIONS] [AGAIN] [TAKEN] [EVERY]`: every power cut (one in EVERY) of a program that makes durable what it does, through the
//! intent log, and in one write or flush of AGAIN of each replay the power goes off once more; TAKEN pools of each layout are taken over by the real engine.
//!
//! `torture volumes [SEED] [OPERATIONS] [AGAIN] [JUDGED] [EVERY]`: the same of a program on a volume, in which every change is durable when SEED is even; one image
//! in JUDGED (500; 0 for none) is taken over by the real engine. `torture nbd`, with the same numbers: of a client of NBD, which the daemon's own code
//! answers.
//!
//! `torture receives [SEED] [OPERATIONS] [EVERY]`: every power cut (one in EVERY) of a program that receives streams, with OPERATIONS before each snapshot
//! that is sent: those that were received are whole, and what was under way goes on.
//!
//! `torture hostile [SEED] [IMAGES]`: images of pools that lie with right checksums.
//!
//! `torture zia [RECORDS] [ROW]`: a provider that fails, lies, gives less, stalls, is late or dies at every operation of a hundred records, on every
//! stage. `torture liars [BLOCKS]`: pools on a provider that goes bad later, in every manner at every operation, so many blocks in all.
//!
//! Prints a table and ends with `N passed, N failed`; fails when anything did. The same seed gives the same figures.
#![forbid(unsafe_code)]

use exec::{Executor, Mutex};
use std::process::ExitCode;
use std::sync::Arc;
use torture::campaign::{self, Campaign};
use torture::cuts::{CutReport, Share, record, try_cuts};
use torture::damage::{specimen, try_devices, try_hostile, try_labels, try_uberblocks};
use torture::direct::{Report, race, torture as torture_direct};
use torture::durable::{Recorded, Subject};
use torture::faults::{Blow, try_faults};
use torture::machine::Layout;
use torture::outcome::Verdict;
use torture::receives::{self, Lie, ReceiveReport};
use torture::{durable, liars, zia};

const OPERATIONS: u64 = 200;
const DIRECT_OPERATIONS: u64 = 1_000_000;
const LIVES: u64 = 100_000;
/// Number of lives of which one is judged by OpenZFS's zdb, by what it leaves.
const JUDGED_EVERY: u64 = 10;
/// Number of blocks of all trials with liars together.
const LIARS_BLOCKS: u64 = 100_000;
const FAULT_OPERATIONS: usize = 14;
const HOSTILE_IMAGES: u64 = 2000;
/// Number of operations of a program that makes durable what it does.
const LOG_OPERATIONS: u64 = 300;
/// Number of writes and flushes of a replay of which the power goes off at one.
const LOG_AGAIN: u64 = 23;
/// Number of pools of a layout that the real engine takes over.
const LOG_TAKEN: u64 = 20;
/// Number of images of volumes of which the real engine takes one over.
const VOLUMES_JUDGED: u64 = 500;
/// Number of operations before each snapshot that is sent.
const RECEIVE_OPERATIONS: u64 = 20;
/// Number of images of one cut.
const IMAGES_OF_A_CUT: u64 = 3;
const LOG_LAYOUTS: [Layout; 4] = [Layout::Stripe1, Layout::Logged, Layout::MirroredLog, Layout::Raidz1x3];
/// Layouts of pools with volumes.
const VOLUME_LAYOUTS: [Layout; 5] = [Layout::Stripe1, Layout::Mirror2, Layout::Logged, Layout::MirroredLog, Layout::Raidz1x3];
const LAYOUTS: [Layout; 4] = [Layout::Stripe1, Layout::Stripe2, Layout::Mirror2, Layout::Raidz1x3];

/// Runs `part(0) … part(count - 1)` on as many threads as there are processors; returns what they give, in that order.
fn in_parallel<T: Send + 'static>(count: usize, part: impl Fn(usize) -> T + Send + Sync + 'static) -> Vec<T> {
    let threads = exec::Pool::new(1);
    let part = Arc::new(part);
    let results = Arc::new(Mutex::new(Vec::new()));
    let start = |index: usize| {
        let (part, results) = (part.clone(), results.clone());
        let job = Box::new(move || {
            let result = part(index);
            results.lock().push((index, result));
        });
        threads.spawn_operation("torture", job)
    };
    let handles: Vec<_> = (0..count).map(start).collect();
    handles.into_iter().for_each(exec::OperationHandle::join);
    let mut results = std::mem::take(&mut *results.lock());
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn cuts(layout: Layout, seed: u64, operations: usize, threads: usize) -> Verdict {
    let mut verdict = Verdict::default();
    let recorded: Option<torture::cuts::Recorded> = match (record(layout, seed, operations), record(layout, seed, operations)) {
        (Ok(first), Ok(second)) => {
            let same = first.trace_hash == second.trace_hash;
            verdict
                .trial(&format!("{layout} seed {seed}: the same trace twice"), || if same { Ok(()) } else { Err("traces differ".into()) });
            Some(first)
        }
        (Err(error), _) | (_, Err(error)) => {
            verdict.trial(&format!("{layout} seed {seed}: the program"), || Err(error.to_string()));
            None
        }
    };
    let Some(recorded) = recorded else { return verdict };
    let hash = recorded.trace_hash;
    let recorded = Arc::new(recorded);
    let mut total = CutReport::default();
    for part in in_parallel(threads, move |rest| try_cuts(&recorded, Share { every: threads, rest })) {
        total.add(part);
    }
    println!(
        "{layout:<9} {operations:>4} {:>6} {:>7} {:>10} {:>8} {:>11} {:>5} {:>12}  {hash:016x}",
        total.cuts, total.images, total.imported, total.matched, total.at_promise, total.leaks, total.continued
    );
    verdict.add(total.verdict);
    verdict
}

/// Parts of a campaign of power cuts: one write or flush in `again` of each replay is cut off, too, and one cut in `every` is tried.
#[derive(Clone, Copy)]
struct Cutting {
    subject: Subject,
    seed: u64,
    operations: usize,
    again: u64,
    every: u64,
}

/// Cuts a program that makes durable what it does, at every write and flush, and its replays; the real engine takes over so many pools of each
/// recording as `taken` says.
fn logs(cutting: Cutting, taken: impl Fn(&Recorded) -> u64, threads: usize) -> Verdict {
    let Cutting { subject, seed, operations, again, every } = cutting;
    let mut total = Verdict::default();
    println!("layout     ops   cuts  images  replayed  records  beyond  cut again  taken over by the real engine");
    let layouts: &[Layout] = if subject == Subject::Files { &LOG_LAYOUTS } else { &VOLUME_LAYOUTS };
    for layout in layouts.iter().copied() {
        let recorded = match durable::record(layout, subject, seed, operations) {
            Ok(recorded) => Arc::new(recorded),
            Err(why) => {
                total.trial(&format!("{layout} seed {seed}: the program"), || Err(why));
                continue;
            }
        };
        let (mut report, tried) = (durable::check::LogReport::default(), recorded.clone());
        for part in in_parallel(threads, move |rest| {
            durable::check::try_cuts(&tried, Share { every: threads * every as usize, rest }, again as usize)
        }) {
            report.add(part);
        }
        let (verdict, counts) = durable::engine::take_over(&recorded, taken(&recorded));
        println!(
            "{layout:<10} {operations:>3} {:>6} {:>7} {:>9} {:>8} {:>7} {:>10}  {} pools, {} with records: {}",
            report.cuts,
            report.images,
            report.replayed,
            report.records,
            report.beyond,
            report.again,
            counts.pools,
            counts.pending,
            counts.records
        );
        total.add(report.verdict);
        total.add(verdict);
    }
    total
}

/// Cuts a program that receives streams, at one write or flush in `every`.
fn received(seed: u64, operations: usize, every: usize, threads: usize) -> Verdict {
    let mut total = Verdict::default();
    println!("layout     ops   cuts  images  resumed  absent  trace");
    for layout in LAYOUTS {
        let recorded = match receives::record(layout, seed, operations, Lie::Nothing) {
            Ok(recorded) => Arc::new(recorded),
            Err(why) => {
                total.trial(&format!("{layout} seed {seed}: the program"), || Err(why));
                continue;
            }
        };
        let hash = recorded.trace_hash;
        let mut report = ReceiveReport::default();
        let parts = in_parallel(threads, move |rest| receives::try_cuts(&recorded, Share { every: threads * every, rest }));
        parts.into_iter().for_each(|part| report.add(part));
        println!(
            "{layout:<9} {operations:>4} {:>6} {:>7} {:>8} {:>7}  {hash:016x}",
            report.cuts, report.images, report.resumed, report.absent
        );
        total.add(report.verdict);
    }
    total
}

fn faults(layout: Layout, seed: u64, threads: usize) -> Verdict {
    let mut total = Verdict::default();
    let blows: &[Blow] = if layout.is_redundant() { &[Blow::Error, Blow::CorruptRead, Blow::Lie] } else { &[Blow::Error] };
    for blow in blows.iter().copied() {
        let parts = in_parallel(threads, move |rest| try_faults(layout, seed, FAULT_OPERATIONS, blow, (threads as u64, rest as u64)));
        let mut verdict = Verdict::default();
        parts.into_iter().for_each(|part| verdict.add(part));
        println!(
            "{layout:<9} {:<12} at every operation of a device: {} passed, {} failed",
            format!("{blow:?}"),
            verdict.passed,
            verdict.failed
        );
        total.add(verdict);
    }
    total
}

fn damage(layout: Layout, seed: u64) -> Verdict {
    let mut total = Verdict::default();
    match specimen(layout, seed, 60) {
        Ok(specimen) => {
            for verdict in [try_labels(&specimen), try_uberblocks(&specimen), try_devices(&specimen)] {
                total.add(verdict);
            }
        }
        Err(error) => total.trial(&format!("{layout} seed {seed}: the specimen"), || Err(error.to_string())),
    }
    println!("{layout:<9} labels, uberblocks, devices damaged: {} passed, {} failed", total.passed, total.failed);
    total
}

fn hostile(seed: u64, images: u64, threads: usize) -> Verdict {
    let specimen = match specimen(Layout::Stripe1, seed, 60) {
        Ok(specimen) => Arc::new(specimen),
        Err(error) => {
            let mut verdict = Verdict::default();
            verdict.trial(&format!("seed {seed}: the specimen"), || Err(error.to_string()));
            return verdict;
        }
    };
    let share = images.div_ceil(threads as u64);
    let parts = in_parallel(threads, move |part| try_hostile(&specimen, seed * 1_000_000 + part as u64 * share, share));
    let mut total = Verdict::default();
    parts.into_iter().for_each(|part| total.add(part));
    println!("hostile images, checksums made right: {} passed, {} failed", total.passed, total.failed);
    total
}

/// Runs programs of direct I/O, `PROGRAM_OPERATIONS` each, on every layout in turn; redundant ones with faulty devices.
fn direct(seed: u64, operations: u64, threads: usize) -> Verdict {
    const PROGRAM_OPERATIONS: u64 = 5000;
    let programs = operations.div_ceil(PROGRAM_OPERATIONS);
    let parts = in_parallel(threads, move |rest| {
        let (mut verdict, mut total) = (Verdict::default(), Report::default());
        for program in (rest as u64..programs).step_by(threads) {
            let (layout, seed) = (LAYOUTS[program as usize % LAYOUTS.len()], seed * 1_000_000 + program);
            verdict.trial(&format!("{layout} seed {seed}: direct I/O"), || {
                total.add(&torture_direct(layout, seed, PROGRAM_OPERATIONS, true)?);
                Ok(())
            });
        }
        (verdict, total)
    });
    let (mut verdict, mut total) = (Verdict::default(), Report::default());
    for (part, report) in parts {
        verdict.add(part);
        total.add(&report);
    }
    println!("seed {seed}: {total:?}");
    for seed in seed..seed + 50 {
        let name = format!("lockstep seed {seed}: threads that share blocks");
        verdict.trial(&name, || exec::Lockstep::run(seed, |exec| race(exec, seed, 3, 20)));
    }
    verdict
}

/// Tries every fault of a provider at every operation of a program of so many records; perhaps one row of the table only, by its number from 0.
fn providers(records: u64, only: Option<u64>, threads: usize) -> Verdict {
    let mut total = Verdict::default();
    println!("{:<52} {:>10} {:>8} {:>8}", "a provider under 1 thread, virtual clock", "operations", "passed", "failed");
    for (_, row) in zia::rows().into_iter().enumerate().filter(|(number, _)| only.is_none_or(|only| only == *number as u64)) {
        let parts = in_parallel(threads, move |rest| zia::torture(row, records, zia::Share { every: threads as u64, rest: rest as u64 }));
        let operations = parts.first().map_or(0, |part| part.operations);
        let mut verdict = Verdict::default();
        parts.into_iter().for_each(|part| verdict.add(part.verdict));
        if operations == 0 {
            verdict.trial(&row.to_string(), || Err("no operation went to the provider".into()));
        }
        println!("{:<52} {operations:>10} {:>8} {:>8}", row.to_string(), verdict.passed, verdict.failed);
        total.add(verdict);
    }
    total
}

/// Tries a provider that goes bad, in every manner at every operation; `blocks` over all of these.
fn badly(blocks: u64, threads: usize) -> Verdict {
    let each = blocks.div_ceil(liars::cases().len() as u64);
    let mut total = Verdict::default();
    in_parallel(threads, move |rest| liars::campaign(each, threads, rest)).into_iter().for_each(|part| total.add(part));
    println!("a provider that goes bad, {each} blocks each time: {} passed, {} failed", total.passed, total.failed);
    total
}

fn end(verdict: &Verdict) -> ExitCode {
    println!("{verdict}");
    if verdict.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

const USAGE: &str = "usage: torture [SEED] [OPERATIONS] | log [SEED] [OPERATIONS] [AGAIN] [TAKEN] [EVERY] | volumes|nbd [SEED] [OPERATIONS] [AGAIN] [JUDGED] [EVERY] | receives [SEED] [OPERATIONS] [EVERY] | direct [SEED] [OPERATIONS] | hostile [SEED] [IMAGES] | lives [SEED] [PROGRAMS] [EVERY] | \
     life SEED [FOLDER] | zia [RECORDS] [ROW] | liars [BLOCKS]";

/// Does what the words ask for; None when they make no sense.
fn obey(words: &[&str]) -> Option<Verdict> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (kind, rest) = match words {
        ["life", seed] => return Some(campaign::retell(seed.parse().ok()?, None)),
        ["life", seed, folder] => return Some(campaign::retell(seed.parse().ok()?, Some(folder.as_ref()))),
        [kind @ ("log" | "volumes" | "nbd" | "receives" | "direct" | "hostile" | "lives" | "zia" | "liars"), rest @ ..] => (*kind, rest),
        rest => ("cuts", rest),
    };
    let numbers = rest.iter().map(|word| word.parse()).collect::<Result<Vec<u64>, _>>().ok()?;
    let number = |index: usize, default| numbers.get(index).copied().unwrap_or(default);
    Some(match (kind, numbers.len()) {
        ("lives", 0..=3) => {
            campaign::run(Campaign { seed: number(0, 1), programs: number(1, LIVES), judged_every: number(2, JUDGED_EVERY), threads })
        }
        ("log" | "volumes" | "nbd", 0..=5) => {
            let subject = match kind {
                "log" => Subject::Files,
                "nbd" => Subject::Served,
                _ => Subject::Volume,
            };
            let (operations, again) = (number(1, LOG_OPERATIONS) as usize, number(2, LOG_AGAIN));
            let cutting = Cutting { subject, seed: number(0, 1), operations, again, every: number(4, 1) };
            let taken = |recorded: &Recorded| match subject {
                Subject::Files => number(3, LOG_TAKEN),
                _ => {
                    let images = recorded.recording.cuts().len() as u64 * IMAGES_OF_A_CUT;
                    images.checked_div(number(3, VOLUMES_JUDGED)).unwrap_or(0)
                }
            };
            logs(cutting, taken, threads)
        }
        ("receives", 0..=3) => received(number(0, 1), number(1, RECEIVE_OPERATIONS) as usize, number(2, 1).max(1) as usize, threads),
        ("liars", 0..=1) => badly(number(0, LIARS_BLOCKS), threads),
        ("zia", 0..=2) => providers(number(0, zia::RECORDS), numbers.get(1).copied(), threads),
        ("hostile", 0..=2) => hostile(number(0, 1), number(1, HOSTILE_IMAGES), threads),
        ("direct", 0..=2) => direct(number(0, 1), number(1, DIRECT_OPERATIONS), threads),
        ("cuts", 0..=2) => damaged_and_cut(number(0, 1), number(1, OPERATIONS) as usize, threads),
        _ => return None,
    })
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match obey(&words) {
        Some(verdict) => end(&verdict),
        None => {
            eprintln!("{USAGE}");
            ExitCode::FAILURE
        }
    }
}

fn damaged_and_cut(seed: u64, operations: usize, threads: usize) -> Verdict {
    let mut total = Verdict::default();
    println!("seed {seed}: damaged devices");
    LAYOUTS.iter().for_each(|layout| total.add(damage(*layout, seed)));
    total.add(hostile(seed, HOSTILE_IMAGES, threads));
    println!("seed {seed}: faulty devices under {FAULT_OPERATIONS} operations");
    LAYOUTS.iter().for_each(|layout| total.add(faults(*layout, seed, threads)));
    println!("seed {seed}: power cuts at every write and flush; lost, applied, torn");
    println!("layout     ops   cuts  images  import ok  matched  at promise leaks  continued ok  trace");
    LAYOUTS.iter().for_each(|layout| total.add(cuts(*layout, seed, operations, threads)));
    total
}
