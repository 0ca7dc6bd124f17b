//! What requests are about: which pools they look at or change, and the plain answer to those that have none of their own.

use control_api::{DirectTarget, Request, Response};

/// Threads that a request may need at once: those of a pool, of its devices and mounts.
pub(crate) const THREADS: usize = 8;

/// Answer to a request that is done, with nothing to say about it.
pub(crate) fn done() -> Response {
    Response::Done { remarks: Vec::new() }
}

/// True for requests that change which pools the next daemon is to open, or where it finds them.
pub(crate) fn changes_pools(request: &Request) -> bool {
    match request {
        Request::PoolCreate(request) => !request.dry_run,
        Request::PoolAdd(request) => !request.dry_run,
        Request::VdevRemove(request) => !request.dry_run,
        Request::PoolImport(request) => !request.dry_run,
        Request::PoolSet(request) => request.property == "cachefile",
        Request::PoolDestroy(_) | Request::PoolExport(_) | Request::PoolReguid(_) | Request::PoolSplit(_) | Request::VdevChange(_) => true,
        _ => false,
    }
}

/// True for requests that may start what stays; what ends it makes do with the threads that are kept for that.
pub(crate) fn needs_threads(request: &Request) -> bool {
    let ends = matches!(request, Request::PoolExport(_) | Request::PoolDestroy(_) | Request::DatasetDestroy(_) | Request::Unmount(_));
    request.changes() && !ends
}

/// Name of the pool that a request changes, for its history.
pub(crate) fn changed_pool(request: &Request) -> Option<&str> {
    let name = match request {
        Request::PoolCreate(request) if !request.dry_run => request.temporary_name.as_ref().unwrap_or(&request.pool),
        Request::PoolDestroy(target) | Request::PoolExport(target) => &target.pool,
        Request::PoolImport(request) => request.new_name.as_ref().or(request.pool.as_ref())?,
        Request::PoolSet(request) => &request.pool,
        Request::PoolReguid(request) => &request.pool,
        Request::PoolCheckpoint(request) => &request.pool,
        Request::PoolFreeze(request) => &request.pool,
        Request::PoolPrefetch(request) => &request.pool,
        Request::PoolSplit(request) => &request.pool,
        Request::PoolUpgrade(request) if !request.dry_run => &request.pool,
        Request::PoolScrub(request) => &request.pool,
        Request::PoolSweep(request) => &request.pool,
        Request::VdevChange(request) => &request.pool,
        Request::PoolAdd(request) if !request.dry_run => &request.pool,
        Request::VdevRemove(request) if !request.dry_run => &request.pool,
        Request::PoolClear(request) => &request.pool,
        Request::DatasetCreate(request) if !request.dry_run => &request.name,
        Request::DatasetDestroy(request) if !request.dry_run => &request.name,
        Request::DatasetSet(request) => &request.name,
        Request::DatasetInherit(request) => &request.name,
        Request::Snapshot(request) => request.names.first()?,
        Request::DatasetRename(request) => &request.from,
        Request::Hold(request) | Request::Release(request) => &request.name,
        Request::Bookmark(request) => &request.bookmark,
        Request::Redact(request) => &request.snapshot,
        Request::DatasetClone(request) => &request.name,
        Request::DatasetPromote(request) => &request.name,
        Request::DatasetRollback(request) => &request.name,
        Request::AllowChange(request) => &request.name,
        Request::Receive(request) if !request.dry_run => &request.target,
        Request::KeyLoad(request) if !request.dry_run => &request.name,
        Request::KeyUnload(request) => &request.name,
        Request::KeyChange(request) => &request.name,
        _ => return None,
    };
    name.split(['/', '@', '#']).next()
}

/// Pools that a request is about.
pub(crate) enum About<'a> {
    /// No pool at all.
    Nothing,
    /// Names of the pools.
    Pools(Vec<&'a str>),
    /// Pools, all of them, or nobody can say which.
    Everything,
}

/// Part of a dataset's, snapshot's or bookmark's name before all others.
pub(crate) fn pool_of(name: &str) -> &str {
    name.split(['/', '@', '#']).next().unwrap_or(name)
}

/// True for requests that look at datasets, or at the history of pools: of a pool that is not open yet they have nothing to tell.
pub(crate) fn looks_at_datasets(request: &Request) -> bool {
    match request {
        Request::DatasetQuery(_) | Request::Userspace(_) | Request::Holds(_) | Request::Allow(_) | Request::DatasetWait(_) => true,
        Request::Diff(_) | Request::Send(_) | Request::SendPlan(_) | Request::PoolHistory(_) => true,
        Request::Direct(query) => query.targets.iter().any(|target| !matches!(target, DirectTarget::Pool { .. })),
        _ => false,
    }
}

/// Pools that a request needs open.
pub(crate) fn about(request: &Request) -> About<'_> {
    let all = |names: &[String]| names.is_empty();
    let names = match request {
        Request::Info | Request::Stop | Request::Upgrade(_) | Request::PoolEvents(_) | Request::InjectList | Request::ProviderLoad(_) => {
            return About::Nothing;
        }
        Request::FeatureList => return About::Nothing,
        Request::IscsiList | Request::IscsiAllow(_) | Request::IscsiDeny(_) | Request::IscsiChap(_) | Request::NbdList => {
            return About::Nothing;
        }
        Request::ProviderUnload(request) if request.force => return About::Nothing,
        // Pools that are not open yet may name it.
        Request::ProviderList | Request::ProviderUnload(_) => return About::Everything,
        // Devices are taken, and nobody knows yet whose they are.
        Request::PoolCreate(_) | Request::PoolImport(_) | Request::PoolAdd(_) | Request::VdevChange(_) | Request::LabelClear(_) => {
            return About::Everything;
        }
        Request::PoolQuery(query) if !all(&query.pools) => &query.pools,
        Request::PoolHistory(query) if !all(&query.pools) => &query.pools,
        Request::PoolIostat(query) if !all(&query.pools) => &query.pools,
        Request::PoolSync(query) if !all(&query.pools) => &query.pools,
        Request::PoolReopen(query) if !all(&query.pools) => &query.pools,
        // Nobody knows yet whose mountpoint it is.
        Request::DatasetQuery(query) if query.names.iter().any(|name| name.starts_with('/')) => return About::Everything,
        Request::DatasetQuery(query) if !all(&query.names) => &query.names,
        Request::Userspace(query) => std::slice::from_ref(&query.name),
        Request::Holds(query) => std::slice::from_ref(&query.name),
        Request::Allow(query) => std::slice::from_ref(&query.name),
        Request::DatasetWait(query) => std::slice::from_ref(&query.name),
        Request::Diff(query) => return About::Pools(vec![pool_of(query.full_name())]),
        Request::PoolUpgrade(query) => std::slice::from_ref(&query.pool),
        Request::Send(request) | Request::SendPlan(request) if request.token.is_none() => std::slice::from_ref(&request.name),
        Request::PoolWait(query) => std::slice::from_ref(&query.pool),
        Request::KeyLoad(request) => std::slice::from_ref(&request.name),
        other => match changed_pool(other) {
            Some(name) => return About::Pools(vec![name]),
            None => return About::Everything,
        },
    };
    About::Pools(names.iter().map(|name| pool_of(name)).collect())
}
