//! An object in memory: its facts, its bonus, and the entry points to its blocks.
//!
//! Locking: the state is the dnode's only lock that matters; it is held for lookups and small changes, never across I/O or
//! a copy of block data. Blocks of the open txg carry their own lock ([`dirty::DirtyBlock`]).
//!
//! What a dnode is made of: [`contents::Contents`] has what its txgs changed, over the tree as of the last sync, and reads blocks;
//! [`indirect::TreeReader`] reads indirect blocks and remembers a few; [`prefetch::Prefetcher`] decides what to read ahead; [`gather`] and
//! [`batch`] move blocks directly; [`window::Window`] keeps records for the neighbours of what was read of them. [`Dnode`] is their front.

mod batch;
mod clone;
mod contents;
mod context;
mod core;
mod direct;
mod dirty;
mod form;
mod gather;
mod indirect;
mod kept;
mod pins;
mod prefetch;
mod read;
mod record;
mod search;
mod segments;
mod source;
mod state;
mod tree;
mod walk;
mod window;
mod write;

pub(crate) use self::core::{Core, bonus_room};
pub(crate) use contents::{Changes, SPILL_BLOCK};
pub(crate) use context::Context;
pub(crate) use dirty::Record;
pub(crate) use form::Form;
pub use form::{Marks, SealedObject, StoredBlock};
pub(crate) use indirect::Place;
pub(crate) use kept::decode_pointer;
pub use prefetch::{ZfetchStats, ZfetchTunables, set_zfetch_tunables, zfetch_stats};
pub(crate) use search::Wanted;
pub(crate) use state::SpillChange;
pub(crate) use tree::{Tree, dnode_phys};
pub use walk::Zeros;
pub use window::set_direct_read_window;

use crate::memory::{Counted, What};
use crate::special::is_own;
use crate::{DmuError, Tx};
use abd::Abd;
use contents::Contents;
use dirty::Dropped;
use exec::{Mutex, MutexGuard};
use indirect::TreeReader;
use ondisk::{BlockId, Checksum, Compression, DnodePhys, META_DNODE_OBJECT, ObjectId, ObjectType, Txg};
use prefetch::Prefetcher;
use state::State;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use window::Window;

/// Largest spill block (OpenZFS: `SPA_OLD_MAXBLOCKSIZE`).
const SPILL_BYTES_MAX: usize = 128 << 10;

/// Facts about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DnodeInfo {
    /// Object number.
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
    /// Block pointers in the dnode, without that of the spill block.
    pub block_ptr_count: u8,
    /// True when the object has a spill block.
    pub has_spill: bool,
    /// Checksum set for the object, or `INHERIT`.
    pub checksum: Checksum,
    /// Compression set for the object, or `INHERIT`.
    pub compression: Compression,
}

/// Data that a layer above attaches to an object.
pub type UserData = Option<Arc<dyn Any + Send + Sync>>;

/// One object. Shared: hold it as `Arc<Dnode>` as long as you like; after [`crate::Objset::free_object`] its methods say
/// [`DmuError::NoSuchObject`].
pub struct Dnode {
    this: Weak<Dnode>,
    pub(crate) context: Arc<Context>,
    pub(crate) contents: Contents,
    prefetcher: Mutex<Prefetcher>,
    window: Window,
    /// Held since the last sweep of the object set's map.
    recently_used: AtomicBool,
    user: Mutex<UserData>,
    index: Mutex<UserData>,
    _counted: [Counted; 2],
}

impl std::fmt::Debug for Dnode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dnode {{ objset: {}, object: {} }}", self.context.blocks.env.id, self.object())
    }
}

impl Dnode {
    pub(crate) fn new(context: Arc<Context>, object: ObjectId, core: Core, tree: Tree) -> Arc<Dnode> {
        let counted = [Counted::new(What::Dnode, size_of::<Dnode>()), Counted::new(What::Bonus, core.bonus.len())];
        let pins = (object == META_DNODE_OBJECT).then(|| context.pins.clone());
        let reader = TreeReader::new(object, context.blocks.clone(), pins);
        Arc::new_cyclic(|this| Dnode {
            this: this.clone(),
            _counted: counted,
            context,
            contents: Contents::new(reader, core, tree),
            prefetcher: Mutex::default(),
            window: Window::default(),
            recently_used: AtomicBool::new(true),
            user: Mutex::new(None),
            index: Mutex::new(None),
        })
    }

    /// A dnode in memory from its record.
    pub(crate) fn from_phys(context: &Arc<Context>, object: ObjectId, phys: &DnodePhys) -> Arc<Dnode> {
        let core = Core::from_phys(phys);
        let tree = Tree::from_phys(phys, &core.bonus);
        Dnode::new(context.clone(), object, core, tree)
    }

    /// Object number.
    pub fn object(&self) -> ObjectId {
        self.contents.reader.object()
    }

    /// Marks the dnode as used: the next sweep of the object set's map spares it.
    pub(crate) fn note_use(&self) {
        self.recently_used.store(true, Ordering::Relaxed);
    }

    /// True when it was used since the last call.
    pub(crate) fn take_use(&self) -> bool {
        self.recently_used.swap(false, Ordering::Relaxed)
    }

    /// The slot for the layer above (a znode).
    pub fn user(&self) -> MutexGuard<'_, UserData> {
        self.user.lock()
    }

    /// The ZAP's slot, apart from [`Dnode::user`]: a directory has both an index and a znode.
    pub fn index(&self) -> MutexGuard<'_, UserData> {
        self.index.lock()
    }

    /// True when a change waits for a sync.
    pub fn is_dirty(&self) -> bool {
        !self.contents.state.read().dirty.is_empty()
    }

    /// The oldest txg whose sync will change which blocks it has.
    pub fn blocks_change_in(&self) -> Option<Txg> {
        let state = self.contents.state.read();
        state.dirty.iter().find(|entry| !entry.blocks.is_empty() || entry.freed.is_some()).map(|entry| entry.txg)
    }

    /// The newest txg with changes that were not written yet; one that is being synced may not show any more.
    pub fn dirty_txg(&self) -> Option<Txg> {
        self.contents.state.read().dirty.last().map(|entry| entry.txg)
    }

    /// Facts, dirty changes included.
    pub fn info(&self) -> Result<DnodeInfo, DmuError> {
        let state = self.contents.state.read();
        let core = &state.core;
        if core.freed {
            return Err(DmuError::NoSuchObject);
        }
        Ok(DnodeInfo {
            object: self.object(),
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
            block_ptr_count: core.block_ptr_count,
            has_spill: core.has_spill,
            checksum: core.checksum,
            compression: core.compression,
        })
    }

    /// Bytes of a data block; for who needs no other fact.
    pub fn block_size(&self) -> Result<usize, DmuError> {
        self.contents.block_size()
    }

    /// Runs `change` on the state with the transaction's entry as the newest one. Before the first change of a txg it reads what the sync
    /// will need to write the record down (waits): what cannot be read is an error, and nothing was changed.
    pub(crate) fn change<R>(&self, tx: &Tx, change: impl FnOnce(&mut State) -> Result<R, DmuError>) -> Result<R, DmuError> {
        self.context.check_change(tx)?;
        let mut state = self.contents.state.write();
        if state.newest_in(tx.txg()).is_none() && !state.core.freed {
            drop(state);
            self.pin_record(tx)?;
            state = self.contents.state.write();
        }
        if state.core.freed {
            return Err(DmuError::NoSuchObject);
        }
        let is_first = state.begin(tx.txg())?;
        let result = change(&mut state);
        self.window.retain(|block, bp| state.has(block, bp));
        drop(state);
        if is_first && let Some(this) = self.this.upgrade() {
            self.context.add_dirty(this, tx);
        }
        result
    }

    /// Has what the sync will need to write this dnode's record, before its first change in a txg. An error is one of the block that
    /// holds the record or of one above it.
    fn pin_record(&self, tx: &Tx) -> Result<(), DmuError> {
        if tx.is_syncing() || is_own(self.object()) { Ok(()) } else { self.context.pin_record(self.object(), tx) }
    }

    /// The bonus, as long as its length.
    pub fn bonus(&self) -> Result<Arc<[u8]>, DmuError> {
        let state = self.contents.state.read();
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

    /// Has the record written anew as it is. [`DmuError::NoSuchObject`] when the object is freed.
    pub fn rewrite(&self, tx: &Tx) -> Result<(), DmuError> {
        self.change(tx, |_| Ok(()))
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
        self.contents.spill()
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
        tx.note_dirtied(2 * data.len() as u64);
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
        let dropped = self.change(tx, State::free)?;
        self.give_back(&dropped, tx.txg());
        Ok(())
    }

    /// Gives back what records held that a change of this txg took out.
    fn give_back(&self, dropped: &Dropped, txg: Txg) {
        let charged = dropped.charged_bytes();
        if charged > 0 {
            self.context.release(txg, charged);
        }
        let io = self.context.blocks.io();
        for bp in dropped.blocks() {
            io.free(txg, bp);
        }
        if let Some(clones) = io.clones() {
            dropped.shared().for_each(|bp| clones.take_back(txg, bp));
        }
    }
}
