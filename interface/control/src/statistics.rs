//! Statistics and parameters for other programs: what the tree shows of the open pools, where it is mounted, and what a changed
//! parameter changes.
//!
//! The tree is mounted at `proc/spl/kstat` and `sys/module/zfs` of the state directory. Without FUSE the daemon does without:
//! the metrics on its socket show the same numbers.

use crate::{Control, OpenPool, iostat};
use exec::Exec;
use fuse::{MountOptions, Readers, Session};
use metrics::{Parameters, PoolView, Source, Tree, TreeFs};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Where the parts of the tree are mounted, below the state directory.
const PLACES: [(&str, &str); 2] = [("proc", "spl/kstat"), ("sys", "module/zfs")];
/// Folders that tools list and that have nothing in them.
const EMPTY: [&str; 1] = ["sys/module/spl/parameters"];
/// Least budget of a cache unless told otherwise (OpenZFS: `arc_set_limits`).
const ARC_MIN_DEFAULT: u64 = 32 << 20;
/// Set to `off`, no tree is mounted.
const SWITCH: &str = "ZIRCONIA_KSTAT";

/// Looks at the daemon's pools for the tree.
struct Statistics {
    control: Weak<Control>,
    exec: Exec,
    parameters: Arc<Parameters>,
}

impl Source for Statistics {
    fn now_ns(&self) -> u64 {
        self.exec.now_ns()
    }

    fn pools(&self) -> Vec<PoolView> {
        let Some(control) = self.control.upgrade() else { return Vec::new() };
        let pools: Vec<Arc<OpenPool>> = control.pools.read().values().cloned().collect();
        pools.iter().map(|open| view(open)).collect()
    }

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn parameter_changed(&self, name: &str, value: u64) {
        if let Some(control) = self.control.upgrade() {
            control.parameter_changed(name, value);
        }
    }
}

fn view(open: &OpenPool) -> PoolView {
    let status = open.pool().status();
    let state = if status.suspended { "SUSPENDED".to_string() } else { crate::report::tree("", &status.tree, None).state };
    PoolView {
        name: open.name(),
        guid: open.pool().guid().0,
        state,
        cache: open.pool().cache().clone(),
        txgs: open.pool().txgs().clone(),
        objsets: std::iter::once(open.pool().mos().clone()).chain(open.mounts.objsets()).collect(),
        accelerator: crate::offload::view(open),
        datasets: open.mounts.counts(open.pool().zio()),
        direct: crate::direct::rows(&open.mounts.direct_of_pool().snapshot(), open.pool().zio().changed_buffers(None, None)),
    }
}

/// What keeps the tree mounted.
#[derive(Default)]
pub(crate) struct Mounted(exec::Mutex<Vec<Session>>);

impl Mounted {
    /// Takes the tree away.
    pub(crate) fn end(&self) {
        for session in std::mem::take(&mut *self.0.lock()) {
            // A program that sits in it must not keep the daemon.
            let _ = session.unmount(true);
        }
    }
}

impl Control {
    /// The tree of statistics and parameters.
    pub fn tree(self: &Arc<Self>) -> Tree {
        let source = Statistics { control: Arc::downgrade(self), exec: self.exec.clone(), parameters: self.parameters.clone() };
        Tree::new(Arc::new(source))
    }

    /// Mounts the tree in the state directory, in place of what a killed daemon left there.
    pub fn mount_tree(self: &Arc<Self>) {
        let wanted = std::env::var_os(SWITCH).is_none_or(|word| word != "off");
        let readers = Readers::new(&self.exec).map_err(|error| error.to_string());
        for (above, root) in PLACES {
            let place = self.state.path().join(above).join(root);
            fuse::clear_dead_mount(&place);
            let mount = |readers: &Readers| self.mount_part(readers, &place, root);
            if wanted && let Err(why) = readers.as_ref().map_err(String::clone).and_then(mount) {
                eprintln!("no statistics at {}: {why}", place.display());
            }
        }
        for folder in EMPTY.iter().filter(|_| wanted) {
            let _ = service::trust::make_folder(&self.state.path().join(folder));
        }
    }

    fn mount_part(self: &Arc<Self>, readers: &Readers, place: &Path, root: &str) -> Result<(), String> {
        service::trust::make_folder(place).map_err(|why| why.to_string())?;
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let handler = Arc::new(TreeFs::new(self.tree(), root, owner));
        let options = MountOptions {
            source: "zirconia-kstat".into(),
            suid: false,
            devices: false,
            exec: false,
            atime: false,
            max_write: 64 << 10,
            ..MountOptions::default()
        };
        let session = Session::mount_with(readers, handler, place, &options).map_err(|error| error.to_string())?;
        self.mounted_tree.0.lock().push(session);
        Ok(())
    }

    /// The metrics of the daemon in OpenMetrics text.
    pub fn metrics(self: &Arc<Self>) -> String {
        let pools: Vec<Arc<OpenPool>> = self.pools.read().values().cloned().collect();
        let vdevs: Vec<_> = pools.iter().map(|open| iostat::iostat(open)).collect();
        drop(pools);
        metrics::openmetrics(&self.tree(), &vdevs)
    }

    fn parameter_changed(&self, name: &str, value: u64) {
        if name == "zirconia_uring_fixed_buffers" {
            device::set_ring_buffers_registered(value != 0);
        }
        crate::direct::apply(&self.direct, &self.parameters);
        let get = |name: &str| self.parameters.get(name).unwrap_or_default();
        dmu::set_zfetch_tunables(dmu::ZfetchTunables {
            min_distance: get("zfetch_min_distance"),
            max_distance: get("zfetch_max_distance"),
            max_reorder: get("zfetch_max_reorder"),
            hole_shift: get("zfetch_hole_shift"),
            max_streams: get("zfetch_max_streams"),
            disable: get("zfs_prefetch_disable") != 0,
        });
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
        });
        zpl::set_unlink_suspended(get("zfs_unlink_suspend_progress") != 0);
        zpl::set_admin_snapshot(get("zfs_admin_snapshot") != 0);
        zpl::set_xattr_compat(get("zfs_xattr_compat") != 0);
        zpl::set_reports_holes(get("zfs_dmu_offset_next_sync") != 0);
        dsl::names::set_max_dataset_nesting(shift("zfs_max_dataset_nesting"));
        if let Some(log) = kstat::DebugLog::get() {
            log.tune(get("zfs_dbgmsg_enable") != 0, get("zfs_dbgmsg_maxsize") as usize);
        }
        // The first word is the fastest, whatever that is.
        let chosen = |name: &str| metrics::chosen_word(name, get(name)).filter(|_| get(name) != 0);
        kernels::checksum::choose(chosen("zfs_fletcher_4_impl"));
        kernels::raidz::choose(chosen("zfs_vdev_raidz_impl"));
        self.events.set_capacity(get("zfs_zevent_len_max") as usize);
        for open in self.pools.read().values() {
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
        pool.tune_scans(pool::ScanTunables {
            memory_max: get("zirconia_scan_memory_max"),
            checkpoint_seconds: get("zfs_scan_checkpoint_intval"),
            suspended: get("zfs_scan_suspend_progress") != 0,
            defer_percent: (get("zfs_resilver_disable_defer") == 0).then(|| get("zfs_resilver_defer_percent")),
            in_tree_order: get("zfs_scan_legacy") != 0,
        });
        pool.suspend_rebuilds(get("zfs_scan_suspend_progress") != 0);
        pool.set_frees_max(get("zfs_async_block_max_blocks"));
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
        pool.zio().set_forced_ganging(get("metaslab_force_ganging"), get("metaslab_force_ganging_pct") as u32);
        let rate = |name: &str| get(&format!("zfs_{name}_events_per_second")) as u32;
        pool.zio().set_event_rates(rate("slow_io"), rate("deadman"), rate("checksum"));
        pool.zio().set_event_retention(get("zfs_zevent_retain_max") as u32, get("zfs_zevent_retain_expire_secs") as u32);
    }

    /// How pools run in this daemon, as the parameters say now.
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
        runtime.max_missing_tops = get("zfs_max_missing_tvds") as usize;
        runtime.suspended_scans = get("zfs_scan_suspend_progress") != 0;
        let accelerators = self.accelerators.clone();
        runtime.providers = Some(pool::Providers::new(move |name| accelerators.session(name)));
        runtime
    }
}
