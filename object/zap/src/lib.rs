//! ZAP: name → integers maps in DMU objects, exactly as OpenZFS stores them (`zap_micro.c`, `zap.c`, `zap_leaf.c`).
//!
//! Two formats behind one handle, [`Zap`]: *micro*, one block of short names with one 64-bit integer each, and *fat*, an
//! extendible hash table of leaves that holds any number of entries. A micro ZAP becomes fat when an entry does not fit.
//! Used for directories, properties, feature counts, name tables of datasets — everything with names.
//!
//! # Invariants
//! 1. What is in memory (index, header) is always the newest; it changes together with the blocks under one write lock.
//! 2. The lock of one ZAP may be held while a block of the same object is read; nothing that the read waits for takes it.
//!    No other lock of the engine is held across a wait here.
//! 3. A lookup in a fat ZAP reads at most one block of pointer table and one leaf, whatever the number of entries.
//! 4. Every chunk number, block number and chain length from disk is checked: a hostile object gives
//!    [`ZapError::Corrupt`], never a panic or an endless loop.
#![forbid(unsafe_code)]

mod create;
mod cursor;
mod error;
mod fat;
mod hash;
mod header;
mod integers;
mod leaf;
mod micro;
mod name;
mod object;
mod stats;
mod value;

pub use create::{CreateOptions, create, create_with, destroy, format};
pub use cursor::{Attribute, CURSOR_END, Cursor};
pub use error::ZapError;
pub use header::ZapFlags;
pub use integers::parse_int_name;
pub use micro::set_micro_bytes_max;
pub use name::{LONGNAME_BYTES_MAX, Match, NAME_BYTES_MAX, NormFlags};
pub use object::{Found, VALUE_BYTES_MAX, Zap};
pub use stats::Stats;
pub use value::Value;
