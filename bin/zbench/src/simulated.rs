//! NVMe devices in memory that take the time that the scheduler's model of one takes ([`crate::world::Nvme`]: flash channels, a link,
//! a buffer for writes), each time so many times as long: then the processors of a small machine can drive many of them, and the devices
//! decide what is measured. Unlike loop devices under a cap they have no time slices of their own, so that latencies mean something.
//!
//! Time and answers have a thread each. The first owns the models and asks the engine for nothing, so that no lock that the engine holds makes
//! a device late; the second calls back, as the thread of a ring of the kernel's does, and what it is kept from by the engine delays answers only.

use crate::subject::Opener;
use crate::world::{Model, Nvme};
use device::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp, DeviceReply, MemDevice};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};
use vdev_queue::{Class, IoKind, Issue, IssueId};

/// Bytes that the model's device reads and writes in a second.
const BANDWIDTH: [u64; 2] = [3414 << 20, 1800 << 20];
/// Pause between the looks of the thread of time while anything is under way; what ended meanwhile is delivered together.
const STEP: Duration = Duration::from_micros(100);

type Deliver = Box<dyn FnOnce() + Send>;

/// Command of an I/O on its way to its device.
struct Command {
    device: usize,
    kind: IoKind,
    offset: u64,
    size_bytes: u64,
    /// Time of the submission in virtual nanoseconds.
    at: u64,
    deliver: Deliver,
}

/// Totals of one device: bytes read, bytes written, I/Os in flight.
#[derive(Default)]
struct Totals {
    bytes: [AtomicU64; 2],
    in_flight: AtomicU64,
}

struct Shared {
    totals: Vec<Totals>,
    /// True when I/Os take their time, false when none.
    timed: AtomicBool,
    begun: Instant,
    slower: u64,
}

impl Shared {
    /// Time now, in virtual nanoseconds.
    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64 / self.slower
    }
}

/// Starts a thread that does not wait for a processor: the engine's work must not make a device late (Linux: this thread only; needs root).
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) {
    let preferred = move || {
        // Without this the kernel rounds sleeps up by 50 µs.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let _ = rustix::process::setpriority_process(None, -20);
        run();
    };
    std::thread::Builder::new().name(name.to_string()).spawn(preferred).expect("a thread");
}

/// Models of the devices, owned by the thread of time.
struct Models {
    shared: Arc<Shared>,
    models: Vec<Nvme>,
    waiting: HashMap<IssueId, (usize, Deliver)>,
    next_id: u64,
}

impl Models {
    /// Serves commands until all who could send some are gone.
    fn serve(mut self, commands: &Receiver<Command>, answers: &Sender<Deliver>) {
        loop {
            if self.waiting.is_empty() {
                let Ok(command) = commands.recv() else { return };
                self.submit(command);
            }
            commands.try_iter().for_each(|command| self.submit(command));
            for deliver in self.over() {
                let _ = answers.send(deliver);
            }
            if !self.waiting.is_empty() {
                std::thread::sleep(STEP);
            }
        }
    }

    fn submit(&mut self, command: Command) {
        let Command { device, kind, offset, size_bytes, at, deliver } = command;
        self.next_id += 1;
        let id = IssueId(self.next_id);
        let class = if kind == IoKind::Read { Class::SyncRead } else { Class::SyncWrite };
        self.waiting.insert(id, (device, deliver));
        let issue = Issue { id, class, kind, offset, size_bytes, queued_ns: 0, parts: Vec::new(), needless: false };
        self.models[device].submit(&issue, at);
        self.models[device].kick(at);
    }

    /// Takes what ended until now.
    fn over(&mut self) -> Vec<Deliver> {
        let (now, mut ended) = (self.shared.now(), Vec::new());
        self.models.iter_mut().for_each(|model| model.advance(now, &mut ended));
        let mut over = Vec::with_capacity(ended.len());
        for id in ended {
            if let Some((device, deliver)) = self.waiting.remove(&id) {
                self.shared.totals[device].in_flight.fetch_sub(1, Ordering::Relaxed);
                over.push(deliver);
            }
        }
        over
    }
}

/// Device of a set.
struct SimulatedNvme {
    inner: MemDevice,
    index: usize,
    shared: Arc<Shared>,
    commands: Sender<Command>,
}

impl SimulatedNvme {
    /// Has `deliver` called when the model's device would have ended it.
    fn later(index: usize, shared: &Shared, commands: &Sender<Command>, kind: IoKind, (offset, size_bytes): (u64, u64), deliver: Deliver) {
        let totals = &shared.totals[index];
        totals.bytes[usize::from(kind == IoKind::Write)].fetch_add(size_bytes, Ordering::Relaxed);
        if !shared.timed.load(Ordering::Relaxed) {
            return deliver();
        }
        totals.in_flight.fetch_add(1, Ordering::Relaxed);
        // The thread of time ends after the last device only.
        let _ = commands.send(Command { device: index, kind, offset, size_bytes, at: shared.now(), deliver });
    }
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
        let DeviceIo { op, offset, then, .. } = io;
        let (length, shared, commands, index) = (op.length_bytes(), self.shared.clone(), self.commands.clone(), self.index);
        let later = move |reply: DeviceReply| {
            SimulatedNvme::later(index, &shared, &commands, kind, (offset, length), Box::new(move || then(reply)));
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

/// Set of devices that share their threads, which end after the last device.
pub struct Simulated {
    devices: Vec<Arc<SimulatedNvme>>,
    shared: Arc<Shared>,
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Simulated({})", self.devices.len())
    }
}

impl Simulated {
    /// Makes `count` devices of `bytes` zeros, `nvme00`, `nvme01`, …, for which everything takes `slower` × as long as in the model.
    pub fn create(count: usize, bytes: u64, slower: u64) -> Simulated {
        let totals = (0..count).map(|_| Totals::default()).collect();
        let shared = Arc::new(Shared { totals, timed: AtomicBool::new(false), begun: Instant::now(), slower: slower.max(1) });
        let (commands, begun) = mpsc::channel();
        let (answers, over) = mpsc::channel::<Deliver>();
        let models = (0..count).map(|_| Nvme::default()).collect();
        let models = Models { shared: shared.clone(), models, waiting: HashMap::new(), next_id: 0 };
        spawn("z-devices", move || models.serve(&begun, &answers));
        spawn("z-answers", move || over.into_iter().for_each(|deliver| deliver()));
        let device = |index: usize| {
            let name = format!("nvme{index:02}");
            let facts = DeviceFacts { physical_sector_bytes: 4096, ..DeviceFacts::solid(&name, "simulated") };
            let inner = MemDevice::new(&name, bytes as usize).with_facts(facts);
            Arc::new(SimulatedNvme { inner, index, shared: shared.clone(), commands: commands.clone() })
        };
        Simulated { devices: (0..count).map(device).collect(), shared }
    }

    /// Device with this number.
    pub fn device(&self, index: usize) -> Arc<dyn BlockDevice> {
        self.devices[index].clone()
    }

    /// Names of the devices, as paths.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.devices.iter().map(|device| device.facts().path.clone()).collect()
    }

    /// Opener of the devices by their names.
    pub fn opener(self: &Arc<Self>) -> Opener {
        let (set, paths) = (self.clone(), self.paths());
        Opener::new(move |path: &Path| {
            let index = paths.iter().position(|known| known == path).ok_or_else(|| format!("{}: no such device", path.display()))?;
            Ok(set.device(index))
        })
    }

    /// Bytes per second that each device reads and writes.
    pub fn bandwidth(&self) -> [u64; 2] {
        BANDWIDTH.map(|bandwidth| bandwidth / self.shared.slower)
    }

    /// Sets whether I/Os take their time, or none.
    pub fn take_time(&self, timed: bool) {
        self.shared.timed.store(timed, Ordering::Relaxed);
    }

    /// Overwrites all of a device.
    pub fn wipe(&self, index: usize) {
        self.devices[index].inner.tamper(|bytes| bytes.fill(0xA5));
    }

    /// Totals of a device: bytes read, bytes written, I/Os in flight.
    pub fn totals(&self, index: usize) -> [u64; 3] {
        let Totals { bytes: [read, written], in_flight } = &self.shared.totals[index];
        [read, written, in_flight].map(|count| count.load(Ordering::Relaxed))
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
