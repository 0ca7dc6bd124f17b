//! Events: what happened to a pool, told to whoever listens (`zpool events`, history, the log).
//!
//! [`EventSink`] is the port that lower layers call; [`EventLog`] is the usual implementation, a bounded list of the
//! newest events (OpenZFS: `fm.c`, `zfs_zevent_len_max`).

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A value of an event's field; the types of an nvlist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FieldValue {
    /// A truth value.
    Bool(bool),
    /// An unsigned number.
    U64(u64),
    /// A signed number.
    I64(i64),
    /// Text.
    Text(String),
    /// Unsigned numbers.
    U64s(Vec<u64>),
    /// Texts.
    Texts(Vec<String>),
}

macro_rules! field_from {
    ($($from:ty => $variant:ident),* $(,)?) => {
        $(impl From<$from> for FieldValue {
            fn from(value: $from) -> Self {
                FieldValue::$variant(value.into())
            }
        })*
    };
}
field_from!(bool => Bool, u64 => U64, u32 => U64, i64 => I64, i32 => I64, String => Text, &str => Text, Vec<u64> => U64s, Vec<String> => Texts);

/// An event: something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Class name as OpenZFS has it, such as `sysevent.fs.zfs.scrub_finish` or `ereport.fs.zfs.checksum`.
    pub class: Cow<'static, str>,
    /// Fields in order, by OpenZFS's payload names (`pool`, `pool_guid`, `vdev_guid`, `zio_offset` …).
    pub fields: Vec<(Cow<'static, str>, FieldValue)>,
}

impl Event {
    /// An event without fields.
    pub fn new(class: impl Into<Cow<'static, str>>) -> Event {
        Event { class: class.into(), fields: Vec::new() }
    }

    /// The event with one more field.
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<FieldValue>) -> Event {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&FieldValue> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }
}

/// Port: told of events. Called on any thread, also from jobs: it must not wait.
pub trait EventSink: Send + Sync {
    /// Takes note of `event`.
    fn event(&self, event: Event);
}

/// A sink that forgets everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn event(&self, _event: Event) {}
}

/// An event as the log keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedEvent {
    /// Number of the event, from 1, without gaps (OpenZFS: `eid`).
    pub eid: u64,
    /// Wall-clock seconds and nanoseconds since the epoch.
    pub time: (i64, u32),
    /// Event that happened.
    pub event: Event,
}

/// Returns wall-clock seconds and nanoseconds since the epoch.
pub type WallClock = Box<dyn Fn() -> (i64, u32) + Send + Sync>;
/// Called with each event after it was logged.
pub type Listener = Arc<dyn Fn(&LoggedEvent) + Send + Sync>;

#[derive(Default)]
struct Log {
    last_eid: u64,
    events: VecDeque<LoggedEvent>,
    listeners: Vec<Listener>,
}

/// The newest events of a process.
pub struct EventLog {
    capacity: AtomicUsize,
    clock: WallClock,
    log: Mutex<Log>,
}

impl EventLog {
    /// A log of at most `capacity` events (at least one); older ones are forgotten.
    pub fn new(capacity: usize, clock: WallClock) -> EventLog {
        EventLog { capacity: AtomicUsize::new(capacity.max(1)), clock, log: Mutex::default() }
    }

    /// Keeps at most so many events (at least one) from now on; older ones are forgotten.
    pub fn set_capacity(&self, capacity: usize) {
        let capacity = capacity.max(1);
        self.capacity.store(capacity, Ordering::Relaxed);
        let mut log = self.log.lock();
        let surplus = log.events.len().saturating_sub(capacity);
        log.events.drain(..surplus);
    }

    /// Calls `listener` for every event from now on, in order of their numbers per thread.
    pub fn listen(&self, listener: Listener) {
        self.log.lock().listeners.push(listener);
    }

    /// The events kept with a number above `eid`, oldest first.
    pub fn since(&self, eid: u64) -> Vec<LoggedEvent> {
        self.log.lock().events.iter().filter(|logged| logged.eid > eid).cloned().collect()
    }

    /// Forgets all events (`zpool events -c`); returns how many there were. Numbering goes on.
    pub fn clear(&self) -> usize {
        let mut log = self.log.lock();
        let count = log.events.len();
        log.events.clear();
        count
    }
}

impl EventSink for EventLog {
    fn event(&self, event: Event) {
        let time = (self.clock)();
        let (logged, listeners) = {
            let mut log = self.log.lock();
            log.last_eid += 1;
            let logged = LoggedEvent { eid: log.last_eid, time, event };
            while log.events.len() >= self.capacity.load(Ordering::Relaxed) {
                log.events.pop_front();
            }
            log.events.push_back(logged.clone());
            (logged, log.listeners.clone())
        };
        listeners.iter().for_each(|listener| listener(&logged));
    }
}

impl std::fmt::Debug for EventLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLog").field("capacity", &self.capacity).field("last_eid", &self.log.lock().last_eid).finish_non_exhaustive()
    }
}
