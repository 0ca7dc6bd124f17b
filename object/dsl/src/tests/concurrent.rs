//! Writers on threads of their own while snapshots and datasets come and go.

use super::{TestPool, filesystem, write};
use dmu::testing::MemBlockIo;
use exec::OperationHandle;
use ondisk::ObjectId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Each writer owns one file per data set and fills it with its own byte, so any snapshot must show only such bytes.
fn writer(pool: &Arc<TestPool>, index: u8, stop: &Arc<AtomicBool>) -> OperationHandle {
    let (own, stop) = (pool.clone(), stop.clone());
    let job = move || {
        let name = format!("tank/w{}", index % 2);
        let mut object = 0;
        let mut round = 0u64;
        while !stop.load(Ordering::Relaxed) {
            let offset = round % 64 * 3000;
            object = write(&own, &name, object, offset, &[index + 1; 5000]).expect("writes");
            round += 1;
        }
        assert!(round > 0);
    };
    dmu::BlockIo::exec(&pool.io).spawn_operation("writer", Box::new(job))
}

/// A snapshot taken under load must be whole, and the space must add up afterwards.
#[test]
fn snapshots_under_load_are_whole() {
    let pool = Arc::new(TestPool::create_on(MemBlockIo::threaded(3)));
    for index in 0..2 {
        pool.dsl.create_dataset(&format!("tank/w{index}"), filesystem()).expect("creates");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<OperationHandle> = (0..4).map(|index| writer(&pool, index, &stop)).collect();
    for round in 0..12 {
        let names: Vec<String> = (0..2).map(|index| format!("tank/w{index}@{round}")).collect();
        pool.dsl.snapshot(&names, Vec::new()).expect("snapshots");
        if round % 3 == 2 {
            pool.dsl.destroy_snapshots(&[format!("tank/w0@{}", round - 1), format!("tank/w1@{}", round - 2)], false).expect("destroys");
            let name = format!("tank/c{round}");
            pool.dsl.clone_snapshot(&name, &names[0], Vec::new()).expect("clones");
            write(&pool, &name, 0, 0, &[9; 20_000]).expect("writes");
            pool.dsl.destroy_dataset(&name).expect("destroys");
        }
    }
    stop.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(OperationHandle::join);
    pool.drain();
    pool.check();
    for (name, _) in pool.all_datasets().iter().filter(|(name, _)| name.contains('@')) {
        let objset = pool.dsl.hold(name).and_then(|handle| handle.objset()).expect("opens");
        let mut at = ObjectId(1);
        while let Some(object) = objset.next_object(at).expect("walks") {
            let mut bytes = vec![0; 64 * 3000 + 5000];
            objset.hold(object).expect("exists").read(0, &mut bytes).expect("reads");
            let owner = bytes.iter().copied().find(|byte| *byte != 0).unwrap_or(0);
            assert!(bytes.iter().all(|byte| *byte == 0 || *byte == owner), "object {object} of {name} mixes writers");
            at = object;
        }
    }
    pool.txgs.stop().expect("stops");
}
