//! Requests and reports about the projects that files are charged to.

use serde::{Deserialize, Serialize};

/// `zfs project`: looks at files of one file system, or changes them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProjectRequest {
    /// Path at which the file system is mounted.
    pub mountpoint: String,
    /// Inode numbers of the files.
    pub inodes: Vec<u64>,
    /// New project of the files; None leaves it.
    pub project: Option<u32>,
    /// True where new files of a directory are to get its project, false where not; None leaves it.
    pub inherit: Option<bool>,
}

/// Project of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProjectReport {
    /// Number of the project.
    pub project: u32,
    /// True when new files of the directory get its project.
    pub inherits: bool,
    /// Reason why nothing is known of the file, or was changed, in the system's words.
    pub failure: Option<String>,
}
