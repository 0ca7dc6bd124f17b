//! An object set: its meta-dnode, the dnodes in memory, and what of it is dirty.

use crate::{BlockIo, BlockLedger, DmuError, Dnode, ObjsetHook, ObjsetProps, Tx};
use ondisk::{BlockPtr, ObjectId, ObjectType, ObjsetId, ObjsetType, Txg};
use std::sync::Arc;

/// What an object set is built on.
#[derive(Clone)]
pub struct ObjsetEnv {
    /// Blocks.
    pub io: Arc<dyn BlockIo>,
    /// Accounting of blocks; `None` for a snapshot, which can't be modified.
    pub ledger: Option<Arc<dyn BlockLedger>>,
    /// Its number: the MOS object of the dataset, 0 for the MOS.
    pub id: ObjsetId,
}

/// What a new object looks like. `..NewObject::new(kind)` gives the defaults.
#[derive(Clone, Copy, Debug)]
pub struct NewObject {
    /// Type of the data.
    pub kind: ObjectType,
    /// Block size in bytes: a multiple of 512 up to 16 MiB; 0 takes 512.
    pub block_size: usize,
    /// log2 of the indirect block size: 12–17; 0 takes 17.
    pub indirect_shift: u8,
    /// Type of the bonus, `NONE` for no bonus.
    pub bonus_type: ObjectType,
    /// Bytes of the bonus; it starts as zeros.
    pub bonus_len: usize,
    /// Dnode slots of 512 B: 1–32; 0 takes 1.
    pub slots: u8,
}

impl NewObject {
    /// Type `kind`, block size 512, no bonus, one slot.
    pub fn new(kind: ObjectType) -> NewObject {
        NewObject { kind, block_size: 0, indirect_shift: 0, bonus_type: ObjectType::NONE, bonus_len: 0, slots: 0 }
    }
}

/// An object set in memory. All methods may be called from any thread.
pub struct Objset {
    env: ObjsetEnv,
}

/// The user accounting object (OpenZFS: `DMU_USERUSED_OBJECT`).
pub const USERUSED_OBJECT: ObjectId = ObjectId(u64::MAX);
/// The group accounting object (OpenZFS: `DMU_GROUPUSED_OBJECT`).
pub const GROUPUSED_OBJECT: ObjectId = ObjectId(u64::MAX - 1);
/// The project accounting object (OpenZFS: `DMU_PROJECTUSED_OBJECT`).
pub const PROJECTUSED_OBJECT: ObjectId = ObjectId(u64::MAX - 2);

impl Objset {
    /// Opens the object set whose objset block is at `root`.
    pub fn open(_env: ObjsetEnv, _root: BlockPtr, _props: ObjsetProps) -> Result<Arc<Objset>, DmuError> {
        Err(DmuError::NotSupported)
    }

    /// Makes an empty object set, dirty in the transaction's txg.
    pub fn create(_env: ObjsetEnv, _kind: ObjsetType, _props: ObjsetProps, _tx: &Tx) -> Result<Arc<Objset>, DmuError> {
        Err(DmuError::NotSupported)
    }

    /// The store of its blocks.
    pub fn io(&self) -> &Arc<dyn BlockIo> {
        &self.env.io
    }

    /// Its number.
    pub fn id(&self) -> ObjsetId {
        self.env.id
    }

    /// File system, volume, MOS …
    pub fn kind(&self) -> ObjsetType {
        ObjsetType::NONE
    }

    /// The properties in effect.
    pub fn props(&self) -> ObjsetProps {
        ObjsetProps::default()
    }

    /// Replaces the properties; blocks written from now on follow them.
    pub fn set_props(&self, _props: ObjsetProps) {}

    /// Installs the file system's hook for user accounting.
    pub fn set_hook(&self, _hook: Arc<dyn ObjsetHook>) {}

    /// The pointer to the objset block as of the last sync.
    pub fn root_bp(&self) -> BlockPtr {
        BlockPtr::HOLE
    }

    /// Objects in use as of the last sync.
    pub fn object_count(&self) -> u64 {
        0
    }

    /// True when something of `txg` waits to be synced.
    pub fn is_dirty(&self, _txg: Txg) -> bool {
        false
    }

    /// Writes everything that is dirty in `txg`; gives the new root pointer (the old one when nothing was dirty). May be
    /// called again in the same txg. On error nothing of the failed part is referenced and the call can be repeated.
    pub fn sync(&self, _txg: Txg) -> Result<BlockPtr, DmuError> {
        Err(DmuError::NotSupported)
    }

    /// Makes an object at a free number.
    pub fn allocate_object(&self, _new: NewObject, _tx: &Tx) -> Result<Arc<Dnode>, DmuError> {
        Err(DmuError::NotSupported)
    }

    /// Makes an object at this number (also the accounting objects -1, -2, -3).
    pub fn claim_object(&self, _object: ObjectId, _new: NewObject, _tx: &Tx) -> Result<Arc<Dnode>, DmuError> {
        Err(DmuError::NotSupported)
    }

    /// Frees an object and its blocks. Its number can be used again after the txg was synced.
    pub fn free_object(&self, _object: ObjectId, _tx: &Tx) -> Result<(), DmuError> {
        Err(DmuError::NotSupported)
    }

    /// The object, read when it isn't in memory.
    pub fn hold(&self, _object: ObjectId) -> Result<Arc<Dnode>, DmuError> {
        Err(DmuError::NotSupported)
    }

    /// The first object with a number above `after`, dirty ones included. Start with `ObjectId(0)`.
    pub fn next_object(&self, _after: ObjectId) -> Result<Option<ObjectId>, DmuError> {
        Err(DmuError::NotSupported)
    }

    /// The intent log's header (`zil_header_t`), raw.
    pub fn zil_header(&self) -> [u8; 192] {
        [0; 192]
    }

    /// Replaces the intent log's header.
    pub fn set_zil_header(&self, _header: [u8; 192], _tx: &Tx) -> Result<(), DmuError> {
        Err(DmuError::NotSupported)
    }
}
