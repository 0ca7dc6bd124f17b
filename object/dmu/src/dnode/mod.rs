//! An object in memory: its facts, its bonus, and the entry points to its blocks.
//!
//! Locking: `state` is the dnode's only lock that matters; it is held for lookups and small changes, never across I/O or
//! a copy of block data. Blocks of the open txg carry their own lock ([`crate::state::DirtyBlock`]).

mod direct;
mod direct_read;
mod forget;
mod indirect;
mod pins;
mod prefetch;
mod read;
mod walk;
mod write;

pub(crate) use direct_read::Flights;
pub(crate) use indirect::decode_pointer;
pub(crate) use pins::Pins;
pub(crate) use walk::Wanted;

use crate::context::Context;
use crate::memory::{Counted, What};
use crate::state::{Core, Dropped, SpillChange, State, Tree, TxgDirty};
use crate::{DmuError, Keep, Tx};
use abd::Abd;
use exec::{Mutex, MutexGuard, RwLock};
use indirect::IndirectCache;
use ondisk::{BlockId, BlockPtr, Checksum, Compression, DNODE_CORE_BYTES, DNODE_SLOT_BYTES, META_DNODE_OBJECT, ObjectId, ObjectType, Txg};
use prefetch::Prefetcher;
pub use prefetch::{ZfetchStats, ZfetchTunables, set_zfetch_tunables, zfetch_stats};
use std::any::Any;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
pub use walk::Zeros;

/// The block number of a spill block in bookmarks (OpenZFS: `DMU_SPILL_BLKID`).
pub(crate) const SPILL_BLOCK: u64 = u64::MAX - 1;
/// Largest spill block (OpenZFS: `SPA_OLD_MAXBLOCKSIZE`).
const SPILL_BYTES_MAX: usize = 128 << 10;

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
    this: Weak<Dnode>,
    object: ObjectId,
    pub(crate) context: Arc<Context>,
    pub(crate) state: RwLock<State>,
    indirects: IndirectCache,
    prefetcher: Mutex<Prefetcher>,
    /// Held since the last sweep of the object set's map.
    pub(crate) recently_used: AtomicBool,
    user: Mutex<UserData>,
    index: Mutex<UserData>,
    _counted: [Counted; 2],
}

impl std::fmt::Debug for Dnode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dnode {{ objset: {}, object: {} }}", self.context.env.id, self.object)
    }
}

/// Bonus bytes beside `pointers` block pointers and perhaps one for a spill block; `None` when even those don't fit.
pub(crate) fn bonus_room(slots: u8, pointers: u8, has_spill: bool) -> Option<usize> {
    let pointers = usize::from(pointers) + usize::from(has_spill);
    (usize::from(slots) * DNODE_SLOT_BYTES - DNODE_CORE_BYTES).checked_sub(pointers * BlockPtr::BYTES)
}

impl Dnode {
    pub(crate) fn new(context: Arc<Context>, object: ObjectId, core: Core, tree: Tree) -> Arc<Dnode> {
        let counted = [Counted::new(What::Dnode, size_of::<Dnode>()), Counted::new(What::Bonus, core.bonus.len())];
        Arc::new_cyclic(|this| Dnode {
            this: this.clone(),
            _counted: counted,
            object,
            context,
            state: RwLock::new(State { core, tree: Arc::new(tree), dirty: Vec::new() }),
            indirects: IndirectCache::default(),
            prefetcher: Mutex::default(),
            recently_used: AtomicBool::new(true),
            user: Mutex::new(None),
            index: Mutex::new(None),
        })
    }

    /// Its number.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// The slot for the layer above (a znode).
    pub fn user(&self) -> MutexGuard<'_, UserData> {
        self.user.lock()
    }

    /// The ZAP's slot, apart from [`Dnode::user`]: a directory has both an index and a znode.
    pub fn index(&self) -> MutexGuard<'_, UserData> {
        self.index.lock()
    }

    /// The newest txg with changes that were not written yet; one that is being synced may not show any more.
    pub fn dirty_txg(&self) -> Option<Txg> {
        self.state.read().dirty.last().map(|entry| entry.txg)
    }

    /// Facts, dirty changes included.
    pub fn info(&self) -> Result<DnodeInfo, DmuError> {
        let state = self.state.read();
        let core = &state.core;
        if core.freed {
            return Err(DmuError::NoSuchObject);
        }
        Ok(DnodeInfo {
            object: self.object,
            kind: core.kind,
            bonus_type: core.bonus_type,
            bonus_len: core.bonus.len(),
            bonus_max: bonus_room(core.slots, core.block_ptr_count, core.has_spill).unwrap_or(0),
            block_size: core.block_size,
            indirect_shift: core.indirect_shift,
            levels: state.tree.levels,
            max_block: BlockId(core.max_block),
            used_bytes: state.tree.used_bytes,
            slots: core.slots,
            has_spill: core.has_spill,
            checksum: core.checksum,
            compression: core.compression,
        })
    }

    /// Runs `change` on the state with the transaction's entry as the newest one. Before the first change of a txg it reads what the sync
    /// will need to write the record down (waits): what cannot be read is an error, and nothing was changed.
    pub(crate) fn change<R>(&self, tx: &Tx, change: impl FnOnce(&mut State) -> Result<R, DmuError>) -> Result<R, DmuError> {
        self.context.check_change(tx)?;
        let mut state = self.state.write();
        if state.newest_in(tx.txg()).is_none() && !state.core.freed {
            drop(state);
            self.pin_record(tx)?;
            state = self.state.write();
        }
        if state.core.freed {
            return Err(DmuError::NoSuchObject);
        }
        let is_first = state.begin(tx)?;
        let result = change(&mut state);
        drop(state);
        if is_first && let Some(this) = self.this.upgrade() {
            self.context.add_dirty(this, tx);
        }
        result
    }

    /// The bonus, as long as its length.
    pub fn bonus(&self) -> Result<Arc<[u8]>, DmuError> {
        let state = self.state.read();
        if state.core.freed { Err(DmuError::NoSuchObject) } else { Ok(state.core.bonus.clone()) }
    }

    /// Replaces the bonus and its length. [`DmuError::Invalid`] when it doesn't fit beside the pointers.
    pub fn set_bonus(&self, bytes: &[u8], tx: &Tx) -> Result<(), DmuError> {
        self.change(tx, |state| {
            let core = &mut state.core;
            if bonus_room(core.slots, core.block_ptr_count, core.has_spill).is_none_or(|room| bytes.len() > room) {
                return Err(DmuError::Invalid);
            }
            match Arc::get_mut(&mut core.bonus) {
                Some(own) if own.len() == bytes.len() => own.copy_from_slice(bytes),
                _ => core.bonus = Arc::from(bytes),
            }
            Ok(())
        })
    }

    /// Changes the type of the data: a record of the DSL that starts to carry a ZAP (OpenZFS: `dmu_object_zapify`).
    pub fn set_kind(&self, kind: ObjectType, tx: &Tx) -> Result<(), DmuError> {
        self.change(tx, |state| {
            state.core.kind = kind;
            Ok(())
        })
    }

    /// Changes the bonus type.
    pub fn set_bonus_type(&self, kind: ObjectType, tx: &Tx) -> Result<(), DmuError> {
        self.change(tx, |state| {
            state.core.bonus_type = kind;
            Ok(())
        })
    }

    /// The object's own checksum; `INHERIT` takes the object set's.
    pub fn set_checksum(&self, checksum: Checksum, tx: &Tx) -> Result<(), DmuError> {
        self.change(tx, |state| {
            state.core.checksum = checksum;
            Ok(())
        })
    }

    /// The object's own compression; `INHERIT` takes the object set's.
    pub fn set_compression(&self, compression: Compression, tx: &Tx) -> Result<(), DmuError> {
        self.change(tx, |state| {
            state.core.compression = compression;
            Ok(())
        })
    }

    /// The spill block, when there is one.
    pub fn spill(&self) -> Result<Option<Abd>, DmuError> {
        let mut tries = 0;
        loop {
            let tree = {
                let state = self.state.read();
                if state.core.freed {
                    return Err(DmuError::NoSuchObject);
                }
                let change = state.dirty.iter().rev().find(|entry| !matches!(entry.spill, SpillChange::Keep));
                match change.map(|entry| &entry.spill) {
                    Some(SpillChange::Write(data)) => return Ok(Some(data.clone())),
                    Some(_) => return Ok(None),
                    None => state.tree.clone(),
                }
            };
            let Some(bp) = tree.spill else { return Ok(None) };
            match self.read_pointed(&tree, &bp, (0, SPILL_BLOCK)) {
                Ok(data) => return Ok(Some(data)),
                Err(error) => self.retry_if_stale(&tree, &mut tries, error)?,
            }
        }
    }

    /// Writes the spill block (512 B–128 KiB, a multiple of 512). [`DmuError::Invalid`] for another size, or when the bonus
    /// leaves no room for its pointer.
    pub fn set_spill(&self, data: Abd, tx: &Tx) -> Result<(), DmuError> {
        if data.is_empty() || !data.len().is_multiple_of(512) || data.len() > SPILL_BYTES_MAX {
            return Err(DmuError::Invalid);
        }
        if data.is_zero() {
            return self.remove_spill(tx);
        }
        self.change(tx, |state| {
            let core = &mut state.core;
            if bonus_room(core.slots, core.block_ptr_count, true).is_none_or(|room| core.bonus.len() > room) {
                return Err(DmuError::Invalid);
            }
            core.has_spill = true;
            state.newest()?.spill = SpillChange::Write(data);
            Ok(())
        })
    }

    /// Removes the spill block.
    pub fn remove_spill(&self, tx: &Tx) -> Result<(), DmuError> {
        self.change(tx, |state| {
            state.core.has_spill = false;
            state.newest()?.spill = SpillChange::Remove;
            Ok(())
        })
    }

    /// Marks it freed: every block goes when the txg is synced.
    pub(crate) fn free(&self, tx: &Tx) -> Result<(), DmuError> {
        let mut dropped = Dropped::default();
        self.change(tx, |state| {
            state.core.freed = true;
            let entry = state.newest()?;
            std::mem::take(&mut entry.blocks).values().for_each(|record| dropped.push(Some(record.clone())));
            Ok(())
        })?;
        self.give_back(&dropped, tx.txg());
        Ok(())
    }

    /// Gives back what records held that a change of this txg took out.
    pub(crate) fn give_back(&self, dropped: &Dropped, txg: Txg) {
        let charged = dropped.charged_bytes();
        if charged > 0 {
            self.context.release(txg, charged);
        }
        for bp in dropped.blocks() {
            self.context.env.io.free(txg, bp);
        }
    }

    /// After a failed read: `Ok` when the tree was replaced meanwhile, so that looking again may help.
    pub(crate) fn retry_if_stale(&self, tree: &Tree, tries: &mut u32, error: crate::BlockError) -> Result<(), DmuError> {
        *tries += 1;
        if *tries < 8 && self.state.read().tree.generation != tree.generation { Ok(()) } else { Err(error.into()) }
    }

    /// Reads the block (level, number) that `tree` points to. A failure is reported as damage only while the tree is current:
    /// what an older one pointed to may be another's by now.
    pub(crate) fn read_pointed(&self, tree: &Tree, bp: &BlockPtr, at: (u8, u64)) -> Result<Abd, crate::BlockError> {
        let io = &self.context.env.io;
        if self.object == META_DNODE_OBJECT
            && let Some(data) = self.context.pins.get(at, bp)
        {
            return Ok(data);
        }
        let bookmark = self.context.bookmark(self.object, at.0, at.1);
        io.read_kept(bp, &bookmark, self.keep(bp)).inspect_err(|&error| {
            if self.state.read().tree.generation == tree.generation {
                io.lost(bp, &bookmark, error);
            }
        })
    }

    /// How long a block of this object may stay in memory. The object set's own blocks are read without a dataset's say.
    pub(crate) fn keep(&self, bp: &BlockPtr) -> Keep {
        let is_metadata = bp.level() > 0 || bp.object_type().is_metadata();
        self.context.keep(is_metadata)
    }

    pub(crate) fn drop_cached_indirects(&self, generation: u64) {
        self.indirects.reset(generation);
    }
}

impl State {
    /// Makes sure that the newest entry is the transaction's; true when it was made now.
    pub(crate) fn begin(&mut self, tx: &Tx) -> Result<bool, DmuError> {
        let txg = tx.txg();
        if let Some(newest) = self.dirty.last_mut() {
            if newest.txg == txg {
                return Ok(false);
            }
            if newest.txg > txg {
                return Err(DmuError::TxgOrder);
            }
            if newest.core.is_none() {
                newest.core = Some(self.core.clone());
            }
        }
        self.dirty.push(TxgDirty::new(txg));
        Ok(true)
    }

    /// The newest entry; [`State::begin`] made it.
    pub(crate) fn newest(&mut self) -> Result<&mut TxgDirty, DmuError> {
        self.dirty.last_mut().ok_or(DmuError::TxgOrder)
    }
}
