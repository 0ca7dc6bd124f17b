//! Loads, where their requests go, and the figures of a load on a subject in turns.

use crate::matrix::percentiles;
use crate::measure::{Cost, GIB, Samples};
use crate::pipeline::{self, Direction, Stream};
use std::time::{Duration, Instant};

const MIB: f64 = (1u64 << 20) as f64;

/// Loads of a disk behind a door whose requests are large and come one after the other, by two streams.
pub const LARGE: [Load; 2] = [
    Load { title: "256K Q32 × 2 write", direction: Direction::Write, is_random: false, bytes: 256 << 10, depth: 32, streams: 2 },
    Load { title: "256K Q32 × 2 read", direction: Direction::Read, is_random: false, bytes: 256 << 10, depth: 32, streams: 2 },
];
/// Loads of a disk behind a door whose requests are small and go anywhere.
pub const SMALL: [Load; 2] = [
    Load { title: "4K Q32 random write", direction: Direction::Write, is_random: true, bytes: 4096, depth: 32, streams: 1 },
    Load { title: "4K Q32 random read", direction: Direction::Read, is_random: true, bytes: 4096, depth: 32, streams: 1 },
];

/// Offsets of requests, one after the other.
pub type Offsets = Box<dyn Iterator<Item = u64> + Send>;

/// Load of a disk: requests of one size, some in flight in each of some streams.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Title for people.
    pub title: &'static str,
    /// Direction of the requests.
    pub direction: Direction,
    /// Places all over the disk, or one after the other.
    pub is_random: bool,
    /// Bytes of a request.
    pub bytes: u64,
    /// Number of requests in flight in each stream.
    pub depth: usize,
    /// Number of streams, each with a part of the disk.
    pub streams: usize,
}

impl Load {
    /// Offsets of the requests of one stream on a disk of `bytes`, until `deadline`.
    pub fn offsets(self, bytes: u64, stream: usize, deadline: Instant) -> Offsets {
        if self.is_random {
            return Box::new(pipeline::random_offsets(self.bytes, bytes, stream as u64 + 1, deadline));
        }
        let places = (bytes / self.streams as u64 / self.bytes).max(1);
        let start = stream as u64 * places * self.bytes;
        let size = self.bytes;
        Box::new((0u64..).map(move |turn| start + turn % places * size).take_while(move |_| Instant::now() < deadline))
    }

    /// Time at which a run of so many seconds ends.
    pub fn deadline(seconds: f64) -> Instant {
        Instant::now() + Duration::from_secs_f64(seconds)
    }

    /// Figure of a rate that people compare: MiB/s of sequential loads, requests in a second of random ones.
    fn rate(self, bytes: u64, seconds: f64) -> f64 {
        let unit = if self.is_random { self.bytes as f64 } else { MIB };
        bytes as f64 / unit / seconds.max(1e-9)
    }

    /// Unit of the rate.
    pub fn unit(self) -> &'static str {
        if self.is_random { "IOPS" } else { "MiB/s" }
    }
}

/// Outcome of one run of a load.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of bytes moved.
    pub bytes: u64,
    /// Latency of each request in nanoseconds.
    pub latencies_ns: Vec<u32>,
    /// Cost of this process: the client's CPU, and the time.
    pub cost: Cost,
    /// CPU seconds of the subject's process, all that its writes led to included; None where that is this process.
    pub server_cpu: Option<f64>,
    /// CPU seconds of the process that serves the file below the subject.
    pub below_cpu: Option<f64>,
    /// Number of bytes that the subject copied between buffers.
    pub copied: Option<u64>,
}

impl Outcome {
    /// Joins the streams of one run.
    pub fn of(streams: Vec<Stream>, cost: Cost) -> Outcome {
        let mut outcome = Outcome { cost, ..Outcome::default() };
        for stream in streams {
            outcome.bytes += stream.bytes;
            outcome.latencies_ns.extend(stream.latencies_ns);
        }
        outcome
    }
}

/// Figures of a load on one subject, over the turns.
#[derive(Debug, Default)]
pub struct Figures {
    /// Rate in the load's unit.
    pub rate: Samples,
    /// CPU seconds per GiB of the subject's process.
    pub server: Samples,
    /// CPU seconds per GiB of the process that serves the file below it.
    pub below: Samples,
    /// CPU seconds per GiB of this process.
    pub client: Samples,
    /// Number of bytes copied per byte moved.
    pub copies: Samples,
    p50_us: Samples,
    p99_us: Samples,
}

impl Figures {
    /// Adds a run.
    pub fn add(&mut self, load: Load, outcome: Outcome) {
        let gib = outcome.bytes.max(1) as f64 / GIB;
        self.rate.push(load.rate(outcome.bytes, outcome.cost.seconds));
        self.client.push(outcome.cost.cpu / gib);
        if let Some(cpu) = outcome.server_cpu {
            self.server.push(cpu / gib);
        }
        if let Some(cpu) = outcome.below_cpu {
            self.below.push(cpu / gib);
        }
        if let Some(copied) = outcome.copied {
            self.copies.push(copied as f64 / outcome.bytes.max(1) as f64);
        }
        if let Some([p50, p99, _]) = percentiles(outcome.latencies_ns) {
            self.p50_us.push(p50);
            self.p99_us.push(p99);
        }
    }

    /// CPU seconds per GiB of all that serves: the subject and what is below it.
    pub fn serving(&self) -> f64 {
        self.server.median() + if self.below.count() > 0 { self.below.median() } else { 0.0 }
    }

    /// Heading of [`Figures::line`].
    pub fn heading() -> String {
        format!(
            "{:<22} {:<24} {:>9} {:<5} {:>4} | {:>8} {:>4} {:>8} {:>8} | {:>7} | {:>8} {:>8}",
            "", "(CPU in s/GiB)", "rate", "", "±%", "server", "±%", "below", "client", "copies", "p50 µs", "p99 µs"
        )
    }

    /// Line of a table.
    pub fn line(&self, load: Load, subject: &str) -> String {
        let shown = |samples: &Samples, digits: usize| match samples.count() {
            0 => "-".to_string(),
            _ => format!("{:.digits$}", samples.median()),
        };
        format!(
            "{:<22} {subject:<24} {:>9} {:<5} {:>4.0} | {:>8} {:>4.0} {:>8} {:>8} | {:>7} | {:>8} {:>8}",
            load.title,
            shown(&self.rate, 0),
            load.unit(),
            self.rate.spread_percent(),
            shown(&self.server, 3),
            self.server.spread_percent(),
            shown(&self.below, 3),
            shown(&self.client, 3),
            shown(&self.copies, 2),
            shown(&self.p50_us, 0),
            shown(&self.p99_us, 0)
        )
    }
}

/// Runs `stream` for each stream of a load, each on a thread of its own.
pub fn beside_each_other<T: Send>(
    states: Vec<T>,
    stream: impl Fn(usize, T) -> Result<Stream, String> + Sync,
) -> Result<Vec<Stream>, String> {
    let stream = &stream;
    std::thread::scope(|scope| {
        let started: Vec<_> = states.into_iter().enumerate().map(|(index, state)| scope.spawn(move || stream(index, state))).collect();
        started.into_iter().map(|thread| thread.join().map_err(|_| "a stream panicked".to_string())?).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams that read the same places would measure a cache, and places behind the end fail.
    #[test]
    fn streams_have_parts_of_their_own_and_begin_again_at_their_end() {
        let deadline = Load::deadline(3600.0);
        let first: Vec<u64> = LARGE[1].offsets(1 << 20, 0, deadline).take(3).collect();
        let second: Vec<u64> = LARGE[1].offsets(1 << 20, 1, deadline).take(3).collect();
        assert_eq!((first, second), (vec![0, 256 << 10, 0], vec![512 << 10, 768 << 10, 512 << 10]));
        assert!(SMALL[1].offsets(1 << 20, 1, deadline).take(1000).all(|offset| offset.is_multiple_of(4096) && offset < 1 << 20));
        assert_eq!(LARGE[1].offsets(1 << 20, 0, Instant::now()).count(), 0);
    }

    /// The target's cost in the place of the client's, or without the process below it, would make a bound easy to keep.
    #[test]
    fn costs_are_told_apart() {
        let mut figures = Figures::default();
        let cost = Cost { seconds: 2.0, cpu: 1.0 };
        let outcome =
            Outcome { bytes: 2 << 30, cost, server_cpu: Some(4.0), below_cpu: Some(6.0), copied: Some(1 << 30), ..Outcome::default() };
        figures.add(LARGE[1], outcome);
        assert_eq!((figures.rate.median(), figures.client.median(), figures.serving()), (1024.0, 0.5, 5.0));
        assert_eq!(figures.copies.median(), 0.5);
    }
}
