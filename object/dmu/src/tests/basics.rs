//! Single facts about objects and their trees that other software looks at.

use crate::testing::{MemBlockIo, TestPool};
use crate::{
    DmuError, Dnode, NewObject, ObjectOwner, Objset, ObjsetEnv, ObjsetHook, ObjsetProps, OwnerDelta, RedundantMetadata, SealedObject, Tx,
    USERUSED_OBJECT,
};
use abd::Abd;
use exec::Mutex;
use ondisk::{BlockId, BlockPtr, Checksum, Compression, ObjectId, ObjectType, ObjsetId, ObjsetType, Txg, ZilHeader, dnode_flags};
use std::sync::Arc;

fn pool() -> TestPool {
    TestPool::create(MemBlockIo::inline(3), ObjsetType::ZFS, ObjsetProps::default()).expect("create")
}

fn file(pool: &TestPool, block_size: usize) -> Arc<Dnode> {
    let new = NewObject { block_size, indirect_shift: 12, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    pool.objset.allocate_object(new, &pool.txgs.assign(0).expect("assign")).expect("allocate")
}

fn tree(dnode: &Dnode) -> Arc<crate::dnode::Tree> {
    dnode.contents.tree()
}

/// If this fails, OpenZFS has to grow a data set's meta-dnode in open context, which it asserts never to do.
#[test]
fn the_meta_dnode_of_a_data_set_has_all_its_levels_and_that_of_the_mos_grows() {
    let pool = pool();
    file(&pool, 512);
    pool.sync().expect("sync");
    assert_eq!(tree(pool.objset.meta()).levels, 6);
    assert_eq!(pool.check(), Ok(()));

    let io = MemBlockIo::inline(1);
    let env = ObjsetEnv { id: ObjsetId(0), ..TestPool::env(&io) };
    let mos = Objset::create(env, ObjsetType::META, ObjsetProps::mos(), &Tx::syncing(Txg(4))).expect("create");
    for _ in 0..200 {
        mos.allocate_object(NewObject::new(ObjectType::OBJECT_DIRECTORY), &Tx::syncing(Txg(4))).expect("allocate");
    }
    let root = mos.sync(Txg(4)).expect("sync");
    assert_eq!(tree(mos.meta()).levels, 2);
    assert_eq!(root.fill(), 200);
    assert_eq!(root.dvas().count(), 3);
    assert_eq!(mos.next_object(ObjectId(0)), Ok(Some(ObjectId(1))), "the first object of the MOS is its directory");
}

/// If this fails, a crash finds a log whose header is of a txg that was lost: records count as replayed whose changes are gone.
#[test]
fn the_log_s_header_reaches_the_disk_with_its_own_txg() {
    let pool = pool();
    let header = |seq: u64| ZilHeader { zh_replay_seq: seq, ..ZilHeader::default() };
    let open = pool.txgs.open_txg();
    for seq in [1, 2] {
        pool.objset.set_zil_header(header(seq), &Tx::syncing(open)).expect("set");
    }
    pool.objset.set_zil_header(header(3), &Tx::syncing(open.next())).expect("set");
    let on_disk = |root| Objset::open(TestPool::env(&pool.io), root, ObjsetProps::default()).expect("it opens").zil_header();
    assert_eq!(on_disk(pool.objset.sync(open).expect("sync")), header(2));
    assert_eq!(pool.objset.zil_header(), header(3));
    assert_eq!(on_disk(pool.objset.sync(open.next()).expect("sync")), header(3));
    assert_eq!(pool.objset.zil_header(), header(3));
}

/// If this fails, OpenZFS refuses an encrypted dataset whose empty intent log was given up here, without its key.
#[test]
fn the_root_of_an_encrypted_dataset_stays_marked_as_such() {
    let pool = pool();
    file(&pool, 512);
    pool.sync().expect("sync");
    let mut root = pool.objset.root_bp();
    root.set_uses_crypt(true);
    let open = |root| Objset::open(TestPool::env(&pool.io), root, ObjsetProps::default()).expect("it opens");
    let (objset, txg) = (open(root), pool.txgs.open_txg());
    let header = ZilHeader { zh_replay_seq: 5, ..ZilHeader::default() };
    objset.set_zil_header(header.clone(), &Tx::syncing(txg)).expect("set");
    let written = objset.sync(txg).expect("sync");
    assert!(written.uses_crypt() && written != root);
    assert_eq!((objset.root_bp(), open(written).zil_header()), (written, header));
}

/// If this fails, incremental sends resend or lose punched holes.
#[test]
fn freed_blocks_leave_holes_with_their_birth() {
    let pool = pool();
    let dnode = file(&pool, 512);
    dnode.write(0, &[1; 512 * 100], &pool.txgs.assign(0).expect("assign")).expect("write");
    pool.sync().expect("sync");
    let punched = pool.txgs.open_txg();
    dnode.free_range(512 * 5, 512 * 3, &pool.txgs.assign(0).expect("assign")).expect("free");
    dnode.write(512 * 9, &[0; 512], &pool.txgs.assign(0).expect("assign")).expect("write");
    dnode.free_range(512 * 32, 512 * 32, &pool.txgs.assign(0).expect("assign")).expect("free");
    pool.sync().expect("sync");
    let tree = tree(&dnode);
    for (level, block, size) in [(0, 5, 512), (0, 7, 512), (0, 9, 512), (1, 1, 4096)] {
        let hole = dnode.contents.reader.pointer(&tree, level, block).expect("pointer");
        assert!(hole.is_hole(), "level {level} block {block}");
        assert_eq!((hole.birth(), hole.level(), hole.lsize()), (punched, level, size), "level {level} block {block}");
        assert_eq!(hole.object_type(), ObjectType::PLAIN_FILE_CONTENTS);
    }
    let never = dnode.contents.reader.pointer(&tree, 0, 127).expect("pointer");
    assert_eq!(never.birth(), Txg::ZERO, "what was never written has no birth");
    assert_eq!(dnode.next_hole(0), Ok(512 * 5));
    assert_eq!(dnode.next_data(512 * 32), Ok(Some(512 * 64)));

    // A write below a punched indirect block keeps the birth of the other holes there.
    dnode.write(512 * 40, &[2; 512], &pool.txgs.assign(0).expect("assign")).expect("write");
    pool.sync().expect("sync");
    let hole = dnode.contents.reader.pointer(&dnode.contents.tree(), 0, 41).expect("pointer");
    assert_eq!((hole.birth(), hole.level(), hole.lsize()), (punched, 0, 512));
    assert_eq!(pool.check(), Ok(()));
}

/// If this fails, pools without the feature `hole_birth` have births in holes, and incremental sends of OpenZFS go wrong over them; or
/// what was never there counts as punched, and is sent.
#[test]
fn holes_without_a_past_or_without_the_feature_are_empty() {
    for hole_birth in [true, false] {
        let props = ObjsetProps { hole_birth, ..ObjsetProps::default() };
        let pool = TestPool::create(MemBlockIo::inline(3), ObjsetType::ZFS, props).expect("create");
        let dnode = file(&pool, 512);
        dnode.write(0, &[1; 512 * 100], &pool.txgs.assign(0).expect("assign")).expect("write");
        pool.sync().expect("sync");
        dnode.write(512 * 110, &[0; 512], &pool.txgs.assign(0).expect("assign")).expect("write");
        dnode.free_range(512 * 5, 512, &pool.txgs.assign(0).expect("assign")).expect("free");
        pool.sync().expect("sync");
        let pointer = |block| dnode.contents.reader.pointer(&tree(&dnode), 0, block).expect("pointer");
        assert_eq!(pointer(110), BlockPtr::HOLE, "never written but with zeros");
        assert!(pointer(5).is_hole());
        assert_eq!(pointer(5) == BlockPtr::HOLE, !hole_birth, "punched");
        assert_eq!(pool.check(), Ok(()));
    }
}

/// If this fails, punching or cutting takes away what lies beside the range too, or leaves blocks that nobody can free any more.
#[test]
fn just_the_range_is_freed_and_all_of_it() {
    // Three levels: 32 pointers in an indirect block, 1024 blocks below one of level 2.
    const BLOCKS: u64 = 2200;
    let pool = pool();
    file(&pool, 512);
    pool.sync().expect("sync");
    let before = (pool.io.live_blocks().len(), pool.objset.object_count());
    let dnode = file(&pool, 512);
    let content: Vec<u8> = (0..BLOCKS).flat_map(|block| [1 + (block % 250) as u8; 512]).collect();
    dnode.write(0, &content, &pool.txgs.assign(0).expect("assign")).expect("write");
    pool.sync().expect("sync");
    assert_eq!(tree(&dnode).levels, 3);
    let (mut expected, mut live) = (content, pool.io.live_blocks().len());
    // Within one full indirect block, from within one to within another, whole ones, the same again, and next to the end.
    for (range, indirect) in [(40..44, 0), (60..70, 0), (96..160, 2), (1056..1100, 1), (1056..1100, 0), (1023..1025, 0), (2190..2200, 0)] {
        let (start, bytes) = (range.start * 512, (range.end - range.start) * 512);
        let data = expected[start..start + bytes].chunks(512).filter(|block| block[0] != 0).count();
        dnode.free_range(start as u64, bytes as u64, &pool.txgs.assign(0).expect("assign")).expect("free");
        pool.sync().expect("sync");
        expected[start..start + bytes].fill(0);
        let mut read = vec![9; expected.len()];
        pool.io.set_caching(false);
        dnode.read(0, &mut read).expect("read");
        assert!(read == expected, "{range:?}");
        assert_eq!(pool.check(), Ok(()), "{range:?}");
        let after = pool.io.live_blocks().len();
        assert_eq!(live - after, data + indirect, "{range:?}");
        live = after;
    }
    pool.objset.free_object(dnode.object(), &pool.txgs.assign(0).expect("assign")).expect("free");
    drop(dnode);
    pool.sync().expect("sync");
    assert_eq!(pool.check(), Ok(()));
    assert_eq!((pool.io.live_blocks().len(), pool.objset.object_count()), before, "nothing of it is left");
    assert_eq!(pool.io.violations(), Vec::<&str>::new());
}

/// If this fails, it never ends: whoever makes a file of 2^62 bytes with nothing in it and cuts it stops the pool for everybody.
#[test]
fn what_is_done_to_a_range_costs_what_is_there_and_not_its_length() {
    const FAR: u64 = 1 << 62;
    const BLOCK: u64 = 128 << 10;
    let pool = pool();
    let new = NewObject { block_size: BLOCK as usize, indirect_shift: 17, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let dnode = pool.objset.allocate_object(new, &pool.txgs.assign(0).expect("assign")).expect("allocate");
    for place in [0, 1 << 40, FAR] {
        dnode.write(place, &[1; 700], &pool.txgs.assign(0).expect("assign")).expect("write");
    }
    pool.sync().expect("sync");
    let pool = pool.reopen().expect("reopen");
    let dnode = pool.objset.hold(dnode.object()).expect("hold");
    assert_eq!(
        (dnode.next_data(1), dnode.next_data(BLOCK), dnode.next_data((1 << 40) + BLOCK)),
        (Ok(Some(1)), Ok(Some(1 << 40)), Ok(Some(FAR)))
    );
    assert_eq!((dnode.next_hole(FAR), dnode.next_hole(0)), (Ok(FAR + BLOCK), Ok(BLOCK)));
    dnode.prepare_write(BLOCK - 5, (FAR - BLOCK) as usize).expect("prepare");
    for (offset, length) in [(BLOCK, FAR - BLOCK), (100, u64::MAX)] {
        dnode.prepare_free(offset, length).expect("prepare");
        dnode.free_range(offset, length, &pool.txgs.assign(0).expect("assign")).expect("free");
        pool.sync().expect("sync");
    }
    assert_eq!((dnode.next_data(BLOCK), dnode.info().map(|info| info.max_block)), (Ok(None), Ok(BlockId(0))));
    assert_eq!(pool.check(), Ok(()));
}

/// If this fails, metadata has fewer copies than OpenZFS promises, or data has more than it should.
#[test]
fn copies_and_compression_follow_the_write_policy() {
    for (redundant, expected) in
        [(RedundantMetadata::All, [1, 2, 2, 2]), (RedundantMetadata::Most, [1, 1, 2, 2]), (RedundantMetadata::None, [1; 4])]
    {
        let props = ObjsetProps { redundant_metadata: redundant, compression: Compression::OFF, ..ObjsetProps::default() };
        let pool = TestPool::create(MemBlockIo::inline(3), ObjsetType::ZFS, props).expect("create");
        let dnode = file(&pool, 512);
        dnode.write(0, &[1; 512 * 33 * 32], &pool.txgs.assign(0).expect("assign")).expect("write");
        pool.sync().expect("sync");
        let tree = tree(&dnode);
        let copies = |level| dnode.contents.reader.pointer(&tree, level, 0).expect("pointer").dvas().count();
        assert_eq!([copies(0), copies(1), copies(2), pool.objset.root_bp().dvas().count()], expected, "{redundant:?}");
    }
    let props = ObjsetProps { compression: Compression::OFF, ..ObjsetProps::default() };
    let pool = TestPool::create(MemBlockIo::inline(3), ObjsetType::ZFS, props).expect("create");
    let dnode = file(&pool, 512);
    dnode.write(0, &[0; 512], &pool.txgs.assign(0).expect("assign")).expect("write");
    pool.sync().expect("sync");
    assert!(!tree(&dnode).block_ptrs[0].is_hole(), "without compression zeros are data");
}

/// If this fails, large records or odd block sizes are corrupted.
#[test]
fn blocks_of_every_size_are_kept() {
    let pool = pool();
    for size in [512, 1536, 8192, 1 << 20, 16 << 20] {
        let dnode = file(&pool, size);
        let bytes: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
        dnode.write(0, &bytes, &pool.txgs.assign(0).expect("assign")).expect("write");
        pool.sync().expect("sync");
        assert_eq!(dnode.read_block(BlockId(0)).expect("read").to_vec(), bytes);
    }
    let odd = file(&pool, 1536);
    let tx = pool.txgs.assign(0).expect("assign");
    assert_eq!(odd.write(1000, &[1; 1000], &tx), Err(DmuError::Invalid), "an odd size has one block only");
    assert_eq!(odd.set_block_size(32 << 20, &tx), Err(DmuError::Invalid));
    drop(tx);
    assert_eq!(pool.check(), Ok(()));
}

/// If this fails, a whole-block write copies the user's data, and a later write changes what was handed in.
#[test]
fn whole_blocks_share_the_buffer_that_was_handed_in() {
    let pool = pool();
    let dnode = file(&pool, 4096);
    let buffer = Abd::from_slice(&[9; 8192]);
    let tx = pool.txgs.assign(0).expect("assign");
    dnode.write_abd(4096, buffer.clone(), &tx).expect("write");
    let shared = dnode.read_abd(4096, 8192).expect("read");
    assert_eq!(shared.chunks().next().map(<[u8]>::as_ptr), buffer.chunks().next().map(<[u8]>::as_ptr));
    dnode.write(4100, &[1; 10], &tx).expect("write");
    assert!(buffer.to_vec().iter().all(|&byte| byte == 9), "the caller's buffer stays as it was");
}

/// If this fails, a snapshot can be changed, or an object is changed in the past.
#[test]
fn what_must_not_change_does_not() {
    let pool = pool();
    let dnode = file(&pool, 512);
    let past = Tx::syncing(Txg(2));
    assert_eq!(dnode.write(0, &[1], &past), Err(DmuError::TxgOrder));
    pool.sync().expect("sync");
    let env = ObjsetEnv { ledger: None, ..TestPool::env(&pool.io) };
    let snapshot = Objset::open(env, pool.objset.root_bp(), ObjsetProps::default()).expect("open");
    let held = snapshot.hold(dnode.object()).expect("hold");
    assert_eq!(held.write(0, &[1], &pool.txgs.assign(0).expect("assign")), Err(DmuError::ReadOnly));
    assert_eq!(snapshot.sync(Txg(9)), Err(DmuError::ReadOnly));
}

/// If this fails, the pool's sync never converges: each pass moves what the last one wrote.
#[test]
fn a_second_pass_in_a_txg_rewrites_in_place() {
    let io = MemBlockIo::inline(1);
    let env = ObjsetEnv { id: ObjsetId(0), ..TestPool::env(&io) };
    let tx = Tx::syncing(Txg(4));
    let mos = Objset::create(env, ObjsetType::META, ObjsetProps::mos(), &tx).expect("create");
    let dnode = mos.allocate_object(NewObject::new(ObjectType::OBJECT_DIRECTORY), &tx).expect("allocate");
    let mut live = Vec::new();
    for pass in 1..4u8 {
        dnode.write(0, &[pass; 512], &tx).expect("write");
        let root = mos.sync(Txg(4)).expect("sync");
        assert_eq!(crate::testing::verify_tree(&io, root), Ok(()));
        live.push(io.live_blocks());
    }
    assert_eq!(live[0], live[2], "no block moved");
    assert!(!mos.is_dirty(Txg(4)));
}

#[derive(Default)]
struct Hook(Mutex<Vec<OwnerDelta>>);

impl ObjsetHook for Hook {
    fn owner(&self, _bonus_type: ObjectType, bonus: &[u8], _spill: Option<&Abd>) -> Option<ObjectOwner> {
        bonus.first().map(|&uid| ObjectOwner { uid: u64::from(uid), gid: 7, project: None })
    }
    fn apply(&self, objset: &Arc<Objset>, deltas: &[OwnerDelta], tx: &Tx) -> Result<(), DmuError> {
        let users = match objset.hold(USERUSED_OBJECT) {
            Ok(users) => users,
            Err(_) => objset.claim_object(USERUSED_OBJECT, NewObject::new(ObjectType::USERGROUP_USED), tx)?,
        };
        users.write(0, &[deltas.len() as u8], tx)?;
        self.0.lock().extend(deltas);
        Ok(())
    }
}

/// If this fails, `zfs userspace` shows wrong numbers, and quotas stop the wrong people.
#[test]
fn owners_are_charged_for_what_changed() {
    let pool = pool();
    let hook = Arc::new(Hook::default());
    pool.objset.set_hook(hook.clone());
    let new = NewObject { bonus_type: ObjectType::SA, bonus_len: 1, block_size: 4096, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let dnode = pool.objset.allocate_object(new, &pool.txgs.assign(0).expect("assign")).expect("allocate");
    dnode.write(0, &[1; 4096], &pool.txgs.assign(0).expect("assign")).expect("write");
    pool.sync().expect("sync");
    let owner = |uid| ObjectOwner { uid, gid: 7, project: None };
    assert_eq!(std::mem::take(&mut *hook.0.lock()), [OwnerDelta { owner: owner(0), bytes: 4096 + 512, objects: 1 }]);
    dnode.set_bonus(&[5], &pool.txgs.assign(0).expect("assign")).expect("set_bonus");
    pool.sync().expect("sync");
    let moved = [OwnerDelta { owner: owner(0), bytes: -4608, objects: -1 }, OwnerDelta { owner: owner(5), bytes: 4608, objects: 1 }];
    assert_eq!(std::mem::take(&mut *hook.0.lock()), moved);
    assert_ne!(tree(&dnode).flags & dnode_flags::USERUSED_ACCOUNTED, 0);
    let pool = pool.reopen().expect("reopen");
    pool.objset.set_hook(hook.clone());
    pool.objset.free_object(dnode.object(), &pool.txgs.assign(0).expect("assign")).expect("free");
    pool.sync().expect("sync");
    assert_eq!(*hook.0.lock(), [OwnerDelta { owner: owner(5), bytes: -4608, objects: -1 }]);
    assert!(pool.objset.hold(USERUSED_OBJECT).is_ok());
    assert_eq!(pool.check(), Ok(()));
}

/// If this fails, a file that is created after another was deleted shares its number within a txg.
#[test]
fn a_freed_number_is_free_again_after_the_sync_only() {
    let pool = pool();
    let dnode = file(&pool, 512);
    let object = dnode.object();
    pool.sync().expect("sync");
    let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS);
    {
        let tx = pool.txgs.assign(0).expect("assign");
        pool.objset.free_object(object, &tx).expect("free");
        assert_eq!(pool.objset.claim_object(object, new, &tx).err(), Some(DmuError::ObjectExists));
        assert_eq!(dnode.read(0, &mut [0]), Err(DmuError::NoSuchObject));
        assert_eq!(pool.objset.free_object(object, &tx), Err(DmuError::NoSuchObject));
    }
    pool.sync().expect("sync");
    let again = pool.objset.claim_object(object, new, &pool.txgs.assign(0).expect("assign")).expect("claim");
    assert!(!Arc::ptr_eq(&again, &dnode));
    assert_eq!(dnode.read(0, &mut [0]), Err(DmuError::NoSuchObject), "the old object stays gone");
    pool.sync().expect("sync");
    assert_eq!(pool.check(), Ok(()));
}

/// If this fails, an object that a stream gives more levels than its blocks' numbers have digits for stops the pool that receives it.
#[test]
fn more_levels_than_numbers_reach_are_searched() {
    let pool = pool();
    let tx = || pool.txgs.assign(0).expect("assign");
    let new = NewObject { indirect_shift: 17, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let dnode = pool.objset.allocate_object(new, &tx()).expect("allocate");
    let sealed = SealedObject {
        levels: 12,
        max_block: BlockId(9),
        checksum: Checksum::INHERIT,
        compression: Compression::INHERIT,
        bonus: Vec::new(),
        bonus_len: 0,
    };
    dnode.set_sealed(&sealed, &tx()).expect("it fits");
    for block in [0, 1, 5] {
        dnode.write(512 * block, &[1; 512], &tx()).expect("write");
    }
    pool.sync().expect("sync");
    assert_eq!(tree(&dnode).levels, 12);
    assert_eq!((dnode.next_hole(0), dnode.next_data(1024), dnode.next_data(3072)), (Ok(1024), Ok(Some(2560)), Ok(None)));
    dnode.free_range(0, u64::MAX, &tx()).expect("free");
    pool.sync().expect("sync");
    assert_eq!(dnode.next_data(0), Ok(None));
}

/// If this fails, whoever takes over from a process that was killed finds a new file's number taken by one that was deleted before: both happened in
/// txgs that are not on disk, and happen again in one.
#[test]
fn a_number_rests_until_the_txg_that_freed_it_is_on_disk() {
    for rests in [false, true] {
        let pool = pool();
        if rests {
            pool.objset.rest_numbers();
        }
        let object = file(&pool, 512).object();
        pool.sync().expect("synced");
        pool.objset.free_object(object, &pool.txgs.assign(0).expect("assign")).expect("free");
        let claim =
            move |objset: &Objset, tx: &Tx| objset.claim_object(object, NewObject::new(ObjectType::PLAIN_FILE_CONTENTS), tx).map(drop);
        // The txg is written, and nobody knows yet whether that is on disk.
        let (outcome, told) = (Arc::new(Mutex::new(None)), pool.txgs.open_txg());
        let (objset, txgs, seen) = (pool.objset.clone(), pool.txgs.clone(), outcome.clone());
        let job = move || *seen.lock() = Some(claim(&objset, &txgs.assign(0).expect("assign")));
        assert!(pool.txgs.before_told(told, Box::new(job)));
        pool.sync().expect("synced");
        assert_eq!(*outcome.lock(), Some(if rests { Err(DmuError::ObjectExists) } else { Ok(()) }));
        if rests {
            pool.sync().expect("synced");
            assert_eq!(claim(&pool.objset, &pool.txgs.assign(0).expect("assign")), Ok(()), "on disk it is free");
        }
    }
}
