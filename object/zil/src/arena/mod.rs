//! The arena of a pool: a file in memory that has what the open txgs changed, for whoever goes on when this process is killed (docs/adr/0018).
//!
//! ```text
//! operation ─note─► arena ─► its request is answered          killed: the file is still there, somebody else has it too
//! txg on disk ─────► its records go                           next process: Arena::adopt ─► replay in one txg ─► goes on with it
//! ```
//! Invariants: an operation is noted under the locks that order it, in its transaction, before its request is answered; what no record tells of
//! is a *gap*, and nothing that came with it or after it is answered before its txg is on disk; noting never waits; what is read from an arena
//! that somebody else wrote is believed only as far as it proves itself.

mod facts;
mod layout;
mod read;
mod request;
mod requests;
mod ring;
mod store;
#[cfg(test)]
mod tests;

pub use facts::{ArenaError, Done};
pub use layout::{Entry, EntryKind};
pub use request::{Request, RequestScope, request_of_thread};

use dmu::{DmuError, Tx, TxgManager};
use exec::Mutex;
use layout::{Header, Inherited, Sum};
use ondisk::Txg;
use read::{Contents, payload_of};
use requests::{Part, Requests};
use ring::{Change, Ring};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use store::Store;

/// Bytes that an arena has unless somebody wants another one.
pub const ARENA_BYTES: u64 = 256 << 20;

/// Change of an object set, to be noted in its transaction and under the locks that order it.
#[derive(Clone, Copy, Debug)]
pub struct Noted<'a> {
    /// Meaning of the entry; one of the kinds that change something.
    pub kind: EntryKind,
    /// Object set.
    pub objset: u64,
    /// Time that it left behind: seconds and nanoseconds.
    pub time: (i64, u32),
    /// Effect that an answer needs.
    pub done: Done,
    /// Record, and behind it the bytes of a write.
    pub payload: &'a [&'a [u8]],
}

/// Changes that another process left, to be done again in one txg.
#[derive(Debug, Default)]
pub struct Heritage {
    /// Entries, in their order.
    pub entries: Vec<Entry>,
    /// True when changes came after them that are not to be done: nobody was answered. What logs on disk have of file systems is not to be done either.
    pub is_cut: bool,
    /// Number of these changes, as far as entries tell of them.
    pub left_out: u64,
    /// Position of the first entry.
    start: u64,
}

/// Arena of a pool.
#[derive(Debug)]
pub struct Arena {
    store: Store,
    ring: Mutex<Ring>,
    requests: Requests,
    /// Newest txg with a change that no entry tells of, 0 when all of them are on disk.
    gap: AtomicU64,
    /// Txg that was hastened last because the ring is half full.
    hastened: AtomicU64,
    /// Effects of requests of the process before.
    inherited: Mutex<HashMap<(u64, u64), Done>>,
    txgs: OnceLock<Weak<TxgManager>>,
}

impl AsFd for Arena {
    /// File of the arena: whoever is to give it to the next process duplicates it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.store.file.as_fd()
    }
}

/// Whole life.
impl Arena {
    fn assemble(store: Store, ring: Ring, inherited: HashMap<(u64, u64), Done>) -> Arc<Arena> {
        let (gap, hastened) = (AtomicU64::new(0), AtomicU64::new(0));
        let (ring, inherited) = (Mutex::new(ring), Mutex::new(inherited));
        Arc::new(Arena { store, ring, requests: Requests::default(), gap, hastened, inherited, txgs: OnceLock::new() })
    }

    /// Makes an empty arena of so many bytes ([`ARENA_BYTES`]).
    ///
    /// # Errors
    /// Those of the system.
    pub fn create(bytes: u64) -> Result<Arc<Arena>, ArenaError> {
        let store = Store::create(bytes)?;
        let header = Header { size: store.size, ..Header::default() };
        let mut ring = Ring::new(header, 0, None);
        ring.write_header(&store);
        Ok(Arena::assemble(store, ring, HashMap::new()))
    }

    /// Takes the arena that another process left of the pool with this guid, whose last txg on disk is `synced`, before anything of the pool is
    /// written: from now on its records have no txg, until [`Arena::inherit`] says which has them.
    ///
    /// # Errors
    /// [`ArenaError`] for what is no arena of the pool; the file is as it was.
    pub fn adopt(file: OwnedFd, guid: u64, synced: Txg) -> Result<(Arc<Arena>, Heritage), ArenaError> {
        let (store, mut header) = Store::open(file)?;
        if header.guid != guid {
            return Err(ArenaError::Unsound("it is of another pool"));
        }
        let Contents { replay, start, end, done, is_cut, left_out, beyond } = Contents::read(&store, &header, synced)?;
        header.inherited = Inherited { start, end, txg: None };
        (header.gaps, header.synced) = (Default::default(), synced);
        header.epoch += 1;
        let pinned = header.tail;
        let mut ring = Ring::new(header, end, Some(pinned));
        ring.write_header(&store);
        let requests = Requests::default();
        for Entry { objset, unique, object, bytes, .. } in beyond {
            let change = Change { unique, ..Change::mark(objset, Done { object, bytes }) };
            if !ring.add(&store, &requests, &change) {
                return Err(ArenaError::Unsound("it has no room for what it tells"));
            }
        }
        Ok((Arena::assemble(store, ring, done), Heritage { entries: replay, is_cut, left_out, start }))
    }

    /// Names the pool whose arena it is: its guid and txgs. Once, before anything is noted.
    pub fn attach(&self, guid: u64, txgs: &Arc<TxgManager>) {
        let mut ring = self.ring.lock();
        if self.txgs.set(Arc::downgrade(txgs)).is_ok() && ring.header.guid != guid {
            ring.header.guid = guid;
            ring.write_header(&self.store);
        }
    }

    /// Payload of an entry that was inherited: a record, behind it the bytes of a write.
    ///
    /// # Errors
    /// Those of reading.
    pub fn payload(&self, entry: &Entry) -> Result<Vec<u8>, ArenaError> {
        payload_of(&self.store, entry)
    }

    /// Notes that everything inherited is done again in this transaction: it goes when its txg is on disk.
    pub fn inherit(self: &Arc<Self>, heritage: &Heritage, tx: &Tx) {
        let mut ring = self.ring.lock();
        ring.header.inherited.txg = Some(tx.txg());
        ring.write_header(&self.store);
        self.follow(&mut ring, tx, Some(heritage.start).filter(|_| !heritage.entries.is_empty()));
    }

    /// Forgets the requests of the process before: all that are sent again were, and what was done of them was asked for
    /// ([`Arena::take_done`]). Until then their records take room.
    pub fn forget_inherited(&self) {
        self.inherited.lock().clear();
        self.ring.lock().unpin(&self.store, &self.requests);
        self.give_back();
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.ring.lock().used()
    }
}

/// Noting.
impl Arena {
    /// Has the arena follow a txg: the first that is heard of it in this process.
    fn follow(self: &Arc<Self>, ring: &mut Ring, tx: &Tx, from: Option<u64>) {
        if ring.knows(tx.txg()) {
            return;
        }
        ring.begin(tx.txg(), from);
        let (arena, txg) = (self.clone(), tx.txg());
        tx.on_commit(Box::new(move |is_on_disk| {
            if is_on_disk {
                arena.synced(txg);
            }
        }));
    }

    /// Notes a change; where there is no room it is one that no entry tells of. Never waits.
    pub fn note(self: &Arc<Self>, noted: &Noted<'_>, tx: &Tx) {
        let Noted { kind, objset, time, done, payload } = *noted;
        // Deletions follow from something else, which some request did.
        let unique = if kind == EntryKind::Gone { 0 } else { request_of_thread() };
        // Before the lock: it takes as long as the payload is.
        let change = Change { kind, txg: tx.txg(), objset, unique, time, done, payload, sum: Sum::of(payload) };
        let mut ring = self.ring.lock();
        self.follow(&mut ring, tx, None);
        if !ring.add(&self.store, &self.requests, &change) {
            self.add_gap(&mut ring, &change);
        }
        let is_half_full = ring.used() > self.store.capacity() / 2;
        drop(ring);
        if is_half_full && self.hastened.fetch_max(tx.txg().0, Ordering::Relaxed) < tx.txg().0 {
            self.hasten();
        }
    }

    /// Notes that something was changed of which no record can tell.
    pub fn note_gap(self: &Arc<Self>, objset: u64, done: Done, tx: &Tx) {
        let change = Change { unique: request_of_thread(), txg: tx.txg(), ..Change::mark(objset, done) };
        let mut ring = self.ring.lock();
        self.follow(&mut ring, tx, None);
        self.add_gap(&mut ring, &change);
    }

    fn add_gap(&self, ring: &mut Ring, change: &Change<'_>) {
        self.gap.fetch_max(change.txg.0, Ordering::SeqCst);
        ring.add_gap(&self.store, change.txg);
        // Whoever goes on when the txg is on disk knows the request by it.
        let told = Change { kind: EntryKind::Gap, payload: &[], sum: Sum::of(&[]), ..*change };
        if change.unique != 0 {
            ring.add(&self.store, &self.requests, &told);
        }
    }

    fn hasten(&self) {
        if let Some(txgs) = self.txgs() {
            txgs.kick();
        }
    }

    /// A txg is on disk.
    fn synced(&self, txg: Txg) {
        {
            let mut ring = self.ring.lock();
            ring.synced(&self.store, &self.requests, txg);
            // After the header says so: what is answered from now on counts on that.
            let _ = self.gap.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |gap| (gap != 0 && gap <= txg.0).then_some(0));
        }
        self.give_back();
    }

    /// Gives memory back that nothing tells of any more; not under the lock, since that takes as long as it is. Who finds somebody at it leaves him
    /// the rest.
    fn give_back(&self) {
        loop {
            let Some((from, to)) = self.ring.lock().take_needless(&self.store) else { return };
            self.store.give_back(from, to);
            self.ring.lock().gave_back(to);
        }
    }

    fn txgs(&self) -> Option<Arc<TxgManager>> {
        self.txgs.get().and_then(Weak::upgrade)
    }
}

/// Requests.
impl Arena {
    /// Begins a request, of whose number `unique` nothing is known but that it is another for every request that is under way, of all mounts of
    /// the pool, and not 0. What this thread does from now on is for it, until [`Arena::left`].
    pub fn begin(self: &Arc<Self>, unique: u64) -> Request {
        Request::begin(self.clone(), unique)
    }

    /// Lets this thread work for no request any more: the operation is done, or goes on elsewhere by itself.
    pub fn left(&self) {
        Request::left();
    }

    /// A request was answered.
    fn answered(&self, unique: u64) {
        self.requests.answered(unique);
    }

    /// True when requests can be answered: nothing was changed that no record tells of, or it is on disk. To be asked between an operation's end
    /// and its answer; costs one load.
    pub fn is_settled(&self) -> bool {
        self.gap.load(Ordering::SeqCst) == 0
    }

    /// Txg that has to be on disk before anything that was changed so far is certain, 0 when it is: what somebody makes durable waits for it too, since a
    /// takeover stops there.
    pub fn unsettled(&self) -> Txg {
        Txg(self.gap.load(Ordering::SeqCst))
    }

    /// Waits until what was changed so far, and no record tells of, is on disk.
    ///
    /// # Errors
    /// [`DmuError::Stopped`] when the pool takes no more changes: the request must not be answered as done.
    pub fn wait_settled(&self) -> Result<(), DmuError> {
        match self.gap.load(Ordering::SeqCst) {
            0 => Ok(()),
            gap => {
                self.txgs().ok_or(DmuError::Stopped)?.wait_synced(Txg(gap)).map_err(|_| DmuError::Stopped)?;
                // Who waits may be told before the arena is, and of a txg that was not written in the end no uberblock tells.
                self.ring.lock().end_gaps(&self.store, Txg(gap));
                Ok(())
            }
        }
    }

    /// Effect of a request that the process before did and perhaps did not answer, as far as it was taken over. To be asked before
    /// [`Arena::begin`] of a request that is sent again.
    ///
    /// What makes, links, renames or removes a name, or a file without one, is known as a whole: the answer is made from the state. Of a write
    /// it is done when [`Done::bytes`] are all that was to be written. Everything else, and a write of which there are fewer, may have been done
    /// in part: it is to be done again as a whole, to the same effect, without regard to whether an attribute was to be there before.
    pub fn was_done(&self, objset: u64, unique: u64) -> Option<Done> {
        self.inherited.lock().get(&(objset, unique)).copied()
    }

    /// Effect as [`Arena::was_done`] has it, for whoever begins the request next: it stays known until it is answered, also when the others of the
    /// process before are forgotten.
    pub fn take_done(&self, objset: u64, unique: u64) -> Option<Done> {
        let inherited = self.inherited.lock();
        let done = *inherited.get(&(objset, unique))?;
        // Under the lock, which who forgets the others takes first. Some entry before all of this process tells of it.
        self.requests.note(objset, unique, Part { position: 0, done });
        Some(done)
    }
}
