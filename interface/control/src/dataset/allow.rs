//! `zfs allow`: permissions that were delegated to users. The daemon lets nobody do anything because of them.

use crate::failure;
use crate::pool::Pools;
use control_api::{AllowEntry, AllowQuery, AllowReport, Failure, Response};
use dsl::Delegation;

/// Answers `zfs allow` of a dataset.
pub(crate) fn allowed(pools: &Pools, query: &AllowQuery) -> Result<Response, Failure> {
    let pool = pools.pool_of(&query.name, "open")?;
    let found = pool.dsl().delegations(&query.name).map_err(|error| failure::dataset("open", &query.name, &error))?;
    let entry = |delegation: Delegation| AllowEntry { who: delegation.who, permissions: delegation.permissions };
    let report = |(name, list): (String, Vec<Delegation>)| AllowReport { name, entries: list.into_iter().map(entry).collect() };
    Ok(Response::Allowed(found.into_iter().map(report).collect()))
}
