//! Random programs with fsync(2) at random places, and a power cut at the end.

use super::bed::{RECORD, Seen, Tree, World, abd, missing, seen};
use need::pattern;
use ondisk::ObjectId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zpl::direct::Access;
use zpl::{Allocate, FlagChange, NewNode, Node, Place, RenameMode, SetAttrs, SetMode, Settings, WriteData, Zfs};

const PROGRAMS: u64 = 150;
const STEPS: u64 = 60;
const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "another name that is too long for the small format of directories", "f"];
const ATTRIBUTES: [&[u8]; 4] = [b"user.a", b"user.b", b"user.a/b", b"trusted.c"];

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}

/// Summary of what a crash may not take.
struct Promise {
    tree: Tree,
    /// Objects all of which is promised; of the others only names, types and links are.
    strict: BTreeSet<ObjectId>,
}

struct Program {
    world: World,
    rng: Rng,
    promise: Promise,
    /// Files that somebody has open, perhaps without names.
    open: Vec<Node>,
    done: Vec<String>,
}

/// The nodes of a tree, a file with several names as often.
fn nodes(zfs: &Arc<Zfs>, directory: Node, all: &mut Vec<Node>) {
    let mut objects = Vec::new();
    zfs.list(&directory, 3, &mut |entry| {
        objects.push(entry.dirent.object);
        true
    })
    .expect("a listing");
    all.push(directory);
    for object in objects {
        let node = zfs.node(object).expect("a node");
        if node.fields().is_directory() { nodes(zfs, node, all) } else { all.push(node) }
    }
}

impl Program {
    fn zfs(&self) -> Arc<Zfs> {
        self.world.zfs.clone()
    }
    fn any(&mut self, is_wanted: fn(&Node) -> bool) -> Node {
        let zfs = self.zfs();
        let mut all = Vec::new();
        nodes(&zfs, zfs.node(zfs.root()).expect("the root"), &mut all);
        all.extend(self.open.iter().cloned());
        all.retain(is_wanted);
        if all.is_empty() { self.zfs().node(self.zfs().root()).expect("the root") } else { self.rng.one_of(&all) }
    }
    fn directory(&mut self) -> Node {
        self.any(|node| node.fields().is_directory() && node.fields().links > 0)
    }
    fn file(&mut self) -> Node {
        self.any(|node| node.fields().is_regular())
    }
    fn name(&mut self) -> &'static [u8] {
        self.rng.one_of(&NAMES).as_bytes()
    }

    /// Everything is durable.
    fn promise_all(&mut self) {
        let tree = seen(&self.zfs());
        self.promise = Promise { strict: tree.values().map(|seen| seen.object).collect(), tree };
    }

    fn promise(&mut self, object: ObjectId) {
        let tree = seen(&self.zfs());
        let strict = &self.promise.strict;
        let was = |seen: &&Seen| self.promise.tree.values().any(|old| strict.contains(&old.object) && old == *seen);
        let mut kept: BTreeSet<ObjectId> = tree.values().filter(was).map(|seen| seen.object).collect();
        kept.insert(object);
        self.promise = Promise { tree, strict: kept };
    }

    fn step(&mut self) {
        let what = match self.rng.below(40) {
            0..14 => self.name_step(),
            14..25 => self.data_step(),
            25..33 => self.attribute_step(),
            33 => {
                let file = self.file();
                self.open.push(file);
                "open".to_string()
            }
            34 => {
                let at = self.rng.below(self.open.len() as u64 + 1) as usize;
                if at < self.open.len() {
                    drop(self.open.swap_remove(at));
                }
                "close".to_string()
            }
            35 => {
                if self.rng.below(3) == 0 {
                    self.world.pool.sync().expect("synced");
                    self.promise_all();
                }
                "sync of the txg, perhaps".to_string()
            }
            36 => {
                self.zfs().sync().expect("committed");
                self.promise_all();
                "commit of all".to_string()
            }
            _ => self.commit_step(),
        };
        self.done.push(what);
    }

    fn commit_step(&mut self) -> String {
        let node = self.any(|_| true);
        let commits = self.world.log.commits.load(Ordering::Relaxed);
        self.zfs().fsync(&node).expect("committed");
        // What is on disk already needs no commit, and promises nothing of others.
        if self.world.log.commits.load(Ordering::Relaxed) != commits {
            self.promise(node.object());
        }
        format!("fsync {}", node.object())
    }

    fn name_step(&mut self) -> String {
        let (zfs, directory, name) = (self.zfs(), self.directory(), self.name());
        let new = NewNode { uid: self.rng.below(3) as u32, gid: self.rng.below(3) as u32, ..NewNode::default() };
        let (kind, result) = match self.rng.below(12) {
            0..3 => ("create", zfs.create_node(&directory, name, &NewNode { mode: 0o100_644, ..new }).map(drop)),
            3 => ("mkdir", zfs.create_node(&directory, name, &NewNode { mode: 0o040_755 | self.rng.below(2) << 10, ..new }).map(drop)),
            4 => match self.rng.below(2) {
                0 => ("symlink", zfs.create_node(&directory, name, &NewNode { mode: 0o120_777, target: b"x/y", ..new }).map(drop)),
                _ => ("mknod", zfs.create_node(&directory, name, &NewNode { mode: 0o020_600, rdev: 9, ..new }).map(drop)),
            },
            5 => ("link", zfs.link(&self.file(), &directory, name)),
            6 => ("unlink", zfs.unlink(&directory, name)),
            7 => ("rmdir", zfs.rmdir(&directory, name)),
            8 => {
                let made = zfs.create_nameless(&directory, &NewNode { mode: 0o100_600, ..new });
                ("tmpfile", made.map(|node| self.open.push(node)))
            }
            _ => {
                let (target, to) = (self.directory(), self.name());
                let mode = self.rng.one_of(&[RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
                let left = NewNode { mode: 0o020_000, ..new };
                let left = (mode != RenameMode::Exchange && self.rng.below(4) == 0).then_some(&left);
                let (from, to) = (Place { directory: &directory, name }, Place { directory: &target, name: to });
                ("rename", zfs.rename_leaving(from, to, mode, left))
            }
        };
        format!("{kind} {} in {}: {result:?}", String::from_utf8_lossy(name), directory.object())
    }

    fn data_step(&mut self) -> String {
        let (zfs, node, seed) = (self.zfs(), self.file(), self.rng.next());
        let (offset, length) = (self.rng.below(5 * RECORD), self.rng.below(3 * RECORD) + 1);
        let (kind, result) = match self.rng.below(8) {
            0..4 => {
                let synchronous = self.rng.below(6) == 0;
                let data = abd(&pattern(length as usize, seed));
                let kill_suid = self.rng.below(2) == 0;
                let written = zfs.write(&node, WriteData { offset, data, may_keep: seed.is_multiple_of(2), kill_suid, synchronous });
                if synchronous && written.is_ok() {
                    self.promise(node.object());
                }
                ("write", written.map(drop))
            }
            4 => {
                let offset = offset / 4096 * 4096;
                let data = if seed.is_multiple_of(5) { vec![0; 2 * RECORD as usize] } else { pattern(2 * RECORD as usize, seed) };
                let write = WriteData { offset, data: abd(&data), may_keep: true, kill_suid: false, synchronous: false };
                ("direct write", zfs.write_with(&node, write, Access::DIRECT).map(drop))
            }
            5 => ("truncate", zfs.truncate(&node, offset)),
            _ => {
                let how = self.rng.one_of(&[Allocate::Punch, Allocate::Zero, Allocate::ZeroKeepSize, Allocate::Extend]);
                ("allocate", zfs.allocate(&node, offset, length, how))
            }
        };
        format!("{kind} {} at {offset}, {length}: {result:?}", node.object())
    }

    fn attribute_step(&mut self) -> String {
        let (zfs, node) = (self.zfs(), self.any(|node| !node.fields().is_symlink()));
        let name = self.rng.one_of(&ATTRIBUTES);
        let (kind, result) = match self.rng.below(8) {
            0 => ("chmod", zfs.set_attrs(&node, &SetAttrs { mode: Some(self.rng.below(0o7777)), ..SetAttrs::default() })),
            1 => ("chown", zfs.set_attrs(&node, &SetAttrs { uid: Some(self.rng.below(5) as u32), ..SetAttrs::default() })),
            2 => {
                let mask = self.rng.one_of(&[0x10u64 << 32, 0x20 << 32, 0x80 << 32, 0x4000 << 32]);
                let set = if self.rng.below(3) == 0 { mask } else { 0 };
                ("chattr", zfs.change_flags(&node, FlagChange { mask, set, project: None }))
            }
            3 => ("project", zfs.change_flags(&node, FlagChange { mask: 0, set: 0, project: Some(self.rng.below(3)) })),
            4 => ("removexattr", zfs.remove_xattr(&node, name)),
            _ => {
                let xattr_sa = self.rng.below(3) != 0;
                zfs.set_settings(Settings { xattr_sa, ..super::bed::settings() });
                let length = self.rng.one_of(&[0, 10, 2000, 33_000, 50_000]);
                ("setxattr", zfs.set_xattr(&node, name, &pattern(length, self.rng.next()), SetMode::Any))
            }
        };
        format!("{kind} {}, {}: {result:?}", node.object(), String::from_utf8_lossy(name))
    }

    fn run(seed: u64) {
        let world = World::new(!seed.is_multiple_of(4));
        world.log.bytes_max.store(if seed.is_multiple_of(3) { 7000 } else { 0 }, Ordering::Relaxed);
        let promise = Promise { tree: seen(&world.zfs), strict: BTreeSet::new() };
        let mut program =
            Program { world, rng: Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1), promise, open: Vec::new(), done: Vec::new() };
        program.promise_all();
        for _ in 0..program.rng.below(STEPS) + 5 {
            program.step();
        }
        let (pool, after, complaint) = program.world.crashed();
        let strict = |seen: &Seen| program.promise.strict.contains(&seen.object);
        let differing = missing(&program.promise.tree, &seen(&after), &strict);
        let told = || format!("program {seed}: {:#?}", program.done);
        assert_eq!(complaint, None, "{}", told());
        assert!(differing.is_empty(), "{}\n{differing:#?}", told());
        assert_eq!(pool.check(), Ok(()), "{}", told());
    }
}

#[test]
fn what_was_made_durable_outlives_a_power_cut() {
    let programs = std::env::var("LOG_PROGRAMS").ok().and_then(|text| text.parse().ok()).unwrap_or(PROGRAMS);
    let first = std::env::var("LOG_FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    (first..first + programs).for_each(Program::run);
}
