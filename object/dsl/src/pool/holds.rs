//! Holds of users: a snapshot that somebody holds is not destroyed (OpenZFS: `dsl_userhold.c`).
//!
//! A snapshot's holds are a ZAP from tags to the times at which they were taken. It stays, empty, until the snapshot goes.

use super::settings::remove_if_there;
use super::tree::Tree;
use crate::DslError;
use crate::dataset::Dataset;
use dmu::Tx;
use ondisk::ObjectType;
use ondisk::names::spa_version;
use std::sync::Arc;

/// Most bytes of a tag, final zero byte included (OpenZFS: `MAXNAMELEN`).
const TAG_BYTES_MAX: usize = 256;
/// Entry of the pool directory that names the holds which end with the process that took them (OpenZFS: `DMU_POOL_TMP_USERREFS`).
const TEMPORARY: &str = "tmp_userrefs";

/// A user's hold on a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserHold {
    /// Name that the user gave the hold.
    pub tag: String,
    /// Seconds since the epoch at which it was taken.
    pub time: u64,
}

/// Holds of users, with the parts of the pool that they need.
pub(crate) struct Holds {
    tree: Arc<Tree>,
}

impl Holds {
    pub(super) fn new(tree: Arc<Tree>) -> Holds {
        Holds { tree }
    }

    /// The holds on a snapshot, sorted by tag.
    pub(super) fn list(&self, snapshot: &Dataset) -> Result<Vec<UserHold>, DslError> {
        let mut holds = Vec::new();
        let table = snapshot.phys().ds_userrefs_obj;
        if table != 0 {
            self.tree.meta.zap(table)?.for_each(|entry| {
                holds.push(UserHold { tag: String::from_utf8_lossy(&entry.name).into_owned(), time: entry.first_integer });
                Ok(())
            })?;
        }
        holds.sort_by(|a, b| a.tag.cmp(&b.tag));
        Ok(holds)
    }

    /// The snapshots of these full names that are there, after a look that none of them has a hold of this tag.
    pub(super) fn check_hold(&self, names: &[String], tag: &str) -> Result<Vec<Arc<Dataset>>, DslError> {
        if tag.len() >= TAG_BYTES_MAX {
            return Err(DslError::TagTooLong);
        }
        if tag.is_empty() || tag.contains('\0') {
            return Err(DslError::BadName);
        }
        self.tree.meta.check_version(spa_version::USERREFS)?;
        let found = self.there(names)?;
        for snapshot in &found {
            if self.has(snapshot, tag)? {
                return Err(DslError::TagExists);
            }
        }
        Ok(found)
    }

    /// Takes a hold on each of the snapshots.
    pub(super) fn hold(&self, snapshots: &[Arc<Dataset>], tag: &str, tx: &Tx) -> Result<(), DslError> {
        let now = self.tree.meta.io.exec().wall_clock().0 as u64;
        for snapshot in snapshots {
            let table = match snapshot.phys().ds_userrefs_obj {
                0 => {
                    let table = self.tree.meta.create_zap(ObjectType::USERREFS, tx)?;
                    snapshot.update(tx, |phys| phys.ds_userrefs_obj = table)?;
                    table
                }
                table => table,
            };
            let table = self.tree.meta.zap(table)?;
            table.add_u64(tag, now, tx)?;
            self.tree.log("hold", snapshot.object, format!("tag={tag} temp=0 refs={}", table.count()), tx)?;
        }
        Ok(())
    }

    /// The snapshots of these full names that have a hold of this tag: those without one are passed over where others have it.
    pub(super) fn check_release(&self, names: &[String], tag: &str) -> Result<Vec<Arc<Dataset>>, DslError> {
        let mut held = Vec::new();
        for snapshot in self.there(names)? {
            if self.has(&snapshot, tag)? {
                held.push(snapshot);
            }
        }
        if held.is_empty() { Err(DslError::NoSuchTag) } else { Ok(held) }
    }

    /// Ends a hold on a snapshot, also one that would have ended with the process that took it.
    pub(super) fn release(&self, snapshot: &Dataset, tag: &str, tx: &Tx) -> Result<(), DslError> {
        let name = format!("{:x}-{tag}", snapshot.object);
        if let (Some(table), true) = (self.tree.meta.directory()?.try_lookup_u64(TEMPORARY)?, name.len() < TAG_BYTES_MAX) {
            remove_if_there(&self.tree.meta.zap(table)?, &name, tx)?;
        }
        let table = self.tree.meta.zap(snapshot.phys().ds_userrefs_obj)?;
        table.remove(tag, tx)?;
        self.tree.log("release", snapshot.object, format!("tag={tag} refs={}", table.count()), tx)
    }

    /// The snapshots of these full names that are there, at least one.
    fn there(&self, names: &[String]) -> Result<Vec<Arc<Dataset>>, DslError> {
        let found = self.tree.snapshots_named(names)?;
        if found.is_empty() { Err(DslError::NotFound) } else { Ok(found) }
    }

    /// True when the snapshot has a hold of this tag.
    fn has(&self, snapshot: &Dataset, tag: &str) -> Result<bool, DslError> {
        match snapshot.phys().ds_userrefs_obj {
            0 => Ok(false),
            _ if tag.len() >= TAG_BYTES_MAX => Ok(false),
            table => Ok(self.tree.meta.zap(table)?.contains(tag)?),
        }
    }
}
