//! Blocks that several pointers share, as far as everybody has to know of them: which may be shared, references that were added and are not
//! counted yet, and blocks that were given up and whose references are to be looked at (OpenZFS: `brt.c`).
//!
//! Invariants: the counters equal those of the tables (`sync::brt`), which change in syncing context only. References that a txg adds are counted
//! before the txg gives up anything: a block that is shared and given up in one txg stays.

use super::features::{BLOCK_CLONING, Features};
use exec::{Mutex, RwLock};
use ondisk::{BlockPtr, Txg, VdevId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Place of a block: of its first copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub vdev: VdevId,
    pub offset: u64,
}

impl Place {
    /// Place of the block that a pointer leads to.
    pub fn of(bp: &BlockPtr) -> Place {
        let dva = bp.dva(0);
        Place { vdev: dva.vdev, offset: dva.offset }
    }
}

/// True for blocks that pointers can share: data.
pub(crate) fn is_shareable(bp: &BlockPtr) -> bool {
    bp.level() == 0 && !bp.object_type().is_metadata()
}

/// References that a txg adds to a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Added {
    pub bp: BlockPtr,
    pub count: u64,
}

/// Numbers of shared blocks of a vdev, by parts of it.
#[derive(Clone, Debug)]
pub(crate) struct Ranges {
    /// Bytes of a part.
    pub bytes: u64,
    pub counters: Vec<u16>,
}

impl Ranges {
    /// Index of the counter of an offset.
    pub fn index(&self, offset: u64) -> usize {
        usize::try_from(offset / self.bytes.max(1)).unwrap_or(usize::MAX)
    }
    /// Number of shared blocks in the part that holds an offset.
    pub fn at(&self, offset: u64) -> u16 {
        self.counters.get(self.index(offset)).copied().unwrap_or(0)
    }
}

/// Space of shared blocks, in deflated bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedSpace {
    /// Bytes of all blocks that are shared, each counted once (the property `bcloneused`).
    pub used_bytes: u64,
    /// Bytes that their further references would take, were they copies (`bclonesaved`).
    pub saved_bytes: u64,
}

impl SharedSpace {
    /// Hundredths of bytes referenced for each byte used; 100 where nothing is shared (`bcloneratio`).
    pub fn ratio_percent(&self) -> u64 {
        let all = (u128::from(self.used_bytes) + u128::from(self.saved_bytes)) * 100;
        all.checked_div(u128::from(self.used_bytes)).map_or(100, |ratio| ratio as u64)
    }
}

/// References of a pool's shared blocks.
#[derive(Default)]
pub(crate) struct Brt {
    /// Not held: the features are of the MOS, which has its blocks from here.
    features: OnceLock<Weak<Features>>,
    /// True while a vdev has a table.
    is_used: AtomicBool,
    ranges: RwLock<BTreeMap<VdevId, Ranges>>,
    added: Mutex<BTreeMap<Txg, BTreeMap<Place, Added>>>,
    given_up: Mutex<Vec<(Txg, BlockPtr)>>,
    used_bytes: AtomicU64,
    saved_bytes: AtomicU64,
}

impl Brt {
    /// Names the features, which say whether blocks may be shared.
    pub fn set_features(&self, features: &Arc<Features>) {
        // A pool that is looked at more than once while it is opened has the same features.
        let _ = self.features.set(Arc::downgrade(features));
    }

    /// Sum of what is shared, as of the last sync.
    pub fn space(&self) -> SharedSpace {
        let load = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        SharedSpace { used_bytes: load(&self.used_bytes), saved_bytes: load(&self.saved_bytes) }
    }

    /// Sets the sum of what is shared.
    pub fn set_space(&self, space: SharedSpace) {
        self.used_bytes.store(space.used_bytes, Ordering::Relaxed);
        self.saved_bytes.store(space.saved_bytes, Ordering::Relaxed);
    }

    /// True when blocks may be shared.
    pub fn is_enabled(&self) -> bool {
        self.features.get().and_then(Weak::upgrade).is_some_and(|features| features.is_enabled(BLOCK_CLONING))
    }

    /// Adds a reference to a block with a txg that is open.
    pub fn add(&self, txg: Txg, bp: &BlockPtr) {
        let mut added = self.added.lock();
        added.entry(txg).or_default().entry(Place::of(bp)).or_insert(Added { bp: *bp, count: 0 }).count += 1;
    }

    /// Takes a reference back that was added with the same txg (OpenZFS: `brt_pending_remove`).
    pub fn take_back(&self, txg: Txg, bp: &BlockPtr) {
        let mut added = self.added.lock();
        let Some(of_txg) = added.get_mut(&txg) else { return };
        let place = Place::of(bp);
        if let Some(known) = of_txg.get_mut(&place) {
            known.count = known.count.saturating_sub(1);
            if known.count == 0 {
                of_txg.remove(&place);
            }
        }
    }

    /// True when the table of the block's vdev may count references of it: then it takes a look to know whether it is free (OpenZFS:
    /// `brt_maybe_exists`).
    pub fn may_be_shared(&self, bp: &BlockPtr) -> bool {
        if !self.is_used.load(Ordering::Acquire) || !is_shareable(bp) {
            return false;
        }
        let place = Place::of(bp);
        self.ranges.read().get(&place.vdev).is_some_and(|ranges| ranges.at(place.offset) > 0)
    }

    /// Notes a block that was given up and that may be shared, until the sync looks.
    pub fn give_up(&self, txg: Txg, bp: &BlockPtr) {
        self.given_up.lock().push((txg, *bp));
    }

    /// Takes the blocks that were given up and that may be shared.
    pub fn take_given_up(&self) -> Vec<(Txg, BlockPtr)> {
        std::mem::take(&mut *self.given_up.lock())
    }

    /// Takes the references that a txg adds.
    pub fn take_added(&self, txg: Txg) -> BTreeMap<Place, Added> {
        self.added.lock().remove(&txg).unwrap_or_default()
    }

    /// Number of shared blocks in the part of the vdev that holds a place.
    pub fn in_range(&self, place: Place) -> u16 {
        self.ranges.read().get(&place.vdev).map_or(0, |ranges| ranges.at(place.offset))
    }

    /// Changes the counters of a vdev, which has a table from now on.
    pub fn with_ranges<R>(&self, vdev: VdevId, bytes: u64, change: impl FnOnce(&mut Ranges) -> R) -> R {
        let mut all = self.ranges.write();
        let result = change(all.entry(vdev).or_insert_with(|| Ranges { bytes, counters: Vec::new() }));
        self.is_used.store(true, Ordering::Release);
        result
    }

    /// Forgets the counters of a vdev that has no table any more.
    pub fn forget(&self, vdev: VdevId) {
        let mut all = self.ranges.write();
        all.remove(&vdev);
        self.is_used.store(!all.is_empty(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::{Dva, ObjectType};

    fn block(offset: u64) -> BlockPtr {
        let mut bp = BlockPtr::HOLE;
        bp.set_dva(0, Dva { vdev: VdevId(0), offset, asize: 4096, gang: false });
        bp.set_object_type(ObjectType::PLAIN_FILE_CONTENTS);
        bp
    }

    /// If this fails, a file that was cloned and overwritten before it was synced keeps space that nobody gets back, or loses what another shares.
    #[test]
    fn what_a_txg_takes_back_is_not_added() {
        let brt = Brt::default();
        let (first, second) = (block(0), block(4096));
        [&first, &first, &second].into_iter().for_each(|bp| brt.add(Txg(5), bp));
        brt.add(Txg(6), &second);
        [&first, &second].into_iter().for_each(|bp| brt.take_back(Txg(5), bp));
        let counts = |txg| brt.take_added(Txg(txg)).values().map(|added| (Place::of(&added.bp).offset, added.count)).collect::<Vec<_>>();
        assert_eq!((counts(5), counts(6), counts(7)), (vec![(0, 1)], vec![(4096, 1)], vec![]));
    }

    /// If this fails, blocks that others have are freed with the first file, or `zpool get` shows a ratio that divides by nothing.
    #[test]
    fn only_data_near_shared_blocks_is_looked_at() {
        let brt = Brt::default();
        assert!(!brt.may_be_shared(&block(0)) && brt.space().ratio_percent() == 100);
        brt.with_ranges(VdevId(0), 1 << 20, |ranges| ranges.counters = vec![0, 2]);
        brt.set_space(SharedSpace { used_bytes: 4096, saved_bytes: 6144 });
        let mut metadata = block(1 << 20);
        metadata.set_object_type(ObjectType::DNODE);
        let mut above = block(1 << 20);
        above.set_level(1);
        let looked_at = [block((1 << 20) - 4096), block(1 << 20), block(2 << 20), metadata, above].map(|bp| brt.may_be_shared(&bp));
        assert_eq!((looked_at, brt.space().ratio_percent()), ([false, true, false, false, false], 250));
        brt.forget(VdevId(0));
        assert!(!brt.may_be_shared(&block(1 << 20)));
    }
}
