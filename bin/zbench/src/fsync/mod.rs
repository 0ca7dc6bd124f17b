//! `zbench fsync`: what it costs to make small writes durable.
//!
//! Without `--on` the engine runs on devices in virtual time: rates and latencies beside what the time of a flush allows. With it the mount and
//! ext4 take turns, on loop devices over files in one directory.

mod device;
mod mounted;
mod postgres;
mod simulated;

use crate::devices::DeviceKind;
use crate::matrix::percentiles;
use crate::measure::Verdicts;
use clap::Args as ClapArgs;
use simulated::Cell;
use std::path::PathBuf;
use std::process::ExitCode;

/// Bytes of a write.
const IO_BYTES: u64 = 4096;
/// Bytes that a file has in the beginning.
const FILE_BYTES: u64 = 1 << 20;
/// Least part of the rate that flushes allow, with one thread.
const SHARE_MIN: f64 = 0.8;
/// Least multiple of that rate with [`MANY`] threads.
const MANY_MIN: f64 = 6.0;
const MANY: usize = 16;
/// Most of a flush that a synchronous write to a log device takes, at the 99th percentile.
const P99_MAX: f64 = 1.3;

/// Operation of a thread, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// 4 KiB at the end of the file, then fsync.
    Append,
    /// 4 KiB in the file with O_DSYNC.
    Overwrite,
}

impl Work {
    fn title(self) -> &'static str {
        match self {
            Work::Append => "append 4K + fsync",
            Work::Overwrite => "overwrite 4K O_DSYNC",
        }
    }
}

/// What to measure.
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// Times of a flush, in microseconds
    #[arg(long, value_delimiter = ',', default_value = "100,1000,8000")]
    flush_us: Vec<u64>,
    /// Operations of each run in virtual time
    #[arg(long, default_value_t = 1600)]
    operations: usize,
    /// Directory on a disk: the mount beside ext4, each on a loop device over a file there (needs root)
    #[arg(long)]
    on: Option<PathBuf>,
    /// Devices beside ext4: loop devices with ext4 on one of them, or files in the directory, whose own file system is then measured
    #[arg(long, value_enum, default_value = "loops")]
    devices_are: DeviceKind,
    /// Turns beside ext4; medians count
    #[arg(long, default_value_t = 5)]
    reps: usize,
    /// Seconds of each run beside ext4
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Rows inserted by each run of SQLite
    #[arg(long, default_value_t = 200)]
    rows: usize,
    /// Size of the tables of pgbench, in 100,000 rows (16 MB)
    #[arg(long, default_value_t = 10)]
    scale: u32,
    /// Only rows beside ext4 whose title has this in it
    #[arg(long)]
    only: Option<String>,
    /// Bytes of each device beside ext4, in MiB
    #[arg(long, default_value_t = 1536)]
    device_mib: u64,
}

fn in_virtual_time(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    println!("devices in virtual time: {} µs a write, {} operations a run", device::TRANSFER_NS / 1000, args.operations);
    println!(
        "\n{:<22} {:>8} {:>4} {:>8} {:>8} {:>8} {:>9} {:>9} {:>10} {:>10}",
        "", "flush ms", "log", "threads", "ops/s", "bound", "p50 ms", "p99 ms", "writes/op", "flushes/op"
    );
    for &flush_us in &args.flush_us {
        for has_log in [false, true] {
            for (work, threads) in [(Work::Append, 1), (Work::Overwrite, 1), (Work::Append, MANY)] {
                row(Cell { flush_us, has_log, threads, operations: args.operations, work }, verdicts)?;
            }
        }
    }
    Ok(())
}

fn row(cell: Cell, verdicts: &mut Verdicts) -> Result<(), String> {
    let row = simulated::run(cell)?;
    let allowed = 1e6 / cell.flush_us as f64;
    let [p50, p99, _] = percentiles(row.latencies_ns).ok_or("nothing was done")?.map(|us| us / 1e3);
    let log = if cell.has_log { "yes" } else { "no" };
    let [writes, flushes] = row.per_operation;
    let flush_ms = cell.flush_us as f64 / 1e3;
    print!(
        "{:<22} {flush_ms:>8} {log:>4} {:>8} {:>8.0} {allowed:>8.0} {p50:>9.3} {p99:>9.3} {writes:>10.2} {flushes:>10.2}  ",
        cell.work.title(),
        cell.threads,
        row.rate
    );
    let share = row.rate / allowed;
    let least = if cell.threads == MANY { MANY_MIN } else { SHARE_MIN };
    print!("{share:.2} × (≥ {least}) {}", verdicts.judge(share >= least));
    if cell.has_log && cell.work == Work::Overwrite {
        let part = p99 / flush_ms;
        print!("; p99 {part:.2} × a flush (≤ {P99_MAX}) {}", verdicts.judge(part <= P99_MAX));
    }
    println!();
    Ok(())
}

/// Runs the measurement and prints tables; 2 when a bound was missed.
pub fn run(args: &Args) -> ExitCode {
    Verdicts::conclude("fsync", |verdicts| match &args.on {
        None => in_virtual_time(args, verdicts),
        Some(folder) => mounted::measure_all(args, folder, verdicts),
    })
}
