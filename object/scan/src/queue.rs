//! Reading the collected blocks in the order of their addresses, several at a time.
//!
//! A *lane* is a chain of reads: when one ends, the lane takes the next block. Lanes are jobs of the background class; with a
//! device that completes at once a lane is a loop on one worker, so there are enough of them for all workers. A lane ends when
//! the gate has no room or is closed; those that go on start others again.

use crate::gate::Entry as Pass;
use crate::scan::Scan;
use exec::{Mutex, TaskClass, WaitQueue};
use ondisk::{BlockPtr, Bookmark};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zio::{Priority, ReadFlags, ReadRequest};

/// Reads in flight at most; how many bytes is up to the gate.
const LANES_MAX: usize = 32;
/// Blocks that complete at once before a lane lets other work pass.
const RUN_MAX: usize = 16;

/// A block to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) bp: BlockPtr,
    pub(crate) at: Bookmark,
}

/// How a read of the scan is asked for. A scrub reads every copy and all parity and repairs what is wrong; a resilver reads what
/// it needs to write what leaves lack.
pub(crate) fn scan_read(bp: BlockPtr, at: Bookmark, resilver: bool) -> ReadRequest {
    let flags = ReadFlags { scrub: !resilver, resilver, ..ReadFlags::default() };
    ReadRequest { bp, bookmark: at, priority: Priority::Scrub, flags }
}

#[derive(Debug, Default)]
struct State {
    next: usize,
    lanes: usize,
}

/// A sorted batch that is being read.
pub(crate) struct Batch {
    scan: Arc<Scan>,
    resilver: bool,
    entries: Vec<Entry>,
    state: Mutex<State>,
    ended: WaitQueue,
}

/// Reads all of `queue`, which is empty afterwards; false when the scan was told to stop before the end: then the rest is in it.
pub(crate) fn read_all(scan: &Arc<Scan>, queue: &mut Vec<Entry>) -> bool {
    let mut entries = std::mem::take(queue);
    entries.sort_unstable_by_key(|entry| {
        let dva = entry.bp.dva(0);
        (dva.vdev, dva.offset)
    });
    let batch =
        Arc::new(Batch { scan: scan.clone(), resilver: scan.is_resilver(), entries, state: Mutex::default(), ended: WaitQueue::new() });
    loop {
        batch.add_lanes();
        batch.ended.wait_until(scan.exec(), &|| batch.state.lock().lanes == 0);
        if scan.is_stopping() {
            queue.extend_from_slice(&batch.entries[batch.state.lock().next..]);
            return queue.is_empty();
        }
        if batch.state.lock().next >= batch.entries.len() {
            return true;
        }
        scan.gate.wait_open(scan.exec());
    }
}

impl Batch {
    /// Starts the lanes that are missing.
    fn add_lanes(self: &Arc<Self>) {
        let missing = {
            let mut state = self.state.lock();
            let left = self.entries.len() - state.next;
            let missing = LANES_MAX.min(left).saturating_sub(state.lanes);
            state.lanes += missing;
            missing
        };
        for _ in 0..missing {
            let lane = Arc::new(Lane { batch: self.clone(), met: AtomicBool::new(false) });
            self.scan.exec().spawn(TaskClass::Background, Box::new(move || lane.run()));
        }
    }

    /// The next block, once the gate granted it; None when the lane is to end.
    fn take(&self) -> Option<Entry> {
        let mut state = self.state.lock();
        while !self.scan.is_stopping() {
            let entry = *self.entries.get(state.next)?;
            if self.scan.gate.try_enter(entry.bp.asize()) != Pass::Granted {
                return None;
            }
            state.next += 1;
            // Looked up behind the gate: what is freed later cannot be given away before this read ended.
            if !self.scan.frees.contains(&entry.bp) {
                return Some(entry);
            }
            self.scan.gate.leave(entry.bp.asize());
            self.scan.progress.issued(entry.bp.asize());
        }
        None
    }

    fn lane_ended(&self) {
        let last = {
            let mut state = self.state.lock();
            state.lanes -= 1;
            state.lanes == 0
        };
        if last {
            self.ended.notify_all();
        }
    }
}

/// A chain of reads.
struct Lane {
    batch: Arc<Batch>,
    /// Set by the first of the two that meet after a read: who issued it, and its completion. The second goes on.
    met: AtomicBool,
}

impl Lane {
    fn run(self: Arc<Self>) {
        for _ in 0..RUN_MAX {
            let Some(entry) = self.batch.take() else { return self.batch.lane_ended() };
            self.met.store(false, Ordering::Release);
            let lane = self.clone();
            let done = move |result| {
                lane.batch.scan.block_read(&entry.bp, &entry.at, result);
                if lane.met.swap(true, Ordering::AcqRel) {
                    lane.run();
                }
            };
            self.batch.scan.zio().read(scan_read(entry.bp, entry.at, self.batch.resilver), Box::new(done));
            if !self.met.swap(true, Ordering::AcqRel) {
                return;
            }
        }
        self.batch.add_lanes();
        let exec = self.batch.scan.exec().clone();
        exec.spawn(TaskClass::Background, Box::new(move || self.run()));
    }
}
