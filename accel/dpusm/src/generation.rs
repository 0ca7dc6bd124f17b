//! A generation of a provider: what is registered, what is in flight on it, how far it is trusted. Its user's side is
//! [`crate::Device`], of which nothing is known here.
//!
//! Every registration makes a generation, and so does every replacement: handles of one are not those of another, so a
//! provider can be swapped while graphs are in flight. States: *active* (new work), *replaced* (whoever holds it finishes there),
//! *down* (everything in flight has ended with `Down`, nothing is called any more), *distrusted* (down for good: it was caught lying). No
//! lock is held while a provider is called.

use crate::breaker::{Admission, Breaker, BreakerPolicy, BreakerState};
use crate::handle::{DeviceHandle, Owner};
use crate::in_flight::InFlight;
use crate::provider::Provider;
use crate::speeds::Measured;
use crate::stats::{OpStats, Tally};
use crate::trust::Trust;
use crate::{Capabilities, Capability, Fault, OpError, OpKind};
use exec::{Exec, Mutex};
use kstat::{Event, EventSink};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Classes of events; OpenZFS has none of these.
const BREAKER_OPEN: &str = "sysevent.fs.zfs.zia_breaker_open";
const BREAKER_CLOSE: &str = "sysevent.fs.zfs.zia_breaker_close";
pub(crate) const PROVIDER_DOWN: &str = "sysevent.fs.zfs.zia_provider_down";
pub(crate) const PROVIDER_DISTRUSTED: &str = "sysevent.fs.zfs.zia_provider_distrusted";
pub(crate) const PROVIDER_REPLACED: &str = "sysevent.fs.zfs.zia_provider_replaced";

const ACTIVE: u8 = 0;
const REPLACED: u8 = 1;
const DOWN: u8 = 2;

/// State of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// New sessions get the generation.
    Active,
    /// Another one took its place; what is there goes on to its end.
    Replaced,
    /// The generation is dead.
    Down,
    /// The generation gave a wrong result: nothing goes to it until somebody loads it again.
    Distrusted,
}

/// A capability that the provider declared and that is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disabled {
    /// Capability that is not used.
    pub capability: Capability,
    /// Fault for which it is not.
    pub fault: Fault,
}

/// Takes the name of a provider that was caught lying, and the operation. Called from a job: must not wait.
pub(crate) type Caught = OnceLock<Box<dyn Fn(&str, OpKind) + Send + Sync>>;

/// Parts that a generation is made of.
pub(crate) struct Parts {
    pub(crate) exec: Exec,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) number: u64,
    pub(crate) capabilities: Capabilities,
    pub(crate) disabled: Vec<Disabled>,
    /// Capability that is not offered and may be used all the same, to prove copies.
    pub(crate) proof: Option<Capability>,
    /// Operations that were compared with the processors of this machine.
    pub(crate) measured: Vec<Measured>,
    pub(crate) policy: BreakerPolicy,
    pub(crate) stats: Arc<OpStats>,
    pub(crate) trust: Arc<Trust>,
    /// Results of each operation that are to be proven.
    pub(crate) proofs: u64,
    /// Callback for when it is caught lying.
    pub(crate) caught: Weak<Caught>,
    /// Sink for the events of breakers that open and close.
    pub(crate) events: Arc<dyn EventSink>,
    /// True only for the tests at registration: the provider goes on after it.
    pub(crate) is_trial: bool,
}

/// See the module.
pub(crate) struct Generation {
    pub(crate) name: String,
    pub(crate) exec: Exec,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) capabilities: Capabilities,
    /// Capabilities that graphs may use: those that are offered, and what proves copies.
    pub(crate) usable: Vec<Capability>,
    pub(crate) in_flight: InFlight,
    pub(crate) stats: Arc<OpStats>,
    pub(crate) trust: Arc<Trust>,
    pub(crate) proofs: u64,
    caught: Weak<Caught>,
    events: Arc<dyn EventSink>,
    pub(crate) number: u64,
    pub(crate) disabled: Vec<Disabled>,
    pub(crate) measured: Vec<Measured>,
    state: AtomicU8,
    pub(crate) breakers: Mutex<Vec<Breaker>>,
    pub(crate) live: AtomicUsize,
    pub(crate) lost: AtomicUsize,
    is_trial: bool,
}

impl Generation {
    pub(crate) fn new(parts: Parts) -> Arc<Generation> {
        let breakers = OpKind::ALL.iter().map(|_| Breaker::new(parts.policy)).collect();
        Arc::new(Generation {
            name: parts.provider.name().to_string(),
            exec: parts.exec,
            provider: parts.provider,
            usable: parts.capabilities.list.iter().copied().chain(parts.proof).collect(),
            capabilities: parts.capabilities,
            in_flight: InFlight::default(),
            stats: parts.stats,
            trust: parts.trust,
            proofs: parts.proofs,
            caught: parts.caught,
            events: parts.events,
            number: parts.number,
            disabled: parts.disabled,
            measured: parts.measured,
            state: AtomicU8::new(ACTIVE),
            breakers: Mutex::new(breakers),
            live: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            is_trial: parts.is_trial,
        })
    }

    pub(crate) fn state(&self) -> DeviceState {
        match self.state.load(Ordering::Acquire) {
            _ if self.lie().is_some() => DeviceState::Distrusted,
            ACTIVE => DeviceState::Active,
            REPLACED => DeviceState::Replaced,
            _ => DeviceState::Down,
        }
    }

    pub(crate) fn is_down(&self) -> bool {
        self.state.load(Ordering::Acquire) == DOWN || self.lie().is_some()
    }

    /// The operation that it lied at, if it did.
    pub(crate) fn lie(&self) -> Option<OpKind> {
        self.trust.lie()
    }

    /// Ends a generation that was caught lying: what is in flight ends now, and whatever it still says is not listened to.
    pub(crate) fn distrust(self: &Arc<Self>, kind: OpKind) {
        if !self.trust.note_lie(kind) {
            return;
        }
        self.state.store(DOWN, Ordering::Release);
        self.end_all();
        self.events.event(self.event(PROVIDER_DISTRUSTED).with("operation", kind.name()));
        if let Some(caught) = self.caught.upgrade().as_deref().and_then(OnceLock::get) {
            caught(&self.name, kind);
        }
        // It may take its time, and this is a job.
        let own = self.clone();
        let shut_down = move || own.provider.shut_down();
        if self.exec.is_inline() {
            shut_down();
        } else {
            drop(self.exec.spawn_operation("z-distrust", Box::new(shut_down)));
        }
    }

    fn end_all(&self) {
        for ticket in self.in_flight.all() {
            ticket.give_up(OpError::Down);
        }
    }

    pub(crate) fn set_replaced(&self) {
        let _ = self.state.compare_exchange(ACTIVE, REPLACED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Declares the generation dead: all that is in flight ends with `Down`, and nothing is called any more. False when it was dead before.
    pub(crate) fn bring_down(&self) -> bool {
        if self.state.swap(DOWN, Ordering::AcqRel) == DOWN {
            return false;
        }
        self.end_all();
        self.provider.shut_down();
        true
    }

    /// Asks the breakers of all kinds of a graph; the ones for which it is a probe.
    pub(crate) fn admit(&self, kinds: &[OpKind]) -> Result<Vec<OpKind>, OpKind> {
        let now = self.exec.now_ns();
        let mut breakers = self.breakers.lock();
        if let Some(kind) = kinds.iter().find(|kind| !breakers[**kind as usize].would_admit(now)) {
            return Err(*kind);
        }
        Ok(kinds.iter().copied().filter(|kind| breakers[*kind as usize].admit(now) == Admission::Probe).collect())
    }

    /// Tells a breaker how an operation ended: None when nothing was learnt.
    pub(crate) fn learn(&self, kind: OpKind, probe: bool, good: Option<bool>) {
        let now = self.exec.now_ns();
        self.change_breaker(kind, "failures", |breaker| match good {
            Some(true) => breaker.succeeded(probe),
            Some(false) => breaker.failed(now, probe),
            None => breaker.abandoned(probe),
        });
    }

    /// Tells a breaker that an operation went well, and took far too long.
    pub(crate) fn learn_slow(&self, kind: OpKind, probe: bool) {
        let now = self.exec.now_ns();
        self.change_breaker(kind, "slow", |breaker| breaker.slow(now, probe));
    }

    /// Changes a breaker, and tells when it opened (for `reason`) or closed; another back-off of one that had opened is nothing new.
    fn change_breaker(&self, kind: OpKind, reason: &'static str, change: impl FnOnce(&mut Breaker)) {
        let (before, after) = {
            let breaker = &mut self.breakers.lock()[kind as usize];
            let before = breaker.state();
            change(breaker);
            (before, breaker.state())
        };
        let was_closed = before == BreakerState::Closed;
        if was_closed != (after == BreakerState::Closed) {
            let event = self.event(if was_closed { BREAKER_OPEN } else { BREAKER_CLOSE }).with("operation", kind.name());
            self.events.event(if was_closed { event.with("reason", reason) } else { event });
        }
    }

    /// An event about this provider.
    pub(crate) fn event(&self, class: &'static str) -> Event {
        Event::new(class).with("provider", self.name.as_str()).with("generation", self.number)
    }

    /// Calls the provider for one thing outside of a graph, under the breaker of `Alloc`.
    pub(crate) fn guarded<T>(&self, work: impl FnOnce(&dyn Provider) -> Result<T, OpError>) -> Result<T, OpError> {
        if self.is_down() {
            return Err(OpError::Down);
        }
        let probe = !self.admit(&[OpKind::Alloc]).map_err(|_| OpError::Tripped)?.is_empty();
        let outcome = work(&*self.provider);
        match &outcome {
            Ok(_) => self.learn(OpKind::Alloc, probe, Some(true)),
            Err(error) => {
                self.learn(OpKind::Alloc, probe, error.is_fault().then_some(false));
                self.stats.add(OpKind::Alloc, Tally::Error(*error), 1);
            }
        }
        outcome
    }
}

impl Owner for Generation {
    fn name(&self) -> &str {
        &self.name
    }

    fn give_back(&self, handle: DeviceHandle) {
        self.live.fetch_sub(1, Ordering::AcqRel);
        if self.is_down() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        } else {
            self.provider.free(handle);
        }
    }

    fn close(&self, handle: DeviceHandle) {
        self.live.fetch_sub(1, Ordering::AcqRel);
        if self.is_down() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        } else {
            self.provider.close(handle);
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if !self.is_trial && self.state.load(Ordering::Acquire) != DOWN {
            self.provider.shut_down();
        }
    }
}
