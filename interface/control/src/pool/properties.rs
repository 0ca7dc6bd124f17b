//! Names and properties of pools: what may be said of them when they are made or imported, and changed later.

use crate::failure::{because, pool_failure};
use crate::pool::Pools;
use crate::pool::cache_file::PoolsFile;
use crate::provider::accelerators::Accelerators;
use crate::report::vdev_props;
use crate::requests::done;
use control_api::{ErrorKind, Failure, PoolSet, Response};
use ondisk::Guid;
use pool::{Host, PoolError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Words that no pool's name may begin with (OpenZFS: `zpool_name_valid`).
const RESERVED: [&str; 4] = ["mirror", "raidz", "draid", "spare"];

/// Id and name of this system, by which other systems know it.
pub(crate) fn host() -> Host {
    let id = std::fs::read("/etc/hostid")
        .ok()
        .and_then(|bytes| bytes.first_chunk::<4>().map(|raw| u64::from(u32::from_le_bytes(*raw))))
        .unwrap_or(0);
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_string();
    Host { id, name }
}

/// Refuses names that the grammar of commands would misread.
pub(crate) fn check_name(name: &str) -> Result<(), &'static str> {
    let mut characters = name.chars();
    if !characters.next().is_some_and(|first| first.is_ascii_alphabetic()) {
        return Err("name must begin with a letter");
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.: ".contains(c)) {
        return Err("invalid character in pool name");
    }
    if name.len() >= 256 {
        return Err("name is too long");
    }
    let is_reserved = name == "log" || RESERVED.iter().any(|word| name.starts_with(word));
    if is_reserved { Err("name is reserved") } else { Ok(()) }
}

/// Alternate root, by `-R` or else the property (OpenZFS: `spa_prop_validate`, of `altroot`).
pub(crate) fn altroot_of(option: Option<&String>, properties: &BTreeMap<String, String>, what: &str) -> Result<Option<String>, Failure> {
    match option.or_else(|| properties.get("altroot")) {
        Some(root) if !root.starts_with('/') => Err(because(ErrorKind::Invalid, what, format!("bad alternate root '{root}'"))),
        root => Ok(root.cloned()),
    }
}

/// Value that `cachefile=` asks for: a file for OpenZFS's configuration cache, or none (OpenZFS: `zpool_valid_proplist`).
pub(crate) fn cachefile_of(value: &str, what: &str) -> Result<Option<String>, Failure> {
    let invalid = |why: String| Err(because(ErrorKind::Invalid, what, why));
    match value {
        "" | "-" => Ok(None),
        "none" => Ok(Some(value.to_string())),
        path if !path.starts_with('/') => invalid(format!("property 'cachefile' must be empty, an absolute path, or 'none', not '{path}'")),
        path if matches!(path.rsplit('/').next(), None | Some("" | "." | "..")) => invalid(format!("'{path}' is not a valid file")),
        // A folder can't be replaced by a file; a device must not be.
        path if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) => invalid(format!("'{path}' is not a valid file")),
        path => match std::path::Path::new(path).parent() {
            Some(folder) if !folder.is_dir() => invalid(format!("'{}' is not a valid directory", folder.display())),
            _ => Ok(Some(path.to_string())),
        },
    }
}

/// Does `zpool set`.
pub(crate) fn set(pools: &Pools, file: &PoolsFile, accelerators: &Arc<Accelerators>, request: &PoolSet) -> Result<Response, Failure> {
    let what = format!("cannot set property for '{}'", request.pool);
    let open = pools.open_pool(&request.pool)?;
    if let Some(vdev) = request.vdev {
        return vdev_props::set(&open, Guid(vdev), request);
    }
    if request.property == "zia_provider" && !accelerators.await_tests(&request.value) {
        let why = format!("provider '{}' is still being tested", request.value);
        return Err(because(ErrorKind::Busy, what, why).advise("'zirconia provider info' shows it; try again"));
    }
    if request.property == "cachefile" {
        open.set_cachefile(cachefile_of(&request.value, &what)?);
        file.remember();
        return Ok(done());
    }
    match (request.property.strip_prefix("feature@"), request.value.as_str()) {
        (Some(feature), "enabled") => {
            open.pool().enable_feature(feature).map_err(|error| match error {
                PoolError::BadProperty => because(ErrorKind::Invalid, &*what, format!("invalid feature '{feature}'")),
                PoolError::BadValue => {
                    because(ErrorKind::Unsupported, &*what, format!("feature '{feature}' is not available in this version"))
                }
                other => pool_failure(what.clone(), &other),
            })?;
            Ok(done())
        }
        (Some(_), _) => Err(because(ErrorKind::Invalid, what, "a feature can only be set to 'enabled'")),
        (None, _) => {
            open.pool().set_prop(&request.property, &request.value).map_err(|error| match error {
                PoolError::BadProperty => {
                    because(ErrorKind::Invalid, &*what, format!("property '{}' does not exist or cannot be set", request.property))
                }
                PoolError::BadValue if request.property == "bootfs" => {
                    because(ErrorKind::Invalid, &*what, format!("'{}' is an invalid name", request.value))
                }
                PoolError::BadValue => {
                    because(ErrorKind::Invalid, &*what, format!("'{}' is no value for '{}'", request.value, request.property))
                }
                PoolError::NoProvider { .. } => because(ErrorKind::Invalid, &*what, "given provider does not exist")
                    .advise("'zirconia provider list' shows those that do; 'zirconia provider load PATH' adds one"),
                other => pool_failure(what.clone(), &other),
            })?;
            Ok(done())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_grammar_would_misread_are_refused() {
        for name in ["mirror", "raidz2", "log", "spare1", "raidzone", "1tank", "ta/nk", "", "ta@nk"] {
            assert!(check_name(name).is_err(), "{name:?} must not name a pool");
        }
        for name in ["tank", "demo", "logs", "a-b_c.d:e", "cache"] {
            assert!(check_name(name).is_ok(), "{name:?} is a fine name");
        }
    }
}
