//! The daemon's start: requests are answered while the pools of the last time are still being opened.
//!
//! A pool that is not open yet is listed as one that cannot be opened now ([`crate::pool::absent`]), with that as the reason. Who asks for the state of
//! pools waits for it a moment. Who asks for its datasets, or wants to change it, waits longer, and is told then that it is still being opened: nobody
//! may take what is not there yet for gone. And nobody takes its name or devices meanwhile.

use crate::failure::because;
use crate::requests::{About, about, looks_at_datasets};
use control_api::{ErrorKind, Failure, Request};
use exec::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::time::Duration;

/// Longest times that requests wait for pools, nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// Time of those that look at pools, which are answered within a second; also time for mounts of pools that are open.
    look: u64,
    /// Time of those that look at datasets, besides the time above: the commands answer within 20 s (docs/deadlines.md).
    read: u64,
    /// Time of those that change something.
    change: u64,
}

const TIMES: Times = Times { look: 700_000_000, read: 15_000_000_000, change: 30_000_000_000 };
/// Nanoseconds that a daemon which is to end waits for the pool that is being opened.
const END_NS: u64 = 30_000_000_000;

#[derive(Debug, Default)]
struct State {
    /// Names of pools that were not tried yet, or are not mounted yet.
    left: BTreeSet<String>,
    /// Names of those among them that are open.
    opened: BTreeSet<String>,
    is_running: bool,
    has_begun: bool,
}

/// Pools of the last time that are being opened at the daemon's start.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    state: Mutex<State>,
    changed: Condvar,
}

impl Opening {
    /// Waits until `is_done`, up to a time; false when it is not.
    fn wait(&self, exec: &exec::Exec, time_ns: u64, is_done: impl Fn(&State) -> bool) -> bool {
        let until = exec.now_ns().saturating_add(time_ns);
        let mut state = self.state.lock();
        loop {
            if is_done(&state) {
                return true;
            }
            let left = until.saturating_sub(exec.now_ns());
            if left == 0 {
                return false;
            }
            self.changed.wait_for(&mut state, Duration::from_nanos(left));
        }
    }

    /// True for a pool that was not tried yet.
    pub(crate) fn is_left(&self, name: &str) -> bool {
        self.state.lock().left.contains(name)
    }

    /// True while pools of the last time are being opened and mounted.
    pub(crate) fn is_running(&self) -> bool {
        self.state.lock().is_running
    }

    /// True once all pools of the last time were opened, or tried.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.has_begun && !state.is_running
    }

    /// Waits for the end, up to a while.
    pub(crate) fn wait_for_end(&self, exec: &exec::Exec) {
        self.wait(exec, END_NS, |state| !state.is_running);
    }

    /// Begins the opening of these pools.
    pub(crate) fn begin(&self, names: &[String]) {
        *self.state.lock() = State { left: names.iter().cloned().collect(), is_running: true, has_begun: true, ..State::default() };
        self.changed.notify_all();
    }

    /// Notes that one of the pools is open: its datasets can be looked at.
    pub(crate) fn opened(&self, name: &str) {
        self.state.lock().opened.insert(name.to_string());
        self.changed.notify_all();
    }

    /// Ends the opening of all pools.
    pub(crate) fn end(&self) {
        *self.state.lock() = State { has_begun: true, ..State::default() };
        self.changed.notify_all();
    }

    /// Waits for the pools that a request is about and that are being opened.
    ///
    /// # Errors
    /// That one of them is still being opened; never for who only looks at the state of pools.
    pub(crate) fn await_pools(&self, exec: &exec::Exec, request: &Request) -> Result<(), Failure> {
        self.await_within(exec, request, TIMES)
    }

    fn await_within(&self, exec: &exec::Exec, request: &Request, times: Times) -> Result<(), Failure> {
        let about = about(request);
        let wants = |name: &str| match &about {
            About::Nothing => false,
            About::Pools(names) => names.contains(&name),
            About::Everything => true,
        };
        if matches!(about, About::Nothing) {
            return Ok(());
        }
        let are_ready = |state: &State| state.has_begun && !state.left.iter().any(|name| wants(name));
        let are_open = |state: &State| state.has_begun && !state.left.iter().any(|name| wants(name) && !state.opened.contains(name));
        let what = if request.changes() {
            if self.wait(exec, times.change, are_ready) {
                return Ok(());
            }
            "cannot change anything yet"
        } else {
            let is_done = self.wait(exec, times.look, are_ready);
            if is_done || !looks_at_datasets(request) || self.wait(exec, times.read, are_open) {
                return Ok(());
            }
            "cannot tell yet"
        };
        Err(because(ErrorKind::Busy, what, self.whom(&wants)).advise("'zpool list' shows which pools are open; try again"))
    }

    /// Sentence about the first pool among those wanted that is being opened, and not yet open where there is such a one.
    fn whom(&self, wants: &dyn Fn(&str) -> bool) -> String {
        let state = self.state.lock();
        let wanted = || state.left.iter().filter(|name| wants(name));
        match wanted().find(|name| !state.opened.contains(*name)).or_else(|| wanted().next()) {
            Some(name) => format!("pool '{name}' is still being opened"),
            None => "pools of the last time are still being opened".to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::{DatasetQuery, HoldsQuery, PoolQuery, SendRequest, SnapshotCreate};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// No time at all: what is not there is not waited for.
    const NONE: Times = Times { look: 0, read: 0, change: 0 };
    /// Longer than any test takes.
    const LONG: Times = Times { look: 0, read: 600_000_000_000, change: 600_000_000_000 };

    fn list(names: &[&str]) -> Request {
        Request::DatasetQuery(DatasetQuery { names: names.iter().map(|name| (*name).to_string()).collect(), ..DatasetQuery::default() })
    }

    fn why(opening: &Opening, exec: &exec::Exec, request: &Request) -> Option<String> {
        opening.await_within(exec, request, NONE).err().map(|failure| failure.why)
    }

    /// If this fails, a script that lists datasets, or reads one, right after a daemon died takes all of them for destroyed.
    #[test]
    fn what_is_still_being_opened_is_never_taken_for_gone() {
        let exec: exec::Exec = Arc::new(exec::Pool::new(1));
        let opening = Opening::default();
        let waits = Some("pools of the last time are still being opened".to_string());
        assert_eq!(why(&opening, &exec, &list(&[])), waits, "which pools there are is not read yet");
        opening.begin(&["other".to_string(), "tank".to_string()]);
        let tank = || Some("pool 'tank' is still being opened".to_string());
        assert_eq!(why(&opening, &exec, &list(&[])), Some("pool 'other' is still being opened".to_string()));
        let snapshot = || "tank/a@b".to_string();
        let requests = [
            list(&["tank/a"]),
            list(&["tank#b"]),
            Request::Holds(HoldsQuery { name: snapshot(), recursive: false }),
            Request::SendPlan(SendRequest { name: snapshot(), ..SendRequest::default() }),
            Request::Snapshot(SnapshotCreate { names: vec![snapshot()], recursive: false, properties: BTreeMap::new() }),
        ];
        requests.iter().for_each(|request| assert_eq!(why(&opening, &exec, request), tank()));
        assert!(why(&opening, &exec, &list(&["/mnt/a"])).is_some(), "it may be mounted there soon");
        assert_eq!(why(&opening, &exec, &list(&["third/a"])), None);
        let pools = Request::PoolQuery(PoolQuery { pools: Vec::new(), errors: false });
        assert_eq!((why(&opening, &exec, &pools), why(&opening, &exec, &Request::Info)), (None, None), "they say that it is being opened");
        opening.opened("other");
        assert_eq!((why(&opening, &exec, &list(&["other/a"])), why(&opening, &exec, &list(&[]))), (None, tank()));
        opening.opened("tank");
        assert_eq!(why(&opening, &exec, &list(&[])), None, "not mounted yet, and there");
        opening.end();
        requests.iter().for_each(|request| assert_eq!(why(&opening, &exec, request), None));
    }

    /// If this fails, commands fail while their pool is being opened, which a moment's patience would have spared them.
    #[test]
    fn who_asks_goes_on_when_the_pool_is_open() {
        let exec: exec::Exec = Arc::new(exec::Pool::new(1));
        let opening = Arc::new(Opening::default());
        opening.begin(&["tank".to_string()]);
        let own = opening.clone();
        let opener = exec.spawn_operation("t-open", Box::new(move || own.opened("tank")));
        assert!(opening.await_within(&exec, &list(&["tank/a"]), LONG).is_ok());
        drop(opener);
    }
}
