//! The writer of one dataset's log (OpenZFS: `zil_commit` and what it calls).
//!
//! ```text
//! note ─► lists ─commit─► one batch at a time: ask for bytes ─► blocks, the next one allocated ─► write all ─► flush once ─► who waits goes on
//!                              │ no log yet, no room, a device fails                                              ▲
//!                              └──────────────────────► the txg is waited for, a new log begins later ────────────┘
//! sync of a txg: waits for blocks whose followers it has, frees what it makes needless, and the header names the rest
//! ```
//! Invariants: a block that a txg's space maps have is reached from the header that goes to disk with it, or freed in it; nothing is written to a log
//! before its first block's txg is on disk; what could not be written is on disk with its txg before anything else is logged; a batch holds a txg only
//! while it allocates.

mod filled;
mod live;
mod noted;
mod pack;
#[cfg(test)]
mod tests;

use crate::stats::{LogCounts, ZilEvent};
use crate::{Itx, LogSource, Payload};
use dmu::{BlockError, BlockIo, DmuError, LogOwner, Tx, TxgManager};
use exec::{Exec, Mutex, WaitQueue};
use filled::{Ready, expected_bytes, fill};
use live::{LiveChain, write_out};
use noted::{Lists, Noted};
use ondisk::{BlockPtr, ObjectId, ObjsetId, Txg, ZilHeader};
use pack::{Bursts, Packer};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Txgs for which nothing is logged after a log could not be written (OpenZFS: `zl_restart_txg`).
const PAUSE_TXGS: u64 = 3;
/// Most nanoseconds that a batch waits for others to join it: a device that hung once holds up nobody for long.
const GATHER_NS_MAX: u64 = 100_000_000;
/// Batches that the usual time of one is an average of, about (OpenZFS: `zl_last_lwb_latency`).
const USUAL_BATCHES: u64 = 8;

/// Outcome of a batch that was not logged.
#[derive(Clone, Copy, Debug)]
struct Unlogged {
    /// Txg that brings it to disk.
    txg: Txg,
    /// True when nothing may be written to the log any more.
    is_broken: bool,
}

#[derive(Debug, Default)]
struct State {
    lists: Lists,
    chain: Option<LiveChain>,
    bursts: Bursts,
    /// Header that the object set has, or gets with the txg that is synced.
    header: ZilHeader,
    /// Batches that are done.
    done: u64,
    /// True while a batch is being written, which is the one after those that are done.
    is_writing: bool,
    /// True while that waits for others: it takes what is noted until then.
    is_gathering: bool,
    /// Usual time of writing a batch in nanoseconds.
    batch_ns: u64,
    /// Txg that has the newest blocks of the batch whose I/O is under way.
    in_flight: Option<Txg>,
    /// Newest batch that was not logged, and the txg that brings it to disk: that of older ones too.
    unlogged: Option<(u64, Txg)>,
    /// Txg that is to be on disk before anything is logged.
    barrier: Txg,
    /// The log is given up by the sync of this txg.
    given_up: Option<Txg>,
    is_closed: bool,
    /// Reason why the last batch could not be written.
    failure: Option<BlockError>,
    /// The failure was told.
    is_told: bool,
}

/// Name of a log's dataset, for messages; asked for without locks.
pub type LogName = Box<dyn Fn() -> String + Send + Sync>;

/// Writer of one dataset's log.
pub struct LogWriter {
    io: Arc<dyn BlockIo>,
    txgs: Arc<TxgManager>,
    objset: u64,
    name: LogName,
    source: Mutex<Weak<dyn LogSource>>,
    state: Mutex<State>,
    /// Wait queues of those who wait for batches with even and with odd numbers: they need not all be woken when another one ends.
    ended: [WaitQueue; 2],
    /// Wait queue of the syncs of txgs.
    settled: WaitQueue,
    /// True when something happened of which nothing was noted.
    has_gap: AtomicBool,
    /// Log devices are left to others.
    spares_log_devices: AtomicBool,
    /// Percentage of the usual time of a batch for which one waits for others.
    gather_percent: AtomicU64,
    counts: LogCounts,
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogWriter {{ objset: {} }}", self.objset)
    }
}

impl LogWriter {
    /// Writer for the object set with this number and the name of its dataset, which has no log; `source` knows the bytes of its objects.
    /// What happened before is not in any log: its txg is waited for.
    pub fn new(io: Arc<dyn BlockIo>, txgs: Arc<TxgManager>, (objset, name): (u64, LogName), source: Weak<dyn LogSource>) -> LogWriter {
        let state = State { barrier: txgs.open_txg(), ..State::default() };
        LogWriter {
            io,
            txgs,
            objset,
            name,
            source: Mutex::new(source),
            state: Mutex::new(state),
            ended: Default::default(),
            settled: WaitQueue::new(),
            has_gap: AtomicBool::new(false),
            spares_log_devices: AtomicBool::new(false),
            gather_percent: AtomicU64::new(0),
            counts: LogCounts::default(),
        }
    }

    fn exec(&self) -> &Exec {
        self.io.exec()
    }

    /// Counters of this log, by OpenZFS's names.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        self.counts.all()
    }

    /// Reason why what somebody wanted durable last could not be logged, while anybody uses the log.
    pub fn failure(&self) -> Option<BlockError> {
        let is_used = self.source.lock().strong_count() > 0;
        self.state.lock().failure.filter(|_| is_used)
    }

    /// Forgets why the log could not be written, since the devices work again: it is told anew if they don't.
    pub fn forget_failure(&self) {
        let mut state = self.state.lock();
        (state.failure, state.is_told) = (None, false);
    }

    /// Replaces whoever knows the bytes of objects.
    pub fn set_source(&self, source: Weak<dyn LogSource>) {
        *self.source.lock() = source;
    }

    /// Says whether blocks that are allocated from now on leave log devices to others.
    pub fn set_spares_log_devices(&self, spares: bool) {
        self.spares_log_devices.store(spares, Ordering::Relaxed);
    }

    /// Sets for how many percent of the usual time of a batch the next ones wait for others to join them, 100 ms at most (OpenZFS:
    /// `zfs_commit_timeout_pct`, there 10); 0: not at all.
    pub fn set_gather_percent(&self, percent: u64) {
        self.gather_percent.store(percent, Ordering::Relaxed);
    }

    /// See [`crate::Log::note`].
    pub fn note(&self, itx: Itx, tx: &Tx) {
        self.add(tx, |lists| lists.add(itx, tx.txg()));
    }

    /// See [`crate::Log::note_write`].
    pub fn note_write(&self, payload: Payload, only_with: Option<ObjectId>, tx: &Tx) {
        self.add(tx, |lists| {
            if let (Payload::Copied(range), Some(_)) = (&payload, only_with)
                && lists.lengthen(range, tx.txg())
            {
                return true;
            }
            Itx::of_write(payload, only_with).is_none_or(|itx| lists.add(itx, tx.txg()))
        });
    }

    /// Adds an operation of a transaction, if it is to be logged, by `add`, which says whether there was room for it.
    fn add(&self, tx: &Tx, add: impl FnOnce(&mut Lists) -> bool) {
        let mut state = self.state.lock();
        if state.is_closed || tx.txg() <= state.barrier {
            // Whoever commits waits for the txg.
            return;
        }
        self.counts.add(ZilEvent::Noted, 1);
        if !add(&mut state.lists) {
            state.lists.clear();
            state.wait_for(tx.txg());
            self.txgs.kick();
        }
    }

    /// Notes that something happened of which nothing is noted.
    pub fn note_gap(&self) {
        self.has_gap.store(true, Ordering::Release);
    }

    /// See [`crate::Log::promote`].
    pub fn promote(&self, object: ObjectId) {
        self.state.lock().lists.promote(Some(object));
    }

    /// See [`crate::Log::forget`].
    pub fn forget(&self, object: ObjectId) {
        self.state.lock().lists.forget(object);
    }

    /// See [`crate::Log::commit`]. Whoever holds a transaction must not call it.
    ///
    /// # Errors
    /// [`DmuError::Stopped`] when the pool takes no more changes.
    pub fn commit(&self, object: Option<ObjectId>) -> Result<(), DmuError> {
        self.counts.add(ZilEvent::Commits, 1);
        let mine = {
            let mut state = self.state.lock();
            state.lists.promote(object);
            if self.has_gap.swap(false, Ordering::AcqRel) {
                let open = self.txgs.open_txg();
                state.wait_for(open);
            }
            if state.is_closed || state.barrier > self.txgs.synced_txg() {
                drop(state);
                self.counts.add(ZilEvent::Suspended, 1);
                return self.wait_synced(self.txgs.open_txg());
            }
            // What was noted may be in the batch that is being written, or in the one after it.
            let is_taken = state.is_writing && !state.is_gathering;
            state.done + u64::from(is_taken) + u64::from(state.lists.has_work())
        };
        loop {
            {
                let mut state = self.state.lock();
                if state.done >= mine {
                    let unlogged = state.unlogged.filter(|(batch, _)| mine <= *batch);
                    drop(state);
                    return unlogged.map_or(Ok(()), |(_, txg)| self.wait_synced(txg));
                }
                if !state.is_writing {
                    (state.is_writing, state.is_gathering) = (true, true);
                    drop(state);
                    self.write_next();
                    continue;
                }
            }
            self.ended_of(mine).wait_until(self.exec(), &|| {
                let state = self.state.lock();
                state.done >= mine || !state.is_writing
            });
        }
    }

    /// Writes the next batch, which the caller has begun.
    fn write_next(&self) {
        self.let_join();
        let (batch, noted, is_held_up) = {
            let mut state = self.state.lock();
            state.is_gathering = false;
            (state.done + 1, state.lists.take(), state.is_closed || state.barrier > self.txgs.synced_txg())
        };
        let open = Unlogged { txg: self.txgs.open_txg(), is_broken: false };
        let result = if is_held_up { Err(open) } else { self.write_batch(noted) };
        self.end_batch(batch, result);
    }

    /// Waits a while for others who commit soon, if that is wanted.
    fn let_join(&self) {
        let percent = self.gather_percent.load(Ordering::Relaxed);
        if percent > 0 {
            let usual_ns = self.state.lock().batch_ns;
            self.exec().sleep_ns((usual_ns.saturating_mul(percent) / 100).min(GATHER_NS_MAX));
        }
    }

    fn wait_synced(&self, txg: Txg) -> Result<(), DmuError> {
        self.txgs.wait_synced(txg).map_err(|_| DmuError::Stopped)
    }

    /// Writes down how a batch ended, and lets those go on who wait for it.
    fn end_batch(&self, batch: u64, result: Result<(), Unlogged>) {
        let untold = {
            let mut state = self.state.lock();
            match result {
                Ok(()) => {}
                Err(Unlogged { txg, is_broken }) => {
                    state.leave_unlogged(batch, txg);
                    let pause = if is_broken { PAUSE_TXGS } else { 0 };
                    state.barrier = state.barrier.max(Txg(txg.0 + pause));
                    if is_broken {
                        state.given_up = Some(txg);
                    }
                }
            }
            (state.done, state.is_writing, state.in_flight) = (batch, false, None);
            let failure = state.failure;
            let is_told = std::mem::replace(&mut state.is_told, failure.is_some());
            failure.filter(|_| !is_told)
        };
        self.ended_of(batch).notify_all();
        // Of those who wait for the next one somebody has to write it, unless somebody who comes now does.
        self.ended_of(batch + 1).notify_one();
        self.settled.notify_all();
        if let Some(error) = untold {
            let name = (self.name)();
            tracing::warn!("the intent log of '{name}' cannot be written: {error}; what is to be durable waits for the txg until it can");
        }
    }

    fn ended_of(&self, batch: u64) -> &WaitQueue {
        &self.ended[(batch % 2) as usize]
    }

    /// Logs what was noted.
    fn write_batch(&self, mut noted: Vec<Noted>) -> Result<(), Unlogged> {
        let synced = self.txgs.synced_txg();
        noted.retain(|noted| noted.txg > synced);
        if noted.is_empty() {
            return Ok(());
        }
        self.counts.add(ZilEvent::Writers, 1);
        if self.state.lock().chain.is_none() {
            return Err(self.begin(&noted));
        }
        let mut blocks = Vec::new();
        let ready = self.fill(noted, &mut blocks).map_err(|error| {
            tracing::debug!("an operation of object set {} cannot be logged: {error}", self.objset);
            self.counts.add(ZilEvent::Errors, 1);
            Unlogged { txg: self.txgs.open_txg(), is_broken: false }
        })?;
        if ready.is_empty() { Ok(()) } else { self.write_ready(&ready, blocks) }
    }

    /// Asks for the bytes of operations.
    fn fill(&self, noted: Vec<Noted>, blocks: &mut Vec<BlockPtr>) -> Result<Vec<Ready>, DmuError> {
        let source = self.source.lock().upgrade();
        let mut ready = Vec::with_capacity(noted.len());
        for noted in noted {
            ready.extend(fill(noted, source.as_deref(), (blocks, &self.counts))?);
        }
        Ok(ready)
    }

    /// Begins a log, which can be written once its first block and the header are on disk.
    fn begin(&self, noted: &[Noted]) -> Unlogged {
        let held = self.txgs.assign_now();
        let mut state = self.state.lock();
        let Ok(tx) = held else { return Unlogged { txg: self.txgs.open_txg(), is_broken: false } };
        if state.chain.is_some() {
            return Unlogged { txg: tx.txg(), is_broken: false };
        }
        state.bursts.note(noted.iter().map(expected_bytes).sum());
        let owner = LogOwner { objset: ObjsetId(self.objset), spares_log_devices: self.spares_log_devices.load(Ordering::Relaxed) };
        match LiveChain::begin(&*self.io, owner, state.bursts.predict(), tx.txg()) {
            Ok(chain) => {
                state.chain = Some(chain);
                Unlogged { txg: tx.txg(), is_broken: false }
            }
            Err(error) => self.fail(&mut state, tx.txg(), error),
        }
    }

    /// Writes operations as one batch of blocks.
    fn write_ready(&self, ready: &[Ready], blocks: Vec<BlockPtr>) -> Result<(), Unlogged> {
        let open = |_| Unlogged { txg: self.txgs.open_txg(), is_broken: false };
        let (txg, outgoing) = {
            let tx = self.txgs.assign_now().map_err(open)?;
            let mut state = self.state.lock();
            let State { chain, bursts, is_closed, barrier, .. } = &mut *state;
            let Some(chain) = chain.as_mut().filter(|_| !*is_closed && *barrier < tx.txg()) else {
                return Err(Unlogged { txg: tx.txg(), is_broken: false });
            };
            chain.spares_log_devices = self.spares_log_devices.load(Ordering::Relaxed);
            let mut packer = Packer::new(chain.waiting_bytes(), chain.record_seq());
            ready.iter().try_for_each(|ready| packer.add(ready)).map_err(open)?;
            bursts.note(ready.iter().map(Ready::bytes).sum());
            match chain.extend(&*self.io, packer.finish(), bursts.predict(), tx.txg()) {
                Ok(outgoing) => {
                    state.in_flight = Some(tx.txg());
                    (tx.txg(), outgoing)
                }
                Err(error) => {
                    self.counts.add(ZilEvent::Stalls, 1);
                    return Err(self.fail(&mut state, tx.txg(), error));
                }
            }
        };
        let begun_ns = self.exec().now_ns();
        let result = write_out(&*self.io, outgoing, blocks, &self.counts);
        let taken_ns = self.exec().now_ns().saturating_sub(begun_ns);
        let mut state = self.state.lock();
        state.batch_ns = (state.batch_ns * (USUAL_BATCHES - 1)).saturating_add(taken_ns) / USUAL_BATCHES;
        match (result, &mut state.chain) {
            (Ok(()), Some(chain)) => {
                chain.settle();
                state.failure = None;
                Ok(())
            }
            (Ok(()), None) => Err(Unlogged { txg, is_broken: true }),
            (Err(error), _) => Err(self.fail(&mut state, txg, error)),
        }
    }

    /// Remembers why the log cannot be written: it is told once until it can.
    fn fail(&self, state: &mut State, txg: Txg, error: BlockError) -> Unlogged {
        self.counts.add(ZilEvent::Errors, 1);
        state.failure = Some(error);
        Unlogged { txg, is_broken: true }
    }

    /// Does the log's part of the sync of `txg`: blocks that are not needed once it is on disk are freed. Gives the header that the object set gets
    /// with it, if that changed. Before the object set is synced.
    pub fn sync(&self, txg: Txg) -> Option<ZilHeader> {
        // The txg has blocks that nothing on disk leads to until these are.
        self.settled.wait_until(self.exec(), &|| self.state.lock().in_flight.is_none_or(|newest| newest > txg));
        let mut state = self.state.lock();
        state.lists.drop_synced(Txg(txg.0.saturating_sub(1)));
        let is_over = (state.given_up.is_some_and(|last| last <= txg) || state.is_closed) && state.in_flight.is_none();
        let State { chain, header, given_up, .. } = &mut *state;
        let freed = chain.as_mut().map_or_else(Vec::new, |chain| chain.take_done(txg, is_over));
        if chain.as_ref().is_some_and(LiveChain::is_empty) {
            (*chain, *given_up) = (None, None);
        }
        if chain.is_none() {
            *given_up = None;
        }
        let next = chain.as_ref().map_or_else(ZilHeader::default, LiveChain::header);
        let is_new = *header != next;
        header.clone_from(&next);
        drop(state);
        freed.iter().for_each(|bp| self.io.free(txg, bp));
        is_new.then_some(next)
    }

    /// True when the object set has a header that leads to a log, or gets one with the txg that is being synced.
    pub fn is_begun(&self) -> bool {
        self.state.lock().header != ZilHeader::default()
    }

    /// Gives the log up with the open txg, since where it lies is lost, or what is to be in it was not announced; it begins anew after that.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        if state.chain.is_some() {
            let open = self.txgs.open_txg();
            state.wait_for(open);
            state.given_up.get_or_insert(open);
        }
    }

    /// Begins the log with the open txg where there is none: what is made durable once that is on disk needs no txg. Whoever holds a transaction must not
    /// call it.
    pub fn begin_ahead(&self) {
        let is_closed = self.state.lock().is_closed;
        if !is_closed {
            let Unlogged { txg, .. } = self.begin(&[]);
            self.state.lock().wait_for(txg);
        }
    }

    /// Ends the log: the next syncs free it, and whoever commits waits for the txg from now on.
    pub fn close(&self) {
        let mut state = self.state.lock();
        (state.is_closed, state.failure) = (true, None);
        state.lists.clear();
    }

    /// Lets a log begin anew after [`LogWriter::close`].
    pub fn reopen(&self) {
        let mut state = self.state.lock();
        let open = self.txgs.open_txg();
        state.wait_for(open);
        state.is_closed = false;
    }

    /// Frees the log of a dataset that the sync of `txg` destroys; nobody can commit any more.
    pub fn destroy(&self, txg: Txg) {
        self.close();
        let taken = self.state.lock().chain.take();
        for bp in taken.map_or_else(Vec::new, |mut chain| chain.take_all()) {
            self.io.free(txg.max(bp.birth()), &bp);
        }
    }
}

impl State {
    /// Lets nothing be logged until `txg` is on disk, whoever commits what was noted until now waits for it.
    fn wait_for(&mut self, txg: Txg) {
        self.barrier = self.barrier.max(txg);
        self.leave_unlogged(self.done + u64::from(self.is_writing) + 1, self.barrier);
    }

    /// Whoever waits for this batch, or one before, goes on when `txg` is on disk.
    fn leave_unlogged(&mut self, batch: u64, txg: Txg) {
        let before = self.unlogged.unwrap_or_default();
        self.unlogged = Some((before.0.max(batch), before.1.max(txg)));
    }
}
