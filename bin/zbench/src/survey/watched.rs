//! A device that is looked at: bytes, errors and latencies of what it does.

use super::rates::Direction;
use abd::Abd;
use device::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, DeviceReply};
use exec::Exec;
use kstat::Histogram;
use leaf::Sample;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Figures of a device: of reads, and of writes.
#[derive(Debug)]
pub struct Seen {
    bytes: [AtomicU64; 2],
    errors: [AtomicU64; 2],
    latencies: [Histogram; 2],
}

impl Seen {
    fn new() -> Seen {
        let latencies = [0, 1].map(|_| Histogram::new(Histogram::LATENCY_BUCKETS));
        Seen { bytes: Default::default(), errors: Default::default(), latencies }
    }

    /// Number of bytes read and written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Latencies and errors so far.
    pub fn sample(&self, direction: Direction) -> Sample {
        let index = direction as usize;
        Sample { latencies: self.latencies[index].counts(), errors: self.errors[index].load(Ordering::Relaxed) }
    }
}

/// Device whose figures are seen.
pub struct Watched {
    inner: Arc<dyn BlockDevice>,
    exec: Exec,
    seen: Arc<Seen>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watched({:?})", self.inner)
    }
}

impl Watched {
    /// Looks at a device.
    pub fn new(exec: &Exec, inner: Arc<dyn BlockDevice>) -> Watched {
        Watched { inner, exec: exec.clone(), seen: Arc::new(Seen::new()) }
    }

    /// Figures of the device.
    pub fn seen(&self) -> Arc<Seen> {
        self.seen.clone()
    }

    fn watch(&self, io: DeviceIo) -> DeviceIo {
        let direction = match &io.op {
            DeviceOp::Read(_) => Direction::Read,
            DeviceOp::Write(_) => Direction::Write,
            DeviceOp::Flush | DeviceOp::Trim { .. } => return io,
        };
        let (bytes, begun) = (io.op.length_bytes(), self.exec.now_ns());
        let (seen, clock) = (self.seen.clone(), self.exec.clone());
        let DeviceIo { op, offset, then, priority } = io;
        let told = move |reply: DeviceReply| {
            let index = direction as usize;
            seen.latencies[index].add(clock.now_ns().saturating_sub(begun));
            seen.bytes[index].fetch_add(bytes, Ordering::Relaxed);
            seen.errors[index].fetch_add(u64::from(reply.outcome.is_err()), Ordering::Relaxed);
            then(reply);
        };
        DeviceIo::new(op, offset, told).with_priority(priority)
    }
}

impl BlockDevice for Watched {
    fn submit(&self, io: DeviceIo) {
        self.inner.submit(self.watch(io));
    }

    fn submit_batch(&self, ios: Vec<DeviceIo>) {
        self.inner.submit_batch(ios.into_iter().map(|io| self.watch(io)).collect());
    }

    fn can_write_durably(&self) -> bool {
        self.inner.can_write_durably()
    }

    fn write_durably(&self, offset: u64, data: &Abd) -> Result<(), DeviceError> {
        self.seen.bytes[Direction::Write as usize].fetch_add(data.len() as u64, Ordering::Relaxed);
        self.inner.write_durably(offset, data)
    }

    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn refresh_size(&self) -> u64 {
        self.inner.refresh_size()
    }

    fn forget_cached(&self, offset: u64, length_bytes: u64) {
        self.inner.forget_cached(offset, length_bytes);
    }
}
