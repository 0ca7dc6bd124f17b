//! An NBD server (the NBD project's `doc/proto.md`): fixed newstyle negotiation, simple and structured replies, block status.
//!
//! Invariants: this crate knows no pool and no volume: [`Export`] and [`Exports`] are ports; no bytes of a client make it panic, and nothing is
//! allocated for a length before it was checked; read data goes from the export's buffers to the socket and written data from the socket to the
//! export without a copy; the protocol (`connection`) does no I/O: a thin driver ([`serve`]) runs it.
#![forbid(unsafe_code)]

mod connection;
mod driver;
mod export;
mod guests;
mod haggle;
mod outbox;
mod proto;
mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod transmit;
mod work;

pub use export::{Done, Export, ExportError, Exports, Listed, Opened, Piece, Refusal, Run, Shape};
pub use guests::{Guest, Guests};
pub use server::{Listener, Options, serve};
