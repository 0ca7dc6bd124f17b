//! The second level of the cache, on devices of its own (OpenZFS: the L2ARC, in `arc.c`).
//!
//! ```text
//!   feed() ─► a device in its turn ─► room ahead of its hand ─► blocks about to leave the cache, written one behind the other ─► known
//!   read() ─► known ─► the device ─► still known at this place ─► the cache, which verifies it by the block pointer
//! ```
//! Invariants:
//! 1. nothing that is on a device is needed: whatever fails there, or comes back wrong, is read from the pool instead, and counted;
//! 2. a block is known from when all of it was written until the hand of its device comes to its place; nothing is written over a known block;
//! 3. blocks lie on a device as they lie in the pool, compressed and checksummed: never as plain text where the pool has them encrypted;
//! 4. no lock is held while a device works, or while the cache is called;
//! 5. what is known is forgotten with the process: a device says nothing of what it holds.
#![forbid(unsafe_code)]

mod feed;
mod known;
#[cfg(test)]
mod tests;
mod tunables;

pub use feed::Fed;
pub use known::DeviceReport;
pub use tunables::Tunables;

use arc::{BlockName, FoundThen, SecondCounts, SecondLevel};
use device::{BlockDevice, DeviceError, DeviceOp};
use exec::Mutex;
use known::{Known, Place};
use ondisk::Guid;
use std::sync::Arc;
use zio::{LeafRequest, Priority, Zio};

/// State that callbacks of I/O hold too.
struct Shared {
    known: Mutex<Known>,
    tunables: Mutex<Tunables>,
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
        L2arc { zio, shared: Arc::new(Shared { known: Mutex::default(), tunables: Mutex::default() }) }
    }

    /// Takes a device into use, of which nothing is known; in place of one with the same guid. False for one that is too small.
    pub fn add(&self, guid: Guid, device: &Arc<dyn BlockDevice>) -> bool {
        self.remove(guid);
        let Some(asize) = vdev::leaf_asize(device.size_bytes()) else { return false };
        self.zio.set_beside(guid, Some(device));
        let sector = 1 << device.ashift().clamp(vdev::ASHIFT_MIN, vdev::ASHIFT_MAX);
        self.shared.known.lock().add(guid, (asize, sector), device.facts().can_trim);
        true
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
