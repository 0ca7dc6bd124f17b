//! The I/O scheduler's policy: which I/O of one leaf goes to its device next, and merged with which neighbours.
//!
//! A [`VdevQueue`] is a value: `add(io, now)`, `next(now)`, `done(id, now)`. It has no lock, no thread and no clock; equal calls give
//! equal answers. Every operation costs O(log n) in the number of queued I/Os, amortized over the I/Os that are merged.
//!
//! Invariants: the device never has more than `zfs_vdev_max_active` I/Os nor more than `zfs_vdev_CLASS_max_active` of a class
//! (unless `Scheduler::Off` says that there are no limits); a class below its minimum goes before every class above its own;
//! no queued I/O is lost or issued twice; the parts of a merged I/O are of one class and kind, ordered, and within the limits.
//!
//! Modules: [`VdevQueue`] (`queue`: what goes next; `merge`: with whom), `promise` (the latency promise; on disks `gather` and `roam`),
//! [`Tunables`], [`LatencyHistogram`].
//! OpenZFS: `module/zfs/vdev_queue.c`; the promise is not in OpenZFS.

mod allowance;
mod class;
mod device;
mod flight;
mod gather;
mod histogram;
mod io;
mod merge;
mod promise;
mod queue;
mod roam;
mod tunables;

pub use class::{CLASSES, Class, IoKind};
pub use device::Device;
pub use histogram::LatencyHistogram;
pub use io::{Finished, Io, IoId, Issue, IssueId, Overdue, Part};
pub use promise::{PromiseState, Reason};
pub use queue::{Admitted, VdevQueue};
pub use roam::Roam;
pub use tunables::{ActiveLimits, Dirty, LatencyTarget, MERGED_BYTES_MAX, Scheduler, TunableError, Tunables};
