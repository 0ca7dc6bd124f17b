//! A dataset as the place where a file system's space and snapshots are known: limits and quotas decide what a transaction may dirty.

use crate::{OpenSnapshot, SnapshotSource, Space, SpaceSource, TxKind, ZplError};
use dmu::{DamagedRecord, Tx, TxgManager};
use dsl::{DatasetHandle, DslError, DslPool, PropEntry, PropValue, Subject, TxSpace};
use std::sync::Arc;

impl SpaceSource for DatasetHandle {
    fn space(&self) -> Space {
        let space = DatasetHandle::space(self);
        let objects_used = self.objset().map_or(0, |objset| objset.object_count());
        // As OpenZFS counts: one object per sector that is available.
        Space { referenced: space.referenced, available: space.available, objects_used, objects_available: space.available >> 9 }
    }

    fn wait_for_freed(&self, _txgs: &Arc<TxgManager>) -> Result<bool, ZplError> {
        DatasetHandle::wait_for_freed(self).map_err(assigning)
    }

    fn assign(&self, _txgs: &Arc<TxgManager>, bytes: u64, kind: TxKind) -> Result<Tx, ZplError> {
        let space = match kind {
            TxKind::Writes => TxSpace::Writes(bytes),
            TxKind::Frees => TxSpace::Frees,
        };
        DatasetHandle::assign(self, space).map_err(assigning)
    }
}

impl SnapshotSource for DatasetHandle {
    fn list(&self) -> Result<Vec<String>, ZplError> {
        self.snapshots().map(|list| list.into_iter().map(|snapshot| snapshot.name).collect()).map_err(reading)
    }

    fn open(&self, name: &str) -> Result<OpenSnapshot, ZplError> {
        let snapshot = self.hold_snapshot(name).map_err(reading)?;
        if snapshot.is_withheld() {
            return Err(ZplError::NotSupported);
        }
        let objset = snapshot.objset().map_err(reading)?;
        Ok(OpenSnapshot { objset, hold: Box::new(snapshot) })
    }

    fn changed(&self) -> (u64, u32) {
        self.snapshots_changed().ok().flatten().unwrap_or_default()
    }

    fn may_create(&self, uid: u32, gid: u32) -> bool {
        let (pool, subject) = (self.pool(), Subject { uid, groups: vec![gid] });
        let has = |name: &str, permission: &str| pool.is_delegated(name, permission, &subject).unwrap_or(false);
        let is_zoned = matches!(self.prop("zoned"), Ok(PropEntry { value: PropValue::Text(word), .. }) if word == "on");
        let name = self.name();
        pool.delegates().unwrap_or(false)
            && !is_zoned
            && has(&name, "snapshot")
            && ancestors(&name).all(|above| has_room(pool, above) || has(above, "snapshot_limit"))
    }

    fn create(&self, name: &str) -> Result<(), ZplError> {
        let name = format!("{}@{name}", self.name());
        self.pool().snapshot(&[name], Vec::new()).map_err(changing)
    }

    fn destroy(&self, name: &str) -> Result<(), ZplError> {
        let name = format!("{}@{name}", self.name());
        self.pool().destroy_snapshots(&[name], false).map_err(changing)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), ZplError> {
        self.pool().rename_snapshots(&[self.name()], from, to).map_err(changing)
    }
}

/// Names of a dataset and of those that it lies in.
fn ancestors(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.rsplit_once('/').map(|(above, _)| above))
}

/// True when the limit of a dataset leaves room for one more snapshot at or below it.
fn has_room(pool: &Arc<DslPool>, name: &str) -> bool {
    let number = |property: &str| match pool.hold(name).and_then(|handle| handle.prop(property)) {
        Ok(PropEntry { value: PropValue::Count(number), .. }) => Some(number),
        _ => None,
    };
    number("snapshot_limit").zip(number("snapshot_count")).is_none_or(|(most, there)| there < most)
}

/// Error of a snapshot that is not made, destroyed or renamed.
fn changing(error: DslError) -> ZplError {
    match error {
        DslError::NotFound => ZplError::NotFound,
        DslError::Exists => ZplError::Exists,
        DslError::BadName => ZplError::Invalid,
        DslError::NameTooLong => ZplError::NameTooLong,
        DslError::Busy | DslError::HasClones | DslError::Held => ZplError::Busy,
        other => assigning(other),
    }
}

/// Error of a snapshot that cannot be looked at: one that is not there, or one whose records cannot be read.
fn reading(error: DslError) -> ZplError {
    match error {
        DslError::NotFound | DslError::BadName | DslError::NameTooLong => ZplError::NotFound,
        DslError::Dmu(error) => error.into(),
        DslError::Zap(error) => error.into(),
        DslError::Corrupt { object, what } => ZplError::Corrupt(DamagedRecord { object, what }.into()),
        _ => ZplError::IO,
    }
}

/// Error of a transaction that is not to be had.
fn assigning(error: DslError) -> ZplError {
    match error {
        DslError::Quota => ZplError::OverQuota,
        DslError::NoSpace => ZplError::NoSpace,
        DslError::ReadOnly => ZplError::ReadOnly,
        DslError::Dmu(error) => error.into(),
        DslError::Sync(error) => error.into(),
        _ => ZplError::STOPPED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dmu::BlockError;

    /// If this fails, a snapshot whose records cannot be read for now looks as if somebody had destroyed it, and backups go on without it.
    #[test]
    fn a_snapshot_that_cannot_be_read_is_not_taken_for_one_that_is_not_there() {
        assert_eq!(reading(DslError::NotFound), ZplError::NotFound);
        assert_eq!(reading(DslError::Dmu(BlockError::Io.into())), ZplError::IO);
        assert_eq!(reading(DslError::Corrupt { object: ondisk::ObjectId(3), what: "its record is short" }), ZplError::CORRUPT);
    }
}
