//! Blocks of the meta-dnode that the sync of a txg will change: read when a dnode gets dirty, and kept until that txg is synced.
//!
//! The sync puts the records of dirty dnodes into blocks of the meta-dnode. Were one of these unreadable only then, nobody could be
//! told, and no txg of the pool could be synced any more. So whoever changes a dnode first in a txg reads its block and the indirect
//! blocks above; what cannot be read is his error, and nothing is changed (OpenZFS: `dnode_hold_impl` reads the block, and a dirty
//! dnode holds it, `dnode_setdirty`).
//!
//! What is kept is found by its pointer, so it is never stale. A block that a sync writes while a later txg wants it is kept as it
//! was written ([`Pins::renew`]); the swap of the tree and the renewal are one step for who holds the meta-dnode's lock.

use super::kept::Kept;
use crate::memory::{Counted, What};
use abd::Abd;
use exec::Mutex;
use ondisk::{BlockPtr, Txg};
use std::collections::HashMap;

/// A block's place in the tree: level and number.
type Place = (u8, u64);

/// The bytes of a block that is kept.
#[derive(Debug)]
pub(super) struct Bytes {
    kept: Kept,
    _counted: Counted,
}

impl Bytes {
    /// Bytes held in memory.
    pub(super) fn held(&self) -> usize {
        self.kept.bytes()
    }

    pub(super) fn of(block: &Abd) -> Bytes {
        let kept = Kept::of(block);
        Bytes { _counted: Counted::new(What::Indirect, kept.bytes()), kept }
    }

    /// Pointer `index` of an indirect block; of a hole it is one.
    pub(super) fn pointer(block: Option<&Bytes>, index: usize) -> BlockPtr {
        block.map_or(BlockPtr::HOLE, |block| block.kept.pointer(index))
    }
}

#[derive(Debug)]
struct Pin {
    /// The newest txg that wants it.
    txg: Txg,
    /// Block pointer to the bytes.
    bp: BlockPtr,
    /// Bytes of the block; None for a hole.
    bytes: Option<Bytes>,
}

/// A block to be kept: its place, what points to it, and its bytes; a hole has none.
pub(super) type Pinned = (Place, BlockPtr, Option<Bytes>);

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
    pub(super) fn has(&self, at: Place, txg: Txg) -> bool {
        self.0.lock().get(&at).is_some_and(|pin| pin.txg >= txg)
    }

    /// Keeps the indirect block that `bp` points to for `txg`, when it is kept for an older one, and gives its pointer `index`.
    pub(super) fn prolong(&self, at: Place, bp: &BlockPtr, txg: Txg, index: usize) -> Option<BlockPtr> {
        let mut pins = self.0.lock();
        let pin = pins.get_mut(&at).filter(|pin| pin.bp == *bp)?;
        pin.txg = pin.txg.max(txg);
        Some(Bytes::pointer(pin.bytes.as_ref(), index))
    }

    pub(super) fn add(&self, found: Vec<Pinned>, txg: Txg) {
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
