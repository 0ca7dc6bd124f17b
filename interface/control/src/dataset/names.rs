//! Names of datasets and snapshots: those below one, and those that a range means.

use crate::failure::{self, because};
use crate::pool::OpenPool;
use control_api::{ErrorKind, Failure, Named, name_objection};
use dsl::DslError;

/// Part of a name before `@`.
pub(crate) fn filesystem_of(name: &str) -> &str {
    name.split_once('@').map_or(name, |(filesystem, _)| filesystem)
}

/// Refuses what can be no name, in OpenZFS's words: of something new where the verb is `create` or `create snapshot`, and else of what is to be
/// opened.
pub(crate) fn check_name(name: &str, verb: &str) -> Result<(), Failure> {
    let (objection, verb) = match verb {
        "create" => (name_objection(name, Named::Dataset, true), verb),
        "create snapshot" => (name_objection(name, Named::Snapshot, true), verb),
        // What follows the `@` may be a list.
        "destroy" => (name_objection(filesystem_of(name), Named::Dataset, false), "open"),
        _ => (name_objection(name, Named::Either, false), "open"),
    };
    objection.map_or(Ok(()), |why| Err(because(ErrorKind::Invalid, format!("cannot {verb} '{name}'"), why)))
}

/// Refuses what can be no name of what a command opens first.
pub(crate) fn check_opened(name: &str, named: Named) -> Result<(), Failure> {
    match name_objection(name, named, false) {
        Some(why) => Err(because(ErrorKind::Invalid, format!("cannot open '{name}'"), why)),
        None => Ok(()),
    }
}

/// New name that a dataset or snapshot is to get, in full: a snapshot's may be what follows the `@` alone (OpenZFS: `zfs_rename`).
pub(crate) fn target_of(from: &str, to: &str) -> Result<String, Failure> {
    let refused = |why: String| because(ErrorKind::Invalid, format!("cannot rename to '{to}'"), why);
    let (full, named) = match from.split_once('@') {
        Some((filesystem, _)) => match to.split_once('@') {
            None => (format!("{filesystem}@{to}"), Named::Snapshot),
            Some(("", snapshot)) => (format!("{filesystem}@{snapshot}"), Named::Snapshot),
            Some((other, _)) if other != filesystem => return Err(refused("snapshots must be part of same dataset".to_string())),
            Some(_) => (to.to_string(), Named::Snapshot),
        },
        None => (to.to_string(), Named::Dataset),
    };
    match name_objection(&full, named, true) {
        Some(why) => Err(refused(why)),
        None if named == Named::Dataset && !to.contains('/') => Err(nameless(to)),
        None => Ok(full),
    }
}

/// Checks a new name, and how deep it is nested: before anything is made for it.
pub(crate) fn check_fits(name: &str) -> Result<(), DslError> {
    dsl::names::split(name)?;
    dsl::names::check_depth(name)
}

/// Failure of making a dataset beside the pools (OpenZFS: `check_parents`).
pub(crate) fn nameless(name: &str) -> Failure {
    because(ErrorKind::Invalid, format!("cannot create '{name}'"), "missing dataset name")
}

/// Names of the dataset and everything below it, parents first, snapshots left out.
pub(crate) fn descendants(pool: &OpenPool, name: &str) -> Result<Vec<String>, Failure> {
    let mut names = vec![name.to_string()];
    let mut children = pool.dsl().children(name).map_err(|error| failure::dataset("list children of", name, &error))?;
    children.sort();
    for child in children {
        names.extend(descendants(pool, &format!("{name}/{child}"))?);
    }
    Ok(names)
}

/// Snapshots that `a`, `a%b`, `%b`, `a%` or `%` means, among those that exist (oldest first).
pub(crate) fn select_range(known: &[String], word: &str) -> Vec<String> {
    let Some((first, last)) = word.split_once('%') else {
        return known.iter().filter(|name| *name == word).cloned().collect();
    };
    let start = if first.is_empty() { Some(0) } else { known.iter().position(|name| name == first) };
    let end = if last.is_empty() { known.len().checked_sub(1) } else { known.iter().position(|name| name == last) };
    match (start, end) {
        (Some(start), Some(end)) if start <= end => known[start..=end].to_vec(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_snapshots_names_exactly_those_between() {
        let known: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        assert_eq!(select_range(&known, "b"), ["b"]);
        assert_eq!(select_range(&known, "a%b"), ["a", "b"]);
        assert_eq!(select_range(&known, "%b"), ["a", "b"]);
        assert_eq!(select_range(&known, "b%"), ["b", "c"]);
        assert!(select_range(&known, "c%a").is_empty(), "a range the wrong way round destroys nothing");
        assert!(select_range(&known, "x%").is_empty());
    }
}
