//! The blocks of an object as its users see them: what txgs changed, over the tree as of the last sync.
//!
//! A pointer that was found may be stale by the time it is used: a sync can replace the tree and free the block meanwhile.
//! Freed space isn't reused for two txgs and the old bytes equal the new ones unless somebody wrote, so a stale read is
//! correct when it succeeds; when it fails and the tree has been replaced, the block is looked up again.

use super::core::Core;
use super::dirty::{DirtyBlock, Record, Written};
use super::indirect::TreeReader;
use super::state::{Found, SpillChange, State, TxgDirty};
use super::tree::Tree;
use crate::DmuError;
use abd::Abd;
use exec::RwLock;
use ondisk::{BlockPtr, Txg};
use range_tree::RangeTree;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The block number of a spill block in bookmarks (OpenZFS: `DMU_SPILL_BLKID`).
pub(crate) const SPILL_BLOCK: u64 = u64::MAX - 1;

/// The bytes of one block.
pub(super) enum Fetched {
    Zeros,
    Dirty(Arc<DirtyBlock>),
    Clean(Abd),
}

/// Changes of one txg, as its sync takes them.
pub(crate) struct Changes {
    /// Facts as the txg leaves them.
    pub core: Core,
    /// The tree before.
    pub tree: Arc<Tree>,
    /// Blocks that were written.
    pub blocks: Arc<BTreeMap<u64, Record>>,
    /// Blocks that were freed before.
    pub freed: Option<Box<RangeTree>>,
    pub spill: SpillChange,
}

/// The dirty data of an object over its tree.
pub(crate) struct Contents {
    pub(super) state: RwLock<State>,
    pub(crate) reader: TreeReader,
}

impl Contents {
    pub(super) fn new(reader: TreeReader, core: Core, tree: Tree) -> Contents {
        Contents { state: RwLock::new(State { core, tree: Arc::new(tree), dirty: Vec::new() }), reader }
    }

    /// The tree as of the last sync.
    pub(crate) fn tree(&self) -> Arc<Tree> {
        self.state.read().tree.clone()
    }

    /// Place of the newest bytes of `block`.
    pub(super) fn find(&self, block: u64) -> Found {
        self.state.read().find(block)
    }

    /// True after the object was freed, also when that is not synced yet.
    pub(crate) fn is_freed(&self) -> bool {
        self.state.read().core.freed
    }

    /// Data block size in bytes, and the largest block ever written.
    pub(super) fn extent(&self) -> Result<(u64, u64), DmuError> {
        let state = self.state.read();
        if state.core.freed { Err(DmuError::NoSuchObject) } else { Ok((state.core.block_size as u64, state.core.max_block)) }
    }

    /// True when something changed in `txg`.
    pub(crate) fn has_changes(&self, txg: Txg) -> bool {
        self.state.read().entry(txg).is_some()
    }

    /// Facts as `txg` leaves them, and the tree.
    pub(crate) fn record_at(&self, txg: Txg) -> (Core, Arc<Tree>) {
        let state = self.state.read();
        (state.core_at(txg).clone(), state.tree.clone())
    }

    /// Changes of `txg`; `None` when nothing changed.
    pub(crate) fn changes(&self, txg: Txg) -> Option<Changes> {
        let state = self.state.read();
        let entry = state.entry(txg)?;
        debug_assert!(state.dirty.first().is_some_and(|oldest| oldest.txg == txg), "txgs are synced in their order");
        debug_assert!(state.dirty.len() == 1 || entry.core.is_some(), "facts of an older txg are its own");
        let core = state.core_at(txg).clone();
        let blocks = if core.freed { Arc::default() } else { entry.blocks.clone() };
        Some(Changes { core, tree: state.tree.clone(), blocks, freed: entry.freed.clone(), spill: entry.spill.clone() })
    }

    /// Runs `then` unless `tree` was replaced; no sync replaces it meanwhile.
    pub(super) fn while_current(&self, tree: &Tree, then: impl FnOnce()) -> bool {
        let state = self.state.read();
        let is_current = state.tree.generation == tree.generation;
        if is_current {
            then();
        }
        is_current
    }

    /// Puts the tree that the sync of `txg` made in place and drops the txg's changes, in one step: readers see the old tree under the dirty
    /// blocks, or the new tree. `meanwhile` runs inside of it. Gives what was dropped.
    pub(crate) fn commit(&self, txg: Txg, tree: Arc<Tree>, meanwhile: impl FnOnce()) -> Option<TxgDirty> {
        let mut state = self.state.write();
        debug_assert_eq!(tree.generation, state.tree.generation + 1, "each tree is replaced by the next one");
        debug_assert!(tree.levels >= state.tree.levels, "a tree only grows upwards");
        self.reader.renew(tree.generation);
        state.tree = tree;
        meanwhile();
        let at = state.dirty.iter().position(|entry| entry.txg == txg);
        debug_assert!(at.is_none_or(|at| at == 0), "txgs are synced in their order");
        at.map(|at| state.dirty.remove(at))
    }

    /// The newest bytes of a block.
    pub(super) fn fetch(&self, block: u64) -> Result<Fetched, DmuError> {
        self.fetch_run(block, &mut None)
    }

    /// As [`Contents::fetch`]; when the block isn't in memory, starts the reads up to the end of the run (and clears it).
    pub(super) fn fetch_run(&self, block: u64, run: &mut Option<u64>) -> Result<Fetched, DmuError> {
        let mut tries = 0;
        loop {
            let tree = {
                let state = self.state.read();
                if state.core.freed {
                    return Err(DmuError::NoSuchObject);
                }
                match state.find(block) {
                    Found::Dirty(_, found) => return Ok(Fetched::Dirty(found)),
                    Found::Written(found) => {
                        drop(state);
                        match self.fetch_written(block, &found)? {
                            Some(fetched) => return Ok(fetched),
                            None => continue,
                        }
                    }
                    Found::Freed => return Ok(Fetched::Zeros),
                    Found::Clean(_) if block > state.core.max_block => return Ok(Fetched::Zeros),
                    Found::Clean(tree) => tree,
                }
            };
            let found = self.reader.pointer(&tree, 0, block).and_then(|bp| {
                if bp.is_hole() {
                    return Ok(Fetched::Zeros);
                }
                let io = self.reader.blocks().io();
                if let Some(last) = *run {
                    if let Some(data) = io.cached(&bp) {
                        return Ok(Fetched::Clean(data));
                    }
                    *run = None;
                    self.prefetch_blocks(block..last + 1);
                }
                self.reader.read(&tree, &bp, (0, block)).map(Fetched::Clean)
            });
            match found {
                Ok(found) => return Ok(found),
                Err(error) => self.reader.retry_if_stale(&tree, &mut tries, error)?,
            }
        }
    }

    /// The newest bytes of a block when they are in memory as they are: nothing is waited for, read, or decompressed but its indirect blocks.
    pub(super) fn fetch_now(&self, block: u64) -> Option<Fetched> {
        let found = {
            let state = self.state.read();
            if state.core.freed {
                return None;
            }
            match state.find(block) {
                Found::Clean(_) if block > state.core.max_block => Found::Freed,
                found => found,
            }
        };
        let bp = match found {
            Found::Dirty(_, found) => return Some(Fetched::Dirty(found)),
            Found::Freed => return Some(Fetched::Zeros),
            Found::Written(written) => written.bp,
            Found::Clean(tree) => self.reader.pointer_at_hand(&tree, 0, block)?,
        };
        if bp.is_hole() { Some(Fetched::Zeros) } else { self.reader.blocks().io().at_hand(&bp).map(Fetched::Clean) }
    }

    /// The bytes of a block that a direct write put on disk; None when it was replaced meanwhile and its space perhaps, too.
    fn fetch_written(&self, block: u64, written: &Arc<Written>) -> Result<Option<Fetched>, DmuError> {
        if written.bp.is_hole() {
            return Ok(Some(Fetched::Zeros));
        }
        let blocks = self.reader.blocks();
        let (io, bookmark) = (blocks.io(), blocks.bookmark(self.reader.object(), 0, block));
        match io.read_kept(&written.bp, &bookmark, blocks.keep_of(&written.bp)) {
            Ok(data) => Ok(Some(Fetched::Clean(data))),
            Err(error) if self.still_has(block, written) => {
                io.lost(&written.bp, &bookmark, error);
                Err(DmuError::of_block(error, bookmark))
            }
            Err(_) => Ok(None),
        }
    }

    /// The tree, and the largest block ever written, when nothing of these blocks waits for a sync; None when something does.
    pub(super) fn settled(&self, blocks: &Range<u64>) -> Result<Option<(Arc<Tree>, u64)>, DmuError> {
        let state = self.state.read();
        if state.core.freed {
            return Err(DmuError::NoSuchObject);
        }
        let frees = |entry: &TxgDirty| entry.freed.as_ref().is_some_and(|freed| freed.first_overlap(blocks.clone()).is_some());
        let changes = |entry: &TxgDirty| entry.blocks.range(blocks.clone()).next().is_some() || frees(entry);
        Ok((!state.dirty.iter().any(changes)).then(|| (state.tree.clone(), state.core.max_block)))
    }

    /// True when the record is still the newest of its block.
    pub(super) fn still_has(&self, block: u64, written: &Arc<Written>) -> bool {
        matches!(self.state.read().find(block), Found::Written(now) if Arc::ptr_eq(&now, written))
    }

    pub(crate) fn block_size(&self) -> Result<usize, DmuError> {
        let state = self.state.read();
        if state.core.freed { Err(DmuError::NoSuchObject) } else { Ok(state.core.block_size) }
    }

    /// Reads a block unless it is dirty or a hole.
    pub(super) fn warm(&self, block: u64) -> Result<(), DmuError> {
        let found = self.find(block);
        if matches!(found, Found::Clean(_) | Found::Written(..)) { self.fetch(block).map(drop) } else { Ok(()) }
    }

    /// Reads the level-1 blocks above the blocks of a range: those that are there, however far apart they lie.
    pub(super) fn warm_indirects(&self, first: u64, last: u64) -> Result<(), DmuError> {
        let mut tries = 0;
        loop {
            let tree = self.tree();
            if tree.levels == 1 {
                return Ok(());
            }
            let shift = tree.pointer_shift();
            match self.reader.warm_between(&tree, first >> shift, last >> shift) {
                Ok(()) => return Ok(()),
                Err(error) => self.reader.retry_if_stale(&tree, &mut tries, error)?,
            }
        }
    }

    /// Starts the reads of a range's clean blocks, as far as their pointers are known without waiting.
    pub(super) fn prefetch_blocks(&self, blocks: Range<u64>) {
        for block in blocks {
            let found = self.find(block);
            let bp = match found {
                Found::Clean(tree) => self.reader.pointer_now(&tree, 0, block),
                Found::Written(written) => Some(written.bp),
                Found::Dirty(..) | Found::Freed => continue,
            };
            let Some(bp) = bp else { return };
            if !bp.is_hole() && !bp.is_embedded() {
                self.reader.prefetch(&bp, (0, block));
            }
        }
    }

    /// Number of blocks that take no read: dirty ones, holes, and those that `holds` says are in memory.
    pub(super) fn blocks_in_memory(&self, holds: &dyn Fn(&BlockPtr) -> bool) -> u64 {
        let max_block = {
            let state = self.state.read();
            if state.core.freed {
                return 0;
            }
            state.core.max_block
        };
        let is_there = |bp: &BlockPtr| bp.is_hole() || bp.is_embedded() || holds(bp);
        let takes_none = |block: &u64| match self.find(*block) {
            Found::Clean(tree) => self.reader.pointer_now(&tree, 0, *block).is_some_and(|bp| is_there(&bp)),
            Found::Written(written) => is_there(&written.bp),
            Found::Dirty(..) | Found::Freed => true,
        };
        (0..=max_block).filter(takes_none).count() as u64
    }

    /// The spill block, when there is one.
    pub(super) fn spill(&self) -> Result<Option<Abd>, DmuError> {
        let mut tries = 0;
        loop {
            let tree = {
                let state = self.state.read();
                if state.core.freed {
                    return Err(DmuError::NoSuchObject);
                }
                match state.spill_change() {
                    Some(SpillChange::Write(data)) => return Ok(Some(data.clone())),
                    Some(_) => return Ok(None),
                    None => state.tree.clone(),
                }
            };
            let Some(bp) = tree.spill else { return Ok(None) };
            match self.reader.read(&tree, &bp, (0, SPILL_BLOCK)) {
                Ok(data) => return Ok(Some(data)),
                Err(error) => self.reader.retry_if_stale(&tree, &mut tries, error)?,
            }
        }
    }

    /// Takes blocks out of the cache whose last byte lies in the range: a reader that goes on in a block still wants it. Never
    /// waits; blocks whose pointer is not in memory stay.
    pub(super) fn forget(&self, offset: u64, length: usize) {
        let (block_size, max_block, freed) = {
            let state = self.state.read();
            (state.core.block_size as u64, state.core.max_block, state.core.freed)
        };
        if freed {
            return;
        }
        let end = offset.saturating_add(length as u64);
        let last = (end / block_size).min(max_block.saturating_add(1));
        for block in offset / block_size..last {
            let found = self.find(block);
            if let Found::Clean(tree) = found
                && let Some(bp) = self.reader.pointer_now(&tree, 0, block)
                && !bp.is_hole()
            {
                self.reader.blocks().io().forget(&bp);
            }
        }
    }
}
