//! Operations that are worth it: what is slower on a provider than on the processors of this machine is not used.
//!
//! Each operation that a pool could as well do in software is timed when the provider is registered, with blocks of three sizes: many in flight on the
//! provider, on all processors at once for the host ([`crate::contest`]). It is offered for the sizes at which it wins by a margin, if there are such; all
//! numbers are kept for people to see. The time for all of it is bounded: what was not measured by its end is not offered either.

use crate::contest::{Contest, Limits};
use crate::device::Device;
use crate::generation::Disabled;
use crate::speeds::{CLASSES, Measured, Speed, Speeds};
use crate::stats::{OpStats, Tally};
use crate::{Capability, Fault, Feature, OpKind, Sizes};
use ondisk::{ByteOrder, Checksum};
use std::sync::Arc;

/// Way in which the operations of a provider are compared with this machine's processors.
#[derive(Clone, Copy, Debug)]
pub struct WorthPolicy {
    /// Speed that an operation has to reach, in percent of the speed of all processors together.
    pub percent_min: u64,
    /// Most time for all operations of a provider together, in nanoseconds.
    pub budget_ns: u64,
    /// Time of one measurement after which a larger one follows only where more blocks are faster, in nanoseconds.
    pub slice_ns: u64,
    /// Speed of this machine, in bytes each second, by operation and bytes of a block; None: it is measured.
    pub host: Option<fn(&Feature, usize) -> u64>,
}

impl Default for WorthPolicy {
    fn default() -> WorthPolicy {
        WorthPolicy { percent_min: 110, budget_ns: 10_000_000_000, slice_ns: 10_000_000, host: None }
    }
}

/// Feature by which users of a provider find out whether copies are right (docs/adr/0008).
const PROOF: Feature = Feature::Checksum { kind: Checksum::FLETCHER_4, order: ByteOrder::Little };
/// Share of a slice for which this machine's processors are measured: they are taken from whoever works.
const HOST_PART: u64 = 2;

/// Outcome of the comparison.
#[derive(Default)]
pub(crate) struct Judged {
    pub(crate) kept: Vec<Capability>,
    pub(crate) disabled: Vec<Disabled>,
    /// The checksum that proves copies, where it is not offered for all sizes: it has to see what is in the provider's memory, however slowly.
    pub(crate) proof: Option<Capability>,
    pub(crate) measured: Vec<Measured>,
}

/// Kind of the operations of which each is measured; None for those that only serve them, and for writes, which wait for disks.
fn kind_of(feature: &Feature) -> Option<OpKind> {
    match feature {
        Feature::Compress { .. } => Some(OpKind::Compress),
        Feature::Decompress { .. } => Some(OpKind::Decompress),
        Feature::Checksum { .. } => Some(OpKind::Checksum),
        Feature::RaidGenerate { .. } => Some(OpKind::RaidGenerate),
        Feature::RaidReconstruct { .. } => Some(OpKind::RaidReconstruct),
        _ => None,
    }
}

/// Measures what a provider offers, and keeps what is worth it. Waits: for operations only.
pub(crate) fn judge(device: &Device, offered: Vec<Capability>, policy: &WorthPolicy, stats: &OpStats) -> Judged {
    let until_ns = device.0.exec.now_ns().saturating_add(policy.budget_ns);
    let mut judged = Judged::default();
    for capability in offered {
        let Some(kind) = kind_of(&capability.feature) else {
            judged.kept.push(capability);
            continue;
        };
        let classes = measure(device, &capability, policy, until_ns, |tally, amount| stats.add(kind, tally, amount));
        let speeds = Speeds(std::array::from_fn(|class| classes[class].and_then(|class| class.speed)));
        let sizes = won(&classes, policy.percent_min).map(|won| narrowed(capability.sizes, &classes, won));
        if sizes != Some(capability.sizes) {
            let is_measured = speeds != Speeds::default();
            judged.disabled.push(Disabled { capability, fault: if is_measured { Fault::TooSlow(speeds) } else { Fault::Unmeasured } });
            stats.add(kind, Tally::TooSlow, 1);
            judged.proof = judged.proof.or((capability.feature == PROOF).then_some(capability));
        }
        if let Some(sizes) = sizes {
            judged.kept.push(Capability { sizes, ..capability });
            judged.measured.push(Measured { feature: capability.feature, speeds });
        }
    }
    judged
}

/// Blocks of one size, which the provider takes.
#[derive(Clone, Copy)]
struct Class {
    /// Speeds; None when there was no time.
    speed: Option<Speed>,
    /// Bytes of the operand by which the provider's sizes go.
    operand_bytes: usize,
}

type Classes = [Option<Class>; CLASSES.len()];

/// Measures an operation with blocks of every size that it takes, the largest first: they are where an accelerator is at its best.
fn measure(device: &Device, capability: &Capability, policy: &WorthPolicy, until_ns: u64, count: impl Fn(Tally, u64)) -> Classes {
    let exec = &device.0.exec;
    let mut classes = Classes::default();
    for (class, (block_bytes, _)) in CLASSES.iter().enumerate().rev() {
        let Some(contest) = Contest::new(&capability.feature, *block_bytes).map(Arc::new) else { continue };
        let operand_bytes = contest.operand_bytes();
        if !capability.sizes.admit(0, operand_bytes) {
            continue;
        }
        classes[class] = Some(Class { speed: None, operand_bytes });
        if exec.now_ns() >= until_ns {
            continue;
        }
        let host = match policy.host {
            Some(host) => host(&capability.feature, *block_bytes),
            None => contest.software_speed(exec, policy.slice_ns / HOST_PART),
        };
        let limits = Limits { slice_ns: policy.slice_ns, until_ns };
        let provider = contest.provider_speed(device, wanted(host, policy.percent_min), &limits);
        let took_ns = |speed: u64| (*block_bytes as u64).saturating_mul(1_000_000_000) / speed.max(1);
        count(Tally::MeasuredBytes, *block_bytes as u64);
        count(Tally::MeasuredNs, took_ns(provider));
        count(Tally::SoftwareNs, took_ns(host));
        classes[class] = Some(Class { speed: Some(Speed { provider, host }), operand_bytes });
    }
    classes
}

/// Speed that a provider has to reach.
fn wanted(host: u64, percent_min: u64) -> u64 {
    u64::try_from(u128::from(host) * u128::from(percent_min) / 100).unwrap_or(u64::MAX)
}

/// Range of sizes, one beside the other, at which the provider wins: of several the largest sizes. None when there is none.
fn won(classes: &Classes, percent_min: u64) -> Option<(usize, usize)> {
    let is_fast = |speed: Speed| speed.provider >= wanted(speed.host, percent_min);
    let wins = |class: &Option<Class>| class.and_then(|class| class.speed).is_some_and(is_fast);
    let last = classes.iter().rposition(wins)?;
    let before = classes[..last].iter().rev().take_while(|&class| wins(class)).count();
    Some((last - before, last))
}

/// Sizes of a capability without those at which the provider does not win. A block between two of them goes with the one that it does not win; one beyond
/// them with the nearest.
fn narrowed(sizes: Sizes, classes: &Classes, (first, last): (usize, usize)) -> Sizes {
    let bytes = |class: usize| classes[class].map(|class| class.operand_bytes);
    let is_lost = |others: &[Option<Class>]| others.iter().any(Option::is_some);
    let min_bytes = bytes(first).filter(|_| is_lost(&classes[..first])).unwrap_or(sizes.min_bytes);
    let max_bytes = bytes(last).filter(|_| is_lost(&classes[last + 1..])).unwrap_or(sizes.max_bytes);
    Sizes { min_bytes, max_bytes, ..sizes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(speeds: [Option<(u64, u64)>; 3]) -> Classes {
        std::array::from_fn(|class| {
            let speed = |(provider, host): (u64, u64)| (host > 0).then_some(Speed { provider, host });
            speeds[class].map(|pair| Class { speed: speed(pair), operand_bytes: CLASSES[class].0 })
        })
    }

    /// A size at which the provider loses and that is given to it all the same makes every such block slower than without an accelerator.
    #[test]
    fn only_the_sizes_that_it_wins_are_left() {
        let (slow, fast, even, late) = (Some((99, 100)), Some((111, 100)), Some((109, 100)), Some((0, 0)));
        let all = Sizes::ANY;
        let cases = [
            ([fast, fast, fast], Some((all.min_bytes, all.max_bytes))),
            ([slow, fast, fast], Some((128 << 10, all.max_bytes))),
            ([slow, even, fast], Some((1 << 20, all.max_bytes))),
            ([fast, fast, slow], Some((all.min_bytes, 128 << 10))),
            ([slow, fast, slow], Some((128 << 10, 128 << 10))),
            // Two ranges: the one of larger blocks.
            ([fast, slow, fast], Some((1 << 20, all.max_bytes))),
            ([even, slow, slow], None),
            // It does not take blocks of 16 KiB, or larger ones than that.
            ([None, fast, fast], Some((all.min_bytes, all.max_bytes))),
            ([fast, None, None], Some((all.min_bytes, all.max_bytes))),
            // There was no time for the smaller ones.
            ([late, fast, fast], Some((128 << 10, all.max_bytes))),
            ([late, late, late], None),
            ([None, None, None], None),
        ];
        for (speeds, wanted) in cases {
            let classes = classes(speeds);
            let sizes = won(&classes, 110).map(|won| narrowed(all, &classes, won));
            assert_eq!(sizes.map(|sizes| (sizes.min_bytes, sizes.max_bytes)), wanted, "{speeds:?}");
        }
    }
}
