//! Transaction groups: throttle, callbacks, failures, and who drives.

use crate::testing::{MemBlockIo, TestPool};
use crate::{Announced, Announcement, Cause, DmuError, NewObject, ObjsetProps, SyncError, Tx, TxgConfig, TxgManager, TxgSync};
use exec::{Exec, Inline, Mutex, Pool};
use ondisk::{ObjectType, ObjsetType, Txg};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn failure() -> SyncError {
    SyncError::Pool(Cause::new(DmuError::Corrupt))
}

/// Records what was synced; fails at one txg.
#[derive(Default)]
struct Recorder {
    synced: Mutex<Vec<Txg>>,
    fail_at: AtomicU64,
    during: AtomicU64,
}

impl TxgSync for Recorder {
    fn sync_txg(&self, txg: Txg) -> Result<(), SyncError> {
        assert_eq!(self.during.fetch_add(1, Ordering::SeqCst), 0, "one sync at a time");
        self.synced.lock().push(txg);
        self.during.fetch_sub(1, Ordering::SeqCst);
        if self.fail_at.load(Ordering::SeqCst) == txg.0 { Err(failure()) } else { Ok(()) }
    }
}

fn manager(exec: Exec, config: TxgConfig) -> (Arc<TxgManager>, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let txgs = TxgManager::new(exec, Txg(10), config);
    txgs.start(recorder.clone());
    (txgs, recorder)
}

/// If this fails, applications are told that data is safe while it isn't, or are never told.
#[test]
fn callbacks_run_after_their_txg_and_hear_of_failures() {
    let (txgs, recorder) = manager(Arc::new(Inline::new(1)), TxgConfig::default());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let note = |tx: &crate::Tx, name: &'static str| {
        let heard = heard.clone();
        tx.on_commit(Box::new(move |ok| heard.lock().push((name, ok))));
    };
    note(&txgs.assign(0).expect("assign"), "first");
    assert!(heard.lock().is_empty());
    txgs.wait_synced(Txg(11)).expect("sync");
    assert_eq!(*heard.lock(), [("first", true)]);
    recorder.fail_at.store(12, Ordering::SeqCst);
    note(&txgs.assign(0).expect("assign"), "second");
    assert_eq!(txgs.wait_synced(Txg(12)), Err(failure()));
    assert_eq!(*heard.lock(), [("first", true), ("second", false)]);
    assert_eq!(txgs.assign(0).err(), Some(DmuError::Stopped));
    assert_eq!(txgs.synced_txg(), Txg(11));
}

/// If this fails, an import that replays a log waits for itself, or a crash finds half of an operation.
#[test]
fn a_further_hold_waits_for_nobody_and_keeps_the_txg_open() {
    let config = TxgConfig { dirty_data_max: 1, ..TxgConfig::default() };
    let (txgs, recorder) = manager(Arc::new(Pool::new(2)), config);
    let tx = txgs.assign(0).expect("assign");
    // From here on the thread closes the txg, and lets nobody new in.
    txgs.kick();
    let others: Vec<_> = (0..100).map(|_| tx.again()).collect();
    assert!(others.iter().all(|other| other.txg() == tx.txg()));
    drop(tx);
    assert!(recorder.synced.lock().is_empty(), "the txg is held");
    let last = others[0].txg();
    drop(others);
    txgs.wait_synced(last).expect("sync");
    txgs.stop().expect("stopped");
}

/// If this fails, memory fills with dirty data faster than the disks take it.
#[test]
fn writers_wait_while_too_much_is_dirty() {
    let config = TxgConfig { dirty_data_max: 1000, ..TxgConfig::default() };
    let (txgs, recorder) = manager(Arc::new(Inline::new(1)), config);
    for _ in 0..50 {
        let tx = txgs.assign(100).expect("assign");
        txgs.budget().charge(tx.txg(), 100);
        assert!(txgs.dirty_bytes() <= 1000, "{} bytes are dirty", txgs.dirty_bytes());
    }
    assert!(recorder.synced.lock().len() >= 4, "the waiter drove syncs");
    let tx = txgs.assign(5000).expect("a transaction larger than the limit goes through alone");
    drop(tx);
}

/// If this fails, a busy pool hangs or loses the order of its txgs.
#[test]
fn many_threads_share_txgs_while_the_thread_syncs() {
    let config = TxgConfig { dirty_data_max: 200_000, timeout_ns: 1_000_000, delay_scale_ns: 10, ..TxgConfig::default() };
    let (txgs, recorder) = manager(Arc::new(Pool::new(2)), config);
    let work = || {
        let mut last = Txg(0);
        for step in 0..2000 {
            let tx = txgs.assign(100).expect("assign");
            assert!(tx.txg() >= last, "txgs never go back");
            last = tx.txg();
            txgs.budget().charge(last, 100);
            drop(tx);
            if step % 500 == 0 {
                txgs.wait_synced(last).expect("sync");
                assert!(txgs.synced_txg() >= last);
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    txgs.stop().expect("stop");
    assert_eq!(txgs.assign(0).err(), Some(DmuError::Stopped));
    assert_eq!(txgs.dirty_bytes(), 0);
    let synced = recorder.synced.lock().clone();
    assert!(synced.windows(2).all(|pair| pair[1] == pair[0].next()), "every txg is synced once, in order");
}

/// If this fails, a pool whose disks fail hangs its users instead of telling them.
#[test]
fn a_failure_wakes_everybody_who_waits() {
    let config = TxgConfig { dirty_data_max: 1000, ..TxgConfig::default() };
    let (txgs, recorder) = manager(Arc::new(Pool::new(1)), config);
    recorder.fail_at.store(11, Ordering::SeqCst);
    let tx = txgs.assign(0).expect("assign");
    txgs.budget().charge(tx.txg(), 999);
    std::thread::scope(|scope| {
        let waiters = [
            scope.spawn(|| txgs.wait_synced(Txg(11)).is_err()),
            scope.spawn(|| txgs.assign(500).is_err()),
            scope.spawn(|| txgs.wait_open(Txg(13)).is_err()),
        ];
        drop(tx);
        assert_eq!(waiters.map(|waiter| waiter.join().expect("a waiter failed")), [true; 3]);
    });
    assert!(txgs.stop().is_err());
}

/// A sync that its devices never let end.
struct Stuck {
    exec: Exec,
    began: AtomicBool,
    released: AtomicBool,
}

impl TxgSync for Stuck {
    fn sync_txg(&self, _: Txg) -> Result<(), SyncError> {
        self.began.store(true, Ordering::SeqCst);
        while !self.released.load(Ordering::SeqCst) {
            self.exec.sleep_ns(1_000_000);
        }
        Ok(())
    }
}

/// If this fails, commands on a pool that is given up because its devices hang wait as long as these.
#[test]
fn who_gives_up_waits_for_no_device() {
    let exec: Exec = Arc::new(Pool::new(1));
    let stuck = Arc::new(Stuck { exec: exec.clone(), began: AtomicBool::new(false), released: AtomicBool::new(false) });
    let txgs = TxgManager::new(exec.clone(), Txg(10), TxgConfig::default());
    txgs.start(stuck.clone());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| txgs.wait_synced(Txg(11)));
        while !stuck.began.load(Ordering::SeqCst) {
            exec.sleep_ns(1_000_000);
        }
        txgs.give_up();
        assert_eq!(waiter.join().expect("a waiter failed"), Err(SyncError::Stopped));
    });
    assert!(txgs.assign(0).is_err(), "nothing new begins");
    stuck.released.store(true, Ordering::SeqCst);
    txgs.abandon();
}

/// If this fails, an idle file system keeps changes in memory for longer than five seconds.
#[test]
fn the_thread_syncs_on_its_own_after_the_timeout() {
    let config = TxgConfig { timeout_ns: 2_000_000, ..TxgConfig::default() };
    let (txgs, _) = manager(Arc::new(Pool::new(1)), config);
    txgs.wait_open(Txg(12)).expect("open");
    while txgs.synced_txg() < Txg(13) {
        std::thread::yield_now();
    }
    txgs.stop().expect("stop");
}

/// If this fails, an administrator who raises `zfs_dirty_data_max` or shortens `zfs_txg_timeout` has to export the pool first.
#[test]
fn tunables_count_for_open_pools() {
    let slow = TxgConfig { dirty_data_max: 1000, timeout_ns: u64::MAX >> 1, ..TxgConfig::default() };
    let (txgs, recorder) = manager(Arc::new(Inline::new(1)), slow);
    txgs.budget().charge(txgs.open_txg(), 900);
    txgs.set_config(TxgConfig { dirty_data_max: 1 << 20, ..slow });
    assert_eq!((txgs.config().dirty_data_max, txgs.config().timeout_ns), (1 << 20, u64::MAX >> 1));
    drop(txgs.assign(500).expect("assign"));
    assert!(recorder.synced.lock().is_empty(), "there is room now");
    txgs.set_config(slow);
    drop(txgs.assign(500).expect("assign"));
    assert_eq!(recorder.synced.lock().len(), 1, "there is none any more: the writer waited for a sync");

    // A thread that sleeps by the old timeout.
    let (txgs, recorder) = manager(Arc::new(Pool::new(2)), slow);
    txgs.set_config(TxgConfig { timeout_ns: 1, ..slow });
    while recorder.synced.lock().is_empty() {
        std::thread::yield_now();
    }
    txgs.set_config(slow);
    txgs.stop().expect("stopped");
}

/// If this fails, what a takeover did in part reaches the disk, although it was given up.
#[test]
fn a_txg_that_is_given_up_while_somebody_holds_it_is_not_synced() {
    let (manager, recorder) = manager(Arc::new(Pool::new(2)), TxgConfig::default());
    let held = manager.assign_now().expect("a transaction");
    manager.kick();
    while !manager.is_closing() {
        std::thread::yield_now();
    }
    manager.give_up();
    drop(held);
    manager.abandon();
    assert_eq!(*recorder.synced.lock(), Vec::<Txg>::new());
}

/// If this fails, `zpool freeze` lets something reach the disk that no log has, so that tests of replays show nothing, or commands wait for good.
#[test]
fn a_frozen_pool_syncs_nothing_more_and_keeps_nobody_waiting() {
    for exec in [Arc::new(Inline::new(1)) as Exec, Arc::new(Pool::new(2))] {
        let (txgs, recorder) = manager(exec, TxgConfig::default());
        drop(txgs.assign(0).expect("assign"));
        txgs.freeze().expect("frozen");
        let synced = recorder.synced.lock().clone();
        assert!(synced.contains(&Txg(11)), "{synced:?}");
        for _ in 0..3 {
            let txg = txgs.assign(1 << 40).expect("assign").txg();
            txgs.kick();
            assert_eq!((txgs.wait_synced(txg), txgs.wait_open(txg.next())), (Ok(()), Ok(())));
            assert!(!txgs.before_told(txg, Box::new(|| ())));
        }
        assert_eq!((txgs.stop(), &*recorder.synced.lock()), (Ok(()), &synced));
    }
}

/// Keeper who notes what comes back.
#[derive(Default)]
struct Returned(Mutex<Vec<(Txg, u64)>>);

impl Announced for Returned {
    fn take_back(&self, txg: Txg, bytes: u64) {
        self.0.lock().push((txg, bytes));
    }
}

/// If this fails, small changes of what is dirty already keep others waiting for space, or space is promised to others that a sync will need.
#[test]
fn a_transaction_keeps_of_what_it_announced_what_it_dirtied() {
    let pool = TestPool::create(MemBlockIo::inline(3), ObjsetType::ZFS, ObjsetProps::default()).expect("create");
    let returned: Arc<Returned> = Arc::default();
    let announced = |bytes: u64, act: &dyn Fn(&Tx)| {
        let mut tx = pool.txgs.assign(0).expect("assign");
        tx.announce(Announcement { to: returned.clone(), bytes, block_bytes: 1000, ratio: (2, 1) });
        act(&tx);
        drop(tx);
        returned.0.lock().pop().map_or(0, |(txg, bytes)| {
            assert_eq!(txg, pool.txgs.open_txg());
            bytes
        })
    };
    let new = |tx: &Tx| pool.objset.allocate_object(NewObject::new(ObjectType::PLAIN_FILE_CONTENTS), tx).expect("allocate");
    let file = new(&pool.txgs.assign(0).expect("assign"));
    assert_eq!(announced(1 << 20, &|_: &Tx| {}), 1 << 20, "nothing was done");
    assert_eq!(announced(1 << 20, &|tx: &Tx| file.write(0, &[1; 100], tx).expect("write")), (1 << 20) - (2 * 512 + 1000));
    assert_eq!(announced(1 << 20, &|tx: &Tx| file.write(100, &[2; 100], tx).expect("write")), 1 << 20, "the block is dirty");
    let next_to_it = announced(1 << 20, &|tx: &Tx| drop(new(tx)));
    assert_eq!(next_to_it, (1 << 20) - (2 * 1024 + 1000), "its record lies in a block that is dirty");
    let many_blocks = announced(1 << 20, &|tx: &Tx| file.write(512, &[3; 1024], tx).expect("write"));
    let above = (1 << 20) - 2 * ((64 << 10) + 1024);
    assert!(many_blocks < above && many_blocks > above - (64 << 10), "the blocks above are written, too, once: {many_blocks}");
    assert_eq!(announced(1000, &|tx: &Tx| file.write(4096, &[4; 512], tx).expect("write")), 0, "no more than was announced");
    assert_eq!(announced(1 << 20, &|tx: &Tx| drop(tx.again())), 0, "whoever goes on may need all of it");
    assert_eq!(announced(1 << 20, &|tx: &Tx| file.free_range(512, 512, tx).expect("free")), 0, "a hole is written down, too");
    pool.sync().expect("sync");
    assert_eq!(pool.check(), Ok(()));
    assert_eq!(announced(1 << 20, &|tx: &Tx| file.free_range(512, u64::MAX, tx).expect("truncate")), 0, "the end is a hole, too");
    let first_of_tree = announced(1 << 20, &|tx: &Tx| file.write(0, &[5; 100], tx).expect("write"));
    assert!(first_of_tree < (1 << 20) - 2 * (64 << 10), "the only block is still below others: {first_of_tree}");
    let kind = ObjectType::DIRECTORY_CONTENTS;
    let names = pool.objset.allocate_object(NewObject::new(kind), &pool.txgs.assign(0).expect("assign")).expect("allocate");
    let of_metadata = announced(1 << 20, &|tx: &Tx| names.write(0, &[6; 100], tx).expect("write"));
    assert_eq!(of_metadata, (1 << 20) - 2 * (2 * 512 + 1000), "metadata has a copy more");
    let mut tx = pool.txgs.assign(0).expect("assign");
    tx.announce(Announcement { to: returned.clone(), bytes: 1 << 50, block_bytes: 1000, ratio: (1, 16 << 20) });
    drop((tx.again(), tx));
    assert_eq!(returned.0.lock().pop(), None, "however much it is, and however large blocks are");
    pool.sync().expect("sync");
    assert_eq!(pool.check(), Ok(()));
}
