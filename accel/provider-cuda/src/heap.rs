//! Device memory in size classes, kept when it is given back: the driver's own allocation is too slow for every block.
//!
//! Four classes lie between two powers of two, so at most a quarter is wasted. Memory that nobody uses goes back to the driver
//! when there is no other, and at the end. Once the device is lost, nothing is called any more.

use crate::gpu::{Gpu, GpuError};
use dpusm::{DeviceHandle, MemoryCount, MemoryStats, OpError};
use exec::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Smallest class, in bytes.
const CLASS_BYTES_MIN: usize = 256;

/// One buffer, as the registry's handles hold it.
pub(crate) struct DeviceMemory {
    pub(crate) address: u64,
    requested_bytes: usize,
    class_bytes: usize,
}

#[derive(Default)]
struct State {
    stats: MemoryStats,
    /// Unused memory, by class.
    kept: BTreeMap<usize, Vec<u64>>,
    /// Bytes taken from the driver, used or not.
    taken_bytes: u64,
    is_lost: bool,
}

impl State {
    fn lose(&mut self) {
        self.is_lost = true;
        self.kept.clear();
    }
}

/// All memory of a device that the provider uses.
pub(crate) struct Heap {
    gpu: Arc<dyn Gpu>,
    state: Mutex<State>,
    bytes_max: u64,
}

/// The class of a size; None when there is none.
fn class_of(bytes: usize) -> Option<usize> {
    let bytes = bytes.max(CLASS_BYTES_MIN);
    let step = (bytes.checked_next_power_of_two()? / 8).max(CLASS_BYTES_MIN);
    bytes.checked_next_multiple_of(step)
}

impl Heap {
    pub(crate) fn new(gpu: Arc<dyn Gpu>, bytes_max: u64) -> Heap {
        Heap { gpu, state: Mutex::default(), bytes_max }
    }

    /// Memory for a buffer.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<DeviceMemory, OpError> {
        let class_bytes = class_of(bytes).ok_or(OpError::NoMemory)?;
        let address = self.take(class_bytes)?;
        let mut state = self.state.lock();
        add(&mut state.stats.active, bytes, class_bytes);
        add(&mut state.stats.total, bytes, class_bytes);
        Ok(DeviceMemory { address, requested_bytes: bytes, class_bytes })
    }

    fn take(&self, class_bytes: usize) -> Result<u64, OpError> {
        let mut state = self.state.lock();
        if state.is_lost {
            return Err(OpError::Down);
        }
        if let Some(address) = state.kept.get_mut(&class_bytes).and_then(Vec::pop) {
            return Ok(address);
        }
        if state.taken_bytes + class_bytes as u64 > self.bytes_max {
            self.give_back_kept(&mut state);
        }
        if state.taken_bytes + class_bytes as u64 > self.bytes_max {
            return Err(OpError::NoMemory);
        }
        let mut found = self.gpu.alloc(class_bytes);
        if found == Err(GpuError::OutOfMemory) && !state.kept.is_empty() {
            self.give_back_kept(&mut state);
            found = self.gpu.alloc(class_bytes);
        }
        if let Err(GpuError::Lost { .. }) = found {
            state.lose();
        }
        let address = found?;
        state.taken_bytes += class_bytes as u64;
        Ok(address)
    }

    /// Takes a buffer's memory back, which no work uses any more.
    pub(crate) fn free(&self, memory: DeviceMemory) {
        let mut state = self.state.lock();
        state.stats.active.buffers -= 1;
        state.stats.active.requested_bytes -= memory.requested_bytes as u64;
        state.stats.active.actual_bytes -= memory.class_bytes as u64;
        if !state.is_lost {
            state.kept.entry(memory.class_bytes).or_default().push(memory.address);
        }
    }

    /// The device is gone, and its memory with it.
    pub(crate) fn lose(&self) {
        self.state.lock().lose();
    }

    /// True when the device is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.state.lock().is_lost
    }

    fn give_back_kept(&self, state: &mut State) {
        for (class_bytes, addresses) in std::mem::take(&mut state.kept) {
            for address in addresses {
                self.gpu.free(address);
                state.taken_bytes -= class_bytes as u64;
            }
        }
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        self.state.lock().stats
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let mut state = std::mem::take(&mut *self.state.lock());
        self.give_back_kept(&mut state);
    }
}

fn add(count: &mut MemoryCount, requested: usize, actual: usize) {
    count.buffers += 1;
    count.requested_bytes += requested as u64;
    count.actual_bytes += actual as u64;
}

/// A handle of a buffer.
pub(crate) fn handle(memory: DeviceMemory) -> DeviceHandle {
    DeviceHandle::new(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A class smaller than what was asked for would have the device write past the end; one much larger would waste its memory.
    #[test]
    fn a_class_fits_closely() {
        for bytes in (1..70_000).chain([1 << 20, (1 << 20) + 1, (16 << 20) + 8192]) {
            let class = class_of(bytes).unwrap();
            assert!(class >= bytes && class < bytes + bytes / 4 + CLASS_BYTES_MIN, "{bytes}: {class}");
        }
        assert_eq!(class_of(usize::MAX), None);
    }
}
