//! Sanity of block pointers (OpenZFS: `zfs_blkptr_verify` in `zio.c`): a checksum proves transport, not sense.
//!
//! Run on every pointer that comes from disk before anything is sized, allocated or addressed by it.

use crate::{BLOCK_BYTES_MAX, BlockPtr, Checksum, Compression, Dva, EMBEDDED_PAYLOAD_BYTES, EmbeddedKind, ObjectType, VdevId};
use std::fmt;

/// Size of a top-level vdev, as far as it is known when a pointer to it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VdevExtent {
    /// There is none of this number, or it is a hole.
    Absent,
    /// The vdev exists but its size is not known (missing at import).
    Unknown,
    /// The vdev has this many allocatable bytes, and a gang header takes so many on it.
    Known {
        /// Allocatable bytes of the vdev.
        asize: u64,
        /// Allocated bytes of a gang header.
        gang_header_asize: u64,
    },
}

/// Fault of a block pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockPtrError {
    /// An object type that nobody assigned.
    Type(ObjectType),
    /// A compression that nobody assigned.
    Compression(Compression),
    /// A checksum that nobody assigned.
    Checksum(Checksum),
    /// More logical bytes than a block can have.
    LogicalSize(usize),
    /// More physical bytes than a block can have, or than fit into an embedded pointer.
    PhysicalSize(usize),
    /// A kind of embedded data that nobody assigned.
    Embedded(EmbeddedKind),
    /// Neither hole nor embedded, but without an address.
    NoAddress,
    /// An address on a vdev that does not exist.
    Vdev(VdevId),
    /// An address that ends past its vdev.
    Range(Dva),
}
impl fmt::Display for BlockPtrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockPtrError::Type(kind) => write!(f, "block pointer of unknown type {}", kind.0),
            BlockPtrError::Compression(kind) => write!(f, "block pointer with unknown compression {}", kind.0),
            BlockPtrError::Checksum(kind) => write!(f, "block pointer with unknown checksum {}", kind.0),
            BlockPtrError::LogicalSize(bytes) => write!(f, "block pointer to {bytes} logical bytes"),
            BlockPtrError::PhysicalSize(bytes) => write!(f, "block pointer to {bytes} physical bytes"),
            BlockPtrError::Embedded(kind) => write!(f, "block pointer with unknown embedded data {}", kind.0),
            BlockPtrError::NoAddress => f.write_str("block pointer without an address"),
            BlockPtrError::Vdev(vdev) => write!(f, "block pointer to vdev {vdev}, which does not exist"),
            BlockPtrError::Range(dva) => write!(f, "block pointer to {:#x} on vdev {}, past its end", dva.offset, dva.vdev),
        }
    }
}
impl std::error::Error for BlockPtrError {}

impl BlockPtr {
    /// Judges the pointer; `extent` says what is known of a top-level vdev. Holes and embedded pointers have no addresses to judge.
    pub fn validate(&self, extent: impl Fn(VdevId) -> VdevExtent) -> Result<(), BlockPtrError> {
        if !self.object_type().is_valid() {
            return Err(BlockPtrError::Type(self.object_type()));
        }
        if self.compression().name().is_none() {
            return Err(BlockPtrError::Compression(self.compression()));
        }
        if self.lsize() > BLOCK_BYTES_MAX {
            return Err(BlockPtrError::LogicalSize(self.lsize()));
        }
        if self.is_embedded() {
            return self.validate_embedded();
        }
        if self.is_hole() {
            return Ok(());
        }
        if self.dva(0).is_empty() {
            return Err(BlockPtrError::NoAddress);
        }
        if self.checksum_kind().name().is_none() {
            return Err(BlockPtrError::Checksum(self.checksum_kind()));
        }
        if self.psize() > BLOCK_BYTES_MAX {
            return Err(BlockPtrError::PhysicalSize(self.psize()));
        }
        self.dvas().try_for_each(|dva| validate_dva(dva, extent(dva.vdev)))
    }

    fn validate_embedded(&self) -> Result<(), BlockPtrError> {
        if self.embedded_kind().0 > EmbeddedKind::REDACTED.0 {
            return Err(BlockPtrError::Embedded(self.embedded_kind()));
        }
        if self.psize() > EMBEDDED_PAYLOAD_BYTES {
            return Err(BlockPtrError::PhysicalSize(self.psize()));
        }
        Ok(())
    }
}

fn validate_dva(dva: Dva, extent: VdevExtent) -> Result<(), BlockPtrError> {
    match extent {
        VdevExtent::Absent => Err(BlockPtrError::Vdev(dva.vdev)),
        VdevExtent::Unknown => Ok(()),
        VdevExtent::Known { asize, gang_header_asize } => {
            let need = if dva.gang { gang_header_asize } else { dva.asize };
            if dva.offset.checked_add(need).is_none_or(|end| end > asize) { Err(BlockPtrError::Range(dva)) } else { Ok(()) }
        }
    }
}
