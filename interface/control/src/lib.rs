//! Executes typed requests for the daemon: owns the open pools and the mounts, and formats no text for people.
//!
//! Invariant: no lock of this crate is held while a request waits for a transaction group, except the mounts' own while
//! they are looked up, and of each pool the one that what users were delegated is done under, which nobody else takes.
#![forbid(unsafe_code)]

mod attached;
mod control;
mod dataset;
mod device;
mod events;
mod failure;
mod inject;
mod mount;
mod objects;
mod pool;
mod portal;
mod provider;
mod report;
mod requests;
mod route;
mod settings;
mod statistics;
#[cfg(feature = "testing")]
pub mod testing;
mod volume;
mod watch;

pub use attached::Attached;
pub use control::{Caller, Control};
pub use dataset::sending::{Outgoing, Outlet};
pub use dsl::Subject;
pub use failure::no_thread;
pub use mount::keeping::{Heirloom, Heritage, Keeper};
