//! What goes out on a connection: a queue, and the thread that sends it, so that callbacks of transactions never wait for a client.

use exec::{Condvar, Mutex};
use osd_client::{COMMITTED, Reply, frame};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

/// Number of frames that wait to be sent, and of transactions that are to be told of, at most: no more is taken of a client that has so many.
const WAITING_MAX: usize = 1024;

#[derive(Default)]
struct State {
    frames: VecDeque<Vec<u8>>,
    /// Number of transactions that will be told of.
    owed: usize,
    /// True when nothing more comes; what is queued is still sent.
    is_closing: bool,
}

/// See the module.
pub(crate) struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
    /// Signalled when there is room again.
    room: Condvar,
    stream: UnixStream,
}

impl Outbox {
    pub(crate) fn new(stream: UnixStream) -> Outbox {
        Outbox { state: Mutex::default(), changed: Condvar::new(), room: Condvar::new(), stream }
    }

    pub(crate) fn send(&self, frame: Vec<u8>) {
        let mut state = self.state.lock();
        if !state.is_closing {
            state.frames.push_back(frame);
        }
        drop(state);
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
        if let Ok(frame) = frame(COMMITTED, transaction, &u32::from(is_on_disk).to_le_bytes()) {
            self.send(frame);
        }
        self.state.lock().owed -= 1;
    }

    /// Waits until the client has heard enough to ask for more; false when it is gone.
    pub(crate) fn wait_for_room(&self) -> bool {
        let mut state = self.state.lock();
        while !state.is_closing && state.frames.len() + state.owed >= WAITING_MAX {
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
    pub(crate) fn send_all(&self) {
        let mut stream = &self.stream;
        while let Some(frame) = self.next() {
            if stream.write_all(&frame).is_err() {
                break;
            }
        }
        self.close();
        self.state.lock().frames.clear();
        // Whoever reads from it wakes up. It may have ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        loop {
            if let Some(frame) = state.frames.pop_front() {
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
