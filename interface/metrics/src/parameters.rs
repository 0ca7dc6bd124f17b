//! Module parameters under OpenZFS's names: one table with ranges, when a change takes effect, and the values.
//!
//! A parameter stands in the table only when the engine honours it. The owner of the engine reads values with
//! [`Parameters::get`] when it opens pools, and hands changes on to what runs.

use crate::parameter::{
    ACTIVE, ANY, BIT, FASTEST, Parameter, SHIFT, U32, When, choice, has_fletcher4, has_raidz, implementation, new, signed,
};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parameters of the daemon, every one, sorted by name.
pub const PARAMETERS: [Parameter; 181] = [
    new("l2arc_feed_again", 1, BIT, When::Now, "0: cache devices are written once in l2arc_feed_secs, however much there is"),
    new("l2arc_feed_min_ms", 200, ACTIVE, When::Now, "milliseconds between writes to cache devices at least, while much is found"),
    new("l2arc_feed_secs", 1, ACTIVE, When::Now, "seconds between writes to cache devices"),
    new("l2arc_headroom", 8, ANY, When::Now, "times as many bytes of each list of the cache as are written that are looked at; 0: all"),
    new(
        "l2arc_headroom_boost",
        200,
        ANY,
        When::Now,
        "percent of that which are looked at, as blocks are compressed; less than 100 counts as that",
    ),
    new("l2arc_meta_percent", 33, (0, 100), When::Now, "percent of the cache that what is known of blocks on cache devices may take"),
    new(
        "l2arc_mfuonly",
        0,
        (0, 2),
        When::Now,
        "1: only what is frequently used goes to cache devices; 2: only such data, and all metadata",
    ),
    new("l2arc_noprefetch", 1, BIT, When::Now, "0: what was read ahead goes to cache devices before anybody used it"),
    new("l2arc_norw", 0, BIT, When::Now, "1: a cache device that is being written is not read"),
    new("l2arc_rebuild_blocks_min_l2size", 1 << 30, ANY, When::Now, "bytes of a cache device from which on it says itself what it holds"),
    new("l2arc_rebuild_enabled", 1, BIT, When::Now, "0: cache devices that are taken into use are not asked what they hold"),
    new(
        "l2arc_trim_ahead",
        0,
        (0, 10_000),
        When::Now,
        "percent of what is written to a cache device that it is told, ahead of that, not to need any more, and, before its first use, all; 0: none",
    ),
    new(
        "l2arc_write_boost",
        32 << 20,
        ANY,
        When::Now,
        "bytes that l2arc_write_max is larger by until a cache device is full for the first time",
    ),
    new("l2arc_write_max", 32 << 20, ANY, When::Now, "bytes written to a cache device at a time, half of the device at most"),
    new("metaslab_debug_load", 0, BIT, When::Now, "1: read-only imports from now on read all space maps, too, not their headers alone"),
    new(
        "metaslab_force_ganging",
        (16 << 20) + 1,
        ANY,
        When::Now,
        "blocks of so many bytes and more are sometimes written as gangs, for tests",
    ),
    new("metaslab_force_ganging_pct", 3, (0, 100), When::Now, "how often, in percent"),
    new(
        "raidz_expand_max_copy_bytes",
        160 << 20,
        (1, u64::MAX),
        When::Now,
        "bytes that an expansion of RAID-Z moves at once, 16 MiB at most",
    ),
    new(
        "raidz_expand_max_reflow_bytes",
        0,
        ANY,
        When::Now,
        "for tests: moved bytes after which an expansion of RAID-Z stands still; 0: it does not",
    ),
    new(
        "send_holes_without_birth_time",
        1,
        BIT,
        When::Now,
        "0: streams since a snapshot do not name numbers that never were objects as free, where the pool has had births of holes since",
    ),
    new("spa_asize_inflation", 24, (1, 1024), When::Now, "transactions of 64 MiB by which what is received may exceed its refquota"),
    new(
        "spa_load_verify_data",
        1,
        BIT,
        When::Now,
        "0: imports that may go back (zpool import -F, -T) from now on read no contents of files and volumes, of which they count what is damaged: those of the last three txgs, with -T and of older states all",
    ),
    new(
        "spa_load_verify_metadata",
        1,
        BIT,
        When::Now,
        "0: imports that may go back from now on take the first state that opens, without reading its metadata and contents and without looking whether its space is right",
    ),
    new(
        "spa_load_verify_shift",
        4,
        (0, 63),
        When::Now,
        "share of the cache that contents on their way may take while they are read for that, as a shift",
    ),
    new("spa_slop_shift", 5, ANY, When::Fixed, "share of a pool that is kept back, as a shift"),
    new("vdev_file_logical_ashift", 9, SHIFT, When::Now, "sectors of files that are opened from now on, as a shift"),
    new("vdev_file_physical_ashift", 9, SHIFT, When::Now, "sectors that new vdevs on files should have, as a shift"),
    new(
        "vdev_raidz_outlier_check_interval_ms",
        1000,
        (1, u32::MAX as u64),
        When::Now,
        "milliseconds between looks for devices that are slow or err among their siblings; two looks a second at most",
    ),
    new(
        "vdev_read_sit_out_secs",
        600,
        ANY,
        When::Now,
        "seconds for which a slow device of a vdev with autosit=on sits out: reads pass over it; 0: none does, not even those with sit_out=on",
    ),
    new("vdev_removal_max_span", 32 << 10, ANY, When::Now, "free bytes that a removal copies along between two segments"),
    new("vdev_validate_skip", 0, BIT, When::Now, "1: imports tell devices by their paths that fit no vdev by their labels, unverified"),
    new(
        "zap_micro_max_size",
        128 << 10,
        (512, u32::MAX as u64),
        When::Now,
        "bytes up to which the table of a directory is one block; above 128 KiB, to 1 MiB, with the feature large_microzap only",
    ),
    new("zfetch_array_rd_sz", 1 << 20, ANY, When::Fixed, "reads longer than this are not prefetched, bytes"),
    new("zfetch_hole_shift", 2, U32, When::Now, "part of a stream that may be gaps, as a shift; 16 allows none"),
    new("zfetch_max_distance", 64 << 20, U32, When::Now, "most bytes read ahead per stream"),
    new("zfetch_max_reorder", 16 << 20, U32, When::Now, "bytes from a stream's position at which a read still belongs to it"),
    new("zfetch_max_streams", 8, U32, When::Now, "streams per file"),
    new("zfetch_min_distance", 4 << 20, U32, When::Now, "least bytes read ahead per stream"),
    new("zfs_admin_snapshot", 0, BIT, When::Now, "1: mkdir, rmdir and mv in .zfs/snapshot make, destroy and rename snapshots"),
    new(
        "zfs_allow_redacted_dataset_mount",
        0,
        BIT,
        When::Now,
        "1: volumes that lack what was redacted are there, and such file systems are mounted with zfs mount -f",
    ),
    new(
        "zfs_arc_max",
        0,
        ANY,
        When::Now,
        "bytes that the cache of each pool may hold; 0 is 256 MiB, or a quarter of the memory if that is less",
    ),
    new("zfs_arc_meta_balance", 500, (1, u32::MAX as u64), When::Now, "weight in percent of a miss of metadata against one of data"),
    new(
        "zfs_arc_min",
        0,
        ANY,
        When::Now,
        "bytes that each cache keeps when memory is short; 0 is the larger of 32 MiB and zfs_arc_max / 32",
    ),
    new("zfs_arc_shrink_shift", 7, (0, 63), When::Now, "share of the caches that goes at a time when memory is short, as a shift"),
    new(
        "zfs_arc_sys_free",
        0,
        ANY,
        When::Now,
        "bytes of memory that are kept free: with less, caches shrink; 0 is 1/32 of the memory, 16 MiB to 1 GiB",
    ),
    new("zfs_async_block_max_blocks", 100_000, (1, u64::MAX), When::Now, "blocks of destroyed datasets that are freed in a txg"),
    new("zfs_bclone_enabled", 1, BIT, When::Now, "0: files that are copied from now on share no blocks"),
    new(
        "zfs_bclone_wait_dirty",
        0,
        BIT,
        When::Now,
        "1: who copies a file with changes that are not synced waits for them, to share its blocks",
    ),
    new("zfs_checksum_events_per_second", 20, U32, When::Now, "checksum events per device and second"),
    new(
        "zfs_commit_timeout_pct",
        0,
        U32,
        When::Now,
        "percent of the usual time of a write to an intent log for which the next one waits for others to join it, 100 ms at most; OpenZFS has 10",
    ),
    new("zfs_compressed_arc_enabled", 1, BIT, When::Now, "0 keeps blocks that are read from now on decompressed only"),
    new("zfs_condense_indirect_obsolete_pct", 25, (0, 100), When::Now, "percent of a removed vdev's mapping to be unneeded to rewrite it"),
    new("zfs_condense_indirect_vdevs_enable", 1, BIT, When::Now, "0 leaves mappings of removed vdevs as they are"),
    new("zfs_condense_max_obsolete_bytes", 1 << 30, ANY, When::Now, "bytes of the map of what is not needed that have a mapping rewritten"),
    new("zfs_condense_min_mapping_bytes", 128 << 10, ANY, When::Now, "bytes up to which the mapping of a removed vdev is left as it is"),
    new("zfs_dbgmsg_enable", 1, BIT, When::Now, "keep messages for zfs/dbgmsg"),
    new("zfs_dbgmsg_maxsize", 4 << 20, U32, When::Now, "bytes of messages that zfs/dbgmsg keeps"),
    new("zfs_ddt_data_is_special", 1, BIT, When::Now, "tables of deduplication lie on vdevs for metadata where none are for them"),
    new("zfs_deadman_checktime_ms", 60000, (1, u32::MAX as u64), When::Now, "milliseconds between looks for I/Os that hang"),
    new("zfs_deadman_enabled", 1, BIT, When::Now, "report I/Os that hang"),
    new("zfs_deadman_events_per_second", 1, U32, When::Now, "deadman events per device and second"),
    choice("zfs_deadman_failmode", &["wait", "continue"], "what becomes of I/Os that hang: told only, or given up with an error too"),
    new(
        "zfs_deadman_synctime_ms",
        600_000,
        ANY,
        When::Now,
        "while a txg is being synced for longer, I/Os that take longer hang, milliseconds",
    ),
    new(
        "zfs_deadman_ziotime_ms",
        300000,
        ANY,
        When::Now,
        "an I/O that takes longer hangs, milliseconds (told to 4.3 seconds, up to nine minutes)",
    ),
    new("zfs_delay_min_dirty_percent", 60, (0, 100), When::Now, "percent of zfs_dirty_data_max at which writers are delayed"),
    new("zfs_delay_scale", 500_000, ANY, When::Now, "steepness of the delay, nanoseconds"),
    new("zfs_dio_enabled", 1, BIT, When::Now, "direct I/O: 0 treats every dataset as direct=disabled"),
    new("zfs_dio_strict", 1, BIT, When::Now, "misaligned O_DIRECT requests: 1 EINVAL, 0 through the cache"),
    new("zfs_dio_write_verify_events_per_second", 20, U32, When::Now, "dio_verify events per vdev and second"),
    new(
        "zfs_dirty_data_max",
        1 << 30,
        (64 << 20, u64::MAX),
        When::Now,
        "bytes of dirty data at which writers stop; at first a tenth of the memory, at most 1 GiB",
    ),
    new("zfs_dirty_data_sync_percent", 20, (0, 100), When::Now, "percent of zfs_dirty_data_max at which a sync starts early"),
    new(
        "zfs_disable_ivset_guid_check",
        0,
        BIT,
        When::Now,
        "1 receives raw streams whatever sets of IVs they go on from, for copies of old snapshots",
    ),
    new("zfs_dmu_offset_next_sync", 1, BIT, When::Now, "0: files that have changes that are not synced show no holes"),
    new("zfs_embedded_slog_min_ms", 64, U32, When::Now, "most metaslabs of a vdev that sets none aside for intent logs, when it is opened"),
    new("zfs_flags", 0, (0, 0), When::Fixed, "debugging flags"),
    implementation(
        "zfs_fletcher_4_impl",
        &[FASTEST, "scalar", "sse2", "ssse3", "avx2", "avx512bw"],
        has_fletcher4,
        "which instructions compute fletcher4 checksums; the file lists what this machine has, the chosen one in brackets",
    ),
    new("zfs_initialize_chunk_size", 1 << 20, (1, 16 << 20), When::Now, "bytes of a write of initializing, a sector at least"),
    new("zfs_initialize_value", 0xdead_beef_dead_beee, ANY, When::Now, "what initializing fills free space with"),
    new("zfs_keep_log_spacemaps_at_export", 0, BIT, When::Now, "1 leaves log space maps at an export, for tests"),
    new("zfs_livelist_max_entries", 500_000, ANY, When::Now, "blocks born that a part of a clone's livelist is left at for the next"),
    signed(
        "zfs_livelist_min_percent_shared",
        75,
        (-1, 100),
        When::Now,
        "a clone that shares no more percent of what it refers to with its origin has no livelist any more; -1: all keep theirs",
    ),
    new("zfs_max_dataset_nesting", 50, U32, When::Now, "how deep datasets that are made or renamed may be nested"),
    new("zfs_max_log_walking", 5, ANY, When::Now, "newest log space maps by which the length of the next one is estimated"),
    new("zfs_max_missing_tvds", 0, U32, When::Now, "top-level vdevs that may be missing at a read-only import; what was on them is lost"),
    new("zfs_min_metaslabs_to_flush", 1, ANY, When::Now, "metaslabs that a txg flushes at least, with log space maps"),
    new(
        "zfs_multihost_fail_intervals",
        10,
        (0, u16::MAX as u64),
        When::Now,
        "intervals without a heartbeat after which a pool with multihost=on is suspended; 0 never, 1 is 2",
    ),
    new("zfs_multihost_history", 0, U32, When::Now, "heartbeats that a pool's statistic multihost has"),
    new(
        "zfs_multihost_import_intervals",
        20,
        (1, u32::MAX as u64),
        When::Now,
        "intervals that an import looks for another host's heartbeats, where the pool does not say how long",
    ),
    new(
        "zfs_multihost_interval",
        1000,
        (100, u32::MAX as u64),
        When::Now,
        "milliseconds in which each device gets a heartbeat, of pools with multihost=on",
    ),
    new(
        "zfs_override_estimate_recordsize",
        0,
        U32,
        When::Now,
        "bytes of a block that estimates of zfs send assume; 0: what the dataset writes",
    ),
    new("zfs_prefetch_disable", 0, BIT, When::Now, "1 reads nothing ahead of readers"),
    new("zfs_rebuild_max_segment", 1 << 20, (4 << 10, 16 << 20), When::Now, "bytes that a sequential rebuild reads of a device at once"),
    new("zfs_rebuild_scrub_enabled", 1, BIT, When::Now, "a scrub follows a sequential rebuild"),
    new("zfs_rebuild_vdev_limit", 64 << 20, ANY, When::Now, "bytes of a sequential rebuild in flight per child of a vdev"),
    new("zfs_reconstruct_indirect_combinations_max", 4096, U32, When::Now, "copies of a block in pieces that are combined; 0: all"),
    new("zfs_removal_ignore_errors", 0, BIT, When::Now, "1: removals go on though a device fails; what none gives is lost"),
    new("zfs_removal_suspend_progress", 0, BIT, When::Now, "1 lets no removal of a vdev make progress"),
    new("zfs_remove_max_segment", 16 << 20, (512, 16 << 20), When::Now, "bytes that a removal copies to one place at most"),
    new(
        "zfs_resilver_defer_percent",
        10,
        (0, 100),
        When::Now,
        "percent from which on a resilver is not begun again for a device that comes later",
    ),
    new("zfs_resilver_disable_defer", 0, BIT, When::Now, "1 begins a resilver again for every device that comes while it runs"),
    new("zfs_resilver_min_time_ms", 0, (0, 60_000), When::Now, "milliseconds that a resilver gets between two txgs; OpenZFS has 3000"),
    new("zfs_scan_checkpoint_intval", 7200, (0, u32::MAX as u64), When::Now, "seconds after which a scan makes a place to go on from"),
    new("zfs_scan_legacy", 0, BIT, When::Now, "1 lets scans read blocks as they find them, a few at a time, and not by address"),
    new("zfs_scan_suspend_progress", 0, BIT, When::Now, "1 lets no scan and no sequential rebuild make progress"),
    new(
        "zfs_scan_vdev_limit",
        4 << 20,
        (4 << 10, u32::MAX as u64),
        When::Now,
        "bytes of a scrub or resilver that are being read per device at a time, as of four devices at least; 256 MiB of all at most",
    ),
    new("zfs_scrub_after_expand", 1, BIT, When::Now, "a scrub follows the expansion of a RAID-Z vdev"),
    new(
        "zfs_scrub_error_blocks_per_txg",
        4096,
        (1, u32::MAX as u64),
        When::Now,
        "damaged blocks that an error scrub reads again in a txg at most",
    ),
    new("zfs_scrub_min_time_ms", 750, U32, When::Now, "milliseconds of a txg after which an error scrub leaves the rest to the next one"),
    new("zfs_slow_io_events_per_second", 20, U32, When::Now, "delay events per device and second"),
    new(
        "zfs_spa_discard_memory_limit",
        16 << 20,
        (1, u64::MAX),
        When::Now,
        "bytes of a checkpoint's space maps that a txg looks at while it is discarded",
    ),
    new(
        "zfs_special_class_metadata_reserve_pct",
        25,
        (0, 100),
        When::Now,
        "percent of the vdevs for metadata that small blocks of files leave to it",
    ),
    new("zfs_sync_pass_deferred_free", 2, ANY, When::Fixed, "from this pass of a sync on frees are deferred"),
    new("zfs_sync_pass_dont_compress", 8, ANY, When::Fixed, "from this pass of a sync on blocks are not compressed"),
    new("zfs_sync_pass_rewrite", 2, ANY, When::Fixed, "from this pass of a sync on blocks are rewritten in place"),
    new("zfs_trim_extent_bytes_max", 128 << 20, (1 << 20, u32::MAX as u64), When::Now, "bytes of a trim at most"),
    new("zfs_trim_extent_bytes_min", 32 << 10, U32, When::Now, "less free space in one piece is not trimmed, bytes"),
    new("zfs_trim_metaslab_skip", 0, BIT, When::Now, "1: trims that begin from now on leave out metaslabs that were never used"),
    new("zfs_trim_txg_batch", 32, (1, u32::MAX as u64), When::Now, "an automatic trim comes to each metaslab once in so many txgs"),
    new("zfs_txg_history", 100, U32, When::Now, "txgs that a pool's statistic txgs has"),
    new("zfs_txg_timeout", 5, (1, u32::MAX as u64), When::Now, "seconds after which a transaction group is synced"),
    new("zfs_unflushed_log_block_max", 1 << 17, ANY, When::Now, "blocks that all log space maps of a pool may have together"),
    new("zfs_unflushed_log_block_min", 1000, ANY, When::Now, "blocks that they may have however few metaslabs have changes in them"),
    new("zfs_unflushed_log_block_pct", 400, U32, When::Now, "blocks that they may have, in percent of the metaslabs with changes in them"),
    new("zfs_unflushed_log_txg_max", 1000, ANY, When::Now, "log space maps that a pool may have"),
    new(
        "zfs_unflushed_max_mem_amt",
        1 << 30,
        ANY,
        When::Now,
        "bytes of memory that changes may take which are in log space maps only; at most 1/16 of zfs_arc_max",
    ),
    new(
        "zfs_unlink_suspend_progress",
        0,
        BIT,
        When::Now,
        "1 keeps files without names in the unlinked set; they are deleted at the next mount with 0",
    ),
    new("zfs_user_indirect_is_special", 1, BIT, When::Now, "indirect blocks of files and volumes lie on vdevs for metadata"),
    new("zfs_vdev_aggregation_limit", 1 << 20, ANY, When::Now, "bytes of a merged I/O on rotational devices"),
    new("zfs_vdev_aggregation_limit_non_rotating", 128 << 10, ANY, When::Now, "bytes of a merged I/O on other devices"),
    new("zfs_vdev_async_read_max_active", 3, ACTIVE, When::Now, "reads ahead that a device has at a time"),
    new("zfs_vdev_async_read_min_active", 1, ACTIVE, When::Now, "reads ahead that a device gets before other classes"),
    new(
        "zfs_vdev_async_write_active_max_dirty_percent",
        60,
        (0, 100),
        When::Now,
        "percent of dirty data from which on async writes have their maximum",
    ),
    new(
        "zfs_vdev_async_write_active_min_dirty_percent",
        30,
        (0, 100),
        When::Now,
        "percent of dirty data up to which async writes have their minimum",
    ),
    new("zfs_vdev_async_write_max_active", 10, ACTIVE, When::Now, "writes of transaction groups that a device has at a time"),
    new("zfs_vdev_async_write_min_active", 2, ACTIVE, When::Now, "writes of transaction groups that a device gets before other classes"),
    new("zfs_vdev_default_ms_count", 200, ACTIVE, When::Now, "metaslabs that new vdevs usually have"),
    new("zfs_vdev_default_ms_shift", 29, (24, 34), When::Now, "usual size of metaslabs of new vdevs, as a shift"),
    new("zfs_vdev_direct_write_verify", 1, BIT, When::Now, "compare the buffer of a direct write with its checksum afterwards"),
    new(
        "zfs_vdev_initializing_max_active",
        1,
        ACTIVE,
        When::Now,
        "writes of initialize that a device has at a time (alone, where nothing rotates: × 3)",
    ),
    new("zfs_vdev_initializing_min_active", 1, ACTIVE, When::Now, "writes of initialize that a device gets before other classes"),
    new("zfs_vdev_max_active", 1000, ACTIVE, When::Now, "queued I/Os that a device has at a time, of all classes"),
    new("zfs_vdev_max_auto_ashift", 14, SHIFT, When::Now, "physical sectors above this are not followed by new vdevs, as a shift"),
    new("zfs_vdev_min_auto_ashift", 9, SHIFT, When::Now, "least sectors of new vdevs that nobody chose, as a shift"),
    new("zfs_vdev_min_ms_count", 16, ACTIVE, When::Now, "least metaslabs of new vdevs"),
    new("zfs_vdev_ms_count_limit", 1 << 17, ACTIVE, When::Now, "most metaslabs of new vdevs"),
    new("zfs_vdev_nia_credit", 5, U32, When::Now, "background I/Os between two others"),
    new("zfs_vdev_nia_delay", 5, U32, When::Now, "background I/Os without others beside them after which a device counts as idle"),
    implementation(
        "zfs_vdev_raidz_impl",
        &[FASTEST, "scalar", "avx2", "avx512bw", "avx512-gfni"],
        has_raidz,
        "which instructions compute RAID-Z parity; the file lists what this machine has, the chosen one in brackets",
    ),
    new("zfs_vdev_read_gap_limit", 32 << 10, ANY, When::Now, "bytes between two reads that may become one"),
    new(
        "zfs_vdev_rebuild_max_active",
        3,
        ACTIVE,
        When::Now,
        "I/Os of sequential rebuild that a device has at a time (alone, where nothing rotates: × 3)",
    ),
    new("zfs_vdev_rebuild_min_active", 1, ACTIVE, When::Now, "I/Os of sequential rebuild that a device gets before other classes"),
    new(
        "zfs_vdev_removal_max_active",
        2,
        ACTIVE,
        When::Now,
        "I/Os of device removal that a device has at a time (alone, where nothing rotates: × 3)",
    ),
    new("zfs_vdev_removal_min_active", 1, ACTIVE, When::Now, "I/Os of device removal that a device gets before other classes"),
    new(
        "zfs_vdev_scrub_max_active",
        3,
        ACTIVE,
        When::Now,
        "I/Os of scrub and resilver that a device has at a time (alone, where nothing rotates: × 3)",
    ),
    new("zfs_vdev_scrub_min_active", 1, ACTIVE, When::Now, "I/Os of scrub and resilver that a device gets before other classes"),
    new("zfs_vdev_sync_read_max_active", 10, ACTIVE, When::Now, "reads that somebody waits for that a device has at a time"),
    new("zfs_vdev_sync_read_min_active", 10, ACTIVE, When::Now, "reads that somebody waits for that a device gets before other classes"),
    new("zfs_vdev_sync_write_max_active", 10, ACTIVE, When::Now, "writes that somebody waits for that a device has at a time"),
    new("zfs_vdev_sync_write_min_active", 10, ACTIVE, When::Now, "writes that somebody waits for that a device gets before other classes"),
    new("zfs_vdev_trim_max_active", 2, ACTIVE, When::Now, "trims that a device has at a time"),
    new("zfs_vdev_trim_min_active", 1, ACTIVE, When::Now, "trims that a device gets before other classes"),
    new("zfs_vdev_write_gap_limit", 4 << 10, ANY, When::Now, "bytes of padding between two writes that may become one"),
    new("zfs_xattr_compat", 0, BIT, When::Now, "1: extended attributes of users are stored without \"user.\", as illumos and FreeBSD do"),
    new("zfs_zevent_len_max", 512, U32, When::Now, "events kept"),
    new("zfs_zevent_retain_expire_secs", 900, U32, When::Now, "seconds for which the same error of a device is not told again"),
    new("zfs_zevent_retain_max", 2000, U32, When::Now, "errors of a device remembered so that they are not told again; 0: none"),
    new(
        "zfs_zil_saxattr",
        1,
        BIT,
        When::Now,
        "0: extended attributes in the system attributes become durable with their txg, not by the intent log",
    ),
    new("zio_slow_io_ms", 30000, U32, When::Now, "an I/O that takes longer counts as slow, milliseconds; 0 counts none"),
    new(
        "zirconia_direct_read_window",
        8 << 20,
        (0, 1 << 30),
        When::Now,
        "bytes of records that the direct reads of a file may keep for the parts that follow, 16 times as many of all files together; 0 keeps none",
    ),
    new(
        "zirconia_direct_write_coalesce",
        1,
        BIT,
        When::Now,
        "1: a record that direct writes shorter than it filled goes to the devices as one, past the sync; 0: with its txg",
    ),
    new(
        "zirconia_fuse_uring",
        0,
        (0, 2),
        When::Now,
        "requests of mounts that come from now on: 0 through read(2), 1 through io_uring where the kernel offers it, 2 likewise, and switch it on in the kernel's module",
    ),
    new(
        "zirconia_keep_mounts",
        0,
        BIT,
        When::Now,
        "1: an experiment that loses data: mounts of pools that are opened from now on are to go on when the daemon is killed",
    ),
    new(
        "zirconia_log_space_maps",
        0,
        BIT,
        When::Now,
        "1: pools that are made or imported from now on write log space maps, if they have the feature; new ones get it",
    ),
    new(
        "zirconia_mount_syncfs",
        0,
        BIT,
        When::Now,
        "1 mounts file systems so that syncfs(2) and sync(1) reach them and umount(2) waits; needs root and loop devices",
    ),
    new(
        "zirconia_provider_admission",
        110,
        (0, 100_000),
        When::Now,
        "operations of a provider that reach less than so many percent of the speed of all processors together are not used; 0 compares nothing; for providers that are loaded or come back from then on",
    ),
    new(
        "zirconia_provider_deadline_ms",
        10_000,
        (100, 3_600_000),
        When::Now,
        "a provider in a process of its own that takes longer to be loaded, or for an answer, is ended, milliseconds; who loads a GPU waits twelve times as long for it to be opened",
    ),
    new(
        "zirconia_scan_memory_max",
        0,
        ANY,
        When::Now,
        "bytes for blocks that a scan found and did not read yet; 0 is the larger of 64 MiB and zfs_arc_max / 4",
    ),
    new(
        "zirconia_spare_hold_ms",
        10_000,
        (0, 3_600_000),
        When::Now,
        "no spare stands in unasked for a device that 'zpool offline -f' declared faulted so recently, milliseconds",
    ),
    new("zirconia_uring_fixed_buffers", 1, BIT, When::Now, "register memory with io_uring"),
    new(
        "zirconia_vdev_ioprio",
        0,
        (0, 2),
        When::Now,
        "the kernel's disk schedulers (bfq, mq-deadline) are told 0 nothing, 1 what is background work, 2 also what somebody waits for (CAP_SYS_NICE)",
    ),
    new(
        "zirconia_vdev_scheduler",
        0,
        (0, 2),
        When::Now,
        "0 queues background work, and all on rotational devices; 1 queues all; 2 nothing that somebody waits for",
    ),
];

/// Word that a value of a parameter stands for.
pub fn chosen_word(name: &str, value: u64) -> Option<&'static str> {
    Parameters::index(name).and_then(|index| PARAMETERS[index].words.get(value as usize).copied())
}

/// Reason why a parameter was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterError {
    /// Name of no parameter.
    Unknown,
    /// Text is no number, or outside the range, or none of the words.
    Invalid,
    /// Parameter tells a constant.
    Fixed,
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParameterError::Unknown => "no such parameter",
            ParameterError::Invalid => "not a number in the parameter's range",
            ParameterError::Fixed => "the parameter cannot be changed",
        })
    }
}

impl std::error::Error for ParameterError {}

/// Values of the parameters of a process.
#[derive(Debug)]
pub struct Parameters([AtomicU64; PARAMETERS.len()]);

impl Default for Parameters {
    fn default() -> Self {
        Parameters(std::array::from_fn(|index| AtomicU64::new(PARAMETERS[index].default)))
    }
}

impl Parameters {
    fn index(name: &str) -> Option<usize> {
        PARAMETERS.binary_search_by(|parameter| parameter.name.cmp(name)).ok()
    }

    /// Value of a parameter; None when there is none of that name.
    pub fn get(&self, name: &str) -> Option<u64> {
        Parameters::index(name).map(|index| self.0[index].load(Ordering::Relaxed))
    }

    /// Text that a parameter's file shows; None when there is none of that name.
    pub fn text(&self, name: &str) -> Option<String> {
        Parameters::index(name).map(|index| PARAMETERS[index].text(self.0[index].load(Ordering::Relaxed)))
    }

    /// Names and values of the parameters that can be changed, as texts that [`Parameters::set`] takes.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, String)> {
        let can_change = |(parameter, _): &(&Parameter, u64)| parameter.when != When::Fixed;
        let text = |(parameter, value): (&Parameter, u64)| {
            let word = parameter.words.get(value as usize).map(ToString::to_string);
            (parameter.name, word.unwrap_or_else(|| parameter.number(value)))
        };
        PARAMETERS.iter().zip(self.0.iter().map(|value| value.load(Ordering::Relaxed))).filter(can_change).map(text)
    }

    /// Sets a parameter from text, as written to its file: a word, a decimal number, or a hexadecimal one with `0x`. Returns the new value; passing
    /// it on to what runs is the caller's part.
    pub fn set(&self, name: &str, text: &str) -> Result<u64, ParameterError> {
        let index = Parameters::index(name).ok_or(ParameterError::Unknown)?;
        let parameter = &PARAMETERS[index];
        if parameter.when == When::Fixed {
            return Err(ParameterError::Fixed);
        }
        let value = parameter.value(text.trim()).ok_or(ParameterError::Invalid)?;
        self.0[index].store(value, Ordering::Relaxed);
        Ok(value)
    }
}
