//! The target: its sessions by number, who listens for hosts, and the time at which a session ends by itself. What a session has, and what
//! runs in it, only the session knows.

use crate::connection::{self, random};
use crate::lease::Lease;
use crate::session::{Parts, Session};
use crate::setup::{Stores, TargetSetup};
use crate::stats::{Counters, TargetStats};
use crate::strangers::Strangers;
use dpusm::{Capabilities, Device, QueueLimits};
use exec::{Exec, Mutex, OperationHandle, TaskClass};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use target_wire::{Address, Connection, Listener, Refusal};

/// Most connections of hosts beside one of each session.
const SPARE_CONNECTIONS: usize = 64;

/// See the crate.
pub struct Target {
    pub(crate) exec: Exec,
    pub(crate) device: Device,
    pub(crate) setup: TargetSetup,
    pub(crate) stores: Arc<dyn Stores>,
    pub(crate) counters: Arc<Counters>,
    connections: AtomicUsize,
    sessions: Mutex<BTreeMap<u64, Arc<Session>>>,
    stopping: AtomicBool,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({:?})", self.device)
    }
}

impl Target {
    /// A target whose programs run on `device`, on an executor with threads.
    pub fn new(exec: &Exec, device: Device, setup: TargetSetup, stores: Arc<dyn Stores>) -> Arc<Target> {
        let (counters, connections, sessions) = (Arc::default(), AtomicUsize::new(0), Mutex::default());
        let stopping = AtomicBool::new(false);
        Arc::new(Target { exec: exec.clone(), device, setup, stores, counters, connections, sessions, stopping })
    }

    /// Capabilities that sessions are told that they can have.
    pub(crate) fn capabilities(&self) -> Capabilities {
        let (list, own) = (self.device.capabilities().list.clone(), self.device.capabilities().queue);
        let wanted = self.setup.queue;
        let queue = QueueLimits {
            graphs_max: own.graphs_max.min(wanted.graphs_max),
            bytes_max: own.bytes_max.min(wanted.bytes_max).min(self.setup.memory_bytes_max),
        };
        Capabilities { list, queue }
    }

    /// A new session, or the one that a host goes on with.
    pub(crate) fn session(self: &Arc<Self>, wanted: Option<(u64, u64)>) -> Result<Arc<Session>, Refusal> {
        let now = self.exec.now_ns();
        if self.stopping.load(Ordering::Acquire) {
            return Err(Refusal::Session);
        }
        let mut sessions = self.sessions.lock();
        if let Some((number, epoch)) = wanted {
            let known = sessions.get(&number).filter(|session| session.epoch == epoch && session.lease.renew(now));
            return known.cloned().ok_or(Refusal::Session);
        }
        if sessions.len() >= self.setup.sessions_max {
            return Err(Refusal::Busy);
        }
        let random = random().map_err(|_| Refusal::Busy)?;
        let word = |at: usize| (0..8).fold(0, |word, index| word << 8 | u64::from(random[at + index]));
        let lease = Lease::new(self.setup.lease_ns, now);
        let session = Arc::new(Session::new(Parts {
            number: word(0),
            epoch: word(8),
            lease,
            exec: self.exec.clone(),
            device: self.device.clone(),
            stores: self.stores.clone(),
            counters: self.counters.clone(),
            setup: &self.setup,
        }));
        sessions.insert(session.number, session.clone());
        drop(sessions);
        self.watch(&session, self.setup.lease_ns);
        Ok(session)
    }

    /// Looks after `delay_ns` whether the session's lease ran out.
    fn watch(self: &Arc<Self>, session: &Arc<Session>, delay_ns: u64) {
        let (target, session): (Weak<Target>, Weak<Session>) = (Arc::downgrade(self), Arc::downgrade(session));
        let look = move || {
            let (Some(target), Some(session)) = (target.upgrade(), session.upgrade()) else { return };
            match session.lease.left_ns(target.exec.now_ns()) {
                0 => {
                    if target.end(&session) {
                        target.counters.expired.fetch_add(1, Ordering::Relaxed);
                    }
                }
                left => target.watch(&session, left),
            }
        };
        self.exec.spawn_after(delay_ns, TaskClass::Interrupt, Box::new(look));
    }

    /// Ends a session: all that it has is freed, nothing of it is written any more. False when it had ended.
    pub(crate) fn end(&self, session: &Arc<Session>) -> bool {
        let was_there = self.sessions.lock().remove(&session.number).is_some();
        session.end();
        was_there
    }

    /// Serves a connection until it ends. Waits: for operations only.
    pub fn serve(self: &Arc<Self>, connection: Connection) {
        let stranger = Strangers::default().enter(&connection);
        connection::serve(self, connection, stranger);
    }

    /// Runs `serve` for a host that has proved who it is, unless there are too many connections of such.
    pub(crate) fn serve_host(&self, serve: impl FnOnce()) {
        if self.connections.fetch_add(1, Ordering::AcqRel) < self.setup.sessions_max.saturating_add(SPARE_CONNECTIONS) {
            serve();
        }
        self.connections.fetch_sub(1, Ordering::AcqRel);
    }

    /// Serves whoever connects to `listener`, on threads of their own.
    ///
    /// # Errors
    /// Those of the listener.
    pub fn listen(self: &Arc<Self>, listener: Listener) -> io::Result<Listening> {
        let address = listener.address()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (target, stopped) = (self.clone(), stop.clone());
        let strangers = Strangers::default();
        let accept = move || {
            while !stopped.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok(_) if stopped.load(Ordering::Acquire) => {}
                    Ok(connection) => {
                        let (own, stranger) = (target.clone(), strangers.enter(&connection));
                        let serve = move || connection::serve(&own, connection, stranger);
                        drop(target.exec.spawn_operation("z-target-host", Box::new(serve)));
                    }
                    // Out of descriptors, most likely: they come back when connections end.
                    Err(_) => target.exec.sleep_ns(10_000_000),
                }
            }
        };
        let thread = self.exec.spawn_operation("z-target-listen", Box::new(accept));
        Ok(Listening { address, stop, thread: Some(thread) })
    }

    /// Ends every session, and takes no more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let sessions = std::mem::take(&mut *self.sessions.lock());
        sessions.into_values().for_each(|session| session.end());
    }

    /// Breaks every connection; sessions stay for their lease.
    pub fn disconnect(&self) {
        let sessions: Vec<Arc<Session>> = self.sessions.lock().values().cloned().collect();
        sessions.into_iter().for_each(|session| session.disconnect());
    }

    /// Counts of what the target did, and what it holds.
    pub fn stats(&self) -> TargetStats {
        let sessions: Vec<Arc<Session>> = self.sessions.lock().values().cloned().collect();
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = TargetStats {
            sessions: sessions.len() as u64,
            executed: of(&self.counters.executed),
            repeated: of(&self.counters.repeated),
            damaged: of(&self.counters.damaged),
            refused: of(&self.counters.refused),
            expired: of(&self.counters.expired),
            ..TargetStats::default()
        };
        for session in sessions {
            let (buffers, bytes) = session.memory();
            stats.buffers += buffers;
            stats.buffer_bytes += bytes;
        }
        stats
    }
}

/// A listener that is served; dropping it stops that. Connections that are there stay.
#[derive(Debug)]
pub struct Listening {
    address: Address,
    stop: Arc<AtomicBool>,
    thread: Option<OperationHandle>,
}

impl Listening {
    /// Address at which it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread waits for a connection: this is the last one.
        if Connection::open(&self.address, Duration::from_secs(1)).is_ok() {
            self.thread.take().into_iter().for_each(OperationHandle::join);
        }
    }
}
