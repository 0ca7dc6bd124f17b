//! The simulated machine and its devices.

use crate::fault::{Armed, Fault, FaultKind, OpKind};
use crate::pages::Image;
use crate::record::{DeviceIndex, Event, Recording, WriteId};
use device::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, DeviceReply};
use exec::{Exec, Mutex, SplitMix, TaskClass};
use std::fmt;
use std::sync::Arc;

/// Time that operations take, in nanoseconds of the executor's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Shortest time in nanoseconds.
    pub least_ns: u64,
    /// Longest time in nanoseconds; each operation's latency is chosen between the two by the seed.
    pub most_ns: u64,
}

impl Latency {
    /// Operations complete as soon as the executor runs their job.
    pub const NONE: Latency = Latency { least_ns: 0, most_ns: 0 };
}

struct World {
    random: SplitMix,
    latency: Latency,
    writes_durably: bool,
    faults: Vec<Armed>,
    hung: Vec<(Arc<SimDevice>, DeviceIo)>,
    operations: u64,
    trace_hash: u64,
    traced: bool,
    powered: bool,
    recording: Option<Recording>,
    devices: Vec<Image>,
}

impl World {
    fn note(&mut self, words: &[u64]) {
        for word in words.iter().filter(|_| self.traced) {
            self.trace_hash = (self.trace_hash ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29);
        }
    }

    fn fault_of(&mut self, device: DeviceIndex, op: OpKind, offset: u64) -> Option<FaultKind> {
        // Every fault counts every operation that matches it, whether or not another one strikes first.
        let mut struck = None;
        for armed in &mut self.faults {
            if armed.befalls(device, op, offset) {
                struck = struck.or(Some(armed.fault.kind));
            }
        }
        struck
    }

    fn record(&mut self, event: Event) -> usize {
        let Some(recording) = &mut self.recording else { return 0 };
        recording.events.push(event);
        recording.events.len()
    }
}

/// A machine of simulated devices; clones are the same machine.
#[derive(Clone)]
pub struct Sim {
    exec: Exec,
    world: Arc<Mutex<World>>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.world.lock();
        f.debug_struct("Sim").field("operations", &world.operations).field("devices", &world.devices.len()).finish_non_exhaustive()
    }
}

impl Sim {
    /// A machine without devices whose choices follow from `seed`. Operations complete as jobs of `exec`.
    pub fn new(exec: &Exec, seed: u64) -> Sim {
        let world = World {
            random: SplitMix::new(seed),
            latency: Latency::NONE,
            writes_durably: false,
            faults: Vec::new(),
            hung: Vec::new(),
            operations: 0,
            trace_hash: 0xCBF2_9CE4_8422_2325,
            traced: true,
            powered: true,
            recording: None,
            devices: Vec::new(),
        };
        Sim { exec: exec.clone(), world: Arc::new(Mutex::new(world)) }
    }

    /// A device of `size_bytes` zeros called `name`.
    pub fn device(&self, name: &str, size_bytes: usize) -> Arc<SimDevice> {
        self.device_from(name, Image::new(size_bytes))
    }

    /// A device that holds `image`, such as one a crash left.
    pub fn device_from(&self, name: &str, image: Image) -> Arc<SimDevice> {
        let mut world = self.world.lock();
        let index = world.devices.len();
        let size_bytes = image.size_bytes() as u64;
        if let Some(recording) = &mut world.recording {
            recording.initial.push(image.clone());
        }
        world.devices.push(image);
        let facts = DeviceFacts::solid(name, "sim");
        Arc::new_cyclic(|own| SimDevice { own: own.clone(), sim: self.clone(), index, size_bytes, facts })
    }

    /// Sets how long operations take from now on.
    pub fn set_latency(&self, latency: Latency) {
        self.world.lock().latency = latency;
    }

    /// Lets devices write durably in one step from now on.
    pub fn set_writes_durably(&self) {
        self.world.lock().writes_durably = true;
    }

    /// Arms a fault; of several that strike the same operation the one armed first counts.
    pub fn arm(&self, fault: Fault) {
        self.world.lock().faults.push(Armed::new(fault));
    }

    /// Disarms all faults.
    pub fn disarm(&self) {
        self.world.lock().faults.clear();
    }

    /// Ends every hanging operation with [`DeviceError::TimedOut`]; returns how many there were.
    pub fn release_hung(&self) -> usize {
        let hung = std::mem::take(&mut self.world.lock().hung);
        let count = hung.len();
        hung.into_iter().for_each(|(_, io)| io.fail(DeviceError::TimedOut));
        count
    }

    /// From now on nothing reaches the devices: operations in flight and new ones fail with [`DeviceError::Gone`].
    pub fn power_off(&self) {
        self.world.lock().powered = false;
    }

    /// Number of operations that were submitted to all devices.
    pub fn operations(&self) -> u64 {
        self.world.lock().operations
    }

    /// A number that depends on every operation so far: kind, device, offset, length, data of writes, and their order.
    pub fn trace_hash(&self) -> u64 {
        self.world.lock().trace_hash
    }

    /// From now on operations don't change [`Sim::trace_hash`]: reading all that is written takes time.
    pub fn stop_tracing(&self) {
        self.world.lock().traced = false;
    }

    /// Starts to record writes and flushes; what the devices hold now is where the recording begins. No write may be in
    /// flight.
    pub fn start_recording(&self) {
        let mut world = self.world.lock();
        world.recording = Some(Recording { initial: world.devices.clone(), ..Recording::default() });
    }

    /// Notes in the recording that the program reached `mark`.
    pub fn mark(&self, mark: u64) {
        self.world.lock().record(Event::Mark(mark));
    }

    /// Ends the recording and returns it (an empty one when none was started).
    pub fn take_recording(&self) -> Recording {
        self.world.lock().recording.take().unwrap_or_default()
    }
}

/// A device of a [`Sim`].
pub struct SimDevice {
    own: std::sync::Weak<SimDevice>,
    sim: Sim,
    index: DeviceIndex,
    size_bytes: u64,
    facts: DeviceFacts,
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDevice").field("name", &self.facts.path).field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

/// Decision of a submission about an operation.
struct Decided {
    fault: Option<FaultKind>,
    write: Option<WriteId>,
    /// Number of recorded events when a flush was submitted.
    recorded: usize,
    delay_ns: u64,
}

impl SimDevice {
    /// Number of the device in its simulation.
    pub fn index(&self) -> DeviceIndex {
        self.index
    }

    /// Image of what the device holds now, durable or not.
    pub fn image(&self) -> Image {
        self.sim.world.lock().devices[self.index].clone()
    }

    /// True when the device holds zeros only.
    pub fn is_blank(&self) -> bool {
        self.sim.world.lock().devices[self.index].written().next().is_none()
    }

    /// Changes what the device holds behind everybody's back: silent corruption.
    pub fn tamper(&self, change: impl FnOnce(&mut Image)) {
        change(&mut self.sim.world.lock().devices[self.index]);
    }

    /// Counts, hashes and records the operation, and chooses its fate; none when the machine is off.
    fn decide(&self, io: &DeviceIo) -> Option<Decided> {
        let mut world = self.sim.world.lock();
        if !world.powered {
            return None;
        }
        let kind = OpKind::of(&io.op);
        world.operations += 1;
        world.note(&[kind as u64, self.index as u64, io.offset, io.op.length_bytes()]);
        let fault = world.fault_of(self.index, kind, io.offset);
        let mut write = None;
        if let (DeviceOp::Write(data), false) = (&io.op, fault == Some(FaultKind::Lie)) {
            if world.traced {
                let hash = data.fold(0, |hash, bytes| Some(abd::fingerprint(hash, bytes))).unwrap_or_default();
                world.note(&[hash]);
            }
            if let Some(recording) = &mut world.recording {
                let id = recording.writes;
                recording.writes += 1;
                recording.events.push(Event::Write { id, device: self.index, offset: io.offset, data: data.to_stable() });
                write = Some(id);
            }
        }
        let Latency { least_ns, most_ns } = world.latency;
        let spread = most_ns.saturating_sub(least_ns);
        let mut delay_ns = least_ns + if spread > 0 { world.random.next_u64() % (spread + 1) } else { 0 };
        if let Some(FaultKind::Delay(extra_ns)) = fault {
            delay_ns += extra_ns;
        }
        let recorded = world.recording.as_ref().map_or(0, |recording| recording.events.len());
        Some(Decided { fault, write, recorded, delay_ns })
    }

    /// Does the operation and calls its continuation.
    fn complete(&self, io: DeviceIo, decided: &Decided) {
        let outcome = {
            let mut world = self.sim.world.lock();
            match (world.powered, decided.fault) {
                (false, _) => Err(DeviceError::Gone),
                (true, Some(FaultKind::Error(error))) => Err(error),
                _ => Ok(()),
            }
            .inspect(|()| world.note(&[0xD0, self.index as u64, io.offset]))
        };
        if let Err(error) = outcome {
            return io.fail(error);
        }
        let DeviceIo { op, offset, then, .. } = io;
        then(self.perform(op, offset as usize, decided));
    }

    fn perform(&self, op: DeviceOp, offset: usize, decided: &Decided) -> DeviceReply {
        let mut world = self.sim.world.lock();
        let lie = decided.fault == Some(FaultKind::Lie);
        match op {
            DeviceOp::Read(mut parts) => {
                let mut at = offset;
                for part in &mut parts {
                    let length = part.len();
                    world.devices[self.index].visit(at, length, &mut |offset, bytes| part.copy_at(offset, bytes));
                    if decided.fault == Some(FaultKind::CorruptRead) {
                        let mut bytes = vec![0; length];
                        world.devices[self.index].read(at, &mut bytes);
                        bytes.iter_mut().step_by(crate::SECTOR_BYTES).for_each(|byte| *byte ^= 0x10);
                        part.copy_from_slice(&bytes);
                    }
                    at += length;
                }
                return DeviceReply { outcome: Ok(()), parts };
            }
            DeviceOp::Write(data) if !lie => {
                world.devices[self.index].write_abd(offset, &data);
                if let Some(id) = decided.write {
                    world.record(Event::Done { id });
                }
            }
            DeviceOp::Flush if !lie => {
                world.record(Event::Flushed { device: self.index, covers: decided.recorded });
            }
            DeviceOp::Trim { length_bytes } if !lie => {
                world.devices[self.index].poison(offset, length_bytes as usize);
            }
            _ => {}
        }
        DeviceReply::of(Ok(()))
    }
}

impl BlockDevice for SimDevice {
    fn submit(&self, io: DeviceIo) {
        if let Err(error) = io.check(&self.facts, self.size_bytes) {
            return io.fail(error);
        }
        let Some(own) = self.own.upgrade() else { return io.fail(DeviceError::Gone) };
        let Some(decided) = self.decide(&io) else { return io.fail(DeviceError::Gone) };
        if decided.fault == Some(FaultKind::Hang) {
            self.sim.world.lock().hung.push((own, io));
            return;
        }
        let delay_ns = decided.delay_ns;
        let job = Box::new(move || own.complete(io, &decided));
        match delay_ns {
            0 => self.sim.exec.spawn(TaskClass::Interrupt, job),
            _ => self.sim.exec.spawn_after(delay_ns, TaskClass::Interrupt, job),
        }
    }

    fn can_write_durably(&self) -> bool {
        self.sim.world.lock().writes_durably
    }

    /// Writes durably on the calling thread; what would hang fails.
    fn write_durably(&self, offset: u64, data: &abd::Abd) -> Result<(), DeviceError> {
        self.facts.check((offset, data.len() as u64), true, self.size_bytes)?;
        let outcome = Arc::new(Mutex::new(Err(DeviceError::TimedOut)));
        let told = outcome.clone();
        let io = DeviceIo::new(DeviceOp::Write(data.clone()), offset, move |reply| *told.lock() = reply.outcome);
        let decided = self.decide(&io).ok_or(DeviceError::Gone)?;
        if decided.fault == Some(FaultKind::Hang) {
            return Err(DeviceError::TimedOut);
        }
        if decided.delay_ns > 0 {
            self.sim.exec.sleep_ns(decided.delay_ns);
        }
        self.complete(io, &decided);
        let outcome = *outcome.lock();
        if let (Ok(()), Some(id)) = (outcome, decided.write) {
            self.sim.world.lock().record(Event::Durable { id });
        }
        outcome
    }

    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}
