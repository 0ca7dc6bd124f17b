//! NVMe devices in memory that take the time that the scheduler's model of one takes ([`crate::world::Nvme`]: flash channels, a link,
//! a buffer for writes), each time so many times as long: then the processors of a small machine can drive many of them, and the devices
//! decide what is measured. Unlike loop devices under a cap they have no time slices of their own, so that latencies mean something.
//!
//! One thread stands for all devices of a set: it sleeps until something happens in one of them, and delivers what ended.

use crate::world::{Model, Nvme};
use device::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp, DeviceReply, MemDevice};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vdev_queue::{Class, IoKind, Issue, IssueId};

/// What the model's device reads and writes in a second.
const BANDWIDTH: [u64; 2] = [3414 << 20, 1800 << 20];
/// The thread does not wake up more often; what ends meanwhile is delivered together.
const STEP: Duration = Duration::from_micros(100);

type Deliver = Box<dyn FnOnce() + Send>;

struct State {
    models: Vec<Nvme>,
    waiting: HashMap<IssueId, (usize, Deliver)>,
    next_id: u64,
    /// Bytes read, bytes written, I/Os in flight of each.
    totals: Vec<[u64; 3]>,
    /// When the thread wakes up by itself.
    wakes: Option<Instant>,
    /// False: I/Os take no time.
    timed: bool,
    ended: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    begun: Instant,
    slower: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Virtual nanoseconds.
    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64 / self.slower
    }

    fn instant(&self, virtual_ns: u64) -> Instant {
        self.begun + Duration::from_nanos(virtual_ns * self.slower)
    }

    /// The thread.
    fn serve(&self) {
        // Without this the kernel rounds sleeps up by 50 µs.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        // A device does not wait for a processor: the engine's work must not make it late (Linux: this thread only; needs root).
        let _ = rustix::process::setpriority_process(None, -20);
        let mut state = self.lock();
        while !state.ended {
            let over = self.over(&mut state);
            if !over.is_empty() {
                drop(state);
                over.into_iter().for_each(|deliver| deliver());
                std::thread::sleep(STEP);
                state = self.lock();
                continue;
            }
            let next = state.models.iter().filter_map(Nvme::next_event).min().map(|at| self.instant(at));
            state.wakes = next;
            state = match next.map(|at| at.saturating_duration_since(Instant::now()).max(STEP)) {
                Some(wait) => self.changed.wait_timeout(state, wait).map_or_else(|broken| broken.into_inner().0, |(state, _)| state),
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// What ended until now.
    fn over(&self, state: &mut State) -> Vec<Deliver> {
        let (now, mut ended) = (self.now(), Vec::new());
        state.models.iter_mut().for_each(|model| model.advance(now, &mut ended));
        let mut over = Vec::with_capacity(ended.len());
        for id in ended {
            if let Some((device, deliver)) = state.waiting.remove(&id) {
                state.totals[device][2] -= 1;
                over.push(deliver);
            }
        }
        over
    }

    /// Has `deliver` called when the model's device would have ended it.
    fn later(&self, device: usize, kind: IoKind, (offset, size_bytes): (u64, u64), deliver: Deliver) {
        let mut state = self.lock();
        let direction = usize::from(kind == IoKind::Write);
        state.totals[device][direction] += size_bytes;
        if !state.timed {
            drop(state);
            return deliver();
        }
        state.totals[device][2] += 1;
        state.next_id += 1;
        let id = IssueId(state.next_id);
        let class = if kind == IoKind::Read { Class::SyncRead } else { Class::SyncWrite };
        let issue = Issue { id, class, kind, offset, size_bytes, queued_ns: 0, parts: Vec::new(), needless: false };
        let now = self.now();
        state.waiting.insert(id, (device, deliver));
        let model = &mut state.models[device];
        model.submit(&issue, now);
        model.kick(now);
        let sooner = model.next_event().map(|at| self.instant(at));
        if state.wakes.is_none_or(|wakes| sooner.is_some_and(|sooner| sooner < wakes)) {
            state.wakes = sooner;
            self.changed.notify_one();
        }
    }
}

/// One device of a set.
struct SimulatedNvme {
    inner: MemDevice,
    index: usize,
    shared: Arc<Shared>,
}

impl fmt::Debug for SimulatedNvme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedNvme({:?})", self.inner.facts().path)
    }
}

impl BlockDevice for SimulatedNvme {
    fn submit(&self, io: DeviceIo) {
        let kind = match &io.op {
            DeviceOp::Read(_) => Some(IoKind::Read),
            DeviceOp::Write(_) => Some(IoKind::Write),
            DeviceOp::Flush | DeviceOp::Trim { .. } => None,
        };
        let Some(kind) = kind else { return self.inner.submit(io) };
        let DeviceIo { op, offset, then } = io;
        let (length, shared, index) = (op.length_bytes(), self.shared.clone(), self.index);
        let later = move |reply: DeviceReply| shared.later(index, kind, (offset, length), Box::new(move || then(reply)));
        self.inner.submit(DeviceIo::new(op, offset, later));
    }

    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
}

/// Devices that share a thread.
pub struct Simulated {
    devices: Vec<Arc<SimulatedNvme>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Simulated({})", self.devices.len())
    }
}

impl Simulated {
    /// `count` devices of `bytes` zeros, `nvme00`, `nvme01`, …, for which everything takes `slower` × as long as in the model.
    pub fn create(count: usize, bytes: u64, slower: u64) -> Simulated {
        let state = State {
            models: (0..count).map(|_| Nvme::default()).collect(),
            waiting: HashMap::new(),
            next_id: 0,
            totals: vec![[0; 3]; count],
            wakes: None,
            timed: false,
            ended: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), begun: Instant::now(), slower: slower.max(1) });
        let device = |index: usize| {
            let name = format!("nvme{index:02}");
            let facts = DeviceFacts { physical_sector_bytes: 4096, ..DeviceFacts::solid(&name, "simulated") };
            let inner = MemDevice::new(&name, bytes as usize).with_facts(facts);
            Arc::new(SimulatedNvme { inner, index, shared: shared.clone() })
        };
        let served = shared.clone();
        let thread = std::thread::spawn(move || served.serve());
        Simulated { devices: (0..count).map(device).collect(), shared, thread: Some(thread) }
    }

    /// The device with this number.
    pub fn device(&self, index: usize) -> Arc<dyn BlockDevice> {
        self.devices[index].clone()
    }

    /// Bytes per second that each reads and writes.
    pub fn bandwidth(&self) -> [u64; 2] {
        BANDWIDTH.map(|bandwidth| bandwidth / self.shared.slower)
    }

    /// Whether I/Os take their time, or none.
    pub fn take_time(&self, timed: bool) {
        self.shared.lock().timed = timed;
    }

    /// Overwrites all of a device.
    pub fn wipe(&self, index: usize) {
        self.devices[index].inner.tamper(|bytes| bytes.fill(0xA5));
    }

    /// Bytes read, bytes written, I/Os in flight.
    pub fn totals(&self, index: usize) -> [u64; 3] {
        self.shared.lock().totals[index]
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abd::Abd;
    use std::sync::mpsc;

    /// Devices that are faster than they say would make every recovery look slow, and slower ones every recovery look perfect.
    #[test]
    fn a_device_has_the_bandwidth_that_it_says() {
        let set = Simulated::create(2, 16 << 20, 20);
        set.take_time(true);
        let (told, replies) = mpsc::channel();
        let begun = Instant::now();
        for offset in (0..16u64 << 20).step_by(1 << 20) {
            let told = told.clone();
            let then = move |reply: DeviceReply| told.send(reply.outcome).expect("a receiver");
            set.device(1).submit(DeviceIo::new(DeviceOp::read(1 << 20), offset, then));
        }
        (0..16).for_each(|_| replies.recv().expect("an answer").expect("read"));
        let least = (16u64 << 20) as f64 / set.bandwidth()[0] as f64;
        assert!(begun.elapsed().as_secs_f64() >= least, "{:?} of {least} s", begun.elapsed());
        assert_eq!(set.totals(1), [16 << 20, 0, 0]);
        set.device(0).submit(DeviceIo::new(DeviceOp::Write(Abd::from_slice(&[7; 4096])), 0, move |reply: DeviceReply| {
            told.send(reply.outcome).expect("a receiver");
        }));
        replies.recv().expect("an answer").expect("written");
        set.wipe(0);
        set.take_time(false);
        let (told, read) = mpsc::channel();
        set.device(0)
            .submit(DeviceIo::new(DeviceOp::read(4096), 0, move |reply: DeviceReply| told.send(reply.into_abd()).expect("a receiver")));
        assert_eq!(read.recv().expect("an answer").expect("read").to_vec(), vec![0xA5; 4096]);
    }
}
