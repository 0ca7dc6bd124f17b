//! Requests about volumes that the network sees: targets of iSCSI, who may use them, and who does.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Secret of CHAP; it is shown to nobody.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct ChapSecret(pub String);

impl fmt::Debug for ChapSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChapSecret(…)")
    }
}

/// `zirconia target allow`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IscsiAllow {
    /// Name of the target, or of its volume.
    pub target: String,
    /// Name of the initiator.
    pub initiator: String,
    /// True when it may only read.
    #[serde(default)]
    pub read_only: bool,
}

/// `zirconia target deny`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IscsiDeny {
    /// Name of the target, or of its volume.
    pub target: String,
    /// Name of the initiator.
    pub initiator: String,
}

/// `zirconia target chap`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IscsiChap {
    /// Name of the target, or of its volume.
    pub target: String,
    /// Name of the initiator, which is its name in CHAP too.
    pub initiator: String,
    /// Secret that the initiator proves to know, 12 to 255 bytes.
    pub secret: ChapSecret,
    /// Secret that the target proves to know, another one; none when it proves nothing.
    #[serde(default)]
    pub mutual: Option<ChapSecret>,
}

/// Volumes that the network sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IscsiReport {
    /// Address and port at which initiators are served; none while nobody is.
    pub address: Option<String>,
    /// Targets that are there, and those that somebody has a right to.
    pub targets: Vec<IscsiTarget>,
    /// Number of connections that have not logged in.
    #[serde(default)]
    pub waiting: u64,
    /// Number of connections that did not log in and were closed since there were too many, or got no place, since the daemon began.
    #[serde(default)]
    pub turned_away: u64,
}

/// Report of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IscsiTarget {
    /// Name of the target.
    pub name: String,
    /// Name of its volume; none when it is not there now.
    pub volume: Option<String>,
    /// Rights to it.
    pub rights: Vec<IscsiRight>,
    /// Sessions at this moment.
    pub sessions: Vec<IscsiSession>,
}

/// Right of an initiator to a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IscsiRight {
    /// Name of the initiator.
    pub initiator: String,
    /// True when it may only read.
    pub read_only: bool,
    /// True when it has to prove that it knows a secret.
    pub chap: bool,
    /// True when the target proves that it knows one too.
    pub mutual: bool,
}

/// Session of an initiator with a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IscsiSession {
    /// Name of the initiator.
    pub initiator: String,
    /// Number that the initiator gave the session (ISID), 48 bits.
    pub isid: u64,
}
