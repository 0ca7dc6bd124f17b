//! The table of nodes in memory, and the references that keep them there.
//!
//! A [`Node`] is a counted reference. While any exists the node stays in the table; the last one to go deletes
//! the object when it has no links left, and otherwise writes an access time that is only in memory (OpenZFS:
//! `zfs_zget`, `zfs_inactive`, `zfs_zinactive`). So a `Node` must not be dropped while a transaction is open.

use crate::ZplError;
use crate::inherited::Inherited;
use crate::kernel::Remembered;
use crate::store::Store;
use crate::unlinked::keeps_unlinked;
use crate::znode::{State as ZnodeState, Znode, decode_fields, flag};
use exec::Mutex;
use ondisk::ObjectId;
use std::collections::HashMap;
use std::collections::hash_map::Entry::Vacant;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SHARDS: usize = 16;

struct Entry {
    znode: Arc<Znode>,
    /// References of operations.
    references: u64,
    /// References of the kernel, as far as they are known.
    kernel: u64,
    /// True when nobody knows whether the kernel has more.
    is_unknown: bool,
    /// True while the node is being deleted or written back; it cannot be had.
    leaving: bool,
}

impl Entry {
    /// True when somebody has the node, or may have it while it has no names: nobody but the kernel knows of that then, and of no hidden one.
    fn is_held(&self, state: &ZnodeState) -> bool {
        let may_be_open = self.is_unknown && state.unlinked && state.fields.flags & flag::XATTR == 0;
        self.references > 0 || self.kernel > 0 || may_be_open
    }
}

/// Part of the table of nodes.
#[derive(Default)]
struct Shard {
    entries: HashMap<u64, Entry>,
    /// Objects that are being read for the table: number of readers, and number of times that they left it since the first began.
    loading: HashMap<u64, (u32, u64)>,
}

impl Shard {
    /// Removes a node from the table; who is reading its object may have what was before.
    fn remove(&mut self, object: ObjectId) {
        self.entries.remove(&object.0);
        if let Some((_, left)) = self.loading.get_mut(&object.0) {
            *left += 1;
        }
    }

    /// Counts somebody who begins to read an object; returns what [`Shard::has_loaded`] wants to know afterwards.
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

/// Counted reference to a node.
#[derive(Debug)]
pub struct Node {
    nodes: Arc<Nodes>,
    pub(crate) znode: Arc<Znode>,
}

impl std::ops::Deref for Node {
    type Target = Znode;
    fn deref(&self) -> &Znode {
        &self.znode
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.nodes.release(self.znode.object);
    }
}

impl Clone for Node {
    fn clone(&self) -> Self {
        self.nodes.add_reference(self.znode.object);
        Node { nodes: self.nodes.clone(), znode: self.znode.clone() }
    }
}

impl Node {
    /// Store that the file system stands on.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.nodes.store
    }

    /// Gives the client a reference, which [`Nodes::forget`] takes: how a protocol counts what its client remembers.
    pub(crate) fn keep(&self) {
        if let Some(entry) = self.nodes.shard(self.object).lock().entries.get_mut(&self.object.0) {
            entry.kernel += 1;
        }
    }

    /// Returns a reference that a job may drop.
    pub fn kept(&self) -> Kept {
        self.nodes.add_reference(self.object);
        Kept { nodes: self.nodes.clone(), znode: self.znode.clone() }
    }
}

/// Counted reference held by a transfer: dropping it never waits. What the last one to go would have to do is left to the
/// next operation.
#[derive(Debug)]
pub struct Kept {
    nodes: Arc<Nodes>,
    znode: Arc<Znode>,
}

impl Kept {
    /// Returns a reference for an operation.
    pub(crate) fn node(&self) -> Node {
        self.nodes.add_reference(self.znode.object);
        Node { nodes: self.nodes.clone(), znode: self.znode.clone() }
    }

    /// Store that the file system stands on.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.nodes.store
    }

    /// Node itself.
    pub(crate) fn znode(&self) -> &Arc<Znode> {
        &self.znode
    }
}

impl std::ops::Deref for Kept {
    type Target = Znode;
    fn deref(&self) -> &Znode {
        &self.znode
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.nodes.release_in_job(self.znode.object);
    }
}

/// Table of nodes of a file system.
pub(crate) struct Nodes {
    pub(crate) store: Arc<Store>,
    shards: Vec<Mutex<Shard>>,
    left: exec::WaitQueue,
    /// Objects of references that a job gave back and an operation has yet to.
    parked: Mutex<Vec<ObjectId>>,
    has_parked: AtomicBool,
    /// Nodes that the kernel has from the server before this one.
    pub(crate) inherited: Inherited,
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Nodes {{ objset: {} }}", self.store.objset.id())
    }
}

impl Nodes {
    /// Makes an empty table.
    pub(crate) fn new(store: Arc<Store>) -> Nodes {
        Nodes {
            store,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            left: exec::WaitQueue::new(),
            parked: Mutex::new(Vec::new()),
            has_parked: AtomicBool::new(false),
            inherited: Inherited::default(),
        }
    }

    fn shard(&self, object: ObjectId) -> &Mutex<Shard> {
        &self.shards[(object.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize % SHARDS]
    }

    /// Node of an object (OpenZFS: `zfs_zget`).
    pub(crate) fn node(self: &Arc<Self>, object: ObjectId) -> Result<Node, ZplError> {
        if self.has_parked.load(Ordering::Relaxed) {
            self.release_parked();
        }
        self.find(object)
    }

    /// Node of an object for somebody whom nothing may wait for: what has to be done after it is left to the next operation.
    pub(crate) fn kept_node(self: &Arc<Self>, object: ObjectId) -> Result<Kept, ZplError> {
        self.find(object).map(|node| node.kept())
    }

    /// Directory that a node's extended attributes lie in, if it has one. A damaged file system may name any object: only hidden
    /// directories count, and what lies in one has none. So a node is always locked before its hidden directory.
    pub(crate) fn hidden_directory(self: &Arc<Self>, node: &Znode) -> Result<Option<Node>, ZplError> {
        let fields = node.fields();
        match fields.xattr {
            0 => Ok(None),
            _ if fields.flags & flag::XATTR != 0 => Err(ZplError::CORRUPT),
            object => {
                let directory = self.node(ObjectId(object))?;
                let found = directory.fields();
                let is_hidden = found.is_directory() && found.flags & flag::XATTR != 0;
                if is_hidden { Ok(Some(directory)) } else { Err(ZplError::CORRUPT) }
            }
        }
    }

    fn find(self: &Arc<Self>, object: ObjectId) -> Result<Node, ZplError> {
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
                let (kernel, is_unknown) = (self.inherited.take(object, &znode.kernel), self.inherited.is_unknown(false));
                place.insert(Entry { znode: znode.clone(), references: 1, kernel, is_unknown, leaving: false });
                return Ok(Node { nodes: self.clone(), znode });
            }
        }
    }

    fn load(&self, object: ObjectId) -> Result<Znode, ZplError> {
        let dnode = self.store.objset.hold(object)?;
        let attrs = self.store.sa.load(&dnode)?;
        let fields = decode_fields(&self.store.sa, &attrs)?;
        let znode = Znode::new(object, dnode, attrs, fields);
        // Who changed it may have let go of it since: it is as new as its changes, or as what is being synced now.
        if let Some(syncing) = self.store.room.syncing_txg() {
            znode.changed_by(znode.dnode.dirty_txg().map_or(syncing, |txg| txg.0.max(syncing)));
        }
        Ok(znode)
    }

    /// Node of an object when it is in the table. Waits for one that is leaving.
    fn cached(self: &Arc<Self>, object: ObjectId) -> Option<Result<Node, ZplError>> {
        loop {
            let mut shard = self.shard(object).lock();
            let entry = shard.entries.get_mut(&object.0)?;
            if !entry.leaving {
                entry.references += 1;
                return Some(Ok(Node { nodes: self.clone(), znode: entry.znode.clone() }));
            }
            if entry.znode.state.lock().unlinked {
                return Some(Err(ZplError::NotFound));
            }
            drop(shard);
            self.left
                .wait_until(&self.store.exec, &|| !self.shard(object).lock().entries.get(&object.0).is_some_and(|entry| entry.leaving));
        }
    }

    /// Puts a new node into the table.
    pub(crate) fn adopt(self: &Arc<Self>, znode: Znode) -> Node {
        let znode = Arc::new(znode);
        let is_unknown = self.inherited.is_unknown(true);
        let entry = Entry { znode: znode.clone(), references: 1, kernel: 0, is_unknown, leaving: false };
        self.shard(znode.object).lock().entries.insert(znode.object.0, entry);
        Node { nodes: self.clone(), znode }
    }

    pub(crate) fn add_reference(&self, object: ObjectId) {
        if let Some(entry) = self.shard(object).lock().entries.get_mut(&object.0) {
            entry.references += 1;
        }
    }

    /// Gives back a reference; the last one deletes the object when it has no links.
    pub(crate) fn release(self: &Arc<Self>, object: ObjectId) {
        self.let_go(object, |entry| entry.references = entry.references.saturating_sub(1));
    }

    /// Takes `count` references of the kernel; where nobody knows how many it has, one who forgets all that are known forgets all.
    pub(crate) fn forget(self: &Arc<Self>, object: ObjectId, count: u64) {
        let is_there = self.let_go(object, |entry| {
            entry.is_unknown &= count < entry.kernel;
            entry.kernel = entry.kernel.saturating_sub(count);
        });
        if !is_there {
            self.inherited.forget(object, count);
        }
    }

    /// Takes references; the last one deletes the object when it has no links. False when the node is not in memory.
    fn let_go(self: &Arc<Self>, object: ObjectId, take: impl FnOnce(&mut Entry)) -> bool {
        let znode = {
            let mut shard = self.shard(object).lock();
            let Some(entry) = shard.entries.get_mut(&object.0).filter(|entry| !entry.leaving) else { return false };
            take(entry);
            let state = entry.znode.state.lock();
            if entry.is_held(&state) {
                return true;
            }
            if !self.has_to_retire(&state) {
                drop(state);
                shard.remove(object);
                return true;
            }
            drop(state);
            entry.leaving = true;
            entry.znode.clone()
        };
        // A failure leaves the object in the unlinked set: the next mount tries again. A lost access time is only that.
        let _ = self.retire(&znode);
        self.shard(object).lock().remove(object);
        self.left.notify_all();
        true
    }

    /// True when the end of a node needs a transaction.
    fn has_to_retire(&self, state: &ZnodeState) -> bool {
        let deletes = state.unlinked && !keeps_unlinked();
        (deletes || (state.atime_dirty && !state.unlinked)) && !self.store.room.is_read_only()
    }

    /// Gives back one reference without waiting: when that would take a transaction, the next operation does it.
    pub(crate) fn release_in_job(&self, object: ObjectId) {
        let mut shard = self.shard(object).lock();
        let Some(entry) = shard.entries.get_mut(&object.0).filter(|entry| !entry.leaving) else { return };
        entry.references = entry.references.saturating_sub(1);
        let (is_held, idle) = {
            let state = entry.znode.state.lock();
            (entry.is_held(&state), !self.has_to_retire(&state))
        };
        if is_held {
            return;
        }
        if idle {
            shard.remove(object);
        } else {
            entry.references += 1;
            drop(shard);
            self.parked.lock().push(object);
            self.has_parked.store(true, Ordering::Release);
        }
    }

    /// Gives back the references that jobs left.
    pub(crate) fn release_parked(self: &Arc<Self>) {
        if self.has_parked.swap(false, Ordering::AcqRel) {
            let parked = std::mem::take(&mut *self.parked.lock());
            parked.into_iter().for_each(|object| self.release(object));
        }
    }

    /// Returns what the kernel remembers of all nodes; access times that are in memory only go into the open txg. Nothing may be under way.
    ///
    /// # Errors
    /// Those of a transaction.
    pub(crate) fn hand_over(self: &Arc<Self>) -> Result<Vec<Remembered>, ZplError> {
        self.release_parked();
        let mut all = self.inherited.all();
        for (znode, references) in self.in_memory() {
            let is_dirty = {
                let state = znode.state.lock();
                state.atime_dirty && !state.unlinked
            };
            if is_dirty && !self.store.room.is_read_only() {
                self.retire(&znode)?;
            }
            if references > 0 {
                all.push(znode.kernel.remembered(znode.object, references));
            }
        }
        Ok(all)
    }

    /// Nodes in memory, each with the number of the kernel's references.
    fn in_memory(&self) -> Vec<(Arc<Znode>, u64)> {
        let of = |shard: &Mutex<Shard>| -> Vec<(Arc<Znode>, u64)> {
            shard.lock().entries.values().map(|entry| (entry.znode.clone(), entry.kernel)).collect()
        };
        self.shards.iter().flat_map(of).collect()
    }

    /// Gives back every reference: the end of a mount, whose client forgets everything without saying so.
    pub(crate) fn forget_all(self: &Arc<Self>) {
        self.inherited.clear();
        self.release_parked();
        for shard in &self.shards {
            let objects: Vec<u64> = shard.lock().entries.keys().copied().collect();
            objects.into_iter().for_each(|object| self.forget(ObjectId(object), u64::MAX));
        }
    }
}
