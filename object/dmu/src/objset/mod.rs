//! An object set: its block, its meta-dnode, the dnodes in memory, and what of it is dirty.

mod accounting;
mod cache;
mod head;
mod new_object;
mod sealed;
mod slots;
mod table;

use crate::dnode::{Context, Core, Tree};
use crate::special::{SPECIAL_OBJECTS, is_own};
use crate::{BlockIo, DmuError, Dnode, DnodeInfo, ObjsetEnv, ObjsetProps, Tx};
use accounting::Accounting;
use head::Head;
use ondisk::{
    BlockPtr, DNODE_BLOCK_BYTES, INDIRECT_SHIFT_MAX, META_DNODE_OBJECT, OBJECT_NUMBER_SHIFT, ObjectId, ObjectType, ObjsetId, ObjsetPhys,
    ObjsetType, Txg, ZilHeader,
};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use table::DnodeTable;

pub(crate) use accounting::OwnerCharges;
pub use accounting::{ObjectOwner, ObjsetHook, OwnerDelta};
pub use new_object::NewObject;
pub use sealed::MetaForm;
pub(crate) use slots::count_dnodes;

/// An object set in memory. All methods may be called from any thread.
pub struct Objset {
    this: Weak<Objset>,
    kind: ObjsetType,
    context: Arc<Context>,
    table: DnodeTable,
    head: Head,
    accounting: Accounting,
    /// Some name added since the opening has more than 255 bytes.
    has_long_names: AtomicBool,
}

impl std::fmt::Debug for Objset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Objset {{ id: {}, kind: {} }}", self.id(), self.kind)
    }
}

impl Drop for Objset {
    /// Whoever owns an object set that is dirty keeps it until it is synced, unless the pool is abandoned: then its dirty dnodes
    /// would keep themselves alive.
    fn drop(&mut self) {
        self.context.dirty.forget();
    }
}

/// Levels of a new meta-dnode: a data set's reaches every possible object from the start, as OpenZFS wants it; the MOS's
/// grows (OpenZFS: `dmu_objset_create_impl_dnstats`).
fn meta_levels(id: ObjsetId, block_ptr_count: u8) -> u8 {
    if id.0 == 0 {
        return 1;
    }
    let mut levels = 1u32;
    while u128::from(block_ptr_count) << (5 + (levels - 1) * u32::from(INDIRECT_SHIFT_MAX - 7)) < 1 << OBJECT_NUMBER_SHIFT {
        levels += 1;
    }
    levels as u8
}

impl Objset {
    /// Opens the object set whose objset block is at `root`.
    pub fn open(env: ObjsetEnv, root: BlockPtr, props: ObjsetProps) -> Result<Arc<Objset>, DmuError> {
        let context = Context::new(env, props);
        let blocks = &context.blocks;
        let bookmark = blocks.bookmark(META_DNODE_OBJECT, u8::MAX, 0);
        let lost = |error| {
            blocks.io().lost(&root, &blocks.bookmark(META_DNODE_OBJECT, 0, 0), error);
            DmuError::of_block(error, bookmark)
        };
        let block = blocks.io().read(&root, &bookmark).map_err(lost)?;
        let phys = ObjsetPhys::decode(&block.to_vec())?;
        let special = [&phys.userused_dnode, &phys.groupused_dnode, &phys.projectused_dnode];
        let mut dnodes = [None, None, None];
        for ((slot, object), phys) in dnodes.iter_mut().zip(SPECIAL_OBJECTS).zip(special) {
            *slot = phys.as_ref().map(|phys| Dnode::from_phys(&context, object, phys));
        }
        if phys.meta_dnode.data_block_bytes() != DNODE_BLOCK_BYTES {
            return Err(DmuError::NotSupported);
        }
        let meta = Dnode::from_phys(&context, META_DNODE_OBJECT, &phys.meta_dnode);
        Ok(Self::assemble(context, phys.objset_type, (meta, dnodes), Head::from_phys(&phys, root)))
    }

    /// Makes an empty object set, dirty in the transaction's txg.
    pub fn create(env: ObjsetEnv, kind: ObjsetType, props: ObjsetProps, tx: &Tx) -> Result<Arc<Objset>, DmuError> {
        let form = MetaForm::new(meta_levels(env.id, 3));
        Self::create_as(env, (kind, props), &form, tx)
    }

    /// As [`Objset::create`], with a meta-dnode of this form.
    fn create_as(env: ObjsetEnv, (kind, props): (ObjsetType, ObjsetProps), form: &MetaForm, tx: &Tx) -> Result<Arc<Objset>, DmuError> {
        let context = Context::new(env, props);
        context.blocks.check_writable()?;
        let core = Core {
            kind: ObjectType::DNODE,
            bonus_type: ObjectType::NONE,
            bonus: Arc::from([].as_slice()),
            sealed_bonus: None,
            block_size: DNODE_BLOCK_BYTES,
            indirect_shift: form.indirect_shift,
            block_ptr_count: form.block_ptr_count,
            levels_min: form.levels,
            slots: 1,
            checksum: form.checksum,
            compression: form.compression,
            max_block: form.max_block.0,
            has_spill: false,
            freed: false,
        };
        let tree = Tree::empty(&core);
        let meta = Dnode::new(context.clone(), META_DNODE_OBJECT, core, tree);
        context.announce(tx);
        Ok(Self::assemble(context, kind, (meta, [None, None, None]), Head::new(tx.txg(), props.objset_bytes)))
    }

    fn assemble(
        context: Arc<Context>,
        kind: ObjsetType,
        (meta, special): (Arc<Dnode>, [Option<Arc<Dnode>>; 3]),
        head: Head,
    ) -> Arc<Objset> {
        Arc::new_cyclic(|this| Objset {
            this: this.clone(),
            kind,
            table: DnodeTable::new(context.clone(), meta, special),
            context,
            head,
            accounting: Accounting::default(),
            has_long_names: AtomicBool::new(false),
        })
    }

    /// Context that the dnodes of the object set share.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Table of the object set's dnodes.
    pub(crate) fn table(&self) -> &DnodeTable {
        &self.table
    }

    /// The meta-dnode.
    pub(crate) fn meta(&self) -> &Arc<Dnode> {
        self.table.meta()
    }

    /// Fields of the objset block that change besides the dnodes in it.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// User, group and project accounting.
    pub(crate) fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    /// The store of its blocks.
    pub fn io(&self) -> &Arc<dyn BlockIo> {
        self.context.blocks.io()
    }

    /// Number of the object set: the MOS object of the dataset, 0 for the MOS.
    pub fn id(&self) -> ObjsetId {
        self.context.blocks.env.id
    }

    /// File system, volume, MOS …
    pub fn kind(&self) -> ObjsetType {
        self.kind
    }

    /// True when it can't be modified.
    pub fn is_read_only(&self) -> bool {
        self.context.blocks.env.ledger.is_none()
    }

    /// The properties in effect.
    pub fn props(&self) -> ObjsetProps {
        self.context.blocks.props()
    }

    /// Replaces the properties; blocks written from now on follow them.
    pub fn set_props(&self, props: ObjsetProps) {
        self.context.blocks.set_props(props);
    }

    /// Installs the file system's hook for user accounting; objects synced from now on are accounted for.
    pub fn set_hook(&self, hook: Arc<dyn ObjsetHook>) {
        self.set_accounting(Some(hook), 0);
    }

    /// Accounts for the objects of syncs that begin from now on by this hook, or not at all. Records that are written lose the marks of what the flags
    /// `forgets` stand for (see `ondisk::objset_flags`), and what they were charged as such.
    pub fn set_accounting(&self, hook: Option<Arc<dyn ObjsetHook>>, forgets: u64) {
        self.accounting.set_way(hook, forgets);
    }

    /// Flags of what objects are accounted for, of those of an object set (see `ondisk::objset_flags`); 0 without a hook.
    pub fn counts(&self) -> u64 {
        self.accounting.counts()
    }

    /// The object, unless it is freed or its record has the marks that a sync would leave it: those of what is accounted for, and no others.
    ///
    /// # Errors
    /// Those of [`Objset::hold`].
    pub fn unaccounted(&self, object: ObjectId) -> Result<Option<Arc<Dnode>>, DmuError> {
        let dnode = match self.hold(object) {
            Err(DmuError::NoSuchObject) => return Ok(None),
            held => held?,
        };
        let tree = dnode.contents.tree();
        let is_done = tree.exists && self.accounting.is_marked(tree.flags);
        Ok((!is_done).then_some(dnode))
    }

    /// Facts of a dnode that is in memory, and how many hold it; nothing is read for it, and it stays as long as it would.
    pub fn known(&self, object: ObjectId) -> Option<(DnodeInfo, usize)> {
        let dnode = self.table.peek(object)?;
        // The map holds it, and so do we.
        let holds = Arc::strong_count(&dnode).saturating_sub(2);
        Some((dnode.info().ok()?, holds))
    }

    /// The pointer to the objset block as of the last sync.
    pub fn root_bp(&self) -> BlockPtr {
        self.head.root()
    }

    /// Parts of blocks that direct reads took from what the device read of a neighbour had brought, since the opening: number and bytes.
    pub fn shared_direct_reads(&self) -> (u64, u64) {
        let [count, bytes] = &self.context.shared_reads;
        (count.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    }

    /// Objects in use as of the last sync.
    pub fn object_count(&self) -> u64 {
        self.meta().contents.tree().fill()
    }

    /// Flags of the object set (`os_flags`, see `ondisk::objset_flags`).
    pub fn flags(&self) -> u64 {
        self.head.flags()
    }

    /// Replaces the flags.
    pub fn set_flags(&self, flags: u64, tx: &Tx) -> Result<(), DmuError> {
        self.change_head(tx, |head| head.set_flags(flags, tx.txg()))
    }

    /// The intent log's header.
    pub fn zil_header(&self) -> ZilHeader {
        self.head.zil_header()
    }

    /// Replaces the intent log's header.
    pub fn set_zil_header(&self, header: ZilHeader, tx: &Tx) -> Result<(), DmuError> {
        self.change_head(tx, |head| head.set_zil_header(header, tx.txg()))
    }

    fn change_head(&self, tx: &Tx, change: impl FnOnce(&Head)) -> Result<(), DmuError> {
        self.context.blocks.check_writable()?;
        change(&self.head);
        self.context.announce(tx);
        Ok(())
    }

    /// Makes an object at a free number.
    pub fn allocate_object(&self, new: NewObject, tx: &Tx) -> Result<Arc<Dnode>, DmuError> {
        self.table.allocate(new, tx)
    }

    /// Makes an object at this number (also the accounting objects -1, -2, -3).
    pub fn claim_object(&self, object: ObjectId, new: NewObject, tx: &Tx) -> Result<Arc<Dnode>, DmuError> {
        if is_own(object) {
            self.head.make_room(self.props().objset_bytes);
        }
        self.table.claim(object, new, tx)
    }

    /// Has the numbers of objects that are freed rest until their txg is on disk, not only synced: the operations of all txgs that are not on disk
    /// can be done again in one then.
    pub fn rest_numbers(&self) {
        self.table.rest_numbers();
    }

    /// Frees an object and its blocks. Its number can be used again after the txg was synced. The accounting objects stay:
    /// [`DmuError::NotSupported`].
    pub fn free_object(&self, object: ObjectId, tx: &Tx) -> Result<(), DmuError> {
        self.table.free(object, tx)
    }

    /// The object, read when it isn't in memory.
    pub fn hold(&self, object: ObjectId) -> Result<Arc<Dnode>, DmuError> {
        self.table.hold(object)
    }

    /// The first object with a number above `after`, dirty ones included. Start with `ObjectId(0)`.
    pub fn next_object(&self, after: ObjectId) -> Result<Option<ObjectId>, DmuError> {
        self.table.next_object(after)
    }

    /// Numbers of the objects whose dnodes may differ from those of `older`, both as of the last sync: those in blocks of the meta-dnode that
    /// are not the very same in both (OpenZFS: `dmu_diff`, which goes by birth txgs). Meant for snapshots, of which one came out of the other.
    ///
    /// # Errors
    /// Those of reading indirect blocks of both.
    pub fn changed_since(&self, older: &Objset) -> Result<Vec<Range<u64>>, DmuError> {
        self.table.changed_since(&older.table)
    }

    /// True once an object of more than one slot was made since the opening: its dataset needs the feature `large_dnode`, by which
    /// OpenZFS knows that it cannot step from slot to slot.
    pub fn has_large_dnodes(&self) -> bool {
        self.table.has_large()
    }

    /// Notes that a directory gets a name of more than 255 bytes: before the transaction that adds it ends.
    pub fn note_long_name(&self) {
        self.has_long_names.store(true, Ordering::Relaxed);
    }

    /// True once such a name was added since the opening: its dataset needs the feature `longname`, without which names end there.
    pub fn has_long_names(&self) -> bool {
        self.has_long_names.load(Ordering::Relaxed)
    }

    /// True once a micro ZAP got more than 128 KiB since the opening: its dataset needs the feature `large_microzap`, by which OpenZFS knows that it
    /// cannot send it in pieces.
    pub fn has_large_micro_zaps(&self) -> bool {
        self.context.has_large_micro_zaps.load(Ordering::Relaxed)
    }

    /// True when something of `txg` waits to be synced.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        self.context.dirty.has(txg) || self.head.is_dirty(txg) || self.meta().contents.has_changes(txg)
    }

    /// True when something of any txg waits to be synced.
    pub fn has_changes(&self) -> bool {
        !self.context.dirty.is_empty() || self.head.has_changes()
    }

    pub(crate) fn shared(&self) -> Option<Arc<Objset>> {
        self.this.upgrade()
    }
}
