//! Names that streams are received at (OpenZFS: `zfs_receive_one`, where it takes the sent name apart).

use super::RECEIVE;
use crate::dataset::datasets::Datasets;
use crate::dataset::maker::Maker;
use crate::failure::because;
use crate::pool::OpenPool;
use control_api::{DatasetCreate, DatasetReceive, ErrorKind, Failure, Named, SentName, name_objection};
use dsl::DslError;

/// Full name of the snapshot that is received: `sent` is its name where it was sent, below the dataset `top` that the stream is of.
pub(super) fn destination(request: &DatasetReceive, sent: &str, top: &str) -> Result<String, Failure> {
    let target = &request.target;
    let refused = |why: String| because(ErrorKind::Invalid, RECEIVE, why);
    let is_snapshot = target.contains('@');
    let (option, kept) = match request.sent_name {
        SentName::Last => ("-e", last(sent)),
        SentName::WithoutPool => ("-d", without_pool(sent)),
        SentName::Below if is_snapshot => ("", String::new()),
        SentName::Below => ("", sent.strip_prefix(top).unwrap_or_default().to_string()),
    };
    if is_snapshot && !option.is_empty() {
        return Err(refused(format!("invalid argument - snapshot not allowed with {option}")));
    }
    let name = format!("{target}{kept}");
    match name_objection(&name, Named::Snapshot, true) {
        Some(why) => Err(refused(why)),
        None => Ok(name),
    }
}

/// The last component of a sent name, with the slash before it.
fn last(sent: &str) -> String {
    let dataset = sent.split('@').next().unwrap_or(sent);
    dataset.rfind('/').map_or_else(|| format!("/{sent}"), |slash| sent[slash..].to_string())
}

/// A sent name without its pool.
fn without_pool(sent: &str) -> String {
    let at = sent.find('/').or_else(|| sent.find('@')).unwrap_or(sent.len());
    sent[at..].to_string()
}

/// Full name of a snapshot with this guid: the nearest to a dataset (OpenZFS: `guid_to_name`).
pub(super) fn snapshot_of_guid(pool: &OpenPool, guid: u64, near: &str) -> Result<Option<String>, DslError> {
    let mut start = near.split('@').next().unwrap_or(near).to_string();
    loop {
        if pool.dsl().hold(&start).is_ok()
            && let Some(found) = below(pool, &start, guid)?
        {
            return Ok(Some(found));
        }
        match start.rsplit_once('/') {
            Some((parent, _)) => start = parent.to_string(),
            None => return Ok(None),
        }
    }
}

/// Full name of a snapshot with this guid at or below a dataset.
fn below(pool: &OpenPool, name: &str, guid: u64) -> Result<Option<String>, DslError> {
    let mut waiting = vec![name.to_string()];
    while let Some(name) = waiting.pop() {
        for snapshot in pool.dsl().snapshots(&name)? {
            if pool.dsl().hold_object(snapshot.object)?.guid() == guid {
                return Ok(Some(format!("{name}@{}", snapshot.name)));
            }
        }
        waiting.extend(pool.dsl().children(&name)?.into_iter().rev().map(|child| format!("{name}/{child}")));
    }
    Ok(None)
}

/// Makes what lies between the name that was given and a new dataset (OpenZFS: `create_parents`).
pub(super) fn make_parents(
    (datasets, maker): (&Datasets, Maker),
    pool: &OpenPool,
    request: &DatasetReceive,
    name: &str,
) -> Result<(), Failure> {
    let Some((parent, _)) = name.rsplit_once('/') else { return Ok(()) };
    if are_made(pool, request) && pool.dsl().hold(parent).is_err() {
        let no_mount = request.no_mount || !maker.may_mount;
        datasets.create(&DatasetCreate { name: parent.to_string(), parents: true, no_mount, ..DatasetCreate::default() }, maker)?;
    }
    Ok(())
}

/// True when what is missing between the name that was given and a new dataset is made.
pub(super) fn are_made(pool: &OpenPool, request: &DatasetReceive) -> bool {
    request.sent_name == SentName::WithoutPool && !request.dry_run && pool.dsl().hold(&request.target).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a backup is received over another file system than the one that was meant.
    #[test]
    fn names_are_taken_apart_as_openzfs_does() {
        let at = |target: &str, sent_name: SentName, sent: &str, top: &str| {
            destination(&DatasetReceive { target: target.to_string(), sent_name, ..DatasetReceive::default() }, sent, top)
        };
        let name = |target: &str, sent_name: SentName, sent: &str, top: &str| at(target, sent_name, sent, top).expect("a name");
        assert_eq!(name("b/x", SentName::Below, "a/home@s", "a/home"), "b/x@s");
        assert_eq!(name("b/x", SentName::Below, "a/home/me@s", "a/home"), "b/x/me@s");
        assert_eq!(name("b/x@t", SentName::Below, "a/home@s", "a/home"), "b/x@t");
        assert_eq!(name("b", SentName::WithoutPool, "a/home/me@s", "a/home/me"), "b/home/me@s");
        assert_eq!(name("b", SentName::WithoutPool, "a@s", "a"), "b@s");
        assert_eq!(name("b", SentName::Last, "a/home/me@s", "a/home/me"), "b/me@s");
        assert_eq!(name("b", SentName::Last, "a@s", "a"), "b/a@s");
        assert!(at("b@t", SentName::Last, "a@s", "a").is_err_and(|failure| failure.why.contains("not allowed with -e")));
        assert!(at("b", SentName::Below, "a@s$", "a").is_err(), "a name that no snapshot may have");
    }
}
