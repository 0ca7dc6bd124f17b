//! The provider of disaggregated storage: device memory, operations and disks are a target's, at the other end of a socket.
//!
//! A program is one frame, its answer another: with the two programs of a record (docs/adr/0006), two round trips. Buffers are numbers;
//! they are made on the target by the first program that names them, and their release travels with a later one. So a
//! record's bytes cross the link once, and what is computed from them, compressed data and parity, never does.
//!
//! On one machine, over a Unix socket, a record's bytes go through memory that both share, in both directions, as long as slots of it are free;
//! else, and over TCP, they are in the frames. What is sent again always is, so nothing depends on that memory.
//!
//! A connection that fails is made again, the session goes on, and what was not answered is sent again under its old number: the
//! target knows what it did. When that does not succeed within the session's lease, or the target has forgotten the session, the provider is
//! down for good: every program ends with [`dpusm::OpError::Down`], and somebody connects anew and replaces it in the registry.
//!
//! Invariants: nothing here waits but [`TargetProvider::connect`] and opening a store; threads of operations read and write the link, so an
//! executor with threads is needed; no lock is held while a program ends or the link is used.
#![forbid(unsafe_code)]

mod connect;
mod encode;
mod link;
mod location;
mod options;
mod provider;
mod slots;
mod state;
mod stats;

pub use connect::ConnectError;
pub use location::{Location, LocationError};
pub use options::TargetOptions;
pub use provider::TargetProvider;
pub use stats::LinkStats;
pub use target_wire::Address;
