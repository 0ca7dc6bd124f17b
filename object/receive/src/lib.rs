//! Receiving streams into datasets (OpenZFS: `dmu_recv.c`).
//!
//! [`Receiver`] begins with the head of a substream, applies one record after the other to the object set that is received into, and ends with
//! what came taking its place. Until then nobody sees anything of it; a receive that fails leaves the pool as it was, or, if that is asked
//! for, what it takes to go on later.
//!
//! # Invariants
//! 1. A record is applied only after its checksum was compared: [`stream::Reader`] hands out no other.
//! 2. No number of a stream is believed: objects, offsets, sizes and kinds are looked at before anything changes.
#![forbid(unsafe_code)]

mod apply;
mod error;
mod heal;
mod object;
mod payload;
mod receiver;
mod sealed;
#[cfg(test)]
mod tests;

pub use error::ReceiveError;
pub use heal::{Healed, Healer};
pub use receiver::{Receiver, Target, Through};
