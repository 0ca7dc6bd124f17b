//! Who has which part of the memory that is shared with a target: slots of one size, in runs, for both directions.
//!
//! Only this side decides. A run is had by one operation from before it is sent until its answer was taken; when none is free, the
//! payload goes in the frame, so nobody waits. Slots belong to a connection: the next one has a region of its own, so that nothing
//! that is late on the old one can be taken for its own.

use exec::Mutex;
use std::io;
use std::sync::Arc;
use target_wire::{Place, Region};

/// Length of a slot, in bytes.
const SLOT_BYTES: u64 = 64 << 10;
/// Less than this is not worth a place of its own: it goes in the frame.
const SHARED_BYTES_MIN: u64 = 4 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) region: Region,
    is_used: Mutex<Vec<bool>>,
}

/// Slots that one operation has; free again with this.
#[derive(Debug)]
pub(crate) struct Run {
    slots: Arc<Slots>,
    first: usize,
    count: usize,
    bytes: u64,
}

impl Slots {
    /// Slots in a new region of at least `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> io::Result<Arc<Slots>> {
        let count = bytes.min(Region::BYTES_MAX).div_ceil(SLOT_BYTES);
        let region = Region::create(count * SLOT_BYTES)?;
        Ok(Arc::new(Slots { region, is_used: Mutex::new(vec![false; count as usize]) }))
    }

    /// True for what is worth a place here.
    pub(crate) fn is_worth(bytes: u64) -> bool {
        bytes >= SHARED_BYTES_MIN
    }

    /// The first run that is free and has so many bytes.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<Run> {
        let count = usize::try_from(bytes.div_ceil(SLOT_BYTES)).ok().filter(|count| *count > 0)?;
        let mut is_used = self.is_used.lock();
        let mut first = 0;
        while first + count <= is_used.len() {
            match is_used[first..first + count].iter().rposition(|used| *used) {
                Some(last) => first += last + 1,
                None => {
                    is_used[first..first + count].fill(true);
                    return Some(Run { slots: self.clone(), first, count, bytes });
                }
            }
        }
        None
    }

    /// Number of slots that are used.
    #[cfg(test)]
    fn used(&self) -> usize {
        self.is_used.lock().iter().filter(|used| **used).count()
    }
}

impl Run {
    /// Place of the run in the region.
    pub(crate) fn place(&self) -> Place {
        Place { offset: self.first as u64 * SLOT_BYTES, bytes: self.bytes }
    }

    /// True when it is a part of these.
    pub(crate) fn is_of(&self, slots: &Arc<Slots>) -> bool {
        Arc::ptr_eq(&self.slots, slots)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.slots.is_used.lock()[self.first..self.first + self.count].fill(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exec::SplitMix;

    /// Two operations in one slot would have each other's bytes.
    #[test]
    fn no_slot_is_had_twice_and_all_come_back() {
        const COUNT: u64 = 16;
        let slots = Slots::new(COUNT * SLOT_BYTES - 1).unwrap();
        assert_eq!(slots.region.len(), COUNT * SLOT_BYTES);
        let mut random = SplitMix::new(3);
        let mut runs: Vec<Run> = Vec::new();
        let mut refused = 0;
        for _ in 0..2000 {
            let bytes = random.below(5 * SLOT_BYTES as usize) as u64 + 1;
            match slots.take(bytes) {
                Some(run) => runs.push(run),
                None => refused += 1,
            }
            let mut places: Vec<Place> = runs.iter().map(Run::place).collect();
            places.sort_by_key(|place| place.offset);
            assert!(places.iter().all(|place| slots.region.has(*place)));
            assert!(places.windows(2).all(|pair| pair[0].offset + pair[0].bytes <= pair[1].offset), "{places:?}");
            if random.below(5) > 0 && !runs.is_empty() {
                runs.swap_remove(random.below(runs.len()));
            }
        }
        assert!(refused > 100, "it was never full");
        drop(runs);
        assert_eq!(slots.used(), 0);
        assert!(slots.take(COUNT * SLOT_BYTES + 1).is_none() && slots.take(0).is_none() && slots.take(u64::MAX).is_none());
        assert!(slots.take(COUNT * SLOT_BYTES).is_some());
    }
}
