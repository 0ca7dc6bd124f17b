//! `zbench bandwidth`: how much of capped devices' bandwidth direct I/O reaches, by layout and number of files.
//!
//! Twelve loop devices with a cap each stand for NVMe drives. The devices alone under fio, in the same turn, are the reference; a layout
//! with parity can reach data ÷ all devices of it. Bytes count when the request is answered; direct requests are on the devices then.

use crate::devices::{self, DeviceKind, DeviceSet};
use crate::files::DATA_START;
use crate::fio;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::matrix::cell::{Group, Layer, Measured, Mode, Pattern, Task, name_of};
use crate::matrix::{Library, Mount, raw};
use crate::measure::{Samples, Verdicts, text};
use clap::Args as ClapArgs;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

const TASKS: [Task; 2] = [Task { pattern: Pattern::Write, mode: Mode::Direct }, Task { pattern: Pattern::Read, mode: Mode::Direct }];

/// Numbers, one by one and as ranges that double.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counts(Vec<usize>);

impl FromStr for Counts {
    type Err = String;
    fn from_str(spec: &str) -> Result<Counts, String> {
        let number =
            |word: &str| word.parse::<usize>().map_err(text).and_then(|count| if count > 0 { Ok(count) } else { Err("0 of them".into()) });
        let mut counts = Vec::new();
        for part in spec.split(',') {
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            counts.extend(std::iter::successors(Some(first), |count| count.checked_mul(2)).take_while(|count| *count <= last));
        }
        Ok(Counts(counts))
    }
}

/// What to measure.
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// Layouts
    #[arg(long, value_delimiter = ',', default_value = "stripe:12,raidz1:12,raidz2:12")]
    layout: Vec<Layout>,
    /// Numbers of files, each with its own stream; 1..1024: 1, 2, 4 and so on
    #[arg(long, default_value = "1,8,64")]
    files: Counts,
    /// Through the mount, as a library, or both
    #[arg(long, value_enum, value_delimiter = ',', default_value = "library,fuse")]
    layers: Vec<Layer>,
    /// Cap of each device, 10⁶ bytes per second
    #[arg(long, default_value_t = 100)]
    cap_mb: u64,
    /// Bytes of a request and of a record, in KiB
    #[arg(long, default_value_t = 1024)]
    size_kib: u64,
    /// Requests in flight together
    #[arg(long, default_value_t = 64)]
    in_flight: usize,
    /// Seconds of each run at the cap: long enough that the burst with which the caps begin does not count
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Turns; medians count
    #[arg(long, default_value_t = 2)]
    reps: usize,
    /// Worker threads of the library
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Least share of the reference, in percent
    #[arg(long, default_value_t = 97.0)]
    least: f64,
    /// Directory below which the backing files lie; use tmpfs
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
}

#[derive(Default)]
struct Figures {
    percent: Samples,
    rate: Samples,
    cpu: Samples,
    direct: Samples,
}

type Table = BTreeMap<(Layer, Task), Figures>;

fn rate(measured: &Measured) -> f64 {
    measured.bytes as f64 / 1e6 / measured.seconds.max(1e-9)
}

fn group(args: &Args, layout: Layout, files: usize) -> Group {
    let size = args.size_kib << 10;
    let bytes = (args.cap_mb as f64 * 1e6 * layout.data_devices() as f64 * args.seconds) as u64;
    let bytes = bytes.next_multiple_of(size * files as u64);
    Group { layout, size, jobs: files, bytes, in_flight: args.in_flight.max(files), seconds: args.seconds }
}

/// Runs one turn of one layer.
fn turn(args: &Args, devices: &DeviceSet, group: &Group, layer: Layer) -> Result<Vec<(Task, Measured)>, String> {
    let mut figures = Vec::new();
    if layer == Layer::Library {
        let mut library = Library::create(devices, group, args.threads)?;
        for task in TASKS {
            figures.push((task, library.run(group, task)?));
        }
        library.end()?;
    } else {
        let mut mount = Mount::create(devices, group)?;
        for task in TASKS {
            figures.push((task, mount.run(group, task)?));
        }
        mount.end()?;
    }
    Ok(figures)
}

fn measure_group(args: &Args, devices: &DeviceSet, group: &Group) -> Result<(Table, BTreeMap<Task, Samples>), String> {
    let (mut table, mut raws) = (Table::new(), BTreeMap::<Task, Samples>::new());
    for _ in 0..args.reps.max(1) {
        let mut reference = BTreeMap::new();
        for task in TASKS {
            // The devices get as many bytes as the pool gives them, parity included.
            let bytes = (group.bytes as f64 / group.layout.efficiency()) as u64;
            let measured = raw::run(devices, &Group { bytes, jobs: 1, ..*group }, task)?;
            reference.insert(task, rate(&measured));
            raws.entry(task).or_default().push(rate(&measured));
        }
        for &layer in &args.layers {
            for (task, measured) in turn(args, devices, group, layer)? {
                let row = table.entry((layer, task)).or_default();
                let best = reference.get(&task).copied().unwrap_or(f64::NAN) * group.layout.efficiency();
                row.percent.push(rate(&measured) / best * 100.0);
                row.rate.push(rate(&measured));
                row.cpu.push(measured.cpu / (measured.bytes as f64 / crate::measure::GIB));
                if let Some(share) = measured.direct_share {
                    row.direct.push(share * 100.0);
                }
            }
        }
    }
    Ok((table, raws))
}

fn measure_all(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    fio::require()?;
    devices::remove_stale(&args.dir);
    println!("{}", Machine::describe().header());
    println!(
        "loop devices of {} MB/s each, {} KiB requests and records, {} in flight, sequential, direct; medians of {} turns",
        args.cap_mb, args.size_kib, args.in_flight, args.reps
    );
    let count = args.layout.iter().map(|layout| layout.devices).max().unwrap_or(1);
    let each = (args.cap_mb as f64 * 1e6 * args.seconds * 1.6) as u64 + 2 * DATA_START + (48 << 20);
    let devices = DeviceSet::create(DeviceKind::Loops, &args.dir, count, each.next_multiple_of(1 << 20), Some(args.cap_mb * 1_000_000))?;
    println!(
        "\n{:<10} {:>5} {:<8} {:<6} {:>7} {:>7} {:>4} {:>9} {:>9} {:>8}",
        "layout", "files", "layer", "", "raw", "MB/s", "±%", "% of best", "cpu s/GiB", "direct %"
    );
    for &layout in &args.layout {
        for &files in &args.files.0 {
            let group = group(args, layout, files);
            let (table, raws) = measure_group(args, &devices, &group)?;
            for ((layer, task), row) in table {
                let percent = row.percent.median();
                let direct = if row.direct.count() == 0 { "-".to_string() } else { format!("{:.0}", row.direct.median()) };
                println!(
                    "{layout:<10} {files:>5} {:<8} {:<6} {:>7.0} {:>7.0} {:>4.0} {percent:>9.1} {:>9.3} {direct:>8} {}",
                    name_of(layer),
                    name_of(task.pattern),
                    raws.get(&task).map_or(f64::NAN, Samples::median),
                    row.rate.median(),
                    row.rate.spread_percent(),
                    row.cpu.median(),
                    verdicts.judge(percent >= args.least)
                );
            }
        }
    }
    Ok(())
}

/// Runs the measurement and prints a table; 2 when a bound was missed.
pub fn run(args: &Args) -> ExitCode {
    Verdicts::conclude("bandwidth", |verdicts| measure_all(args, verdicts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a curve over 1 to 1024 files lacks points, or never ends.
    #[test]
    fn ranges_double() {
        assert_eq!("1..1024".parse::<Counts>(), Ok(Counts((0..=10).map(|shift| 1 << shift).collect())));
        assert_eq!("1,8,64".parse::<Counts>(), Ok(Counts(vec![1, 8, 64])));
        assert_eq!("3..13,20".parse::<Counts>(), Ok(Counts(vec![3, 6, 12, 20])));
        assert!(["0..4", "", "x", "1.."].iter().all(|spec| spec.parse::<Counts>().is_err()));
    }
}
