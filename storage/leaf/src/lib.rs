//! One device of a pool at a time: its queue, what it has, what it is made to suffer, and what it is counted to have done.
//!
//! ```text
//!   LeafDevice::submit ──► straight ─────────────────────► faults ──► plug ──► device
//!                     └──► queue ──► when its turn comes ──┘                     │
//!   Waiter::done ◄── counted, timed, told to Watcher where it was slow ◄─────────┘
//! ```
//! Invariants:
//! 1. what is here knows places and bytes of devices, never a block: sets of I/Os, checksums and repairs are the pipeline's (`zio`);
//! 2. every I/O that was submitted comes back once;
//! 3. what goes straight to a device takes no lock and writes to no memory that other threads wait for.
#![forbid(unsafe_code)]

mod device;
mod extended;
mod flights;
mod idle;
mod inject;
mod leaves;
mod merged;
mod plug;
mod priority;
mod qualify;
mod reports;
mod shared;
mod sitting;
mod stats;
mod tuning;

pub use crate::device::{LeafDevice, QueueState, Submission, Waiter};
pub use extended::{EXTENDED, ExtendedStat, LeafTiming};
pub use flights::DeadmanFailMode;
pub use inject::{FaultError, Injection, LeafFault};
pub use leaves::{Leaves, Seat, Wanted};
pub use plug::{is_releasing, plugged};
pub use priority::Priority;
pub use qualify::{Defect, Sample, qualify};
pub use reports::{FailedIo, WrongBytes, untold_errors};
pub use shared::{Roaming, Watcher};
pub use sitting::Spell;
pub use stats::{LeafCounts, LeafStats};
pub use tuning::DirtySource;
