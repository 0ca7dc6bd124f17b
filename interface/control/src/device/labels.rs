//! `zpool labelclear`: devices that are to be of no pool any more.

use crate::device::devices::Devices;
use crate::failure::{because, pool_failure};
use crate::requests::done;
use control_api::{ErrorKind, Failure, LabelClear, Response};
use pool::PoolState;

/// Does `zpool labelclear`.
pub(crate) fn clear(devices: &Devices, request: &LabelClear) -> Result<Response, Failure> {
    let what = format!("failed to clear label for {}", request.device);
    // What is out of use may be made anew while its pool is open (OpenZFS: `vdev_is_active`).
    let in_use = |leaf: &vdev::Leaf| !request.force || leaf.state.is_usable();
    let own = devices.pools.find(|open| open.uses(&request.device, &in_use)).map(|open| open.name());
    let reserved = || devices.pools.reserving_pool(&request.device).map(|(open, _)| open);
    let beside = || devices.pools.caching_pool(&request.device).or_else(reserved).map(|open| open.name());
    if let Some(pool) = own.or_else(beside) {
        return Err(because(ErrorKind::Busy, what, format!("{} is a member of pool '{pool}', which is imported", request.device))
            .advise("export or destroy the pool first"));
    }
    let device = devices.open_device(&request.device, false, &what)?;
    if let (Some(member), false) = (pool::membership(&devices.exec, &device), request.force) {
        let state = if member.state == PoolState::Exported { "exported" } else { "potentially active" };
        return Err(because(ErrorKind::Busy, what, format!("{} is a member of {state} pool '{}'", request.device, member.pool))
            .advise("use '-f' to override"));
    }
    let cleared = pool::clear_labels(&devices.exec, &device).map_err(|error| pool_failure(what.clone(), &error))?;
    if cleared == 0 {
        return Err(because(ErrorKind::NotFound, what, "it has no valid label"));
    }
    Ok(done())
}
