//! A mounted file system: opening, making a new one, properties, waiting for disk.
//!
//! [`Zfs`] holds the owners and hands on: what it stands on ([`crate::store`]), the table of nodes ([`crate::nodes`]), the name space
//! ([`crate::names`]), data ([`crate::data`]), extended attributes ([`crate::xattr`]) and attributes ([`crate::setattr`]). None of them knows it.
//!
//! Lock order: the rename lock, then `names` of directories by object number, then byte ranges, then a transaction, then one
//! node's state. A transaction is never asked for while a node's state is locked or another transaction is open, because
//! that wait ends only when every open transaction has. A direct transfer keeps its byte range, and a direct write also its
//! transaction, until the disks are done; both are given back by a job, which waits for nothing.

mod source;
mod verbs;

use crate::counts;
use crate::data::Data;
use crate::direct::Direct;
use crate::inherited::Unknown;
use crate::kernel::Remembered;
use crate::names::Directories;
use crate::nodes::{Node, Nodes};
use crate::room::{Space, SpaceSource};
use crate::sa::Attr;
use crate::setattr::Attributes;
use crate::settings::{CaseSensitivity, CreateOptions, Settings};
use crate::store::{MASTER_NODE, Store, VERSION};
use crate::undo::Undo;
use crate::version;
use crate::xattr::Xattrs;
use crate::znode::{S_IFDIR, Time, Znode};
use crate::{Accounting, NewNode, ZplError};
use dmu::{Objset, Tx, TxgManager};
use ondisk::{ObjectId, ObjectType, Txg, objset_flags};
use std::sync::Arc;
use zap::Zap;
use zil::Log;

/// File system of an object set.
pub struct Zfs {
    pub(crate) store: Arc<Store>,
    root: ObjectId,
    pub(crate) nodes: Arc<Nodes>,
    directories: Arc<Directories>,
    data: Arc<Data>,
    pub(crate) xattrs: Arc<Xattrs>,
    pub(crate) attributes: Attributes,
}

impl std::fmt::Debug for Zfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Zfs {{ objset: {}, root: {} }}", self.store.objset.id(), self.root)
    }
}

impl Zfs {
    /// Makes the objects of a new file system in an empty object set (OpenZFS: `zfs_create_fs`).
    pub fn create(objset: &Arc<Objset>, options: &CreateOptions, tx: &Tx) -> Result<(), ZplError> {
        let version = options.version.unwrap_or(VERSION);
        if !(1..=VERSION).contains(&version) {
            return Err(ZplError::NotSupported);
        }
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
        version::enter(objset, &master, version, tx)?;
        let unlinked = zap::create(objset, ObjectType::UNLINKED_SET, tx)?;
        master.add_u64("DELETE_QUEUE", unlinked.0, tx)?;
        // Object sets of pools from before version 15 have no room for what users use.
        if objset.props().has_accounts() {
            objset.set_flags(objset.flags() | objset_flags::USERACCOUNTING_COMPLETE, tx)?;
        }
        Accounting::install(objset);
        let project_quota = options.project_quota || objset.flags() & objset_flags::PROJECTQUOTA_COMPLETE != 0;
        let settings = Settings { project_quota, ..Settings::default() };
        let zfs = Zfs::assemble(objset, None, settings, ObjectId(0))?;
        let new = NewNode { mode: S_IFDIR | 0o755, uid: options.uid, gid: options.gid, ..NewNode::default() };
        let root = Undo::run(&zfs.store, tx, |undo| zfs.nodes.make_node(None, &new, undo))?;
        master.add_u64("ROOT", root.object().0, tx)?;
        Ok(())
    }

    /// Opens a file system; without `txgs` it is read-only (a snapshot). Objects whose deletion was cut short are deleted
    /// by [`Zfs::drain_unlinked`].
    pub fn open(objset: &Arc<Objset>, txgs: Option<Arc<TxgManager>>, settings: Settings) -> Result<Arc<Zfs>, ZplError> {
        let root = Zap::hold(objset, MASTER_NODE)?.lookup_u64("ROOT")?;
        Ok(Arc::new(Zfs::assemble(objset, txgs, settings, ObjectId(root))?))
    }

    fn assemble(objset: &Arc<Objset>, txgs: Option<Arc<TxgManager>>, settings: Settings, root: ObjectId) -> Result<Zfs, ZplError> {
        let store = Arc::new(Store::open(objset, txgs, settings)?);
        let nodes = Arc::new(Nodes::new(store.clone()));
        let directories = Arc::new(Directories::new(nodes.clone(), root));
        let data = Arc::new(Data::new(store.clone()));
        let xattrs = Arc::new(Xattrs::new(directories.clone(), data.clone()));
        let attributes = Attributes::new(nodes.clone(), xattrs.clone());
        Ok(Zfs { store, root, nodes, directories, data, xattrs, attributes })
    }

    /// Object of the root directory.
    pub fn root(&self) -> ObjectId {
        self.root
    }

    /// Object set of the file system.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.store.objset
    }

    /// True when nothing can be changed.
    pub fn is_read_only(&self) -> bool {
        self.store.room.is_read_only()
    }

    /// Properties in effect.
    pub fn settings(&self) -> Settings {
        self.store.settings()
    }

    /// Replaces the properties.
    pub fn set_settings(&self, settings: Settings) {
        self.store.set_settings(settings);
    }

    /// Names the parameters and counters of direct I/O; counts before any other use of the file system, not later.
    pub fn set_direct(&self, direct: Direct) {
        self.store.set_direct(direct);
    }

    /// Parameters and counters of direct I/O.
    pub fn direct(&self) -> &Direct {
        self.store.direct()
    }

    /// Sets the source that knows of space.
    pub fn set_space_source(&self, source: Arc<dyn SpaceSource>) {
        self.store.room.set_source(source);
    }

    /// Space of the file system, zeros when nobody knows.
    pub fn space(&self) -> Space {
        self.store.room.space().unwrap_or_default()
    }

    /// Looks again which limits of users, groups and projects there are, and which version the file system has ([`crate::version::raise`]); what was
    /// set counts from now on.
    ///
    /// # Errors
    /// Those of reading the master node.
    pub fn renew(&self) -> Result<(), ZplError> {
        self.store.limits.renew()?;
        self.store.renew_version()
    }

    /// Names what its pool accounts for, by flags of object sets (see `ondisk::objset_flags`). Accounts that are not complete are made anew, in the
    /// background, from the next change on, or from [`Zfs::begin_accounts`].
    pub fn want_accounts(&self, flags: u64) {
        self.store.limits.recount.want(flags);
    }

    /// Has accounts that are not complete ([`Zfs::want_accounts`]) made anew in the background (OpenZFS: `dmu_objset_id_quota_upgrade`).
    pub fn begin_accounts(&self) {
        self.store.limits.recount.begin();
    }

    /// Makes accounts that are not complete ([`Zfs::want_accounts`]) anew, or waits for who does.
    ///
    /// # Errors
    /// Those of reading objects and of transactions; `Busy` when the file system is unmounted meanwhile.
    pub fn finish_accounts(&self) -> Result<(), ZplError> {
        self.store.limits.recount.finish()
    }

    /// Number of files without names that are to be deleted; 0 where nothing is deleted.
    pub fn unlinked(&self) -> u64 {
        if self.is_read_only() { 0 } else { self.store.unlinked.count() }
    }

    /// Returns the counters since the file system was opened: `writes nwritten reads nread nunlinks nunlinked`.
    pub fn counts(&self) -> [u64; counts::CELLS] {
        self.store.counts.all()
    }

    /// Counters of the intent log, by OpenZFS's names; none without one.
    pub fn log_counts(&self) -> Vec<(&'static str, u64)> {
        self.store.journal.log().map_or_else(Vec::new, |log| log.counts())
    }

    pub(crate) fn now(&self) -> Time {
        self.store.now()
    }

    /// Node of an object (OpenZFS: `zfs_zget`).
    pub fn node(&self, object: ObjectId) -> Result<Node, ZplError> {
        self.nodes.node(object)
    }

    /// Turns a reference into one that [`Zfs::release`] gives back: how a protocol counts what its client remembers.
    pub fn keep(node: &Node) {
        node.keep();
    }

    /// Gives back `count` references; the last one deletes the object when it has no links.
    pub fn release(&self, object: ObjectId, count: u64) {
        self.nodes.forget(object, count);
    }

    /// Gives back every reference: the end of a mount, whose client forgets everything without saying so.
    pub fn forget_all(&self) {
        self.store.limits.recount.stop();
        self.nodes.forget_all();
        if self.store.room.is_frozen() {
            // No txg brings it to the disk any more; one that cannot be logged is what a crash would lose.
            let _ = self.store.commit_all();
        }
    }

    /// Returns what the client remembers of all nodes, for another server of the file system; access times that are in memory only go into the
    /// open txg. Nothing may be under way.
    ///
    /// # Errors
    /// Those of a transaction.
    pub fn hand_over(&self) -> Result<Vec<Remembered>, ZplError> {
        self.store.limits.recount.stop();
        self.nodes.hand_over()
    }

    /// Notes what the client remembers from the server before; before any other use of the file system.
    pub fn take_over(&self, nodes: &[Remembered]) {
        self.nodes.inherited.note(nodes);
    }

    /// Notes that the client of a process that was killed goes on, and nobody knows which nodes it remembers: before [`Zfs::drain_unlinked`] and any
    /// other use of the file system. Nodes without names stay until it forgets them, or all ([`Zfs::forget_all`]); who forgets more references
    /// to a node than are known forgets all.
    pub fn take_over_unknown(&self) {
        self.nodes.inherited.set_unknown(Unknown::Old);
    }

    /// True when nobody knows which nodes the client remembers: whoever serves it next does not either.
    pub fn is_client_unknown(&self) -> bool {
        self.nodes.inherited.is_unknown(false)
    }

    /// Deletes what a crash left in the unlinked set; returns how many (OpenZFS: `zfs_unlinked_drain`).
    pub fn drain_unlinked(&self) -> Result<u64, ZplError> {
        self.nodes.drain_unlinked()
    }

    /// Names the intent log, which is empty: from now on it hears of what changes, and makes durable what has to be. It counts before any other
    /// use of the file system, not later. `tells_xattrs` says that its pool has the feature `zilsaxattr`, and that the dataset
    /// is counted among its users before anything is in the log.
    pub fn set_log(&self, log: Arc<dyn Log>, tells_xattrs: bool) {
        if log.arena().is_some() {
            // What was freed and is made again is in two txgs then, of which the first is on disk.
            self.store.objset.rest_numbers();
        }
        self.store.journal.connect((log, self.store.objset.id().0), tells_xattrs, self.store.room.open_txg());
    }

    /// Begins to serve with an intent log ([`Zfs::set_log`]); `deletes` what a crash left in the unlinked set too, for a mount that may. In this
    /// order: an arena hears of what is deleted, and the numbers that it frees rest.
    ///
    /// # Errors
    /// Those of reading the unlinked set.
    pub fn begin(&self, log: Arc<dyn Log>, tells_xattrs: bool, deletes: bool) -> Result<(), ZplError> {
        self.set_log(log, tells_xattrs);
        if deletes {
            self.drain_unlinked()?;
        }
        Ok(())
    }

    /// Makes durable what changed the node, by the log where there is one, else with its txg; returns at once when it is on disk.
    pub fn fsync(&self, node: &Znode) -> Result<(), ZplError> {
        self.store.commit(&[node.object], Txg(node.last_txg()))
    }

    /// Makes every change so far durable.
    pub fn sync(&self) -> Result<(), ZplError> {
        self.store.commit_all()
    }

    /// Bytes of an attribute, 0 when the node has not got it: for checks.
    pub fn attribute_bytes(&self, node: &Znode, attr: Attr) -> usize {
        self.store.sa.get(&node.state.lock().attrs, attr).map_or(0, <[u8]>::len)
    }

    /// Value of a 64-bit attribute straight from the object, for checks.
    pub fn attribute(&self, node: &Znode, attr: Attr) -> Option<u64> {
        self.store.sa.get_u64(&node.state.lock().attrs, attr)
    }
}
