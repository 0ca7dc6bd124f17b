//! Door of an object storage device for other processes: a Unix socket, on which `osd_client` speaks (docs/osd-protocol.md).
//!
//! A connection has a thread that takes requests and does them in order, and one that sends what there is to say; so a client that says nothing, or
//! does not listen, holds up nobody but itself. A transaction is one request, done from its start to its end without a word with the client: none is
//! open while anybody waits for a client. What a client has (memory that it shares, grants) goes with its connection.
//!
//! Invariants: memory of a client is never looked at through a reference; a file of a client is mapped only when its end is sealed; budgets are held
//! while devices work, never while a client is waited for.
#![forbid(unsafe_code)]

mod budget;
mod connection;
mod context;
mod errors;
mod memory;
mod outbox;
mod read;
mod server;
mod session;
mod transact;

pub use context::{Devices, Opened, Options};
pub use errors::errno_of;
pub use server::{Listening, Server};
