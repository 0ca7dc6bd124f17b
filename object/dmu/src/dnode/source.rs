//! Where a direct read finds a block: in memory, or on the devices, by a record or by the tree.

use super::contents::Contents;
use super::dirty::{DirtyBlock, Written};
use super::state::Found;
use super::tree::Tree;
use crate::DmuError;
use abd::Abd;
use ondisk::BlockPtr;
use std::sync::Arc;

/// Place of a block's newest bytes.
pub(super) enum Source {
    Zeros,
    Dirty(Arc<DirtyBlock>),
    Cached(Abd),
    Device(Device),
}

/// A block on the devices, and what it was found by.
pub(super) struct Device {
    pub bp: BlockPtr,
    pub found: FoundBy,
}

/// Origin of the answer to where a block is.
pub(super) enum FoundBy {
    Tree(Arc<Tree>),
    Record(Arc<Written>),
}

impl Contents {
    /// Place of a block's newest bytes; may wait for indirect blocks.
    pub(super) fn source(&self, block: u64) -> Result<Source, DmuError> {
        let mut tries = 0;
        loop {
            let tree = match self.at_hand(block)? {
                Ok(source) => return Ok(source),
                Err(tree) => tree,
            };
            match self.reader.pointer(&tree, 0, block) {
                Ok(bp) => return Ok(self.on_device(bp, FoundBy::Tree(tree))),
                Err(error) => self.reader.retry_if_stale(&tree, &mut tries, error)?,
            }
        }
    }

    /// As [`Contents::source`], from memory only.
    pub(super) fn source_now(&self, block: u64) -> Result<Option<Source>, DmuError> {
        Ok(match self.at_hand(block)? {
            Ok(source) => Some(source),
            Err(tree) => self.reader.pointer_now(&tree, 0, block).map(|bp| self.on_device(bp, FoundBy::Tree(tree))),
        })
    }

    /// Place of the block by the records, or the tree that has to be asked.
    fn at_hand(&self, block: u64) -> Result<Result<Source, Arc<Tree>>, DmuError> {
        let state = self.state.read();
        if state.core.freed {
            return Err(DmuError::NoSuchObject);
        }
        Ok(match state.find(block) {
            Found::Dirty(_, data) => Ok(Source::Dirty(data)),
            Found::Written(written) => Ok(self.on_device(written.bp, FoundBy::Record(written))),
            Found::Freed => Ok(Source::Zeros),
            Found::Clean(_) if block > state.core.max_block => Ok(Source::Zeros),
            Found::Clean(tree) => Err(tree),
        })
    }

    fn on_device(&self, bp: BlockPtr, found: FoundBy) -> Source {
        if bp.is_hole() {
            return Source::Zeros;
        }
        match self.reader.blocks().io().cached(&bp) {
            Some(data) => Source::Cached(data),
            None => Source::Device(Device { bp, found }),
        }
    }

    /// True when the block is not where it was found any more.
    pub(super) fn moved(&self, block: u64, found: &FoundBy) -> bool {
        match found {
            FoundBy::Tree(tree) => !self.reader.is_current(tree),
            FoundBy::Record(written) => !self.still_has(block, written),
        }
    }
}
