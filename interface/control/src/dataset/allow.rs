//! `zfs allow` and `zfs unallow`: permissions that are delegated to users. What they let users do stands in `rights`.

use crate::dataset::names::{check_opened, descendants};
use crate::failure::{self, because};
use crate::pool::{OpenPool, Pools};
use crate::requests::done;
use control_api::{AllowChange, AllowEntry, AllowQuery, AllowReport, ErrorKind, Failure, Named, Response};
use dsl::{Delegation, DslError};

/// Oldest version of pools that has delegated permissions (OpenZFS: `SPA_VERSION_DELEGATED_PERMS`).
const VERSION: u64 = 8;

/// Answers `zfs allow` of a dataset.
pub(crate) fn allowed(pools: &Pools, query: &AllowQuery) -> Result<Response, Failure> {
    let pool = pools.pool_of(&query.name, "open")?;
    let found = pool.dsl().delegations(&query.name).map_err(|error| failure::dataset("open", &query.name, &error))?;
    let entry = |delegation: Delegation| AllowEntry { who: delegation.who, permissions: delegation.permissions };
    let report = |(name, list): (String, Vec<Delegation>)| AllowReport { name, entries: list.into_iter().map(entry).collect() };
    Ok(Response::Allowed(found.into_iter().map(report).collect()))
}

/// Delegates permissions, or takes them back (OpenZFS: `zfs_set_fsacl`).
pub(crate) fn change(pools: &Pools, request: &AllowChange) -> Result<Response, Failure> {
    check_opened(&request.name, Named::Dataset)?;
    let pool = pools.pool_of(&request.name, "open")?;
    drop(pool.dsl().hold(&request.name).map_err(|error| failure::dataset("open", &request.name, &error))?);
    let refused = |kind, why: &str| because(kind, format!("cannot set permissions on '{}'", request.name), why);
    let entry = |entry: &AllowEntry| Delegation { who: entry.who.clone(), permissions: entry.permissions.clone() };
    let entries: Vec<Delegation> = request.entries.iter().map(entry).collect();
    let is_possible = |one: &Delegation| dsl::is_delegation(one) && (request.remove || !one.permissions.is_empty());
    if entries.is_empty() || !entries.iter().all(is_possible) {
        return Err(refused(ErrorKind::Invalid, "invalid permission"));
    }
    if pool.pool().status().version < VERSION {
        return Err(refused(ErrorKind::Unsupported, "pool must be upgraded"));
    }
    let failed = |error: DslError| refused(failure::dataset("open", &request.name, &error).kind, &error.to_string());
    if !request.remove {
        return pool.dsl().delegate(&request.name, entries).map(|()| done()).map_err(failed);
    }
    let names = if request.recursive { descendants(&pool, &request.name)? } else { vec![request.name.clone()] };
    names.iter().try_for_each(|name| pool.dsl().undelegate(name, entries.clone())).map_err(failed)?;
    Ok(done())
}

/// True for a pool that lets users do what was delegated to them; where that cannot be read it does not.
pub(super) fn is_on(pool: &OpenPool) -> bool {
    pool.dsl().delegates().unwrap_or(false)
}
