//! What goes out on a connection: a queue, and the thread that writes it, so that jobs never wait for a slow link.

use abd::Abd;
use exec::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use target_wire::{CompletionRoom, Connection, Header, Kind, Place, Region, Sealer};

/// Place at which a host wants the bytes of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    /// The host's memory.
    pub(crate) region: Arc<Region>,
    /// A part of it.
    pub(crate) place: Place,
}

/// A frame on its way out.
pub(crate) struct Outgoing {
    pub(crate) header: Header,
    pub(crate) message: Arc<Vec<u8>>,
    pub(crate) payload: Abd,
    /// Place that the payload goes to, instead of into the frame.
    pub(crate) room: Option<Room>,
}

impl Outgoing {
    /// A frame with nothing but a message.
    pub(crate) fn message(header: Header, message: Vec<u8>) -> Outgoing {
        Outgoing { header, message: Arc::new(message), payload: Abd::default(), room: None }
    }

    /// Puts the payload where the host wants it; if that cannot be, it stays in the frame.
    fn settle(mut self) -> Outgoing {
        let Some(Room { region, place }) = self.room.take() else { return self };
        let bytes = self.payload.len() as u64;
        if bytes == 0 || bytes > place.bytes {
            return self;
        }
        if let Ok(crc) = region.write(place.offset, &self.payload) {
            self.header.kind = Kind::CompletionRoom;
            self.message = Arc::new(CompletionRoom { bytes, crc }.encode(&self.message));
            self.payload = Abd::default();
        }
        self
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<Outgoing>,
    /// True when nothing more comes; what is queued is still written.
    is_closing: bool,
}

/// The way out of a connection.
pub(crate) struct Outlet {
    state: Mutex<State>,
    changed: Condvar,
    connection: Connection,
    /// The host's memory on this connection.
    region: Option<Arc<Region>>,
}

impl Outlet {
    pub(crate) fn new(connection: Connection, region: Option<Arc<Region>>) -> Arc<Outlet> {
        Arc::new(Outlet { state: Mutex::default(), changed: Condvar::new(), connection, region })
    }

    /// False for room of an earlier connection: its host does not look there any more.
    pub(crate) fn has(&self, room: &Room) -> bool {
        self.region.as_ref().is_some_and(|region| Arc::ptr_eq(region, &room.region))
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
    pub(crate) fn write_all(&self, mut connection: Connection, mut sealer: Sealer) {
        while let Some(frame) = self.next().map(Outgoing::settle) {
            if sealer.write(&mut connection, &frame.header, &frame.message, &frame.payload).is_err() {
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
