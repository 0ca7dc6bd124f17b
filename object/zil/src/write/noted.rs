//! Operations that wait in memory: one list for every commit, and one for each object whose commits alone want them.

use crate::{Itx, Payload, Range};
use ondisk::{ObjectId, Txg};
use std::collections::{BTreeMap, VecDeque};

/// Bytes that an operation takes in memory besides its record, about.
const OVERHEAD_BYTES: usize = 160;
/// Bytes that the operations of one log may take: more of them are not kept, and the txg is waited for.
const NOTED_MAX_BYTES: usize = 64 << 20;

/// Bytes of writes that are one operation, at most.
const JOINED_MAX_BYTES: u64 = 64 << 10;

/// One operation, with its place among all.
#[derive(Debug)]
pub(super) struct Noted {
    /// Txg of the operation.
    pub txg: Txg,
    pub itx: Itx,
    /// Number in the order of noting.
    stamp: u64,
}

impl Noted {
    fn bytes(&self) -> usize {
        self.itx.record.len() + OVERHEAD_BYTES
    }
}

/// Operations that no commit wrote yet.
#[derive(Debug, Default)]
pub(super) struct Lists {
    for_all: Vec<Noted>,
    of_objects: BTreeMap<ObjectId, VecDeque<Noted>>,
    stamp: u64,
    bytes: usize,
}

impl Lists {
    /// Adds an operation; false when there is no room for it.
    pub(super) fn add(&mut self, itx: Itx, txg: Txg) -> bool {
        let (stamp, only_with) = (self.stamp, itx.only_with);
        let noted = Noted { txg, itx, stamp };
        if self.bytes + noted.bytes() > NOTED_MAX_BYTES {
            return false;
        }
        self.stamp += 1;
        self.bytes += noted.bytes();
        match only_with {
            None => self.for_all.push(noted),
            Some(object) => self.of_objects.entry(object).or_default().push_back(noted),
        }
        true
    }

    /// Makes the operation that was noted last for an object's commits alone longer by a write, where that is one of the same txg which ends where this
    /// one begins; false where it is not. A file that grows by small writes has one operation for many then, since its bytes are read with a commit.
    pub(super) fn lengthen(&mut self, wrote: &Range, txg: Txg) -> bool {
        let last = self.of_objects.get_mut(&wrote.object).and_then(VecDeque::back_mut).filter(|last| last.txg == txg);
        let Some(Noted { itx: Itx { payload: Payload::Copied(before), .. }, .. }) = last else { return false };
        let (end, length) = (before.offset.saturating_add(before.length), before.length.saturating_add(wrote.length));
        let goes_on = before.generation == wrote.generation && end == wrote.offset && length <= JOINED_MAX_BYTES;
        if goes_on {
            before.length = length;
        }
        goes_on
    }

    /// Lets every commit have the operations of an object; None means those of all.
    pub(super) fn promote(&mut self, object: Option<ObjectId>) {
        match object {
            Some(object) => self.for_all.extend(self.of_objects.remove(&object).into_iter().flatten()),
            None => self.for_all.extend(std::mem::take(&mut self.of_objects).into_values().flatten()),
        }
    }

    /// Drops what only an object's commits want.
    pub(super) fn forget(&mut self, object: ObjectId) {
        let dropped: usize = self.of_objects.remove(&object).iter().flatten().map(Noted::bytes).sum();
        self.bytes -= dropped;
    }

    /// True when a commit has something to write.
    pub(super) fn has_work(&self) -> bool {
        !self.for_all.is_empty()
    }

    /// Takes what every commit wants, in the order of noting.
    pub(super) fn take(&mut self) -> Vec<Noted> {
        let mut taken = std::mem::take(&mut self.for_all);
        taken.sort_by_key(|noted| noted.stamp);
        self.bytes -= taken.iter().map(Noted::bytes).sum::<usize>();
        taken
    }

    /// Drops what is on disk with its txg.
    pub(super) fn drop_synced(&mut self, synced: Txg) {
        let mut dropped = 0;
        let mut keeps = |noted: &Noted| {
            dropped += if noted.txg > synced { 0 } else { noted.bytes() };
            noted.txg > synced
        };
        self.for_all.retain(&mut keeps);
        self.of_objects.retain(|_, list| {
            // Txgs only rise in a list.
            while list.front().is_some_and(|noted| !keeps(noted)) {
                list.pop_front();
            }
            !list.is_empty()
        });
        self.bytes -= dropped;
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        *self = Lists { stamp: self.stamp, ..Lists::default() };
    }

    /// Bytes that the operations take in memory.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
