//! What must not stay behind — files, mounts, loop devices, bandwidth caps, daemons — is undone on return, panic and ^C alike.
//!
//! Every [`Guard`] is also known to a process-wide list that the thread waiting for SIGINT, SIGTERM and SIGHUP works off, newest
//! first. SIGKILL cannot be caught; what it leaves is found by name and removed when the next run begins.

use crate::sys::Endings;
use std::sync::{Mutex, OnceLock, PoisonError};

type Undo = Box<dyn FnOnce() + Send>;

struct Registry {
    next: u64,
    undo: Vec<(u64, Undo)>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { next: 0, undo: Vec::new() });

/// Guard that undoes something when dropped, or when the program is told to end.
#[derive(Debug)]
pub struct Guard(u64);

impl Guard {
    /// Registers `undo`; it runs exactly once.
    pub fn new(undo: impl FnOnce() + Send + 'static) -> Guard {
        listen();
        let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
        registry.next += 1;
        let ticket = registry.next;
        registry.undo.push((ticket, Box::new(undo)));
        Guard(ticket)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let undo = {
            let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
            let at = registry.undo.iter().position(|(ticket, _)| *ticket == self.0);
            at.map(|at| registry.undo.remove(at).1)
        };
        if let Some(undo) = undo {
            undo();
        }
    }
}

/// Catches the signals and has one thread wait for them.
pub fn listen() {
    static LISTENING: OnceLock<()> = OnceLock::new();
    LISTENING.get_or_init(|| {
        let Ok(mut endings) = Endings::catch() else { return };
        std::thread::spawn(move || {
            let signal = endings.wait();
            if signal != libc::SIGTERM {
                eprintln!("zbench: ended by signal {signal}; cleaning up");
            }
            undo_all();
            std::process::exit(128 + signal);
        });
    });
}

/// Undoes everything, newest first.
pub fn undo_all() {
    loop {
        let last = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner).undo.pop();
        match last {
            Some((_, undo)) => undo(),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A mount undone twice could remove somebody else's; one never undone stays behind.
    #[test]
    fn each_guard_undoes_once_whoever_asks() {
        let undone = Arc::new(AtomicU64::new(0));
        let guard = || {
            let undone = undone.clone();
            Guard::new(move || {
                undone.fetch_add(1, Ordering::Relaxed);
            })
        };
        let (dropped, signalled) = (guard(), guard());
        drop(dropped);
        assert_eq!(undone.load(Ordering::Relaxed), 1);
        undo_all();
        drop(signalled);
        assert_eq!(undone.load(Ordering::Relaxed), 2);
    }
}
