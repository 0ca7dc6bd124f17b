//! Which sectors new vdevs get: what files are said to have, and how far the physical sectors of a device are followed.

use crate::DeviceFacts;
use std::sync::atomic::{AtomicU32, Ordering};

/// Parameters of sectors, as shifts (OpenZFS: `vdev_file_logical_ashift` …). They are of the process, as devices are opened before there
/// is a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AshiftTunables {
    /// Smallest addressable unit that files have; default 9.
    pub file_logical: u32,
    /// Unit that files are said to write without reading; default 9.
    pub file_physical: u32,
    /// Physical sectors above this are not followed; default 14.
    pub max_auto: u32,
    /// New vdevs have no smaller ones unless told so; default 9.
    pub min_auto: u32,
}

impl Default for AshiftTunables {
    fn default() -> Self {
        AshiftTunables { file_logical: 9, file_physical: 9, max_auto: 14, min_auto: 9 }
    }
}

static FILE_LOGICAL: AtomicU32 = AtomicU32::new(9);
static FILE_PHYSICAL: AtomicU32 = AtomicU32::new(9);
static MAX_AUTO: AtomicU32 = AtomicU32::new(14);
static MIN_AUTO: AtomicU32 = AtomicU32::new(9);

/// Sets the parameters; they count for devices that are opened, and vdevs that are made, from now on.
pub fn set_ashift_tunables(tunables: AshiftTunables) {
    FILE_LOGICAL.store(tunables.file_logical, Ordering::Relaxed);
    FILE_PHYSICAL.store(tunables.file_physical, Ordering::Relaxed);
    MAX_AUTO.store(tunables.max_auto, Ordering::Relaxed);
    MIN_AUTO.store(tunables.min_auto, Ordering::Relaxed);
}

pub(crate) fn ashift_tunables() -> AshiftTunables {
    AshiftTunables {
        file_logical: FILE_LOGICAL.load(Ordering::Relaxed),
        file_physical: FILE_PHYSICAL.load(Ordering::Relaxed),
        max_auto: MAX_AUTO.load(Ordering::Relaxed),
        min_auto: MIN_AUTO.load(Ordering::Relaxed),
    }
}

fn shift(bytes: u32) -> u32 {
    bytes.max(512).next_power_of_two().trailing_zeros()
}

impl AshiftTunables {
    /// The sectors that a new vdev on a device should have (OpenZFS: `vdev_ashift_optimize`).
    pub(crate) fn of(&self, facts: &DeviceFacts) -> u32 {
        let (logical, physical) = (shift(facts.logical_sector_bytes), shift(facts.physical_sector_bytes));
        let followed = if physical <= self.max_auto { physical } else { logical };
        followed.max(logical).max(self.min_auto)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a disk that lies about enormous sectors wastes its room, or one of 4 KiB sectors reads before each write.
    #[test]
    fn physical_sectors_are_followed_as_far_as_allowed() {
        let of = |logical: u32, physical: u32, tunables: &AshiftTunables| {
            let facts = DeviceFacts { logical_sector_bytes: logical, physical_sector_bytes: physical, ..DeviceFacts::solid("d", "test") };
            tunables.of(&facts)
        };
        let usual = AshiftTunables::default();
        assert_eq!(of(512, 512, &usual), 9);
        assert_eq!(of(512, 4096, &usual), 12);
        assert_eq!(of(512, 16384, &usual), 14);
        assert_eq!(of(512, 32768, &usual), 9, "above the largest that is followed");
        assert_eq!(of(4096, 65536, &usual), 12);
        assert_eq!(of(512, 512, &AshiftTunables { min_auto: 12, ..usual }), 12);
        assert_eq!(of(512, 65536, &AshiftTunables { max_auto: 16, ..usual }), 16);
    }
}
