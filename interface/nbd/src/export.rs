//! The ports behind which volumes live: one that is served, and all of those that there are.

use abd::Abd;
use std::ops::Range;
use std::sync::Arc;

/// An error of an export, as far as a client can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportError {
    /// Devices failed.
    Io,
    /// There is no space to store what was written.
    NoSpace,
    /// The request goes beyond the end, for example since the export shrank meanwhile.
    OutOfRange,
    /// Nothing may be written to it.
    ReadOnly,
    /// The export is not there any more, or never answered.
    Gone,
}

/// Completion of a request: called once, from any thread, also before the call that got it returns.
pub type Done<T> = Box<dyn FnOnce(Result<T, ExportError>) + Send>;

/// Part of what was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes; they go to the network as they are, and are held until they have been sent.
    Data(Abd),
    /// Number of bytes that are zeros, since nothing is stored there.
    Hole(u64),
    /// Number of bytes that cannot be read, and why.
    Lost(u64, ExportError),
}

impl Piece {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Piece::Data(data) => data.len() as u64,
            Piece::Hole(bytes) | Piece::Lost(bytes, _) => *bytes,
        }
    }
}

/// A run of bytes that are all stored, or all not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Length in bytes.
    pub bytes: u64,
    /// True when the run has space of its own; what has none reads as zeros.
    pub is_stored: bool,
}

/// Shape of an export. Asked for with each request, so that it may grow and shrink; clients see the size that it had when they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes that are written at once without reading first, a power of two (a volume's `volblocksize`).
    pub block_bytes: u32,
    /// True when nothing may be written.
    pub is_read_only: bool,
}

/// Bytes of a volume that is served. Calls return promptly and do not wait; ranges were checked against [`Export::shape`] a moment before, are
/// not empty, and may lie beyond the end of an export that shrank since.
pub trait Export: Send + Sync {
    /// Shape of the export at this moment.
    fn shape(&self) -> Shape;
    /// Reads a range, in pieces that cover it in order; one of data when `is_whole`, as holes are of no use to the client then.
    fn read(&self, range: Range<u64>, is_whole: bool, done: Done<Vec<Piece>>);
    /// Writes `data` at byte `at`; when `is_durable`, it is on stable storage before the completion.
    fn write(&self, at: u64, data: Abd, is_durable: bool, done: Done<()>);
    /// Gives space in a range back, whose bytes nobody needs any more.
    fn trim(&self, range: Range<u64>, is_durable: bool, done: Done<()>);
    /// Makes a range read as zeros; its space may be given back unless `keeps_space`.
    fn write_zeroes(&self, range: Range<u64>, keeps_space: bool, is_durable: bool, done: Done<()>);
    /// Completes when all that was completed before, whoever asked for it, is on stable storage.
    fn flush(&self, done: Done<()>);
    /// Gets a range, or the beginning of it, from devices, as it will be read.
    fn cache(&self, range: Range<u64>, done: Done<()>);
    /// Says which parts of a range are stored: runs in order from its beginning, at least one and at most `runs_max`.
    fn status(&self, range: Range<u64>, runs_max: usize, done: Done<Vec<Run>>);
}

/// Reason why somebody does not get an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Name of no export, or of one that is not for the client to know.
    Unknown,
    /// Export that cannot be had now.
    Unavailable,
    /// Server that stops.
    Stopping,
}

/// Receiver of the names of all exports; called once, from any thread.
pub type Listed = Box<dyn FnOnce(Vec<String>) + Send>;
/// Receiver of an export; called once, from any thread.
pub type Opened = Box<dyn FnOnce(Result<Arc<dyn Export>, Refusal>) + Send>;

/// Exports that there are. Calls return promptly and do not wait.
pub trait Exports: Send + Sync {
    /// Names of those that a client may have.
    fn list(&self, then: Listed);
    /// Opens one; it is in use until the last reference to it is gone.
    fn open(&self, name: &str, then: Opened);
}
