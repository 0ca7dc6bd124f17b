//! The drives of [`super::rates`] in virtual time. A transfer has its turn at the controller first and at the drive with its link then, each of which
//! does one after the other; so many at once as are asked for overlap but for that. What a drive needs before the first byte is time of nobody else.

use super::rates::{Direction, Rates, host_of};
use device::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, DeviceReply, MemDevice};
use exec::{Exec, Mutex, TaskClass};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Time in ns to the first byte of a read, and until a write is in the drive's buffer.
const ACCESS_NS: [u64; 2] = [92_000, 20_000];
const SECOND_NS: u128 = 1_000_000_000;

/// Defects of a drive.
#[derive(Clone, Copy, Debug)]
pub struct Flaw {
    /// Factor on all its times.
    pub slower: u64,
    /// Number of I/Os of a million that fail with EIO.
    pub failing: u64,
}

impl Default for Flaw {
    fn default() -> Flaw {
        Flaw { slower: 1, failing: 0 }
    }
}

/// Times in ns at which something is free.
type Free = Arc<Mutex<u64>>;

/// Set of drives with their controllers.
pub struct Machine {
    exec: Exec,
    rates: Rates,
    hosts: [Free; 2],
    copied: Arc<AtomicU64>,
}

struct Inner {
    facts: DeviceFacts,
    size_bytes: u64,
    /// Bytes of the drive; None: nothing is kept.
    memory: Option<MemDevice>,
    exec: Exec,
    rates: Rates,
    host: Free,
    own: Free,
    flaw: Flaw,
    ios: AtomicU64,
    copied: Arc<AtomicU64>,
}

/// Drive in virtual time.
pub struct Drive(Arc<Inner>);

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Drive({:?})", self.0.facts.path)
    }
}

fn transfer_ns(bytes: u64, rate: u64) -> u64 {
    (u128::from(bytes) * SECOND_NS / u128::from(rate.max(1))) as u64
}

/// Takes a turn of `length` ns that begins at `at` or later; returns its end.
fn turn(free: &Mutex<u64>, at: u64, length: u64) -> u64 {
    let mut free = free.lock();
    *free = (*free).max(at) + length;
    *free
}

impl Machine {
    /// Makes the controllers.
    pub fn new(exec: &Exec, rates: Rates) -> Machine {
        Machine { exec: exec.clone(), rates, hosts: Default::default(), copied: Arc::default() }
    }

    /// Makes the drive with this number, of `size_bytes` zeros; one that does not `keep` what is written reads whatever lay in memory.
    pub fn drive(&self, number: usize, size_bytes: u64, keeps: bool, flaw: Flaw) -> Drive {
        let name = format!("nvme{number:02}");
        let facts = DeviceFacts { physical_sector_bytes: 4096, ..DeviceFacts::solid(&name, "modelled") };
        let memory = keeps.then(|| MemDevice::new(&name, size_bytes as usize).with_facts(facts.clone()));
        Drive(Arc::new(Inner {
            facts,
            size_bytes,
            memory,
            exec: self.exec.clone(),
            rates: self.rates,
            host: self.hosts[host_of(number)].clone(),
            own: Free::default(),
            flaw,
            ios: AtomicU64::new(0),
            copied: self.copied.clone(),
        }))
    }

    /// Counter of the bytes that the drives copied, as no drive would.
    pub fn copied(&self) -> Arc<AtomicU64> {
        self.copied.clone()
    }
}

impl Inner {
    /// Time that a transfer takes which is asked for now.
    fn takes_ns(&self, direction: Direction, bytes: u64) -> u64 {
        let (now, slower) = (self.exec.now_ns(), self.flaw.slower.max(1));
        let there = turn(&self.host, now, transfer_ns(bytes, self.rates.host));
        let own = transfer_ns(bytes, self.rates.drive(direction)) * slower;
        turn(&self.own, there, own) + ACCESS_NS[direction as usize] * slower - now
    }

    /// True for the I/Os that fail: they are evenly spread.
    fn fails(&self) -> bool {
        let before = self.ios.fetch_add(1, Ordering::Relaxed);
        let failed = |ios: u64| ios * self.flaw.failing / 1_000_000;
        failed(before + 1) > failed(before)
    }

    fn carry_out(&self, io: DeviceIo) {
        let Some(memory) = &self.memory else {
            let parts = if let DeviceOp::Read(parts) = io.op { parts } else { Vec::new() };
            return (io.then)(DeviceReply { outcome: Ok(()), parts });
        };
        let (before, copied, then) = (abd::copied(), self.copied.clone(), io.then);
        // The memory answers before it returns: what was copied until then it copied.
        memory.submit(DeviceIo::new(io.op, io.offset, move |reply| {
            copied.fetch_add(abd::copied() - before, Ordering::Relaxed);
            then(reply);
        }));
    }
}

impl BlockDevice for Drive {
    fn submit(&self, io: DeviceIo) {
        let direction = match &io.op {
            DeviceOp::Read(_) => Direction::Read,
            DeviceOp::Write(_) => Direction::Write,
            DeviceOp::Flush | DeviceOp::Trim { .. } => return (io.then)(DeviceReply::of(Ok(()))),
        };
        if let Err(error) = io.check(&self.0.facts, self.0.size_bytes) {
            return io.fail(error);
        }
        let (own, fails) = (self.0.clone(), self.0.fails());
        let takes_ns = own.takes_ns(direction, io.op.length_bytes());
        let end = move || if fails { io.fail(DeviceError::Io) } else { own.carry_out(io) };
        self.0.exec.spawn_after(takes_ns, TaskClass::Interrupt, Box::new(end));
    }

    fn facts(&self) -> &DeviceFacts {
        &self.0.facts
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, the survey's limits are others than those of its devices.
    #[test]
    fn transfers_wait_for_drive_and_controller() {
        let exec: Exec = Arc::new(exec::Inline::new(1));
        let machine = Machine::new(&exec, Rates { drive: [1 << 30; 2], link: 1 << 30, host: 2 << 30 });
        let drives = [0, 1, 2, 3].map(|number| machine.drive(number, 64 << 20, false, Flaw { slower: 1, failing: 250_000 }));
        let ends: Arc<Mutex<Vec<(u64, bool)>>> = Arc::default();
        for number in 0..64 {
            let (ends, clock) = (ends.clone(), exec.clone());
            let then = move |reply: DeviceReply| ends.lock().push((clock.now_ns(), reply.outcome.is_ok()));
            drives[number % 4].submit(DeviceIo::new(DeviceOp::read(1 << 20), number as u64 / 4 * (1 << 20), then));
        }
        exec.wait(&|| ends.lock().len() == 64, &|| {});
        // 64 MiB at 2 GiB/s take 31 ms; four drives alone would take 16.
        let last = ends.lock().iter().map(|end| end.0).max().unwrap_or(0);
        assert!((31_000_000..33_000_000).contains(&last), "{last} ns");
        assert_eq!(ends.lock().iter().filter(|end| !end.1).count(), 16, "a fourth fails");
    }
}
