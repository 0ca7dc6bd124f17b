//! How a target is set up, and the port by which it reaches files and disks. What becomes of it is none of this file's business.

use dpusm::{HostStore, QueueLimits, StoreKind};
use std::path::Path;
use std::sync::Arc;
use target_wire::Secret;

/// Port: the files and disks that hosts may write.
pub trait Stores: Send + Sync {
    /// Opens one for writing; only what hosts may write.
    ///
    /// # Errors
    /// An errno.
    fn open(&self, kind: StoreKind, path: &Path) -> Result<Arc<dyn HostStore>, i32>;
}

/// Setup of a target.
#[derive(Clone, Debug)]
pub struct TargetSetup {
    /// Secret that hosts have to prove.
    pub secret: Secret,
    /// Time without a frame after which a session ends, in nanoseconds.
    pub lease_ns: u64,
    /// Most bytes of buffers of a session.
    pub memory_bytes_max: u64,
    /// Most sessions at a time.
    pub sessions_max: usize,
    /// Amount of each session's work that runs at a time.
    pub queue: QueueLimits,
    /// True when payload of hosts on this machine may go through memory of theirs.
    pub shares_memory: bool,
    /// True when programs are submitted by jobs, several at a time: for a device that computes while it takes them.
    pub submits_in_jobs: bool,
}

impl TargetSetup {
    /// A lease of 30 seconds, 1 GiB for each of 16 sessions, memory shared with hosts on this machine.
    pub fn new(secret: Secret) -> TargetSetup {
        let queue = QueueLimits { graphs_max: 256, bytes_max: 1 << 30 };
        TargetSetup {
            secret,
            lease_ns: 30_000_000_000,
            memory_bytes_max: 1 << 30,
            sessions_max: 16,
            queue,
            shares_memory: true,
            submits_in_jobs: false,
        }
    }
}
