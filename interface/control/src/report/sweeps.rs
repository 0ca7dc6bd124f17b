//! Initializing and trimming in a picture of the vdevs.

use control_api::{SweepReport, VdevReport};
use pool::{SweepKind, SweepState, SweepStatus};

/// Puts the sweeps of leaves where they belong in a picture of the vdevs.
pub(crate) fn overlay(vdev: &mut VdevReport, sweeps: &[SweepStatus], can_trim: &dyn Fn(u64) -> bool) {
    vdev.children.iter_mut().for_each(|child| overlay(child, sweeps, can_trim));
    if !vdev.children.is_empty() {
        return;
    }
    vdev.trim_unsupported = !can_trim(vdev.guid);
    for sweep in sweeps.iter().filter(|sweep| sweep.leaf.0 == vdev.guid) {
        let report = SweepReport {
            state: match sweep.state {
                SweepState::Active => "active",
                SweepState::Canceled => "canceled",
                SweepState::Suspended => "suspended",
                SweepState::Complete => "complete",
            }
            .to_string(),
            action_time: sweep.action_time as i64,
            done_bytes: sweep.bytes_done,
            estimated_bytes: sweep.bytes_estimated,
            errors: sweep.errors,
        };
        match sweep.kind {
            SweepKind::Initialize => vdev.initialize = Some(report),
            SweepKind::Trim => vdev.trim = Some(report),
        }
    }
}
