//! The ZFS POSIX layer: files, directories, links and attributes of an object set, on disk as OpenZFS's version 5 has them.
//!
//! [`Zfs`] is a file system, [`Node`] a counted reference to one of its nodes. Operations are straight-line code that may
//! wait; they take locks, then a transaction, then change memory and objects; see `fs.rs` for the lock order.
//! [`ZplFuse`] puts a file system and its snapshots behind the FUSE server.
//!
//! Invariants: nothing here knows pools or datasets (they come as an `Objset`, a `TxgManager` and small ports); errno
//! appears only as [`ZplError`]'s mapping; who may do what is checked by the kernel (`default_permissions`), its consequences
//! (setuid, group inheritance, access control entries) are drawn here.
#![forbid(unsafe_code)]

mod accounting;
mod acl;
mod counts;
mod ctldir;
mod dataset;
pub mod direct;
mod error;
mod file_flags;
mod fs;
mod fuse_fs;
mod io;
mod kernel;
mod make;
mod names;
mod posix_acl;
mod range_lock;
mod rename;
mod sa;
mod setattr;
mod statfs;
mod undo;
pub mod userspace;
mod xattr;
mod znode;

pub use accounting::Accounting;
pub use ctldir::{OpenSnapshot, SnapshotSource, set_admin_snapshot};
pub use error::ZplError;
pub use file_flags::FlagChange;
pub use fs::{CaseSensitivity, CreateOptions, Settings, Snapdir, Space, SpaceSource, TxKind, Zfs, set_unlink_suspended};
pub use fuse_fs::ZplFuse;
pub use io::{Allocate, FILE_BYTES_MAX, WriteData, set_reports_holes};
pub use make::NewNode;
pub use names::{Dirent, LONG_NAME_BYTES_MAX, Listed, NAME_BYTES_MAX};
pub use rename::{Place, RenameMode};
pub use sa::Attr;
pub use setattr::{SetAttrs, Stat};
pub use xattr::{SetMode, set_xattr_compat};
pub use zap::NormFlags;
pub use znode::{Fields, Node, Time, Znode};
