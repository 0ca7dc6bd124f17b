//! The mailbox of the daemon's watcher: events that programs are to be told, and the end.

use crate::watch::hooks;
use exec::{Condvar, Mutex};
use kstat::LoggedEvent;
use std::collections::VecDeque;
use std::time::Duration;

/// Number of error reports that may wait to be told; more are passed over.
const REPORTS_MAX: usize = 64;
/// Number of events of all kinds that may wait to be told.
const WAITING_MAX: usize = 512;
/// Pause between looks at what nobody announces.
const STEP: Duration = Duration::from_millis(500);
/// Nanoseconds for which events that are passed over are counted before the log tells how many.
const COUNTED_NS: u64 = 60_000_000_000;

#[derive(Default)]
struct State {
    waiting: VecDeque<LoggedEvent>,
    /// Allowance of error reports, and lines of history: they come no faster, so that those of a dying disk don't keep its change of state from
    /// being told.
    reports: hooks::Allowance,
    passed_over: u64,
    /// Time, in nanoseconds, of the first of them that the log does not know of.
    passing_since_ns: u64,
    stopping: bool,
}

impl State {
    fn say_passed_over(&mut self) {
        let events = std::mem::take(&mut self.passed_over);
        if events > 0 {
            tracing::warn!("{events} events came too fast and were told to no program");
        }
    }
}

/// Mailbox of the watcher.
#[derive(Default)]
pub(crate) struct Watcher {
    state: Mutex<State>,
    changed: Condvar,
    /// Condition of those who pause: told only at the end.
    paused: Condvar,
}

impl Watcher {
    /// Ends the watcher.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_all();
        self.paused.notify_all();
    }

    /// Waits a while; false when the watcher is to end.
    pub(crate) fn pause(&self, step: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.stopping {
            self.paused.wait_for(&mut state, step);
        }
        !state.stopping
    }

    /// Has programs told of an event, unless too many wait.
    pub(crate) fn tell(&self, now_ns: u64, logged: &LoggedEvent) {
        let mut state = self.state.lock();
        let is_report = logged.event.class.starts_with("ereport.") || logged.event.class.ends_with(".history_event");
        let room = if is_report { REPORTS_MAX } else { WAITING_MAX };
        let is_allowed = !is_report || state.reports.take(now_ns);
        if is_allowed && state.waiting.len() < room {
            state.waiting.push_back(logged.clone());
            drop(state);
            self.changed.notify_all();
        } else {
            if state.passed_over == 0 {
                state.passing_since_ns = now_ns;
            }
            state.passed_over += 1;
            // A line a minute: a disk that dies must not fill the log.
            if now_ns.saturating_sub(state.passing_since_ns) >= COUNTED_NS {
                state.say_passed_over();
            }
        }
    }

    /// Takes the next event to tell, after a while without any; None ends the watcher.
    pub(crate) fn next(&self) -> Option<Option<LoggedEvent>> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && !state.stopping {
            self.changed.wait_for(&mut state, STEP);
        }
        if state.stopping {
            state.say_passed_over();
        }
        if state.stopping { None } else { Some(state.waiting.pop_front()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kstat::Event;

    /// The mail that says which device failed must not be lost in the errors of that device.
    #[test]
    fn a_change_of_state_is_told_amid_a_flood_of_error_reports() {
        let watcher = Watcher::default();
        let logged = |class: &'static str| LoggedEvent { eid: 1, time: (0, 0), event: Event::new(class) };
        (0..1000).for_each(|step| watcher.tell(step * 1_000_000, &logged("ereport.fs.zfs.io")));
        (0..100).for_each(|_| watcher.tell(1_000_000_000, &logged("resource.fs.zfs.statechange")));
        let state = watcher.state.lock();
        assert!(state.passed_over > 900 && state.passed_over < 1000, "the flood is cut");
        let told = state.waiting.iter().filter(|waiting| waiting.event.class == "resource.fs.zfs.statechange").count();
        assert_eq!(told, 100, "a pool of a hundred disks loses its controller");
    }
}
