//! Every way to misbehave, at every operation of a small program: what is on the disks is always right, and nothing leaks.

use crate::common::{DATA, DEADLINE_NS, Disk, PARITY, Place, blocks, column_lengths, features, software, write_record};
use dpusm::{BreakerPolicy, Device, OpError, RegisterOptions, Registry};
use exec::{Exec, Inline};
use provider_faulty::{Fault, Faulty, Harm, When};
use provider_software::{Software, SoftwareOptions};
use std::sync::Arc;

const BLOCK_BYTES: usize = 8192;
const RECORDS: usize = 3;

struct World {
    exec: Exec,
    inner: Arc<Software>,
    faulty: Arc<Faulty>,
    device: Device,
}

/// A faulty provider, registered while it behaved; its breakers never open.
fn world() -> World {
    let exec: Exec = Arc::new(Inline::new(5));
    let inner = Software::new(&exec, SoftwareOptions { features: features(), ..SoftwareOptions::default() });
    let faulty = Faulty::new(&exec, "faulty", inner.clone());
    let breaker = BreakerPolicy { failures_max: u32::MAX, slow_max: u32::MAX, ..BreakerPolicy::default() };
    let options = RegisterOptions { breaker, ..crate::common::options() };
    let device = Registry::new(&exec).register(faulty.clone(), &options).unwrap();
    assert!(device.disabled().is_empty(), "{:?}", device.disabled());
    World { exec, inner, faulty, device }
}

/// Lost columns of a row on the disks, as a scrub finds and repairs them: the data that they hold.
fn read_back(place: &Place, stored: &[u8]) -> Vec<u8> {
    let columns = place.columns(stored.len());
    let mut good: Vec<u8> = columns[PARITY..].concat();
    if good == stored {
        return good;
    }
    // One column is stale: the one without which the others give the block whose checksum is right.
    for lost in 0..DATA {
        let data: Vec<Option<&[u8]>> = (0..DATA).map(|column| (column != lost).then(|| &columns[PARITY + column][..])).collect();
        for parity in 0..PARITY {
            let parities: Vec<Option<&[u8]>> = (0..PARITY).map(|index| (index == parity).then(|| &columns[index][..])).collect();
            let mut missing = vec![0; column_lengths(stored.len())[lost]];
            kernels::raidz::reconstruct(&data, &parities, &mut [&mut missing]).unwrap();
            let mut all = columns.clone();
            all[PARITY + lost] = missing;
            good = all[PARITY..].concat();
            if good == stored {
                return good;
            }
        }
    }
    good
}

/// Writes the program's records; the number of operations that it took.
fn run_program(world: &World, what: &str) -> u64 {
    let disks: Vec<Arc<Disk>> = (0..PARITY + DATA).map(|_| Arc::default()).collect();
    for (number, block) in blocks(RECORDS, BLOCK_BYTES).iter().enumerate() {
        let place = Place { disks: &disks, offset: number * BLOCK_BYTES };
        let written = write_record(&world.device, block, &place);
        assert!(written == software(block), "{what}: record {number} differs from software's");
        assert!(read_back(&place, &written.stored) == written.stored, "{what}: record {number} is lost");
    }
    let operations = world.faulty.operations();
    world.faulty.release_stalled();
    operations
}

/// A provider that fails, lies, gives less, hangs, is late or dies anywhere costs time, never data, and leaks nothing.
#[test]
fn no_fault_at_any_operation_costs_data() {
    let world = world();
    world.faulty.inject(None);
    let operations = run_program(&world, "no fault");
    assert!(operations > 20 * RECORDS as u64, "{operations}");
    let harms = [
        Harm::Fail(OpError::Failed),
        Harm::Fail(OpError::NotSupported),
        Harm::Lie,
        Harm::Short,
        Harm::Stall,
        Harm::Slow(1000),
        Harm::Slow(3 * DEADLINE_NS),
        Harm::Die,
    ];
    for harm in harms {
        for at in 0..operations {
            let what = format!("{harm:?} at {at}");
            world.faulty.inject(Some(Fault { harm, when: When::At(at) }));
            run_program(&world, &what);
            assert_eq!(world.faulty.struck(), 1, "{what} struck nothing");
            drain(&world);
            assert_eq!(world.device.live_handles(), 0, "{what} leaked");
            assert_eq!(world.inner_memory(), 0, "{what} leaked device memory");
        }
    }
}

/// A provider that is dead for good is no worse than none.
#[test]
fn a_dead_provider_is_no_worse_than_none() {
    let world = world();
    for harm in [Harm::Die, Harm::Fail(OpError::Down), Harm::Stall, Harm::Lie] {
        world.faulty.inject(Some(Fault { harm, when: When::From(7) }));
        run_program(&world, &format!("{harm:?} from 7 on"));
        drain(&world);
        assert_eq!(world.device.live_handles(), 0, "{harm:?}");
    }
}

/// Runs what late operations still have to do.
fn drain(world: &World) {
    let (completer, completion) = exec::completion();
    world.exec.spawn_after(10 * DEADLINE_NS, exec::TaskClass::Background, Box::new(move || completer.complete(())));
    completion.wait(&world.exec);
}

impl World {
    fn inner_memory(&self) -> u64 {
        use dpusm::Provider;
        self.inner.memory().map_or(0, |memory| memory.active.buffers)
    }
}
