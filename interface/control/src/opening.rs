//! The daemon's start: requests are answered while the pools of the last time are still being opened.
//!
//! A pool that is not open yet is listed as one that cannot be opened now ([`crate::absent`]), with that as the reason. Who asks waits for it a
//! moment, who wants to change it waits longer, and nobody takes its name or devices meanwhile.

use crate::Control;
use crate::failure::because;
use control_api::{ErrorKind, Failure, Request, Response};
use exec::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Who only looks is answered within a second.
const LOOK_NS: u64 = 700_000_000;
/// Who changes something waits so long for the pools that it is about.
const CHANGE_NS: u64 = 30_000_000_000;
/// A daemon that is to end waits so long for the pool that is being opened.
const END_NS: u64 = 30_000_000_000;

#[derive(Debug, Default)]
struct State {
    /// Pools that were not tried yet.
    left: BTreeSet<String>,
    is_running: bool,
}

/// See the file's header.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    state: Mutex<State>,
    changed: Condvar,
}

/// Which pools a request is about.
enum About<'a> {
    Nothing,
    Pools(Vec<&'a str>),
    Everything,
}

fn pool_of(name: &str) -> &str {
    name.split(['/', '@', '#']).next().unwrap_or(name)
}

fn about(request: &Request) -> About<'_> {
    let all = |names: &[String]| names.is_empty();
    let names = match request {
        Request::Info
        | Request::Stop
        | Request::PoolEvents(_)
        | Request::InjectList
        | Request::ProviderList
        | Request::ProviderLoad(_)
        | Request::ProviderUnload(_) => return About::Nothing,
        // Devices are taken, and nobody knows yet whose they are.
        Request::PoolCreate(_) | Request::PoolImport(_) | Request::PoolAdd(_) | Request::VdevChange(_) | Request::LabelClear(_) => {
            return About::Everything;
        }
        Request::PoolQuery(query) if !all(&query.pools) => &query.pools,
        Request::PoolHistory(query) if !all(&query.pools) => &query.pools,
        Request::PoolIostat(query) if !all(&query.pools) => &query.pools,
        Request::PoolSync(query) if !all(&query.pools) => &query.pools,
        Request::PoolReopen(query) if !all(&query.pools) => &query.pools,
        Request::DatasetQuery(query) if !all(&query.names) => &query.names,
        Request::Userspace(query) => std::slice::from_ref(&query.name),
        Request::PoolWait(query) => std::slice::from_ref(&query.pool),
        other => match crate::changed_pool(other) {
            Some(name) => return About::Pools(vec![name]),
            None => return About::Everything,
        },
    };
    About::Pools(names.iter().map(|name| pool_of(name)).collect())
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

    /// Waits for the end, up to a while.
    pub(crate) fn wait_for_end(&self, exec: &exec::Exec) {
        self.wait(exec, END_NS, |state| !state.is_running);
    }
}

impl Control {
    /// Opens the pools that were open when the last daemon of this state directory ended. Does not wait for that.
    pub fn open_pools(self: &Arc<Self>) {
        let names = self.note_remembered();
        *self.opening.state.lock() = State { left: names.iter().cloned().collect(), is_running: true };
        self.accelerators.set_opening(true);
        let control = self.clone();
        drop(self.exec.spawn_operation("z-open", Box::new(move || control.open_all(&names))));
    }

    fn open_all(self: &Arc<Self>, names: &[String]) {
        self.clear_stage();
        let mut left = names.to_vec();
        // Devices of some may be files in others: each round finds more, or is the last.
        while !left.is_empty() && !self.is_stopping() {
            let opened = self.open_round(&left);
            // What is mounted in a file system of another pool comes after that one.
            let pools: Vec<_> = self.pools.read().values().filter(|pool| opened.contains(&pool.name())).cloned().collect();
            self.mount_after_start(&pools);
            left.retain(|name| !opened.contains(name));
            if opened.is_empty() || !left.iter().any(|name| self.lies_in_a_mount(name)) {
                break;
            }
        }
        self.accelerators.set_opening(false);
        *self.opening.state.lock() = State::default();
        self.opening.changed.notify_all();
        self.note_mounts();
    }

    /// Opens what can be opened; returns what could.
    fn open_round(self: &Arc<Self>, names: &[String]) -> Vec<String> {
        let mut opened = Vec::new();
        for name in names.iter().take_while(|_| !self.is_stopping()) {
            match self.open_absent(name) {
                Ok(response) => {
                    if let Response::Done { remarks } = response {
                        remarks.iter().for_each(|remark| eprintln!("{name}: {remark}"));
                    }
                    opened.push(name.clone());
                }
                // Somebody imported it or let it go meanwhile.
                Err(_) if !self.is_absent(name) => {}
                Err(failure) => eprintln!("{failure}"),
            }
        }
        opened
    }

    /// Waits for the pools that a request is about and that are being opened.
    pub(crate) fn await_opening(&self, request: &Request) -> Result<(), Failure> {
        let about = about(request);
        let is_done = |state: &State| match &about {
            About::Nothing => true,
            About::Pools(names) => !names.iter().any(|name| state.left.contains(*name)),
            About::Everything => state.left.is_empty(),
        };
        let time_ns = if request.changes() { CHANGE_NS } else { LOOK_NS };
        if self.opening.wait(&self.exec, time_ns, is_done) || !request.changes() {
            return Ok(());
        }
        let what = "cannot change anything yet";
        Err(because(ErrorKind::Busy, what, "pools of the last time are still being opened").advise("'zpool list' shows which; try again"))
    }
}
