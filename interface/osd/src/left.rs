//! Blocks that were read directly for a part of their bytes, kept a while for those who read on: who reads in sequence reads each block once.
//!
//! Some blocks of each object and a bounded number of bytes of all; a block goes when all of it was asked for, when newer ones come, or when it changes.

use abd::Abd;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of blocks that an object keeps, at most.
const BLOCKS_MAX: usize = 64;
/// Bytes that all objects of a device keep, at most.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Debug)]
struct Rest {
    block: u64,
    data: Abd,
    /// Bytes of it that were asked for.
    served: u64,
}

/// Blocks that an object keeps, the oldest first.
#[derive(Debug)]
pub(crate) struct Left {
    rests: VecDeque<Rest>,
    /// Bytes that all objects of the device keep.
    held: Arc<AtomicU64>,
}

impl Left {
    pub(crate) fn new(held: Arc<AtomicU64>) -> Left {
        Left { rests: VecDeque::new(), held }
    }

    /// Part of a block that is kept; None when it is not.
    pub(crate) fn serve(&mut self, block: u64, part: Range<usize>) -> Option<Abd> {
        let at = self.rests.iter().position(|rest| rest.block == block)?;
        let rest = self.rests.get_mut(at).filter(|rest| part.end <= rest.data.len())?;
        let data = rest.data.slice(part.clone());
        rest.served += part.len() as u64;
        if rest.served >= rest.data.len() as u64 {
            self.remove(at);
        }
        Some(data)
    }

    /// Keeps a block of which `served` bytes were asked for.
    pub(crate) fn keep(&mut self, block: u64, data: Abd, served: u64) {
        let bytes = data.len() as u64;
        self.forget(block..block + 1);
        if self.rests.len() == BLOCKS_MAX {
            self.remove(0);
        }
        if self.held.fetch_add(bytes, Ordering::Relaxed) + bytes > BYTES_MAX {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        self.rests.push_back(Rest { block, data, served });
    }

    /// Forgets blocks that change.
    pub(crate) fn forget(&mut self, blocks: Range<u64>) {
        while let Some(at) = self.rests.iter().position(|rest| blocks.contains(&rest.block)) {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) {
        if let Some(rest) = self.rests.remove(at) {
            self.held.fetch_sub(rest.data.len() as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.forget(0..u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCKS_MAX, BYTES_MAX, Left};
    use abd::Abd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// If this fails, a reader gets bytes of another block, or what nobody reads on is in memory for ever.
    #[test]
    fn blocks_are_kept_for_their_neighbours_and_no_longer() {
        let held = Arc::new(AtomicU64::new(0));
        let mut left = Left::new(held.clone());
        left.keep(3, Abd::from_slice(&[3; 8192]), 4096);
        assert!(left.serve(3, 4096..6144).is_some_and(|data| data.to_vec() == [3; 2048]));
        assert!(left.serve(4, 0..1).is_none());
        assert!(left.serve(3, 6144..8192).is_some() && left.serve(3, 0..1).is_none(), "all of it was asked for");
        for block in 0..BLOCKS_MAX as u64 + 1 {
            left.keep(block, Abd::zeroed(512), 0);
        }
        assert!(left.serve(0, 0..1).is_none() && left.serve(1, 0..1).is_some(), "the oldest goes");
        left.forget(1..5);
        assert!(left.serve(4, 0..1).is_none() && left.serve(5, 0..1).is_some());
        assert_eq!(held.load(Ordering::Relaxed), 512 * (BLOCKS_MAX as u64 - 4));
        held.fetch_add(BYTES_MAX, Ordering::Relaxed);
        left.keep(99, Abd::zeroed(512), 0);
        assert!(left.serve(99, 0..1).is_none(), "there is no more room");
        drop(left);
        assert_eq!(held.load(Ordering::Relaxed), BYTES_MAX);
    }
}
