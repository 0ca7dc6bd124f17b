//! Bare devices as one stripe: requests that go round over the devices, as many in flight as there are jobs.

use super::rates::Direction;
use crate::files::DATA_START;
use abd::Abd;
use device::{BlockDevice, DeviceIo, DeviceOp, DeviceReply};
use exec::{Completer, Exec, Mutex, TaskClass, completion};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Load of a stripe.
#[derive(Clone, Debug)]
pub struct Load {
    /// Devices of the stripe, in order.
    pub devices: Vec<Arc<dyn BlockDevice>>,
    /// Direction of all requests.
    pub direction: Direction,
    /// Bytes of a request.
    pub request: u64,
    /// Number of jobs, each with one request in flight.
    pub jobs: usize,
    /// Nanoseconds until bytes count: by then all devices are busy.
    pub warm_ns: u64,
    /// Nanoseconds for which they count.
    pub counted_ns: u64,
    /// Number of requests of each job, at most.
    pub requests_max: u64,
}

struct Run {
    load: Load,
    data: Abd,
    exec: Exec,
    /// Times in ns from which and until which bytes count.
    counted: [u64; 2],
    bytes: AtomicU64,
    jobs_left: AtomicUsize,
    ended: Mutex<Option<Completer<()>>>,
}

impl Run {
    /// Device and offset of a request: each device is gone through from its beginning, and over again.
    fn place(&self, job: usize, number: u64) -> (usize, u64) {
        let (devices, request) = (self.load.devices.len(), self.load.request);
        let index = (job + number as usize) % devices;
        let slots = (self.load.devices[index].size_bytes().saturating_sub(2 * DATA_START) / request).max(1);
        let slot = (number / devices as u64 * self.load.jobs as u64 + job as u64) % slots;
        (index, DATA_START + slot * request)
    }

    /// Does the next request of a job, and all after it.
    fn next(self: Arc<Run>, job: usize, number: u64) {
        if number >= self.load.requests_max || self.exec.now_ns() >= self.counted[1] {
            if self.jobs_left.fetch_sub(1, Ordering::AcqRel) == 1
                && let Some(ended) = self.ended.lock().take()
            {
                ended.complete(());
            }
            return;
        }
        let (index, offset) = self.place(job, number);
        let op = match self.load.direction {
            Direction::Read => DeviceOp::read(self.load.request as usize),
            Direction::Write => DeviceOp::Write(self.data.clone()),
        };
        let own = self.clone();
        let then = move |reply: DeviceReply| {
            let now = own.exec.now_ns();
            if reply.outcome.is_ok() && (own.counted[0]..own.counted[1]).contains(&now) {
                own.bytes.fetch_add(own.load.request, Ordering::Relaxed);
            }
            if own.exec.is_inline() {
                return own.next(job, number + 1);
            }
            // A device may answer before it has returned: each request begins on a stack of its own.
            let exec = own.exec.clone();
            exec.spawn(TaskClass::Interrupt, Box::new(move || own.next(job, number + 1)));
        };
        self.load.devices[index].submit(DeviceIo::new(op, offset, then));
    }
}

/// Runs the load; returns the bytes that came or went per second while they counted.
pub fn run(exec: &Exec, load: Load) -> f64 {
    let (completer, ended) = completion();
    let begun = exec.now_ns();
    let warm = begun + load.warm_ns;
    let data = match load.direction {
        Direction::Read => Abd::default(),
        Direction::Write => Abd::from_slice(&crate::files::pattern(load.request as usize)),
    };
    let jobs = load.jobs.max(1);
    let run = Arc::new(Run {
        data,
        exec: exec.clone(),
        counted: [warm, warm.saturating_add(load.counted_ns)],
        bytes: AtomicU64::new(0),
        jobs_left: AtomicUsize::new(jobs),
        ended: Mutex::new(Some(completer)),
        load,
    });
    (0..jobs).for_each(|job| run.clone().next(job, 0));
    ended.wait(exec);
    let counted_ns = exec.now_ns().clamp(warm + 1, run.counted[1]) - warm;
    run.bytes.load(Ordering::Relaxed) as f64 * 1e9 / counted_ns as f64
}

#[cfg(test)]
mod tests {
    use super::super::modelled::{Flaw, Machine};
    use super::super::rates::{Order, Rates, drives};
    use super::*;

    /// Rates of the talk: drives of 3.5 and 2 GB/s at links of 3.94, controllers of 15.75.
    const TALK: Rates = Rates { drive: [3_500_000_000, 2_000_000_000], link: 3_940_000_000, host: 15_750_000_000 };

    fn rate_of(count: usize, order: Order, direction: Direction) -> (f64, [f64; 2]) {
        let exec: Exec = Arc::new(exec::Inline::new(3));
        let machine = Machine::new(&exec, TALK);
        let numbers = drives(count, order);
        let drive = |number: &usize| Arc::new(machine.drive(*number, 1 << 30, false, Flaw::default())) as Arc<dyn BlockDevice>;
        let devices = numbers.iter().map(drive).collect();
        let load =
            Load { devices, direction, request: 1 << 20, jobs: 64, warm_ns: 60_000_000, counted_ns: 60_000_000, requests_max: u64::MAX };
        let limits = [TALK.stripe(&numbers, direction), TALK.together(&numbers, direction)].map(|limit| limit as f64);
        (run(&exec, load), limits)
    }

    /// If this fails, the survey shows its knees where the model has none, or none where it has one.
    #[test]
    fn knees_are_where_the_model_has_them() {
        for order in [Order::Naive, Order::Aware] {
            for direction in [Direction::Read, Direction::Write] {
                for count in [1, 4, 8, 12, 16, 24] {
                    let (rate, [stripe, together]) = rate_of(count, order, direction);
                    assert!((rate / stripe - 1.0).abs() < 0.05, "{order:?} {direction:?} × {count}: {rate:.3e} of {stripe:.3e}");
                    assert!(order == Order::Naive || rate > 0.95 * together, "{direction:?} × {count}: {rate:.3e} of {together:.3e}");
                }
            }
        }
    }
}
