//! Blocks of the meta-dnode that the sync of a txg will change: read when a dnode gets dirty, and kept until that txg is synced.
//!
//! The sync puts the records of dirty dnodes into blocks of the meta-dnode. Were one of these unreadable only then, nobody could be
//! told, and no txg of the pool could be synced any more. So whoever changes a dnode first in a txg reads its block and the indirect
//! blocks above; what cannot be read is his error, and nothing is changed (OpenZFS: `dnode_hold_impl` reads the block, and a dirty
//! dnode holds it, `dnode_setdirty`).
//!
//! What is kept is found by its pointer, so it is never stale. A block that a sync writes while a later txg wants it is kept as it
//! was written ([`Pins::renew`]); the swap of the tree and the renewal are one step for who holds the meta-dnode's lock.

use super::Dnode;
use super::indirect::Kept;
use crate::memory::{Counted, What};
use crate::objset::special_index;
use crate::state::Tree;
use crate::{BlockError, DmuError, Tx};
use abd::Abd;
use exec::Mutex;
use ondisk::{BlockPtr, DNODE_SLOTS_PER_BLOCK, META_DNODE_OBJECT, Txg};
use std::collections::HashMap;

/// A block's place in the tree: level and number.
type Place = (u8, u64);

#[derive(Debug)]
struct Bytes {
    kept: Kept,
    _counted: Counted,
}

impl Bytes {
    fn of(block: &Abd) -> Bytes {
        let kept = Kept::of(block);
        Bytes { _counted: Counted::new(What::Indirect, kept.bytes()), kept }
    }

    /// Pointer `index` of an indirect block; of a hole it is one.
    fn pointer(block: Option<&Bytes>, index: usize) -> BlockPtr {
        block.map_or(BlockPtr::HOLE, |block| block.kept.pointer(index))
    }
}

#[derive(Debug)]
struct Pin {
    /// The newest txg that wants it.
    txg: Txg,
    /// What points to the bytes.
    bp: BlockPtr,
    /// None for a hole.
    bytes: Option<Bytes>,
}

/// The blocks that are kept for one object set.
#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<HashMap<Place, Pin>>);

impl Pins {
    /// The block that `bp` points to, when it is kept.
    pub(super) fn get(&self, at: Place, bp: &BlockPtr) -> Option<Abd> {
        let pins = self.0.lock();
        let pin = pins.get(&at).filter(|pin| pin.bp == *bp)?;
        pin.bytes.as_ref().map(|bytes| bytes.kept.block())
    }

    /// True when it is kept for `txg` already.
    fn has(&self, at: Place, txg: Txg) -> bool {
        self.0.lock().get(&at).is_some_and(|pin| pin.txg >= txg)
    }

    /// Keeps the indirect block that `bp` points to for `txg`, when it is kept for an older one, and gives its pointer `index`.
    fn prolong(&self, at: Place, bp: &BlockPtr, txg: Txg, index: usize) -> Option<BlockPtr> {
        let mut pins = self.0.lock();
        let pin = pins.get_mut(&at).filter(|pin| pin.bp == *bp)?;
        pin.txg = pin.txg.max(txg);
        Some(Bytes::pointer(pin.bytes.as_ref(), index))
    }

    fn add(&self, found: Vec<(Place, BlockPtr, Option<Bytes>)>, txg: Txg) {
        let mut pins = self.0.lock();
        for (at, bp, bytes) in found {
            let txg = pins.get(&at).map_or(txg, |pin| pin.txg.max(txg));
            pins.insert(at, Pin { txg, bp, bytes });
        }
    }

    /// The sync of `txg` wrote these blocks: who wants one for a later txg gets it as it is now.
    pub(crate) fn renew(&self, written: Vec<(Place, BlockPtr, Abd)>, txg: Txg) {
        let mut pins = self.0.lock();
        let newest = pins.values().map(|pin| pin.txg).max().filter(|newest| *newest > txg);
        for (at, bp, data) in written {
            match pins.get_mut(&at) {
                Some(pin) if pin.txg > txg => (pin.bp, pin.bytes) = (bp, (!bp.is_hole()).then(|| Bytes::of(&data))),
                Some(_) => {}
                // The tree may have grown upwards: the new levels are above all that is kept.
                None => {
                    if let Some(newest) = newest.filter(|_| at.0 > 0) {
                        pins.insert(at, Pin { txg: newest, bp, bytes: (!bp.is_hole()).then(|| Bytes::of(&data)) });
                    }
                }
            }
        }
    }

    /// True when nothing is kept.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// `txg` is synced: lets go of what no later one wants.
    pub(crate) fn release(&self, txg: Txg) {
        let mut pins = self.0.lock();
        if !pins.is_empty() {
            pins.retain(|_, pin| pin.txg > txg);
        }
    }
}

impl Dnode {
    /// Has what the sync will need to write this dnode's record, before its first change in a txg. An error is one of the block that
    /// holds the record or of one above it.
    pub(super) fn pin_record(&self, tx: &Tx) -> Result<(), DmuError> {
        if tx.is_syncing() || self.object == META_DNODE_OBJECT || special_index(self.object).is_some() {
            return Ok(());
        }
        let Some(meta) = self.context.meta.get().and_then(std::sync::Weak::upgrade) else { return Ok(()) };
        let block = self.object.0 / DNODE_SLOTS_PER_BLOCK as u64;
        let pins = &self.context.pins;
        if pins.has((0, block), tx.txg()) {
            return Ok(());
        }
        let mut tries = 0;
        loop {
            let tree = meta.state.read().tree.clone();
            match meta.read_path(&tree, block, tx.txg()) {
                Err(error) => meta.retry_if_stale(&tree, &mut tries, error)?,
                Ok(found) => {
                    let bytes = found.iter().filter(|(at, ..)| at.0 == 0).filter_map(|(.., bytes)| bytes.as_ref());
                    let bytes: usize = bytes.map(|bytes| bytes.kept.bytes()).sum();
                    let state = meta.state.read();
                    if state.tree.generation == tree.generation {
                        pins.add(found, tx.txg());
                        drop(state);
                        // It counts as dirty until the txg is over: writers are held up before memory is full of such blocks.
                        self.context.charge(tx, bytes as u64);
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The blocks from the root down to data block `block` that are not kept yet.
    fn read_path(&self, tree: &Tree, block: u64, txg: Txg) -> Result<Vec<(Place, BlockPtr, Option<Bytes>)>, BlockError> {
        let (pins, shift) = (&self.context.pins, tree.pointer_shift());
        let id_at = |level: u8| block.checked_shr(shift * u32::from(level)).unwrap_or(0);
        let mut found = Vec::new();
        let mut bp = tree.root(id_at(tree.levels - 1));
        for level in (1..tree.levels).rev() {
            let (id, index) = (id_at(level), (id_at(level - 1) & ((1 << shift) - 1)) as usize);
            bp = match pins.prolong((level, id), &bp, txg, index) {
                Some(child) => child,
                None => {
                    let bytes = if bp.is_hole() { None } else { self.indirect(tree, level, id)?.as_ref().map(Bytes::of) };
                    let child = Bytes::pointer(bytes.as_ref(), index);
                    found.push(((level, id), bp, bytes));
                    child
                }
            };
        }
        // The data block is what tells that the whole path is kept: it comes with the others or not at all.
        let bytes = if bp.is_hole() { None } else { Some(Bytes::of(&self.read_pointed(tree, &bp, (0, block))?)) };
        found.push(((0, block), bp, bytes));
        Ok(found)
    }
}
