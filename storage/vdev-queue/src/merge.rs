//! Merging neighbours: which queued I/Os of one class and kind go to the device as one (OpenZFS: `vdev_queue_aggregate`).
//!
//! Reads are joined across small gaps, whose bytes are thrown away. Writes are joined only where they touch; padding that carries no
//! data (`Io::optional`) is written where it lies between two others, or where the next write is so near that the device may join them.

use crate::io::{Io, IoId};
use crate::queue::VdevQueue;
use crate::{IoKind, MERGED_BYTES_MAX};
use std::collections::VecDeque;

/// I/Os that go out together.
pub(crate) struct Merged {
    /// Names of the I/Os, by offset.
    pub(crate) ids: VecDeque<IoId>,
    /// Padding behind the last that a later I/O has to begin with.
    pub(crate) now_mandatory: Option<IoId>,
}

struct Walk<'a> {
    queue: &'a VdevQueue,
    ids: VecDeque<(IoId, Io)>,
    limit: u64,
    gap: u64,
}

/// The I/Os that go out with this one.
pub(crate) fn neighbours(queue: &VdevQueue, id: IoId, io: Io) -> Merged {
    let limit = queue.merge_limit();
    if limit == 0 || !io.merge || !io.kind.merges() {
        return Merged { ids: VecDeque::from([id]), now_mandatory: None };
    }
    let gap = if io.kind == IoKind::Read { queue.tunables().read_gap_limit } else { 0 };
    let mut walk = Walk { queue, ids: VecDeque::from([(id, io)]), limit, gap };
    walk.backward();
    walk.skip_padding();
    walk.forward();
    walk.skip_padding();
    let now_mandatory = if io.kind == IoKind::Write { walk.settle_padding() } else { None };
    Merged { ids: walk.ids.into_iter().map(|(id, _)| id).collect(), now_mandatory }
}

impl Walk<'_> {
    fn first(&self) -> (IoId, Io) {
        self.ids[0]
    }

    fn last(&self) -> (IoId, Io) {
        self.ids[self.ids.len() - 1]
    }

    /// Padding begins nothing.
    fn skip_padding(&mut self) {
        while self.ids.len() > 1 && self.first().1.optional {
            self.ids.pop_front();
        }
    }

    fn backward(&mut self) {
        loop {
            let (first_id, first) = self.first();
            let Some((id, io)) = self.queue.before(first_id, &first) else { return };
            let fits = self.last().1.end() - io.offset <= self.limit;
            if io.flavour != first.flavour || !fits || first.offset.checked_sub(io.end()).is_none_or(|gap| gap > self.gap) {
                return;
            }
            self.ids.push_front((id, io));
        }
    }

    fn forward(&mut self) {
        loop {
            let (last_id, last) = self.last();
            let Some((id, io)) = self.queue.after(last_id, &last) else { return };
            let span = io.end() - self.first().1.offset;
            let fits = (span <= self.limit || io.optional) && span <= MERGED_BYTES_MAX;
            if io.flavour != last.flavour || !fits || io.offset.checked_sub(last.end()).is_none_or(|gap| gap > self.gap) {
                return;
            }
            self.ids.push_back((id, io));
        }
    }

    /// Padding at the end stays only where a write with data follows closely; what follows then must not be left out.
    fn settle_padding(&mut self) -> Option<IoId> {
        let mandatory = self.ids.iter().rev().find(|(_, io)| !io.optional).map(|(_, io)| *io);
        if let Some(mandatory) = mandatory {
            let behind = self.queue.after(self.last().0, &self.last().1);
            let mut reached = self.last();
            while let Some((id, io)) = self.queue.after(reached.0, &reached.1) {
                let near = io.offset.saturating_sub(mandatory.end()) <= self.queue.tunables().write_gap_limit;
                if io.offset != reached.1.end() || !near {
                    break;
                }
                if !io.optional {
                    return behind.map(|(id, _)| id);
                }
                reached = (id, io);
            }
        }
        while self.ids.len() > 1 && self.last().1.optional {
            self.ids.pop_back();
        }
        None
    }
}
