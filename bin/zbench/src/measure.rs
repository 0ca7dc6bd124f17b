//! Clocks of this and other processes, and samples of repeated runs: medians and spread, never a single lucky run.

use std::time::Instant;

/// Bytes of a GiB.
pub const GIB: f64 = (1u64 << 30) as f64;
/// Factor on the peer's CPU: its library has assertions on, and without them needs about a tenth less (measured in its README).
pub const PEER_CPU_FACTOR: f64 = 0.9;

/// Text of any error, as the line that `zbench` prints.
pub fn text<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

/// CPU seconds of this process so far, its ended threads included.
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Cost of one measured stretch of work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Seconds of the wall clock.
    pub seconds: f64,
    /// Seconds of CPU.
    pub cpu: f64,
}

/// Runs `work` and measures this process.
pub fn measure<T>(work: impl FnOnce() -> Result<T, String>) -> Result<(T, Cost), String> {
    let (clock, cpu) = (Instant::now(), cpu_seconds());
    let result = work()?;
    Ok((result, Cost { seconds: clock.elapsed().as_secs_f64(), cpu: cpu_seconds() - cpu }))
}

/// Figures of repeated runs.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds the figure of one more run.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    /// Median: the middle one, or the mean of the two in the middle; NaN without a run.
    pub fn median(&self) -> f64 {
        let count = self.0.len();
        match count {
            0 => f64::NAN,
            _ => (self.0[(count - 1) / 2] + self.0[count / 2]) / 2.0,
        }
    }

    /// Spread in percent: (largest − smallest) ÷ median.
    pub fn spread_percent(&self) -> f64 {
        match (self.0.first(), self.0.last()) {
            (Some(least), Some(most)) if self.median() != 0.0 => (most - least) / self.median().abs() * 100.0,
            _ => 0.0,
        }
    }

    /// Number of runs.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Verdicts, counted so that a command's exit status says whether every bound was kept.
#[derive(Debug, Default)]
pub struct Verdicts {
    missed: usize,
}

impl Verdicts {
    /// Exit status of a command: 2 when a bound was missed, 1 with a message when it could not be measured.
    pub fn conclude(command: &str, measure: impl FnOnce(&mut Verdicts) -> Result<(), String>) -> std::process::ExitCode {
        let mut verdicts = Verdicts::default();
        match measure(&mut verdicts) {
            Ok(()) => verdicts.exit_code(),
            Err(error) => {
                eprintln!("zbench {command}: {error}");
                std::process::ExitCode::FAILURE
            }
        }
    }

    /// Returns "ok" or "MISSED", and remembers it.
    pub fn judge(&mut self, kept: bool) -> &'static str {
        self.missed += usize::from(!kept);
        if kept { "ok" } else { "MISSED" }
    }

    /// Exit status: 0 when nothing was missed, 2 otherwise.
    pub fn exit_code(&self) -> std::process::ExitCode {
        std::process::ExitCode::from(if self.missed == 0 { 0 } else { 2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without this a report could call the fastest or slowest of an even number of runs the median.
    #[test]
    fn medians_and_spread_do_not_depend_on_order() {
        let mut samples = Samples::default();
        for value in [4.0, 1.0, 3.0, 2.0] {
            samples.push(value);
        }
        assert_eq!(samples.median(), 2.5);
        assert_eq!(samples.spread_percent(), 120.0);
        samples.push(9.0);
        assert_eq!(samples.median(), 3.0);
    }

    /// A command that prints "MISSED" and exits with success would pass in a script.
    #[test]
    fn one_missed_bound_decides_the_exit_status() {
        let mut verdicts = Verdicts::default();
        assert_eq!((verdicts.judge(true), verdicts.judge(false), verdicts.judge(true)), ("ok", "MISSED", "ok"));
        assert_eq!(verdicts.missed, 1);
    }
}
