//! Metadata that cannot be read while a txg is synced: what was accepted waits with the pool until it can, and is not lost. And what the
//! check of all blocks says of damaged ones.

use crate::common::{BLOCKS, check, create_under, devices, exec as one_thread, host, import, new_object, tops, until, write};
use dmu::BlockError;
use dsl::{CreateDataset, Walk};
use exec::Exec;
use ondisk::label::LABEL_START_BYTES;
use ondisk::{BlockPtr, Bookmark, ObjectId, ObjectType, ObjsetType};
use pool::{Pool, PoolSpec, Reading, Runtime, Unreadable};
use std::sync::Arc;
use vdev::TopKind;
use zio::{FailMode, Fault, FaultError};

fn fault(pool: &Pool) {
    pool.zio().inject(1, Fault::Meta { object_type: None, error: FaultError::Io }, 0);
    pool.cache().clear();
}

/// If this fails, a disk that fails to read one block for a moment stops the pool until it is exported by force, and all that
/// programs wrote since the last txg is lost, in every file system.
#[test]
fn a_sync_that_cannot_read_waits_suspended_and_loses_nothing() {
    for mode in [FailMode::Wait, FailMode::Continue] {
        let exec: Exec = Arc::new(exec::Pool::new(2));
        let disks = devices(2);
        let pool = Arc::new(create_under(&exec, &disks, TopKind::Mirror));
        let word = if mode == FailMode::Wait { "wait" } else { "continue" };
        pool.set_prop("failmode", word).expect("set");
        let object = new_object(&pool);
        write(&pool, object, 0..BLOCKS, 1);
        pool.sync().expect("synced");

        fault(&pool);
        write(&pool, object, BLOCKS / 2..BLOCKS, 2);
        let waiter = pool.clone();
        let synced = exec.spawn_operation("sync", Box::new(move || waiter.sync().expect("synced once the block can be read")));
        until(&exec, "suspension", || pool.zio().is_suspended());
        let status = pool.status();
        let waits_for = status.suspended_for.unwrap_or_default();
        assert!(status.suspended && waits_for.starts_with("device I/O failed on every copy (objset 0 object "), "{waits_for}");
        assert!(waits_for.ends_with(" of the pool's own metadata"), "{waits_for}");
        // The cause is still there.
        assert_eq!(pool.bring_back(Vec::new()), Ok(false));
        assert!(pool.zio().is_suspended(), "{mode:?}");
        assert!(pool.zio().clear_injection(1));
        until(&exec, "the end of the suspension", || pool.bring_back(Vec::new()).expect("tried"));
        synced.join();
        assert_eq!(pool.status().suspended_for, None, "it goes on");
        let ages: Vec<u64> = (0..BLOCKS).map(|block| 1 + u64::from(block >= BLOCKS / 2)).collect();
        check(&pool, object, &ages, "after the block could be read again");
        assert_eq!(crate::common::checksum_errors(&pool), 0);
    }
}

/// If this fails, a pool that can write nothing any more, because metadata is lost in every copy, says that all is well.
#[test]
fn a_pool_whose_sync_failed_for_good_is_suspended() {
    let exec: Exec = Arc::new(exec::Pool::new(2));
    let disks = devices(2);
    let pool = create_under(&exec, &disks, TopKind::Mirror);
    let object = new_object(&pool);
    pool.sync().expect("synced");
    pool.zio().inject(1, Fault::Meta { object_type: None, error: FaultError::Checksum }, 0);
    pool.cache().clear();
    assert!(!pool.status().suspended);
    write(&pool, object, 0..BLOCKS, 1);
    assert!(pool.sync().is_err());
    assert!(pool.status().suspended);
}

/// If this fails, an administrator whose pool stopped is told that it did, and not which block of what it lacks.
#[test]
fn a_sync_that_fails_says_for_which_block_and_why() {
    let mut failures = 0;
    // Objects of the pool's own object set.
    for object in 0..64 {
        let exec = crate::common::exec(object);
        let pool = create_under(&exec, &devices(1), TopKind::Leaf);
        let file = new_object(&pool);
        pool.dsl().create_dataset("tank/fs", crate::common::dataset()).expect("created");
        write(&pool, file, 0..BLOCKS, 1);
        pool.sync().expect("synced");
        let fault = Fault::Blocks {
            objset: ondisk::ObjsetId(0),
            object: ondisk::ObjectId(object),
            level: 0,
            blocks: 0..=u64::MAX,
            copies: 0,
            error: FaultError::Checksum,
        };
        pool.zio().inject(1, fault, 0);
        pool.cache().clear();
        write(&pool, file, 0..BLOCKS, 2);
        // Whoever asks for a change may be told of the block before the sync needs it.
        let asked = pool.dsl().snapshot(&["tank@1".to_string()], Vec::new());
        let Err(error) = pool.sync() else {
            assert_eq!(pool.status().sync_failure, None, "object {object}: {asked:?}");
            continue;
        };
        failures += 1;
        let failure = pool.status().sync_failure.unwrap_or_else(|| panic!("object {object}: {error}"));
        let block = failure.block.unwrap_or_else(|| panic!("object {object}: {failure}"));
        let found = (block.bookmark.objset.0, block.bookmark.object.0, block.kind);
        assert_eq!(found, (0, object, zio::ErrorKind::Checksum), "{failure}");
        let said = failure.to_string();
        assert!(said.contains("checksum mismatch") && said.contains(&format!("object {object} ")), "{said}");
    }
    assert!(failures >= 8, "{failures} syncs failed: too few to say anything");
}

/// If this fails, a pool that waits for a block in vain cannot be given up.
#[test]
fn a_sync_that_waits_for_a_block_ends_when_the_pool_is_given_up() {
    let exec: Exec = Arc::new(exec::Pool::new(2));
    let disks = devices(2);
    let pool = Arc::new(create_under(&exec, &disks, TopKind::Mirror));
    let object = new_object(&pool);
    pool.sync().expect("synced");
    fault(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    let waiter = pool.clone();
    let synced = exec.spawn_operation("sync", Box::new(move || assert!(waiter.sync().is_err(), "it is given up")));
    until(&exec, "suspension", || pool.zio().is_suspended());
    pool.zio().abandon();
    synced.join();
}

/// An encrypted pool with the key of an administrator, and the pointers of an object's blocks in it.
fn encrypted(disks: &[Arc<device::MemDevice>]) -> (ObjectId, Vec<(BlockPtr, Bookmark)>) {
    let properties = [("encryption", "on"), ("keyformat", "raw")].map(|(name, value)| (name.to_string(), value.to_string()));
    let root = CreateDataset { kind: ObjsetType::OTHER, properties: properties.to_vec(), init: Box::new(|_, _| Ok(())) };
    let key = Some(dsl::Secret::copy_of(&[7; 32]));
    let spec = PoolSpec { host: host(), key, ..PoolSpec::new("tank", tops(&[(TopKind::Leaf, 1)], disks), root) };
    let pool = Pool::create(&one_thread(7), spec, &Runtime::new()).expect("created");
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    let mut found = Vec::new();
    {
        let handle = pool.dsl().hold("tank").expect("held");
        let (objset, root) = (handle.objset().expect("an object set"), handle.root_block());
        let walked = Walk::all(&**objset.io(), handle.object(), &root, 0).run_at(&mut |bp: &BlockPtr, at: &Bookmark| {
            found.extend((at.object == object && at.level.0 == 0).then_some((*bp, *at)));
            Ok(())
        });
        walked.expect("walked");
    }
    pool.export().expect("exported");
    (object, found)
}

/// If this fails, a healthy pool with encrypted datasets counts as damaged: `zdb -bc` says so, and no import goes back to an older state of it.
#[test]
fn encrypted_blocks_are_verified_without_their_key_and_damaged_ones_named() {
    let disks = devices(1);
    let (object, blocks) = encrypted(&disks);
    assert_eq!(blocks.len() as u64, BLOCKS);
    let locked = import(&disks, true).expect("imported");
    for reading in [Reading::Metadata, Reading::Everything] {
        let report = locked.verify_blocks(reading).expect("walked");
        assert_eq!(report.unreadable, 0, "{reading:?}: {:?}", report.named);
        assert!(report.is_clean(), "{reading:?}: {report:?}");
    }
    drop(locked);
    let (bp, at) = blocks[3];
    assert!(bp.is_encrypted() && at.object == object && at.block.0 == 3, "{at:?}");
    let place = (LABEL_START_BYTES + bp.dva(0).offset) as usize;
    disks[0].tamper(|bytes| bytes[place + 20] ^= 1);
    let report = import(&disks, true).expect("imported").verify_blocks(Reading::Everything).expect("walked");
    let named = Unreadable { at: Some(at), kind: ObjectType::UINT64_OTHER, error: BlockError::Checksum };
    assert_eq!((report.unreadable, report.named), (1, vec![named]));
}
