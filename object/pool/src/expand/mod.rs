//! Expansions of RAID-Z vdevs: a vdev gets a device, and what is on it is moved until it lies on all of them (OpenZFS: `vdev_raidz.c`; docs/adr/0034).
//!
//! ```text
//!  attach ──sync──► filling the boot area ──► overwriting the first part from there ──► moving window by window ──► expanded ─► scrub
//!                     └──a device fails──► waits until all are whole, then goes on ◄──┘
//! ```
//! Who does what: the sync ([`step::ExpandStep`]) alone moves sectors, and changes the state in the MOS; [`run::Expansions`] has one txg synced after the
//! other. How far it is stands in the uberblock, since it must be known before a block is read.
//!
//! # Invariants
//! 1. No place is overwritten from which a row is read, by the uberblock on disk or by an I/O that is under way.
//! 2. What is written of a window while it is moved goes to both places, and what was moved then is moved again.
//! 3. No place is written to in a new way before all I/Os are done that were planned when it was used in the old one. The sync waits for none of them.
//! 4. The uberblock says that rows were moved only when their new places were flushed on every device of the vdev.

mod carry;
pub(crate) mod run;
pub(crate) mod step;
