//! Programs: seeded sequences of operations, done on the model and on a pool, with what the pool acknowledged.

use crate::machine::{FILE_SYSTEM, Trouble, mount};
use crate::model::{Contents, Model, NodeId, State};
use abd::Abd;
use exec::SplitMix;
use ondisk::ObjectId;
use pool::Pool;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use zpl::{Allocate, DataAt, NewNode, Node, Place, RenameMode, SetMode, WriteData, Zfs, ZplError};

const REGULAR: u64 = 0o100_644;
const DIRECTORY: u64 = 0o040_755;
const SYMLINK: u64 = 0o120_777;
/// Bytes that no file grows beyond.
const FILE_BYTES_MAX: usize = 400 << 10;
/// Bytes of a block of a long file.
const BLOCK_BYTES: usize = 8192;
/// Number of nodes that programs hold, about.
const NODES_MAX: usize = 40;
/// Number of snapshots that they hold.
const SNAPSHOTS_MAX: usize = 4;

/// Operation of a program.
#[derive(Clone, Debug)]
pub enum Op {
    /// Makes a file, directory or symbolic link.
    Create(NodeId, String, Contents),
    /// Writes bytes at an offset.
    Write(NodeId, usize, Vec<u8>),
    /// Sets the size.
    Truncate(NodeId, usize),
    /// Punches a hole of a length at an offset.
    Punch(NodeId, usize, usize),
    /// Has a range of a file be what a range of another one is, by sharing blocks where that is possible: file and offset of both, and the length.
    Copy((NodeId, usize), (NodeId, usize), usize),
    /// Moves a name to a place.
    Rename((NodeId, String), (NodeId, String)),
    /// Removes a name; with the flag the file stays open.
    Remove(NodeId, String, bool),
    /// Gives a file another name.
    Link(NodeId, NodeId, String),
    /// Sets an extended attribute.
    Attribute(NodeId, String, Vec<u8>),
    /// Waits until a file is on disk.
    Fsync(NodeId),
    /// Takes a snapshot.
    Snapshot(String),
    /// Destroys a snapshot.
    DestroySnapshot(String),
    /// Waits until everything is on disk.
    Sync,
}

/// Program in progress.
pub struct Program {
    random: SplitMix,
    model: Model,
    names: u64,
    /// States that a user sees after each operation; the first is what was there before.
    states: Vec<State>,
    /// Number of the last operation that changed a node, by node.
    changed: HashMap<NodeId, usize>,
    /// Number of the last operation that must survive a crash.
    acknowledged: usize,
}

impl Program {
    /// Makes a program that follows from `seed`.
    pub fn new(seed: u64) -> Program {
        let model = Model::default();
        let states = vec![model.state()];
        Program { random: SplitMix::new(seed), model, names: 0, states, changed: HashMap::new(), acknowledged: 0 }
    }

    /// States that a user sees after each operation.
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// Number of the last operation that the pool promised to keep.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    /// State that a user sees after the last operation.
    pub fn last_state(&self) -> &State {
        &self.states[self.states.len() - 1]
    }

    fn fresh_name(&mut self) -> String {
        self.names += 1;
        // Some names are too long for a micro ZAP.
        let tail = if self.random.chance(16) { "-long".repeat(12) } else { String::new() };
        format!("n{}{tail}", self.names)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let (kind, mut state) = (self.random.below(3), self.random.next_u64() | 1);
        let noise = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        match kind {
            0 => vec![state as u8; length],
            1 => format!("record {state} ").into_bytes().into_iter().cycle().take(length).collect(),
            _ => (0..length).map(noise).collect(),
        }
    }

    fn length(&mut self) -> usize {
        match self.random.below(8) {
            0 => 1 + self.random.below(100),
            1 => 100_000 + self.random.below(60_000),
            _ => 1 + self.random.below(24_000),
        }
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.random.below(from.len())].clone())
    }

    fn size(&self, node: NodeId) -> usize {
        match self.model.contents(node) {
            Contents::File(data) => data.len(),
            _ => 0,
        }
    }

    /// Chooses the next operation: one that must succeed.
    fn plan(&mut self) -> Op {
        loop {
            if let Some(op) = self.try_plan() {
                return op;
            }
        }
    }

    fn try_plan(&mut self) -> Option<Op> {
        let entries = self.model.entries();
        let is_file = |(_, _, node): &&(NodeId, String, NodeId)| matches!(self.model.contents(*node), Contents::File(_));
        let files: Vec<_> = entries.iter().filter(is_file).cloned().collect();
        let directories: Vec<NodeId> = self.model.directories().into_iter().map(|(_, node)| node).collect();
        let directory = self.pick(&directories)?;
        match self.random.below(100) {
            0..=17 if entries.len() < NODES_MAX => self.plan_create(directory),
            18..=45 => {
                let (_, _, node) = self.pick(&files)?;
                let offset = self.random.below(self.size(node) + 4000);
                let length = self.length();
                (offset + length <= FILE_BYTES_MAX).then(|| Op::Write(node, offset, self.bytes(length)))
            }
            46..=52 => {
                let (_, _, node) = self.pick(&files)?;
                Some(Op::Truncate(node, self.random.below(self.size(node) + 5000)))
            }
            53..=57 => {
                let (_, _, node) = self.pick(&files)?;
                Some(Op::Punch(node, self.random.below(self.size(node) + 1), 1 + self.random.below(30_000)))
            }
            58..=64 => self.plan_rename(&entries, directory),
            65..=71 => {
                let (directory, name, node) = self.pick(&entries)?;
                let is_full = matches!(self.model.contents(node), Contents::Directory(names) if !names.is_empty());
                (!is_full).then(|| Op::Remove(directory, name, self.random.chance(3)))
            }
            72..=75 => {
                let (_, _, node) = self.pick(&files)?;
                Some(Op::Link(node, directory, self.fresh_name()))
            }
            76..=79 => {
                let (_, _, node) = self.pick(&files)?;
                let (name, length) = (format!("user.a{}", self.random.below(3)), 1 + self.random.below(900));
                Some(Op::Attribute(node, name, self.bytes(length)))
            }
            80..=88 => Some(Op::Fsync(self.pick(&files)?.2)),
            89..=91 => {
                (self.model.snapshots().len() < SNAPSHOTS_MAX).then(|| Op::Snapshot(format!("s{}", self.random.next_u64() % 100_000)))
            }
            92..=93 => {
                let snapshots = self.model.snapshots();
                Some(Op::DestroySnapshot(self.pick(&snapshots)?))
            }
            94..=96 => self.plan_copy(&files),
            _ => Some(Op::Sync),
        }
    }

    /// Chooses a range that may be shared as a whole, in one transaction: whole blocks, or all up to the end of both files.
    fn plan_copy(&mut self, files: &[(NodeId, String, NodeId)]) -> Option<Op> {
        let ((_, _, from), (_, _, to)) = (self.pick(files)?, self.pick(files)?);
        let (have, size) = (self.size(from), self.size(to));
        if from == to || have == 0 {
            return None;
        }
        let start = self.random.below(have.div_ceil(BLOCK_BYTES)) * BLOCK_BYTES;
        let target = self.random.below(size / BLOCK_BYTES + 2) * BLOCK_BYTES;
        let wanted = if self.random.chance(2) { have } else { (1 + self.random.below(4)) * BLOCK_BYTES };
        let length = wanted.min(have - start);
        let ends_both = start + length == have && target + length >= size;
        let length = if ends_both { length } else { length - length % BLOCK_BYTES };
        (length > 0 && target + length <= FILE_BYTES_MAX).then_some(Op::Copy((from, start), (to, target), length))
    }

    fn plan_create(&mut self, directory: NodeId) -> Option<Op> {
        let name = self.fresh_name();
        let contents = match self.random.below(6) {
            0 => Contents::Directory(BTreeMap::new()),
            1 => Contents::Symlink("../".repeat(1 + self.random.below(30)) + "target"),
            _ => Contents::File(Arc::default()),
        };
        Some(Op::Create(directory, name, contents))
    }

    fn plan_rename(&mut self, entries: &[(NodeId, String, NodeId)], directory: NodeId) -> Option<Op> {
        let (from, name, node) = self.pick(entries)?;
        let is_directory = |node| matches!(self.model.contents(node), Contents::Directory(_));
        if is_directory(node) && self.model.is_under(directory, node) {
            return None;
        }
        let others = entries.iter().filter(|(_, _, other)| !is_directory(*other));
        let others: Vec<_> = others.map(|(directory, name, _)| (*directory, name.clone())).collect();
        let replaces = !is_directory(node) && self.random.chance(2);
        let to = if replaces { self.pick(&others)? } else { (directory, self.fresh_name()) };
        Some(Op::Rename((from, name), to))
    }

    /// Does to the model what the operation does.
    fn imagine(&mut self, op: &Op) {
        let model = &mut self.model;
        match op {
            Op::Create(directory, name, contents) => {
                model.create(*directory, name, contents.clone());
            }
            Op::Write(node, offset, bytes) => model.edit(*node, |data| {
                data.resize(data.len().max(offset + bytes.len()), 0);
                data[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }),
            Op::Truncate(node, size) => model.edit(*node, |data| data.resize(*size, 0)),
            Op::Punch(node, offset, length) => model.edit(*node, |data| {
                let end = (offset + length).min(data.len());
                data[(*offset).min(end)..end].fill(0);
            }),
            Op::Copy((from, start), (to, target), length) => {
                let Contents::File(source) = model.contents(*from) else { return };
                let bytes = source[*start..start + length].to_vec();
                model.edit(*to, |data| {
                    data.resize(data.len().max(target + length), 0);
                    data[*target..target + length].copy_from_slice(&bytes);
                });
            }
            Op::Rename(from, to) => model.rename((from.0, &from.1), (to.0, &to.1)),
            Op::Remove(directory, name, _) => model.remove(*directory, name),
            Op::Link(node, directory, name) => model.link(*node, *directory, name),
            Op::Attribute(node, name, value) => model.set_attribute(*node, name, value.clone()),
            Op::Snapshot(name) => model.snapshot(name),
            Op::DestroySnapshot(name) => model.destroy_snapshot(name),
            Op::Fsync(_) | Op::Sync => {}
        }
    }

    /// Notes which node the operation changes, and what its success promises.
    fn note(&mut self, op: &Op, number: usize) {
        match op {
            Op::Create(directory, name, _) => {
                if let Some(node) = self.model.lookup(*directory, name) {
                    self.changed.insert(node, number);
                }
            }
            Op::Write(node, ..)
            | Op::Truncate(node, ..)
            | Op::Punch(node, ..)
            | Op::Copy(_, (node, _), _)
            | Op::Link(node, ..)
            | Op::Attribute(node, ..) => {
                self.changed.insert(*node, number);
            }
            Op::Fsync(node) => self.acknowledged = self.acknowledged.max(self.changed.get(node).copied().unwrap_or(0)),
            Op::Snapshot(_) | Op::DestroySnapshot(_) | Op::Sync => self.acknowledged = number,
            Op::Rename(..) | Op::Remove(..) => {}
        }
    }
}

/// Engine's side of a program.
pub struct Runner<'a> {
    pool: &'a Pool,
    zfs: Arc<Zfs>,
    objects: HashMap<NodeId, ObjectId>,
    /// Nodes of files that are open without a name.
    orphans: Vec<Node>,
}

impl<'a> Runner<'a> {
    /// Opens the file system of `pool`, which must be as it was made.
    pub fn new(pool: &'a Pool) -> Result<Runner<'a>, Trouble> {
        let zfs = mount(pool)?;
        let objects = HashMap::from([(0, zfs.root())]);
        Ok(Runner { pool, zfs, objects, orphans: Vec::new() })
    }

    fn node(&self, node: NodeId) -> Result<Node, Trouble> {
        // A node that the engine never made cannot be asked for: programs end at their first error.
        let object = self.objects.get(&node).copied().unwrap_or_default();
        Ok(self.zfs.node(object)?)
    }

    /// Does the program's next operation. `before` hears of its number and of what was promised so far, and again when it is
    /// done.
    pub fn step(&mut self, program: &mut Program, before: &mut dyn FnMut(usize, usize)) -> Result<(), Trouble> {
        let op = program.plan();
        let number = program.states.len();
        program.imagine(&op);
        let state = program.model.state();
        program.states.push(state);
        before(number, program.acknowledged);
        self.perform(&op, &program.model)?;
        program.note(&op, number);
        before(number, program.acknowledged);
        Ok(())
    }

    fn perform(&mut self, op: &Op, model: &Model) -> Result<(), Trouble> {
        match op {
            Op::Create(directory, name, contents) => {
                let made = self.create(*directory, name, contents)?;
                if let Some(node) = model.lookup(*directory, name) {
                    self.objects.insert(node, made);
                }
            }
            Op::Write(node, offset, bytes) => {
                let data = Abd::from_slice(bytes);
                let write = WriteData { offset: *offset as u64, data, may_keep: false, kill_suid: true, synchronous: false };
                self.zfs.write(&self.node(*node)?, write)?;
            }
            Op::Truncate(node, size) => self.zfs.truncate(&self.node(*node)?, *size as u64)?,
            Op::Punch(node, offset, length) => {
                self.zfs.allocate(&self.node(*node)?, *offset as u64, *length as u64, Allocate::Punch)?;
            }
            Op::Copy(from, to, length) => self.copy(*from, *to, *length)?,
            Op::Rename(from, to) => {
                let (source, target) = (self.node(from.0)?, self.node(to.0)?);
                let from = Place { directory: &source, name: from.1.as_bytes() };
                self.zfs.rename(from, Place { directory: &target, name: to.1.as_bytes() }, RenameMode::Replace)?;
            }
            Op::Remove(directory, name, keep) => self.remove(*directory, name, *keep)?,
            Op::Link(node, directory, name) => {
                self.zfs.link(&self.node(*node)?, &self.node(*directory)?, name.as_bytes())?;
            }
            Op::Attribute(node, name, value) => {
                self.zfs.set_xattr(&self.node(*node)?, name.as_bytes(), value, SetMode::Any)?;
            }
            Op::Fsync(node) => {
                let node = self.node(*node)?;
                self.zfs.fsync(&node)?;
            }
            Op::Snapshot(name) => self.pool.dsl().snapshot(&[format!("{FILE_SYSTEM}@{name}")], Vec::new())?,
            Op::DestroySnapshot(name) => self.pool.dsl().destroy_snapshots(&[format!("{FILE_SYSTEM}@{name}")], false)?,
            Op::Sync => self.pool.sync()?,
        }
        Ok(())
    }

    fn create(&self, directory: NodeId, name: &str, contents: &Contents) -> Result<ObjectId, Trouble> {
        let new = match contents {
            Contents::Directory(_) => NewNode { mode: DIRECTORY, ..NewNode::default() },
            Contents::File(_) => NewNode { mode: REGULAR, ..NewNode::default() },
            Contents::Symlink(target) => NewNode { mode: SYMLINK, target: target.as_bytes(), ..NewNode::default() },
        };
        Ok(self.zfs.create_node(&self.node(directory)?, name.as_bytes(), &new)?.object())
    }

    /// Copies as cp(1) does: what cannot be shared is read and written.
    fn copy(&self, (from, start): (NodeId, usize), (to, target): (NodeId, usize), length: usize) -> Result<(), Trouble> {
        // What is not on disk is not shared.
        self.pool.sync()?;
        let (source, sink) = (self.node(from)?, self.node(to)?);
        let (from, to) = (DataAt { node: &source, offset: start as u64 }, DataAt { node: &sink, offset: target as u64 });
        match self.zfs.clone_range(from, to, length as u64) {
            Err(ZplError::NotSupported) => {}
            shared => {
                shared?;
                return Ok(());
            }
        }
        let data = self.zfs.read(&source, start as u64, length as u64)?;
        let write = WriteData { offset: target as u64, data, may_keep: false, kill_suid: true, synchronous: false };
        self.zfs.write(&sink, write)?;
        Ok(())
    }

    fn remove(&mut self, directory: NodeId, name: &str, keep: bool) -> Result<(), Trouble> {
        let directory = self.node(directory)?;
        let node = self.zfs.lookup(&directory, name.as_bytes())?;
        if node.fields().is_directory() {
            return Ok(self.zfs.rmdir(&directory, name.as_bytes())?);
        }
        self.zfs.unlink(&directory, name.as_bytes())?;
        if keep {
            self.orphans.push(node);
        }
        Ok(())
    }
}
