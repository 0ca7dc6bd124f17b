//! The server: who is connected, how many may be, and their end.

use crate::budget::Budget;
use crate::connection;
use crate::context::{Context, Devices, Options, Seat};
use exec::{Exec, Mutex, OperationHandle};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Nanoseconds between looks whether connections have ended.
const LOOK_NS: u64 = 2_000_000;
/// Nanoseconds after a connection that could not be taken.
const ACCEPT_NS: u64 = 10_000_000;

#[derive(Default)]
struct State {
    seats: BTreeMap<u64, Arc<Seat>>,
    last: u64,
    is_over: bool,
}

/// See the crate.
pub struct Server {
    context: Arc<Context>,
    state: Mutex<State>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server {{ connections: {} }}", self.connections())
    }
}

impl Server {
    /// Makes a server of these devices, on an executor with threads.
    pub fn new(exec: &Exec, devices: Arc<dyn Devices>, options: Options) -> Arc<Server> {
        // A request that takes more than there is would wait for ever.
        let budget = Budget::new(exec, options.budget_bytes.max(options.request_bytes_max));
        let context = Arc::new(Context { exec: exec.clone(), devices, options, budget });
        Arc::new(Server { context, state: Mutex::default() })
    }

    /// Number of connections at this moment.
    pub fn connections(&self) -> usize {
        self.state.lock().seats.len()
    }

    fn enter(&self, stream: &UnixStream) -> io::Result<Option<Arc<Seat>>> {
        let stream = stream.try_clone()?;
        let mut state = self.state.lock();
        if state.is_over || state.seats.len() >= self.context.options.connections_max {
            return Ok(None);
        }
        state.last += 1;
        let seat = Arc::new(Seat { number: state.last, dataset: Mutex::default(), stream });
        state.seats.insert(seat.number, seat.clone());
        Ok(Some(seat))
    }

    /// Serves a connection until it ends, if there is a place for it. Waits: for operations only.
    pub fn serve(self: &Arc<Self>, stream: UnixStream) {
        match self.enter(&stream) {
            Ok(Some(seat)) => {
                if let Err(error) = connection::serve(&self.context, &seat, stream) {
                    tracing::warn!("a client of an object storage device is not served: {error}");
                }
                self.state.lock().seats.remove(&seat.number);
            }
            Ok(None) => {
                tracing::warn!("a client of an object storage device is turned away: there are {}", self.context.options.connections_max)
            }
            Err(error) => tracing::warn!("a client of an object storage device is turned away: {error}"),
        }
    }

    /// Serves whoever connects to a socket at a path, which is made, and who is of this process's user, or root.
    ///
    /// # Errors
    /// Those of the system.
    pub fn listen(self: &Arc<Self>, path: &Path) -> io::Result<Listening> {
        // Of a process that died: whoever calls has the folder for himself.
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        let (own, server) = (listener.try_clone()?, self.clone());
        let thread = self.context.exec.spawn_operation("z-osd-listen", Box::new(move || server.accept_all(&own)));
        Ok(Listening { server: self.clone(), listener, path: path.to_path_buf(), thread: Some(thread) })
    }

    fn accept_all(self: &Arc<Self>, listener: &UnixListener) {
        while !self.state.lock().is_over {
            match listener.accept() {
                Ok((stream, _)) if may_connect(&stream) => {
                    let own = self.clone();
                    drop(self.context.exec.spawn_operation("z-osd-client", Box::new(move || own.serve(stream))));
                }
                Ok(_) => tracing::warn!("a client of an object storage device is turned away: it is another user's"),
                // Out of descriptors, most likely: they come back when connections end.
                Err(_) => self.context.exec.sleep_ns(ACCEPT_NS),
            }
        }
    }

    /// Ends the connections that have a dataset for which this is true, and waits for what they do at this moment, but no longer than `wait_ns`
    /// nanoseconds; false when some of them still are there.
    pub fn cut(&self, wait_ns: u64, is_meant: impl Fn(&str) -> bool) -> bool {
        let until = self.context.exec.now_ns().saturating_add(wait_ns);
        loop {
            let seats: Vec<Arc<Seat>> = self.state.lock().seats.values().cloned().collect();
            let meant: Vec<Arc<Seat>> = seats.into_iter().filter(|seat| seat.dataset.lock().as_deref().is_some_and(&is_meant)).collect();
            if meant.is_empty() {
                return true;
            }
            for seat in meant {
                // It may have ended already.
                let _ = seat.stream.shutdown(Shutdown::Both);
            }
            if self.context.exec.now_ns() >= until {
                return false;
            }
            self.context.exec.sleep_ns(LOOK_NS);
        }
    }

    /// Name of a dataset for which this is true, and that somebody has.
    pub fn used(&self, is_meant: impl Fn(&str) -> bool) -> Option<String> {
        let seats: Vec<Arc<Seat>> = self.state.lock().seats.values().cloned().collect();
        seats.into_iter().filter_map(|seat| seat.dataset.lock().clone()).find(|name| is_meant(name))
    }

    /// Takes no more connections and ends those that there are; waits for what they do, but no longer than `wait_ns` nanoseconds.
    pub fn end(&self, wait_ns: u64) {
        let until = self.context.exec.now_ns().saturating_add(wait_ns);
        self.state.lock().is_over = true;
        loop {
            let seats: Vec<Arc<Seat>> = self.state.lock().seats.values().cloned().collect();
            for seat in &seats {
                let _ = seat.stream.shutdown(Shutdown::Both);
            }
            if seats.is_empty() || self.context.exec.now_ns() >= until {
                return;
            }
            drop(seats);
            self.context.exec.sleep_ns(LOOK_NS);
        }
    }
}

/// True for clients of this process's user, and of root.
fn may_connect(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

/// Socket that is served; dropping it ends the server and removes it.
#[derive(Debug)]
pub struct Listening {
    server: Arc<Server>,
    listener: UnixListener,
    path: PathBuf,
    thread: Option<OperationHandle>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.server.state.lock().is_over = true;
        // Somebody may have removed it.
        let _ = std::fs::remove_file(&self.path);
        // Whoever waits for connections wakes up.
        if rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both).is_ok() {
            self.thread.take().into_iter().for_each(OperationHandle::join);
        }
    }
}
