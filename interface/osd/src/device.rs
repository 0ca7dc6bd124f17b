//! [`Device`]: the dataset that holds objects, where each of them lies, its space, and what is on disk.

use crate::callbacks::Callbacks;
use crate::fid::{FOLDERS, LMA};
use crate::grants::Grants;
use crate::object::Object;
use crate::stats::{Snapshot, Stats};
use crate::{Fid, OsdError};
use abd::Abd;
use direct_io::{Direct, Property};
use dmu::Objset;
use dsl::{DatasetHandle, TxSpace};
use exec::{Exec, Mutex};
use ondisk::objset_flags;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use zpl::{Kept, NewNode, Node, Settings, Zfs, ZplError, userspace};

/// Mode of the folders.
const FOLDER_MODE: u64 = 0o040_755;
/// Folder of all sequences, in the root.
const OBJECTS: &[u8] = b"O";
/// Bytes that a transaction of one limit dirties, at most.
const LIMIT_BYTES: u64 = 64 << 10;

/// Folders of a sequence, by their numbers.
pub(crate) type Folders = Arc<Vec<Kept>>;

/// Space of a device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the largest block of an object.
    pub block_size: u64,
    /// Bytes in use and available.
    pub total: u64,
    /// Bytes available to somebody without a grant.
    pub free: u64,
    /// Bytes that clients count on, and those that they used of them in txgs that are not on disk.
    pub granted: u64,
    /// Number of objects in use, those of the file system itself among them.
    pub objects: u64,
}

/// Open object storage device.
pub struct Device {
    pub(crate) dataset: DatasetHandle,
    pub(crate) zfs: Arc<Zfs>,
    pub(crate) exec: Exec,
    objset: Arc<Objset>,
    objects: Mutex<HashMap<Fid, Weak<Object>>>,
    sequences: Mutex<HashMap<String, Folders>>,
    property: Property,
    direct: Direct,
    zeros: Mutex<Abd>,
    pub(crate) stats: Stats,
    pub(crate) grants: Arc<Grants>,
    pub(crate) callbacks: Arc<Callbacks>,
    /// Bytes of blocks that wait for those who read on, of all objects.
    pub(crate) left_bytes: Arc<AtomicU64>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device {{ objset: {} }}", self.objset.id())
    }
}

/// Folder of this name, made where that is wanted.
fn folder(zfs: &Zfs, parent: &Node, name: &[u8], makes: bool) -> Result<Option<Node>, OsdError> {
    match zfs.lookup(parent, name) {
        Ok(found) => return Ok(Some(found)),
        Err(ZplError::NotFound) if makes => {}
        Err(ZplError::NotFound) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    match zfs.create_node(parent, name, &NewNode { mode: FOLDER_MODE, ..NewNode::default() }) {
        Ok(made) => Ok(Some(made)),
        // Somebody else made it meanwhile.
        Err(ZplError::Exists) => Ok(Some(zfs.lookup(parent, name)?)),
        Err(error) => Err(error.into()),
    }
}

impl Device {
    /// Opens the dataset that is held, which has a file system ([`Zfs::create`]) and is not mounted. Objects that were destroyed and not freed before
    /// a crash are freed. The property `direct` counts as it is now.
    ///
    /// # Errors
    /// Those of reading it; of freeing.
    pub fn open(dataset: DatasetHandle, direct: Direct) -> Result<Arc<Device>, OsdError> {
        let objset = dataset.objset()?;
        let is_fixed = dataset.is_snapshot() || objset.is_read_only();
        let property = match dataset.prop_u64("direct")?.0 {
            0 => Property::Disabled,
            2 => Property::Always,
            _ => Property::Standard,
        };
        let project_quota = objset.flags() & objset_flags::PROJECTQUOTA_COMPLETE != 0;
        let settings = Settings { atime: false, project_quota, snapshot: dataset.is_snapshot(), ..Settings::default() };
        let txgs = (!is_fixed).then(|| dataset.pool().txgs().clone());
        let zfs = Zfs::open(&objset, txgs, settings)?;
        zfs.set_space_source(Arc::new(dataset.clone()));
        if !is_fixed {
            zfs.drain_unlinked()?;
        }
        Ok(Arc::new(Device {
            dataset,
            zfs,
            exec: objset.io().exec().clone(),
            objset,
            objects: Mutex::default(),
            sequences: Mutex::default(),
            property,
            direct,
            zeros: Mutex::default(),
            stats: Stats::default(),
            grants: Arc::default(),
            callbacks: Arc::default(),
            left_bytes: Arc::default(),
        }))
    }

    /// Object of an identifier, whether it exists or not: all who ask for it get the same.
    ///
    /// # Errors
    /// [`OsdError::BadFid`].
    pub fn object(self: &Arc<Self>, fid: Fid) -> Result<Arc<Object>, OsdError> {
        if !fid.is_valid() {
            return Err(OsdError::BadFid);
        }
        let mut objects = self.objects.lock();
        if let Some(known) = objects.get(&fid).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let object = Object::new(self, fid);
        objects.insert(fid, Arc::downgrade(&object));
        Ok(object)
    }

    /// Forgets an object that nobody has any more.
    pub(crate) fn forget(&self, fid: Fid) {
        let mut objects = self.objects.lock();
        if objects.get(&fid).is_some_and(|object| object.strong_count() == 0) {
            objects.remove(&fid);
        }
    }

    /// Folders of a sequence, made where that is wanted; None when they are not all there. Waits for transactions when it makes some.
    pub(crate) fn folders(&self, fid: Fid, makes: bool) -> Result<Option<Folders>, OsdError> {
        let name = fid.sequence_name();
        let known = self.sequences.lock().get(&name).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let root = self.zfs.node(self.zfs.root())?;
        let Some(all) = folder(&self.zfs, &root, OBJECTS, makes)? else { return Ok(None) };
        let Some(own) = folder(&self.zfs, &all, name.as_bytes(), makes)? else { return Ok(None) };
        let mut folders = Vec::with_capacity(FOLDERS as usize);
        for number in 0..FOLDERS {
            let Some(found) = folder(&self.zfs, &own, format!("d{number}").as_bytes(), makes)? else { return Ok(None) };
            folders.push(found.kept());
        }
        Ok(Some(self.sequences.lock().entry(name).or_insert_with(|| Arc::new(folders)).clone()))
    }

    /// Node of an object; None when there is none.
    pub(crate) fn load(&self, fid: Fid) -> Result<Option<Kept>, OsdError> {
        let Some(folders) = self.folders(fid, false)? else { return Ok(None) };
        let Some(object) = self.zfs.find_within(&folders[fid.folder()], fid.name().as_bytes())? else { return Ok(None) };
        let node = self.zfs.kept(object)?;
        // A file that somebody put there is served; one that says to be another object is damage.
        match self.zfs.listed_xattr(&node, LMA)? {
            Some(lma) if !fid.is_in(&lma) => Err(OsdError::Store(ZplError::CORRUPT)),
            _ => Ok(Some(node)),
        }
    }

    /// Bytes of a record: the largest block of new objects.
    pub fn record_size(&self) -> u64 {
        self.objset.props().record_size as u64
    }

    /// True when data may go past the cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.property != Property::Disabled && self.direct.params().enabled
    }

    /// True when all data that can goes past the cache.
    pub(crate) fn is_always_direct(&self) -> bool {
        self.property == Property::Always && self.is_direct()
    }

    /// Zeros for blocks that nobody wrote before: the same memory for all of them.
    pub(crate) fn zeros(&self, bytes: usize) -> Abd {
        let mut zeros = self.zeros.lock();
        if zeros.len() < bytes {
            *zeros = Abd::zeroed(bytes);
        }
        zeros.slice(0..bytes)
    }

    /// Space now.
    pub fn space(&self) -> Space {
        let (space, granted) = (self.zfs.space(), self.grants.taken());
        Space {
            block_size: self.record_size(),
            total: space.referenced + space.available,
            free: space.available.saturating_sub(granted),
            granted,
            objects: space.objects_used,
        }
    }

    /// Reserves up to `bytes` more for a client, beside what is reserved already; returns how many. They are there for the transactions of that client
    /// ([`crate::Transaction::spend`]) until it gives them back.
    pub fn grant(&self, client: u64, bytes: u64) -> u64 {
        self.grants.reserve(client, bytes, self.zfs.space().available)
    }

    /// Gives up to `bytes` of a client's back; returns how many it still has.
    pub fn give_back(&self, client: u64, bytes: u64) -> u64 {
        self.grants.release(client, bytes)
    }

    /// Counts of how data moved.
    pub fn counts(&self) -> Snapshot {
        self.stats.snapshot()
    }

    /// Value of `userused`, `groupobjused`, `userquota` …: used or allowed bytes or objects, as of the last txg on disk; 0 where nothing is.
    ///
    /// # Errors
    /// [`OsdError::NotFound`] for what is none of them.
    pub fn owner_value(&self, kind: &str, id: u32) -> Result<u64, OsdError> {
        Ok(userspace::value(&self.objset, kind, u64::from(id))?)
    }

    /// Sets a limit (`userquota`, `groupobjquota` …) in bytes or objects; 0 takes it away.
    ///
    /// # Errors
    /// [`OsdError::NotFound`] for what is no limit, those of a transaction.
    pub fn set_owner_limit(&self, kind: &str, id: u32, limit: u64) -> Result<(), OsdError> {
        let tx = self.dataset.assign(TxSpace::Writes(LIMIT_BYTES))?;
        userspace::set(&self.objset, kind, u64::from(id), limit, &tx)?;
        drop(tx);
        Ok(self.zfs.renew()?)
    }

    /// Waits until everything so far is on disk, and everybody was told. Of what is read-only everything is.
    ///
    /// # Errors
    /// Those of the txg.
    pub fn sync(&self) -> Result<(), OsdError> {
        if self.zfs.is_read_only() {
            // Nobody drives the txgs of a pool that is imported so.
            return Ok(());
        }
        let txgs = self.dataset.pool().txgs();
        let txg = txgs.open_txg();
        txgs.wait_synced(txg)?;
        self.callbacks.wait(&self.exec, txg);
        self.zfs.settle();
        Ok(())
    }

    /// Asks for what [`Device::sync`] waits for, and does not wait.
    pub fn sync_soon(&self) {
        if !self.zfs.is_read_only() {
            self.dataset.pool().txgs().kick();
        }
    }
}
