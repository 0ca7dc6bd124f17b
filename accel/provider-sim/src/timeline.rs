//! When the lanes of the modelled device are busy: each operation takes the engine that is free first.

use crate::rates::{Lane, Rates};
use dpusm::OpKind;

#[derive(Debug)]
struct Engines {
    lane: Lane,
    free_ns: Vec<u64>,
}

/// All lanes of a device.
#[derive(Debug)]
pub(crate) struct Timeline {
    lanes: Vec<Engines>,
}

/// The lane of an operation.
fn lane_of(kind: OpKind) -> usize {
    match kind {
        OpKind::CopyIn => 0,
        OpKind::CopyOut => 1,
        OpKind::Compress => 2,
        OpKind::Decompress => 3,
        OpKind::Checksum => 4,
        OpKind::RaidGenerate | OpKind::RaidReconstruct => 5,
        OpKind::ZeroFill | OpKind::ZeroTest | OpKind::Compare | OpKind::Alloc => 6,
        OpKind::Store | OpKind::Flush | OpKind::Load => 7,
    }
}

impl Timeline {
    pub(crate) fn new(rates: &Rates) -> Timeline {
        let lanes =
            [rates.link_in, rates.link_out, rates.compress, rates.decompress, rates.checksum, rates.raid, rates.memory, rates.store];
        let engines = |lane: Lane| Engines { lane, free_ns: vec![0; lane.engines.max(1)] };
        Timeline { lanes: lanes.into_iter().map(engines).collect() }
    }

    /// An operation that can begin at `ready_ns`: when it ends, and how long the device works on it.
    pub(crate) fn reserve(&mut self, kind: OpKind, bytes: u64, ready_ns: u64) -> (u64, u64) {
        let Engines { lane, free_ns } = &mut self.lanes[lane_of(kind)];
        let time_ns = lane.time_ns(bytes);
        let mut first = 0;
        for (index, free) in free_ns.iter().enumerate() {
            if *free < free_ns[first] {
                first = index;
            }
        }
        let end = ready_ns.max(free_ns[first]).saturating_add(time_ns);
        free_ns[first] = end;
        (end, time_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations that share an engine must wait for each other, others must not: else throughput is not the device's.
    #[test]
    fn engines_are_taken_in_turn() {
        let mut rates = Rates::noload_u2(2);
        rates.compress.latency_ns = 0;
        let mut timeline = Timeline::new(&rates);
        let ends: Vec<u64> = (0..4).map(|_| timeline.reserve(OpKind::Compress, 3_000_000, 100).0).collect();
        assert_eq!(ends, [1_000_100, 1_000_100, 2_000_100, 2_000_100]);
        assert_eq!(timeline.reserve(OpKind::CopyIn, 0, 100), (5_100, 5_000));
        assert_eq!(timeline.reserve(OpKind::Compress, 3_000_000, 9_000_000).0, 10_000_000);
    }
}
