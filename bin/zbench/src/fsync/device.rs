//! A device in virtual time with a volatile cache: writes end when they are in the cache, a flush takes its time. One flush runs at a time; those
//! that come meanwhile wait and then go as one, as Linux has it.

use device::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp, DeviceReply, MemDevice};
use exec::{Exec, Mutex, TaskClass};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Time in ns of a read or write.
pub const TRANSFER_NS: u64 = 10_000;

#[derive(Default)]
struct Flushes {
    is_running: bool,
    waiting: Vec<DeviceIo>,
}

struct Inner {
    memory: MemDevice,
    exec: Exec,
    flush_ns: u64,
    flushes: Mutex<Flushes>,
    counts: [AtomicU64; 2],
}

/// Device in memory whose operations take virtual time.
pub struct VirtualDevice(Arc<Inner>);

impl fmt::Debug for VirtualDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VirtualDevice({:?})", self.0.memory.facts().path)
    }
}

impl VirtualDevice {
    /// Makes a device of `size_bytes` of zeros whose flushes take `flush_ns`.
    pub fn new(exec: &Exec, name: &str, size_bytes: usize, flush_ns: u64) -> VirtualDevice {
        let facts = DeviceFacts { physical_sector_bytes: 4096, ..DeviceFacts::solid(name, "virtual") };
        let memory = MemDevice::new(name, size_bytes).with_facts(facts);
        VirtualDevice(Arc::new(Inner { memory, exec: exec.clone(), flush_ns, flushes: Mutex::default(), counts: Default::default() }))
    }

    /// Numbers of writes and of flushes that were asked for so far.
    pub fn counts(&self) -> [u64; 2] {
        [0, 1].map(|index| self.0.counts[index].load(Ordering::Relaxed))
    }
}

impl Inner {
    /// Starts the flush of all that wait for one.
    fn flush(self: &Arc<Self>) {
        let together = std::mem::take(&mut self.flushes.lock().waiting);
        let own = self.clone();
        let end = move || {
            together.into_iter().for_each(|io| (io.then)(DeviceReply::of(Ok(()))));
            let goes_on = {
                let mut flushes = own.flushes.lock();
                flushes.is_running = !flushes.waiting.is_empty();
                flushes.is_running
            };
            if goes_on {
                own.flush();
            }
        };
        self.exec.spawn_after(self.flush_ns, TaskClass::Interrupt, Box::new(end));
    }
}

impl BlockDevice for VirtualDevice {
    fn submit(&self, io: DeviceIo) {
        let own = self.0.clone();
        match io.op {
            DeviceOp::Flush => {
                own.counts[1].fetch_add(1, Ordering::Relaxed);
                let is_first = {
                    let mut flushes = own.flushes.lock();
                    flushes.waiting.push(io);
                    !std::mem::replace(&mut flushes.is_running, true)
                };
                if is_first {
                    own.flush();
                }
                return;
            }
            DeviceOp::Write(_) => drop(own.counts[0].fetch_add(1, Ordering::Relaxed)),
            DeviceOp::Read(_) | DeviceOp::Trim { .. } => {}
        }
        let exec = own.exec.clone();
        exec.spawn_after(TRANSFER_NS, TaskClass::Interrupt, Box::new(move || own.memory.submit(io)));
    }

    fn facts(&self) -> &DeviceFacts {
        self.0.memory.facts()
    }

    fn size_bytes(&self) -> u64 {
        self.0.memory.size_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, the bound that `zbench fsync` judges by is another one than it prints.
    #[test]
    fn flushes_run_one_at_a_time_and_those_that_wait_go_as_one() {
        let exec: Exec = Arc::new(exec::Inline::new(1));
        let device = VirtualDevice::new(&exec, "d", 1 << 20, 1_000_000);
        let ends: Arc<Mutex<Vec<u64>>> = Arc::default();
        for _ in 0..3 {
            let (ends, clock) = (ends.clone(), exec.clone());
            device.submit(DeviceIo::new(DeviceOp::Flush, 0, move |_| ends.lock().push(clock.now_ns() / 1_000_000)));
        }
        exec.wait(&|| ends.lock().len() == 3, &|| {});
        assert_eq!((&ends.lock()[..], device.counts()), (&[1, 2, 2][..], [0, 3]));
    }
}
