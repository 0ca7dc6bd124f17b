//! Versions of file systems, and raising them (OpenZFS: `zfs_set_version`).
//!
//! What each changed: directory entries carry types (2), the form of access control lists (3), use is counted (4), system attributes (5). What is
//! there when a version is raised stays as it is.

use crate::store::{MASTER_NODE, VERSION, VERSION_SA};
use dmu::{Objset, Tx};
use ondisk::ObjectType;
use ondisk::names::spa_version::{FUID, INITIAL, SA, USERSPACE};
use std::sync::Arc;
use zap::{Zap, ZapError};

/// Version from which on the use of owners is counted and limited (OpenZFS: `ZPL_VERSION_USERSPACE`).
pub const VERSION_USERSPACE: u64 = 4;

/// The newest version of file systems in a pool of a version (OpenZFS: `zfs_zpl_version_map`).
pub fn newest_in(pool: u64) -> u64 {
    match pool {
        0..FUID => 2,
        FUID..USERSPACE => 3,
        USERSPACE..SA => 4,
        _ => VERSION,
    }
}

/// The first version of pools that has file systems of a version (OpenZFS: `zfs_spa_version_map`).
pub fn pool_for(version: u64) -> u64 {
    match version {
        0..=2 => INITIAL,
        3 => FUID,
        4 => USERSPACE,
        _ => SA,
    }
}

/// Version of a file system or of a snapshot of one.
///
/// # Errors
/// Those of the master node.
pub fn of(objset: &Arc<Objset>) -> Result<u64, ZapError> {
    Zap::hold(objset, MASTER_NODE)?.lookup_u64("VERSION")
}

/// Raises the version of a file system in an open transaction; false where that is no higher version, or none that is known. One that is mounted
/// goes on as before until [`crate::Zfs::renew`].
///
/// # Errors
/// Those of the master node.
pub fn raise(objset: &Arc<Objset>, version: u64, tx: &Tx) -> Result<bool, ZapError> {
    let master = Zap::hold(objset, MASTER_NODE)?;
    let is_higher = version <= VERSION && version > master.lookup_u64("VERSION")?;
    if is_higher {
        enter(objset, &master, version, tx)?;
    }
    Ok(is_higher)
}

/// Writes a version into a master node, with what it needs there.
pub(crate) fn enter(objset: &Arc<Objset>, master: &Zap, version: u64, tx: &Tx) -> Result<(), ZapError> {
    if version >= VERSION_SA && master.try_lookup_u64("SA_ATTRS")?.is_none() {
        let attributes = zap::create(objset, ObjectType::SA_MASTER_NODE, tx)?;
        master.add_u64("SA_ATTRS", attributes.0, tx)?;
    }
    master.update_u64("VERSION", version, tx)
}
