//! The loop that does a scan's work: by the view that the last sync gave it it finds blocks until the queue is full, has the queue read, and
//! goes on. It knows neither who asked for the scan nor what of it is on disk.
//!
//! No lock is held across a wait.

use crate::cursor::{Cursor, Position};
use crate::datasets::{self, Item};
use crate::queue;
use crate::scan::{Checkpoint, Scan, View};
use crate::walk::{Scope, Walk};
use ondisk::{BlockPtr, ObjsetId, Txg};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Part of the queue, as 1/n, that is read to make room when memory is short (OpenZFS: `zfs_scan_mem_lim_soft_fact`, which is smaller).
const ROOM_PART: usize = 4;

/// Worker that runs the loop; one at a time.
pub(crate) struct Worker<'a> {
    pub(crate) scan: &'a Arc<Scan>,
}

impl Worker<'_> {
    /// Walks and reads until there is nothing to do, or the scan is to stop.
    pub(crate) fn work(&self) {
        while let Some(view) = self.next_view() {
            self.scan.wait_while_suspended();
            queue::bound_flight(self.scan);
            let walked = self.walk(&view);
            let full = self.scan.is_full();
            let due = self.is_checkpoint_due();
            if walked == Walked::NoRoot && !full && !due {
                self.next_txg();
                continue;
            }
            // A view that went out of date ended the walk early: find more by the next one before reading.
            if self.scan.is_stopping() || (walked == Walked::Part && !full && !due) {
                continue;
            }
            let all = walked == Walked::All || due || self.scan.one_batch.load(Ordering::Relaxed);
            let keep = if all { 0 } else { self.scan.queue_room() - self.scan.queue_room().div_ceil(ROOM_PART) };
            if queue::read_down_to(self.scan, keep) && self.scan.queue.lock().len() == 0 {
                self.checkpoint(walked == Walked::All);
            }
            if walked == Walked::All && !self.scan.is_stopping() {
                self.next_txg();
            }
            if self.scan.one_batch.load(Ordering::Relaxed) {
                self.scan.stopping.store(true, Ordering::Release);
            }
        }
    }

    /// True when everything found is to be read: the checkpoint interval has passed.
    fn is_checkpoint_due(&self) -> bool {
        let interval_ns = self.scan.tunables().checkpoint_seconds.saturating_mul(1_000_000_000);
        self.scan.exec().now_ns().saturating_sub(self.scan.checkpoint_ns.load(Ordering::Relaxed)) >= interval_ns
    }

    /// Everything found was read: a restart can go on from here.
    fn checkpoint(&self, complete: bool) {
        self.scan.checkpoint_ns.store(self.scan.exec().now_ns(), Ordering::Relaxed);
        let mut shared = self.scan.shared.lock();
        let repaired = self.scan.repaired_since(shared.repaired_base);
        shared.checkpoint = Checkpoint { cursor: shared.cursor, counters: self.scan.progress.counters(), repaired };
        shared.complete = complete;
    }

    /// Waits for the next sync.
    fn next_txg(&self) {
        if !self.scan.await_synced(self.scan.txgs.open_txg()) {
            // The pool failed or is being closed: nothing more can be done.
            self.scan.shared.lock().halted = true;
            self.scan.stopping.store(true, Ordering::Release);
        }
    }

    /// The view to walk by; None when there is nothing to do any more.
    fn next_view(&self) -> Option<Arc<View>> {
        loop {
            {
                let mut shared = self.scan.shared.lock();
                if self.scan.is_stopping() || !shared.has_work() {
                    shared.running = false;
                    return None;
                }
                if let Some(view) = shared.view.as_ref().filter(|_| shared.is_active()) {
                    return Some(view.clone());
                }
            }
            // An error scrub is done by the syncs: without progress there is nothing to hurry them for.
            self.scan.wait_while_suspended();
            self.next_txg();
        }
    }

    /// Walks on from the cursor.
    fn walk(&self, view: &View) -> Walked {
        loop {
            let (mut cursor, item, (above, until)) = {
                let shared = self.scan.shared.lock();
                if !self.scan.is_current(view.generation) {
                    return Walked::Part;
                }
                let item = shared.cursor.dataset.map(|index| shared.list.get(index).copied());
                (shared.cursor, item, (Txg(shared.phys.scn_min_txg), Txg(shared.phys.scn_max_txg)))
            };
            let scope = match item {
                None => Scope { objset: ObjsetId(0), root: view.mos_root, after: above, until },
                Some(None) => return Walked::All,
                Some(Some(item)) => match view.roots.get(&item.object) {
                    None => return Walked::NoRoot,
                    Some(None) => Scope { objset: ObjsetId(item.object), root: BlockPtr::HOLE, after: until, until },
                    Some(Some(root)) => Scope { objset: ObjsetId(item.object), root: root.bp, after: root.after.max(above), until },
                },
            };
            let done = Walk::run(self.scan, view.generation, scope, &mut cursor.position).is_ok();
            let list = if done && item.is_none() { Some(self.list_datasets(until)) } else { None };
            let mut shared = self.scan.shared.lock();
            if let Some(list) = list {
                shared.list = Arc::new(list);
            }
            if !done {
                // A snapshot that the sync put in front of its head meanwhile goes on where the head was.
                shared.cursor.position = cursor.position;
                return Walked::Part;
            }
            let next = item.flatten().and_then(|item| shared.list.iter().position(|listed| *listed == item)).map_or(0, |index| index + 1);
            shared.cursor = Cursor { dataset: Some(next), position: Position::default() };
        }
    }

    fn list_datasets(&self, until: Txg) -> Vec<Item> {
        datasets::list(&self.scan.mos, until).unwrap_or_else(|_| {
            self.scan.progress.error();
            Vec::new()
        })
    }
}

/// End of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walked {
    /// Walk visited everything.
    All,
    /// Walk ended early: the queue is full, or the view is out of date.
    Part,
    /// The view does not have the next dataset's root.
    NoRoot,
}
