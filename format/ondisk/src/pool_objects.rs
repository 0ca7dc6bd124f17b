//! Further records of the MOS: history, asynchronous destroy, device removal, rebuild, log space maps.
//!
//! Where a record is a ZAP value of u64s it is written with [`Record`]'s words in order; see [`to_words`] and [`from_words`].

use crate::record::{ByteOrder, Field, Record, record};
use crate::{BlockPtr, BookmarkPhys};

record! {
    /// The bonus of the history object, a ring after the record of the pool's creation (OpenZFS: `spa_history_phys_t`).
    SpaHistoryPhys = "spa_history_phys_t", 40 {
        /// End of the record of `zpool create`, which is never overwritten.
        0 => sh_pool_create_len: u64,
        /// Bytes of the object.
        8 => sh_phys_max_off: u64,
        /// First byte that is still there, counted without wrapping.
        16 => sh_bof: u64,
        /// End, counted without wrapping.
        24 => sh_eof: u64,
        32 => sh_records_lost: u64,
    }
    /// The bonus of the queue of destroyed datasets (OpenZFS: `bptree_phys_t`).
    BptreePhys = "bptree_phys_t", 40 {
        0 => bt_begin: u64,
        8 => bt_end: u64,
        16 => bt_bytes: u64,
        24 => bt_comp: u64,
        32 => bt_uncomp: u64,
    }
    /// A destroyed dataset whose blocks are still to be freed (OpenZFS: `bptree_entry_phys_t`).
    BptreeEntry = "bptree_entry_phys_t", 168 {
        0 => be_bp: BlockPtr,
        /// Txg after which blocks were born that are freed.
        128 => be_birth_txg: u64,
        136 => be_zb: BookmarkPhys,
    }
    /// The bonus of a removed vdev's mapping (OpenZFS: `vdev_indirect_mapping_phys_t`); old ones end before `vimp_counts_object`.
    IndirectMappingPhys = "vdev_indirect_mapping_phys_t", 32 {
        0 => vimp_max_offset: u64,
        8 => vimp_bytes_mapped: u64,
        16 => vimp_num_entries: u64,
        24 => vimp_counts_object: u64,
    }
    /// New places of a range of a removed vdev (OpenZFS: `vdev_indirect_mapping_entry_phys_t`).
    IndirectMappingEntry = "vdev_indirect_mapping_entry_phys_t", 24 {
        /// Source in sectors; bit 63 is a mark.
        0 => vimep_src: u64,
        8 => vimep_dst: [u64; 2],
    }
    /// Bonus of the births of a removed vdev's mapping (OpenZFS: `vdev_indirect_birth_phys_t`).
    IndirectBirthPhys = "vdev_indirect_birth_phys_t", 8 {
        0 => vib_count: u64,
    }
    /// Everything up to `vibe_offset` was copied in this txg (OpenZFS: `vdev_indirect_birth_entry_phys_t`).
    IndirectBirthEntry = "vdev_indirect_birth_entry_phys_t", 16 {
        0 => vibe_offset: u64,
        8 => vibe_phys_birth_txg: u64,
    }
    /// State of the last removal, a ZAP value of u64s (OpenZFS: `spa_removing_phys_t`).
    RemovingPhys = "spa_removing_phys_t", 56 {
        0 => sr_state: u64,
        8 => sr_removing_vdev: u64,
        16 => sr_prev_indirect_vdev: u64,
        24 => sr_start_time: u64,
        32 => sr_end_time: u64,
        40 => sr_to_copy: u64,
        48 => sr_copied: u64,
    }
    /// State of condensing a mapping, a ZAP value of u64s (OpenZFS: `spa_condensing_indirect_phys_t`).
    CondensingPhys = "spa_condensing_indirect_phys_t", 24 {
        0 => scip_vdev: u64,
        8 => scip_prev_obsolete_sm_object: u64,
        16 => scip_next_mapping_object: u64,
    }
    /// State of a sequential rebuild, a ZAP value of u64s (OpenZFS: `vdev_rebuild_phys_t`).
    RebuildPhys = "vdev_rebuild_phys_t", 96 {
        0 => vrp_rebuild_state: u64,
        8 => vrp_last_offset: u64,
        16 => vrp_min_txg: u64,
        24 => vrp_max_txg: u64,
        32 => vrp_start_time: u64,
        40 => vrp_end_time: u64,
        48 => vrp_scan_time_ms: u64,
        56 => vrp_bytes_scanned: u64,
        64 => vrp_bytes_issued: u64,
        72 => vrp_bytes_rebuilt: u64,
        80 => vrp_bytes_est: u64,
        88 => vrp_errors: u64,
    }
    /// Txg from which on a metaslab's changes are only in the logs (OpenZFS: `metaslab_unflushed_phys_t`).
    UnflushedPhys = "metaslab_unflushed_phys_t", 8 {
        0 => msp_unflushed_txg: u64,
    }
}

/// A record of u64s as the integers of a ZAP value.
pub fn to_words<T: Record>(record: &T) -> Vec<u64> {
    let mut raw = vec![0; T::BYTES];
    record.put(&mut raw, ByteOrder::Little);
    raw.chunks_exact(8).map(|word| Field::get(word, ByteOrder::Little)).collect()
}
/// A record of u64s from the integers of a ZAP value; what older software did not write is 0, what newer wrote is ignored.
pub fn from_words<T: Record>(words: &[u64]) -> T {
    let mut raw = vec![0; T::BYTES];
    for (bytes, word) in raw.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    T::get(&raw, ByteOrder::Little)
}
