//! `zpool reguid`: another guid for an open pool.

use crate::failure::{because, pool_failure};
use crate::pool::Pools;
use crate::pool::cache_file::PoolsFile;
use crate::requests::done;
use control_api::{ErrorKind, Failure, PoolReguid, Response};
use ondisk::Guid;

/// Gives a pool another guid.
pub(crate) fn reguid(pools: &Pools, file: &PoolsFile, request: &PoolReguid) -> Result<Response, Failure> {
    let what = format!("cannot reguid '{}'", request.pool);
    let open = pools.open_pool(&request.pool)?;
    let has = |guid: u64| pools.any(|other| other.pool().tree().has_guid(Guid(guid)));
    match request.guid {
        Some(0) => return Err(because(ErrorKind::Invalid, what, "0 is no guid")),
        Some(guid) if has(guid) => return Err(because(ErrorKind::Exists, what, format!("the guid {guid} is in use"))),
        _ => {}
    }
    open.pool().reguid(request.guid.map(Guid)).map_err(|error| pool_failure(what, &error))?;
    file.remember();
    Ok(done())
}
