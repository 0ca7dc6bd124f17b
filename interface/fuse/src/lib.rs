//! FUSE without libfuse: the kernel's protocol, mounting, and the [`Handler`] port behind which a file system lives.
//!
//! Invariants: this crate knows nothing of pools; WRITE payloads are handed over page-aligned and without a copy; READ data goes
//! from the handler's buffer to the kernel without a copy; errno leaves the engine here and nowhere else.
#![deny(unsafe_code)]

pub mod abi;
mod answer;
mod apart;
mod blockmount;
mod counts;
mod dispatch;
mod encode;
mod ending;
mod errno;
mod handler;
mod lane;
mod lasting;
mod mount;
mod node;
mod notify;
mod path_nodes;
mod readers;
mod repeat;
mod sent_again;
mod serve;
mod served;
mod session;
mod slide;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
mod uring;

pub use answer::Answer;
pub use apart::apart;
pub use counts::{RequestCounts, request_counts};
pub use errno::Errno;
pub use handler::*;
pub use lane::Lane;
pub use lasting::{Done, Lasting, Underway};
pub use mount::{MountError, MountOptions, bury, clear_dead_mount, is_dead};
pub use notify::{Kernel, Notifier};
pub use path_nodes::PathNodes;
pub use readers::Readers;
pub use session::{MountFacts, Negotiated, Session};
pub use slide::Stage;
pub use table::{MountRow, MountTable, covers, topmost};
pub use uring::{Uring, uring_is_offered};

/// Flag O_DIRECT of open(2), in [`ReadRequest::open_flags`], [`WriteRequest::open_flags`] and the flags of open.
pub const O_DIRECT: u32 = libc::O_DIRECT as u32;
/// Flag O_APPEND of open(2), in the flags of open.
pub const O_APPEND: u32 = libc::O_APPEND as u32;
