//! A file system under a program: operations carried out, and what is made durable after the power came back.

use super::program::{At, How, Op, Program};
use super::scribe::{Clerk, Hands, Scribe};
use crate::machine::{FILE_SYSTEM, Trouble};
use crate::model::{Contents, Model, NodeId, Owner, State};
use abd::Abd;
use ondisk::ObjectId;
use pool::Pool;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use zil::Log;
use zpl::direct::Access;
use zpl::{Allocate, NewNode, Node, Place, RenameMode, SetAttrs, SetMode, Settings, WriteData, Zfs};

const REGULAR: u64 = 0o100_644;
const DIRECTORY: u64 = 0o040_755;
const SYMLINK: u64 = 0o120_777;
/// Bytes of the largest request in which the kernel writes pages back.
const WRITEBACK_BYTES_MAX: usize = 128 << 10;
/// Number of files that are made durable, one by one, after an image was judged.
const LATER: usize = 4;

/// Opens the file system for writing, with its log, as the daemon's mounts are.
fn mount(pool: &Pool, dress: impl FnOnce(Arc<dyn Log>) -> Arc<dyn Log>) -> Result<Arc<Zfs>, Trouble> {
    let handle = pool.dsl().hold(FILE_SYSTEM)?;
    let zfs = Zfs::open(&handle.objset()?, Some(pool.txgs().clone()), Settings { atime: false, ..Settings::default() })?;
    zfs.drain_unlinked()?;
    let source: Weak<Zfs> = Arc::downgrade(&zfs);
    let tells_xattrs = handle.logs_xattrs();
    zfs.set_log(dress(handle.intent_log(source)?), tells_xattrs);
    zfs.set_space_source(Arc::new(handle));
    Ok(zfs)
}

/// File system of a program.
pub(super) struct FileHands<'a> {
    pool: &'a Pool,
    zfs: Arc<Zfs>,
    scribe: Arc<Scribe>,
    objects: HashMap<NodeId, ObjectId>,
}

impl<'a> FileHands<'a> {
    /// Opens the file system; a clerk stands before its log.
    pub(super) fn new(pool: &'a Pool, scribe: Arc<Scribe>) -> Result<FileHands<'a>, Trouble> {
        let zfs = mount(pool, |log| Arc::new(Clerk { log, scribe: scribe.clone() }))?;
        let root = zfs.root();
        let mut hands = FileHands { pool, zfs, scribe, objects: HashMap::new() };
        hands.meet(0, root);
        Ok(hands)
    }

    fn meet(&mut self, node: NodeId, object: ObjectId) {
        self.objects.insert(node, object);
        self.scribe.book.lock().objects.insert(object, node);
    }

    fn node(&self, node: NodeId) -> Result<Node, Trouble> {
        Ok(self.zfs.node(self.objects.get(&node).copied().unwrap_or_default())?)
    }

    fn write(&self, node: &Node, offset: usize, bytes: &[u8], how: How) -> Result<(), Trouble> {
        let piece = if how == How::Mapped { WRITEBACK_BYTES_MAX } else { bytes.len() };
        let access = if how.is_direct() { Access::DIRECT } else { Access::default() };
        for (index, part) in bytes.chunks(piece).enumerate() {
            let (offset, data) = ((offset + index * piece) as u64, Abd::from_slice(part));
            let kill_suid = how != How::Mapped;
            let write = WriteData { offset, data, may_keep: false, kill_suid, synchronous: how.is_synchronous() };
            self.zfs.write_with(node, write, access)?;
        }
        Ok(())
    }

    fn rename(&self, from: &At, to: &At, mode: RenameMode) -> Result<(), Trouble> {
        let (source, target) = (self.node(from.0)?, self.node(to.0)?);
        let from = Place { directory: &source, name: from.1.as_bytes() };
        Ok(self.zfs.rename(from, Place { directory: &target, name: to.1.as_bytes() }, mode)?)
    }

    fn create(&self, directory: NodeId, name: &str, contents: &Contents) -> Result<ObjectId, Trouble> {
        let new = match contents {
            Contents::Directory(_) => NewNode { mode: DIRECTORY, ..NewNode::default() },
            Contents::File(_) => NewNode { mode: REGULAR, ..NewNode::default() },
            Contents::Symlink(target) => NewNode { mode: SYMLINK, target: target.as_bytes(), ..NewNode::default() },
        };
        Ok(self.zfs.create_node(&self.node(directory)?, name.as_bytes(), &new)?.object())
    }
}

impl Hands for FileHands<'_> {
    fn plan(&self, program: &mut Program, model: &Model) -> Op {
        program.plan(model)
    }

    fn perform(&mut self, op: &Op, after: &Model) -> Result<(), Trouble> {
        match op {
            Op::Create(directory, name, contents) => {
                let made = self.create(*directory, name, contents)?;
                if let Some(node) = after.lookup(*directory, name) {
                    self.meet(node, made);
                }
            }
            Op::Write(node, offset, bytes, how) => self.write(&self.node(*node)?, *offset, bytes, *how)?,
            Op::Truncate(node, size) => self.zfs.truncate(&self.node(*node)?, *size as u64)?,
            Op::Punch(node, offset, length) | Op::Discard(node, offset, length) => {
                self.zfs.allocate(&self.node(*node)?, *offset as u64, *length as u64, Allocate::Punch)?;
            }
            Op::Rename(from, to) => self.rename(from, to, RenameMode::Replace)?,
            Op::Exchange(from, to) => self.rename(from, to, RenameMode::Exchange)?,
            Op::Remove(directory, name) => {
                let directory = self.node(*directory)?;
                if self.zfs.lookup(&directory, name.as_bytes())?.fields().is_directory() {
                    self.zfs.rmdir(&directory, name.as_bytes())?;
                } else {
                    self.zfs.unlink(&directory, name.as_bytes())?;
                }
            }
            Op::Link(node, directory, name) => self.zfs.link(&self.node(*node)?, &self.node(*directory)?, name.as_bytes())?,
            Op::Attribute(node, name, Some(value)) => {
                self.zfs.set_xattr(&self.node(*node)?, name.as_bytes(), value, SetMode::Any)?;
            }
            Op::Attribute(node, name, None) => self.zfs.remove_xattr(&self.node(*node)?, name.as_bytes())?,
            Op::Own(node, Owner { mode, uid, gid }) => {
                let set = SetAttrs { mode: Some(*mode), uid: Some(*uid as u32), gid: Some(*gid as u32), ..SetAttrs::default() };
                self.zfs.set_attrs(&self.node(*node)?, &set)?;
            }
            Op::Fsync(node) => {
                let node = self.node(*node)?;
                self.zfs.fsync(&node)?;
            }
            Op::SyncAll => self.zfs.sync()?,
            Op::Snapshot(name) => self.pool.dsl().snapshot(&[format!("{FILE_SYSTEM}@{name}")], Vec::new())?,
            Op::Txg => self.pool.sync()?,
        }
        Ok(())
    }

    fn promise(&self, op: &Op) -> Option<Option<NodeId>> {
        match op {
            Op::Fsync(node) => Some(Some(*node)),
            Op::Write(node, _, _, how) if how.is_synchronous() => Some(Some(*node)),
            Op::SyncAll | Op::Snapshot(_) | Op::Txg => Some(None),
            _ => None,
        }
    }
}

/// Makes files durable, one by one.
pub(super) fn go_on(pool: &Pool, wanted: &mut State) -> Result<(), Trouble> {
    let zfs = mount(pool, |log| log)?;
    let root = zfs.node(zfs.root())?;
    let mut model = Model::default();
    for index in 0..LATER {
        let name = format!("later{index}");
        let bytes = format!("file {index} after the power came back ").into_bytes().repeat(1 + 300 * index);
        let new = NewNode { mode: REGULAR, ..NewNode::default() };
        let node = zfs.create_node(&root, name.as_bytes(), &new)?;
        let data = Abd::from_slice(&bytes);
        zfs.write(&node, WriteData { offset: 0, data, may_keep: false, kill_suid: true, synchronous: false })?;
        zfs.fsync(&node)?;
        model.create(0, &name, Contents::File(Arc::new(bytes)));
    }
    let made = model.state().head;
    let made = made.iter().filter(|(path, _)| !path.is_empty()).map(|(path, seen)| (path.clone(), seen.clone()));
    Arc::make_mut(&mut wanted.head).extend(made);
    Ok(())
}
