//! A ring and the threads that serve what comes to it, of which one at a time leads: it gives replies back, waits for requests, and serves
//! one after the other itself, so that nothing is handed between threads.
//!
//! Whoever serves lays the lead down meanwhile and takes it up again afterwards. Where that takes long, because a disk is waited for, another
//! thread is made to take it up ([`Ring::look`], which a watcher calls every few milliseconds), or does at once where it is known to.
//!
//! Invariants: only who has the [`Lead`] submits and reaps; a seat is in `Lead::slots` from before the kernel hears of it until the kernel
//! gave it up. Threads end with the last mount only: the kernel takes back what a thread that ends submitted.
#![expect(unsafe_code, reason = "the kernel uses memory that submissions name after the submitting call returned")]

use super::processors;
use super::seat::{GiveBack, Seat, Turn};
use crate::Reply;
use crate::abi::{self, op};
use crate::serve::Reader;
use exec::{Condvar, Exec, Mutex};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::EventfdFlags;
use rustix::fd::{AsRawFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, mpsc};
use zerocopy::IntoBytes;

/// Entries of the submission queue.
const ENTRIES: u32 = 64;
/// Entries of the completion queue; what does not fit the kernel keeps.
const COMPLETIONS: u32 = 1024;
/// `user_data` of the read on the bell.
const BELL: u64 = u64::MAX;
/// Bytes of a submission before the number of buffers that it names (`io_uring_sqe::len`), for which the crate has no setter.
const COUNT_OFFSET: usize = 24;
/// Number of buffers that a registration names: header and payload.
const COUNT: u32 = 2;

/// Task of the leader.
enum Errand {
    /// Tell the kernel of seats, and whoever waits whether it took all.
    Register(Vec<Arc<Seat>>, mpsc::Sender<bool>),
    /// Give a reply back.
    Commit(Arc<Seat>, u64),
}

/// State of the lead.
struct State {
    /// The lead, while nobody leads.
    lead: Option<Box<Lead>>,
    /// Number of times that it was laid down.
    rounds: u64,
    /// Number of rounds when the watcher last looked.
    seen: u64,
    /// True when a spare thread is to take the lead up.
    is_wanted: bool,
    /// Number of threads that wait for that.
    spares: usize,
    /// True when no mount is left.
    ends: bool,
}

/// Number of threads of all rings of an owner.
#[derive(Debug)]
pub(crate) struct Crowd {
    threads: AtomicUsize,
    most: usize,
}

impl Crowd {
    /// Makes a crowd of `most` threads at most, and none yet.
    pub fn new(most: usize) -> Crowd {
        Crowd { threads: AtomicUsize::new(0), most }
    }
}

/// Watcher that is woken when there is something to watch.
pub(crate) trait Watcher: Send + Sync {
    /// Sees to it that [`Ring::look`] is called every few milliseconds from now on.
    fn wake(&self);
}

/// Ring of one processor.
pub(crate) struct Ring {
    exec: Exec,
    /// Number of the processor that its threads run on.
    processor: usize,
    state: Mutex<State>,
    wanted: Condvar,
    errands: Mutex<Vec<Errand>>,
    is_asleep: AtomicBool,
    bell: OwnedFd,
    crowd: Arc<Crowd>,
    watcher: Arc<dyn Watcher>,
}

impl Ring {
    /// Makes a ring and its first thread.
    ///
    /// # Errors
    /// The errno of the kernel, which may refuse rings.
    pub fn start(exec: &Exec, processor: usize, crowd: &Arc<Crowd>, watcher: Arc<dyn Watcher>) -> Reply<Arc<Ring>> {
        let uring = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .setup_coop_taskrun()
            .setup_cqsize(COMPLETIONS)
            .build(ENTRIES)
            .map_err(|error| crate::Errno(error.raw_os_error().unwrap_or(libc::ENOSYS)))?;
        let ring = Arc::new(Ring {
            exec: exec.clone(),
            processor,
            state: Mutex::new(State {
                lead: Some(Box::new(Lead::new(uring))),
                rounds: 0,
                seen: 0,
                is_wanted: true,
                spares: 0,
                ends: false,
            }),
            wanted: Condvar::new(),
            errands: Mutex::default(),
            is_asleep: AtomicBool::new(false),
            bell: rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?,
            crowd: crowd.clone(),
            watcher,
        });
        if !ring.start_thread() {
            return Err(rustix::io::Errno::AGAIN.into());
        }
        Ok(ring)
    }

    /// Starts a thread, which stays on the processor; false where the system does not.
    fn start_thread(self: &Arc<Self>) -> bool {
        self.crowd.threads.fetch_add(1, Ordering::AcqRel);
        let own = self.clone();
        let name = format!("z-fuse-ring-{}", self.processor);
        let is_started = self.exec.spawn_alone(&name, Box::new(move || own.run())).is_ok();
        if !is_started {
            self.crowd.threads.fetch_sub(1, Ordering::AcqRel);
        }
        is_started
    }

    /// Tells the kernel of seats; false when it refused one.
    pub fn register(&self, seats: Vec<Arc<Seat>>) -> bool {
        let (told, outcome) = mpsc::channel();
        self.errand(Errand::Register(seats, told));
        outcome.recv().unwrap_or(false)
    }

    fn errand(&self, errand: Errand) {
        self.errands.lock().push(errand);
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::SeqCst) {
            self.ring();
        }
    }

    fn ring(&self) {
        // Any number rings; the counter cannot overflow, since the leader reads it each time it wakes.
        let _ = rustix::io::write(&self.bell, &[1; 8]);
    }

    /// Ends the threads once the kernel gave all seats up.
    pub fn end(&self) {
        self.state.lock().ends = true;
        self.wanted.notify_all();
        self.ring();
    }

    /// Looks whether the lead lies where it lay before, and has it taken up then; false when nothing happened.
    pub fn look(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        let (is_new, lies) = (state.rounds != state.seen, state.lead.is_some());
        state.seen = state.rounds;
        if lies && !is_new {
            self.want(&mut state);
        }
        is_new || lies
    }

    /// Has another thread take up the lead, which lies.
    fn want(self: &Arc<Self>, state: &mut State) {
        state.is_wanted = true;
        if state.spares > 0 {
            self.wanted.notify_one();
        } else if self.crowd.threads.load(Ordering::Acquire) < self.crowd.most {
            // Without it those that are there take it up, or the next look has another try.
            self.start_thread();
        }
    }

    fn run(self: Arc<Self>) {
        processors::stay_on(self.processor);
        let mut reader = Reader::new();
        while let Some(mut lead) = self.wait_for_lead() {
            while let Some(turn) = lead.next(&self) {
                self.lay_down(lead, is_slow(turn.head().opcode));
                reader.serve_turn(turn);
                match self.state.lock().lead.take() {
                    Some(back) => lead = back,
                    None => break,
                }
            }
            // Without a turn it is over, and the lead is gone with the ring of the kernel.
        }
        self.crowd.threads.fetch_sub(1, Ordering::AcqRel);
    }

    /// Lays the lead down; another takes it up at once where it is known that this thread will not soon.
    fn lay_down(self: &Arc<Self>, lead: Box<Lead>, is_slow: bool) {
        {
            let mut state = self.state.lock();
            state.rounds = state.rounds.wrapping_add(1);
            state.is_wanted = false;
            state.lead = Some(lead);
            if is_slow {
                self.want(&mut state);
            }
        }
        self.watcher.wake();
    }

    /// Waits until the lead is to be taken up; None when it is over.
    fn wait_for_lead(&self) -> Option<Box<Lead>> {
        let mut state = self.state.lock();
        loop {
            if (state.is_wanted || state.ends) && state.lead.is_some() {
                state.is_wanted = false;
                return state.lead.take();
            }
            if state.ends {
                return None;
            }
            state.spares += 1;
            self.wanted.wait(&mut state);
            state.spares -= 1;
        }
    }
}

impl GiveBack for Ring {
    fn give_back(&self, seat: Arc<Seat>, commit_id: u64) {
        self.errand(Errand::Commit(seat, commit_id));
    }
}

/// True for requests that wait for a disk as a rule.
fn is_slow(opcode: u32) -> bool {
    matches!(opcode, op::FSYNC | op::FSYNCDIR)
}

/// Right to use the kernel's ring, and what belongs to it.
struct Lead {
    uring: IoUring<squeue::Entry128, cqueue::Entry>,
    /// Seats that the kernel knows, by their numbers there.
    slots: Vec<Option<Arc<Seat>>>,
    vacant: Vec<u32>,
    /// Seats that have requests.
    came: VecDeque<Arc<Seat>>,
    errands: Vec<Errand>,
    /// Bytes that the bell's counter is read to.
    rung: Box<[u8; 8]>,
    is_bell_armed: bool,
}

impl Lead {
    fn new(uring: IoUring<squeue::Entry128, cqueue::Entry>) -> Lead {
        Lead {
            uring,
            slots: Vec::new(),
            vacant: Vec::new(),
            came: VecDeque::new(),
            errands: Vec::new(),
            rung: Box::new([0; 8]),
            is_bell_armed: false,
        }
    }

    /// The next request; None when it is over and the kernel knows no seat any more.
    fn next(&mut self, ring: &Ring) -> Option<Turn> {
        loop {
            self.do_errands(ring);
            if let Some(seat) = self.came.pop_front() {
                if !self.uring.submission().is_empty() {
                    let _ = self.uring.submit();
                }
                return Some(Turn::begin(seat));
            }
            if self.vacant.len() == self.slots.len() && ring.state.lock().ends {
                return None;
            }
            self.wait(ring);
            self.reap();
        }
    }

    fn do_errands(&mut self, ring: &Ring) {
        if !self.is_bell_armed {
            self.is_bell_armed = true;
            let read = opcode::Read::new(types::Fd(ring.bell.as_raw_fd()), self.rung.as_mut_ptr(), 8).build();
            self.push(read.user_data(BELL).into());
        }
        let mut errands = std::mem::take(&mut self.errands);
        std::mem::swap(&mut errands, &mut ring.errands.lock());
        for errand in errands.drain(..) {
            match errand {
                Errand::Commit(seat, id) => self.push(submission(&seat, abi::URING_COMMIT_AND_FETCH, id)),
                Errand::Register(seats, told) => {
                    let taken = self.register(seats);
                    let _ = told.send(taken);
                }
            }
        }
        self.errands = errands;
    }

    fn register(&mut self, seats: Vec<Arc<Seat>>) -> bool {
        let mut numbers = Vec::with_capacity(seats.len());
        for seat in seats {
            let number = self.vacant.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            });
            seat.slot.store(number, Ordering::Relaxed);
            let entry = submission(&seat, abi::URING_REGISTER, 0);
            self.slots[number as usize] = Some(seat);
            numbers.push(number);
            self.push(entry);
        }
        // What is refused is completed by the call.
        while !self.uring.submission().is_empty() && self.uring.submit().is_ok() {}
        self.reap();
        numbers.iter().all(|number| self.slots[*number as usize].is_some())
    }

    /// Submits what was pushed; waits for a completion unless there is an errand.
    fn wait(&mut self, ring: &Ring) {
        ring.is_asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let count = usize::from(ring.errands.lock().is_empty());
        // An interrupted or refused call is repeated by the loop; entries stay in the queue until the kernel took them.
        let _ = self.uring.submit_and_wait(count);
        ring.is_asleep.store(false, Ordering::SeqCst);
    }

    fn reap(&mut self) {
        for completion in self.uring.completion() {
            if completion.user_data() == BELL {
                self.is_bell_armed = false;
                continue;
            }
            let number = completion.user_data() as u32;
            let Some(slot) = self.slots.get_mut(number as usize) else { continue };
            if completion.result() >= 0 {
                self.came.extend(slot.clone());
            } else if slot.take().is_some() {
                // The kernel gave the seat up: the connection has ended, or the seat was never taken.
                self.vacant.push(number);
            }
        }
    }

    fn push(&mut self, entry: squeue::Entry128) {
        loop {
            // SAFETY: a seat's buffers and the descriptor belong to its mount, which the seat in its slot keeps until the completion that
            // gives it up was seen; the bell and its buffer belong to the ring, whose threads end after all completions.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            let _ = self.uring.submit();
        }
    }
}

/// Command about a seat.
fn submission(seat: &Seat, command: u32, commit_id: u64) -> squeue::Entry128 {
    let words = abi::UringCommand { flags: 0, commit_id, queue: seat.queue, padding: [0; 6] };
    let mut bytes = [0; 80];
    bytes[..size_of::<abi::UringCommand>()].copy_from_slice(words.as_bytes());
    let entry = opcode::UringCmd80::new(types::Fd(seat.mount.device.as_raw_fd()), command).cmd(bytes).addr(Some(seat.vectors()));
    let mut entry = entry.build().user_data(u64::from(seat.slot()));
    // SAFETY: the entry is the kernel's record of 128 bytes (`repr(C)`), in which the number is four bytes at this offset, aligned.
    unsafe { (&raw mut entry).cast::<u8>().add(COUNT_OFFSET).cast::<u32>().write(COUNT) };
    entry
}

const _: () = assert!(size_of::<squeue::Entry128>() == 128 && align_of::<squeue::Entry128>() >= 4);
