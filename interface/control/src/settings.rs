//! What the parameters of the daemon change: how pools run, and what every pool shares.

use crate::pool::Pools;
use crate::provider::accelerators::Accelerators;
use crate::report::direct;
use crate::watch::memory::Places;
use control_api::StateDir;
use exec::Exec;
use kstat::EventLog;
use metrics::Parameters;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zpl::direct::Tunables;

/// Environment variable with the bytes that the cache of each pool may hold: `zfs_arc_max` before any pool is opened.
const ARC_MAX: &str = "ZIRCONIA_ARC_MAX";
/// Environment variable with `zirconia_provider_admission` before any provider is loaded.
const PROVIDER_ADMISSION: &str = "ZIRCONIA_PROVIDER_ADMISSION";
/// Least `zfs_dirty_data_max` in bytes, however little memory there is: one large write and what goes with it.
const DIRTY_DATA_MIN: u64 = 64 << 20;
/// Least budget of a cache in bytes unless told otherwise (OpenZFS: `arc_set_limits`).
const ARC_MIN_DEFAULT: u64 = 32 << 20;

/// Parameters of the daemon, and those that follow them.
pub(crate) struct Settings {
    /// Parameters that may be set.
    pub parameters: Arc<Parameters>,
    /// Parameters of direct I/O of the file systems.
    pub direct: Arc<Tunables>,
    /// Providers that pools may be given for their stages.
    pub accelerators: Arc<Accelerators>,
    events: Arc<EventLog>,
    /// Bytes that the cache of each pool may hold where nobody says another number.
    arc_max: u64,
    /// Values of the parameters before anybody set one.
    initial: BTreeMap<&'static str, String>,
}

impl Settings {
    /// Makes the settings that the machine and the environment ask for.
    pub(crate) fn new(exec: &Exec, state: &StateDir, events: &Arc<EventLog>) -> Settings {
        // Buffers of dirty data come and go in bursts; faulting them in anew each time costs more than all checksums.
        let (room, usual) = (Places::own().look(), pool::Runtime::new());
        abd::set_cache_bytes_max(room.spare_max(usual.txg.dirty_data_max));
        let parameters = Arc::new(Parameters::default());
        let dirty_data_max = room.dirty_data_max(DIRTY_DATA_MIN, usual.txg.dirty_data_max);
        // Within the parameter's range, so it is taken.
        let _ = parameters.set("zfs_dirty_data_max", &dirty_data_max.to_string());
        for (variable, name) in [(ARC_MAX, "zfs_arc_max"), (PROVIDER_ADMISSION, "zirconia_provider_admission")] {
            if let Ok(value) = std::env::var(variable) {
                // What makes no sense leaves the default.
                let _ = parameters.set(name, &value);
            }
        }
        let direct = direct::tunables_from_environment(&parameters);
        let accelerators = Accelerators::new(exec, state, events.clone(), parameters.clone());
        let initial = parameters.values().collect();
        Settings { parameters, direct, accelerators, events: events.clone(), arc_max: room.arc_max(usual.arc_max), initial }
    }

    /// Parameters that somebody set to another value than the daemon began with, for the one that takes its place.
    pub(crate) fn set_by_hand(&self) -> Vec<(String, String)> {
        let changed = self.parameters.values().filter(|(name, value)| self.initial.get(name) != Some(value));
        changed.map(|(name, value)| (name.to_string(), value)).collect()
    }

    /// Sets the parameters that were set in the daemon before. What this one does not have, or does not let be set so, begins anew.
    pub(crate) fn inherit(&self, set: &[(String, String)], pools: &Pools) {
        for (name, text) in set {
            match self.parameters.set(name, text) {
                Ok(value) => self.changed(name, value, pools),
                Err(error) => tracing::warn!("parameter '{name}' is not {text}, as it was in the daemon before: {error}"),
            }
        }
    }

    /// Follows a parameter that was changed in the tree of statistics and parameters.
    pub(crate) fn changed(&self, name: &str, value: u64, pools: &Pools) {
        if name == "zirconia_uring_fixed_buffers" {
            device::set_ring_buffers_registered(value != 0);
        }
        if name == "zirconia_vdev_ioprio" && !device::set_io_priorities(value) {
            tracing::warn!("{name} is as 1 in effect: the real-time class needs CAP_SYS_NICE");
        }
        direct::apply(&self.direct, &self.parameters);
        let get = |name: &str| self.parameters.get(name).unwrap_or_default();
        dmu::set_zfetch_tunables(dmu::ZfetchTunables {
            min_distance: get("zfetch_min_distance"),
            max_distance: get("zfetch_max_distance"),
            max_reorder: get("zfetch_max_reorder"),
            hole_shift: get("zfetch_hole_shift"),
            max_streams: get("zfetch_max_streams"),
            disable: get("zfs_prefetch_disable") != 0,
        });
        dmu::set_direct_read_window(get("zirconia_direct_read_window"));
        let shift = |name: &str| get(name) as u32;
        device::set_ashift_tunables(device::AshiftTunables {
            file_logical: shift("vdev_file_logical_ashift"),
            file_physical: shift("vdev_file_physical_ashift"),
            max_auto: shift("zfs_vdev_max_auto_ashift"),
            min_auto: shift("zfs_vdev_min_auto_ashift"),
        });
        vdev::set_metaslab_tunables(vdev::MetaslabTunables {
            count_min: get("zfs_vdev_min_ms_count"),
            count_default: get("zfs_vdev_default_ms_count"),
            count_limit: get("zfs_vdev_ms_count_limit"),
            shift_default: shift("zfs_vdev_default_ms_shift"),
            count_without_logs: get("zfs_embedded_slog_min_ms"),
        });
        zap::set_micro_bytes_max(get("zap_micro_max_size"));
        vdev::set_combinations_max(get("zfs_reconstruct_indirect_combinations_max"));
        zpl::set_unlink_suspended(get("zfs_unlink_suspend_progress") != 0);
        zpl::set_admin_snapshot(get("zfs_admin_snapshot") != 0);
        zpl::set_xattr_compat(get("zfs_xattr_compat") != 0);
        zpl::set_logs_xattrs(get("zfs_zil_saxattr") != 0);
        zpl::set_cloning(get("zfs_bclone_enabled") != 0, get("zfs_bclone_wait_dirty") != 0);
        zpl::set_reports_holes(get("zfs_dmu_offset_next_sync") != 0);
        send::set_skips_unborn(get("send_holes_without_birth_time") == 0);
        dsl::set_ignores_iv_sets(get("zfs_disable_ivset_guid_check") != 0);
        dsl::set_allows_redacted(get("zfs_allow_redacted_dataset_mount") != 0);
        send::set_estimate_block_bytes(get("zfs_override_estimate_recordsize"));
        dsl::names::set_max_dataset_nesting(shift("zfs_max_dataset_nesting"));
        if let Some(log) = kstat::DebugLog::get() {
            log.tune(get("zfs_dbgmsg_enable") != 0, get("zfs_dbgmsg_maxsize") as usize);
        }
        // The first word is the fastest, whatever that is.
        let chosen = |name: &str| metrics::chosen_word(name, get(name)).filter(|_| get(name) != 0);
        kernels::checksum::choose(chosen("zfs_fletcher_4_impl"));
        kernels::raidz::choose(chosen("zfs_vdev_raidz_impl"));
        self.events.set_capacity(get("zfs_zevent_len_max") as usize);
        for open in pools.all() {
            self.tune(open.pool());
        }
    }

    /// Makes a pool follow the parameters that count at once.
    pub(crate) fn tune(&self, pool: &pool::Pool) {
        let get = |name: &str| self.parameters.get(name).unwrap_or_default();
        let runtime = self.runtime();
        pool.cache().set_max(runtime.arc_max);
        pool.cache().set_min(match get("zfs_arc_min") {
            0 => (runtime.arc_max / 32).max(ARC_MIN_DEFAULT),
            bytes => bytes,
        });
        pool.txgs().set_config(runtime.txg);
        pool.txgs().history().set_limit(get("zfs_txg_history") as usize);
        pool.cache().set_compressed(get("zfs_compressed_arc_enabled") != 0);
        pool.cache().set_meta_balance(get("zfs_arc_meta_balance"));
        pool.tune_caches(self.caches());
        pool.tune_scans(runtime.scans);
        pool.tune_multihost(runtime.multihost);
        pool.suspend_rebuilds(runtime.scans.suspended);
        pool.set_frees_max(get("zfs_async_block_max_blocks"));
        pool.limit_discard(get("zfs_spa_discard_memory_limit"));
        pool.tune_space_log(self.space_log_tunables(runtime.arc_max));
        pool.dsl().tune_logs(get("zfs_commit_timeout_pct"));
        pool.dsl().tune_receives(get("spa_asize_inflation"));
        pool.dsl().tune_livelists(get("zfs_livelist_max_entries"), get("zfs_livelist_min_percent_shared") as i64);
        tune_removals(pool.removal_parameters(), &get);
        tune_expansions(pool.expand_parameters(), &get);
        let direct = pool.zio().direct_parameters();
        let rebuild = pool.rebuild_parameters();
        rebuild.max_segment.store(get("zfs_rebuild_max_segment"), Ordering::Relaxed);
        rebuild.vdev_limit.store(get("zfs_rebuild_vdev_limit"), Ordering::Relaxed);
        rebuild.scrub_enabled.store(get("zfs_rebuild_scrub_enabled"), Ordering::Relaxed);
        let sweep = pool.sweep_parameters();
        sweep.initialize_value.store(get("zfs_initialize_value"), Ordering::Relaxed);
        sweep.initialize_chunk.store(get("zfs_initialize_chunk_size"), Ordering::Relaxed);
        sweep.trim_max.store(get("zfs_trim_extent_bytes_max"), Ordering::Relaxed);
        sweep.trim_min.store(get("zfs_trim_extent_bytes_min"), Ordering::Relaxed);
        sweep.trim_metaslab_skip.store(get("zfs_trim_metaslab_skip"), Ordering::Relaxed);
        sweep.trim_txg_batch.store(get("zfs_trim_txg_batch"), Ordering::Relaxed);
        direct.write_verify.store(get("zfs_vdev_direct_write_verify") as u32, Ordering::Relaxed);
        direct.events_per_second.store(get("zfs_dio_write_verify_events_per_second") as u32, Ordering::Relaxed);
        pool.zio().tune_queues(|tunables| {
            // Those that the schedulers know; the others are none of theirs.
            for parameter in &metrics::PARAMETERS {
                let _ = tunables.set(parameter.name, get(parameter.name));
            }
        });
        let gives_up = get("zfs_deadman_failmode") != 0;
        pool.zio().set_deadman_fail_mode(if gives_up { zio::DeadmanFailMode::Continue } else { zio::DeadmanFailMode::Wait });
        pool.zio().set_sit_out_seconds(get("vdev_read_sit_out_secs"));
        pool.zio().set_forced_ganging(get("metaslab_force_ganging"), get("metaslab_force_ganging_pct") as u32);
        pool.zio().set_placing(zio::PlacingTunables {
            user_indirect: get("zfs_user_indirect_is_special") != 0,
            dedup_tables: get("zfs_ddt_data_is_special") != 0,
            reserve_percent: get("zfs_special_class_metadata_reserve_pct") as u8,
        });
        let rate = |name: &str| get(&format!("zfs_{name}_events_per_second")) as u32;
        pool.zio().set_event_rates(rate("slow_io"), rate("deadman"), rate("checksum"));
        pool.zio().set_event_retention(get("zfs_zevent_retain_max") as u32, get("zfs_zevent_retain_expire_secs") as u32);
    }

    /// Settings of log space maps, with a cache of so many bytes.
    fn space_log_tunables(&self, arc_max: u64) -> pool::SpaceLogTunables {
        let get = |name: &str| self.parameters.get(name).unwrap_or_default();
        pool::SpaceLogTunables {
            keep_at_export: get("zfs_keep_log_spacemaps_at_export") != 0,
            metaslabs_min: get("zfs_min_metaslabs_to_flush"),
            blocks_percent: get("zfs_unflushed_log_block_pct"),
            blocks_min: get("zfs_unflushed_log_block_min"),
            blocks_max: get("zfs_unflushed_log_block_max"),
            txgs_max: get("zfs_unflushed_log_txg_max"),
            looks_back: get("zfs_max_log_walking"),
            memory_max: get("zfs_unflushed_max_mem_amt").min(arc_max / 16),
        }
    }

    /// Parameters of cache devices, as they are now.
    fn caches(&self) -> pool::CacheTunables {
        let get = |name: &str| self.parameters.get(&format!("l2arc_{name}")).unwrap_or_default();
        pool::CacheTunables {
            write_max: get("write_max"),
            write_boost: get("write_boost"),
            headroom: get("headroom"),
            headroom_boost: get("headroom_boost"),
            feed_secs: get("feed_secs"),
            feed_min_ms: get("feed_min_ms"),
            feed_again: get("feed_again") != 0,
            noprefetch: get("noprefetch") != 0,
            norw: get("norw") != 0,
            meta_percent: get("meta_percent"),
            mfuonly: get("mfuonly"),
            trim_ahead: get("trim_ahead"),
            rebuild_enabled: get("rebuild_enabled") != 0,
            rebuild_blocks_min_l2size: get("rebuild_blocks_min_l2size"),
        }
    }

    /// Settings by which pools run in this daemon, as the parameters say now.
    pub(crate) fn runtime(&self) -> pool::Runtime {
        let get = |name: &str| self.parameters.get(name).unwrap_or_default();
        let mut runtime = pool::Runtime::new();
        runtime.arc_max = match get("zfs_arc_max") {
            0 => self.arc_max,
            bytes => bytes,
        };
        runtime.txg.timeout_ns = get("zfs_txg_timeout").saturating_mul(1_000_000_000);
        runtime.txg.dirty_data_max = get("zfs_dirty_data_max");
        runtime.txg.delay_min_dirty_percent = get("zfs_delay_min_dirty_percent");
        runtime.txg.delay_scale_ns = get("zfs_delay_scale");
        runtime.txg.dirty_data_sync_percent = get("zfs_dirty_data_sync_percent");
        runtime.events = self.events.clone();
        runtime.replay = Some(Arc::new(zpl::FileReplay));
        runtime.max_missing_tops = get("zfs_max_missing_tvds") as usize;
        runtime.load_space_maps = get("metaslab_debug_load") != 0;
        runtime.trusts_paths = get("vdev_validate_skip") != 0;
        runtime.load_verify = pool::LoadVerify {
            metadata: get("spa_load_verify_metadata") != 0,
            data: get("spa_load_verify_data") != 0,
            shift: get("spa_load_verify_shift") as u32,
        };
        runtime.log_space_maps = get("zirconia_log_space_maps") != 0;
        runtime.removals_suspended = get("zfs_removal_suspend_progress") != 0;
        runtime.reflow_bytes_max = get("raidz_expand_max_reflow_bytes");
        runtime.scans = pool::ScanTunables {
            memory_max: get("zirconia_scan_memory_max"),
            checkpoint_seconds: get("zfs_scan_checkpoint_intval"),
            suspended: get("zfs_scan_suspend_progress") != 0,
            defer_percent: (get("zfs_resilver_disable_defer") == 0).then(|| get("zfs_resilver_defer_percent")),
            in_tree_order: get("zfs_scan_legacy") != 0,
            vdev_limit: get("zfs_scan_vdev_limit"),
            error_blocks_per_txg: get("zfs_scrub_error_blocks_per_txg"),
            scrub_min_time_ms: get("zfs_scrub_min_time_ms"),
            resilver_min_time_ms: get("zfs_resilver_min_time_ms"),
        };
        runtime.multihost = pool::MultihostTunables {
            interval_ms: get("zfs_multihost_interval"),
            fail_intervals: get("zfs_multihost_fail_intervals"),
            import_intervals: get("zfs_multihost_import_intervals"),
            history: get("zfs_multihost_history") as usize,
        };
        let (accelerators, known) = (self.accelerators.clone(), self.accelerators.clone());
        let providers = pool::Providers::new(move |name| accelerators.session(name)).awaiting(move |name| known.awaited(name));
        runtime.providers = Some(providers);
        runtime
    }
}

/// Has expansions of vdevs follow the parameters.
fn tune_expansions(expansions: &pool::ExpandParameters, get: &dyn Fn(&str) -> u64) {
    expansions.copy_bytes_max.store(get("raidz_expand_max_copy_bytes"), Ordering::Relaxed);
    expansions.reflow_bytes_max.store(get("raidz_expand_max_reflow_bytes"), Ordering::Relaxed);
    expansions.scrub_after.store(get("zfs_scrub_after_expand"), Ordering::Relaxed);
}

/// Has removals of vdevs follow the parameters.
fn tune_removals(removals: &pool::RemovalParameters, get: &dyn Fn(&str) -> u64) {
    for (cell, name) in [
        (&removals.segment_max, "zfs_remove_max_segment"),
        (&removals.span_max, "vdev_removal_max_span"),
        (&removals.ignores_errors, "zfs_removal_ignore_errors"),
        (&removals.suspended, "zfs_removal_suspend_progress"),
        (&removals.condenses, "zfs_condense_indirect_vdevs_enable"),
        (&removals.condense_percent, "zfs_condense_indirect_obsolete_pct"),
        (&removals.condense_bytes_min, "zfs_condense_min_mapping_bytes"),
        (&removals.obsolete_bytes_max, "zfs_condense_max_obsolete_bytes"),
    ] {
        cell.store(get(name), Ordering::Relaxed);
    }
}
