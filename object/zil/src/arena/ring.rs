//! The arena as this process writes it: where the next entry goes, what of it a txg that is on disk makes needless.

use super::facts::Done;
use super::layout::{ENTRY_BYTES, Entry, EntryKind, GAPS, Gap, Header, Sum};
use super::requests::{Part, Requests};
use super::store::Store;
use ondisk::Txg;
use std::collections::VecDeque;

/// Memory that nobody needs is given back to the system in pieces of so many bytes.
const GIVE_BACK_BYTES: u64 = 1 << 20;
/// Part of the ring that is kept for what tells of requests: one in so many.
const KEPT_PART: u64 = 16;

/// State of an arena that is being written.
#[derive(Debug)]
pub(super) struct Ring {
    pub header: Header,
    /// Position of the next entry.
    pub head: u64,
    /// Position from which on the memory is needed, or was not given back yet.
    given_back: u64,
    /// True while somebody gives memory back: nobody else does meanwhile, or what he finds needless would be written anew while it goes.
    is_giving: bool,
    /// Txgs that are not on disk.
    txgs: VecDeque<Alive>,
    /// First position that the process before left: not to go until somebody says so.
    pinned: Option<u64>,
    /// The system had no memory for a header: nothing that is noted counts any more.
    is_broken: bool,
}

/// Txg that is not on disk.
#[derive(Debug)]
struct Alive {
    txg: Txg,
    /// Position of its first entry.
    start: u64,
    /// True when it changes something: there will be an uberblock of it.
    is_written: bool,
}

/// Change to be noted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub kind: EntryKind,
    pub txg: Txg,
    pub objset: u64,
    pub unique: u64,
    pub time: (i64, u32),
    pub done: Done,
    pub payload: &'a [&'a [u8]],
    /// Sum of the payload.
    pub sum: u64,
}

impl Change<'_> {
    /// Mark that says what a request did, of none yet.
    pub(super) fn mark(objset: u64, done: Done) -> Change<'static> {
        Change { kind: EntryKind::Mark, txg: Txg(0), objset, unique: 0, time: (0, 0), done, payload: &[], sum: Sum::of(&[]) }
    }
}

impl Ring {
    pub(super) fn new(header: Header, head: u64, pinned: Option<u64>) -> Ring {
        Ring { given_back: header.tail, is_giving: false, header, head, txgs: VecDeque::new(), pinned, is_broken: false }
    }

    /// Writes the header down.
    pub(super) fn write_header(&mut self, store: &Store) {
        self.header.generation += 1;
        self.is_broken |= !store.write_header(&self.header);
    }

    /// True once something of the txg was noted.
    pub(super) fn knows(&self, txg: Txg) -> bool {
        self.txgs.back().is_some_and(|last| last.txg >= txg)
    }

    /// Entries of the txg come from now on, or from the position of some that are known to change something.
    pub(super) fn begin(&mut self, txg: Txg, known: Option<u64>) {
        self.txgs.push_back(Alive { txg, start: known.unwrap_or(self.head), is_written: known.is_some() });
    }

    /// Bytes of the ring in use.
    pub(super) fn used(&self) -> u64 {
        self.head - self.given_back
    }

    /// Adds an entry; false when there is no room for it.
    pub(super) fn add(&mut self, store: &Store, requests: &Requests, change: &Change<'_>) -> bool {
        let length = change.payload.iter().map(|part| part.len() as u64).sum();
        let kept = if matches!(change.kind, EntryKind::Gap | EntryKind::Mark) { 0 } else { store.capacity() / KEPT_PART };
        if self.is_broken || Entry::bytes_with(length) + kept > store.capacity() - self.used() {
            return false;
        }
        let Change { kind, txg, objset, unique, time, done: Done { object, bytes }, payload, sum } = *change;
        let entry = Entry { kind, position: self.head, length, epoch: self.header.epoch, txg, objset, unique, time, object, bytes };
        let head: [u8; ENTRY_BYTES] = entry.encode(sum);
        if !store.write(&entry, &head, payload) {
            return false;
        }
        self.head = entry.end();
        if let Some(alive) = self.txgs.back_mut() {
            alive.is_written |= !matches!(kind, EntryKind::Gap | EntryKind::Mark);
        }
        if kind != EntryKind::Mark {
            requests.note(objset, unique, Part { position: entry.position, done: change.done });
        }
        true
    }

    /// Something was changed in the txg that no entry tells of: what comes from here on counts when the txg is on disk.
    pub(super) fn add_gap(&mut self, store: &Store, txg: Txg) {
        let gap = &mut self.header.gaps[(txg.0 % GAPS as u64) as usize];
        if gap.txg != txg {
            *gap = Gap { txg, position: self.head };
            self.write_header(store);
        }
    }

    /// The txg is on disk: what tells of it goes, but for what tells of requests that were not answered.
    pub(super) fn synced(&mut self, store: &Store, requests: &Requests, txg: Txg) {
        while let Some(first) = self.txgs.pop_front_if(|first| first.txg <= txg) {
            self.header.synced = if first.is_written { first.txg } else { self.header.synced };
        }
        let has_over = self.forget_gaps(txg);
        if !self.move_on(store, requests) && has_over {
            self.write_header(store);
        }
    }

    /// Forgets the gaps of txgs up to this one; true when there were any. A txg in which nothing was changed in the end is not on disk, and its gap is
    /// none all the same.
    fn forget_gaps(&mut self, txg: Txg) -> bool {
        let over = |gap: &Gap| gap.txg != Txg(0) && gap.txg <= txg;
        let has_over = self.header.gaps.iter().any(over);
        self.header.gaps.iter_mut().filter(|gap| over(gap)).for_each(|gap| *gap = Gap::default());
        has_over
    }

    /// The txg is on disk: what came after its gap counts from now on, before [`Ring::synced`] is told.
    pub(super) fn end_gaps(&mut self, store: &Store, txg: Txg) {
        if self.forget_gaps(txg) {
            self.write_header(store);
        }
    }

    /// Lets go of what the process before left.
    pub(super) fn unpin(&mut self, store: &Store, requests: &Requests) {
        if self.pinned.take().is_some() {
            self.move_on(store, requests);
        }
    }

    /// Moves the first entry that is needed on, as far as that goes; true when the header was written.
    fn move_on(&mut self, store: &Store, requests: &Requests) -> bool {
        let needed = self.txgs.front().map_or(self.head, |first| first.start);
        let tail = needed.min(self.pinned.unwrap_or(u64::MAX));
        if tail <= self.header.tail {
            return false;
        }
        for (unique, objset, done) in requests.told_before(tail) {
            let position = self.head;
            let mark = Change { unique, ..Change::mark(objset, done) };
            if !self.add(store, requests, &mark) {
                // Everything stays until there is room, or the request is answered.
                return false;
            }
            requests.retold(unique, tail, Part { position, done });
        }
        self.header.tail = tail;
        self.write_header(store);
        true
    }

    /// Range of memory to be given back, if that is worth it. None is taken again, and nothing written there, before [`Ring::gave_back`].
    pub(super) fn take_needless(&mut self, store: &Store) -> Option<(u64, u64)> {
        let (from, to) = (self.given_back, self.header.tail);
        if self.is_giving || self.is_broken || to - from < GIVE_BACK_BYTES.min(store.capacity() / 8) {
            return None;
        }
        self.is_giving = true;
        Some((from, to))
    }

    /// Memory up to a position was given back.
    pub(super) fn gave_back(&mut self, to: u64) {
        self.given_back = to;
        self.is_giving = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::store::Store;

    /// If this fails, what a program was told is done goes with memory that two threads give back at once: the one punches a hole where the ring
    /// was written anew because the other was done.
    #[test]
    fn one_at_a_time_gives_memory_back() {
        let (store, requests) = (Store::create(64 << 10).expect("memory"), Requests::default());
        let mut ring = Ring::new(Header { size: store.size, ..Header::default() }, 0, Some(0));
        let payload = [7; 1000];
        let fill = |ring: &mut Ring, txg: u64, count: u64| {
            ring.begin(Txg(txg), None);
            let change = Change {
                kind: EntryKind::Record,
                txg: Txg(txg),
                payload: &[&payload],
                sum: Sum::of(&[&payload]),
                ..Change::mark(1, Done::default())
            };
            (0..count).for_each(|_| assert!(ring.add(&store, &requests, &change)));
        };
        fill(&mut ring, 1, 30);
        ring.synced(&store, &requests, Txg(1));
        assert_eq!(ring.take_needless(&store), None, "the process before may be asked for it");
        ring.unpin(&store, &requests);
        let first = ring.take_needless(&store).expect("a range");
        fill(&mut ring, 2, 10);
        ring.synced(&store, &requests, Txg(2));
        assert_eq!(ring.take_needless(&store), None, "somebody is at it");
        ring.gave_back(first.1);
        let second = ring.take_needless(&store).expect("the rest");
        assert_eq!((first.0, first.1, second.1), (0, second.0, ring.head));
    }
}
