//! What a txg did to a block of an object: new bytes in memory, or on disk already.

use super::form::Form;
use crate::memory::{Counted, What};
use abd::Abd;
use exec::{Mutex, MutexGuard};
use ondisk::BlockPtr;
use std::sync::Arc;

/// The bytes of a dirty block. Beyond `valid` they are unspecified and stand for zeros: a block that grows by small
/// appends is not cleared first.
#[derive(Debug)]
struct Filling {
    abd: Abd,
    valid: usize,
    /// Form of bytes that are stored as they are; None of logical ones.
    form: Option<Form>,
}

/// A modified block of one txg. Written to only under a hold on that txg.
#[derive(Debug)]
pub(crate) struct DirtyBlock {
    filling: Mutex<Filling>,
    /// True when the bytes of the block count as dirty bytes.
    pub charged: bool,
    _counted: Counted,
}

fn counted() -> Counted {
    Counted::new(What::Dbuf, size_of::<DirtyBlock>())
}

impl DirtyBlock {
    /// A block with these bytes.
    pub(crate) fn new(abd: Abd, charged: bool) -> DirtyBlock {
        DirtyBlock { filling: Mutex::new(Filling { valid: abd.len(), abd, form: None }), charged, _counted: counted() }
    }

    /// A block with bytes that are stored as they are.
    pub(crate) fn stored(abd: Abd, form: Form, charged: bool) -> DirtyBlock {
        DirtyBlock { filling: Mutex::new(Filling { valid: abd.len(), abd, form: Some(form) }), charged, _counted: counted() }
    }

    /// A block of zeros that was not cleared yet.
    pub(crate) fn blank(size: usize, charged: bool) -> DirtyBlock {
        DirtyBlock { filling: Mutex::new(Filling { abd: Abd::scratch(size), valid: 0, form: None }), charged, _counted: counted() }
    }

    /// Size of the block in bytes.
    pub(crate) fn len(&self) -> usize {
        let filling = self.filling.lock();
        filling.form.map_or(filling.abd.len(), |form| form.lsize)
    }

    /// All its bytes, shared.
    pub(crate) fn data(&self) -> Abd {
        let mut filling = self.opened();
        filling.complete();
        filling.abd.clone()
    }

    /// All its bytes, shared, as they are to be written; with a form they are those that are stored.
    pub(crate) fn to_write(&self) -> (Abd, Option<Form>) {
        let mut filling = self.filling.lock();
        filling.complete();
        (filling.abd.clone(), filling.form)
    }

    /// Bytes of the block, logical ones where they can be had: somebody looks at them, or changes them.
    fn opened(&self) -> MutexGuard<'_, Filling> {
        let mut filling = self.filling.lock();
        if let Some(abd) = filling.form.and_then(|form| form.open(&filling.abd)) {
            *filling = Filling { valid: abd.len(), abd, form: None };
        }
        filling
    }

    /// True when every byte is zero.
    pub(crate) fn is_zero(&self) -> bool {
        let filling = self.opened();
        let mut left = filling.valid;
        filling.abd.chunks().all(|chunk| {
            let valid = &chunk[..chunk.len().min(left)];
            left -= valid.len();
            abd::slice_is_zero(valid)
        })
    }

    /// Copies from it without taking a share (which would make the next write copy the block).
    pub(crate) fn copy_to(&self, offset: usize, out: &mut [u8]) {
        let filling = self.opened();
        let have = filling.valid.saturating_sub(offset).min(out.len());
        if have > 0 {
            filling.abd.copy_to(offset, &mut out[..have]);
        }
        out[have..].fill(0);
    }

    /// Overwrites a part.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let mut filling = self.opened();
        let valid = filling.valid;
        let end = offset + bytes.len();
        if offset > valid {
            filling.abd.make_mut()[valid..offset].fill(0);
        }
        filling.abd.copy_from(offset, bytes);
        filling.valid = valid.max(end);
    }

    /// Zeroes a part.
    pub(crate) fn zero(&self, offset: usize, length: usize) {
        let mut filling = self.opened();
        let end = (offset + length).min(filling.valid);
        if offset < end {
            filling.abd.make_mut()[offset..end].fill(0);
        }
    }

    /// Changes it in place.
    pub(crate) fn modify<R>(&self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut filling = self.opened();
        filling.complete();
        change(filling.abd.make_mut())
    }

    /// Replaces all its bytes.
    pub(crate) fn replace(&self, abd: Abd) {
        *self.filling.lock() = Filling { valid: abd.len(), abd, form: None };
    }
}

impl Filling {
    fn complete(&mut self) {
        if self.valid < self.abd.len() {
            let valid = self.valid;
            self.abd.make_mut()[valid..].fill(0);
            self.valid = self.abd.len();
        }
    }
}

/// A block of one txg that is on disk already: a direct write put it there, or it is another object's, too. Costs no memory to speak of and,
/// when the txg is synced, no data I/O: the pointer goes into the parent (OpenZFS: a dirty record that is overridden, `dr_override_state`).
#[derive(Debug)]
pub(crate) struct Written {
    /// Pointer to the block; a hole when it was all zeros. Whoever drops the record gives the space back, or the reference.
    pub bp: BlockPtr,
    /// True when others refer to the block: the record is a reference that was added in its txg (OpenZFS: `dr_brtwrite`).
    pub is_shared: bool,
}

/// Change of a block by a txg.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    /// New bytes, in memory.
    Data(Arc<DirtyBlock>),
    /// New bytes, on disk.
    Written(Arc<Written>),
}

impl Record {
    /// True when it is of a block of `size` bytes.
    pub(super) fn fits(&self, size: usize) -> bool {
        match self {
            Record::Data(block) => block.len() == size,
            Record::Written(written) => written.bp.is_hole() || written.bp.lsize() == size,
        }
    }

    /// Bytes that count as dirty.
    pub(crate) fn charged_bytes(&self) -> u64 {
        match self {
            Record::Data(block) if block.charged => block.len() as u64,
            _ => 0,
        }
    }
}

/// Records that a change took out: what they hold is given back when the lock is released.
#[derive(Debug, Default)]
pub(crate) struct Dropped(Vec<Record>);

impl Dropped {
    pub(crate) fn push(&mut self, record: Option<Record>) {
        self.0.extend(record);
    }
    /// Bytes that counted as dirty.
    pub(crate) fn charged_bytes(&self) -> u64 {
        self.0.iter().map(Record::charged_bytes).sum()
    }
    /// Blocks on disk that nobody refers to any more.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &BlockPtr> {
        self.on_disk(false)
    }
    /// Blocks on disk that others refer to.
    pub(crate) fn shared(&self) -> impl Iterator<Item = &BlockPtr> {
        self.on_disk(true)
    }
    fn on_disk(&self, is_shared: bool) -> impl Iterator<Item = &BlockPtr> {
        let written = self.0.iter().filter_map(|record| if let Record::Written(written) = record { Some(written) } else { None });
        let wanted = written.filter(move |written| written.is_shared == is_shared).map(|written| &written.bp);
        wanted.filter(|bp| !bp.is_hole() && !bp.is_embedded())
    }
}
