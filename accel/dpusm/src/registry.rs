//! The registry: which providers there are, under which name, who has a session, and what takes a provider's place.
//!
//! ```text
//! register ──known-answer tests──► active ──replace──► replaced (old generation), active (new one, same name, same sessions)
//! active ──invalidate──► down (listed, sessions stay) ──replace──► active
//! active, down ──a result is found wrong, or distrust──► distrusted (listed, sessions stay, reconnect refused) ──replace──► active
//! active, down, distrusted ──unregister──► gone: sessions get `Down`
//! ```
//! Providers are tested outside of every lock. A [`Session`] follows its provider over replacements; a [`Device`] does not.

use crate::breaker::BreakerPolicy;
use crate::device::Device;
use crate::error::{Fault, RegistryError};
use crate::generation::{Caught, DeviceState, Disabled, Generation, PROVIDER_DOWN, PROVIDER_REPLACED, Parts};
use crate::known_answers::Bench;
use crate::provider::Provider;
use crate::speeds::Measured;
use crate::stats::OpStats;
use crate::trust::Trust;
use crate::worth::{Judged, WorthPolicy, judge};
use crate::{Capabilities, Feature, OpError, OpKind, QueueLimits};
use exec::{Exec, Mutex, RwLock};
use kstat::{EventSink, NoEvents};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Number of results of each operation that are checked, whatever share of the later ones is.
pub const PROOFS: u64 = 10_000;

/// Options of the registration of a provider.
#[derive(Clone, Debug)]
pub struct RegisterOptions {
    /// Limits at which its breakers open and close.
    pub breaker: BreakerPolicy,
    /// Deadline of each known-answer test, in nanoseconds.
    pub test_deadline_ns: u64,
    /// Largest block of the known-answer tests, in bytes (at least the smallest that a capability admits).
    pub test_bytes_max: usize,
    /// A folder in which a scratch file may be made, to test writing to files and disks; without one these stay disabled.
    pub scratch: Option<PathBuf>,
    /// Results of each operation that are to be proven right before only a share of them is looked at ([`Device::wants_proof`]).
    pub proofs: u64,
    /// Comparison with the processors of this machine that operations have to win; None: they are offered however slow they are.
    pub worth: Option<WorthPolicy>,
}

impl Default for RegisterOptions {
    fn default() -> RegisterOptions {
        RegisterOptions {
            breaker: BreakerPolicy::default(),
            test_deadline_ns: 10_000_000_000,
            test_bytes_max: 1 << 20,
            scratch: None,
            proofs: PROOFS,
            worth: None,
        }
    }
}

/// A provider's place under its name.
struct Entry {
    name: String,
    current: RwLock<Option<Arc<Generation>>>,
    /// Trust in what was loaded last.
    trust: RwLock<Arc<Trust>>,
    sessions: AtomicUsize,
    stats: Arc<OpStats>,
}

/// Facts about a provider.
#[derive(Clone, Debug)]
pub struct ProviderInfo {
    /// Name of the provider.
    pub name: String,
    /// Version of the provider.
    pub version: String,
    /// Number of its generation.
    pub generation: u64,
    /// State of its generation.
    pub state: DeviceState,
    /// Number of open sessions.
    pub sessions: usize,
    /// Buffers and stores alive.
    pub live_handles: usize,
    /// Capabilities that are used.
    pub capabilities: Capabilities,
    /// Capabilities that it declared and that are not used.
    pub disabled: Vec<Disabled>,
    /// Operations that were found to be faster than the processors of this machine, with their speeds.
    pub measured: Vec<Measured>,
    /// The operation that it was caught lying at.
    pub lie: Option<OpKind>,
}

/// All providers of a process; clones are the same registry.
#[derive(Clone)]
pub struct Registry(Arc<Shared>);

struct Shared {
    exec: Exec,
    events: Arc<dyn EventSink>,
    entries: Mutex<BTreeMap<String, Arc<Entry>>>,
    generations: AtomicU64,
    caught: Arc<Caught>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.entries.lock().keys()).finish()
    }
}

impl Registry {
    /// A registry without providers, whose callbacks and timers run on `exec`.
    pub fn new(exec: &Exec) -> Registry {
        Registry::with_events(exec, Arc::new(NoEvents))
    }

    /// As [`Registry::new`]; breakers that open and close, providers that die or are replaced are told to `events`.
    pub fn with_events(exec: &Exec, events: Arc<dyn EventSink>) -> Registry {
        let (entries, generations, caught) = (Mutex::default(), AtomicU64::new(0), Arc::default());
        Registry(Arc::new(Shared { exec: exec.clone(), events, entries, generations, caught }))
    }

    /// Calls `caught` from now on with the name of each provider that is caught lying and the operation; from a job, so it must not wait. The
    /// first call counts.
    pub fn when_caught(&self, caught: impl Fn(&str, OpKind) + Send + Sync + 'static) {
        let _ = self.0.caught.set(Box::new(caught));
    }

    /// Tests a provider and takes it in. Waits: for operations only. The device tells what was disabled.
    ///
    /// # Errors
    /// `BadName`, `Exists`, or `CannotCopy` when bytes do not come back as they went.
    pub fn register(&self, provider: Arc<dyn Provider>, options: &RegisterOptions) -> Result<Device, RegistryError> {
        let name = checked_name(&*provider)?;
        if self.0.entries.lock().contains_key(&name) {
            return Err(RegistryError::Exists { name });
        }
        let stats = Arc::new(OpStats::default());
        let trust = Arc::new(Trust::default());
        let generation = self.admit(provider, options, stats.clone(), trust.clone())?;
        let (current, trust) = (RwLock::new(Some(generation.clone())), RwLock::new(trust));
        let entry = Arc::new(Entry { name: name.clone(), current, trust, sessions: AtomicUsize::new(0), stats });
        let mut entries = self.0.entries.lock();
        if entries.contains_key(&name) {
            return Err(RegistryError::Exists { name });
        }
        entries.insert(name, entry);
        Ok(Device(generation))
    }

    /// Tests a provider and puts it in the place of the one of the same name, also of a dead or distrusted one: sessions get it with their
    /// next block, graphs in flight end on the old one. Somebody wants it so: it is trusted anew. Waits: for operations only.
    ///
    /// # Errors
    /// `Unknown` when there is none; else as [`Registry::register`], and the old one stays.
    pub fn replace(&self, provider: Arc<dyn Provider>, options: &RegisterOptions) -> Result<Device, RegistryError> {
        let entry = self.entry(&checked_name(&*provider)?)?;
        self.succeed(&entry, provider, options, Arc::default())
    }

    /// As [`Registry::replace`], for a provider that comes back by itself: it is trusted as it was before.
    ///
    /// # Errors
    /// `Distrusted` when it was caught lying; else as [`Registry::replace`].
    pub fn reconnect(&self, provider: Arc<dyn Provider>, options: &RegisterOptions) -> Result<Device, RegistryError> {
        let entry = self.entry(&checked_name(&*provider)?)?;
        let trust = entry.trust.read().clone();
        if let Some(operation) = trust.lie() {
            return Err(RegistryError::Distrusted { name: entry.name.clone(), operation });
        }
        self.succeed(&entry, provider, options, trust)
    }

    fn succeed(
        &self,
        entry: &Entry,
        provider: Arc<dyn Provider>,
        options: &RegisterOptions,
        trust: Arc<Trust>,
    ) -> Result<Device, RegistryError> {
        let generation = self.admit(provider, options, entry.stats.clone(), trust.clone())?;
        let mut current = entry.current.write();
        if current.is_none() && entry.trust.read().lie().is_none() {
            return Err(RegistryError::Unknown { name: entry.name.clone() });
        }
        *entry.trust.write() = trust;
        let old = current.replace(generation.clone());
        drop(current);
        old.into_iter().for_each(|old| old.set_replaced());
        self.0.events.event(generation.event(PROVIDER_REPLACED));
        Ok(Device(generation))
    }

    /// Notes that a provider was caught lying at an operation in an earlier life of this process: it is listed, and not used, until somebody puts
    /// one in its place. One that is there is left alone.
    pub fn distrust(&self, name: &str, operation: OpKind) {
        let entry = || Entry {
            name: name.to_string(),
            current: RwLock::default(),
            trust: RwLock::new(Arc::new(Trust::lost(operation))),
            sessions: AtomicUsize::new(0),
            stats: Arc::default(),
        };
        self.0.entries.lock().entry(name.to_string()).or_insert_with(|| Arc::new(entry()));
    }

    /// The operation that a provider was caught lying at.
    pub fn lie(&self, name: &str) -> Option<OpKind> {
        let entry = self.entry(name).ok()?;
        let trust = entry.trust.read();
        trust.lie()
    }

    /// Takes a provider out. With sessions only when `even_if_used`; then it is as dead as after [`Registry::invalidate`].
    ///
    /// # Errors
    /// `Unknown`, `InUse`.
    pub fn unregister(&self, name: &str, even_if_used: bool) -> Result<(), RegistryError> {
        let mut entries = self.0.entries.lock();
        let entry = entries.get(name).ok_or_else(|| RegistryError::Unknown { name: name.to_string() })?.clone();
        let sessions = entry.sessions.load(Ordering::Acquire);
        if sessions > 0 && !even_if_used {
            return Err(RegistryError::InUse { sessions });
        }
        entries.remove(name);
        drop(entries);
        let old = entry.current.write().take();
        // It was taken out on purpose: nobody has to be told.
        if let Some(old) = old {
            old.bring_down();
        }
        Ok(())
    }

    /// Declares a provider dead, also while it is in use: what is in flight ends with `Down`, handles can only be dropped.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn invalidate(&self, name: &str) -> Result<(), RegistryError> {
        let generation = self.entry(name)?.current.read().clone();
        for dead in generation.into_iter().filter(|generation| generation.bring_down()) {
            self.0.events.event(dead.event(PROVIDER_DOWN));
        }
        Ok(())
    }

    /// A provider as it is: nothing is tested, nothing is switched off, and it is under no name. For a process that lends it to another one, which
    /// judges it.
    pub fn unjudged(&self, provider: Arc<dyn Provider>) -> Device {
        let parts = Parts {
            exec: self.0.exec.clone(),
            number: self.0.generations.fetch_add(1, Ordering::Relaxed) + 1,
            capabilities: provider.capabilities(),
            disabled: Vec::new(),
            proof: None,
            measured: Vec::new(),
            policy: BreakerPolicy { failures_max: u32::MAX, slow_max: u32::MAX, ..BreakerPolicy::default() },
            stats: Arc::default(),
            trust: Arc::default(),
            proofs: 0,
            caught: std::sync::Weak::new(),
            events: Arc::new(NoEvents),
            is_trial: false,
            provider,
        };
        Device(Generation::new(parts))
    }

    /// A session with a provider; it counts as in use until the session is dropped.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn get(&self, name: &str) -> Result<Session, RegistryError> {
        let entries = self.0.entries.lock();
        let entry = entries.get(name).ok_or_else(|| RegistryError::Unknown { name: name.to_string() })?;
        entry.sessions.fetch_add(1, Ordering::AcqRel);
        Ok(Session(entry.clone()))
    }

    /// Every provider, by name.
    pub fn list(&self) -> Vec<ProviderInfo> {
        let entries: Vec<Arc<Entry>> = self.0.entries.lock().values().cloned().collect();
        entries.iter().filter_map(|entry| entry.info()).collect()
    }

    fn entry(&self, name: &str) -> Result<Arc<Entry>, RegistryError> {
        self.0.entries.lock().get(name).cloned().ok_or_else(|| RegistryError::Unknown { name: name.to_string() })
    }

    /// Makes a generation of what stands the tests.
    fn admit(
        &self,
        provider: Arc<dyn Provider>,
        options: &RegisterOptions,
        stats: Arc<OpStats>,
        trust: Arc<Trust>,
    ) -> Result<Arc<Generation>, RegistryError> {
        // One that is there a thousand times is not tested a thousand times.
        let declared = provider.capabilities().distinct();
        // One failure must not hide what is wrong with the next capability.
        let lenient = BreakerPolicy { failures_max: u32::MAX, slow_max: u32::MAX, ..options.breaker };
        let parts = |capabilities: Capabilities, (disabled, proof, measured), policy, (stats, trust), is_trial| Parts {
            exec: self.0.exec.clone(),
            provider: provider.clone(),
            number: self.0.generations.fetch_add(1, Ordering::Relaxed) + 1,
            capabilities,
            disabled,
            proof,
            measured,
            policy,
            stats,
            trust,
            proofs: options.proofs,
            caught: Arc::downgrade(&self.0.caught),
            // What a test finds is told to who registers.
            events: if is_trial { Arc::new(NoEvents) } else { self.0.events.clone() },
            is_trial,
        };
        let trial = Device(Generation::new(parts(declared.clone(), Default::default(), lenient, Default::default(), true)));
        let bench = Bench {
            device: &trial,
            deadline_ns: options.test_deadline_ns,
            bytes_max: options.test_bytes_max,
            scratch: options.scratch.as_deref(),
        };
        let (mut kept, mut disabled) = (Vec::new(), Vec::new());
        let copies = |feature: &Feature| matches!(feature, Feature::CopyIn { .. } | Feature::CopyOut { .. });
        let directions =
            [|feature: &Feature| matches!(feature, Feature::CopyIn { .. }), |feature: &Feature| matches!(feature, Feature::CopyOut { .. })];
        if directions.iter().any(|is_it| !declared.list.iter().any(|capability| is_it(&capability.feature))) {
            return Err(RegistryError::CannotCopy(Fault::Error(OpError::NotImplemented)));
        }
        for capability in declared.list {
            match bench.test(&capability) {
                Ok(()) => kept.push(capability),
                Err(fault) if copies(&capability.feature) => return Err(RegistryError::CannotCopy(fault)),
                Err(fault) => disabled.push(Disabled { capability, fault }),
            }
        }
        let judged = match &options.worth {
            Some(policy) => judge(&trial, kept, policy, &stats),
            None => Judged { kept, ..Judged::default() },
        };
        disabled.extend(judged.disabled);
        let capabilities = Capabilities { list: judged.kept, queue: declared.queue };
        Ok(Generation::new(parts(capabilities, (disabled, judged.proof, judged.measured), options.breaker, (stats, trust), false)))
    }
}

fn checked_name(provider: &dyn Provider) -> Result<String, RegistryError> {
    let name = provider.name();
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(good) {
        return Err(RegistryError::BadName { name: name.to_string() });
    }
    Ok(name.to_string())
}

impl Entry {
    fn info(&self) -> Option<ProviderInfo> {
        let lie = self.trust.read().lie();
        let Some(device) = self.current.read().clone().map(Device) else { return lie.map(|lie| self.absent(lie)) };
        Some(ProviderInfo {
            name: self.name.clone(),
            version: device.version(),
            generation: device.generation(),
            state: device.state(),
            sessions: self.sessions.load(Ordering::Acquire),
            live_handles: device.live_handles(),
            capabilities: device.capabilities().clone(),
            disabled: device.disabled().to_vec(),
            measured: device.measured().to_vec(),
            lie,
        })
    }

    /// Facts about one that was distrusted before it was ever registered here.
    fn absent(&self, lie: OpKind) -> ProviderInfo {
        ProviderInfo {
            name: self.name.clone(),
            version: String::new(),
            generation: 0,
            state: DeviceState::Distrusted,
            sessions: self.sessions.load(Ordering::Acquire),
            live_handles: 0,
            capabilities: Capabilities { list: Vec::new(), queue: QueueLimits { graphs_max: 0, bytes_max: 0 } },
            disabled: Vec::new(),
            measured: Vec::new(),
            lie: Some(lie),
        }
    }
}

/// A provider in use, by its name: over replacements of it. Dropping it gives the provider back.
pub struct Session(Arc<Entry>);

impl Session {
    /// The provider's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The provider as it is now: what a block begins with, and keeps to its end.
    ///
    /// # Errors
    /// `Down` when it is dead or gone.
    pub fn device(&self) -> Result<Device, OpError> {
        let current = self.0.current.read().clone().ok_or(OpError::Down)?;
        if current.is_down() { Err(OpError::Down) } else { Ok(Device(current)) }
    }

    /// The operation that it was caught lying at, if it was.
    pub fn lie(&self) -> Option<OpKind> {
        self.0.trust.read().lie()
    }

    /// The counters, over all generations.
    pub fn stats(&self) -> &Arc<OpStats> {
        &self.0.stats
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({})", self.0.name)
    }
}
