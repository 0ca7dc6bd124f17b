//! Versions of file systems: the property `version`, which `zfs upgrade` sets (OpenZFS: `zfs_fill_zplprops_impl`, `zfs_set_version`).

use crate::mount::mounts::Mounts;
use dsl::prop::table::{Parsed, native};
use dsl::{DatasetHandle, DslError, TxSpace};
use std::collections::BTreeMap;

/// Bytes that raising a version dirties, at most: the master node and a new table.
const TX_BYTES: u64 = 256 << 10;
/// Version from which on names are compared as properties say (OpenZFS: `ZPL_VERSION_NORMALIZATION`).
const VERSION_NORMALIZATION: u64 = 3;
/// Properties that say how.
const OF_NAMES: [&str; 3] = ["casesensitivity", "normalization", "utf8only"];

/// Number that a value of the property stands for.
fn number(word: &str) -> Option<u64> {
    match native("version")?.parse(word) {
        Ok(Parsed::Number(number)) => Some(number),
        _ => None,
    }
}

/// Version that a new file system is to have in a pool of this version; None where nothing is said, and the pool has the newest.
pub(super) fn of_new(properties: &BTreeMap<String, String>, pool: u64) -> Result<Option<u64>, String> {
    let (said, most) = (properties.get("version").map(String::as_str), zpl::version::newest_in(pool));
    let version = match said.and_then(number) {
        // OpenZFS's command leaves the word to its kernel, which takes the newest that the pool has.
        Some(_) if said == Some("current") => Some(most),
        Some(version) if version > most => return Err(DslError::OldVersion(zpl::version::pool_for(version)).to_string()),
        None if most < zpl::version::newest_in(u64::MAX) => Some(most),
        said => said,
    };
    let is_old = version.is_some_and(|version| version < VERSION_NORMALIZATION);
    match OF_NAMES.into_iter().find(|name| is_old && properties.contains_key(*name)) {
        Some(name) => Err(format!("property '{name}' needs version {VERSION_NORMALIZATION} of file systems or a later one")),
        None => Ok(version),
    }
}

/// Version that a file system is to have, and the other properties. A lower one than it has is refused in OpenZFS's words; what is no file system
/// keeps the property, for whoever says that it has none.
pub(super) fn split(
    mut properties: BTreeMap<String, String>,
    handle: &DatasetHandle,
) -> Result<(Option<u64>, BTreeMap<String, String>), String> {
    let Some(wanted) = properties.get("version").and_then(|word| number(word)) else { return Ok((None, properties)) };
    let (false, Ok((now, _))) = (handle.is_snapshot(), handle.prop_u64("version")) else { return Ok((None, properties)) };
    if wanted < now {
        return Err(format!("Can not downgrade; already at version {now}"));
    }
    properties.remove("version");
    Ok((Some(wanted), properties))
}

/// Raises the version of a file system; it counts when that is mounted, too. Accounts that one that is mounted lacks are made before it returns,
/// whatever version it had (OpenZFS: `zfs_prop_set_special`).
pub(super) fn raise(mounts: &Mounts, handle: &DatasetHandle, version: Option<u64>) -> Result<(), DslError> {
    let Some(version) = version else { return Ok(()) };
    if version > zpl::version::newest_in(handle.pool().version()) {
        return Err(DslError::OldVersion(zpl::version::pool_for(version)));
    }
    if version > handle.prop_u64("version")?.0 {
        enter(mounts, handle, version)?;
    }
    if let Some(mounted) = mounts.there(&handle.name()) {
        // The version is set whatever comes of them: as in OpenZFS.
        let _ = mounted.zfs().finish_accounts();
    }
    Ok(())
}

fn enter(mounts: &Mounts, handle: &DatasetHandle, version: u64) -> Result<(), DslError> {
    let objset = handle.objset()?;
    let tx = handle.assign(TxSpace::Writes(TX_BYTES))?;
    let raised = zpl::version::raise(&objset, version, &tx);
    drop(tx);
    mounts.renew(&handle.name());
    raised.map(drop).map_err(DslError::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, somebody gets a file system that older systems take for one whose names differ by case.
    #[test]
    fn rules_of_names_need_a_version_that_has_them() {
        let in_pool = |words: &[(&str, &str)], pool: u64| {
            of_new(&words.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(), pool)
        };
        let new = |words: &[(&str, &str)]| in_pool(words, 5000);
        assert_eq!(new(&[]), Ok(None));
        assert_eq!(new(&[("version", "current"), ("utf8only", "on")]), Ok(Some(5)));
        assert_eq!(new(&[("version", "1"), ("atime", "off")]), Ok(Some(1)));
        assert_eq!(new(&[("version", "3"), ("casesensitivity", "mixed")]), Ok(Some(3)));
        assert!(new(&[("version", "2"), ("casesensitivity", "mixed")]).is_err_and(|why| why.contains("needs version 3")));
        assert_eq!([1, 9, 15, 24].map(|pool| in_pool(&[], pool)), [Ok(Some(2)), Ok(Some(3)), Ok(Some(4)), Ok(None)], "by the pool");
        assert!(in_pool(&[("version", "5")], 23).is_err_and(|why| why.contains("pool must be upgraded")));
    }
}
