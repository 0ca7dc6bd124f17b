//! Nodes that name any object as the directory of their extended attributes: an error for that node, and nobody waits for ever.

use dmu::ObjsetProps;
use dmu::testing::{MemBlockIo, TestPool};
use ondisk::{ObjectType, ObjsetType};
use zap::Zap;
use zpl::{CreateOptions, NewNode, SetMode, Settings, Zfs, ZplError};

const RECORD_BYTES: usize = 264;
const MODE_AT: usize = 72;
const SIZE_AT: usize = 80;
const PARENT_AT: usize = 88;
const LINKS_AT: usize = 96;
const XATTR_AT: usize = 104;
const FLAGS_AT: usize = 120;
const IS_HIDDEN: u64 = 1;
const DIRECTORY: u64 = 0o040_755;

/// File system with a directory that is forged: `link` makes of its object what its attributes are said to lie in.
fn forged(flags: u64, link: impl FnOnce(u64, u64) -> u64) -> (TestPool, std::sync::Arc<Zfs>) {
    let pool = TestPool::create(MemBlockIo::inline(5), ObjsetType::ZFS, ObjsetProps::default()).expect("an object set in memory");
    let tx = pool.txgs.assign(0).expect("a transaction");
    Zfs::create(&pool.objset, &CreateOptions::default(), &tx).expect("a file system");
    drop(tx);
    pool.sync().expect("it syncs");
    let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings::default()).expect("it opens");
    let root = zfs.node(zfs.root()).expect("its root");
    let file = zfs.create_node(&root, b"file", &NewNode { mode: 0o100_644, ..NewNode::default() }).expect("a file");
    let tx = pool.txgs.assign(0).expect("a transaction");
    let options = zap::CreateOptions {
        bonus_type: ObjectType::ZNODE,
        bonus_len: RECORD_BYTES,
        ..zap::CreateOptions::new(ObjectType::DIRECTORY_CONTENTS)
    };
    let object = zap::create_with(&pool.objset, options, &tx).expect("an object");
    let mut record = vec![0; RECORD_BYTES];
    let words = [
        (MODE_AT, DIRECTORY),
        (SIZE_AT, 2),
        (PARENT_AT, root.object().0),
        (LINKS_AT, 2),
        (XATTR_AT, link(object.0, file.object().0)),
        (FLAGS_AT, flags),
    ];
    for (at, word) in words {
        record[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    let table = Zap::hold(&pool.objset, object).expect("it opens");
    table.dnode().set_bonus(&record, &tx).expect("a record");
    Zap::hold(&pool.objset, root.object()).expect("the root").add_u64("forged", object.0 | 4 << 60, &tx).expect("a name");
    drop((tx, table, file, root));
    (pool, zfs)
}

#[test]
fn a_node_that_is_its_own_hidden_directory_stops_nobody() {
    for flags in [0, IS_HIDDEN] {
        let (_pool, zfs) = forged(flags, |own, _| own);
        let root = zfs.node(zfs.root()).expect("its root");
        let node = zfs.lookup(&root, b"forged").expect("it is found");
        assert_eq!(zfs.set_xattr(&node, b"user.new", b"value", SetMode::Any), Err(ZplError::CORRUPT));
        assert_eq!(zfs.get_xattr(&node, b"user.new"), Err(ZplError::CORRUPT));
        assert_eq!(zfs.list_xattrs(&node), Err(ZplError::CORRUPT));
    }
}

#[test]
fn what_is_no_hidden_directory_is_neither_searched_nor_deleted_with_a_node() {
    for link in [|_, file| file, |_, _| 34, |_, _| 1 << 40] {
        let (_pool, zfs) = forged(0, link);
        let root = zfs.node(zfs.root()).expect("its root");
        {
            let node = zfs.lookup(&root, b"forged").expect("it is found");
            assert!(zfs.set_xattr(&node, b"user.new", b"value", SetMode::Any).is_err());
        }
        zfs.rmdir(&root, b"forged").expect("it goes");
        assert_eq!(zfs.lookup(&root, b"forged").map(|_| ()), Err(ZplError::NotFound));
        assert!(zfs.lookup(&root, b"file").is_ok(), "the file that it named is still there");
        assert!(zfs.node(zfs.root()).is_ok());
    }
}

#[test]
fn a_hidden_directory_among_names_is_neither_moved_nor_removed() {
    let (_pool, zfs) = forged(IS_HIDDEN, |_, _| 0);
    let root = zfs.node(zfs.root()).expect("its root");
    assert_eq!(zfs.rmdir(&root, b"forged"), Err(ZplError::CORRUPT));
    let place = |name| zpl::Place { directory: &root, name };
    assert_eq!(zfs.rename(place(b"forged"), place(b"other"), zpl::RenameMode::Replace), Err(ZplError::CORRUPT));
    assert_eq!(zfs.rename(place(b"file"), place(b"forged"), zpl::RenameMode::Exchange), Err(ZplError::CORRUPT));
}
