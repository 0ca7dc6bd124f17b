//! Work that may hang in a library of somebody else's, which nobody waits for longer than a deadline.

use exec::{Condvar, Exec, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// Does `work` in an operation of its own, and waits for it; None when it takes longer than `deadline`. It goes on then, and what it gives is dropped.
pub(super) fn within<T: Send + 'static>(
    exec: &Exec,
    name: &str,
    deadline: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    // Nothing runs beside who waits.
    if exec.is_inline() {
        return Some(work());
    }
    let shared = Arc::new((Mutex::new(None), Condvar::new()));
    let there = shared.clone();
    let operation = move || {
        let done = work();
        *there.0.lock() = Some(done);
        there.1.notify_all();
    };
    drop(exec.spawn_operation(name, Box::new(operation)));
    let until = exec.now_ns().saturating_add(deadline.as_nanos() as u64);
    let mut outcome = shared.0.lock();
    while outcome.is_none() {
        let left = until.saturating_sub(exec.now_ns());
        if left == 0 {
            return None;
        }
        shared.1.wait_for(&mut outcome, Duration::from_nanos(left));
    }
    outcome.take()
}

#[cfg(test)]
mod tests {
    use super::*;
    use exec::Pool;
    use std::sync::mpsc::channel;

    /// If this fails, a driver that hangs holds up whoever loads it for ever, or one that does not is given up.
    #[test]
    fn what_hangs_is_not_waited_for() {
        let exec: Exec = Arc::new(Pool::new(1));
        assert_eq!(within(&exec, "z-test", Duration::from_secs(600), || 7), Some(7));
        let (ends, waits) = channel::<()>();
        assert_eq!(within(&exec, "z-test", Duration::from_millis(1), move || waits.recv().is_err()), None);
        drop(ends);
    }
}
