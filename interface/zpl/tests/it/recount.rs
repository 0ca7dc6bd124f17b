//! Accounts that are made anew, compared with what the objects say: after an upgrade, after a receive without the key, beside programs, and when the
//! power goes at any time.

use crate::pool::write;
use dmu::ObjsetProps;
use dmu::testing::{MemBlockIo, TestPool};
use ondisk::objset_flags::{PROJECTQUOTA_COMPLETE, USERACCOUNTING_COMPLETE, USEROBJACCOUNTING_COMPLETE};
use ondisk::{ObjectId, ObjectType, ObjsetType};
use std::collections::BTreeMap;
use std::sync::Arc;
use zpl::{CreateOptions, FlagChange, NewNode, Settings, Zfs};

const USERS: u64 = USERACCOUNTING_COMPLETE;
const OBJECTS: u64 = USEROBJACCOUNTING_COMPLETE;
const PROJECTS: u64 = PROJECTQUOTA_COMPLETE;
/// Bytes that a record counts beside its blocks.
const RECORD_BYTES: u64 = 512;

fn open(pool: &TestPool) -> Arc<Zfs> {
    let project_quota = pool.objset.flags() & PROJECTS != 0;
    let settings = Settings { atime: false, project_quota, ..Settings::default() };
    Zfs::open(&pool.objset, Some(pool.txgs.clone()), settings).expect("it opens")
}

fn make(zfs: &Arc<Zfs>, number: u32) {
    let root = zfs.node(zfs.root()).expect("root");
    let new = NewNode { mode: 0o100_644, uid: number % 3, gid: number % 2, ..NewNode::default() };
    let file = zfs.create_node(&root, format!("f{number}").as_bytes(), &new).expect("a file");
    write(zfs, &file, 0, &vec![7; 700 * (1 + number as usize % 3)]).expect("written");
}

fn remove(zfs: &Arc<Zfs>, number: u32) {
    let root = zfs.node(zfs.root()).expect("root");
    zfs.unlink(&root, format!("f{number}").as_bytes()).expect("removed");
}

/// A file system that accounts for what the flags say, with files; without [`USERS`], one whose tables are of older files than it has.
fn made(io: Arc<MemBlockIo>, had: u64, files: u32) -> TestPool {
    let pool = TestPool::create(io, ObjsetType::ZFS, ObjsetProps::default()).expect("an object set");
    let tx = pool.txgs.assign(0).expect("a transaction");
    pool.objset.set_flags(had, &tx).expect("flags");
    let options = CreateOptions { project_quota: had & PROJECTS != 0, ..CreateOptions::default() };
    Zfs::create(&pool.objset, &options, &tx).expect("a file system");
    drop(tx);
    let zfs = open(&pool);
    (0..files).for_each(|number| make(&zfs, number));
    pool.sync().expect("synced");
    if had & USERS == 0 {
        pool.objset.set_accounting(None, 0);
        pool.objset.set_flags(had, &pool.txgs.assign(0).expect("a transaction")).expect("flags");
        remove(&zfs, 1);
        make(&zfs, files);
        let root = zfs.node(zfs.root()).expect("root");
        let file = zfs.lookup(&root, b"f0").expect("a file");
        write(&zfs, &file, 0, &[9; 5000]).expect("written");
    }
    drop(zfs);
    pool.reopen().expect("reopened")
}

/// Compares the accounts with what the objects say.
fn check(pool: TestPool, flags: u64, why: &str) {
    let pool = pool.reopen().expect("reopened");
    assert_eq!((pool.objset.flags(), pool.check()), (flags, Ok(())), "{why}");
    let zfs = Zfs::open(&pool.objset, None, Settings::default()).expect("it opens");
    let mut kinds = vec!["userused", "groupused"];
    kinds.extend(["userobjused", "groupobjused"].iter().filter(|_| flags & OBJECTS != 0));
    kinds.extend(["projectused"].iter().filter(|_| flags & PROJECTS != 0));
    kinds.extend(["projectobjused"].iter().filter(|_| flags & (OBJECTS | PROJECTS) == OBJECTS | PROJECTS));
    let mut expected: BTreeMap<(String, u64), u64> = BTreeMap::new();
    let mut at = ObjectId(0);
    while let Some(object) = pool.objset.next_object(at).expect("listed") {
        at = object;
        let info = pool.objset.hold(object).and_then(|dnode| dnode.info()).expect("its facts");
        if info.bonus_type != ObjectType::SA {
            continue;
        }
        let fields = zfs.node(object).expect("a node").fields();
        for (who, id) in [("user", fields.uid), ("group", fields.gid), ("project", fields.project)] {
            *expected.entry((format!("{who}used"), id)).or_default() += info.used_bytes + RECORD_BYTES;
            *expected.entry((format!("{who}objused"), id)).or_default() += 1;
        }
    }
    expected.retain(|(kind, _), _| kinds.contains(&kind.as_str()));
    let mut found = BTreeMap::new();
    for kind in kinds {
        let listed = zpl::userspace::list(&pool.objset, kind).expect("a table");
        found.extend(listed.into_iter().filter(|(_, value)| *value != 0).map(|(id, value)| ((kind.to_string(), id), value)));
    }
    assert_eq!(found, expected, "{why}");
}

/// If this fails, `zfs userspace` and quotas go by wrong numbers for good after `zpool upgrade`, or after a raw receive.
#[test]
fn accounts_made_anew_are_those_of_the_objects() {
    for had in [0, OBJECTS, OBJECTS | PROJECTS, USERS, USERS | OBJECTS, USERS | PROJECTS] {
        for wanted in [USERS, USERS | OBJECTS, USERS | PROJECTS, USERS | OBJECTS | PROJECTS] {
            let why = format!("{had} to {wanted}");
            let pool = made(MemBlockIo::inline(3), had, 150);
            let zfs = open(&pool);
            zfs.set_settings(Settings { project_quota: wanted & PROJECTS != 0, ..zfs.settings() });
            let root = zfs.node(zfs.root()).expect("root");
            if wanted & PROJECTS != 0 {
                let file = zfs.lookup(&root, b"f5").expect("a file");
                zfs.change_flags(&file, FlagChange { project: Some(7), ..FlagChange::default() }).expect("another project");
            }
            drop(root);
            zfs.want_accounts(wanted);
            zfs.finish_accounts().expect(&why);
            zfs.finish_accounts().expect("there is nothing to be done");
            remove(&zfs, 3);
            make(&zfs, 1000);
            drop(zfs);
            check(pool, had | wanted | USERS, &why);
        }
    }
}

/// If this fails, a crash in the middle of counting leaves accounts that say that they are complete, or can never be again.
#[test]
fn a_death_in_the_middle_is_made_good() {
    let all = USERS | OBJECTS | PROJECTS;
    for had in [0, USERS, USERS | OBJECTS] {
        for count in 1.. {
            let why = format!("from {had}, operation {count}");
            let pool = made(MemBlockIo::inline(3), had, 6);
            let zfs = open(&pool);
            zfs.want_accounts(all);
            pool.io.fail_after(count, true);
            let is_over = zfs.finish_accounts().is_ok();
            pool.io.heal();
            drop(zfs);
            let pool = pool.crashed().expect("what is on disk opens");
            if is_over || pool.objset.flags() == all {
                check(pool, all, &why);
                if is_over {
                    assert!(count > 10, "there are that many operations");
                    break;
                }
                continue;
            }
            // Before anybody counts again.
            let zfs = open(&pool);
            remove(&zfs, 3);
            make(&zfs, 1000);
            pool.sync().expect("synced");
            zfs.want_accounts(all);
            zfs.finish_accounts().expect(&why);
            drop(zfs);
            check(pool, all, &why);
        }
    }
}

/// If this fails, what programs do while their accounts are made anew is charged twice, or to nobody, also where an unmount cuts the count short.
#[test]
fn programs_go_on_beside_the_count() {
    let all = USERS | OBJECTS | PROJECTS;
    for had in [0, USERS, USERS | OBJECTS] {
        let io = MemBlockIo::threaded(3);
        io.allow_late_readers();
        let pool = made(io, had, 300);
        let zfs = open(&pool);
        zfs.want_accounts(all);
        // The first change begins it.
        for number in 0..100 {
            make(&zfs, 2000 + number);
            remove(&zfs, 10 + number);
        }
        zfs.forget_all();
        zfs.begin_accounts();
        (100..150).for_each(|number| remove(&zfs, 10 + number));
        zfs.finish_accounts().expect("counted");
        drop(zfs);
        check(pool, all, &format!("from {had}"));
    }
}
