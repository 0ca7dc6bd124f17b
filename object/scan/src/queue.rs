//! Reading what was found, in the order of addresses, with enough in flight to keep every device busy.
//!
//! A *lane* is a chain of groups of reads: when one group ended, a job takes the next. A group holds neighbours of one top-level vdev,
//! as many as make one large request on each of its devices. A lane takes from the vdev that has the least in flight, so that none is
//! idle while others work. It ends when the gate has no room or is closed; those that find work start others again.

use crate::gate::Entry as Pass;
use crate::scan::Scan;
use crate::sort::Entry;
use exec::{Mutex, TaskClass, WaitQueue};
use ondisk::{BlockPtr, Bookmark, VdevId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use zio::{Priority, ReadFlags, ReadRequest, ReadThen};

/// Groups in flight at most; how many bytes is up to the gate.
const LANES_MAX: usize = 64;
/// Chains that are begun at once; each that finds work begins another.
const LANES_AT_START: usize = 4;
/// Blocks of a group at most.
const GROUP_BLOCKS_MAX: usize = 256;
/// Bytes of a group per device: what a request should have.
const GROUP_LEAF_BYTES: u64 = 512 << 10;
/// Bytes in flight per device (OpenZFS: `zfs_scan_vdev_limit`, 16 MiB; half of ours are enough for a device of 6 GB/s).
const FLIGHT_LEAF_BYTES: u64 = 4 << 20;
/// Bytes in flight at least and at most.
const FLIGHT_BYTES: (u64, u64) = (16 << 20, 256 << 20);

/// How a read of the scan is asked for. A scrub reads every copy and all parity and repairs what is wrong; a resilver reads what
/// it needs to write what leaves lack.
pub(crate) fn scan_read(bp: BlockPtr, at: Bookmark, resilver: bool) -> ReadRequest {
    let flags = ReadFlags { scrub: !resilver, resilver, ..ReadFlags::default() };
    ReadRequest { bp, bookmark: at, priority: Priority::Scrub, flags }
}

#[derive(Debug, Default)]
struct State {
    lanes: usize,
    in_flight: BTreeMap<VdevId, u64>,
}

/// What is being read.
struct Reading {
    scan: Arc<Scan>,
    resilver: bool,
    /// Devices of each top-level vdev.
    leaves: BTreeMap<VdevId, u64>,
    state: Mutex<State>,
    ended: WaitQueue,
}

/// Reads from the queue until no more than `keep` blocks are in it; false when the scan was told to stop before. Nothing is in flight
/// afterwards.
pub(crate) fn read_down_to(scan: &Arc<Scan>, keep: usize) -> bool {
    scan.queue.lock().choose(keep);
    let tree = scan.zio().view().tree;
    let leaves: BTreeMap<VdevId, u64> = tree.tops.iter().map(|top| (top.id, top.slots.len().max(1) as u64)).collect();
    let in_use = leaves.values().sum::<u64>();
    scan.gate.set_max((in_use * FLIGHT_LEAF_BYTES).clamp(FLIGHT_BYTES.0, FLIGHT_BYTES.1));
    let resilver = scan.is_resilver();
    let reading = Arc::new(Reading { scan: scan.clone(), resilver, leaves, state: Mutex::default(), ended: WaitQueue::new() });
    loop {
        (0..LANES_AT_START).for_each(|_| reading.add_lane());
        reading.ended.wait_until(scan.exec(), &|| reading.state.lock().lanes == 0);
        if scan.is_stopping() {
            return false;
        }
        if scan.queue.lock().busy_tops().next().is_none() {
            return true;
        }
        scan.wait_while_suspended();
        scan.gate.wait_open(scan.exec());
    }
}

impl Reading {
    /// Starts one more lane, unless there are enough.
    fn add_lane(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            if state.lanes >= LANES_MAX {
                return;
            }
            state.lanes += 1;
        }
        self.spawn_lane();
    }

    fn spawn_lane(self: &Arc<Self>) {
        let reading = self.clone();
        self.scan.exec().spawn(TaskClass::Background, Box::new(move || reading.run_lane()));
    }

    fn group_bytes(&self, top: VdevId) -> u64 {
        self.leaves.get(&top).copied().unwrap_or(1) * GROUP_LEAF_BYTES
    }

    /// The next group, once the gate granted it; None when the lane is to end.
    fn take(&self) -> Option<(VdevId, u64, Vec<Entry>)> {
        if self.scan.is_suspended() {
            return None;
        }
        let mut state = self.state.lock();
        while !self.scan.is_stopping() {
            let mut queue = self.scan.queue.lock();
            let load = |top: &VdevId| state.in_flight.get(top).copied().unwrap_or(0);
            let top = queue.busy_tops().min_by_key(load)?;
            let reserved = self.group_bytes(top);
            if self.scan.gate.try_enter(reserved) != Pass::Granted {
                return None;
            }
            let mut group = queue.take(top, (self.scan.reads_allowed().min(GROUP_BLOCKS_MAX), reserved));
            self.scan.reads_taken(group.len(), queue.len());
            drop(queue);
            // Looked up behind the gate: what is freed later cannot be given away before these reads ended.
            group.retain(|entry| {
                let done = self.scan.frees.contains(&entry.bp) || self.scan.fed.contains(&entry.bp);
                if done {
                    self.scan.progress.issued(entry.bp.asize());
                }
                !done
            });
            if group.is_empty() {
                self.scan.gate.leave(reserved);
                continue;
            }
            // A single block may be larger than a group is to be.
            let bytes = group.iter().map(|entry| entry.bp.asize()).sum::<u64>().min(reserved);
            self.scan.gate.give_back(reserved - bytes);
            *state.in_flight.entry(top).or_default() += bytes;
            return Some((top, bytes, group));
        }
        None
    }

    fn run_lane(self: Arc<Self>) {
        let Some((top, bytes, entries)) = self.take() else { return self.lane_ended() };
        // Where there was room for this group there may be for another one.
        self.add_lane();
        let group = Arc::new(Group { reading: self.clone(), top, bytes, left: AtomicUsize::new(entries.len()) });
        let read = |entry: Entry| -> (ReadRequest, ReadThen) {
            let group = group.clone();
            let then: ReadThen = Box::new(move |result| {
                group.reading.scan.block_read(&entry.bp, &entry.at, result);
                group.block_done();
            });
            (scan_read(entry.bp, entry.at, self.resilver), then)
        };
        self.scan.zio().read_together(entries.into_iter().map(read).collect());
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

/// Reads that went out together.
struct Group {
    reading: Arc<Reading>,
    top: VdevId,
    bytes: u64,
    left: AtomicUsize,
}

impl Group {
    fn block_done(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let scan = &self.reading.scan;
        scan.progress.sample(scan.exec().now_ns());
        scan.gate.leave(self.bytes);
        if let Some(in_flight) = self.reading.state.lock().in_flight.get_mut(&self.top) {
            *in_flight -= self.bytes;
        }
        self.reading.spawn_lane();
    }
}
