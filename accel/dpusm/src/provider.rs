//! The port that providers implement: an accelerator, or what stands for one.
//!
//! A provider knows nothing of its user. It must be thread-safe, may complete work on any thread (also before `submit` returns:
//! its user is called from a job of the executor either way), and must not wait in any of these calls. What it is handed are
//! programs over its own handles; what it owes is [`crate::Program::finish`] for each of them.

use crate::{Capabilities, DeviceHandle, Onward, OpError, Program, StoreTarget};

/// Buffers of a provider, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCount {
    /// Number of buffers.
    pub buffers: u64,
    /// Bytes that were asked for.
    pub requested_bytes: u64,
    /// Bytes that were really taken.
    pub actual_bytes: u64,
}

/// Memory of a provider (DPUSM: `mem_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Buffers that there are now.
    pub active: MemoryCount,
    /// Buffers that there ever were.
    pub total: MemoryCount,
}

/// An accelerator, or what stands for one.
pub trait Provider: Send + Sync {
    /// Name of the provider: letters, digits, `-`, `_` and `.`.
    fn name(&self) -> &str;

    /// Version of the provider, for people.
    fn version(&self) -> &str;

    /// Capabilities of the provider. Asked once, at registration.
    fn capabilities(&self) -> Capabilities;

    /// Device memory of `bytes` bytes (at least one), with any contents.
    ///
    /// # Errors
    /// `NoMemory`, or whatever went wrong.
    fn alloc(&self, bytes: usize) -> Result<DeviceHandle, OpError>;

    /// Gives device memory back. No program names it any more. Called on any thread, also from inside `finish`; not called any
    /// more once the provider was declared dead (the handle is dropped then).
    fn free(&self, handle: DeviceHandle);

    /// Takes programs, in order. The effects of a program are those of its nodes in order; of two programs nothing is said.
    ///
    /// # Errors
    /// The last programs, when the queue is full: from the first that was not taken on.
    fn submit(&self, programs: Vec<Program>) -> Result<(), Vec<Program>>;

    /// Opens a file or disk for writing.
    ///
    /// # Errors
    /// `NotImplemented` without an implementation; `Io` when it cannot be opened.
    fn open(&self, target: &StoreTarget) -> Result<DeviceHandle, OpError> {
        let _ = target;
        Err(OpError::NotImplemented)
    }

    /// Closes what was opened.
    fn close(&self, handle: DeviceHandle) {
        drop(handle);
    }

    /// Memory of the provider, if it counts it.
    fn memory(&self) -> Option<MemoryStats> {
        None
    }

    /// Nanoseconds for which a store of a program may still be carried out after the provider dropped it: by somebody whom it does not reach any more.
    fn lingers_ns(&self) -> u64 {
        0
    }

    /// Has `onward` run once [`Provider::lingers_ns`] begins to count for what was dropped by now: at once, or, by a provider whose work another process
    /// does, when that has ended. Any thread runs it.
    fn when_gone(&self, onward: Onward) {
        onward();
    }

    /// Ends the use of the provider, which was declared dead or is not used any more: it should drop the programs it still has. No call
    /// follows, but for some that are under way on other threads.
    fn shut_down(&self) {}
}
