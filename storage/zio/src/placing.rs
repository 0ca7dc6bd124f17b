//! Where blocks are best placed, by what they are (OpenZFS: `spa_preferred_class`): metadata on vdevs that are for it, small blocks of files too where their
//! dataset asks for it and enough room is left.

use crate::WriteRequest;
use metaslab::Preference;
use ondisk::ObjectType;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Percent of the room for metadata that metadata itself may take.
const ALL: u8 = 100;

/// Parameters of where blocks are placed; they count for those that are written from then on.
#[derive(Clone, Copy, Debug)]
pub struct PlacingTunables {
    /// True for indirect blocks of files and volumes where metadata lies (OpenZFS: `zfs_user_indirect_is_special`).
    pub user_indirect: bool,
    /// True for tables of deduplication where metadata lies (OpenZFS: `zfs_ddt_data_is_special`).
    pub dedup_tables: bool,
    /// Percent of the room for metadata that small blocks of files leave to it (OpenZFS: `zfs_special_class_metadata_reserve_pct`).
    pub reserve_percent: u8,
}

impl Default for PlacingTunables {
    fn default() -> PlacingTunables {
        PlacingTunables { user_indirect: true, dedup_tables: true, reserve_percent: 25 }
    }
}

/// Parameters of a pool that runs.
pub(crate) struct Placing {
    user_indirect: AtomicBool,
    dedup_tables: AtomicBool,
    reserve_percent: AtomicU8,
}

impl Default for Placing {
    fn default() -> Placing {
        let PlacingTunables { user_indirect, dedup_tables, reserve_percent } = PlacingTunables::default();
        Placing {
            user_indirect: AtomicBool::new(user_indirect),
            dedup_tables: AtomicBool::new(dedup_tables),
            reserve_percent: AtomicU8::new(reserve_percent),
        }
    }
}

impl Placing {
    /// Goes on with these.
    pub(crate) fn set(&self, tunables: PlacingTunables) {
        self.user_indirect.store(tunables.user_indirect, Ordering::Relaxed);
        self.dedup_tables.store(tunables.dedup_tables, Ordering::Relaxed);
        self.reserve_percent.store(tunables.reserve_percent, Ordering::Relaxed);
    }

    /// Vdevs that a block prefers of which so many bytes are stored.
    pub(crate) fn preference(&self, request: &WriteRequest, stored_bytes: usize) -> Preference {
        let kind = request.object_type;
        let all_if = |is_there: &AtomicBool| if is_there.load(Ordering::Relaxed) { ALL } else { 0 };
        if kind == ObjectType::DDT_ZAP {
            return Preference { dedup: true, special_percent: all_if(&self.dedup_tables) };
        }
        let is_users = kind.is_file() || kind == ObjectType::ZVOL;
        let special_percent = match request.level {
            1.. if is_users => all_if(&self.user_indirect),
            1.. => ALL,
            0 if kind.is_metadata() => ALL,
            0 if kind.is_file() && stored_bytes <= request.small_bytes => ALL.saturating_sub(self.reserve_percent.load(Ordering::Relaxed)),
            0 => 0,
        };
        Preference { dedup: false, special_percent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abd::Abd;
    use ondisk::{Bookmark, Txg};

    /// If this fails, metadata lies on slow disks, or files fill the fast ones that were bought for it.
    #[test]
    fn metadata_and_small_blocks_of_files_lie_where_metadata_does() {
        let placing = Placing::default();
        let write = |kind, level, small_bytes| WriteRequest {
            level,
            small_bytes,
            ..WriteRequest::new(Txg(4), Abd::from_slice(&[1; 512]), Bookmark::default(), kind)
        };
        let percent = |kind, level, small_bytes, stored| placing.preference(&write(kind, level, small_bytes), stored).special_percent;
        let (file, volume) = (ObjectType::PLAIN_FILE_CONTENTS, ObjectType::ZVOL);
        for metadata in [ObjectType::DNODE, ObjectType::OBJSET, ObjectType::DIRECTORY_CONTENTS, ObjectType::SA, ObjectType::SPACE_MAP] {
            assert_eq!(percent(metadata, 0, 0, 4096), 100, "{metadata}");
        }
        assert_eq!([percent(file, 1, 0, 4096), percent(volume, 2, 0, 4096)], [100; 2], "pointers to data");
        assert_eq!([4096, 4608].map(|stored| percent(file, 0, 4096, stored)), [75, 0], "what is stored counts");
        assert_eq!([percent(file, 0, 0, 512), percent(volume, 0, 4096, 512)], [0; 2]);
        placing.set(PlacingTunables { user_indirect: false, dedup_tables: false, reserve_percent: 100 });
        assert_eq!([percent(file, 1, 4096, 512), percent(file, 0, 4096, 512), percent(ObjectType::DNODE, 1, 0, 512)], [0, 0, 100]);
    }

    /// If this fails, tables of deduplication lie where they slow down everything else, though there are vdevs for them.
    #[test]
    fn tables_of_deduplication_have_vdevs_of_their_own() {
        let placing = Placing::default();
        let table = WriteRequest::new(Txg(4), Abd::from_slice(&[1; 512]), Bookmark::default(), ObjectType::DDT_ZAP);
        assert_eq!(placing.preference(&table, 512), Preference { dedup: true, special_percent: 100 });
        placing.set(PlacingTunables { dedup_tables: false, ..PlacingTunables::default() });
        assert_eq!(placing.preference(&table, 512), Preference { dedup: true, special_percent: 0 });
    }
}
