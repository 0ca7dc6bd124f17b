//! File systems before version 5: attributes in a fixed record (`znode_phys_t`), read, made and changed, and versions that are raised.

use abd::Abd;
use dmu::testing::{MemBlockIo, TestPool};
use dmu::{NewObject, ObjsetProps, Tx};
use ondisk::{ObjectId, ObjectType, ObjsetType};
use std::sync::Arc;
use zap::Zap;
use zpl::{CreateOptions, NewNode, Node, Place, RenameMode, SetAttrs, SetMode, Settings, WriteData, Zfs, ZplError};

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

/// If this fails, nobody reads a file system that an old system left.
#[test]
fn old_file_systems_are_read() {
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
    assert!(!zfs.is_read_only());
    zfs.set_attrs(&file, &SetAttrs { mode: Some(0o604), ..SetAttrs::default() }).expect("chmod");
    assert_eq!(record_of(&zfs, &file)[184], 40, "five entries of eight bytes: the owner may what the group is denied");
    zfs.unlink(&root, b"long").expect("unlink");
}

/// Bonus of a node, as it is on its way to the disk.
fn record_of(zfs: &Arc<Zfs>, node: &Node) -> Vec<u8> {
    zfs.objset().hold(node.object()).and_then(|dnode| dnode.bonus()).expect("a bonus").to_vec()
}

/// Kind of the bonus, the number of slots, and the size of the blocks of a node.
fn form(zfs: &Arc<Zfs>, node: &Node) -> (ObjectType, u8, usize) {
    let info = zfs.objset().hold(node.object()).and_then(|dnode| dnode.info()).expect("a dnode");
    (info.bonus_type, info.slots, info.block_size)
}

fn file_system(version: u64) -> (TestPool, Arc<Zfs>) {
    let props = ObjsetProps { dnode_size: 1024, ..ObjsetProps::default() };
    let pool = TestPool::create(MemBlockIo::inline(3), ObjsetType::ZFS, props).expect("an object set");
    let options = CreateOptions { version: Some(version), project_quota: true, ..CreateOptions::default() };
    Zfs::create(&pool.objset, &options, &pool.txgs.assign(0).expect("a transaction")).expect("a file system");
    let zfs = open(&pool);
    (pool, zfs)
}

fn open(pool: &TestPool) -> Arc<Zfs> {
    let settings = Settings { atime: false, project_quota: true, posix_acl: true, ..Settings::default() };
    Zfs::open(&pool.objset, Some(pool.txgs.clone()), settings).expect("it opens")
}

fn new(mode: u64) -> NewNode<'static> {
    NewNode { mode, uid: 7, gid: 8, umask: Some(0o22), ..NewNode::default() }
}

fn write(zfs: &Arc<Zfs>, node: &Node, data: &[u8]) {
    let data = Abd::from_slice(data);
    zfs.write(node, WriteData { offset: 0, data, may_keep: true, kill_suid: false, synchronous: false }).expect("written");
}

/// Default list for directories: u::rwx,u:77:rwx,g::r-x,m::rwx,o::---.
const LIST: &[u8] = &[
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 77, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255, 16, 0, 7, 0, 255, 255, 255, 255,
    32, 0, 0, 0, 255, 255, 255, 255,
];

/// If this fails, a file system that is to be read by an older system has something in it that this does not know, or lost what was written.
#[test]
fn old_file_systems_are_made_and_changed() {
    for version in 1..=4 {
        let (pool, zfs) = file_system(version);
        let root = zfs.node(zfs.root()).expect("root");
        let directory = zfs.create_node(&root, b"dir", &new(0o040_777)).expect("mkdir");
        let file = zfs.create_node(&directory, b"file", &new(0o100_666)).expect("create");
        write(&zfs, &file, b"some data");
        for (name, bytes) in [("user.small", 10), ("user.large", 40_000)] {
            zfs.set_xattr(&file, name.as_bytes(), &vec![7; bytes], SetMode::Any).expect("an attribute");
        }
        zfs.set_attrs(&file, &SetAttrs { mode: Some(0o604), uid: Some(9), ..SetAttrs::default() }).expect("chmod and chown");
        let targets: [Vec<u8>; 4] = [1, 56, 57, 4095].map(|bytes| vec![b'x'; bytes]);
        for target in &targets {
            let link = NewNode { target, ..new(0o120_777) };
            zfs.create_node(&root, format!("link{}", target.len()).as_bytes(), &link).expect("symlink");
        }
        zfs.create_node(&root, b"device", &NewNode { rdev: 5 << 20 | 1, ..new(0o020_600) }).expect("mknod");
        zfs.create_node(&root, b"gone", &new(0o100_600)).expect("create");
        zfs.unlink(&root, b"gone").expect("unlink");
        let (from, to) = (Place { directory: &directory, name: b"file" }, Place { directory: &root, name: b"moved" });
        zfs.rename(from, to, RenameMode::Replace).expect("rename");
        let default = zfs.set_list(&directory, b"system.posix_acl_default", Some(LIST), false);
        assert_eq!(default, Err(ZplError::NotSupported), "what would be inherited has no place");
        drop((file, directory, root, zfs));

        let pool = pool.reopen().expect("reopened");
        let zfs = open(&pool);
        let root = zfs.node(zfs.root()).expect("root");
        assert_eq!(root.fields().size, 2 + 7, "version {version}");
        let moved = zfs.lookup(&root, b"moved").expect("the file");
        let fields = moved.fields();
        assert_eq!((fields.mode, fields.uid, fields.gid, fields.links, fields.size), (0o100_604, 9, 8, 1, 9));
        assert_eq!(zfs.read(&moved, 0, 100).expect("read").to_vec(), b"some data");
        for (name, bytes) in [("user.small", 10), ("user.large", 40_000)] {
            assert_eq!(zfs.get_xattr(&moved, name.as_bytes()), Ok(vec![7; bytes]), "version {version}");
        }
        for target in &targets {
            let link = zfs.lookup(&root, format!("link{}", target.len()).as_bytes()).expect("a link");
            assert_eq!(zfs.read_link(&link).as_ref(), Ok(target));
            let in_data = target.len() > 56;
            let block_bytes = if in_data { target.len().next_multiple_of(512) } else { 512 };
            assert_eq!(form(&zfs, &link), (ObjectType::ZNODE, 1, block_bytes), "one block, which is all that older systems read");
        }
        assert_eq!(zfs.lookup(&root, b"device").expect("a device").fields().rdev, 5 << 20 | 1);
        for node in [&root, &moved, &zfs.lookup(&root, b"dir").expect("a directory")] {
            assert_eq!((form(&zfs, node).0, form(&zfs, node).1), (ObjectType::ZNODE, 1));
        }
        let list = &record_of(&zfs, &moved)[184..192];
        let expected: [u8; 8] = if version < 3 { [5, 0, 0, 0, 0, 0, 0, 0] } else { [40, 0, 0, 0, 1, 0, 5, 0] };
        assert_eq!(list, expected, "number of entries, or their bytes with version and number");
        let mut kinds = Vec::new();
        zfs.list(&root, 3, &mut |listed| {
            kinds.push(listed.dirent.kind);
            true
        })
        .expect("listed");
        assert_eq!(kinds.iter().all(|kind| *kind == 0), version == 1, "{kinds:?}");
    }
}

/// If this fails, `zfs upgrade` of a mounted file system takes its files, or what is made afterwards is not as the new version has it.
#[test]
fn versions_are_raised_while_somebody_uses_the_file_system() {
    let (pool, zfs) = file_system(1);
    let root = zfs.node(zfs.root()).expect("root");
    let old = zfs.create_node(&root, b"old", &new(0o100_644)).expect("create");
    let raise = |version| {
        let raised = zpl::version::raise(&pool.objset, version, &pool.txgs.assign(0).expect("a transaction"));
        zfs.renew().map(|()| raised)
    };
    let made = |name: &str| zfs.create_node(&root, name.as_bytes(), &new(0o100_644)).map(|node| form(&zfs, &node));
    assert_eq!([raise(1), raise(6)], [Ok(Ok(false)), Ok(Ok(false))]);
    assert_eq!(raise(4), Ok(Ok(true)));
    assert_eq!(made("four"), Ok((ObjectType::ZNODE, 1, 512)));
    assert_eq!(raise(3), Ok(Ok(false)), "versions are never lowered");
    assert_eq!(raise(5), Ok(Ok(true)));
    assert_eq!(made("five"), Ok((ObjectType::SA, 2, 512)));
    for name in ["old", "four", "five"] {
        let node = zfs.lookup(&root, name.as_bytes()).expect("a file");
        zfs.set_attrs(&node, &SetAttrs { mode: Some(0o600), ..SetAttrs::default() }).expect("chmod");
        zfs.set_xattr(&node, b"user.name", name.as_bytes(), SetMode::Any).expect("an attribute");
    }
    assert_eq!(form(&zfs, &old).0, ObjectType::ZNODE, "what is there stays as it is");
    drop((old, root, zfs));
    let pool = pool.reopen().expect("reopened");
    let zfs = open(&pool);
    let root = zfs.node(zfs.root()).expect("root");
    for name in ["old", "four", "five"] {
        let node = zfs.lookup(&root, name.as_bytes()).expect("a file");
        assert_eq!(zfs.get_xattr(&node, b"user.name"), Ok(name.as_bytes().to_vec()));
        assert_eq!(node.fields().mode, 0o100_600);
    }
}
