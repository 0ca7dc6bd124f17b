//! OpenZFS's on-disk records: layouts, both byte orders, validation, and the newtypes that keep address spaces apart.
//!
//! Nothing here performs I/O, takes a lock or trusts a byte: every decoder returns an error on any input that it cannot
//! represent, and unknown values stay representable (rejecting them is the caller's decision).
#![forbid(unsafe_code)]

mod blkptr;
mod byteswap;
mod catalog;
pub mod ddt;
mod dnode;
mod dsl;
mod enums;
mod errlog;
mod feature;
mod ids;
mod l2arc;
pub mod label;
pub mod names;
mod objset;
mod pool_objects;
pub mod record;
pub mod sa;
mod show;
mod space_map;
#[cfg(test)]
mod tests;
mod uberblock;
mod validate;
pub mod zap;
pub mod zil;

pub use blkptr::{BlockPtr, Dva, EMBEDDED_PAYLOAD_BYTES, EmbeddedKind};
pub use byteswap::{byteswap_block, byteswap_contents};
pub use catalog::{RECORDS, RecordInfo};
pub use dnode::*;
pub use dsl::*;
pub use enums::{Byteswap, Checksum, Compression, ObjectType, ObjsetType};
pub use errlog::{BadErrorName, ErrorBlock, bookmark_from_name, bookmark_name};
pub use feature::{Feature, FeatureInfo, FeatureSet};
pub use ids::*;
pub use l2arc::*;
pub use label::{BootBlock, GangHeader, ZioEck};
pub use objset::*;
pub use pool_objects::*;
pub use record::{ByteOrder, Field, FieldInfo, Record, ShortRecord};
pub use space_map::*;
pub use uberblock::{Uberblock, reflow_state};
pub use validate::{BlockPtrError, VdevExtent};
pub use zil::{ZilChain, ZilHeader};
