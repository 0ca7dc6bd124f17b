//! What the daemon does unasked: it looks for I/Os that hang, ends fault handlers that are over, and runs programs on events. One thread, so
//! that none of it holds up a request.

use crate::{Control, OpenPool, hooks};
use exec::{Condvar, Mutex};
use kstat::LoggedEvent;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Error reports that wait to be told; more are passed over.
const REPORTS_MAX: usize = 64;
/// Events of all kinds that wait to be told.
const WAITING_MAX: usize = 512;
/// Between looks at what nobody announces.
const STEP: Duration = Duration::from_millis(500);

/// Between looks whether devices of pools that are not open are there, and whether pools have other devices than are remembered.
const LOOK_NS: u64 = 2_000_000_000;

#[derive(Default)]
struct State {
    waiting: VecDeque<LoggedEvent>,
    /// Error reports, and lines of history, come no faster than this allows, so that those of a dying disk don't keep its change of state from
    /// being told.
    reports: hooks::Allowance,
    passed_over: u64,
    stopping: bool,
}

/// The watcher's mailbox.
#[derive(Default)]
pub(crate) struct Watcher {
    state: Mutex<State>,
    changed: Condvar,
    /// Never told but at the end.
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

    fn tell(&self, now_ns: u64, logged: &LoggedEvent) {
        let mut state = self.state.lock();
        let is_report = logged.event.class.starts_with("ereport.") || logged.event.class.ends_with(".history_event");
        let room = if is_report { REPORTS_MAX } else { WAITING_MAX };
        let is_allowed = !is_report || state.reports.take(now_ns);
        if is_allowed && state.waiting.len() < room {
            state.waiting.push_back(logged.clone());
            drop(state);
            self.changed.notify_all();
        } else {
            state.passed_over += 1;
        }
    }

    /// What to tell next, after a while without anything; None ends the watcher.
    fn next(&self) -> Option<Option<LoggedEvent>> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && !state.stopping {
            if state.passed_over > 0 {
                eprintln!("{} events came too fast and were told to no program", std::mem::take(&mut state.passed_over));
            }
            self.changed.wait_for(&mut state, STEP);
        }
        if state.stopping { None } else { Some(state.waiting.pop_front()) }
    }
}

impl Control {
    /// Starts the watcher.
    pub fn watch(self: &Arc<Self>) {
        self.keep_memory();
        let (watcher, exec) = (self.watcher.clone(), self.exec.clone());
        if hooks::folder().is_some() {
            let (watcher, exec) = (watcher.clone(), exec.clone());
            self.events.listen(Arc::new(move |logged| watcher.tell(exec.now_ns(), logged)));
        }
        let control = Arc::downgrade(self);
        // Detached: it ends when it is told, or when the daemon's state goes.
        drop(self.exec.spawn_operation("z-watch", Box::new(move || run(&control, &watcher, &exec))));
    }

    /// Looks for I/Os that hang, every `zfs_deadman_checktime_ms`.
    fn look_for_hangs(&self, last_ns: &mut u64) {
        let now = self.exec.now_ns();
        let every = self.parameters.get("zfs_deadman_checktime_ms").unwrap_or(60_000).saturating_mul(1_000_000);
        if now.saturating_sub(*last_ns) < every {
            return;
        }
        *last_ns = now;
        let pools: Vec<Arc<OpenPool>> = self.pools.read().values().cloned().collect();
        let get = |name| self.parameters.get(name).unwrap_or(u64::MAX);
        let (io_ms, sync_ms) = (get("zfs_deadman_ziotime_ms"), get("zfs_deadman_synctime_ms"));
        for open in &pools {
            // While a txg takes too long, what it may wait for is told earlier (OpenZFS: `spa_deadman`).
            let hangs = open.pool().txgs().syncing_for_ns().is_some_and(|age_ns| age_ns / 1_000_000 > sync_ms);
            open.pool().zio().check_deadman_of(if hangs { io_ms.min(sync_ms) } else { io_ms });
        }
    }
}

fn run(control: &Weak<Control>, watcher: &Watcher, exec: &exec::Exec) {
    let folder = hooks::folder();
    let mut last_ns = exec.now_ns();
    let mut looked_ns = last_ns;
    while let Some(event) = watcher.next() {
        if let (Some(logged), Some(folder)) = (&event, &folder) {
            hooks::run(exec, folder, logged);
        }
        let Some(control) = control.upgrade() else { return };
        control.look_for_hangs(&mut last_ns);
        if exec.now_ns().saturating_sub(looked_ns) >= LOOK_NS {
            looked_ns = exec.now_ns();
            control.look_for_absent();
            control.remember();
            // Somebody may have unmounted what we mounted.
            control.note_mounts();
        }
        drop(control.handlers());
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
