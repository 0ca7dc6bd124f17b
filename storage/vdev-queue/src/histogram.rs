//! Streaming quantiles of latencies in constant memory: a histogram with 16 buckets per octave that forgets.
//!
//! A quantile is at most 1/16 too high and never too low. Once `FORGET_AT` samples are in, all counts are halved, so that what is
//! remembered is mostly the last few thousand samples, and recording costs constant time amortized.

const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
const OCTAVES: usize = 40;
const BUCKETS: usize = SUB * OCTAVES;
const FORGET_AT: u32 = 8192;

/// Counts of latencies in nanoseconds.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    counts: Vec<u32>,
    total: u32,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        LatencyHistogram { counts: vec![0; BUCKETS], total: 0 }
    }
}

fn bucket_of(latency_ns: u64) -> usize {
    if latency_ns < SUB as u64 {
        return latency_ns as usize;
    }
    let octave = 63 - latency_ns.leading_zeros();
    let sub = (latency_ns >> (octave - SUB_BITS)) as usize & (SUB - 1);
    (((octave - SUB_BITS + 1) as usize) * SUB + sub).min(BUCKETS - 1)
}

/// The largest latency that falls into the bucket.
fn upper_edge(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let shift = (bucket / SUB - 1) as u32;
    ((((SUB + bucket % SUB) as u64) + 1) << shift) - 1
}

impl LatencyHistogram {
    /// Records one latency.
    pub fn record(&mut self, latency_ns: u64) {
        self.counts[bucket_of(latency_ns)] += 1;
        self.total += 1;
        if self.total >= FORGET_AT {
            self.forget_half();
        }
    }

    /// Halves every count.
    pub fn forget_half(&mut self) {
        self.total = 0;
        for count in &mut self.counts {
            *count /= 2;
            self.total += *count;
        }
    }

    /// Forgets every sample.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }

    /// Number of samples that are remembered.
    pub fn samples(&self) -> u32 {
        self.total
    }

    /// The latency that `ppm` of a million samples do not exceed; none without samples.
    pub fn quantile_ns(&self, ppm: u32) -> Option<u64> {
        if self.total == 0 {
            return None;
        }
        let rank = (u64::from(self.total) * u64::from(ppm)).div_ceil(1_000_000).max(1);
        let mut seen = 0u64;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return Some(upper_edge(bucket));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quantile that were too low would let background work break the promise unseen.
    #[test]
    fn quantiles_are_never_too_low_and_at_most_a_sixteenth_too_high() {
        let mut value = 1u64;
        while value < 1 << 36 {
            for latency in [value, value + value / 3, value * 2 - 1] {
                let edge = upper_edge(bucket_of(latency));
                assert!(edge >= latency && edge <= latency + latency / 16, "{latency} is reported as {edge}");
            }
            value *= 2;
        }
        let mut histogram = LatencyHistogram::default();
        for latency in 1..=1000u64 {
            histogram.record(latency * 1000);
        }
        let p99 = histogram.quantile_ns(990_000).expect("there are samples");
        assert!((990_000..=990_000 + 990_000 / 16).contains(&p99), "{p99}");
    }

    /// A histogram that never forgot would judge today's device by yesterday's.
    #[test]
    fn old_samples_are_forgotten() {
        let mut histogram = LatencyHistogram::default();
        (0..100_000).for_each(|_| histogram.record(50_000_000));
        (0..100_000).for_each(|_| histogram.record(100_000));
        assert!(histogram.samples() < FORGET_AT);
        assert!(histogram.quantile_ns(990_000).expect("there are samples") < 200_000);
    }
}
