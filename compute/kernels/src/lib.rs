//! Pure functions over bytes: checksums, compression, RAID-Z parity. No I/O, no locks, no state between calls but which
//! implementation was chosen.
//!
//! Every result is what OpenZFS would read: checksum words as they stand in block pointers, compressed streams with OpenZFS's
//! length headers, parity with the coefficients of `vdev_raidz.c`. Vector code lives in one file per instruction set (the only
//! unsafe code here besides the calls into liblz4), is picked at run time, and is proved equal to a plain reference by tests.
//! Decoders take bytes from disk: they return an error on any input and never read or write outside the given slices.

pub mod checksum;
pub mod compress;
pub mod fused;
pub mod raidz;
mod zero;

pub use checksum::{ByteOrder, ChecksumError, checksum};
pub use compress::{COMPRESSIONS, DecompressError, compress, decompress};
pub use zero::is_zero;
