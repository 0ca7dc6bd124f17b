//! Work of requests, on threads of the engine that may wait: where the system starts none, those that are kept, and else who asked is told.
//!
//! Threads for blocking work of the runtime are none for this: what finds none waits there for another's end, which may never come.

use control_api::{ErrorKind, Failure};
use exec::Exec;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Pause between looks whether work has ended.
const LOOK: Duration = Duration::from_millis(5);
/// Pieces of work that the daemon's end waits for.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// Asker for a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// User of the daemon, or the daemon itself: some at a time get threads that are kept, and the daemon's end waits for them.
    Owner,
    /// Somebody whom the owner allowed it: the daemon's end waits, too.
    Delegate,
    /// Anybody, with a question: it holds up nobody's stop.
    Anybody,
}

/// Guard: a piece of work is under way as long as it lives.
struct UnderWay;

impl UnderWay {
    fn begin() -> UnderWay {
        UNDER_WAY.fetch_add(1, Ordering::AcqRel);
        UnderWay
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Begins a piece of work.
///
/// # Errors
/// That there is no thread for it; nothing was done.
pub fn begin(exec: &Exec, asker: Asker, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let under_way = (asker != Asker::Anybody).then(UnderWay::begin);
    let job = move || {
        let _under_way = under_way;
        work();
    };
    let begun = if asker == Asker::Owner { exec.enter("z-request", Box::new(job)) } else { exec.spawn_alone("z-request", Box::new(job)) };
    begun.map(drop).map_err(|_| control::no_thread("the request failed"))
}

/// Does a piece of work, and waits for what comes of it.
///
/// # Errors
/// That there is no thread for it; a defect.
pub async fn done<T: Send + 'static>(exec: &Exec, asker: Asker, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let (told, outcome) = oneshot::channel();
    begin(exec, asker, move || {
        // Who asked may be gone.
        drop(told.send(work()));
    })?;
    outcome.await.map_err(|_| {
        Failure::new(ErrorKind::Internal, "the request failed", "a defect in the daemon: its work ended without an answer")
            .advise("the daemon goes on; please report this with its log")
    })
}

/// Waits for the end of what is under way, but no longer than this.
pub fn rest(time: Duration) {
    let until = Instant::now() + time;
    while UNDER_WAY.load(Ordering::Acquire) > 0 && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
}
