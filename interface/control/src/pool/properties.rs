//! Names and properties of pools: what may be said of them when they are made or imported, and changed later.

use crate::failure::{because, pool_failure};
use crate::pool::cache_file::PoolsFile;
use crate::pool::hostid::{NO_HOSTID, host};
use crate::pool::objections::{self, Occasion};
use crate::pool::{OpenPool, Pools, compatibility};
use crate::provider::accelerators::Accelerators;
use crate::provider::unserved;
use crate::report::vdev_props;
use crate::requests::done;
use control_api::{ErrorKind, Failure, PoolSet, Remark, Response};
use ondisk::Guid;
use pool::PoolError;
use std::collections::BTreeMap;
use std::sync::Arc;

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

/// Value of `cachefile` as it was set before. Its folder may be gone since: that costs the file, and not the pool.
pub(crate) fn known_cachefile(value: &str) -> Option<String> {
    (!matches!(value, "" | "-")).then(|| value.to_string())
}

/// Value of the property `compatibility`; empty where it is not set.
pub(crate) fn compatibility_of(open: &OpenPool, what: &str) -> Result<String, Failure> {
    let stored = open.pool().props().map_err(|error| pool_failure(what.to_string(), &error))?;
    let value = stored.into_iter().find(|stored| stored.name == "compatibility").map(|stored| stored.value);
    Ok(value.filter(|value| value != "-").unwrap_or_default())
}

/// Advice where a feature is not among those that are wanted.
const LESS_STRICT: &str = "consider setting 'compatibility' to a less restrictive set, or to 'off'";

/// Refuses to enable a feature that the property `compatibility` of the pool does not name (OpenZFS: `set_pool_callback`).
fn check_feature(open: &OpenPool, request: &PoolSet) -> Result<(), Failure> {
    let feature = request.property.strip_prefix("feature@").filter(|name| pool::feature_by_name(name).is_some());
    let Some(feature) = feature.filter(|_| request.value == "enabled") else { return Ok(()) };
    let what = format!("cannot enable feature '{feature}' on pool '{}'", open.name());
    let refused = |why: &str| Err(because(ErrorKind::Invalid, what.as_str(), why).advise(LESS_STRICT));
    match compatibility::allowed(&compatibility_of(open, &what)?) {
        Err(_) => refused("the pool's 'compatibility' property cannot be parsed"),
        Ok(Some(allowed)) if !allowed.contains(feature) => refused("it is not specified in this pool's current compatibility set"),
        Ok(_) => Ok(()),
    }
}

/// Warning about a new value of `compatibility` that does not name all features which the pool has (OpenZFS: `set_pool_callback`).
fn excess(open: &OpenPool, request: &PoolSet) -> Option<Remark> {
    let value = Some(&request.value).filter(|_| request.property == "compatibility")?;
    let allowed = compatibility::allowed(value).ok().flatten()?;
    let warning =
        format!("Warning: one or more features already enabled on pool '{}'\nare not present in this compatibility set.", open.name());
    compatibility::is_exceeded(&allowed, &open.pool().features()).then_some(Remark::Warning(warning))
}

/// Does `zpool set`.
pub(crate) fn set(pools: &Pools, file: &PoolsFile, accelerators: &Arc<Accelerators>, request: &PoolSet) -> Result<Response, Failure> {
    let what = format!("cannot set property for '{}'", request.pool);
    let open = pools.open_pool(&request.pool)?;
    if let Some(vdev) = request.vdev {
        return vdev_props::set(&open, Guid(vdev), request);
    }
    if request.property == "zia_provider" {
        accelerators.await_tests(&request.value);
    }
    if request.property == "cachefile" {
        open.set_cachefile(cachefile_of(&request.value, &what)?);
        file.remember();
        return Ok(done());
    }
    if let Some(why) = objections::objection(&request.property, &request.value, Occasion::Later) {
        return Err(objections::objected(&what, &why));
    }
    // Only an upgrade brings feature flags, which has them enabled then (OpenZFS: `spa_prop_validate`).
    if request.property == "version" && request.value.parse::<u64>().is_ok_and(|version| version == pool::VERSION_WITH_FEATURES) {
        let why = format!("property 'version' number {} is invalid.", request.value);
        return Err(because(ErrorKind::Invalid, what, why).advise("'zpool upgrade' has pools use feature flags"));
    }
    check_feature(&open, request)?;
    set_stored(&open, &request.property, &request.value, &what)?;
    let mut remarks = unserved::remarks(&open, &request.property);
    remarks.extend(excess(&open, request));
    Ok(Response::Done { remarks })
}

/// Sets a property that the pool keeps, feature flags included.
pub(crate) fn set_stored(open: &OpenPool, name: &str, value: &str, what: &str) -> Result<(), Failure> {
    if let Some(feature) = name.strip_prefix("feature@") {
        return open.pool().enable_feature(feature).map(|()| open.follow_features()).map_err(|error| match error {
            PoolError::BadProperty => because(ErrorKind::Invalid, what, format!("invalid feature '{feature}'")),
            PoolError::BadValue => because(ErrorKind::Unsupported, what, format!("feature '{feature}' is not available in this version")),
            other => pool_failure(what.to_string(), &other),
        });
    }
    if name == "multihost" {
        // It may have got an id since the pool was opened.
        open.pool().set_host(host());
    }
    if name == "version" {
        return open.pool().set_prop(name, value).map(|()| open.follow_features()).map_err(|error| match error {
            PoolError::BadValue => because(ErrorKind::Invalid, what, format!("property 'version' number {value} is invalid.")),
            other => pool_failure(what.to_string(), &other),
        });
    }
    open.pool().set_prop(name, value).map_err(|error| match error {
        PoolError::BadProperty => because(ErrorKind::Unsupported, what, format!("property '{name}' cannot be set in this version")),
        PoolError::BadValue if name == "bootfs" => because(ErrorKind::Invalid, what, format!("'{value}' is an invalid name")),
        PoolError::BadValue => because(ErrorKind::Invalid, what, format!("'{value}' is no value for '{name}'")),
        PoolError::NoHostid => objections::objected(what, NO_HOSTID),
        PoolError::NoProvider { .. } => because(ErrorKind::Invalid, what, "given provider does not exist")
            .advise("'zirconia provider list' shows those that do; 'zirconia provider load PATH' adds one"),
        other => pool_failure(what.to_string(), &other),
    })
}
