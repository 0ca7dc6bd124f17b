//! What goes out on a connection: a queue, and the thread that writes it, so that jobs never wait for a slow link.

use abd::Abd;
use exec::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use target_wire::{Connection, Header, write_frame};

/// A frame on its way out.
pub(crate) struct Outgoing {
    pub(crate) header: Header,
    pub(crate) message: Arc<Vec<u8>>,
    pub(crate) payload: Abd,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Outgoing>,
    /// Nothing more comes; what is queued is still written.
    is_closing: bool,
}

/// The way out of a connection.
pub(crate) struct Outlet {
    state: Mutex<State>,
    changed: Condvar,
    connection: Connection,
}

impl Outlet {
    pub(crate) fn new(connection: Connection) -> Arc<Outlet> {
        Arc::new(Outlet { state: Mutex::default(), changed: Condvar::new(), connection })
    }

    pub(crate) fn send(&self, frame: Outgoing) {
        let mut state = self.state.lock();
        if !state.is_closing {
            state.queue.push_back(frame);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Ends the connection once all is written that was sent.
    pub(crate) fn close(&self) {
        self.state.lock().is_closing = true;
        self.changed.notify_one();
    }

    /// Ends the connection now.
    pub(crate) fn cut(&self) {
        let mut state = self.state.lock();
        state.is_closing = true;
        let left = std::mem::take(&mut state.queue);
        drop(state);
        drop(left);
        self.connection.shut_down();
        self.changed.notify_one();
    }

    /// Writes until it is closed, or the connection fails.
    pub(crate) fn write_all(&self, mut connection: Connection) {
        while let Some(frame) = self.next() {
            if write_frame(&mut connection, &frame.header, &frame.message, &frame.payload).is_err() {
                return self.cut();
            }
        }
        self.connection.shut_down();
    }

    fn next(&self) -> Option<Outgoing> {
        let mut state = self.state.lock();
        loop {
            if let Some(frame) = state.queue.pop_front() {
                return Some(frame);
            }
            if state.is_closing {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }
}
