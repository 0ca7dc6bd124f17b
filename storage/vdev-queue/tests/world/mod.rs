//! A world in virtual time: devices as models, interactive and background load, one queue between them. No clock, no threads; equal
//! seeds give equal runs.
//!
//! **NVMe** (Samsung PM1725a, figures of LANL's 2020 talk: 3 414 MiB/s sequential reads, 690 k random reads of 4 KiB a second, writes
//! 1 800 MiB/s; PCIe 3 ×4): 64 flash channels, each 92 µs per page of up to 16 KiB, pages striped over the channels by offset; one link
//! of 3 414 MiB/s that serves the commands in turn, page by page; writes end in a buffer of 32 MiB that drains at 1 800 MiB/s.
//! **HDD**: 7 200 rpm, 180 MB/s, seeks of 3–12 ms; its firmware goes on with a sequential stream while it has or soon gets (2 ms) its
//! next command and lets the random reads that it has wait for up to 4 s meanwhile (the disks of iXsystems' talk): ten in 4 s.

#![allow(dead_code)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use vdev_queue::{Admitted, Class, Device, Io, IoId, IoKind, Issue, IssueId, Tunables, VdevQueue};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;
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
    /// When something happens in it next.
    fn next_event(&self) -> Option<u64>;
    /// Lets happen what happens until `now`; says which I/Os ended.
    fn advance(&mut self, now: u64, ended: &mut Vec<IssueId>);
}

const CHANNELS: u64 = 64;
const PAGE: u64 = 16 << 10;
const PAGE_READ: u64 = 92 * US;
const LINK_READ: u64 = 3414 * MIB;
const WRITE_LATENCY: u64 = 20 * US;
const DRAIN: u64 = 1800 * MIB;
const WRITE_BUFFER: u64 = 32 * MIB;

fn transfer(bytes: u64, per_second: u64) -> u64 {
    bytes * SECOND / per_second
}

struct Command {
    ready: u64,
    left: u64,
    page: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    PageReady(u64),
    LinkFree(u64),
    Written(u64),
}

/// The NVMe device described above.
#[derive(Default)]
pub struct Nvme {
    channel_free: BTreeMap<u64, u64>,
    commands: BTreeMap<u64, Command>,
    turn: VecDeque<u64>,
    link_busy: bool,
    drained: u64,
    events: BinaryHeap<Reverse<(u64, Happening)>>,
}

impl Nvme {
    fn start_transfer(&mut self, now: u64) {
        if self.link_busy {
            return;
        }
        let Some(id) = self.turn.pop_front() else { return };
        self.link_busy = true;
        let page = self.commands[&id].page;
        self.events.push(Reverse((now + transfer(page, LINK_READ), Happening::LinkFree(id))));
    }

    fn happen(&mut self, now: u64, what: Happening, ended: &mut Vec<IssueId>) {
        match what {
            Happening::Written(id) => ended.push(IssueId(id)),
            Happening::PageReady(id) => {
                let command = self.commands.get_mut(&id).expect("a page of a command");
                command.ready += 1;
                if command.ready == 1 {
                    self.turn.push_back(id);
                }
                self.start_transfer(now);
            }
            Happening::LinkFree(id) => {
                self.link_busy = false;
                let command = self.commands.get_mut(&id).expect("a page of a command");
                command.ready -= 1;
                command.left -= 1;
                if command.left == 0 {
                    self.commands.remove(&id);
                    ended.push(IssueId(id));
                } else if command.ready > 0 {
                    self.turn.push_back(id);
                }
                self.start_transfer(now);
            }
        }
    }
}

impl Model for Nvme {
    fn rotational(&self) -> bool {
        false
    }

    fn submit(&mut self, issue: &Issue, now: u64) {
        let id = issue.id.0;
        if issue.kind != IoKind::Read {
            self.drained = self.drained.max(now) + transfer(issue.size_bytes, DRAIN);
            let buffered = self.drained.saturating_sub(transfer(WRITE_BUFFER, DRAIN));
            let at = buffered.max(now + WRITE_LATENCY + transfer(issue.size_bytes, LINK_READ));
            self.events.push(Reverse((at, Happening::Written(id))));
            return;
        }
        let first = issue.offset / PAGE;
        let pages = (issue.offset + issue.size_bytes).div_ceil(PAGE) - first;
        self.commands.insert(id, Command { ready: 0, left: pages, page: issue.size_bytes.min(PAGE) });
        for page in first..first + pages {
            let free = self.channel_free.entry(page % CHANNELS).or_default();
            *free = (*free).max(now) + PAGE_READ;
            self.events.push(Reverse((*free, Happening::PageReady(id))));
        }
    }

    fn kick(&mut self, _now: u64) {}

    fn next_event(&self) -> Option<u64> {
        self.events.peek().map(|event| event.0.0)
    }

    fn advance(&mut self, now: u64, ended: &mut Vec<IssueId>) {
        while self.next_event().is_some_and(|at| at <= now) {
            if let Some(Reverse((at, what))) = self.events.pop() {
                self.happen(at, what, ended);
            }
        }
    }
}

pub const DISK_BYTES: u64 = 4 << 40;
const DISK_RATE: u64 = 180_000_000;
const ROTATION: u64 = 8333 * US;
const LINGER: u64 = 2 * MS;
const PATIENCE: u64 = 4 * SECOND;

/// The HDD described above.
#[derive(Default)]
pub struct Hdd {
    waiting: Vec<(u64, u64, u64, u64)>,
    busy: Option<(u64, u64)>,
    head: u64,
    streams: VecDeque<u64>,
    linger_until: u64,
}

impl Hdd {
    fn service(&self, offset: u64, size: u64) -> u64 {
        if offset == self.head {
            return transfer(size, DISK_RATE);
        }
        let distance = offset.abs_diff(self.head) as f64 / DISK_BYTES as f64;
        let rotation = Random(offset).below(ROTATION);
        3 * MS + (9e6 * distance.sqrt()) as u64 + rotation + transfer(size, DISK_RATE)
    }

    fn choose(&self, now: u64) -> Option<usize> {
        let oldest = (0..self.waiting.len()).min_by_key(|index| self.waiting[*index].3)?;
        if now - self.waiting[oldest].3 >= PATIENCE {
            return Some(oldest);
        }
        let goes_on = |index: &usize| self.streams.contains(&self.waiting[*index].1);
        let here = (0..self.waiting.len()).find(|index| self.waiting[*index].1 == self.head);
        let stream = here.filter(goes_on).or_else(|| (0..self.waiting.len()).find(goes_on));
        let near = || (0..self.waiting.len()).min_by_key(|index| self.waiting[*index].1.abs_diff(self.head));
        stream.or_else(|| if now < self.linger_until { None } else { near() })
    }

    fn start(&mut self, now: u64) {
        if self.busy.is_some() {
            return;
        }
        let Some(index) = self.choose(now) else { return };
        let (id, offset, size, _) = self.waiting.swap_remove(index);
        let at = now + self.service(offset, size);
        let known = self.streams.iter().position(|end| *end == offset);
        if let Some(known) = known {
            self.streams.remove(known);
        }
        self.linger_until = if known.is_some() { at + LINGER } else { 0 };
        self.streams.push_back(offset + size);
        if self.streams.len() > 4 {
            self.streams.pop_front();
        }
        self.head = offset + size;
        self.busy = Some((at, id));
    }
}

impl Model for Hdd {
    fn rotational(&self) -> bool {
        true
    }

    fn submit(&mut self, issue: &Issue, now: u64) {
        self.waiting.push((issue.id.0, issue.offset, issue.size_bytes, now));
    }

    fn kick(&mut self, now: u64) {
        self.start(now);
    }

    fn next_event(&self) -> Option<u64> {
        match self.busy {
            Some((at, _)) => Some(at),
            None if self.waiting.is_empty() => None,
            None => Some(self.linger_until),
        }
    }

    fn advance(&mut self, now: u64, ended: &mut Vec<IssueId>) {
        if let Some((at, id)) = self.busy
            && at <= now
        {
            self.busy = None;
            ended.push(IssueId(id));
        }
    }
}

/// What is asked of the device.
#[derive(Clone, Debug)]
pub struct Load {
    /// Random interactive I/Os a second (Poisson).
    pub interactive: f64,
    pub interactive_bytes: u64,
    pub write_percent: u64,
    /// Bytes of a background read; 0: no background work.
    pub background_bytes: u64,
    pub background: Vec<Class>,
    pub seconds: f64,
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub latencies: Vec<u64>,
    pub background_mib_s: f64,
    pub by_class: BTreeMap<Class, u64>,
    pub active_peak: BTreeMap<Class, u32>,
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

struct Streams {
    at: BTreeMap<Class, u64>,
    open: BTreeMap<Class, usize>,
}

/// Runs the load against the device through the queue.
pub fn run(model: &mut dyn Model, tunables: &Tunables, load: &Load) -> Outcome {
    let mut queue = VdevQueue::new(Device { rotational: model.rotational() }, tunables.clone());
    let mut random = Random(load.seed);
    let end = (load.seconds * 1e9) as u64;
    let mut arrival = if load.interactive > 0.0 { random.exponential_ns(load.interactive) } else { u64::MAX };
    let mut streams = Streams { at: BTreeMap::new(), open: BTreeMap::new() };
    for (index, class) in load.background.iter().enumerate() {
        streams.at.insert(*class, DISK_BYTES / 3 * (index as u64 + 1) / MIB * MIB);
        streams.open.insert(*class, 0);
    }
    let mut born: BTreeMap<IoId, u64> = BTreeMap::new();
    let mut issued: BTreeMap<IssueId, Issue> = BTreeMap::new();
    let mut outcome = Outcome { latencies: Vec::new(), background_mib_s: 0.0, by_class: BTreeMap::new(), active_peak: BTreeMap::new() };
    let (mut now, mut ended) = (0, Vec::new());
    while now < end {
        model.advance(now, &mut ended);
        for id in ended.drain(..) {
            let issue = issued.remove(&id).expect("the device had it");
            queue.done(id, now).expect("the queue knows it");
            for part in &issue.parts {
                if let Some(at) = born.remove(&part.id) {
                    outcome.latencies.push(now - at);
                } else {
                    *streams.open.get_mut(&issue.class).expect("a stream") -= 1;
                    *outcome.by_class.entry(issue.class).or_default() += part.size_bytes;
                }
            }
        }
        let go = |issue: Issue, model: &mut dyn Model, issued: &mut BTreeMap<IssueId, Issue>| {
            model.submit(&issue, now);
            issued.insert(issue.id, issue);
        };
        while arrival <= now {
            let write = random.below(100) < load.write_percent;
            let (class, kind) = if write { (Class::SyncWrite, IoKind::Write) } else { (Class::SyncRead, IoKind::Read) };
            let offset = random.below(DISK_BYTES / load.interactive_bytes) * load.interactive_bytes;
            match queue.admit(Io::new(class, kind, offset, load.interactive_bytes), now) {
                Admitted::Queued(id) => {
                    born.insert(id, arrival);
                }
                Admitted::Issued(issue) => {
                    born.insert(issue.parts[0].id, arrival);
                    go(issue, model, &mut issued);
                }
            }
            arrival += random.exponential_ns(load.interactive).max(1);
        }
        for (class, open) in &mut streams.open {
            while *open < BACKGROUND_DEPTH {
                let at = streams.at.get_mut(class).expect("a stream");
                queue.add(Io::new(*class, IoKind::Read, *at, load.background_bytes), now);
                *at += load.background_bytes;
                *open += 1;
            }
        }
        while let Some(issue) = queue.next(now) {
            go(issue, model, &mut issued);
        }
        for class in Class::ALL {
            let peak = outcome.active_peak.entry(class).or_default();
            *peak = (*peak).max(queue.active(class));
        }
        model.kick(now);
        let next = [Some(arrival), model.next_event(), queue.wake_at(now)].into_iter().flatten().min();
        now = next.map_or(end, |at| at.max(now));
    }
    outcome.latencies.sort_unstable();
    outcome.background_mib_s = outcome.by_class.values().sum::<u64>() as f64 / MIB as f64 / load.seconds;
    outcome
}
