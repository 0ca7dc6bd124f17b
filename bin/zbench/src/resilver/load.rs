//! The load beside a resilver: requests at a given rate, whether or not the ones before are answered, as users make them.
//!
//! Latency counts from when a request was due: a pool that stalls is not excused by the requests that could not be sent meanwhile.

use crate::files::AlignedBuffer;
use crate::subject::Subject;
use clap::ValueEnum;
use dmu::Dnode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Load: what users do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// nothing
    None,
    /// whole records one after the other, read
    Read,
    /// 4 KiB anywhere, read
    RandomRead,
    /// whole records one after the other, written
    Write,
    /// 4 KiB anywhere, half of them written
    Random,
    /// whole records anywhere, one in five read, the others written
    Mix,
}

const SMALL: usize = 4096;

impl Load {
    /// True when nothing is read but what writes need.
    pub fn only_writes(self) -> bool {
        self == Load::Write
    }

    fn is_small(self) -> bool {
        matches!(self, Load::RandomRead | Load::Random)
    }

    fn is_sequential(self) -> bool {
        matches!(self, Load::Read | Load::Write)
    }

    /// True when a request reads; `dice` is random.
    fn reads(self, dice: u64) -> bool {
        match self {
            Load::None | Load::Read | Load::RandomRead => true,
            Load::Write => false,
            Load::Random => dice.is_multiple_of(2),
            Load::Mix => dice.is_multiple_of(5),
        }
    }
}

/// Latencies that a load saw.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Latency of each request in milliseconds.
    pub milliseconds: Vec<f64>,
    /// Number of bytes asked for.
    pub bytes: u64,
}

impl Latencies {
    /// Milliseconds that this part of the requests did not exceed; None without a request.
    pub fn percentile(&self, part: f64) -> Option<f64> {
        let mut sorted = self.milliseconds.clone();
        sorted.sort_by(f64::total_cmp);
        let index = ((sorted.len() as f64 * part).ceil() as usize).max(1) - 1;
        sorted.get(index).copied()
    }

    fn join(&mut self, other: Latencies) {
        self.milliseconds.extend(other.milliseconds);
        self.bytes += other.bytes;
    }
}

/// Ground that the load works on.
pub struct Ground<'a> {
    /// Pool of the load.
    pub subject: &'a Subject,
    /// Objects, one for each stream, all of `bytes`.
    pub objects: &'a [Arc<Dnode>],
    /// Bytes of each object.
    pub bytes: u64,
    /// Bytes of a record.
    pub record: u64,
    /// Content of record `n` of every object.
    pub content: &'a (dyn Fn(u64) -> &'a [u8] + Sync),
}

/// Does `work` while the load goes on.
pub fn beside<'a, T>(ground: &'a Ground<'a>, load: Load, per_second: f64, work: impl FnOnce() -> T) -> Result<(Latencies, T), String> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let users = scope.spawn(|| run(ground, load, per_second, &stop));
        let result = work();
        stop.store(true, Ordering::Relaxed);
        let latencies = users.join().map_err(|_| "the load panicked".to_string())??;
        Ok((latencies, result))
    })
}

/// Makes requests of `load` at `per_second` in all, until `stop`.
fn run<'a>(ground: &'a Ground<'a>, load: Load, per_second: f64, stop: &AtomicBool) -> Result<Latencies, String> {
    let mut all = Latencies::default();
    if load == Load::None {
        return Ok(all);
    }
    let interval = Duration::from_secs_f64(ground.objects.len() as f64 / per_second.max(0.1));
    let streams = std::thread::scope(|scope| {
        let start =
            |(index, object): (usize, &'a Arc<Dnode>)| scope.spawn(move || stream(ground, object, index as u64, load, interval, stop));
        let started: Vec<_> = ground.objects.iter().enumerate().map(start).collect();
        started.into_iter().map(|thread| thread.join().map_err(|_| "a stream panicked".to_string())?).collect::<Result<Vec<_>, _>>()
    })?;
    streams.into_iter().for_each(|stream| all.join(stream));
    Ok(all)
}

fn stream(ground: &Ground<'_>, object: &Dnode, index: u64, load: Load, interval: Duration, stop: &AtomicBool) -> Result<Latencies, String> {
    let mut seen = Latencies::default();
    let mut buffer = AlignedBuffer::new(ground.record as usize);
    let records = ground.bytes / ground.record;
    let mut state = index.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut due = Instant::now() + interval.mul_f64(index as f64 / ground.objects.len() as f64);
    for turn in 0.. {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if stop.load(Ordering::Relaxed) {
            break;
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let dice = state >> 33;
        let record = if load.is_sequential() { turn % records } else { dice % records };
        let inside = if load.is_small() { (dice >> 8) % (ground.record / SMALL as u64) * SMALL as u64 } else { 0 };
        let size = if load.is_small() { SMALL } else { ground.record as usize };
        let offset = record * ground.record + inside;
        let bytes = &(ground.content)(record)[inside as usize..inside as usize + size];
        match (load.reads(dice >> 16), load.is_small()) {
            (true, true) => ground.subject.read_at(object, offset, &mut buffer[..size])?,
            (true, false) => ground.subject.read_direct_at(object, offset, &mut buffer)?,
            (false, true) => ground.subject.write_at(object, offset, bytes)?,
            (false, false) => ground.subject.write_direct_at(object, offset, bytes)?,
        }
        seen.milliseconds.push(due.elapsed().as_secs_f64() * 1e3);
        seen.bytes += size as u64;
        due += interval;
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The promise to users is about the slowest: a percentile that is off by one would keep it on paper.
    #[test]
    fn percentiles_are_of_all_requests() {
        let mut all = Latencies { milliseconds: (1..=50).map(f64::from).collect(), bytes: 1 };
        all.join(Latencies { milliseconds: (51..=100).rev().map(f64::from).collect(), bytes: 2 });
        assert_eq!((all.percentile(0.99), all.percentile(0.5), all.bytes), (Some(99.0), Some(50.0), 3));
        assert_eq!(Latencies::default().percentile(0.99), None);
    }

    /// The study's mixture is 20 % reads: another one would be compared with its figures.
    #[test]
    fn mixtures_are_as_named() {
        let reads = |load: Load| (0..1000).filter(|dice| load.reads(*dice)).count();
        assert_eq!([Load::Read, Load::RandomRead, Load::Write, Load::Random, Load::Mix].map(reads), [1000, 1000, 0, 500, 200]);
    }
}
