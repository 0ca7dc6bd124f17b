//! Operations that happened in a transaction: in memory until somebody wants them durable, then records of the log (OpenZFS: `itx_t`).

use crate::{Arena, write_header};
use dmu::{DmuError, Tx};
use ondisk::{BlockPtr, ObjectId, Txg};
use std::fmt;
use std::sync::Arc;

/// Range of a file or volume whose bytes a record of a write holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Object that was written.
    pub object: ObjectId,
    /// Generation of the object: another one means that its number was given away since.
    pub generation: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// Place of a write's bytes until the record is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// No bytes beside those of the record.
    None,
    /// The object, from which they are copied when the log is committed (OpenZFS: `WR_NEED_COPY`).
    Copied(Range),
    /// A block on disk, of a direct write: the record gets its pointer (OpenZFS: `WR_INDIRECT`).
    Block(Range),
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Itx {
    /// Record as it goes into the log, but for its number, its txg and the bytes of [`Payload::Copied`], with their number; a multiple of 8 bytes long.
    pub record: Vec<u8>,
    /// Object whose commits the operation waits for; None when every commit takes it along (OpenZFS: `itx_sync`).
    pub only_with: Option<ObjectId>,
    /// Place of its bytes.
    pub payload: Payload,
}

impl Itx {
    /// Operation of a write whose bytes are there; None for a payload without any.
    pub fn of_write(payload: Payload, only_with: Option<ObjectId>) -> Option<Itx> {
        let (Payload::Copied(range) | Payload::Block(range)) = &payload else { return None };
        Some(Itx { record: write_header(range.object, range.offset, range.length), only_with, payload })
    }
}

/// State of a range when its record is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Bytes of the range, as many as it has, zeros behind the end of the file.
    Bytes(Vec<u8>),
    /// Block that holds the range, stable or not: its devices are flushed with the log's.
    Block(BlockPtr),
    /// Nothing is to be logged: the object is gone, cut off before the range, or its block is on disk with its txg.
    Nothing,
}

/// Whoever knows the bytes of objects: a file system or a volume.
pub trait Source: Send + Sync {
    /// Fills in the range of an operation of `txg`; called without locks by whoever commits.
    ///
    /// # Errors
    /// Those of reading: the commit waits for the txg instead.
    fn fill(&self, payload: &Payload, txg: Txg) -> Result<Filled, DmuError>;
}

/// Log of one dataset, as those see it who change the dataset.
pub trait Log: Send + Sync + fmt::Debug {
    /// True when operations are to be noted: not while the dataset has `sync=disabled` or a log is replayed.
    fn is_wanted(&self) -> bool;
    /// Notes an operation of this transaction; the order of calls is the order of the log. Called before the transaction ends, and
    /// under the locks that order the operation among others of its objects.
    fn note(&self, itx: Itx, tx: &Tx);
    /// Notes a write likewise. Where that is possible it becomes part of the operation that was noted before; unless implemented, it never does.
    fn note_write(&self, payload: Payload, only_with: Option<ObjectId>, tx: &Tx) {
        if let Some(itx) = Itx::of_write(payload, only_with) {
            self.note(itx, tx);
        }
    }
    /// Lets every later commit take along what was noted for the object alone: it was renamed, or opened by who wants each write durable.
    fn promote(&self, object: ObjectId);
    /// Forgets what was noted for the object alone: it was deleted.
    fn forget(&self, object: ObjectId);
    /// Makes durable what was noted, with the operations of this object alone; None takes those of all objects. Falls back to the
    /// txg where the log cannot be written.
    ///
    /// # Errors
    /// [`DmuError::Stopped`] when the pool takes no more changes: nothing is promised then.
    fn commit(&self, object: Option<ObjectId>) -> Result<(), DmuError>;
    /// Arena of the pool, which is to have every change, whether the log wants it or not; None where mounts do not outlive the process.
    fn arena(&self) -> Option<&Arc<Arena>> {
        None
    }
    /// Counters of the log, by OpenZFS's names; none where nobody counts.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
