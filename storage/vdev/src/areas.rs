//! Areas of a device besides its allocatable space: labels at both ends, and the boot area.

/// Size of one of the four labels, in bytes (OpenZFS: `sizeof (vdev_label_t)`).
pub const LABEL_BYTES: u64 = 256 << 10;
/// Bytes before the allocatable space: two labels and the boot area (OpenZFS: `VDEV_LABEL_START_SIZE`).
pub const LABEL_START_BYTES: u64 = 4 << 20;
/// Bytes of the boot area, which lies between the labels at the start and the allocatable space (OpenZFS: `VDEV_BOOT_SIZE`).
pub const BOOT_BYTES: u64 = LABEL_START_BYTES - 2 * LABEL_BYTES;
/// Bytes behind the allocatable space: two labels (OpenZFS: `VDEV_LABEL_END_SIZE`).
pub const LABEL_END_BYTES: u64 = 2 * LABEL_BYTES;
