//! Named statistics and their text form, that of Linux's `/proc/spl/kstat` (OpenZFS: `spl-kstat.c`), so that arcstat and
//! node_exporter read ours.
//!
//! A [`Registry`] maps paths (`zfs/arcstats`, `zfs/tank/iostats`) to [`Kstat`]s. Sections register themselves and go away
//! when their [`Registered`] guard drops, so an exported pool leaves nothing behind.

use crate::{Counter, Gauge};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of one named entry in the kernel (`sizeof (kstat_named_t)`): shown in the header.
const NAMED_BYTES: usize = 272;
/// Types of statistics: `KSTAT_TYPE_RAW`, `KSTAT_TYPE_NAMED`.
const TYPE_RAW: u32 = 0;
const TYPE_NAMED: u32 = 1;
/// Flag of a statistic: `KSTAT_FLAG_VIRTUAL`.
const FLAG_VIRTUAL: u32 = 1;

/// A value of a named entry, with its type number in the text form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A signed number (`KSTAT_DATA_INT64`).
    I64(i64),
    /// An unsigned number (`KSTAT_DATA_UINT64`).
    U64(u64),
    /// A text (`KSTAT_DATA_STRING`).
    Text(String),
}

impl Value {
    fn type_number(&self) -> u32 {
        match self {
            Value::I64(_) => 3,
            Value::U64(_) => 4,
            Value::Text(_) => 7,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::I64(value) => write!(f, "{value}"),
            Value::U64(value) => write!(f, "{value}"),
            Value::Text(value) => f.write_str(value),
        }
    }
}

/// Source of an entry's value.
enum Source {
    Counter(Arc<Counter>),
    Gauge(Arc<Gauge>),
    Computed(Box<dyn Fn() -> Value + Send + Sync>),
}

impl Source {
    fn value(&self) -> Value {
        match self {
            Source::Counter(counter) => Value::U64(counter.get()),
            Source::Gauge(gauge) => Value::U64(gauge.get()),
            Source::Computed(compute) => compute(),
        }
    }
}

/// Produces the whole text below the header of a raw statistic.
type RawText = Box<dyn Fn() -> String + Send + Sync>;

enum Body {
    Named(Vec<(String, Source)>),
    Raw(RawText),
}

/// One statistic: named entries in order, or raw text. Built first, registered then.
pub struct Kstat(Body);

impl Default for Kstat {
    fn default() -> Self {
        Kstat(Body::Named(Vec::new()))
    }
}

impl Kstat {
    /// A statistic of named entries, none yet.
    pub fn named() -> Kstat {
        Kstat::default()
    }

    /// A statistic whose text is made anew at each look (tables such as `txgs`).
    pub fn raw(text: impl Fn() -> String + Send + Sync + 'static) -> Kstat {
        Kstat(Body::Raw(Box::new(text)))
    }

    fn push(&mut self, name: &str, source: Source) {
        if let Body::Named(entries) = &mut self.0 {
            entries.push((name.to_string(), source));
        }
    }

    /// Adds a counter called `name` and returns it.
    pub fn counter(&mut self, name: &str) -> Arc<Counter> {
        let counter = Arc::new(Counter::new());
        self.push(name, Source::Counter(counter.clone()));
        counter
    }

    /// Adds a gauge called `name` and returns it.
    pub fn gauge(&mut self, name: &str) -> Arc<Gauge> {
        let gauge = Arc::new(Gauge::new());
        self.push(name, Source::Gauge(gauge.clone()));
        gauge
    }

    /// Adds an entry computed at each look.
    pub fn computed(&mut self, name: &str, compute: impl Fn() -> Value + Send + Sync + 'static) {
        self.push(name, Source::Computed(Box::new(compute)));
    }

    /// Names and values now; none for a raw statistic.
    pub fn values(&self) -> Vec<(&str, Value)> {
        match &self.0 {
            Body::Named(entries) => entries.iter().map(|(name, source)| (name.as_str(), source.value())).collect(),
            Body::Raw(_) => Vec::new(),
        }
    }

    fn render(&self, id: u32, created_ns: u64, now_ns: u64) -> String {
        let stamp = Stamp { id, created_ns, now_ns };
        match &self.0 {
            Body::Raw(text) => stamp.raw(&text()),
            Body::Named(entries) => stamp.named(entries.iter().map(|(name, source)| (name.as_str(), source.value()))),
        }
    }
}

/// Contents of the first line of a statistic's text besides its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the statistic.
    pub id: u32,
    /// Time in ns at which it came into being, monotonic.
    pub created_ns: u64,
    /// Time in ns at which it was looked at.
    pub now_ns: u64,
}

impl Stamp {
    /// The text of named entries, as the kernel prints it (`kstat_seq_show_headers`, `kstat_seq_show_named`).
    pub fn named<'a>(&self, entries: impl IntoIterator<Item = (&'a str, Value)>) -> String {
        let mut rows = String::new();
        let mut count = 0;
        for (name, value) in entries {
            count += 1;
            // Writing to a String cannot fail.
            let _ = writeln!(rows, "{name:<31} {:<4} {value}", value.type_number());
        }
        let Stamp { id, created_ns, now_ns } = self;
        let bytes = count * NAMED_BYTES;
        format!(
            "{id} {TYPE_NAMED} 0x{FLAG_VIRTUAL:02x} {count} {bytes} {created_ns} {now_ns}\nname                            type data\n{rows}"
        )
    }

    /// The text of a table.
    pub fn raw(&self, text: &str) -> String {
        let Stamp { id, created_ns, now_ns } = self;
        format!("{id} {TYPE_RAW} 0x{FLAG_VIRTUAL:02x} 0 {} {created_ns} {now_ns}\n{text}", text.len())
    }
}

impl fmt::Debug for Kstat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.values()).finish()
    }
}

#[derive(Debug)]
struct Entry {
    id: u32,
    created_ns: u64,
    kstat: Arc<Kstat>,
}

#[derive(Debug, Default)]
struct Shared {
    entries: RwLock<BTreeMap<String, Entry>>,
    last_id: AtomicU32,
}

/// All statistics of a process; clones are the same registry.
#[derive(Clone, Debug, Default)]
pub struct Registry(Arc<Shared>);

impl Registry {
    /// A registry without statistics.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Shows `kstat` at `path` (such as `zfs/arcstats`) until the guard drops; replaces what was there.
    /// `now_ns` is the monotonic time, for the header.
    pub fn register(&self, path: &str, kstat: Kstat, now_ns: u64) -> Registered {
        let id = self.0.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let kstat = Arc::new(kstat);
        self.0.entries.write().insert(path.to_string(), Entry { id, created_ns: now_ns, kstat: kstat.clone() });
        Registered { shared: self.0.clone(), path: path.to_string(), id, kstat }
    }

    /// The paths shown, sorted.
    pub fn paths(&self) -> Vec<String> {
        self.0.entries.read().keys().cloned().collect()
    }

    /// The statistic at `path`.
    pub fn get(&self, path: &str) -> Option<Arc<Kstat>> {
        self.0.entries.read().get(path).map(|entry| entry.kstat.clone())
    }

    /// The text of the statistic at `path`, as `/proc/spl/kstat/<path>` would show it.
    pub fn render(&self, path: &str, now_ns: u64) -> Option<String> {
        let (id, created_ns, kstat) = {
            let entries = self.0.entries.read();
            let entry = entries.get(path)?;
            (entry.id, entry.created_ns, entry.kstat.clone())
        };
        Some(kstat.render(id, created_ns, now_ns))
    }
}

/// Keeps a statistic visible; dropping it takes it away.
#[derive(Debug)]
pub struct Registered {
    shared: Arc<Shared>,
    path: String,
    id: u32,
    kstat: Arc<Kstat>,
}

impl Registered {
    /// Statistic that is registered.
    pub fn kstat(&self) -> &Kstat {
        &self.kstat
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut entries = self.shared.entries.write();
        if entries.get(&self.path).is_some_and(|entry| entry.id == self.id) {
            entries.remove(&self.path);
        }
    }
}
