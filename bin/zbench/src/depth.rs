//! `zbench depth`: one thread, small random direct requests, more and more of them in flight, on a device with a given latency.
//!
//! The device alone is driven by the same loop at the same depths in the same run: it says what can be had on this machine.

use crate::latency::LatencyDevice;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::matrix::percentiles;
use crate::measure::{Samples, Verdicts, measure};
use crate::pipeline::{self, Direction, Stream};
use crate::subject::{Config, Subject};
use abd::Abd;
use clap::Args as ClapArgs;
use device::{BlockDevice, DeviceIo, DeviceOp, DeviceReply};
use dmu::Dnode;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Factor by which reads must be faster at the judged depth than at depth 1.
const SPEEDUP_MIN: f64 = 10.0;
const JUDGED_DEPTH: usize = 32;
/// Part of the best of a smaller depth that writes may reach and still count as not falling: what repeated runs differ by.
const TOLERANCE: f64 = 0.95;
const DEVICE_BYTES: usize = 1 << 30;
const RAW_START: u64 = 8 << 20;

/// What to measure.
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// Latency of the device, in microseconds
    #[arg(long, default_value_t = 80)]
    latency_us: u64,
    /// Bytes of a request and of a record, in KiB
    #[arg(long, default_value_t = 16)]
    size_kib: u64,
    /// Bytes of the object, in MiB
    #[arg(long, default_value_t = 256)]
    object_mib: u64,
    /// Depths
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128")]
    depths: Vec<usize>,
    /// Seconds of each run
    #[arg(long, default_value_t = 0.7)]
    seconds: f64,
    /// Turns; medians count
    #[arg(long, default_value_t = 3)]
    reps: usize,
    /// Worker threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

#[derive(Default)]
struct Figures {
    iops: Samples,
    median_us: Samples,
    cpu_us: Samples,
}

struct Bench<'a> {
    args: &'a Args,
    subject: Subject,
    object: Arc<Dnode>,
    device: Arc<dyn BlockDevice>,
    data: Abd,
}

impl Bench<'_> {
    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs_f64(self.args.seconds)
    }

    fn ours(&self, direction: Direction, depth: usize) -> Result<Stream, String> {
        let size = self.args.size_kib << 10;
        let offsets = pipeline::random_offsets(size, self.args.object_mib << 20, depth as u64 + 1, self.deadline());
        pipeline::run(&self.subject, &self.object, direction, depth, size, &self.data, offsets)
    }

    /// Runs against the device without an engine, behind where the pool allocates.
    fn raw(&self, depth: usize) -> Result<Stream, String> {
        let size = self.args.size_kib << 10;
        let (told, replies) = mpsc::channel::<u32>();
        let mut stream = Stream::default();
        let mut offsets = pipeline::random_offsets(size, self.args.object_mib << 20, 77, self.deadline());
        let mut in_flight = 0;
        loop {
            while in_flight < depth {
                let Some(offset) = offsets.next() else { break };
                let (told, begun) = (told.clone(), Instant::now());
                let then = move |_: DeviceReply| {
                    let _ = told.send(begun.elapsed().as_nanos() as u32);
                };
                self.device.submit(DeviceIo::new(DeviceOp::read(size as usize), RAW_START + offset, then));
                in_flight += 1;
            }
            if in_flight == 0 {
                return Ok(stream);
            }
            stream.latencies_ns.push(replies.recv().map_err(|_| "the device never answered".to_string())?);
            in_flight -= 1;
        }
    }

    fn note(&self, figures: &mut Figures, work: impl FnOnce() -> Result<Stream, String>) -> Result<(), String> {
        let (stream, cost) = measure(work)?;
        let count = stream.latencies_ns.len().max(1) as f64;
        figures.iops.push(count / cost.seconds);
        figures.cpu_us.push(cost.cpu * 1e6 / count);
        figures.median_us.push(percentiles(stream.latencies_ns).map_or(f64::NAN, |all| all[0]));
        Ok(())
    }
}

fn prepare(args: &Args) -> Result<Bench<'_>, String> {
    let device: Arc<dyn BlockDevice> = Arc::new(LatencyDevice::new("latency0", DEVICE_BYTES, Duration::from_micros(args.latency_us)));
    let layout: Layout = "stripe:1".parse()?;
    let config = Config {
        layout,
        devices: vec![PathBuf::from("latency0")],
        record: (args.size_kib << 10) as usize,
        checksum: "fletcher4".to_string(),
        compression: "off".to_string(),
        threads: args.threads,
        arc_max: 64 << 20,
    };
    let subject = Subject::create_on(&config, vec![device.clone()])?;
    let number = subject.make_object()?;
    let object = subject.object(number)?;
    let data = Abd::from_slice(&crate::files::pattern(4 << 20));
    // The object gets all its records: later writes replace, as random writes of a file do.
    let size = args.size_kib << 10;
    pipeline::run(&subject, &object, Direction::Write, 64, size, &data, (0..args.object_mib << 20).step_by(size as usize))?;
    subject.settle()?;
    Ok(Bench { args, subject, object, device, data })
}

fn measure_all(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    println!("{}", Machine::describe().header());
    println!(
        "one thread, {} KiB random direct requests, one device of {} µs; medians of {} turns",
        args.size_kib, args.latency_us, args.reps
    );
    let bench = prepare(args)?;
    let mut rows: BTreeMap<usize, [Figures; 3]> = BTreeMap::new();
    for _ in 0..args.reps.max(1) {
        for &depth in &args.depths {
            let [raw, read, write] = rows.entry(depth).or_default();
            bench.note(raw, || bench.raw(depth))?;
            bench.note(read, || bench.ours(Direction::Read, depth))?;
            bench.note(write, || bench.ours(Direction::Write, depth))?;
            bench.subject.settle()?;
        }
    }
    println!(
        "\n{:>6} {:>13} {:>8} | {:>13} {:>8} {:>9} | {:>13} {:>8} {:>9}",
        "depth", "device IOPS ±%", "p50 µs", "read IOPS ±%", "p50 µs", "CPU µs/op", "write IOPS ±%", "p50 µs", "CPU µs/op"
    );
    for (depth, [raw, read, write]) in &rows {
        print!("{depth:>6} {:>9.0} {:>3.0}% {:>8.0}", raw.iops.median(), raw.iops.spread_percent(), raw.median_us.median());
        for figures in [read, write] {
            let (iops, spread) = (figures.iops.median(), figures.iops.spread_percent());
            print!(" | {iops:>9.0} {spread:>3.0}% {:>8.0} {:>9.1}", figures.median_us.median(), figures.cpu_us.median());
        }
        println!();
    }
    judge(&rows, verdicts);
    Ok(())
}

fn judge(rows: &BTreeMap<usize, [Figures; 3]>, verdicts: &mut Verdicts) {
    if let (Some(one), Some(many)) = (rows.get(&1), rows.get(&JUDGED_DEPTH)) {
        let ratio = |which: usize| many[which].iops.median() / one[which].iops.median();
        let (device, ours) = (ratio(0), ratio(1));
        // Where the simulated device itself cannot do ten times as much, nobody can.
        let bound = SPEEDUP_MIN.min(device);
        let verdict = verdicts.judge(ours >= bound);
        println!("reads, depth 1 → {JUDGED_DEPTH}: {ours:.1} × (the device alone {device:.1} ×; bound {bound:.1}) {verdict}");
    }
    let (mut best, mut falls) = (0.0, Vec::new());
    for (depth, [_, _, write]) in rows {
        let iops = write.iops.median();
        if iops < best * TOLERANCE {
            falls.push(format!("{depth}: {:.0} % of the best before", iops / best * 100.0));
        }
        best = f64::max(best, iops);
    }
    let verdict = verdicts.judge(falls.is_empty());
    println!("writes never fall as depth grows (by more than {:.0} %): {verdict} {}", (1.0 - TOLERANCE) * 100.0, falls.join(", "));
}

/// Runs the measurement and prints a table; 2 when a bound was missed.
pub fn run(args: &Args) -> ExitCode {
    Verdicts::conclude("depth", |verdicts| measure_all(args, verdicts))
}
