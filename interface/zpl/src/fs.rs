//! A mounted file system: opening, making a new one, the table of nodes, the unlinked set, waiting for disk.
//!
//! Lock order: the rename lock, then `names` of directories by object number, then byte ranges, then a transaction, then one
//! node's state. A transaction is never asked for while a node's state is locked or another transaction is open, because
//! that wait ends only when every open transaction has. A direct transfer keeps its byte range, and a direct write also its
//! transaction, until the disks are done; both are given back by a job, which waits for nothing.

use crate::counts::DatasetCounts;
use crate::direct::{Again, Direct, Property};
use crate::sa::{Attr, Sa};
use crate::undo::Undo;
use crate::userspace::Limits;
use crate::znode::{Node, S_IFDIR, State as ZnodeState, Time, Znode, decode_fields, flag};
use crate::{Accounting, NewNode, ZplError};
use dmu::{Objset, Tx, TxgManager};
use exec::{Exec, Mutex, RwLock};
use ondisk::{ObjectId, ObjectType, Txg, objset_flags};
use std::collections::HashMap;
use std::collections::hash_map::Entry::Vacant;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use zap::{NormFlags, Zap};

/// The master node of every file system (OpenZFS: `MASTER_NODE_OBJ`).
const MASTER_NODE: ObjectId = ObjectId(1);
/// The version we write (OpenZFS: `ZPL_VERSION_SA`).
const VERSION: u64 = 5;
/// From this version on directory entries carry the type (OpenZFS: `ZPL_VERSION_DIRENT_TYPE`).
const VERSION_DIRENT_TYPE: u64 = 2;
/// Bytes that one transaction of names and attributes dirties, at most.
pub(crate) const TX_NAMES: u64 = 64 << 10;
/// A file is freed in pieces of this size when it goes.
const FREE_CHUNK: u64 = 1 << 30;
/// How many txgs a transaction that finds no room waits for the deletion of files without names: somebody may keep them open for long.
const DELETION_WAITS_MAX: u32 = 3;
const SHARDS: usize = 16;

static KEEPS_UNLINKED: AtomicBool = AtomicBool::new(false);

/// Whether files without names stay in the unlinked set instead of being deleted (OpenZFS: `zfs_unlink_suspend_progress`). What was kept is
/// deleted at the next mount without it.
pub fn set_unlink_suspended(keeps: bool) {
    KEEPS_UNLINKED.store(keeps, Ordering::Relaxed);
}

fn keeps_unlinked() -> bool {
    KEEPS_UNLINKED.load(Ordering::Relaxed)
}

/// The `casesensitivity` property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaseSensitivity {
    /// Names differ by case.
    #[default]
    Sensitive,
    /// Names don't differ by case.
    Insensitive,
    /// Lookups match case here; other protocols may ask otherwise.
    Mixed,
}

/// Properties fixed when a file system is made, kept in its master node.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateOptions {
    /// `casesensitivity`.
    pub case: CaseSensitivity,
    /// `normalization`.
    pub normalization: NormFlags,
    /// `utf8only`.
    pub utf8_only: bool,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// The pool counts projects: nodes get a project number.
    pub project_quota: bool,
}

/// The property `snapdir`: how `.zfs` is found in the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Snapdir {
    /// By name only.
    #[default]
    Hidden,
    /// It is listed, too.
    Visible,
    /// Not at all.
    Disabled,
}

/// Properties that may change while mounted.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `xattr=sa`.
    pub xattr_sa: bool,
    /// `atime`.
    pub atime: bool,
    /// `relatime`.
    pub relatime: bool,
    /// The pool counts projects: new nodes get a project number.
    pub project_quota: bool,
    /// `snapdir`.
    pub snapdir: Snapdir,
    /// `acltype=posix`: stored lists are shown and follow the mode.
    pub posix_acl: bool,
    /// Files can get names of more than [`crate::NAME_BYTES_MAX`] bytes: `longname`.
    pub longname: bool,
    /// Extended attributes of users are served; the property `xattr` and the option of a mount switch them off.
    pub user_xattrs: bool,
    /// `readonly`, set while the file system is mounted for writing.
    pub read_only: bool,
    /// `direct`.
    pub direct: Property,
    /// It is a snapshot: never direct, whatever it inherits.
    pub snapshot: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            xattr_sa: true,
            atime: true,
            relatime: true,
            project_quota: false,
            snapdir: Snapdir::Hidden,
            posix_acl: false,
            longname: false,
            user_xattrs: true,
            read_only: false,
            direct: Property::Standard,
            snapshot: false,
        }
    }
}

/// What statfs shows (OpenZFS: `dmu_objset_space`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Space {
    /// Bytes referenced.
    pub referenced: u64,
    /// Bytes available.
    pub available: u64,
    /// Objects in use.
    pub objects_used: u64,
    /// Objects that could be made.
    pub objects_available: u64,
}

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxKind {
    /// May need more space: refused when the pool or a quota is full.
    Writes,
    /// Frees more than it writes: must work when nothing else does.
    Frees,
}

/// Where the space of a file system is known (the dataset).
pub trait SpaceSource: Send + Sync {
    /// Space now.
    fn space(&self) -> Space;
    /// Opens a transaction that dirties up to `bytes`, or says that there is no space for it.
    fn assign(&self, txgs: &Arc<TxgManager>, bytes: u64, kind: TxKind) -> Result<Tx, ZplError> {
        let _ = kind;
        Ok(txgs.assign(bytes)?)
    }
    /// Somebody found no room: waits until more of what was freed can be used again. False when nothing was.
    fn wait_for_freed(&self, txgs: &Arc<TxgManager>) -> Result<bool, ZplError> {
        txgs.wait_synced(txgs.open_txg())?;
        Ok(true)
    }
}

struct Entry {
    znode: Arc<Znode>,
    references: u64,
    /// It is being deleted or written back; it cannot be had.
    leaving: bool,
}

/// A part of the table of nodes.
#[derive(Default)]
struct Shard {
    entries: HashMap<u64, Entry>,
    /// Objects that are being read for the table: by how many, and how often they left it since the first began.
    loading: HashMap<u64, (u32, u64)>,
}

impl Shard {
    /// A node leaves the table; who is reading its object may have what was before.
    fn remove(&mut self, object: ObjectId) {
        self.entries.remove(&object.0);
        if let Some((_, left)) = self.loading.get_mut(&object.0) {
            *left += 1;
        }
    }

    /// Somebody begins to read an object: what [`Shard::has_loaded`] wants to know afterwards.
    fn load(&mut self, object: ObjectId) -> u64 {
        let (readers, left) = self.loading.entry(object.0).or_default();
        *readers += 1;
        *left
    }

    /// True when what was read is as new as any node of the object that was in the table meanwhile.
    fn has_loaded(&mut self, object: ObjectId, left_before: u64) -> bool {
        let Some((readers, left)) = self.loading.get_mut(&object.0) else { return false };
        *readers -= 1;
        let is_fresh = *left == left_before;
        if *readers == 0 {
            self.loading.remove(&object.0);
        }
        is_fresh
    }
}

/// A file system.
pub struct Zfs {
    pub(crate) objset: Arc<Objset>,
    pub(crate) txgs: Option<Arc<TxgManager>>,
    pub(crate) exec: Exec,
    pub(crate) sa: Sa,
    root: ObjectId,
    unlinked: Option<Zap>,
    version: u64,
    pub(crate) norm: NormFlags,
    pub(crate) case: CaseSensitivity,
    pub(crate) utf8_only: bool,
    settings: RwLock<Settings>,
    pub(crate) limits: RwLock<Limits>,
    pub(crate) space: RwLock<Option<Arc<dyn SpaceSource>>>,
    direct: OnceLock<Direct>,
    nodes: Vec<Mutex<Shard>>,
    left: exec::WaitQueue,
    /// References that a job gave back and an operation has yet to.
    parked: Mutex<Vec<ObjectId>>,
    has_parked: AtomicBool,
    /// Direct writes that wait for room.
    pub(crate) again: Mutex<Vec<Again>>,
    pub(crate) rename_lock: Mutex<()>,
    pub(crate) counts: DatasetCounts,
    /// Files without names that were deleted.
    deletions: AtomicU64,
}

impl std::fmt::Debug for Zfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Zfs {{ objset: {}, root: {} }}", self.objset.id(), self.root)
    }
}

impl Zfs {
    /// Makes the objects of a new file system in an empty object set (OpenZFS: `zfs_create_fs`).
    pub fn create(objset: &Arc<Objset>, options: &CreateOptions, tx: &Tx) -> Result<(), ZplError> {
        let master = zap::CreateOptions { claim: Some(MASTER_NODE), ..zap::CreateOptions::new(ObjectType::MASTER_NODE) };
        zap::create_with(objset, master, tx)?;
        let master = Zap::hold(objset, MASTER_NODE)?;
        let case = match options.case {
            CaseSensitivity::Sensitive => 0,
            CaseSensitivity::Insensitive => 1,
            CaseSensitivity::Mixed => 2,
        };
        master.update_u64("normalization", options.normalization.0, tx)?;
        master.update_u64("utf8only", u64::from(options.utf8_only), tx)?;
        master.update_u64("casesensitivity", case, tx)?;
        master.update_u64("VERSION", VERSION, tx)?;
        let sa = zap::create(objset, ObjectType::SA_MASTER_NODE, tx)?;
        master.add_u64("SA_ATTRS", sa.0, tx)?;
        let unlinked = zap::create(objset, ObjectType::UNLINKED_SET, tx)?;
        master.add_u64("DELETE_QUEUE", unlinked.0, tx)?;
        objset.set_flags(objset.flags() | objset_flags::USERACCOUNTING_COMPLETE, tx)?;
        Accounting::install(objset);
        let project_quota = options.project_quota || objset.flags() & objset_flags::PROJECTQUOTA_COMPLETE != 0;
        let settings = Settings { project_quota, ..Settings::default() };
        let zfs = Arc::new(Self::assemble(objset, None, settings, ObjectId(0))?);
        let new = NewNode { mode: S_IFDIR | 0o755, uid: options.uid, gid: options.gid, ..NewNode::default() };
        let root = zfs.atomically(tx, |undo| zfs.make_node(None, &new, undo))?;
        master.add_u64("ROOT", root.object().0, tx)?;
        Ok(())
    }

    /// Opens a file system; without `txgs` it is read-only (a snapshot). Objects whose deletion was cut short are deleted
    /// by [`Zfs::drain_unlinked`].
    pub fn open(objset: &Arc<Objset>, txgs: Option<Arc<TxgManager>>, settings: Settings) -> Result<Arc<Zfs>, ZplError> {
        let root = Zap::hold(objset, MASTER_NODE)?.lookup_u64("ROOT")?;
        Ok(Arc::new(Self::assemble(objset, txgs, settings, ObjectId(root))?))
    }

    fn assemble(objset: &Arc<Objset>, txgs: Option<Arc<TxgManager>>, settings: Settings, root: ObjectId) -> Result<Zfs, ZplError> {
        let master = Zap::hold(objset, MASTER_NODE)?;
        let version = master.lookup_u64("VERSION")?;
        if version == 0 || version > VERSION {
            return Err(ZplError::NotSupported);
        }
        let property = |name: &str| master.try_lookup_u64(name).map(Option::unwrap_or_default);
        let case = match property("casesensitivity")? {
            0 => CaseSensitivity::Sensitive,
            1 => CaseSensitivity::Insensitive,
            2 => CaseSensitivity::Mixed,
            _ => return Err(ZplError::Corrupt),
        };
        let mut norm = NormFlags(property("normalization")?);
        if case != CaseSensitivity::Sensitive {
            norm = norm.with(NormFlags::TOUPPER);
        }
        let sa = Sa::open(objset, master.try_lookup_u64("SA_ATTRS")?.map(ObjectId))?;
        let unlinked = match master.try_lookup_u64("DELETE_QUEUE")? {
            Some(object) => Some(Zap::hold(objset, ObjectId(object))?),
            None => None,
        };
        let counts = DatasetCounts::default();
        counts.unlinked(unlinked.as_ref().map_or(0, Zap::count));
        // Old file systems keep attributes in a record that we read but don't make.
        let txgs = txgs.filter(|_| sa.is_modern());
        if txgs.is_some() {
            Accounting::install(objset);
        }
        Ok(Zfs {
            objset: objset.clone(),
            txgs,
            exec: objset.io().exec().clone(),
            sa,
            root,
            unlinked,
            version,
            norm,
            case,
            utf8_only: property("utf8only")? != 0,
            settings: RwLock::new(settings),
            limits: RwLock::new(Limits::read(objset)?),
            space: RwLock::new(None),
            direct: OnceLock::new(),
            parked: Mutex::new(Vec::new()),
            has_parked: AtomicBool::new(false),
            again: Mutex::default(),
            nodes: (0..SHARDS).map(|_| Mutex::default()).collect(),
            left: exec::WaitQueue::new(),
            rename_lock: Mutex::new(()),
            counts,
            deletions: AtomicU64::new(0),
        })
    }

    /// The root directory's object.
    pub fn root(&self) -> ObjectId {
        self.root
    }

    /// The object set.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// True when nothing can be changed.
    pub fn is_read_only(&self) -> bool {
        self.txgs.is_none()
    }

    /// The properties in effect.
    pub fn settings(&self) -> Settings {
        *self.settings.read()
    }

    /// Replaces the properties.
    pub fn set_settings(&self, settings: Settings) {
        *self.settings.write() = settings;
    }

    /// Names the parameters and counters of direct I/O; counts before any other use of the file system, not later.
    pub fn set_direct(&self, direct: Direct) {
        let _ = self.direct.set(direct);
    }

    /// The parameters and counters of direct I/O.
    pub fn direct(&self) -> &Direct {
        self.direct.get_or_init(Direct::default)
    }

    pub(crate) fn is_snapshot(&self) -> bool {
        self.settings.read().snapshot
    }

    /// Names where space is known.
    pub fn set_space_source(&self, source: Arc<dyn SpaceSource>) {
        *self.space.write() = Some(source);
    }

    /// Space, zeros when nobody knows.
    pub fn space(&self) -> Space {
        self.space.read().as_ref().map(|source| source.space()).unwrap_or_default()
    }

    pub(crate) fn has_dirent_types(&self) -> bool {
        self.version >= VERSION_DIRENT_TYPE
    }

    pub(crate) fn now(&self) -> Time {
        self.exec.wall_clock()
    }

    /// Opens a transaction; may wait.
    pub(crate) fn assign(&self, bytes: u64) -> Result<Tx, ZplError> {
        self.assign_for(bytes, TxKind::Writes)
    }

    /// Opens a transaction for something that gives space back.
    pub(crate) fn assign_frees(&self, bytes: u64) -> Result<Tx, ZplError> {
        self.assign_for(bytes, TxKind::Frees)
    }

    fn assign_for(&self, bytes: u64, kind: TxKind) -> Result<Tx, ZplError> {
        let txgs = self.txgs.as_ref().ok_or(ZplError::ReadOnly)?;
        let source = self.space.read().clone();
        let Some(source) = source else { return Ok(txgs.assign(bytes)?) };
        let mut waits = 0;
        loop {
            let deletions = self.deletions.load(Ordering::Acquire);
            let result = source.assign(txgs, bytes, kind);
            let is_full = matches!(result, Err(ZplError::NoSpace | ZplError::OverQuota)) && kind == TxKind::Writes;
            // A file that was removed keeps its space until the last who knows it lets go, which the kernel says a little later.
            let hopes = || self.has_unlinked() || self.deletions.load(Ordering::Acquire) != deletions;
            if !is_full || waits == DELETION_WAITS_MAX || !hopes() {
                return result;
            }
            waits += 1;
            txgs.wait_synced(txgs.open_txg())?;
        }
    }

    /// True when files without names wait to be deleted.
    fn has_unlinked(&self) -> bool {
        self.unlinked.as_ref().is_some_and(|set| set.count() > 0)
    }

    pub(crate) fn check_writable(&self) -> Result<(), ZplError> {
        if self.is_read_only() || self.settings().read_only { Err(ZplError::ReadOnly) } else { Ok(()) }
    }

    fn shard(&self, object: ObjectId) -> &Mutex<Shard> {
        &self.nodes[(object.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize % SHARDS]
    }

    /// The node of an object (OpenZFS: `zfs_zget`).
    pub fn node(self: &Arc<Self>, object: ObjectId) -> Result<Node, ZplError> {
        if self.has_parked.load(Ordering::Relaxed) {
            self.release_parked();
        }
        loop {
            if let Some(found) = self.cached(object) {
                return found;
            }
            let left_before = self.shard(object).lock().load(object);
            let loaded = self.load(object);
            let mut shard = self.shard(object).lock();
            let is_fresh = shard.has_loaded(object, left_before);
            let znode = Arc::new(loaded?);
            // Somebody else may have read it meanwhile: then theirs counts, also when they changed it and let go of it again.
            if let (true, Vacant(place)) = (is_fresh, shard.entries.entry(object.0)) {
                place.insert(Entry { znode: znode.clone(), references: 1, leaving: false });
                return Ok(Node { zfs: self.clone(), znode });
            }
        }
    }

    fn load(&self, object: ObjectId) -> Result<Znode, ZplError> {
        let dnode = self.objset.hold(object)?;
        let attrs = self.sa.load(&dnode)?;
        let fields = decode_fields(&self.sa, &attrs)?;
        let znode = Znode::new(object, dnode, attrs, fields);
        // Who changed it may have let go of it since: it is as new as its changes, or as what is being synced now.
        if let Some(txgs) = &self.txgs {
            let syncing = txgs.open_txg().0.saturating_sub(1);
            znode.changed_by(znode.dnode.dirty_txg().map_or(syncing, |txg| txg.0.max(syncing)));
        }
        Ok(znode)
    }

    /// The node when it is in the table. Waits for one that is leaving.
    fn cached(self: &Arc<Self>, object: ObjectId) -> Option<Result<Node, ZplError>> {
        loop {
            let mut shard = self.shard(object).lock();
            let entry = shard.entries.get_mut(&object.0)?;
            if !entry.leaving {
                entry.references += 1;
                return Some(Ok(Node { zfs: self.clone(), znode: entry.znode.clone() }));
            }
            if entry.znode.state.lock().unlinked {
                return Some(Err(ZplError::NotFound));
            }
            drop(shard);
            self.left.wait_until(&self.exec, &|| !self.shard(object).lock().entries.get(&object.0).is_some_and(|entry| entry.leaving));
        }
    }

    /// Puts a new node into the table.
    pub(crate) fn adopt(self: &Arc<Self>, znode: Znode) -> Node {
        let znode = Arc::new(znode);
        let entry = Entry { znode: znode.clone(), references: 1, leaving: false };
        self.shard(znode.object).lock().entries.insert(znode.object.0, entry);
        Node { zfs: self.clone(), znode }
    }

    pub(crate) fn add_reference(&self, object: ObjectId) {
        if let Some(entry) = self.shard(object).lock().entries.get_mut(&object.0) {
            entry.references += 1;
        }
    }

    /// Turns a reference into one that [`Zfs::release`] gives back: how a protocol counts what its client remembers.
    pub fn keep(node: &Node) {
        node.zfs.add_reference(node.object);
    }

    /// Gives back `count` references; the last one deletes the object when it has no links.
    pub fn release(self: &Arc<Self>, object: ObjectId, count: u64) {
        let znode = {
            let mut shard = self.shard(object).lock();
            let Some(entry) = shard.entries.get_mut(&object.0).filter(|entry| !entry.leaving) else { return };
            entry.references = entry.references.saturating_sub(count);
            if entry.references > 0 {
                return;
            }
            let state = entry.znode.state.lock();
            if !self.has_to_retire(&state) {
                drop(state);
                shard.remove(object);
                return;
            }
            drop(state);
            entry.leaving = true;
            entry.znode.clone()
        };
        // A failure leaves the object in the unlinked set: the next mount tries again. A lost access time is only that.
        let _ = self.retire(&znode);
        self.shard(object).lock().remove(object);
        self.left.notify_all();
    }

    /// True when the end of a node needs a transaction.
    fn has_to_retire(&self, state: &ZnodeState) -> bool {
        let deletes = state.unlinked && !keeps_unlinked();
        (deletes || (state.atime_dirty && !state.unlinked)) && !self.is_read_only()
    }

    /// Gives back one reference without waiting: when that would take a transaction, the next operation does it.
    pub(crate) fn release_in_job(&self, object: ObjectId) {
        let mut shard = self.shard(object).lock();
        let Some(entry) = shard.entries.get_mut(&object.0).filter(|entry| !entry.leaving) else { return };
        let idle = {
            let state = entry.znode.state.lock();
            !self.has_to_retire(&state)
        };
        if entry.references > 1 {
            entry.references -= 1;
        } else if idle {
            shard.remove(object);
        } else {
            drop(shard);
            self.parked.lock().push(object);
            self.has_parked.store(true, Ordering::Release);
        }
    }

    /// Gives back what jobs left.
    fn release_parked(self: &Arc<Self>) {
        if self.has_parked.swap(false, Ordering::AcqRel) {
            let parked = std::mem::take(&mut *self.parked.lock());
            parked.into_iter().for_each(|object| self.release(object, 1));
        }
    }

    /// Asks for a sync without waiting.
    pub(crate) fn kick(&self) {
        if let Some(txgs) = &self.txgs {
            txgs.kick();
        }
    }

    /// Gives back every reference: the end of a mount, whose client forgets everything without saying so.
    pub fn forget_all(self: &Arc<Self>) {
        self.release_parked();
        for shard in &self.nodes {
            let objects: Vec<u64> = shard.lock().entries.keys().copied().collect();
            objects.into_iter().for_each(|object| self.release(ObjectId(object), u64::MAX));
        }
    }

    fn retire(self: &Arc<Self>, znode: &Arc<Znode>) -> Result<(), ZplError> {
        if znode.state.lock().unlinked {
            return self.delete_object(znode);
        }
        let tx = self.assign_frees(TX_NAMES)?;
        znode.update(&self.sa, &tx, |_| ())
    }

    /// Frees the object of a node without links (OpenZFS: `zfs_rmnode`).
    fn delete_object(self: &Arc<Self>, znode: &Arc<Znode>) -> Result<(), ZplError> {
        let fields = znode.fields();
        if fields.is_directory() && fields.flags & flag::XATTR != 0 {
            self.purge_directory(znode)?;
        }
        if fields.is_regular() {
            self.free_in_pieces(znode, fields.size)?;
        }
        let xattr = match fields.xattr {
            0 => None,
            object => self.node(ObjectId(object)).ok(),
        };
        let tx = self.assign_frees(TX_NAMES)?;
        let freed = self.atomically(&tx, |undo| {
            if let Some(directory) = &xattr {
                self.mark_unlinked(&directory.znode, undo)?;
            }
            match undo.dequeue(znode.object) {
                Ok(()) | Err(ZplError::NotFound) => {}
                Err(error) => return Err(error),
            }
            Ok(self.objset.free_object(znode.object, &tx)?)
        });
        drop(tx);
        freed?;
        self.deletions.fetch_add(1, Ordering::Release);
        self.counts.drained();
        Ok(())
    }

    /// Frees a large file from its end, a piece per transaction. The size decides the number of pieces only as far as there
    /// is space to free: a sparse or damaged file may claim any.
    fn free_in_pieces(&self, znode: &Znode, size: u64) -> Result<(), ZplError> {
        let pieces = znode.dnode.info()?.used_bytes / FREE_CHUNK + 1;
        let piece = size.div_ceil(pieces).max(FREE_CHUNK);
        let mut end = size;
        while end > piece {
            let start = (end - 1) / piece * piece;
            // A file that is partly unreadable goes all the same: what is lost can only be leaked.
            let _ = znode.dnode.prepare_free(start, u64::MAX);
            let tx = self.assign_frees(TX_NAMES)?;
            znode.dnode.free_range(start, u64::MAX, &tx)?;
            end = start;
        }
        Ok(())
    }

    pub(crate) fn unlinked_set(&self) -> Result<&Zap, ZplError> {
        self.unlinked.as_ref().ok_or(ZplError::Corrupt)
    }

    /// Takes the links away and puts the node into the unlinked set (OpenZFS: `zfs_unlinked_add`).
    pub(crate) fn mark_unlinked(&self, node: &Arc<Znode>, undo: &mut Undo<'_>) -> Result<(), ZplError> {
        undo.set_unlinked(node, true);
        undo.change(node, |fields| fields.links = 0)?;
        undo.queue(node.object)?;
        self.counts.unlinked(1);
        Ok(())
    }

    /// Removes a node made linked again from the unlinked set (OpenZFS: `zfs_link_create` of an O_TMPFILE).
    pub(crate) fn unmark_unlinked(&self, node: &Arc<Znode>, undo: &mut Undo<'_>) -> Result<(), ZplError> {
        undo.dequeue(node.object)?;
        undo.set_unlinked(node, false);
        Ok(())
    }

    /// Deletes what a crash left in the unlinked set; returns how many (OpenZFS: `zfs_unlinked_drain`).
    pub fn drain_unlinked(self: &Arc<Self>) -> Result<u64, ZplError> {
        let Some(set) = self.unlinked.as_ref().filter(|_| !self.is_read_only() && !keeps_unlinked()) else { return Ok(0) };
        let mut objects = Vec::new();
        set.for_each(|entry| {
            objects.push(ObjectId(entry.first_integer));
            Ok(())
        })?;
        let mut count = 0;
        for object in objects {
            match self.node(object) {
                Ok(node) if node.fields().links == 0 => {
                    node.state.lock().unlinked = true;
                    count += 1;
                }
                // Freed already (or another file by now), its entry stayed: nothing to delete but the entry.
                Ok(_) | Err(ZplError::NotFound) => set.remove_int(object.0, &self.assign_frees(TX_NAMES)?)?,
                // One that cannot be read must not keep the others.
                Err(_) => {}
            }
        }
        Ok(count)
    }

    /// Waits until what changed the node is on disk; returns at once when it is.
    pub fn fsync(&self, node: &Znode) -> Result<(), ZplError> {
        self.wait_txg(Txg(node.last_txg()))
    }

    /// Waits until a txg is on disk.
    pub(crate) fn wait_txg(&self, txg: Txg) -> Result<(), ZplError> {
        match &self.txgs {
            Some(txgs) if txg > txgs.synced_txg() => Ok(txgs.wait_synced(txg)?),
            _ => Ok(()),
        }
    }

    /// Waits until every change so far is on disk.
    pub fn sync(&self) -> Result<(), ZplError> {
        match &self.txgs {
            Some(txgs) => Ok(txgs.wait_synced(txgs.open_txg())?),
            None => Ok(()),
        }
    }

    /// Bytes of an attribute, 0 when the node has not got it: for checks.
    pub fn attribute_bytes(&self, node: &Znode, attr: Attr) -> usize {
        self.sa.get(&node.state.lock().attrs, attr).map_or(0, <[u8]>::len)
    }

    /// Value of a 64-bit attribute straight from the object, for checks.
    pub fn attribute(&self, node: &Znode, attr: Attr) -> Option<u64> {
        self.sa.get_u64(&node.state.lock().attrs, attr)
    }
}
