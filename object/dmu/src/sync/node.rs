//! One dnode's way through a sync: write, rebuild the indirect blocks above, commit or take back.

use super::delta::SpaceDelta;
use super::pointer::{Shape, finish_pointer};
use super::write_set::WriteSet;
use crate::blocks::Blocks;
use crate::dnode::{Changes, Core, Form, Place, Record, SPILL_BLOCK, SpillChange, Tree, dnode_phys};
use crate::objset::count_dnodes;
use crate::props::{BlockKind, ObjsetProps, write_policy};
use crate::{BlockError, BlockLedger, BlockWrite, DmuError, Dnode};
use abd::Abd;
use ondisk::{BlockPtr, DnodePhys, META_DNODE_OBJECT, ObjectId, ObjectType, Txg};
use range_tree::RangeTree;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A write in flight.
struct Pending {
    id: u64,
    old: BlockPtr,
    shape: Shape,
    index: usize,
    /// Bytes being written; kept for the meta-dnode only.
    data: Option<Abd>,
}

/// Facts about a dnode that was synced that the accounting needs.
#[derive(Debug)]
pub(super) struct Committed {
    pub dnode: Arc<Dnode>,
    pub before: Arc<Tree>,
    pub after: Arc<Tree>,
}

/// A dnode being synced.
pub(super) struct NodeSync {
    pub dnode: Arc<Dnode>,
    pub txg: Txg,
    pub props: ObjsetProps,
    /// Facts as the txg leaves them.
    pub core: Core,
    /// The tree before.
    pub tree: Arc<Tree>,
    pub blocks: Arc<BTreeMap<u64, Record>>,
    pub freed: Option<Box<RangeTree>>,
    spill_change: SpillChange,
    /// New pointers of the level that was finished last.
    pub edits: BTreeMap<u64, BlockPtr>,
    /// Level-1 blocks that became holes as a whole: decided while freeing, merged when level 1 is built.
    pub emptied: BTreeMap<u64, BlockPtr>,
    pending: Vec<Pending>,
    /// Blocks of the meta-dnode that were written: place, pointer, bytes.
    written: Vec<(Place, BlockPtr, Abd)>,
    levels: u8,
    new_ptrs: [BlockPtr; 3],
    new_spill: Option<BlockPtr>,
    pub flags: u8,
    space: SpaceDelta,
    pub error: Option<DmuError>,
}

impl NodeSync {
    /// Takes what the dnode changed in `txg`; `None` when that is nothing.
    pub(super) fn begin(dnode: Arc<Dnode>, txg: Txg, props: ObjsetProps) -> Option<NodeSync> {
        let Changes { core, tree, blocks, freed, spill: spill_change } = dnode.contents.changes(txg)?;
        let levels = core.levels_needed(tree.levels);
        debug_assert!(levels >= tree.levels, "a tree only grows upwards");
        debug_assert!(blocks.last_key_value().is_none_or(|(&last, _)| last <= core.max_block), "no record lies beyond the largest block");
        let new_ptrs = if levels > tree.levels { [BlockPtr::HOLE; 3] } else { tree.block_ptrs };
        Some(NodeSync {
            dnode,
            txg,
            props,
            new_spill: tree.spill,
            flags: tree.flags,
            core,
            tree,
            blocks,
            freed,
            spill_change,
            edits: BTreeMap::new(),
            emptied: BTreeMap::new(),
            pending: Vec::new(),
            written: Vec::new(),
            levels,
            new_ptrs,
            space: SpaceDelta::default(),
            error: None,
        })
    }

    /// The number of the object.
    pub(super) fn object(&self) -> ObjectId {
        self.dnode.object()
    }

    fn store(&self) -> &Blocks {
        &self.dnode.context.blocks
    }

    /// True when the dnode's record exists on disk.
    pub(super) fn exists(&self) -> bool {
        self.tree.exists
    }

    /// True when a level above the data has to be built.
    pub(super) fn has_level(&self, level: u8) -> bool {
        self.error.is_none() && !self.core.freed && level < self.levels
    }

    /// Processes the frees and starts the writes of the data blocks.
    pub(super) fn start(&mut self, set: &mut WriteSet) {
        let result = if self.core.freed { self.free_everything() } else { self.start_level0(set) };
        self.note(result);
    }

    fn note(&mut self, result: Result<(), DmuError>) {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }

    fn start_level0(&mut self, set: &mut WriteSet) -> Result<(), DmuError> {
        if let Some(freed) = self.freed.take() {
            self.free_ranges(&freed)?;
        }
        self.start_spill(set);
        if self.tree.levels > 1 {
            self.prefetch_parents();
        }
        let blocks = self.blocks.clone();
        for (&id, block) in blocks.iter() {
            let old = self.dnode.contents.reader.pointer(&self.tree, 0, id)?;
            let (data, form) = match block {
                Record::Data(block) => block.to_write(),
                Record::Written(written) => {
                    self.adopt(id, &old, &written.bp);
                    continue;
                }
            };
            let fill = if self.core.kind == ObjectType::DNODE { count_in(&data) } else { 1 };
            let is_of_dnodes = self.dnode.object() == META_DNODE_OBJECT;
            let form = if is_of_dnodes { self.dnode.context.sealed.form_of_dnodes(id, &data, &old) } else { form };
            self.write(set, (0, id), old, (data, form), fill);
        }
        Ok(())
    }

    /// A direct write put the block where it is, or it is another object's, too: only its pointer moves.
    fn adopt(&mut self, id: u64, old: &BlockPtr, written: &BlockPtr) {
        let shape = Shape {
            txg: self.txg,
            lsize: self.core.block_size,
            object_type: self.core.kind,
            level: 0,
            fill: 1,
            hole_birth: self.props.hole_birth,
        };
        let new = finish_pointer(*written, old, &shape);
        let io = self.dnode.context.blocks.io();
        self.space.adopt(io.as_ref(), old, &new);
        self.edits.insert(id, new);
    }

    fn start_spill(&mut self, set: &mut WriteSet) {
        let old = self.tree.spill.unwrap_or(BlockPtr::HOLE);
        match std::mem::take(&mut self.spill_change) {
            SpillChange::Keep => {}
            SpillChange::Remove => {
                self.replace(&old, &BlockPtr::HOLE);
                self.new_spill = None;
            }
            SpillChange::Write(data) => self.write(set, (0, SPILL_BLOCK), old, (data, None), 1),
            SpillChange::Stored(data, form) => self.write(set, (0, SPILL_BLOCK), old, (data, Some(form)), 1),
        }
    }

    /// Starts one write; with a form the bytes are those that are stored.
    fn write(&mut self, set: &mut WriteSet, at: (u8, u64), old: BlockPtr, (data, form): (Abd, Option<Form>), fill: u64) {
        let (level, id) = at;
        let spill = id == SPILL_BLOCK;
        let object_type = if spill { self.core.bonus_type } else { self.core.kind };
        let policy = write_policy(
            &self.props,
            BlockKind { object_type: self.core.kind, level, spill, checksum: self.core.checksum, compression: self.core.compression },
        );
        let lsize = form.map_or(data.len(), |form| form.lsize);
        let shape = Shape { txg: self.txg, lsize, object_type, level, fill, hole_birth: self.props.hole_birth };
        let mut write = BlockWrite {
            txg: self.txg,
            bookmark: self.store().bookmark(self.dnode.object(), level, id),
            data,
            object_type,
            level,
            fill,
            checksum: policy.checksum,
            compression: policy.compression,
            zstd_level: policy.zstd_level,
            copies: policy.copies,
            small_bytes: policy.small_bytes,
            dedup: policy.dedup,
            previous: old,
            keep: self.props.primary_cache.keep(level > 0 || object_type.is_metadata() || spill),
            seal: None,
        };
        self.dnode.context.sealed.protect(&mut write, form);
        let data = (self.dnode.object() == META_DNODE_OBJECT).then(|| write.data.clone());
        let expected = if level > 0 { 1 << self.core.indirect_shift } else { self.core.block_size };
        debug_assert!(spill || lsize == expected, "a block is as long as the object says");
        debug_assert!(level < self.levels, "a block lies below the dnode");
        let index = set.submit(write);
        self.pending.push(Pending { id, old, shape, index, data });
    }

    /// Takes the results of the writes that this dnode started since the last time.
    pub(super) fn collect(&mut self, results: &[Result<BlockPtr, BlockError>]) {
        for pending in std::mem::take(&mut self.pending) {
            match results[pending.index] {
                Err(error) => {
                    let at = self.store().bookmark(self.dnode.object(), pending.shape.level, pending.id);
                    self.note(Err(DmuError::of_block(error, at)));
                }
                Ok(new) => {
                    let new = finish_pointer(new, &pending.old, &pending.shape);
                    self.replace(&pending.old, &new);
                    if let Some(data) = pending.data {
                        self.written.push(((pending.shape.level, pending.id), new, data));
                    }
                    if pending.id == SPILL_BLOCK {
                        self.new_spill = (!new.is_hole()).then_some(new);
                    } else {
                        self.edits.insert(pending.id, new);
                    }
                }
            }
        }
    }

    /// Notes that `new` takes the place of `old`.
    pub(super) fn replace(&mut self, old: &BlockPtr, new: &BlockPtr) {
        let io = self.dnode.context.blocks.io();
        self.space.replace(io.as_ref(), old, new);
    }

    /// Builds the blocks of `level` above the edits and starts their writes.
    pub(super) fn build(&mut self, level: u8, set: &mut WriteSet) {
        let result = self.build_level(level, set);
        self.note(result);
    }

    fn build_level(&mut self, level: u8, set: &mut WriteSet) -> Result<(), DmuError> {
        debug_assert!(self.pending.is_empty(), "nothing is referenced before it is written");
        debug_assert!(0 < level && level < self.levels, "indirect blocks lie between data and dnode");
        let shift = self.core.pointer_shift();
        let children = std::mem::take(&mut self.edits);
        if level == 1 {
            self.edits = std::mem::take(&mut self.emptied);
        }
        let moves_root = level == self.tree.levels && self.levels > self.tree.levels;
        let mut rest = children.into_iter().peekable();
        let mut root_moved = !moves_root || self.tree.block_ptrs == [BlockPtr::HOLE; 3];
        while let Some(&(first, _)) = rest.peek() {
            let id = first >> shift;
            root_moved |= id == 0;
            let mut group = Vec::new();
            while let Some(child) = rest.next_if(|(child, _)| child >> shift == id) {
                group.push(child);
            }
            self.build_block((level, id), &group, set)?;
        }
        if !root_moved {
            self.build_block((level, 0), &[], set)?;
        }
        Ok(())
    }

    /// Builds one indirect block: the old one with new pointers.
    fn build_block(&mut self, at: (u8, u64), children: &[(u64, BlockPtr)], set: &mut WriteSet) -> Result<(), DmuError> {
        let (level, id) = at;
        let (old, mut block) = self.parent_block(level, id)?;
        let shift = self.core.pointer_shift();
        let bytes = block.make_mut();
        for (child, bp) in children {
            let start = (child & ((1 << shift) - 1)) as usize * BlockPtr::BYTES;
            bytes[start..start + BlockPtr::BYTES].copy_from_slice(&bp.encode());
        }
        match fill_below(bytes) {
            Some(fill) => self.write(set, at, old, (block, None), fill),
            None => {
                let shape = self.indirect_shape(level);
                let new = finish_pointer(BlockPtr::HOLE, &old, &shape);
                self.replace(&old, &new);
                self.edits.insert(id, new);
            }
        }
        Ok(())
    }

    pub(super) fn indirect_shape(&self, level: u8) -> Shape {
        Shape {
            txg: self.txg,
            lsize: 1 << self.core.indirect_shift,
            object_type: self.core.kind,
            level,
            fill: 0,
            hole_birth: self.props.hole_birth,
        }
    }

    /// An indirect block before the changes, and its pointer.
    fn parent_block(&self, level: u8, id: u64) -> Result<(BlockPtr, Abd), DmuError> {
        let size = 1usize << self.core.indirect_shift;
        if level >= self.tree.levels {
            let mut block = Abd::zeroed(size);
            if level == self.tree.levels && id == 0 {
                // The tree grows: what the dnode pointed to is now the start of a new indirect block.
                let roots = &self.tree.block_ptrs[..usize::from(self.tree.block_ptr_count)];
                for (raw, bp) in block.make_mut().chunks_exact_mut(BlockPtr::BYTES).zip(roots) {
                    raw.copy_from_slice(&bp.encode());
                }
            }
            return Ok((BlockPtr::HOLE, block));
        }
        let old = self.dnode.contents.reader.pointer(&self.tree, level, id)?;
        if !old.is_hole() {
            let block = self.dnode.contents.reader.indirect(&self.tree, level, id)?.ok_or(BlockError::Corrupt)?;
            return Ok((old, block.to_contiguous()));
        }
        let mut block = Abd::zeroed(size);
        if old.birth() != Txg::ZERO {
            // The hole's birth goes to each of its children (OpenZFS: `dbuf_handle_indirect_hole`).
            let mut child = BlockPtr::HOLE;
            child.set_lsize(if level == 1 { self.core.block_size } else { size });
            child.set_object_type(self.core.kind);
            child.set_level(level - 1);
            child.set_birth(old.birth(), old.birth());
            let raw = child.encode();
            block.make_mut().chunks_exact_mut(BlockPtr::BYTES).for_each(|out| out.copy_from_slice(&raw));
        }
        Ok((old, block))
    }

    /// The tree after the sync. The edits that are left belong to the highest level.
    fn new_tree(&self) -> Tree {
        let mut block_ptrs = self.new_ptrs;
        for (&id, bp) in &self.edits {
            if let Some(slot) = block_ptrs.get_mut(id as usize) {
                *slot = *bp;
            }
        }
        Tree {
            generation: self.tree.generation + 1,
            levels: self.levels,
            indirect_shift: self.core.indirect_shift,
            block_ptrs,
            block_ptr_count: self.core.block_ptr_count,
            spill: self.new_spill,
            used_bytes: self.space.used_after(self.tree.used_bytes),
            flags: self.flags,
            exists: !self.core.freed,
            bonus_type: self.core.bonus_type,
            bonus: self.core.bonus.clone(),
        }
    }

    /// The dnode's record after the sync.
    pub(super) fn phys(&self) -> DnodePhys {
        dnode_phys(&self.core, &self.new_tree(), self.store().props().counts_sectors)
    }

    /// Swaps the new tree in, drops the txg's dirty records, and tells the ledger.
    pub(super) fn commit(self, ledger: &dyn BlockLedger) -> Committed {
        debug_assert!(self.pending.is_empty() && self.error.is_none(), "nothing is referenced before it is written");
        let roots = u64::from(self.core.block_ptr_count);
        debug_assert!(self.core.freed || self.edits.keys().all(|&id| id < roots), "what is left to be put in place are roots");
        let after = Arc::new(self.new_tree());
        let (written, txg) = (self.written, self.txg);
        let entry = self.dnode.contents.commit(txg, after.clone(), || {
            if !written.is_empty() {
                self.dnode.context.pins.renew(written, txg);
            }
        });
        // Only now is the memory of the dirty blocks given up (it may live on in the cache, which has a budget of its own).
        let bytes = entry.iter().flat_map(|entry| entry.blocks.values()).map(Record::charged_bytes).sum();
        drop((entry, self.blocks));
        self.dnode.context.release(self.txg, bytes);
        self.space.settle(ledger, self.txg);
        Committed { dnode: self.dnode, before: self.tree, after }
    }

    /// Frees what was written for a sync that failed.
    pub(super) fn abandon(self) {
        self.space.give_back(self.dnode.context.blocks.io().as_ref(), self.txg);
    }
}

fn count_in(block: &Abd) -> u64 {
    match block.as_contiguous() {
        Some(bytes) => count_dnodes(bytes),
        None => count_dnodes(&block.to_vec()),
    }
}

/// Blocks below an indirect block; `None` when it has only holes.
fn fill_below(block: &[u8]) -> Option<u64> {
    let pointers = block.chunks_exact(BlockPtr::BYTES).filter_map(<[u8]>::first_chunk);
    let fills = pointers.map(|raw| BlockPtr::decode(raw, true)).filter(|bp| !bp.is_hole()).map(|bp| bp.fill());
    fills.fold(None, |sum: Option<u64>, fill| Some(sum.unwrap_or(0) + fill))
}
