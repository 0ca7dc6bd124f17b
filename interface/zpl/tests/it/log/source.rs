//! Bytes that the log asks for when it is written, the order of what is noted, and synchronous writes.

use super::bed::{RECORD, World, abd, at, contents, missing, seen};
use super::kinds::write;
use dmu::testing::MemBlockIo;
use exec::completion;
use need::pattern;
use ondisk::ObjectId;
use ondisk::zil::TxType;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zil::{Filled, LogSource, Payload, Range};
use zpl::direct::Access;
use zpl::{CreateOptions, NewNode, Node, Place, RenameMode, WriteData, Zfs};

const FILE: NewNode<'_> = NewNode {
    mode: 0o100_644,
    uid: 0,
    gid: 0,
    rdev: 0,
    target: &[],
    xattr: false,
    nameless: false,
    recorded: None,
    umask: None,
    lists: &[],
};

fn file(zfs: &Arc<Zfs>, name: &[u8]) -> Node {
    zfs.create_node(&at(zfs, "").expect("the root"), name, &FILE).expect("made")
}

fn range_of(node: &Node, offset: u64, length: u64) -> Range {
    Range { object: node.object(), generation: node.fields().generation, offset, length }
}

fn filled(world: &World, payload: Payload) -> Filled {
    world.zfs.fill(&payload, world.pool.txgs.open_txg()).expect("filled")
}

/// If this fails, the log of a file that shrank or is gone holds bytes of another file, or what was behind its end.
#[test]
fn only_what_is_still_the_files_is_written() {
    let world = World::new(true);
    let zfs = &world.zfs;
    let node = file(zfs, b"f");
    write(zfs, "f", 0, &pattern(300, 1), false).expect("written");
    let range = range_of(&node, 100, 100);
    assert_eq!(filled(&world, Payload::Copied(range)), Filled::Bytes(pattern(300, 1)[100..200].to_vec()));
    zfs.truncate(&node, 150).expect("shorter");
    let cut = [&pattern(300, 1)[100..150], &[0; 50]].concat();
    assert_eq!(filled(&world, Payload::Copied(range)), Filled::Bytes(cut), "zeros behind the end");
    zfs.truncate(&node, 100).expect("shorter");
    assert_eq!(filled(&world, Payload::Copied(range)), Filled::Nothing, "cut off before");
    zfs.truncate(&node, 200).expect("longer");
    assert_eq!(filled(&world, Payload::Copied(range)), Filled::Bytes(vec![0; 100]));
    assert_eq!(filled(&world, Payload::Copied(Range { generation: range.generation + 1, ..range })), Filled::Nothing, "another file's");
    assert_eq!(filled(&world, Payload::Copied(Range { object: ObjectId(9999), ..range })), Filled::Nothing, "nobody's");
    assert_eq!(zfs.fill(&Payload::Copied(range), world.pool.txgs.synced_txg()), Ok(Filled::Nothing), "on disk");
    zfs.unlink(&at(zfs, "").expect("the root"), b"f").expect("gone");
    assert_eq!(filled(&world, Payload::Copied(range)), Filled::Nothing, "without a name");
    let waiting = world.log.waiting();
    zfs.write(&node, WriteData { offset: 0, data: abd(b"late"), may_keep: true, kill_suid: false, synchronous: false }).expect("written");
    assert_eq!(world.log.waiting(), waiting, "nothing is noted of it any more");
}

/// If this fails, what was written directly goes into the log a second time, or a record names a block that is another's.
#[test]
fn blocks_that_were_written_directly_are_named() {
    let world = World::new(true);
    let zfs = &world.zfs;
    let node = file(zfs, b"f");
    write(zfs, "f", 0, &pattern(4 * RECORD as usize, 1), false).expect("written");
    let data = abd(&[pattern(2 * RECORD as usize, 2), vec![0; RECORD as usize]].concat());
    let direct = WriteData { offset: 0, data, may_keep: true, kill_suid: false, synchronous: false };
    zfs.write_with(&node, direct, Access::DIRECT).expect("written");
    let block = |index: u64| filled(&world, Payload::Block(range_of(&node, index * RECORD, RECORD)));
    let Filled::Block(bp) = block(0) else { panic!("{:?}", block(0)) };
    assert_eq!((bp.lsize() as u64, bp.birth()), (RECORD, world.pool.txgs.open_txg()));
    write(zfs, "f", RECORD, b"over", false).expect("written");
    let over = [b"over", &pattern(2 * RECORD as usize, 2)[RECORD as usize + 4..]].concat();
    assert_eq!(block(1), Filled::Bytes(over), "the block is the file's no more");
    let Filled::Block(hole) = block(2) else { panic!("{:?}", block(2)) };
    assert_eq!((hole.is_hole(), hole.lsize() as u64), (true, RECORD));
    world.pool.sync().expect("synced");
    assert!(matches!(block(0), Filled::Bytes(_)), "the tree's");
}

/// If this fails, fsync(2) after direct writes below a record reads back what the devices have just got, or what was made durable is not what is there
/// after a crash.
#[test]
fn records_that_parts_filled_are_named_by_the_records_of_the_parts() {
    let world = World::new(true);
    let zfs = &world.zfs;
    let node = file(zfs, b"f");
    write(zfs, "f", 0, &pattern(2 * RECORD as usize, 1), false).expect("written");
    world.pool.sync().expect("synced");
    let (part, first) = (4096, range_of(&node, 2 * RECORD, 4096));
    let send = |at: u64| {
        let data = abd(&pattern(part as usize, at));
        let write = WriteData { offset: at, data, may_keep: true, kill_suid: false, synchronous: false };
        zfs.write_with(&node, write, Access::DIRECT).expect("written");
    };
    (2 * RECORD..3 * RECORD - part).step_by(part as usize).for_each(send);
    assert_eq!(filled(&world, Payload::Copied(first)), Filled::Bytes(pattern(part as usize, 2 * RECORD)), "one part is missing");
    send(3 * RECORD - part);
    let Filled::Block(bp) = filled(&world, Payload::Copied(first)) else { panic!("its bytes are asked for") };
    assert_eq!((bp.lsize() as u64, bp.birth()), (RECORD, world.pool.txgs.open_txg()));
    (3 * RECORD..4 * RECORD).step_by(part as usize).for_each(send);
    write(zfs, "f", 3 * RECORD + 100, b"over", false).expect("written");
    let dirty = Range { offset: 3 * RECORD, ..first };
    assert!(matches!(filled(&world, Payload::Copied(dirty)), Filled::Bytes(_)), "it was changed since");
    (4 * RECORD..5 * RECORD).step_by(part as usize).for_each(send);
    zfs.fsync(&node).expect("committed");
    send(5 * RECORD);
    let promised = contents(zfs, "f")[..5 * RECORD as usize].to_vec();
    drop(node);
    let (_pool, after, complaint) = world.crashed();
    assert_eq!((complaint, contents(&after, "f") == promised), (None, true));
}

/// If this fails, a program that writes a file anew and renames it over the old one finds it empty after a crash.
#[test]
fn what_was_written_comes_before_the_renaming() {
    let world = World::new(true);
    let (zfs, root) = (&world.zfs, at(&world.zfs, "").expect("the root"));
    drop((file(zfs, b"old"), file(zfs, b"new"), file(zfs, b"other")));
    write(zfs, "old", 0, b"old", false).expect("written");
    zfs.sync().expect("committed");
    write(zfs, "new", 0, b"new", false).expect("written");
    write(zfs, "old", 0, b"lost", false).expect("written");
    let place = |name| Place { directory: &root, name };
    zfs.rename(place(b"new"), place(b"old"), RenameMode::Replace).expect("renamed");
    write(zfs, "other", 0, b"other", false).expect("written");
    let before = world.log.kinds().len();
    zfs.fsync(&at(zfs, "other").expect("a file")).expect("committed");
    assert_eq!(world.log.kinds()[before..], [TxType::WRITE, TxType::RENAME, TxType::WRITE], "nothing of the file that is gone");
    let (_pool, after, complaint) = world.crashed();
    assert_eq!((complaint, contents(&after, "old"), contents(&after, "other")), (None, b"new".to_vec(), b"other".to_vec()));
}

/// If this fails, fsync(2) after `sync=disabled` was switched off promises what nobody wrote down, or the log cannot be replayed.
#[test]
fn what_was_not_noted_is_waited_for() {
    let world = World::new(true);
    let zfs = &world.zfs;
    world.log.is_off.store(true, Ordering::Relaxed);
    drop(file(zfs, b"f"));
    let txg = world.pool.txgs.open_txg();
    assert_eq!(world.log.waiting(), 0, "nobody wants it");
    world.log.is_off.store(false, Ordering::Relaxed);
    write(zfs, "f", 0, b"later", false).expect("written");
    zfs.fsync(&at(zfs, "f").expect("a file")).expect("committed");
    assert!(world.pool.txgs.synced_txg() >= txg);
    let promised = seen(zfs);
    let (_pool, after, complaint) = world.crashed();
    assert_eq!((complaint, missing(&promised, &seen(&after), &|_| true)), (None, Vec::new()));
}

/// If this fails, a file that got its only name with linkat(2), or what was done with it, is lost although it was made durable, and all
/// that was made durable after it.
#[test]
fn names_of_nameless_files_are_waited_for_by_everybody() {
    let world = World::new(true);
    let (zfs, root) = (&world.zfs, at(&world.zfs, "").expect("the root"));
    drop(file(zfs, b"other"));
    world.pool.sync().expect("synced");
    let node = zfs.create_nameless(&root, &FILE).expect("made");
    zfs.link(&node, &root, b"tmp").expect("linked");
    zfs.rename(Place { directory: &root, name: b"tmp" }, Place { directory: &root, name: b"named" }, RenameMode::Replace).expect("renamed");
    write(zfs, "other", 0, b"other", false).expect("written");
    zfs.fsync(&at(zfs, "other").expect("a file")).expect("committed");
    let (_pool, after, complaint) = world.crashed();
    assert_eq!((complaint, contents(&after, "other")), (None, b"other".to_vec()));
}

/// If this fails, O_SYNC returns before the bytes are safe, or never, or starts a thread for each small write.
#[test]
fn synchronous_writes_that_nobody_waits_for_are_answered_when_they_are_durable() {
    let world = World::with(MemBlockIo::threaded(2), CreateOptions::default(), true);
    let zfs = &world.zfs;
    let nodes = [file(zfs, b"a"), file(zfs, b"b"), file(zfs, b"c")];
    let mut waiters = Vec::new();
    for round in 0..20u64 {
        for node in &nodes {
            let (done, waiter) = completion();
            let data = abd(&pattern(RECORD as usize, round));
            let access = if round % 2 == 0 { Access::default() } else { Access::DIRECT };
            let write = WriteData { offset: round * RECORD, data, may_keep: true, kill_suid: false, synchronous: true };
            let log = world.log.clone();
            zfs.write_then(node, write, access, Box::new(move |result| done.complete((result, log.kinds().len()))));
            let is_answered = access == Access::DIRECT || waiter.is_done();
            assert!(is_answered, "who writes through the cache commits");
            waiters.push(waiter);
        }
    }
    for waiter in waiters {
        let (result, written) = waiter.wait(world.pool.io.exec_of());
        assert!(result == Ok(RECORD) && written > 0, "{result:?}");
    }
    let promised = seen(zfs);
    drop(nodes);
    let (_pool, after, complaint) = world.crashed();
    assert_eq!((complaint, missing(&promised, &seen(&after), &|_| true)), (None, Vec::new()));
}
