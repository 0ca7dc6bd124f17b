//! Time that one command has to wait for the ends of mounts: all that it unmounts have it together, however many they are.

use crate::mount::working::Elsewhere;
use exec::Exec;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds that a command waits for what the kernel has let go of: requests are still being served.
const ENDING_NS: u64 = 3_000_000_000;
/// Nanoseconds of the same that each mount has when the others took them: a thread has to hear of the end.
const ENDING_LEAST_NS: u64 = 50_000_000;
/// Nanoseconds that a command waits for what left its place and is there all the same: another mount namespace has it.
const HELD_NS: u64 = 1_000_000_000;

/// Patience of one command.
pub(crate) struct Patience {
    exec: Exec,
    begun_ns: u64,
    /// Nanoseconds that are left of those for what the kernel has let go of.
    ending_ns: AtomicU64,
    /// Nanoseconds that are left of those for what somebody else has.
    held_ns: AtomicU64,
    elsewhere: OnceLock<Elsewhere>,
}

impl Patience {
    /// Patience of a command that begins now.
    pub(crate) fn new(exec: &Exec) -> Patience {
        let (ending_ns, held_ns) = (AtomicU64::new(ENDING_NS), AtomicU64::new(HELD_NS));
        Patience { exec: exec.clone(), begun_ns: exec.now_ns(), ending_ns, held_ns, elsewhere: OnceLock::new() }
    }

    /// Waits with `wait_end`, for some nanoseconds, for the end of a mount that was unmounted; false when it did not come. `is_held` is true
    /// while the kernel keeps it for somebody.
    pub(crate) fn wait(&self, is_held: impl Fn() -> bool, wait_end: impl Fn(u64) -> bool) -> bool {
        if is_held() && self.spend(&self.held_ns, 0, &wait_end) {
            return true;
        }
        !is_held() && self.spend(&self.ending_ns, ENDING_LEAST_NS, &wait_end)
    }

    fn spend(&self, left: &AtomicU64, least_ns: u64, wait_end: &dyn Fn(u64) -> bool) -> bool {
        let (begun, had) = (self.exec.now_ns(), left.load(Ordering::Relaxed));
        let has_ended = wait_end(had.max(least_ns));
        left.store(had.saturating_sub(self.exec.now_ns().saturating_sub(begun)), Ordering::Relaxed);
        has_ended
    }

    /// Nanoseconds that what is forced, and somebody else has, is left alone before it is cut off.
    pub(crate) fn grace_ns(&self) -> u64 {
        self.held_ns.load(Ordering::Relaxed)
    }

    /// Notes that some of what was forced took all of that time in vain: what the command forces next has none.
    pub(crate) fn has_waited(&self) {
        self.held_ns.store(0, Ordering::Relaxed);
    }

    /// Nanoseconds since the command began.
    pub(crate) fn age_ns(&self) -> u64 {
        self.exec.now_ns().saturating_sub(self.begun_ns)
    }

    /// Number and name of a program in another mount namespace in which the file system with this device is mounted; looked up once for all.
    pub(crate) fn holder(&self, device: (u32, u32)) -> Option<&str> {
        self.elsewhere.get_or_init(Elsewhere::look).program(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::Arc;

    const COUNT: u64 = 1000;

    fn bed() -> (Exec, Patience) {
        let exec: Exec = Arc::new(exec::Inline::new(1));
        (exec.clone(), Patience::new(&exec))
    }

    /// If this fails, a command for a thousand file systems that a container has too takes minutes.
    #[test]
    fn all_mounts_of_a_command_wait_together() {
        let (exec, patience) = bed();
        let in_vain = |ns| {
            exec.sleep_ns(ns);
            false
        };
        for _ in 0..COUNT {
            assert!(!patience.wait(|| true, in_vain));
        }
        assert_eq!(exec.now_ns(), 1 + HELD_NS);
        // What the kernel has let go of has its own time, each a little at least.
        for _ in 0..COUNT {
            assert!(!patience.wait(|| false, in_vain));
        }
        assert_eq!(exec.now_ns(), 1 + HELD_NS + ENDING_NS + (COUNT - 1) * ENDING_LEAST_NS);
        assert!(patience.age_ns() < 60_000_000_000);
    }

    /// If this fails, file systems that have left are said to be busy since others in the same command were.
    #[test]
    fn ends_that_come_are_seen_whoever_had_the_time() {
        let (exec, patience) = bed();
        let ends = |ns| {
            exec.sleep_ns(ENDING_LEAST_NS.min(ns));
            ns >= ENDING_LEAST_NS
        };
        for _ in 0..COUNT {
            assert!(patience.wait(|| false, ends));
        }
        // Somebody lets go of it just now.
        let looks = Cell::new(0);
        let is_held = || looks.replace(looks.get() + 1) == 0;
        patience.has_waited();
        assert_eq!(patience.grace_ns(), 0);
        assert!(patience.wait(is_held, ends));
    }
}
