//! The names under which pools keep things: configs, the pool's directory, ZAPs of vdevs and datasets, history.
//!
//! Constants carry the standard's names so that a search for one finds every user of it.

/// Names in configs and labels (OpenZFS: `ZPOOL_CONFIG_*`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod config {
    pub const VERSION: &str = "version";
    pub const POOL_NAME: &str = "name";
    pub const POOL_STATE: &str = "state";
    pub const POOL_TXG: &str = "txg";
    pub const POOL_GUID: &str = "pool_guid";
    pub const CREATE_TXG: &str = "create_txg";
    pub const TOP_GUID: &str = "top_guid";
    pub const VDEV_TREE: &str = "vdev_tree";
    pub const TYPE: &str = "type";
    pub const CHILDREN: &str = "children";
    pub const ID: &str = "id";
    pub const GUID: &str = "guid";
    pub const INDIRECT_OBJECT: &str = "com.delphix:indirect_object";
    pub const INDIRECT_BIRTHS: &str = "com.delphix:indirect_births";
    pub const PREV_INDIRECT_VDEV: &str = "com.delphix:prev_indirect_vdev";
    pub const PATH: &str = "path";
    pub const DEVID: &str = "devid";
    pub const SPARE_ID: &str = "spareid";
    pub const METASLAB_ARRAY: &str = "metaslab_array";
    pub const METASLAB_SHIFT: &str = "metaslab_shift";
    pub const ASHIFT: &str = "ashift";
    pub const ASIZE: &str = "asize";
    pub const DTL: &str = "DTL";
    pub const SCAN_STATS: &str = "scan_stats";
    pub const REMOVAL_STATS: &str = "removal_stats";
    pub const CHECKPOINT_STATS: &str = "checkpoint_stats";
    pub const RAIDZ_EXPAND_STATS: &str = "raidz_expand_stats";
    pub const VDEV_STATS: &str = "vdev_stats";
    pub const INDIRECT_SIZE: &str = "indirect_size";
    pub const VDEV_STATS_EX: &str = "vdev_stats_ex";
    pub const VDEV_SLOW_IOS: &str = "vdev_slow_ios";
    pub const VDEV_DIO_VERIFY_ERRORS: &str = "vdev_dio_verify_errors";
    pub const VDEV_ENC_SYSFS_PATH: &str = "vdev_enc_sysfs_path";
    pub const WHOLE_DISK: &str = "whole_disk";
    pub const ERRCOUNT: &str = "error_count";
    pub const NOT_PRESENT: &str = "not_present";
    pub const SPARES: &str = "spares";
    pub const IS_SPARE: &str = "is_spare";
    pub const NPARITY: &str = "nparity";
    pub const RAIDZ_EXPANDING: &str = "raidz_expanding";
    pub const RAIDZ_EXPAND_TXGS: &str = "raidz_expand_txgs";
    pub const HOSTID: &str = "hostid";
    pub const HOSTNAME: &str = "hostname";
    pub const LOADED_TIME: &str = "initial_load_time";
    pub const UNSPARE: &str = "unspare";
    pub const PHYS_PATH: &str = "phys_path";
    pub const IS_LOG: &str = "is_log";
    pub const L2CACHE: &str = "l2cache";
    pub const HOLE_ARRAY: &str = "hole_array";
    pub const VDEV_CHILDREN: &str = "vdev_children";
    pub const IS_HOLE: &str = "is_hole";
    pub const DDT_OBJ_STATS: &str = "ddt_object_stats";
    pub const DDT_STATS: &str = "ddt_stats";
    pub const SPLIT: &str = "splitcfg";
    pub const ORIG_GUID: &str = "orig_guid";
    pub const SPLIT_GUID: &str = "split_guid";
    pub const SPLIT_LIST: &str = "guid_list";
    pub const NONALLOCATING: &str = "non_allocating";
    pub const REMOVING: &str = "removing";
    pub const RESILVER_TXG: &str = "resilver_txg";
    pub const REBUILD_TXG: &str = "rebuild_txg";
    pub const COMMENT: &str = "comment";
    pub const SUSPENDED: &str = "suspended";
    pub const SUSPENDED_REASON: &str = "suspended_reason";
    pub const TIMESTAMP: &str = "timestamp";
    pub const BOOTFS: &str = "bootfs";
    pub const MISSING_DEVICES: &str = "missing_vdevs";
    pub const LOAD_INFO: &str = "load_info";
    pub const REWIND_INFO: &str = "rewind_info";
    pub const UNSUP_FEAT: &str = "unsup_feat";
    pub const ENABLED_FEAT: &str = "enabled_feat";
    pub const CAN_RDONLY: &str = "can_rdonly";
    pub const FEATURES_FOR_READ: &str = "features_for_read";
    pub const FEATURE_STATS: &str = "feature_stats";
    pub const ERRATA: &str = "errata";
    pub const VDEV_ROOT_ZAP: &str = "com.klarasystems:vdev_zap_root";
    pub const VDEV_TOP_ZAP: &str = "com.delphix:vdev_zap_top";
    pub const VDEV_LEAF_ZAP: &str = "com.delphix:vdev_zap_leaf";
    pub const HAS_PER_VDEV_ZAPS: &str = "com.delphix:has_per_vdev_zaps";
    pub const RESILVER_DEFER: &str = "com.datto:resilver_defer";
    pub const CACHEFILE: &str = "cachefile";
    pub const MMP_STATE: &str = "mmp_state";
    pub const MMP_TXG: &str = "mmp_txg";
    pub const MMP_SEQ: &str = "mmp_seq";
    pub const MMP_HOSTNAME: &str = "mmp_hostname";
    pub const MMP_HOSTID: &str = "mmp_hostid";
    pub const ALLOCATION_BIAS: &str = "alloc_bias";
    pub const EXPANSION_TIME: &str = "expansion_time";
    pub const REBUILD_STATS: &str = "org.openzfs:rebuild_stats";
    pub const COMPATIBILITY: &str = "compatibility";
    pub const OFFLINE: &str = "offline";
    pub const FAULTED: &str = "faulted";
    pub const DEGRADED: &str = "degraded";
    pub const REMOVED: &str = "removed";
    pub const FRU: &str = "fru";
    pub const AUX_STATE: &str = "aux_state";
    pub const LOAD_TIME: &str = "rewind_txg_ts";
    pub const LOAD_META_ERRORS: &str = "verify_meta_errors";
    pub const LOAD_DATA_ERRORS: &str = "verify_data_errors";
    pub const REWIND_TIME: &str = "seconds_of_rewind";
    pub const DRAID_NDATA: &str = "draid_ndata";
    pub const DRAID_NSPARES: &str = "draid_nspares";
    pub const DRAID_NGROUPS: &str = "draid_ngroups";
}

/// Types of vdevs (OpenZFS: `VDEV_TYPE_*`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod vdev_type {
    pub const ROOT: &str = "root";
    pub const MIRROR: &str = "mirror";
    pub const REPLACING: &str = "replacing";
    pub const RAIDZ: &str = "raidz";
    pub const DRAID: &str = "draid";
    pub const DRAID_SPARE: &str = "dspare";
    pub const DISK: &str = "disk";
    pub const FILE: &str = "file";
    pub const MISSING: &str = "missing";
    pub const HOLE: &str = "hole";
    pub const SPARE: &str = "spare";
    pub const LOG: &str = "log";
    pub const L2CACHE: &str = "l2cache";
    pub const INDIRECT: &str = "indirect";
}

/// Allocation classes of vdevs (OpenZFS: `VDEV_ALLOC_BIAS_*`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod alloc_bias {
    pub const LOG: &str = "log";
    pub const SPECIAL: &str = "special";
    pub const DEDUP: &str = "dedup";
}

/// Names in a top-level vdev's ZAP (OpenZFS: `VDEV_TOP_ZAP_*`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod top_zap {
    pub const INDIRECT_OBSOLETE_SM: &str = "com.delphix:indirect_obsolete_sm";
    pub const OBSOLETE_COUNTS_ARE_PRECISE: &str = "com.delphix:obsolete_counts_are_precise";
    pub const POOL_CHECKPOINT_SM: &str = "com.delphix:pool_checkpoint_sm";
    pub const MS_UNFLUSHED_PHYS_TXGS: &str = "com.delphix:ms_unflushed_phys_txgs";
    pub const VDEV_REBUILD_PHYS: &str = "org.openzfs:vdev_rebuild";
    pub const ALLOCATION_BIAS: &str = "org.zfsonlinux:allocation_bias";
    pub const RAIDZ_EXPAND_STATE: &str = "org.openzfs:raidz_expand_state";
    pub const RAIDZ_EXPAND_START_TIME: &str = "org.openzfs:raidz_expand_start_time";
    pub const RAIDZ_EXPAND_END_TIME: &str = "org.openzfs:raidz_expand_end_time";
    pub const RAIDZ_EXPAND_BYTES_COPIED: &str = "org.openzfs:raidz_expand_bytes_copied";
}

/// Names in a leaf vdev's ZAP (OpenZFS: `VDEV_LEAF_ZAP_*`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod leaf_zap {
    pub const INITIALIZE_LAST_OFFSET: &str = "com.delphix:next_offset_to_initialize";
    pub const INITIALIZE_STATE: &str = "com.delphix:vdev_initialize_state";
    pub const INITIALIZE_ACTION_TIME: &str = "com.delphix:vdev_initialize_action_time";
    pub const TRIM_LAST_OFFSET: &str = "org.zfsonlinux:next_offset_to_trim";
    pub const TRIM_STATE: &str = "org.zfsonlinux:vdev_trim_state";
    pub const TRIM_ACTION_TIME: &str = "org.zfsonlinux:vdev_trim_action_time";
    pub const TRIM_RATE: &str = "org.zfsonlinux:vdev_trim_rate";
    pub const TRIM_PARTIAL: &str = "org.zfsonlinux:vdev_trim_partial";
    pub const TRIM_SECURE: &str = "org.zfsonlinux:vdev_trim_secure";
}

/// Names in the records of the pool's history (OpenZFS: `ZPOOL_HIST_*`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod history {
    pub const RECORD: &str = "history record";
    pub const TIME: &str = "history time";
    pub const CMD: &str = "history command";
    pub const WHO: &str = "history who";
    pub const ZONE: &str = "history zone";
    pub const HOST: &str = "history hostname";
    pub const TXG: &str = "history txg";
    pub const INT_EVENT: &str = "history internal event";
    pub const INT_STR: &str = "history internal str";
    pub const INT_NAME: &str = "internal_name";
    pub const IOCTL: &str = "ioctl";
    pub const INPUT_NVL: &str = "in_nvl";
    pub const OUTPUT_NVL: &str = "out_nvl";
    pub const OUTPUT_SIZE: &str = "out_size";
    pub const DSNAME: &str = "dsname";
    pub const DSID: &str = "dsid";
    pub const ERRNO: &str = "errno";
    pub const ELAPSED_NS: &str = "elapsed_ns";
}

/// Names in the pool's directory, object 1 of the MOS (OpenZFS: `DMU_POOL_*`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod mos {
    pub const CONFIG: &str = "config";
    pub const FEATURES_FOR_WRITE: &str = "features_for_write";
    pub const FEATURES_FOR_READ: &str = "features_for_read";
    pub const FEATURE_DESCRIPTIONS: &str = "feature_descriptions";
    pub const FEATURE_ENABLED_TXG: &str = "feature_enabled_txg";
    pub const ROOT_DATASET: &str = "root_dataset";
    pub const SYNC_BPOBJ: &str = "sync_bplist";
    pub const ERRLOG_SCRUB: &str = "errlog_scrub";
    pub const ERRLOG_LAST: &str = "errlog_last";
    pub const SPARES: &str = "spares";
    pub const DEFLATE: &str = "deflate";
    pub const HISTORY: &str = "history";
    pub const PROPS: &str = "pool_props";
    pub const L2CACHE: &str = "l2cache";
    pub const TMP_USERREFS: &str = "tmp_userrefs";
    pub const DDT_STATS: &str = "DDT-statistics";
    pub const CREATION_VERSION: &str = "creation_version";
    pub const SCAN: &str = "scan";
    pub const ERRORSCRUB: &str = "error_scrub";
    pub const LAST_SCRUBBED_TXG: &str = "last_scrubbed_txg";
    pub const FREE_BPOBJ: &str = "free_bpobj";
    pub const BPTREE_OBJ: &str = "bptree_obj";
    pub const EMPTY_BPOBJ: &str = "empty_bpobj";
    pub const CHECKSUM_SALT: &str = "org.illumos:checksum_salt";
    pub const VDEV_ZAP_MAP: &str = "com.delphix:vdev_zap_map";
    pub const REMOVING: &str = "com.delphix:removing";
    pub const OBSOLETE_BPOBJ: &str = "com.delphix:obsolete_bpobj";
    pub const CONDENSING_INDIRECT: &str = "com.delphix:condensing_indirect";
    pub const ZPOOL_CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
    pub const LOG_SPACEMAP_ZAP: &str = "com.delphix:log_spacemap_zap";
    pub const DELETED_CLONES: &str = "com.delphix:deleted_clones";
}

/// Names in the ZAP of a DSL directory (OpenZFS: `DD_FIELD_*`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod dd_field {
    pub const FILESYSTEM_COUNT: &str = "com.joyent:filesystem_count";
    pub const SNAPSHOT_COUNT: &str = "com.joyent:snapshot_count";
    pub const CRYPTO_KEY_OBJ: &str = "com.datto:crypto_key_obj";
    pub const LIVELIST: &str = "com.delphix:livelist";
    pub const SNAPSHOTS_CHANGED: &str = "com.ixsystems:snapshots_changed";
}

/// Names in the ZAP of a dataset, beside features (OpenZFS: `DS_FIELD_*`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod ds_field {
    pub const BOOKMARK_NAMES: &str = "com.delphix:bookmarks";
    pub const LARGE_DNODE: &str = "org.zfsonlinux:large_dnode";
    pub const RESUME_FROMGUID: &str = "com.delphix:resume_fromguid";
    pub const RESUME_TONAME: &str = "com.delphix:resume_toname";
    pub const RESUME_TOGUID: &str = "com.delphix:resume_toguid";
    pub const RESUME_OBJECT: &str = "com.delphix:resume_object";
    pub const RESUME_OFFSET: &str = "com.delphix:resume_offset";
    pub const RESUME_BYTES: &str = "com.delphix:resume_bytes";
    pub const RESUME_LARGEBLOCK: &str = "com.delphix:resume_largeblockok";
    pub const RESUME_EMBEDOK: &str = "com.delphix:resume_embedok";
    pub const RESUME_COMPRESSOK: &str = "com.delphix:resume_compressok";
    pub const RESUME_RAWOK: &str = "com.datto:resume_rawok";
    pub const REMAP_DEADLIST: &str = "com.delphix:remap_deadlist";
    pub const RESUME_REDACT_BOOKMARK_SNAPS: &str = "com.delphix:resume_redact_book_snaps";
    pub const IVSET_GUID: &str = "com.datto:ivset_guid";
}

/// Names of pool properties; those that are stored are in the ZAP `pool_props` (OpenZFS: `zpool_prop_t`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod pool_prop {
    pub const ALTROOT: &str = "altroot";
    pub const BOOTFS: &str = "bootfs";
    pub const CACHEFILE: &str = "cachefile";
    pub const COMMENT: &str = "comment";
    pub const COMPATIBILITY: &str = "compatibility";
    pub const SIZE: &str = "size";
    pub const FREE: &str = "free";
    pub const FREEING: &str = "freeing";
    pub const CHECKPOINT: &str = "checkpoint";
    pub const LEAKED: &str = "leaked";
    pub const ALLOCATED: &str = "allocated";
    pub const EXPANDSZ: &str = "expandsize";
    pub const FRAGMENTATION: &str = "fragmentation";
    pub const CAPACITY: &str = "capacity";
    pub const GUID: &str = "guid";
    pub const LOAD_GUID: &str = "load_guid";
    pub const HEALTH: &str = "health";
    pub const DEDUPRATIO: &str = "dedupratio";
    pub const BCLONEUSED: &str = "bcloneused";
    pub const BCLONESAVED: &str = "bclonesaved";
    pub const BCLONERATIO: &str = "bcloneratio";
    pub const DEDUP_TABLE_SIZE: &str = "dedup_table_size";
    pub const LAST_SCRUBBED_TXG: &str = "last_scrubbed_txg";
    pub const VERSION: &str = "version";
    pub const ASHIFT: &str = "ashift";
    pub const DEDUP_TABLE_QUOTA: &str = "dedup_table_quota";
    pub const DELEGATION: &str = "delegation";
    pub const AUTOREPLACE: &str = "autoreplace";
    pub const LISTSNAPS: &str = "listsnapshots";
    pub const AUTOEXPAND: &str = "autoexpand";
    pub const READONLY: &str = "readonly";
    pub const MULTIHOST: &str = "multihost";
    pub const FAILUREMODE: &str = "failmode";
    pub const AUTOTRIM: &str = "autotrim";
    pub const NAME: &str = "name";
    pub const MAXBLOCKSIZE: &str = "maxblocksize";
    pub const TNAME: &str = "tname";
    pub const MAXDNODESIZE: &str = "maxdnodesize";
    pub const DEDUPDITTO: &str = "dedupditto";
}

/// Suffixes of property names in a dataset's properties that say where the value comes from (OpenZFS: `ZPROP_*_SUFFIX`).
pub mod prop_suffix {
    /// Received with a stream.
    pub const RECEIVED: &str = "$recvd";
    /// Set back to inherit over a received value.
    pub const INHERIT: &str = "$inherit";
    /// A value that older software would not understand; the plain name holds one that it does.
    pub const IUV: &str = "$iuv";
    /// Marks a dataset that has received properties.
    pub const HASRECVD: &str = "$hasrecvd";
}

/// Pool versions that change what lies on disk (OpenZFS: `SPA_VERSION_*`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod spa_version {
    pub const INITIAL: u64 = 1;
    pub const DITTO_BLOCKS: u64 = 2;
    pub const SPARES: u64 = 3;
    pub const RAIDZ2: u64 = 3;
    pub const BPOBJ_ACCOUNT: u64 = 3;
    pub const RAIDZ_DEFLATE: u64 = 3;
    pub const DNODE_BYTES: u64 = 3;
    pub const ZPOOL_HISTORY: u64 = 4;
    pub const GZIP_COMPRESSION: u64 = 5;
    pub const BOOTFS: u64 = 6;
    pub const SLOGS: u64 = 7;
    pub const DELEGATED_PERMS: u64 = 8;
    pub const FUID: u64 = 9;
    pub const REFRESERVATION: u64 = 9;
    pub const REFQUOTA: u64 = 9;
    pub const UNIQUE_ACCURATE: u64 = 9;
    pub const L2CACHE: u64 = 10;
    pub const NEXT_CLONES: u64 = 11;
    pub const ORIGIN: u64 = 11;
    pub const DSL_SCRUB: u64 = 11;
    pub const SNAP_PROPS: u64 = 12;
    pub const USED_BREAKDOWN: u64 = 13;
    pub const PASSTHROUGH_X: u64 = 14;
    pub const USERSPACE: u64 = 15;
    pub const STMF_PROP: u64 = 16;
    pub const RAIDZ3: u64 = 17;
    pub const USERREFS: u64 = 18;
    pub const HOLES: u64 = 19;
    pub const ZLE_COMPRESSION: u64 = 20;
    pub const DEDUP: u64 = 21;
    pub const RECVD_PROPS: u64 = 22;
    pub const SLIM_ZIL: u64 = 23;
    pub const SA: u64 = 24;
    pub const SCAN: u64 = 25;
    pub const DIR_CLONES: u64 = 26;
    pub const DEADLISTS: u64 = 26;
    pub const FAST_SNAP: u64 = 27;
    pub const MULTI_REPLACE: u64 = 28;
    pub const BEFORE_FEATURES: u64 = 28;
    pub const FEATURES: u64 = 5000;
}

/// States of a pool in its label (OpenZFS: `pool_state_t`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod pool_state {
    pub const ACTIVE: u64 = 0;
    pub const EXPORTED: u64 = 1;
    pub const DESTROYED: u64 = 2;
    pub const SPARE: u64 = 3;
    pub const L2CACHE: u64 = 4;
}
