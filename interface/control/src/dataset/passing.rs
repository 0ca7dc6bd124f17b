//! Snapshots that a command takes of what is in use, and destroys at its end, as OpenZFS's `zfs diff` does.

use crate::dataset::destroying::once_nobody_looks;
use crate::failure;
use crate::pool::OpenPool;
use control_api::Failure;
use std::sync::Arc;

/// Nanoseconds that a snapshot waits for files that were just removed: the kernel lets go of them a moment later.
const REMOVED_NS: u64 = 200_000_000;
/// Nanoseconds between two looks at them.
const LOOK_NS: u64 = 5_000_000;

/// Snapshot of a dataset as it is now. It goes with this.
pub(super) struct Passing {
    pool: Arc<OpenPool>,
    name: String,
    is_there: bool,
}

impl Passing {
    /// Takes the snapshot of a dataset; its name begins with `prefix`.
    pub(super) fn take(pool: &Arc<OpenPool>, dataset: &str, prefix: &str) -> Result<Passing, Failure> {
        let exec = pool.pool().exec();
        let until = exec.now_ns().saturating_add(REMOVED_NS);
        while exec.now_ns() < until && pool.mounts.mounted(dataset).is_some_and(|mounted| mounted.zfs().unlinked() > 0) {
            exec.sleep_ns(LOOK_NS);
        }
        let name = format!("{dataset}@{prefix}-{}-{:016x}", std::process::id(), exec.now_ns());
        pool.mounts.flush(std::iter::once(dataset))?;
        pool.dsl().snapshot(std::slice::from_ref(&name), Vec::new()).map_err(|error| Failure {
            what: format!("Cannot create just-in-time snapshot of '{dataset}'"),
            ..failure::dataset("create snapshot", &name, &error)
        })?;
        Ok(Passing { pool: pool.clone(), name, is_there: true })
    }

    /// Full name of the snapshot.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Destroys the snapshot, and says what keeps it.
    pub(super) fn destroy(mut self) -> Result<(), Failure> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.is_there = false;
        let names = std::slice::from_ref(&self.name);
        self.pool.mounts.close_snapshots(names, "destroy")?;
        once_nobody_looks(self.pool.pool().exec(), || self.pool.dsl().destroy_snapshots(names, false))
            .map_err(|error| failure::dataset("destroy snapshot", &self.name, &error))
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if self.is_there
            && let Err(failure) = self.remove()
        {
            tracing::warn!("{failure}");
        }
    }
}
