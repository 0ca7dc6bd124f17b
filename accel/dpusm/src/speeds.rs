//! How fast an operation was found to be: on a provider, and on the processors of this machine.

use crate::capability::Feature;
use std::fmt;

/// Sizes of the blocks that are measured, in bytes, and their names.
pub(crate) const CLASSES: [(usize, &str); 3] = [(16 << 10, "16K"), (128 << 10, "128K"), (1 << 20, "1M")];

/// Speeds at blocks of one size, in bytes each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Speed of the provider.
    pub provider: u64,
    /// Speed of this machine's processors together.
    pub host: u64,
}

/// Speeds of an operation at blocks of 16 KiB, 128 KiB and 1 MiB, as far as they were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speeds(pub [Option<Speed>; 3]);

impl fmt::Display for Speeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
        let one = |(speed, (_, name)): (&Option<Speed>, &(usize, &str))| {
            speed.map(|speed| format!("{name} {} (processors {})", megabytes(speed.provider), megabytes(speed.host)))
        };
        let all: Vec<String> = self.0.iter().zip(&CLASSES).filter_map(one).collect();
        write!(f, "{} MB/s", all.join(", "))
    }
}

/// An operation that was measured and is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Operation that was measured.
    pub feature: Feature,
    /// Speeds that were found.
    pub speeds: Speeds,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of which nobody knows whose they are, or of which size, convince nobody who bought an accelerator.
    #[test]
    fn a_refusal_has_its_numbers() {
        let speeds =
            Speeds([Some(Speed { provider: 1_500_000, host: 2_000_000_000 }), None, Some(Speed { provider: 30_000_000, host: 1 })]);
        assert_eq!(speeds.to_string(), "16K 1.5 (processors 2000.0), 1M 30.0 (processors 0.0) MB/s");
    }
}
