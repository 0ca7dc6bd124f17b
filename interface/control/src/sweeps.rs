//! `zpool initialize` and `zpool trim`, and what `zpool status` says of them.

use crate::Control;
use crate::failure::because;
use crate::pools::pool_failure;
use crate::vdevs::find_leaf;
use control_api::{ErrorKind, Failure, PoolSweep, Response, SweepChange, SweepReport, SweepVerb, VdevReport};
use pool::{PoolError, SweepAction, SweepKind, SweepState, SweepStatus};

impl Control {
    pub(crate) fn pool_sweep(&self, request: &PoolSweep) -> Result<Response, Failure> {
        let open = self.open_pool(&request.pool)?;
        let kind = kind_of(request.verb);
        let word = if kind == SweepKind::Trim { "trim" } else { "initialize" };
        let action = match request.change {
            SweepChange::Start { rate_bytes_per_second, secure } => SweepAction::Start { rate: rate_bytes_per_second, secure },
            SweepChange::Cancel => SweepAction::Cancel,
            SweepChange::Suspend => SweepAction::Suspend,
            SweepChange::Forget => SweepAction::Forget,
        };
        let tree = open.pool().tree();
        let whole_pool = request.devices.is_empty();
        let (mut failures, mut leaves) = (Vec::new(), Vec::new());
        if whole_pool {
            leaves.extend(tree.leaves.iter().map(|leaf| (leaf.guid, leaf.path.clone())));
        }
        for device in &request.devices {
            match find_leaf(&tree, device) {
                Some(leaf) => leaves.push((leaf.guid, leaf.path.clone())),
                None => failures.push(because(ErrorKind::NotFound, format!("cannot {word} '{device}'"), "no such device in pool")),
            }
        }
        if !failures.is_empty() {
            return Ok(Response::Swept { failures });
        }
        let guids: Vec<_> = leaves.iter().map(|(guid, _)| *guid).collect();
        let done = open.pool().sweep(kind, &guids, action).map_err(|error| pool_failure(format!("cannot {word}"), &error))?;
        // Of a whole pool, what can't be trimmed is passed over, unless nothing can.
        let secure = matches!(action, SweepAction::Start { secure: true, .. });
        let passes = |error: &PoolError| whole_pool && !secure && *error == PoolError::TrimUnsupported;
        let passed = done.iter().filter(|result| result.as_ref().is_err_and(passes)).count();
        for ((_, path), result) in leaves.iter().zip(&done) {
            if let Err(error) = result.as_ref().map_err(|error| error.clone())
                && !passes(&error)
            {
                failures.push(pool_failure(format!("cannot {word} '{path}'"), &error));
            }
        }
        if passed > 0 && passed == leaves.len() {
            failures.push(because(ErrorKind::Unsupported, "cannot trim", "no devices in pool support trim operations"));
        }
        Ok(Response::Swept { failures })
    }
}

fn kind_of(verb: SweepVerb) -> SweepKind {
    match verb {
        SweepVerb::Initialize => SweepKind::Initialize,
        SweepVerb::Trim => SweepKind::Trim,
    }
}

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
