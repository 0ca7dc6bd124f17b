//! Steps of programs, chosen by a seed: every operation that a file system has.

use crate::arena::bed::{RECORD_BYTES, Served};
use abd::Abd;
use exec::SplitMix;
use ondisk::ObjectId;
use std::sync::Arc;
use zpl::direct::Access;
use zpl::{Allocate, FlagChange, NewNode, Node, Place, RenameMode, SetAttrs, SetMode, WriteData, Zfs, ZplError};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const NODUMP: u64 = 0x80_0000_0000;

/// Programs that use the file system.
pub struct Programs {
    pub random: SplitMix,
    /// Files that they have open: the kernel has a reference to each, and nobody else.
    pub open: Vec<ObjectId>,
}

/// Operation that was done: the object that it made or linked, and the bytes that it wrote; None when there is nothing to be known of it.
pub type Effect = Option<(u64, u64)>;

impl Programs {
    pub fn new(seed: u64) -> Programs {
        Programs { random: SplitMix::new(seed), open: Vec::new() }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        let mut data = SplitMix::new(self.random.next_u64());
        std::iter::repeat_with(|| data.next_u64().to_le_bytes()).flatten().take(length as usize).collect()
    }

    /// A directory and a name in it.
    fn place(&mut self, zfs: &Arc<Zfs>) -> (Node, &'static str) {
        let root = zfs.node(zfs.root()).expect("the root");
        let directories: Vec<Node> = ["p", "q"]
            .iter()
            .filter_map(|name| zfs.lookup(&root, name.as_bytes()).ok())
            .filter(|node| node.fields().is_directory())
            .collect();
        let chosen = self.below(directories.len() as u64 + 1) as usize;
        let directory = directories.get(chosen).cloned().unwrap_or(root);
        let name = NAMES[self.below(NAMES.len() as u64) as usize];
        (directory, name)
    }

    /// Some file that has a name or is open.
    fn file(&mut self, zfs: &Arc<Zfs>) -> Option<Node> {
        if !self.open.is_empty() && self.below(3) == 0 {
            let index = self.below(self.open.len() as u64) as usize;
            return zfs.node(self.open[index]).ok().filter(|node| node.fields().is_regular());
        }
        let (directory, name) = self.place(zfs);
        zfs.lookup(&directory, name.as_bytes()).ok().filter(|node| node.fields().is_regular())
    }

    /// Objects that are open and have no names.
    pub fn nameless(&self, zfs: &Arc<Zfs>) -> Vec<u64> {
        let has_none = |object: &&ObjectId| zfs.node(**object).expect("an open file").fields().links == 0;
        self.open.iter().filter(has_none).map(|object| object.0).collect()
    }

    /// Closes all files.
    pub fn close_all(&mut self, zfs: &Arc<Zfs>) {
        self.open.drain(..).for_each(|object| zfs.release(object, 1));
    }

    /// The kernel gets a reference to a node that is about to lose a name, and gives it back afterwards.
    fn losing(&self, zfs: &Arc<Zfs>, node: Option<Node>, lose: impl FnOnce() -> Result<(), ZplError>) -> Result<(), ZplError> {
        let object = node.filter(|node| !self.open.contains(&node.object())).map(|node| {
            Zfs::keep(&node);
            node.object()
        });
        let result = lose();
        if let Some(object) = object {
            zfs.release(object, 1);
        }
        result
    }

    /// Opens a file: the kernel gets a reference.
    fn note_open(&mut self, node: Node) {
        if !self.open.contains(&node.object()) {
            Zfs::keep(&node);
            self.open.push(node.object());
        }
    }

    /// One step; an error is one that programs can get.
    pub fn step(&mut self, served: &Served) -> Result<Effect, ZplError> {
        let zfs = &served.zfs;
        served.exec.sleep_ns(1_000_003);
        match self.below(22) {
            0..=2 => self.make(zfs),
            3..=6 => self.write(zfs),
            7 => self.truncate(zfs),
            8 => self.allocate(zfs),
            9 | 10 => self.unlink(zfs),
            11 | 12 => self.rename(zfs),
            13 => self.link(zfs),
            14 => self.attributes(zfs),
            15..=17 => self.xattr(zfs),
            18 => self.tmpfile(zfs),
            19 => self.open_or_close(zfs),
            20 => {
                zfs.sync()?;
                Ok(None)
            }
            _ => {
                served.pool.sync().expect("synced");
                Ok(None)
            }
        }
    }

    fn make(&mut self, zfs: &Arc<Zfs>) -> Result<Effect, ZplError> {
        let (directory, name) = self.place(zfs);
        let (kind, root) = (self.below(6), zfs.node(zfs.root())?);
        let new = NewNode { uid: 1000, gid: 100, ..NewNode::default() };
        let made = match kind {
            0 => zfs.create_node(&root, if self.below(2) == 0 { b"p" } else { b"q" }, &NewNode { mode: 0o042_755, ..new })?,
            1 => zfs.create_node(&directory, name.as_bytes(), &NewNode { mode: 0o120_777, target: b"some/where", ..new })?,
            2 => zfs.create_node(&directory, name.as_bytes(), &NewNode { mode: 0o020_600, rdev: 8 << 20 | 1, ..new })?,
            _ => zfs.create_node(&directory, name.as_bytes(), &NewNode { mode: 0o100_644, ..new })?,
        };
        Ok(Some((made.object().0, 0)))
    }

    fn write(&mut self, zfs: &Arc<Zfs>) -> Result<Effect, ZplError> {
        let Some(node) = self.file(zfs) else { return Ok(None) };
        let is_direct = self.below(4) == 0;
        let (offset, length) = match is_direct {
            true => (self.below(3) * RECORD_BYTES, RECORD_BYTES * (1 + self.below(2))),
            false => (self.below(40_000), 1 + self.below(20_000)),
        };
        let data = Abd::from_slice(&self.bytes(length));
        let write =
            WriteData { offset, data, may_keep: self.below(2) == 0, kill_suid: self.below(4) == 0, synchronous: self.below(8) == 0 };
        let written = zfs.write_with(&node, write, Access { flagged: is_direct, ..Access::default() })?;
        Ok(Some((0, written)))
    }

    fn truncate(&mut self, zfs: &Arc<Zfs>) -> Result<Effect, ZplError> {
        let Some(node) = self.file(zfs) else { return Ok(None) };
        let size = self.below(60_000);
        zfs.truncate(&node, size)?;
        Ok(Some((0, 0)))
    }

    fn allocate(&mut self, zfs: &Arc<Zfs>) -> Result<Effect, ZplError> {
        let Some(node) = self.file(zfs) else { return Ok(None) };
        let (offset, length) = (self.below(30_000), 1 + self.below(40_000));
        let size = node.fields().size;
        let how = match self.below(4) {
            0 if offset + length > size => Allocate::Extend,
            1 => Allocate::Zero,
            2 if offset < size => Allocate::ZeroKeepSize,
            _ if offset < size => Allocate::Punch,
            _ => return Ok(None),
        };
        zfs.allocate(&node, offset, length, how)?;
        Ok(Some((0, 0)))
    }

    fn unlink(&mut self, zfs: &Arc<Zfs>) -> Result<Effect, ZplError> {
        if self.below(6) == 0 {
            let (root, name) = (zfs.node(zfs.root())?, if self.below(2) == 0 { b"p" } else { b"q" });
            self.losing(zfs, zfs.lookup(&root, name).ok(), || zfs.rmdir(&root, name))?;
        } else {
            let (directory, name) = self.place(zfs);
            self.losing(zfs, zfs.lookup(&directory, name.as_bytes()).ok(), || zfs.unlink(&directory, name.as_bytes()))?;
        }
        Ok(Some((0, 0)))
    }

    fn rename(&mut self, zfs: &Arc<Zfs>) -> Result<Effect, ZplError> {
        let ((from, old), (to, new)) = (self.place(zfs), self.place(zfs));
        let is_same = from.object() == to.object() && old == new;
        let found = (zfs.lookup(&from, old.as_bytes())?, zfs.lookup(&to, new.as_bytes()).ok());
        if is_same || found.1.as_ref().is_some_and(|node| node.object() == found.0.object()) {
            return Ok(None);
        }
        drop(found.0);
        let (from, to) = (Place { directory: &from, name: old.as_bytes() }, Place { directory: &to, name: new.as_bytes() });
        let kind = self.below(4);
        self.losing(zfs, found.1, || match kind {
            0 => zfs.rename(from, to, RenameMode::Exchange),
            1 => zfs.rename_leaving(from, to, RenameMode::Replace, Some(&NewNode { mode: 0o020_000, ..NewNode::default() })),
            _ => zfs.rename(from, to, RenameMode::Replace),
        })?;
        Ok(Some((0, 0)))
    }

    fn link(&mut self, zfs: &Arc<Zfs>) -> Result<Effect, ZplError> {
        let Some(node) = self.file(zfs) else { return Ok(None) };
        let (directory, name) = self.place(zfs);
        zfs.link(&node, &directory, name.as_bytes())?;
        Ok(Some((node.object().0, 0)))
    }

    fn attributes(&mut self, zfs: &Arc<Zfs>) -> Result<Effect, ZplError> {
        let Some(node) = self.file(zfs) else { return Ok(None) };
        match self.below(4) {
            0 => zfs.set_attrs(&node, &SetAttrs { mode: Some(0o4000 | self.below(0o1000)), ..SetAttrs::default() })?,
            1 => zfs.set_attrs(&node, &SetAttrs { uid: Some(self.below(9) as u32), gid: Some(7), ..SetAttrs::default() })?,
            2 => zfs.set_attrs(&node, &SetAttrs { mtime: Some((self.below(1 << 30) as i64, 5)), ..SetAttrs::default() })?,
            _ => {
                let set = if node.fields().flags & NODUMP == 0 { NODUMP } else { 0 };
                zfs.change_flags(&node, FlagChange { mask: NODUMP, set, project: None })?;
            }
        }
        Ok(Some((0, 0)))
    }

    fn xattr(&mut self, zfs: &Arc<Zfs>) -> Result<Effect, ZplError> {
        let Some(node) = self.file(zfs) else { return Ok(None) };
        let name = [&b"user.x"[..], b"user.y"][self.below(2) as usize];
        match self.below(5) {
            0 => zfs.remove_xattr(&node, name)?,
            1 => zfs.set_xattr(&node, name, b"", SetMode::Any)?,
            2 => {
                let value = self.bytes(40_000);
                zfs.set_xattr(&node, name, &value, SetMode::Any)?;
            }
            _ => {
                let length = 1 + self.below(200);
                let value = self.bytes(length);
                zfs.set_xattr(&node, name, &value, SetMode::Any)?;
            }
        }
        // Of an attribute it need not be known.
        Ok(None)
    }

    fn tmpfile(&mut self, zfs: &Arc<Zfs>) -> Result<Effect, ZplError> {
        let (directory, _) = self.place(zfs);
        let made = zfs.create_nameless(&directory, &NewNode { mode: 0o100_600, uid: 3, gid: 4, ..NewNode::default() })?;
        let object = made.object().0;
        self.note_open(made);
        Ok(Some((object, 0)))
    }

    fn open_or_close(&mut self, zfs: &Arc<Zfs>) -> Result<Effect, ZplError> {
        if self.open.len() > 3 || (!self.open.is_empty() && self.below(2) == 0) {
            let index = self.below(self.open.len() as u64) as usize;
            let object = self.open.swap_remove(index);
            zfs.release(object, 1);
        } else if let Some(node) = self.file(zfs) {
            self.note_open(node);
        }
        Ok(None)
    }
}
