//! An io_uring and the thread that owns it: submissions of all devices go in batches, completions come out in batches.
//!
//! Any thread puts requests into the inbox. The owner takes what is there, submits it and waits for completions in one
//! system call; it is rung awake (eventfd) only when it sleeps, so under load nobody pays for a wake-up. One owner per
//! ring lets the kernel complete without interrupting other threads (`SINGLE_ISSUER`, `DEFER_TASKRUN`).
//!
//! Memory of `abd` is registered with the ring as it is first used (see `buffers`), so that the kernel need not look up and
//! pin pages for each I/O; requests of one run go the fixed way, gangs and refused memory the plain way. It is on unless turned
//! off ([`set_ring_buffers_registered`]): 5-28 % less CPU for writes to an ext4 file, 0-24 % on a loop device, never more beyond
//! noise (`docs/bench/spine.md`, measured by `examples/ring_cost.rs`).
//! Files are not registered: it gains nothing that can be measured, and would keep a device open after its pool is gone.
//!
//! Invariant: memory, iovecs and file of a request belong to its slot from before it is submitted until its completion
//! was seen; slots are never dropped otherwise.
#![expect(unsafe_code, reason = "the kernel reads and writes buffers after the submitting call returned")]

use crate::buffers::{BUFFERS_MAX, BufferTable, Buffers, MappingNote};
use crate::{DeviceError, DeviceIo, DeviceOp, DeviceReply, priority};
use exec::Mutex;
use io_uring::{IoUring, opcode, squeue, types};
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
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

/// Notes and requests that the owner finds when it looks. Notes are read before requests: a request may lie in memory mapped just before.
#[derive(Default)]
struct Inbox {
    notes: Vec<MappingNote>,
    requests: Vec<Request>,
}

impl Inbox {
    fn is_empty(&self) -> bool {
        self.notes.is_empty() && self.requests.is_empty()
    }
}

/// The sending side of a ring.
pub(crate) struct Ring {
    inbox: Mutex<Inbox>,
    asleep: AtomicBool,
    bell: OwnedFd,
    counts: Counts,
}

/// Counters that the owner alone writes.
#[derive(Default)]
struct Counts {
    fixed: AtomicU64,
    plain: AtomicU64,
    registered_bytes: AtomicU64,
    refusals: AtomicU64,
}

/// Counters of how the rings of this process transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// Reads and writes on registered memory.
    pub fixed_ios: u64,
    /// Reads and writes whose pages the kernel looked up and pinned for the occasion.
    pub plain_ios: u64,
    /// Bytes registered now, in the sum of the rings.
    pub registered_bytes: u64,
    /// Mappings that the kernel refused to register (limit of locked memory).
    pub refused_registrations: u64,
}

/// True when memory is registered from now on.
static REGISTER: AtomicBool = AtomicBool::new(true);

/// Turns registration of memory with the rings on or off; what is registered stays usable.
pub fn set_ring_buffers_registered(register: bool) {
    REGISTER.store(register, Ordering::Relaxed);
}

/// True when memory is registered with the rings.
pub fn ring_buffers_registered() -> bool {
    REGISTER.load(Ordering::Relaxed)
}

/// Sums over the rings; zeros when no device needed one.
pub fn ring_stats() -> RingStats {
    let all = started().map(Vec::as_slice).unwrap_or_default();
    let sum = |count: fn(&Counts) -> &AtomicU64| all.iter().map(|ring| count(&ring.counts).load(Ordering::Relaxed)).sum();
    RingStats {
        fixed_ios: sum(|counts| &counts.fixed),
        plain_ios: sum(|counts| &counts.plain),
        registered_bytes: sum(|counts| &counts.registered_bytes),
        refused_registrations: sum(|counts| &counts.refusals),
    }
}

/// Tells every ring of `abd`'s memory.
struct Herald(Vec<Arc<Ring>>);

impl abd::MappingWatcher for Herald {
    fn mapped(&self, start: usize, size_bytes: usize) {
        self.0.iter().for_each(|ring| ring.inbox.lock().notes.push(MappingNote::Mapped { start, size_bytes }));
    }
    fn unmapping(&self, start: usize) {
        for ring in &self.0 {
            ring.inbox.lock().notes.push(MappingNote::Unmapping { start });
            // Its pages stay pinned until the owner lets go of them.
            ring.wake();
        }
    }
}

/// The rings of this process: one for every four processors. None where the kernel does not let us have one.
fn rings() -> Option<&'static [Arc<Ring>]> {
    let start = || {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let rings: Option<Vec<Arc<Ring>>> = (0..(processors / 4).clamp(1, 8)).map(|_| Ring::start().ok()).collect();
        if let Some(rings) = &rings {
            abd::watch_mappings(Arc::new(Herald(rings.clone())));
        }
        rings
    };
    RINGS.get_or_init(start).as_deref()
}

static RINGS: OnceLock<Option<Vec<Arc<Ring>>>> = OnceLock::new();

fn started() -> Option<&'static Vec<Arc<Ring>>> {
    RINGS.get()?.as_ref()
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
        let ring = Arc::new(Ring { inbox: Mutex::default(), asleep: AtomicBool::new(false), bell, counts: Counts::default() });
        let own = ring.clone();
        let (told, outcome) = std::sync::mpsc::channel();
        let run = move || match IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_cqsize(16 * ENTRIES).build(ENTRIES) {
            Err(error) => drop(told.send(Err(error.into()))),
            Ok(uring) => {
                let _ = told.send(Ok(()));
                Owner::new(uring, own).run();
            }
        };
        std::thread::Builder::new().name("z-ring".to_string()).spawn(run)?;
        outcome.recv().unwrap_or(Err(DeviceError::Unsupported)).map(|()| ring)
    }

    /// Hands requests to the owner.
    pub(crate) fn send(&self, requests: impl IntoIterator<Item = Request>) {
        self.inbox.lock().requests.extend(requests);
        self.wake();
    }

    /// Rings the owner awake if it sleeps.
    fn wake(&self) {
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
    /// Runs that are left of a scattered transfer; the kernel reads them until the completion.
    runs: Vec<libc::iovec>,
    transferred: usize,
    /// Word of the priority that went to the kernel last; 0 when none did.
    word: u16,
    /// Word with which the kernel refused the transfer; 0 when it did not.
    refused: u16,
}

impl Slot {
    fn new(mut request: Request) -> Slot {
        let run = |pointer: *mut u8, length: usize| libc::iovec { iov_base: pointer.cast(), iov_len: length };
        let runs = match &mut request.io.op {
            DeviceOp::Read(parts) => {
                parts.iter_mut().filter(|part| !part.is_empty()).map(|part| run(part.as_ptr().cast_mut(), part.len())).collect()
            }
            DeviceOp::Write(data) => data.extents().map(|(address, length)| run(address.cast_mut(), length)).collect(),
            _ => Vec::new(),
        };
        Slot { request, runs, transferred: 0, word: 0, refused: 0 }
    }

    /// Address and length in bytes of the rest of a transfer of one run, in the process's memory.
    fn single_run(&self) -> Option<(usize, usize)> {
        match self.runs.as_slice() {
            [run] => Some((run.iov_base.addr(), run.iov_len)),
            _ => None,
        }
    }

    /// The entry for what is left to do; `registered` is the slot of the buffer table that a single run lies in.
    fn entry(&mut self, registered: Option<u16>) -> squeue::Entry {
        let io = &self.request.io;
        let fd = types::Fd(self.request.file.as_raw_fd());
        let position = io.offset + self.transferred as u64;
        // What is flushed or freed has no priority in the kernel, which refuses a word there.
        let word = if self.refused == 0 && !self.runs.is_empty() { io.priority.current_word() } else { 0 };
        self.word = word;
        let count = self.runs.len().min(RUNS_MAX) as u32;
        match (&io.op, self.runs.as_slice()) {
            (DeviceOp::Flush, _) => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            (DeviceOp::Trim { length_bytes }, _) => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                opcode::Fallocate::new(fd, *length_bytes).offset(position).mode(mode).build()
            }
            (DeviceOp::Read(_), [run]) if let Some(index) = registered => {
                let length = run.iov_len.min(TRANSFER_BYTES_MAX) as u32;
                opcode::ReadFixed::new(fd, run.iov_base.cast(), length, index).offset(position).ioprio(word).build()
            }
            (DeviceOp::Write(_), [run]) if let Some(index) = registered => {
                let length = run.iov_len.min(TRANSFER_BYTES_MAX) as u32;
                opcode::WriteFixed::new(fd, run.iov_base.cast(), length, index).offset(position).ioprio(word).build()
            }
            (DeviceOp::Read(_), [run]) => {
                opcode::Read::new(fd, run.iov_base.cast(), run.iov_len.min(TRANSFER_BYTES_MAX) as u32).offset(position).ioprio(word).build()
            }
            (DeviceOp::Write(_), [run]) => opcode::Write::new(fd, run.iov_base.cast(), run.iov_len.min(TRANSFER_BYTES_MAX) as u32)
                .offset(position)
                .ioprio(word)
                .build(),
            (DeviceOp::Read(_), runs) => opcode::Readv::new(fd, runs.as_ptr(), count).offset(position).ioprio(word).build(),
            (DeviceOp::Write(_), runs) => opcode::Writev::new(fd, runs.as_ptr(), count).offset(position).ioprio(word).build(),
        }
    }

    /// Takes note of a completion; none when more is to be transferred.
    fn completed(&mut self, result: i32) -> Option<Result<(), DeviceError>> {
        if result < 0 {
            let again = [libc::EINTR, libc::EAGAIN].contains(&-result) || self.may_go_without_word(-result);
            return if again { None } else { Some(Err(DeviceError::from_errno(-result))) };
        }
        if self.refused != 0 {
            // Without it the kernel did what it was asked for.
            priority::refused(self.refused);
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

    /// True, once, where the kernel may have refused nothing but the word of a priority: the transfer is tried again without.
    fn may_go_without_word(&mut self, errno: i32) -> bool {
        let may_be_it = self.word != 0 && [libc::EPERM, libc::EINVAL].contains(&errno);
        if may_be_it {
            self.refused = self.word;
        }
        may_be_it
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
    /// Bytes that the bell's counter is read to.
    rung: Box<[u8; 8]>,
    buffers: Buffers,
    /// True when the kernel has a table for registered buffers.
    has_table: bool,
    fixed: u64,
    plain: u64,
}

/// The kernel's table of a ring.
struct KernelTable<'ring>(&'ring IoUring);

impl BufferTable for KernelTable<'_> {
    fn set(&mut self, index: u16, memory: Option<(usize, usize)>) -> bool {
        let (start, size_bytes) = memory.unwrap_or_default();
        let buffer = libc::iovec { iov_base: std::ptr::without_provenance_mut(start), iov_len: size_bytes };
        // SAFETY: the memory is mapped for as long as `abd` has not announced its end, and the kernel pins the pages, so a
        // registration that outlives the mapping by the time until its announcement is read touches nobody's memory.
        unsafe { self.0.submitter().register_buffers_update(u32::from(index), &[buffer], None) }.is_ok()
    }
}

impl Owner {
    fn new(uring: IoUring, ring: Arc<Ring>) -> Owner {
        let has_table = uring.submitter().register_buffers_sparse(u32::from(BUFFERS_MAX)).is_ok();
        Owner {
            uring,
            ring,
            slots: Vec::new(),
            vacant: Vec::new(),
            ready: VecDeque::new(),
            rung: Box::new([0; 8]),
            buffers: Buffers::default(),
            has_table,
            fixed: 0,
            plain: 0,
        }
    }

    fn run(mut self) {
        self.push(self.bell_entry());
        let mut finished = Vec::new();
        loop {
            self.take_inbox();
            while let Some(slot) = self.ready.pop_front() {
                self.push_slot(slot);
            }
            self.publish();
            self.enter();
            self.reap(&mut finished);
            finished.drain(..).for_each(|(slot, outcome): (Slot, _)| slot.finish(outcome));
        }
    }

    fn take_inbox(&mut self) {
        let Inbox { notes, requests } = std::mem::take(&mut *self.ring.inbox.lock());
        notes.into_iter().for_each(|note| self.buffers.note(note, &mut KernelTable(&self.uring)));
        for request in requests {
            let slot = self.vacant.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
            self.slots[slot] = Some(Slot::new(request));
            self.ready.push_back(slot);
        }
    }

    fn push_slot(&mut self, number: usize) {
        let Some(state) = &mut self.slots[number] else { return };
        let run = state.single_run().filter(|_| self.has_table && ring_buffers_registered());
        let registered = run.and_then(|(start, length)| self.buffers.index_of(start, length, &mut KernelTable(&self.uring)));
        if registered.is_some() {
            self.fixed += 1;
        } else if !state.runs.is_empty() {
            self.plain += 1;
        }
        let entry = state.entry(registered).user_data(number as u64);
        self.push(entry);
    }

    fn publish(&self) {
        let (registered_bytes, refusals) = self.buffers.usage();
        let counts = &self.ring.counts;
        counts.fixed.store(self.fixed, Ordering::Relaxed);
        counts.plain.store(self.plain, Ordering::Relaxed);
        counts.registered_bytes.store(registered_bytes, Ordering::Relaxed);
        counts.refusals.store(refusals, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IoPriority, set_io_priorities};
    use abd::{Abd, AbdPart};

    /// Priority in an entry, as the kernel reads it: the third and fourth byte of `struct io_uring_sqe`.
    fn word_of(entry: &squeue::Entry) -> u16 {
        // SAFETY: an entry is a `struct io_uring_sqe` alone, of 64 bytes, which all have a value.
        let words = unsafe { std::ptr::from_ref(entry).cast::<[u16; 32]>().read() };
        words[1]
    }

    /// If this fails, the kernel's scheduler takes all for equally urgent, or refuses what can have no priority.
    #[test]
    fn an_entry_has_the_priority_of_its_request() {
        // Other tests turn it on, too, and nobody off.
        assert!(set_io_priorities(1));
        let file = Arc::new(File::open("/dev/null").expect("it is always there"));
        let word = |op: DeviceOp, registered: Option<u16>| {
            let io = DeviceIo::new(op, 0, drop).with_priority(IoPriority::Background);
            word_of(&Slot::new(Request { file: file.clone(), io }).entry(registered))
        };
        let two = || Abd::gang(&[Abd::from_slice(&[1; 512]), Abd::from_slice(&[2; 512])]);
        let scattered = || DeviceOp::Read(vec![AbdPart::scratch(512), AbdPart::scratch(512)]);
        let transfers = [
            (DeviceOp::read(512), None),
            (DeviceOp::read(512), Some(0)),
            (scattered(), None),
            (DeviceOp::Write(Abd::from_slice(&[1; 512])), None),
            (DeviceOp::Write(Abd::from_slice(&[1; 512])), Some(0)),
            (DeviceOp::Write(two()), None),
        ];
        for (op, registered) in transfers {
            let what = format!("{op:?} {registered:?}");
            assert_eq!(word(op, registered), 2 << 13 | 7, "{what}");
        }
        assert_eq!(word(DeviceOp::Flush, None), 0);
        assert_eq!(word(DeviceOp::Trim { length_bytes: 512 }, None), 0);
        let unsaid = Request { file: file.clone(), io: DeviceIo::new(DeviceOp::read(512), 0, drop) };
        assert_eq!(word_of(&Slot::new(unsaid).entry(None)), 0);
    }

    /// If this fails, what somebody set to have some I/Os go first makes all of them fail where the kernel does not let this process say so.
    #[test]
    fn a_transfer_whose_priority_is_refused_goes_without() {
        assert!(set_io_priorities(1));
        let file = Arc::new(File::open("/dev/null").expect("it is always there"));
        let slot = |op: DeviceOp| {
            let io = DeviceIo::new(op, 0, drop).with_priority(IoPriority::Background);
            Slot::new(Request { file: file.clone(), io })
        };
        for errno in [libc::EPERM, libc::EINVAL] {
            let mut slot = slot(DeviceOp::read(512));
            assert!(word_of(&slot.entry(None)) != 0);
            assert_eq!(slot.completed(-errno), None, "it is tried again");
            assert_eq!(word_of(&slot.entry(None)), 0);
            assert_eq!(slot.completed(-errno), Some(Err(DeviceError::from_errno(errno))), "it was not the word");
        }
        let mut failed = slot(DeviceOp::read(512));
        let _ = failed.entry(None);
        assert_eq!(failed.completed(-libc::EIO), Some(Err(DeviceError::Io)));
        let mut flush = slot(DeviceOp::Flush);
        let _ = flush.entry(None);
        assert_eq!(flush.completed(-libc::EINVAL), Some(Err(DeviceError::Misaligned)), "flushes have no word");
    }
}
