//! Life of a daemon towards its end: it is stopped, or leaves its mounts to the next one. One of both at a time.

use exec::{Exec, Mutex};

/// Pause between looks of somebody who waits.
const STEP_NS: u64 = 10_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Serves,
    /// Mounts are being left to the next daemon.
    Leaves,
    /// Mounts are left: what is asked for now is for the next one.
    HasLeft,
    /// End of the daemon was asked for.
    Ends,
}

/// Phase that the daemon is in.
#[derive(Debug, Default)]
pub(crate) struct Phases(Mutex<Phase>);

/// Reason why mounts are not left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Mounts are being left already, or are.
    Leaves,
    /// The daemon is being stopped.
    Ends,
}

/// Sign that mounts are being left; the daemon goes on when this is dropped.
#[derive(Debug)]
pub(crate) struct Leaving<'a>(&'a Phases);

impl Phases {
    /// Begins to leave.
    pub(crate) fn leave(&self) -> Result<Leaving<'_>, Refused> {
        let mut phase = self.0.lock();
        match *phase {
            Phase::Serves => {
                *phase = Phase::Leaves;
                Ok(Leaving(self))
            }
            Phase::Leaves | Phase::HasLeft => Err(Refused::Leaves),
            Phase::Ends => Err(Refused::Ends),
        }
    }

    /// Lets the daemon end, for good; what is being left meanwhile is waited for. False when it was left: the next daemon is to be told then.
    pub(crate) fn end(&self, exec: &Exec) -> bool {
        loop {
            let mut phase = self.0.lock();
            match *phase {
                Phase::Serves | Phase::Ends => {
                    *phase = Phase::Ends;
                    return true;
                }
                Phase::HasLeft => return false,
                Phase::Leaves => {}
            }
            drop(phase);
            exec.sleep_ns(STEP_NS);
        }
    }
}

impl Leaving<'_> {
    /// Notes that everything is left.
    pub(crate) fn done(self) {
        *self.0.0.lock() = Phase::HasLeft;
        std::mem::forget(self);
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        *self.0.0.lock() = Phase::Serves;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// If this fails, a daemon is stopped in the middle of being replaced: its mounts are served by nobody, and cut off a minute later.
    #[test]
    fn a_daemon_is_stopped_or_replaced_and_never_both() {
        let exec: Exec = Arc::new(exec::Pool::new(1));
        let phases = Phases::default();
        let leaving = phases.leave().expect("it serves");
        assert_eq!(phases.leave().err(), Some(Refused::Leaves));
        drop(leaving);
        phases.leave().expect("it serves again").done();
        assert!(!phases.end(&exec), "the next one is to be told");
        assert_eq!(phases.leave().err(), Some(Refused::Leaves));
        let phases = Phases::default();
        assert!(phases.end(&exec) && phases.end(&exec), "twice");
        assert_eq!(phases.leave().err(), Some(Refused::Ends));
    }
}
