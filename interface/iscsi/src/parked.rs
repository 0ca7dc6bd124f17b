//! Jobs of a connection that wait for a unit and have little to do afterwards: they go on where the connection is driven, and not in tasks of their own, which
//! would have to be begun, and woken to wake it.

use crate::full::{Finished, Job};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tokio::sync::mpsc;

/// Bell of one job: tells its number to whoever drives the connection.
struct Bell {
    number: u64,
    rung: mpsc::UnboundedSender<u64>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The connection may have ended.
        let _ = self.rung.send(self.number);
    }
}

/// Jobs that wait, by their numbers.
pub(crate) struct Parked {
    jobs: HashMap<u64, (Job, Waker)>,
    next: u64,
    rung: mpsc::UnboundedSender<u64>,
}

impl Parked {
    /// An empty set, and the way by which the numbers of jobs come that can go on.
    pub(crate) fn new() -> (Parked, mpsc::UnboundedReceiver<u64>) {
        let (rung, numbers) = mpsc::unbounded_channel();
        (Parked { jobs: HashMap::new(), next: 0, rung }, numbers)
    }

    /// Adds a job; gives its result when it has one by now.
    pub(crate) fn add(&mut self, job: Job) -> Option<Finished> {
        let number = self.next;
        self.next += 1;
        let bell = Waker::from(Arc::new(Bell { number, rung: self.rung.clone() }));
        self.jobs.insert(number, (job, bell));
        self.go_on(number)
    }

    /// Goes on with a job, if it waits; gives its result when it is through.
    pub(crate) fn go_on(&mut self, number: u64) -> Option<Finished> {
        let (job, bell) = self.jobs.get_mut(&number)?;
        let polled = Pin::new(job).poll(&mut Context::from_waker(bell));
        match polled {
            Poll::Ready(finished) => {
                self.jobs.remove(&number);
                Some(finished)
            }
            Poll::Pending => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Body;
    use crate::full::Ended;
    use crate::scsi::command::Outcome;
    use tokio::sync::oneshot;

    /// If this fails, an answer of a unit is never given to the initiator, or another's is.
    #[test]
    fn each_job_goes_on_when_its_answer_is_there_and_no_other() {
        let (mut parked, mut numbers) = Parked::new();
        let mut senders = Vec::new();
        for tag in 0..3 {
            let (sender, receiver) = oneshot::channel::<()>();
            let job = Job::new(async move {
                let _ = receiver.await;
                Finished(Ended::Task { tag, serial: 0, outcome: Outcome::good(Body::default()) })
            });
            assert!(parked.add(job).is_none());
            senders.push(sender);
        }
        assert!(numbers.try_recv().is_err());
        for tag in [1, 2, 0u32] {
            let sender = std::mem::replace(&mut senders[tag as usize], oneshot::channel().0);
            sender.send(()).expect("it waits");
            let number = numbers.try_recv().expect("its bell rang");
            let finished = parked.go_on(number).expect("it is through");
            assert!(matches!(finished.0, Ended::Task { tag: of, .. } if of == tag));
            assert!(parked.go_on(number).is_none() && numbers.try_recv().is_err(), "once");
        }
        let (sender, receiver) = oneshot::channel::<()>();
        drop(sender);
        let job = Job::new(async move {
            let _ = receiver.await;
            Finished(Ended::Task { tag: 9, serial: 0, outcome: Outcome::good(Body::default()) })
        });
        assert!(parked.add(job).is_some(), "it did not have to wait");
    }
}
