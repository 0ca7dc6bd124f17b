//! The work of a rebuild: from metaslab to metaslab, part by part, as many in flight as memory allows. What limits it is how fast the
//! devices that lack something take their writes.

use super::{Outcome, Pass, RebuildState, Rebuilds, Shared, load};
use exec::TaskClass;
use metaslab::Hold;
use ondisk::{Txg, VdevId};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use vdev::TopVdev;
use zio::{RebuildRequest, Rebuilt};

/// At least so much is in flight.
const FLIGHT_BYTES_MIN: u64 = 1 << 20;

/// So much is read of a device at once though memory is short.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// Ranges that are rebuilt in order of their addresses, with what keeps their metaslabs as they are.
type Lane = VecDeque<(Range<u64>, Arc<Hold>)>;

/// The metaslabs that are rebuilt together, from the first of `left` on: as many slices as there are children, so that about all
/// of them have work, whichever a slice's writes go to.
fn window(top: &TopVdev, left: Range<u32>) -> Range<u32> {
    let children = top.node.as_ref().map_or(1, |node| node.children.len()) as u64;
    let bytes = top.rebuild_stride().map_or(0, |stride| stride.saturating_mul(children));
    let stop = top.metaslab_range(left.start).start.saturating_add(bytes);
    let past = left.clone().skip(1).find(|metaslab| top.metaslab_range(*metaslab).start >= stop);
    left.start..past.unwrap_or(left.end)
}

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
            shared.following = shared.workers == 0 && !shared.halted && !shared.tops.values().any(super::Top::is_active);
            shared.following.then(|| std::mem::take(&mut shared.completed))
        };
        if let Some(completed) = ended {
            self.follow_up(completed);
            self.shared.lock().following = false;
        }
        self.changed.notify_all();
    }

    /// What the rebuild could not bring, a healing resilver does; else a scrub looks whether all is right.
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
                let begun = |top: &super::Top| top.phys.vrp_rebuild_state == RebuildState::Active.number() && !top.wanted;
                let is_free = |(vdev, top): &(&VdevId, &super::Top)| begun(top) && top.outcome.is_none() && !shared.sweeping.contains(vdev);
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
        while next < count {
            let tree = self.zio.view().tree;
            let Some(top) = tree.top(vdev).filter(|top| top.can_rebuild()) else { return Some(Outcome::Cancel) };
            if tree.rebuild_range(top).is_none() {
                self.drain(vdev);
                return Some(Outcome::Cancel);
            }
            let metaslabs = window(top, next..count);
            next = metaslabs.end;
            if !self.sweep_window(top, metaslabs, first) {
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

    /// Begins every part of the metaslabs behind `first`; false when it was told to stop before the end. Lanes take turns, so that their
    /// devices work at the same time.
    fn sweep_window(self: &Arc<Self>, top: &TopVdev, metaslabs: Range<u32>, first: u64) -> bool {
        let (start, end) = (top.metaslab_range(metaslabs.start).start, top.metaslab_range(metaslabs.end - 1).end);
        let mut lanes = self.lanes(top, metaslabs, first);
        let is_ordered = lanes.len() <= 1;
        let segment = self.segment_bytes(top, lanes.len());
        while !lanes.is_empty() {
            for lane in &mut lanes {
                let Some((range, hold)) = lane.pop_front() else { continue };
                let part = range.start..range.start + top.rebuild_part(range.start, range.end - range.start, segment);
                if part.end < range.end {
                    lane.push_front((part.end..range.end, hold.clone()));
                }
                let place = if is_ordered { part.end } else { start.max(first) };
                if !self.begin_part(top, part, &hold, place) {
                    return false;
                }
            }
            lanes.retain(|lane| !lane.is_empty());
        }
        if let Some(top) = self.shared.lock().tops.get_mut(&top.id) {
            top.pass.cursor = end.max(first);
        }
        true
    }

    /// What is allocated in the metaslabs behind `first`, by the slices that have their writes on different devices.
    fn lanes(&self, top: &TopVdev, metaslabs: Range<u32>, first: u64) -> Vec<Lane> {
        let stride = top.rebuild_stride().unwrap_or(u64::MAX);
        let mut lanes: BTreeMap<u64, Lane> = BTreeMap::new();
        for metaslab in metaslabs {
            let (hold, allocated) = self.services.allocator.hold(top.id, metaslab);
            let hold = Arc::new(hold);
            for range in allocated {
                let mut start = range.start.max(first);
                while start < range.end {
                    let number = start / stride;
                    let end = range.end.min((number + 1).saturating_mul(stride));
                    lanes.entry(number).or_default().push_back((start..end, hold.clone()));
                    start = end;
                }
            }
        }
        lanes.into_values().collect()
    }

    /// Bytes read of a device at once: the parameter's, less where memory would not do for two parts of every lane.
    fn segment_bytes(&self, top: &TopVdev, lanes: usize) -> u64 {
        let share = self.flight_bytes_max(top) / (2 * lanes.max(1) * top.rebuild_width()) as u64;
        load(&self.parameters.max_segment).min(share.max(SEGMENT_BYTES_MIN))
    }

    /// Bytes that may be in flight (OpenZFS: `vr_bytes_inflight_max`).
    fn flight_bytes_max(&self, top: &TopVdev) -> u64 {
        let children = top.node.as_ref().map_or(1, |node| node.children.len().max(1)) as u64;
        let tops = self.zio.view().tree.tops.len().max(1) as u64;
        let wanted = load(&self.parameters.vdev_limit).saturating_mul(children).max(FLIGHT_BYTES_MIN);
        wanted.min(self.memory_bytes / 2 / tops).max(FLIGHT_BYTES_MIN)
    }

    /// Begins one part as soon as there is room for it.
    /// `place` is where a rebuild that is interrupted begins at the latest.
    fn begin_part(self: &Arc<Self>, top: &TopVdev, part: Range<u64>, hold: &Arc<Hold>, place: u64) -> bool {
        let (vdev, length, most) = (top.id, part.end - part.start, self.flight_bytes_max(top));
        let has_room = |shared: &Shared| {
            let pass = shared.tops.get(&vdev).map(|top| &top.pass);
            Rebuilds::should_stop(shared, vdev)
                || pass.is_none_or(|pass| pass.in_flight.is_empty() || pass.in_flight_bytes + length <= most)
        };
        loop {
            {
                let mut shared = self.shared.lock();
                if Rebuilds::should_stop(&shared, vdev) {
                    return false;
                }
                if has_room(&shared) {
                    if let Some(budget) = &mut shared.budget {
                        *budget -= 1;
                    }
                    let Some(top) = shared.tops.get_mut(&vdev) else { return false };
                    top.pass.in_flight.insert(part.start);
                    top.pass.in_flight_bytes += length;
                    top.pass.cursor = place;
                    top.pass.scanned += length;
                    top.phys.vrp_bytes_scanned += length;
                    break;
                }
            }
            self.changed.wait_until(self.exec(), &|| has_room(&self.shared.lock()));
        }
        let (rebuilds, hold) = (self.clone(), hold.clone());
        let request = RebuildRequest { vdev, offset: part.start, asize: length };
        let job = move || {
            let owner = rebuilds.clone();
            rebuilds.zio.rebuild(
                request,
                Box::new(move |done| {
                    drop(hold);
                    owner.part_done(&request, done);
                }),
            );
        };
        self.exec().spawn(TaskClass::Background, Box::new(job));
        true
    }

    fn part_done(&self, request: &RebuildRequest, done: Rebuilt) {
        {
            let mut shared = self.shared.lock();
            let Some(top) = shared.tops.get_mut(&request.vdev) else { return };
            top.pass.in_flight.remove(&request.offset);
            top.pass.in_flight_bytes -= request.asize;
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
