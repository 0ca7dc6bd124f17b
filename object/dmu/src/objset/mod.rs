//! An object set: its block, its meta-dnode, the dnodes in memory, and what of it is dirty.

mod alloc;
mod cache;

use crate::context::Context;
use crate::state::{Core, Tree};
use crate::sync::OwnerSums;
use crate::{BlockIo, BlockLedger, DmuError, Dnode, DnodeInfo, ObjsetHook, ObjsetProps, Tx};
use alloc::Allocator;
use cache::DnodeCache;
use exec::{Mutex, RwLock};
use ondisk::{
    BlockPtr, Checksum, Compression, DNODE_BLOCK_BYTES, DnodePhys, GROUPUSED_OBJECT, INDIRECT_SHIFT_MAX, META_DNODE_OBJECT,
    OBJECT_NUMBER_SHIFT, OBJSET_BYTES, ObjectId, ObjectType, ObjsetId, ObjsetPhys, ObjsetType, PROJECTUSED_OBJECT, Txg, USERUSED_OBJECT,
    ZilHeader,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

pub use alloc::NewObject;
pub(crate) use alloc::count_dnodes;

/// What an object set is built on.
#[derive(Clone)]
pub struct ObjsetEnv {
    /// Blocks.
    pub io: Arc<dyn BlockIo>,
    /// Accounting of blocks; `None` for a snapshot, which can't be modified.
    pub ledger: Option<Arc<dyn BlockLedger>>,
    /// Its number: the MOS object of the dataset, 0 for the MOS.
    pub id: ObjsetId,
}

/// What of the objset block changes besides the dnodes in it.
pub(crate) struct Head {
    pub zil_header: ZilHeader,
    pub flags: u64,
    pub portable_mac: [u8; 32],
    pub local_mac: [u8; 32],
    pub block_bytes: usize,
    pub root: BlockPtr,
    /// Txgs in which the head itself was changed.
    pub dirty: BTreeSet<Txg>,
}

/// An object set in memory. All methods may be called from any thread.
pub struct Objset {
    this: Weak<Objset>,
    kind: ObjsetType,
    pub(crate) context: Arc<Context>,
    pub(crate) meta: Arc<Dnode>,
    /// The accounting objects -1, -2, -3, once they exist.
    pub(crate) special: Mutex<[Option<Arc<Dnode>>; 3]>,
    pub(crate) head: Mutex<Head>,
    pub(crate) dnodes: DnodeCache,
    pub(crate) allocator: Allocator,
    pub(crate) hook: RwLock<Option<Arc<dyn ObjsetHook>>>,
    /// What owners used more or less by dnodes of a sync that failed later on: the repeated sync settles it.
    pub(crate) unsettled: Mutex<OwnerSums>,
}

impl std::fmt::Debug for Objset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Objset {{ id: {}, kind: {} }}", self.context.env.id, self.kind)
    }
}

impl Drop for Objset {
    /// Whoever owns an object set that is dirty keeps it until it is synced, unless the pool is abandoned: then its dirty dnodes
    /// would keep themselves alive.
    fn drop(&mut self) {
        self.context.forget_dirty();
    }
}

/// Index of an accounting object among the special ones.
pub(crate) fn special_index(object: ObjectId) -> Option<usize> {
    [USERUSED_OBJECT, GROUPUSED_OBJECT, PROJECTUSED_OBJECT].iter().position(|&special| special == object)
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
        let bookmark = context.bookmark(META_DNODE_OBJECT, u8::MAX, 0);
        let lost = |&error: &_| context.env.io.lost(&root, &context.bookmark(META_DNODE_OBJECT, 0, 0), error);
        let block = context.env.io.read(&root, &bookmark).inspect_err(lost)?;
        let phys = ObjsetPhys::decode(&block.to_vec()).map_err(|_| DmuError::Corrupt)?;
        let special = [&phys.userused_dnode, &phys.groupused_dnode, &phys.projectused_dnode];
        let objects = [USERUSED_OBJECT, GROUPUSED_OBJECT, PROJECTUSED_OBJECT];
        let mut dnodes = [None, None, None];
        for ((slot, object), phys) in dnodes.iter_mut().zip(objects).zip(special) {
            *slot = phys.as_ref().map(|phys| dnode_from_phys(&context, object, phys));
        }
        if phys.meta_dnode.data_block_bytes() != DNODE_BLOCK_BYTES {
            return Err(DmuError::NotSupported);
        }
        let head = Head {
            zil_header: phys.zil_header.clone(),
            flags: phys.flags,
            portable_mac: phys.portable_mac,
            local_mac: phys.local_mac,
            block_bytes: phys.block_bytes,
            root,
            dirty: BTreeSet::new(),
        };
        let meta = dnode_from_phys(&context, META_DNODE_OBJECT, &phys.meta_dnode);
        Ok(Self::assemble(context, phys.objset_type, meta, dnodes, head))
    }

    /// Makes an empty object set, dirty in the transaction's txg.
    pub fn create(env: ObjsetEnv, kind: ObjsetType, props: ObjsetProps, tx: &Tx) -> Result<Arc<Objset>, DmuError> {
        let levels = meta_levels(env.id, 3);
        let context = Context::new(env, props);
        context.check_writable()?;
        let core = Core {
            kind: ObjectType::DNODE,
            bonus_type: ObjectType::NONE,
            bonus: Arc::from([].as_slice()),
            block_size: DNODE_BLOCK_BYTES,
            indirect_shift: INDIRECT_SHIFT_MAX,
            block_ptr_count: 3,
            levels_min: levels,
            slots: 1,
            checksum: Checksum::INHERIT,
            compression: Compression::INHERIT,
            max_block: 0,
            has_spill: false,
            freed: false,
        };
        let tree = Tree::empty(&core);
        let meta = Dnode::new(context.clone(), META_DNODE_OBJECT, core, tree);
        let head = Head {
            zil_header: ZilHeader::default(),
            flags: 0,
            portable_mac: [0; 32],
            local_mac: [0; 32],
            block_bytes: OBJSET_BYTES,
            root: BlockPtr::HOLE,
            dirty: BTreeSet::from([tx.txg()]),
        };
        context.announce(tx);
        Ok(Self::assemble(context, kind, meta, [None, None, None], head))
    }

    fn assemble(context: Arc<Context>, kind: ObjsetType, meta: Arc<Dnode>, special: [Option<Arc<Dnode>>; 3], head: Head) -> Arc<Objset> {
        context.meta.get_or_init(|| Arc::downgrade(&meta));
        Arc::new_cyclic(|this| Objset {
            this: this.clone(),
            kind,
            context,
            meta,
            special: Mutex::new(special),
            head: Mutex::new(head),
            dnodes: DnodeCache::default(),
            allocator: Allocator::default(),
            hook: RwLock::new(None),
            unsettled: Mutex::default(),
        })
    }

    /// The store of its blocks.
    pub fn io(&self) -> &Arc<dyn BlockIo> {
        &self.context.env.io
    }

    /// Its number.
    pub fn id(&self) -> ObjsetId {
        self.context.env.id
    }

    /// File system, volume, MOS …
    pub fn kind(&self) -> ObjsetType {
        self.kind
    }

    /// True when it can't be modified.
    pub fn is_read_only(&self) -> bool {
        self.context.env.ledger.is_none()
    }

    /// The properties in effect.
    pub fn props(&self) -> ObjsetProps {
        *self.context.props.read()
    }

    /// Replaces the properties; blocks written from now on follow them.
    pub fn set_props(&self, props: ObjsetProps) {
        self.context.set_props(props);
    }

    /// Installs the file system's hook for user accounting; objects synced from now on are accounted for.
    pub fn set_hook(&self, hook: Arc<dyn ObjsetHook>) {
        *self.hook.write() = Some(hook);
    }

    /// Facts of a dnode that is in memory, and how many hold it; nothing is read for it, and it stays as long as it would.
    pub fn known(&self, object: ObjectId) -> Option<(DnodeInfo, usize)> {
        let dnode = match object {
            ObjectId(0) => self.meta.clone(),
            _ => self.dnodes.peek(object)?,
        };
        // The map holds it, and so do we.
        let holds = Arc::strong_count(&dnode).saturating_sub(2);
        Some((dnode.info().ok()?, holds))
    }

    /// The pointer to the objset block as of the last sync.
    pub fn root_bp(&self) -> BlockPtr {
        self.head.lock().root
    }

    /// Objects in use as of the last sync.
    pub fn object_count(&self) -> u64 {
        self.meta.state.read().tree.fill()
    }

    /// Flags of the object set (`os_flags`, see `ondisk::objset_flags`).
    pub fn flags(&self) -> u64 {
        self.head.lock().flags
    }

    /// Replaces the flags.
    pub fn set_flags(&self, flags: u64, tx: &Tx) -> Result<(), DmuError> {
        self.change_head(tx, |head| head.flags = flags)
    }

    /// The intent log's header.
    pub fn zil_header(&self) -> ZilHeader {
        self.head.lock().zil_header.clone()
    }

    /// Replaces the intent log's header.
    pub fn set_zil_header(&self, header: ZilHeader, tx: &Tx) -> Result<(), DmuError> {
        self.change_head(tx, |head| head.zil_header = header)
    }

    fn change_head(&self, tx: &Tx, change: impl FnOnce(&mut Head)) -> Result<(), DmuError> {
        self.context.check_writable()?;
        let mut head = self.head.lock();
        change(&mut head);
        head.dirty.insert(tx.txg());
        drop(head);
        self.context.announce(tx);
        Ok(())
    }

    /// True when something of `txg` waits to be synced.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        self.context.has_dirty(txg) || self.head.lock().dirty.contains(&txg) || self.meta.state.read().entry(txg).is_some()
    }

    pub(crate) fn shared(&self) -> Option<Arc<Objset>> {
        self.this.upgrade()
    }
}

/// A dnode in memory from its record.
pub(crate) fn dnode_from_phys(context: &Arc<Context>, object: ObjectId, phys: &DnodePhys) -> Arc<Dnode> {
    let core = Core::from_phys(phys);
    let tree = Tree::from_phys(phys, &core.bonus);
    Dnode::new(context.clone(), object, core, tree)
}
