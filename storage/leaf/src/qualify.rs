//! Qualification: which device is slow, or errs, among its siblings.
//!
//! The statistic is over histograms of the devices' latencies, as each leaf has them: it compares the mean and the 99th percentile of one
//! device with the median of all, which a few bad ones do not move, and asks for more than what all of them differ by (the median of the
//! deviations). The buckets are a power of two wide, so that equals seem up to twice as slow as each other: less than that says nothing.

/// Number of devices that are compared, at least; an error needs no sibling.
const SIBLINGS_MIN: usize = 3;
/// Number of I/Os of each of them, at least: a hundredth of them is to be more than one.
const IOS_MIN: u64 = 200;
/// Factor on the siblings' mean, at least: between what buckets make of equals (2) and of a device that is five times slower (4).
const SLOW_MIN: f64 = 3.0;
/// Factor on the siblings' 99th percentile, at least.
const TAIL_MIN: f64 = 8.0;
/// Factor on the median of the deviations, at least, all in octaves.
const SPREAD_MIN: f64 = 5.0;
/// Factor on the siblings' rate of errors, at least.
const ERRORS_MIN: f64 = 10.0;

/// Figures of one device, of the same work as its siblings'.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Numbers of I/Os by the time that the device took: of 2^i to 2^(i+1) ns at i (`vdev_disk_r_lat_histo`, `vdev_disk_w_lat_histo`).
    pub latencies: Vec<u64>,
    /// Number of I/Os that failed; they may be among the latencies or not.
    pub errors: u64,
}

/// Defect of a device that its siblings do not have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Defect {
    /// Mean latency, in multiples of the siblings' median.
    Slow(f64),
    /// Latency that 99 % of the I/Os do not exceed, in multiples of the siblings' median, while the mean is as theirs.
    Tail(f64),
    /// Failed I/Os of a million.
    Errs(f64),
}

impl std::fmt::Display for Defect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Defect::Slow(times) => write!(f, "slow: about {times:.0} times the mean latency of its siblings"),
            Defect::Tail(times) => write!(f, "slow at times: about {times:.0} times its siblings' latency at the 99th percentile"),
            Defect::Errs(millionths) => write!(f, "errs: {:.3} % of its I/Os failed", millionths / 1e4),
        }
    }
}

impl Sample {
    fn ios(&self) -> u64 {
        self.latencies.iter().sum()
    }

    /// True when the device did enough to be compared.
    pub fn is_telling(&self) -> bool {
        self.ios() >= IOS_MIN
    }

    /// Mean latency in ns, as if all of a bucket lay in its middle.
    fn mean_ns(&self) -> f64 {
        let sum: f64 = self.latencies.iter().enumerate().map(|(index, count)| *count as f64 * middle_ns(index)).sum();
        sum / (self.ios() as f64).max(1.0)
    }

    /// Latency in ns that 99 % of the I/Os do not exceed: the middle of its bucket.
    fn tail_ns(&self) -> f64 {
        let rank = (self.ios() * 99).div_ceil(100);
        let mut seen = 0;
        let bucket = self.latencies.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        middle_ns(bucket.unwrap_or(0))
    }

    /// Failed I/Os of a million.
    fn error_millionths(&self) -> f64 {
        self.errors as f64 * 1e6 / (self.ios().max(self.errors) as f64).max(1.0)
    }
}

fn middle_ns(bucket: usize) -> f64 {
    1.5 * (bucket as f64).exp2()
}

/// Median: the middle one, or the mean of the two in the middle; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count => f64::midpoint(values[(count - 1) / 2], values[count / 2]),
    }
}

/// Factor of each value on the median of all, 1 where it does not stand out by more than `least` and than what all differ by.
fn outliers(values: &[f64], least: f64) -> Vec<f64> {
    let octaves: Vec<f64> = values.iter().map(|value| value.max(1.0).log2()).collect();
    let center = median(octaves.clone());
    let spread = median(octaves.iter().map(|octave| (octave - center).abs()).collect());
    let fence = least.log2().max(SPREAD_MIN * spread);
    octaves.iter().map(|octave| if octave - center >= fence { (octave - center).exp2() } else { 1.0 }).collect()
}

/// Defects of devices that did the same work, in their order; None for one that is as its siblings.
///
/// Latencies are compared among at least three devices that each did at least 200 I/Os. An error counts where most siblings have none, or ten times
/// fewer.
pub fn qualify(samples: &[Sample]) -> Vec<Option<Defect>> {
    let errors: Vec<f64> = samples.iter().map(Sample::error_millionths).collect();
    let usual = if samples.len() < SIBLINGS_MIN { 0.0 } else { median(errors.clone()) };
    let is_comparable = samples.len() >= SIBLINGS_MIN && samples.iter().all(Sample::is_telling);
    let compare = |of: fn(&Sample) -> f64, least: f64| {
        let values: Vec<f64> = samples.iter().map(of).collect();
        if is_comparable { outliers(&values, least) } else { vec![1.0; values.len()] }
    };
    let (means, tails) = (compare(Sample::mean_ns, SLOW_MIN), compare(Sample::tail_ns, TAIL_MIN));
    let defect = |((error, mean), tail): ((&f64, &f64), &f64)| match (*error, *mean, *tail) {
        (error, _, _) if error > usual * ERRORS_MIN => Some(Defect::Errs(error)),
        (_, mean, _) if mean > 1.0 => Some(Defect::Slow(mean)),
        (_, _, tail) if tail > 1.0 => Some(Defect::Tail(tail)),
        _ => None,
    };
    errors.iter().zip(&means).zip(&tails).map(defect).collect()
}

#[cfg(test)]
mod tests {
    use super::{Defect, Sample, qualify};
    use kstat::{Histogram, bucket};

    /// Device with I/Os that take `ns` each, up to `noise` percent less or more, in an order of its own.
    fn device(ns: u64, noise: u64, seed: u64, ios: u64) -> Sample {
        let (mut latencies, mut state) = (vec![0; Histogram::LATENCY_BUCKETS], seed * 2 + 1);
        for _ in 0..ios {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let percent = 100 - noise + (state >> 33) % (2 * noise + 1);
            latencies[bucket(ns * percent / 100, Histogram::LATENCY_BUCKETS)] += 1;
        }
        Sample { latencies, errors: 0 }
    }

    /// If this fails, somebody pulls a good drive out of a server.
    #[test]
    fn none_is_named_among_equals_with_noise() {
        // All of an octave: wherever the edge of a bucket lies.
        for sixteenth in 0..16 {
            let ns = 100_000 + 100_000 * sixteenth / 16;
            for (count, noise) in [(3, 20), (12, 30), (24, 50)] {
                let equals: Vec<Sample> = (0..count).map(|seed| device(ns + ns * (seed % 5) / 50, noise, seed, 500)).collect();
                assert!(qualify(&equals).iter().all(Option::is_none), "{ns} ns, {noise} %: {:?}", qualify(&equals));
            }
        }
        // Two models of drives, one twice as fast: neither is a defect of the other.
        let mixed: Vec<Sample> = (0..24).map(|seed| device(80_000 + 80_000 * (seed % 2), 20, seed, 500)).collect();
        assert!(qualify(&mixed).iter().all(Option::is_none));
    }

    /// If this fails, a stripe goes at the pace of its worst drive, and nobody knows which one that is.
    #[test]
    fn a_device_five_times_slower_is_named_and_no_other() {
        for sixteenth in 0..16 {
            let ns = 100_000 + 100_000 * sixteenth / 16;
            for count in [3, 8, 24] {
                let slow = |seed: u64| device(if seed == 1 { 5 * ns } else { ns }, 20, seed, 500);
                let found = qualify(&(0..count).map(slow).collect::<Vec<_>>());
                assert!(matches!(found[1], Some(Defect::Slow(times)) if (3.0..10.0).contains(&times)), "{ns} ns: {found:?}");
                assert_eq!(found.iter().flatten().count(), 1, "{ns} ns: {found:?}");
            }
        }
    }

    /// If this fails, a drive that now and then stops for a while is never named: its mean hides that.
    #[test]
    fn rare_stalls_are_named() {
        let mut devices: Vec<Sample> = (0..6).map(|seed| device(100_000, 20, seed, 1000)).collect();
        let stalled = bucket(2_000_000, Histogram::LATENCY_BUCKETS);
        devices[4].latencies[stalled] += 12;
        let found = qualify(&devices);
        assert!(matches!(found[4], Some(Defect::Tail(times)) if times >= 8.0), "{found:?}");
        assert_eq!(found.iter().flatten().count(), 1);
    }

    /// If this fails, a drive that fails a read of a thousand stays in a pool without redundancy.
    #[test]
    fn a_device_with_a_tenth_of_a_percent_of_errors_is_named() {
        let with_errors = |errors: [u64; 4]| -> Vec<Sample> {
            (0..4).map(|index| Sample { errors: errors[index], ..device(100_000, 20, index as u64, 4000) }).collect()
        };
        assert_eq!(qualify(&with_errors([0, 0, 4, 0])), [None, None, Some(Defect::Errs(1000.0)), None]);
        assert!(qualify(&with_errors([4, 4, 4, 4])).iter().all(Option::is_none), "what all have is not of one device");
        assert_eq!(qualify(&with_errors([0, 0, 4, 0])[2..3]), [Some(Defect::Errs(1000.0))], "an error needs no sibling");
        let few: Vec<Sample> = (0..4).map(|seed| device(if seed == 0 { 900_000 } else { 100_000 }, 20, seed, 20)).collect();
        assert!(qualify(&few).iter().all(Option::is_none), "a few I/Os say nothing");
    }
}
