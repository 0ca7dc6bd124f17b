//! The second level of the cache, on devices of its own (OpenZFS: the L2ARC, in `arc.c`).
//!
//! ```text
//!   rebuild() ─► header of a device that is new here ─► log blocks, from the newest back ─► known
//!   feed() ─► a device in its turn ─► room ahead of its hand ─► blocks about to leave the cache, and log blocks, one behind the other ─► known
//!             └─► header
//!   read() ─► known ─► the device ─► still known at this place ─► the cache, which verifies it by the block pointer
//! ```
//! Invariants:
//! 1. nothing that is on a device is needed: whatever fails there, or comes back wrong, is read from the pool instead, and counted;
//! 2. a block is known from when all of it was written until the hand of its device comes to its place; nothing is written over a known block;
//! 3. blocks lie on a device as they lie in the pool, compressed and checksummed: never as plain text where the pool has them encrypted;
//! 4. no lock is held while a device works, or while the cache is called;
//! 5. a header leads to no log block that was written over, or lists what was, however the process ends; what a device says is a hint all the same:
//!    whoever wrote it, and whatever became of it since, invariant 1 holds.
#![forbid(unsafe_code)]

mod feed;
mod journal;
mod known;
mod rebuild;
#[cfg(test)]
mod tests;
mod tunables;

pub use feed::Fed;
pub use journal::{Unread, unpack_log};
pub use known::DeviceReport;
pub use tunables::Tunables;

use arc::{BlockName, FoundThen, SecondCounts, SecondLevel};
use device::{BlockDevice, DeviceError, DeviceOp};
use exec::{Mutex, completion};
use known::{Known, Newcomer, Place, Site};
use ondisk::Guid;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zio::{LeafRequest, Priority, Zio};

/// State that callbacks of I/O hold too.
struct Shared {
    known: Mutex<Known>,
    tunables: Mutex<Tunables>,
    is_halted: AtomicBool,
}

/// The second level of one pool's cache.
pub struct L2arc {
    zio: Zio,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for L2arc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("L2arc").finish_non_exhaustive()
    }
}

impl L2arc {
    /// A second level without devices, for a pool with this pipeline.
    pub fn new(zio: Zio) -> L2arc {
        let is_halted = AtomicBool::new(false);
        L2arc { zio, shared: Arc::new(Shared { known: Mutex::default(), tunables: Mutex::default(), is_halted }) }
    }

    /// Says which pool it is: devices of others have nothing for it.
    pub fn set_pool(&self, guid: Guid) {
        self.shared.known.lock().pool = guid;
    }

    /// Takes a device into use whose sectors have so many bytes, as a power of two, if it can; in place of one with the same guid. What is on it is
    /// looked for before it is written: with the next [`L2arc::feed`]. False for one that is too small.
    pub fn add(&self, guid: Guid, device: &Arc<dyn BlockDevice>, ashift: u32) -> bool {
        self.remove(guid);
        let Some(asize) = vdev::leaf_asize(device.size_bytes()) else { return false };
        self.zio.set_beside(guid, Some(device));
        let least = device.facts().logical_sector_bytes.trailing_zeros().max(vdev::ASHIFT_MIN);
        let (sector, can_trim) = (1 << ashift.clamp(least, vdev::ASHIFT_MAX.max(least)), device.facts().can_trim);
        let logged_from = self.tunables().rebuild_blocks_min_l2size;
        self.shared.known.lock().add(&Newcomer { guid, asize, sector, can_trim, logged_from });
        true
    }

    /// Closes a device, and knows what is on it still, which nobody can read until it is there again.
    pub fn pause(&self, guid: Guid) {
        self.shared.known.lock().pause(guid);
        self.zio.set_beside(guid, None);
    }

    /// Has a look for what is on devices end soon, and none begin any more.
    pub fn halt(&self) {
        self.shared.is_halted.store(true, Ordering::Release);
    }

    /// Forgets everything on a device, and closes it. Blocks that are being read from it come from the pool.
    pub fn remove(&self, guid: Guid) {
        self.shared.known.lock().remove(guid);
        self.zio.set_beside(guid, None);
    }

    /// Report of a device; None for one that is not in use.
    pub fn report(&self, guid: Guid) -> Option<DeviceReport> {
        self.shared.known.lock().report(guid)
    }

    /// Guids of the devices in use.
    pub fn devices(&self) -> Vec<Guid> {
        self.shared.known.lock().guids()
    }

    /// True while a device takes blocks.
    pub fn is_in_use(&self) -> bool {
        self.shared.known.lock().is_in_use()
    }

    /// Changes the parameters; they count from the next look on.
    pub fn tune(&self, tunables: Tunables) {
        *self.shared.tunables.lock() = tunables;
    }

    /// The parameters.
    pub fn tunables(&self) -> Tunables {
        *self.shared.tunables.lock()
    }

    /// Does an I/O of a device, which may fail, and waits for it.
    fn wait_io(&self, site: &Site, offset: u64, op: DeviceOp, priority: Priority) -> Result<abd::Abd, DeviceError> {
        let (done, wait) = completion();
        let request = LeafRequest { leaf: site.device, offset, op, priority, speculative: true };
        self.zio.leaf_io(request, Box::new(move |result| done.complete(result)));
        wait.wait(self.zio.exec())
    }
}

impl Shared {
    /// Bytes of a block from its device, if they are still there.
    fn arrived(&self, name: BlockName, place: Place, result: Result<abd::Abd, DeviceError>) -> Option<abd::Abd> {
        let mut known = self.known.lock();
        let data = match result {
            Ok(data) => data,
            Err(error) => {
                known.counts.read_errors += 1;
                known.forget(name);
                known.failed(place.device, error);
                return None;
            }
        };
        known.worked(place.device);
        if !known.is_at(name, &place) {
            // Something else may have been written there meanwhile.
            known.counts.evicted_reading += 1;
            return None;
        }
        Some(data.slice(0..place.physical as usize))
    }
}

impl SecondLevel for L2arc {
    fn read(&self, name: BlockName, psize_bytes: usize, then: FoundThen) {
        let no_reads_while_written = self.tunables().norw;
        let found = {
            let mut known = self.shared.known.lock();
            let found = known.find(name, psize_bytes);
            let clashes = no_reads_while_written && found.is_some_and(|place| known.is_written(place.device));
            known.counts.clashes += u64::from(clashes);
            found.filter(|_| !clashes)
        };
        let Some(place) = found else { return then(None) };
        let (op, shared) = (DeviceOp::read(place.allocated as usize), self.shared.clone());
        let request = LeafRequest { leaf: place.device, offset: place.offset, op, priority: Priority::SyncRead, speculative: false };
        self.zio.leaf_io(request, Box::new(move |result| then(shared.arrived(name, place, result))));
    }

    fn forget(&self, name: BlockName) {
        self.shared.known.lock().forget(name);
    }

    fn counts(&self) -> SecondCounts {
        self.shared.known.lock().all_counts()
    }
}
