//! Five patterns of each drive, as the study of 2020 has them in its table: what a drive can do, and whether one of them is not as the others.

use super::args::Args;
use super::disks::Disks;
use crate::files::DATA_START;
use crate::measure::text;
use abd::Abd;
use device::{BlockDevice, DeviceError, DeviceIo, DeviceOp, DeviceReply};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// Number of requests that a drive has at a time.
const IN_FLIGHT: u64 = 128;

/// Pattern of requests.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    name: &'static str,
    /// Bytes of a request.
    block: u64,
    /// Percent of the requests that read.
    reads: u64,
    is_random: bool,
}

const PATTERNS: [Pattern; 5] = [
    Pattern { name: "seq read", block: 1 << 20, reads: 100, is_random: false },
    Pattern { name: "seq write", block: 1 << 20, reads: 0, is_random: false },
    Pattern { name: "rand read", block: 4096, reads: 100, is_random: true },
    Pattern { name: "rand write", block: 4096, reads: 0, is_random: true },
    Pattern { name: "rand read/write", block: 4096, reads: 50, is_random: true },
];

/// Requests that a drive answered in time, reads and writes.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    per_second: [f64; 2],
}

/// Places and directions of the requests of a pattern, one after the other.
struct Requests {
    pattern: Pattern,
    /// Number of blocks that the drive has room for.
    blocks: u64,
    number: u64,
    state: u64,
}

impl Requests {
    fn new(pattern: Pattern, room: u64) -> Requests {
        Requests { pattern, blocks: (room / pattern.block).max(1), number: 0, state: 1 }
    }

    /// The next one: true for a read, and its first byte.
    fn take(&mut self) -> (bool, u64) {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let dice = self.state >> 33;
        let block = if self.pattern.is_random { dice % self.blocks } else { self.number % self.blocks };
        self.number += 1;
        (dice / self.blocks % 100 < self.pattern.reads, DATA_START + block * self.pattern.block)
    }
}

type Answer = (bool, Result<(), DeviceError>);

fn submit(device: &dyn BlockDevice, (reads, offset): (bool, u64), data: &Abd, told: &Sender<Answer>) {
    let told = told.clone();
    let op = if reads { DeviceOp::read(data.len()) } else { DeviceOp::Write(data.clone()) };
    let then = move |reply: DeviceReply| {
        let _ = told.send((reads, reply.outcome));
    };
    device.submit(DeviceIo::new(op, offset, then));
}

/// Waits for an answer; true when it is a read's.
fn answered(replies: &Receiver<Answer>) -> Result<bool, String> {
    let (reads, outcome) = replies.recv().map_err(text)?;
    outcome.map_err(text).map(|()| reads)
}

/// Runs a pattern for so long; what is answered later does not count.
fn run(device: &dyn BlockDevice, pattern: Pattern, room: u64, longest: Duration) -> Result<Rates, String> {
    let data = Abd::from_slice(&vec![0xA5; pattern.block as usize]);
    let (told, replies) = mpsc::channel();
    let (mut requests, mut done, begun) = (Requests::new(pattern, room), [0u64; 2], Instant::now());
    (0..IN_FLIGHT).for_each(|_| submit(device, requests.take(), &data, &told));
    while begun.elapsed() < longest {
        done[usize::from(!answered(&replies)?)] += 1;
        submit(device, requests.take(), &data, &told);
    }
    let seconds = begun.elapsed().as_secs_f64();
    (0..IN_FLIGHT).try_for_each(|_| answered(&replies).map(drop))?;
    Ok(Rates { per_second: done.map(|done| done as f64 / seconds) })
}

/// Figures of a pattern that has them: of reads, of writes, or of both.
fn figures(rates: &Rates, of: impl Fn(f64) -> f64) -> String {
    let shown: Vec<String> = rates.per_second.iter().filter(|rate| **rate > 0.0).map(|rate| format!("{:.0}", of(*rate))).collect();
    shown.join("/")
}

fn print_row(name: &str, all: &[Rates], pattern: Pattern) {
    for (unit, factor) in [("IOPS", 1.0), ("MiB/s", pattern.block as f64 / f64::from(1 << 20))] {
        let cells: Vec<String> = all.iter().map(|rates| format!("{:>13}", figures(rates, |rate| rate * factor))).collect();
        println!("{:<16} {unit:<6} {}", if unit == "IOPS" { name } else { "" }, cells.join(" "));
    }
}

fn short_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Measures each drive by itself, and prints the table. Whatever is on the drives is gone.
pub fn measure(args: &Args, devices: &Disks) -> Result<(), String> {
    devices.take_time(true)?;
    let opened = devices.opener().open(&devices.paths)?;
    let longest = Duration::from_secs_f64(args.drive_seconds);
    let room = devices.bytes.saturating_sub(2 * DATA_START);
    println!("\neach drive by itself: sequential 1 MiB and random 4 KiB, {IN_FLIGHT} in flight, {} s each", args.drive_seconds);
    let names: Vec<String> = devices.paths.iter().map(|path| format!("{:>13}", short_name(path))).collect();
    println!("{:<23} {}", "", names.join(" "));
    for pattern in PATTERNS {
        let all = opened.iter().map(|device| run(device.as_ref(), pattern, room, longest)).collect::<Result<Vec<_>, _>>()?;
        print_row(pattern.name, &all, pattern);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::MemDevice;

    /// If this fails, the table is of other patterns than the study's, and its figures say nothing beside those.
    #[test]
    fn patterns_ask_for_what_they_are_called() {
        let room = 64 << 20;
        for pattern in PATTERNS {
            let mut requests = Requests::new(pattern, room);
            let taken: Vec<(bool, u64)> = (0..1000).map(|_| requests.take()).collect();
            let reads = taken.iter().filter(|(reads, _)| *reads).count() as u64;
            assert!(reads.abs_diff(10 * pattern.reads) < 100, "{pattern:?}: {reads}");
            assert!(pattern.reads == 50 || reads == 10 * pattern.reads, "{pattern:?}: {reads}");
            let follows = taken.windows(2).filter(|pair| pair[1].1 == pair[0].1 + pattern.block).count();
            assert_eq!(follows > 900, !pattern.is_random, "{pattern:?}: {follows}");
            assert!(taken.iter().all(|(_, offset)| (DATA_START..DATA_START + room).contains(offset)));
        }
    }

    /// If this fails, a run never ends, or says nothing of one of its directions.
    #[test]
    fn a_run_has_figures_of_what_it_does() {
        let device = MemDevice::new("d0", 32 << 20);
        let rates = run(&device, PATTERNS[4], 16 << 20, Duration::from_millis(200)).expect("it runs");
        assert!(rates.per_second.iter().all(|rate| *rate > 0.0), "{rates:?}");
        let rates = run(&device, PATTERNS[1], 16 << 20, Duration::from_millis(200)).expect("it runs");
        assert_eq!(figures(&rates, |rate| rate).split('/').count(), 1, "{rates:?}");
    }
}
