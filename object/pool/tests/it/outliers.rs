//! Slow devices of open pools, in virtual time: they are named, and sit out where `autosit` says so.
use crate::common::{BLOCKS, DEVICE_BYTES, check, dataset, exec, guids, host, new_object, tops, write};
use device::DeviceOp;
use exec::Exec;
use ondisk::{Guid, ObjectId};
use pool::{Outlying, Pool, PoolError, PoolSpec, Runtime};
use sim::{Fault, FaultKind, Latency, OpKind, Sim};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vdev::{LeafId, TopKind};
use zio::{LeafRequest, Priority};

/// Time that a device takes for a read, at least and at most.
const LATENCY: Latency = Latency { least_ns: 100_000, most_ns: 130_000 };
/// Nanoseconds that the slow device takes longer: five times as long as the others.
const LONGER_NS: u64 = 450_000;
/// The slow device.
const SLOW: usize = 3;
/// Reads of each device between two looks.
const READS: usize = 60;
/// Looks within which a slow device is named.
const LOOKS: usize = 20;
/// Place of the reads.
const OFFSET: u64 = 8 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// A pool on six devices, with an object.
struct Bed {
    exec: Exec,
    sim: Sim,
    pool: Pool,
    object: ObjectId,
    leaves: Vec<Guid>,
}

impl Bed {
    fn new(layout: &[(TopKind, usize)]) -> Bed {
        let exec = exec(11);
        let sim = Sim::new(&exec, 5);
        sim.set_latency(LATENCY);
        let devices: Vec<_> = (0..6).map(|index| sim.device(&format!("d{index}"), DEVICE_BYTES)).collect();
        let spec = PoolSpec { host: host(), ..PoolSpec::new("tank", tops(layout, &devices), dataset()) };
        let pool = Pool::create(&exec, spec, &Runtime::new()).expect("created");
        let object = new_object(&pool);
        write(&pool, object, 0..BLOCKS, 1);
        pool.sync().expect("synced");
        let leaves = guids(&pool);
        Bed { exec, sim, pool, object, leaves }
    }

    fn slow_down(&self) {
        self.sim.arm(Fault::always(FaultKind::Delay(LONGER_NS)).on(SLOW).only(OpKind::Read));
    }

    /// Reads of every device, one after the other.
    fn read(&self) {
        for _ in 0..READS {
            let done = Arc::new(AtomicUsize::new(0));
            for &leaf in &self.leaves {
                let request =
                    LeafRequest { leaf, offset: OFFSET, op: DeviceOp::read(4096), priority: Priority::SyncRead, speculative: false };
                let done = done.clone();
                let count = move |result: Result<abd::Abd, device::DeviceError>| {
                    assert!(result.is_ok());
                    done.fetch_add(1, Ordering::Relaxed);
                };
                self.pool.zio().leaf_io(request, Box::new(count));
            }
            self.exec.wait(&|| done.load(Ordering::Relaxed) == self.leaves.len(), &|| {});
        }
    }

    /// Looks so many times, with reads between; gives all that was news.
    fn look(&self, times: usize) -> Outlying {
        let mut all = Outlying::default();
        for _ in 0..times {
            self.read();
            let news = self.pool.outliers().look(&|| Arc::new(self.pool.vdev_props().expect("read")));
            all.named.extend(news.named);
            all.sat_out.extend(news.sat_out);
        }
        all
    }

    /// Guid of the vdev that the slow device belongs to.
    fn top(&self) -> Guid {
        let tree = self.pool.tree();
        tree.tops[tree.leaf(LeafId(SLOW as u32)).top.0 as usize].guid
    }

    fn remark(&self) -> String {
        self.pool.outliers().remarks().remove(&self.leaves[SLOW]).unwrap_or_default()
    }
}

/// If this fails, a slow device goes on slowing down its vdev with `autosit=on`, or one sits out although nobody said so; or it never comes back.
#[test]
fn a_slow_device_is_named_and_sits_out_where_its_vdev_says_so() {
    for layout in [&[(TopKind::Raidz(2), 6)][..], &[(TopKind::Mirror, 2); 3]] {
        let bed = Bed::new(layout);
        let (zio, slow) = (bed.pool.zio(), bed.leaves[SLOW]);
        assert_eq!(bed.look(LOOKS), Outlying::default(), "all alike: {layout:?}");
        bed.slow_down();
        let news = bed.look(LOOKS);
        assert_eq!(news.named.iter().map(|outlier| outlier.leaf).collect::<Vec<_>>(), [slow], "{layout:?}");
        assert!(news.sat_out.is_empty() && !zio.sits_out(slow) && bed.remark().starts_with("slow"), "named only: {layout:?}");
        bed.pool.set_vdev_prop(bed.top(), "autosit", "on").expect("set");
        let news = bed.look(1);
        assert_eq!(news.sat_out.iter().map(|outlier| outlier.leaf).collect::<Vec<_>>(), [slow], "{layout:?}");
        assert!(zio.sits_out(slow) && bed.remark().starts_with("sits out, slow"), "{layout:?}: {}", bed.remark());
        check(&bed.pool, bed.object, &[1; BLOCKS as usize], "while it sits out");
        // Its time is over, and it is as slow as before.
        bed.exec.sleep_ns(601 * SECOND_NS);
        assert!(!zio.sits_out(slow) && bed.remark().is_empty(), "{layout:?}");
        let news = bed.look(LOOKS);
        assert_eq!((news.named.len(), news.sat_out.len()), (1, 1), "{layout:?}");
        // Over again, and it is not.
        bed.exec.sleep_ns(601 * SECOND_NS);
        bed.sim.disarm();
        assert_eq!(bed.look(LOOKS), Outlying::default(), "{layout:?}");
        bed.pool.set_vdev_prop(bed.top(), "autosit", "off").expect("set");
        assert!(!bed.pool.vdev_props().expect("read").contains_key(&bed.top()));
    }
}

/// If this fails, `zpool set sit_out=on` takes so many devices out that reads need them all the same, or the setting cannot be undone.
#[test]
fn devices_are_told_to_sit_out_until_that_is_ended() {
    let bed = Bed::new(&[(TopKind::Raidz(2), 6)]);
    let set = |leaf: usize, is_on| bed.pool.set_sit_out(bed.leaves[leaf], is_on);
    assert_eq!([set(0, true), set(5, true), set(2, true)], [Ok(()), Ok(()), Err(PoolError::NoReplicas)]);
    bed.exec.sleep_ns(100_000 * SECOND_NS);
    assert!(bed.pool.zio().sits_out(bed.leaves[0]));
    check(&bed.pool, bed.object, &[1; BLOCKS as usize], "two sit out");
    assert_eq!([set(0, false), set(2, true)], [Ok(()), Ok(())]);
    bed.pool.clear(None).expect("cleared");
    assert!(bed.leaves.iter().all(|leaf| !bed.pool.zio().sits_out(*leaf)), "zpool clear ends it");
    assert_eq!(bed.pool.set_sit_out(Guid(7), true), Err(PoolError::NoSuchDevice));
}
