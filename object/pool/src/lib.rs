//! The pool (OpenZFS: the SPA): labels, configuration, features, history, space maps and the sync of transaction groups.
//!
//! # How it works
//! * [`Pool::create`] and [`Pool::import`] assemble the stack: devices → `zio` → `arc` → object sets → datasets, and give a
//!   [`Pool`] whose txgs run by themselves.
//! * The sync of a txg writes the datasets, runs their sync tasks, then syncs the MOS in passes until writing down the
//!   allocations of one pass changes nothing more, then flushes, and moves the uberblock.
//! * Leaves go offline and come back while the pool is open; what they missed is in their dirty time logs, and a resilver brings it.
//! * A pool with the property `multihost` tells other hosts by heartbeats that this one has it, and looks for theirs before it is opened.
//! * A checkpoint keeps the state of one txg: what is freed of it stays allocated, and is written down in space maps of its own, until it is discarded or
//!   gone back to.
//! * Cache devices take copies of what is about to leave memory; nothing that is on them is needed.
//! * The vdev tree is an immutable snapshot; whoever changes it replaces it as a whole.
//!
//! # Invariants
//! 1. Nothing reachable from an uberblock is written over: blocks freed in a txg rest for two more.
//! 2. An uberblock is written after everything that it leads to was flushed.
//! 3. Space maps on disk say what is allocated as of their uberblock: no leak, no overlap, at any cut of power.
//! 4. Only the sync takes the lock that is held across waits (`Syncer::work`).
#![forbid(unsafe_code)]

mod caches;
mod error;
mod expand;
mod facade;
mod heartbeat;
mod label;
mod open;
mod outliers;
mod rebuild;
mod removal;
mod scans;
mod spa;
mod sweep;
mod sync;
mod vdev_ops;
mod verify;
mod zia;

pub use caches::CacheStatus;
pub use error::{DeviceProblem, PoolError};
pub use expand::run::{ExpandParameters, ExpandStatus};
pub use facade::Pool;
pub use facade::status::{LeafStatus, PoolStatus};
pub use l2arc::Tunables as CacheTunables;
pub use metaslab::{BROKEN_ACTION, BrokenMetaslab};
pub use open::base::{LoadVerify, Runtime};
pub use open::create::PoolSpec;
pub use open::examine::Examined;
pub use open::find::{FoundPool, find_pools};
pub use open::labelclear::{LabelReport, clear_labels, inspect_labels};
pub use open::rewind::{KeptDataset, RewindPoint, Rewound};
pub use open::{ImportOptions, Rewind};
pub use outliers::{Outlier, Outliers, Outlying};
pub use rebuild::{RebuildParameters, RebuildState, RebuildStatus};
pub use removal::run::{RemovalParameters, RemovalState, RemovalStatus};
pub use scan::{Damaged, ErrorScrubStatus, ScanError, ScanFunction, ScanState, ScanStatus, ScanTunables};
pub use spa::brt::SharedSpace;
pub use spa::checkpoint::CheckpointStatus;
pub use spa::config::{Host, PoolState, VERSION as VERSION_WITH_FEATURES, is_version};
pub use spa::dedup::{DedupSpace, DedupTable};
pub use spa::feature_table::{FEATURES, Feature, Support, feature_by_guid, feature_by_name};
pub use spa::history::shown_call;
pub use spa::multihost::{BeatRecord, MultihostTunables};
pub use spa::props::{
    PoolProp, USER_NAME_BYTES_MAX, USER_VALUE_BYTES_MAX, dedup_table_quota, is_own_value, is_stored_prop, is_user_prop, prop_words,
    settable_props,
};
pub use spa::takeover::ArenaOutcome;
pub use spa::vdev_props::{VdevProps, is_settable_vdev_prop};
pub use sweep::{SweepAction, SweepKind, SweepParameters, SweepState, SweepStatus};
pub use sync::failure::SyncFailure;
pub use sync::flushing::SpaceLogTunables;
pub use vdev_ops::add::AddSpec;
pub use vdev_ops::spares::Spare;
pub use vdev_ops::spec::{ClassSpec, LeafSpec, Membership, TopSpec, label_guid, membership};
pub use verify::{CheckpointReport, Reading, SpaceReport, Unreadable};
pub use zia::{Awaited, Providers};
