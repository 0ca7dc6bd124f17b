//! Questions about open pools, and waiting for them: `zpool list`, `status`, `history`, `iostat`, `wait`, `sync`, `checkpoint`.

use crate::failure::{because, pool_failure};
use crate::pool::Pools;
use crate::report::{iostat, pictures, status};
use crate::requests::done;
use control_api::{
    ErrorKind, Failure, IostatReport, PoolCheckpoint, PoolFreeze, PoolHistory, PoolHistoryReport, PoolNames, PoolPrefetch, PoolQuery,
    PoolSync, PoolWait, Remark, Response,
};
use exec::Exec;
use ondisk::names::spa_version;

/// Answers `zpool list`, `status`, `get`.
pub(crate) fn query(pools: &Pools, query: &PoolQuery) -> Result<Response, Failure> {
    let names: Vec<String> = query.pools.iter().filter(|name| !pools.absent.contains(name)).cloned().collect();
    let all_absent = names.is_empty() && !query.pools.is_empty();
    let selected = if all_absent { Vec::new() } else { pools.selected(&names)? };
    let mut reports: Vec<_> =
        selected.iter().map(|open| status::pool_report(open, query.errors, &|spare| pools.pool_using(spare))).collect();
    reports.extend(pools.absent.reports(|name| query.pools.is_empty() || query.pools.iter().any(|wanted| wanted == name)));
    if query.pools.is_empty() {
        reports.sort_by(|one, other| one.name.cmp(&other.name));
    } else {
        reports.sort_by_key(|report| query.pools.iter().position(|name| *name == report.name));
    }
    Ok(Response::Pools(reports))
}

/// Answers `zpool history`.
pub(crate) fn history(pools: &Pools, request: &PoolHistory) -> Result<Response, Failure> {
    let mut reports = Vec::new();
    for open in pools.selected(&request.pools)? {
        if open.dsl().version() < spa_version::ZPOOL_HISTORY {
            let what = format!("cannot get history for pool '{}', pool must be upgraded", open.name());
            return Err(because(ErrorKind::Unsupported, what, "unsupported version or feature"));
        }
        let records = open.pool().history().map_err(|error| pool_failure(format!("cannot show history for '{}'", open.name()), &error))?;
        let records = records.iter().filter_map(|record| pictures::history_record(record, request.internal)).collect();
        reports.push(PoolHistoryReport { pool: open.name(), records });
    }
    Ok(Response::History(reports))
}

/// Answers `zpool iostat`.
pub(crate) fn counters(exec: &Exec, pools: &Pools, names: &PoolNames) -> Result<Response, Failure> {
    let pools = pools.selected(&names.pools)?.iter().map(|open| iostat::iostat(open)).collect();
    Ok(Response::Iostat(IostatReport { time_ns: exec.now_ns(), pools }))
}

/// Does `zpool wait`.
pub(crate) fn wait(exec: &Exec, pools: &Pools, request: &PoolWait) -> Result<Response, Failure> {
    const SETTLE_NS: u64 = 1_000_000_000;
    const STEP_NS: u64 = 20_000_000;
    const ACTIVITIES: [&str; 9] = ["discard", "free", "initialize", "replace", "remove", "resilver", "scrub", "trim", "raidz_expand"];
    if let Some(unknown) = request.activities.iter().find(|name| !ACTIVITIES.contains(&name.as_str())) {
        return Err(because(ErrorKind::Invalid, "cannot wait", format!("invalid activity '{unknown}'")));
    }
    let open = pools.open_pool(&request.pool)?;
    let until = exec.now_ns() + request.deadline_ms * 1_000_000;
    loop {
        let mut busy = open.busy(&request.devices);
        busy.retain(|activity| request.activities.is_empty() || request.activities.contains(activity));
        if busy.is_empty() && !open.is_read_only() {
            // What ended is on disk when whoever waits for it goes on (labels of what came in the place of something else, for one),
            // unless the devices are too busy for that: the activity is over all the same.
            open.pool().sync_within(SETTLE_NS);
        }
        if busy.is_empty() || exec.now_ns() >= until {
            return Ok(Response::Busy(busy));
        }
        exec.sleep_ns(STEP_NS);
    }
}

/// Does `zpool sync`: writes everything that the pools were given.
pub(crate) fn sync(pools: &Pools, request: &PoolSync) -> Result<Response, Failure> {
    let mut remarks = Vec::new();
    for open in pools.selected(&request.pools)? {
        let synced = if request.force { open.pool().sync_forced() } else { open.pool().sync() };
        synced.map_err(|error| pool_failure(format!("cannot sync '{}'", open.name()), &error))?;
        if open.pool().is_frozen() {
            let name = open.name();
            remarks.push(Remark::Warning(format!("warning: '{name}' is frozen: nothing was written, until it is exported and imported")));
        }
    }
    Ok(Response::Done { remarks })
}

/// Does `zpool checkpoint`.
pub(crate) fn checkpoint(pools: &Pools, request: &PoolCheckpoint) -> Result<Response, Failure> {
    let open = pools.open_pool(&request.pool)?;
    let outcome = if request.discard { open.pool().discard_checkpoint() } else { open.pool().make_checkpoint() };
    outcome.map_err(|error| pool_failure(request.what(), &error))?;
    Ok(done())
}

/// Does `zpool prefetch -t ddt`.
pub(crate) fn prefetch(pools: &Pools, request: &PoolPrefetch) -> Result<Response, Failure> {
    let open = pools.open_pool(&request.pool)?;
    open.pool().prefetch_dedup().map_err(|error| pool_failure(format!("cannot prefetch '{}'", open.name()), &error))?;
    Ok(done())
}

/// Does `zpool freeze`.
pub(crate) fn freeze(pools: &Pools, request: &PoolFreeze) -> Result<Response, Failure> {
    let open = pools.open_pool(&request.pool)?;
    open.pool().freeze().map_err(|error| pool_failure(format!("cannot freeze '{}'", open.name()), &error))?;
    Ok(done())
}
