//! `zfs redact`: bookmarks that say what of a snapshot is not to be sent, and which of them a stream goes by.

use crate::failure::{self, because};
use crate::pool::{OpenPool, Pools};
use crate::requests::{done, pool_of};
use control_api::{ErrorKind, Failure, RedactRequest, Response};
use dsl::{BookmarkEntry, DatasetHandle, DslError};
use send::SendError;

/// Gives a snapshot a bookmark with a list of the blocks that snapshots of its clones have replaced.
pub(crate) fn redact(pools: &Pools, request: &RedactRequest) -> Result<Response, Failure> {
    let RedactRequest { snapshot, bookmark, clones } = request;
    let refused = |kind, why: String| because(kind, why, "");
    let missing = |name: &str| refused(ErrorKind::NotFound, format!("provided snapshot {name} does not exist"));
    let pool = pools.pool_of(snapshot, "open").map_err(|failure| match failure.kind {
        ErrorKind::NotFound | ErrorKind::Invalid => missing(snapshot),
        _ => failure,
    })?;
    let hold = |name: &String| pool.dsl().hold(name).map_err(|error| not_held(name, &error));
    let to = hold(snapshot)?;
    if !to.is_snapshot() {
        return Err(refused_by(request, &SendError::NotEarlier));
    }
    if clones.iter().any(|name| pool_of(name) != pool_of(snapshot)) {
        return Err(refused(ErrorKind::Invalid, "potentially invalid redaction snapshot; full dataset names required".to_string()));
    }
    let held = clones.iter().map(hold).collect::<Result<Vec<DatasetHandle>, Failure>>()?;
    send::redact(&to, bookmark, &held).map_err(|error| refused_by(request, &error))?;
    Ok(done())
}

fn not_held(name: &str, error: &DslError) -> Failure {
    match error {
        DslError::NotFound | DslError::BadName => because(ErrorKind::NotFound, format!("provided snapshot {name} does not exist"), ""),
        error => failure::dataset("open", name, error),
    }
}

/// Failure of a request, in OpenZFS's words (`zfs_do_redact`).
fn refused_by(request: &RedactRequest, error: &SendError) -> Failure {
    let bookmark = &request.bookmark;
    let (kind, what) = match error {
        SendError::NotEarlier | SendError::Source(DslError::BadName) if bookmark.contains('#') => {
            (ErrorKind::Invalid, "redaction bookmark name must not contain '#'".to_string())
        }
        SendError::Source(DslError::BadName) if bookmark.is_empty() => {
            (ErrorKind::Invalid, "redaction bookmark name must not be empty".to_string())
        }
        SendError::Source(DslError::BadName) => (ErrorKind::Invalid, format!("redaction bookmark name '{bookmark}' is invalid")),
        SendError::NotEarlier | SendError::Source(DslError::NotSnapshot) => {
            (ErrorKind::Invalid, "redaction snapshot must be descendent of snapshot being redacted".to_string())
        }
        SendError::Redacted | SendError::Source(DslError::Redacted) => (ErrorKind::Invalid, SendError::Redacted.to_string()),
        SendError::Source(DslError::Exists) => {
            (ErrorKind::Exists, format!("specified redaction bookmark ({bookmark}) provided already exists"))
        }
        SendError::Source(DslError::NameTooLong) => {
            (ErrorKind::Invalid, "provided bookmark name cannot be used, final name would be too long".to_string())
        }
        SendError::Source(error @ DslError::TooManySnapshots) => (ErrorKind::Invalid, error.to_string()),
        SendError::Source(DslError::OtherRedaction) => {
            (ErrorKind::Invalid, "attempted to resume redaction  with a mismatched redaction list".to_string())
        }
        SendError::Source(DslError::Unsupported) => (ErrorKind::Unsupported, "redaction bookmarks feature not enabled".to_string()),
        SendError::Source(error) => return failure::dataset("redact", &request.snapshot, error),
        other => (ErrorKind::Io, other.to_string()),
    };
    because(kind, what, "")
}

/// A look that a bookmark (full name) has a redaction list.
pub(super) fn check_list(pool: &OpenPool, bookmark: &str) -> Result<(), SendError> {
    match pool.dsl().redaction_list(bookmark)? {
        Some(_) => Ok(()),
        None => Err(SendError::NoRedactionList),
    }
}

/// True for a dataset that was redacted by these snapshots.
pub(super) fn is_by(handle: &DatasetHandle, guids: &[u64]) -> bool {
    handle.redacted_by().ok().flatten().is_some_and(|by| dsl::same_snapshots(&by, guids))
}

/// Full name of the bookmark of a dataset with a whole redaction list by these snapshots; the reason why there is none (libzfs: `find_redact_book`).
pub(super) fn named_by(pool: &OpenPool, dataset: &str, guids: &[u64], of: u64) -> Result<String, &'static str> {
    let known = pool.dsl().bookmarks(dataset).map_err(|_| "nonexistent redaction bookmark provided")?;
    chosen(known, guids, of).map(|name| format!("{dataset}#{name}"))
}

/// The bookmark among these by which a stream of the snapshot with the guid `of` is redacted. Lists of other snapshots may be by the same ones, and lack
/// what this one has besides: one of the snapshot itself goes before them.
fn chosen(known: Vec<BookmarkEntry>, guids: &[u64], of: u64) -> Result<String, &'static str> {
    let fits = |bookmark: &BookmarkEntry| bookmark.redaction.as_ref().is_some_and(|list| dsl::same_snapshots(&list.snapshots, guids));
    let is_whole = |bookmark: &BookmarkEntry| bookmark.redaction.as_ref().is_some_and(|list| list.is_whole);
    match known.into_iter().filter(fits).min_by_key(|bookmark| (bookmark.guid != of, !is_whole(bookmark))) {
        None => Err("no appropriate redaction bookmark exists"),
        Some(bookmark) if !is_whole(&bookmark) => Err("incomplete redaction bookmark provided"),
        Some(bookmark) => Ok(bookmark.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsl::Redaction;

    fn bookmark(name: &str, guid: u64, snapshots: &[u64], is_whole: bool) -> BookmarkEntry {
        let redaction = Some(Redaction { snapshots: snapshots.to_vec(), is_whole, runs: 0 });
        BookmarkEntry { name: name.to_string(), guid, creation_txg: guid, creation_time: 0, space: None, ivs: 0, redaction }
    }

    /// If this fails, a stream that broke off goes on by the list of an earlier snapshot, and has what the list of its own leaves out.
    #[test]
    fn a_snapshot_goes_by_its_own_list() {
        let known = || vec![bookmark("a", 1, &[8, 9], true), bookmark("b", 2, &[9, 8], false), bookmark("c", 2, &[8, 9], true)];
        assert_eq!(chosen(known(), &[8, 9], 2), Ok("c".to_string()));
        assert_eq!(chosen(known(), &[9, 8], 3), Ok("a".to_string()), "the only way, as with OpenZFS");
        assert_eq!(chosen(known(), &[8], 2), Err("no appropriate redaction bookmark exists"));
        assert_eq!(chosen(vec![known().swap_remove(1)], &[8, 9], 2), Err("incomplete redaction bookmark provided"));
    }
}
