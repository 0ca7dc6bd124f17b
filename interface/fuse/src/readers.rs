//! The threads that serve mounts: a few for all mounts of one owner (a pool), however many those are.
//!
//! Every thread waits with an epoll set of its own that has every mount in it, exclusively: the kernel wakes one idle thread per
//! request, the one that came first. It reads the request, serves it and answers it, then waits again. When a thread goes to work
//! and none is left that waits, another is started, up to a limit; threads that had nothing to do for a while end. So memory and
//! threads follow what is done at the same time, a request that waits for a disk holds up no other, and owners that share nothing
//! (pools, of which one may be suspended) hold up each other never.
//!
//! Invariant: a mount is in `State::mounts` exactly as long as it is in every thread's epoll set.

use crate::handler::Handler;
use crate::lane::HERE_MAX_OF_ALL;
use crate::sent_again::SentAgain;
use crate::serve::{Looked, Reader};
use crate::served::{Hold, Mount};
use crate::uring::{Place, Rings, Uring};
use crate::{Notifier, Reply};
use exec::{Exec, Hands, Mutex};
use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use zerocopy::IntoBytes;

/// Number of threads that serve the mounts of one owner, at most.
const THREADS_MAX: usize = 16;
const _: () = assert!(HERE_MAX_OF_ALL < THREADS_MAX, "requests that wait in lanes leave somebody who reads");
/// Number of threads that stay when there is nothing to do: one serves, the other is there when that one waits.
const THREADS_KEPT: usize = 2;
/// Time without anything to do after which a thread beyond those ends.
const LINGER: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// Nanoseconds for which what has no answer gathers, of mounts whose other requests come through io_uring: the kernel tells in one what it
/// forgets, when it forgot more than one thing.
const GATHER_NS: u64 = 1_000_000;
/// Number of threads that tell the kernel something at a time.
const NOTICES_MAX: usize = 4;
/// Number of threads that sync for SYNCFS at a time.
const SYNCS_MAX: usize = 4;
/// Number of threads on which answers wait at a time: they all wait for the same.
const SETTLING_MAX: usize = 2;
/// Number of the bell in an epoll set; mounts have numbers from 1 on.
const BELL: u64 = 0;

#[derive(Default)]
struct State {
    mounts: BTreeMap<u64, Arc<Mount>>,
    /// Epoll sets of the threads, by their numbers.
    threads: BTreeMap<u64, Arc<OwnedFd>>,
    last: u64,
}

struct Shared {
    exec: Exec,
    state: Mutex<State>,
    /// Number of threads that wait for a request, or are about to.
    idle: AtomicUsize,
    /// Number of entries of `State::threads`.
    threads: AtomicUsize,
    /// Event that wakes every thread.
    bell: OwnedFd,
    notices: Arc<Hands>,
    syncs: Arc<Hands>,
    settling: Arc<Hands>,
    rings: Mutex<Weak<Rings>>,
}

/// Threads that serve the mounts of one owner. They begin with the first mount and end after the last, also when this is dropped
/// before.
#[derive(Clone)]
pub struct Readers(Arc<Shared>);

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.state.lock();
        write!(f, "Readers {{ mounts: {}, threads: {} }}", state.mounts.len(), state.threads.len())
    }
}

impl Readers {
    /// Makes threads of `exec`, none yet.
    ///
    /// # Errors
    /// The errno of eventfd(2).
    pub fn new(exec: &Exec) -> Reply<Readers> {
        Ok(Readers(Arc::new(Shared {
            exec: exec.clone(),
            state: Mutex::default(),
            idle: AtomicUsize::new(0),
            threads: AtomicUsize::new(0),
            bell: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            notices: Hands::new(exec, "z-fuse-notice", NOTICES_MAX),
            syncs: Hands::new(exec, "z-fuse-sync", SYNCS_MAX),
            settling: Hands::new(exec, "z-fuse-settle", SETTLING_MAX),
            rings: Mutex::default(),
        })))
    }

    /// Number of threads that serve now.
    pub fn threads(&self) -> usize {
        self.0.threads.load(Ordering::Relaxed)
    }

    pub(crate) fn exec(&self) -> &Exec {
        &self.0.exec
    }

    pub(crate) fn notifier(&self, device: &Arc<OwnedFd>) -> Notifier {
        Notifier::new(device.clone(), self.0.notices.clone())
    }

    /// Makes a place among the rings for a mount whose requests have `capacity` bytes at most, where it is wanted and can be had. That is to be
    /// settled before the kernel hears of the mount.
    pub(crate) fn place(&self, wanted: Uring, capacity: usize) -> Option<Arc<Place>> {
        Rings::place(&self.0.exec, &self.0.rings, wanted, capacity).map(Arc::new)
    }

    /// Serves a connection from now on; through io_uring when the kernel heard that there is a `place`, and after `sent_again` was settled.
    pub(crate) fn add(
        &self,
        device: Arc<OwnedFd>,
        handler: Arc<dyn Handler>,
        capacity: usize,
        place: Option<Arc<Place>>,
        sent_again: SentAgain,
    ) -> Reply<Arc<Mount>> {
        let shared = &self.0;
        // Two threads may be woken for one request; the slower one must not wait in read(2).
        rustix::io::ioctl_fionbio(&device, true)?;
        let mut state = shared.state.lock();
        state.last += 1;
        let hold = place.as_ref().map(|place| place.clone() as Hold);
        let mount = Mount::new(state.last, device, handler, capacity, (&shared.syncs, &shared.settling), (hold, sent_again));
        shared.enter(&mut state, &mount)?;
        drop(state);
        if let Some(place) = place {
            // Without seats the connection is of no use: whoever mounts takes it away, and its end is noticed as any other's.
            place.seat(&mount)?;
        }
        Ok(mount)
    }

    /// Reads no more requests of a mount. What comes waits in the kernel.
    pub(crate) fn pause(&self, mount: &Mount) {
        mount.pause();
        self.0.withdraw(&mut self.0.state.lock(), mount);
    }

    /// True when what was read from a paused mount is answered, and the kernel was told everything that it is to be told.
    pub(crate) fn is_quiet(&self, mount: &Mount) -> bool {
        mount.is_paused() && mount.owed.is_paid() && self.0.notices.is_idle() && self.0.syncs.is_idle()
    }

    /// Serves a mount again that was paused.
    pub(crate) fn resume(&self, mount: &Arc<Mount>) -> Reply<()> {
        let shared = &self.0;
        let mut state = shared.state.lock();
        mount.go_on();
        if !mount.is_connected() || state.mounts.contains_key(&mount.number) {
            return Ok(());
        }
        shared.enter(&mut state, mount)
    }
}

fn watch(set: &OwnedFd, mount: &Mount) -> Reply<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
    Ok(epoll::add(set, &mount.device, epoll::EventData::new_u64(mount.number), flags)?)
}

impl Shared {
    /// Puts a mount before all threads.
    fn enter(self: &Arc<Self>, state: &mut State, mount: &Arc<Mount>) -> Reply<()> {
        let added = state.threads.values().try_for_each(|set| watch(set, mount));
        if added.is_ok() {
            state.mounts.insert(mount.number, mount.clone());
        }
        let started = added.and_then(|()| if state.threads.is_empty() { self.start_thread(state) } else { Ok(()) });
        started.inspect_err(|_| self.withdraw(state, mount))
    }

    /// Takes a mount away from all threads; those end that have nothing left.
    fn withdraw(&self, state: &mut State, mount: &Mount) {
        state.mounts.remove(&mount.number);
        state.threads.values().for_each(|set| {
            let _ = epoll::delete(set, &mount.device);
        });
        if state.mounts.is_empty() {
            let _ = rustix::io::write(&self.bell, 1u64.as_bytes());
        }
    }

    fn start_thread(self: &Arc<Self>, state: &mut State) -> Reply<()> {
        let set = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        // Edges: the bell is never read, each ring is heard once by each thread.
        epoll::add(&set, &self.bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        state.mounts.values().try_for_each(|mount| watch(&set, mount))?;
        state.last += 1;
        let number = state.last;
        state.threads.insert(number, set.clone());
        self.threads.store(state.threads.len(), Ordering::Relaxed);
        // It counts as waiting from here on, so that nobody else starts another for the same reason.
        self.idle.fetch_add(1, Ordering::AcqRel);
        let own = self.clone();
        if self.exec.spawn_alone(&format!("z-fuse-{number}"), Box::new(move || own.run(number, &set))).is_err() {
            self.idle.fetch_sub(1, Ordering::AcqRel);
            self.leave(state, number);
            return Err(rustix::io::Errno::AGAIN.into());
        }
        Ok(())
    }

    /// Adds a thread, if there may be one more. Without it requests wait for those that are there.
    fn grow(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.threads.len() < THREADS_MAX {
            let _ = self.start_thread(&mut state);
        }
    }

    /// Runs the loop of one thread, which counts as waiting already.
    fn run(self: &Arc<Self>, number: u64, set: &OwnedFd) {
        let mut reader = Reader::new();
        let mut last = Weak::new();
        let mut events = Vec::with_capacity(1);
        loop {
            let timeout = (self.threads.load(Ordering::Relaxed) > THREADS_KEPT).then_some(&LINGER);
            events.clear();
            let waited = epoll::wait(set, rustix::buffer::spare_capacity(&mut events), timeout);
            let is_last = self.idle.fetch_sub(1, Ordering::AcqRel) == 1;
            match events.first().map(|event| event.data.u64()) {
                Some(wanted) if wanted != BELL => self.serve(&mut reader, wanted, &mut last, is_last),
                _ if waited.is_err_and(|errno| errno != rustix::io::Errno::INTR) => {
                    return self.leave(&mut self.state.lock(), number);
                }
                heard => {
                    if self.may_leave(number, heard.is_none()) {
                        return;
                    }
                }
            }
            self.idle.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Serves a request of the mount with this number; `last` is the mount that the thread served last, `is_last` is true when no other waits.
    fn serve(self: &Arc<Self>, reader: &mut Reader, wanted: u64, last: &mut Weak<Mount>, is_last: bool) {
        let known = last.upgrade().filter(|mount| mount.number == wanted);
        let is_other = known.is_none();
        let known = known.or_else(|| self.state.lock().mounts.get(&wanted).cloned());
        if is_last && !known.as_ref().is_some_and(|mount| mount.has_rings()) {
            self.grow();
        }
        let Some(mount) = known else { return };
        if is_other {
            *last = Arc::downgrade(&mount);
        }
        if mount.has_rings() {
            self.exec.sleep_ns(GATHER_NS);
        }
        let mut looked = reader.serve(&mount, &self.exec);
        while looked == Looked::Served && mount.has_rings() {
            looked = reader.serve(&mount, &self.exec);
        }
        if looked == Looked::Gone {
            self.lost(&mount);
        }
    }

    /// True when the thread ends: nothing is mounted any more, or it had nothing to do and there are enough others.
    fn may_leave(&self, number: u64, was_idle: bool) -> bool {
        let mut state = self.state.lock();
        let leaves = state.mounts.is_empty() || (was_idle && state.threads.len() > THREADS_KEPT);
        if leaves {
            self.leave(&mut state, number);
        }
        leaves
    }

    fn leave(&self, state: &mut State, number: u64) {
        state.threads.remove(&number);
        self.threads.store(state.threads.len(), Ordering::Relaxed);
    }

    /// Ends a mount whose connection the kernel ended: nobody reads from it any more, and once everything is answered its handler is told.
    fn lost(self: &Arc<Self>, mount: &Arc<Mount>) {
        if !mount.note_gone() {
            return;
        }
        self.withdraw(&mut self.state.lock(), mount);
        let (mount, exec) = (mount.clone(), self.exec.clone());
        drop(self.exec.spawn_operation("z-fuse-end", Box::new(move || mount.end(&exec))));
    }
}
