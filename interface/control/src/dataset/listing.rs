//! `zfs list` and `zfs get`: datasets and bookmarks, and their properties.

use crate::dataset::asked::add_asked;
use crate::dataset::properties::property;
use crate::dataset::references;
use crate::failure;
use crate::mount::options::Asked;
use crate::mount::place::effective_mountpoint;
use crate::pool::{OpenPool, Pools};
use control_api::{DatasetQuery, DatasetReport, Failure, Property, Response, Source, Value};
use dsl::{DatasetHandle, DslError};
use ondisk::ObjsetType;

/// Lists the datasets that were asked for.
pub(crate) fn query(pools: &Pools, query: &DatasetQuery) -> Result<Response, Failure> {
    let mut reports = Vec::new();
    let names = if query.names.is_empty() { pools.names() } else { query.names.clone() };
    for name in names {
        // A mountpoint stands for its dataset.
        let name = if name.starts_with('/') { pools.by_mountpoint(&name)? } else { name };
        if name.contains('#') && query.types.iter().any(|kind| kind == "bookmark") {
            reports.push(references::named(pools, &name)?);
            continue;
        }
        let pool = pools.pool_of(&name, "open")?;
        let named_directly = !query.names.is_empty();
        collect(&pool, &name, query, 0, named_directly, &mut reports)?;
    }
    add_asked(pools, &query.asked, &mut reports);
    Ok(Response::Datasets(reports))
}

fn collect(
    pool: &OpenPool,
    name: &str,
    query: &DatasetQuery,
    depth: u32,
    named: bool,
    out: &mut Vec<DatasetReport>,
) -> Result<(), Failure> {
    let handle = pool.dsl().hold(name).map_err(|error| failure::dataset("open", name, &error))?;
    let report = report_of(pool, &handle);
    if query.types.contains(&report.kind) || (named && depth == 0 && query.types.len() == 1 && name.contains('@')) {
        out.push(report);
    }
    if handle.is_snapshot() || query.depth.is_some_and(|limit| depth >= limit) {
        return Ok(());
    }
    if query.types.iter().any(|kind| kind == "snapshot") {
        let snapshots = pool.dsl().snapshots(name).map_err(|error| failure::dataset("list snapshots of", name, &error))?;
        for snapshot in snapshots {
            let full = format!("{name}@{}", snapshot.name);
            // A snapshot may be destroyed between the listing and the hold.
            if let Ok(handle) = pool.dsl().hold(&full) {
                out.push(report_of(pool, &handle));
            }
        }
    }
    if query.types.iter().any(|kind| kind == "bookmark") {
        out.extend(references::bookmarks_of(pool, name)?);
    }
    let mut children = pool.dsl().children(name).map_err(|error| failure::dataset("list children of", name, &error))?;
    children.sort();
    for child in children {
        let (full, before) = (format!("{name}/{child}"), out.len());
        match collect(pool, &full, query, depth + 1, named, out) {
            Ok(()) => {}
            // Destroyed meanwhile.
            Err(_) if matches!(pool.dsl().hold(&full), Err(DslError::NotFound)) => {}
            // The others are shown all the same. Lists of other kinds have no line that could tell.
            Err(failure) if query.types.iter().any(|kind| kind == "filesystem") => mark_unread(pool, &full, &failure, before, out),
            Err(failure) if pool.dsl().hold(&full).is_err() => tracing::warn!("{failure}"),
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Notes that a dataset, or what belongs to it, cannot be read: in its report, which is the one at this place if there is one, or a report without
/// properties.
fn mark_unread(pool: &OpenPool, name: &str, failure: &Failure, place: usize, out: &mut Vec<DatasetReport>) {
    let unread = Some(failure.why.clone());
    match out.get_mut(place).filter(|report| report.name == name) {
        Some(report) => report.unread = unread,
        None => {
            let (name, kind) = (name.to_string(), "filesystem".to_string());
            out.push(DatasetReport { name, kind, pool: pool.name(), create_txg: 0, properties: Vec::new(), unread });
        }
    }
}

/// Report of a dataset; what cannot be read of it is left out, and said.
fn report_of(pool: &OpenPool, handle: &DatasetHandle) -> DatasetReport {
    let name = handle.name();
    let kind = if handle.is_snapshot() {
        "snapshot"
    } else if handle.kind().is_ok_and(|kind| kind == ObjsetType::ZVOL) {
        "volume"
    } else {
        "filesystem"
    };
    let (known, failed) = handle.known_props();
    let mut properties: Vec<Property> = known.into_iter().map(property).collect();
    let asked = Asked::read(&pool.mounts.wishes(&name)).unwrap_or_default();
    for property in &mut properties {
        if let Some(is_on) = asked.temporary(&property.name) {
            let value = Value::Text(if is_on { "on" } else { "off" }.to_string());
            if value != property.value {
                (property.value, property.source) = (value, Source::Temporary);
            }
        }
        match property.name.as_str() {
            "mountpoint" => property.value = Value::Text(effective_mountpoint(pool, property)),
            "mounted" if kind == "filesystem" => {
                let is_mounted = pool.mounts.is_in_table(&name);
                property.value = Value::Text(if is_mounted { "yes" } else { "no" }.to_string());
            }
            _ => {}
        }
    }
    let unread = failed.map(|error| error.to_string());
    DatasetReport { pool: pool.name(), kind: kind.to_string(), create_txg: handle.creation_txg(), properties, unread, name }
}
