//! Intent logs that another system left behind: an empty one costs nothing but its blocks' space, which comes back; one that holds
//! writes which nobody here can replay keeps the pool from being written. What users lose when these fail: a pool of theirs that no
//! longer opens for writing, what they had made durable, or somebody else's blocks, which were freed with a log that did not own them.

use crate::common::{create, devices, import};
use device::MemDevice;
use dsl::TxSpace;
use kernels::checksum::{Verifier, embed};
use metaslab::AllocRequest;
use ondisk::zil::{LrCommon, LrWrite, TxType};
use ondisk::{BlockPtr, Checksum, Field, Txg, ZilChain, ZilHeader, ZioEck};
use pool::{ImportOptions, Pool, PoolError, Rewind, Runtime};
use std::sync::Arc;
use vdev::TopKind;
use zil::testing::{LOG_BYTES, log_pointer};

const LABEL_START_BYTES: u64 = 4 << 20;
const FS: &str = "tank/fs";

/// A pool on one device with a file system that gets a log.
struct Bench {
    devices: Vec<Arc<MemDevice>>,
    pool: Option<Pool>,
    objset: u64,
}

impl Bench {
    fn new() -> Bench {
        let devices = devices(1);
        let pool = create(&devices, TopKind::Leaf);
        pool.dsl().create_dataset(FS, crate::common::dataset()).expect("created");
        let objset = pool.dsl().hold(FS).expect("held").object();
        Bench { devices, pool: Some(pool), objset }
    }
    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("open")
    }
    /// A block as an allocation for the log gives it, with this number in the chain.
    fn block(&self, seq: u64, txg: Txg) -> BlockPtr {
        let request = AllocRequest { psize: LOG_BYTES as u64, copies: 1, txg, hint: 0 };
        let dvas = self.pool().zio().view().allocator.alloc(&request).expect("room");
        log_pointer(self.objset, seq, dvas[0], txg)
    }
    /// A block with this number, and the txg that it was allocated in, which is synced.
    fn synced_block(&self, seq: u64) -> BlockPtr {
        let tx = self.pool().dsl().hold(FS).expect("held").assign(TxSpace::Writes(1 << 20)).expect("assigned");
        let bp = self.block(seq, tx.txg());
        // Something else changes, or there would be nothing to sync.
        self.pool().dsl().hold(FS).expect("held").objset().expect("objset").set_flags(seq, &tx).expect("changed");
        drop(tx);
        self.pool().sync().expect("synced");
        bp
    }
    fn set_header(&self, header: ZilHeader) {
        let handle = self.pool().dsl().hold(FS).expect("held");
        let tx = handle.assign(TxSpace::Writes(1 << 20)).expect("assigned");
        handle.objset().expect("objset").set_zil_header(header, &tx).expect("set");
        drop(tx);
        self.pool().sync().expect("synced");
    }
    /// Writes a log block on the device: these records, and the pointer of the next block.
    fn write(&self, bp: &BlockPtr, records: &[Vec<u8>], next: BlockPtr) {
        let mut chain: ZilChain = Field::ZERO;
        let records = records.concat();
        chain.zc_next_blk = next;
        chain.zc_nused = (ZilChain::SIZE + records.len()) as u64;
        chain.zc_eck.zec_magic = ZioEck::MAGIC;
        let mut block = vec![0; LOG_BYTES];
        block[..ZilChain::SIZE].copy_from_slice(&chain.encode());
        block[ZilChain::SIZE..ZilChain::SIZE + records.len()].copy_from_slice(&records);
        embed(Checksum::ZILOG2, &mut block, Verifier::log_block(bp.checksum())).expect("room");
        let at = (LABEL_START_BYTES + bp.dva(0).offset) as usize;
        self.devices[0].tamper(|bytes| bytes[at..at + LOG_BYTES].copy_from_slice(&block));
    }
    /// As if the system stopped.
    fn crash(&mut self) {
        self.pool = None;
    }
    /// Crashes, and goes back to an older state.
    fn go_back(&mut self, rewind: Rewind) {
        self.crash();
        let options = ImportOptions { host: crate::common::host(), rewind, ..ImportOptions::default() };
        let devices = crate::common::opened(&self.devices);
        self.pool = Some(Pool::import(&crate::common::exec(8), devices, &options, &Runtime::new()).expect("it goes back"));
    }
    fn clean(&mut self, what: &str) {
        self.crash();
        let pool = import(&self.devices, true).unwrap_or_else(|error| panic!("{what}: read-only: {error}"));
        let report = pool.verify_space().expect("readable");
        assert!(report.is_clean(), "{what}: {report:?}");
    }
    /// Imports it, finds the log given up and its space back, destroys the file system, and finds that clean too.
    fn written_after(mut self, what: &str) {
        self.clean(what);
        self.pool = Some(import(&self.devices, false).unwrap_or_else(|error| panic!("{what}: {error}")));
        let header = self.pool().dsl().hold(FS).expect("held").objset().expect("objset").zil_header();
        assert_eq!(header, ZilHeader::default(), "{what}: the log is gone");
        self.clean(&format!("{what}, given up"));
        self.pool = Some(import(&self.devices, false).expect("again"));
        self.pool().dsl().destroy_dataset(FS).expect("destroyed");
        while self.pool().dsl().has_frees() {
            self.pool().sync().expect("synced");
        }
        self.clean(&format!("{what}, destroyed"));
    }
}

fn record(txg: Txg, seq: u64) -> Vec<u8> {
    let common = LrCommon { lrc_txtype: TxType::REMOVE.0, lrc_reclen: LrCommon::SIZE as u64 + 8, lrc_txg: txg.0, lrc_seq: seq };
    [common.encode().to_vec(), vec![0; 8]].concat()
}

fn header(first: BlockPtr) -> ZilHeader {
    ZilHeader { zh_log: first, ..ZilHeader::default() }
}

#[test]
fn a_log_whose_only_block_was_never_written_is_given_up() {
    let bench = Bench::new();
    bench.set_header(header(bench.synced_block(1)));
    bench.written_after("an empty log");
}

#[test]
fn records_that_are_in_the_pool_already_need_no_replay() {
    let bench = Bench::new();
    let (first, second) = (bench.synced_block(5), bench.synced_block(6));
    bench.set_header(header(first));
    bench.write(&first, &[record(Txg(2), 7), record(bench.pool().txg(), 9)], second);
    bench.written_after("old records");
}

#[test]
fn blocks_that_no_space_map_knows_are_not_freed() {
    let bench = Bench::new();
    let first = bench.synced_block(1);
    bench.set_header(header(first));
    // Allocated in a txg that is never synced: the space is anybody's after the crash.
    let later = bench.block(2, bench.pool().txgs().open_txg());
    bench.write(&first, &[record(bench.pool().txg(), 1)], later);
    bench.written_after("a block of a txg that was lost");
}

/// If this fails, a pool that goes back to an older state frees blocks that this state does not know: they are somebody else's by then.
#[test]
fn a_log_that_goes_on_in_txgs_that_were_left_behind_is_given_up() {
    let mut bench = Bench::new();
    let first = bench.synced_block(1);
    bench.set_header(header(first));
    let txg = bench.pool().txg();
    let second = bench.synced_block(2);
    bench.write(&first, &[record(bench.pool().txg(), 1)], second);
    bench.go_back(Rewind::To(txg));
    assert_eq!(bench.pool().rewound().map(|rewound| rewound.txg), Some(txg));
    bench.written_after("a log that went on in txgs that were left behind");
}

/// If this fails, what was made durable after a checkpoint is done again to a pool that went back to it, or the pool cannot go back to it.
#[test]
fn what_a_log_got_after_a_checkpoint_goes_with_all_that_came_after_it() {
    let mut bench = Bench::new();
    let (first, second) = (bench.synced_block(1), bench.synced_block(2));
    bench.set_header(header(first));
    bench.pool().make_checkpoint().expect("made");
    // The checkpoint has both blocks, but not what is in them.
    bench.write(&first, &[record(Txg(bench.pool().txg().0 + 100), 1)], second);
    bench.go_back(Rewind::Checkpoint);
    bench.written_after("a log that was written to after the checkpoint");
}

#[test]
fn a_log_that_a_clone_inherited_is_not_its_own() {
    let bench = Bench::new();
    bench.set_header(header(bench.synced_block(1)));
    let dsl = bench.pool().dsl();
    dsl.snapshot(&[format!("{FS}@a")], Vec::new()).expect("taken");
    dsl.clone_snapshot("tank/clone", &format!("{FS}@a"), Vec::new()).expect("cloned");
    let log = dsl.hold("tank/clone").expect("held").objset().expect("objset").zil_header();
    assert_eq!(log, ZilHeader::default(), "a clone begins without a log");
    dsl.destroy_dataset("tank/clone").expect("destroyed");
    dsl.destroy_snapshots(&[format!("{FS}@a")], false).expect("destroyed");
    bench.written_after("a log that a clone inherited");
}

#[test]
fn what_a_claimed_log_wrote_goes_with_it_once_it_was_replayed() {
    let bench = Bench::new();
    let (first, second, data) = (bench.synced_block(1), bench.synced_block(2), bench.synced_block(0));
    let mut write: LrWrite = Field::ZERO;
    let claimed = data.birth().0.min(first.birth().0);
    let (txg, length) = (data.birth().0, LrWrite::SIZE as u64);
    write.lr_common = LrCommon { lrc_txtype: TxType::WRITE.0, lrc_reclen: length, lrc_txg: txg, lrc_seq: 3 };
    write.lr_blkptr = data;
    bench.write(&first, &[write.encode().to_vec()], second);
    let mut claim = header(first);
    (claim.zh_claim_txg, claim.zh_claim_blk_seq, claim.zh_claim_lr_seq) = (claimed, 2, 3);
    (claim.zh_replay_seq, claim.zh_flags) = (3, ZilHeader::CLAIM_LR_SEQ_VALID);
    bench.set_header(claim);
    bench.written_after("a log that was replayed");
}

#[test]
fn a_log_that_holds_writes_keeps_the_pool_read_only() {
    for is_exported in [false, true] {
        let mut bench = Bench::new();
        let first = bench.synced_block(1);
        bench.set_header(header(first));
        let later = bench.block(2, bench.pool().txgs().open_txg());
        bench.write(&first, &[record(Txg(bench.pool().txg().0 + 100), 1)], later);
        if is_exported {
            bench.pool.take().expect("open").export().expect("exported");
        }
        bench.clean("a log with writes");
        let refused = import(&bench.devices, false);
        assert!(matches!(&refused, Err(PoolError::IntentLogs(names)) if *names == [FS]), "{:?}", refused.err());
        bench.clean("after it was refused");
    }
}

/// If this fails, what was made durable after a pool had nothing to do for a week is lost with a crash: its log seems to be of txgs that never were.
#[test]
fn a_pool_with_nothing_to_do_says_now_and_then_how_far_it_is() {
    let devices = devices(1);
    let pool = create(&devices, TopKind::Leaf);
    let said = || pool.uberblock().ub_txg;
    let stays = |_| {
        let before = said();
        pool.sync().expect("synced");
        (said() == before).then_some(before)
    };
    let begun = (0..1000).find_map(stays).expect("nothing is written of a txg without changes");
    (0..10_000).for_each(|_| pool.sync().expect("synced"));
    let (said, now) = (said(), pool.txg().0);
    assert!(said > begun && now < said + 10_000, "{said} of {now}");
    drop(pool);
    assert_eq!(import(&devices, true).expect("imported").uberblock().ub_txg, said);
}
