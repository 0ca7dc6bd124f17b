//! Newtypes for every address space and a few constants of the format.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id!(
    /// A transaction group number.
    Txg(u64)
);
id!(
    /// An object number within an object set.
    ObjectId(u64)
);
id!(
    /// An object set number: the MOS object of the dataset (0 is the MOS itself).
    ObjsetId(u64)
);
id!(
    /// A block's index within its level of an object.
    BlockId(u64)
);
id!(
    /// A level of a dnode's block tree: 0 is data.
    Level(u8)
);
id!(
    /// The index of a top-level vdev.
    VdevId(u32)
);
id!(
    /// A 64-bit globally unique identifier (pool, vdev, dataset).
    Guid(u64)
);

impl Txg {
    /// The txg before any: block pointers of holes are born here.
    pub const ZERO: Txg = Txg(0);
    /// The first txg of a new pool (OpenZFS: `TXG_INITIAL`).
    pub const INITIAL: Txg = Txg(4);
    /// The next txg.
    #[must_use]
    pub fn next(self) -> Txg {
        Txg(self.0 + 1)
    }
}

/// The address of a block: which block of which object of which object set (OpenZFS: `zbookmark_phys_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bookmark {
    /// Number of the object set.
    pub objset: ObjsetId,
    /// Number of the object.
    pub object: ObjectId,
    /// Level of the block.
    pub level: Level,
    /// Block within the level.
    pub block: BlockId,
}

/// Smallest block, in bytes (OpenZFS: `SPA_MINBLOCKSIZE`).
pub const SECTOR_BYTES: usize = 512;
/// log2 of [`SECTOR_BYTES`].
pub const SECTOR_SHIFT: u32 = 9;
/// Largest block, in bytes (OpenZFS: `SPA_MAXBLOCKSIZE`).
pub const BLOCK_BYTES_MAX: usize = 16 << 20;
