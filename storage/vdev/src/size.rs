//! Sizes of devices: the label areas, the allocatable space of a leaf and the metaslab size chosen for a new top-level vdev.

use crate::TopKind;
use crate::areas::{LABEL_BYTES, LABEL_END_BYTES, LABEL_START_BYTES};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Smallest log2 of the sector size (OpenZFS: `ASHIFT_MIN`).
pub const ASHIFT_MIN: u32 = 9;
/// Largest log2 of the sector size (OpenZFS: `ASHIFT_MAX`).
pub const ASHIFT_MAX: u32 = 16;
/// Smallest usable device, in bytes (OpenZFS: `SPA_MINDEVSIZE`).
pub const DEVICE_BYTES_MIN: u64 = 64 << 20;

const MS_SHIFT_MAX: u32 = 34;
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

/// Number and size of the metaslabs of new top-level vdevs. They are of the process: new vdevs are laid out before there is a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaslabTunables {
    /// Least number of metaslabs (OpenZFS: `zfs_vdev_min_ms_count`, 16).
    pub count_min: u64,
    /// Usual number of metaslabs (`zfs_vdev_default_ms_count`, 200).
    pub count_default: u64,
    /// Most metaslabs (`zfs_vdev_ms_count_limit`, 131072).
    pub count_limit: u64,
    /// Usual size, as a shift (`zfs_vdev_default_ms_shift`, 29).
    pub shift_default: u32,
    /// Most metaslabs of a vdev that sets none aside for intent logs (`zfs_embedded_slog_min_ms`, 64).
    pub count_without_logs: u64,
}

impl Default for MetaslabTunables {
    fn default() -> Self {
        MetaslabTunables { count_min: 16, count_default: 200, count_limit: 1 << 17, shift_default: 29, count_without_logs: 64 }
    }
}

static COUNT_MIN: AtomicU64 = AtomicU64::new(16);
static COUNT_DEFAULT: AtomicU64 = AtomicU64::new(200);
static COUNT_LIMIT: AtomicU64 = AtomicU64::new(1 << 17);
static SHIFT_DEFAULT: AtomicU32 = AtomicU32::new(29);
static COUNT_WITHOUT_LOGS: AtomicU64 = AtomicU64::new(64);

/// Sets how top-level vdevs that are made from now on are divided, zeros count as one; and which of those that are opened set something aside
/// for intent logs.
pub fn set_metaslab_tunables(tunables: MetaslabTunables) {
    COUNT_MIN.store(tunables.count_min.max(1), Ordering::Relaxed);
    COUNT_DEFAULT.store(tunables.count_default.max(1), Ordering::Relaxed);
    COUNT_LIMIT.store(tunables.count_limit.max(1), Ordering::Relaxed);
    SHIFT_DEFAULT.store(tunables.shift_default.min(MS_SHIFT_MAX), Ordering::Relaxed);
    COUNT_WITHOUT_LOGS.store(tunables.count_without_logs, Ordering::Relaxed);
}

fn metaslab_tunables() -> MetaslabTunables {
    MetaslabTunables {
        count_min: COUNT_MIN.load(Ordering::Relaxed),
        count_default: COUNT_DEFAULT.load(Ordering::Relaxed),
        count_limit: COUNT_LIMIT.load(Ordering::Relaxed),
        shift_default: SHIFT_DEFAULT.load(Ordering::Relaxed),
        count_without_logs: COUNT_WITHOUT_LOGS.load(Ordering::Relaxed),
    }
}

/// True when a data vdev of so many metaslabs sets one of them aside for intent logs.
pub fn has_log_metaslab(count: usize) -> bool {
    count as u64 > metaslab_tunables().count_without_logs
}

fn highbit(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

/// log2 of the metaslab size of a new top-level vdev of `asize` bytes (OpenZFS: `vdev_metaslab_set_size`). A metaslab of dRAID holds a
/// whole slice where there is room for enough of them: then each of them lies on all children alike.
pub fn metaslab_shift(kind: TopKind, asize: u64) -> u32 {
    shift_of(kind, asize, &metaslab_tunables())
}

fn shift_of(kind: TopKind, asize: u64, tunables: &MetaslabTunables) -> u32 {
    let shift = usual_shift(asize, tunables);
    let TopKind::Draid(config) = kind else { return shift };
    let slice = config.slice_bytes().next_power_of_two().trailing_zeros();
    if (shift..=MS_SHIFT_MAX).contains(&slice) && asize >> slice >= tunables.count_min { slice } else { shift }
}

fn usual_shift(asize: u64, tunables: &MetaslabTunables) -> u32 {
    let count = asize >> tunables.shift_default;
    let shift = if count < tunables.count_min {
        highbit(asize / tunables.count_min)
    } else if count > tunables.count_default {
        highbit(asize / tunables.count_default)
    } else {
        tunables.shift_default
    };
    if shift < BLOCK_SHIFT_MAX {
        BLOCK_SHIFT_MAX
    } else if shift > MS_SHIFT_MAX {
        if asize >> MS_SHIFT_MAX > tunables.count_limit { highbit(asize / tunables.count_limit) } else { MS_SHIFT_MAX }
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
        let usual = |asize| usual_shift(asize, &MetaslabTunables::default());
        assert_eq!(usual(60 << 20), 24);
        assert_eq!(usual(1 << 30), 27);
        assert_eq!(usual(9 << 30), 29);
        assert_eq!(usual(500 << 30), 32);
        assert_eq!(usual(10 << 40), 34);
        assert_eq!(usual(4 << 50), 36);
        assert_eq!(metaslab_shift(TopKind::Raidz(2), 9 << 30), 29);
        let few = MetaslabTunables { count_min: 4, ..MetaslabTunables::default() };
        assert_eq!([1u64 << 30, 4 << 30].map(|asize| usual_shift(asize, &few)), [29, 29], "fewer of them are larger");
        let draid = TopKind::Draid(DraidConfig::new(2, 8, 0, 12).expect("a valid shape"));
        assert_eq!([6u64, 15, 16, 500].map(|gib| metaslab_shift(draid, gib << 30)), [29, 29, 30, 32], "a slice is 960 MiB");
    }
}
