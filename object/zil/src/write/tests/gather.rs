//! Batches that wait for others: who commits at about the same time shares a write.

use super::{Bench, removal};
use exec::Lockstep;
use std::sync::Arc;

/// If this fails, `zfs_commit_timeout_pct` does nothing, and who commits a moment later pays for a write of their own.
#[test]
fn a_batch_waits_for_others_where_it_is_to() {
    let writes = |percent: u64| {
        Lockstep::run_calmly(7, |exec| {
            let bench = Arc::new(Bench::begun(exec));
            bench.store.disk.lock().in_one_step = true;
            // The log knows how long its batches take: some 10 µs.
            for object in 1..60 {
                bench.note(removal(object, None));
                bench.commit();
            }
            bench.writer.set_gather_percent(percent);
            let (before, _) = bench.counts();
            let other = bench.clone();
            let commit = move || {
                other.note(removal(100, None));
                other.commit();
            };
            let first = exec.spawn_operation("first", Box::new(commit));
            exec.sleep_ns(40_000);
            bench.note(removal(200, None));
            bench.commit();
            first.join();
            assert!(bench.removed().ends_with(&[100, 200]));
            let (after, _) = bench.counts();
            bench.writer.close();
            bench.txgs.stop().expect("stopped");
            after - before
        })
    };
    assert_eq!((writes(0), writes(2000)), (2, 1));
}
