//! `zfs wait`: the end of what goes on in a file system.

use crate::dataset::datasets::pool_of_filesystem;
use crate::pool::Pools;
use control_api::{DatasetWait, Failure, Response};
use exec::Exec;

/// Nanoseconds between two looks.
const STEP_NS: u64 = 20_000_000;

/// Waits until no file without a name is left to be deleted, or until the deadline. File systems that are not mounted have nothing to do.
pub(crate) fn wait(exec: &Exec, pools: &Pools, request: &DatasetWait) -> Result<Response, Failure> {
    let name = &request.name;
    let pool = pool_of_filesystem(pools, name)?;
    let until = exec.now_ns().saturating_add(request.deadline_ms.saturating_mul(1_000_000));
    loop {
        let is_busy = pool.mounts.mounted(name).is_some_and(|mounted| mounted.zfs().unlinked() > 0);
        if !is_busy || exec.now_ns() >= until {
            return Ok(Response::Busy(if is_busy { vec!["deleteq".to_string()] } else { Vec::new() }));
        }
        exec.sleep_ns(STEP_NS);
    }
}
