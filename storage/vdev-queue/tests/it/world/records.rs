//! Records over several leaves: whoever reads one waits for the slowest of its columns. Beside them a healing resilver: it reads one column
//! of each record from every leaf and writes what was lost to a new device. Virtual time; equal seeds give equal runs.
//!
//! The load goes on alone for a while, as users do, before the resilver begins.

use super::{DISK_BYTES, MIB, Model, Nvme, Outcome, Random, SECOND, transfer};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use vdev_queue::{Admitted, Class, Device, Io, IoId, IoKind, Issue, IssueId, Tunables, VdevQueue};

/// A RAID-Z vdev of NVMe devices, what is read from it, and what it has to heal.
#[derive(Clone, Debug)]
pub struct Row {
    /// Leaves that hold a column of each record that is read.
    pub leaves: usize,
    /// Bytes of a column.
    pub column_bytes: u64,
    /// Records read a second (Poisson).
    pub records: f64,
    /// Bytes a second that the new device can be written.
    pub new_device: u64,
    /// One I/O in so many is told late, after this long more in the mean, whatever else the leaf does: the host was busy, or the device
    /// with itself.
    pub hiccup: Option<(u64, u64)>,
    /// Seconds without, and then with the resilver.
    pub seconds: [f64; 2],
    pub seed: u64,
}

/// Result of a resilver beside the reads of records.
#[derive(Debug)]
pub struct Healed {
    /// Latencies in ns of records before the resilver, ascending.
    pub idle: Outcome,
    /// Latencies in ns of records beside it; its `background_mib_s` are of the new device.
    pub busy: Outcome,
}

/// Bytes of every leaf that the resilver reads ahead of what is written (`zfs_scan_vdev_limit`).
const AHEAD_BYTES: u64 = 16 * MIB;

/// A record being read, which waits for a column of every leaf.
#[derive(Clone, Copy)]
struct Request {
    since: u64,
    left: usize,
    heals: bool,
}

struct LeafWorld {
    model: Nvme,
    queue: VdevQueue,
    /// Times in ns at which the device tells what it is done with.
    told: BinaryHeap<Reverse<(u64, IssueId)>>,
    owners: BTreeMap<IoId, u64>,
    issued: BTreeMap<IssueId, Issue>,
}

struct World<'a> {
    row: &'a Row,
    leaves: Vec<LeafWorld>,
    requests: BTreeMap<u64, Request>,
    next_request: u64,
    random: Random,
    hiccups: Random,
    arrival: u64,
    /// Time in ns at which the resilver begins.
    begins: u64,
    heal_offset: u64,
    healing: u64,
    /// Times in ns at which the new device is done with what it has, and with each column.
    written: u64,
    writes: BinaryHeap<Reverse<u64>>,
    healed: u64,
    idle: Vec<u64>,
    busy: Vec<u64>,
}

/// Runs it with leaves that were told that requests wait for `width` of them.
pub fn run_row(row: &Row, width: u32, tunables: &Tunables) -> Healed {
    let mut random = Random(row.seed);
    let arrival = random.exponential_ns(row.records);
    let leaf = |_| LeafWorld {
        model: Nvme::default(),
        queue: VdevQueue::new(Device { rotational: false, width }, tunables.clone()),
        told: BinaryHeap::new(),
        owners: BTreeMap::new(),
        issued: BTreeMap::new(),
    };
    let [begins, lasts] = row.seconds.map(|seconds| (seconds * 1e9) as u64);
    let mut world = World {
        row,
        leaves: (0..row.leaves).map(leaf).collect(),
        requests: BTreeMap::new(),
        next_request: 0,
        random,
        hiccups: Random(!row.seed),
        arrival,
        begins,
        heal_offset: DISK_BYTES / 3 / row.column_bytes * row.column_bytes,
        healing: 0,
        written: 0,
        writes: BinaryHeap::new(),
        healed: 0,
        idle: Vec::new(),
        busy: Vec::new(),
    };
    let mut now = 0;
    while now < begins + lasts {
        world.step(now);
        now = world.next_event(now);
    }
    let sorted = |mut latencies: Vec<u64>| {
        latencies.sort_unstable();
        Outcome { latencies, ..Outcome::default() }
    };
    let background_mib_s = world.healed as f64 / MIB as f64 / row.seconds[1];
    Healed { idle: sorted(world.idle), busy: Outcome { background_mib_s, ..sorted(world.busy) } }
}

impl LeafWorld {
    fn go(&mut self, issue: Issue, now: u64) {
        self.model.submit(&issue, now);
        self.issued.insert(issue.id, issue);
    }

    fn ask(&mut self, class: Class, owner: u64, (offset, bytes): (u64, u64), now: u64) {
        match self.queue.admit(Io::new(class, IoKind::Read, offset, bytes), now) {
            Admitted::Queued(id) => {
                self.owners.insert(id, owner);
            }
            Admitted::Issued(issue) => {
                self.owners.insert(issue.parts[0].id, owner);
                self.go(issue, now);
            }
        }
    }

    /// Lets time pass, and returns who got a column.
    fn advance(&mut self, now: u64, hiccup: &mut impl FnMut() -> u64) -> Vec<u64> {
        let mut ended = Vec::new();
        self.model.advance(now, &mut ended);
        self.told.extend(ended.into_iter().map(|id| Reverse((now + hiccup(), id))));
        let mut served = Vec::new();
        while let Some(Reverse((_, id))) = self.told.peek().copied().filter(|told| told.0.0 <= now) {
            self.told.pop();
            let issue = self.issued.remove(&id).expect("the device had it");
            self.queue.done(id, now).expect("the queue knows it");
            served.extend(issue.parts.iter().map(|part| self.owners.remove(&part.id).expect("somebody asked for it")));
        }
        served
    }
}

impl World<'_> {
    fn step(&mut self, now: u64) {
        for leaf in 0..self.leaves.len() {
            let (hiccups, random) = (self.row.hiccup, &mut self.hiccups);
            let mut hiccup = || match hiccups {
                Some((every, mean_ns)) if random.below(every) == 0 => random.exponential_ns(1e9 / mean_ns as f64),
                _ => 0,
            };
            for owner in self.leaves[leaf].advance(now, &mut hiccup) {
                self.served(owner, now);
            }
        }
        while self.writes.peek().is_some_and(|at| at.0 <= now) {
            self.writes.pop();
            self.healing -= 1;
            self.healed += self.row.column_bytes;
        }
        while self.arrival <= now {
            let offset = self.random.below(DISK_BYTES / self.row.column_bytes) * self.row.column_bytes;
            self.ask(Class::SyncRead, offset, now);
            self.arrival += self.random.exponential_ns(self.row.records).max(1);
        }
        while now >= self.begins && self.healing < AHEAD_BYTES / self.row.column_bytes {
            self.healing += 1;
            let offset = self.heal_offset;
            self.heal_offset += self.row.column_bytes;
            self.ask(Class::Scrub, offset, now);
        }
        for leaf in &mut self.leaves {
            while let Some(issue) = leaf.queue.next(now) {
                leaf.go(issue, now);
            }
        }
    }

    fn ask(&mut self, class: Class, offset: u64, now: u64) {
        self.next_request += 1;
        let request = Request { since: now, left: self.leaves.len(), heals: class == Class::Scrub };
        self.requests.insert(self.next_request, request);
        for leaf in &mut self.leaves {
            leaf.ask(class, self.next_request, (offset, self.row.column_bytes), now);
        }
    }

    fn served(&mut self, owner: u64, now: u64) {
        let request = self.requests.get_mut(&owner).expect("it waits");
        request.left -= 1;
        if request.left > 0 {
            return;
        }
        let Request { since, heals, .. } = *request;
        self.requests.remove(&owner);
        if heals {
            self.written = self.written.max(now) + transfer(self.row.column_bytes, self.row.new_device);
            self.writes.push(Reverse(self.written));
        } else if since >= self.begins {
            self.busy.push(now - since);
        } else {
            self.idle.push(now - since);
        }
    }

    fn next_event(&self, now: u64) -> u64 {
        let of_leaf = |leaf: &LeafWorld| {
            [leaf.model.next_event(), leaf.queue.wake_at(now), leaf.told.peek().map(|told| told.0.0)].into_iter().flatten().min()
        };
        let leaves = self.leaves.iter().filter_map(of_leaf).min();
        let begins = Some(self.begins).filter(|begins| *begins > now);
        let written = self.writes.peek().map(|at| at.0);
        [leaves, begins, written, Some(self.arrival)].into_iter().flatten().min().map_or(SECOND, |at| at.max(now))
    }
}
