//! The port behind which the blocks of a logical unit live, and the one that keeps its persistent reservations.

use abd::Abd;
use std::future::Future;
use tokio::sync::oneshot;

/// An error of a unit, as far as an initiator can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitError {
    /// The medium cannot be read from this byte on, or somewhere in the request.
    Unreadable {
        /// First byte that is lost, if it is known.
        at: Option<u64>,
    },
    /// The medium cannot be written.
    Unwritable,
    /// There is no space to store what was written.
    NoSpace,
    /// The request goes beyond the end, for example since the unit shrank meanwhile.
    OutOfRange,
    /// Nothing may be written to it.
    ReadOnly,
    /// The unit is not there any more, or never answered.
    Gone,
}

/// Completion of a request: called once, from any thread, also before the call that got it returns.
pub type Done<T> = Box<dyn FnOnce(Result<T, UnitError>) + Send>;

/// A range in bytes, a multiple of the unit's block at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub at: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// A run of bytes that are all stored, or all not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Length in bytes.
    pub bytes: u64,
    /// True when the run has space of its own; what has none reads as zeros.
    pub is_mapped: bool,
}

/// Shape of a unit. Asked for with each command, so that a unit may grow and shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Number of logical blocks.
    pub blocks: u64,
    /// Length of a logical block in bytes: 512 or 4096.
    pub block_bytes: u32,
    /// Logical blocks per physical block, as a power of two: what is written at once without reading first (a volume's `volblocksize`).
    pub physical_exponent: u8,
    /// True when space is taken as it is written, and given back by unmapping.
    pub is_thin: bool,
    /// True when nothing may be written.
    pub is_read_only: bool,
}

impl Geometry {
    /// Length of the unit in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_bytes))
    }
}

/// Names by which initiators know a unit again; the same after a restart and on every path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Serial number, ASCII.
    pub serial: String,
    /// Identifier of 128 bits; its first four bits are overwritten with 6 (NAA, IEEE registered extended).
    pub naa: [u8; 16],
    /// Vendor, at most 8 characters.
    pub vendor: String,
    /// Product, at most 16 characters.
    pub product: String,
    /// Revision, at most 4 characters.
    pub revision: String,
}

/// Blocks of one logical unit. Calls return promptly and do not wait; extents were checked against [`LogicalUnit::geometry`] a moment before,
/// and may lie beyond the end of a unit that shrank since.
///
/// A request that is under way at the same time as another one to the same bytes is ordered as the unit likes, each block as a whole.
pub trait LogicalUnit: Send + Sync {
    /// Names of the unit.
    fn identity(&self) -> Identity;
    /// Shape of the unit at this moment.
    fn geometry(&self) -> Geometry;
    /// Reads `extent`; the buffer goes to the network as it is, and is held until it has been sent.
    fn read(&self, extent: Extent, done: Done<Abd>);
    /// Writes `data` at byte `at`; when `is_durable`, it is on stable storage before the completion.
    fn write(&self, at: u64, data: Abd, is_durable: bool, done: Done<()>);
    /// Makes `extents` read as zeros and gives the space of whole physical blocks in them back; nothing beside them changes. That parts of
    /// blocks are zeroed, too, is what initiators conclude from the promise that unmapped blocks read as zeros (LBPRZ).
    fn unmap(&self, extents: Vec<Extent>, done: Done<()>);
    /// Makes `extent` read as zeros; with `may_unmap` its space may be given back.
    fn write_zeroes(&self, extent: Extent, may_unmap: bool, is_durable: bool, done: Done<()>);
    /// Completes when all that was completed before is on stable storage.
    fn flush(&self, done: Done<()>);
    /// Announces that `extent` will be read.
    fn prefetch(&self, extent: Extent) {
        let _ = extent;
    }
    /// Says which parts of `extent` have space of their own: runs in order from its beginning, at least one.
    fn status(&self, extent: Extent, done: Done<Vec<Run>>);
}

/// One registered initiator port, by its transport identifier (`iqn…,i,0x…`), and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Transport identifier.
    pub transport: String,
    /// Reservation key.
    pub key: u64,
}

/// Persistent reservations of a unit as they are kept through a loss of power.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Counter of changes (PRGENERATION).
    pub generation: u32,
    /// Registered initiator ports.
    pub registrations: Vec<Registration>,
    /// Transport identifier of the holder and type of the reservation (SPC-4), if there is one.
    pub reservation: Option<(String, u8)>,
}

/// Store of persistent reservations (APTPL).
pub trait ReservationStore: Send + Sync {
    /// Stores `kept` durably in place of what was stored; None deletes it.
    fn save(&self, kept: Option<Kept>, done: Done<()>);
}

/// Runs a request of a port, and waits for its completion. A completion that is dropped is an error.
pub(crate) fn ask<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> impl Future<Output = Result<T, UnitError>> + Send {
    let (sender, receiver) = oneshot::channel();
    start(Box::new(move |result| {
        // Whoever asked may be gone.
        let _ = sender.send(result);
    }));
    async move { receiver.await.unwrap_or(Err(UnitError::Gone)) }
}
