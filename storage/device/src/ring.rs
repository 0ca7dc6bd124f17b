//! An io_uring and the thread that owns it: submissions of all devices go in batches, completions come out in batches.
//!
//! Any thread puts requests into the inbox. The owner takes what is there, submits it and waits for completions in one
//! system call; it is rung awake (eventfd) only when it sleeps, so under load nobody pays for a wake-up. One owner per
//! ring lets the kernel complete without interrupting other threads (`SINGLE_ISSUER`, `DEFER_TASKRUN`).
//!
//! Buffers are not registered with the ring: blocks of `abd` lie in huge pages, which the kernel pins in a step each, and
//! registration would count against the locked-memory limit of unprivileged users.
//!
//! Invariant: memory, iovecs and file of a request belong to its slot from before it is submitted until its completion
//! was seen; slots are never dropped otherwise.
#![expect(unsafe_code, reason = "the kernel reads and writes buffers after the submitting call returned")]

use crate::{DeviceError, DeviceIo, DeviceOp, DeviceReply};
use exec::Mutex;
use io_uring::{IoUring, opcode, squeue, types};
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};

/// Entries of the submission queue.
const ENTRIES: u32 = 256;
/// `user_data` of the read on the bell.
const BELL: u64 = u64::MAX;
/// Most bytes of one read or write (Linux cuts longer ones).
const TRANSFER_BYTES_MAX: usize = 0x7FFF_F000;
/// Most runs of one vectored request (Linux: `UIO_MAXIOV`).
const RUNS_MAX: usize = 1024;

/// A request on its way to a ring's owner.
pub(crate) struct Request {
    pub(crate) file: Arc<File>,
    pub(crate) io: DeviceIo,
}

/// The sending side of a ring.
pub(crate) struct Ring {
    inbox: Mutex<Vec<Request>>,
    asleep: AtomicBool,
    bell: OwnedFd,
}

/// The rings of this process: one for every four processors. None where the kernel does not let us have one.
fn rings() -> Option<&'static [Arc<Ring>]> {
    static RINGS: OnceLock<Option<Vec<Arc<Ring>>>> = OnceLock::new();
    let start = || {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        (0..(processors / 4).clamp(1, 8)).map(|_| Ring::start().ok()).collect()
    };
    RINGS.get_or_init(start).as_deref()
}

impl Ring {
    /// The ring for the next device, in turn; none without io_uring.
    pub(crate) fn next() -> Option<Arc<Ring>> {
        static TURN: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let rings = rings()?;
        rings.get(TURN.fetch_add(1, Ordering::Relaxed) % rings.len()).cloned()
    }

    #[expect(clippy::disallowed_methods, reason = "one thread for all devices of the process, older than any executor")]
    fn start() -> Result<Arc<Ring>, DeviceError> {
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        let ring = Arc::new(Ring { inbox: Mutex::default(), asleep: AtomicBool::new(false), bell });
        let own = ring.clone();
        let (told, outcome) = std::sync::mpsc::channel();
        let run = move || match IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_cqsize(16 * ENTRIES).build(ENTRIES) {
            Err(error) => drop(told.send(Err(error.into()))),
            Ok(uring) => {
                let _ = told.send(Ok(()));
                Owner { uring, ring: own, slots: Vec::new(), vacant: Vec::new(), ready: VecDeque::new(), rung: Box::new([0; 8]) }.run();
            }
        };
        std::thread::Builder::new().name("z-ring".to_string()).spawn(run)?;
        outcome.recv().unwrap_or(Err(DeviceError::Unsupported)).map(|()| ring)
    }

    /// Hands requests to the owner.
    pub(crate) fn send(&self, requests: impl IntoIterator<Item = Request>) {
        self.inbox.lock().extend(requests);
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::SeqCst) {
            // Any number rings; the counter cannot overflow, since the owner reads it each time it wakes.
            let _ = rustix::io::write(&self.bell, &[1; 8]);
        }
    }
}

/// A request in the kernel's hands, or about to be.
struct Slot {
    request: Request,
    /// What is left of a scattered transfer; the kernel reads it until the completion.
    runs: Vec<libc::iovec>,
    transferred: usize,
}

impl Slot {
    fn new(mut request: Request) -> Slot {
        let run = |pointer: *mut u8, length: usize| libc::iovec { iov_base: pointer.cast(), iov_len: length };
        let runs = match &mut request.io.op {
            DeviceOp::Read(parts) => {
                parts.iter_mut().filter(|part| !part.is_empty()).map(|part| run(part.as_mut_ptr(), part.len())).collect()
            }
            DeviceOp::Write(data) => data.chunks().map(|chunk| run(chunk.as_ptr().cast_mut(), chunk.len())).collect(),
            _ => Vec::new(),
        };
        Slot { request, runs, transferred: 0 }
    }

    /// The entry for what is left to do.
    fn entry(&self) -> squeue::Entry {
        let io = &self.request.io;
        let fd = types::Fd(self.request.file.as_raw_fd());
        let position = io.offset + self.transferred as u64;
        let count = self.runs.len().min(RUNS_MAX) as u32;
        match (&io.op, self.runs.as_slice()) {
            (DeviceOp::Flush, _) => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            (DeviceOp::Trim { length_bytes }, _) => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                opcode::Fallocate::new(fd, *length_bytes).offset(position).mode(mode).build()
            }
            (DeviceOp::Read(_), [run]) => {
                opcode::Read::new(fd, run.iov_base.cast(), run.iov_len.min(TRANSFER_BYTES_MAX) as u32).offset(position).build()
            }
            (DeviceOp::Write(_), [run]) => {
                opcode::Write::new(fd, run.iov_base.cast(), run.iov_len.min(TRANSFER_BYTES_MAX) as u32).offset(position).build()
            }
            (DeviceOp::Read(_), runs) => opcode::Readv::new(fd, runs.as_ptr(), count).offset(position).build(),
            (DeviceOp::Write(_), runs) => opcode::Writev::new(fd, runs.as_ptr(), count).offset(position).build(),
        }
    }

    /// Takes note of a completion; none when more is to be transferred.
    fn completed(&mut self, result: i32) -> Option<Result<(), DeviceError>> {
        if result < 0 {
            let again = [libc::EINTR, libc::EAGAIN].contains(&-result);
            return if again { None } else { Some(Err(DeviceError::from_errno(-result))) };
        }
        if matches!(self.request.io.op, DeviceOp::Flush | DeviceOp::Trim { .. }) || self.runs.is_empty() {
            return Some(Ok(()));
        }
        if result == 0 {
            return Some(Err(DeviceError::Short));
        }
        self.transferred += result as usize;
        let mut left = result as usize;
        let whole = self.runs.iter().take_while(|run| take(&mut left, run.iov_len)).count();
        self.runs.drain(..whole);
        if let Some(run) = self.runs.first_mut() {
            run.iov_base = run.iov_base.wrapping_byte_add(left);
            run.iov_len -= left;
        }
        self.runs.is_empty().then_some(Ok(()))
    }

    fn finish(self, outcome: Result<(), DeviceError>) {
        let DeviceIo { op, then, .. } = self.request.io;
        then(DeviceReply { outcome, parts: if let DeviceOp::Read(parts) = op { parts } else { Vec::new() } });
    }
}

/// Takes `amount` off `left` when it is there.
fn take(left: &mut usize, amount: usize) -> bool {
    let enough = *left >= amount;
    if enough {
        *left -= amount;
    }
    enough
}

/// The thread that owns a ring.
struct Owner {
    uring: IoUring,
    ring: Arc<Ring>,
    slots: Vec<Option<Slot>>,
    vacant: Vec<usize>,
    /// Slots to be submitted.
    ready: VecDeque<usize>,
    /// Where the bell's counter is read to.
    rung: Box<[u8; 8]>,
}

impl Owner {
    fn run(mut self) {
        self.push(self.bell_entry());
        let mut finished = Vec::new();
        loop {
            self.take_inbox();
            while let Some(slot) = self.ready.pop_front() {
                let entry = self.slots[slot].as_ref().map(|state| state.entry().user_data(slot as u64));
                entry.into_iter().for_each(|entry| self.push(entry));
            }
            self.enter();
            self.reap(&mut finished);
            finished.drain(..).for_each(|(slot, outcome): (Slot, _)| slot.finish(outcome));
        }
    }

    fn take_inbox(&mut self) {
        let requests = std::mem::take(&mut *self.ring.inbox.lock());
        for request in requests {
            let slot = self.vacant.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
            self.slots[slot] = Some(Slot::new(request));
            self.ready.push_back(slot);
        }
    }

    /// Submits what was pushed; waits for a completion unless there is something to do.
    fn enter(&mut self) {
        self.ring.asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let wait = usize::from(self.ring.inbox.lock().is_empty());
        // An interrupted or refused call is repeated by the loop; entries stay in the queue until the kernel took them.
        let _ = self.uring.submit_and_wait(wait);
        self.ring.asleep.store(false, Ordering::SeqCst);
    }

    fn reap(&mut self, finished: &mut Vec<(Slot, Result<(), DeviceError>)>) {
        let mut rung = false;
        for completion in self.uring.completion() {
            if completion.user_data() == BELL {
                rung = true;
                continue;
            }
            let number = completion.user_data() as usize;
            let Some(slot) = self.slots.get_mut(number) else { continue };
            match slot.as_mut().map(|state| state.completed(completion.result())) {
                Some(Some(outcome)) => {
                    finished.extend(slot.take().map(|state| (state, outcome)));
                    self.vacant.push(number);
                }
                Some(None) => self.ready.push_back(number),
                None => {}
            }
        }
        if rung {
            self.push(self.bell_entry());
        }
    }

    fn bell_entry(&self) -> squeue::Entry {
        opcode::Read::new(types::Fd(self.ring.bell.as_raw_fd()), self.rung.as_ptr().cast_mut(), 8).build().user_data(BELL)
    }

    fn push(&mut self, entry: squeue::Entry) {
        loop {
            // SAFETY: the buffers, iovecs and file of the entry are owned by its slot (or by self, for the bell) until its
            // completion was seen, and the owner never ends.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            let _ = self.uring.submit();
        }
    }
}
