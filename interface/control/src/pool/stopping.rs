//! The end of the daemon: everything is unmounted, synced and let go of, whatever has files open and whatever devices do.

use crate::mount::leaving::unmount_for_good;
use crate::mount::returning::Returning;
use crate::pool::OpenPool;
use crate::report::iostat;
use control_api::Remark;
use exec::{Condvar, Exec, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// Nanoseconds without an answer of its devices after which a pool is left as after a crash.
const PATIENCE_NS: u64 = 15_000_000_000;
const STEP: Duration = Duration::from_millis(20);

/// Number of pools that are not closed yet, and its changes.
#[derive(Default)]
struct Open {
    count: Mutex<usize>,
    changed: Condvar,
}

/// Data that ending now gives up: a sentence for each pool that cannot write what it was given.
pub(crate) fn unwritten(pools: &[Arc<OpenPool>]) -> Vec<Remark> {
    let cannot_write =
        |open: &&Arc<OpenPool>| !open.is_read_only() && (open.pool().zio().is_suspended() || open.pool().txgs().has_failed());
    let sentence = |open: &Arc<OpenPool>| {
        let name = open.name();
        Remark::Warning(format!("'{name}' is suspended: what it could not write is given up, and it is left as after a crash"))
    };
    pools.iter().filter(cannot_write).map(sentence).collect()
}

/// Closes pools that are on no list any more.
pub(crate) fn let_go(exec: &Exec, returning: &Returning, pools: Vec<Arc<OpenPool>>) {
    returning.clear_lost();
    unmount_for_good(exec, &pools);
    returning.forget_mounts();
    let open = Arc::new(Open { count: Mutex::new(pools.len()), ..Open::default() });
    for pool in pools.clone() {
        let open = open.clone();
        let work = move || {
            if let Err(error) = pool.pool().sync() {
                tracing::error!("cannot sync '{}': {error}", pool.name());
            }
            drop(pool);
            *open.count.lock() -= 1;
            open.changed.notify_all();
        };
        drop(exec.spawn_operation("z-close", Box::new(work)));
    }
    wait_for_pools(exec, &pools, &open);
    // Closing the last of them waits for its devices, too.
    let left = Arc::new(Open { count: Mutex::new(1), ..Open::default() });
    let told = left.clone();
    let work = move || {
        drop(pools);
        *told.count.lock() = 0;
        told.changed.notify_all();
    };
    drop(exec.spawn_operation("z-close", Box::new(work)));
    wait_for_pools(exec, &[], &left);
}

fn wait_for_pools(exec: &Exec, pools: &[Arc<OpenPool>], open: &Open) {
    let (mut since, mut seen, mut is_given_up) = (exec.now_ns(), 0, false);
    let mut count = open.count.lock();
    while *count > 0 {
        let operations = |pool: &Arc<OpenPool>| {
            let counters = iostat::iostat(pool);
            counters.read_operations + counters.write_operations
        };
        let done: u64 = pools.iter().map(operations).sum();
        if done != seen {
            (since, seen) = (exec.now_ns(), done);
        }
        let waited = exec.now_ns() - since;
        for pool in pools {
            if pool.pool().zio().is_suspended() {
                pool.pool().zio().abandon();
            }
            if waited > PATIENCE_NS && !is_given_up {
                tracing::error!("'{}' is given up: its devices do not answer", pool.name());
                pool.pool().zio().abandon();
                pool.pool().txgs().give_up();
            }
        }
        is_given_up |= waited > PATIENCE_NS;
        if waited > PATIENCE_NS + PATIENCE_NS / 6 {
            return;
        }
        open.changed.wait_for(&mut count, STEP);
    }
}
