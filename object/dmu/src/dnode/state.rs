//! What a dnode holds under its lock: its facts, the tree as of the last sync, and per txg what changed since.
//!
//! `dirty` is ordered by txg, at most one entry per txg: usually none, one (open) or two (open and syncing). Looking for a
//! block goes from the newest entry to the oldest and then to the tree. When a newer txg first changes the dnode, the entry
//! of the older one keeps a copy of the facts as they were ([`TxgDirty::core`]): that is what its sync writes.

use super::core::Core;
use super::dirty::{DirtyBlock, Dropped, Record, Written};
use super::form::Form;
use super::tree::Tree;
use crate::DmuError;
use crate::budget::TXG_SLOTS;
use abd::Abd;
use ondisk::{BlockPtr, Txg};
use range_tree::RangeTree;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Change of the spill block by a txg.
#[derive(Clone, Debug, Default)]
pub(crate) enum SpillChange {
    #[default]
    Keep,
    Write(Abd),
    /// Bytes that are stored as they are.
    Stored(Abd, Form),
    Remove,
}

/// Changes of one txg.
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

/// Place of a block's newest bytes.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// In memory, dirty since this txg.
    Dirty(Txg, Arc<DirtyBlock>),
    /// On disk, by a direct write of a txg that is not synced.
    Written(Arc<Written>),
    /// Freed and not written since.
    Freed,
    /// In the place that the tree has for the block.
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
    /// Place of the newest bytes of `block`.
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

    /// True unless a change replaced the bytes of `block` that were read by this pointer.
    pub(crate) fn has(&self, block: u64, bp: &BlockPtr) -> bool {
        let is_there = match self.find(block) {
            Found::Dirty(..) | Found::Freed => false,
            Found::Written(written) => written.bp == *bp,
            Found::Clean(_) => block <= self.core.max_block,
        };
        is_there && !self.core.freed
    }

    /// The entry of `txg`, when it has one.
    pub(crate) fn entry(&self, txg: Txg) -> Option<&TxgDirty> {
        self.dirty.iter().find(|entry| entry.txg == txg)
    }

    /// The entry of `txg` when that is the newest.
    pub(crate) fn newest_in(&self, txg: Txg) -> Option<&TxgDirty> {
        self.dirty.last().filter(|entry| entry.txg == txg)
    }

    /// True when the newest changes, those of `txg`, have a block below the indirect block that is above this one too: both are written for both. The
    /// first block of an object was dirty, perhaps, before there was any block above.
    pub(crate) fn is_beside_dirty(&self, block: u64, txg: Txg) -> bool {
        let shift = self.core.pointer_shift();
        let first = block >> shift << shift;
        let beside = first..=first + ((1 << shift) - 1);
        self.core.max_block > 0 && self.newest_in(txg).is_some_and(|entry| entry.blocks.range(beside).next().is_some())
    }

    /// The facts as `txg` leaves them.
    pub(crate) fn core_at(&self, txg: Txg) -> &Core {
        self.entry(txg).and_then(|entry| entry.core.as_ref()).unwrap_or(&self.core)
    }

    /// Makes sure that the newest entry is of `txg`; true when it was made now.
    pub(crate) fn begin(&mut self, txg: Txg) -> Result<bool, DmuError> {
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
        debug_assert!(self.dirty.iter().all(|entry| entry.core.is_some()), "facts of older txgs are kept before a newer one changes them");
        self.dirty.push(TxgDirty::new(txg));
        debug_assert!(self.dirty.is_sorted_by(|older, newer| older.txg < newer.txg), "one entry per txg, in order");
        debug_assert!(self.dirty.len() <= TXG_SLOTS, "no more txgs have changes than are alive");
        Ok(true)
    }

    /// The newest entry; [`State::begin`] made it.
    pub(crate) fn newest(&mut self) -> Result<&mut TxgDirty, DmuError> {
        self.dirty.last_mut().ok_or(DmuError::TxgOrder)
    }

    /// Puts a record into the newest entry; gives back the one that it replaces.
    pub(crate) fn insert(&mut self, block: u64, record: Record) -> Result<Option<Record>, DmuError> {
        debug_assert!(record.fits(self.core.block_size), "a block is as long as the object says");
        debug_assert!(!self.core.freed, "nothing is written to a freed object");
        self.core.max_block = self.core.max_block.max(block);
        Ok(Arc::make_mut(&mut self.newest()?.blocks).insert(block, record))
    }

    /// Frees blocks in the newest entry; a range without an end lowers the largest block. Gives the records that went with them.
    pub(crate) fn free_blocks(&mut self, range: Range<u64>) -> Result<Dropped, DmuError> {
        if range.end > self.core.max_block {
            self.core.max_block = range.start.saturating_sub(1);
        }
        let entry = self.newest()?;
        let gone: Vec<u64> = entry.blocks.range(range.clone()).map(|(&block, _)| block).collect();
        let blocks = Arc::make_mut(&mut entry.blocks);
        let mut dropped = Dropped::default();
        gone.into_iter().for_each(|block| dropped.push(blocks.remove(&block)));
        entry.freed.get_or_insert_default().cover(range.clone());
        debug_assert!(entry.blocks.range(range.clone()).next().is_none(), "what is freed has no record of this txg");
        debug_assert!(entry.is_freed(range.start), "what is freed reads as zeros until it is written again");
        Ok(dropped)
    }

    /// Marks the object freed; gives the records of the newest entry.
    pub(crate) fn free(&mut self) -> Result<Dropped, DmuError> {
        self.core.freed = true;
        let mut dropped = Dropped::default();
        std::mem::take(&mut self.newest()?.blocks).values().for_each(|record| dropped.push(Some(record.clone())));
        Ok(dropped)
    }

    /// The first dirty block at or after `first` that wasn't freed in a newer txg.
    pub(crate) fn next_dirty(&self, first: u64) -> Option<u64> {
        let mut best: Option<u64> = None;
        for (index, entry) in self.dirty.iter().enumerate() {
            let newer = &self.dirty[index + 1..];
            let visible = |block: &&u64| newer.iter().all(|entry| entry.blocks.contains_key(block) || !entry.is_freed(**block));
            let found = entry.blocks.range(first..).map(|(block, _)| block).find(visible).copied();
            best = [best, found].into_iter().flatten().min();
        }
        best
    }

    /// The start of the first freed range at or after `first`.
    pub(crate) fn next_freed(&self, first: u64) -> u64 {
        let freed = self.dirty.iter().filter_map(|entry| entry.freed.as_ref());
        freed.filter_map(|freed| freed.first_overlap(first..u64::MAX)).map(|range| range.start).min().unwrap_or(u64::MAX)
    }

    /// The first block after the freed block `block` that may be none: the end of its freed range, or a dirty block in it.
    pub(crate) fn after_freed(&self, block: u64) -> u64 {
        let freed = self.dirty.iter().rev().filter_map(|entry| entry.freed.as_ref());
        let runs = freed.filter_map(|freed| freed.first_overlap(block..u64::MAX));
        let end = runs.filter(|run| run.start == block).map(|run| run.end).max().unwrap_or(block + 1);
        self.next_dirty(block).map_or(end, |inside| inside.min(end))
    }

    /// The spill block's change that counts: the newest one.
    pub(crate) fn spill_change(&self) -> Option<&SpillChange> {
        self.dirty.iter().rev().map(|entry| &entry.spill).find(|spill| !matches!(spill, SpillChange::Keep))
    }
}
