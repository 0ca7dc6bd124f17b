//! Counts of direct I/O: what was direct, what was not, and what would have made it so.

use serde::{Deserialize, Serialize};

/// Pool, file system or file whose direct I/O is counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum DirectTarget {
    /// Pool by its name.
    Pool {
        /// Name of the pool.
        name: String,
    },
    /// File system by its name.
    Dataset {
        /// Name of the dataset.
        name: String,
    },
    /// File of a mounted file system.
    File {
        /// Absolute path without symbolic links.
        path: String,
        /// Inode number of the file.
        inode: u64,
    },
}

/// Question for counts of direct I/O.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DirectQuery {
    /// Pools, file systems and files to report; none means every pool.
    pub targets: Vec<DirectTarget>,
}

/// Number of requests and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DirectCount {
    /// Number of requests, or of parts of requests.
    pub requests: u64,
    /// Bytes of the requests.
    pub bytes: u64,
}

/// Count of what was not direct for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DirectFallback {
    /// Name of the reason (`head`, `misaligned_offset`, …).
    pub reason: String,
    /// Number and bytes of requests that were not direct for it.
    pub count: DirectCount,
    /// Advice that would make such requests direct.
    pub remedy: String,
}

/// Counts of direct I/O since the pool was opened (of a file: since it came into memory).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DirectReport {
    /// Name of the pool or dataset, or path of the file.
    pub name: String,
    /// Kind: `pool`, `filesystem` or `file`.
    pub kind: String,
    /// Requests that asked for direct I/O: O_DIRECT, or `direct=always`.
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
    /// Parts of blocks that direct reads took from what the device read of a neighbour had brought; of a file not told.
    pub shared_reads: DirectCount,
    /// Records that writes shorter than they filled, and that went to the devices directly; the writes are counted under their reasons, too.
    pub coalesced_writes: DirectCount,
    /// Counts of what was not direct, by reason; reasons that did not occur are left out.
    pub fallbacks: Vec<DirectFallback>,
}
