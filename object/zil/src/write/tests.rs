//! The writer over a store in memory. What users lose when these fail: what they were told is durable, the space of logs, or the memory of the daemon.

mod gather;
mod old;

use super::LogWriter;
use super::filled::{Body, fill};
use super::noted::Lists;
use super::pack::{BLOCK_MAX_BYTES, BLOCK_MIN_BYTES, Bursts, Packer};
use crate::stats::LogCounts;
use crate::testing::record;
use crate::{End, Filled, Itx, LogSource, Payload, Range, Visit, walk};
use abd::Abd;
use dmu::{
    BlockError, BlockIo, BlockWrite, DmuError, LogDone, LogIo, LogOwner, LogRoom, SyncError, TxgConfig, TxgManager, TxgSync, WriteDone,
};
use exec::{Exec, Inline, Lockstep, Mutex, Pool, TaskClass};
use ondisk::zil::{LrCommon, LrRemove, LrWrite, TxType};
use ondisk::{BlockPtr, Bookmark, ByteOrder, Dva, Field, ObjectId, Txg, VdevId, ZilHeader};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

const OBJSET: u64 = 21;
const SYNCED: Txg = Txg(10);

/// I/O that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failing {
    Nothing,
    Room,
    Write,
    Flush,
}

#[derive(Debug)]
struct Disk {
    /// Next free address.
    next: u64,
    /// Blocks that nobody freed, by address.
    allocated: BTreeSet<u64>,
    /// Blocks that were written, and those that were flushed.
    written: BTreeMap<u64, Vec<u8>>,
    stable: BTreeMap<u64, Vec<u8>>,
    /// Blocks that were sealed.
    sealed: BTreeSet<u64>,
    failing: Failing,
    /// Blocks are written durably in one step.
    in_one_step: bool,
    /// Blocks are as in pools from before version 23.
    is_old: bool,
    writes: usize,
    flushes: usize,
}

/// Store of log blocks; those that are not stable are lost with a crash.
struct Store {
    exec: Exec,
    disk: Arc<Mutex<Disk>>,
}

impl Store {
    fn new(exec: &Exec) -> Arc<Store> {
        let disk = Disk {
            next: 1 << 20,
            allocated: BTreeSet::new(),
            written: BTreeMap::new(),
            stable: BTreeMap::new(),
            sealed: BTreeSet::new(),
            failing: Failing::Nothing,
            in_one_step: false,
            is_old: false,
            writes: 0,
            flushes: 0,
        };
        Arc::new(Store { exec: exec.clone(), disk: Arc::new(Mutex::new(disk)) })
    }
}

impl BlockIo for Store {
    fn exec(&self) -> &Exec {
        &self.exec
    }
    fn read(&self, bp: &BlockPtr, _: &Bookmark) -> Result<Abd, BlockError> {
        let block = self.disk.lock().stable.get(&bp.dva(0).offset).cloned();
        block.map(|bytes| Abd::from_slice(&bytes)).ok_or(BlockError::Checksum)
    }
    fn prefetch(&self, _: &BlockPtr, _: &Bookmark) {}
    fn write(&self, _: BlockWrite, done: WriteDone) {
        done(Err(BlockError::Io));
    }
    fn free(&self, txg: Txg, bp: &BlockPtr) {
        assert!(txg >= bp.birth(), "no txg's space maps can free what a later one allocates");
        assert!(self.disk.lock().allocated.remove(&bp.dva(0).offset), "a block is freed once");
    }
    fn log(&self) -> Option<&dyn LogIo> {
        Some(self)
    }
    fn dsize(&self, _: &BlockPtr) -> u64 {
        0
    }
}

impl LogIo for Store {
    fn allocate(&self, _: Txg, bytes: usize, _: LogOwner) -> Result<LogRoom, BlockError> {
        let mut disk = self.disk.lock();
        if disk.failing == Failing::Room {
            return Err(BlockError::NoSpace);
        }
        let offset = disk.next;
        disk.next += bytes as u64;
        disk.allocated.insert(offset);
        let dva = Dva { vdev: VdevId(0), offset, asize: bytes as u64, gang: false };
        Ok(LogRoom { dva, is_separate: false, salt_and_iv: None })
    }
    fn is_slim(&self) -> bool {
        !self.disk.lock().is_old
    }
    fn seal(&self, bp: &BlockPtr, _: &mut [u8]) -> Result<(), BlockError> {
        assert!(self.disk.lock().sealed.insert(bp.dva(0).offset), "an initialization vector serves once");
        Ok(())
    }
    fn write(&self, bp: &BlockPtr, block: Vec<u8>, used: usize, done: LogDone) -> usize {
        let (disk, at) = (self.disk.clone(), bp.dva(0).offset);
        assert!(disk.lock().sealed.contains(&at), "nothing is written in the clear");
        self.exec.spawn(
            TaskClass::Interrupt,
            Box::new(move || {
                let result = {
                    let mut disk = disk.lock();
                    disk.writes += 1;
                    match disk.failing {
                        Failing::Write => Err(BlockError::Io),
                        _ => {
                            disk.written.insert(at, block);
                            Ok(())
                        }
                    }
                };
                done(result);
            }),
        );
        used
    }
    fn write_durably(&self, bp: &BlockPtr, block: &mut [u8], _: usize) -> Option<(usize, Result<(), BlockError>)> {
        let mut disk = self.disk.lock();
        assert!(disk.sealed.contains(&bp.dva(0).offset), "nothing is written in the clear");
        if !disk.in_one_step {
            return None;
        }
        disk.writes += 1;
        if disk.failing != Failing::Nothing {
            return Some((block.len(), Err(BlockError::Io)));
        }
        disk.stable.insert(bp.dva(0).offset, block.to_vec());
        drop(disk);
        // Whoever runs meanwhile finds a batch under way.
        self.exec.sleep_ns(10_000);
        Some((block.len(), Ok(())))
    }
    fn flush(&self, _: &[BlockPtr], done: LogDone) {
        let disk = self.disk.clone();
        self.exec.spawn(
            TaskClass::Interrupt,
            Box::new(move || {
                let result = {
                    let mut disk = disk.lock();
                    disk.flushes += 1;
                    match disk.failing {
                        Failing::Flush => Err(BlockError::Io),
                        _ => {
                            let written = std::mem::take(&mut disk.written);
                            disk.stable.extend(written);
                            Ok(())
                        }
                    }
                };
                done(result);
            }),
        );
    }
}

/// Bytes that follow from their place.
struct Pattern;

fn pattern(range: &Range) -> Vec<u8> {
    (range.offset..range.offset + range.length).map(|at| (at % 251) as u8).collect()
}

impl LogSource for Pattern {
    fn fill(&self, payload: &Payload, _: Txg) -> Result<Filled, DmuError> {
        match payload {
            Payload::Copied(range) if range.generation == 0 => Ok(Filled::Bytes(pattern(range))),
            Payload::Copied(range) if range.generation == 1 => Ok(Filled::Nothing),
            _ => Err(BlockError::Io.into()),
        }
    }
}

/// Pool of one object set: the header on disk, and the last txg.
struct Root {
    writer: Weak<LogWriter>,
    disk: Mutex<(ZilHeader, Txg)>,
}

impl TxgSync for Root {
    fn sync_txg(&self, txg: Txg) -> Result<(), SyncError> {
        let header = self.writer.upgrade().and_then(|writer| writer.sync(txg));
        let mut disk = self.disk.lock();
        *disk = (header.unwrap_or_else(|| disk.0.clone()), txg);
        Ok(())
    }
}

struct Bench {
    store: Arc<Store>,
    txgs: Arc<TxgManager>,
    writer: Arc<LogWriter>,
    root: Arc<Root>,
    _source: Arc<Pattern>,
}

/// Records of a log, as a walk shows them.
#[derive(Default)]
struct Seen(Vec<(u64, Vec<u8>)>);

impl Visit for Seen {
    fn block(&mut self, _: &BlockPtr) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    fn record(&mut self, common: &LrCommon, record: &[u8], order: ByteOrder, is_wanted: bool) -> ControlFlow<()> {
        assert_eq!(order, ByteOrder::Little);
        if is_wanted {
            self.0.push((common.lrc_txg, record.to_vec()));
        }
        ControlFlow::Continue(())
    }
}

impl Bench {
    fn new(exec: &Exec) -> Bench {
        let (store, source) = (Store::new(exec), Arc::new(Pattern));
        let txgs = TxgManager::new(exec.clone(), SYNCED, TxgConfig::default());
        let weak: Weak<Pattern> = Arc::downgrade(&source);
        let writer = Arc::new(LogWriter::new(store.clone(), txgs.clone(), (OBJSET, Box::new(|| "tank/fs".to_string())), weak));
        let root = Arc::new(Root { writer: Arc::downgrade(&writer), disk: Mutex::new((ZilHeader::default(), SYNCED)) });
        txgs.start(root.clone());
        Bench { store, txgs, writer, root, _source: source }
    }
    /// One whose log is on disk.
    fn begun(exec: &Exec) -> Bench {
        let bench = Bench::new(exec);
        for _ in 0..2 {
            bench.note(removal(0, None));
            bench.writer.commit(None).expect("committed");
        }
        assert!(!bench.header().zh_log.is_hole(), "the log begins with the first thing to be logged");
        bench
    }
    fn note(&self, itx: Itx) {
        let tx = self.txgs.assign(0).expect("assigned");
        self.writer.note(itx, &tx);
    }
    fn commit(&self) {
        self.writer.commit(None).expect("committed");
    }
    fn sync(&self) {
        self.txgs.wait_synced(self.txgs.open_txg()).expect("synced");
    }
    /// Records that a crash now would leave to be replayed.
    fn left(&self) -> Vec<(u64, Vec<u8>)> {
        self.after_crash().0
    }
    /// Records of that kind, and the last txg on disk.
    fn after_crash(&self) -> (Vec<(u64, Vec<u8>)>, Txg) {
        let (mut seen, (header, synced)) = (Seen::default(), self.root.disk.lock().clone());
        let walked = walk(&*self.store, &header, OBJSET, synced, &mut seen);
        assert_eq!(walked.end, End::Whole);
        (seen.0, synced)
    }
    fn header(&self) -> ZilHeader {
        self.root.disk.lock().0.clone()
    }
    /// Objects named by the removals that a crash now would leave to be replayed.
    fn removed(&self) -> Vec<u64> {
        self.left().into_iter().map(|(_, record)| removed_in(&record)).collect()
    }
    fn counts(&self) -> (usize, usize) {
        let disk = self.store.disk.lock();
        (disk.writes, disk.flushes)
    }
    fn set_failing(&self, failing: Failing) {
        self.store.disk.lock().failing = failing;
    }
    /// The log's blocks are all that is allocated, and there are `blocks`.
    fn occupies(&self, blocks: usize) {
        assert_eq!(self.store.disk.lock().allocated.len(), blocks);
    }
}

fn removed_in(record: &[u8]) -> u64 {
    LrRemove::decode(record).expect("a removal").lr_doid
}

fn inline() -> Exec {
    Arc::new(Inline::new(3))
}

fn removal(object: u64, only_with: Option<u64>) -> Itx {
    let fixed = LrRemove { lr_doid: object, ..LrRemove::default() };
    let record = record(TxType::REMOVE, (0, 0), &fixed, b"name\0", ByteOrder::Little);
    Itx { record, only_with: only_with.map(ObjectId), payload: Payload::None }
}

fn write_of(range: Range) -> Itx {
    let fixed = LrWrite { lr_foid: range.object.0, lr_offset: range.offset, lr_length: range.length, ..LrWrite::ZERO };
    let record = record(TxType::WRITE, (0, 0), &fixed, &[], ByteOrder::Little);
    Itx { record, only_with: None, payload: Payload::Copied(range) }
}

fn range(offset: u64, length: u64) -> Range {
    Range { object: ObjectId(7), generation: 0, offset, length }
}

/// If this fails, a file that was made durable is lost, or comes back in an order in which it never was.
#[test]
fn what_a_commit_wrote_is_what_a_replay_finds() {
    let bench = Bench::begun(&inline());
    bench.note(removal(1, None));
    bench.note(removal(2, Some(50)));
    bench.note(removal(3, Some(60)));
    bench.note(removal(4, None));
    bench.writer.commit(Some(ObjectId(60))).expect("committed");
    assert_eq!(bench.removed(), [1, 3, 4], "what only object 50 wants waits; the rest is in the order of noting");
    bench.commit();
    assert_eq!(bench.removed(), [1, 3, 4, 2]);
    bench.note(removal(5, Some(50)));
    bench.note(removal(6, Some(60)));
    bench.writer.promote(ObjectId(50));
    bench.writer.forget(ObjectId(60));
    bench.writer.commit(Some(ObjectId(70))).expect("committed");
    assert_eq!(bench.removed(), [1, 3, 4, 2, 5]);
    bench.sync();
    assert_eq!(bench.left(), [], "what is on disk with its txg is not replayed");
}

/// If this fails, a write is replayed with holes in it, or with bytes of another one.
#[test]
fn a_write_of_any_length_is_whole() {
    writes_are_whole(&Bench::begun(&inline()));
}

fn writes_are_whole(bench: &Bench) {
    let lengths = [1, 8, 4000, 4096, 100_000, 130_888, 131_072, 700_001];
    for (index, length) in lengths.into_iter().enumerate() {
        bench.note(write_of(range(index as u64 * 1_000_000, length)));
        bench.note(write_of(Range { generation: 1, ..range(index as u64 * 1_000_000, length) }));
        if index % 2 == 1 {
            bench.commit();
        }
    }
    let mut found: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for (txg, record) in bench.left() {
        let write = LrWrite::decode(&record).expect("a write");
        assert!(txg > SYNCED.0 && record.len().is_multiple_of(8) && record.len() > LrWrite::SIZE);
        let data = &record[LrWrite::SIZE..LrWrite::SIZE + write.lr_length as usize];
        let (start, whole) = (write.lr_offset / 1_000_000, write.lr_offset % 1_000_000);
        let bytes = found.entry(start).or_default();
        assert_eq!(bytes.len() as u64, whole, "pieces follow each other");
        bytes.extend_from_slice(data);
    }
    let expected = lengths.iter().enumerate().map(|(index, length)| (index as u64, pattern(&range(index as u64 * 1_000_000, *length))));
    assert_eq!(found, expected.collect());
}

/// If this fails, the pool loses the space of logs, or a header names a block that was freed.
#[test]
fn blocks_go_when_their_txgs_are_on_disk() {
    let bench = Bench::begun(&inline());
    for round in 0..30 {
        for object in 0..round % 4 {
            bench.note(removal(object, None));
            bench.commit();
        }
        bench.note(write_of(range(0, 300_000)));
        bench.commit();
        assert_eq!(bench.left().last().map(|(txg, _)| *txg), Some(bench.txgs.open_txg().0));
        bench.sync();
        bench.occupies(1);
        let first = bench.header().zh_log.dva(0).offset;
        assert!(bench.store.disk.lock().allocated.contains(&first));
    }
    bench.writer.close();
    bench.sync();
    bench.occupies(0);
    assert_eq!(bench.header(), ZilHeader::default());
    bench.note(removal(1, None));
    let before = bench.txgs.synced_txg();
    bench.commit();
    assert!(bench.txgs.synced_txg() > before, "a log that was closed leaves it to the txg");
    bench.writer.reopen();
    for object in [1, 2, 3] {
        bench.note(removal(object, None));
        bench.commit();
    }
    assert_eq!(bench.removed(), [3]);
    let tx = bench.txgs.assign(0).expect("assigned");
    bench.writer.destroy(Txg(tx.txg().0 - 1));
    bench.occupies(0);
}

#[test]
fn a_commit_is_one_write_and_one_flush_and_one_without_news_is_nothing() {
    let bench = Bench::begun(&inline());
    for _ in 0..2 {
        bench.note(write_of(range(0, 4096)));
        bench.commit();
    }
    let (synced, (writes, flushes)) = (bench.txgs.synced_txg(), bench.counts());
    for round in 1..=5 {
        bench.note(write_of(range(4096 * round as u64, 4096)));
        bench.commit();
        bench.commit();
        assert_eq!(bench.counts(), (writes + round, flushes + round));
    }
    assert_eq!(bench.txgs.synced_txg(), synced);
    bench.store.disk.lock().in_one_step = true;
    let (writes, flushes) = bench.counts();
    for round in 1..=5 {
        bench.note(removal(round as u64, None));
        bench.commit();
        assert_eq!(bench.counts(), (writes + round, flushes), "where a write can be durable in one step");
        assert_eq!(bench.removed().last(), Some(&(round as u64)));
    }
    bench.note(write_of(range(0, 300_000)));
    bench.commit();
    let (more, flushed) = bench.counts();
    assert!(more > writes + 6 && flushed == flushes + 1, "several blocks need one flush: {more}, {flushed}");
    let counted = bench.writer.counts();
    let count = |name: &str| counted.iter().find(|(of, _)| *of == name).expect("counted").1;
    assert_eq!((count("zil_itx_metaslab_normal_count"), count("zil_itx_needcopy_bytes")), (more as u64, 7 * 4096 + 300_000));
}

/// If this fails, threads of a busy database hang although the log works: one that nobody wakes waits for ever.
#[test]
fn every_thread_that_waits_for_a_batch_is_woken() {
    let exec: Exec = Arc::new(Pool::new(2));
    let bench = Bench::begun(&exec);
    bench.store.disk.lock().in_one_step = true;
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let bench = &bench;
            scope.spawn(move || {
                for step in 0..200 {
                    bench.note(removal(worker * 1000 + step, None));
                    bench.commit();
                }
            });
        }
    });
    bench.writer.close();
    bench.txgs.stop().expect("stopped");
}

/// If this fails, a device that fails takes what was committed with it, or space that nobody finds again.
#[test]
fn what_cannot_be_logged_waits_for_its_txg() {
    for (failing, in_one_step) in [(Failing::Write, false), (Failing::Flush, false), (Failing::Room, false), (Failing::Write, true)] {
        let bench = Bench::begun(&inline());
        bench.store.disk.lock().in_one_step = in_one_step;
        bench.note(removal(1, None));
        bench.commit();
        bench.set_failing(failing);
        for object in 2..20 {
            bench.note(removal(object, None));
            let open = bench.txgs.open_txg();
            bench.commit();
            assert!(bench.txgs.synced_txg() >= open, "{failing:?}");
            assert!(bench.writer.failure().is_some(), "{failing:?}: the owner of the pool is told");
            assert_eq!(bench.left(), [], "{failing:?}: nothing is left on top of what is not there");
        }
        bench.set_failing(Failing::Nothing);
        bench.writer.forget_failure();
        assert_eq!(bench.writer.failure(), None, "{failing:?}: whoever mended it is not told of it until the next commit");
        for object in 20..26 {
            bench.note(removal(object, None));
            bench.commit();
        }
        assert_eq!(bench.removed().last(), Some(&25), "{failing:?}: it is logged again");
        bench.sync();
        bench.occupies(1);
    }
    let bench = Bench::begun(&inline());
    bench.note(write_of(Range { generation: 9, ..range(0, 10) }));
    let open = bench.txgs.open_txg();
    bench.commit();
    assert!(bench.txgs.synced_txg() >= open, "bytes that cannot be read");
    bench.note(removal(1, None));
    bench.commit();
    assert_eq!(bench.removed(), [1]);
}

/// If this fails, what nobody noted is missing below what was noted later.
#[test]
fn a_gap_is_closed_by_a_txg() {
    let bench = Bench::begun(&inline());
    bench.writer.note_gap();
    bench.note(removal(1, None));
    let open = bench.txgs.open_txg();
    bench.commit();
    assert!(bench.txgs.synced_txg() >= open);
    bench.note(removal(2, None));
    bench.commit();
    assert_eq!(bench.removed(), [2]);
}

/// If this fails, files that nobody ever commits fill the memory.
#[test]
fn what_waits_in_memory_has_a_limit() {
    let mut lists = Lists::default();
    let noted = (0u64..).take_while(|number| lists.add(removal(1, Some(number % 3)), Txg(11 + number / 1000))).count();
    assert!((100_000..1_000_000).contains(&noted), "{noted}");
    let full = lists.bytes();
    lists.forget(ObjectId(0));
    lists.promote(Some(ObjectId(1)));
    lists.drop_synced(Txg(11));
    assert!(lists.bytes() < full - full / 4);
    assert_eq!(lists.take().len(), noted.div_ceil(3) - 333);
    lists.promote(None);
    lists.take();
    assert_eq!(lists.bytes(), 0);
    lists.add(removal(1, None), Txg(12));
    lists.clear();
    assert!(!lists.has_work() && lists.bytes() == 0);
}

#[test]
fn writes_that_go_on_are_one_operation_and_others_are_not() {
    let alone = |range: Range| Itx::of_write(Payload::Copied(range), Some(range.object)).expect("it has bytes");
    let mut lists = Lists::default();
    assert!(!lists.lengthen(&range(0, 100), Txg(11)), "there is nothing to go on from");
    assert!(lists.add(alone(range(0, 100)), Txg(11)));
    let bytes = lists.bytes();
    assert!((1..300).all(|number| lists.lengthen(&range(number * 100, 100), Txg(11))));
    assert_eq!(lists.bytes(), bytes, "they take no memory");
    let other = [
        (range(30_100, 100), Txg(11)),
        (range(29_900, 100), Txg(11)),
        (range(30_000, 100), Txg(12)),
        (range(30_000, 64 << 10), Txg(11)),
        (Range { generation: 99, ..range(30_000, 100) }, Txg(11)),
        (Range { object: ObjectId(99), ..range(30_000, 100) }, Txg(11)),
    ];
    assert!(
        other.iter().all(|(range, txg)| !lists.lengthen(range, *txg)),
        "bytes between, written again, of another txg, too long, or of another file"
    );
    lists.add(removal(1, Some(range(0, 1).object.0)), Txg(11));
    assert!(!lists.lengthen(&range(30_000, 100), Txg(11)), "something else came in between");
    lists.promote(None);
    let payloads: Vec<Payload> = lists.take().into_iter().map(|noted| noted.itx.payload).collect();
    assert_eq!(payloads, [Payload::Copied(range(0, 30_000)), Payload::None]);
}

/// Source of whose writes the blocks are on the devices.
struct Named(BlockPtr);

impl LogSource for Named {
    fn fill(&self, _: &Payload, _: Txg) -> Result<Filled, DmuError> {
        Ok(Filled::Block(self.0))
    }
}

/// If this fails, a file is shorter after a crash than what was made durable of it: the record of several writes that names their block is of the first.
#[test]
fn a_record_that_names_the_block_of_several_writes_is_as_long_as_all_of_them() {
    let mut lists = Lists::default();
    assert!(lists.add(Itx::of_write(Payload::Copied(range(4096, 4096)), Some(ObjectId(7))).expect("it has bytes"), Txg(11)));
    assert!(lists.lengthen(&range(8192, 4096), Txg(11)));
    lists.promote(None);
    let noted = lists.take().remove(0);
    let mut bp = BlockPtr::HOLE;
    bp.set_dva(0, Dva { vdev: VdevId(0), offset: 1 << 20, asize: 16384, gang: false });
    let mut blocks = Vec::new();
    let ready = fill(noted, Some(&Named(bp)), (&mut blocks, &LogCounts::default())).expect("filled").expect("a record");
    let Body::Record(record) = &ready.body else { panic!("{ready:?}") };
    let write = LrWrite::decode(record).expect("a write");
    assert_eq!((write.lr_offset, write.lr_length, write.lr_blkptr == bp, blocks.len()), (4096, 8192, true, 1));
}

#[test]
fn blocks_are_as_long_as_bursts_were() {
    let mut bursts = Bursts::default();
    assert_eq!(bursts.predict(), BLOCK_MIN_BYTES);
    bursts.note(4288);
    assert_eq!(bursts.predict(), 2 * BLOCK_MIN_BYTES, "4 KiB with its record fit");
    bursts.note(60_000);
    assert_eq!(bursts.predict(), 2 * BLOCK_MIN_BYTES, "one that was much longer does not count");
    bursts.note(50_000);
    assert_eq!(bursts.predict(), 61_440);
    (0..8).for_each(|_| bursts.note(1 << 20));
    assert_eq!(bursts.predict(), BLOCK_MAX_BYTES);
    let packer = Packer::new(BLOCK_MIN_BYTES, 5);
    let (blocks, seq) = packer.finish();
    assert_eq!((blocks.len(), blocks[0].used(), seq), (1, 184, 5));
}

/// Threads that note and commit while txgs are synced: at every return of a commit a crash must leave what was committed. If this fails, busy
/// databases lose commits. What waits while a batch is written goes as one.
#[test]
fn threads_that_commit_at_once_share_batches_and_lose_nothing() {
    for seed in 0..40 {
        Lockstep::run(seed, |exec| {
            let bench = Arc::new(Bench::new(exec));
            bench.store.disk.lock().in_one_step = seed % 2 == 1;
            bench.writer.set_gather_percent(seed % 4 / 2 * 400);
            let workers: Vec<_> = (0..4u64)
                .map(|worker| {
                    let bench = bench.clone();
                    let work = move || {
                        for step in 0..6 {
                            let object = worker * 100 + step;
                            let txg = {
                                let tx = bench.txgs.assign(0).expect("assigned");
                                bench.writer.note(removal(object, Some(worker)), &tx);
                                tx.txg()
                            };
                            bench.writer.commit(Some(ObjectId(worker))).expect("committed");
                            let (left, synced) = bench.after_crash();
                            let is_there = left.iter().any(|(_, record)| removed_in(record) == object);
                            assert!(is_there || synced >= txg, "{object} of txg {txg}, {synced} is on disk");
                            if step == 3 {
                                bench.txgs.kick();
                            }
                        }
                    };
                    exec.spawn_operation("worker", Box::new(work))
                })
                .collect();
            workers.into_iter().for_each(exec::OperationHandle::join);
            bench.writer.close();
            bench.txgs.stop().expect("stopped");
            bench.occupies(0);
        });
    }
}
