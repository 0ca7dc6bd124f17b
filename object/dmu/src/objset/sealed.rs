//! Object sets that come raw: their meta-dnode has the form that MACs cover, and so have its blocks (OpenZFS: `dsl_crypto_recv_raw_objset_sync`).

use super::Objset;
use crate::dnode::Marks;
use crate::{DmuError, ObjsetEnv, ObjsetProps, Tx};
use ondisk::{
    BlockId, BlockPtr, Checksum, Compression, DNODE_BLOCK_PTRS_MAX, DNODE_SLOTS_PER_BLOCK, INDIRECT_SHIFT_MAX, INDIRECT_SHIFT_MIN,
    ObjectId, ObjsetType, Txg,
};
use std::sync::Arc;

/// Most levels that a tree of blocks can have (OpenZFS: `DN_MAX_LEVELS`).
const LEVELS_MAX: u8 = 12;

/// Form of a meta-dnode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaForm {
    /// Levels of its tree.
    pub levels: u8,
    /// log2 of the size of its indirect blocks.
    pub indirect_shift: u8,
    /// Block pointers in it.
    pub block_ptr_count: u8,
    /// Largest block of dnodes.
    pub max_block: BlockId,
    /// Checksum of its own.
    pub checksum: Checksum,
    /// Compression of its own.
    pub compression: Compression,
}

impl MetaForm {
    /// Form of a new object set's, with so many levels.
    pub(super) fn new(levels: u8) -> MetaForm {
        MetaForm {
            levels,
            indirect_shift: INDIRECT_SHIFT_MAX,
            block_ptr_count: DNODE_BLOCK_PTRS_MAX as u8,
            max_block: BlockId(0),
            checksum: Checksum::INHERIT,
            compression: Compression::INHERIT,
        }
    }

    /// True for a form that a meta-dnode can have.
    pub fn is_possible(&self) -> bool {
        (1..=LEVELS_MAX).contains(&self.levels)
            && (INDIRECT_SHIFT_MIN..=INDIRECT_SHIFT_MAX).contains(&self.indirect_shift)
            && (1..=DNODE_BLOCK_PTRS_MAX).contains(&usize::from(self.block_ptr_count))
            && self.max_block.0 < 1 << (ondisk::OBJECT_NUMBER_SHIFT - 5)
    }
}

impl Objset {
    /// Makes an empty object set that comes raw, in syncing context.
    ///
    /// # Errors
    /// [`DmuError::Invalid`] for an impossible form.
    pub fn create_sealed(
        env: ObjsetEnv,
        (kind, props): (ObjsetType, ObjsetProps),
        (form, portable_mac): (&MetaForm, [u8; 32]),
        tx: &Tx,
    ) -> Result<Arc<Objset>, DmuError> {
        if !form.is_possible() {
            return Err(DmuError::Invalid);
        }
        let objset = Objset::create_as(env, (kind, props), form, tx)?;
        objset.seal(form, portable_mac, tx)?;
        Ok(objset)
    }

    /// Opens an object set whose dnodes nobody here can read, to go on with what comes raw.
    ///
    /// # Errors
    /// Those of [`Objset::open`].
    pub fn open_sealed(env: ObjsetEnv, root: BlockPtr, props: ObjsetProps) -> Result<Arc<Objset>, DmuError> {
        let objset = Objset::open(env, root, props)?;
        objset.context().sealed.begin();
        Ok(objset)
    }

    /// True for an object set that comes raw, or came.
    pub fn is_sealed(&self) -> bool {
        self.context().sealed.is_sealed()
    }

    /// True when a meta-dnode of this form has the object set's blocks where they are.
    pub fn has_form(&self, form: &MetaForm) -> bool {
        let (core, tree) = self.meta().contents.record_at(Txg(u64::MAX));
        form.is_possible()
            && (tree.levels.max(core.levels_min), core.indirect_shift, core.block_ptr_count)
                == (form.levels, form.indirect_shift, form.block_ptr_count)
    }

    /// Gives the object set what its MAC covers besides its objects, in syncing context.
    ///
    /// # Errors
    /// [`DmuError::Invalid`] unless [`Objset::has_form`].
    pub fn seal(&self, form: &MetaForm, portable_mac: [u8; 32], tx: &Tx) -> Result<(), DmuError> {
        if !self.has_form(form) {
            return Err(DmuError::Invalid);
        }
        self.context().sealed.begin();
        self.meta().change(tx, |state| {
            let core = &mut state.core;
            (core.checksum, core.compression, core.max_block) = (form.checksum, form.compression, form.max_block.0);
            Ok(())
        })?;
        self.change_head(tx, |head| head.set_portable_mac(portable_mac, tx.txg()))
    }

    /// Takes the marks of the block of dnodes that begins with `first`; it is written in the transaction's txg.
    ///
    /// # Errors
    /// [`DmuError::Invalid`] for a number that no block begins with.
    pub fn note_marks(&self, first: ObjectId, marks: Marks, tx: &Tx) -> Result<(), DmuError> {
        let slots = DNODE_SLOTS_PER_BLOCK as u64;
        if !first.0.is_multiple_of(slots) || first.0 >> ondisk::OBJECT_NUMBER_SHIFT != 0 {
            return Err(DmuError::Invalid);
        }
        self.context().sealed.note(first.0 / slots, marks, tx.txg());
        self.change_head(tx, |head| head.set_dirty(tx.txg()))
    }

    /// Has the blocks of dnodes written that get other marks in a txg.
    pub(crate) fn touch_marked(&self, txg: Txg) -> Result<(), DmuError> {
        let sealed = &self.context().sealed;
        for block in sealed.touched(txg) {
            self.meta().will_modify(BlockId(block), &Tx::syncing(txg))?;
        }
        sealed.took(txg);
        Ok(())
    }
}
