//! Which block of which object an entry of the cache is, and what is told of it.

use ondisk::{BlockPtr, Bookmark, Compression, ObjectType, SECTOR_SHIFT};

/// Block of an object that an entry is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    pub(crate) objset: u64,
    pub(crate) object: u64,
    pub(crate) block: u64,
    pub(crate) logical_bytes: u32,
    /// Sectors that the first copy takes, without those of other copies.
    pub(crate) sectors: u32,
    pub(crate) level: u8,
    pub(crate) object_type: u8,
    pub(crate) compression: Compression,
    /// True for a block that has a MAC of its own: indirect blocks have that of what is below them.
    pub(crate) is_protected: bool,
}

impl Origin {
    pub(crate) fn new(bp: &BlockPtr, bookmark: &Bookmark) -> Origin {
        Origin {
            objset: bookmark.objset.0,
            object: bookmark.object.0,
            block: bookmark.block.0,
            logical_bytes: bp.lsize() as u32,
            sectors: (bp.dva(0).asize >> SECTOR_SHIFT) as u32,
            level: bp.level(),
            object_type: bp.object_type().0,
            compression: bp.compression(),
            is_protected: bp.uses_crypt() && bp.level() == 0,
        }
    }
}

/// A block in the cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct CachedBlock {
    /// Bookmark of the block.
    pub bookmark: Bookmark,
    /// Type of the block's object.
    pub object_type: ObjectType,
    /// Size of the block as read, in bytes.
    pub logical_bytes: u64,
    /// Bytes that it takes of the cache.
    pub held_bytes: u64,
    /// True when it counts as metadata.
    pub is_metadata: bool,
    /// True when it was used more than once.
    pub is_frequent: bool,
    /// True when it stays for a moment only.
    pub is_uncached: bool,
    /// True when its bytes are here as read.
    pub is_decompressed: bool,
    /// True when its bytes are here compressed.
    pub is_compressed: bool,
    /// True when it was read ahead, and nobody has used it yet.
    pub is_prefetched: bool,
    /// Time in ns at which it was used last, monotonic.
    pub used_ns: u64,
    /// Uses while it was recently used, and while it was frequently used.
    pub uses: [u32; 2],
}

impl CachedBlock {
    /// True when there is a decompressed copy that could be made again.
    pub fn has_copy(&self) -> bool {
        self.is_compressed && self.is_decompressed
    }
}
