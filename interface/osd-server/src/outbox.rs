//! What goes out on a connection: a queue, and the thread that sends it, so that callbacks of transactions never wait for a client.
//!
//! Callbacks keep the queue beyond the end of the connection, so it has no socket: clients that come and go would take all descriptors.

use exec::{Condvar, Mutex};
use osd_client::{COMMITTED, Reply, frame};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

/// Number of frames that wait to be sent, and of transactions that are to be told of, at most: no more is taken of a client that has so many.
const WAITING_MAX: usize = 1024;
/// Bytes of frames that wait to be sent, at most, but for the last one.
const WAITING_BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
struct State {
    frames: VecDeque<Vec<u8>>,
    /// Bytes of the frames.
    bytes: usize,
    /// Number of transactions that will be told of.
    owed: usize,
    /// True when nothing more comes; what is queued is still sent.
    is_closing: bool,
}

impl State {
    fn push(&mut self, frame: Vec<u8>) {
        if !self.is_closing {
            self.bytes += frame.len();
            self.frames.push_back(frame);
        }
    }

    /// True when no more is taken of the client.
    fn is_full(&self) -> bool {
        self.frames.len() + self.owed >= WAITING_MAX || self.bytes >= WAITING_BYTES_MAX
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
    /// Signalled when there is room again.
    room: Condvar,
}

impl Outbox {
    pub(crate) fn send(&self, frame: Vec<u8>) {
        self.state.lock().push(frame);
        self.changed.notify_one();
    }

    /// Sends the reply to a request; one that is too long for a frame becomes an error.
    pub(crate) fn reply(&self, kind: u16, tag: u64, reply: &Reply) {
        let too_long = |_| Reply::failed(Errno::TOOBIG.raw_os_error() as u32).encode(kind, tag);
        if let Ok(frame) = reply.encode(kind, tag).or_else(too_long) {
            self.send(frame);
        }
    }

    /// Notes that a transaction will be told of.
    pub(crate) fn owe(&self) {
        self.state.lock().owed += 1;
    }

    /// Tells of a transaction that was owed. Does not wait.
    pub(crate) fn tell(&self, transaction: u64, is_on_disk: bool) {
        let frame = frame(COMMITTED, transaction, &u32::from(is_on_disk).to_le_bytes());
        let mut state = self.state.lock();
        state.owed -= 1;
        if let Ok(frame) = frame {
            state.push(frame);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Waits until the client has heard enough to ask for more; false when it is gone.
    pub(crate) fn wait_for_room(&self) -> bool {
        let mut state = self.state.lock();
        while !state.is_closing && state.is_full() {
            self.room.wait(&mut state);
        }
        !state.is_closing
    }

    /// Ends the connection once all is sent that was said.
    pub(crate) fn close(&self) {
        self.state.lock().is_closing = true;
        self.changed.notify_one();
        self.room.notify_one();
    }

    /// Sends until it is closed, or the connection fails.
    pub(crate) fn send_all(&self, mut stream: &UnixStream) {
        while let Some(frame) = self.next() {
            if stream.write_all(&frame).is_err() {
                break;
            }
        }
        self.close();
        self.state.lock().frames = VecDeque::new();
        // Whoever reads from it wakes up. It may have ended already.
        let _ = stream.shutdown(Shutdown::Both);
    }

    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        loop {
            if let Some(frame) = state.frames.pop_front() {
                state.bytes -= frame.len();
                self.room.notify_one();
                return Some(frame);
            }
            if state.is_closing {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }
}
