//! Providers that are processes of their own, targets and libraries of vendors: looked after, and there again when their process was lost.
//!
//! ```text
//! needed ──connect or start, test──► up ──lost──► down: pools go on in software ──back-off, connect or start, test──► up: pools follow
//!            └──cannot──► down                    unloaded, or another in its place: the keeper ends
//! ```
//! Each has a keeper, an operation that waits for the end of its session and then for the next one. A target is looked for for ever: somebody starts
//! it again. A library that fails again and again is not: the reason stays to be seen until a person loads it.

use crate::failure::believable;
use crate::provider::accelerators::Accelerators;
use crate::provider::source::Place;
use dpusm::{Disabled, Fault, Feature, OpError, Provider, RegisterOptions, RegistryError};
use exec::{Condvar, Mutex};
use provider_process::{Hosted, HostedOptions};
use provider_target::{LinkStats, TargetProvider};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Shortest and longest pause between attempts to connect, or to start a process.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Bytes of the largest block of the tests of a target: they run again with every connection, over the link.
const TEST_BYTES_MAX: usize = 16 << 10;
/// Number of failures in a row after which a library's process is not started again.
const FAILURES_MAX: u32 = 5;
/// Nanoseconds after which a process that ends had not failed at its start.
const STEADY_NS: u64 = 60_000_000_000;
/// Errnos of a place that a target may not write, or does not see: EACCES and ENOENT.
const EACCES: i32 = 13;
const ENOENT: i32 = 2;

/// Process of a provider, or the session with it.
#[derive(Clone)]
pub(crate) enum Running {
    /// Session with a target.
    Target(Arc<TargetProvider>),
    /// Process of a library.
    Library(Arc<Hosted>),
}

impl Running {
    pub fn provider(&self) -> Arc<dyn Provider> {
        match self {
            Running::Target(provider) => provider.clone(),
            Running::Library(provider) => provider.clone(),
        }
    }

    /// Waits for the end of the process or session; returns why it came.
    fn wait_for_end(&self) -> String {
        match self {
            Running::Target(provider) => {
                provider.wait_for_end();
                "the session with the target was lost".to_string()
            }
            Running::Library(provider) => provider.wait_for_end(),
        }
    }

    fn look(&self) -> Look {
        match self {
            Running::Target(provider) => {
                let weak = Arc::downgrade(provider);
                Box::new(move || weak.upgrade().map(|provider| provider.stats()))
            }
            Running::Library(provider) => {
                let weak = Arc::downgrade(provider);
                Box::new(move || weak.upgrade().map(|provider| provider.stats()))
            }
        }
    }
}

/// Counters of what crossed the link of a provider, as long as it is there.
type Look = Box<dyn Fn() -> Option<LinkStats> + Send>;

/// Keeper of a provider that is to be there.
pub(crate) struct Keeper {
    name: String,
    place: Place,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    is_wanted: bool,
    /// Counters of the session of now, or of the last one.
    stats: Option<Look>,
}

impl Keeper {
    pub fn new(name: &str, place: &Place, running: Option<&Running>) -> Arc<Keeper> {
        let state = State { is_wanted: true, stats: running.map(Running::look) };
        Arc::new(Keeper { name: name.to_string(), place: place.clone(), state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Ends the keeper: nobody wants the provider any more.
    pub fn let_go(&self) {
        self.state.lock().is_wanted = false;
        self.changed.notify_all();
    }

    pub fn is_wanted(&self) -> bool {
        self.state.lock().is_wanted
    }

    /// Counters of what crossed the link in the session of now, by name.
    pub fn link_counters(&self) -> Vec<(&'static str, u64)> {
        let Some(stats) = self.state.lock().stats.as_ref().and_then(|look| look()) else { return Vec::new() };
        vec![
            ("link_bytes_out", stats.bytes_out),
            ("link_bytes_in", stats.bytes_in),
            ("link_round_trips", stats.round_trips),
            ("link_resent", stats.resent),
            ("link_damaged", stats.damaged),
            ("link_reconnects", stats.reconnects),
            ("link_shared_bytes_out", stats.shared_out),
            ("link_shared_bytes_in", stats.shared_in),
            ("link_shared_full", stats.shared_full),
        ]
    }

    /// Waits for a time; false when the provider is not wanted any more.
    fn pause(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        if state.is_wanted {
            self.changed.wait_for(&mut state, pause);
        }
        state.is_wanted
    }
}

/// Connects to a target, or starts a library's process.
pub(crate) fn start(owner: &Accelerators, name: &str, place: &Place) -> Result<Running, String> {
    match place {
        Place::Target(location) => {
            let options = location.options(name).map_err(|error| format!("{}: {error}", location.secret_file.display()))?;
            TargetProvider::connect(owner.exec(), &options).map(Running::Target).map_err(|error| error.to_string())
        }
        Place::Library(path) => {
            // Its code runs with this process's rights, whoever wrote it.
            let library = service::trust::file(path).map_err(|why| believable(&why))?;
            let say = |line: &str| tracing::info!("{line}");
            let options = HostedOptions { program: provider_process::program(), library, deadline: owner.deadline(), say };
            Hosted::start(owner.exec(), &options).map(Running::Library).map_err(|error| error.to_string())
        }
    }
}

/// Options with which a provider is registered.
pub(crate) fn options(owner: &Accelerators, place: &Place) -> RegisterOptions {
    match place {
        Place::Target(_) => RegisterOptions { test_bytes_max: TEST_BYTES_MAX, ..owner.options() },
        Place::Library(_) => RegisterOptions { test_deadline_ns: owner.deadline().as_nanos() as u64, ..owner.options() },
    }
}

/// Reason why a capability is not used; of a write that was refused also what has to be allowed: `folder` is where it was tried out.
pub(crate) fn why(disabled: &Disabled, folder: &str) -> String {
    let is_store = matches!(disabled.capability.feature, Feature::Store { .. });
    match disabled.fault {
        Fault::Error(OpError::Io(EACCES | ENOENT)) if is_store => {
            format!("{}: it is tried out in {folder}, which a target has to see and be allowed to write ('--allow')", disabled.fault)
        }
        fault => fault.to_string(),
    }
}

/// Starts the keeper's operation; `running` is the session that it begins with.
pub(crate) fn keep(owner: &Arc<Accelerators>, keeper: &Arc<Keeper>, running: Option<Running>) {
    let (weak, keeper) = (Arc::downgrade(owner), keeper.clone());
    // It ends by itself, when the provider is unloaded or the registry is gone.
    drop(owner.exec().spawn_operation("z-target-keep", Box::new(move || run(&weak, &keeper, running))));
}

fn run(owner: &Weak<Accelerators>, keeper: &Arc<Keeper>, mut current: Option<Running>) {
    let mut pause = PAUSE_MIN;
    // Who begins without a session has failed once.
    let mut failures = u32::from(current.is_none());
    let mut why = String::new();
    loop {
        if let Some(running) = current.take() {
            let Some(begun) = owner.upgrade().map(|owner| owner.exec().now_ns()) else { return };
            why = running.wait_for_end();
            drop(running);
            let Some(owner) = owner.upgrade() else { return };
            if !owner.lost(keeper, &why) {
                return;
            }
            let lived_ns = owner.exec().now_ns().saturating_sub(begun);
            if lived_ns > STEADY_NS || matches!(keeper.place, Place::Target(_)) {
                (failures, pause) = (0, PAUSE_MIN);
            }
            failures += 1;
        }
        if let (Place::Library(path), FAILURES_MAX..) = (&keeper.place, failures) {
            let Some(owner) = owner.upgrade() else { return };
            why = if why.is_empty() { owner.problem(&keeper.name).unwrap_or_default() } else { why };
            let advice = format!("'zirconia provider load -r {}' tries again", path.display());
            owner.note_problem(&keeper.name, &format!("{why}; given up after {failures} failures: {advice}"));
            return;
        }
        if !keeper.pause(pause) {
            return;
        }
        pause = (pause * 2).min(PAUSE_MAX);
        let Some(owner) = owner.upgrade() else { return };
        match start(&owner, &keeper.name, &keeper.place).and_then(|running| owner.found(keeper, running)) {
            Ok(running) => current = Some(running),
            Err(reason) if keeper.is_wanted() => {
                owner.note_problem(&keeper.name, &reason);
                (why, failures) = (reason, failures + 1);
            }
            Err(_) => return,
        }
    }
}

impl Accelerators {
    /// Notes that a process was lost: its pools go on in software at once. False when nobody wants it any more.
    fn lost(self: &Arc<Self>, keeper: &Keeper, why: &str) -> bool {
        {
            let _turn = self.turn(&keeper.name);
            if !keeper.is_wanted() {
                return false;
            }
            // Whoever was caught lying may come back, but not by itself.
            if self.registry().lie(&keeper.name).is_some() {
                return false;
            }
            // It is there as long as it is wanted.
            let _ = self.registry().invalidate(&keeper.name);
            self.note_problem(&keeper.name, why);
        }
        self.changed();
        true
    }

    /// Registers a provider that is there again.
    fn found(self: &Arc<Self>, keeper: &Keeper, running: Running) -> Result<Running, String> {
        {
            let _turn = self.turn(&keeper.name);
            if !keeper.is_wanted() {
                return Err("it was unloaded".to_string());
            }
            let provider = running.provider();
            if provider.name() != keeper.name {
                return Err(format!("it is called '{}' now", provider.name()));
            }
            let (registry, options) = (self.registry(), options(self, &keeper.place));
            let outcome = match registry.reconnect(provider.clone(), &options) {
                Err(RegistryError::Unknown { .. }) => registry.register(provider, &options),
                other => other,
            };
            outcome.map_err(|error| error.to_string())?;
            keeper.state.lock().stats = Some(running.look());
            self.forget_problem(&keeper.name);
        }
        self.changed();
        Ok(running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpusm::{Capability, StoreKind};

    /// A target that nobody allowed to write where that is tried out never writes: who set it up would look for the reason in vain.
    #[test]
    fn a_write_that_was_refused_says_what_has_to_be_allowed() {
        let disabled = |feature, fault| Disabled { capability: Capability::any(feature), fault };
        let store = Feature::Store { kind: StoreKind::File };
        let refused = Fault::Error(OpError::Io(EACCES));
        let text = why(&disabled(store, refused), "/state/provider-tests");
        assert!(
            text.starts_with("the write failed (errno 13)") && text.contains("/state/provider-tests, which a target has to see"),
            "{text}"
        );
        assert_eq!(why(&disabled(store, Fault::WrongAnswer), "/x"), "the answer was wrong");
        assert_eq!(why(&disabled(Feature::ZeroFill, refused), "/x"), refused.to_string());
    }
}
