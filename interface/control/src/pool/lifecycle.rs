//! `zpool add` and `remove`: vdevs, spares and caches that join and leave a pool.

use crate::device::devices::Devices;
use crate::device::inuse::{
    check_contents, check_sizes, check_unreserved, distinct_paths, opened, partitioned, wipe_contents, with_contents,
};
use crate::device::names::{find_aux, find_leaf, find_top};
use crate::failure::{because, pool_failure};
use crate::pool::cache_file::PoolsFile;
use crate::pool::{OpenPool, Pools};
use crate::requests::done;
use control_api::{ErrorKind, Failure, PoolAdd, PoolNames, Response, VdevRemove};
use pool::{AddSpec, Spare};
use std::sync::Arc;

/// Does `zpool add`.
pub(crate) fn add(devices: &Devices, file: &PoolsFile, request: &PoolAdd) -> Result<Response, Failure> {
    let open = devices.pools.open_pool(&request.pool)?;
    let what = format!("cannot add to '{}'", request.pool);
    let planned = planned(devices, &open, request, &what);
    let spec = planned.map_err(|failure| with_contents(devices, &request.new, request.allow_in_use, failure))?;
    let new = spec.leaves();
    check_contents(&devices.pools, &devices.exec, &new, None, request.allow_in_use)?;
    if !request.dry_run {
        let (tables, spares) = (partitioned(&devices.exec, &new), spec.spares.clone());
        open.pool().add(spec).map_err(|error| pool_failure(what, &error))?;
        wipe_contents(&devices.exec, &new, &tables);
        devices.reserved.reserve(&spares);
        file.remember();
    }
    Ok(done())
}

/// Looks at everything that force does not help against, and opens the devices.
fn planned(devices: &Devices, open: &OpenPool, request: &PoolAdd, what: &str) -> Result<AddSpec, Failure> {
    check_unreserved(&devices.pools, &request.new)?;
    let spec = add_spec(devices, request, what)?;
    let new = spec.leaves();
    new.iter().map(|leaf| &leaf.path).chain(&request.new.spares).try_for_each(|path| devices.served.check_circle(open, path, what))?;
    check_sizes(&new, &request.new.caches, what)?;
    Ok(spec)
}

fn add_spec(devices: &Devices, request: &PoolAdd, what: &str) -> Result<AddSpec, Failure> {
    distinct_paths(&request.new, what)?;
    Ok(AddSpec {
        ashift: request.ashift.or(devices.pools.open_pool(&request.pool)?.pool().ashift_prop().unwrap_or(None)),
        force: request.allow_in_use,
        allow_ashift_mismatch: request.allow_ashift_mismatch,
        ..opened(devices, &request.new, what)?
    })
}

/// Does `zpool remove`.
pub(crate) fn remove(devices: &Devices, file: &PoolsFile, request: &VdevRemove) -> Result<Response, Failure> {
    let open = devices.pools.open_pool(&request.pool)?;
    let what = format!("cannot remove {}", request.device);
    let refuse = |kind, why: &str| Err(because(kind, &*what, why));
    let word = request.device.as_str();
    let tree = open.pool().tree();
    let removed = match find_aux(&open, word) {
        Some(aux) if aux.is_distributed() => return refuse(ErrorKind::Unsupported, "dRAID spares cannot be removed"),
        Some(_) if request.dry_run => Ok(()),
        Some(aux) => open.pool().remove_aux(aux.guid, free_device(devices, &aux)),
        None => match find_top(&tree, word) {
            Some(top) if request.dry_run && !top.is_log => {
                let bytes = open.pool().removal_memory(top.guid).map_err(|error| pool_failure(what, &error))?;
                return Ok(Response::Memory { bytes });
            }
            Some(_) if request.dry_run => Ok(()),
            Some(top) => open.pool().remove_top(top.guid),
            None if find_leaf(&tree, word).is_some() => return refuse(ErrorKind::Unsupported, UNREMOVABLE),
            None => return refuse(ErrorKind::NotFound, "no such device in pool"),
        },
    };
    removed.map_err(|error| pool_failure(what, &error))?;
    if request.dry_run {
        // Nothing of it lies elsewhere then.
        return Ok(Response::Memory { bytes: 0 });
    }
    file.remember();
    Ok(done())
}

/// Device of a spare that nobody uses, to write on it that it is free. One that another pool lists stays a spare.
fn free_device(devices: &Devices, aux: &Spare) -> Option<Arc<dyn device::BlockDevice>> {
    let lists = devices.pools.all().iter().filter(|open| open.pool().spares().iter().any(|spare| spare.guid == aux.guid)).count();
    let device = if lists > 1 { None } else { devices.open_device(&aux.path, false, "").ok() };
    // Something else may be at its place by now.
    device.filter(|device| pool::label_guid(&devices.exec, device) == Some(aux.guid))
}

/// Does `zpool remove -s`.
pub(crate) fn remove_stop(pools: &Pools, request: &PoolNames) -> Result<Response, Failure> {
    for open in pools.selected(&request.pools)? {
        open.pool().remove_cancel().map_err(|error| pool_failure("cannot cancel removal".to_string(), &error))?;
    }
    Ok(done())
}

/// Reason why part of a vdev stays (OpenZFS: `spa_vdev_remove`).
const UNREMOVABLE: &str = "operation not supported on this type of pool";
