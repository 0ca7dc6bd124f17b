//! What was made durable through the intent log: the power goes off at every write and flush of a program, and again while the log is replayed.
//!
//! A model alone says what has to be there: the state of the last txg on disk, which an import that only reads shows, and on top of it what the log
//! tells of, in its order ([`ledger`]): all that was acknowledged, and of the rest a beginning.

pub mod check;
pub mod engine;
pub mod ledger;
pub mod program;

use crate::machine::{FILE_SYSTEM, Layout, Machine, Trouble};
use crate::model::{Contents, Model, NodeId, Owner};
use abd::Abd;
use dmu::{DmuError, Tx};
use exec::Mutex;
use ledger::{Ledger, Logged};
use ondisk::{ObjectId, Txg};
use pool::Pool;
use program::{How, Op, Program, imagine};
use sim::Recording;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use zil::{Itx, Log};
use zpl::direct::Access;
use zpl::{Allocate, NewNode, Node, Place, RenameMode, SetAttrs, SetMode, Settings, WriteData, Zfs};

const REGULAR: u64 = 0o100_644;
const DIRECTORY: u64 = 0o040_755;
const SYMLINK: u64 = 0o120_777;
/// Bytes of the largest request in which the kernel writes pages back.
const WRITEBACK_BYTES_MAX: usize = 128 << 10;

/// Moment of a program, as the marks of its recording name it.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Number of operations that began.
    pub started: usize,
    /// Number of operations in the log that are acknowledged.
    pub acknowledged: usize,
    /// Number of operations that the log may hold.
    pub offered: usize,
    /// Txg that was said to be on disk.
    pub synced: Txg,
}

/// Recording of what a program did to the devices, and what was promised when.
pub struct Recorded {
    /// Layout of the pool.
    pub layout: Layout,
    /// Seed of program and executor.
    pub seed: u64,
    /// Writes and flushes, every one; marks are numbers of moments.
    pub recording: Recording,
    moments: Vec<Moment>,
    /// Models after so many operations, and the txg of each operation.
    models: Vec<Model>,
    txgs: Vec<Txg>,
    logged: Vec<Logged>,
    /// Operations, for words.
    ops: Vec<Op>,
}

/// Knowledge while a program runs.
struct Book {
    model: Model,
    ledger: Ledger,
    moments: Vec<Moment>,
    objects: HashMap<ObjectId, NodeId>,
}

/// Clerk between file system and log: writes down when commits begin and end.
struct Clerk {
    log: Arc<dyn Log>,
    sim: sim::Sim,
    txgs: Arc<dmu::TxgManager>,
    book: Mutex<Book>,
}

impl fmt::Debug for Clerk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clerk")
    }
}

impl Clerk {
    fn mark(&self, change: impl FnOnce(&mut Book, &mut Moment)) {
        let mut book = self.book.lock();
        let first = Moment { started: 0, acknowledged: 0, offered: 0, synced: Txg(0) };
        let mut moment = book.moments.last().copied().unwrap_or(first);
        moment.synced = self.txgs.synced_txg();
        change(&mut book, &mut moment);
        self.sim.mark(book.moments.len() as u64);
        book.moments.push(moment);
    }
}

impl Log for Clerk {
    fn is_wanted(&self) -> bool {
        self.log.is_wanted()
    }
    fn note(&self, itx: Itx, tx: &Tx) {
        self.log.note(itx, tx);
    }
    fn promote(&self, object: ObjectId) {
        self.log.promote(object);
    }
    fn forget(&self, object: ObjectId) {
        self.log.forget(object);
    }
    fn commit(&self, object: Option<ObjectId>) -> Result<(), DmuError> {
        self.mark(|book, moment| {
            let node = object.and_then(|object| book.objects.get(&object).copied());
            (_, moment.offered) = book.ledger.offer(node, moment.synced, &book.model);
        });
        self.log.commit(object)?;
        self.mark(|_, moment| moment.acknowledged = moment.offered);
        Ok(())
    }
}

/// Opens the file system for writing, with its log, as the daemon's mounts are.
pub fn mount(pool: &Pool, dress: impl FnOnce(Arc<dyn Log>) -> Arc<dyn Log>) -> Result<Arc<Zfs>, Trouble> {
    let handle = pool.dsl().hold(FILE_SYSTEM)?;
    let zfs = Zfs::open(&handle.objset()?, Some(pool.txgs().clone()), Settings { atime: false, ..Settings::default() })?;
    zfs.drain_unlinked()?;
    let source: Weak<Zfs> = Arc::downgrade(&zfs);
    let tells_xattrs = handle.logs_xattrs();
    zfs.set_log(dress(handle.intent_log(source)?), tells_xattrs);
    zfs.set_space_source(Arc::new(handle));
    Ok(zfs)
}

/// Runs a program of `operations` operations; at its end the machine stops.
///
/// # Errors
/// What failed, or what was acknowledged and is not in the log.
pub fn record(layout: Layout, seed: u64, operations: usize) -> Result<Recorded, String> {
    let said = |error: Trouble| error.to_string();
    let machine = Machine::new(layout, seed);
    let pool = machine.create(layout).map_err(said)?;
    pool.sync().map_err(|error| error.to_string())?;
    let mut clerk = None;
    let book = Book { model: Model::default(), ledger: Ledger::default(), moments: Vec::new(), objects: HashMap::new() };
    let zfs = mount(&pool, |log| {
        let new = Clerk { log, sim: machine.sim.clone(), txgs: pool.txgs().clone(), book: Mutex::new(book) };
        clerk.insert(Arc::new(new)).clone()
    })
    .map_err(said)?;
    let clerk = clerk.ok_or("no log")?;
    machine.sim.start_recording();
    let mut runner =
        Runner { pool: &pool, zfs, clerk: clerk.clone(), objects: HashMap::new(), models: Vec::new(), txgs: Vec::new(), ops: Vec::new() };
    let root = runner.zfs.root();
    runner.meet(0, root);
    runner.models.push(clerk.book.lock().model.clone());
    clerk.mark(|_, _| ());
    let mut program = Program::new(seed);
    for _ in 0..operations {
        runner.step(&mut program)?;
    }
    let Runner { models, txgs, ops, .. } = runner;
    let recording = machine.sim.take_recording();
    let mut book = clerk.book.lock();
    let (moments, ledger) = (std::mem::take(&mut book.moments), std::mem::take(&mut book.ledger));
    Ok(Recorded { layout, seed, recording, moments, models, txgs, logged: ledger.into_logged(), ops })
}

/// Engine's side of a program.
struct Runner<'a> {
    pool: &'a Pool,
    zfs: Arc<Zfs>,
    clerk: Arc<Clerk>,
    objects: HashMap<NodeId, ObjectId>,
    models: Vec<Model>,
    txgs: Vec<Txg>,
    ops: Vec<Op>,
}

impl Runner<'_> {
    fn meet(&mut self, node: NodeId, object: ObjectId) {
        self.objects.insert(node, object);
        self.clerk.book.lock().objects.insert(object, node);
    }

    fn node(&self, node: NodeId) -> Result<Node, Trouble> {
        Ok(self.zfs.node(self.objects.get(&node).copied().unwrap_or_default())?)
    }

    fn step(&mut self, program: &mut Program) -> Result<(), String> {
        let number = self.ops.len();
        let open = self.pool.txgs().open_txg();
        let mut op = None;
        self.clerk.mark(|book, moment| {
            let next = program.plan(&book.model);
            imagine(&mut book.model, &next);
            book.ledger.note(number, &next, open, &book.model);
            moment.started = number + 1;
            op = Some(next);
        });
        let op = op.ok_or("no operation")?;
        let model = self.clerk.book.lock().model.clone();
        self.perform(&op, &model).map_err(|error| format!("operation {number}, {op:?}: {error}"))?;
        self.models.push(model);
        self.txgs.push(open);
        let wanted = match &op {
            Op::Fsync(node) => Some(Some(*node)),
            Op::Write(node, _, _, how) if how.is_synchronous() => Some(Some(*node)),
            Op::SyncAll | Op::Txg => Some(None),
            // Whatever is one operation here is one txg's.
            _ if self.pool.txgs().open_txg() != open => return Err(format!("operation {number} went over a txg")),
            _ => None,
        };
        let synced = self.pool.txgs().synced_txg();
        if let Some(node) = wanted {
            let promise = self.clerk.book.lock().ledger.check_promise(node, synced);
            promise.map_err(|why| format!("operation {number}, {}: {why}", words(&op)))?;
        }
        self.ops.push(op);
        self.clerk.mark(|_, _| ());
        Ok(())
    }

    fn perform(&mut self, op: &Op, model: &Model) -> Result<(), Trouble> {
        match op {
            Op::Create(directory, name, contents) => {
                let made = self.create(*directory, name, contents)?;
                if let Some(node) = model.lookup(*directory, name) {
                    self.meet(node, made);
                }
            }
            Op::Write(node, offset, bytes, how) => self.write(&self.node(*node)?, *offset, bytes, *how)?,
            Op::Truncate(node, size) => self.zfs.truncate(&self.node(*node)?, *size as u64)?,
            Op::Punch(node, offset, length) => {
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
            Op::Txg => self.pool.sync()?,
        }
        Ok(())
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

    fn rename(&self, from: &program::At, to: &program::At, mode: RenameMode) -> Result<(), Trouble> {
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

/// Operation in words, without the bytes of writes.
fn words(op: &Op) -> String {
    match op {
        Op::Write(node, offset, bytes, how) => format!("Write({node}, {offset}, {} bytes, {how:?})", bytes.len()),
        Op::Attribute(node, name, value) => format!("Attribute({node}, {name}, {:?} bytes)", value.as_ref().map(Vec::len)),
        other => format!("{other:?}"),
    }
}
