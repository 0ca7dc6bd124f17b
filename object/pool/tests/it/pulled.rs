//! Disks that are pulled out while the pool is in use and come back as other devices: what their old handles did is no guide, and
//! nothing that was accepted may be lost by it.

use crate::common::{BLOCKS, check, dataset, devices, host, leaf, new_object, until, write};
use device::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use exec::Exec;
use pool::{ImportOptions, Pool, PoolError, PoolSpec, Runtime, TopSpec};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vdev::{LeafState, TopKind};

/// A handle of a disk: once that was pulled out, it never works again.
#[derive(Debug)]
struct Plugged {
    disk: Arc<MemDevice>,
    is_out: AtomicBool,
}

impl Plugged {
    fn new(disk: &Arc<MemDevice>) -> Arc<Plugged> {
        Arc::new(Plugged { disk: disk.clone(), is_out: AtomicBool::new(false) })
    }
}

impl BlockDevice for Plugged {
    fn submit(&self, io: DeviceIo) {
        if self.is_out.load(Ordering::Acquire) { io.fail(DeviceError::Gone) } else { self.disk.submit(io) }
    }
    fn facts(&self) -> &DeviceFacts {
        self.disk.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }
}

/// A device of which nothing can be written while it is full.
#[derive(Debug)]
struct Full {
    disk: Arc<MemDevice>,
    is_full: AtomicBool,
}

impl BlockDevice for Full {
    fn submit(&self, io: DeviceIo) {
        let is_write = matches!(io.op, DeviceOp::Write(_));
        if is_write && self.is_full.load(Ordering::Acquire) { io.fail(DeviceError::NoSpace) } else { self.disk.submit(io) }
    }
    fn facts(&self) -> &DeviceFacts {
        self.disk.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }
}

/// If this fails, a pool whose disks lost power for a moment stays suspended until the machine is restarted.
#[test]
fn two_pulled_disks_that_return_bring_a_suspended_pool_back() {
    let exec: Exec = Arc::new(exec::Pool::new(2));
    let disks = devices(3);
    let handles: Vec<Arc<Plugged>> = disks.iter().map(Plugged::new).collect();
    let tops = vec![TopSpec { kind: TopKind::Raidz(1), leaves: handles.iter().map(leaf).collect() }];
    let pool = Pool::create(&exec, PoolSpec { host: host(), ..PoolSpec::new("tank", tops, dataset()) }, &Runtime::new());
    let pool = Arc::new(pool.expect("created"));
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS / 2, 1);
    pool.sync().expect("synced");
    let guids = crate::common::guids(&pool);

    handles[..2].iter().for_each(|handle| handle.is_out.store(true, Ordering::Release));
    write(&pool, object, BLOCKS / 2..BLOCKS, 2);
    let waiter = pool.clone();
    let synced = exec.spawn_operation("sync", Box::new(move || waiter.sync().expect("synced once the disks are back")));
    until(&exec, "suspension", || pool.zio().is_suspended());

    assert_eq!(pool.silent_leaves(), guids[..2], "the third answers");
    // Nobody put them back yet.
    pool.let_go(&guids[..2]);
    let works = pool.bring_back(guids[..2].iter().map(|guid| (*guid, None)).collect()).expect("tried");
    assert!(!works && pool.zio().is_suspended());
    assert_eq!(
        pool.tree().leaves.iter().map(|leaf| leaf.state).collect::<Vec<_>>(),
        [LeafState::Missing, LeafState::Missing, LeafState::Online]
    );
    // Both are back, as other devices.
    let fresh = |index: usize| Some(Plugged::new(&disks[index]) as Arc<dyn BlockDevice>);
    let works = pool.bring_back(vec![(guids[0], fresh(0)), (guids[1], fresh(1))]).expect("tried");
    assert!(works && !pool.zio().is_suspended());
    synced.join();
    assert!(pool.tree().leaves.iter().all(|leaf| leaf.state == LeafState::Online));
    let ages: Vec<u64> = (0..BLOCKS).map(|block| 1 + u64::from(block >= BLOCKS / 2)).collect();
    check(&pool, object, &ages, "after the disks came back");
    assert!(pool.silent_leaves().is_empty());
}

/// If this fails, `zpool import` of a pool whose devices take no writes (a full file system below them) never ends, and no command
/// reaches the pool.
#[test]
fn an_import_onto_devices_that_take_no_writes_ends_with_an_error() {
    let exec: Exec = Arc::new(exec::Pool::new(2));
    let disks = devices(1);
    let pool = crate::common::create(&disks, TopKind::Leaf);
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    pool.export().expect("exported");
    let handle = Arc::new(Full { disk: disks[0].clone(), is_full: AtomicBool::new(true) });
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    let import = || Pool::import(&exec, vec![handle.clone() as Arc<dyn BlockDevice>], &options, &Runtime::new());
    let error = import().err().expect("nothing can be written");
    assert_eq!(error, PoolError::Unwritable);
    // There is room again.
    handle.is_full.store(false, Ordering::Release);
    let pool = import().expect("imported");
    check(&pool, object, &[1; BLOCKS as usize], "after an import in vain");
}
