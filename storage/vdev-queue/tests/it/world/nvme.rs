//! An NVMe device, the Samsung PM1725a of LANL's 2020 talk (3 414 MiB/s sequential reads, 690 k random reads of 4 KiB a second, writes
//! 1 800 MiB/s; PCIe 3 ×4): 64 flash channels, each 92 µs per page of up to 16 KiB, pages striped over the channels by offset; one link
//! of 3 414 MiB/s that serves the commands in turn, page by page; writes end in a buffer of 32 MiB that drains at 1 800 MiB/s.

use super::{MIB, Model, US, transfer};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use vdev_queue::{IoKind, Issue, IssueId};

const CHANNELS: u64 = 64;
const PAGE: u64 = 16 << 10;
const PAGE_READ: u64 = 92 * US;
const LINK_READ: u64 = 3414 * MIB;
const WRITE_LATENCY: u64 = 20 * US;
const DRAIN: u64 = 1800 * MIB;
const WRITE_BUFFER: u64 = 32 * MIB;

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
    /// A fifth of the random reads a second that it can do in these sizes, each as frequent as the others: its link or its channels are
    /// busy for a fifth of the time, whichever is more.
    pub fn fifth(sizes: &[u64]) -> f64 {
        let sum = |time: &dyn Fn(u64) -> u64| sizes.iter().map(|size| time(*size)).sum::<u64>();
        let busiest = sum(&|size| transfer(size, LINK_READ)).max(sum(&|size| size.div_ceil(PAGE) * PAGE_READ / CHANNELS));
        0.2e9 * sizes.len() as f64 / busiest as f64
    }

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
