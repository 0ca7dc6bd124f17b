//! Requests about volumes that clients of NBD can have, and who has them.

use serde::{Deserialize, Serialize};

/// Volumes that clients of NBD can have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NbdReport {
    /// Path of the socket at which clients of this machine are served; none while nobody is.
    pub socket: Option<String>,
    /// Address and port at which others are served; none while nobody is.
    pub address: Option<String>,
    /// Volumes that are shared, and those that somebody has.
    pub exports: Vec<NbdExport>,
}

/// Report of a volume that clients of NBD can have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NbdExport {
    /// Name of the volume, and of the export.
    pub volume: String,
    /// Clients that have it: addresses, or numbers of processes of this machine.
    pub clients: Vec<String>,
}
