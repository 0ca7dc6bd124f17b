//! Providers that are targets: connected when they are needed, and again, by themselves, whenever the session was lost.
//!
//! ```text
//! needed ──connect, test──► up ──session lost──► down: pools go on in software ──back-off, connect, test──► up: pools follow
//!            └──cannot──► down                    unloaded, or another in its place: the keeper ends
//! ```
//! Each target has a keeper, an operation that waits for the end of its session and then for the next one.

use crate::providers::Accelerators;
use dpusm::{RegisterOptions, RegistryError};
use exec::{Condvar, Mutex};
use provider_target::{Location, TargetProvider};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Pauses between attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Largest block of the tests of a target: they run again with every connection, over the link.
const TEST_BYTES_MAX: usize = 16 << 10;

/// A target that is to be there.
pub(crate) struct Keeper {
    name: String,
    location: Location,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    is_wanted: bool,
    /// The session of now, or the last one.
    provider: Weak<TargetProvider>,
}

impl Keeper {
    pub fn new(name: &str, location: &Location, provider: Option<&Arc<TargetProvider>>) -> Arc<Keeper> {
        let state = State { is_wanted: true, provider: provider.map_or_else(Weak::new, Arc::downgrade) };
        Arc::new(Keeper { name: name.to_string(), location: location.clone(), state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Nobody wants it any more.
    pub fn let_go(&self) {
        self.state.lock().is_wanted = false;
        self.changed.notify_all();
    }

    pub fn is_wanted(&self) -> bool {
        self.state.lock().is_wanted
    }

    /// What crossed the link in the session of now, by name.
    pub fn link_counters(&self) -> Vec<(&'static str, u64)> {
        let Some(provider) = self.state.lock().provider.upgrade() else { return Vec::new() };
        let stats = provider.stats();
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

    /// False when it is not wanted any more.
    fn pause(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        if state.is_wanted {
            self.changed.wait_for(&mut state, pause);
        }
        state.is_wanted
    }
}

/// Connects to a target.
pub(crate) fn connect(owner: &Accelerators, name: &str, location: &Location) -> Result<Arc<TargetProvider>, String> {
    let options = location.options(name).map_err(|error| format!("{}: {error}", location.secret_file.display()))?;
    TargetProvider::connect(owner.exec(), &options).map_err(|error| error.to_string())
}

/// How targets are registered.
pub(crate) fn options(owner: &Accelerators) -> RegisterOptions {
    RegisterOptions { test_bytes_max: TEST_BYTES_MAX, ..owner.options() }
}

/// Starts the keeper's operation; `provider` is the session that it begins with.
pub(crate) fn keep(owner: &Arc<Accelerators>, keeper: &Arc<Keeper>, provider: Option<Arc<TargetProvider>>) {
    let (weak, keeper) = (Arc::downgrade(owner), keeper.clone());
    // It ends by itself, when the target is unloaded or the registry is gone.
    drop(owner.exec().spawn_operation("z-target-keep", Box::new(move || run(&weak, &keeper, provider))));
}

fn run(owner: &Weak<Accelerators>, keeper: &Arc<Keeper>, mut current: Option<Arc<TargetProvider>>) {
    let mut pause = PAUSE_MIN;
    loop {
        if let Some(provider) = current.take() {
            provider.wait_for_end();
            let Some(owner) = owner.upgrade() else { return };
            if !owner.target_lost(keeper) {
                return;
            }
            pause = PAUSE_MIN;
        }
        if !keeper.pause(pause) {
            return;
        }
        pause = (pause * 2).min(PAUSE_MAX);
        let Some(owner) = owner.upgrade() else { return };
        match connect(&owner, &keeper.name, &keeper.location).and_then(|provider| owner.target_found(keeper, provider)) {
            Ok(provider) => current = Some(provider),
            Err(why) if keeper.is_wanted() => owner.note_problem(&keeper.name, &why),
            Err(_) => return,
        }
    }
}

impl Accelerators {
    /// The session with a target was lost: its pools go on in software at once. False when nobody wants it any more.
    fn target_lost(&self, keeper: &Keeper) -> bool {
        {
            let _one = self.registering();
            if !keeper.is_wanted() {
                return false;
            }
            // Whoever was caught lying may come back, but not by itself.
            if self.registry().lie(&keeper.name).is_some() {
                return false;
            }
            // It is there as long as it is wanted.
            let _ = self.registry().invalidate(&keeper.name);
            self.note_problem(&keeper.name, "the session with the target was lost");
        }
        self.changed();
        true
    }

    /// A target was reached again.
    fn target_found(&self, keeper: &Keeper, provider: Arc<TargetProvider>) -> Result<Arc<TargetProvider>, String> {
        {
            let _one = self.registering();
            if !keeper.is_wanted() {
                return Err("it was unloaded".to_string());
            }
            let (registry, options) = (self.registry(), options(self));
            let outcome = match registry.reconnect(provider.clone(), &options) {
                Err(RegistryError::Unknown { .. }) => registry.register(provider.clone(), &options),
                other => other,
            };
            outcome.map_err(|error| error.to_string())?;
            keeper.state.lock().provider = Arc::downgrade(&provider);
            self.forget_problem(&keeper.name);
        }
        self.changed();
        Ok(provider)
    }
}
