//! Requests and reports about simulated faults (`zinject`).

use serde::{Deserialize, Serialize};

/// Fault to simulate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum InjectFault {
    /// `-d`: I/Os of a device fail, or those to a part of its labels.
    Device {
        /// Path, name or guid of the device.
        device: String,
        /// Error of the I/Os: `io`, `nxio`, `corrupt`, `noop`, `dtl` …
        error: String,
        /// Kind of I/O: `read`, `write`, `flush`, `trim` …, `all`.
        io: String,
        /// `-L`: part of the labels: `nvlist`, `uber`, `pad1` or `pad2`.
        label: Option<String>,
    },
    /// `-d -D`: I/Os of a device take time.
    Delay {
        /// Path, name or guid of the device.
        device: String,
        /// Milliseconds that each I/O takes at least.
        delay_ms: u64,
        /// Number of I/Os that are served at once.
        lanes: u64,
        /// Kind of I/O: `read`, `write` or `all`.
        io: String,
    },
    /// `-d -A`: a device is declared degraded or faulted.
    State {
        /// Path, name or guid of the device.
        device: String,
        /// True for faulted, false for degraded.
        faulted: bool,
    },
    /// `-t data`, `-t dnode`: reads of a file's blocks, or of the block that holds its dnode.
    File {
        /// Absolute path of the file in a mounted file system.
        path: String,
        /// Name of the file system, where who asks knows it: with `-m` it is not mounted meanwhile.
        #[serde(default)]
        dataset: Option<String>,
        /// Inode number of the file.
        inode: u64,
        /// True for the dnode, false for the data.
        dnode: bool,
        /// `-l`: level of the blocks, 0 for data.
        level: u32,
        /// `-r`: range in bytes: first byte, and the byte after the last.
        range: Option<(u64, u64)>,
        /// `-C`: copies as a mask of bits; 0 is all.
        copies: u32,
        /// Error of the reads: `io`, `checksum` or `decompress`.
        error: String,
    },
    /// `-t mos` and its kinds: reads of the pool's own objects.
    Meta {
        /// Kind of objects: `mos`, `mosdir`, `metaslab`, `config`, `bpobj`, `spacemap` or `errlog`.
        kind: String,
        /// Error of the reads: `io`, `checksum` or `decompress`.
        error: String,
    },
    /// `-b`: reads of one block.
    Block {
        /// Number of the object set.
        objset: u64,
        /// Number of the object.
        object: u64,
        /// Level of the block, 0 for data.
        level: u32,
        /// Number of the block at its level.
        block: u64,
        /// Error of the reads: `io`, `checksum` or `decompress`.
        error: String,
    },
    /// `-I`: most writes are lost.
    LostWrites {
        /// `-s`: seconds for which writes are lost.
        seconds: u64,
    },
    /// `-P`: the next import or export of the pool takes time.
    PoolDelay {
        /// True for the import, false for the export.
        import: bool,
        /// Seconds that it takes.
        seconds: u64,
    },
}

/// `zinject`: adds a handler, flushes the cache, or both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InjectAdd {
    /// Name of the pool; None with `-a` alone: every pool's cache. For [`InjectFault::File`] the path says which.
    pub pool: Option<String>,
    /// Fault to simulate, if there is to be a handler.
    pub fault: Option<InjectFault>,
    /// `-f`: number of times that it strikes, of 2^32; 0 is always.
    pub frequency: u32,
    /// `-a`: flush the cache.
    pub flush_cache: bool,
    /// `-u`: the pool is closed and opened again first.
    pub reopen: bool,
}

/// Report of a handler, or of what became of [`InjectAdd`] (OpenZFS: `zinject_record_t`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InjectReport {
    /// Number of the handler; 0 when none was added.
    pub id: u64,
    /// Name of the pool.
    pub pool: String,
    /// Guid of the device, if the handler is about one.
    pub device: Option<u64>,
    /// Kind of I/O that it is for.
    pub io: String,
    /// Error that it makes.
    pub error: String,
    /// Number of times that it strikes, of 2^32; 0 is always.
    pub frequency: u32,
    /// Milliseconds and number of lanes of a delay.
    pub delay: Option<(u64, u64)>,
    /// Seconds of a delay; true for that of an import, false for an export.
    pub pool_delay: Option<(u64, bool)>,
    /// Seconds for which writes are lost.
    pub lost_writes: Option<u64>,
    /// Blocks that the handler is about, if it is about blocks.
    pub blocks: Option<InjectBlocks>,
}

/// Blocks of a handler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InjectBlocks {
    /// Number of the object set.
    pub objset: u64,
    /// Number of the object; 0 of the meta object set: every object.
    pub object: u64,
    /// Number of the type of objects, 0 for any.
    pub object_type: u64,
    /// Name of that type as `zinject` has it, or `-`.
    pub type_name: String,
    /// Level of the blocks, 0 for data.
    pub level: u32,
    /// Numbers of the first and last block; `u64::MAX` is the end.
    pub range: (u64, u64),
    /// Copies as a mask of bits; 0 is all.
    pub copies: u32,
}
