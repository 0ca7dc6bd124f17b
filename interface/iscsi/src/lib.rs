//! An iSCSI target (RFC 7143) and the SCSI commands (SPC-4, SBC-3) that initiators need of a disk.
//!
//! Invariants: this crate knows no pool and no volume: [`LogicalUnit`], [`ReservationStore`] and [`Access`] are ports; no bytes of a peer make it
//! panic, and nothing is allocated for a length before it was checked; read data goes from the unit's buffers to the socket and
//! written data from the socket to the unit without a copy; the protocol ([`Connection`]) does no I/O: a thin driver ([`serve`]) runs it.
#![forbid(unsafe_code)]

mod access;
mod bytes;
mod chap;
mod connection;
mod driver;
mod frame;
mod full;
mod gate;
mod keys;
mod login;
mod negotiate;
mod parked;
mod pdu;
pub mod ram;
mod scsi;
mod server;
mod targets;
mod tasks;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod unit;

pub use access::{Access, Account, Chap, Grant};
pub use chap::Challenges;
pub use connection::Connection;
pub use crowd::Waiting;
pub use frame::{FrameError, Framer};
pub use full::{Action, Finished, Job};
pub use keys::{KeyError, Keys};
pub use login::{Login, LoginStep, Look, Presence, Request, Surroundings};
pub use negotiate::Parameters;
pub use pdu::{Body, Outgoing, Pdu, opcode};
pub use scsi::disk::Disk;
pub use server::{Options, serve};
pub use targets::{Session, Target, Targets};
pub use unit::{Done, Extent, Geometry, Identity, Kept, LogicalUnit, Registration, ReservationStore, Run, UnitError};
