//! What the kernel sends again to the server that goes on with a mount whose server died: when all of it has come.
//!
//! The kernel puts what it sends again before all else that waits. So who reads a request that is not sent again, or leaves nothing that waits,
//! knows that all of it was read. Once those who began to read before that have begun what they read, the file system knows of all of it.

use crate::abi::{self, op};
use exec::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Work to be done when all has come.
pub(crate) type Then = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// Number of threads that may be reading something that is sent again, and have not begun it.
    looking: usize,
    /// True when nothing that is sent again waits any more.
    is_read: bool,
    then: Option<Then>,
}

/// Wait of one mount for what is sent again.
pub(crate) struct SentAgain {
    is_over: AtomicBool,
    state: Mutex<State>,
}

/// Look of one thread at what the kernel sends, until it has begun what it read.
pub(crate) struct Look<'a>(&'a SentAgain);

/// True when something waits to be read.
pub(crate) fn has_waiting(connection: impl AsFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&connection, PollFlags::IN)], Some(&at_once)) != Ok(0)
}

impl SentAgain {
    /// State of a connection on which nothing is sent again.
    pub fn none() -> SentAgain {
        SentAgain { is_over: AtomicBool::new(true), state: Mutex::default() }
    }

    /// State of a connection on which something is; `then` is done when all of it has come.
    pub fn comes(then: Then) -> SentAgain {
        SentAgain { is_over: AtomicBool::new(false), state: Mutex::new(State { then: Some(then), ..State::default() }) }
    }

    /// Begins to look for a request; None when it cannot be one that is sent again.
    pub fn look(&self) -> Option<Look<'_>> {
        if self.is_over.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state.lock();
        if state.is_read {
            return None;
        }
        state.looking += 1;
        Some(Look(self))
    }
}

impl Look<'_> {
    /// Notes that the request with this header was begun.
    pub fn begun(self, header: &abi::InHeader, connection: impl AsFd) {
        // These come from queues of their own.
        let is_apart = matches!(header.opcode, op::FORGET | op::BATCH_FORGET | op::INTERRUPT);
        if header.unique & abi::RESENT == 0 && !is_apart || !has_waiting(connection) {
            self.note_read();
        }
    }

    /// Notes that nothing waits.
    pub fn note_read(&self) {
        self.0.state.lock().is_read = true;
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        let then = {
            let mut state = self.0.state.lock();
            state.looking -= 1;
            if state.is_read && state.looking == 0 { state.then.take() } else { None }
        };
        if let Some(then) = then {
            self.0.is_over.store(true, Ordering::Release);
            then();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use zerocopy::FromZeros;

    fn header(opcode: u32, unique: u64) -> abi::InHeader {
        abi::InHeader { opcode, unique, ..abi::InHeader::new_zeroed() }
    }

    /// If this fails, a request that is sent again is forgotten before somebody asked whether it was done: it is done twice.
    #[test]
    fn all_has_come_when_those_who_read_it_have_begun_it() {
        let is_over = Arc::new(AtomicBool::new(false));
        let (told, over) = (is_over.clone(), || is_over.load(Ordering::Acquire));
        let again = SentAgain::comes(Box::new(move || told.store(true, Ordering::Release)));
        // Something always waits.
        let waiting = std::fs::File::open("/dev/zero").expect("there");
        let look = || again.look().expect("something may be sent again");
        let (slow, first, forgets, ordinary) = (look(), look(), look(), look());
        first.begun(&header(op::UNLINK, 4 | abi::RESENT), &waiting);
        forgets.begun(&header(op::FORGET, 6), &waiting);
        drop(look());
        assert!(!over() && again.look().is_some());
        ordinary.begun(&header(op::GETATTR, 8), &waiting);
        assert!(!over() && again.look().is_none(), "who reads from now on reads nothing of it");
        slow.begun(&header(op::UNLINK, 2 | abi::RESENT), &waiting);
        assert!(over() && again.look().is_none());
        assert!(SentAgain::none().look().is_none());
    }

    /// If this fails, what the process before left stays in memory as long as a mount is idle.
    #[test]
    fn the_last_that_waits_is_the_last_that_comes() {
        let is_over = Arc::new(AtomicBool::new(false));
        let told = is_over.clone();
        let again = SentAgain::comes(Box::new(move || told.store(true, Ordering::Release)));
        let (empty, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert!(!has_waiting(&empty));
        again.look().expect("a look").begun(&header(op::UNLINK, 2 | abi::RESENT), &empty);
        assert!(is_over.load(Ordering::Acquire));
        let again = SentAgain::comes(Box::new(|| ()));
        let look = again.look().expect("a look");
        look.note_read();
        drop(look);
        assert!(again.look().is_none());
    }
}
