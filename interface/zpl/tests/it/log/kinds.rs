//! Each operation by itself: done, made durable, and there after a power cut.

use super::bed::{RECORD, World, abd, at, missing, seen};
use dmu::testing::MemBlockIo;
use need::pattern;
use ondisk::zil::TxType;
use std::sync::Arc;
use zpl::direct::Access;
use zpl::{
    Allocate, CaseSensitivity, CreateOptions, FlagChange, NewNode, Place, RenameMode, SetAttrs, SetMode, Settings, WriteData, Zfs, ZplError,
};

type Outcome = Result<(), ZplError>;

const FILE: u64 = 0o100_644;
const DIRECTORY: u64 = 0o040_755;
const IMMUTABLE: u64 = 0x10 << 32;
const NODUMP: u64 = 0x80 << 32;
const PROJINHERIT: u64 = 0x4000 << 32;
/// Name of the list that decides about access, and of the one that is inherited.
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
/// Linux's encoding of u::rwx,u:77:rw-,g::r-x,m::rwx,o::---.
const LIST: &[u8] = &[
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 77, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255, 16, 0, 7, 0, 255, 255, 255, 255,
    32, 0, 0, 0, 255, 255, 255, 255,
];
/// Linux's encoding of u::rwx,g::r--,o::---, which permission bits say as well.
const PLAIN: &[u8] = &[2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255];
const LONG: &str = "a name that is too long for the small format of directories, and longer than any that there was in the olden days";

fn new(mode: u64) -> NewNode<'static> {
    NewNode { mode, uid: 7, gid: 8, ..NewNode::default() }
}

fn make(zfs: &Arc<Zfs>, directory: &str, name: &str, mode: u64) -> Outcome {
    zfs.create_node(&at(zfs, directory)?, name.as_bytes(), &new(mode)).map(drop)
}

pub fn write(zfs: &Arc<Zfs>, path: &str, offset: u64, data: &[u8], synchronous: bool) -> Outcome {
    zfs.write(&at(zfs, path)?, WriteData { offset, data: abd(data), may_keep: true, kill_suid: false, synchronous }).map(drop)
}

fn write_direct(zfs: &Arc<Zfs>, path: &str, offset: u64, data: &[u8]) -> Outcome {
    let write = WriteData { offset, data: abd(data), may_keep: true, kill_suid: false, synchronous: false };
    zfs.write_with(&at(zfs, path)?, write, Access::DIRECT).map(drop)
}

fn rename(zfs: &Arc<Zfs>, from: (&str, &str), to: (&str, &str), mode: RenameMode, leaves: bool) -> Outcome {
    let (source, target) = (at(zfs, from.0)?, at(zfs, to.0)?);
    let (from, to) = (Place { directory: &source, name: from.1.as_bytes() }, Place { directory: &target, name: to.1.as_bytes() });
    zfs.rename_leaving(from, to, mode, leaves.then_some(&new(0o020_000)))
}

fn attribute(zfs: &Arc<Zfs>, path: &str, name: &[u8], length: usize) -> Outcome {
    zfs.set_xattr(&at(zfs, path)?, name, &pattern(length, 9), SetMode::Any)
}

fn list(zfs: &Arc<Zfs>, path: &str, name: &[u8], value: &[u8]) -> Outcome {
    zfs.set_xattr(&at(zfs, path)?, name, value, SetMode::Any)
}

/// Makes something below a default list that is committed.
fn make_heir(zfs: &Arc<Zfs>, mode: u64) -> Outcome {
    list(zfs, "a/full", DEFAULT, LIST)?;
    let directory = at(zfs, "a/full")?;
    zfs.fsync(&directory)?;
    zfs.create_node(&directory, b"new", &NewNode { umask: Some(0o077), ..new(mode) }).map(drop)
}

fn allocate(zfs: &Arc<Zfs>, range: (u64, u64), how: Allocate) -> Outcome {
    zfs.allocate(&at(zfs, "a/f")?, range.0, range.1, how)
}

fn set(zfs: &Arc<Zfs>, path: &str, set: SetAttrs) -> Outcome {
    zfs.set_attrs(&at(zfs, path)?, &set)
}

fn flags(zfs: &Arc<Zfs>, path: &str, mask: u64, project: Option<u64>) -> Outcome {
    zfs.change_flags(&at(zfs, path)?, FlagChange { mask, set: mask, project })
}

/// Two directories with files, links, and attributes in both places; some of it on disk, if `synced`.
fn world(synced: bool, case: CaseSensitivity, tells_xattrs: bool) -> World {
    let options = CreateOptions { case, project_quota: true, ..CreateOptions::default() };
    let world = World::with(MemBlockIo::inline(3), options, tells_xattrs);
    fill(&world.zfs).expect("filled");
    if synced {
        world.pool.sync().expect("synced");
    }
    world
}

fn fill(zfs: &Arc<Zfs>) -> Outcome {
    for path in ["a", "b"] {
        make(zfs, "", path, DIRECTORY)?;
    }
    for (directory, name) in [("a", "f"), ("a", "g"), ("b", "f"), ("b", "h")] {
        make(zfs, directory, name, FILE)?;
        write(zfs, &format!("{directory}/{name}"), 0, &pattern(3 * RECORD as usize + 700, u64::from(name.as_bytes()[0])), false)?;
    }
    for (directory, name) in [("a", "empty"), ("a", "full"), ("b", "empty")] {
        make(zfs, directory, name, DIRECTORY)?;
    }
    make(zfs, "a/full", "inner", FILE)?;
    zfs.link(&at(zfs, "a/g")?, &at(zfs, "b")?, b"g2")?;
    attribute(zfs, "b/h", b"user.small", 50)?;
    attribute(zfs, "b/h", b"user.large", 50_000)?;
    set(zfs, "b/f", SetAttrs { mode: Some(0o6755), ..SetAttrs::default() })
}

/// Operation, the node to commit it with, and the kinds of its records; without kinds the txg makes it durable.
struct Operation {
    what: &'static str,
    act: fn(&Arc<Zfs>) -> Outcome,
    with: &'static str,
    kinds: &'static [TxType],
}

const fn op(what: &'static str, with: &'static str, kinds: &'static [TxType], act: fn(&Arc<Zfs>) -> Outcome) -> Operation {
    Operation { what, act, with, kinds }
}

const SET: &[TxType] = &[TxType::SETATTR];
const WRITE: &[TxType] = &[TxType::WRITE];
const WRITES: &[TxType] = &[TxType::WRITE; 3];
const ZEROS: &[TxType] = &[TxType::TRUNCATE];
const MOVE: &[TxType] = &[TxType::RENAME];
const WHITEOUT: &[TxType] = &[TxType::RENAME_WHITEOUT];
const SWAP: &[TxType] = &[TxType::RENAME_EXCHANGE];
const LISTED: &[TxType] = &[TxType::SETSAXATTR];

const OPERATIONS: &[Operation] = &[
    op("create", "a/new", &[TxType::CREATE], |zfs| make(zfs, "a", "new", FILE)),
    op("create with a long name", "a", &[TxType::CREATE], |zfs| make(zfs, "a", LONG, FILE)),
    op("create in a set-group-id directory", "a/full/new", &[TxType::SETATTR, TxType::MKDIR], |zfs| {
        set(zfs, "a/full", SetAttrs { mode: Some(0o2755), gid: Some(55), ..SetAttrs::default() })?;
        let node = at(zfs, "a/full")?;
        zfs.fsync(&node)?;
        make(zfs, "a/full", "new", DIRECTORY)
    }),
    op("mkdir", "a/new", &[TxType::MKDIR], |zfs| make(zfs, "a", "new", DIRECTORY)),
    op("mkfifo", "a", &[TxType::CREATE], |zfs| make(zfs, "a", "new", 0o010_600)),
    op("mknod", "a", &[TxType::CREATE], |zfs| zfs.create_node(&at(zfs, "a")?, b"new", &NewNode { rdev: 5, ..new(0o060_600) }).map(drop)),
    op("symlink", "a", &[TxType::SYMLINK], |zfs| {
        zfs.create_node(&at(zfs, "a")?, b"new", &NewNode { target: b"../somewhere", ..new(0o120_777) }).map(drop)
    }),
    op("link", "a/f", &[TxType::LINK], |zfs| zfs.link(&at(zfs, "a/f")?, &at(zfs, "b")?, b"new")),
    op("tmpfile and linkat", "b/new", &[], |zfs| {
        let node = zfs.create_nameless(&at(zfs, "a")?, &new(FILE))?;
        zfs.write(&node, WriteData { offset: 5, data: abd(b"12345"), may_keep: true, kill_suid: false, synchronous: false })?;
        zfs.link(&node, &at(zfs, "b")?, b"new")
    }),
    op("unlink", "a", &[TxType::REMOVE], |zfs| zfs.unlink(&at(zfs, "a")?, b"f")),
    op("unlink of one name of two", "b/g2", &[TxType::REMOVE], |zfs| zfs.unlink(&at(zfs, "a")?, b"g")),
    op("unlink with attributes", "b", &[TxType::REMOVE], |zfs| zfs.unlink(&at(zfs, "b")?, b"h")),
    op("rmdir", "a", &[TxType::RMDIR], |zfs| zfs.rmdir(&at(zfs, "a")?, b"empty")),
    op("rename", "a/new", MOVE, |zfs| rename(zfs, ("a", "f"), ("a", "new"), RenameMode::Replace, false)),
    op("rename across", "b", MOVE, |zfs| rename(zfs, ("a", "f"), ("b", LONG), RenameMode::NoReplace, false)),
    op("rename of a directory across", "a", MOVE, |zfs| rename(zfs, ("a", "full"), ("b", "new"), RenameMode::Replace, false)),
    op("rename over a file", "b/f", MOVE, |zfs| rename(zfs, ("a", "f"), ("b", "f"), RenameMode::Replace, false)),
    op("rename over one name of two", "b/g2", MOVE, |zfs| rename(zfs, ("a", "f"), ("b", "g2"), RenameMode::Replace, false)),
    op("rename over a directory", "b", MOVE, |zfs| rename(zfs, ("a", "full"), ("b", "empty"), RenameMode::Replace, false)),
    op("whiteout", "b/new", WHITEOUT, |zfs| rename(zfs, ("a", "f"), ("b", "new"), RenameMode::Replace, true)),
    op("whiteout of a directory over another", "b", WHITEOUT, |zfs| rename(zfs, ("a", "full"), ("b", "empty"), RenameMode::Replace, true)),
    op("exchange", "a/f", SWAP, |zfs| rename(zfs, ("a", "f"), ("a", "g"), RenameMode::Exchange, false)),
    op("exchange across", "b", SWAP, |zfs| rename(zfs, ("a", "full"), ("b", "f"), RenameMode::Exchange, false)),
    op("write", "a/f", WRITE, |zfs| write(zfs, "a/f", RECORD - 7, &pattern(3000, 4), false)),
    op("write beyond the end", "a/f", WRITE, |zfs| write(zfs, "a/f", 9 * RECORD, b"end", false)),
    op("write into a new file", "a/new", &[TxType::CREATE, TxType::WRITE], |zfs| {
        make(zfs, "a", "new", FILE)?;
        write(zfs, "a/new", 0, &pattern(700, 4), false)
    }),
    op("synchronous write", "", WRITE, |zfs| write(zfs, "a/f", RECORD - 7, &pattern(3000, 4), true)),
    op("write that takes setuid away", "b/f", &[TxType::SETATTR, TxType::WRITE], |zfs| {
        zfs.write(&at(zfs, "b/f")?, WriteData { offset: 0, data: abd(b"x"), may_keep: true, kill_suid: true, synchronous: false }).map(drop)
    }),
    op("direct write", "a/f", WRITES, |zfs| write_direct(zfs, "a/f", 0, &pattern(3 * RECORD as usize, 6))),
    op("direct write with head and tail", "a/f", WRITES, |zfs| write_direct(zfs, "a/f", 4096, &pattern(2 * RECORD as usize, 6))),
    op("direct write of zeros", "a/f", WRITE, |zfs| write_direct(zfs, "a/f", RECORD, &vec![0; RECORD as usize])),
    op("direct write that is overwritten", "a/f", &[TxType::WRITE; 4], |zfs| {
        write_direct(zfs, "a/f", 0, &pattern(3 * RECORD as usize, 6))?;
        write(zfs, "a/f", RECORD + 5, b"over", false)
    }),
    op("truncate", "a/f", SET, |zfs| zfs.truncate(&at(zfs, "a/f")?, RECORD + 5)),
    op("truncate, longer", "a/f", SET, |zfs| zfs.truncate(&at(zfs, "a/f")?, 99_999)),
    op("truncate before a write", "a/f", &[TxType::SETATTR, TxType::WRITE], |zfs| {
        zfs.truncate(&at(zfs, "a/f")?, 0)?;
        write(zfs, "a/f", 10, b"after", false)
    }),
    op("punch", "a/f", ZEROS, |zfs| allocate(zfs, (100, 2 * RECORD + 100), Allocate::Punch)),
    op("punch beyond the end", "a/f", ZEROS, |zfs| allocate(zfs, (RECORD, 90 * RECORD), Allocate::Punch)),
    op("zero", "a/f", ZEROS, |zfs| allocate(zfs, (RECORD + 7, 9 * RECORD), Allocate::Zero)),
    op("zero behind the end", "a/f", ZEROS, |zfs| allocate(zfs, (20 * RECORD + 7, RECORD), Allocate::Zero)),
    op("zero within the size", "a/f", ZEROS, |zfs| allocate(zfs, (RECORD + 7, 9 * RECORD), Allocate::ZeroKeepSize)),
    op("allocate", "a/f", SET, |zfs| allocate(zfs, (0, 9 * RECORD), Allocate::Extend)),
    op("chmod", "a/f", SET, |zfs| set(zfs, "a/f", SetAttrs { mode: Some(0o7711), ..SetAttrs::default() })),
    op("chown", "a/f", SET, |zfs| set(zfs, "a/f", SetAttrs { uid: Some(70), gid: Some(80), ..SetAttrs::default() })),
    op("chown that takes setuid away", "b/f", SET, |zfs| set(zfs, "b/f", SetAttrs { uid: Some(70), ..SetAttrs::default() })),
    op("setuid goes", "b/f", SET, |zfs| set(zfs, "b/f", SetAttrs { kill_suid: true, ..SetAttrs::default() })),
    op("chmod of a directory", "a", SET, |zfs| set(zfs, "a", SetAttrs { mode: Some(0o2700), ..SetAttrs::default() })),
    op("chattr", "a/f", SET, |zfs| flags(zfs, "a/f", IMMUTABLE | NODUMP, None)),
    op("chattr after a write", "a/f", &[TxType::WRITE, TxType::SETATTR], |zfs| {
        write(zfs, "a/f", 0, b"before", false)?;
        flags(zfs, "a/f", IMMUTABLE, None)
    }),
    op("chattr after a truncation", "a/f", &[TxType::SETATTR; 2], |zfs| {
        zfs.truncate(&at(zfs, "a/f")?, 5)?;
        flags(zfs, "a/f", IMMUTABLE, None)
    }),
    op("project", "a/f", SET, |zfs| flags(zfs, "a/f", 0, Some(77))),
    op("project of a file with attributes", "b/h", &[TxType::SETATTR; 3], |zfs| flags(zfs, "b/h", 0, Some(77))),
    op("project that is inherited", "a/empty/new", &[TxType::SETATTR, TxType::CREATE], |zfs| {
        flags(zfs, "a/empty", PROJINHERIT, Some(77))?;
        make(zfs, "a/empty", "new", FILE)
    }),
    op("setxattr, short", "a/f", LISTED, |zfs| attribute(zfs, "a/f", b"user.new", 30)),
    op("setxattr, with a slash", "a/f", LISTED, |zfs| attribute(zfs, "a/f", b"user.new/er", 30)),
    op("setxattr, empty", "a/f", &[], |zfs| attribute(zfs, "a/f", b"user.new", 0)),
    op("setxattr, into the spill block", "b/h", LISTED, |zfs| attribute(zfs, "b/h", b"user.new", 3000)),
    op("setxattr, long", "a/f", &[TxType::MKXATTR, TxType::CREATE, TxType::WRITE], |zfs| attribute(zfs, "a/f", b"user.new", 40_000)),
    op("setxattr, long, with a slash", "a/f", &[], |zfs| attribute(zfs, "a/f", b"user.new/er", 40_000)),
    op("setxattr, long over long", "b/h", &[TxType::REMOVE, TxType::CREATE, TxType::WRITE], |zfs| {
        zfs.set_xattr(&at(zfs, "b/h")?, b"user.large", &pattern(60_000, 3), SetMode::Replace)
    }),
    op("setxattr, short over long", "b/h", &[TxType::SETSAXATTR, TxType::REMOVE], |zfs| attribute(zfs, "b/h", b"user.large", 60)),
    op("setxattr, long over short", "b/h", &[TxType::SETSAXATTR, TxType::CREATE, TxType::WRITE], |zfs| {
        attribute(zfs, "b/h", b"user.small", 40_000)
    }),
    op("removexattr, short", "b/h", LISTED, |zfs| zfs.remove_xattr(&at(zfs, "b/h")?, b"user.small")),
    op("removexattr, long", "b/h", &[TxType::REMOVE], |zfs| zfs.remove_xattr(&at(zfs, "b/h")?, b"user.large")),
    op("an access list", "a/f", &[TxType::SETATTR, TxType::SETSAXATTR], |zfs| list(zfs, "a/f", ACCESS, LIST)),
    op("a default list", "a", LISTED, |zfs| list(zfs, "a", DEFAULT, LIST)),
    op("an access list that the mode says", "a/f", SET, |zfs| list(zfs, "a/f", ACCESS, PLAIN)),
    op("an access list of xattr=dir", "a/f", &[TxType::SETATTR, TxType::MKXATTR, TxType::CREATE, TxType::WRITE], |zfs| {
        zfs.set_settings(Settings { xattr_sa: false, ..super::bed::settings() });
        list(zfs, "a/f", ACCESS, LIST)
    }),
    op("create below a default list", "a/full/new", &[TxType::SETSAXATTR, TxType::CREATE, TxType::SETSAXATTR], |zfs| {
        make_heir(zfs, FILE | 0o777)
    }),
    op("mkdir below a default list", "a/full/new", &[TxType::SETSAXATTR, TxType::MKDIR, TxType::SETSAXATTR, TxType::SETSAXATTR], |zfs| {
        make_heir(zfs, DIRECTORY)
    }),
    op("setxattr of xattr=dir", "a/f", &[TxType::MKXATTR, TxType::CREATE, TxType::WRITE], |zfs| {
        zfs.set_settings(Settings { xattr_sa: false, ..super::bed::settings() });
        attribute(zfs, "a/f", b"user.new", 30)
    }),
    op("empty attribute of xattr=dir", "a/f", &[TxType::MKXATTR, TxType::CREATE], |zfs| {
        zfs.set_settings(Settings { xattr_sa: false, ..super::bed::settings() });
        attribute(zfs, "a/f", b"user.new", 0)
    }),
];

/// Operations where names have several spellings.
const SPELLINGS: &[Operation] = &[
    op("rename to another spelling", "a", MOVE, |zfs| rename(zfs, ("a", "f"), ("a", "F"), RenameMode::Replace, false)),
    op("rename over another spelling", "b", MOVE, |zfs| rename(zfs, ("a", "f"), ("b", "F"), RenameMode::Replace, false)),
    op("unlink by another spelling", "a", &[TxType::REMOVE], |zfs| zfs.unlink(&at(zfs, "a")?, b"F")),
];

/// Does an operation, commits it alone or with everything, and cuts the power.
fn survives(world: &World, operation: &Operation, all: bool, what: &str) -> Result<(), String> {
    let zfs = &world.zfs;
    let (before, log) = (world.log.kinds().len(), &world.log);
    (operation.act)(zfs).unwrap_or_else(|error| panic!("{what}: {error}"));
    if all {
        zfs.sync().expect("committed");
    } else if !operation.with.is_empty() {
        zfs.fsync(&at(zfs, operation.with).expect("a node")).expect("committed");
    }
    let (promised, kinds) = (seen(zfs), log.kinds().split_off(before));
    // What is changed afterwards is nobody's promise.
    let _late = make(zfs, "b", "late", FILE);
    let (pool, after, complaint) = world.crashed();
    if let Some(complaint) = complaint {
        return Err(format!("{what}: {complaint}"));
    }
    let differing = missing(&promised, &seen(&after), &|_| true);
    if !differing.is_empty() {
        return Err(format!("{what}: {differing:#?}"));
    }
    assert_eq!(pool.check(), Ok(()), "{what}");
    if log.loses.lock().is_none() && kinds != operation.kinds {
        return Err(format!("{what}: records {kinds:?}"));
    }
    Ok(())
}

#[test]
fn each_operation_that_was_made_durable_is_there_after_a_power_cut() {
    for (operations, case) in [(OPERATIONS, CaseSensitivity::Sensitive), (SPELLINGS, CaseSensitivity::Insensitive)] {
        for operation in operations {
            for all in [false, true] {
                let what = format!("{}, committed {}", operation.what, if all { "with everything" } else { "alone" });
                survives(&world(true, case, true), operation, all, &what).unwrap_or_else(|why| panic!("{why}"));
            }
        }
    }
}

/// What was done before is in the same log, and some of it was committed before.
#[test]
fn each_operation_is_there_when_nothing_before_it_was_synced() {
    for operation in OPERATIONS {
        for committed in [false, true] {
            let world = world(false, CaseSensitivity::Sensitive, true);
            if committed {
                world.zfs.sync().expect("committed");
            }
            world.log.bytes_max.store(5000, std::sync::atomic::Ordering::Relaxed);
            let zfs = &world.zfs;
            (operation.act)(zfs).unwrap_or_else(|error| panic!("{}: {error}", operation.what));
            zfs.sync().expect("committed");
            let promised = seen(zfs);
            let (_pool, after, complaint) = world.crashed();
            assert_eq!(complaint, None, "{}", operation.what);
            assert_eq!(missing(&promised, &seen(&after), &|_| true), Vec::<String>::new(), "{}", operation.what);
        }
    }
}

/// The test above sees it when a record is missing.
#[test]
fn no_record_is_written_in_vain() {
    for operation in OPERATIONS.iter().filter(|operation| !operation.kinds.is_empty()) {
        for kind in operation.kinds {
            let world = world(true, CaseSensitivity::Sensitive, true);
            *world.log.loses.lock() = Some(*kind);
            assert!(survives(&world, operation, true, operation.what).is_err(), "{}: without {kind:?} all is there", operation.what);
        }
    }
}

#[test]
fn attributes_that_no_record_can_tell_of_are_durable_with_their_txg() {
    for operation in OPERATIONS.iter().filter(|operation| operation.kinds.contains(&TxType::SETSAXATTR)) {
        let world = world(true, CaseSensitivity::Sensitive, false);
        (operation.act)(&world.zfs).expect("done");
        world.zfs.fsync(&at(&world.zfs, operation.with).expect("a node")).expect("committed");
        assert!(!world.log.kinds().contains(&TxType::SETSAXATTR), "{}: the pool has no such feature", operation.what);
        let promised = seen(&world.zfs);
        let (_pool, after, complaint) = world.crashed();
        assert_eq!(complaint, None, "{}", operation.what);
        assert_eq!(missing(&promised, &seen(&after), &|_| true), Vec::<String>::new(), "{}", operation.what);
    }
}

/// utimensat(2), which backups and builds rely on.
#[test]
fn times_that_were_set_are_kept() {
    let world = world(true, CaseSensitivity::Sensitive, true);
    let given = SetAttrs { atime: Some((-5, 7)), mtime: Some((1_500_000_000, 999_999_999)), ..SetAttrs::default() };
    set(&world.zfs, "a/f", given).expect("set");
    world.zfs.fsync(&at(&world.zfs, "a/f").expect("a file")).expect("committed");
    let (_pool, after, _) = world.crashed();
    assert_eq!(at(&after, "a/f").expect("a file").fields().times[..2], [(-5, 7), (1_500_000_000, 999_999_999)]);
}

/// A log that grows by what is no change fills the device.
#[test]
fn nothing_is_noted_of_what_changes_nothing() {
    let world = world(true, CaseSensitivity::Sensitive, true);
    let zfs = &world.zfs;
    set(zfs, "a/f", SetAttrs { kill_suid: true, ..SetAttrs::default() }).expect("set");
    allocate(zfs, (0, 100), Allocate::Extend).expect("allocated");
    allocate(zfs, (50 * RECORD, 100), Allocate::Punch).expect("punched");
    let late = zfs.create_nameless(&at(zfs, "a").expect("a directory"), &new(FILE)).expect("made");
    zfs.write(&late, WriteData { offset: 0, data: abd(b"12345"), may_keep: true, kill_suid: false, synchronous: false }).expect("written");
    zfs.truncate(&late, 3).expect("shorter");
    zfs.set_attrs(&late, &SetAttrs { mode: Some(0o600), ..SetAttrs::default() }).expect("set");
    zfs.set_xattr(&late, b"user.x", &pattern(40_000, 1), SetMode::Any).expect("set");
    assert_eq!(world.log.waiting(), 0);
    // What was done to a file that is gone for good is forgotten with it.
    write(zfs, "a/f", 0, b"lost", false).expect("written");
    set(zfs, "a/f", SetAttrs { mode: Some(0o600), ..SetAttrs::default() }).expect("set");
    zfs.unlink(&at(zfs, "a").expect("a directory"), b"f").expect("gone");
    assert_eq!(world.log.waiting(), 1, "the removal");
    write(zfs, "a/g", 0, b"kept", false).expect("written");
    zfs.unlink(&at(zfs, "a").expect("a directory"), b"g").expect("it has another name");
    assert_eq!(world.log.waiting(), 3, "the removals, and what is the other name's");
}
