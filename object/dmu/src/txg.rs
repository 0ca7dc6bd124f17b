//! Transaction groups: handing out transactions, throttling them, and driving the sync.
//!
//! OpenZFS: `txg.c`, `dmu_tx_assign`, `dmu_tx_delay`, `dsl_pool_need_dirty_delay`. Simpler than there: a txg opens only
//! after every hold on the previous one was released, so at most two are alive (one open, one syncing) and changes are
//! strictly ordered.
//!
//! ```text
//!            assign                     close: no more holds         sync_txg ok
//!   (open) ─────────▶ holds > 0 … = 0 ──────────────▶ (syncing) ─────────────▶ (synced)
//!                                      opens the next      │ error
//!                                                          ▼
//!                                          (stopped) waiters get the error
//! ```
//! Who drives: the sync thread under a threaded executor after [`TxgManager::start`]; whoever waits under `Inline`.

use crate::budget::{DirtyBudget, TXG_SLOTS};
use crate::txg_history::{Passed, TxgHistory, TxgRecord};
use crate::{DmuError, SyncError, Tx, TxEvent, TxgSync};
use exec::{Condvar, Exec, Job, Mutex, OperationHandle, WaitQueue};
use kstat::Records;
use ondisk::Txg;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Tunables with OpenZFS's names and defaults.
#[derive(Clone, Copy, Debug)]
pub struct TxgConfig {
    /// A txg is synced at least this often, in nanoseconds (`zfs_txg_timeout`).
    pub timeout_ns: u64,
    /// Dirty bytes at which writers stop (`zfs_dirty_data_max`).
    pub dirty_data_max: u64,
    /// Percent of the maximum at which writers are delayed (`zfs_delay_min_dirty_percent`).
    pub delay_min_dirty_percent: u64,
    /// Steepness of the delay in nanoseconds (`zfs_delay_scale`).
    pub delay_scale_ns: u64,
    /// Percent of the maximum at which a sync starts early (`zfs_dirty_data_sync_percent`).
    pub dirty_data_sync_percent: u64,
}

impl Default for TxgConfig {
    fn default() -> Self {
        TxgConfig {
            timeout_ns: 5_000_000_000,
            dirty_data_max: 1 << 30,
            delay_min_dirty_percent: 60,
            delay_scale_ns: 500_000,
            dirty_data_sync_percent: 20,
        }
    }
}

/// The tunables as they are now: every transaction looks at some of them.
#[derive(Debug, Default)]
struct Tunables {
    timeout_ns: AtomicU64,
    dirty_data_max: AtomicU64,
    delay_min_dirty_percent: AtomicU64,
    delay_scale_ns: AtomicU64,
    dirty_data_sync_percent: AtomicU64,
}

impl Tunables {
    fn cells(&self) -> [&AtomicU64; 5] {
        [&self.timeout_ns, &self.dirty_data_max, &self.delay_min_dirty_percent, &self.delay_scale_ns, &self.dirty_data_sync_percent]
    }
    fn set(&self, config: &TxgConfig) {
        let TxgConfig { timeout_ns, dirty_data_max, delay_min_dirty_percent, delay_scale_ns, dirty_data_sync_percent } = *config;
        let values = [timeout_ns, dirty_data_max, delay_min_dirty_percent, delay_scale_ns, dirty_data_sync_percent];
        self.cells().iter().zip(values).for_each(|(cell, value)| cell.store(value, Ordering::Relaxed));
    }
    fn get(&self) -> TxgConfig {
        let [timeout_ns, dirty_data_max, delay_min_dirty_percent, delay_scale_ns, dirty_data_sync_percent] =
            self.cells().map(|cell| cell.load(Ordering::Relaxed));
        TxgConfig { timeout_ns, dirty_data_max, delay_min_dirty_percent, delay_scale_ns, dirty_data_sync_percent }
    }
}

/// The longest that one transaction is delayed (OpenZFS: `zfs_delay_max_ns`).
const DELAY_NS_MAX: u64 = 100_000_000;

/// Pause of whoever waits for a frozen pool.
const FROZEN_PAUSE_NS: u64 = 1_000_000;
/// Time after which the sync thread of a frozen pool looks whether it is to end, though nobody told it.
const FROZEN_LOOK: Duration = Duration::from_secs(60);

type Callback = Box<dyn FnOnce(bool) + Send>;

struct State {
    open: Txg,
    synced: Txg,
    /// Holds on the open txg.
    holds: u64,
    /// The open txg takes no more holds.
    closing: bool,
    /// A sync was asked for, up to and including this txg.
    wanted: Txg,
    /// The open txg was modified or asked for.
    opened_ns: u64,
    failed: Option<SyncError>,
    stopping: bool,
    /// Nothing is synced any more, and nobody waits for that.
    is_frozen: bool,
    /// True while somebody is in the middle of closing and syncing.
    driving: bool,
    /// Since when a txg is being synced.
    syncing_since_ns: Option<u64>,
    threaded: bool,
    callbacks: [Vec<Callback>; TXG_SLOTS],
    /// Jobs to be done when a txg is written and nobody was told so yet.
    first: [Vec<Job>; TXG_SLOTS],
}

/// The txgs of one pool.
pub struct TxgManager {
    exec: Exec,
    tunables: Tunables,
    budget: Arc<DirtyBudget>,
    /// Bytes written directly, by txg.
    direct: [AtomicU64; TXG_SLOTS],
    direct_max: AtomicU64,
    state: Mutex<State>,
    /// Wait queue of those who want to know when something in `state` changed.
    changed: WaitQueue,
    /// Wakes the sync thread early.
    kicked: Condvar,
    sync: Mutex<Option<Arc<dyn TxgSync>>>,
    thread: Mutex<Option<OperationHandle>>,
    history: TxgHistory,
}

impl fmt::Debug for TxgManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        write!(f, "TxgManager {{ open: {}, synced: {}, dirty: {} }}", state.open, state.synced, self.budget.total())
    }
}

impl TxgManager {
    /// Txgs of a pool whose last synced txg is `synced`: the next one is open.
    pub fn new(exec: Exec, synced: Txg, config: TxgConfig) -> Arc<TxgManager> {
        let opened_ns = exec.now_ns();
        let tunables = Tunables::default();
        tunables.set(&config);
        let history = TxgHistory::new();
        history.opened(synced.next(), opened_ns);
        Arc::new(TxgManager {
            history,
            tunables,
            budget: Arc::default(),
            direct: Default::default(),
            direct_max: AtomicU64::new(u64::MAX),
            state: Mutex::new(State {
                open: synced.next(),
                synced,
                holds: 0,
                closing: false,
                wanted: Txg::ZERO,
                opened_ns,
                failed: None,
                stopping: false,
                is_frozen: false,
                driving: false,
                syncing_since_ns: None,
                threaded: false,
                callbacks: Default::default(),
                first: Default::default(),
            }),
            changed: WaitQueue::new(),
            kicked: Condvar::new(),
            sync: Mutex::new(None),
            thread: Mutex::new(None),
            exec,
        })
    }

    /// Names the sync and, under a threaded executor, starts the thread that drives it. Where the system starts none whoever waits for a txg is told so.
    pub fn start(self: &Arc<Self>, sync: Arc<dyn TxgSync>) {
        *self.sync.lock() = Some(sync);
        if self.exec.is_inline() {
            return;
        }
        self.state.lock().threaded = true;
        let manager = self.clone();
        match self.exec.spawn_alone("z-txg-sync", Box::new(move || manager.run())) {
            Ok(handle) => *self.thread.lock() = Some(handle),
            Err(_) => self.end_with(SyncError::NoThread),
        }
    }

    /// Syncs what is open, stops the thread and lets go of the sync. No transaction can be assigned afterwards.
    pub fn stop(&self) -> Result<(), SyncError> {
        let last = self.state.lock().open;
        let result = self.wait_synced(last);
        {
            let mut state = self.state.lock();
            state.stopping = true;
            self.kicked.notify_all();
        }
        self.changed.notify_all();
        let handle = self.thread.lock().take();
        if let Some(handle) = handle {
            handle.join();
        }
        self.sync.lock().take();
        result
    }

    /// Syncs what is open, and nothing that comes after: it stays in memory, and whoever waits for it goes on as if it were on disk. Of what is changed
    /// from now on only intent logs bring something to the disk (OpenZFS: `spa_freeze`): for tests of their replay. Only opening the pool anew ends
    /// it.
    ///
    /// # Errors
    /// Those of the sync.
    pub fn freeze(&self) -> Result<(), SyncError> {
        self.wait_synced(self.open_txg())?;
        {
            let mut state = self.state.lock();
            state.is_frozen = true;
            self.kicked.notify_all();
        }
        self.changed.notify_all();
        self.budget.fell.notify_all();
        Ok(())
    }

    /// True since [`TxgManager::freeze`].
    pub fn is_frozen(&self) -> bool {
        self.state.lock().is_frozen
    }

    /// True when what `txg` brings is, or counts as, on disk. Who asks a frozen pool again and again has a pause each time.
    fn counts_as_synced(&self, txg: Txg) -> bool {
        let (is_synced, is_frozen) = {
            let state = self.state.lock();
            (state.synced >= txg, state.is_frozen)
        };
        if is_frozen && !is_synced {
            self.exec.sleep_ns(FROZEN_PAUSE_NS);
        }
        is_synced || is_frozen
    }

    /// True when a sync failed: nothing is written any more, until the pool is opened again.
    pub fn has_failed(&self) -> bool {
        self.state.lock().failed.is_some()
    }

    /// Tells everybody who waits that nothing more will be synced. A sync under way is not waited for: its devices may never answer, and
    /// nobody knows what becomes of it.
    pub fn give_up(&self) {
        self.end_with(SyncError::Stopped);
    }

    fn end_with(&self, error: SyncError) {
        {
            let mut state = self.state.lock();
            state.failed.get_or_insert(error);
            state.stopping = true;
            self.kicked.notify_all();
        }
        self.changed.notify_all();
        self.budget.fell.notify_all();
    }

    /// Stops without writing what is open, as a crash would; a sync under way ends first. Idempotent, also after
    /// [`TxgManager::stop`].
    pub fn abandon(&self) {
        self.give_up();
        let handle = self.thread.lock().take();
        if let Some(handle) = handle {
            handle.join();
        }
        self.sync.lock().take();
        self.state.lock().first.iter_mut().for_each(Vec::clear);
        let callbacks: Vec<Callback> = self.state.lock().callbacks.iter_mut().flat_map(std::mem::take).collect();
        for callback in callbacks {
            callback(false);
        }
    }

    /// Opens a transaction in the open txg. Waits while too much is dirty; `estimate` is what the caller will dirty, in
    /// bytes.
    pub fn assign(self: &Arc<Self>, estimate: u64) -> Result<Tx, DmuError> {
        self.throttle(estimate)?;
        self.assign_now()
    }

    /// Opens a transaction likewise for who dirties nothing: however much is dirty, it waits only while the open txg is being closed.
    ///
    /// # Errors
    /// [`DmuError::Stopped`].
    pub fn assign_now(self: &Arc<Self>) -> Result<Tx, DmuError> {
        loop {
            {
                let mut state = self.state.lock();
                if state.failed.is_some() || state.stopping {
                    TxEvent::Error.count();
                    return Err(DmuError::Stopped);
                }
                if !state.closing {
                    state.holds += 1;
                    TxEvent::Assigned.count();
                    return Ok(Tx::held(state.open, self.clone()));
                }
            }
            TxEvent::Group.count();
            self.changed.wait_until(&self.exec, &|| {
                let state = self.state.lock();
                !state.closing || state.failed.is_some() || state.stopping
            });
        }
    }

    /// Takes a further hold on a txg that somebody holds, which keeps it open.
    pub(crate) fn hold_again(&self, txg: Txg) {
        let mut state = self.state.lock();
        debug_assert_eq!(state.open, txg, "a hold keeps its txg open");
        debug_assert!(state.holds > 0, "who holds a txg again holds it");
        state.holds += 1;
    }

    /// Changes the tunables; transactions that wait or are delayed go by the new ones at once.
    pub fn set_config(&self, config: TxgConfig) {
        self.tunables.set(&config);
        {
            // Under the lock that the sync thread looks at the time with: it cannot miss the call.
            let _state = self.state.lock();
            self.kicked.notify_all();
        }
        self.budget.fell.notify_all();
    }

    /// Current tunables of the txg manager.
    pub fn config(&self) -> TxgConfig {
        self.tunables.get()
    }

    /// The txg that new transactions get.
    pub fn open_txg(&self) -> Txg {
        self.state.lock().open
    }

    /// The last txg on disk.
    pub fn synced_txg(&self) -> Txg {
        self.state.lock().synced
    }

    /// Nanoseconds for which a txg is being synced by now; None when none is.
    pub fn syncing_for_ns(&self) -> Option<u64> {
        let since = self.state.lock().syncing_since_ns?;
        Some(self.exec.now_ns().saturating_sub(since))
    }

    /// The newest txgs: when they were opened, how long they were in which state, what their syncs did.
    pub fn history(&self) -> &Arc<Records<TxgRecord>> {
        self.history.records()
    }

    /// Dirty bytes of all txgs.
    pub fn dirty_bytes(&self) -> u64 {
        self.budget.total()
    }

    /// True when the open txg takes no more holds and waits for those that there are.
    #[cfg(test)]
    pub(crate) fn is_closing(&self) -> bool {
        self.state.lock().closing
    }

    /// Asks for a sync of the open txg without waiting.
    pub fn kick(&self) {
        let mut state = self.state.lock();
        state.wanted = state.wanted.max(state.open);
        self.kicked.notify_all();
    }

    /// Waits until `txg` is on disk; drives the sync itself when nobody else does.
    pub fn wait_synced(&self, txg: Txg) -> Result<(), SyncError> {
        loop {
            if self.counts_as_synced(txg) {
                return Ok(());
            }
            {
                let mut state = self.state.lock();
                if state.synced >= txg {
                    return Ok(());
                }
                if let Some(error) = state.failed.clone() {
                    return Err(error);
                }
                if state.stopping {
                    return Err(SyncError::Stopped);
                }
                state.wanted = state.wanted.max(txg.min(state.open));
                self.kicked.notify_all();
                if !state.threaded && !state.driving {
                    drop(state);
                    self.drive_once()?;
                    continue;
                }
            }
            self.changed.wait_until(&self.exec, &|| {
                let state = self.state.lock();
                let is_over = state.is_frozen || state.failed.is_some() || state.stopping;
                state.synced >= txg || is_over || (!state.threaded && !state.driving)
            });
        }
    }

    /// Waits until `txg` is open or past.
    pub fn wait_open(&self, txg: Txg) -> Result<(), SyncError> {
        let open = self.state.lock().open;
        if open >= txg || self.is_frozen() {
            return Ok(());
        }
        if !self.state.lock().threaded {
            return self.wait_synced(Txg(txg.0 - 1));
        }
        self.state.lock().wanted = Txg(txg.0 - 1);
        self.kicked.notify_all();
        self.changed.wait_until(&self.exec, &|| {
            let state = self.state.lock();
            state.open >= txg || state.is_frozen || state.failed.is_some() || state.stopping
        });
        let state = self.state.lock();
        match &state.failed {
            Some(error) if state.open < txg => Err(error.clone()),
            None if state.open < txg && !state.is_frozen => Err(SyncError::Stopped),
            _ => Ok(()),
        }
    }

    pub(crate) fn on_commit(&self, txg: Txg, callback: Callback) {
        self.state.lock().callbacks[(txg.0 % TXG_SLOTS as u64) as usize].push(callback);
    }

    /// Does `job` when the txg was written, or could not be, before anybody who waits for it is told; it holds up all of them. False when
    /// the txg is over already, or none is written any more.
    pub fn before_told(&self, txg: Txg, job: Job) -> bool {
        let mut state = self.state.lock();
        let comes = txg > state.synced && state.failed.is_none() && !state.stopping && !state.is_frozen;
        if comes {
            state.first[(txg.0 % TXG_SLOTS as u64) as usize].push(job);
        }
        comes
    }

    /// Does what was asked for by [`TxgManager::before_told`].
    fn do_first(&self, txg: Txg) {
        loop {
            let jobs = std::mem::take(&mut self.state.lock().first[(txg.0 % TXG_SLOTS as u64) as usize]);
            if jobs.is_empty() {
                return;
            }
            jobs.into_iter().for_each(|job| job());
        }
    }

    /// Sets after how many bytes of direct writes a txg is synced early. They cost no memory, but what they overwrite is not
    /// free before it is synced. `dirty_data_max` at most.
    pub fn set_direct_max(&self, bytes: u64) {
        self.direct_max.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn note_direct(&self, txg: Txg, bytes: u64) {
        let max = self.direct_max.load(Ordering::Relaxed).min(self.tunables.dirty_data_max.load(Ordering::Relaxed));
        let before = self.direct[(txg.0 % TXG_SLOTS as u64) as usize].fetch_add(bytes, Ordering::Relaxed);
        if before < max && before + bytes >= max {
            self.kick_early();
        }
    }

    pub(crate) fn budget(&self) -> &Arc<DirtyBudget> {
        &self.budget
    }

    pub(crate) fn release(&self, txg: Txg) {
        let mut state = self.state.lock();
        debug_assert_eq!(state.open, txg, "a hold keeps its txg open");
        debug_assert!(state.holds > 0, "each hold is given back once");
        state.holds -= 1;
        if state.holds == 0 && state.closing {
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Delays or stops a writer by how much is dirty.
    fn throttle(self: &Arc<Self>, estimate: u64) -> Result<(), DmuError> {
        let config = self.tunables.get();
        let max = config.dirty_data_max;
        let dirty = self.budget.total();
        if dirty.saturating_mul(100) < max.saturating_mul(config.dirty_data_sync_percent) || self.is_frozen() {
            return Ok(());
        }
        if dirty + estimate >= max && dirty > 0 {
            self.kick();
            TxEvent::DirtyThrottle.count();
            TxEvent::DirtyOverMax.count();
            return self.wait_for_room(estimate);
        }
        self.kick_early();
        let low = max / 100 * config.delay_min_dirty_percent;
        if dirty > low {
            TxEvent::DirtyThrottle.count();
            TxEvent::DirtyDelay.count();
            let delay = config.delay_scale_ns.saturating_mul(dirty - low) / (max - dirty).max(1);
            self.exec.sleep_ns(delay.min(DELAY_NS_MAX));
        }
        Ok(())
    }

    /// Asks for the open txg once, not on every transaction.
    fn kick_early(&self) {
        let mut state = self.state.lock();
        if state.wanted < state.open {
            state.wanted = state.open;
            self.kicked.notify_all();
        }
    }

    fn wait_for_room(self: &Arc<Self>, estimate: u64) -> Result<(), DmuError> {
        let has_room = || {
            let max = self.tunables.dirty_data_max.load(Ordering::Relaxed);
            let dirty = self.budget.total();
            dirty == 0 || dirty + estimate < max
        };
        if !self.state.lock().threaded {
            while !has_room() {
                let open = self.open_txg();
                self.wait_synced(open).map_err(|_| DmuError::Stopped)?;
            }
            return Ok(());
        }
        self.budget.wanted.fetch_add(1, Ordering::SeqCst);
        self.budget.fell.wait_until(&self.exec, &|| {
            // The open txg may hold all the dirt: keep asking for it.
            self.kick_early();
            has_room() || {
                let state = self.state.lock();
                state.is_frozen || state.failed.is_some() || state.stopping
            }
        });
        self.budget.wanted.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    /// Closes the open txg, opens the next and syncs the closed one. One caller at a time.
    fn drive_once(&self) -> Result<(), SyncError> {
        {
            let mut state = self.state.lock();
            if state.driving {
                return Ok(());
            }
            state.driving = true;
            state.closing = true;
        }
        let closed_ns = self.exec.now_ns();
        self.changed.wait_until(&self.exec, &|| self.state.lock().holds == 0);
        let txg = {
            let mut state = self.state.lock();
            if let (true, Some(error)) = (state.stopping, state.failed.clone()) {
                // Given up while somebody held it: what it has must not reach the disk.
                (state.driving, state.closing) = (false, false);
                drop(state);
                self.changed.notify_all();
                return Err(error);
            }
            let txg = state.open;
            debug_assert_eq!(state.holds, 0, "a closed txg is held by nobody");
            debug_assert!(state.closing && state.syncing_since_ns.is_none(), "one txg is synced at a time");
            state.open = txg.next();
            state.opened_ns = self.exec.now_ns();
            state.syncing_since_ns = Some(state.opened_ns);
            state.closing = false;
            self.history.passed(txg, Passed::Open, closed_ns);
            self.history.passed(txg, Passed::Quiesced, state.opened_ns);
            self.history.opened(state.open, state.opened_ns);
            txg
        };
        self.changed.notify_all();
        let result = self.sync_closed(txg);
        self.do_first(txg);
        let callbacks = {
            let mut state = self.state.lock();
            (state.driving, state.syncing_since_ns) = (false, None);
            match &result {
                Ok(()) => {
                    debug_assert_eq!(txg, state.synced.next(), "txgs are synced in their order, none is left out");
                    debug_assert!(txg < state.open, "what is synced takes no more changes");
                    state.synced = txg;
                }
                Err(error) => state.failed = Some(error.clone()),
            }
            std::mem::take(&mut state.callbacks[(txg.0 % TXG_SLOTS as u64) as usize])
        };
        self.budget.end(txg);
        self.direct[(txg.0 % TXG_SLOTS as u64) as usize].store(0, Ordering::Relaxed);
        if result.is_err() {
            self.budget.fell.notify_all();
        }
        for callback in callbacks {
            callback(result.is_ok());
        }
        self.changed.notify_all();
        result
    }

    /// Syncs a txg that nobody holds any more.
    fn sync_closed(&self, txg: Txg) -> Result<(), SyncError> {
        let sync = self.sync.lock().clone().ok_or(SyncError::Stopped)?;
        let (dirty, before) = (self.budget.of(txg), sync.io_totals());
        self.history.passed(txg, Passed::Waited, self.exec.now_ns());
        let result = sync.sync_txg(txg);
        self.history.synced(txg, dirty, (before, sync.io_totals()));
        match &result {
            Ok(()) => self.history.passed(txg, Passed::Synced, self.exec.now_ns()),
            Err(error) => tracing::debug!("txg {txg} was not synced: {}", crate::with_causes(error)),
        }
        result
    }

    /// The sync thread: a txg when asked for or when its time is over.
    fn run(&self) {
        loop {
            {
                let mut state = self.state.lock();
                loop {
                    if state.stopping || state.failed.is_some() {
                        break;
                    }
                    let elapsed = self.exec.now_ns().saturating_sub(state.opened_ns);
                    let timeout_ns = self.tunables.timeout_ns.load(Ordering::Relaxed);
                    if !state.is_frozen && (state.wanted >= state.open || elapsed >= timeout_ns) {
                        break;
                    }
                    let left = if state.is_frozen { FROZEN_LOOK } else { Duration::from_nanos(timeout_ns - elapsed) };
                    self.kicked.wait_for(&mut state, left);
                }
                if state.stopping {
                    return;
                }
            }
            if self.drive_once().is_err() {
                return;
            }
        }
    }
}
