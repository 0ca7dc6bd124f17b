//! Sizes of devices: the label areas, the allocatable space of a leaf and the metaslab size chosen for a new top-level vdev.

use crate::TopKind;

/// Smallest log2 of the sector size (OpenZFS: `ASHIFT_MIN`).
pub const ASHIFT_MIN: u32 = 9;
/// Largest log2 of the sector size (OpenZFS: `ASHIFT_MAX`).
pub const ASHIFT_MAX: u32 = 16;
/// Size of one of the four labels, in bytes (OpenZFS: `sizeof (vdev_label_t)`).
pub const LABEL_BYTES: u64 = 256 << 10;
/// Bytes before the allocatable space: two labels and the boot area (OpenZFS: `VDEV_LABEL_START_SIZE`).
pub const LABEL_START_BYTES: u64 = 4 << 20;
/// Bytes behind the allocatable space: two labels (OpenZFS: `VDEV_LABEL_END_SIZE`).
pub const LABEL_END_BYTES: u64 = 2 * LABEL_BYTES;
/// Smallest usable device, in bytes (OpenZFS: `SPA_MINDEVSIZE`).
pub const DEVICE_BYTES_MIN: u64 = 64 << 20;

const MS_SHIFT_DEFAULT: u32 = 29;
const MS_SHIFT_MAX: u32 = 34;
const MS_COUNT_DEFAULT: u64 = 200;
const MS_COUNT_MIN: u64 = 16;
const MS_COUNT_LIMIT: u64 = 1 << 17;
const BLOCK_SHIFT_MAX: u32 = 24;

/// Device offset of label `index` (0–3) on a device of `device_bytes` (OpenZFS: `vdev_label_offset`).
pub fn label_offset(device_bytes: u64, index: usize) -> u64 {
    let usable = device_bytes / LABEL_BYTES * LABEL_BYTES;
    let index = index as u64;
    if index < 2 { index * LABEL_BYTES } else { usable - (4 - index) * LABEL_BYTES }
}

/// Allocatable bytes of a device of `device_bytes`, or None when it is too small (OpenZFS: `vdev_open`).
pub fn leaf_asize(device_bytes: u64) -> Option<u64> {
    let usable = device_bytes / LABEL_BYTES * LABEL_BYTES;
    (usable >= DEVICE_BYTES_MIN).then(|| usable - LABEL_START_BYTES - LABEL_END_BYTES)
}

fn highbit(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

/// log2 of the metaslab size of a new top-level vdev of `asize` bytes (OpenZFS: `vdev_metaslab_set_size`). A metaslab of dRAID holds a
/// whole slice where there is room for enough of them: then each of them lies on all children alike.
pub fn metaslab_shift(kind: TopKind, asize: u64) -> u32 {
    let shift = usual_shift(asize);
    let TopKind::Draid(config) = kind else { return shift };
    let slice = config.slice_bytes().next_power_of_two().trailing_zeros();
    if (shift..=MS_SHIFT_MAX).contains(&slice) && asize >> slice >= MS_COUNT_MIN { slice } else { shift }
}

fn usual_shift(asize: u64) -> u32 {
    let count = asize >> MS_SHIFT_DEFAULT;
    let shift = if count < MS_COUNT_MIN {
        highbit(asize / MS_COUNT_MIN)
    } else if count > MS_COUNT_DEFAULT {
        highbit(asize / MS_COUNT_DEFAULT)
    } else {
        MS_SHIFT_DEFAULT
    };
    if shift < BLOCK_SHIFT_MAX {
        BLOCK_SHIFT_MAX
    } else if shift > MS_SHIFT_MAX {
        if asize >> MS_SHIFT_MAX > MS_COUNT_LIMIT { highbit(asize / MS_COUNT_LIMIT) } else { MS_SHIFT_MAX }
    } else {
        shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DraidConfig;

    /// A label looked for at another place than OpenZFS's is a pool that neither side can import.
    #[test]
    fn labels_lie_at_both_ends() {
        let size = (64 << 20) + 1000;
        let offsets: Vec<u64> = (0..4).map(|index| label_offset(size, index)).collect();
        assert_eq!(offsets, [0, 262_144, (64 << 20) - 524_288, (64 << 20) - 262_144]);
        assert_eq!(leaf_asize(size), Some((64 << 20) - (4 << 20) - 524_288));
        assert_eq!(leaf_asize((64 << 20) - 1), None);
    }

    /// Metaslabs of another size than OpenZFS's rules give would break its assertions on small vdevs.
    #[test]
    fn metaslab_sizes_follow_the_rules() {
        assert_eq!(usual_shift(60 << 20), 24);
        assert_eq!(usual_shift(1 << 30), 27);
        assert_eq!(usual_shift(9 << 30), 29);
        assert_eq!(usual_shift(500 << 30), 32);
        assert_eq!(usual_shift(10 << 40), 34);
        assert_eq!(usual_shift(4 << 50), 36);
        assert_eq!(metaslab_shift(TopKind::Raidz(2), 9 << 30), 29);
        let draid = TopKind::Draid(DraidConfig::new(2, 8, 0, 12).expect("a valid shape"));
        assert_eq!([6u64, 15, 16, 500].map(|gib| metaslab_shift(draid, gib << 30)), [29, 29, 30, 32], "a slice is 960 MiB");
    }
}
