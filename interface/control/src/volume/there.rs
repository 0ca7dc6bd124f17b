//! Which volumes there are to see, at names as the datasets': those that are not hidden by `volmode`, and snapshots of theirs that `snapdev` shows.

use crate::dataset::properties::text_of;
use crate::pool::{OpenPool, Pools};
use dsl::DatasetHandle;
use ondisk::ObjsetType;
use std::sync::Arc;

/// Dataset at a path.
pub(crate) enum Found {
    /// Pool or file system: a folder of volumes.
    Folder,
    /// Volume or snapshot of one, and its pool.
    Volume(Arc<OpenPool>, DatasetHandle),
}

/// Dataset at a path, which is its name; the empty path is the folder of pools.
pub(crate) fn find(pools: &Pools, path: &str) -> Option<Found> {
    if path.is_empty() {
        return Some(Found::Folder);
    }
    let pool = pools.get(path.split(['/', '@']).next()?)?;
    let handle = pool.dsl().hold(path).ok()?;
    match kind(&handle)? {
        ObjsetType::ZVOL => is_shown(&handle).then_some(Found::Volume(pool, handle)),
        ObjsetType::ZFS if !handle.is_snapshot() => Some(Found::Folder),
        _ => None,
    }
}

/// Properties that have volumes served to the network where they are `on`. OpenZFS has none for that, and its own properties no room for another:
/// they are the user's, inherited as those are.
pub(crate) const SHARE_ISCSI: &str = "zirconia:share.iscsi";
pub(crate) const SHARE_NBD: &str = "zirconia:share.nbd";

/// True for a volume that this property has served.
pub(crate) fn is_shared(handle: &DatasetHandle, property: &str) -> bool {
    text_of(handle, property) == "on"
}

/// Volumes of a pool that the network is to see because of this property; no snapshots.
pub(crate) fn shared(pool: &OpenPool, property: &str) -> Vec<DatasetHandle> {
    let mut volumes = volumes(pool);
    volumes.retain(|volume| is_shown(volume) && is_shared(volume, property));
    volumes
}

/// All volumes of a pool; no snapshots.
pub(crate) fn volumes(pool: &OpenPool) -> Vec<DatasetHandle> {
    let mut found = Vec::new();
    let mut folders = vec![pool.name()];
    while let Some(folder) = folders.pop() {
        for child in pool.dsl().children(&folder).unwrap_or_default() {
            let full = format!("{folder}/{child}");
            let Ok(handle) = pool.dsl().hold(&full) else { continue };
            match kind(&handle) {
                Some(ObjsetType::ZVOL) => found.push(handle),
                Some(ObjsetType::ZFS) => folders.push(full),
                _ => {}
            }
        }
    }
    found
}

/// True for a pool that has volumes, or that nobody can look at now.
fn may_have_volumes(pool: &OpenPool, name: &str) -> bool {
    pool.pool().zio().is_suspended() || has_volumes(pool, name)
}

/// Names in a folder, and true for those that are folders: only what has volumes somewhere.
pub(crate) fn names(pools: &Pools, path: &str) -> Vec<(String, bool)> {
    if path.is_empty() {
        let with_volumes = pools.names().into_iter().filter(|name| pools.get(name).is_some_and(|pool| may_have_volumes(&pool, name)));
        return with_volumes.map(|name| (name, true)).collect();
    }
    let Some(pool) = path.split('/').next().and_then(|name| pools.get(name)) else { return Vec::new() };
    let mut names = Vec::new();
    for child in pool.dsl().children(path).unwrap_or_default() {
        let full = format!("{path}/{child}");
        let Ok(handle) = pool.dsl().hold(&full) else { continue };
        match kind(&handle) {
            Some(ObjsetType::ZVOL) => {
                names.extend(is_shown(&handle).then(|| (child.clone(), false)));
                names.extend(snapshots(&handle).into_iter().map(|snapshot| (format!("{child}@{snapshot}"), false)));
            }
            Some(ObjsetType::ZFS) if has_volumes(&pool, &full) => names.push((child, true)),
            _ => {}
        }
    }
    names
}

/// Kind of a dataset; None for what was not received to its end, or lacks what was redacted.
fn kind(handle: &DatasetHandle) -> Option<ObjsetType> {
    if handle.is_inconsistent() || handle.is_withheld() { None } else { handle.objset().ok().map(|objset| objset.kind()) }
}

/// True for volumes that are to be seen (OpenZFS: `zvol_create_minor`).
fn is_shown(handle: &DatasetHandle) -> bool {
    text_of(handle, "volmode") != "none" && (!handle.is_snapshot() || text_of(handle, "snapdev") == "visible")
}

/// Snapshots of a volume that are to be seen.
fn snapshots(handle: &DatasetHandle) -> Vec<String> {
    if text_of(handle, "snapdev") != "visible" || text_of(handle, "volmode") == "none" {
        return Vec::new();
    }
    handle.snapshots().unwrap_or_default().into_iter().map(|snapshot| snapshot.name).collect()
}

/// True when there is a volume to be seen below a file system.
fn has_volumes(pool: &OpenPool, name: &str) -> bool {
    pool.dsl().children(name).unwrap_or_default().iter().any(|child| {
        let full = format!("{name}/{child}");
        let Ok(handle) = pool.dsl().hold(&full) else { return false };
        match kind(&handle) {
            Some(ObjsetType::ZVOL) => is_shown(&handle),
            Some(ObjsetType::ZFS) => has_volumes(pool, &full),
            _ => false,
        }
    })
}
