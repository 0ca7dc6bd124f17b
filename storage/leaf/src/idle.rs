//! What I/Os took lately that went past the scheduler because a device had no background work: when some begins, the latency promise
//! knows from them what the idle device does, and need not wait until it has seen it (docs/adr/0005).
//!
//! A table whose places are overwritten by chance: noting costs one store into a line that nobody waits for, no shared counter. Times
//! are kept to a millisecond, within 49 days. Whoever reads sees a sample of what was noted, the more complete the more recent.

use std::sync::atomic::{AtomicU64, Ordering};

const PLACES_LOG2: u32 = 12;
/// Age up to which a latency is recent, in milliseconds.
const RECENT_MS: u32 = 5_000;
/// Number of latencies up to which older ones count, too.
const FEW: usize = 256;
/// Age beyond which no latency counts, in milliseconds.
const OLDEST_MS: u32 = 30_000;

/// Latencies of one device.
#[derive(Debug)]
pub(crate) struct IdleLatencies {
    /// Time at which the device got an I/O (milliseconds, above) and how long it took (nanoseconds, below); 0: nothing yet.
    places: Box<[AtomicU64]>,
}

impl Default for IdleLatencies {
    fn default() -> IdleLatencies {
        IdleLatencies { places: (0..1 << PLACES_LOG2).map(|_| AtomicU64::new(0)).collect() }
    }
}

fn milliseconds(time_ns: u64) -> u32 {
    (time_ns / 1_000_000) as u32
}

impl IdleLatencies {
    /// The device got an I/O then, and took so long.
    pub(crate) fn note(&self, issued_ns: u64, latency_ns: u64) {
        // Fibonacci hashing: I/Os of one moment go to different places.
        let place = issued_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACES_LOG2);
        let latency = latency_ns.clamp(1, u64::from(u32::MAX));
        self.places[place as usize].store(u64::from(milliseconds(issued_ns)) << 32 | latency, Ordering::Relaxed);
    }

    /// Latencies of late, in nanoseconds.
    pub(crate) fn recent(&self, now_ns: u64) -> Vec<u64> {
        let now = milliseconds(now_ns);
        let noted = self.places.iter().map(|place| place.load(Ordering::Relaxed)).filter(|noted| *noted != 0);
        let aged = noted.map(|noted| (now.wrapping_sub((noted >> 32) as u32), noted & u64::from(u32::MAX)));
        let mut aged: Vec<(u32, u64)> = aged.filter(|(age, _)| *age <= OLDEST_MS).collect();
        aged.sort_unstable();
        let counts = |(index, (age, _)): &(usize, (u32, u64))| *age <= RECENT_MS || *index < FEW;
        aged.into_iter().enumerate().take_while(counts).map(|(_, (_, latency))| latency).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// What a device did for another load, or long ago, is no measure of what its users are used to now.
    #[test]
    fn what_is_recent_counts_and_older_only_where_there_is_little() {
        let idle = IdleLatencies::default();
        assert!(idle.recent(SECOND).is_empty());
        (0..1000).for_each(|io| idle.note(io * 1_000_003, 7_000));
        (0..1000).for_each(|io| idle.note(20 * SECOND + io * 1_000_003, 90_000));
        let of = |latencies: &[u64], wanted: u64| latencies.iter().filter(|latency| **latency == wanted).count();
        let now = idle.recent(22 * SECOND);
        assert!(of(&now, 90_000) > 800 && of(&now, 7_000) == 0, "{} and {}", of(&now, 90_000), of(&now, 7_000));
        assert_eq!(of(&idle.recent(28 * SECOND), 90_000), FEW, "too old, but nothing else is there");
        assert!(idle.recent(90 * SECOND).is_empty());
        idle.note(100 * SECOND, 9 * SECOND);
        assert_eq!(idle.recent(101 * SECOND), [u64::from(u32::MAX)]);
    }
}
