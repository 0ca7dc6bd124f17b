//! What a dnode holds in memory: its facts, the tree as of the last sync, and per txg what changed since.
//!
//! `dirty` is ordered by txg, at most one entry per txg: usually none, one (open) or two (open and syncing). Looking for a
//! block goes from the newest entry to the oldest and then to the tree. When a newer txg first changes the dnode, the entry
//! of the older one keeps a copy of the facts as they were ([`TxgDirty::core`]): that is what its sync writes.

use crate::memory::{Counted, What};
use abd::Abd;
use exec::Mutex;
use ondisk::{BlockPtr, Checksum, Compression, DNODE_BLOCK_PTRS_MAX, DnodePhys, ObjectType, Txg, dnode_flags};
use range_tree::RangeTree;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Facts that change in open context.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub kind: ObjectType,
    pub bonus_type: ObjectType,
    pub bonus: Arc<[u8]>,
    pub block_size: usize,
    pub indirect_shift: u8,
    pub block_ptr_count: u8,
    /// Never fewer levels than this (the meta-dnode of a data set starts with all it will need).
    pub levels_min: u8,
    pub slots: u8,
    pub checksum: Checksum,
    pub compression: Compression,
    pub max_block: u64,
    pub has_spill: bool,
    pub freed: bool,
}

impl Core {
    pub(crate) fn from_phys(phys: &DnodePhys) -> Core {
        Core {
            kind: phys.object_type,
            bonus_type: phys.bonus_type,
            bonus: Arc::from(phys.bonus.as_slice()),
            block_size: phys.data_block_bytes(),
            indirect_shift: phys.indirect_shift,
            block_ptr_count: phys.block_ptr_count,
            levels_min: phys.levels,
            slots: phys.extra_slots + 1,
            checksum: phys.checksum,
            compression: phys.compression,
            max_block: phys.max_block.0,
            has_spill: phys.spill.is_some(),
            freed: false,
        }
    }

    /// log2 of the pointers in an indirect block.
    pub(crate) fn pointer_shift(&self) -> u32 {
        u32::from(self.indirect_shift) - 7
    }

    /// Levels that reach `max_block` (OpenZFS: `dnode_new_blkid`).
    pub(crate) fn levels_needed(&self, have: u8) -> u8 {
        let mut levels = have.max(self.levels_min).max(1);
        let reach = |levels: u8| u128::from(self.block_ptr_count) << (self.pointer_shift() * u32::from(levels - 1)).min(100);
        while u128::from(self.max_block) >= reach(levels) {
            levels += 1;
        }
        levels
    }
}

/// The block tree as of the last sync; immutable, replaced as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// Counts the replacements: what was cached under another generation is stale.
    pub generation: u64,
    pub levels: u8,
    pub indirect_shift: u8,
    pub block_ptrs: [BlockPtr; DNODE_BLOCK_PTRS_MAX],
    pub block_ptr_count: u8,
    pub spill: Option<BlockPtr>,
    pub used_bytes: u64,
    pub flags: u8,
    /// The dnode is on disk.
    pub exists: bool,
    /// Bonus as of the sync: tells whom the space is charged to.
    pub bonus_type: ObjectType,
    pub bonus: Arc<[u8]>,
}

impl Tree {
    /// The tree of a dnode that was never synced.
    pub(crate) fn empty(core: &Core) -> Tree {
        Tree {
            generation: 0,
            levels: 1,
            indirect_shift: core.indirect_shift,
            block_ptrs: [BlockPtr::HOLE; DNODE_BLOCK_PTRS_MAX],
            block_ptr_count: core.block_ptr_count,
            spill: None,
            used_bytes: 0,
            flags: dnode_flags::USED_BYTES,
            exists: false,
            bonus_type: ObjectType::NONE,
            bonus: Arc::from([].as_slice()),
        }
    }

    pub(crate) fn from_phys(phys: &DnodePhys, bonus: &Arc<[u8]>) -> Tree {
        Tree {
            generation: 0,
            levels: phys.levels,
            indirect_shift: phys.indirect_shift,
            block_ptrs: phys.block_ptrs,
            block_ptr_count: phys.block_ptr_count,
            spill: phys.spill,
            used_bytes: phys.used_bytes(),
            flags: phys.flags | dnode_flags::USED_BYTES,
            exists: true,
            bonus_type: phys.bonus_type,
            bonus: bonus.clone(),
        }
    }

    /// log2 of the pointers in an indirect block.
    pub(crate) fn pointer_shift(&self) -> u32 {
        u32::from(self.indirect_shift) - 7
    }

    /// The pointer at the dnode itself, for a block of the highest level.
    pub(crate) fn root(&self, id: u64) -> BlockPtr {
        match usize::try_from(id) {
            Ok(index) if index < usize::from(self.block_ptr_count) => self.block_ptrs[index],
            _ => BlockPtr::HOLE,
        }
    }

    /// Non-hole blocks below the dnode (dnodes, for the meta-dnode).
    pub(crate) fn fill(&self) -> u64 {
        self.block_ptrs[..usize::from(self.block_ptr_count)].iter().filter(|bp| !bp.is_hole()).map(BlockPtr::fill).sum()
    }
}

/// The bytes of a dirty block. Beyond `valid` they are unspecified and stand for zeros: a block that grows by small
/// appends is not cleared first.
#[derive(Debug)]
struct Filling {
    abd: Abd,
    valid: usize,
}

/// A modified block of one txg. Written to only under a hold on that txg.
#[derive(Debug)]
pub(crate) struct DirtyBlock {
    filling: Mutex<Filling>,
    /// It counts as dirty bytes.
    pub charged: bool,
    _counted: Counted,
}

fn counted() -> Counted {
    Counted::new(What::Dbuf, size_of::<DirtyBlock>())
}

impl DirtyBlock {
    /// A block with these bytes.
    pub(crate) fn new(abd: Abd, charged: bool) -> DirtyBlock {
        let valid = abd.len();
        DirtyBlock { filling: Mutex::new(Filling { abd, valid }), charged, _counted: counted() }
    }

    /// A block of zeros that was not cleared yet.
    pub(crate) fn blank(size: usize, charged: bool) -> DirtyBlock {
        DirtyBlock { filling: Mutex::new(Filling { abd: Abd::scratch(size), valid: 0 }), charged, _counted: counted() }
    }

    /// Its size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.filling.lock().abd.len()
    }

    /// All its bytes, shared.
    pub(crate) fn data(&self) -> Abd {
        let mut filling = self.filling.lock();
        filling.complete();
        filling.abd.clone()
    }

    /// True when every byte is zero.
    pub(crate) fn is_zero(&self) -> bool {
        let filling = self.filling.lock();
        let mut left = filling.valid;
        filling.abd.chunks().all(|chunk| {
            let valid = &chunk[..chunk.len().min(left)];
            left -= valid.len();
            abd::slice_is_zero(valid)
        })
    }

    /// Copies from it without taking a share (which would make the next write copy the block).
    pub(crate) fn copy_to(&self, offset: usize, out: &mut [u8]) {
        let filling = self.filling.lock();
        let have = filling.valid.saturating_sub(offset).min(out.len());
        if have > 0 {
            filling.abd.copy_to(offset, &mut out[..have]);
        }
        out[have..].fill(0);
    }

    /// Overwrites a part.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let mut filling = self.filling.lock();
        let valid = filling.valid;
        let end = offset + bytes.len();
        if offset > valid {
            filling.abd.make_mut()[valid..offset].fill(0);
        }
        filling.abd.copy_from(offset, bytes);
        filling.valid = valid.max(end);
    }

    /// Zeroes a part.
    pub(crate) fn zero(&self, offset: usize, length: usize) {
        let mut filling = self.filling.lock();
        let end = (offset + length).min(filling.valid);
        if offset < end {
            filling.abd.make_mut()[offset..end].fill(0);
        }
    }

    /// Changes it in place.
    pub(crate) fn modify<R>(&self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut filling = self.filling.lock();
        filling.complete();
        change(filling.abd.make_mut())
    }

    /// Replaces all its bytes.
    pub(crate) fn replace(&self, abd: Abd) {
        *self.filling.lock() = Filling { valid: abd.len(), abd };
    }
}

/// A block of one txg that is on disk already: a direct write put it there. Costs no memory to speak of and, when the txg is
/// synced, no data I/O: the pointer goes into the parent (OpenZFS: a dirty record that is overridden, `dr_override_state`).
#[derive(Debug)]
pub(crate) struct Written {
    /// Where it is; a hole when it was all zeros. Nobody else refers to it: whoever drops the record gives the space back.
    pub bp: BlockPtr,
}

/// What a txg did to a block.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    /// New bytes, in memory.
    Data(Arc<DirtyBlock>),
    /// New bytes, on disk.
    Written(Arc<Written>),
}

impl Record {
    /// Bytes that count as dirty.
    pub(crate) fn charged_bytes(&self) -> u64 {
        match self {
            Record::Data(block) if block.charged => block.len() as u64,
            _ => 0,
        }
    }
}

/// Records that a change took out: what they hold is given back when the lock is released.
#[derive(Debug, Default)]
pub(crate) struct Dropped(Vec<Record>);

impl Dropped {
    pub(crate) fn push(&mut self, record: Option<Record>) {
        self.0.extend(record);
    }
    /// Bytes that counted as dirty.
    pub(crate) fn charged_bytes(&self) -> u64 {
        self.0.iter().map(Record::charged_bytes).sum()
    }
    /// Blocks on disk that nobody refers to any more.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &BlockPtr> {
        let written = self.0.iter().filter_map(|record| if let Record::Written(written) = record { Some(&written.bp) } else { None });
        written.filter(|bp| !bp.is_hole() && !bp.is_embedded())
    }
}

impl Filling {
    fn complete(&mut self) {
        if self.valid < self.abd.len() {
            let valid = self.valid;
            self.abd.make_mut()[valid..].fill(0);
            self.valid = self.abd.len();
        }
    }
}

/// What a txg does to the spill block.
#[derive(Clone, Debug, Default)]
pub(crate) enum SpillChange {
    #[default]
    Keep,
    Write(Abd),
    Remove,
}

/// What changed in one txg.
#[derive(Debug)]
pub(crate) struct TxgDirty {
    pub txg: Txg,
    /// The facts at the end of this txg, once a newer txg changes them.
    pub core: Option<Core>,
    /// Shared with the sync, which starts when nothing of this txg changes any more.
    pub blocks: Arc<BTreeMap<u64, Record>>,
    /// Blocks freed in this txg; those that were written afterwards are in `blocks`, too.
    pub freed: Option<Box<RangeTree>>,
    pub spill: SpillChange,
}

impl TxgDirty {
    pub(crate) fn new(txg: Txg) -> TxgDirty {
        TxgDirty { txg, core: None, blocks: Arc::default(), freed: None, spill: SpillChange::Keep }
    }

    pub(crate) fn is_freed(&self, block: u64) -> bool {
        self.freed.as_ref().is_some_and(|freed| freed.contains(block, 1))
    }
}

/// Where a block's newest bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// In memory, dirty since this txg.
    Dirty(Txg, Arc<DirtyBlock>),
    /// On disk, by a direct write of a txg that is not synced.
    Written(Arc<Written>),
    /// Freed and not written since.
    Freed,
    /// Where the tree says.
    Clean(Arc<Tree>),
}

/// Everything under the dnode's lock.
#[derive(Debug)]
pub(crate) struct State {
    pub core: Core,
    pub tree: Arc<Tree>,
    pub dirty: Vec<TxgDirty>,
}

impl State {
    /// Where the newest bytes of `block` are.
    pub(crate) fn find(&self, block: u64) -> Found {
        for entry in self.dirty.iter().rev() {
            match entry.blocks.get(&block) {
                Some(Record::Data(found)) => return Found::Dirty(entry.txg, found.clone()),
                Some(Record::Written(found)) => return Found::Written(found.clone()),
                None => {}
            }
            if entry.is_freed(block) {
                return Found::Freed;
            }
        }
        Found::Clean(self.tree.clone())
    }

    /// The entry of `txg`, when it has one.
    pub(crate) fn entry(&self, txg: Txg) -> Option<&TxgDirty> {
        self.dirty.iter().find(|entry| entry.txg == txg)
    }

    /// The entry of `txg` when that is the newest.
    pub(crate) fn newest_in(&self, txg: Txg) -> Option<&TxgDirty> {
        self.dirty.last().filter(|entry| entry.txg == txg)
    }

    /// The facts as `txg` leaves them.
    pub(crate) fn core_at(&self, txg: Txg) -> &Core {
        self.entry(txg).and_then(|entry| entry.core.as_ref()).unwrap_or(&self.core)
    }
}
