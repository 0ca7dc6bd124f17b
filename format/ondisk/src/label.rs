//! The vdev label's geometry and self-checksummed blocks (OpenZFS: `vdev_label_t`, `zio_eck_t`, `zio_gbh_phys_t`).
//!
//! Only sizes, offsets and layouts: computing and verifying the embedded checksums needs a hash and belongs to the callers.

use crate::BlockPtr;
use crate::record::{ByteOrder, record};

/// Bytes of one label.
pub const LABEL_BYTES: usize = 256 << 10;
/// Labels on a leaf: two at its start, two at its end.
pub const LABELS: usize = 4;
/// Offset in the label of the boot block (after blank space that partition tables may use).
pub const BOOT_BLOCK_OFFSET: usize = 8 << 10;
/// Bytes of the boot block.
pub const BOOT_BLOCK_BYTES: usize = 8 << 10;
/// Offset in the label of the config (`vdev_phys_t`).
pub const CONFIG_OFFSET: usize = 16 << 10;
/// Bytes of the config with its embedded checksum.
pub const CONFIG_BYTES: usize = 112 << 10;
/// Bytes of the config that hold the packed nvlist.
pub const CONFIG_NVLIST_BYTES: usize = CONFIG_BYTES - ZioEck::SIZE;
/// Offset in the label of the ring of uberblocks.
pub const RING_OFFSET: usize = 128 << 10;
/// Bytes of the ring of uberblocks.
pub const RING_BYTES: usize = 128 << 10;
/// Smallest slot is 1 KiB (OpenZFS: `UBERBLOCK_SHIFT`).
pub const RING_SLOT_SHIFT_MIN: u32 = 10;
/// Largest slot is 8 KiB (OpenZFS: `MAX_UBERBLOCK_SHIFT`).
pub const RING_SLOT_SHIFT_MAX: u32 = 13;
/// Offset of the embedded boot loader region: after the first two labels.
pub const BOOT_REGION_OFFSET: u64 = 512 << 10;
/// Bytes of the embedded boot loader region.
pub const BOOT_REGION_BYTES: u64 = 7 << 19;
/// Bytes before the first allocatable byte: two labels and the boot region; DVA offsets count from here.
pub const LABEL_START_BYTES: u64 = 4 << 20;
/// Bytes after the last allocatable byte: two labels.
pub const LABEL_END_BYTES: u64 = 512 << 10;

/// Offset on the device of label `index` (0–3), of a device of `device_bytes` rounded by [`usable_bytes`].
///
/// On a device too small for four labels the last ones coincide with the first, or lie past any end.
pub fn label_offset(device_bytes: u64, index: usize) -> u64 {
    let labels = |count: usize| (count * LABEL_BYTES) as u64;
    if index < 2 { labels(index) } else { usable_bytes(device_bytes).wrapping_sub(labels(LABELS.saturating_sub(index))) }
}
/// A device's size rounded down to whole labels: what OpenZFS uses of it (`vdev_open`: `P2ALIGN(osize, sizeof (vdev_label_t))`).
pub fn usable_bytes(device_bytes: u64) -> u64 {
    device_bytes - device_bytes % LABEL_BYTES as u64
}
/// log2 of the ring's slot size on a top-level vdev of this ashift (OpenZFS: `VDEV_UBERBLOCK_SHIFT`).
pub fn ring_slot_shift(ashift: u32) -> u32 {
    ashift.clamp(RING_SLOT_SHIFT_MIN, RING_SLOT_SHIFT_MAX)
}
/// Number of slots in the ring.
pub fn ring_slots(ashift: u32) -> usize {
    RING_BYTES >> ring_slot_shift(ashift)
}
/// Bytes of a slot.
pub fn ring_slot_bytes(ashift: u32) -> usize {
    1 << ring_slot_shift(ashift)
}
/// Offset in the label of slot `index` of the ring (OpenZFS: `VDEV_UBERBLOCK_OFFSET`).
pub fn ring_slot_offset(ashift: u32, index: usize) -> usize {
    RING_OFFSET + (index << ring_slot_shift(ashift))
}

record! {
    /// The trailer of self-checksummed blocks (OpenZFS: `zio_eck_t`).
    ZioEck = "zio_eck_t", 40 {
        /// [`ZioEck::MAGIC`] in the writer's byte order.
        0 => zec_magic: u64,
        8 => zec_cksum: [u64; 4],
    }
    /// The header of a gang block (OpenZFS: `zio_gbh_phys_t`): up to three pieces, any of which may be gangs themselves.
    GangHeader = "zio_gbh_phys_t", 512 {
        0 => zg_blkptr: [BlockPtr; 3],
        384 => zg_filler: [u64; 11],
        472 => zg_tail: ZioEck,
    }
    /// The boot environment block of a label (OpenZFS: `vdev_boot_envblock_t`).
    BootBlock = "vdev_boot_envblock_t", 8192 {
        /// Version of the contents; 0: raw text (GRUB's environment), 1: packed nvlist.
        0 => vbe_version: u64,
        8 => vbe_bootenv: [u8; 8144],
        8152 => vbe_zbt: ZioEck,
    }
}

impl ZioEck {
    /// "zio data bloc tail".
    pub const MAGIC: u64 = 0x0210_da7a_b10c_7a11;
    /// The byte order that the magic shows, or None without a magic.
    pub fn byte_order(magic_bytes: [u8; 8]) -> Option<ByteOrder> {
        if u64::from_le_bytes(magic_bytes) == ZioEck::MAGIC {
            Some(ByteOrder::Little)
        } else if u64::from_be_bytes(magic_bytes) == ZioEck::MAGIC {
            Some(ByteOrder::Big)
        } else {
            None
        }
    }
}
