//! What the daemon does unasked: it looks for I/Os that hang and for devices that are slow among their siblings, ends fault handlers that
//! are over, and runs programs on events. One thread, so that none of it holds up a request.

use crate::events::Events;
use crate::inject::Injections;
use crate::mount::handing::Handing;
use crate::mount::returning::Returning;
use crate::pool::Pools;
use crate::pool::cache_file::PoolsFile;
use crate::pool::reopening::Reopening;
use crate::watch::siblings::Look;
use crate::watch::watcher::Watcher;
use crate::watch::{hooks, memory};
use exec::Exec;
use kstat::{Event, EventSink};
use metrics::Parameters;
use pool::Pool;
use std::sync::{Arc, Weak};
use vdev::{LeafId, LeafState, VdevTree};
use zio::{EXTENDED, IoKind, Sample};

/// Class of the event that a device is slow or errs among its siblings; OpenZFS has none.
const OUTLIER: &str = "ereport.fs.zfs.zirconia_outlier";
/// Histograms of the times that a device takes for reads and writes, and whose errors belong to them.
const COMPARED: [(&str, IoKind); 2] = [("vdev_disk_r_lat_histo", IoKind::Read), ("vdev_disk_w_lat_histo", IoKind::Write)];
/// Nanoseconds between looks whether devices of pools that are not open are there, whether pools have other devices than are remembered,
/// and how devices do beside each other.
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

/// Leaf as it is now, to be compared; None for one that is not in use, or has work that its siblings don't.
fn look_of(pool: &Pool, tree: &VdevTree, id: LeafId, group: u32) -> Option<Look> {
    let leaf = tree.leaf(id);
    if leaf.state != LeafState::Online || !leaf.missing_txgs.is_empty() {
        return None;
    }
    let stats = pool.zio().leaf_stats_of(leaf.guid);
    let (counts, mut extended) = (stats.counts(), stats.extended());
    let samples = COMPARED.map(|(name, kind)| {
        let at = EXTENDED.iter().position(|stat| stat.name == name);
        let latencies = at.and_then(|at| extended.get_mut(at)).map(std::mem::take).unwrap_or_default();
        Sample { latencies, errors: counts.errors[kind as usize] }
    });
    Some(Look { guid: leaf.guid, group, samples })
}

/// Leaves of a pool that are open; siblings are those with heads or without, of the log or of the rest.
fn looks(pool: &Pool) -> Vec<Look> {
    let (tree, devices) = (pool.tree(), pool.devices());
    let mut looks = Vec::new();
    for top in &tree.tops {
        for id in top.leaves() {
            let Some(device) = devices.get(id.0 as usize).and_then(Option::as_ref) else { continue };
            let group = u32::from(top.is_log) * 2 + u32::from(device.is_rotational());
            looks.extend(look_of(pool, &tree, id, group));
        }
    }
    looks
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

    /// Tells of devices that are slow or err among their siblings.
    fn compare_siblings(&self) {
        for open in &self.pools.all() {
            let pool = open.pool();
            if pool.zio().is_suspended() {
                continue;
            }
            let now = looks(pool);
            let told = open.siblings.lock().look(&now);
            for (guid, defect) in told {
                let tree = pool.tree();
                let path = tree.leaves.iter().find(|leaf| leaf.guid == guid).map_or("", |leaf| leaf.path.as_str());
                tracing::warn!("pool '{}': device {path} (vdev {guid}): {defect}", open.name());
                let event = Event::new(OUTLIER).with("pool", open.name()).with("pool_guid", pool.guid().0);
                self.events.log.event(event.with("vdev_guid", guid.0).with("vdev_path", path).with("reason", defect.to_string()));
            }
        }
    }
}

fn run(rounds: &Weak<Rounds>, watcher: &Watcher, exec: &Exec) {
    let folder = hooks::folder();
    let mut last_ns = exec.now_ns();
    let mut looked_ns = last_ns;
    while let Some(event) = watcher.next() {
        if let (Some(logged), Some(folder)) = (&event, &folder) {
            hooks::run(exec, folder, logged);
        }
        let Some(rounds) = rounds.upgrade() else { return };
        rounds.look_for_hangs(&mut last_ns);
        if exec.now_ns().saturating_sub(looked_ns) >= LOOK_NS {
            looked_ns = exec.now_ns();
            rounds.reopening.look_again();
            rounds.file.remember();
            // Somebody may have unmounted what we mounted.
            rounds.returning.note_mounts();
            rounds.handing.hold();
            rounds.compare_siblings();
        }
        drop(rounds.injections.handlers());
    }
}
