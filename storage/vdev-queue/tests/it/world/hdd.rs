//! A disk of 7 200 rpm: 180 MB/s, seeks of 3–12 ms (3 ms + 9 ms × the square root of the share of the stroke), platters that turn.
//!
//! Where a byte passes under the head is a matter of the clock: a track holds 1.5 MB, so byte `n` passes `n / rate` after the index mark,
//! and whoever arrives at its cylinder waits for it. A disk that has several commands (NCQ) serves the one that it reaches first, seek and
//! rotation together (shortest positioning time first: Worthington, Ganger and Patt, SIGMETRICS 1994). Its firmware goes on with a sequential stream while it has or soon gets (2 ms) its next command, which its
//! read-ahead has by then, and lets the random reads that it has wait for up to 4 s meanwhile (the disks of iXsystems' talk).

use super::{MIB, MS, Model, Random, SECOND, US, transfer};
use std::collections::VecDeque;
use vdev_queue::{Class, IoKind, Issue, IssueId};

pub const DISK_BYTES: u64 = 4 << 40;
const DISK_RATE: u64 = 180_000_000;
const ROTATION: u64 = 8333 * US;
const LINGER: u64 = 2 * MS;
const PATIENCE: u64 = 4 * SECOND;

#[derive(Clone, Copy)]
struct Command {
    id: u64,
    offset: u64,
    size_bytes: u64,
    since: u64,
}

/// The disk described above.
#[derive(Default)]
pub struct Hdd {
    waiting: Vec<Command>,
    busy: Option<(u64, u64)>,
    head: u64,
    streams: VecDeque<u64>,
    linger_until: u64,
}

impl Hdd {
    /// Mean service time of random reads of 16 KiB by the idle disk, one at a time.
    pub fn mean_service_ns() -> u64 {
        // The mean square root of the distance of two places is 8/15.
        3 * MS + 9 * MS * 8 / 15 + ROTATION / 2 + transfer(16 << 10, DISK_RATE)
    }

    /// Number of random reads a second that keep it busy for a fifth of the time.
    pub fn fifth() -> f64 {
        0.2e9 / Hdd::mean_service_ns() as f64
    }

    /// Time until the first byte of the command is under the head.
    fn positioning(&self, offset: u64, now: u64) -> u64 {
        if offset == self.head {
            return 0;
        }
        let distance = offset.abs_diff(self.head) as f64 / DISK_BYTES as f64;
        let seek = 3 * MS + (9e6 * distance.sqrt()) as u64;
        let passes = (u128::from(offset) * u128::from(SECOND) / u128::from(DISK_RATE) % u128::from(ROTATION)) as u64;
        seek + (passes + ROTATION - (now + seek) % ROTATION) % ROTATION
    }

    fn choose(&self, now: u64) -> Option<usize> {
        let all = 0..self.waiting.len();
        let oldest = all.clone().min_by_key(|index| self.waiting[*index].since)?;
        if now - self.waiting[oldest].since >= PATIENCE {
            return Some(oldest);
        }
        let goes_on = |index: &usize| self.streams.contains(&self.waiting[*index].offset);
        let here = all.clone().find(|index| self.waiting[*index].offset == self.head);
        let stream = here.filter(goes_on).or_else(|| all.clone().find(goes_on));
        let first = || all.clone().min_by_key(|index| self.positioning(self.waiting[*index].offset, now));
        stream.or_else(|| if now < self.linger_until { None } else { first() })
    }

    fn start(&mut self, now: u64) {
        if self.busy.is_some() {
            return;
        }
        let Some(index) = self.choose(now) else { return };
        let Command { id, offset, size_bytes, .. } = self.waiting.swap_remove(index);
        let at = now + self.positioning(offset, now) + transfer(size_bytes, DISK_RATE);
        let known = self.streams.iter().position(|end| *end == offset);
        if let Some(known) = known {
            self.streams.remove(known);
        }
        self.linger_until = if known.is_some() { at + LINGER } else { 0 };
        self.head = offset + size_bytes;
        self.streams.push_back(self.head);
        if self.streams.len() > 4 {
            self.streams.pop_front();
        }
        self.busy = Some((at, id));
    }
}

/// Time in ns that an excursion from a sequential stream costs it in the mean, there and back, if the disk gets so many random reads of 16
/// KiB at once; the firmware's lingering counts.
pub fn excursion_ns(reads: u64) -> u64 {
    const EXCURSIONS: u64 = 4000;
    let (mut disk, mut random, mut now, mut cost) = (Hdd::default(), Random(reads), 0, 0);
    for round in 0..EXCURSIONS {
        let stream = DISK_BYTES / 3 / MIB * MIB + round * 2 * MIB;
        now = disk.serve(&[(stream, MIB)], now);
        let left = now;
        let places: Vec<(u64, u64)> = (0..reads).map(|_| (random.below(DISK_BYTES >> 14) << 14, 16 << 10)).collect();
        now = disk.serve(&places, now);
        now = disk.serve(&[(stream + MIB, MIB)], now);
        cost += now - left - transfer(MIB, DISK_RATE);
    }
    cost / EXCURSIONS
}

impl Hdd {
    /// Serves these reads, given to it at once; says when the last is done.
    fn serve(&mut self, places: &[(u64, u64)], mut now: u64) -> u64 {
        for (id, (offset, size_bytes)) in (0..).zip(places.iter().copied()) {
            let (class, kind) = (Class::SyncRead, IoKind::Read);
            let issue = Issue { id: IssueId(id), class, kind, offset, size_bytes, queued_ns: 0, parts: Vec::new(), needless: false };
            self.submit(&issue, now);
        }
        let mut ended = Vec::new();
        while ended.len() < places.len() {
            self.kick(now);
            now = self.next_event().map_or(now, |at| at.max(now));
            self.advance(now, &mut ended);
        }
        now
    }
}

impl Model for Hdd {
    fn rotational(&self) -> bool {
        true
    }

    fn submit(&mut self, issue: &Issue, now: u64) {
        self.waiting.push(Command { id: issue.id.0, offset: issue.offset, size_bytes: issue.size_bytes, since: now });
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
