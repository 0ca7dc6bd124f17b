//! A sorted run of ranges: the leaf of the tree. Knows its longest range so that searches skip it whole.

/// Ranges a chunk holds at most; a fuller one is split in two.
pub(crate) const RANGES_MAX: usize = if cfg!(test) { 8 } else { 256 };

/// Non-empty ranges in ascending order that neither overlap nor touch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunk {
    starts: Vec<u64>,
    ends: Vec<u64>,
    longest: u64,
}

impl Chunk {
    pub(crate) fn one(start: u64, end: u64) -> Chunk {
        Chunk { starts: vec![start], ends: vec![end], longest: end - start }
    }

    /// Bytes of its two lists.
    pub(crate) fn memory_bytes(&self) -> usize {
        (self.starts.capacity() + self.ends.capacity()) * size_of::<u64>()
    }

    pub(crate) fn count(&self) -> usize {
        self.starts.len()
    }

    /// The smallest start; chunks are never empty while they are in a tree.
    pub(crate) fn first(&self) -> u64 {
        self.starts[0]
    }

    pub(crate) fn longest(&self) -> u64 {
        self.longest
    }

    pub(crate) fn get(&self, index: usize) -> (u64, u64) {
        (self.starts[index], self.ends[index])
    }

    /// Number of ranges that start at or before `at`.
    pub(crate) fn started_by(&self, at: u64) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }

    pub(crate) fn insert(&mut self, index: usize, start: u64, end: u64) {
        self.starts.insert(index, start);
        self.ends.insert(index, end);
        self.longest = self.longest.max(end - start);
    }

    pub(crate) fn remove(&mut self, index: usize) {
        let length = self.ends.remove(index) - self.starts.remove(index);
        self.lost(length);
    }

    pub(crate) fn set(&mut self, index: usize, start: u64, end: u64) {
        let old = self.ends[index] - self.starts[index];
        self.starts[index] = start;
        self.ends[index] = end;
        if end - start >= self.longest {
            self.longest = end - start;
        } else {
            self.lost(old);
        }
    }

    /// Keeps `longest` exact after a range of `length` is gone.
    fn lost(&mut self, length: u64) {
        if length == self.longest {
            self.longest = self.iter().map(|(start, end)| end - start).max().unwrap_or(0);
        }
    }

    /// Moves the upper half into a new chunk.
    pub(crate) fn split(&mut self) -> Chunk {
        let middle = self.count() / 2;
        let mut upper = Chunk { starts: self.starts.split_off(middle), ends: self.ends.split_off(middle), longest: 0 };
        upper.lost(0);
        self.lost(self.longest);
        upper
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        self.starts.iter().copied().zip(self.ends.iter().copied())
    }
}
