//! Counts of direct I/O: what was direct, what was not, and what would have made it so.

use serde::{Deserialize, Serialize};

/// A thing whose direct I/O is counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum DirectTarget {
    /// A pool by name.
    Pool {
        /// Its name.
        name: String,
    },
    /// A file system by name.
    Dataset {
        /// Its name.
        name: String,
    },
    /// A file of a mounted file system.
    File {
        /// Absolute path without symbolic links.
        path: String,
        /// Its inode number.
        inode: u64,
    },
}

/// Whose counts to tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DirectQuery {
    /// Which; none means every pool.
    pub targets: Vec<DirectTarget>,
}

/// Requests and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DirectCount {
    /// Number of requests, or of parts of requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What was not direct for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DirectFallback {
    /// The reason's name (`head`, `misaligned_offset`, …).
    pub reason: String,
    /// How often, how much.
    pub count: DirectCount,
    /// What would make such requests direct.
    pub remedy: String,
}

/// Counts of direct I/O since the pool was opened (of a file: since it came into memory).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DirectReport {
    /// Pool, dataset or path.
    pub name: String,
    /// `pool`, `filesystem` or `file`.
    pub kind: String,
    /// Requests that asked for direct: O_DIRECT, or `direct=always`.
    pub asked: DirectCount,
    /// Direct parts of reads.
    pub direct_reads: DirectCount,
    /// Direct parts of writes.
    pub direct_writes: DirectCount,
    /// Requests refused with EINVAL.
    pub refused: DirectCount,
    /// Blocks written once more because the program changed its buffer during a direct write (OpenZFS: `dio_verify_wr`).
    pub verify_writes: DirectCount,
    /// Blocks read once more because the program changed its buffer during a direct read (OpenZFS: `dio_verify_rd`).
    pub verify_reads: DirectCount,
    /// What was not direct, by reason; reasons that did not occur are left out.
    pub fallbacks: Vec<DirectFallback>,
}
