//! The ZFS POSIX layer: files, directories, links and attributes of an object set, on disk as OpenZFS's version 5 has them, or an older one.
//!
//! [`Zfs`] is a file system, [`Node`] a counted reference to one of its nodes. Operations are straight-line code that may
//! wait; they take locks, then a transaction, then change memory and objects; see `fs/mod.rs` for the lock order.
//! [`ZplFuse`] puts a file system and its snapshots behind the FUSE server.
//!
//! Invariants: nothing here knows pools or datasets (they come as an `Objset`, a `TxgManager` and small ports); errno
//! appears only as [`ZplError`]'s mapping; who may do what is checked by the kernel (`default_permissions`), its consequences
//! (setuid, group inheritance, access control entries) are drawn here.
#![forbid(unsafe_code)]

mod accounting;
mod acl;
mod alignment;
mod counts;
mod ctldir;
mod data;
mod dataset;
mod device_number;
mod diff;
mod entries;
mod error;
mod file_flags;
mod fs;
mod fuse_fs;
mod inherited;
mod kernel;
mod lasting;
mod lifetimes;
mod log;
mod make;
mod moves;
mod names;
mod nodes;
mod posix_acl;
mod reap;
mod recount;
mod rename;
mod replay;
mod requests;
mod room;
mod sa;
mod seek;
mod setattr;
mod settings;
mod statfs;
mod store;
mod undo;
mod unlinked;
pub mod userspace;
pub mod version;
mod within;
mod xattr;
mod znode;

pub use ::direct_io as direct;
pub use accounting::Accounting;
pub use ctldir::{EnteredSnapshot, OpenSnapshot, SnapshotSource, set_admin_snapshot};
pub use data::{Allocate, DataAt, FILE_BYTES_MAX, ReadThen, WriteData, WriteThen, set_cloning, set_reports_holes};
pub use diff::{DiffError, DiffKind, Difference, diff};
pub use entries::{Dirent, Listed};
pub use error::{Why, ZplError};
pub use file_flags::{FlagChange, PROJECT_INHERIT};
pub use fs::Zfs;
pub use fuse_fs::ZplFuse;
pub use kernel::Remembered;
pub use log::set_logs_xattrs;
pub use make::{NewNode, Recorded};
pub use nodes::{Kept, Node};
pub use rename::{Place, RenameMode};
pub use replay::FileReplay;
pub use room::{Space, SpaceSource, TxKind};
pub use sa::Attr;
pub use setattr::{SetAttrs, Stat};
pub use settings::{CaseSensitivity, CreateOptions, Settings, Snapdir};
pub use store::{LONG_NAME_BYTES_MAX, NAME_BYTES_MAX, VERSION};
pub use unlinked::set_unlink_suspended;
pub use xattr::{SetMode, set_xattr_compat};
pub use zap::NormFlags;
pub use znode::{Fields, Time, Znode};
