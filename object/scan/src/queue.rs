//! Reading what was found, in the order of addresses, with enough in flight to keep every device busy.
//!
//! A *lane* is a chain of groups of reads: when one group ended, a job takes the next. A group holds neighbours of one top-level vdev,
//! as many as make one large request on each of its devices. A lane takes from the vdev that has the least in flight, so that none is
//! idle while others work. It ends when the gate has no room or is closed; those that find work start others again.
//!
//! On a vdev with rotational leaves the leaves have a say (`Zio::may_roam`, docs/adr/0005-latency-promise.md): while somebody uses them
//! little is queued ahead, and reading goes on near where their heads are. A lane that is turned away on every vdev sleeps, at most one at a
//! time, until a leaf calls or a while has passed.

use crate::gate::Entry as Pass;
use crate::scan::Scan;
use crate::sort::{Entry, SortQueue};
use exec::{Mutex, TaskClass, WaitQueue};
use ondisk::{BlockPtr, Bookmark, VdevId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use zio::{MayRoam, Next, Priority, ReadFlags, ReadRequest, ReadThen, Roaming};

/// Groups in flight at most; how many bytes is up to the gate.
const LANES_MAX: usize = 64;
/// Chains that are begun at once; each that finds work begins another.
const LANES_AT_START: usize = 4;
/// Blocks of a group at most.
const GROUP_BLOCKS_MAX: usize = 256;
/// Bytes of a group per device: what a request should have.
const GROUP_LEAF_BYTES: u64 = 512 << 10;
/// Least bytes in flight per device, whatever the tunables say: a sector.
const FLIGHT_LEAF_BYTES_MIN: u64 = 4 << 10;
/// Devices that the bytes in flight are for at least.
const FLIGHT_LEAVES_MIN: u64 = 4;
/// Bytes in flight at most.
const FLIGHT_BYTES_MAX: u64 = 256 << 20;

/// A lane that sleeps looks again after so long, whether it was called or not.
const SLEEP_NS: u64 = 100_000_000;

/// Read request of the scan for a block. A scrub reads every copy and all parity and repairs what is wrong; a resilver reads what
/// it needs to write what leaves lack.
pub(crate) fn scan_read(bp: BlockPtr, at: Bookmark, resilver: bool) -> ReadRequest {
    let flags = ReadFlags { scrub: !resilver, resilver, ..ReadFlags::default() };
    ReadRequest { bp, bookmark: at, priority: Priority::Scrub, flags }
}

#[derive(Debug, Default)]
struct State {
    lanes: usize,
    in_flight: BTreeMap<VdevId, u64>,
    /// Vdevs with rotational leaves on which a lane is queueing reads: the leaves can't tell what comes next.
    queueing: BTreeSet<VdevId>,
    /// Number of times that a lane went to sleep, and whether one still sleeps.
    sleeps: u64,
    asleep: bool,
    /// Number of calls by leaves.
    calls: u64,
}

/// Next step of a lane.
enum Step {
    Read(VdevId, u64, Vec<Entry>),
    /// No vdev may be read now; it looks again later, or at once if leaves have called more often than that.
    Sleep(u64),
    End,
}

/// State of reading the queue that the lanes share.
struct Reading {
    scan: Arc<Scan>,
    resilver: bool,
    /// Number of slots for leaves of each top-level vdev, at least 1.
    leaves: BTreeMap<VdevId, u64>,
    /// Top-level vdevs that have rotational leaves.
    roams: BTreeSet<VdevId>,
    state: Mutex<State>,
    ended: WaitQueue,
}

/// Slots for leaves of each top-level vdev, at least 1.
fn leaves_by_top(scan: &Scan) -> BTreeMap<VdevId, u64> {
    scan.zio().view().tree.tops.iter().map(|top| (top.id, top.slots.len().max(1) as u64)).collect()
}

/// Bytes in flight per device, as the tunables say.
fn flight_leaf_bytes(scan: &Scan) -> u64 {
    scan.tunables().vdev_limit.max(FLIGHT_LEAF_BYTES_MIN)
}

/// Bounds what is in flight from now on, as the tunables say.
pub(crate) fn bound_flight(scan: &Scan) {
    let leaves = leaves_by_top(scan).values().sum::<u64>().max(FLIGHT_LEAVES_MIN);
    scan.gate.set_max(leaves.saturating_mul(flight_leaf_bytes(scan)).min(FLIGHT_BYTES_MAX));
}

/// Reads from the queue until no more than `keep` blocks are in it; false when the scan was told to stop before. Nothing is in flight
/// afterwards.
pub(crate) fn read_down_to(scan: &Arc<Scan>, keep: usize) -> bool {
    let leaves = leaves_by_top(scan);
    let resilver = scan.is_resilver();
    let roams: BTreeSet<VdevId> = leaves.keys().copied().filter(|top| scan.zio().has_heads(*top)).collect();
    scan.queue.lock().choose(keep, !roams.is_empty());
    let reading = Arc::new(Reading { scan: scan.clone(), resilver, leaves, roams, state: Mutex::default(), ended: WaitQueue::new() });
    if !reading.roams.is_empty() {
        let roaming: Arc<dyn Roaming> = reading.clone();
        scan.zio().set_roaming(Arc::downgrade(&roaming));
    }
    let done = reading.read_all();
    if !reading.roams.is_empty() {
        scan.zio().end_roaming(None);
    }
    done
}

impl Reading {
    fn read_all(self: &Arc<Self>) -> bool {
        let scan = &self.scan;
        loop {
            bound_flight(scan);
            (0..LANES_AT_START).for_each(|_| self.add_lane());
            self.ended.wait_until(scan.exec(), &|| self.state.lock().lanes == 0);
            if scan.is_stopping() {
                return false;
            }
            if scan.queue.lock().busy_tops().next().is_none() {
                return true;
            }
            // Nobody who uses the pool is to wait for reads that the gate keeps.
            self.roams.iter().for_each(|top| scan.zio().end_roaming(Some(*top)));
            scan.wait_while_suspended();
            scan.gate.wait_open(scan.exec());
        }
    }

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
        self.leaves.get(&top).copied().unwrap_or(1) * GROUP_LEAF_BYTES.min(flight_leaf_bytes(&self.scan))
    }

    /// The next group, once leaves and gate granted it.
    fn take(&self) -> Step {
        if self.scan.is_suspended() {
            return Step::End;
        }
        let mut state = self.state.lock();
        while !self.scan.is_stopping() {
            let mut queue = self.scan.queue.lock();
            let load = |top: &VdevId| state.in_flight.get(top).copied().unwrap_or(0);
            let mut tops: Vec<VdevId> = queue.busy_tops().collect();
            tops.sort_by_key(load);
            let Some(top) = tops.iter().copied().find(|top| self.may_read(*top, &state, &mut queue)) else {
                return if tops.is_empty() { Step::End } else { Step::Sleep(state.calls) };
            };
            let reserved = self.group_bytes(top);
            if self.scan.gate.try_enter(reserved) != Pass::Granted {
                return Step::End;
            }
            let roams = self.roams.contains(&top);
            let mut group = queue.take(top, (self.scan.reads_allowed().min(GROUP_BLOCKS_MAX), reserved), roams);
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
            if roams {
                state.queueing.insert(top);
            }
            return Step::Read(top, bytes, group);
        }
        Step::End
    }

    /// True when the leaves of a vdev let it be read now; goes where their heads are.
    fn may_read(&self, top: VdevId, state: &State, queue: &mut SortQueue) -> bool {
        if !self.roams.contains(&top) {
            return true;
        }
        let Some((run_bytes, follows)) = queue.next_run(top).filter(|_| !state.queueing.contains(&top)) else { return false };
        match self.scan.zio().may_roam(top, Next { run_bytes, follows }) {
            MayRoam::No => return false,
            MayRoam::Yes(Some(near)) => queue.go_near(top, near),
            MayRoam::Yes(None) => {}
        }
        true
    }

    fn run_lane(self: Arc<Self>) {
        let (top, bytes, entries) = match self.take() {
            Step::Read(top, bytes, entries) => (top, bytes, entries),
            Step::Sleep(calls) => return self.sleep(calls),
            Step::End => return self.lane_ended(),
        };
        let roams = self.roams.contains(&top);
        if !roams {
            // Where there was room for this group there may be for another one.
            self.add_lane();
        }
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
        if roams {
            self.state.lock().queueing.remove(&top);
            self.add_lane();
        }
    }

    /// One lane sleeps; others that would need not be.
    fn sleep(self: &Arc<Self>, calls: u64) {
        let (sleeps, ends) = {
            let mut state = self.state.lock();
            if state.calls != calls {
                drop(state);
                return self.spawn_lane();
            }
            let ends = std::mem::replace(&mut state.asleep, true);
            state.sleeps += u64::from(!ends);
            (state.sleeps, ends)
        };
        if ends {
            return self.lane_ended();
        }
        let reading = Arc::downgrade(self);
        let wake = move || {
            if let Some(reading) = Weak::upgrade(&reading) {
                reading.wake(Some(sleeps));
            }
        };
        self.scan.exec().spawn_after(SLEEP_NS, TaskClass::Background, Box::new(wake));
    }

    /// The lane that sleeps goes on; with a number, if it has slept since then.
    fn wake(self: &Arc<Self>, since: Option<u64>) {
        let was_asleep = {
            let mut state = self.state.lock();
            state.calls += u64::from(since.is_none());
            let mine = since.is_none_or(|since| since == state.sleeps);
            mine && std::mem::take(&mut state.asleep)
        };
        if was_asleep {
            self.spawn_lane();
        }
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

/// A leaf may have something to do.
impl Roaming for Reading {
    fn go_on(self: Arc<Self>) {
        self.wake(None);
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
