//! What a pool's provider does, for `zpool status`, the statistics and the metrics: its state, what went to it, what did not and why, and which of its
//! operations are switched off.
//!
//! The numbers are the provider's, over all pools that use it and all of its generations.

use crate::pool::OpenPool;
use control_api::AcceleratorReport;
use dpusm::{BreakerState, Device, FallbackReason, OpKind, OpStats, Tally};
use metrics::AcceleratorView;
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
        })
    }

    /// State of the provider: `active`; `down` when it died; `distrusted` when it was caught lying; `absent` when nobody knows it.
    fn state(&self) -> &'static str {
        match (&self.stats, &self.device) {
            (None, _) => "absent",
            _ if self.lie.is_some() => "distrusted",
            (_, None) => "down",
            _ => "active",
        }
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
