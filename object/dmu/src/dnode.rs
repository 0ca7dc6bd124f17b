//! An object in memory.

use crate::{DmuError, Tx};
use abd::Abd;
use exec::{Mutex, MutexGuard};
use ondisk::{BlockId, Checksum, Compression, ObjectId, ObjectType};
use std::any::Any;
use std::sync::Arc;

/// Facts about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DnodeInfo {
    /// Its number.
    pub object: ObjectId,
    /// Type of the data.
    pub kind: ObjectType,
    /// Type of the bonus.
    pub bonus_type: ObjectType,
    /// Bytes of the bonus.
    pub bonus_len: usize,
    /// Most bytes the bonus can have (less when there is a spill block).
    pub bonus_max: usize,
    /// Data block size in bytes.
    pub block_size: usize,
    /// log2 of the indirect block size.
    pub indirect_shift: u8,
    /// Levels as of the last sync; 1 means the dnode points to data.
    pub levels: u8,
    /// Largest block id ever written (since the last truncation).
    pub max_block: BlockId,
    /// Allocated bytes as of the last sync, metadata blocks included.
    pub used_bytes: u64,
    /// 512-byte slots of the dnode.
    pub slots: u8,
    /// It has a spill block.
    pub has_spill: bool,
    /// Its own checksum, or `INHERIT`.
    pub checksum: Checksum,
    /// Its own compression, or `INHERIT`.
    pub compression: Compression,
}

/// What a layer above hangs on an object.
pub type UserData = Option<Arc<dyn Any + Send + Sync>>;

/// One object. Shared: hold it as `Arc<Dnode>` as long as you like; after [`crate::Objset::free_object`] its methods say
/// [`DmuError::NoSuchObject`].
pub struct Dnode {
    object: ObjectId,
    user: Mutex<UserData>,
    index: Mutex<UserData>,
}

impl Dnode {
    /// Its number.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// The slot for the layer above (a cached index, a znode).
    pub fn user(&self) -> MutexGuard<'_, UserData> {
        self.user.lock()
    }

    /// The ZAP's slot, apart from [`Dnode::user`]: a directory has both an index and a znode.
    pub fn index(&self) -> MutexGuard<'_, UserData> {
        self.index.lock()
    }

    /// Facts, dirty changes included.
    pub fn info(&self) -> Result<DnodeInfo, DmuError> {
        Err(DmuError::NotSupported)
    }

    /// Fills `out` from `offset`; holes and what lies beyond the last block read as zeros.
    pub fn read(&self, _offset: u64, _out: &mut [u8]) -> Result<(), DmuError> {
        Err(DmuError::NotSupported)
    }

    /// `length` bytes from `offset` without a copy: a gang of slices of the blocks.
    pub fn read_abd(&self, _offset: u64, _length: usize) -> Result<Abd, DmuError> {
        Err(DmuError::NotSupported)
    }

    /// One whole block (zeros for a hole).
    pub fn read_block(&self, _block: BlockId) -> Result<Abd, DmuError> {
        Err(DmuError::NotSupported)
    }

    /// Starts to read a range that will be wanted.
    pub fn prefetch(&self, _offset: u64, _length: u64) {}

    /// Writes `data` at `offset`.
    pub fn write(&self, _offset: u64, _data: &[u8], _tx: &Tx) -> Result<(), DmuError> {
        Err(DmuError::NotSupported)
    }

    /// Writes `data` at `offset`; whole blocks keep sharing the buffer and are not copied.
    pub fn write_abd(&self, _offset: u64, _data: Abd, _tx: &Tx) -> Result<(), DmuError> {
        Err(DmuError::NotSupported)
    }

    /// Changes one block in place (reads it first when it isn't dirty).
    pub fn modify_block<R>(&self, _block: BlockId, _tx: &Tx, _change: impl FnOnce(&mut [u8]) -> R) -> Result<R, DmuError> {
        Err(DmuError::NotSupported)
    }

    /// Frees `length` bytes from `offset`: they read as zeros. `u64::MAX` goes to the end (truncates).
    pub fn free_range(&self, _offset: u64, _length: u64, _tx: &Tx) -> Result<(), DmuError> {
        Err(DmuError::NotSupported)
    }

    /// Changes the block size of an object that has at most one block, keeping its data (OpenZFS: `dnode_set_blksz`).
    pub fn set_block_size(&self, _bytes: usize, _tx: &Tx) -> Result<(), DmuError> {
        Err(DmuError::NotSupported)
    }

    /// The bonus, as long as its length.
    pub fn bonus(&self) -> Result<Arc<[u8]>, DmuError> {
        Err(DmuError::NotSupported)
    }

    /// Replaces the bonus and its length.
    pub fn set_bonus(&self, _bytes: &[u8], _tx: &Tx) -> Result<(), DmuError> {
        Err(DmuError::NotSupported)
    }

    /// Changes the bonus type.
    pub fn set_bonus_type(&self, _kind: ObjectType, _tx: &Tx) -> Result<(), DmuError> {
        Err(DmuError::NotSupported)
    }

    /// The object's own checksum; `INHERIT` takes the object set's.
    pub fn set_checksum(&self, _checksum: Checksum, _tx: &Tx) -> Result<(), DmuError> {
        Err(DmuError::NotSupported)
    }

    /// The object's own compression; `INHERIT` takes the object set's.
    pub fn set_compression(&self, _compression: Compression, _tx: &Tx) -> Result<(), DmuError> {
        Err(DmuError::NotSupported)
    }

    /// The spill block, when there is one.
    pub fn spill(&self) -> Result<Option<Abd>, DmuError> {
        Err(DmuError::NotSupported)
    }

    /// Writes the spill block (512 B–128 KiB, a multiple of 512).
    pub fn set_spill(&self, _data: Abd, _tx: &Tx) -> Result<(), DmuError> {
        Err(DmuError::NotSupported)
    }

    /// Removes the spill block.
    pub fn remove_spill(&self, _tx: &Tx) -> Result<(), DmuError> {
        Err(DmuError::NotSupported)
    }

    /// The first offset ≥ `offset` with data, dirty data included; `None` when there is none up to the last block.
    pub fn next_data(&self, _offset: u64) -> Result<Option<u64>, DmuError> {
        Err(DmuError::NotSupported)
    }

    /// The first offset ≥ `offset` in a hole; the end of the last block counts as one.
    pub fn next_hole(&self, _offset: u64) -> Result<u64, DmuError> {
        Err(DmuError::NotSupported)
    }
}
