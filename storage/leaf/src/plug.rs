//! Leaf I/Os that one thread issues in one go: neighbours on a device become one request (OpenZFS: `vdev_queue_aggregate`).
//!
//! Between the start and the end of [`plugged`] the thread's reads and writes are held back; at the end those that touch each
//! other on one device are merged ([`merged`]), and all go out.
//!
//! Nothing waits in between: whoever plugs must not wait for what he issued.

use crate::merged;
use device::{BlockDevice, DeviceIo, DeviceOp};
use exec::Exec;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Bytes of a merged request at most (OpenZFS: `zfs_vdev_aggregation_limit`).
const MERGED_BYTES_MAX: u64 = 1 << 20;
/// Parts of a merged request at most: far below what one system call takes.
const PARTS_MAX: usize = 256;

struct Waiting {
    exec: Exec,
    device: Arc<dyn BlockDevice>,
    io: DeviceIo,
}

impl Waiting {
    /// Key that requests of one device are sorted by: the device, the direction, the place.
    fn key(&self) -> (*const (), bool, u64) {
        (Arc::as_ptr(&self.device).cast(), matches!(self.io.op, DeviceOp::Write(_)), self.io.offset)
    }

    fn end(&self) -> u64 {
        self.io.offset + self.io.op.length_bytes()
    }

    fn parts(&self) -> usize {
        if let DeviceOp::Read(parts) = &self.io.op { parts.len() } else { 1 }
    }
}

thread_local! {
    /// The I/Os held back while this thread is plugged.
    static HELD: RefCell<Option<Vec<Waiting>>> = const { RefCell::new(None) };
    /// True while this thread hands over what it held back.
    static RELEASING: Cell<bool> = const { Cell::new(false) };
}

/// True when a completion on this thread comes from a device that does its work in `submit`: what follows belongs on this thread.
pub fn is_releasing() -> bool {
    RELEASING.with(Cell::get)
}

/// Ends the plug also when `work` panics.
struct Plug;

impl Drop for Plug {
    fn drop(&mut self) {
        let held = HELD.with(|held| held.borrow_mut().take());
        let before = RELEASING.with(|releasing| releasing.replace(true));
        release(held.unwrap_or_default());
        RELEASING.with(|releasing| releasing.set(before));
    }
}

/// Runs `work`; the leaf I/Os that it issues on this thread go out when it is done.
pub fn plugged(work: impl FnOnce()) {
    let outermost = HELD.with(|held| {
        let mut held = held.borrow_mut();
        let outermost = held.is_none();
        held.get_or_insert_with(Vec::new);
        outermost
    });
    let plug = outermost.then_some(Plug);
    work();
    drop(plug);
}

/// Hands the I/O to the device, now or at the end of the plug.
pub(crate) fn submit(exec: &Exec, device: &Arc<dyn BlockDevice>, io: DeviceIo) {
    let merges = matches!(io.op, DeviceOp::Read(_) | DeviceOp::Write(_));
    let now = HELD.with(|held| match held.borrow_mut().as_mut() {
        Some(waiting) if merges => {
            waiting.push(Waiting { exec: exec.clone(), device: device.clone(), io });
            None
        }
        _ => Some(io),
    });
    if let Some(io) = now {
        device.submit(io);
    }
}

/// Sorts requests by device, direction and place. Devices come in the order in which they were first asked: that of their addresses would be another
/// one with each run of a program.
fn sort(waiting: &mut [Waiting]) {
    let mut devices: Vec<*const ()> = Vec::new();
    for (device, _, _) in waiting.iter().map(Waiting::key) {
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
    waiting.sort_by_key(|one| {
        let (device, writes, offset) = one.key();
        (devices.iter().position(|known| *known == device), writes, offset)
    });
}

fn release(mut waiting: Vec<Waiting>) {
    sort(&mut waiting);
    let (mut run, mut batch): (Vec<Waiting>, Batch) = Default::default();
    for next in waiting {
        let joins = run.first().zip(run.last()).is_some_and(|(first, last)| {
            let ((device, writes, start), (other, other_writes, _)) = (first.key(), next.key());
            let parts: usize = run.iter().map(Waiting::parts).sum();
            (device, writes) == (other, other_writes)
                && last.end() == next.io.offset
                && next.end() - start <= MERGED_BYTES_MAX
                && parts + next.parts() <= PARTS_MAX
        });
        if !joins {
            batch.add(std::mem::take(&mut run));
        }
        run.push(next);
    }
    batch.add(run);
    batch.submit();
}

/// Requests for one device, which get there in one go: whoever serves it is woken once.
#[derive(Default)]
struct Batch {
    device: Option<Arc<dyn BlockDevice>>,
    ios: Vec<DeviceIo>,
}

impl Batch {
    /// Adds neighbours as one request; those for another device go out first.
    fn add(&mut self, run: Vec<Waiting>) {
        let Some((exec, device)) = run.first().map(|first| (first.exec.clone(), first.device.clone())) else { return };
        if !self.device.as_ref().is_some_and(|other| Arc::ptr_eq(other, &device)) {
            self.submit();
        }
        self.ios.extend(merged::join(&exec, &device, run.into_iter().map(|waiting| waiting.io).collect()));
        self.device = Some(device);
    }

    fn submit(&mut self) {
        let ios = std::mem::take(&mut self.ios);
        if let Some(device) = self.device.take() {
            device.submit_batch(ios);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abd::Abd;
    use device::{DeviceError, DeviceFacts, IoPriority, MemDevice};
    use exec::{Inline, Mutex};

    /// Notes what arrives; refuses every request that covers `bad`.
    #[derive(Debug)]
    struct Noting {
        inner: MemDevice,
        bad: Option<u64>,
        seen: Mutex<Vec<(u64, u64)>>,
        batches: Mutex<Vec<usize>>,
    }

    impl Noting {
        fn new(bad: Option<u64>) -> Arc<Noting> {
            Arc::new(Noting { inner: MemDevice::new("noting", 4 << 20), bad, seen: Mutex::default(), batches: Mutex::default() })
        }
    }

    impl BlockDevice for Noting {
        fn submit(&self, io: DeviceIo) {
            let end = io.offset + io.op.length_bytes();
            self.seen.lock().push((io.offset, end));
            if self.bad.is_some_and(|bad| (io.offset..end).contains(&bad)) {
                return io.fail(DeviceError::Short);
            }
            self.inner.submit(io);
        }
        fn submit_batch(&self, ios: Vec<DeviceIo>) {
            self.batches.lock().push(ios.len());
            ios.into_iter().for_each(|io| self.submit(io));
        }
        fn facts(&self) -> &DeviceFacts {
            self.inner.facts()
        }
        fn size_bytes(&self) -> u64 {
            self.inner.size_bytes()
        }
    }

    type Results = Arc<Mutex<Vec<(u64, Result<Abd, DeviceError>)>>>;

    fn go(exec: &Exec, device: &Arc<Noting>, ops: Vec<(u64, DeviceOp)>) -> Vec<(u64, Result<Abd, DeviceError>)> {
        let results: Results = Arc::default();
        let target: Arc<dyn BlockDevice> = device.clone();
        let count = ops.len();
        plugged(|| {
            for (offset, op) in ops {
                let results = results.clone();
                submit(exec, &target, DeviceIo::new(op, offset, move |reply| results.lock().push((offset, reply.into_abd()))));
            }
            assert!(device.seen.lock().is_empty(), "nothing goes out while the plug is in");
        });
        // What was issued again runs as a job.
        exec.wait(&|| results.lock().len() == count, &|| {});
        let mut results = std::mem::take(&mut *results.lock());
        results.sort_by_key(|(offset, _)| *offset);
        results
    }

    fn filled(byte: u8, length: usize) -> Abd {
        Abd::from_slice(&vec![byte; length])
    }

    /// Merged wrongly, a block's bytes would land where another block's belong.
    #[test]
    fn neighbours_become_one_request_and_every_piece_keeps_its_bytes() {
        let exec: Exec = Arc::new(Inline::new(1));
        let device = Noting::new(None);
        let writes = [(8192, 2u8), (0, 0), (4096, 1), (40960, 5)];
        let ops = writes.iter().map(|&(offset, byte)| (offset, DeviceOp::Write(filled(byte, 4096)))).collect();
        assert!(go(&exec, &device, ops).iter().all(|(_, result)| result.is_ok()));
        assert_eq!(std::mem::take(&mut *device.seen.lock()), [(0, 12288), (40960, 45056)]);
        let ops = writes.iter().map(|&(offset, _)| (offset, DeviceOp::read(4096))).collect();
        for ((offset, result), byte) in go(&exec, &device, ops).into_iter().zip([0u8, 1, 2, 5]) {
            assert_eq!(result.expect("readable").to_vec(), vec![byte; 4096], "at {offset}");
        }
        assert_eq!(*device.seen.lock(), [(0, 12288), (40960, 45056)]);
    }

    /// If this fails, whoever serves a device is woken for each of the requests that go out together.
    #[test]
    fn what_goes_out_together_goes_to_each_device_at_once() {
        let exec: Exec = Arc::new(Inline::new(1));
        let (first, second) = (Noting::new(None), Noting::new(None));
        plugged(|| {
            for (number, device) in [&first, &second, &first, &first].into_iter().enumerate() {
                let target: Arc<dyn BlockDevice> = device.clone();
                submit(&exec, &target, DeviceIo::new(DeviceOp::read(512), number as u64 * 4096, drop));
            }
        });
        assert_eq!([first, second].map(|device| device.batches.lock().clone()), [vec![3], vec![1]]);
    }

    /// One bad sector must not cost its neighbours, which have no second copy on a stripe.
    #[test]
    fn a_bad_sector_fails_only_its_own_piece() {
        let exec: Exec = Arc::new(Inline::new(1));
        for op in [DeviceOp::read as fn(usize) -> DeviceOp, |length| DeviceOp::Write(filled(7, length))] {
            let device = Noting::new(Some(5000));
            let ops = (0..4u64).map(|index| (index * 4096, op(4096))).collect();
            let failed: Vec<u64> = go(&exec, &device, ops).into_iter().filter(|(_, result)| result.is_err()).map(|(at, _)| at).collect();
            assert_eq!(failed, [4096]);
        }
    }

    /// If this fails, who waits for a block waits in the kernel behind what has time, since both were read together.
    #[test]
    fn a_merged_request_is_as_urgent_as_its_most_urgent_part() {
        let exec: Exec = Arc::new(Inline::new(1));
        let device: Arc<dyn BlockDevice> = Noting::new(None);
        let io = |offset: u64, priority| DeviceIo::new(DeviceOp::read(512), offset, drop).with_priority(priority);
        let ios = vec![io(0, IoPriority::Background), io(512, IoPriority::Awaited), io(1024, IoPriority::Batch)];
        assert_eq!(merged::join(&exec, &device, ios).map(|io| io.priority), Some(IoPriority::Awaited));
    }

    /// A merged request larger than devices like would be slower than its parts.
    #[test]
    fn a_merged_request_has_a_limit() {
        let exec: Exec = Arc::new(Inline::new(1));
        let device = Noting::new(None);
        let ops = (0..12u64).map(|index| (index * (256 << 10), DeviceOp::read(256 << 10))).collect();
        assert_eq!(go(&exec, &device, ops).len(), 12);
        assert!(device.seen.lock().iter().all(|(start, end)| end - start == MERGED_BYTES_MAX));
    }
}
