//! `zpool split`: one device of each mirror of a pool becomes a pool of its own.

use crate::failure::{because, pool_failure};
use crate::pool::intake::Intake;
use crate::pool::objections::{Occasion, objected, objection};
use crate::pool::properties::{altroot_of, cachefile_of};
use crate::requests::done;
use control_api::{ErrorKind, Failure, PoolSplit, Remark, Response, new_pool_name_objection};
use ondisk::Guid;
use pool::{Pool, PoolError};

/// Properties that a pool does not keep, or that are for imports only.
const NOT_KEPT: [&str; 3] = ["readonly", "cachefile", "altroot"];

/// Does `zpool split`. The new pool stays open where it has an alternate root, and is exported else.
pub(crate) fn split(intake: &Intake, request: &PoolSplit) -> Result<Response, Failure> {
    let what = format!("Unable to split {}", request.pool);
    let open = intake.pools.open_pool(&request.pool)?;
    if let Some(why) = new_pool_name_objection(&request.new_pool) {
        return Err(because(ErrorKind::Invalid, what, why));
    }
    if let Some(why) = request.properties.iter().find_map(|(name, value)| unfit(name, value)) {
        return Err(objected(&what, &why));
    }
    let altroot = altroot_of(request.altroot.as_ref(), &request.properties, &what)?;
    let cachefile = request.properties.get("cachefile").map(|value| cachefile_of(value, &what)).transpose()?;
    let Some(_claim) = intake.pools.claim(&request.new_pool, None) else {
        return Err(because(ErrorKind::Exists, what, format!("pool '{}' already exists", request.new_pool)));
    };
    let failed = |error: PoolError| pool_failure(what.clone(), &error);
    let devices = request.devices.iter().copied().map(Guid).collect();
    let half = open.pool().split(devices, &request.new_pool, &intake.settings.runtime()).map_err(failed)?;
    intake.file.remember();
    intake.events.tell("sysevent.fs.zfs.pool_create", &half.name(), half.guid());
    let unset = set_kept(&half, request);
    if altroot.is_none() {
        half.export().map_err(failed)?;
        return Ok(remarked(unset));
    }
    intake.adopt(half, (altroot, cachefile), false);
    let mounted = intake.pools.get(&request.new_pool);
    let failures = mounted.map(|open| intake.mounter.mount_all_with(&[open], &request.mount_options)).unwrap_or_default();
    let mut remarks: Vec<Remark> = unset.into_iter().chain(failures.iter().map(ToString::to_string)).map(Remark::Warning).collect();
    if !failures.is_empty() {
        remarks.push(Remark::Warning("Split was successful, but the datasets could not all be mounted".to_string()));
    }
    Ok(Response::Done { remarks })
}

/// Reason why a pool that is divided off cannot have a property so.
fn unfit(name: &str, value: &str) -> Option<String> {
    if name == "readonly" {
        return Some(format!("property '{name}' can only be set at import time"));
    }
    objection(name, value, Occasion::Import)
}

fn remarked(warnings: Vec<String>) -> Response {
    match warnings.is_empty() {
        true => done(),
        false => Response::Done { remarks: warnings.into_iter().map(Remark::Warning).collect() },
    }
}

/// Sets the properties that the new pool is to keep; says of which that failed: the pool is there.
fn set_kept(half: &Pool, request: &PoolSplit) -> Vec<String> {
    let kept = request.properties.iter().filter(|(name, _)| !NOT_KEPT.contains(&name.as_str()));
    let set = |(name, value): (&String, &String)| {
        let outcome = match name.strip_prefix("feature@") {
            Some(feature) => half.enable_feature(feature),
            None => half.set_prop(name, value),
        };
        let error = outcome.err()?;
        Some(format!("warning: property '{name}' was not set: {error}"))
    };
    kept.filter_map(set).collect()
}
