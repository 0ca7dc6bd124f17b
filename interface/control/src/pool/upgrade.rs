//! `zpool upgrade`: pools go to the newest version, and get the features that pools made here have from the start. Another version is a property to set.

use crate::failure::because;
use crate::pool::properties::{compatibility_of, set_stored};
use crate::pool::{Pools, compatibility};
use crate::report::status::lacking;
use control_api::{ErrorKind, Failure, FeatureReport, PoolUpgrade, PoolUpgradeReport, Response};

/// Answers `zpool upgrade -v`.
pub(crate) fn features() -> Response {
    let report = |feature: &pool::Feature| FeatureReport {
        name: feature.name.to_string(),
        description: feature.description.to_string(),
        read_only_compatible: feature.read_only_compatible,
    };
    Response::Features(pool::FEATURES.iter().filter(|feature| feature.on_new_pools).map(report).collect())
}

/// Refuses to raise the version of a pool that is to stay as old systems know it (OpenZFS: `upgrade_version`).
fn check_legacy(compatibility: &str, what: &str) -> Result<(), Failure> {
    match compatibility {
        "legacy" => Err(because(ErrorKind::Invalid, what, "Upgrade not performed because 'compatibility' property set to 'legacy'.")),
        _ => Ok(()),
    }
}

/// Enables what a pool lacks, in the newest version, or tells what that is (OpenZFS: `upgrade_version`, `upgrade_enable_all`).
pub(crate) fn upgrade(pools: &Pools, request: &PoolUpgrade) -> Result<Response, Failure> {
    let what = format!("cannot upgrade '{}'", request.pool);
    let open = pools.open_pool(&request.pool)?;
    let version = open.pool().status().version;
    let has_features = version == pool::VERSION_WITH_FEATURES;
    let report = |features: Vec<&str>| {
        let features = features.into_iter().map(String::from).collect();
        Response::Upgraded(PoolUpgradeReport { pool: open.name(), version, features })
    };
    let features = open.pool().features();
    if request.dry_run {
        return Ok(report(if has_features { lacking(&features, None) } else { Vec::new() }));
    }
    let wish = compatibility_of(&open, &what)?;
    let allowed = compatibility::allowed(&wish).map_err(|why| because(ErrorKind::Invalid, what.clone(), why))?;
    if !has_features {
        check_legacy(&wish, &what)?;
        set_stored(&open, "version", &pool::VERSION_WITH_FEATURES.to_string(), &what)?;
    }
    let wanted = lacking(&open.pool().features(), allowed.as_ref());
    wanted.iter().try_for_each(|name| set_stored(&open, &format!("feature@{name}"), "enabled", &what))?;
    Ok(report(wanted))
}
