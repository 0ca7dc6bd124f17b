//! Z.I.A., the ZFS Interface for Accelerators: stages of the pipeline on a provider of `dpusm` (docs/adr/0006).
//!
//! ```text
//! compress ─► first: {copy in, compress, pad, checksum} ─► an address ─► parity ─► second: {parity of each row, copy out} ─► the host's devices
//!                │ anything fails                              │ no room in one piece     │ anything fails
//!                └──► given back: software, the original       └──► brought back, a gang  └──► that stage in software, or given back
//! ```
//! Invariants:
//! 1. the original bytes stay with the pipeline until the block's end: whatever a provider does, the block can begin again without it;
//! 2. a buffer is valid on the host, on the device, or on both: [`block::Offloaded`] says which, and nothing reads a side that is not;
//! 3. metadata never leaves the host: the pipeline asks nobody about it;
//! 4. no write is answered, and so no uberblock written, while something that the provider said of the block is to be judged: its checksum and its
//!    copies always, its other results when the block is picked for verification, which the first thousands of each operation are;
//! 5. one lie, and nothing goes to the provider any more;
//! 6. nothing here calls the pipeline: it answers, and what it cannot do it gives back.
#![forbid(unsafe_code)]

mod accelerator;
mod block;
mod claimed;
mod first;
mod look;
mod mend;
mod reading;
mod reconstruct;
mod second;
mod stage;
mod stores;
mod submit;

pub use accelerator::{Accelerator, ZiaMode, ZiaPolicy};
