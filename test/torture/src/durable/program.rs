//! Programs that want things durable: seeded operations of a file system, most followed by fsync(2), planned on the model.

use crate::model::{Contents, Model, NodeId, Owner};
use exec::SplitMix;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Bytes that no file grows beyond.
const FILE_BYTES_MAX: usize = 300 << 10;
/// Number of names that programs hold, about.
const NAMES_MAX: usize = 30;
/// Bytes of a page of memory.
const PAGE: usize = 4096;

/// Way in which bytes get into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// write(2).
    Buffered,
    /// write(2) to a file with O_DSYNC: done when it is durable.
    Synchronous,
    /// write(2) past the cache.
    Direct,
    /// Both: what a database does with O_DIRECT and O_DSYNC.
    DirectSynchronous,
    /// Whole pages that the kernel writes back, as msync(2) has it do.
    Mapped,
}

impl How {
    /// True when the write is durable once it is done.
    pub fn is_synchronous(self) -> bool {
        matches!(self, How::Synchronous | How::DirectSynchronous)
    }

    /// True for writes past the cache.
    pub fn is_direct(self) -> bool {
        matches!(self, How::Direct | How::DirectSynchronous)
    }
}

/// Directory and name.
pub type At = (NodeId, String);

/// Operation of a program.
#[derive(Clone, Debug)]
pub enum Op {
    /// Makes a file, directory or symbolic link.
    Create(NodeId, String, Contents),
    /// Writes bytes at an offset.
    Write(NodeId, usize, Vec<u8>, How),
    /// Sets the size.
    Truncate(NodeId, usize),
    /// Punches a hole of a length at an offset, which ends with the file.
    Punch(NodeId, usize, usize),
    /// Gives whole blocks of a length at an offset back, which read as zeros then.
    Discard(NodeId, usize, usize),
    /// Moves a name; what stood at the target is replaced.
    Rename(At, At),
    /// Lets two names change places.
    Exchange(At, At),
    /// Removes a name.
    Remove(NodeId, String),
    /// Gives a file another name.
    Link(NodeId, NodeId, String),
    /// Sets an extended attribute, or takes it away.
    Attribute(NodeId, String, Option<Vec<u8>>),
    /// Sets owner and permissions.
    Own(NodeId, Owner),
    /// Waits until a file or directory is durable.
    Fsync(NodeId),
    /// Waits until all of the file system is durable.
    SyncAll,
    /// Takes a snapshot.
    Snapshot(String),
    /// Syncs a txg.
    Txg,
}

/// Program in progress.
pub struct Program {
    random: SplitMix,
    names: u64,
    /// Operations that are to come next.
    next: VecDeque<Op>,
}

impl Program {
    /// Makes a program that follows from `seed`.
    pub fn new(seed: u64) -> Program {
        Program { random: SplitMix::new(seed), names: 0, next: VecDeque::new() }
    }

    fn fresh_name(&mut self) -> String {
        self.names += 1;
        let tail = if self.random.chance(16) { "-long".repeat(12) } else { String::new() };
        format!("n{}{tail}", self.names)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let (is_even, mut state) = (self.random.chance(3), self.random.next_u64() | 1);
        let noise = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        if is_even { vec![state as u8; length] } else { (0..length).map(noise).collect() }
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.random.below(from.len())].clone())
    }

    /// Chooses the next operation: one that must succeed.
    pub fn plan(&mut self, model: &Model) -> Op {
        loop {
            if let Some(op) = self.next.pop_front().or_else(|| self.try_plan(model)) {
                return op;
            }
        }
    }

    fn try_plan(&mut self, model: &Model) -> Option<Op> {
        let entries = model.entries();
        let is_file = |(_, _, node): &&(NodeId, String, NodeId)| matches!(model.contents(*node), Contents::File(_));
        let files: Vec<NodeId> = entries.iter().filter(is_file).map(|(_, _, node)| *node).collect();
        let directories: Vec<NodeId> = model.directories().into_iter().map(|(_, node)| node).collect();
        let directory = self.pick(&directories)?;
        let op = match self.random.below(100) {
            0..=13 if entries.len() < NAMES_MAX => self.plan_create(directory),
            14..=45 => self.plan_write(model, &files)?,
            46..=51 => {
                let node = self.pick(&files)?;
                Op::Truncate(node, self.random.below(size(model, node) + 5000))
            }
            52..=56 => {
                let node = self.pick(&files)?;
                let offset = self.random.below(size(model, node).max(1));
                let length = (1 + self.random.below(30_000)).min(size(model, node) - offset.min(size(model, node)));
                (length > 0).then_some(Op::Punch(node, offset, length))?
            }
            57..=65 => self.plan_rename(model, &entries, directory)?,
            66..=72 => {
                let (directory, name, node) = self.pick(&entries)?;
                let is_full = matches!(model.contents(node), Contents::Directory(names) if !names.is_empty());
                (!is_full).then_some(Op::Remove(directory, name))?
            }
            73..=76 => Op::Link(self.pick(&files)?, directory, self.fresh_name()),
            77..=79 => self.plan_attribute(model, &files)?,
            80..=85 => {
                let node = if self.random.chance(4) { directory } else { self.pick(&files)? };
                let mode = 0o600 + self.random.below(0o200) as u64;
                Op::Own(node, Owner { mode, uid: self.random.below(9) as u64, gid: self.random.below(9) as u64 })
            }
            86..=92 => Op::Fsync(if self.random.chance(3) { directory } else { self.pick(&files)? }),
            93..=94 => Op::SyncAll,
            95..=96 => Op::Txg,
            _ => return None,
        };
        self.plan_after(model, &op);
        Some(op)
    }

    /// Next operation of a program of this kind: most want it durable at once.
    fn plan_after(&mut self, model: &Model, op: &Op) {
        let wants = self.random.chance(2);
        match op {
            // A direct write that waits for its commit is not cut off: its blocks are noted one by one.
            Op::Write(node, _, _, How::Direct | How::Mapped) => self.next.push_back(Op::Fsync(*node)),
            Op::Write(node, _, _, How::Buffered) | Op::Truncate(node, _) | Op::Punch(node, ..) | Op::Own(node, _) if wants => {
                self.next.push_back(Op::Fsync(*node));
            }
            Op::Attribute(node, ..) if wants => self.next.push_back(Op::Fsync(*node)),
            Op::Create(directory, ..) | Op::Remove(directory, _) | Op::Link(_, directory, _) if wants => {
                self.next.push_back(Op::Fsync(*directory));
            }
            Op::Rename(_, to) if wants => self.next.push_back(Op::Fsync(to.0)),
            Op::Exchange(from, _) if wants => self.next.extend(model.lookup(from.0, &from.1).map(Op::Fsync)),
            _ => {}
        }
    }

    fn plan_create(&mut self, directory: NodeId) -> Op {
        let name = self.fresh_name();
        let contents = match self.random.below(6) {
            0 => Contents::Directory(BTreeMap::new()),
            1 => Contents::Symlink("../".repeat(1 + self.random.below(30)) + "target"),
            _ => Contents::File(Arc::default()),
        };
        Op::Create(directory, name, contents)
    }

    fn plan_write(&mut self, model: &Model, files: &[NodeId]) -> Option<Op> {
        let node = self.pick(files)?;
        let size = size(model, node);
        let how = [How::Buffered, How::Buffered, How::Synchronous, How::Direct, How::DirectSynchronous, How::Mapped][self.random.below(6)];
        let (offset, length) = match how {
            How::Direct | How::DirectSynchronous => (self.random.below(size / PAGE + 2) * PAGE, (1 + self.random.below(12)) * PAGE),
            How::Mapped => {
                // The last page ends with the file.
                let offset = self.random.below(size.max(1)) / PAGE * PAGE;
                (offset, ((1 + self.random.below(40)) * PAGE).min(size - offset.min(size)))
            }
            _ => (self.random.below(size + 4000), self.length()),
        };
        (length > 0 && offset + length <= FILE_BYTES_MAX).then(|| Op::Write(node, offset, self.bytes(length), how))
    }

    fn length(&mut self) -> usize {
        match self.random.below(8) {
            0 => 1 + self.random.below(100),
            // More than one block of a log takes.
            1 => 100_000 + self.random.below(60_000),
            _ => 1 + self.random.below(12_000),
        }
    }

    /// Chooses the next operation on a volume with blocks of `block` bytes, of at most `blocks_max` blocks: the file `node` of the model.
    pub fn plan_volume(&mut self, model: &Model, node: NodeId, (block, blocks_max): (usize, usize)) -> Op {
        let size = size(model, node);
        match self.random.below(100) {
            0..=54 => {
                let how = [How::Buffered, How::Synchronous, How::Direct, How::DirectSynchronous][self.random.below(4)];
                let unit = [1, 512, PAGE, block][self.random.below(4)];
                let offset = self.random.below(size / unit) * unit;
                let length = self.length().next_multiple_of(unit).min(size - offset);
                Op::Write(node, offset, self.bytes(length), how)
            }
            55..=64 => {
                let first = self.random.below(size / block);
                Op::Discard(node, first * block, (1 + self.random.below(6)).min(size / block - first) * block)
            }
            65..=73 => {
                let offset = self.random.below(size);
                Op::Punch(node, offset, (1 + self.random.below(5 * block)).min(size - offset))
            }
            74..=88 => Op::SyncAll,
            89..=92 => Op::Truncate(node, (blocks_max / 2 + self.random.below(blocks_max / 2 + 1)) * block),
            93..=94 => Op::Snapshot(self.fresh_name()),
            _ => Op::Txg,
        }
    }

    fn plan_attribute(&mut self, model: &Model, files: &[NodeId]) -> Option<Op> {
        let node = self.pick(files)?;
        let names: Vec<String> = model.attributes(node).keys().cloned().collect();
        if self.random.chance(3) {
            return Some(Op::Attribute(node, self.pick(&names)?, None));
        }
        let (name, length) = (format!("user.a{}", self.random.below(3)), 1 + self.random.below(900));
        Some(Op::Attribute(node, name, Some(self.bytes(length))))
    }

    fn plan_rename(&mut self, model: &Model, entries: &[(NodeId, String, NodeId)], directory: NodeId) -> Option<Op> {
        let (from, name, node) = self.pick(entries)?;
        let is_directory = |node| matches!(model.contents(node), Contents::Directory(_));
        if is_directory(node) && model.is_under(directory, node) {
            return None;
        }
        let others: Vec<At> = entries
            .iter()
            .filter(|(_, _, other)| !is_directory(*other) && *other != node)
            .map(|(directory, name, _)| (*directory, name.clone()))
            .collect();
        let replaces = !is_directory(node) && self.random.chance(2);
        let to = if replaces { self.pick(&others)? } else { (directory, self.fresh_name()) };
        Some(if replaces && self.random.chance(3) { Op::Exchange((from, name), to) } else { Op::Rename((from, name), to) })
    }
}

fn size(model: &Model, node: NodeId) -> usize {
    match model.contents(node) {
        Contents::File(data) => data.len(),
        _ => 0,
    }
}

/// Does to the model what the operation does.
pub fn imagine(model: &mut Model, op: &Op) {
    match op {
        Op::Create(directory, name, contents) => {
            model.create(*directory, name, contents.clone());
        }
        Op::Write(node, offset, bytes, _) => put(model, *node, *offset, bytes),
        Op::Truncate(node, size) => model.edit(*node, |data| data.resize(*size, 0)),
        Op::Punch(node, offset, length) | Op::Discard(node, offset, length) => put(model, *node, *offset, &vec![0; *length]),
        Op::Rename(from, to) => model.rename((from.0, &from.1), (to.0, &to.1)),
        Op::Exchange(one, other) => model.exchange((one.0, &one.1), (other.0, &other.1)),
        Op::Remove(directory, name) => model.remove(*directory, name),
        Op::Link(node, directory, name) => model.link(*node, *directory, name),
        Op::Attribute(node, name, Some(value)) => model.set_attribute(*node, name, value.clone()),
        Op::Attribute(node, name, None) => model.remove_attribute(*node, name),
        Op::Own(node, owner) => model.set_owner(*node, *owner),
        Op::Snapshot(name) => model.snapshot(name),
        Op::Fsync(_) | Op::SyncAll | Op::Txg => {}
    }
}

/// Puts bytes into a file of the model, which becomes as long as to hold them.
pub fn put(model: &mut Model, node: NodeId, offset: usize, bytes: &[u8]) {
    model.edit(node, |data| {
        data.resize(data.len().max(offset + bytes.len()), 0);
        data[offset..offset + bytes.len()].copy_from_slice(bytes);
    });
}
