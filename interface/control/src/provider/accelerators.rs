//! The daemon's accelerators: which there are, and how pools come to them.
//!
//! A provider is tested when it is first needed, beside what else is done: the tests of one with many levels take a while, and one that hangs is to hold
//! up nobody. A pool goes on in software until then, and follows. Libraries and targets that were loaded stand in `providers.json` of the state
//! directory, and are there again after a restart. Libraries of vendors run in processes of their own (`provider_process`). What was caught
//! lying stays switched off there too, until somebody loads it.

use crate::failure::believable;
use crate::provider::source::{FAULTY, Place, Remembered, SIM, SOFTWARE, Source};
use crate::provider::targets::{self, Keeper, Running};
use crate::provider::within::within;
use control_api::{DisabledCapability, ErrorKind, Failure, ProviderLoad, ProviderReport, ProviderUnload, StateDir};
use dpusm::{Device, DeviceState, OpKind, Provider, ProviderInfo, RegisterOptions, Registry, RegistryError, Session, WorthPolicy};
use exec::{Condvar, Exec, Mutex};
use kstat::EventSink;
use metrics::Parameters;
use pool::Awaited;
use provider_cuda::{Cuda, CudaOptions};
use provider_faulty::Faulty;
use provider_sim::{Sim, SimOptions};
use provider_software::{Software, SoftwareOptions};
use service::trust;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Name of a target when its user does not give one.
const TARGET: &str = "target";
/// Bytes of the largest block of the tests of our own software, which has tests of its own.
const SOFTWARE_TEST_BYTES_MAX: usize = 16 << 10;
/// Longest time that a person who names a provider waits for its tests, of which each has a deadline of its own.
const TESTS: Duration = Duration::from_secs(30);
/// Longest time that somebody who loads a provider waits for it and its tests: less than their command does.
const LOADING: Duration = Duration::from_secs(540);
/// Number of deadlines of a provider's answer that a GPU may take to be opened: its compiler takes seconds.
const OPENING_DEADLINES: u32 = 12;
/// Turn at the driver of GPUs; no provider can have such a name.
const OPENING: &str = "(opening a GPU)";
/// Folder of the state directory in which providers' writes to files and disks are tried out: the only one that a target has to be allowed for that.
const TRIALS: &str = "provider-tests";

/// Provider that was just made, not registered yet.
enum Made {
    Apart(Place, Running),
    Cuda(Arc<Cuda>),
    Sim(Arc<Sim>),
    Faulty(Arc<Faulty>, Option<provider_faulty::Fault>),
}

/// Callback that is told that a provider came or went by itself.
type Changed = Box<dyn Fn() + Send + Sync>;

/// Providers that the daemon knows, and what becomes of them.
pub(crate) struct Accelerators {
    exec: Exec,
    registry: Registry,
    remembered: PathBuf,
    /// Folder in which writes are tried out.
    trials: PathBuf,
    /// Sources of providers, by their names.
    sources: Mutex<BTreeMap<String, Source>>,
    /// Keepers of the providers that have a process of their own and were needed, by their names.
    keepers: Mutex<BTreeMap<String, Arc<Keeper>>>,
    /// Reasons why providers are not there, by their names.
    problems: Mutex<BTreeMap<String, String>>,
    /// Names at which somebody is at work: one at a time for each.
    busy: Mutex<BTreeSet<String>>,
    freed: Condvar,
    /// True while the daemon starts: whoever needs a provider does not wait for it.
    is_opening: AtomicBool,
    parameters: Arc<Parameters>,
    /// Lock for one writer of the file at a time.
    remembering: Mutex<()>,
    changed: OnceLock<Changed>,
}

/// Right to register or take away what has a name, as long as it lives.
pub(crate) struct Turn {
    owner: Arc<Accelerators>,
    name: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.owner.busy.lock().remove(&self.name);
        self.owner.freed.notify_all();
    }
}

/// Sources that were remembered; a file that makes no sense, or that others could have written, is said, and empty. Known liars are told to
/// the registry at once.
fn remembered(path: &Path, registry: &Registry) -> BTreeMap<String, Source> {
    let complain = |error: &dyn fmt::Display| tracing::warn!("{}: {error}; load the providers again", path.display());
    let text = trust::read(path).unwrap_or_else(|why| {
        tracing::warn!("{}; load the providers again", believable(&why));
        None
    });
    let Some(text) = text else { return BTreeMap::new() };
    let all: BTreeMap<String, Remembered> = serde_json::from_slice(&text).unwrap_or_else(|error| {
        complain(&error);
        BTreeMap::new()
    });
    let mut sources = BTreeMap::new();
    for (name, one) in all {
        let (from, lie) = one.parts();
        lie.iter().for_each(|kind| registry.distrust(&name, *kind));
        match from.map(str::parse::<Source>).transpose() {
            Ok(source) => sources.extend(source.map(|source| (name, source))),
            Err(error) => complain(&error),
        }
    }
    sources
}

/// Reason why a provider that was caught lying is not used.
fn why_distrusted(operation: OpKind, from: &str) -> String {
    format!(
        "a result of {} was wrong; it is not used any more, until 'zirconia provider load {from}' says that it may be",
        operation.name()
    )
}

impl Accelerators {
    /// Makes the providers: knows what was loaded before, without having loaded it yet.
    pub fn new(exec: &Exec, state: &StateDir, events: Arc<dyn EventSink>, parameters: Arc<Parameters>) -> Arc<Accelerators> {
        let (path, trials) = (state.path().join("providers.json"), state.path().join(TRIALS));
        // Now: a target has to be allowed to write there before it is loaded. What cannot be made, or is no folder, costs those tests.
        let _ = DirBuilder::new().mode(0o700).create(&trials);
        let registry = Registry::with_events(exec, events);
        let sources = Mutex::new(remembered(&path, &registry));
        let own = Arc::new(Accelerators {
            exec: exec.clone(),
            registry,
            remembered: path,
            trials,
            sources,
            keepers: Mutex::default(),
            problems: Mutex::default(),
            busy: Mutex::default(),
            freed: Condvar::new(),
            is_opening: AtomicBool::new(false),
            parameters,
            remembering: Mutex::default(),
            changed: OnceLock::new(),
        });
        let weak = Arc::downgrade(&own);
        own.registry.when_caught(move |name, kind| {
            let Some(own) = weak.upgrade() else { return };
            let (exec, name) = (own.exec.clone(), name.to_string());
            // A file is written: not by a job.
            drop(exec.spawn_operation("z-distrust", Box::new(move || own.caught(&name, kind))));
        });
        own
    }

    /// Notes that a provider was caught lying: it stays off in the daemon's next life too, and nobody looks for it any more if it is a target.
    fn caught(&self, name: &str, kind: OpKind) {
        self.remember();
        self.let_go(name);
        self.note_problem(name, &why_distrusted(kind, &self.from(name)));
    }

    /// Text that `zirconia provider load` is to be told for a provider.
    fn from(&self, name: &str) -> String {
        self.sources.lock().get(name).map_or_else(|| name.to_string(), Source::to_string)
    }

    /// Calls `changed` from now on when a provider came or went by itself.
    pub fn when_changed(&self, changed: impl Fn() + Send + Sync + 'static) {
        // Said once, at the start.
        let _ = self.changed.set(Box::new(changed));
    }

    pub(crate) fn changed(&self) {
        if let Some(changed) = self.changed.get() {
            changed();
        }
    }

    pub(crate) fn exec(&self) -> &Exec {
        &self.exec
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Longest time that a process may take to load a library, and for each answer.
    pub(crate) fn deadline(&self) -> Duration {
        Duration::from_millis(self.parameters.get("zirconia_provider_deadline_ms").unwrap_or(10_000))
    }

    /// Notes whether the daemon starts.
    pub(crate) fn set_opening(&self, is_opening: bool) {
        self.is_opening.store(is_opening, Ordering::Release);
    }

    /// Waits for the turn at a name.
    pub(crate) fn turn(self: &Arc<Self>, name: &str) -> Turn {
        let mut busy = self.busy.lock();
        while !busy.insert(name.to_string()) {
            self.freed.wait(&mut busy);
        }
        Turn { owner: self.clone(), name: name.to_string() }
    }

    fn try_turn(self: &Arc<Self>, name: &str) -> Option<Turn> {
        self.busy.lock().insert(name.to_string()).then(|| Turn { owner: self.clone(), name: name.to_string() })
    }

    /// Waits until nobody is at work at these names, up to a time.
    fn wait_for(&self, names: &[String], time: Duration) {
        let until = self.exec.now_ns().saturating_add(time.as_nanos() as u64);
        let mut busy = self.busy.lock();
        while names.iter().any(|name| busy.contains(name)) {
            let left = until.saturating_sub(self.exec.now_ns());
            if left == 0 {
                return;
            }
            self.freed.wait_for(&mut busy, Duration::from_nanos(left));
        }
    }

    pub(crate) fn problem(&self, name: &str) -> Option<String> {
        self.problems.lock().get(name).cloned()
    }

    /// Remembers why a provider is not there, and says it once.
    pub(crate) fn note_problem(&self, name: &str, why: &str) {
        if self.problems.lock().insert(name.to_string(), why.to_string()).as_deref() != Some(why) {
            tracing::warn!("provider '{name}': {why}");
        }
    }

    pub(crate) fn forget_problem(&self, name: &str) {
        self.problems.lock().remove(name);
    }

    /// Opens a provider's session. One that was not needed yet is made and tested from now on; whoever needs it is told when that is done.
    pub fn session(self: &Arc<Self>, name: &str) -> Result<Session, RegistryError> {
        if let Ok(session) = self.registry.get(name) {
            return Ok(session);
        }
        if name == SOFTWARE && !self.is_opening.load(Ordering::Acquire) {
            // Our own, which does not hang.
            let _turn = self.turn(name);
            if self.registry.get(name).is_err() {
                self.register_software()?;
            }
        } else if name == SOFTWARE || self.sources.lock().contains_key(name) {
            self.begin(name);
        }
        self.registry.get(name)
    }

    /// Waits for a provider that is being tested, up to a time.
    pub(crate) fn await_tests(self: &Arc<Self>, name: &str) {
        drop(self.session(name));
        self.wait_for(&[name.to_string()], TESTS);
    }

    /// State of a provider that was loaded and does no work now.
    pub(crate) fn awaited(&self, name: &str) -> Option<Awaited> {
        match self.registry.list().into_iter().find(|info| info.name == name) {
            Some(ProviderInfo { lie: Some(kind), .. }) => {
                Some(Awaited { state: "distrusted", why: Some(why_distrusted(kind, &self.from(name))) })
            }
            Some(info) => (info.state == DeviceState::Down).then(|| Awaited { state: "down", why: self.problem(name) }),
            None => (name == SOFTWARE || self.sources.lock().contains_key(name)).then(|| self.unregistered(name)),
        }
    }

    /// State of a provider that was loaded before, and is not registered.
    fn unregistered(&self, name: &str) -> Awaited {
        let state = if self.busy.lock().contains(name) { "starting" } else { "down" };
        Awaited { state, why: self.problem(name) }
    }

    /// Makes and tests what was loaded before, unless somebody is at it. Does not wait for that.
    fn begin(self: &Arc<Self>, name: &str) {
        // Its keeper looks for it.
        let is_kept = |owner: &Accelerators| owner.keepers.lock().contains_key(name);
        if is_kept(self) {
            return;
        }
        let Some(turn) = self.try_turn(name) else { return };
        if is_kept(self) || self.registry.get(name).is_ok() {
            return;
        }
        let owner = self.clone();
        let work = move || {
            owner.begin_now(&turn.name);
            // Pools that wait for it have it before who waits for the turn looks.
            owner.changed();
            drop(turn);
        };
        drop(self.exec.spawn_operation("z-provider", Box::new(work)));
    }

    /// Makes and tests a provider now; notes what is not there. For one with a process of its own, somebody looks from then on.
    fn begin_now(self: &Arc<Self>, name: &str) {
        let source = self.sources.lock().get(name).cloned();
        let outcome = match &source {
            None if name == SOFTWARE => self.register_software().map_err(|error| error.to_string()),
            None => return,
            Some(source) => {
                self.make(name, source).and_then(|made| self.register(&made, false).map(drop).map_err(|error| error.to_string()))
            }
        };
        match outcome {
            Ok(()) => self.forget_problem(name),
            Err(why) => {
                self.note_problem(name, &why);
                if let Some(Source::Apart(place)) = &source {
                    self.keep(name, place, None);
                }
            }
        }
    }

    /// Starts a library's process, connects to a target, or opens a GPU.
    fn make(self: &Arc<Self>, name: &str, source: &Source) -> Result<Made, String> {
        match source {
            Source::Apart(place) => targets::start(self, name, place).map(|running| Made::Apart(place.clone(), running)),
            Source::Cuda => self.open_gpu().map(Made::Cuda),
            Source::Sim => Ok(Made::Sim(Sim::new(&self.exec, SimOptions::new(SIM)))),
            Source::Faulty(rehearsal) => {
                let inner = Software::new(&self.exec, SoftwareOptions::default());
                Ok(Made::Faulty(Faulty::new(&self.exec, FAULTY, inner), rehearsal.fault))
            }
        }
    }

    /// Opens a GPU. A driver or compiler that hangs is not waited for, and one call at most hangs in it.
    fn open_gpu(self: &Arc<Self>) -> Result<Arc<Cuda>, String> {
        let limit = self.deadline() * OPENING_DEADLINES;
        let hangs = || {
            format!(
                "the NVIDIA driver or the CUDA compiler NVRTC does not answer: the GPU is not open after {} s; 'nvidia-smi' shows whether the driver does",
                limit.as_secs()
            )
        };
        self.wait_for(&[OPENING.to_string()], limit);
        let turn = self.try_turn(OPENING).ok_or_else(hangs)?;
        tracing::info!("a GPU is opened: its driver is loaded, and kernels are compiled for it");
        let exec = self.exec.clone();
        let open = move || {
            let opened = Cuda::open(&exec, &CudaOptions::from_environment());
            drop(turn);
            opened.map_err(|error| format!("{error}; {}", error.advice()))
        };
        within(&self.exec, "z-provider-open", limit, open).unwrap_or_else(|| Err(hangs()))
    }

    /// Registers a provider, or puts it in the place of the one of its name. The caller has the turn at it.
    fn register(self: &Arc<Self>, made: &Made, replaces: bool) -> Result<Device, RegistryError> {
        let (provider, options) = match made {
            Made::Apart(place, running) => (running.provider(), targets::options(self, place)),
            Made::Cuda(provider) => (provider.clone() as Arc<dyn Provider>, self.options()),
            // Nobody wants them for their speed.
            Made::Sim(provider) => (provider.clone() as Arc<dyn Provider>, self.built_in_options()),
            Made::Faulty(provider, _) => (provider.clone() as Arc<dyn Provider>, self.built_in_options()),
        };
        let device = if replaces { self.registry.replace(provider, &options) } else { self.registry.register(provider, &options) }?;
        self.let_go(device.name());
        match made {
            Made::Apart(place, running) => self.keep(device.name(), place, Some(running.clone())),
            // It passed its tests first, as one that begins to fail later does.
            Made::Faulty(provider, fault) => provider.inject(*fault),
            Made::Cuda(_) | Made::Sim(_) => {}
        }
        Ok(device)
    }

    fn keep(self: &Arc<Self>, name: &str, place: &Place, running: Option<Running>) {
        let keeper = Keeper::new(name, place, running.as_ref());
        self.keepers.lock().insert(name.to_string(), keeper.clone());
        targets::keep(self, &keeper, running);
    }

    /// Ends the keeper of what is not, or not any more, to be there.
    fn let_go(&self, name: &str) {
        let keeper = self.keepers.lock().remove(name);
        keeper.iter().for_each(|keeper| keeper.let_go());
    }

    fn register_software(&self) -> Result<(), RegistryError> {
        let options = self.built_in_options();
        self.registry.register(Software::new(&self.exec, SoftwareOptions::default()), &options).map(drop)
    }

    /// Uses the provider that is built in again, after it was caught lying (by the memory or a processor of this machine); false when it was not.
    fn trust_software(self: &Arc<Self>) -> Result<bool, Failure> {
        let _turn = self.turn(SOFTWARE);
        if self.registry.lie(SOFTWARE).is_none() {
            return Ok(false);
        }
        let options = self.built_in_options();
        let failed = |error: RegistryError| Failure::new(ErrorKind::Invalid, "cannot load 'software'", error.to_string());
        self.registry.replace(Software::new(&self.exec, SoftwareOptions::default()), &options).map_err(failed)?;
        self.forget_problem(SOFTWARE);
        self.remember();
        Ok(true)
    }

    pub(crate) fn options(&self) -> RegisterOptions {
        let percent_min = self.parameters.get("zirconia_provider_admission").unwrap_or(0);
        let worth = (percent_min > 0).then(|| WorthPolicy { percent_min, ..WorthPolicy::default() });
        RegisterOptions { scratch: Some(self.trials.clone()), worth, ..RegisterOptions::default() }
    }

    /// Options for what is computed by this process's own software, which need not be faster than itself.
    fn built_in_options(&self) -> RegisterOptions {
        RegisterOptions { test_bytes_max: SOFTWARE_TEST_BYTES_MAX, worth: None, ..self.options() }
    }

    /// Loads a library, opens a GPU, or connects to a target; returns the name of the provider. One that comes too late for who waits is there later.
    pub(crate) fn load(self: &Arc<Self>, request: &ProviderLoad) -> Result<String, Failure> {
        let (owner, wanted) = (self.clone(), request.clone());
        let work = move || owner.load_now(&wanted).inspect(|_| owner.changed());
        within(&self.exec, "z-provider-load", LOADING, work).unwrap_or_else(|| {
            let why = format!("it has not passed its tests after {} s, and they go on", LOADING.as_secs());
            let failure = Failure::new(ErrorKind::Timeout, format!("cannot load a provider from '{}'", request.path), why);
            Err(failure.advise("'zirconia provider list' shows it once they are done; the daemon's log tells how far it came"))
        })
    }

    fn load_now(self: &Arc<Self>, request: &ProviderLoad) -> Result<String, Failure> {
        let what = format!("cannot load a provider from '{}'", request.path);
        let failed = |error: &dyn fmt::Display| Failure::new(ErrorKind::Invalid, &*what, error.to_string());
        if request.path == SOFTWARE {
            let is_back = self.trust_software()?;
            return if is_back { Ok(SOFTWARE.to_string()) } else { Err(failed(&"it is built in")) };
        }
        let source = request.path.parse::<Source>().map_err(|error| failed(&error))?;
        if request.name.is_some() && !matches!(source, Source::Apart(Place::Target(_))) {
            return Err(failed(&"it has a name of its own; only a target can be given one"));
        }
        let named = request.name.as_deref().unwrap_or(TARGET);
        if named == SOFTWARE {
            return Err(failed(&"'software' is built in"));
        }
        let made = self.make(named, &source).map_err(|error| failed(&error))?;
        let library = match &made {
            Made::Apart(Place::Library(_), running) => Some(running.provider()),
            _ => None,
        };
        let name = library.as_ref().map(|library| library.name()).or(source.own_name()).unwrap_or(named);
        let _turn = self.turn(name);
        tracing::info!("provider '{name}': its operations are tested");
        let is_there = self.registry.get(name).is_ok();
        let is_liar = self.registry.lie(name).is_some();
        let device = self.register(&made, (request.replace && is_there) || is_liar).map_err(|error| match error {
            RegistryError::Exists { .. } => failed(&error).advise("'zirconia provider load -r' puts this one in its place"),
            other => failed(&other),
        })?;
        let name = device.name().to_string();
        tracing::info!("provider '{name}' is loaded");
        self.forget_problem(&name);
        self.sources.lock().insert(name.clone(), source);
        self.remember();
        Ok(name)
    }

    /// Lets a provider go; one that pools use only by force. `users` are the pools that name it, whether it is there for them or not.
    pub(crate) fn unload(self: &Arc<Self>, request: &ProviderUnload, users: usize) -> Result<(), Failure> {
        let what = format!("cannot unload provider '{}'", request.name);
        if request.name == SOFTWARE {
            return Err(Failure::new(ErrorKind::Invalid, what, "it is built in"));
        }
        let in_use = |why: String| {
            let advice = "set zia_provider=off on the pools that use it, or unload it with -f: they go on in software";
            Failure::new(ErrorKind::Busy, &*what, why).advise(advice)
        };
        if users > 0 && !request.force && (self.registry.get(&request.name).is_ok() || self.awaited(&request.name).is_some()) {
            return Err(in_use(format!("{users} {} it", if users == 1 { "pool names" } else { "pools name" })));
        }
        let _turn = self.turn(&request.name);
        let was_remembered = self.sources.lock().contains_key(&request.name);
        match self.registry.unregister(&request.name, request.force) {
            Ok(()) => {}
            // Not needed since the daemon started, or not there.
            Err(RegistryError::Unknown { .. }) if was_remembered => {}
            Err(error @ RegistryError::InUse { .. }) => return Err(in_use(error.to_string())),
            Err(error) => return Err(Failure::new(ErrorKind::NotFound, what, error.to_string())),
        }
        self.let_go(&request.name);
        self.sources.lock().remove(&request.name);
        self.forget_problem(&request.name);
        self.remember();
        Ok(())
    }

    /// Writes down what is loaded, and what was caught lying. A file that cannot be written costs only the loading after a restart.
    fn remember(&self) {
        let _one = self.remembering.lock();
        let mut all: BTreeMap<String, Remembered> =
            self.sources.lock().iter().map(|(name, source)| (name.clone(), Remembered::From(source.to_string()))).collect();
        for info in self.registry.list() {
            if let Some(kind) = info.lie {
                let from = all.get(&info.name).and_then(|one| one.parts().0.map(str::to_string));
                all.insert(info.name, Remembered::Liar { from, lied_at: kind.name().to_string() });
            }
        }
        let text = serde_json::to_vec_pretty(&all).unwrap_or_default();
        if let Err(error) = trust::replace(&self.remembered, &text) {
            tracing::warn!("cannot write {}: {error}", self.remembered.display());
        }
    }

    /// Reports of all providers, those included that nobody has needed yet.
    pub(crate) fn reports(self: &Arc<Self>) -> Vec<ProviderReport> {
        let sources = self.sources.lock().clone();
        let names: Vec<String> = std::iter::once(SOFTWARE.to_string()).chain(sources.keys().cloned()).collect();
        // Their tests may be under way for a pool; whoever asks waits for them too, for a while.
        names.iter().for_each(|name| drop(self.session(name)));
        self.wait_for(&names, self.deadline());
        let mut reports: Vec<ProviderReport> =
            self.registry.list().into_iter().map(|info| self.report(&info, sources.get(&info.name))).collect();
        for (name, source) in &sources {
            if !reports.iter().any(|report| report.name == *name) {
                reports.push(self.absent(name, source));
            }
        }
        reports.sort_by(|left, right| left.name.cmp(&right.name));
        reports
    }

    /// Report of a provider that could not be registered.
    fn absent(&self, name: &str, source: &Source) -> ProviderReport {
        let Awaited { state, why } = self.unregistered(name);
        ProviderReport {
            name: name.to_string(),
            version: String::new(),
            path: Some(source.to_string()),
            state: state.to_string(),
            problem: why,
            generation: 0,
            sessions: 0,
            live_handles: 0,
            capabilities: Vec::new(),
            disabled: Vec::new(),
            measured: BTreeMap::new(),
            counters: BTreeMap::new(),
        }
    }

    fn report(&self, info: &ProviderInfo, source: Option<&Source>) -> ProviderReport {
        let mut counters = self.registry.get(&info.name).map(|session| counters(&session)).unwrap_or_default();
        let keeper = self.keepers.lock().get(&info.name).cloned();
        let link = keeper.map(|keeper| keeper.link_counters()).unwrap_or_default();
        counters.extend(link.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_string(), count)));
        ProviderReport {
            name: info.name.clone(),
            version: info.version.clone(),
            path: source.map(Source::to_string),
            state: match info.state {
                DeviceState::Active => "active",
                DeviceState::Replaced => "replaced",
                DeviceState::Down => "down",
                DeviceState::Distrusted => "distrusted",
            }
            .to_string(),
            problem: match info.lie {
                Some(kind) => Some(why_distrusted(kind, &self.from(&info.name))),
                None => self.problems.lock().get(&info.name).cloned().filter(|_| info.state == DeviceState::Down),
            },
            generation: info.generation,
            sessions: info.sessions as u64,
            live_handles: info.live_handles as u64,
            capabilities: info.capabilities.list.iter().map(|capability| capability.feature.to_string()).collect(),
            disabled: info
                .disabled
                .iter()
                .map(|disabled| DisabledCapability {
                    capability: disabled.capability.feature.to_string(),
                    reason: targets::why(disabled, &self.trials.display().to_string()),
                })
                .collect(),
            measured: info.measured.iter().map(|one| (one.feature.to_string(), one.speeds.to_string())).collect(),
            counters,
        }
    }
}

/// Counters of a provider that are not zero.
fn counters(session: &Session) -> BTreeMap<String, u64> {
    let kstat = session.stats().kstat();
    let counted = kstat.values().into_iter().filter_map(|(name, value)| match value {
        kstat::Value::U64(count) if count > 0 => Some((name.to_string(), count)),
        _ => None,
    });
    counted.collect()
}
