//! The storage side of a target: sessions with hosts, their buffers and stores, and programs that run where the disks are.
//!
//! ```text
//! connection ──handshake──► Session (new, or gone on with) ──Execute──► dpusm graph on the local Device ──report──► Completion, kept
//! no frame for a lease, Goodbye, stop ──► the session ends: buffers freed, stores closed, nothing of it is written any more
//! ```
//! Programs run on any [`dpusm::Device`]: software, or an accelerator beside the disks. Its registry judged it, and the graphs of hosts are
//! checked as everybody's. The answer to an operation is kept until the host says that it has it, so one that comes twice runs once.
//!
//! Over a Unix socket the bytes of a program and of its answer can lie in memory of the host's (`connection::fetch`, `outlet`): they are copied, then
//! checked, and what is wrong with that memory ends in frames.
//!
//! Invariants: a session writes nothing after its lease; what a host may use of memory is bounded per session; threads wait, jobs do
//! not; paths are opened by [`Stores`] only, which decides what may be written.
#![forbid(unsafe_code)]

mod connection;
mod graph;
mod lease;
mod outlet;
mod session;
mod setup;
mod stats;
mod strangers;
mod target;

pub use setup::{Stores, TargetSetup};
pub use stats::TargetStats;
pub use target::{Listening, Target};
