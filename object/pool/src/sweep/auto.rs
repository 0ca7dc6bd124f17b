//! Automatic trim: what was freed and has rested is trimmed by itself, a part of the metaslabs after each txg (OpenZFS:
//! `vdev_autotrim_thread`).

use super::{Sweeps, load};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Sweeps {
    /// Turns it on or off (the property `autotrim`).
    pub fn set_autotrim(&self, on: bool) {
        self.autotrim.store(on, Ordering::Relaxed);
        for top in &self.zio.view().tree.tops {
            self.services.allocator.note_released(top.id, on);
        }
        self.changed.notify_all();
    }

    /// Has it done on a thread of its own.
    pub(super) fn spawn_auto(self: &Arc<Self>) {
        let is_free =
            || self.autotrim.load(Ordering::Relaxed) && !self.shared.lock().halted && !self.auto_runs.swap(true, Ordering::AcqRel);
        let sweeps = self.clone();
        self.crew.start_if(self.exec(), "z-autotrim", is_free, Box::new(move || sweeps.auto_loop()));
    }

    fn auto_loop(self: &Arc<Self>) {
        let is_on = || self.autotrim.load(Ordering::Relaxed) && !self.shared.lock().halted;
        while is_on() {
            self.changed.wait_until(self.exec(), &|| !is_on() || !self.shared.lock().auto_txgs.is_empty());
            self.auto_pass();
        }
        self.auto_runs.store(false, Ordering::Release);
        self.changed.notify_all();
    }

    /// Trims what became free in the metaslabs whose turn came with the txgs that were synced since the last time.
    pub fn auto_pass(self: &Arc<Self>) {
        let txgs = std::mem::take(&mut self.shared.lock().auto_txgs);
        if !self.autotrim.load(Ordering::Relaxed) {
            return;
        }
        let batch = load(&self.parameters.trim_txg_batch).max(1);
        let tree = self.zio.view().tree;
        for top in tree.tops.iter().filter(|top| top.is_concrete()) {
            // It is empty soon, and whose device it is then nobody knows; or nobody knows where its space is (OpenZFS: `vdev_autotrim_stop_wait`).
            if top.is_leaving || top.is_expanding() {
                self.services.allocator.note_released(top.id, false);
                continue;
            }
            self.services.allocator.note_released(top.id, true);
            for metaslab in 0..self.services.allocator.metaslab_count(top.id) {
                if self.shared.lock().halted {
                    return;
                }
                if txgs.iter().any(|txg| txg % batch == u64::from(metaslab) % batch) {
                    let released = self.services.allocator.take_released(top.id, metaslab);
                    if !released.is_empty() {
                        self.trim_released(top, metaslab, &released);
                    }
                }
            }
        }
    }
}
