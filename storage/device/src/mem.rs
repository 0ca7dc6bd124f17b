//! A device in memory: for tests, tools, and as the simplest description of what a device does.

use crate::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, DeviceReply};
use abd::AbdPart;
use exec::RwLock;

/// Bytes in memory behind the device trait; every I/O completes before `submit` returns.
#[derive(Debug)]
pub struct MemDevice {
    facts: DeviceFacts,
    bytes: RwLock<Vec<u8>>,
}

impl MemDevice {
    /// A device of `size_bytes` zeros called `name`.
    pub fn new(name: &str, size_bytes: usize) -> MemDevice {
        MemDevice::with_bytes(name, vec![0; size_bytes])
    }

    /// A device that holds `bytes`.
    pub fn with_bytes(name: &str, bytes: Vec<u8>) -> MemDevice {
        MemDevice { facts: DeviceFacts::solid(name, "mem"), bytes: RwLock::new(bytes) }
    }

    /// Gives the same device other facts (sector size, read-only).
    pub fn with_facts(self, facts: DeviceFacts) -> MemDevice {
        MemDevice { facts, ..self }
    }

    /// A copy of the contents.
    pub fn contents(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }

    /// Changes the contents behind everybody's back, to simulate corruption or growth.
    pub fn tamper(&self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.bytes.write());
    }

    fn run(&self, op: DeviceOp, offset: u64) -> Result<Vec<AbdPart>, DeviceError> {
        let mut at = offset as usize;
        match op {
            DeviceOp::Read(mut parts) => {
                let bytes = self.bytes.read();
                for part in &mut parts {
                    let count = part.len();
                    part.copy_from_slice(&bytes[at..at + count]);
                    at += count;
                }
                return Ok(parts);
            }
            DeviceOp::Write(data) => {
                let length = data.len();
                data.copy_to(0, &mut self.bytes.write()[at..at + length]);
            }
            DeviceOp::Trim { length_bytes } => self.bytes.write()[at..at + length_bytes as usize].fill(0),
            DeviceOp::Flush => {}
        }
        Ok(Vec::new())
    }
}

impl BlockDevice for MemDevice {
    fn submit(&self, io: DeviceIo) {
        if let Err(error) = io.check(&self.facts, self.size_bytes()) {
            return io.fail(error);
        }
        let DeviceIo { op, offset, then, .. } = io;
        then(match self.run(op, offset) {
            Ok(parts) => DeviceReply { outcome: Ok(()), parts },
            Err(error) => DeviceReply::of(Err(error)),
        });
    }

    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn size_bytes(&self) -> u64 {
        self.bytes.read().len() as u64
    }
}
