//! `zfs diff`: what changed from a snapshot to another one, or to the file system as it is now.
//!
//! A file system that is in use is compared by a snapshot that is taken for that and destroyed at the end, as OpenZFS does.

use crate::dataset::datasets::{NOT_APPLICABLE, pool_of_filesystem};
use crate::dataset::names::filesystem_of;
use crate::dataset::passing::Passing;
use crate::failure::because;
use crate::pool::{OpenPool, Pools};
use control_api::{DiffEntry, DiffQuery, DiffReport, ErrorKind, Failure, Named, Response, name_objection, text_of_bytes};
use dsl::{DatasetHandle, DslError};
use zpl::{DiffKind, Difference};

/// Words for a comparison that fails as a whole (OpenZFS's).
const OBTAIN: &str = "Unable to obtain diffs";

/// States that a request names.
#[derive(Debug, PartialEq)]
struct Compared {
    /// Name of the file system that the newer state is of.
    dataset: String,
    /// Full name of the older snapshot.
    from: String,
    /// Full name of the newer snapshot; None for the file system as it is now.
    to: Option<String>,
}

impl Compared {
    /// Reads the words of a command line (OpenZFS: `get_snapshot_names`).
    fn of(query: &DiffQuery) -> Result<Compared, Failure> {
        let Some(to) = &query.to else {
            return match name_objection(&query.from, Named::Snapshot, false) {
                Some(why) => Err(because(ErrorKind::Invalid, format!("Badly formed snapshot name {}", query.from), why)),
                None => Ok(Compared { dataset: filesystem_of(&query.from).to_string(), from: query.from.clone(), to: None }),
            };
        };
        let ((from_dataset, from), (to_dataset, to)) = (parts(&query.from), parts(to));
        if from.len() <= 1 || to.len() == 1 || from_dataset.is_empty() && to_dataset.is_empty() {
            return Err(because(ErrorKind::Invalid, "Unable to determine which snapshots to compare", "invalid name"));
        }
        let either = |one: &str, other: &str| if one.is_empty() { other.to_string() } else { one.to_string() };
        let dataset = either(to_dataset, from_dataset);
        Ok(Compared {
            from: format!("{}{from}", either(from_dataset, to_dataset)),
            to: (!to.is_empty()).then(|| format!("{dataset}{to}")),
            dataset,
        })
    }
}

/// Names of what a request looks into: the older snapshot, and the newer one or the file system.
pub(super) fn compared(query: &DiffQuery) -> Result<[String; 2], Failure> {
    let Compared { dataset, from, to } = Compared::of(query)?;
    Ok([from, to.unwrap_or(dataset)])
}

/// Parts of a name before the `@`, and from there on.
fn parts(name: &str) -> (&str, &str) {
    name.split_at(name.find('@').unwrap_or(name.len()))
}

/// Answers `zfs diff`.
pub(crate) fn diff(pools: &Pools, query: &DiffQuery) -> Result<Response, Failure> {
    let pool = pool_of_filesystem(pools, filesystem_of(query.full_name()))?;
    let compared = Compared::of(query)?;
    let of_clone = filesystem_of(&compared.from) != compared.dataset;
    if of_clone && !pool.dsl().hold(&compared.dataset).and_then(|handle| handle.origin()).is_ok_and(|origin| origin.is_some()) {
        return Err(because(ErrorKind::Invalid, "Not an earlier snapshot from the same fs", "invalid name"));
    }
    check_key(&pool, &compared.dataset)?;
    let place = pool.mounts.mountpoint(&compared.dataset);
    let place = place.ok_or_else(|| because(ErrorKind::Invalid, "Cannot diff an unmounted snapshot", NOT_APPLICABLE))?;
    let entries = match &compared.to {
        Some(to) => compare(&pool, &compared.from, to)?,
        None => {
            let passing = Passing::take(&pool, &compared.dataset, "zfs-diff")?;
            let entries = compare(&pool, &compared.from, passing.name());
            let destroyed = passing.destroy();
            let entries = entries?;
            destroyed?;
            entries
        }
    };
    // A file system mounted at `/` would begin all paths with two slashes.
    let mountpoint = text_of_bytes(place.trim_end_matches('/').as_bytes());
    Ok(Response::Diff(DiffReport { mountpoint, entries }))
}

/// Makes sure that nothing of a file system is locked: what is locked is not mounted, which would be said otherwise.
fn check_key(pool: &OpenPool, dataset: &str) -> Result<(), Failure> {
    let is_locked = pool.dsl().hold(dataset).and_then(|handle| handle.is_locked());
    if is_locked == Ok(true) { Err(because(ErrorKind::Permission, OBTAIN, DslError::NoKey)) } else { Ok(()) }
}

/// Compares two snapshots.
fn compare(pool: &OpenPool, from: &str, to: &str) -> Result<Vec<DiffEntry>, Failure> {
    let failed = |error: DslError| match error {
        DslError::NotFound => because(ErrorKind::NotFound, OBTAIN, "No such file or directory"),
        other => because(ErrorKind::Io, OBTAIN, other),
    };
    let held = |name: &str| {
        pool.dsl().hold(name).map_err(|error| match error {
            DslError::NotFound => because(ErrorKind::NotFound, OBTAIN, format!("snapshot '{name}' does not exist")),
            other => failed(other),
        })
    };
    let (older, newer) = (held(from)?, held(to)?);
    if !is_before(pool, &older, &newer).map_err(failed)? {
        return Err(because(ErrorKind::Invalid, OBTAIN, "\n   Not an earlier snapshot from the same fs"));
    }
    let (old, new) = (older.objset().map_err(failed)?, newer.objset().map_err(failed)?);
    let mut entries = Vec::new();
    zpl::diff(&old, &new, &mut |one| entries.push(entry(&one))).map_err(|error| {
        let what = format!("Unable to determine path or stats for object {} in {}", error.object, if error.is_older { from } else { to });
        because(ErrorKind::Io, what, error.error)
    })?;
    Ok(entries)
}

/// True when a snapshot is older than another one that came out of it: of the same file system, or through origins (OpenZFS: `dsl_dataset_is_before`).
fn is_before(pool: &OpenPool, older: &DatasetHandle, newer: &DatasetHandle) -> Result<bool, DslError> {
    let full = older.name();
    let filesystem = filesystem_of(&full);
    let (mut later, mut is_origin) = (newer.clone(), false);
    loop {
        if filesystem_of(&later.name()) == filesystem {
            return Ok(older.creation_txg() < later.creation_txg() || is_origin && older.object() == later.object());
        }
        let Some(origin) = later.origin()? else { return Ok(false) };
        (later, is_origin) = (pool.dsl().hold(&origin)?, true);
    }
}

fn entry(one: &Difference) -> DiffEntry {
    DiffEntry {
        kind: match one.kind {
            DiffKind::Added => '+',
            DiffKind::Removed => '-',
            DiffKind::Modified => 'M',
            DiffKind::Renamed => 'R',
        },
        path: text_of_bytes(&one.path),
        new_path: one.new_path.as_deref().map(text_of_bytes),
        links: one.links,
        mode: one.mode,
        ctime_seconds: one.ctime.0,
        ctime_nanoseconds: one.ctime.1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(from: &str, to: Option<&str>) -> Result<(String, String, Option<String>), String> {
        let query = DiffQuery { from: from.to_string(), to: to.map(str::to_string) };
        let read = Compared::of(&query).map(|compared| (compared.dataset, compared.from, compared.to));
        read.map_err(|failure| failure.to_string())
    }

    /// If this fails, scripts that name one of both in short are refused, or see the differences of something else.
    #[test]
    fn one_of_both_may_be_named_in_short() {
        let both = Ok(("t/a".to_string(), "t/a@1".to_string(), Some("t/a@2".to_string())));
        assert_eq!(read("t/a@1", Some("t/a@2")), both);
        assert_eq!(read("t/a@1", Some("@2")), both);
        assert_eq!(read("@1", Some("t/a@2")), both);
        let now = Ok(("t/a".to_string(), "t/a@1".to_string(), None));
        assert_eq!(read("t/a@1", None), now);
        assert_eq!(read("@1", Some("t/a")), now);
        assert_eq!(read("t/a@1", Some("t/a")), now);
        assert_eq!(read("t/a@1", Some("t/b")), Ok(("t/b".to_string(), "t/a@1".to_string(), None)), "it may be a clone");
        let which = Err("Unable to determine which snapshots to compare: invalid name".to_string());
        assert_eq!(read("t/a", Some("t/a@1")), which);
        assert_eq!(read("@1", Some("@2")), which);
        assert_eq!(read("t/a@1", Some("t/a@")), which);
        assert_eq!(read("t/a", None), Err("Badly formed snapshot name t/a: missing '@' delimiter in snapshot name".to_string()));
    }
}
