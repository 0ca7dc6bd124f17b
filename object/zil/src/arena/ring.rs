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
        Ring { given_back: header.tail, header, head, txgs: VecDeque::new(), pinned, is_broken: false }
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

    /// The txg is on disk: what tells of it goes, but for what tells of requests that were not answered. Returns memory to be given back, which is not
    /// to be written before [`Ring::gave_back`].
    pub(super) fn synced(&mut self, store: &Store, requests: &Requests, txg: Txg) -> Option<(u64, u64)> {
        while let Some(first) = self.txgs.pop_front_if(|first| first.txg <= txg) {
            self.header.synced = if first.is_written { first.txg } else { self.header.synced };
        }
        self.move_on(store, requests)
    }

    /// Lets go of what the process before left.
    pub(super) fn unpin(&mut self, store: &Store, requests: &Requests) -> Option<(u64, u64)> {
        self.pinned.take()?;
        self.move_on(store, requests)
    }

    fn move_on(&mut self, store: &Store, requests: &Requests) -> Option<(u64, u64)> {
        let needed = self.txgs.front().map_or(self.head, |first| first.start);
        let tail = needed.min(self.pinned.unwrap_or(u64::MAX));
        if tail <= self.header.tail {
            return None;
        }
        for (unique, objset, done) in requests.told_before(tail) {
            let position = self.head;
            let mark = Change { unique, ..Change::mark(objset, done) };
            if !self.add(store, requests, &mark) {
                // Everything stays until there is room, or the request is answered.
                return None;
            }
            requests.retold(unique, tail, Part { position, done });
        }
        self.header.tail = tail;
        self.write_header(store);
        let is_worth_it = tail - self.given_back >= GIVE_BACK_BYTES.min(store.capacity() / 8);
        (is_worth_it && !self.is_broken).then_some((self.given_back, tail))
    }

    /// Memory up to a position was given back.
    pub(super) fn gave_back(&mut self, to: u64) {
        self.given_back = self.given_back.max(to);
    }
}
