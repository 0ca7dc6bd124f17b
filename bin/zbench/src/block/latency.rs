//! Latency of random reads of a volume while nothing else is done, beside a scrub, and beside the restore of another volume.
//!
//! Devices are simulated: files in memory have no queue in which a read could wait. Reads come at a given rate, as users make them, and their latency
//! counts from when they were due. The restore writes as a receive does, through the cache.

use super::args::Args;
use super::load::Load;
use super::volumes::{CACHED, Volumes, config, run_one};
use crate::files::pattern;
use crate::matrix::percentiles;
use crate::measure::{Samples, Verdicts, text};
use crate::pipeline::{self, Direction};
use crate::simulated::Simulated;
use abd::Abd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use zvol::{Access, Volume};

/// Factor by which the 99th percentile may grow.
const GROWTH_MAX: f64 = 2.0;
const READ_BYTES: u64 = 4096;
/// Bytes of the volumes' blocks: those of volumes that are made without saying.
const BLOCK: u64 = 16 << 10;
/// Multiple of the seconds of other runs: a percentile needs many reads.
const LONGER: f64 = 2.5;
const RESTORE: Load = Load { title: "restore", direction: Direction::Write, is_random: false, bytes: 1 << 20, depth: 1, streams: 1 };
/// Time that no run lasts.
const FOREVER: Duration = Duration::from_secs(86_400);
/// Bytes of each device beside those of data.
const SPARE_BYTES: u64 = 96 << 20;

/// Work beside the reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    Scrub,
    Restore,
}

const ALL: [(Beside, &str); 3] = [(Beside::Nothing, "idle"), (Beside::Scrub, "beside a scrub"), (Beside::Restore, "beside a restore")];

/// Reads anywhere in a volume at a rate, until `stop`; gives the time in nanoseconds from when each was due to its end.
fn reads(volume: &Arc<Volume>, per_second: f64, stop: &AtomicBool) -> Result<Vec<u32>, String> {
    let (told, replies) = mpsc::channel();
    let interval = Duration::from_secs_f64(1.0 / per_second.max(0.1));
    let mut due = Instant::now();
    for offset in pipeline::random_offsets(READ_BYTES, volume.size(), 1, due + FOREVER) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (told, begun) = (told.clone(), due);
        let then = move |result: Result<Abd, zvol::VolumeError>| {
            let took = begun.elapsed().as_nanos().min(u128::from(u32::MAX)) as u32;
            // Whoever waited may have given up.
            let _ = told.send(result.map(|_| took).map_err(text));
        };
        volume.read_then(offset, READ_BYTES, Access::DIRECT, Box::new(then));
        due += interval;
    }
    drop(told);
    replies.iter().collect()
}

/// Work beside the reads until `deadline`; a scrub goes on to its end.
fn work(all: &Volumes, beside: Beside, data: &Abd, deadline: Instant) -> Result<(), String> {
    match beside {
        Beside::Nothing => std::thread::sleep(deadline.saturating_duration_since(Instant::now())),
        Beside::Scrub => {
            while Instant::now() < deadline {
                all.subject.scrub()?;
            }
        }
        Beside::Restore => {
            let volume = all.volumes.last().ok_or("no volume")?;
            run_one(volume, RESTORE, CACHED, data, RESTORE.offsets(volume.size(), 0, deadline))?;
        }
    }
    Ok(())
}

/// Latencies in microseconds of reads meanwhile: median, 99th and 99.9th percentile.
fn measure_beside(all: &Volumes, beside: Beside, args: &Args, data: &Abd) -> Result<[f64; 3], String> {
    let stop = AtomicBool::new(false);
    let volume = all.volumes.first().ok_or("no volume")?;
    let (latencies, worked) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| reads(volume, args.reads_per_second, &stop));
        let worked = work(all, beside, data, Load::deadline(args.seconds * LONGER));
        stop.store(true, Ordering::Relaxed);
        (reader.join().map_err(|_| "the reader panicked".to_string()), worked)
    });
    worked?;
    percentiles(latencies??).ok_or_else(|| "nothing was read".to_string())
}

/// Measures all of the part.
pub fn measure_all(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    let data = Abd::from_slice(&pattern(16 << 20));
    let (count, shares) = (args.layout.devices, args.layout.data_devices() as u64);
    let written = Simulated::create(1, 1 << 20, args.slower).bandwidth()[1] as f64 * args.seconds * LONGER * 1.5;
    let bytes = (args.disk_bytes() * 3 / shares + written as u64 + SPARE_BYTES).next_multiple_of(1 << 20);
    let set = Arc::new(Simulated::create(count, bytes, args.slower));
    let all = Volumes::create(&config(args, set.paths()), set.opener(), [2, args.disk_bytes(), BLOCK], &data)?;
    all.subject.set_pool_property("background_latency_target", &args.target)?;
    let mut table: [[Samples; 3]; ALL.len()] = Default::default();
    let mut growth: [Samples; ALL.len()] = Default::default();
    for _ in 0..args.reps.max(1) {
        let mut idle = f64::NAN;
        for (index, (beside, _)) in ALL.into_iter().enumerate() {
            set.take_time(true);
            let latencies = measure_beside(&all, beside, args, &data)?;
            set.take_time(false);
            all.subject.settle()?;
            table[index].iter_mut().zip(latencies).for_each(|(samples, latency)| samples.push(latency));
            idle = if beside == Beside::Nothing { latencies[1] } else { idle };
            growth[index].push(latencies[1] / idle);
        }
    }
    println!(
        "\nReads of 4K anywhere, {:.0} a second, of a volume of {} MiB with blocks of 16K on {count} simulated devices; background_latency_target={}",
        args.reads_per_second, args.disk_mib, args.target
    );
    println!("{:<18} {:>9} {:>9} {:>4} {:>9} | {:>7} {:>4}", "", "p50 µs", "p99 µs", "±%", "p99.9 µs", "× idle", "±%");
    for (index, (beside, title)) in ALL.into_iter().enumerate() {
        let [p50, p99, p999] = &table[index];
        let (times, spread) = (growth[index].median(), growth[index].spread_percent());
        let verdict = match beside {
            Beside::Nothing => String::new(),
            _ => format!("(≤ {GROWTH_MAX}) {}", verdicts.judge(times <= GROWTH_MAX)),
        };
        println!(
            "{title:<18} {:>9.0} {:>9.0} {:>4.0} {:>9.0} | {times:>7.2} {spread:>4.0} {verdict}",
            p50.median(),
            p99.median(),
            p99.spread_percent(),
            p999.median()
        );
    }
    all.end()
}
