//! The part over the library: twelve volumes at once, with requests of 1 MiB beside the bare devices and of 4 KiB with a profile of locks, and one
//! volume with deeper and deeper queues.
//!
//! Beside the bare devices everything runs on simulated ones, whose time decides; all else on files in memory, where the engine's work does.

use super::args::Args;
use super::load::{Figures, Load, Outcome, beside_each_other};
use super::volumes::{CACHED, Volumes, config};
use crate::files::{DATA_START, Scratch, VdevFiles, pattern};
use crate::locks;
use crate::measure::{Verdicts, measure, text};
use crate::pipeline::{self, Direction, part};
use crate::simulated::Simulated;
use crate::subject::Opener;
use abd::Abd;
use device::{BlockDevice, DeviceIo, DeviceOp, DeviceReply};
use std::sync::Arc;
use zvol::Access;

/// Number of volumes, each with a thread.
const VOLUMES: usize = 12;
/// Bytes of the volumes' blocks beside the bare devices.
const LARGE_BLOCK: u64 = 128 << 10;
/// Least part of the bare devices' rate.
const SHARE_MIN: f64 = 0.9;
/// Depths of which the second may not be slower.
const DEPTHS: [usize; 2] = [64, 128];
/// Part of the rate at the smaller depth that counts as no fall: what repeated runs differ by (as in `zbench depth`).
const TOLERANCE: f64 = 0.95;
/// Times that a run on files in memory goes over its volumes, at most.
const PASSES: u64 = 2;
/// Times that a run goes over its volumes at most where only time ends it.
const NO_END: u64 = 1 << 20;
/// Bytes of each device beside those of data.
const SPARE_BYTES: u64 = 96 << 20;

const DIRECTIONS: [(Direction, &str, &str); 2] =
    [(Direction::Write, "write", "1M Q1 × 12 write"), (Direction::Read, "read", "1M Q1 × 12 read")];

fn large(title: &'static str, direction: Direction) -> Load {
    Load { title, direction, is_random: false, bytes: 1 << 20, depth: 1, streams: VOLUMES }
}

/// Runs a load of one stream for each volume on the bare devices.
fn bare(set: &Simulated, count: usize, load: Load, room: u64, data: &Abd, seconds: f64) -> Result<Outcome, String> {
    let deadline = Load::deadline(seconds);
    let devices: Vec<Arc<dyn BlockDevice>> = (0..load.streams).map(|stream| set.device(stream % count)).collect();
    let stream = |index: usize, device: Arc<dyn BlockDevice>| {
        let offsets = load.offsets(room, index, deadline);
        pipeline::keep_in_flight(load.depth, load.bytes, offsets, |offset, number, ending| {
            let op = match load.direction {
                Direction::Read => DeviceOp::read(load.bytes as usize),
                Direction::Write => DeviceOp::Write(part(data, load.bytes, number)),
            };
            let then = move |reply: DeviceReply| ending.tell(reply.outcome.map_err(text));
            device.submit(DeviceIo::new(op, DATA_START + offset, then));
            Ok(())
        })
    };
    let (streams, cost) = measure(|| beside_each_other(devices, stream))?;
    Ok(Outcome::of(streams, cost))
}

/// Measures requests of 1 MiB beside the bare devices.
fn beside_devices(args: &Args, data: &Abd, verdicts: &mut Verdicts) -> Result<(), String> {
    let (count, total) = (args.layout.devices, args.volume_bytes() * VOLUMES as u64);
    let shares = args.layout.data_devices() as u64;
    let bandwidth = Simulated::create(1, 1 << 20, args.slower).bandwidth()[1];
    let written = (bandwidth as f64 * args.seconds * 1.5) as u64;
    let bytes = (total * 3 / 2 / shares + written + SPARE_BYTES).next_multiple_of(1 << 20);
    let set = Arc::new(Simulated::create(count, bytes, args.slower));
    let (mut raw, mut ours) = ([Figures::default(), Figures::default()], [Figures::default(), Figures::default()]);
    for _ in 0..args.reps.max(1) {
        set.take_time(true);
        for (figures, (direction, _, title)) in raw.iter_mut().zip(DIRECTIONS) {
            let load = large(title, direction);
            figures.add(load, bare(&set, count, load, bytes - 2 * DATA_START, data, args.seconds)?);
        }
        set.take_time(false);
        let config = config(args, set.paths());
        let all = Volumes::create(&config, set.opener(), [VOLUMES as u64, args.volume_bytes(), LARGE_BLOCK], data)?;
        for (figures, (direction, _, title)) in ours.iter_mut().zip(DIRECTIONS) {
            let load = large(title, direction);
            set.take_time(true);
            let outcome = all.run(load, Access::DIRECT, data, Load::deadline(args.seconds), NO_END)?;
            set.take_time(false);
            // Devices in memory copy, too.
            figures.add(load, Outcome { copied: None, ..outcome });
            all.subject.settle()?;
        }
        all.end()?;
    }
    let [read, write] = set.bandwidth().map(|bandwidth| bandwidth >> 20);
    println!("\nTwelve volumes beside {count} simulated devices of {read} MiB/s read, {write} MiB/s write; {} MiB each", args.volume_mib);
    println!("{}", Figures::heading());
    for ((raw, ours), (direction, name, title)) in raw.iter().zip(&ours).zip(DIRECTIONS) {
        let load = large(title, direction);
        println!("{}\n{}", raw.line(load, "bare devices"), ours.line(load, "volumes, direct"));
        let data_share = if direction == Direction::Write { args.layout.efficiency() } else { 1.0 };
        let share = ours.rate.median() / (raw.rate.median() * data_share);
        println!(
            "  {name}: {:.1} % of the bare devices (≥ {:.0}) {}",
            share * 100.0,
            SHARE_MIN * 100.0,
            verdicts.judge(share >= SHARE_MIN)
        );
    }
    Ok(())
}

/// Measures requests of 4 KiB, directly and through the cache, and what part of the writes lies in locks.
fn small(args: &Args, files: &VdevFiles, data: &Abd, verdicts: &mut Verdicts) -> Result<(), String> {
    let shape = Load { title: "", direction: Direction::Write, is_random: false, bytes: 4096, depth: 4, streams: VOLUMES };
    let loads = [
        (Load { title: "4K Q4 × 12 write", ..shape }, Access::DIRECT, "blocks of 4K, direct"),
        (Load { title: "4K Q4 × 12 read", direction: Direction::Read, ..shape }, Access::DIRECT, "blocks of 4K, direct"),
        (Load { title: "4K Q4 × 12 write", ..shape }, CACHED, "blocks of 4K, cached"),
        (Load { title: "4K Q4 × 12 read", direction: Direction::Read, ..shape }, CACHED, "blocks of 4K, cached"),
    ];
    let config = config(args, files.paths.clone());
    let all = Volumes::create(&config, Opener::default(), [VOLUMES as u64, args.volume_bytes(), 4096], data)?;
    let mut table: Vec<Figures> = loads.iter().map(|_| Figures::default()).collect();
    for _ in 0..args.reps.max(1) {
        for (figures, (load, access, _)) in table.iter_mut().zip(loads) {
            figures.add(load, all.run(load, access, data, Load::deadline(args.seconds), PASSES)?);
            all.subject.settle()?;
        }
    }
    println!("\nTwelve volumes on files in memory, a thread each; {} MiB each", args.volume_mib);
    println!("{}", Figures::heading());
    for (figures, (load, _, subject)) in table.iter().zip(loads) {
        println!("{}", figures.line(load, subject));
    }
    match locks::has_profiler() {
        true => {
            let scratch = Scratch::new(&std::env::temp_dir())?;
            for (load, access, subject) in loads.into_iter().filter(|(load, ..)| load.direction == Direction::Write) {
                let work = || Ok(all.run(load, access, data, Load::deadline(args.seconds), PASSES)?.bytes);
                locks::judge(&format!("{}, {subject}: locks", load.title), &locks::profile(&scratch, work)?, verdicts);
                all.subject.settle()?;
            }
        }
        false => args.leave_out("the share of locks", "perf is not installed: ZIRCONIA_FIO=1 tools/deps.sh installs it")?,
    }
    all.end()
}

/// Measures one volume with blocks of 16 KiB at the depths.
fn deep(args: &Args, files: &VdevFiles, data: &Abd, verdicts: &mut Verdicts) -> Result<(), String> {
    let shape = Load { title: "", direction: Direction::Write, is_random: true, bytes: 16 << 10, depth: 0, streams: 1 };
    let titles = [(Direction::Write, ["16K Q64 write", "16K Q128 write"]), (Direction::Read, ["16K Q64 read", "16K Q128 read"])];
    let loads = titles.map(|(direction, titles)| {
        let load = |which: usize| Load { title: titles[which], direction, depth: DEPTHS[which], ..shape };
        [load(0), load(1)]
    });
    let config = config(args, files.paths.clone());
    let all = Volumes::create(&config, Opener::default(), [1, args.disk_bytes(), 16 << 10], data)?;
    let mut table: [[Figures; 2]; 2] = Default::default();
    for _ in 0..args.reps.max(1) {
        for (figures, load) in table.as_flattened_mut().iter_mut().zip(loads.as_flattened()) {
            figures.add(*load, all.run(*load, Access::DIRECT, data, Load::deadline(args.seconds), PASSES)?);
            all.subject.settle()?;
        }
    }
    println!("\nOne volume of {} MiB with blocks of 16K on files in memory, one thread", args.disk_mib);
    println!("{}", Figures::heading());
    for (figures, loads) in table.iter().zip(&loads) {
        for (figures, load) in figures.iter().zip(loads) {
            println!("{}", figures.line(*load, "direct"));
        }
        let ratio = figures[1].rate.median() / figures[0].rate.median();
        println!("  depth {} → {}: {ratio:.2} × (≥ {TOLERANCE}) {}", DEPTHS[0], DEPTHS[1], verdicts.judge(ratio >= TOLERANCE));
    }
    all.end()
}

/// Measures all of the part.
pub fn measure_all(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    let data = Abd::from_slice(&pattern(16 << 20));
    beside_devices(args, &data, verdicts)?;
    let total = (args.volume_bytes() * VOLUMES as u64).max(args.disk_bytes());
    let each = (total * (PASSES + 2) / args.layout.data_devices() as u64 + SPARE_BYTES).next_multiple_of(1 << 20);
    let files = VdevFiles::create(&args.dir, args.layout.devices, each)?;
    small(args, &files, &data, verdicts)?;
    deep(args, &files, &data, verdicts)
}
