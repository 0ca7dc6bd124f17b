//! The blocks of one object set: where they are read and written, for whom they are accounted, and the properties they follow.

use crate::{BlockIo, BlockLedger, DmuError, Keep, ObjsetProps};
use exec::RwLock;
use ondisk::{BlockId, BlockPtr, Bookmark, Level, ObjectId, ObjsetId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Environment of an object set: block store, accounting, number.
#[derive(Clone)]
pub struct ObjsetEnv {
    /// Store that reads and writes the blocks.
    pub io: Arc<dyn BlockIo>,
    /// Accounting of blocks; `None` for a snapshot, which can't be modified.
    pub ledger: Option<Arc<dyn BlockLedger>>,
    /// Number of the object set: the MOS object of the dataset, 0 for the MOS.
    pub id: ObjsetId,
}

/// The store of an object set's blocks, with what every read and write of one needs to know.
pub(crate) struct Blocks {
    pub env: ObjsetEnv,
    props: RwLock<ObjsetProps>,
    /// Time that data and metadata may stay in the cache, from `props`: every block that is read asks.
    keeps: [AtomicU8; 2],
}

fn keeps(props: &ObjsetProps) -> [u8; 2] {
    [false, true].map(|is_metadata| props.primary_cache.keep(is_metadata) as u8)
}

impl Blocks {
    pub(crate) fn new(env: ObjsetEnv, props: ObjsetProps) -> Blocks {
        Blocks { env, keeps: keeps(&props).map(AtomicU8::new), props: RwLock::new(props) }
    }

    /// Store of the blocks.
    pub(crate) fn io(&self) -> &Arc<dyn BlockIo> {
        &self.env.io
    }

    /// The properties in effect.
    pub(crate) fn props(&self) -> ObjsetProps {
        *self.props.read()
    }

    /// Replaces the properties.
    pub(crate) fn set_props(&self, props: ObjsetProps) {
        for (cell, keep) in self.keeps.iter().zip(keeps(&props)) {
            cell.store(keep, Ordering::Relaxed);
        }
        *self.props.write() = props;
    }

    /// Time that a block of data or metadata may stay in the cache.
    pub(crate) fn keep(&self, is_metadata: bool) -> Keep {
        match self.keeps[usize::from(is_metadata)].load(Ordering::Relaxed) {
            0 => Keep::Once,
            1 => Keep::Lingers,
            _ => Keep::Kept,
        }
    }

    /// Time that the block may stay in memory. The object set's own blocks are read without a dataset's say.
    pub(crate) fn keep_of(&self, bp: &BlockPtr) -> Keep {
        self.keep(bp.level() > 0 || bp.object_type().is_metadata())
    }

    pub(crate) fn bookmark(&self, object: ObjectId, level: u8, block: u64) -> Bookmark {
        Bookmark { objset: self.env.id, object, level: Level(level), block: BlockId(block) }
    }

    pub(crate) fn check_writable(&self) -> Result<(), DmuError> {
        if self.env.ledger.is_some() { Ok(()) } else { Err(DmuError::ReadOnly) }
    }
}
