//! A world in virtual time: devices as models, interactive and background load, one queue between them. No clock, no threads; equal
//! seeds give equal runs.
//!
//! `nvme` and `hdd` are the models; each says what it knows of a device.

#![allow(dead_code, unused_imports, reason = "an example and a benchmark take what they need of it")]

mod hdd;
mod nvme;
pub mod records;
mod scan;
pub mod table;

pub use hdd::{DISK_BYTES, Hdd, excursion_ns};
pub use nvme::Nvme;
pub use scan::{Extents, Layout};

use std::collections::BTreeMap;
use vdev_queue::{Admitted, Class, Device, Io, IoId, IoKind, Issue, IssueId, Roam, Tunables, VdevQueue};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;
pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// Deterministic randomness (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// Time to the next event of a Poisson process.
    pub fn exponential_ns(&mut self, per_second: f64) -> u64 {
        let uniform = ((self.draw() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        (-uniform.ln() / per_second * 1e9) as u64
    }
}

/// A device in virtual time.
pub trait Model {
    fn rotational(&self) -> bool;
    fn submit(&mut self, issue: &Issue, now: u64);
    /// Lets it choose what to do next, once all that was to be submitted now was.
    fn kick(&mut self, now: u64);
    /// Time in ns at which something happens in it next.
    fn next_event(&self) -> Option<u64>;
    /// Lets happen what happens until `now`; says which I/Os ended.
    fn advance(&mut self, now: u64, ended: &mut Vec<IssueId>);
}

/// Time for so many bytes.
fn transfer(bytes: u64, per_second: u64) -> u64 {
    bytes * SECOND / per_second
}

/// Background work of one kind: a sequential stream, I/Os at places of their own, or a scan that goes where the queue lets it.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    pub class: Class,
    pub kind: IoKind,
    pub sizes: &'static [u64],
    pub scattered: bool,
    pub scan: Option<Layout>,
}

impl Stream {
    pub const fn reads(class: Class, sizes: &'static [u64]) -> Stream {
        Stream { class, kind: IoKind::Read, sizes, scattered: false, scan: None }
    }
}

/// Work that is asked of the device.
#[derive(Clone, Debug)]
pub struct Load {
    /// Random interactive I/Os a second (Poisson).
    pub interactive: f64,
    /// Programs that make one random interactive I/O after the other.
    pub readers: u32,
    /// Sizes in bytes, each as frequent as the others.
    pub interactive_sizes: &'static [u64],
    pub write_percent: u64,
    pub background: Vec<Stream>,
    pub seconds: f64,
    pub seed: u64,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Latencies in ns of interactive I/Os, ascending.
    pub latencies: Vec<u64>,
    pub background_mib_s: f64,
    /// Bytes of each stream.
    pub streams: Vec<u64>,
}

impl Outcome {
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = (self.latencies.len() as f64 * share).ceil() as usize;
        self.latencies.get(rank.max(1) - 1).copied().unwrap_or(0)
    }

    pub fn max(&self) -> u64 {
        self.latencies.last().copied().unwrap_or(0)
    }
}

/// I/Os of a background stream that wait or are under way.
const BACKGROUND_DEPTH: usize = 128;
/// A program's time between the end of an I/O and its next one.
const THINK: u64 = 100 * US;

/// Owner of an I/O, on whose behalf it is made.
enum Owner {
    Caller { since: u64, is_reader: bool },
    Stream(usize),
}

struct World<'a> {
    model: &'a mut dyn Model,
    queue: VdevQueue,
    load: &'a Load,
    random: Random,
    /// Times in ns at which the next I/O of many users comes, and the next of each program.
    arrival: u64,
    readers: Vec<u64>,
    /// Place and number of open I/Os of each stream.
    streams: Vec<(u64, usize)>,
    scans: Vec<Option<Extents>>,
    owners: BTreeMap<IoId, Owner>,
    issued: BTreeMap<IssueId, Issue>,
    outcome: Outcome,
}

/// Runs the load against the device through the queue.
pub fn run(model: &mut dyn Model, tunables: &Tunables, load: &Load) -> Outcome {
    let mut random = Random(load.seed);
    let arrival = if load.interactive > 0.0 { random.exponential_ns(load.interactive) } else { u64::MAX };
    let count = load.background.len();
    let mut world = World {
        queue: VdevQueue::new(Device { rotational: model.rotational(), width: 1 }, tunables.clone()),
        model,
        load,
        random,
        arrival,
        readers: (0..u64::from(load.readers)).map(|reader| reader * MS).collect(),
        streams: (0..count).map(|index| (DISK_BYTES / 3 * (index as u64 + 1) / MIB * MIB, 0)).collect(),
        scans: load.background.iter().map(|stream| stream.scan.map(|layout| Extents::new(layout, load.seed))).collect(),
        owners: BTreeMap::new(),
        issued: BTreeMap::new(),
        outcome: Outcome { streams: vec![0; count], ..Outcome::default() },
    };
    world.queue.set_roaming(load.background.iter().any(|stream| stream.scan.is_some()));
    let end = (load.seconds * 1e9) as u64;
    let (mut now, mut ended) = (0, Vec::new());
    while now < end {
        world.model.advance(now, &mut ended);
        for id in ended.drain(..) {
            world.end(id, now);
        }
        world.call(now);
        world.refill(now);
        while let Some(issue) = world.queue.next(now) {
            world.go(issue, now);
        }
        world.model.kick(now);
        let next = [Some(world.arrival), world.readers.iter().min().copied(), world.model.next_event(), world.queue.wake_at(now)];
        now = next.into_iter().flatten().min().map_or(end, |at| at.max(now));
    }
    let mut outcome = world.outcome;
    outcome.latencies.sort_unstable();
    outcome.background_mib_s = outcome.streams.iter().sum::<u64>() as f64 / MIB as f64 / load.seconds;
    outcome
}

impl World<'_> {
    fn go(&mut self, issue: Issue, now: u64) {
        self.model.submit(&issue, now);
        self.issued.insert(issue.id, issue);
    }

    fn end(&mut self, id: IssueId, now: u64) {
        let issue = self.issued.remove(&id).expect("the device had it");
        self.queue.done(issue.id, now).expect("the queue knows it");
        for part in &issue.parts {
            match self.owners.remove(&part.id).expect("somebody asked for it") {
                Owner::Caller { since, is_reader } => {
                    self.outcome.latencies.push(now - since);
                    if is_reader {
                        self.readers.push(now + THINK);
                    }
                }
                Owner::Stream(index) => {
                    self.streams[index].1 -= 1;
                    self.outcome.streams[index] += part.size_bytes;
                }
            }
        }
    }

    /// Interactive I/Os whose time has come.
    fn call(&mut self, now: u64) {
        while self.arrival <= now {
            let since = self.arrival;
            self.ask(Owner::Caller { since, is_reader: false }, now);
            self.arrival += self.random.exponential_ns(self.load.interactive).max(1);
        }
        while let Some(reader) = self.readers.iter().position(|at| *at <= now) {
            let since = self.readers.swap_remove(reader);
            self.ask(Owner::Caller { since, is_reader: true }, now);
        }
    }

    fn ask(&mut self, owner: Owner, now: u64) {
        let write = self.random.below(100) < self.load.write_percent;
        let (class, kind) = if write { (Class::SyncWrite, IoKind::Write) } else { (Class::SyncRead, IoKind::Read) };
        let size = self.size(self.load.interactive_sizes);
        let offset = self.random.below(DISK_BYTES / size) * size;
        match self.queue.admit(Io::new(class, kind, offset, size), now) {
            Admitted::Queued(id) => {
                self.owners.insert(id, owner);
            }
            Admitted::Issued(issue) => {
                self.owners.insert(issue.parts[0].id, owner);
                self.go(issue, now);
            }
        }
    }

    fn size(&mut self, sizes: &[u64]) -> u64 {
        if let [size] = sizes { *size } else { sizes[self.random.below(sizes.len() as u64) as usize] }
    }

    /// Background work has as much in the queue as it may.
    fn refill(&mut self, now: u64) {
        let load = self.load;
        for (index, stream) in load.background.iter().enumerate() {
            if stream.scan.is_some() {
                self.roam(index, stream, now);
                continue;
            }
            while self.streams[index].1 < BACKGROUND_DEPTH {
                let size = self.size(stream.sizes);
                if stream.scattered {
                    self.streams[index].0 = self.random.below(DISK_BYTES / size) * size;
                }
                let (at, open) = &mut self.streams[index];
                let id = self.queue.add(Io::new(stream.class, stream.kind, *at, size), now);
                (*at, *open) = (*at + size, *open + 1);
                self.owners.insert(id, Owner::Stream(index));
            }
        }
    }

    /// A scan has in the queue what the queue lets it.
    fn roam(&mut self, index: usize, stream: &Stream, now: u64) {
        while self.streams[index].1 < (scan::FLIGHT / scan::BLOCK) as usize {
            let Some(extents) = &mut self.scans[index] else { return };
            let onward = match self.queue.roam(extents.run_bytes(), now) {
                Roam::Wait => return,
                Roam::Onward => true,
                Roam::Anywhere(near) => {
                    if let Some(head) = near {
                        extents.go(head);
                    }
                    false
                }
            };
            let Some(at) = extents.take(onward) else { return };
            self.streams[index].1 += 1;
            let id = self.queue.add(Io::new(stream.class, stream.kind, at, scan::BLOCK), now);
            self.owners.insert(id, Owner::Stream(index));
        }
    }
}
