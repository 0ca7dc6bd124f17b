//! Transactions: what they will do is declared, then they are started, then they do it, then they are stopped (Lustre: `osd_trans_*`).

use crate::callbacks::Commit;
use crate::device::Device;
use crate::fid::LMA;
use crate::loan::Loan;
use crate::object::{INDEX, Object};
use crate::{Fid, OsdError};
use abd::Abd;
use dmu::Tx;
use std::ops::Range;
use std::sync::Arc;
use zpl::{Fields, Kept, NewNode, SpaceSource, TxKind, ZplError};

/// Bytes that names, attributes and indirect blocks of one operation dirty, at most.
const OVERHEAD_BYTES: u64 = 64 << 10;
/// Type of objects with data.
const REGULAR: u64 = 0o100_000;
/// Permissions, with those bits that are more than that.
const PERMISSIONS: u64 = 0o7777;
/// Index of the change time among an object's times.
const CTIME: usize = 2;

/// Properties of a new object.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewObject {
    /// Permissions.
    pub mode: u32,
    /// User who is charged for it.
    pub uid: u32,
    /// Group that is charged for it.
    pub gid: u32,
    /// True for one that has keys instead of data.
    pub is_index: bool,
}

/// Attributes to change; None leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permissions.
    pub mode: Option<u32>,
    /// User who is charged for it.
    pub uid: Option<u32>,
    /// Group that is charged for it.
    pub gid: Option<u32>,
    /// Access, modification and change times, in seconds and nanoseconds; the last becomes the present where it is left.
    pub times: [Option<zpl::Time>; 3],
}

impl Change {
    fn apply(&self, fields: &mut Fields, now: zpl::Time) {
        if let Some(mode) = self.mode {
            fields.mode = fields.mode & !PERMISSIONS | u64::from(mode) & PERMISSIONS;
        }
        fields.uid = self.uid.map_or(fields.uid, u64::from);
        fields.gid = self.gid.map_or(fields.gid, u64::from);
        fields.times[CTIME] = now;
        for (time, wanted) in fields.times.iter_mut().zip(self.times) {
            *time = wanted.unwrap_or(*time);
        }
    }
}

/// Operation that was declared.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Create,
    Destroy,
    Write(Range<u64>),
    Punch(Range<u64>),
    Attributes,
    Xattr(usize),
    Index,
}

impl What {
    /// True when it is declared by `other`.
    fn is_in(&self, other: &What) -> bool {
        match (self, other) {
            (What::Write(own), What::Write(all)) | (What::Punch(own), What::Punch(all)) => all.start <= own.start && own.end <= all.end,
            (What::Xattr(own), What::Xattr(all)) => own <= all,
            (own, other) => own == other,
        }
    }

    /// Bytes that it dirties, at most; None when it frees more.
    fn bytes(&self, record: u64) -> Option<u64> {
        match self {
            What::Destroy | What::Punch(_) => None,
            What::Write(range) => {
                let end = range.end.checked_next_multiple_of(record).unwrap_or(u64::MAX);
                Some((end - (range.start - range.start % record)).saturating_add(OVERHEAD_BYTES))
            }
            What::Xattr(bytes) => Some(*bytes as u64 + OVERHEAD_BYTES),
            What::Create | What::Attributes | What::Index => Some(OVERHEAD_BYTES),
        }
    }
}

/// Transaction that is not started. What it declares may be more than it will do.
pub struct Transaction {
    device: Arc<Device>,
    declared: Vec<(Arc<Object>, What)>,
    client: Option<u64>,
    commits: Vec<Commit>,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transaction {{ declared: {:?} }}", self.declared)
    }
}

impl Device {
    /// Begins a transaction.
    pub fn begin(self: &Arc<Self>) -> Transaction {
        Transaction { device: self.clone(), declared: Vec::new(), client: None, commits: Vec::new() }
    }
}

impl Transaction {
    fn declare(mut self, object: &Arc<Object>, what: What) -> Transaction {
        self.declared.push((object.clone(), what));
        self
    }

    /// Declares that an object will be made. The folders of its sequence are made at the start, in transactions of their own.
    #[must_use]
    pub fn create(self, object: &Arc<Object>) -> Transaction {
        self.declare(object, What::Create)
    }

    /// Declares that an object will be destroyed.
    #[must_use]
    pub fn destroy(self, object: &Arc<Object>) -> Transaction {
        self.declare(object, What::Destroy)
    }

    /// Declares that bytes of a range will be written. The object may be one that the transaction will make.
    #[must_use]
    pub fn write(self, object: &Arc<Object>, range: Range<u64>) -> Transaction {
        self.declare(object, What::Write(range))
    }

    /// Declares that a range will be freed; with `u64::MAX` as its end, that the object will end where it begins.
    #[must_use]
    pub fn punch(self, object: &Arc<Object>, range: Range<u64>) -> Transaction {
        self.declare(object, What::Punch(range))
    }

    /// Declares that attributes will be changed.
    #[must_use]
    pub fn attributes(self, object: &Arc<Object>) -> Transaction {
        self.declare(object, What::Attributes)
    }

    /// Declares that extended attributes will be set to values of up to `bytes`, or removed.
    #[must_use]
    pub fn xattr(self, object: &Arc<Object>, bytes: usize) -> Transaction {
        self.declare(object, What::Xattr(bytes))
    }

    /// Declares that keys will be inserted or deleted.
    #[must_use]
    pub fn index(self, object: &Arc<Object>) -> Transaction {
        self.declare(object, What::Index)
    }

    /// Lets the transaction use what a client was granted.
    #[must_use]
    pub fn spend(mut self, client: u64) -> Transaction {
        self.client = Some(client);
        self
    }

    /// Adds a callback: called once the transaction is on disk, behind those of all transactions that were stopped before, or when it never will be.
    /// One that is dropped before it is started calls nobody.
    #[must_use]
    pub fn on_commit(mut self, commit: Commit) -> Transaction {
        self.commits.push(commit);
        self
    }

    /// Starts the transaction: reads what it needs of the devices, finds room for it, and waits for what is dirty where it must.
    ///
    /// # Errors
    /// [`ZplError::NoSpace`], [`ZplError::OverQuota`], those of the devices. The callbacks were called then.
    pub fn start(mut self) -> Result<Running, OsdError> {
        let commits = std::mem::take(&mut self.commits);
        match self.assign() {
            Ok((tx, spent)) => {
                let Transaction { device, declared, .. } = self;
                Ok(Running { tx: Some(tx), device, declared, commits, spent })
            }
            Err(error) => {
                commits.into_iter().for_each(|commit| commit(false));
                Err(error)
            }
        }
    }

    /// Opens the transaction; gives it with the bytes that were spent of a grant.
    fn assign(&self) -> Result<(Tx, u64), OsdError> {
        let device = &self.device;
        device.zfs.settle();
        self.declared.iter().try_for_each(|(object, what)| prepare(device, object, what))?;
        let record = device.record_size();
        let writes: Vec<u64> = self.declared.iter().filter_map(|(_, what)| what.bytes(record)).collect();
        let bytes = writes.iter().fold(OVERHEAD_BYTES, |sum, bytes| sum.saturating_add(*bytes));
        let kind = if writes.is_empty() { TxKind::Frees } else { TxKind::Writes };
        let spent = match kind {
            TxKind::Frees => 0,
            TxKind::Writes => {
                let available = device.zfs.space().available;
                device.grants.spend(self.client, bytes, available).ok_or(OsdError::Store(ZplError::NoSpace))?
            }
        };
        match SpaceSource::assign(&device.dataset, device.dataset.pool().txgs(), bytes, kind) {
            Ok(tx) => Ok((tx, spent)),
            Err(error) => {
                device.grants.settle(spent);
                Err(error.into())
            }
        }
    }
}

/// Reads what an operation will need, so that its transaction does not wait for it, and looks at quotas.
fn prepare(device: &Device, object: &Object, what: &What) -> Result<(), OsdError> {
    if *what == What::Create {
        device.folders(object.fid(), true)?;
    }
    let Some(node) = object.body()? else { return Ok(()) };
    match what {
        What::Write(range) => {
            device.zfs.check_quota(&node)?;
            let length = usize::try_from(range.end.saturating_sub(range.start)).map_err(|_| OsdError::Store(ZplError::TooBig))?;
            node.dnode().prepare_write(range.start, length)?;
        }
        What::Punch(range) => node.dnode().prepare_free(range.start, range.end.saturating_sub(range.start))?,
        What::Create | What::Destroy | What::Attributes | What::Xattr(_) | What::Index => {}
    }
    Ok(())
}

/// Transaction that is started: its operations are in one txg. It ends when it is dropped.
pub struct Running {
    tx: Option<Tx>,
    device: Arc<Device>,
    /// Keeps the objects until the transaction is over.
    declared: Vec<(Arc<Object>, What)>,
    commits: Vec<Commit>,
    /// Bytes that were spent of a grant.
    spent: u64,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running {{ tx: {:?}, declared: {:?} }}", self.tx, self.declared)
    }
}

impl Running {
    /// Transaction of an operation that was declared.
    fn allowed(&self, object: &Arc<Object>, what: &What) -> Result<&Tx, OsdError> {
        let is_declared = self.declared.iter().any(|(other, declared)| Arc::ptr_eq(object, other) && what.is_in(declared));
        self.tx.as_ref().filter(|_| is_declared).ok_or(OsdError::Undeclared)
    }

    /// Folder of an object in its sequence, which is in memory since the object was declared.
    fn in_folder<R>(&self, fid: Fid, act: impl FnOnce(&Kept, &[u8]) -> Result<R, ZplError>) -> Result<R, OsdError> {
        let folders = self.device.folders(fid, false)?.ok_or(OsdError::NotFound)?;
        Ok(act(&folders[fid.folder()], fid.name().as_bytes())?)
    }

    /// Makes an object.
    ///
    /// # Errors
    /// [`OsdError::Undeclared`], [`OsdError::Exists`], those of the file system: nothing was made then.
    pub fn create(&self, object: &Arc<Object>, new: NewObject) -> Result<(), OsdError> {
        let tx = self.allowed(object, &What::Create)?;
        let fid = object.fid();
        let lists = [(LMA, fid.to_lma())];
        let mode = REGULAR | u64::from(new.mode) & PERMISSIONS;
        let new_node = NewNode { mode, uid: new.uid, gid: new.gid, lists: &lists, ..NewNode::default() };
        let zfs = &self.device.zfs;
        let _guard = object.lock(0..u64::MAX, true);
        let node = self.in_folder(fid, |folder, name| zfs.make_within(folder, name, &new_node, tx))?;
        if new.is_index
            && let Err(error) = self.make_index(&node, tx)
        {
            self.in_folder(fid, |folder, name| zfs.remove_within(folder, name, &node, tx))?;
            return Err(error);
        }
        object.set_body(Some(Arc::new(node)));
        Ok(())
    }

    /// Makes a table of keys of a new object.
    fn make_index(&self, node: &Kept, tx: &Tx) -> Result<(), OsdError> {
        node.dnode().set_kind(INDEX, tx)?;
        Ok(zap::format(node.dnode(), self.device.exec.random_u64(), tx)?)
    }

    /// Destroys an object. Its space is free some txgs after everybody let go of it.
    ///
    /// # Errors
    /// [`OsdError::Undeclared`], [`OsdError::NotFound`], those of the file system.
    pub fn destroy(&self, object: &Arc<Object>) -> Result<(), OsdError> {
        let tx = self.allowed(object, &What::Destroy)?;
        let _guard = object.lock(0..u64::MAX, true);
        let node = object.there()?;
        let zfs = &self.device.zfs;
        self.in_folder(object.fid(), |folder, name| zfs.remove_within(folder, name, &node, tx))?;
        object.set_body(None);
        Ok(())
    }

    /// Writes bytes, and waits for the devices of those that go to them at once. The buffer may be kept.
    ///
    /// # Errors
    /// [`OsdError::Undeclared`], [`OsdError::NotFound`], [`OsdError::WrongKind`] for an index, [`ZplError::TooBig`], those of the devices: any part
    /// may be there then.
    pub fn write(&self, object: &Arc<Object>, offset: u64, data: &Abd) -> Result<(), OsdError> {
        let end = offset.saturating_add(data.len() as u64);
        let tx = self.allowed(object, &What::Write(offset..end))?;
        object.put(offset, data, tx)
    }

    /// Writes what loans were filled with, without a copy.
    ///
    /// # Errors
    /// As of [`Running::write`].
    pub fn commit(&self, object: &Arc<Object>, loans: Vec<Loan>) -> Result<(), OsdError> {
        Loan::runs(loans).iter().try_for_each(|(offset, data)| self.write(object, *offset, data))
    }

    /// Frees a range: it reads as zeros. With `u64::MAX` as its end the object ends where it begins.
    ///
    /// # Errors
    /// As of [`Running::write`].
    pub fn punch(&self, object: &Arc<Object>, range: &Range<u64>) -> Result<(), OsdError> {
        let tx = self.allowed(object, &What::Punch(range.clone()))?;
        if range.start > range.end {
            return Err(OsdError::Store(ZplError::Invalid));
        }
        object.free(range, tx)
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// [`OsdError::Undeclared`], [`OsdError::NotFound`], those of the file system.
    pub fn set_attributes(&self, object: &Arc<Object>, change: &Change) -> Result<(), OsdError> {
        let tx = self.allowed(object, &What::Attributes)?;
        let (node, now) = (object.there()?, self.device.exec.wall_clock());
        Ok(self.device.zfs.change_within(&node, tx, |fields| change.apply(fields, now))?)
    }

    /// Sets an extended attribute, or removes it (None).
    ///
    /// # Errors
    /// [`OsdError::Undeclared`], [`OsdError::NotFound`] without the object, [`ZplError::NoAttribute`] without what is to be removed,
    /// [`ZplError::ValueTooBig`] when all of them have no room.
    pub fn set_xattr(&self, object: &Arc<Object>, name: &[u8], value: Option<&[u8]>) -> Result<(), OsdError> {
        let tx = self.allowed(object, &What::Xattr(value.map_or(0, <[u8]>::len)))?;
        let node = object.there()?;
        Ok(self.device.zfs.set_xattr_within(&node, name, value, tx)?)
    }

    /// Inserts a key with its record.
    ///
    /// # Errors
    /// [`OsdError::Undeclared`], [`OsdError::NotFound`] without the object, [`OsdError::WrongKind`] for one with data, [`OsdError::Exists`],
    /// [`ZplError::Invalid`] for what no key or record can be.
    pub fn insert(&self, object: &Arc<Object>, key: &[u8], record: &[u8]) -> Result<(), OsdError> {
        object.insert(key, record, self.allowed(object, &What::Index)?)
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// As of [`Running::insert`]; [`OsdError::NotFound`] without the key, too.
    pub fn delete(&self, object: &Arc<Object>, key: &[u8]) -> Result<(), OsdError> {
        object.remove(key, self.allowed(object, &What::Index)?)
    }

    /// Adds a callback as [`Transaction::on_commit`] does.
    pub fn on_commit(&mut self, commit: Commit) {
        self.commits.push(commit);
    }

    /// Stops the transaction: it is on disk with its txg.
    pub fn stop(self) {}
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(tx) = self.tx.take() else { return };
        let mut commits = std::mem::take(&mut self.commits);
        if self.spent > 0 {
            let (grants, spent) = (self.device.grants.clone(), self.spent);
            commits.push(Box::new(move |_| grants.settle(spent)));
        }
        self.device.callbacks.owe(&tx, commits);
        drop(tx);
        self.declared.clear();
        self.device.zfs.settle();
    }
}
