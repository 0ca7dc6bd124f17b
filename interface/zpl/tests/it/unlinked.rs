//! Files without names that are kept on purpose, alone in a process: the parameter is the process's.

use dmu::testing::{MemBlockIo, TestPool};
use dmu::{ObjsetProps, Tx};
use ondisk::ObjsetType;
use zpl::{CreateOptions, NewNode, Settings, Zfs, set_unlink_suspended};

/// Administrators stop deletions that hurt, and start them again; what was removed meanwhile must neither go at once nor stay for ever.
#[test]
fn what_is_kept_is_counted_and_deleted_at_the_next_mount() {
    let pool = TestPool::create(MemBlockIo::inline(5), ObjsetType::ZFS, ObjsetProps::default()).expect("an object set");
    let tx: Tx = pool.txgs.assign(0).expect("a transaction");
    Zfs::create(&pool.objset, &CreateOptions::default(), &tx).expect("a new file system");
    drop(tx);
    let open = |pool: &TestPool| Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings::default()).expect("it opens");
    let waiting = |zfs: &Zfs| zfs.counts()[4] - zfs.counts()[5];
    let zfs = open(&pool);
    let root = zfs.node(zfs.root()).expect("root");
    let remove = |name: &[u8]| {
        let node = zfs.create_node(&root, name, &NewNode { mode: 0o100_644, ..NewNode::default() }).expect("create");
        zfs.unlink(&root, name).expect("unlink");
        node.object()
    };
    set_unlink_suspended(true);
    let kept = [remove(b"a"), remove(b"b")];
    assert_eq!(waiting(&zfs), 2);
    assert!(kept.iter().all(|object| pool.objset.hold(*object).is_ok()), "they were deleted");
    drop(root);
    drop(zfs);
    let pool = pool.reopen().expect("reopen");
    let zfs = open(&pool);
    assert_eq!((zfs.drain_unlinked(), waiting(&zfs)), (Ok(0), 2), "a mount does not delete them either");
    set_unlink_suspended(false);
    assert_eq!((zfs.drain_unlinked(), waiting(&zfs)), (Ok(2), 0));
    assert!(kept.iter().all(|object| pool.objset.hold(*object).is_err()));
}
