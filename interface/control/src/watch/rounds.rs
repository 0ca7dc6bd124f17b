//! What the daemon does unasked: it looks for I/Os that hang and for devices that are slow among their siblings, ends fault handlers that
//! are over, and runs programs on events. One thread, so that none of it holds up a request.

use crate::events::Events;
use crate::inject::Injections;
use crate::mount::handing::Handing;
use crate::mount::returning::Returning;
use crate::pool::cache_file::PoolsFile;
use crate::pool::reopening::Reopening;
use crate::pool::{OpenPool, Pools};
use crate::watch::watcher::Watcher;
use crate::watch::{hooks, memory};
use exec::Exec;
use kstat::{Event, EventSink};
use metrics::Parameters;
use pool::Outlier;
use std::sync::{Arc, Weak};

/// Class of the event that a device is slow or errs among its siblings; OpenZFS has none.
const OUTLIER: &str = "ereport.fs.zfs.zirconia_outlier";
/// Class of the event that a device sits out since it is slow (OpenZFS: `FM_EREPORT_ZFS_SITOUT`).
const SITOUT: &str = "ereport.fs.zfs.sitout";
/// Nanoseconds between looks whether devices of pools that are not open are there, and whether pools have other devices than are remembered.
const LOOK_NS: u64 = 2_000_000_000;

/// Parts of the daemon that are looked at again and again.
pub(crate) struct Rounds {
    pub exec: Exec,
    pub pools: Arc<Pools>,
    pub parameters: Arc<Parameters>,
    pub events: Arc<Events>,
    pub injections: Arc<Injections>,
    pub file: Arc<PoolsFile>,
    pub returning: Arc<Returning>,
    pub handing: Arc<Handing>,
    pub reopening: Arc<Reopening>,
}

impl Rounds {
    /// Starts the watcher. It ends when it is told, or when the daemon's state goes.
    pub(crate) fn start(self: &Arc<Self>, watcher: &Arc<Watcher>) {
        memory::keep(&self.exec, watcher, &self.pools, &self.parameters);
        let (watcher, exec) = (watcher.clone(), self.exec.clone());
        if hooks::folder().is_some() {
            let (watcher, exec) = (watcher.clone(), exec.clone());
            self.events.log.listen(Arc::new(move |logged| watcher.tell(exec.now_ns(), logged)));
        }
        let own = Arc::downgrade(self);
        // Nobody waits for it.
        drop(self.exec.spawn_operation("z-watch", Box::new(move || run(&own, &watcher, &exec))));
    }

    /// Looks for I/Os that hang, every `zfs_deadman_checktime_ms`.
    fn look_for_hangs(&self, last_ns: &mut u64) {
        let now = self.exec.now_ns();
        let every = self.parameters.get("zfs_deadman_checktime_ms").unwrap_or(60_000).saturating_mul(1_000_000);
        if now.saturating_sub(*last_ns) < every {
            return;
        }
        *last_ns = now;
        let get = |name| self.parameters.get(name).unwrap_or(u64::MAX);
        let (io_ms, sync_ms) = (get("zfs_deadman_ziotime_ms"), get("zfs_deadman_synctime_ms"));
        for open in &self.pools.all() {
            // While a txg takes too long, what it may wait for is told earlier (OpenZFS: `spa_deadman`).
            let hangs = open.pool().txgs().syncing_for_ns().is_some_and(|age_ns| age_ns / 1_000_000 > sync_ms);
            open.pool().zio().check_deadman_of(if hangs { io_ms.min(sync_ms) } else { io_ms });
        }
    }

    /// Tells of devices that are slow or err among their siblings, and of those that sit out since they are, every
    /// `vdev_raidz_outlier_check_interval_ms`.
    fn compare_siblings(&self, last_ns: &mut u64) {
        let now = self.exec.now_ns();
        let every = self.parameters.get("vdev_raidz_outlier_check_interval_ms").unwrap_or(1000).saturating_mul(1_000_000);
        if now.saturating_sub(*last_ns) < every {
            return;
        }
        *last_ns = now;
        for open in &self.pools.all() {
            let news = open.pool().outliers().look(&|| open.vdev_props());
            for (class, outliers) in [(OUTLIER, &news.named), (SITOUT, &news.sat_out)] {
                outliers.iter().for_each(|outlier| self.tell(open, class, outlier));
            }
        }
    }

    fn tell(&self, open: &OpenPool, class: &'static str, outlier: &Outlier) {
        let Outlier { leaf, path, defect } = outlier;
        let what = if class == SITOUT { " sits out: reads pass over it" } else { "" };
        tracing::warn!("pool '{}': device {path} (vdev {}){what}: {defect}", open.name(), leaf.0);
        let event = Event::new(class).with("pool", open.name()).with("pool_guid", open.pool().guid().0);
        self.events.log.event(event.with("vdev_guid", leaf.0).with("vdev_path", path.as_str()).with("reason", defect.to_string()));
    }
}

fn run(rounds: &Weak<Rounds>, watcher: &Watcher, exec: &Exec) {
    let folder = hooks::folder();
    let mut last_ns = exec.now_ns();
    let (mut looked_ns, mut compared_ns) = (last_ns, last_ns);
    while let Some(event) = watcher.next() {
        if let (Some(logged), Some(folder)) = (&event, &folder) {
            hooks::run(exec, folder, logged);
        }
        let Some(rounds) = rounds.upgrade() else { return };
        rounds.look_for_hangs(&mut last_ns);
        rounds.compare_siblings(&mut compared_ns);
        if exec.now_ns().saturating_sub(looked_ns) >= LOOK_NS {
            looked_ns = exec.now_ns();
            rounds.reopening.look_again();
            rounds.file.remember();
            // Somebody may have unmounted what we mounted.
            rounds.returning.note_mounts();
            rounds.handing.hold();
        }
        drop(rounds.injections.handlers());
    }
}
