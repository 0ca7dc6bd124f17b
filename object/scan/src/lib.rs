//! Scans: walking everything that a pool references, to verify and repair it (OpenZFS: `dsl_scan.c`, `spa_errlog.c`).
//!
//! # How it works
//! * A scrub or resilver visits the MOS, then every dataset, oldest snapshots first: each block once, by its birth. Metadata is read and
//!   verified on the way; data is queued by address, as much as memory allows (see `sort`), and then read in large pieces, with enough
//!   in flight for every device (see `queue`).
//! * A resilver visits only what was born in the txgs that leaves in use lack, reads what one of them lacks, and writes it there. It
//!   takes the place of a scrub that runs, and begins again when another leaf needs it. Degraded reads of users feed it (see `feed`).
//! * Each read of a scrub looks at every copy and all parity and repairs what is wrong; what cannot be repaired goes to the error log.
//! * An error scrub reads only what the error log has (see `reread`).
//! * The state is written with every txg, so a scan goes on after an export or a crash, here or in OpenZFS.
//!
//! # Invariants
//! 1. Nothing is read (and so nothing repaired) that may have been given to another block: see `gate`.
//! 2. The state on disk never claims what was not read: its place moves on only when the queue is empty.
//! 3. Only the sync writes to the MOS. No lock is held across a wait.
#![forbid(unsafe_code)]

mod cursor;
mod datasets;
mod errlog;
mod error;
mod errorscrub;
mod feed;
mod frees;
mod gate;
mod known;
mod lookup;
mod lost;
mod ports;
mod progress;
mod queue;
mod record;
mod requests;
mod reread;
mod scan;
mod sort;
mod status;
mod sync;
mod walk;
mod work;

pub use errlog::{errors_destroyed, errors_inherited};
pub use error::ScanError;
pub use frees::FreeLog;
pub use lost::LostBlocks;
pub use ports::{ScanHost, ScanOutcome};
pub use scan::{Scan, ScanParts, ScanTunables};
pub use status::{Damaged, ErrorScrubStatus, ScanFunction, ScanState, ScanStatus};
