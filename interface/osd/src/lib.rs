//! Object storage device: what Lustre's OSD layer asks of ZFS, over the ZPL's objects (Lustre: `osd-zfs`).
//!
//! A [`Device`] is a dataset of file-system type; an [`Object`] has a [`Fid`] and either data or keys, attributes and extended attributes. All changes
//! are made in a transaction: a [`Transaction`] declares them, and once it is started a [`Running`] one makes them; those of one are on disk together or
//! not at all, and its callbacks are called once they are. There is no intent log: who wants more does it again.
//!
//! How data moves: the block size of an object follows the end that is known when buffers are lent, and only ever is the record size once there are two
//! blocks; so whole blocks go straight from the buffers to the devices, at whatever offset a request begins. What is left at its edges waits in the txg,
//! as parts of whole blocks that share the buffers, until the neighbours come: then the block goes to the devices directly, too.
//!
//! Invariants: a thread has one running transaction, and while it has one waits for nothing but its devices; it reads no object that it did not declare.
//! Locks are taken in this order: transaction, range of bytes, the rest. The dataset is not mounted while a device is open on it.
#![forbid(unsafe_code)]

mod callbacks;
mod device;
mod error;
mod fid;
mod grants;
mod index;
mod left;
mod loan;
mod object;
mod read;
mod stats;
mod transaction;
mod write;

pub use callbacks::Commit;
pub use device::{Device, Space};
pub use error::OsdError;
pub use fid::Fid;
pub use index::Entries;
pub use loan::Loan;
pub use object::Object;
pub use stats::Snapshot;
pub use transaction::{Change, NewObject, Running, Transaction};
