//! The rebuilds' part of a txg's sync: they begin, note how far they are, and end (OpenZFS: the `_sync` functions of
//! `vdev_rebuild.c`).

use super::{Outcome, Pass, RebuildState, Rebuilds};
use crate::PoolError;
use crate::spa::adapter::WaitsFor;
use crate::spa::features::DEVICE_REBUILD;
use crate::spa::news::RebuildNews;
use crate::sync::step::{SyncStep, Syncing};
use dmu::Tx;
use kstat::Event;
use ondisk::names::top_zap;
use ondisk::{RebuildPhys, Txg, VdevId, to_words};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zap::{Value, Zap};

/// The rebuilds' place in the sync.
pub(crate) struct RebuildStep(pub Arc<Rebuilds>);

impl SyncStep for RebuildStep {
    fn name(&self) -> &'static str {
        "sequential rebuilds"
    }
    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Devices
    }
    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let done = self.0.sync(at.tx);
        self.0.changed.notify_all();
        done
    }
}

impl Rebuilds {
    fn sync(&self, tx: &Tx) -> Result<(), PoolError> {
        if self.services.forget_rebuilds.swap(false, Ordering::AcqRel) {
            self.forget(tx)?;
        }
        let vdevs: Vec<VdevId> = self.shared.lock().tops.keys().copied().collect();
        for vdev in vdevs {
            let (wanted, outcome, active) = {
                let mut shared = self.shared.lock();
                let sweeping = shared.sweeping.contains(&vdev);
                let Some(top) = shared.tops.get_mut(&vdev) else { continue };
                let active = top.phys.vrp_rebuild_state == RebuildState::Active.number();
                // A sweep that is to begin again ends first.
                let wanted = top.wanted && !sweeping;
                (wanted, if wanted { None } else { top.outcome.take() }, active)
            };
            match (wanted, outcome) {
                (true, _) => self.begin(vdev, active, tx)?,
                (false, Some(outcome)) => self.end(vdev, outcome, tx)?,
                (false, None) if active => self.store_place(vdev, tx)?,
                (false, None) => {}
            }
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        self.exec().wall_clock().0 as u64
    }

    /// Begins what leaves of the vdev lack now; with `again` in place of the one that runs.
    fn begin(&self, vdev: VdevId, again: bool, tx: &Tx) -> Result<(), PoolError> {
        let tree = self.zio.view().tree;
        let range = tree.top(vdev).filter(|top| top.can_rebuild()).and_then(|top| tree.rebuild_range(top));
        let Some((min_txg, max_txg)) = range else {
            let mut shared = self.shared.lock();
            if let Some(top) = shared.tops.get_mut(&vdev) {
                top.wanted = false;
            }
            return Ok(());
        };
        if !again {
            self.services.features.add(DEVICE_REBUILD, 1, tx)?;
        }
        {
            let mut shared = self.shared.lock();
            let top = shared.tops.entry(vdev).or_default();
            let start_time = if again { top.phys.vrp_start_time } else { self.now() };
            (top.wanted, top.outcome, top.pass) = (false, None, Pass::default());
            top.phys = RebuildPhys {
                vrp_rebuild_state: RebuildState::Active.number(),
                vrp_min_txg: min_txg.0,
                vrp_max_txg: max_txg.0,
                vrp_start_time: start_time,
                vrp_bytes_est: self.services.allocator.vdev_space(vdev).allocated,
                ..RebuildPhys::default()
            };
        }
        self.log(vdev, if again { "reset" } else { "started" }, tx);
        if !again {
            self.notify("sysevent.fs.zfs.resilver_start");
        }
        self.services.rebuild_news.lock().push(RebuildNews::Began(vdev, max_txg));
        self.store(vdev, tx)
    }

    fn end(&self, vdev: VdevId, outcome: Outcome, tx: &Tx) -> Result<(), PoolError> {
        let complete = outcome == Outcome::Complete;
        let (max_txg, is_whole) = {
            let mut shared = self.shared.lock();
            let Some(top) = shared.tops.get_mut(&vdev) else { return Ok(()) };
            top.phys.vrp_scan_time_ms = self.time_ms(&top.pass);
            top.phys.vrp_rebuild_state = if complete { RebuildState::Complete } else { RebuildState::Canceled }.number();
            top.phys.vrp_end_time = self.now();
            (Txg(top.phys.vrp_max_txg), complete && top.phys.vrp_errors == 0)
        };
        self.services.features.add(DEVICE_REBUILD, -1, tx)?;
        self.log(vdev, if complete { "complete" } else { "canceled" }, tx);
        self.notify("sysevent.fs.zfs.resilver_finish");
        self.services.rebuild_news.lock().push(RebuildNews::Ended(vdev, max_txg, is_whole));
        self.store(vdev, tx)
    }

    /// Writes down where a rebuild goes on from after a crash: everything before is written, and flushed with this txg.
    fn store_place(&self, vdev: VdevId, tx: &Tx) -> Result<(), PoolError> {
        {
            let mut shared = self.shared.lock();
            let Some(top) = shared.tops.get_mut(&vdev).filter(|top| top.pass.start_ns != 0) else { return Ok(()) };
            let place = top.pass.in_flight.first().map_or(top.pass.cursor, |first| top.pass.cursor.min(*first));
            // Time alone is no news.
            if place == top.phys.vrp_last_offset {
                return Ok(());
            }
            (top.phys.vrp_last_offset, top.phys.vrp_scan_time_ms) = (place, self.time_ms(&top.pass));
        }
        self.store(vdev, tx)
    }

    fn time_ms(&self, pass: &Pass) -> u64 {
        let now_ns = if pass.start_ns == 0 { 0 } else { self.exec().now_ns() };
        pass.earlier_ms + now_ns.saturating_sub(pass.start_ns) / 1_000_000
    }

    fn store(&self, vdev: VdevId, tx: &Tx) -> Result<(), PoolError> {
        let words = self.shared.lock().tops.get(&vdev).map(|top| to_words(&top.phys)).unwrap_or_default();
        let tree = self.zio.view().tree;
        if let Some(top) = tree.top(vdev).filter(|top| top.zap.0 != 0 && !words.is_empty()) {
            Zap::hold(&self.mos, top.zap)?.update(top_zap::VDEV_REBUILD_PHYS, &Value::U64(words), tx)?;
        }
        Ok(())
    }

    /// Forgets rebuilds that ended: a resilver begins, which tells more than they do (OpenZFS: `vdev_rebuild_clear_sync`).
    fn forget(&self, tx: &Tx) -> Result<(), PoolError> {
        let ended: Vec<VdevId> = {
            let shared = self.shared.lock();
            let ended =
                shared.tops.iter().filter(|(_, top)| !top.is_active() && top.outcome.is_none() && top.phys != RebuildPhys::default());
            ended.map(|(vdev, _)| *vdev).collect()
        };
        for vdev in ended {
            if let Some(top) = self.shared.lock().tops.get_mut(&vdev) {
                top.phys = RebuildPhys::default();
            }
            self.store(vdev, tx)?;
        }
        Ok(())
    }

    /// Tells that a rebuild began or ended (OpenZFS: `vdev_rebuild_log_notify`).
    fn notify(&self, class: &'static str) {
        let event = Event::new(class).with("pool", self.services.name.read().as_str()).with("pool_guid", self.zio.view().facts.guid.0);
        self.services.events.event(event.with("resilver_type", "sequential"));
    }

    fn log(&self, vdev: VdevId, what: &str, tx: &Tx) {
        let tree = self.zio.view().tree;
        let guid = tree.tops.get(vdev.0 as usize).map_or(0, |top| top.guid.0);
        self.services.log_internal("rebuild", &format!("vdev_id={} vdev_guid={guid} {what}", vdev.0), tx);
    }
}
