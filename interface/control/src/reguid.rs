//! `zpool reguid`: another guid for an open pool.

use crate::Control;
use crate::failure::because;
use crate::pools::{done, pool_failure};
use control_api::{ErrorKind, Failure, PoolReguid, Response};
use ondisk::Guid;

impl Control {
    pub(crate) fn pool_reguid(&self, request: &PoolReguid) -> Result<Response, Failure> {
        let what = format!("cannot reguid '{}'", request.pool);
        let open = self.open_pool(&request.pool)?;
        let has = |guid: u64| self.pools.read().values().any(|other| other.pool().tree().has_guid(Guid(guid)));
        match request.guid {
            Some(0) => return Err(because(ErrorKind::Invalid, what, "0 is no guid")),
            Some(guid) if has(guid) => return Err(because(ErrorKind::Exists, what, format!("the guid {guid} is in use"))),
            _ => {}
        }
        open.pool().reguid(request.guid.map(Guid)).map_err(|error| pool_failure(what, &error))?;
        self.remember();
        Ok(done())
    }
}
