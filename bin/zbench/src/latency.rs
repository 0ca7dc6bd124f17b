//! A device in memory whose reads and writes take a given time, as many of them at once as are asked for: a fast NVMe for counting
//! what a thread can keep in flight. A thread of its own sleeps until the next completion is due and delivers it.

use device::{BlockDevice, DeviceFacts, DeviceIo, DeviceReply, MemDevice};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

type Due = (Instant, Box<dyn FnOnce() + Send>);

#[derive(Default)]
struct Queue {
    /// I/Os that wait, in order: every one takes the same time.
    waiting: VecDeque<Due>,
    ended: bool,
}

/// Device in memory whose I/Os take a given time.
pub struct LatencyDevice {
    inner: MemDevice,
    latency: Duration,
    shared: Arc<(Mutex<Queue>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for LatencyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LatencyDevice({:?}, {:?})", self.inner.facts().path, self.latency)
    }
}

impl LatencyDevice {
    /// Makes a device of `size_bytes` of zeros; every read and write takes `latency`.
    pub fn new(name: &str, size_bytes: usize, latency: Duration) -> LatencyDevice {
        let shared = Arc::new((Mutex::new(Queue::default()), Condvar::new()));
        let served = shared.clone();
        let thread = std::thread::spawn(move || serve(&served));
        let facts = DeviceFacts { physical_sector_bytes: 4096, ..DeviceFacts::solid(name, "latency") };
        LatencyDevice { inner: MemDevice::new(name, size_bytes).with_facts(facts), latency, shared, thread: Some(thread) }
    }
}

fn serve(shared: &(Mutex<Queue>, Condvar)) {
    // Without this the kernel rounds sleeps up by 50 µs.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let (queue, changed) = shared;
    loop {
        let (at, deliver) = {
            let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                if let Some(due) = queue.waiting.pop_front() {
                    break due;
                }
                if queue.ended {
                    return;
                }
                queue = changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        };
        let now = Instant::now();
        if at > now {
            std::thread::sleep(at - now);
        }
        deliver();
    }
}

impl Drop for LatencyDevice {
    fn drop(&mut self) {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.shared.1.notify_one();
        // The last reference may go on the device's own thread.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl BlockDevice for LatencyDevice {
    fn submit(&self, io: DeviceIo) {
        let at = Instant::now() + self.latency;
        let DeviceIo { op, offset, then, .. } = io;
        let shared = self.shared.clone();
        let later = move |reply: DeviceReply| {
            let (queue, changed) = &*shared;
            queue.lock().unwrap_or_else(PoisonError::into_inner).waiting.push_back((at, Box::new(move || then(reply))));
            changed.notify_one();
        };
        self.inner.submit(DeviceIo::new(op, offset, later));
    }

    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abd::Abd;
    use device::DeviceOp;
    use std::sync::mpsc;

    /// A simulated device that answers early would make every depth look alike.
    #[test]
    fn every_request_is_answered_and_none_early() {
        let device = LatencyDevice::new("slow", 1 << 20, Duration::from_millis(20));
        let (told, replies) = mpsc::channel();
        let begun = Instant::now();
        for index in 0..8u64 {
            let told = told.clone();
            let then = move |reply: DeviceReply| told.send(reply.outcome).expect("a receiver");
            device.submit(DeviceIo::new(DeviceOp::Write(Abd::from_slice(&[7; 4096])), index * 4096, then));
        }
        for _ in 0..8 {
            replies.recv().expect("an answer").expect("written");
        }
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }
}
