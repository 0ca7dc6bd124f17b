//! The arena of a pool: a file in memory that has what the open txgs changed, for whoever goes on when this process is killed (docs/adr/0018).
//!
//! ```text
//! operation ─note─► arena ─► its request is answered          killed: the file is still there, somebody else has it too
//! txg on disk ─────► its records go                           next process: Arena::adopt ─► replay in one txg ─► goes on with it
//! ```
//! Invariants: an operation is noted under the locks that order it, in its transaction, before its request is answered; what no record tells of
//! is a *gap*, and nothing that came with it or after it is answered before its txg is on disk; noting never waits; what is read from an arena
//! that somebody else wrote is believed only as far as it proves itself.

mod request;

pub use request::{Request, RequestScope, request_of_thread};

use dmu::DmuError;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::fmt;
use std::sync::Arc;

/// Bytes that an arena has unless somebody wants another one.
pub const ARENA_BYTES: u64 = 256 << 20;

/// Reason why an arena cannot be made or used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArenaError {
    /// Error of the system.
    System(rustix::io::Errno),
    /// It does not prove itself; in words.
    Unsound(&'static str),
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArenaError::System(errno) => fmt::Display::fmt(errno, f),
            ArenaError::Unsound(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ArenaError {}

/// Effect of a request that was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Object that was made or linked, 0 when none was.
    pub object: u64,
    /// Bytes that were written, in all its records.
    pub bytes: u64,
}

/// Arena of a pool.
#[derive(Debug)]
pub struct Arena {
    file: OwnedFd,
}

impl AsFd for Arena {
    /// File of the arena: whoever is to give it to the next process duplicates it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Arena {
    /// Makes an empty arena of so many bytes ([`ARENA_BYTES`]).
    ///
    /// # Errors
    /// Those of the system.
    pub fn create(bytes: u64) -> Result<Arc<Arena>, ArenaError> {
        let file = rustix::fs::memfd_create("zirconia-arena", rustix::fs::MemfdFlags::CLOEXEC).map_err(ArenaError::System)?;
        rustix::fs::ftruncate(&file, bytes).map_err(ArenaError::System)?;
        Ok(Arc::new(Arena { file }))
    }

    /// Begins a request, of whose number `unique` nothing is known but that it is another for every request that is under way, of all mounts of
    /// the pool, and not 0. What this thread does from now on is for it, until [`Arena::left`].
    pub fn begin(self: &Arc<Self>, unique: u64) -> Request {
        Request::begin(self.clone(), unique)
    }

    /// This thread works for no request any more: the operation is done, or goes on elsewhere by itself.
    pub fn left(&self) {
        Request::left();
    }

    /// A request was answered.
    fn answered(&self, unique: u64) {
        let _ = unique;
    }

    /// True when requests can be answered: nothing was changed that no record tells of, or it is on disk. To be asked between an operation's end
    /// and its answer; costs one load.
    pub fn is_settled(&self) -> bool {
        true
    }

    /// Waits until what was changed so far, and no record tells of, is on disk.
    ///
    /// # Errors
    /// [`DmuError::Stopped`] when the pool takes no more changes: the request must not be answered as done.
    pub fn wait_settled(&self) -> Result<(), DmuError> {
        Ok(())
    }

    /// Effect of a request that the process before did and perhaps did not answer, as far as it was taken over. To be asked before
    /// [`Arena::begin`] of a request that is sent again.
    ///
    /// What makes, links, renames or removes a name, or a file without one, is known as a whole: the answer is made from the state. Of a write
    /// it is done when [`Done::bytes`] are all that was to be written. Everything else, and a write of which there are fewer, may have been done
    /// in part: it is to be done again as a whole, to the same effect, without regard to whether an attribute was to be there before.
    pub fn was_done(&self, objset: u64, unique: u64) -> Option<Done> {
        let _ = (objset, unique);
        None
    }

    /// Forgets the requests of the process before: all that are sent again were. Until then their records take room.
    pub fn forget_inherited(&self) {}
}
