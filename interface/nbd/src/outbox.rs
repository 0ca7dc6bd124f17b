//! Bytes that go out: heads, and data that stays where it is until the socket has taken it.

use abd::Abd;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Pieces of one vectored write, at most: the system takes 1024.
const SLICES_MAX: usize = 512;

enum Out {
    Head(Vec<u8>),
    Data(Abd),
}

impl Out {
    fn len(&self) -> usize {
        match self {
            Out::Head(bytes) => bytes.len(),
            Out::Data(data) => data.len(),
        }
    }
}

/// Bytes that wait to be sent.
#[derive(Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Out>,
    bytes: usize,
    /// Bytes of the first of the queue that were sent.
    sent: usize,
}

impl Outbox {
    /// Appends a head, and what follows it.
    pub(crate) fn push(&mut self, head: Vec<u8>, data: Option<Abd>) {
        let data = data.map(Out::Data);
        for out in [Some(Out::Head(head)), data].into_iter().flatten().filter(|out| out.len() > 0) {
            self.bytes += out.len();
            self.queue.push_back(out);
        }
    }

    /// Number of bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// True when nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Gather list of what is next.
    pub(crate) fn slices(&self) -> Vec<IoSlice<'_>> {
        let (mut list, mut skip) = (Vec::new(), self.sent);
        for out in &self.queue {
            let slices = match out {
                Out::Head(bytes) => vec![IoSlice::new(bytes)],
                Out::Data(data) => data.io_slices(),
            };
            for mut slice in slices {
                let over = skip.min(slice.len());
                skip -= over;
                if over < slice.len() {
                    slice.advance(over);
                    list.push(slice);
                }
                if list.len() == SLICES_MAX {
                    return list;
                }
            }
        }
        list
    }

    /// Notes that `count` bytes were sent; buffers of which nothing is left are let go.
    pub(crate) fn took(&mut self, count: usize) {
        self.bytes -= count;
        self.sent += count;
        while let Some(out) = self.queue.pop_front_if(|out| out.len() <= self.sent) {
            self.sent -= out.len();
        }
    }
}
