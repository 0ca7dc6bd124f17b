//! `zfs wait`: the end of what goes on in a file system.

use crate::dataset::datasets::kind_of;
use crate::failure::{self, because};
use crate::pool::Pools;
use control_api::{DatasetWait, ErrorKind, Failure, Response};
use dsl::prop::table;
use exec::Exec;

/// Nanoseconds between two looks.
const STEP_NS: u64 = 20_000_000;

/// Waits until no file without a name is left to be deleted, or until the deadline. File systems that are not mounted have nothing to do.
pub(crate) fn wait(exec: &Exec, pools: &Pools, request: &DatasetWait) -> Result<Response, Failure> {
    let name = &request.name;
    let pool = pools.pool_of(name, "open")?;
    let handle = pool.dsl().hold(name).map_err(|error| failure::dataset("open", name, &error))?;
    if kind_of(&handle) != table::FILESYSTEM {
        let why = "operation not applicable to datasets of this type";
        return Err(because(ErrorKind::Invalid, format!("cannot open '{name}'"), why));
    }
    // Whoever destroys it meanwhile has nobody to wait for.
    drop(handle);
    let until = exec.now_ns().saturating_add(request.deadline_ms.saturating_mul(1_000_000));
    loop {
        let is_busy = pool.mounts.mounted(name).is_some_and(|mounted| mounted.zfs().unlinked() > 0);
        if !is_busy || exec.now_ns() >= until {
            return Ok(Response::Busy(if is_busy { vec!["deleteq".to_string()] } else { Vec::new() }));
        }
        exec.sleep_ns(STEP_NS);
    }
}
