//! What a target did, counted where it happens, and what it shows of that. It counts only; who holds what is asked of the sessions.

use std::sync::atomic::AtomicU64;

/// Counts of what a target did, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetStats {
    /// Number of sessions now.
    pub sessions: u64,
    /// Buffers of all sessions now.
    pub buffers: u64,
    /// Bytes of these buffers.
    pub buffer_bytes: u64,
    /// Operations that ran.
    pub executed: u64,
    /// Operations that came again, and did not run again.
    pub repeated: u64,
    /// Frames that were not authentic, and bytes in shared memory that were not those that were announced.
    pub damaged: u64,
    /// Connections whose secret was wrong.
    pub refused: u64,
    /// Sessions whose lease ran out.
    pub expired: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) executed: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) damaged: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) expired: AtomicU64,
}
