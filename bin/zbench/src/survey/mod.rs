//! `zbench survey`: storage as Lustre's targets would use it, rung by rung, with the parameters and the lines of `obdfilter-survey`.
//!
//! The ladder is that of ORNL's talk of 2021 (LUG, "Impact of ZFS Direct I/O on OSD Performance"): each device alone, bare devices striped in the
//! order in which they are counted and in that of their PCIe controllers, and pools over them through the library and as an object storage device.
//! Devices are modelled in virtual time, or files. Which of them is slow or errs among the others is said after each rung.

mod args;
mod bed;
pub mod figures;
mod line;
mod load;
mod modelled;
mod mount;
mod rates;
mod raw;
mod stand;
mod watched;

pub use args::Args;
pub use line::Test;

use crate::devices::remove_stale;
use crate::files::DATA_START;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::matrix::cell::{Mode, name_of};
use crate::measure::Verdicts;
use args::Layer;
use bed::Setup;
use line::mib_per_second;
use load::Point;
use rates::{Direction, Order, drives};
use raw::Load;
use stand::{Stand, User};
use std::process::ExitCode;

/// Bytes of a bare device.
const BARE_BYTES: u64 = 128 << 20;
/// Bytes of a device that has no data yet: labels, and what a pool keeps free.
const POOL_BYTES: u64 = 128 << 20;
/// Number of times that the bytes of a test have room on a pool: as written and rewritten, each until what it replaced is free.
const ROOM: u64 = 4;
/// Bytes of the requests by which a device is judged, and how many of them it has at once.
const JUDGED_REQUEST: u64 = 32 << 10;
const JUDGED_JOBS: usize = 8;
const DIRECTIONS: [Direction; 2] = [Direction::Write, Direction::Read];
const SECOND_NS: u64 = 1_000_000_000;

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

/// Rate in MiB/s of one in bytes per second.
fn mib(rate: f64) -> f64 {
    mib_per_second(rate as u64, SECOND_NS)
}

/// Says which devices are slow or err.
fn tell_defects(stand: &Stand, names_none: bool) {
    let defects = stand.defects();
    for (device, direction, defect) in &defects {
        println!("qualification: {device}, {}s: {defect}", word(*direction));
    }
    if defects.is_empty() && names_none {
        println!("qualification: none is slow or errs among its siblings");
    }
}

/// Rate in bytes per second at which a device moves what it is judged by.
fn judge(stand: &Stand, index: usize, direction: Direction, ios: u64) -> f64 {
    let load = Load {
        devices: stand.devices().get(index).cloned().into_iter().collect(),
        direction,
        request: JUDGED_REQUEST,
        jobs: JUDGED_JOBS,
        warm_ns: 0,
        counted_ns: u64::MAX,
        requests_max: ios.div_ceil(JUDGED_JOBS as u64),
    };
    raw::run(stand.exec(), load)
}

/// Each device alone.
fn one(args: &Args) -> Result<(), String> {
    let count = args.devices.iter().copied().max().unwrap_or(1);
    println!("# one: {count} devices, each alone, requests of {}K, {JUDGED_JOBS} jobs", JUDGED_REQUEST >> 10);
    stand::with(args, &drives(count, Order::Naive), BARE_BYTES, User::Alone, |stand| {
        for index in 0..count {
            let rates =
                DIRECTIONS.map(|direction| format!(" {} {:7.2}", word(direction), mib(judge(stand, index, direction, args.qualify_ios))));
            println!("dev {index:2} rsz {:4} thr {JUDGED_JOBS:4}{}", JUDGED_REQUEST >> 10, rates.concat());
        }
        tell_defects(stand, true);
        Ok(())
    })
}

/// Rates of a bare stripe in bytes per second: written, and read.
fn stripe(args: &Args, stand: &Stand, request: u64, jobs: usize) -> [f64; 2] {
    let ns = args.raw_ms * 1_000_000;
    DIRECTIONS.map(|direction| {
        let load =
            Load { devices: stand.devices(), direction, request, jobs, warm_ns: ns / 3, counted_ns: ns - ns / 3, requests_max: u64::MAX };
        raw::run(stand.exec(), load)
    })
}

/// Limits of modelled devices, in words: as a stripe, and if each device had work of its own.
fn limits(args: &Args, numbers: &[usize]) -> String {
    if args.on.is_some() {
        return String::new();
    }
    let rates = args.rates();
    let each = DIRECTIONS.map(|direction| {
        let [stripe, together] = [rates.stripe(numbers, direction), rates.together(numbers, direction)].map(|rate| mib(rate as f64));
        format!("{} {stripe:.2} MiB/s as a stripe and {together:.2} each for itself", word(direction))
    });
    format!("; limits: {}", each.join(", "))
}

/// Bare devices striped.
fn stripes(args: &Args, order: Order) -> Result<(), String> {
    let name = if order == Order::Naive { "naive" } else { "aware" };
    for &count in &args.devices {
        let numbers = drives(count, order);
        println!("# {name}: {count} bare devices striped{}", limits(args, &numbers));
        for request in args.requests() {
            for jobs in args.threads() {
                let [write, read] = stand::with(args, &numbers, BARE_BYTES.max(2 * DATA_START + request), User::Stripe, |stand| {
                    let rates = stripe(args, stand, request, jobs);
                    tell_defects(stand, false);
                    Ok(rates.map(mib))
                })?;
                println!("raw {count:2} rsz {:4} thr {jobs:4} write {write:7.2} read {read:7.2}", request >> 10);
            }
        }
    }
    Ok(())
}

/// Points of the grid.
fn points(args: &Args) -> Vec<Point> {
    let interval_ns = args.interval_ms.max(1) * 1_000_000;
    let point = |request, (objects, threads)| Point { bytes: args.size << 20, request, objects, threads, interval_ns };
    args.requests()
        .into_iter()
        .flat_map(|request| args.pairs().into_iter().map(move |pair| (request, pair)))
        .map(|(request, pair)| point(request, pair))
        .collect()
}

/// Configurations of a dataset on a layer, in a pool of this layout.
fn setups(args: &Args, layer: Layer, layout: Layout) -> Vec<Setup> {
    let mut setups = Vec::new();
    for record in &args.record_kib {
        for mode in &args.modes {
            for checksum in &args.checksum {
                for compression in &args.compression {
                    let (checksum, compression) = (checksum.clone(), compression.clone());
                    let (record, arc_max) = (record << 10, args.arc_mib << 20);
                    setups.push(Setup { layer, layout, record, checksum, compression, mode: *mode, arc_max });
                }
            }
        }
    }
    setups
}

/// Bytes of each of so many devices of a pool that the tests of the points have room on.
fn pool_bytes(points: &[Point], count: usize) -> u64 {
    let most = points.iter().map(|point| point.bytes.max(point.request * point.threads as u64)).max().unwrap_or(0);
    (most * ROOM / count as u64 + POOL_BYTES).next_multiple_of(1 << 20)
}

/// Pools over the devices.
fn pools(args: &Args, layer: Layer) -> Result<(), String> {
    let (points, order) = (points(args), if args.on.is_some() { Order::Naive } else { Order::Aware });
    for layout in args.layouts() {
        let count = layout.devices;
        let numbers = drives(count, order);
        for setup in setups(args, layer, layout) {
            let Setup { record, checksum, compression, mode, .. } = &setup;
            let (layer, mode) = (name_of(layer), name_of::<Mode>(*mode));
            let what = format!("records of {}K, {mode}, checksum {checksum}, compression {compression}", record >> 10);
            let devices = args.layout.map_or_else(|| format!("{count} devices"), |layout| layout.to_string());
            println!("# {layer}: {devices}, {what}{}", limits(args, &numbers));
            let bytes = pool_bytes(&points, count);
            let user = if setup.layer == Layer::Mount { User::Daemon } else { User::Pool };
            stand::with(args, &numbers, bytes, user, |stand| {
                load::run(stand, &setup, &points, &mut |row| println!("{}", row.line()))?;
                tell_defects(stand, false);
                Ok(())
            })?;
        }
    }
    Ok(())
}

fn survey(args: &Args) -> Result<(), String> {
    args.check()?;
    match &args.on {
        Some(folder) => {
            remove_stale(folder);
            println!("{}\n# files below {}", Machine::describe().header(), folder.display());
        }
        None => println!(
            "# devices in virtual time: {} MB/s read, {} MB/s write, links of {} MB/s, two controllers of {} MB/s with twelve devices each",
            args.read_mb, args.write_mb, args.link_mb, args.host_mb
        ),
    }
    println!("# rates in MiB/s");
    for layer in &args.layers {
        match layer {
            Layer::One => one(args)?,
            Layer::Naive => stripes(args, Order::Naive)?,
            Layer::Aware if args.on.is_some() => eprintln!("aware: left out, nobody knows the controllers of files"),
            Layer::Aware => stripes(args, Order::Aware)?,
            Layer::Mount if args.on.is_none() => eprintln!("mount: left out, the kernel knows no virtual time"),
            Layer::Library | Layer::Osd | Layer::Mount => pools(args, *layer)?,
        }
    }
    Ok(())
}

/// Runs the survey and prints its lines.
pub fn run(args: &Args) -> ExitCode {
    Verdicts::conclude("survey", |_| survey(args))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use leaf::Defect;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &[&str]) -> Args {
        Cli::parse_from(["survey"].iter().chain(line).copied()).args
    }

    fn found(line: &[&str]) -> Vec<(String, Direction, Defect)> {
        let args = args(line);
        let judged = stand::with(&args, &drives(6, Order::Naive), BARE_BYTES, User::Alone, |stand| {
            for index in 0..6 {
                for direction in DIRECTIONS {
                    judge(stand, index, direction, 1024);
                }
            }
            Ok(stand.defects())
        });
        judged.expect("no device of the survey's own fails")
    }

    /// If this fails, the survey of 24 drives with a bad one ends as the talk's began: with a stripe that nobody can explain.
    #[test]
    fn slow_and_failing_devices_are_named_and_no_others() {
        assert!(found(&[]).is_empty());
        let bad = found(&["--slow", "3:5", "--failing", "4:1000"]);
        let of =
            |name: &str, is_kind: fn(&Defect) -> bool| bad.iter().filter(|(device, _, defect)| device == name && is_kind(defect)).count();
        assert_eq!(of("nvme03", |defect| matches!(defect, Defect::Slow(_))), 2, "{bad:?}");
        assert!(of("nvme04", |defect| matches!(defect, Defect::Errs(_))) > 0, "{bad:?}");
        assert!(bad.iter().all(|(device, ..)| device == "nvme03" || device == "nvme04"), "{bad:?}");
    }

    /// If this fails, rows of pools say what no device did: rates above theirs, bytes that never moved.
    #[test]
    fn rows_of_pools_agree_with_their_devices() {
        let args = args(&["--size", "16", "--nobjlo", "2", "--nobjhi", "2", "--thrlo", "8", "--thrhi", "8"]);
        let numbers = drives(2, Order::Aware);
        for layer in [Layer::Library, Layer::Osd] {
            let setup = setups(&args, layer, Layout { kind: vdev::TopKind::Leaf, devices: 2 }).remove(0);
            let mut rows = Vec::new();
            let ran = stand::with(&args, &numbers, 256 << 20, User::Pool, |stand| {
                load::run(stand, &setup, &points(&args), &mut |row| rows.push(row.clone()))
            });
            ran.expect("ran");
            let [row] = &rows[..] else { panic!("{layer:?}: {} rows", rows.len()) };
            let names: Vec<_> = row.tests.iter().map(|test| test.name).collect();
            assert_eq!((names, row.total_kib), (vec!["write", "rewrite", "read", "cold"], 16 << 10));
            let limit = |direction| mib(args.rates().stripe(&numbers, direction) as f64);
            for test in &row.tests {
                // A new object becomes one with whole records by its first requests.
                let least = if test.name == "write" { 0.0 } else { 90.0 };
                assert!(test.cpu.is_none() && test.direct.is_some_and(|percent| percent >= least), "{layer:?}: {}", row.line());
                assert!((0.99..1.6).contains(&test.device_bytes), "{layer:?}: {}", row.line());
                match test.synced {
                    Some(synced) => assert!(synced < limit(Direction::Write) && synced <= test.rate, "{layer:?}: {}", row.line()),
                    None => assert!(test.rate < limit(Direction::Read), "{layer:?}: {}", row.line()),
                }
            }
        }
    }
}
