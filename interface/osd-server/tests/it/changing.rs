//! Memory that its client changes while the devices write from it: what is on disk verifies, and whoever looks finds out about the client.

use crate::bed::Bed;
use crate::house::{House, create, fid, piece};
use device::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp};
use exec::{Exec, Mutex, Pool};
use kstat::EventLog;
use osd_client::{Memory, Operation};
use osd_server::Options;
use pool::Runtime;
use sim::SimDevice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const BYTES: u64 = 512 << 10;

type Hook = Box<dyn FnOnce() + Send>;

/// Device with somebody who interferes once, right before memory is written that may change.
struct Meddled {
    inner: Arc<SimDevice>,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl std::fmt::Debug for Meddled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.inner, f)
    }
}

impl BlockDevice for Meddled {
    fn submit(&self, io: DeviceIo) {
        if matches!(&io.op, DeviceOp::Write(data) if data.is_unstable()) {
            // Locked while it is called: nothing is written meanwhile.
            let mut hook = self.hook.lock();
            hook.take().into_iter().for_each(|hook| hook());
        }
        self.inner.submit(io);
    }
    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
}

/// If this fails, a program that changes its memory too early damages the pool, a device is blamed for it, or nobody can tell who it was.
#[test]
fn memory_that_changes_while_it_is_written_is_on_disk_as_it_was_at_some_moment() {
    let exec: Exec = Arc::new(Pool::new(2));
    let events = Arc::new(EventLog::new(1000, Box::new(|| (0, 0))));
    let runtime = Runtime { events: events.clone(), ..Runtime::new() };
    let hook: Arc<Mutex<Option<Hook>>> = Arc::default();
    let before = |inner| Arc::new(Meddled { inner, hook: hook.clone() }) as Arc<dyn BlockDevice>;
    let house = House::on(Bed::over(exec, &[("recordsize", "128K"), ("compression", "off")], &runtime, before), Options::default());
    let mut client = house.client();
    let memory = Arc::new(Memory::new(BYTES).expect("memory"));
    memory.put(0, &[1; BYTES as usize]).expect("put");
    client.share(0, &memory, true).expect("shared");
    client.transact(vec![create(1)]).expect("made");
    let own = memory.clone();
    *hook.lock() = Some(Box::new(move || {
        (0..BYTES).step_by(64 << 10).for_each(|at| own.put(at + 100, &[9; 8]).expect("put"));
    }));
    client.transact(vec![(fid(1), Operation::Write(vec![piece(0, 0, BYTES)]))]).expect("written all the same");
    assert!(hook.lock().is_none(), "the pages themselves were written");
    let mut now = vec![0; BYTES as usize];
    memory.take(0, &mut now).expect("taken");
    let object = house.device.object(osd::Fid::new(crate::bed::SEQUENCE, 1)).expect("an object");
    assert!(object.read_direct(0, BYTES).expect("it verifies").to_vec() == now, "the memory as it is now");
    assert!(house.bed.pool.status().dio_verify_errors.iter().sum::<u64>() > 0, "counted");
    assert!(events.since(0).iter().any(|logged| logged.event.class == "ereport.fs.zfs.dio_verify_wr"), "told");
    // Somebody who never stops.
    let is_over = Arc::new(AtomicBool::new(false));
    let (own, over) = (memory.clone(), is_over.clone());
    let change = move || {
        let mut value = 0u8;
        while !over.load(Ordering::Acquire) {
            value = value.wrapping_add(1);
            (0..BYTES).step_by(16 << 10).for_each(|at| own.put(at + 7, &[value]).expect("put"));
        }
    };
    let changer = house.bed.exec.spawn_operation("changer", Box::new(change));
    for round in 0..40 {
        client.transact(vec![(fid(1), Operation::Write(vec![piece(round % 3 * BYTES, 0, BYTES)]))]).expect("written");
    }
    is_over.store(true, Ordering::Release);
    changer.join();
    client.sync().expect("synced");
    assert!(object.read_direct(0, 3 * BYTES).is_ok_and(|data| data.len() as u64 == 3 * BYTES), "all of it verifies");
    drop((object, client));
    house.check("changing");
}
