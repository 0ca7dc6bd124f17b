//! Requests and reports about simulated faults (`zinject`).

use serde::{Deserialize, Serialize};

/// What to simulate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum InjectFault {
    /// `-d`: I/Os of a device fail, or those to a part of its labels.
    Device {
        /// Path, name or guid.
        device: String,
        /// `io`, `nxio`, `corrupt`, `noop`, `dtl` …
        error: String,
        /// `read`, `write`, `flush`, `trim` …, `all`.
        io: String,
        /// `-L`: `nvlist`, `uber`, `pad1` or `pad2`.
        label: Option<String>,
    },
    /// `-d -D`: I/Os of a device take time.
    Delay {
        /// Path, name or guid.
        device: String,
        /// Milliseconds that each takes at least.
        delay_ms: u64,
        /// How many are served at once.
        lanes: u64,
        /// `read`, `write` or `all`.
        io: String,
    },
    /// `-d -A`: a device is declared degraded or faulted.
    State {
        /// Path, name or guid.
        device: String,
        /// Faulted; else degraded.
        faulted: bool,
    },
    /// `-t data`, `-t dnode`: reads of a file's blocks, or of the block that holds its dnode.
    File {
        /// Absolute path in a mounted file system.
        path: String,
        /// The file system, where who asks knows it: with `-m` it is not mounted meanwhile.
        #[serde(default)]
        dataset: Option<String>,
        /// Its inode number.
        inode: u64,
        /// The dnode, not the data.
        dnode: bool,
        /// `-l`.
        level: u32,
        /// `-r`: first byte, and the byte after the last.
        range: Option<(u64, u64)>,
        /// `-C`: copies as bits; 0 is all.
        copies: u32,
        /// `io`, `checksum` or `decompress`.
        error: String,
    },
    /// `-t mos` and its kinds: reads of the pool's own objects.
    Meta {
        /// `mos`, `mosdir`, `metaslab`, `config`, `bpobj`, `spacemap` or `errlog`.
        kind: String,
        /// `io`, `checksum` or `decompress`.
        error: String,
    },
    /// `-b`: reads of one block.
    Block {
        /// Object set.
        objset: u64,
        /// Object.
        object: u64,
        /// Level.
        level: u32,
        /// Block.
        block: u64,
        /// `io`, `checksum` or `decompress`.
        error: String,
    },
    /// `-I`: most writes are lost.
    LostWrites {
        /// `-s`: for so many seconds.
        seconds: u64,
    },
    /// `-P`: the next import or export of the pool takes time.
    PoolDelay {
        /// The import; else the export.
        import: bool,
        /// Seconds.
        seconds: u64,
    },
}

/// `zinject`: adds a handler, flushes the cache, or both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InjectAdd {
    /// Pool; None with `-a` alone: every pool's cache. For [`InjectFault::File`] the path says which.
    pub pool: Option<String>,
    /// The fault, if there is to be a handler.
    pub fault: Option<InjectFault>,
    /// `-f`: how often it strikes, of 2^32; 0 is always.
    pub frequency: u32,
    /// `-a`.
    pub flush_cache: bool,
    /// `-u`: the pool is closed and opened again first.
    pub reopen: bool,
}

/// A handler, or what became of [`InjectAdd`] (OpenZFS: `zinject_record_t`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InjectReport {
    /// Its number; 0 when no handler was added.
    pub id: u64,
    /// Pool.
    pub pool: String,
    /// Guid of the device, if it is about one.
    pub device: Option<u64>,
    /// Kind of I/O.
    pub io: String,
    /// Error.
    pub error: String,
    /// How often, of 2^32; 0 is always.
    pub frequency: u32,
    /// Milliseconds and lanes of a delay.
    pub delay: Option<(u64, u64)>,
    /// Seconds; whether of an import or an export.
    pub pool_delay: Option<(u64, bool)>,
    /// Seconds for which writes are lost.
    pub lost_writes: Option<u64>,
    /// What blocks it is about.
    pub blocks: Option<InjectBlocks>,
}

/// Blocks of a handler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InjectBlocks {
    /// Object set.
    pub objset: u64,
    /// Object; 0 of the meta object set: every object.
    pub object: u64,
    /// Number of the type of objects, 0 for any.
    pub object_type: u64,
    /// The same as `zinject` calls it, or `-`.
    pub type_name: String,
    /// Level.
    pub level: u32,
    /// First and last block; `u64::MAX` is the end.
    pub range: (u64, u64),
    /// Copies as bits; 0 is all.
    pub copies: u32,
}
