//! `zpool wait`: asks again until nothing is busy, so that no single call is long.

use crate::args;
use cli::{Client, Stop};
use control_api::{Failure, PoolWait, Request, Response};

const STEP_MS: u64 = 5000;

/// What can be waited for (OpenZFS: `zpool_do_wait`).
const ACTIVITIES: [&str; 9] = ["discard", "free", "initialize", "replace", "remove", "resilver", "scrub", "trim", "raidz_expand"];

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::Wait) -> Result<u8, Stop> {
    if let Some(unknown) = arguments.activities.iter().find(|activity| !ACTIVITIES.contains(&activity.as_str())) {
        return Err(Stop::usage(format!("invalid activity '{unknown}'")));
    }
    until_idle(client, &arguments.pool, &arguments.activities)?;
    Ok(0)
}

/// Returns when none of the activities runs (all of them when none is named).
pub fn until_idle(client: &Client, pool: &str, activities: &[String]) -> Result<(), Failure> {
    loop {
        let request = PoolWait { pool: pool.to_string(), activities: activities.to_vec(), deadline_ms: STEP_MS };
        match client.call(&Request::PoolWait(request))? {
            Response::Busy(busy) if busy.is_empty() => return Ok(()),
            Response::Busy(_) => {}
            other => return Err(cli::unexpected("cannot wait", other)),
        }
    }
}
