//! Names of datasets: which are valid, and how they come apart (OpenZFS: `zfs_namecheck.c`).

use crate::DslError;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most bytes of a full name, final zero byte included (OpenZFS: `ZFS_MAX_DATASET_NAME_LEN`).
pub const NAME_BYTES_MAX: usize = 256;

/// Checks one component of a name.
pub fn check_component(name: &str) -> Result<(), DslError> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | ' ');
    if name.is_empty() || name == "." || name == ".." || !name.chars().all(valid) { Err(DslError::BadName) } else { Ok(()) }
}

/// Checks a full name and splits it at `@`.
pub fn split(name: &str) -> Result<(&str, Option<&str>), DslError> {
    if name.len() >= NAME_BYTES_MAX {
        return Err(DslError::NameTooLong);
    }
    let (dataset, snapshot) = match name.split_once('@') {
        Some((dataset, snapshot)) => (dataset, Some(snapshot)),
        None => (name, None),
    };
    for component in dataset.split('/') {
        check_component(component)?;
    }
    if let Some(snapshot) = snapshot {
        check_component(snapshot)?;
    }
    Ok((dataset, snapshot))
}

/// Checks a bookmark's full name and splits it at `#` (OpenZFS: `bookmark_namecheck`).
pub fn split_bookmark(name: &str) -> Result<(&str, &str), DslError> {
    if name.len() >= NAME_BYTES_MAX {
        return Err(DslError::NameTooLong);
    }
    let (dataset, bookmark) = name.split_once('#').ok_or(DslError::BadName)?;
    dataset.split('/').try_for_each(check_component)?;
    check_component(bookmark)?;
    Ok((dataset, bookmark))
}

/// The parent's name and the last component.
pub fn split_parent(dataset: &str) -> Result<(&str, &str), DslError> {
    dataset.rsplit_once('/').ok_or(DslError::Exists)
}

static NESTING_MAX: AtomicU32 = AtomicU32::new(50);

/// Sets how deep datasets that are made or renamed from now on may be nested (OpenZFS: `zfs_max_dataset_nesting`).
pub fn set_max_dataset_nesting(depth: u32) {
    NESTING_MAX.store(depth, Ordering::Relaxed);
}

/// Checks how deep a dataset of this name is nested, at most 50 unless told otherwise.
///
/// # Errors
/// [`DslError::NameTooLong`], as OpenZFS has it.
pub fn check_depth(dataset: &str) -> Result<(), DslError> {
    check_depth_of(dataset.matches('/').count())
}

/// Checks a number of slashes likewise.
pub(crate) fn check_depth_of(slashes: usize) -> Result<(), DslError> {
    if slashes >= NESTING_MAX.load(Ordering::Relaxed) as usize { Err(DslError::NameTooLong) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that OpenZFS refuses would make a pool that its tools cannot handle.
    #[test]
    fn refuses_what_openzfs_refuses() {
        assert_eq!(split("tank/a@s"), Ok(("tank/a", Some("s"))));
        assert_eq!(split("tank"), Ok(("tank", None)));
        for bad in ["", "tank/", "/tank", "tank//a", "tank/..", "tank/a@", "tank/a@b@c", "tank/a$b", "tank/\u{e9}"] {
            assert_eq!(split(bad), Err(DslError::BadName), "{bad}");
        }
        assert_eq!(split(&"a".repeat(256)), Err(DslError::NameTooLong));
        assert_eq!(split_parent("tank/a/b"), Ok(("tank/a", "b")));
        assert_eq!(split_bookmark("tank/a#m"), Ok(("tank/a", "m")));
        for bad in ["tank/a", "tank/a#", "#m", "tank/a@s#m", "tank/a#m#n", "tank/a#m/n"] {
            assert_eq!(split_bookmark(bad), Err(DslError::BadName), "{bad}");
        }
        assert_eq!(split_bookmark(&format!("tank#{}", "a".repeat(251))), Err(DslError::NameTooLong));
    }
}
