//! DSL: the datasets of a pool — directories, file systems, volumes, snapshots, their space, properties and history.
//!
//! Everything here lives in the meta object set (MOS) exactly as OpenZFS keeps it (`dsl_pool.c`, `dsl_dir.c`,
//! `dsl_dataset.c`, `dsl_deadlist.c`, `bpobj.c`, `dsl_destroy.c`, `dsl_prop.c`, `dsl_userhold.c`, `dsl_bookmark.c`).
//!
//! # How it works
//! * A [`DslPool`] keeps a directory (`dsl_dir`) and a dataset object in memory for everything that was looked at; their
//!   records are written through to the MOS, in syncing context only.
//! * Changes are *sync tasks*: queued in open context, checked and run by the sync of their txg after the datasets' own
//!   data was written, so a snapshot holds exactly what was dirty before it.
//! * Blocks that a dataset's sync writes and gives up are summed without locks and settled once per txg: space goes up the
//!   directories, dead blocks that a snapshot still holds go to the deadlist, others are freed.
//!
//! # Invariants
//! 1. The MOS is changed in syncing context only.
//! 2. A dataset's blocks are freed when no snapshot can reach them: born after the previous snapshot, or on a deadlist
//!    that merged into nothing.
//! 3. The configuration lock is taken for writing by sync tasks only; who holds it for reading never waits for a txg.
//! 4. Nothing here knows labels, vdevs or allocation; the pool lends its features and space through [`PoolServices`].
#![forbid(unsafe_code)]

mod bpobj;
mod changed;
mod dataset;
mod deadlist;
mod dir;
mod error;
pub mod features;
mod handle;
mod keys;
mod ledger;
mod livelist;
mod marks;
mod meta;
pub mod names;
mod pool;
mod ports;
pub mod prop;
mod raw;
mod redaction;
mod replay;
mod resume;
mod space;
mod traverse;
mod tuning;
mod unlocked;
pub mod volume;

#[cfg(test)]
mod tests;

pub use crypt::Secret;
pub use error::DslError;
pub use handle::{DatasetHandle, DatasetSpace};
pub use keys::{RawKeys, set_ignores_iv_sets};
pub use pool::{
    BookmarkEntry, BookmarkSpace, CreateDataset, DatasetInit, Delegation, DslPool, FailedLog, IntentLogs, LostLogs, Mos, PendingLogs,
    ReceiveBegin, ReceiveEnd, ReceivedValue, RedactionList, SnapshotEntry, StreamRedaction, Subject, Upgraded, UserHold, is_delegation,
    is_permission, is_permission_set,
};
pub use ports::{HistoryEvent, Inheritance, PoolServices, PoolSpace};
pub use prop::{PropEntry, PropSource, PropValue};
pub use raw::RawStream;
pub use redaction::{RedactedRun, Redaction, allows_redacted, same_snapshots, set_allows_redacted};
pub use replay::{ReplayEnded, ReplayError, ReplayFiles, ReplayRecords, ReplayTold, ReplayedLog, Told, replay_arena, take_told_logs};
pub use resume::{ResumePoint, ResumeState};
pub use space::TxSpace;
pub use traverse::{Position, Walk};
