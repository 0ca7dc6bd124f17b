//! Blocks that hold the records of dnodes get lost: whoever changes a dnode then hears of it, and nobody else; what was accepted
//! before is written, whatever becomes of the block.

use crate::testing::{MemBlockIo, TestPool};
use crate::{BlockError, DmuError, NewObject, ObjectOwner, Objset, ObjsetHook, ObjsetProps, OwnerDelta, Tx, Which};
use abd::Abd;
use exec::Mutex;
use ondisk::{BlockPtr, DNODE_SLOTS_PER_BLOCK, ObjectId, ObjectType, ObjsetType};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const LOST: Result<(), DmuError> = Err(DmuError::Block(BlockError::Checksum, Which::UNKNOWN));
/// More than one block of records.
const OBJECTS: u64 = 2 * DNODE_SLOTS_PER_BLOCK as u64;

fn new_object() -> NewObject {
    NewObject { bonus_type: ObjectType::SA, bonus_len: 8, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) }
}

/// A pool with objects 1..=OBJECTS on disk and nothing in memory.
fn pool() -> TestPool {
    let pool = TestPool::create(MemBlockIo::inline(5), ObjsetType::ZFS, ObjsetProps::default()).expect("create");
    for object in 1..=OBJECTS {
        let tx = pool.txgs.assign(0).expect("assign");
        let dnode = pool.objset.claim_object(ObjectId(object), new_object(), &tx).expect("claim");
        dnode.write(0, &[object as u8; 100], &tx).expect("write");
    }
    pool.sync().expect("sync");
    pool.reopen().expect("reopen")
}

/// The pointer to block `id` of `level` of the meta-dnode.
fn pointer(objset: &Objset, level: u8, id: u64) -> BlockPtr {
    let tree = objset.meta().contents.tree();
    objset.meta().contents.reader.pointer(&tree, level, id).expect("pointer")
}

fn set_bonus(pool: &TestPool, object: u64, byte: u8) -> Result<(), DmuError> {
    let tx = pool.txgs.assign(0)?;
    pool.objset.hold(ObjectId(object))?.set_bonus(&[byte; 8], &tx)
}

fn bonus(pool: &TestPool, object: u64) -> u8 {
    pool.objset.hold(ObjectId(object)).expect("hold").bonus().expect("bonus")[0]
}

/// If this fails, a bad sector that appears between a write and its sync stops the whole pool for good, and what was accepted in
/// other files is lost with it.
#[test]
fn what_was_accepted_is_written_though_its_record_block_is_lost_since() {
    let pool = pool();
    let held: Vec<_> = [3, 4, OBJECTS - 1].map(|object| pool.objset.hold(ObjectId(object)).expect("hold")).into();
    assert_eq!(set_bonus(&pool, 3, 7), Ok(()));
    let levels = pool.objset.meta().contents.tree().levels;
    for level in 0..levels {
        pool.io.corrupt(&pointer(&pool.objset, level, 0));
    }
    // Its neighbour: everything that the sync wants is at hand by now.
    assert_eq!(set_bonus(&pool, 4, 8), Ok(()));
    assert_eq!(pool.sync(), Ok(()));
    drop(held);
    let pool = pool.reopen().expect("reopen");
    assert_eq!([3, 4, 5].map(|object| bonus(&pool, object)), [7, 8, 0], "written anew, with the records beside them");
    let mut byte = [0];
    pool.objset.hold(ObjectId(5)).expect("hold").read(0, &mut byte).expect("read");
    assert_eq!((byte, pool.check()), ([5], Ok(())));
}

/// If this fails, one lost block of metadata stops every file system of the pool, or the program that cannot write is not told.
#[test]
fn a_change_whose_record_cannot_be_read_fails_alone() {
    let pool = pool();
    let (block, far) = (OBJECTS / DNODE_SLOTS_PER_BLOCK as u64, OBJECTS);
    let dnode = pool.objset.hold(ObjectId(far)).expect("hold");
    pool.io.corrupt(&pointer(&pool.objset, 0, block));
    let txg = pool.txgs.open_txg();
    assert_eq!(set_bonus(&pool, far, 9), LOST);
    assert_eq!(dnode.write(0, &[9; 512], &pool.txgs.assign(0).expect("assign")), LOST);
    assert_eq!(pool.objset.free_object(ObjectId(far), &pool.txgs.assign(0).expect("assign")), LOST);
    assert_eq!((bonus(&pool, far), dnode.dirty_txg(), pool.objset.is_dirty(txg)), (0, None, false), "nothing was changed");
    assert_eq!(set_bonus(&pool, 3, 7), Ok(()));
    assert_eq!(pool.sync(), Ok(()));
    assert_eq!(set_bonus(&pool, 4, 8), Ok(()));
    assert_eq!(pool.sync(), Ok(()));
    drop(dnode);
    let pool = pool.reopen().expect("reopen");
    assert_eq!([3, 4, 5].map(|object| bonus(&pool, object)), [7, 8, 0]);
}

/// Changes an object in the open txg while the one before is being synced.
struct Meanwhile(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl ObjsetHook for Meanwhile {
    fn owner(&self, _bonus_type: ObjectType, _bonus: &[u8], _spill: Option<&Abd>) -> Option<ObjectOwner> {
        Some(ObjectOwner { uid: 1, gid: 1, project: None })
    }
    fn apply(&self, _objset: &Arc<Objset>, _deltas: &[OwnerDelta], _tx: &Tx) -> Result<(), DmuError> {
        let change = self.0.lock().take();
        change.into_iter().for_each(|change| change());
        Ok(())
    }
}

/// If this fails, what was written while the pool synced an older change of a neighbouring file is lost with a bad sector.
#[test]
fn a_record_block_that_a_sync_replaces_is_kept_for_the_next_one() {
    let pool = pool();
    let hook = Arc::new(Meanwhile(Mutex::default()));
    pool.objset.set_hook(hook.clone());
    let dnode = pool.objset.hold(ObjectId(4)).expect("hold");
    let txgs = pool.txgs.clone();
    *hook.0.lock() = Some(Box::new(move || dnode.set_bonus(&[8; 8], &txgs.assign(0).expect("assign")).expect("the open txg")));
    let txg = pool.txgs.open_txg();
    // Grows the object, so that there is something to account for.
    pool.objset.hold(ObjectId(3)).expect("hold").write(0, &[7; 8], &pool.txgs.assign(0).expect("assign")).expect("write");
    assert_eq!(pool.txgs.wait_synced(txg), Ok(()));
    assert!(hook.0.lock().is_none(), "the change came while the txg was synced");
    for level in 0..pool.objset.meta().contents.tree().levels {
        pool.io.corrupt(&pointer(&pool.objset, level, 0));
    }
    assert_eq!(pool.sync(), Ok(()));
    let pool = pool.reopen().expect("reopen");
    assert_eq!([3, 4, 5].map(|object| bonus(&pool, object)), [0, 8, 0]);
    let mut bytes = [0; 8];
    pool.objset.hold(ObjectId(3)).expect("hold").read(0, &mut bytes).expect("read");
    assert_eq!((bytes, pool.check()), ([7; 8], Ok(())));
}

/// If this fails, blocks of records stay in memory for ever, or every small change costs a read.
#[test]
fn record_blocks_are_read_once_and_let_go_after_the_sync() {
    let pool = pool();
    let first: Vec<_> = (1..20).map(|object| pool.objset.hold(ObjectId(object)).expect("hold")).collect();
    assert_eq!(set_bonus(&pool, 1, 7), Ok(()));
    assert!(pool.txgs.dirty_bytes() > 16 << 10, "what is kept counts");
    let before = pool.io.operations();
    for object in 2..20 {
        assert_eq!(set_bonus(&pool, object, 7), Ok(()));
    }
    assert_eq!(pool.io.operations(), before, "all are in the block that was read for the first");
    assert!(!pool.objset.context().pins.is_empty());
    assert_eq!(pool.sync(), Ok(()));
    assert!(pool.objset.context().pins.is_empty());
    assert_eq!(pool.txgs.dirty_bytes(), 0);
    drop(first);
}

/// If this fails, the completion of an asynchronous direct write waits for a read, which only other completions may bring: all writes
/// of a busy pool stand still.
#[test]
fn a_direct_write_that_completes_reads_nothing() {
    let pool = pool();
    let dnode = pool.objset.hold(ObjectId(3)).expect("hold");
    let size = dnode.info().expect("info").block_size;
    let (own, reads, outcome) = (dnode.clone(), Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
    let (seen, told) = (reads.clone(), outcome.clone());
    dnode.write_direct_then(0, Abd::from_slice(&vec![9; size]), pool.txgs.assign(0).expect("assign"), move |tx, result| {
        own.set_bonus(&[9; 8], &tx).expect("what goes with the data");
        *told.lock() = Some((result, seen.load(Ordering::Relaxed)));
    });
    let noticed = reads.clone();
    pool.io.before_next_read(move || noticed.store(true, Ordering::Relaxed));
    assert_eq!(pool.sync(), Ok(()));
    assert_eq!(*outcome.lock(), Some((Ok(()), false)));
    let pool = pool.reopen().expect("reopen");
    assert_eq!((bonus(&pool, 3), pool.check()), (9, Ok(())));
}
