//! The port to whoever knows which blocks are stored already: tables of deduplication (OpenZFS: `zio_ddt_write`).
//!
//! ```text
//! compress ─► checksum ─► look_up ─► Share: the pointer, once its bytes were compared where that is wished for
//!                                 ├► List: as any write, then the table is told
//!                                 └► Plain: as any write
//! ```
//! A block waits for its verdict without a thread; whoever gives it may have to read a table first, or to wait for an equal block that is being written.

use ondisk::ddt::DdtKey;
use ondisk::{BlockPtr, Checksum, Dva, Txg};

/// Extent to which an equal block may take the place of one that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dedup {
    /// Not at all: the block is its own.
    #[default]
    Off,
    /// An equal block is one with the same checksum, sizes and compression.
    On,
    /// Likewise, once the bytes were compared (the property's `verify`).
    Verify,
    /// Nobody is asked any more: a table has the block as soon as it is written, and its pointer says so.
    Listed,
}

/// A block that may be stored already.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Transaction group that refers to it.
    pub txg: Txg,
    /// Algorithm of its checksum: each has tables of its own.
    pub checksum: Checksum,
    /// Key of the block there.
    pub key: DdtKey,
    /// Number of copies wanted, 1–3: blocks with more or fewer are others.
    pub copies: u8,
}

/// Place of a block that is stored.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// Addresses of its copies.
    pub dvas: [Dva; 3],
    /// Transaction group that wrote it.
    pub birth: Txg,
}

/// Receives the pointer of a block that is to be listed, or None when it could not be written; true when the table has it now. Runs once, and never waits.
pub type ListedThen = Box<dyn FnOnce(Option<BlockPtr>) -> bool + Send>;

/// Receives a verdict. Runs once, on any thread, and never waits.
pub type VerdictThen = Box<dyn FnOnce(Verdict) + Send>;

/// Verdict about a block that is being written.
pub enum Verdict {
    /// The block is written as any other, and no table has it.
    Plain,
    /// The block is written, and the table is told.
    List(ListedThen),
    /// The block is stored; a reference was added to it.
    Share(Stored),
}

/// Port: the tables of deduplication.
pub trait DedupTables: Send + Sync {
    /// Gives a verdict about a block, during the call or later.
    fn look_up(&self, asked: Asked, then: VerdictThen);
    /// Takes the reference back that [`Verdict::Share`] added, within the same transaction group: the block turned out to be another, or to be there.
    fn take_back(&self, txg: Txg, bp: &BlockPtr);
}
