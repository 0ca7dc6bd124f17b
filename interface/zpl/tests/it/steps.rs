//! Every operation of the file system, failing at every step: a block that cannot be changed, a block that cannot be read. It is
//! done as a whole or not at all: names, links, sizes, parents, values, data and the number of objects are as before or as after,
//! in memory and on disk. When this fails, a full pool or one bad sector costs a file its name, its data or its attributes.

use abd::Abd;
use dmu::testing::{MemBlockIo, TestPool};
use dmu::{Objset, ObjsetProps};
use ondisk::{ObjectId, ObjsetType};
use std::sync::Arc;
use zpl::{
    Allocate, CaseSensitivity, CreateOptions, FlagChange, NewNode, Node, Place, RenameMode, SetAttrs, SetMode, Settings, WriteData, Zfs,
    ZplError,
};

type Outcome = Result<(), ZplError>;

const FILE: u64 = 0o100_644;
const DIRECTORY: u64 = 0o040_755;
const RECORD: usize = 4096;
/// Name of the list that decides about access, and of the one that is inherited.
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
/// Linux's encoding of u::rwx,u:77:rw-,g::r-x,m::rwx,o::---.
const LIST: &[u8] = &[
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 77, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255, 16, 0, 7, 0, 255, 255, 255, 255,
    32, 0, 0, 0, 255, 255, 255, 255,
];

struct World {
    pool: TestPool,
    zfs: Arc<Zfs>,
}

fn settings() -> Settings {
    // Looking must not change anything.
    Settings { atime: false, posix_acl: true, ..Settings::default() }
}

fn new(mode: u64) -> NewNode<'static> {
    NewNode { mode, uid: 7, gid: 8, ..NewNode::default() }
}

fn bytes(length: usize, salt: u8) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 ^ salt | 1).collect()
}

fn at(zfs: &Arc<Zfs>, path: &str) -> Result<Node, ZplError> {
    let mut node = zfs.node(zfs.root())?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        node = zfs.lookup(&node, name.as_bytes())?;
    }
    Ok(node)
}

fn write(zfs: &Arc<Zfs>, node: &Node, offset: u64, data: &[u8]) -> Outcome {
    let data = Abd::from_slice(data);
    zfs.write(node, WriteData { offset, data, may_keep: true, kill_suid: false, synchronous: false }).map(drop)
}

fn make(zfs: &Arc<Zfs>, directory: &str, name: &str, mode: u64) -> Outcome {
    zfs.create_node(&at(zfs, directory)?, name.as_bytes(), &new(mode)).map(drop)
}

impl World {
    /// Makes two directories with files, links, attributes in both places, and a third that is large enough for a hash table.
    fn new(case: CaseSensitivity) -> World {
        let props = ObjsetProps { record_size: RECORD, ..ObjsetProps::default() };
        let pool = TestPool::create(MemBlockIo::inline(3), ObjsetType::ZFS, props).expect("an object set");
        let options = CreateOptions { case, ..CreateOptions::default() };
        Zfs::create(&pool.objset, &options, &pool.txgs.assign(0).expect("a transaction")).expect("a file system");
        let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), settings()).expect("it opens");
        let world = World { pool, zfs };
        world.fill().expect("filled");
        world.pool.sync().expect("synced");
        world
    }

    fn fill(&self) -> Outcome {
        let zfs = &self.zfs;
        for path in ["a", "b", "big"] {
            make(zfs, "", path, DIRECTORY)?;
        }
        for (directory, name) in [("a", "f"), ("a", "g"), ("b", "f"), ("b", "h")] {
            make(zfs, directory, name, FILE)?;
            write(zfs, &at(zfs, directory)?.clone(), 0, b"").err();
            write(zfs, &at(zfs, &format!("{directory}/{name}"))?, 0, &bytes(3 * RECORD + 700, name.as_bytes()[0]))?;
        }
        for (directory, name) in [("a", "empty"), ("a", "full"), ("b", "empty")] {
            make(zfs, directory, name, DIRECTORY)?;
        }
        make(zfs, "a/full", "inner", FILE)?;
        zfs.link(&at(zfs, "a/g")?, &at(zfs, "b")?, b"g2")?;
        for index in 0..3 {
            let name = format!("{}-{index}", "a name that is too long for the small format of directories");
            make(zfs, "big", &name, FILE)?;
        }
        zfs.set_xattr(&at(zfs, "b")?, DEFAULT, LIST, SetMode::Any)?;
        let node = at(zfs, "b/h")?;
        zfs.set_xattr(&node, b"user.small", &bytes(50, 1), SetMode::Any)?;
        zfs.set_xattr(&node, b"user.large", &bytes(50_000, 2), SetMode::Any)
    }

    /// Lines on what there is; `whole` with times and object numbers.
    fn seen(&self, whole: bool) -> Vec<String> {
        let fresh = Objset::open(TestPool::env(&self.pool.io), self.pool.objset.root_bp(), self.pool.objset.props()).expect("opens");
        let disk = Zfs::open(&fresh, None, settings()).expect("it opens from disk");
        let (memory, disk) = (seen(&self.zfs, whole), seen(&disk, whole));
        same(&memory, &disk, "memory and disk differ");
        memory
    }
}

fn seen(zfs: &Arc<Zfs>, whole: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut object = ObjectId(0);
    let mut count = 0;
    while let Some(next) = zfs.objset().next_object(object).expect("objects") {
        (object, count) = (next, count + 1);
    }
    lines.push(format!("{count} objects"));
    look(zfs, &zfs.node(zfs.root()).expect("the root"), "/", whole, &mut lines);
    lines
}

fn look(zfs: &Arc<Zfs>, node: &Node, path: &str, whole: bool, lines: &mut Vec<String>) {
    let fields = node.fields();
    let mut line = format!("{path} {:o} {}:{} links {} size {}", fields.mode, fields.uid, fields.gid, fields.links, fields.size);
    if whole {
        line += &format!(" object {} parent {} times {:?}", node.object(), fields.parent, fields.times);
    }
    let mut names = zfs.list_xattrs(node).expect("attributes");
    names.sort();
    for name in names {
        let value = zfs.get_xattr(node, &name).expect("a value");
        line += &format!(" {}={}:{:?}", String::from_utf8_lossy(&name), value.len(), value.first());
    }
    if fields.is_regular() {
        let data = zfs.read(node, 0, 1 << 20).expect("data").to_vec();
        let sum = data.iter().enumerate().fold(0u64, |sum, (at, byte)| sum.wrapping_add((at as u64 + 1) * u64::from(*byte)));
        line += &format!(" data {} {sum}", data.len());
    }
    lines.push(line);
    if fields.is_directory() {
        let mut entries = Vec::new();
        let mut each = |entry: zpl::Listed<'_>| {
            entries.push((entry.name.to_vec(), entry.dirent));
            true
        };
        zfs.list(node, 3, &mut each).expect("a listing");
        assert_eq!(fields.size, entries.len() as u64 + 2, "{path}: the size of a directory");
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, dirent) in entries {
            let child = zfs.lookup(node, &name).expect("a listed name leads somewhere");
            assert_eq!(child.object(), dirent.object);
            assert!(!child.fields().is_directory() || child.fields().parent == node.object().0, "{path}: the parent of a directory");
            look(zfs, &child, &format!("{path}{}/", String::from_utf8_lossy(&name)), whole, lines);
        }
    }
}

type Operation = (&'static str, fn(&Arc<Zfs>) -> Outcome);

fn rename(zfs: &Arc<Zfs>, from: (&str, &str), to: (&str, &str), mode: RenameMode) -> Outcome {
    let (source, target) = (at(zfs, from.0)?, at(zfs, to.0)?);
    zfs.rename(Place { directory: &source, name: from.1.as_bytes() }, Place { directory: &target, name: to.1.as_bytes() }, mode)
}

fn leave(zfs: &Arc<Zfs>, from: (&str, &str), to: (&str, &str)) -> Outcome {
    let (source, target) = (at(zfs, from.0)?, at(zfs, to.0)?);
    let (from, to) = (Place { directory: &source, name: from.1.as_bytes() }, Place { directory: &target, name: to.1.as_bytes() });
    zfs.rename_leaving(from, to, RenameMode::Replace, Some(&new(0o020_000)))
}

fn attribute(zfs: &Arc<Zfs>, path: &str, name: &[u8], length: usize) -> Outcome {
    zfs.set_xattr(&at(zfs, path)?, name, &bytes(length, 9), SetMode::Any)
}

fn allocate(zfs: &Arc<Zfs>, range: (u64, u64), how: Allocate) -> Outcome {
    zfs.allocate(&at(zfs, "a/f")?, range.0, range.1, how)
}

/// Makes something below a default list.
fn heir(mode: u64) -> NewNode<'static> {
    NewNode { umask: Some(0o077), ..new(mode) }
}

const LONG: &str = "another name that is too long for the small format of directories";

const OPERATIONS: &[Operation] = &[
    ("create", |zfs| make(zfs, "a", "new", FILE)),
    ("create in a large directory", |zfs| make(zfs, "big", LONG, FILE)),
    ("create where the directory becomes large", |zfs| make(zfs, "a", LONG, FILE)),
    ("mkdir", |zfs| make(zfs, "a", "new", DIRECTORY)),
    ("mknod", |zfs| zfs.create_node(&at(zfs, "a")?, b"new", &NewNode { rdev: 5, ..new(0o060_600) }).map(drop)),
    ("symlink", |zfs| zfs.create_node(&at(zfs, "a")?, b"new", &NewNode { target: b"somewhere", ..new(0o120_777) }).map(drop)),
    ("link", |zfs| zfs.link(&at(zfs, "a/f")?, &at(zfs, "b")?, b"new")),
    ("tmpfile", |zfs| zfs.create_nameless(&at(zfs, "a")?, &new(FILE)).map(drop)),
    ("tmpfile and linkat", |zfs| {
        let node = zfs.create_nameless(&at(zfs, "a")?, &new(FILE))?;
        zfs.link(&node, &at(zfs, "b")?, b"new")
    }),
    ("unlink", |zfs| zfs.unlink(&at(zfs, "a")?, b"f")),
    ("unlink of one name of two", |zfs| zfs.unlink(&at(zfs, "a")?, b"g")),
    ("unlink with attributes", |zfs| zfs.unlink(&at(zfs, "b")?, b"h")),
    ("rmdir", |zfs| zfs.rmdir(&at(zfs, "a")?, b"empty")),
    ("rename", |zfs| rename(zfs, ("a", "f"), ("a", "new"), RenameMode::Replace)),
    ("rename across", |zfs| rename(zfs, ("a", "f"), ("big", LONG), RenameMode::NoReplace)),
    ("rename of a directory across", |zfs| rename(zfs, ("a", "full"), ("b", "new"), RenameMode::Replace)),
    ("rename over a file", |zfs| rename(zfs, ("a", "f"), ("b", "f"), RenameMode::Replace)),
    ("rename over one name of two", |zfs| rename(zfs, ("a", "f"), ("b", "g2"), RenameMode::Replace)),
    ("rename over a directory", |zfs| rename(zfs, ("a", "full"), ("b", "empty"), RenameMode::Replace)),
    ("rename that leaves a whiteout", |zfs| leave(zfs, ("a", "f"), ("b", "new"))),
    ("rename of a directory over another that leaves a whiteout", |zfs| leave(zfs, ("a", "full"), ("b", "empty"))),
    ("chattr", |zfs| zfs.change_flags(&at(zfs, "a/f")?, FlagChange { mask: 0x10 << 32, set: 0x10 << 32, project: None })),
    ("exchange", |zfs| rename(zfs, ("a", "f"), ("a", "g"), RenameMode::Exchange)),
    ("exchange across of a file and a directory", |zfs| rename(zfs, ("a", "full"), ("b", "f"), RenameMode::Exchange)),
    ("create below a default list", |zfs| zfs.create_node(&at(zfs, "b")?, b"new", &heir(FILE)).map(drop)),
    ("mkdir below a default list", |zfs| zfs.create_node(&at(zfs, "b")?, b"new", &heir(DIRECTORY)).map(drop)),
    ("tmpfile below a default list", |zfs| zfs.create_nameless(&at(zfs, "b")?, &heir(FILE)).map(drop)),
    ("an access list", |zfs| zfs.set_xattr(&at(zfs, "a/f")?, ACCESS, LIST, SetMode::Any)),
    ("no default list", |zfs| zfs.remove_xattr(&at(zfs, "b")?, DEFAULT)),
    ("chmod", |zfs| zfs.set_attrs(&at(zfs, "a/f")?, &SetAttrs { mode: Some(0o7711), ..SetAttrs::default() })),
    ("chown", |zfs| zfs.set_attrs(&at(zfs, "a/f")?, &SetAttrs { uid: Some(70), gid: Some(80), ..SetAttrs::default() })),
    ("setxattr, short", |zfs| attribute(zfs, "a/f", b"user.new", 30)),
    ("setxattr, into the spill block", |zfs| attribute(zfs, "b/h", b"user.new", 3000)),
    ("setxattr, long", |zfs| attribute(zfs, "a/f", b"user.new", 40_000)),
    ("setxattr, long over long", |zfs| attribute(zfs, "b/h", b"user.large", 60_000)),
    ("setxattr, short over long", |zfs| attribute(zfs, "b/h", b"user.large", 60)),
    ("setxattr, long over short", |zfs| attribute(zfs, "b/h", b"user.small", 40_000)),
    ("removexattr, short", |zfs| zfs.remove_xattr(&at(zfs, "b/h")?, b"user.small")),
    ("removexattr, long", |zfs| zfs.remove_xattr(&at(zfs, "b/h")?, b"user.large")),
    ("truncate", |zfs| zfs.truncate(&at(zfs, "a/f")?, RECORD as u64 + 5)),
    ("truncate, longer", |zfs| zfs.truncate(&at(zfs, "a/f")?, 99_999)),
    ("punch", |zfs| allocate(zfs, (100, 2 * RECORD as u64 + 100), Allocate::Punch)),
    ("zero", |zfs| allocate(zfs, (RECORD as u64 + 7, 9 * RECORD as u64), Allocate::Zero)),
    ("allocate", |zfs| allocate(zfs, (0, 9 * RECORD as u64), Allocate::Extend)),
];

/// Operations where names have several spellings.
const SPELLINGS: &[Operation] = &[
    ("rename to another spelling", |zfs| rename(zfs, ("a", "f"), ("a", "F"), RenameMode::Replace)),
    ("rename of a directory to another spelling", |zfs| rename(zfs, ("a", "FULL"), ("a", "Full"), RenameMode::Replace)),
    ("rename over another spelling", |zfs| rename(zfs, ("a", "f"), ("b", "F"), RenameMode::Replace)),
    ("unlink by another spelling", |zfs| zfs.unlink(&at(zfs, "a")?, b"F")),
];

/// Step that fails.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Change, the k-th, of something that is not dirty yet.
    Change,
    /// Read, the k-th.
    Read,
    /// Reads from the k-th on, until the operation has ended.
    ReadsFrom,
}

/// Runs the operation with its k-th step failing: its result, and whether there was such a step.
fn attempt(world: &World, operation: Operation, fault: Fault, step: u64) -> (Outcome, bool) {
    let (io, objset) = (&world.pool.io, &world.pool.objset);
    let before = io.operations();
    match fault {
        Fault::Change => drop(objset.fail_change_after(step)),
        Fault::Read => io.fail_after(step, false),
        Fault::ReadsFrom => io.fail_after(step, true),
    }
    let result = operation.1(&world.zfs);
    let reached = match fault {
        Fault::Change => objset.fail_change_after(0),
        _ => io.operations() - before >= step,
    };
    io.heal();
    // What a failure kept from being deleted is deleted by the next mount.
    world.zfs.drain_unlinked().expect("drained");
    world.pool.sync().expect("synced");
    assert_eq!(world.pool.check(), Ok(()), "{}, {fault:?} at step {step}", operation.0);
    (result, reached)
}

fn same(found: &[String], wanted: &[String], what: &str) {
    let differing: Vec<_> = found.iter().zip(wanted).filter(|(one, other)| one != other).collect();
    assert!(differing.is_empty() && found.len() == wanted.len(), "{what}: {differing:#?}");
}

fn fail_at_every_step(operation: Operation, case: CaseSensitivity, fault: Fault) -> u64 {
    let twin = World::new(case);
    let before = twin.seen(false);
    operation.1(&twin.zfs).unwrap_or_else(|error| panic!("{}: {error}", operation.0));
    twin.pool.sync().expect("synced");
    let after = twin.seen(false);
    let mut world = World::new(case);
    assert_eq!(world.seen(false), before);
    let mut whole = world.seen(true);
    for step in 1.. {
        let (result, reached) = attempt(&world, operation, fault, step);
        match result {
            Err(error) => {
                assert!(reached, "{}: {error} without a failure", operation.0);
                same(&world.seen(true), &whole, &format!("{}: {fault:?} at step {step} left something behind", operation.0));
            }
            Ok(()) => {
                same(&world.seen(false), &after, &format!("{}: {fault:?} at step {step}", operation.0));
                if !reached {
                    return step;
                }
                world = World::new(case);
                whole = world.seen(true);
            }
        }
    }
    0
}

#[test]
fn an_operation_that_fails_at_any_change_leaves_everything_as_it_was() {
    let mut steps = 0;
    for operation in OPERATIONS {
        steps += fail_at_every_step(*operation, CaseSensitivity::Sensitive, Fault::Change);
    }
    for operation in SPELLINGS {
        steps += fail_at_every_step(*operation, CaseSensitivity::Insensitive, Fault::Change);
    }
    assert!(steps > 200, "{steps} steps");
}

#[test]
fn an_operation_that_cannot_read_a_block_leaves_everything_as_it_was() {
    for operation in OPERATIONS {
        for fault in [Fault::Read, Fault::ReadsFrom] {
            fail_at_every_step(*operation, CaseSensitivity::Sensitive, fault);
        }
    }
    for operation in SPELLINGS {
        fail_at_every_step(*operation, CaseSensitivity::Insensitive, Fault::Read);
    }
}
