//! Statistics and events: sharded counters, power-of-two histograms, OpenZFS's kstat text, lists that are read as files, imports under way,
//! the event port, and the log of debug messages.
//!
//! Invariants: bumping a counter never takes a lock; nothing here knows what is counted; names are OpenZFS's, given by
//! the crate that counts.
#![forbid(unsafe_code)]

mod counter;
mod debug;
mod event;
mod imports;
mod iostats;
mod records;
mod registry;
mod sheet;
#[cfg(test)]
mod tests;

pub use counter::{Counter, Gauge};
pub use debug::{DebugLog, DebugMessage};
pub use event::{Event, EventLog, EventSink, FieldValue, Listener, LoggedEvent, NoEvents, WallClock};
pub use imports::{Import, LoadState, imports_text, note_import, note_import_waits};
pub use iostats::{CountBytes, IoStats, TrimCounts};
pub use records::{Cursor, Listing, Missed, Records};
pub use registry::{Kstat, Registered, Registry, Stamp, Value};
pub use sheet::{Histogram, Row, Sheet, bucket};
