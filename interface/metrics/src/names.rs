//! OpenZFS 2.3's names of statistics, in its order (`arc.c`, `spa_stats.c`, `dmu_tx.c`, `dmu_zfetch.c`, `dbuf.c`, `dnode.c`,
//! `zil.c`, `fm.c`, `abd_os.c`, `dataset_kstats.c`, `vdev_mirror.c`).

/// Names of `zfs/arcstats`.
pub(crate) const ARCSTATS: &str = "hits iohits misses demand_data_hits demand_data_iohits demand_data_misses demand_metadata_hits \
    demand_metadata_iohits demand_metadata_misses prefetch_data_hits prefetch_data_iohits prefetch_data_misses \
    prefetch_metadata_hits prefetch_metadata_iohits prefetch_metadata_misses mru_hits mru_ghost_hits mfu_hits mfu_ghost_hits \
    uncached_hits deleted mutex_miss access_skip evict_skip evict_not_enough evict_l2_cached evict_l2_eligible \
    evict_l2_eligible_mfu evict_l2_eligible_mru evict_l2_ineligible evict_l2_skip hash_elements hash_elements_max \
    hash_collisions hash_chains hash_chain_max meta pd pm c c_min c_max size compressed_size uncompressed_size overhead_size \
    hdr_size data_size metadata_size dbuf_size dnode_size bonus_size other_size anon_size anon_data anon_metadata \
    anon_evictable_data anon_evictable_metadata mru_size mru_data mru_metadata mru_evictable_data mru_evictable_metadata \
    mru_ghost_size mru_ghost_data mru_ghost_metadata mru_ghost_evictable_data mru_ghost_evictable_metadata mfu_size mfu_data \
    mfu_metadata mfu_evictable_data mfu_evictable_metadata mfu_ghost_size mfu_ghost_data mfu_ghost_metadata \
    mfu_ghost_evictable_data mfu_ghost_evictable_metadata uncached_size uncached_data uncached_metadata \
    uncached_evictable_data uncached_evictable_metadata l2_hits l2_misses l2_prefetch_asize l2_mru_asize l2_mfu_asize \
    l2_bufc_data_asize l2_bufc_metadata_asize l2_feeds l2_rw_clash l2_read_bytes l2_write_bytes l2_writes_sent \
    l2_writes_done l2_writes_error l2_writes_lock_retry l2_evict_lock_retry l2_evict_reading l2_evict_l1cached \
    l2_free_on_write l2_abort_lowmem l2_cksum_bad l2_io_error l2_size l2_asize l2_hdr_size l2_log_blk_writes \
    l2_log_blk_avg_asize l2_log_blk_asize l2_log_blk_count l2_data_to_meta_ratio l2_rebuild_success l2_rebuild_unsupported \
    l2_rebuild_io_errors l2_rebuild_dh_errors l2_rebuild_cksum_lb_errors l2_rebuild_lowmem l2_rebuild_size l2_rebuild_asize \
    l2_rebuild_bufs l2_rebuild_bufs_precached l2_rebuild_log_blks memory_throttle_count memory_direct_count \
    memory_indirect_count memory_all_bytes memory_free_bytes memory_available_bytes arc_no_grow arc_tempreserve \
    arc_loaned_bytes arc_prune arc_meta_used arc_dnode_limit async_upgrade_sync predictive_prefetch \
    demand_hit_predictive_prefetch demand_iohit_predictive_prefetch prescient_prefetch demand_hit_prescient_prefetch \
    demand_iohit_prescient_prefetch arc_need_free arc_sys_free arc_raw_size cached_only_in_progress abd_chunk_waste_size";

/// Names of `zfs/zfetchstats`.
pub(crate) const ZFETCHSTATS: &str = "hits future stride past misses max_streams io_issued io_active";

/// Names of `zfs/dmu_tx`.
pub(crate) const DMU_TX: &str = "dmu_tx_assigned dmu_tx_delay dmu_tx_error dmu_tx_suspended dmu_tx_group dmu_tx_memory_reserve \
    dmu_tx_memory_reclaim dmu_tx_dirty_throttle dmu_tx_dirty_delay dmu_tx_dirty_over_max dmu_tx_dirty_frees_delay dmu_tx_wrlog_delay \
    dmu_tx_quota";

/// Names of `zfs/dnodestats`.
pub(crate) const DNODESTATS: &str = "dnode_hold_dbuf_hold dnode_hold_dbuf_read dnode_hold_alloc_hits dnode_hold_alloc_misses \
    dnode_hold_alloc_interior dnode_hold_alloc_lock_retry dnode_hold_alloc_lock_misses dnode_hold_alloc_type_none dnode_hold_free_hits \
    dnode_hold_free_misses dnode_hold_free_lock_misses dnode_hold_free_lock_retry dnode_hold_free_overflow dnode_hold_free_refcount \
    dnode_free_interior_lock_retry dnode_allocate dnode_reallocate dnode_buf_evict dnode_alloc_next_chunk dnode_alloc_race \
    dnode_alloc_next_block dnode_move_invalid dnode_move_recheck1 dnode_move_recheck2 dnode_move_special dnode_move_handle \
    dnode_move_rwlock dnode_move_active";

/// Names of `zfs/vdev_mirror_stats`: where the heads of disks are does not count here.
pub(crate) const VDEV_MIRROR_STATS: &str =
    "rotating_linear rotating_offset rotating_seek non_rotating_linear non_rotating_seek preferred_found preferred_not_found";

/// Names of `zfs/fm`.
pub(crate) const FM: &str = "erpt-dropped erpt-set-failed fmri-set-failed payload-set-failed erpt-duplicates";

/// Names of `zfs/zil`, and of the end of every `zfs/POOL/objset-…`.
pub(crate) const ZIL: &str = "zil_commit_count zil_commit_writer_count zil_commit_error_count zil_commit_stall_count \
    zil_commit_suspend_count zil_itx_count zil_itx_indirect_count zil_itx_indirect_bytes zil_itx_copied_count \
    zil_itx_copied_bytes zil_itx_needcopy_count zil_itx_needcopy_bytes zil_itx_metaslab_normal_count \
    zil_itx_metaslab_normal_bytes zil_itx_metaslab_normal_write zil_itx_metaslab_normal_alloc zil_itx_metaslab_slog_count \
    zil_itx_metaslab_slog_bytes zil_itx_metaslab_slog_write zil_itx_metaslab_slog_alloc";

/// Names of `zfs/abdstats`.
pub(crate) const ABDSTATS: &str = "struct_size linear_cnt linear_data_size scatter_cnt scatter_data_size scatter_chunk_waste \
    scatter_page_multi_chunk scatter_page_multi_zone scatter_page_alloc_retry scatter_sg_table_retry";

/// Words of a list.
pub(crate) fn words(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split_whitespace()
}

/// True for a value of `zfs/arcstats` that also falls.
pub(crate) fn is_gauge(name: &str) -> bool {
    let sizes = ["_size", "_data", "_metadata", "_asize", "_bytes"].iter().any(|end| name.ends_with(end)) && !name.starts_with("l2_read");
    let counts = name.starts_with("l2_write") || name.starts_with("l2_rebuild");
    let words = ["size", "c", "c_min", "c_max", "meta", "pd", "pm", "hash_elements", "hash_chains", "arc_no_grow", "arc_tempreserve"];
    let more = ["arc_meta_used", "arc_dnode_limit", "arc_need_free", "arc_sys_free", "l2_log_blk_count", "l2_data_to_meta_ratio"];
    (sizes && !counts) || words.contains(&name) || more.contains(&name) || name.ends_with("_max")
}
