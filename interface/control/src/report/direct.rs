//! Counts of direct I/O for `zfs direct-stats` and `zpool iostat --direct`.

use crate::failure::because;
use crate::pool::Pools;
use crate::requests::pool_of;
use control_api::{DirectCount, DirectFallback, DirectQuery, DirectReport, DirectTarget, ErrorKind, Failure, Response};
use metrics::Parameters;
use ondisk::ObjectId;
use std::sync::Arc;
use zio::ChangedBuffers;
use zpl::direct::{DirectSnapshot, Tunables};

/// Parameters that the environment may set at the start of the daemon.
const FROM_ENVIRONMENT: [(&str, &str); 5] = [
    ("zfs_dio_enabled", "ZIRCONIA_ZFS_DIO_ENABLED"),
    ("zfs_dio_strict", "ZIRCONIA_ZFS_DIO_STRICT"),
    ("zirconia_keep_mounts", "ZIRCONIA_KEEP_MOUNTS"),
    ("zirconia_mount_syncfs", "ZIRCONIA_MOUNT_SYNCFS"),
    ("zirconia_fuse_uring", "ZIRCONIA_FUSE_URING"),
];

/// Words for the values of `zirconia_fuse_uring` in the environment.
const URING_WORDS: [(&str, &str); 3] = [("off", "0"), ("auto", "1"), ("on", "2")];

/// Parameters at the start of the daemon: those of [`FROM_ENVIRONMENT`], numbers or [`URING_WORDS`]; gives those of direct I/O.
pub(crate) fn tunables_from_environment(parameters: &Parameters) -> Arc<Tunables> {
    for (name, variable) in FROM_ENVIRONMENT {
        if let Ok(text) = std::env::var(variable) {
            let number =
                URING_WORDS.iter().find(|(word, _)| name == "zirconia_fuse_uring" && *word == text).map_or(&*text, |(_, number)| number);
            // What makes no sense leaves the default.
            let _ = parameters.set(name, number);
        }
    }
    let tunables = Tunables::default();
    apply(&tunables, parameters);
    Arc::new(tunables)
}

/// Makes file systems follow the parameters.
pub(crate) fn apply(tunables: &Tunables, parameters: &Parameters) {
    tunables.set_enabled(parameters.get("zfs_dio_enabled") != Some(0));
    tunables.set_strict(parameters.get("zfs_dio_strict") != Some(0));
    tunables.set_coalesces(parameters.get("zirconia_direct_write_coalesce") != Some(0));
}

fn report(name: String, kind: &str, counts: DirectSnapshot, changed: ChangedBuffers, shared: (u64, u64)) -> DirectReport {
    let count = |(requests, bytes)| DirectCount { requests, bytes };
    let fallback = |from: zpl::direct::ReasonCount| DirectFallback {
        reason: from.reason.name().to_string(),
        count: count((from.requests, from.bytes)),
        remedy: from.reason.cure().to_string(),
    };
    DirectReport {
        name,
        kind: kind.to_string(),
        asked: count(counts.asked),
        direct_reads: count(counts.direct_reads),
        direct_writes: count(counts.direct_writes),
        refused: count(counts.rejected),
        verify_writes: count(changed.writes),
        verify_reads: count(changed.reads),
        shared_reads: count(shared),
        coalesced_writes: count(counts.coalesced_writes),
        fallbacks: counts.fallbacks.into_iter().map(fallback).collect(),
    }
}

/// Answers `zfs direct-stats`, `zpool iostat --direct`.
pub(crate) fn query(pools: &Pools, query: &DirectQuery) -> Result<Response, Failure> {
    let every = || pools.names().into_iter().map(|name| DirectTarget::Pool { name }).collect();
    let targets: Vec<DirectTarget> = if query.targets.is_empty() { every() } else { query.targets.clone() };
    let reports = targets.iter().map(|target| match target {
        DirectTarget::Pool { name } => {
            let pool = pools.open_pool(name)?;
            let changed = pool.pool().zio().changed_buffers(None, None);
            let shared = pool.pool().iostats().direct_shared.get();
            Ok(report(name.clone(), "pool", pool.mounts.direct_of_pool().snapshot(), changed, shared))
        }
        DirectTarget::Dataset { name } => of_dataset(pools, name),
        DirectTarget::File { path, inode } => of_file(pools, path, ObjectId(*inode)),
    });
    Ok(Response::Direct(reports.collect::<Result<_, Failure>>()?))
}

fn of_dataset(pools: &Pools, name: &str) -> Result<DirectReport, Failure> {
    let missing = || because(ErrorKind::NotFound, format!("cannot open '{name}'"), "dataset does not exist");
    let wanted = pool_of(name);
    let absent = || pools.absent.failure_within(wanted, format!("cannot open '{name}'")).unwrap_or_else(missing);
    let pool = pools.get(wanted).ok_or_else(absent)?;
    let objset = pool.dsl().hold(name).and_then(|dataset| dataset.objset()).map_err(|_| missing())?;
    let changed = pool.pool().zio().changed_buffers(Some(objset.id()), None);
    Ok(report(name.to_string(), "filesystem", pool.mounts.direct_of(name).snapshot(), changed, objset.shared_direct_reads()))
}

fn of_file(pools: &Pools, path: &str, object: ObjectId) -> Result<DirectReport, Failure> {
    let all = pools.all();
    let below = |place: &str| path.strip_prefix(place.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let places = all.iter().flat_map(|pool| pool.mounts.list().into_iter().map(move |(name, place)| (pool, name, place)));
    let deepest = places.filter(|(_, _, place)| below(place)).max_by_key(|(_, _, place)| place.len());
    let Some((pool, name, place)) = deepest else {
        return Err(because(ErrorKind::NotFound, format!("cannot open '{path}'"), "no file system of these pools is mounted there"));
    };
    if path.trim_end_matches('/') == place.trim_end_matches('/') {
        return of_dataset(pools, &name);
    }
    let (objset, counts) = pool.mounts.direct_of_file(&name, object).unwrap_or_default();
    let changed = pool.pool().zio().changed_buffers(Some(objset), Some(object));
    // Counted for the file system, not for each file.
    Ok(report(path.to_string(), "file", counts, changed, (0, 0)))
}
