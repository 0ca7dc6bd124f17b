//! Cache devices of an open pool (OpenZFS: `spa_load_l2cache`, `l2arc_feed_thread`): which are in use, and who feeds them.
//!
//! Nothing of the pool lies on them. So a device that fails, or is not there, changes nothing but what is read from memory and what from the pool; it
//! is never waited for by a txg. What a device holds outlives the process: it says so itself, and is asked when it comes into use.

use crate::label::{Device, read_configs};
use crate::spa::Spa;
use crate::spa::aux_devices::guid_of;
use crate::spa::config::PoolState;
use arc::Leaving;
use exec::{Crew, Mutex};
use l2arc::{L2arc, Tunables};
use nvlist::NvList;
use ondisk::{Guid, ObjsetId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vdev::LeafState;
use zio::LeafCounts;

/// Nanoseconds between two looks whether the thread is to end.
const SLICE_NS: u64 = 50_000_000;
/// Nanoseconds until it is looked again, where there was nothing to do.
const IDLE_NS: u64 = 1_000_000_000;
/// Nanoseconds for which it is remembered what a property of a dataset says.
const POLICY_NS: u64 = 5_000_000_000;

/// A cache device of a pool.
#[derive(Clone, Debug)]
pub struct CacheStatus {
    /// Guid of the device.
    pub guid: Guid,
    /// Path of the device.
    pub path: String,
    /// `file` or `disk`.
    pub kind: String,
    /// State of the device; [`LeafState::Missing`] when nobody could open it.
    pub state: LeafState,
    /// Bytes that blocks take, and may take.
    pub allocated_bytes: u64,
    /// Bytes that blocks may take.
    pub size_bytes: u64,
    /// Bytes of the device; 0 for one that is not open.
    pub device_bytes: u64,
    /// Error and I/O counters since the pool was opened or cleared.
    pub counts: LeafCounts,
    /// Histograms and queue depths, in the order of [`zio::EXTENDED`].
    pub extended: Vec<Vec<u64>>,
}

/// Blocks of a dataset that may go to cache devices (the property `secondarycache`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum May {
    Nothing,
    Metadata,
    All,
}

/// Properties of datasets, as far as somebody asked.
#[derive(Debug, Default)]
struct Policies {
    since_ns: u64,
    known: BTreeMap<ObjsetId, May>,
}

impl Policies {
    /// True for a block that may go; datasets of which nothing is known are noted.
    fn allow(&self, block: &Leaving, unknown: &mut BTreeSet<ObjsetId>) -> bool {
        // What is in no dataset is the pool's own.
        if block.objset == ObjsetId(0) {
            return true;
        }
        match self.known.get(&block.objset) {
            Some(May::All) => true,
            Some(May::Metadata) => block.is_metadata,
            Some(May::Nothing) => false,
            None => {
                unknown.insert(block.objset);
                false
            }
        }
    }
}

/// A device that is open, or why it is not.
#[derive(Debug)]
struct Seat {
    device: Option<Device>,
    state: LeafState,
}

/// The cache devices of one pool, in use.
pub(crate) struct Caches {
    spa: Arc<Spa>,
    second: Arc<L2arc>,
    seats: Mutex<BTreeMap<Guid, Seat>>,
    policies: Mutex<Policies>,
    crew: Crew,
    is_halted: AtomicBool,
    is_running: AtomicBool,
}

impl Caches {
    /// Makes the cache devices of a pool; none is open yet.
    pub fn new(spa: Arc<Spa>) -> Arc<Caches> {
        let second = Arc::new(L2arc::new(spa.zio().clone()));
        let (is_halted, is_running) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Caches { spa, second, seats: Mutex::default(), policies: Mutex::default(), crew: Crew::default(), is_halted, is_running })
    }

    /// Changes the parameters.
    pub fn tune(&self, tunables: Tunables) {
        self.second.tune(tunables);
    }

    /// Takes a device into use when its label says that it is this one; says in which state it is then. Waits for the device.
    pub fn seat(self: &Arc<Self>, guid: Guid, device: Device) -> LeafState {
        let state = match self.labelled(guid, &device) {
            None => LeafState::Missing,
            // Nobody would make room on it, so nobody looks what it holds.
            Some(_) if !self.spa.services.writeable => LeafState::Online,
            Some(ashift) => self.open(guid, &device, ashift),
        };
        self.seats.lock().insert(guid, Seat { device: Some(device).filter(|_| state.is_usable()), state });
        self.spawn();
        state
    }

    /// Size of a device's sectors, as a power of two, when its label says that it is this one.
    fn labelled(&self, guid: Guid, device: &Device) -> Option<u32> {
        let configs = read_configs(self.spa.exec(), device);
        let is_it = |label: &&NvList| guid_of(label) == Some(guid) && label.get_u64("state") == Some(PoolState::Cache.number());
        let label = configs.first().filter(is_it)?;
        Some(label.get_u64("ashift").and_then(|ashift| u32::try_from(ashift).ok()).unwrap_or_else(|| device.ashift()))
    }

    fn open(&self, guid: Guid, device: &Device, ashift: u32) -> LeafState {
        self.spa.io.cache().set_second_level(self.second.clone());
        self.second.set_pool(self.spa.guid());
        if self.second.add(guid, device, ashift) { LeafState::Online } else { LeafState::Missing }
    }

    /// Takes a device out of use, and closes it; it is in this state from then on. What one that is offline holds is known still, as in OpenZFS.
    pub fn set_aside(&self, guid: Guid, state: LeafState) {
        match state {
            LeafState::Offline => self.second.pause(guid),
            _ => self.let_go(guid),
        }
        self.seats.lock().insert(guid, Seat { device: None, state });
    }

    /// Forgets a device that is none of the pool's any more; gives it, if it was open.
    pub fn remove(&self, guid: Guid) -> Option<Device> {
        self.let_go(guid);
        self.seats.lock().remove(&guid).and_then(|seat| seat.device)
    }

    fn let_go(&self, guid: Guid) {
        self.second.remove(guid);
        self.second.settle(self.spa.io.cache(), u64::MAX);
    }

    /// Device that is open under this guid.
    pub fn device(&self, guid: Guid) -> Option<Device> {
        self.seats.lock().get(&guid).and_then(|seat| seat.device.clone())
    }

    /// State of a device; [`LeafState::Missing`] for one that nobody opened yet.
    pub fn state(&self, guid: Guid) -> LeafState {
        let report = self.second.report(guid).map(|report| report.state);
        report.or_else(|| self.seats.lock().get(&guid).map(|seat| seat.state)).unwrap_or(LeafState::Missing)
    }

    /// Status of a device that the pool's list has under this guid, path and kind.
    pub fn status(&self, (guid, path, kind): (Guid, String, String)) -> CacheStatus {
        let (state, device_bytes) = (self.state(guid), self.device(guid).map_or(0, |device| device.size_bytes()));
        let (report, stats) = (self.second.report(guid), self.spa.zio().leaf_stats_of(guid));
        CacheStatus {
            guid,
            path,
            kind,
            state,
            allocated_bytes: report.map_or(0, |report| report.allocated_bytes),
            size_bytes: report.map_or(0, |report| report.size_bytes),
            device_bytes,
            counts: stats.counts(),
            extended: stats.extended(),
        }
    }

    /// Has devices fed on a thread of its own while there is one that works.
    pub fn spawn(self: &Arc<Self>) {
        let is_free = || self.is_wanted() && !self.is_running.swap(true, Ordering::AcqRel);
        let own = self.clone();
        self.crew.start_if(self.spa.exec(), "z-l2arc", is_free, Box::new(move || own.run()));
    }

    /// Ends the thread, waits for it, and closes the devices.
    pub fn halt(&self) {
        self.is_halted.store(true, Ordering::Release);
        self.second.halt();
        self.crew.join();
        self.second.devices().into_iter().for_each(|guid| self.let_go(guid));
        self.seats.lock().clear();
    }

    fn is_wanted(&self) -> bool {
        self.spa.services.writeable && !self.is_halted.load(Ordering::Acquire) && self.second.is_in_use()
    }

    fn run(&self) {
        loop {
            while self.is_wanted() {
                let began_ns = self.spa.exec().now_ns();
                let interval_ns = self.feed().unwrap_or(IDLE_NS);
                self.wait_until(began_ns.saturating_add(interval_ns));
            }
            self.is_running.store(false, Ordering::Release);
            // Whoever brought a device meanwhile found this thread at work.
            if !self.is_wanted() || self.is_running.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }

    fn wait_until(&self, until_ns: u64) {
        let exec = self.spa.exec();
        while self.is_wanted() {
            match until_ns.saturating_sub(exec.now_ns()) {
                0 => return,
                left_ns => exec.sleep_ns(left_ns.min(SLICE_NS)),
            }
        }
    }

    /// Looks once for blocks to write to a device; the number of nanoseconds from the beginning of this to the next look. Waits for the device.
    pub fn feed(&self) -> Option<u64> {
        // Properties are read from the pool.
        if self.spa.zio().is_suspended() {
            return None;
        }
        // It may be given another one while it is open.
        self.second.set_pool(self.spa.guid());
        let mut policies = std::mem::take(&mut *self.policies.lock());
        let now_ns = self.spa.exec().now_ns();
        if now_ns.saturating_sub(policies.since_ns) >= POLICY_NS {
            policies = Policies { since_ns: now_ns, known: BTreeMap::new() };
        }
        let mut interval_ns = self.feed_by(&mut policies);
        if let Some(None) = interval_ns {
            interval_ns = self.feed_by(&mut policies);
        }
        *self.policies.lock() = policies;
        self.note_failed();
        interval_ns.map(|interval_ns| interval_ns.unwrap_or(IDLE_NS))
    }

    /// One round; None without a device, and Some(None) when properties had to be looked for first.
    fn feed_by(&self, policies: &mut Policies) -> Option<Option<u64>> {
        let mut unknown = BTreeSet::new();
        let fed = self.second.feed(self.spa.io.cache(), &mut |block| policies.allow(block, &mut unknown))?;
        let is_complete = unknown.is_empty();
        policies.known.extend(unknown.into_iter().map(|objset| (objset, self.policy_of(objset))));
        Some(is_complete.then_some(fed.interval_ns))
    }

    fn policy_of(&self, objset: ObjsetId) -> May {
        let property = self.spa.dsl.hold_object(objset.0).and_then(|dataset| dataset.prop_u64("secondarycache"));
        match property {
            Ok((2, _)) => May::All,
            Ok((1, _)) => May::Metadata,
            // One that was destroyed meanwhile, or cannot be read, needs no cache.
            Ok(_) | Err(_) => May::Nothing,
        }
    }

    /// Tells of devices that are used no longer since they fail.
    fn note_failed(&self) {
        let mut failed = Vec::new();
        for (guid, seat) in &mut *self.seats.lock() {
            let now = self.second.report(*guid).map_or(seat.state, |report| report.state);
            // One that is being taken offline does not fail.
            if now != seat.state && now != LeafState::Offline {
                seat.state = now;
                failed.push(*guid);
            }
        }
        for guid in failed {
            tracing::warn!("pool '{}': cache device (vdev {}) fails and is not used any more; no data is lost", self.spa.name(), guid.0);
            self.spa.notify("resource.fs.zfs.statechange", Some(guid));
        }
    }
}
