//! The work of a rebuild: part by part, in a window of metaslabs that moves on, as many in flight as memory allows. What limits it is how fast the
//! devices that lack something take their writes.

use super::order::{Next, Order, Work};
use super::{Outcome, Pass, RebuildState, Rebuilds, Shared, Top, load};
use exec::TaskClass;
use metaslab::Hold;
use ondisk::{Txg, VdevId};
use std::sync::Arc;
use vdev::{TopVdev, VdevTree};
use zio::{RebuildRequest, Rebuilt};

/// Fewest bytes that are in flight.
const FLIGHT_BYTES_MIN: u64 = 1 << 20;

/// Bytes that are read of a device at once though memory is short.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// The window has so many slices for each child: then all of them have about as much work in it, whichever lies where.
const WINDOW_SLICES: u64 = 4;

/// No more metaslabs are held together once so many ranges of them wait.
const RANGES_MAX: usize = 1 << 20;

/// A device of a dRAID is to have so many parts in flight.
const DEPTH: u64 = 16;

impl Rebuilds {
    /// Does the work on this thread until there is none; with `parts` at most so many of them.
    pub fn run(self: &Arc<Self>, parts: Option<usize>) {
        {
            let mut shared = self.shared.lock();
            if shared.workers > 0 {
                return;
            }
            shared.budget = parts;
        }
        if self.claim() {
            self.work();
        }
        self.shared.lock().budget = None;
    }

    pub(super) fn work(self: &Arc<Self>) {
        // As a resilver does, a rebuild takes the place of a scrub.
        let _ = self.scan.stop();
        while let Some(vdev) = self.next() {
            let outcome = self.sweep(vdev);
            {
                let mut shared = self.shared.lock();
                shared.completed |= outcome == Some(Outcome::Complete);
                shared.sweeping.remove(&vdev);
                if let Some(top) = shared.tops.get_mut(&vdev) {
                    top.outcome = outcome;
                }
            }
            if outcome.is_some() && !self.next_txg() {
                break;
            }
        }
        let ended = {
            let mut shared = self.shared.lock();
            shared.workers -= 1;
            shared.following = shared.workers == 0 && !shared.halted && !shared.tops.values().any(Top::is_active);
            shared.following.then(|| std::mem::take(&mut shared.completed))
        };
        if let Some(completed) = ended {
            self.follow_up(completed);
            self.shared.lock().following = false;
        }
        self.changed.notify_all();
    }

    /// Begins a healing resilver when the rebuild left something missing; else a scrub that looks whether all is right.
    fn follow_up(&self, completed: bool) {
        if self.zio.view().tree.resilver_range().is_some() {
            let _ = self.scan.resilver();
        } else if completed && load(&self.parameters.scrub_enabled) != 0 {
            let _ = self.scan.start(Txg::ZERO);
        }
    }

    /// The vdev to work on; None when all have somebody who does. One that is to begin does so with the next sync.
    fn next(&self) -> Option<VdevId> {
        loop {
            {
                let mut shared = self.shared.lock();
                if Rebuilds::waiting(&shared) == 0 {
                    return None;
                }
                let begun = |top: &Top| top.phys.vrp_rebuild_state == RebuildState::Active.number() && !top.wanted;
                let is_free = |(vdev, top): &(&VdevId, &Top)| begun(top) && top.outcome.is_none() && !shared.sweeping.contains(vdev);
                let found = shared.tops.iter().find(is_free).map(|(vdev, _)| *vdev);
                if let Some(vdev) = found {
                    shared.sweeping.insert(vdev);
                    return Some(vdev);
                }
            }
            if !self.next_txg() {
                return None;
            }
        }
    }

    /// Waits for the next sync; false when there will be none.
    fn next_txg(&self) -> bool {
        self.txgs.wait_synced(self.txgs.open_txg()).is_ok()
    }

    fn should_stop(shared: &Shared, vdev: VdevId) -> bool {
        shared.halted || shared.budget == Some(0) || shared.tops.get(&vdev).is_none_or(|top| top.wanted)
    }

    /// Rebuilds one vdev; None when it is to go on later or to begin again.
    fn sweep(self: &Arc<Self>, vdev: VdevId) -> Option<Outcome> {
        let (through, first) = {
            let mut shared = self.shared.lock();
            let top = shared.tops.get_mut(&vdev)?;
            // A clock that begins with the process may stand at 0.
            let (start_ns, cursor) = (self.exec().now_ns().max(1), top.phys.vrp_last_offset);
            top.pass = Pass { start_ns, earlier_ms: top.phys.vrp_scan_time_ms, cursor, ..Pass::default() };
            top.phys.vrp_bytes_est = self.services.allocator.vdev_space(vdev).allocated;
            (Txg(top.phys.vrp_max_txg), cursor)
        };
        while self.txgs.synced_txg() < through {
            if !self.next_txg() {
                return None;
            }
        }
        let (count, mut next) = (self.services.allocator.metaslab_count(vdev), 0);
        let mut tree = self.zio.view().tree;
        let mut order = Order::new(tree.top(vdev)?.rebuild_width());
        loop {
            if next < count && is_wanted(&order, tree.top(vdev)?, next) {
                tree = self.zio.view().tree;
                let Some(top) = tree.top(vdev).filter(|top| top.can_rebuild()) else { return Some(Outcome::Cancel) };
                if tree.rebuild_range(top).is_none() {
                    self.drain(vdev);
                    return Some(Outcome::Cancel);
                }
                self.load(&tree, top, next, first, &mut order);
                next += 1;
                continue;
            }
            let top = tree.top(vdev)?;
            let beyond = top.metaslab_range(next).start.max(first);
            if order.len() == 0 {
                if let Some(top) = self.shared.lock().tops.get_mut(&vdev) {
                    top.pass.cursor = beyond;
                }
                break;
            }
            if !self.begin_next(top, &mut order, beyond) {
                self.drain(vdev);
                return None;
            }
        }
        self.drain(vdev);
        let again = Rebuilds::should_stop(&self.shared.lock(), vdev);
        (!again).then_some(Outcome::Complete)
    }

    /// Waits until nothing is in flight.
    fn drain(&self, vdev: VdevId) {
        let idle = |shared: &Shared| shared.tops.get(&vdev).is_none_or(|top| top.pass.in_flight.is_empty());
        self.changed.wait_until(self.exec(), &|| idle(&self.shared.lock()));
    }

    /// Adds what is allocated in a metaslab behind `first`.
    fn load(&self, tree: &VdevTree, top: &TopVdev, metaslab: u32, first: u64, order: &mut Order<Arc<Hold>>) {
        let stride = top.rebuild_stride().unwrap_or(u64::MAX);
        let (hold, allocated) = self.services.allocator.hold(top.id, metaslab);
        let hold = Arc::new(hold);
        for range in allocated {
            let mut start = range.start.max(first);
            while start < range.end {
                let number = start / stride;
                let end = range.end.min((number + 1).saturating_mul(stride));
                order.add(number, (start..end, hold.clone()), || top.rebuild_need(tree, start));
                start = end;
            }
        }
    }

    /// Bytes read of a device at once: the parameter's, less where memory would not do for enough parts.
    fn segment_bytes(&self, top: &TopVdev) -> u64 {
        let parts = top.rebuild_stride().map_or(2, |_| DEPTH * children(top));
        load(&self.parameters.max_segment).min((self.flight_bytes_max(top) / parts).max(SEGMENT_BYTES_MIN))
    }

    /// Bytes that may be in flight (OpenZFS: `vr_bytes_inflight_max`).
    fn flight_bytes_max(&self, top: &TopVdev) -> u64 {
        let tops = self.zio.view().tree.tops.len().max(1) as u64;
        let wanted = load(&self.parameters.vdev_limit).saturating_mul(children(top)).max(FLIGHT_BYTES_MIN);
        wanted.min(self.memory_bytes / 2 / tops).max(FLIGHT_BYTES_MIN)
    }

    /// Begins the next part as soon as there is room for it; false when it is to stop. All addresses from `beyond` on come later.
    fn begin_next(self: &Arc<Self>, top: &TopVdev, order: &mut Order<Arc<Hold>>, beyond: u64) -> bool {
        let (vdev, most, segment) = (top.id, self.flight_bytes_max(top), self.segment_bytes(top));
        let largest = segment * top.rebuild_width() as u64;
        let has_room = |shared: &Shared| {
            let pass = shared.tops.get(&vdev).map(|top| &top.pass);
            Rebuilds::should_stop(shared, vdev)
                || pass.is_none_or(|pass| pass.in_flight.is_empty() || pass.in_flight_bytes + largest <= most)
        };
        loop {
            self.changed.wait_until(self.exec(), &|| !self.is_held(vdev));
            {
                let mut shared = self.shared.lock();
                if Rebuilds::should_stop(&shared, vdev) {
                    return false;
                }
                if has_room(&shared) {
                    if let Some(budget) = &mut shared.budget {
                        *budget -= 1;
                    }
                    let Some(Top { pass, phys, .. }) = shared.tops.get_mut(&vdev) else { return false };
                    let cut = |start: u64, length: u64| top.rebuild_part(start, length, segment);
                    let Some(next) = order.take(&pass.flight, segment, cut) else { return false };
                    let length = next.part.end - next.part.start;
                    pass.in_flight.insert(next.part.start);
                    pass.in_flight_bytes += length;
                    pass.flight.begin(&next.work);
                    pass.cursor = order.first().unwrap_or(beyond);
                    pass.scanned += length;
                    phys.vrp_bytes_scanned += length;
                    drop(shared);
                    self.begin_part(vdev, next);
                    return true;
                }
            }
            self.changed.wait_until(self.exec(), &|| has_room(&self.shared.lock()));
        }
    }

    /// True while the vdev's rebuild is to make no progress, unless it is to stop or nothing needs it any more.
    fn is_held(&self, vdev: VdevId) -> bool {
        if load(&self.parameters.suspended) == 0 || Rebuilds::should_stop(&self.shared.lock(), vdev) {
            return false;
        }
        let tree = self.zio.view().tree;
        tree.top(vdev).is_some_and(|top| top.can_rebuild() && tree.rebuild_range(top).is_some())
    }

    fn begin_part(self: &Arc<Self>, vdev: VdevId, next: Next<Arc<Hold>>) {
        let Next { part, hold, spared, work } = next;
        let rebuilds = self.clone();
        let request = RebuildRequest { vdev, offset: part.start, asize: part.end - part.start, spared };
        let job = move || {
            let owner = rebuilds.clone();
            rebuilds.zio.rebuild(
                request,
                Box::new(move |done| {
                    drop(hold);
                    owner.part_done(&request, &work, done);
                }),
            );
        };
        self.exec().spawn(TaskClass::Background, Box::new(job));
    }

    fn part_done(&self, request: &RebuildRequest, work: &Work, done: Rebuilt) {
        {
            let mut shared = self.shared.lock();
            let Some(top) = shared.tops.get_mut(&request.vdev) else { return };
            top.pass.in_flight.remove(&request.offset);
            top.pass.in_flight_bytes -= request.asize;
            top.pass.flight.end(work);
            if done.needed {
                top.pass.issued += request.asize;
                top.phys.vrp_bytes_issued += request.asize;
            } else {
                top.pass.skipped += request.asize;
            }
            top.phys.vrp_bytes_rebuilt += done.written_bytes;
            top.phys.vrp_errors += u64::from(done.failed);
        }
        self.changed.notify_all();
    }
}

fn children(top: &TopVdev) -> u64 {
    top.node.as_ref().map_or(1, |node| node.children.len().max(1)) as u64
}

/// True when a metaslab belongs to the window, which begins where not all is begun.
fn is_wanted<H: Clone>(order: &Order<H>, top: &TopVdev, metaslab: u32) -> bool {
    let bytes = top.rebuild_slice().map_or(0, |slice| slice * children(top) * WINDOW_SLICES);
    let stop = order.first().map(|first| first + bytes);
    stop.is_none_or(|stop| order.len() < RANGES_MAX && top.metaslab_range(metaslab).start < stop)
}
