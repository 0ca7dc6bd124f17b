//! `zpool initialize` and `zpool trim`, and what `zpool status` says of them.

use crate::device::names::find_leaf;
use crate::failure::{because, pool_failure};
use crate::pool::Pools;
use control_api::{ErrorKind, Failure, PoolSweep, Response, SweepChange, SweepVerb};
use pool::{PoolError, SweepAction, SweepKind};

/// Does `zpool initialize`, `zpool trim`.
pub(crate) fn sweep(pools: &Pools, request: &PoolSweep) -> Result<Response, Failure> {
    let open = pools.open_pool(&request.pool)?;
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

fn kind_of(verb: SweepVerb) -> SweepKind {
    match verb {
        SweepVerb::Initialize => SweepKind::Initialize,
        SweepVerb::Trim => SweepKind::Trim,
    }
}
