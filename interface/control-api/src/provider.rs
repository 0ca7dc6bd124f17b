//! Requests about providers: accelerators that stages of the write pipeline run on.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `zirconia provider load`; answers [`crate::Response::Providers`] with the new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProviderLoad {
    /// Shared object, as an absolute path; a target, `tcp:HOST:PORT?secret-file=FILE` or `unix:PATH?secret-file=FILE`; `cuda`; or, to rehearse with,
    /// `sim` or `faulty?OPERATION=MANNER&after=NUMBER`.
    pub path: String,
    /// Name that a target is to have; libraries have their own names.
    #[serde(default)]
    pub name: Option<String>,
    /// True to put it in the place of the provider of the same name, also while that is in use.
    pub replace: bool,
}

/// `zirconia provider unload`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProviderUnload {
    /// Name of the provider.
    pub name: String,
    /// True also while pools use it: they go on in software.
    pub force: bool,
}

/// Capability that was declared and is not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DisabledCapability {
    /// Name of the capability.
    pub capability: String,
    /// Reason why it is not used.
    pub reason: String,
}

/// Report of a registered provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProviderReport {
    /// Name of the provider.
    pub name: String,
    /// Version of the provider.
    pub version: String,
    /// Shared object that it was loaded from, or the target that it is; none for what is built in.
    pub path: Option<String>,
    /// State of the provider: `active`, `replaced`, `starting` (it is loaded and tested), `down` or `distrusted`.
    pub state: String,
    /// Reason why it is down or distrusted, when that is known.
    #[serde(default)]
    pub problem: Option<String>,
    /// Number of its generation.
    pub generation: u64,
    /// Number of open pools that name it.
    pub sessions: u64,
    /// Number of buffers and stores that are alive.
    pub live_handles: u64,
    /// Names of the capabilities that are used.
    pub capabilities: Vec<String>,
    /// Capabilities that it declared and that are not used.
    pub disabled: Vec<DisabledCapability>,
    /// Speeds of the capabilities that were compared with the processors of the machine and are used, by their names.
    #[serde(default)]
    pub measured: BTreeMap<String, String>,
    /// Counters that are not zero, by their names.
    pub counters: BTreeMap<String, u64>,
}

/// Property of a pool that gives work to its provider, which does not do it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnservedProperty {
    /// Name of the property.
    pub property: String,
    /// Reason why the provider does not do the work.
    pub reason: String,
}

/// Work of a pool's provider. The numbers are the provider's, over all pools that use it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AcceleratorReport {
    /// Name of the provider.
    pub provider: String,
    /// State of the provider: `active`, `starting`, `down`, `distrusted`, or `absent` when no provider of that name is loaded.
    pub state: String,
    /// Reason of a state other than `active`, when that is known.
    #[serde(default)]
    pub problem: Option<String>,
    /// Properties that are on and whose work the provider does not do.
    #[serde(default)]
    pub unserved: Vec<UnservedProperty>,
    /// Name of the operation that the provider was caught lying at, when it is distrusted.
    #[serde(default)]
    pub lied_at: Option<String>,
    /// Number of operations that the provider did, by stage.
    pub operations: BTreeMap<String, u64>,
    /// Number of operations that were done in software instead, by reason.
    pub fallbacks: BTreeMap<String, u64>,
    /// Number of blocks that began again from the original data.
    pub restarts: u64,
    /// Number of results that were checked.
    pub verified: u64,
    /// Number of checked results that were wrong.
    pub verify_failures: u64,
    /// Names of operations that are switched off for a while, after failures.
    pub breakers_open: Vec<String>,
}
