//! The port to whoever computes stages of the pipeline: compression, checksums, parity, lost columns. [`crate::Software`] does so on the host;
//! accelerators do above.
//!
//! ```text
//! write ─► FirstRound::compress ─► an address ─► SecondRound::parity ─► checksum, devices ─► Claims::are_borne_out ─► the pointer
//!   ▲             │ Again                              │ Again                                  │ false
//!   └── software ◄┴────────────────────────────────────┴────────────────────────────────────────┘
//! ```
//! A stage never calls the pipeline: it answers, now or later. One that fails hands the block back, and the pipeline goes on, in software, from the
//! bytes that the stage gave it, or from the original, which stays with the pipeline until the block's end.

use crate::view::PoolView;
use crate::{ErrorKind, Landed, WriteRequest};
use abd::{Abd, AbdPart};
use device::{DeviceError, DeviceOp};
use ondisk::{BlockPtr, Checksum, Compression, Dva, Guid};
use std::sync::Arc;
use vdev::{ComputedRow, LeafId, LostRow, Mending};

/// Receives an answer. Runs once, on any thread, and must not wait.
pub type AnswerThen<T> = Box<dyn FnOnce(T) + Send>;

/// An answer that is there, or will be.
pub enum Answer<T> {
    /// Answer that is there.
    Now(T),
    /// Answer that comes once this was called, after the call or within it.
    Later(Box<dyn FnOnce(AnswerThen<T>) + Send>),
}

impl<T: 'static> Answer<T> {
    /// One that comes when `start`, once called, calls what it is given.
    pub fn later(start: impl FnOnce(AnswerThen<T>) + Send + 'static) -> Answer<T> {
        Answer::Later(Box::new(start))
    }

    /// Goes on with the answer: at once when it is there.
    pub fn then(self, onward: impl FnOnce(T) + Send + 'static) {
        match self {
            Answer::Now(answer) => onward(answer),
            Answer::Later(start) => start(Box::new(onward)),
        }
    }

    /// Delivers the answer.
    pub fn deliver(self, to: AnswerThen<T>) {
        match self {
            Answer::Now(answer) => to(answer),
            Answer::Later(start) => start(to),
        }
    }
}

/// Form that the logical bytes of a write have got.
pub enum Shape {
    /// Nothing to store: a hole.
    Hole(BlockPtr),
    /// Nothing to store: the bytes are in the pointer.
    Embedded(BlockPtr),
    /// Bytes to store.
    Physical(Physical),
    /// The stage gives the block back: in software, from the original.
    Again,
    /// The block cannot be written.
    Failed(ErrorKind),
}

/// Physical bytes, wherever they are.
pub struct Physical {
    /// Physical bytes; None when only the stage has them.
    pub data: Option<Abd>,
    /// Length in bytes.
    pub psize: usize,
    /// Compression of the bytes.
    pub compression: Compression,
    /// Round that goes on with the bytes.
    pub round: Box<dyn SecondRound>,
}

/// End of what a stage may still do: calls what it is given once nothing more can come of it.
pub type Over = Box<dyn FnOnce(Box<dyn FnOnce() + Send>) + Send>;

/// Block that has an address, as a stage has made it.
pub enum Made {
    /// The host writes the block.
    Ready(Ready),
    /// The stage wrote every copy of the block by itself, and what it said of it is judged.
    Written {
        /// The block's checksum, the host's own.
        sum: [u64; 4],
        /// Leaves that could not be written and so lack the block.
        skipped: Vec<LeafId>,
    },
    /// The stage gives the block back: in software, from the original.
    Again,
    /// The stage gives the block back, and may still write to its addresses: in software, from the original, and elsewhere. Nobody else gets these
    /// addresses before it is over.
    Astray(Over),
}

/// Bytes that the host writes.
#[derive(Default)]
pub struct Ready {
    /// The physical bytes; None when the host has had them since they were made.
    pub data: Option<Abd>,
    /// Parity columns that were made elsewhere, by address, row after row.
    pub parity: Vec<(Dva, Vec<Abd>)>,
    /// Claims about the block that are still to be judged.
    pub claims: Option<Box<dyn Claims>>,
}

/// Round before a block gets an address: finds its physical bytes, how many there are, and perhaps their checksum.
pub trait FirstRound: Send {
    /// True when bytes that others may change are looked at once only, so that no stable copy has to be taken first.
    fn looks_once(&self) -> bool {
        false
    }
    /// Makes physical bytes of the original.
    fn compress(self: Box<Self>, view: &PoolView, request: &WriteRequest) -> Answer<Shape>;
}

/// Round that needs the block's address: makes its parity, and leads back to the host.
pub trait SecondRound: Send {
    /// True when the host made the physical bytes: nothing of them is to be judged any more.
    fn is_hosts(&self) -> bool {
        false
    }
    /// Makes the parity of each copy, and brings the block's bytes to the host.
    fn parity(self: Box<Self>, view: &PoolView, dvas: &[Dva; 3]) -> Answer<Made>;
    /// Brings the bytes to the host, where pieces are made of them, there was no room in one piece, or its place is that of what is there already. Writes nothing: never
    /// [`Made::Written`] nor [`Made::Astray`].
    fn retrieve(self: Box<Self>) -> Answer<Made>;
}

/// Claims of a stage about a block, to be judged by what the host computes itself: nothing that it says is stored unseen.
pub trait Claims: Send {
    /// True when parity that was made elsewhere is written; else the host's is, and they are compared.
    fn trusts_parity(&self) -> bool;
    /// Takes note of what came of comparing the parity of one copy.
    fn note_parity(&self, agrees: bool);
    /// Compares the checksum with the host's of kind `kind`, over the bytes that the devices get. False: somebody's bytes are wrong, and the block
    /// begins again from the original.
    fn are_borne_out(&self, kind: Checksum, sum: [u64; 4], data: &Abd) -> bool;
}

/// A block that was read and verified, on its way to its logical bytes.
pub struct Packed {
    /// The block's pointer.
    pub bp: BlockPtr,
    /// Physical bytes of the block.
    pub physical: Abd,
    /// Memory of the reader, for the logical bytes, if that suits.
    pub near: Vec<AbdPart>,
}

/// A block that nobody has read, and of which leaves lack columns.
pub struct Mend {
    /// The block's pointer: its checksum is Fletcher-4 of little-endian words, over its physical bytes.
    pub bp: BlockPtr,
    /// Columns of the block, those that leaves lack among them.
    pub mending: Mending,
}

/// Leaf I/Os for whoever writes to devices by himself through the host.
pub trait LeafPort: Send + Sync {
    /// Does I/Os of leaves, of which each is a guid, an offset on the device and an operation; `then` gets their results in order. Scheduled and counted
    /// as all I/O is. Errors: `Gone` for a leaf that is not there, and those of devices.
    fn issue(&self, ios: Vec<(Guid, u64, DeviceOp)>, then: AnswerThen<Vec<Result<Abd, DeviceError>>>);
}

/// Port: computes stages, or does not: every block asks.
pub trait Stage: Send + Sync {
    /// A write begins: who computes its stages; None when this one has no part in it.
    fn write(&self, view: &PoolView, request: &WriteRequest) -> Option<Box<dyn FirstRound>>;
    /// The logical bytes of a block.
    fn decompress(&self, block: Packed) -> Answer<Result<Landed, ErrorKind>>;
    /// True when lost columns are computed here.
    fn reconstructs(&self) -> bool;
    /// The columns that rows lack; those of the rows that went well. Data that are `judged` will be by a checksum, parity never is.
    fn reconstruct(&self, rows: Vec<LostRow>, judged: bool) -> Answer<Vec<ComputedRow>>;
    /// Computes what leaves lack of a block from what others have, and writes it, without the host's having read any of it. True when all of it is
    /// written, and the block was right; else the host does it all.
    fn mend(&self, view: &PoolView, block: Mend) -> Answer<bool> {
        drop((view, block));
        Answer::Now(false)
    }
    /// Opens the devices of the view for writes past the host, where that is wished for; `leaves` is the way through it. Waits: for operations only.
    fn open_stores(&self, view: &PoolView, leaves: Arc<dyn LeafPort>);
}
