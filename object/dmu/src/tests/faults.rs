//! Every read and write of a sync fails once: a typed error, the synced state untouched, and the sync can be repeated.

use super::model::Program;
use crate::testing::{MemBlockIo, TestPool, TreeFaultKind, verify_tree};
use crate::{BlockError, DmuError, NewObject, ObjectOwner, Objset, ObjsetHook, ObjsetProps, OwnerDelta, SyncError, Tx, with_causes};
use abd::Abd;
use exec::Mutex;
use ondisk::{ObjectId, ObjectType, ObjsetType};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pool with a synced state, and changes on top that are not synced yet.
fn prepare() -> (TestPool, Program, Program) {
    let io = MemBlockIo::inline(11);
    let mut pool = TestPool::create(io, ObjsetType::ZFS, ObjsetProps::default()).expect("create");
    let mut program = Program::new(11);
    for _ in 0..80 {
        program.step(&pool);
    }
    pool.sync().expect("sync");
    pool = pool.reopen().expect("reopen");
    let synced = program.snapshot();
    for _ in 0..60 {
        program.step(&pool);
    }
    (pool, synced, program)
}

/// If this fails, a failed write loses files that were on disk already.
#[test]
fn a_failed_sync_leaves_the_synced_state_as_it_was() {
    let mut failures = 0;
    for count in 1.. {
        let (pool, synced, _) = prepare();
        let txg = pool.txgs.open_txg();
        let root = pool.objset.root_bp();
        pool.io.fail_after(count, false);
        let result = pool.sync();
        pool.io.heal();
        match result {
            Ok(()) => break,
            Err(error) => assert_eq!(error, SyncError::Dmu(DmuError::from(BlockError::Io)), "operation {count}"),
        }
        failures += 1;
        assert!(pool.txgs.assign(0).is_err(), "nothing goes on after a failed txg");
        assert!(pool.txgs.wait_synced(txg).is_err(), "whoever waits hears of it");
        assert_eq!(pool.io.violations(), [""; 0], "operation {count}");
        pool.io.crash(txg);
        let objset = Objset::open(TestPool::env(&pool.io), root, ObjsetProps::default()).expect("open");
        let before = TestPool { io: pool.io, objset, txgs: pool.txgs };
        if let Err(fault) = before.check() {
            panic!("operation {count}: {fault:?}");
        }
        synced.check_all(&before);
    }
    assert!(failures > 20, "the sync has that many operations");
}

/// If this fails, a pool that comes back after an I/O error has lost or corrupted what was being written.
#[test]
fn a_failed_sync_can_be_repeated() {
    for count in 1.. {
        let (pool, _, program) = prepare();
        let txg = pool.txgs.open_txg();
        pool.io.fail_after(count, false);
        let result = pool.sync();
        pool.io.heal();
        if result.is_ok() {
            break;
        }
        pool.objset.sync(txg).expect("the second try works");
        if let Err(fault) = pool.check() {
            panic!("operation {count}: {fault:?}");
        }
        program.check_all(&pool);
        assert!(!pool.objset.is_dirty(txg), "nothing is left to sync");
    }
}

/// If this fails, a bad sector gives wrong bytes instead of an error, or spreads to other objects.
#[test]
fn a_damaged_block_is_an_error_where_it_is_and_nowhere_else() {
    let (pool, synced, _) = prepare();
    let objset = Objset::open(TestPool::env(&pool.io), pool.objset.root_bp(), ObjsetProps::default()).expect("open");
    let (&victim, model) = synced.models.iter().max_by_key(|(_, model)| model.data.len()).expect("there are objects");
    let tree = pool.objset.hold(ObjectId(victim)).expect("hold").contents.tree();
    pool.io.corrupt(tree.block_ptrs.iter().find(|bp| !bp.is_hole()).expect("it has data"));
    let mut out = vec![0; model.data.len()];
    let error = objset.hold(ObjectId(victim)).expect("hold").read(0, &mut out).expect_err("a block of it is damaged");
    assert_eq!(error, DmuError::from(BlockError::Checksum));
    let DmuError::Block(_, which) = error else { panic!("{error:?}") };
    assert_eq!(which.bookmark().map(|at| at.object), Some(ObjectId(victim)), "the block is named: {}", with_causes(&error));
    for (&object, model) in synced.models.iter().filter(|(object, _)| **object != victim) {
        let mut out = vec![0; model.data.len()];
        objset.hold(ObjectId(object)).expect("hold").read(0, &mut out).expect("undamaged objects are readable");
        assert_eq!(out, model.data);
    }
    assert!(verify_tree(&pool.io, objset.root_bp()).is_err(), "the checker of these tests sees it, too");
}

/// If this fails, a modification that could not read what it needs leaves a half-changed block behind.
#[test]
fn a_modification_that_fails_changes_nothing() {
    let (pool, _, program) = prepare();
    pool.sync().expect("sync");
    let pool = pool.reopen().expect("reopen");
    let mut failures = 0;
    for &object in program.models.keys() {
        let Ok(dnode) = pool.objset.hold(ObjectId(object)) else { continue };
        let tx = pool.txgs.assign(0).expect("assign");
        pool.io.fail_after(1, true);
        let result = dnode.write(3, &[7; 5], &tx);
        pool.io.heal();
        match result {
            Ok(()) => dnode.write(3, &program.models[&object].expect(3, 5), &tx).expect("the block is in memory now"),
            Err(error) => {
                assert_eq!(error, DmuError::from(BlockError::Io));
                failures += 1;
            }
        }
    }
    assert!(failures > 3);
    program.check_all(&pool);
    pool.sync().expect("sync");
    assert_eq!(pool.check(), Ok(()));
    program.check_all(&pool);
}

/// If this fails, one damaged block of metadata in one file stops the whole pool, or the user isn't told of it.
#[test]
fn a_damaged_indirect_block_is_an_error_for_the_user_and_does_not_stop_the_sync() {
    let io = MemBlockIo::inline(5);
    let pool = TestPool::create(io, ObjsetType::ZFS, ObjsetProps::default()).expect("create");
    let new = NewObject { indirect_shift: 12, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let dnode = pool.objset.allocate_object(new, &pool.txgs.assign(0).expect("assign")).expect("allocate");
    let other = pool.objset.allocate_object(new, &pool.txgs.assign(0).expect("assign")).expect("allocate");
    dnode.write(0, &[3; 512 * 64], &pool.txgs.assign(0).expect("assign")).expect("write");
    pool.sync().expect("sync");
    let object = dnode.object();
    let damaged = dnode.contents.tree();
    pool.io.corrupt(&dnode.contents.reader.pointer(&damaged, 1, 0).expect("pointer"));
    drop(dnode);
    let pool = pool.reopen().expect("reopen");
    let dnode = pool.objset.hold(object).expect("hold");
    let lost = Err(DmuError::from(BlockError::Checksum));
    let said = with_causes(&dnode.prepare_write(0, 512).expect_err("damaged"));
    assert!(said.ends_with(&format!("object {object} level 1 block 0")), "{said}");
    assert_eq!(dnode.prepare_write(0, 512), lost);
    assert_eq!(dnode.prepare_free(0, u64::MAX), lost);
    assert_eq!(dnode.prepare_write(512 * 40, 512), Ok(()), "the other half is there");
    let tx = pool.txgs.assign(0).expect("assign");
    assert_eq!(dnode.write(512 * 3, &[5; 512], &tx), lost, "also for who did not ask before");
    assert_eq!(dnode.write_abd(512 * 30, Abd::from_slice(&[5; 1024]), &tx), lost);
    drop(tx);
    pool.sync().expect("the pool goes on");
    dnode.free_range(0, 512 * 50, &pool.txgs.assign(0).expect("assign")).expect("free");
    pool.sync().expect("the pool goes on");
    assert_eq!(dnode.read(512 * 60, &mut [0; 512]), Ok(()));
    assert_eq!(dnode.read(0, &mut [0; 512]), lost);
    pool.objset.free_object(object, &pool.txgs.assign(0).expect("assign")).expect("free");
    pool.sync().expect("the pool goes on");
    assert_eq!(pool.objset.hold(other.object()).map(|held| held.object()), Ok(other.object()));
    assert_eq!(pool.check().map_err(|fault| fault.kind), Err(TreeFaultKind::Leak), "what nothing names any more is lost space");
}

/// If this fails, writers fill memory beyond the limit while a sync still holds what it has written.
#[test]
fn dirty_bytes_count_until_their_memory_is_given_up() {
    let pool = TestPool::create(MemBlockIo::inline(5), ObjsetType::ZFS, ObjsetProps::default()).expect("create");
    let new = NewObject { block_size: 4096, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let dnode = pool.objset.allocate_object(new, &pool.txgs.assign(0).expect("assign")).expect("allocate");
    pool.sync().expect("sync");
    let txg = pool.txgs.open_txg();
    dnode.write(0, &[3; 4096 * 40], &pool.txgs.assign(0).expect("assign")).expect("write");
    assert!(pool.txgs.dirty_bytes() >= 4096 * 40);
    // All data is written; the indirect block above it is not.
    pool.io.fail_after(41, false);
    assert_eq!(pool.objset.sync(txg).err(), Some(DmuError::from(BlockError::Io)));
    assert!(pool.txgs.dirty_bytes() >= 4096 * 40, "the repeated sync needs it all: it is still in memory");
    pool.objset.sync(txg).expect("the second try works");
    assert!(pool.txgs.dirty_bytes() < 4096 * 40);
    pool.sync().expect("sync");
    assert_eq!(pool.txgs.dirty_bytes(), 0);
}

/// Adds up what it hears.
#[derive(Default)]
struct Sums(Mutex<BTreeMap<u64, (i64, i64)>>);

impl ObjsetHook for Sums {
    fn owner(&self, _bonus_type: ObjectType, bonus: &[u8], _spill: Option<&Abd>) -> Option<ObjectOwner> {
        bonus.first().map(|&uid| ObjectOwner { uid: u64::from(uid), gid: 7, project: None })
    }
    fn apply(&self, _objset: &Arc<Objset>, deltas: &[OwnerDelta], _tx: &Tx) -> Result<(), DmuError> {
        for delta in deltas {
            let sum = &mut *self.0.lock();
            let sum = sum.entry(delta.owner.uid).or_default();
            (sum.0, sum.1) = (sum.0 + delta.bytes, sum.1 + delta.objects);
        }
        Ok(())
    }
}

/// If this fails, `zfs userspace` and quotas are wrong for good after an I/O error that passed.
#[test]
fn owners_are_charged_once_when_a_failed_sync_is_repeated() {
    for count in 1.. {
        let pool = TestPool::create(MemBlockIo::inline(5), ObjsetType::ZFS, ObjsetProps::default()).expect("create");
        let hook = Arc::new(Sums::default());
        pool.objset.set_hook(hook.clone());
        let new =
            NewObject { bonus_type: ObjectType::SA, bonus_len: 1, block_size: 4096, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
        pool.sync().expect("sync");
        let txg = pool.txgs.open_txg();
        for uid in 1..=3u8 {
            let tx = pool.txgs.assign(0).expect("assign");
            let dnode = pool.objset.allocate_object(new, &tx).expect("allocate");
            dnode.set_bonus(&[uid], &tx).expect("bonus");
            dnode.write(0, &vec![uid; 4096 * usize::from(uid)], &tx).expect("write");
        }
        pool.io.fail_after(count, false);
        let failed = pool.objset.sync(txg).is_err();
        pool.io.heal();
        if !failed {
            assert!(count > 5, "the sync has that many operations");
            break;
        }
        pool.objset.sync(txg).expect("the second try works");
        let sums: Vec<(u64, (i64, i64))> = hook.0.lock().iter().map(|(uid, sum)| (*uid, *sum)).collect();
        let objects: Vec<i64> = sums.iter().map(|(_, sum)| sum.1).collect();
        assert_eq!(objects, [1, 1, 1], "operation {count}");
        assert!(sums.iter().all(|(uid, sum)| sum.0 >= *uid as i64 * 4096 + 512), "operation {count}: {sums:?}");
    }
}
