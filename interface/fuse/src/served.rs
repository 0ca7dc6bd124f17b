//! A mount that is served: its connection, its handler, and what is owed to whoever asked.
//!
//! Invariant: who serves a request holds a [`Serving`], so the end of the mount, which takes the handler away, waits for it.

use crate::answer::{Debt, Owed};
use crate::ending::Ended;
use crate::handler::Handler;
use crate::lasting::Lasting;
use crate::sent_again::SentAgain;
use exec::{Exec, Hands, RwLock};
use rustix::fd::OwnedFd;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Something that a mount holds while it lasts: its place among the rings.
pub(crate) type Hold = Arc<dyn Any + Send + Sync>;

/// Mount that is served.
pub(crate) struct Mount {
    /// Number among those of its owner.
    pub number: u64,
    /// Connection to the kernel.
    pub device: Arc<OwnedFd>,
    /// Bytes of the largest payload.
    pub capacity: usize,
    pub owed: Arc<Owed>,
    /// Threads on which whole-pool syncs are done.
    pub syncs: Arc<Hands>,
    /// Number of requests that have lanes, and are served by those who read.
    pub in_lanes: Arc<AtomicUsize>,
    /// Threads on which answers wait that may not be given yet.
    pub settling: Arc<Hands>,
    /// Side of the handler that makes the mount outlive this server, if it does.
    pub lasting: Option<Arc<dyn Lasting>>,
    /// Wait for what the kernel sends again.
    pub sent_again: SentAgain,
    /// Handler of the requests, taken away when the mount ends.
    handler: RwLock<Option<Arc<dyn Handler>>>,
    gone: AtomicBool,
    /// True while nothing is read from it.
    paused: AtomicBool,
    synced: AtomicBool,
    /// Place among the rings, of a mount whose requests come that way.
    place: Option<Hold>,
    /// End of the mount: everything is answered and the handler was told.
    pub ended: Ended,
}

/// Right to use a mount's handler; the mount does not end before it is given back.
pub(crate) struct Serving {
    // In this order: who waits for the debt may count on the handler being let go of.
    handler: Arc<dyn Handler>,
    _debt: Debt,
}

impl Serving {
    pub fn handler(&self) -> &dyn Handler {
        &*self.handler
    }
}

impl Mount {
    /// Makes a mount of a connection that is served from now on.
    pub fn new(
        number: u64,
        device: Arc<OwnedFd>,
        handler: Arc<dyn Handler>,
        capacity: usize,
        (syncs, settling): (&Arc<Hands>, &Arc<Hands>),
        (place, sent_again): (Option<Hold>, SentAgain),
    ) -> Arc<Mount> {
        Arc::new(Mount {
            number,
            device,
            capacity,
            owed: Arc::default(),
            in_lanes: Arc::default(),
            syncs: syncs.clone(),
            settling: settling.clone(),
            lasting: handler.lasting(),
            sent_again,
            handler: RwLock::new(Some(handler)),
            gone: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            synced: AtomicBool::new(false),
            place,
            ended: Ended::default(),
        })
    }

    /// Notes that the kernel ended the connection; false when that was known.
    pub fn note_gone(&self) -> bool {
        !self.gone.swap(true, Ordering::AcqRel)
    }

    /// Takes the handler away, waits until everything is answered, and tells the handler and all who wait for the end.
    pub fn end(&self, exec: &Exec) {
        let handler = self.handler.write().take();
        self.owed.wait(exec);
        if let Some(handler) = handler {
            handler.destroy();
        }
        self.ended.tell();
    }

    /// Begins to serve; None when the mount has ended, or is paused.
    pub fn begin(&self) -> Option<Serving> {
        let handler = self.handler.read();
        // Under the lock: the end and the pause, which ask for it, see the debt.
        let handler = handler.as_ref().filter(|_| !self.is_paused());
        handler.map(|handler| Serving { handler: handler.clone(), _debt: self.owed.owe() })
    }

    /// Has nobody begin to serve.
    pub fn pause(&self) {
        let _nobody_begins = self.handler.write();
        self.paused.store(true, Ordering::Release);
    }

    /// Lets whoever asks begin to serve again.
    pub fn go_on(&self) {
        self.paused.store(false, Ordering::Release);
    }

    /// True while nothing is read from it.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// Notes that a SYNCFS came.
    pub fn note_synced(&self) {
        self.synced.store(true, Ordering::Release);
    }

    /// True when a SYNCFS ever came.
    pub fn was_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// True when requests come through io_uring.
    pub fn has_rings(&self) -> bool {
        self.place.is_some()
    }

    /// True until the kernel ended the connection.
    pub fn is_connected(&self) -> bool {
        !self.gone.load(Ordering::Acquire)
    }
}
