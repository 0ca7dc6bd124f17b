//! What single users, groups and projects use and may use: `userquota@ID` and its kind, `zfs userspace`.

use crate::failure::{self, because};
use crate::mount::mounts::Mounts;
use crate::pool::Pools;
use control_api::{ErrorKind, Failure, OwnerReport, Response, UserspaceQuery};
use dmu::{Objset, Tx};
use dsl::prop::table;
use dsl::{DatasetHandle, DslError, TxSpace};
use ondisk::ObjsetType;
use ondisk::names::spa_version;
use std::collections::BTreeMap;
use std::sync::Arc;
use zpl::version::VERSION_USERSPACE;

/// Bytes that the change of one limit dirties, at most: the master node, a new table and an entry in it.
const TX_BYTES: u64 = 256 << 10;

/// Reason where the version of a pool or file system has no such limits (OpenZFS: `zfs_setprop_error`).
pub(crate) const MUST_UPGRADE: &str = "pool and or dataset must be upgraded to set this property or value";

/// Limit to set for a user, group or project.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limit {
    kind: String,
    id: u64,
    /// Limit in bytes or objects; 0 for none.
    value: u64,
}

impl Limit {
    /// True for a limit of a project.
    pub(crate) fn is_of_project(&self) -> bool {
        self.kind.starts_with("project")
    }
}

/// Limits among properties that [`table::objection`] has nothing against, and the others.
pub(crate) fn split(properties: &BTreeMap<String, String>) -> (Vec<Limit>, BTreeMap<String, String>) {
    let (owners, others): (BTreeMap<_, _>, _) = properties.clone().into_iter().partition(|(name, _)| table::is_owners(name));
    let limit = |(name, text): (String, String)| {
        let kind = name.split_once('@')?.0.to_string();
        Some(Limit { kind, id: table::owner(&name)?, value: table::parse_bytes(&text).unwrap_or(0) })
    };
    (owners.into_iter().filter_map(limit).collect(), others)
}

/// Enters limits into a file system in an open transaction.
pub(crate) fn enter(objset: &Arc<Objset>, limits: &[Limit], tx: &Tx) -> Result<(), DslError> {
    Ok(limits.iter().try_for_each(|limit| zpl::userspace::set(objset, &limit.kind, limit.id, limit.value, tx))?)
}

/// Sets limits of a file system; they hold when it is mounted, too. One of a version without limits is refused.
pub(crate) fn set(mounts: &Mounts, handle: &DatasetHandle, limits: &[Limit]) -> Result<(), DslError> {
    if limits.is_empty() {
        return Ok(());
    }
    let objset = handle.objset()?;
    if zpl::version::of(&objset)? < VERSION_USERSPACE {
        return Err(DslError::OldVersion(spa_version::USERSPACE));
    }
    let frees = limits.iter().all(|limit| limit.value == 0);
    let tx = handle.assign(if frees { TxSpace::Frees } else { TxSpace::Writes(TX_BYTES * limits.len() as u64) })?;
    let entered = enter(&objset, limits, &tx);
    drop(tx);
    mounts.renew(&handle.name());
    entered
}

/// Answers `zfs userspace`, `groupspace`, `projectspace`.
pub(crate) fn userspace(pools: &Pools, query: &UserspaceQuery) -> Result<Response, Failure> {
    // A mountpoint stands for its dataset.
    let name = &if query.name.starts_with('/') { pools.by_mountpoint(&query.name)? } else { query.name.clone() };
    let pool = pools.pool_of(name, "open")?;
    let failed = |error: DslError| failure::dataset("open", name, &error);
    let objset = pool.dsl().hold(name).map_err(failed)?.objset().map_err(failed)?;
    if objset.kind() != ObjsetType::ZFS {
        let why = "operation is only applicable to filesystems and their snapshots";
        return Err(because(ErrorKind::Invalid, format!("cannot open '{name}'"), why));
    }
    let damaged = |_| because(ErrorKind::Io, format!("cannot get used/quota for {name}"), "damaged tables");
    let is_old = pool.dsl().version() < spa_version::USERSPACE || zpl::version::of(&objset).map_err(damaged)? < VERSION_USERSPACE;
    let mut reports = Vec::new();
    for who in &query.who {
        // OpenZFS's command says nothing where projects are not counted.
        if is_old && who != "project" {
            let why = "unsupported version or feature";
            return Err(because(ErrorKind::Unsupported, format!("cannot get used/quota for {name}"), why)
                .advise("users and groups are counted from version 15 of pools and 4 of file systems on: 'zpool upgrade', 'zfs upgrade'"));
        }
        let mut found: BTreeMap<u64, OwnerReport> = BTreeMap::new();
        for what in ["used", "quota", "objused", "objquota"] {
            let listed = zpl::userspace::list(&objset, &format!("{who}{what}")).map_err(damaged)?;
            for (id, value) in listed {
                let report = found.entry(id).or_insert_with(|| OwnerReport { who: who.clone(), id, ..OwnerReport::default() });
                match what {
                    "used" => report.used = Some(value),
                    "quota" => report.quota = Some(value),
                    "objused" => report.objects_used = Some(value),
                    _ => report.objects_quota = Some(value),
                }
            }
        }
        reports.extend(found.into_values());
    }
    Ok(Response::Owners(reports))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a limit of one user is stored as a property that nothing looks at, or a property is taken for a limit.
    #[test]
    fn limits_are_told_from_properties() {
        let given = [("userquota@1000", "1.5K"), ("projectobjquota@7", "none"), ("quota", "1G"), ("org:user@x", "y")];
        let given: BTreeMap<String, String> = given.into_iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let (limits, others) = split(&given);
        let expected = [("projectobjquota", 7, 0), ("userquota", 1000, 1536)];
        assert_eq!(limits, expected.map(|(kind, id, value)| Limit { kind: kind.to_string(), id, value }));
        assert_eq!(others.into_keys().collect::<Vec<_>>(), ["org:user@x", "quota"]);
    }
}
