//! Counters per operation of a provider, over all its generations: OpenZFS's QAT statistics are the model of what Z.I.A. lacks.

use crate::{OpError, OpKind};
use kstat::{Kstat, Sheet, Value};
use std::sync::Arc;

/// Reason why an operation was done in software instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FallbackReason {
    /// The block is smaller than what is worth the way.
    TooSmall,
    /// A look at the block said that it does not compress.
    Incompressible,
    /// The provider has no such operation, or not for this block.
    NotSupported,
    /// The provider's queue or memory was full.
    Full,
    /// The circuit breaker is open.
    Tripped,
    /// The operation failed, or what it needed did.
    Failed,
    /// The operation took too long.
    Timeout,
    /// The provider is down.
    Down,
    /// The result was found to be wrong.
    Wrong,
}

impl FallbackReason {
    /// Every reason, in order.
    pub const ALL: [FallbackReason; 9] = [
        FallbackReason::TooSmall,
        FallbackReason::Incompressible,
        FallbackReason::NotSupported,
        FallbackReason::Full,
        FallbackReason::Tripped,
        FallbackReason::Failed,
        FallbackReason::Timeout,
        FallbackReason::Down,
        FallbackReason::Wrong,
    ];

    /// The name in counters.
    pub fn name(self) -> &'static str {
        match self {
            FallbackReason::TooSmall => "too_small",
            FallbackReason::Incompressible => "incompressible",
            FallbackReason::NotSupported => "not_supported",
            FallbackReason::Full => "full",
            FallbackReason::Tripped => "tripped",
            FallbackReason::Failed => "failed",
            FallbackReason::Timeout => "timeout",
            FallbackReason::Down => "down",
            FallbackReason::Wrong => "wrong",
        }
    }
}

impl From<OpError> for FallbackReason {
    fn from(error: OpError) -> FallbackReason {
        match error {
            OpError::NotImplemented | OpError::NotSupported => FallbackReason::NotSupported,
            OpError::Full | OpError::NoMemory => FallbackReason::Full,
            OpError::Tripped => FallbackReason::Tripped,
            OpError::Timeout => FallbackReason::Timeout,
            OpError::Down => FallbackReason::Down,
            _ => FallbackReason::Failed,
        }
    }
}

/// A number that is kept per operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tally {
    /// Operations that were done.
    Blocks,
    /// Bytes that they read, or took from the host.
    BytesIn,
    /// Bytes that they wrote, or gave to the host.
    BytesOut,
    /// Nanoseconds from submission to the provider's start, of the graphs that the operations were in.
    QueueNs,
    /// Nanoseconds that the device worked on them.
    DeviceNs,
    /// Results that were checked in software.
    Verified,
    /// Results, of those, that were wrong.
    VerifyFailures,
    /// Blocks that began again from the original data.
    Restarts,
    /// Results that came after their graph was given up.
    Late,
    /// Capabilities that are not used, for blocks of some size or at all, because the processors of this machine are quicker.
    TooSlow,
    /// Bytes of blocks, one of each size, of which was measured how long they take.
    MeasuredBytes,
    /// Nanoseconds for as many bytes on the provider, when many are in flight.
    MeasuredNs,
    /// Nanoseconds for as many bytes on all processors of this machine.
    SoftwareNs,
    /// Operations that ended with an error.
    Error(OpError),
    /// Operations that were done in software instead.
    Fallback(FallbackReason),
}

const PLAIN: [(Tally, &str); 13] = [
    (Tally::Blocks, "blocks"),
    (Tally::BytesIn, "bytes_in"),
    (Tally::BytesOut, "bytes_out"),
    (Tally::QueueNs, "queue_ns"),
    (Tally::DeviceNs, "device_ns"),
    (Tally::Verified, "verified"),
    (Tally::VerifyFailures, "verify_failures"),
    (Tally::Restarts, "restarts"),
    (Tally::Late, "late"),
    (Tally::TooSlow, "too_slow"),
    (Tally::MeasuredBytes, "measured_bytes"),
    (Tally::MeasuredNs, "measured_ns"),
    (Tally::SoftwareNs, "software_ns"),
];
const CELLS: usize = PLAIN.len() + OpError::COUNT + FallbackReason::ALL.len();

fn cell(tally: Tally) -> usize {
    match tally {
        Tally::Error(error) => PLAIN.len() + error.index(),
        Tally::Fallback(reason) => PLAIN.len() + OpError::COUNT + reason as usize,
        plain => PLAIN.iter().position(|(known, _)| *known == plain).unwrap_or(0),
    }
}

/// Counters of all operations of a provider.
#[derive(Debug)]
pub struct OpStats(Sheet);

impl Default for OpStats {
    fn default() -> OpStats {
        OpStats(Sheet::new(OpKind::ALL.len() * CELLS))
    }
}

impl OpStats {
    /// Adds to one number of one operation.
    pub fn add(&self, kind: OpKind, tally: Tally, amount: u64) {
        self.0.row().add(kind as usize * CELLS + cell(tally), amount);
    }

    /// One number of one operation.
    pub fn get(&self, kind: OpKind, tally: Tally) -> u64 {
        self.0.get(kind as usize * CELLS + cell(tally))
    }

    /// One number over all operations.
    pub fn total(&self, tally: Tally) -> u64 {
        OpKind::ALL.iter().map(|kind| self.get(*kind, tally)).sum()
    }

    /// The counters as a statistic: `compress_blocks`, `compress_error_timeout`, `compress_fallback_full` …
    pub fn kstat(self: &Arc<OpStats>) -> Kstat {
        let mut kstat = Kstat::named();
        let mut add = |kind: OpKind, name: String, tally: Tally| {
            let stats = self.clone();
            kstat.computed(&name, move || Value::U64(stats.get(kind, tally)));
        };
        for kind in OpKind::ALL {
            for (tally, name) in PLAIN {
                add(kind, format!("{}_{name}", kind.name()), tally);
            }
            for (error, name) in OpError::ALL.iter().zip(OpError::NAMES) {
                add(kind, format!("{}_error_{name}", kind.name()), Tally::Error(*error));
            }
            for reason in FallbackReason::ALL {
                add(kind, format!("{}_fallback_{}", kind.name(), reason.name()), Tally::Fallback(reason));
            }
        }
        kstat
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two numbers in one cell would make every statement about a provider wrong.
    #[test]
    fn every_number_has_a_cell_of_its_own() {
        let stats = Arc::new(OpStats::default());
        let mut expected = 0;
        let tallies = || {
            let errors = OpError::ALL.into_iter().map(Tally::Error);
            PLAIN.into_iter().map(|(tally, _)| tally).chain(errors).chain(FallbackReason::ALL.into_iter().map(Tally::Fallback))
        };
        for kind in OpKind::ALL {
            for tally in tallies() {
                expected += 1;
                stats.add(kind, tally, expected);
            }
        }
        let mut wanted = 0;
        for kind in OpKind::ALL {
            for tally in tallies() {
                wanted += 1;
                assert_eq!(stats.get(kind, tally), wanted, "{kind:?} {tally:?}");
            }
        }
        let kstat = stats.kstat();
        let names: std::collections::BTreeSet<&str> = kstat.values().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len() as u64, expected);
        assert!(names.contains("raidz_gen_fallback_tripped") && names.contains("compress_error_timeout"));
    }

    /// An index that is not that of its name would blame the wrong cause.
    #[test]
    fn errors_have_the_index_of_their_name() {
        for (index, error) in OpError::ALL.iter().enumerate() {
            assert_eq!(error.index(), index);
        }
        for (index, kind) in OpKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, index);
        }
    }
}
