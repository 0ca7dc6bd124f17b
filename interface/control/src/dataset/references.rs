//! `zfs hold`, `release`, `holds` and `bookmark`: what keeps snapshots from being destroyed, and what remembers them.

use crate::dataset::destroying::once_nobody_looks;
use crate::dataset::names::{descendants, filesystem_of};
use crate::dataset::properties::text_of;
use crate::failure::{self, because};
use crate::pool::{OpenPool, Pools};
use crate::requests::done;
use control_api::{
    BookmarkCreate, DatasetDestroy, DatasetReport, ErrorKind, Failure, HoldReport, HoldsQuery, HoldsReport, Named, Property, Response,
    SnapshotHold, Value, name_objection,
};
use dsl::{BookmarkEntry, DslError};
use std::sync::Arc;

/// Pool of a snapshot, and the names of the snapshots that are meant: with `recursive` those of that name of datasets below too, there or not.
fn snapshots_of(pools: &Pools, name: &str, recursive: bool) -> Result<(Arc<OpenPool>, Vec<String>), Failure> {
    let Some((filesystem, snapshot)) = name.split_once('@') else {
        return Err(because(ErrorKind::Invalid, format!("'{name}' is not a snapshot"), ""));
    };
    let pool = pools.pool_of(filesystem, "open")?;
    drop(pool.dsl().hold(filesystem).map_err(|error| failure::dataset("open", filesystem, &error))?);
    let filesystems = if recursive { descendants(&pool, filesystem)? } else { vec![filesystem.to_string()] };
    Ok((pool, filesystems.into_iter().map(|filesystem| format!("{filesystem}@{snapshot}")).collect()))
}

/// Takes a hold on snapshots, on all or none.
pub(crate) fn hold(pools: &Pools, request: &SnapshotHold) -> Result<Response, Failure> {
    let (pool, names) = snapshots_of(pools, &request.name, request.recursive)?;
    let Err(error) = pool.dsl().hold_snapshots(&names, &request.tag) else { return Ok(done()) };
    let has_tag = |name: &&String| pool.dsl().user_holds(name).is_ok_and(|holds| holds.iter().any(|hold| hold.tag == request.tag));
    if error == DslError::TagExists {
        let those = names.iter().filter(has_tag);
        failure::joined(those.map(|name| failure::dataset("hold snapshot", name, &error)).collect())?;
    }
    Err(failure::dataset("hold snapshot", &request.name, &error))
}

/// Releases holds on snapshots; those that were marked for destruction go with their last.
pub(crate) fn release(pools: &Pools, request: &SnapshotHold) -> Result<Response, Failure> {
    let (pool, names) = snapshots_of(pools, &request.name, request.recursive)?;
    let is_marked = |name: &&String| pool.dsl().hold(name).is_ok_and(|handle| text_of(&handle, "defer_destroy") == "on");
    let marked: Vec<String> = names.iter().filter(is_marked).cloned().collect();
    pool.mounts.close_snapshots(&marked, "release")?;
    once_nobody_looks(pool.pool().exec(), || pool.dsl().release_snapshots(&names, &request.tag))
        .map_err(|error| failure::dataset("release hold from snapshot", &request.name, &error))?;
    Ok(done())
}

/// Lists the holds on snapshots, by the names of their datasets.
pub(crate) fn holds(pools: &Pools, query: &HoldsQuery) -> Result<Response, Failure> {
    let (pool, mut names) = snapshots_of(pools, &query.name, query.recursive)?;
    names.sort_by(|a, b| filesystem_of(a).cmp(filesystem_of(b)));
    let mut reports = Vec::new();
    for name in names {
        match pool.dsl().user_holds(&name) {
            Ok(holds) => {
                let holds = holds.into_iter().map(|hold| HoldReport { tag: hold.tag, time: hold.time as i64 }).collect();
                reports.push(HoldsReport { name, holds });
            }
            Err(DslError::NotFound) if query.recursive => {}
            Err(error) => return Err(failure::dataset("open", &name, &error)),
        }
    }
    Ok(Response::Holds(reports))
}

/// True when users hold the snapshot.
pub(crate) fn is_held(pool: &OpenPool, snapshot: &str) -> bool {
    pool.dsl().user_holds(snapshot).is_ok_and(|holds| !holds.is_empty())
}

/// Failure of destroying snapshots, some of which users hold: a line for each of these.
pub(crate) fn held(pool: &OpenPool, names: &[String]) -> Failure {
    let line = |name: &str| because(ErrorKind::Busy, format!("cannot destroy snapshot {name}"), DslError::Held);
    let lines = names.iter().filter(|name| is_held(pool, name)).map(|name| line(name)).collect();
    let first = names.first().map(String::as_str).unwrap_or_default();
    let failure = failure::joined(lines).err().unwrap_or_else(|| line(first));
    failure.advise("'zfs holds' shows who holds a snapshot; 'zfs destroy -d' has it go with the last hold")
}

/// Makes a bookmark of a snapshot or of another bookmark.
pub(crate) fn bookmark(pools: &Pools, request: &BookmarkCreate) -> Result<Response, Failure> {
    let refused = |kind, why: &str| because(kind, format!("cannot create bookmark '{}'", request.bookmark), why);
    let pool_name = |name: &str| name.split(['/', '@', '#']).next().map(String::from);
    if pool_name(&request.source) != pool_name(&request.bookmark) {
        return Err(refused(ErrorKind::Invalid, "bookmark is in a different pool"));
    }
    if name_objection(&request.bookmark, Named::Bookmark, true).is_some() {
        return Err(refused(ErrorKind::Invalid, "invalid argument"));
    }
    let (dataset, _) = parts(&request.bookmark);
    let pool = pools.pool_of(dataset, "open")?;
    pool.dsl().create_bookmark(&request.bookmark, &request.source).map_err(|error| match error {
        DslError::Exists => refused(ErrorKind::Exists, "bookmark exists"),
        DslError::Unsupported => refused(ErrorKind::Unsupported, "bookmark feature not enabled"),
        DslError::BadName | DslError::NotSnapshot => refused(ErrorKind::Invalid, "invalid argument"),
        other => failure::dataset("create bookmark", &request.bookmark, &other),
    })?;
    Ok(done())
}

/// Destroys a bookmark.
pub(crate) fn destroy_bookmark(pools: &Pools, request: &DatasetDestroy) -> Result<Response, Failure> {
    let missing = || because(ErrorKind::NotFound, format!("bookmark '{}' does not exist.", request.name), "");
    let (dataset, name) = parts(&request.name);
    let pool = pools.pool_of(dataset, "open").map_err(|failure| match failure.kind {
        ErrorKind::NotFound | ErrorKind::Invalid => missing(),
        _ => failure,
    })?;
    let destroyed = match request.dry_run {
        true => pool.dsl().bookmarks(dataset).and_then(|known| find(known, name).map(drop)),
        false => pool.dsl().destroy_bookmark(&request.name),
    };
    destroyed.map_err(|error| match error {
        DslError::NotFound | DslError::BadName => missing(),
        other => Failure { what: "cannot destroy bookmark".to_string(), ..failure::dataset("destroy", &request.name, &other) },
    })?;
    Ok(Response::Destroyed { names: vec![request.name.clone()], reclaim_bytes: 0 })
}

/// Report of the bookmark of this full name.
pub(crate) fn named(pools: &Pools, full: &str) -> Result<DatasetReport, Failure> {
    if let Some(why) = name_objection(full, Named::Bookmark, false) {
        return Err(because(ErrorKind::Invalid, format!("cannot open '{full}'"), why));
    }
    let (dataset, name) = parts(full);
    let pool = pools.pool_of(dataset, "open")?;
    let found = pool.dsl().bookmarks(dataset).and_then(|known| find(known, name));
    found.map(|entry| report(&pool, dataset, entry)).map_err(|error| failure::dataset("open", full, &error))
}

/// Reports of the bookmarks of a dataset, oldest first.
pub(crate) fn bookmarks_of(pool: &OpenPool, dataset: &str) -> Result<Vec<DatasetReport>, Failure> {
    let known = pool.dsl().bookmarks(dataset).map_err(|error| failure::dataset("list bookmarks of", dataset, &error))?;
    Ok(known.into_iter().map(|entry| report(pool, dataset, entry)).collect())
}

fn find(known: Vec<BookmarkEntry>, name: &str) -> Result<BookmarkEntry, DslError> {
    known.into_iter().find(|entry| entry.name == name).ok_or(DslError::NotFound)
}

/// Parts of a bookmark's name before and behind the `#`.
fn parts(name: &str) -> (&str, &str) {
    name.split_once('#').unwrap_or((name, ""))
}

fn report(pool: &OpenPool, dataset: &str, entry: BookmarkEntry) -> DatasetReport {
    let mut properties = vec![
        Property::fact("type", Value::Text("bookmark".to_string())),
        Property::fact("creation", Value::Time(entry.creation_time as i64)),
    ];
    properties.extend(entry.space.map(|space| Property::fact("referenced", Value::Bytes(space.referenced))));
    properties.push(Property::fact("createtxg", Value::Number(entry.creation_txg)));
    properties.push(Property::fact("guid", Value::Number(entry.guid)));
    if let Some(space) = entry.space {
        properties.push(Property::fact("refcompressratio", Value::Ratio(space.compress_ratio())));
        properties.push(Property::fact("logicalreferenced", Value::Bytes(space.uncompressed)));
    }
    properties.extend((entry.ivs != 0).then(|| Property::fact("ivsetguid", Value::Number(entry.ivs))));
    properties.extend(entry.redaction.map(|list| Property::fact("redact_snaps", Value::Text(list.shown()))));
    DatasetReport {
        name: format!("{dataset}#{}", entry.name),
        kind: "bookmark".to_string(),
        pool: pool.name(),
        create_txg: entry.creation_txg,
        properties,
        unread: None,
    }
}
