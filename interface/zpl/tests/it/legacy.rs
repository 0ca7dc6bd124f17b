//! File systems before version 5: attributes in a fixed record (`znode_phys_t`), read but not changed.

use dmu::testing::{MemBlockIo, TestPool};
use dmu::{NewObject, ObjsetProps, Tx};
use ondisk::{ObjectId, ObjectType, ObjsetType};
use zap::Zap;
use zpl::{NewNode, Settings, Zfs, ZplError};

const RECORD_BYTES: usize = 264;

/// Bytes of the record as `zfs_znode.h` of old has it: four times, then words.
fn record(mode: u64, size: u64, parent: u64, links: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RECORD_BYTES);
    for seconds in [-7i64, 11, 12, 13] {
        bytes.extend(seconds.to_le_bytes());
        bytes.extend(5u64.to_le_bytes());
    }
    for word in [4, mode, size, parent, links, 0, 0, 0, 1000, 100] {
        bytes.extend(u64::to_le_bytes(word));
    }
    bytes.resize(RECORD_BYTES, 0);
    bytes
}

fn add_file(pool: &TestPool, directory: &Zap, name: &str, mode: u64, data: &[u8], tail: &[u8], tx: &Tx) {
    let kind = NewObject { bonus_type: ObjectType::ZNODE, bonus_len: RECORD_BYTES, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let dnode = pool.objset.allocate_object(kind, tx).expect("an object");
    let mut bonus = record(mode, data.len().max(tail.len()) as u64, directory.object().0, 1);
    bonus.extend_from_slice(tail);
    dnode.set_bonus(&bonus, tx).expect("a record");
    if !data.is_empty() {
        dnode.write(0, data, tx).expect("data");
    }
    directory.add_u64(name, dnode.object().0 | (mode >> 12) << 60, tx).expect("a name");
}

#[test]
fn old_file_systems_are_read_and_refuse_changes() {
    let pool = TestPool::create(MemBlockIo::inline(3), ObjsetType::ZFS, ObjsetProps::default()).expect("an object set");
    let tx = pool.txgs.assign(0).expect("a transaction");
    let master = zap::CreateOptions { claim: Some(ObjectId(1)), ..zap::CreateOptions::new(ObjectType::MASTER_NODE) };
    zap::create_with(&pool.objset, master, &tx).expect("a master node");
    let master = Zap::hold(&pool.objset, ObjectId(1)).expect("it opens");
    let queue = zap::create(&pool.objset, ObjectType::UNLINKED_SET, &tx).expect("a delete queue");
    let directory = zap::CreateOptions {
        bonus_type: ObjectType::ZNODE,
        bonus_len: RECORD_BYTES,
        ..zap::CreateOptions::new(ObjectType::DIRECTORY_CONTENTS)
    };
    let root = zap::create_with(&pool.objset, directory, &tx).expect("a directory");
    for (name, value) in [("VERSION", 4), ("DELETE_QUEUE", queue.0), ("ROOT", root.0)] {
        master.add_u64(name, value, &tx).expect("an entry");
    }
    let directory = Zap::hold(&pool.objset, root).expect("it opens");
    directory.dnode().set_bonus(&record(0o040_755, 5, root.0, 2), &tx).expect("a record");
    add_file(&pool, &directory, "file", 0o100_640, b"old data", b"", &tx);
    add_file(&pool, &directory, "short", 0o120_777, b"", b"file", &tx);
    add_file(&pool, &directory, "long", 0o120_777, &[b'x'; 300], b"", &tx);
    drop(tx);
    let pool = pool.reopen().expect("reopened");

    let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings::default()).expect("an old file system opens");
    let root = zfs.node(zfs.root()).expect("root");
    let file = zfs.lookup(&root, b"file").expect("a file");
    let fields = file.fields();
    assert_eq!((fields.mode, fields.uid, fields.gid, fields.links, fields.size), (0o100_640, 1000, 100, 1, 8));
    assert_eq!(fields.times, [(-7, 5), (11, 5), (12, 5), (13, 5)]);
    assert_eq!(zfs.read(&file, 0, 100).expect("read").to_vec(), b"old data");
    let link = |name: &[u8]| zfs.read_link(&zfs.lookup(&root, name).expect("a link"));
    assert_eq!(link(b"short"), Ok(b"file".to_vec()));
    assert_eq!(link(b"long"), Ok(vec![b'x'; 300]));
    assert!(zfs.is_read_only());
    let new = NewNode { mode: 0o100_644, ..NewNode::default() };
    assert_eq!(zfs.create_node(&root, b"new", &new).map(|_| ()), Err(ZplError::ReadOnly));
}
