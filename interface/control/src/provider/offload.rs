//! What a pool's provider does, for `zpool status`, the statistics and the metrics: its state, what went to it, what did not and why, and which of its
//! operations are switched off.
//!
//! The numbers are the provider's, over all pools that use it and all of its generations.

use crate::pool::OpenPool;
use crate::provider::unserved;
use control_api::{AcceleratorReport, UnservedProperty};
use dpusm::{BreakerState, Device, FallbackReason, OpKind, OpStats, Tally};
use metrics::AcceleratorView;
use pool::Awaited;
use std::sync::Arc;

/// Operations that stages of the pipeline consist of; the others only serve them.
const STAGES: [OpKind; 6] =
    [OpKind::Compress, OpKind::Decompress, OpKind::Checksum, OpKind::RaidGenerate, OpKind::RaidReconstruct, OpKind::Store];

/// Provider as a pool has it.
struct Seen {
    name: String,
    lie: Option<OpKind>,
    stats: Option<Arc<OpStats>>,
    device: Option<Device>,
    awaited: Option<Awaited>,
}

impl Seen {
    /// Provider of the pool; None when it names none.
    fn of(open: &OpenPool) -> Option<Seen> {
        let name = open.pool().provider()?;
        let accelerator = open.pool().accelerator();
        let session = accelerator.as_ref().map(|accelerator| accelerator.session());
        Some(Seen {
            name,
            lie: session.and_then(|session| session.lie()),
            stats: session.map(|session| session.stats().clone()),
            device: session.and_then(|session| session.device().ok()),
            awaited: open.pool().awaited_provider(),
        })
    }

    /// State of the provider: `active`; `starting` while it is loaded and tested; `down` when it died, or is not there; `distrusted` when it was
    /// caught lying; `absent` when nobody knows it.
    fn state(&self) -> &'static str {
        match (&self.device, &self.awaited) {
            _ if self.lie.is_some() => "distrusted",
            (Some(_), _) => "active",
            (None, Some(awaited)) => awaited.state,
            (None, None) if self.stats.is_some() => "down",
            (None, None) => "absent",
        }
    }

    /// Reason of a state other than `active`; that of a lie is told otherwise.
    fn problem(&self) -> Option<String> {
        let awaited = self.awaited.as_ref().filter(|_| self.device.is_none() && self.lie.is_none());
        awaited?.why.clone()
    }

    /// Operations, each with the state of its breaker and the number of times that it opened.
    fn breakers(&self) -> Vec<(OpKind, &'static str, u64)> {
        let Some(device) = &self.device else { return Vec::new() };
        let state = |kind: &OpKind| {
            let (state, trips) = device.breaker(*kind);
            let state = match state {
                BreakerState::Closed => "closed",
                BreakerState::Open { .. } => "open",
                BreakerState::HalfOpen { .. } => "half_open",
            };
            (*kind, state, trips)
        };
        OpKind::ALL.iter().map(state).collect()
    }
}

/// Report of the provider for `zpool status`.
pub(crate) fn report(open: &OpenPool) -> Option<AcceleratorReport> {
    let seen = Seen::of(open)?;
    let get = |kind: OpKind, tally: Tally| seen.stats.as_ref().map_or(0, |stats| stats.get(kind, tally));
    let total = |tally: Tally| seen.stats.as_ref().map_or(0, |stats| stats.total(tally));
    let positive = |(name, count): (&str, u64)| (count > 0).then(|| (name.to_string(), count));
    Some(AcceleratorReport {
        state: seen.state().to_string(),
        problem: seen.problem(),
        unserved: unserved::unserved(open)
            .into_iter()
            .map(|(property, reason)| UnservedProperty { property: property.to_string(), reason })
            .collect(),
        lied_at: seen.lie.map(|kind| kind.name().to_string()),
        operations: STAGES.iter().filter_map(|kind| positive((kind.name(), get(*kind, Tally::Blocks)))).collect(),
        fallbacks: FallbackReason::ALL.iter().filter_map(|reason| positive((reason.name(), total(Tally::Fallback(*reason))))).collect(),
        restarts: total(Tally::Restarts),
        verified: total(Tally::Verified),
        verify_failures: total(Tally::VerifyFailures),
        breakers_open: seen
            .breakers()
            .into_iter()
            .filter(|(_, state, _)| *state != "closed")
            .map(|(kind, ..)| kind.name().to_string())
            .collect(),
        provider: seen.name,
    })
}

/// View of the provider for the tree of statistics and the metrics.
pub(crate) fn view(open: &OpenPool) -> Option<AcceleratorView> {
    let seen = Seen::of(open)?;
    let counted = |stats: &Arc<OpStats>| {
        let kstat = stats.kstat();
        let number = |(name, value): (&str, kstat::Value)| match value {
            kstat::Value::U64(count) => Some((name.to_string(), count)),
            _ => None,
        };
        kstat.values().into_iter().filter_map(number).collect()
    };
    Some(AcceleratorView {
        state: seen.state(),
        counters: seen.stats.as_ref().map(counted).unwrap_or_default(),
        breakers: seen.breakers().into_iter().map(|(kind, state, trips)| (kind.name(), state, trips)).collect(),
        provider: seen.name,
    })
}
