//! Answers that come later: a handler may keep an [`Answer`] and send it from any thread, so that a request whose disks are
//! busy occupies no thread.
//!
//! Invariants: every answer is sent exactly once (one that is dropped says EIO); the session ends only when none is owed.

use crate::{Errno, Reply};
use exec::{Exec, WaitQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Right and duty to answer one request.
pub struct Answer<T>(Option<Box<dyn FnOnce(Reply<T>) + Send>>);

impl<T> Answer<T> {
    /// Makes an answer that `send` delivers; it must not wait.
    pub fn new(send: impl FnOnce(Reply<T>) + Send + 'static) -> Answer<T> {
        Answer(Some(Box::new(send)))
    }

    /// Sends the answer.
    pub fn send(mut self, reply: Reply<T>) {
        if let Some(send) = self.0.take() {
            send(reply);
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if let Some(send) = self.0.take() {
            send(Err(Errno::EIO));
        }
    }
}

impl<T> std::fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Answer {{ sent: {} }}", self.0.is_none())
    }
}

/// Number of answers that are owed.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    count: AtomicUsize,
    paid: WaitQueue,
}

impl Owed {
    /// Counts one more, until the guard drops.
    pub fn owe(self: &Arc<Self>) -> Debt {
        self.count.fetch_add(1, Ordering::AcqRel);
        Debt(self.clone())
    }

    /// True when nothing is owed.
    pub fn is_paid(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Number of answers that are owed.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Waits until nothing is owed.
    pub fn wait(&self, exec: &Exec) {
        self.paid.wait_until(exec, &|| self.is_paid());
    }
}

/// Guard of an answer that is owed.
pub(crate) struct Debt(Arc<Owed>);

impl Drop for Debt {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.paid.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Owed};
    use crate::Errno;
    use std::sync::{Arc, mpsc};

    /// A request whose handler lost its answer would hang its caller, and with it every unmount.
    #[test]
    fn a_lost_answer_says_so_and_an_answer_is_sent_once() {
        let (sender, receiver) = mpsc::channel();
        let owed = Arc::new(Owed::default());
        let make = || {
            let (sender, debt) = (sender.clone(), owed.owe());
            Answer::new(move |reply: Result<u32, Errno>| {
                let _debt = debt;
                sender.send(reply).expect("the receiver is there");
            })
        };
        drop(make());
        make().send(Ok(7));
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [Err(Errno::EIO), Ok(7)]);
        let exec: exec::Exec = Arc::new(exec::Inline::new(1));
        owed.wait(&exec);
    }
}
