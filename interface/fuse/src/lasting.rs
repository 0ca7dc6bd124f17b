//! Mounts that outlive their server: what such a file system says of requests that its kernel sends again to the next server, and when an answer
//! may be given (docs/adr/0018).
//!
//! Invariants: an answer is given when nothing that it tells of goes with the server; a request that another server did is not done twice
//! where that would show.

use crate::Reply;
use crate::abi;
use crate::node::NodeId;
use exec::Hands;
use std::any::Any;
use std::sync::Arc;

/// Guard of a request that is under way: it lasts until the kernel has the answer.
pub type Underway = Box<dyn Any + Send>;

/// Outcome of a request that another server did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Node that it made.
    pub node: NodeId,
    /// Number of bytes that it wrote.
    pub bytes: u64,
}

/// File system whose mounts outlive their server.
pub trait Lasting: Send + Sync {
    /// Begins a request, by the kernel's number of it, that is served by this thread. What is changed from now on is the request's.
    fn begin(&self, unique: u64) -> Underway;
    /// Notes that this thread does nothing more for the request that it began last; others may.
    fn left(&self) {}
    /// Outcome of a request that another server did; None when it is to be done.
    fn done_before(&self, unique: u64) -> Option<Done>;
    /// True when nothing that was done so far goes with the server. Waits for nothing.
    fn is_settled(&self) -> bool;
    /// Waits until what was done so far does not go with the server.
    ///
    /// # Errors
    /// The errno for whoever asked: what was done may be gone.
    fn wait_settled(&self) -> Reply<()>;
}

/// Rest of a request of a mount that outlives its server, until it is answered.
#[derive(Default)]
pub(crate) struct Rest(Option<(Arc<dyn Lasting>, Arc<Hands>, Underway)>);

impl Rest {
    /// Begins a request.
    pub fn begin(lasting: Option<&Arc<dyn Lasting>>, hands: &Arc<Hands>, unique: u64) -> Rest {
        Rest(lasting.map(|lasting| (lasting.clone(), hands.clone(), lasting.begin(unique & !abi::RESENT))))
    }

    /// True when the answer has to wait.
    pub fn waits(&self) -> bool {
        self.0.as_ref().is_some_and(|(lasting, ..)| !lasting.is_settled())
    }

    /// Runs `send`, which gives the answer, or an error instead of it, when that may be given: now, or later on another thread. Waits for nothing.
    pub fn settle(self, send: impl FnOnce(Reply<()>) + Send + 'static) {
        match self.0 {
            Some((lasting, hands, underway)) if !lasting.is_settled() => hands.give(Box::new(move || {
                send(lasting.wait_settled());
                drop(underway);
            })),
            rest => {
                send(Ok(()));
                drop(rest);
            }
        }
    }
}

/// Outcome that another server had with a request, where it is one that was sent again and was done.
pub(crate) fn done_before(lasting: Option<&Arc<dyn Lasting>>, unique: u64) -> Option<Done> {
    if unique & abi::RESENT == 0 { None } else { lasting?.done_before(unique & !abi::RESENT) }
}
