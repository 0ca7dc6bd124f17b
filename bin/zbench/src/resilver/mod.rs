//! `zbench resilver`: a device is lost, wiped, replaced and brought up to date, with and without a load beside it.
//!
//! The steps are those of LANL's study of failure recovery on NVMe (2020): make the pool, set tunables, fill it, take a device out by
//! force, wipe it, start a load, replace, sample until it is done, tabulate. What counts is the share of the replaced device's own
//! write bandwidth, measured by fio on the bare device in the same run over as many bytes. Afterwards as many other devices as the
//! layout has parity are taken out and everything is read back: a fast resilver that restored nothing is no result.
//!
//! With `--tune` the table comes once more for each value of a parameter of the I/O scheduler, and with `--drive-seconds` one of what each drive does
//! by itself comes first, by the study's five patterns.
//!
//! A second table shows how long a dRAID takes to rebuild a device onto its distributed spare, by the number of its children.
//!
//! A last table compares CPU: scrub and healing resilver beside the peer's on files in memory, as `zbench engine` does.

mod args;
mod children;
mod disks;
mod drives;
mod life;
mod load;
mod sample;
mod tune;

use crate::compare::{self, PhaseSpec};
use crate::devices;
use crate::fio;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::matrix::cell::name_of;
use crate::measure::{Samples, Verdicts, text};
pub use args::Args;
use args::DisksAre;
use disks::Disks;
use life::{Life, Recovery};
use load::Load;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

/// Least share of the device's write bandwidth without a load, in percent.
const ALONE_MIN: f64 = 95.0;
/// Least share of the device's write bandwidth beside a load that reads, in percent.
const READING_MIN: f64 = 85.0;
/// Factor by which the 99th percentile of the load may grow at most, when a latency target is set.
const LATENCY_GROWTH_MAX: f64 = 2.0;

const CPU_PHASES: [PhaseSpec; 3] = [
    PhaseSpec { name: "swrite", title: "buffered write", bound: 0.7 },
    PhaseSpec { name: "scrub", title: "scrub", bound: 0.6 },
    PhaseSpec { name: "resilver", title: "healing resilver", bound: 0.6 },
];
const CPU_RECORD: usize = 1 << 20;
/// Bytes of the cache's budget: too small to help the load.
const CACHE_BYTES: u64 = 64 << 20;

fn judge(args: &Args, load: Load, percent: f64, growth: Option<f64>, verdicts: &mut Verdicts) -> String {
    let bound = match load {
        Load::None => Some(ALONE_MIN),
        Load::Read | Load::RandomRead => Some(READING_MIN),
        Load::Write | Load::Random | Load::Mix => None,
    };
    let bandwidth = bound.map(|bound| verdicts.judge(percent >= bound));
    let promised = growth.filter(|_| args.target.is_some() && bound.is_some());
    let latency = promised.map(|growth| verdicts.judge(growth <= LATENCY_GROWTH_MAX));
    [bandwidth, latency].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn print_header(args: &Args, devices: &Disks) {
    println!("{}", Machine::describe().header());
    println!(
        "{}, {} % full, {} KiB records; loads at {} % of the devices' bandwidth; target {}; medians of {} turns, each with a new pool",
        devices.describe(),
        args.fill_percent,
        args.record_kib,
        args.load_percent,
        args.target.as_deref().unwrap_or("none"),
        args.turns.max(1)
    );
    println!(
        "\n{:<12} {:<11} {:>8} {:>7} {:>7} {:>7} {:>9} {:>4} {:>6} {:>9} {:>7} {:>6} | {:>9} {:>9} {:>9} {:>7} {:>4}",
        "layout",
        "load",
        "MiB",
        "s",
        "MB/s",
        "raw",
        "% of raw",
        "±%",
        "queue",
        "cpu s/GiB",
        "RSS MiB",
        "host %",
        "load MB/s",
        "p99 ms",
        "idle p99",
        "×",
        "±%"
    );
}

/// Figures of the turns of one load.
#[derive(Default)]
struct Figures {
    mib: Samples,
    seconds: Samples,
    rate: Samples,
    percent: Samples,
    queue: Samples,
    cpu: Samples,
    resident_mib: Samples,
    stolen: Samples,
    load_rate: Samples,
    busy_p99: Samples,
    idle_p99: Samples,
    growth: Samples,
}

impl Figures {
    fn add(&mut self, raw: f64, recovery: &Recovery) {
        self.mib.push((recovery.written >> 20) as f64);
        self.seconds.push(recovery.seconds);
        self.rate.push(recovery.rate());
        self.percent.push(recovery.rate() / raw * 100.0);
        self.queue.push(sample::mean_queue(&recovery.samples));
        self.cpu.push(recovery.cpu / (recovery.written as f64 / crate::measure::GIB));
        self.resident_mib.push((recovery.samples.iter().map(|sample| sample.resident).max().unwrap_or(0) >> 20) as f64);
        self.stolen.push(recovery.stolen_percent);
        self.load_rate.push(recovery.busy.bytes as f64 / 1e6 / recovery.seconds);
        if let (Some(busy), Some(idle)) = (recovery.busy.percentile(0.99), recovery.idle.percentile(0.99)) {
            self.busy_p99.push(busy);
            self.idle_p99.push(idle);
            self.growth.push(busy / idle);
        }
    }
}

fn print_row(args: &Args, layout: Layout, load: Load, raw: f64, figures: &Figures, verdicts: &mut Verdicts) {
    let known = |samples: &Samples| (samples.count() > 0).then(|| samples.median());
    let figure = |samples: &Samples| known(samples).map_or_else(|| "-".to_string(), |value| format!("{value:.2}"));
    let percent = figures.percent.median();
    println!(
        "{:<12} {:<11} {:>8.0} {:>7.2} {:>7.1} {raw:>7.1} {percent:>9.1} {:>4.0} {:>6.1} {:>9.3} {:>7.0} {:>6.2} | {:>9.1} {:>9} {:>9} {:>7} {:>4.0} {}",
        layout.to_string(),
        name_of(load),
        figures.mib.median(),
        figures.seconds.median(),
        figures.rate.median(),
        figures.percent.spread_percent(),
        figures.queue.median(),
        figures.cpu.median(),
        figures.resident_mib.median(),
        figures.stolen.median(),
        figures.load_rate.median(),
        figure(&figures.busy_p99),
        figure(&figures.idle_p99),
        figure(&figures.growth),
        figures.growth.spread_percent(),
        judge(args, load, percent, known(&figures.growth), verdicts)
    );
}

/// Setting that a parameter of the I/O scheduler has in a run; None where all are as they are.
type Setting<'a> = Option<(&'a str, u64)>;

fn write_json(args: &Args, (layout, setting): (Layout, Setting<'_>), load: Load, raw: f64, recovery: &Recovery) -> Result<(), String> {
    let Some(path) = &args.json else { return Ok(()) };
    let row = serde_json::json!({
        "layout": layout.to_string(), "tuned": setting.map(|(name, value)| format!("{name}={value}")), "load": name_of(load),
        "seconds": recovery.seconds, "written": recovery.written,
        "raw_mb": raw, "cpu": recovery.cpu, "stolen_percent": recovery.stolen_percent, "p99_ms": recovery.busy.percentile(0.99), "idle_p99_ms": recovery.idle.percentile(0.99),
        "samples": recovery.samples,
    });
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).map_err(text)?;
    writeln!(file, "{row}").map_err(text)
}

fn measure_layouts(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    tune::check(&args.tune)?;
    if args.devices_are == DisksAre::Loops {
        fio::require()?;
        devices::remove_stale(&args.backing);
    }
    let count = args.layouts.iter().map(|layout| layout.devices).max().unwrap_or(1);
    let devices = Disks::create(args, count, args.device_mib << 20, 1)?;
    if args.drive_seconds > 0.0 {
        drives::measure(args, &devices)?;
    }
    print_header(args, &devices);
    for setting in tune::settings(&args.tune) {
        if let Some((name, value)) = setting {
            println!("{name} = {value}");
        }
        for &layout in &args.layouts {
            measure_layout(args, (layout, setting), &devices, verdicts)?;
        }
    }
    Ok(())
}

fn measure_layout(args: &Args, (layout, setting): (Layout, Setting<'_>), devices: &Disks, verdicts: &mut Verdicts) -> Result<(), String> {
    // The bounds are for parameters as they are.
    let mut unjudged = Verdicts::default();
    let verdicts = if setting.is_some() { &mut unjudged } else { verdicts };
    let (mut table, mut raws) = (BTreeMap::<usize, Figures>::new(), Samples::default());
    for _ in 0..args.turns.max(1) {
        devices.take_time(true)?;
        let raw = devices.bare_write_rate((args.device_mib << 20) * args.fill_percent / 100)?;
        raws.push(raw);
        let mut life = Life::begin(args, layout, devices, CACHE_BYTES)?;
        if let Some((name, value)) = setting {
            life.tune(name, value)?;
        }
        for (index, &load) in args.load.iter().enumerate() {
            let recovery = life.recover(args, load, devices)?;
            write_json(args, (layout, setting), load, raw, &recovery)?;
            table.entry(index).or_default().add(raw, &recovery);
        }
        life.end()?;
    }
    for (index, figures) in &table {
        print_row(args, layout, args.load[*index], raws.median(), figures, verdicts);
    }
    Ok(())
}

fn measure_all(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    if !args.layouts.is_empty() && !args.load.is_empty() {
        measure_layouts(args, verdicts)?;
    }
    if !args.rebuild_layout.is_empty() {
        children::measure(args, verdicts)?;
    }
    if args.no_cpu {
        return Ok(());
    }
    compare::run(&args.options, &[(CPU_RECORD, CPU_PHASES.to_vec())], verdicts, |_, _| ())
}

/// Runs the measurement and prints tables; 2 when a bound was missed.
pub fn run(args: &Args) -> ExitCode {
    Verdicts::conclude("resilver", |verdicts| measure_all(args, verdicts))
}
