//! The protocol of an object storage device over a Unix socket (docs/osd-protocol.md), and a client that speaks it.
//!
//! A frame is a header of 16 bytes and a body; numbers are little-endian. Bytes of objects are not in frames: they lie in memory files (memfd) that the
//! client made and whose length it sealed, and requests name places in them. A transaction is one request: no transaction of a client waits for it.
//!
//! Invariants: a decoder looks at no byte behind the body, and makes room for no more than was sent.
#![forbid(unsafe_code)]

mod client;
mod fields;
mod frame;
mod memory;
mod operation;
mod reply;
mod request;
mod socket;

pub use client::{Client, ClientError, Committed};
pub use fields::Malformed;
pub use frame::{BODY_BYTES_MAX, COMMITTED, HEADER_BYTES, Header, REFUSED, REPLY, frame};
pub use memory::Memory;
pub use operation::{Change, Fid, Operation, PIECES_MAX, Piece, Place, TIMES};
pub use reply::{Attributes, Entries, Limits, Reply, Space};
pub use request::{ENTRIES_MAX, OPERATIONS_MAX, Request, VERSION};
pub use socket::{Inlet, send_frame};
