//! Requests and reports about the features that pools have and could have.

use serde::{Deserialize, Serialize};

/// `zpool upgrade`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolUpgrade {
    /// Name of the pool.
    pub pool: String,
    /// True to tell only which features are not enabled, those too that the property `compatibility` does not allow.
    pub dry_run: bool,
}

/// Answer to `zpool upgrade`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolUpgradeReport {
    /// Name of the pool.
    pub pool: String,
    /// On-disk version of the pool: 5000 with feature flags.
    pub version: u64,
    /// Short names of the features that were enabled, or that are not.
    pub features: Vec<String>,
}

/// Feature of pools that this program makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FeatureReport {
    /// Short name of the feature, as `feature@` properties have it.
    pub name: String,
    /// Purpose of the feature.
    pub description: String,
    /// True when software that does not know it may import the pool read-only.
    pub read_only_compatible: bool,
}
