//! The request under way: which of a protocol's requests the operations of a thread are for.
//!
//! Operations note what they do with the number of their request, so that one which is sent again after a death is known as done. The number
//! belongs to the thread while the operation runs there; what goes on elsewhere takes it along ([`request_of_thread`], [`RequestScope`]).

use super::Arena;
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    static UNDER_WAY: Cell<u64> = const { Cell::new(0) };
}

/// Number of the request that this thread works for, 0 when it works for none.
pub fn request_of_thread() -> u64 {
    UNDER_WAY.get()
}

/// Makes this thread work for a request, and for the one before again when it is dropped.
#[derive(Debug)]
pub struct RequestScope {
    before: u64,
}

impl RequestScope {
    /// Begins to work for the request with this number; 0 stands for none.
    pub fn enter(unique: u64) -> RequestScope {
        RequestScope { before: UNDER_WAY.replace(unique) }
    }
}

impl Drop for RequestScope {
    fn drop(&mut self) {
        UNDER_WAY.set(self.before);
    }
}

/// Request of a protocol, from when it was read to when it was answered: as long as this lives the arena remembers what was done for it, also
/// when that is on disk. To be dropped when the answer was given, on any thread.
#[derive(Debug)]
pub struct Request {
    arena: Arc<Arena>,
    unique: u64,
}

impl Request {
    /// Begins a request; this thread works for it until [`Request::left`] is called there.
    pub(super) fn begin(arena: Arc<Arena>, unique: u64) -> Request {
        UNDER_WAY.set(unique);
        Request { arena, unique }
    }

    /// Lets this thread work for no request any more: the operation is done, or goes on elsewhere.
    pub fn left() {
        UNDER_WAY.set(0);
    }

    /// Number of the request.
    pub fn unique(&self) -> u64 {
        self.unique
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.arena.answered(self.unique);
    }
}
