//! [`Object`]: an object with data or keys, whether it exists or not, and what can be seen of it without a transaction.

use crate::device::Device;
use crate::left::Left;
use crate::loan::{Loan, PAGE};
use crate::stats::Count;
use crate::{Fid, OsdError};
use direct_io::Edges;
use dmu::{DmuError, Dnode};
use exec::{Mutex, RwLock};
use ondisk::ObjectType;
use range_lock::{RangeGuard, RangeLock};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zpl::{FILE_BYTES_MAX, Fields, Kept, ZplError};

/// Type of the objects that have keys.
pub(crate) const INDEX: ObjectType = ObjectType::OTN_ZAP_METADATA;

/// Number of blocks of an object that are noted because parts of them came, at most.
const EDGES_MAX: usize = 4096;

/// Node that holds an object.
pub(crate) enum Body {
    /// Not known: nobody looked yet.
    Unknown,
    /// No node: the object does not exist.
    Absent,
    /// Node of the object.
    There(Arc<Kept>),
}

/// Object of a device. Everybody who asks the device for one FID has the same.
pub struct Object {
    pub(crate) device: Arc<Device>,
    fid: Fid,
    body: RwLock<Body>,
    ranges: Arc<RangeLock>,
    /// Turns of those who read parts of blocks directly.
    turns: Arc<RangeLock>,
    /// Bytes of the block size that loans were laid out for, 0 without any.
    planned: AtomicU64,
    pub(crate) edges: Mutex<Edges>,
    pub(crate) left: Mutex<Left>,
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Object {{ sequence: {:#x}, object: {} }}", self.fid.sequence, self.fid.object)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.device.forget(self.fid);
    }
}

/// Blocks of an object as they are at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes of a block.
    pub block: u64,
    /// True when the blocks are records: whole ones go past memory.
    pub is_bulk: bool,
    /// True while there is one block, which can grow.
    pub is_single: bool,
}

impl Shape {
    pub(crate) fn of(dnode: &Dnode, record: u64) -> Result<Shape, DmuError> {
        let info = dnode.info()?;
        let (block, is_single) = (info.block_size as u64, info.max_block.0 == 0);
        Ok(Shape { block, is_bulk: block.is_power_of_two() && (block >= record || !is_single), is_single })
    }
}

/// Bytes of the block that an object with this end has: a record when it is longer, else a power of two (OpenZFS's files have any multiple of a
/// sector, which direct writes do not fill).
pub(crate) fn block_for(end: u64, record: u64) -> u64 {
    if end >= record { record } else { end.next_power_of_two().clamp(PAGE.min(record), record) }
}

impl Object {
    pub(crate) fn new(device: &Arc<Device>, fid: Fid) -> Arc<Object> {
        Arc::new(Object {
            device: device.clone(),
            fid,
            body: RwLock::new(Body::Unknown),
            ranges: Arc::default(),
            turns: Arc::default(),
            planned: AtomicU64::new(0),
            edges: Mutex::new(Edges::new(EDGES_MAX)),
            left: Mutex::new(Left::new(device.left_bytes.clone())),
        })
    }

    /// Identifier of the object.
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// Node of the object; None while it does not exist. Reads it when nobody looked yet.
    pub(crate) fn body(&self) -> Result<Option<Arc<Kept>>, OsdError> {
        match &*self.body.read() {
            Body::There(node) => return Ok(Some(node.clone())),
            Body::Absent => return Ok(None),
            Body::Unknown => {}
        }
        let found = self.device.load(self.fid)?;
        let mut body = self.body.write();
        // Somebody may have made or destroyed it meanwhile: then that counts.
        if matches!(*body, Body::Unknown) {
            *body = found.map_or(Body::Absent, |node| Body::There(Arc::new(node)));
        }
        Ok(if let Body::There(node) = &*body { Some(node.clone()) } else { None })
    }

    /// Node of the object, which exists.
    pub(crate) fn there(&self) -> Result<Arc<Kept>, OsdError> {
        self.body()?.ok_or(OsdError::NotFound)
    }

    /// Node of an object that has data, or keys.
    pub(crate) fn there_as(&self, is_index: bool) -> Result<Arc<Kept>, OsdError> {
        let node = self.there()?;
        let is_right = (node.dnode().info()?.kind == INDEX) == is_index && (is_index || node.fields().is_regular());
        if is_right { Ok(node) } else { Err(OsdError::WrongKind) }
    }

    /// Checks that a node still is the object's; who asks has locked some of its bytes, so that it stays that.
    pub(crate) fn check_current(&self, node: &Arc<Kept>) -> Result<(), OsdError> {
        match &*self.body.read() {
            Body::There(now) if Arc::ptr_eq(now, node) => Ok(()),
            _ => Err(OsdError::NotFound),
        }
    }

    /// Notes that the object was made, or destroyed (None), by somebody who has all of its bytes locked.
    pub(crate) fn set_body(&self, node: Option<Arc<Kept>>) {
        if node.is_none() {
            self.planned.store(0, Ordering::Relaxed);
        }
        *self.body.write() = node.map_or(Body::Absent, Body::There);
        self.change_blocks(0..u64::MAX);
    }

    /// Forgets what is remembered of blocks that change.
    pub(crate) fn change_blocks(&self, blocks: Range<u64>) {
        self.edges.lock().forget(blocks.clone());
        self.left.lock().forget(blocks);
    }

    /// Locks a range of bytes.
    pub(crate) fn lock(&self, range: Range<u64>, is_writer: bool) -> RangeGuard {
        self.ranges.lock(&self.device.exec, range, is_writer)
    }

    /// Waits for the turn to read a part of a block: who comes while somebody reads it finds what is left of it.
    pub(crate) fn turn(&self, block: Range<u64>) -> RangeGuard {
        self.turns.lock(&self.device.exec, block, true)
    }

    /// Bytes of the block size that loans were laid out for.
    pub(crate) fn planned(&self) -> u64 {
        self.planned.load(Ordering::Relaxed)
    }

    /// True when the object exists.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn exists(&self) -> Result<bool, OsdError> {
        Ok(self.body()?.is_some())
    }

    /// True when the object has keys, no data.
    ///
    /// # Errors
    /// [`OsdError::NotFound`], those of reading it.
    pub fn is_index(&self) -> Result<bool, OsdError> {
        Ok(self.there()?.dnode().info()?.kind == INDEX)
    }

    /// Attributes of the object.
    ///
    /// # Errors
    /// [`OsdError::NotFound`], those of reading it.
    pub fn attributes(&self) -> Result<Fields, OsdError> {
        Ok(self.there()?.fields())
    }

    /// Value of an extended attribute.
    ///
    /// # Errors
    /// [`OsdError::NotFound`] without the object, [`ZplError::NoAttribute`] without the attribute, those of reading it.
    pub fn xattr(&self, name: &[u8]) -> Result<Vec<u8>, OsdError> {
        let node = self.there()?;
        self.device.zfs.listed_xattr(&node, name)?.ok_or(OsdError::Store(ZplError::NoAttribute))
    }

    /// Names of the extended attributes.
    ///
    /// # Errors
    /// As of [`Object::attributes`].
    pub fn xattrs(&self) -> Result<Vec<Vec<u8>>, OsdError> {
        let node = self.there()?;
        Ok(self.device.zfs.listed_xattrs(&node)?)
    }

    /// Has the block size follow an end, as [`Object::lend`] does, for whoever will write from memory of its own.
    ///
    /// # Errors
    /// [`ZplError::TooBig`] for an end behind the largest object's.
    pub fn plan(&self, end: u64) -> Result<(), OsdError> {
        if end > FILE_BYTES_MAX {
            return Err(OsdError::Store(ZplError::TooBig));
        }
        if end > 0 {
            self.planned.fetch_max(block_for(end, self.device.record_size()), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Buffers for ranges, to be filled and given to [`crate::Running::commit`]. The object need not exist yet; its block size follows the largest end
    /// that anybody asked a buffer for, as long as it has one block.
    ///
    /// # Errors
    /// [`ZplError::TooBig`] for what ends behind the largest object, [`ZplError::Invalid`] for a range that ends before it begins.
    pub fn lend(&self, ranges: &[Range<u64>]) -> Result<Vec<Loan>, OsdError> {
        let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
        if ranges.iter().any(|range| range.start > range.end) {
            return Err(OsdError::Store(ZplError::Invalid));
        }
        self.plan(end)?;
        self.device.stats.add(Count::Lent, ranges.iter().map(|range| range.end - range.start).sum());
        Ok(Loan::make(ranges))
    }
}
