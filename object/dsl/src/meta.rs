//! The MOS and what every record in it needs: shorthand for objects, name tables and bonuses.

use crate::tuning::Tuning;
use crate::{DslError, PoolServices, features};
use dmu::{BlockIo, Dnode, NewObject, Objset, Tx};
use exec::Mutex;
use ondisk::names::spa_version;
use ondisk::{BlockPtr, EmbeddedKind, ObjectId, ObjectType, ds_flags};
use std::sync::Arc;
use zap::Zap;

/// Block size of lists in the MOS, in bytes (OpenZFS: `SPA_OLD_MAXBLOCKSIZE`).
pub(crate) const LIST_BLOCK_BYTES: usize = 128 << 10;
/// The pool directory (OpenZFS: `DMU_POOL_DIRECTORY_OBJECT`).
pub(crate) const POOL_DIRECTORY: u64 = 1;

/// Deflated, physical and uncompressed bytes, signed so that sums and changes are one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) used: i64,
    pub(crate) comp: i64,
    pub(crate) uncomp: i64,
}

impl Usage {
    pub(crate) fn new(used: u64, comp: u64, uncomp: u64) -> Usage {
        Usage { used: used as i64, comp: comp as i64, uncomp: uncomp as i64 }
    }
    pub(crate) fn is_zero(&self) -> bool {
        *self == Usage::default()
    }
}

impl std::ops::Add for Usage {
    type Output = Usage;
    fn add(self, other: Usage) -> Usage {
        Usage { used: self.used + other.used, comp: self.comp + other.comp, uncomp: self.uncomp + other.uncomp }
    }
}
impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        *self = *self + other;
    }
}
impl std::ops::Neg for Usage {
    type Output = Usage;
    fn neg(self) -> Usage {
        Usage { used: -self.used, comp: -self.comp, uncomp: -self.uncomp }
    }
}

/// True for pointers that account as metadata (OpenZFS: `BP_IS_METADATA`).
fn is_metadata(bp: &BlockPtr) -> bool {
    bp.level() > 0 || bp.object_type().is_metadata()
}

/// Adds `delta` to an on-disk counter; what would go below 0 stays 0.
pub(crate) fn bump(counter: &mut u64, delta: i64) {
    *counter = if delta < 0 { counter.saturating_sub(delta.unsigned_abs()) } else { counter.wrapping_add(delta as u64) };
}

/// The MOS with what accounting and features need.
pub(crate) struct Meta {
    pub(crate) objset: Arc<Objset>,
    pub(crate) io: Arc<dyn BlockIo>,
    pub(crate) services: Arc<dyn PoolServices>,
    /// The object that stands for all empty lists; 0 when there is none.
    pub(crate) empty_bpobj: Mutex<u64>,
    pub(crate) livelists: Tuning,
}

impl Meta {
    pub(crate) fn new(objset: Arc<Objset>, services: Arc<dyn PoolServices>) -> Meta {
        Meta { io: objset.io().clone(), objset, services, empty_bpobj: Mutex::new(0), livelists: Tuning::default() }
    }

    /// Flag of datasets whose unique bytes can be believed, which those of old pools lack (OpenZFS: `SPA_VERSION_UNIQUE_ACCURATE`).
    pub(crate) fn accurate_flag(&self) -> u64 {
        if self.services.version() < spa_version::UNIQUE_ACCURATE { 0 } else { ds_flags::UNIQUE_ACCURATE }
    }

    /// Refuses what pools before this version lack.
    pub(crate) fn check_version(&self, version: u64) -> Result<(), DslError> {
        if self.services.version() < version { Err(DslError::OldVersion(version)) } else { Ok(()) }
    }

    pub(crate) fn hold(&self, object: u64) -> Result<Arc<Dnode>, DslError> {
        Ok(self.objset.hold(ObjectId(object))?)
    }
    pub(crate) fn zap(&self, object: u64) -> Result<Zap, DslError> {
        Ok(Zap::hold(&self.objset, ObjectId(object))?)
    }
    /// First integers of all entries of a ZAP: the objects that it names.
    pub(crate) fn integers(&self, object: u64) -> Result<Vec<u64>, DslError> {
        let mut integers = Vec::new();
        self.zap(object)?.for_each(|entry| {
            integers.push(entry.first_integer);
            Ok(())
        })?;
        Ok(integers)
    }
    pub(crate) fn create_zap(&self, kind: ObjectType, tx: &Tx) -> Result<u64, DslError> {
        Ok(zap::create(&self.objset, kind, tx)?.0)
    }
    pub(crate) fn allocate(&self, new: NewObject, tx: &Tx) -> Result<Arc<Dnode>, DslError> {
        Ok(self.objset.allocate_object(new, tx)?)
    }
    pub(crate) fn free_object(&self, object: u64, tx: &Tx) -> Result<(), DslError> {
        Ok(self.objset.free_object(ObjectId(object), tx)?)
    }
    pub(crate) fn directory(&self) -> Result<Zap, DslError> {
        self.zap(POOL_DIRECTORY)
    }

    /// Makes an object of the DSL carry a ZAP (OpenZFS: `dmu_object_zapify`).
    pub(crate) fn zapify(&self, dnode: &Arc<Dnode>, tx: &Tx) -> Result<(), DslError> {
        if dnode.info()?.kind == ObjectType::OTN_ZAP_METADATA {
            return Ok(());
        }
        dnode.set_kind(ObjectType::OTN_ZAP_METADATA, tx)?;
        zap::format(dnode, self.io.exec().random_u64(), tx)?;
        self.services.feature_add(features::EXTENSIBLE_DATASET, 1, tx)
    }

    /// Bytes that a block counts (OpenZFS: `bp_get_dsize_sync`, `BP_GET_PSIZE`, `BP_GET_UCSIZE`).
    pub(crate) fn usage(&self, bp: &BlockPtr) -> Usage {
        usage(&*self.io, bp)
    }
}

/// See [`Meta::usage`]. Embedded data takes no space, and counts as uncompressed data only.
pub(crate) fn usage(io: &dyn BlockIo, bp: &BlockPtr) -> Usage {
    let comp = if bp.is_embedded() { 0 } else { bp.psize() as i64 };
    let uncomp = match (is_metadata(bp), bp.is_embedded()) {
        (true, _) => comp,
        (false, true) if bp.embedded_kind() != EmbeddedKind::DATA => 0,
        (false, _) => bp.lsize() as i64,
    };
    Usage { used: io.dsize(bp) as i64, comp, uncomp }
}

/// The error for a damaged record.
pub(crate) fn damaged(object: u64, what: &'static str) -> DslError {
    DslError::Corrupt { object: ObjectId(object), what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dmu::testing::MemBlockIo;
    use ondisk::{Compression, Txg};

    /// If this fails, a damaged counter makes a dataset of 16 EiB out of an empty one, and nobody may write any more.
    #[test]
    fn counters_stop_at_nothing() {
        let mut counter = 5;
        let steps = [(3, 8), (0, 8), (-8, 0), (-1, 0), (i64::MIN, 0), (i64::MAX, i64::MAX as u64)];
        for (delta, expected) in steps {
            bump(&mut counter, delta);
            assert_eq!(counter, expected, "by {delta}");
        }
    }

    /// OpenZFS subtracts exactly these figures when it frees what we counted; others never come back to zero there.
    #[test]
    fn embedded_blocks_count_as_openzfs_counts_them() {
        let io = MemBlockIo::inline(1);
        let embedded = |kind| BlockPtr::embedded(&[1; 50], 4096, Compression::LZ4, kind, 0, Txg(5));
        let data = usage(&io, &embedded(ObjectType::PLAIN_FILE_CONTENTS));
        assert_eq!(data, Usage { used: 0, comp: 0, uncomp: 4096 });
        assert!(usage(&io, &embedded(ObjectType::DIRECTORY_CONTENTS)).is_zero());
        let mut bp = BlockPtr::HOLE;
        bp.set_lsize(8192);
        bp.set_psize(1024);
        bp.set_object_type(ObjectType::PLAIN_FILE_CONTENTS);
        assert_eq!((usage(&io, &bp).comp, usage(&io, &bp).uncomp), (1024, 8192));
        bp.set_level(1);
        assert_eq!((usage(&io, &bp).comp, usage(&io, &bp).uncomp), (1024, 1024));
    }
}
