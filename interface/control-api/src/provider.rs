//! Requests about providers: accelerators that stages of the write pipeline run on.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `zirconia provider load`; answers [`crate::Response::Providers`] with the new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProviderLoad {
    /// The shared object, as an absolute path; or a target, `tcp:HOST:PORT?secret-file=FILE` or `unix:PATH?secret-file=FILE`.
    pub path: String,
    /// What a target is to be called; libraries have their own names.
    #[serde(default)]
    pub name: Option<String>,
    /// Put it in the place of the provider of the same name, also while that is in use.
    pub replace: bool,
}

/// `zirconia provider unload`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProviderUnload {
    /// Its name.
    pub name: String,
    /// Also while pools use it: they go on in software.
    pub force: bool,
}

/// A capability that was declared and is not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DisabledCapability {
    /// Which.
    pub capability: String,
    /// Why.
    pub reason: String,
}

/// A registered provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProviderReport {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The shared object that it was loaded from, or the target that it is; none for what is built in.
    pub path: Option<String>,
    /// `active`, `replaced`, `starting` (it is loaded and tested), `down` or `distrusted`.
    pub state: String,
    /// Why it is down or distrusted, when that is known.
    #[serde(default)]
    pub problem: Option<String>,
    /// Number of its generation.
    pub generation: u64,
    /// Pools that use it.
    pub sessions: u64,
    /// Buffers and stores that are alive.
    pub live_handles: u64,
    /// What it can do.
    pub capabilities: Vec<String>,
    /// What it said it could do.
    pub disabled: Vec<DisabledCapability>,
    /// Counters that are not zero, by their names.
    pub counters: BTreeMap<String, u64>,
}
