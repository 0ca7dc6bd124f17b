//! A set of block writes in flight, bounded in bytes, with one wait for all of them.
//!
//! Small blocks are handed over several at a time: a txg of many small files has thousands, each of which would be a job, and an I/O, of its own.

use crate::{BlockError, BlockIo, BlockWrite, WriteDone};
use exec::{Mutex, WaitQueue};
use ondisk::BlockPtr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in flight above which the submitter waits.
const IN_FLIGHT_BYTES_MAX: u64 = 128 << 20;
/// Bytes in flight at which it goes on.
const IN_FLIGHT_BYTES_LOW: u64 = 96 << 20;
const NOBODY_WAITS: u64 = u64::MAX;
/// Bytes that are handed over together at most, unless one block has more: no job has more to do than that of a usual record.
const TOGETHER_BYTES_MAX: u64 = 128 << 10;
/// Number of blocks that are handed over together at most.
const TOGETHER_MAX: usize = 32;

struct Shared {
    results: Mutex<Vec<Result<BlockPtr, BlockError>>>,
    in_flight_bytes: AtomicU64,
    /// The waiter goes on when no more bytes than this are in flight.
    goal: AtomicU64,
    fell: WaitQueue,
}

/// Writes of one level of a sync.
pub(super) struct WriteSet {
    io: Arc<dyn BlockIo>,
    shared: Arc<Shared>,
    /// Writes that were not handed over yet, and their bytes; they count as in flight.
    held: Vec<(BlockWrite, WriteDone)>,
    held_bytes: u64,
}

impl WriteSet {
    pub(super) fn new(io: Arc<dyn BlockIo>) -> WriteSet {
        let shared = Shared {
            results: Mutex::default(),
            in_flight_bytes: AtomicU64::new(0),
            goal: AtomicU64::new(NOBODY_WAITS),
            fell: WaitQueue::new(),
        };
        WriteSet { io, shared: Arc::new(shared), held: Vec::new(), held_bytes: 0 }
    }

    /// Starts a write, at the latest with [`WriteSet::wait`]; gives its index in the results of that.
    pub(super) fn submit(&mut self, write: BlockWrite) -> usize {
        let bytes = write.data.len() as u64;
        if self.shared.in_flight_bytes.load(Ordering::Relaxed) > IN_FLIGHT_BYTES_MAX {
            self.wait_until_below(IN_FLIGHT_BYTES_LOW);
        }
        let index = {
            let mut results = self.shared.results.lock();
            results.push(Err(BlockError::Io));
            results.len() - 1
        };
        self.shared.in_flight_bytes.fetch_add(bytes, Ordering::SeqCst);
        let shared = self.shared.clone();
        let done = move |result: Result<BlockPtr, BlockError>| {
            shared.results.lock()[index] = result;
            let left = shared.in_flight_bytes.fetch_sub(bytes, Ordering::SeqCst) - bytes;
            let goal = shared.goal.load(Ordering::SeqCst);
            if goal != NOBODY_WAITS && left <= goal {
                shared.fell.notify_all();
            }
        };
        if self.held_bytes + bytes > TOGETHER_BYTES_MAX || self.held.len() == TOGETHER_MAX {
            self.hand_over();
        }
        self.held.push((write, Box::new(done)));
        self.held_bytes += bytes;
        if self.held_bytes >= TOGETHER_BYTES_MAX {
            self.hand_over();
        }
        index
    }

    /// Starts the writes that are held.
    fn hand_over(&mut self) {
        self.held_bytes = 0;
        match self.held.len() {
            0 => {}
            1 => self.held.drain(..).for_each(|(write, done)| self.io.write(write, done)),
            _ => self.io.write_together(std::mem::take(&mut self.held)),
        }
    }

    /// Waits for all writes; gives their results and starts over.
    pub(super) fn wait(&mut self) -> Vec<Result<BlockPtr, BlockError>> {
        self.wait_until_below(0);
        std::mem::take(&mut *self.shared.results.lock())
    }

    fn wait_until_below(&mut self, goal: u64) {
        self.hand_over();
        let shared = &self.shared;
        shared.goal.store(goal, Ordering::SeqCst);
        let is_below = || shared.in_flight_bytes.load(Ordering::SeqCst) <= goal;
        match self.io.lookups() {
            None => shared.fell.wait_until(self.io.exec(), &is_below),
            Some(lookups) => {
                let poked = shared.clone();
                lookups.attend(Some(Arc::new(move || poked.fell.notify_all())));
                loop {
                    shared.fell.wait_until(self.io.exec(), &|| is_below() || lookups.is_asked());
                    if is_below() {
                        break;
                    }
                    lookups.answer();
                }
                lookups.attend(None);
            }
        }
        shared.goal.store(NOBODY_WAITS, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::WriteSet;
    use crate::testing::MemBlockIo;
    use crate::{BlockError, BlockIo, BlockWrite, Dedup, Keep, LookupIo, Poke, WriteDone};
    use abd::Abd;
    use exec::{Exec, Mutex};
    use ondisk::{BlockPtr, Bookmark, Checksum, Compression, ObjectType, Txg};
    use std::sync::Arc;

    /// Store that notes how many blocks come at a time.
    struct Noting {
        io: Arc<MemBlockIo>,
        numbers: Mutex<Vec<usize>>,
    }

    impl BlockIo for Noting {
        fn exec(&self) -> &Exec {
            BlockIo::exec(&self.io)
        }
        fn read(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, BlockError> {
            BlockIo::read(&self.io, bp, bookmark)
        }
        fn prefetch(&self, bp: &BlockPtr, bookmark: &Bookmark) {
            BlockIo::prefetch(&self.io, bp, bookmark);
        }
        fn write(&self, write: BlockWrite, done: WriteDone) {
            self.write_together(vec![(write, done)]);
        }
        fn write_together(&self, writes: Vec<(BlockWrite, WriteDone)>) {
            self.numbers.lock().push(writes.len());
            writes.into_iter().for_each(|(write, done)| BlockIo::write(&self.io, write, done));
        }
        fn free(&self, txg: Txg, bp: &BlockPtr) {
            BlockIo::free(&self.io, txg, bp);
        }
        fn dsize(&self, bp: &BlockPtr) -> u64 {
            BlockIo::dsize(&self.io, bp)
        }
    }

    /// Store whose writes wait until somebody answers.
    struct Asking {
        io: Arc<MemBlockIo>,
        asked: Mutex<Vec<(BlockWrite, WriteDone)>>,
        poke: Mutex<Option<Poke>>,
    }

    impl BlockIo for Asking {
        fn exec(&self) -> &Exec {
            BlockIo::exec(&self.io)
        }
        fn read(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, BlockError> {
            BlockIo::read(&self.io, bp, bookmark)
        }
        fn prefetch(&self, bp: &BlockPtr, bookmark: &Bookmark) {
            BlockIo::prefetch(&self.io, bp, bookmark);
        }
        fn write(&self, write: BlockWrite, done: WriteDone) {
            self.asked.lock().push((write, done));
            let poke = self.poke.lock().clone();
            if let Some(poke) = poke {
                poke();
            }
        }
        fn free(&self, txg: Txg, bp: &BlockPtr) {
            BlockIo::free(&self.io, txg, bp);
        }
        fn dsize(&self, bp: &BlockPtr) -> u64 {
            BlockIo::dsize(&self.io, bp)
        }
        fn lookups(&self) -> Option<&dyn LookupIo> {
            Some(self)
        }
    }

    impl LookupIo for Asking {
        fn attend(&self, poke: Option<Poke>) {
            *self.poke.lock() = poke;
        }
        fn is_asked(&self) -> bool {
            !self.asked.lock().is_empty()
        }
        fn answer(&self) {
            let asked = std::mem::take(&mut *self.asked.lock());
            asked.into_iter().for_each(|(write, done)| BlockIo::write(&self.io, write, done));
        }
    }

    /// If this fails, a sync waits for ever for blocks that wait for it.
    #[test]
    fn whoever_waits_for_writes_answers_what_they_ask() {
        let io = Arc::new(Asking { io: MemBlockIo::inline(1), asked: Mutex::default(), poke: Mutex::default() });
        let mut set = WriteSet::new(io.clone());
        let indices: Vec<usize> = (0..100).map(|_| set.submit(block(4096))).collect();
        let results = set.wait();
        assert!(indices.iter().all(|index| results[*index].is_ok()));
        assert!(io.poke.lock().is_none(), "nobody attends any more");
    }

    fn block(bytes: usize) -> BlockWrite {
        BlockWrite {
            txg: Txg(4),
            bookmark: Bookmark::default(),
            data: Abd::from_slice(&vec![7; bytes]),
            object_type: ObjectType::PLAIN_FILE_CONTENTS,
            level: 0,
            fill: 1,
            checksum: Checksum::FLETCHER_4,
            compression: Compression::OFF,
            zstd_level: 0,
            copies: 1,
            small_bytes: 0,
            dedup: Dedup::Off,
            previous: BlockPtr::HOLE,
            keep: Keep::Kept,
            seal: None,
        }
    }

    /// If this fails, each small file of a txg costs a job and a device's I/O of its own, or blocks that were held are waited for in vain.
    #[test]
    fn small_blocks_are_handed_over_together_and_large_ones_alone() {
        let io = Arc::new(Noting { io: MemBlockIo::inline(1), numbers: Mutex::default() });
        let mut set = WriteSet::new(io.clone());
        let sizes = [vec![4096; 40], vec![128 << 10, 512]].concat();
        let indices: Vec<usize> = sizes.iter().map(|bytes| set.submit(block(*bytes))).collect();
        let results = set.wait();
        let written: Vec<usize> = indices.iter().map(|index| results[*index].expect("written").lsize()).collect();
        assert_eq!((written, &io.numbers.lock()[..]), (sizes, &[32, 8, 1, 1][..]));
        assert!(set.wait().is_empty(), "it has started over");
    }
}
