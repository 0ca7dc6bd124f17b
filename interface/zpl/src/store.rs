//! What a file system stands on: its object set with the attributes in it, its transactions, properties, limits and counters.

use crate::counts::DatasetCounts;
use crate::direct::Direct;
use crate::log::Journal;
use crate::room::Room;
use crate::sa::Sa;
use crate::settings::{CaseSensitivity, Settings};
use crate::unlinked::UnlinkedSet;
use crate::userspace::Limits;
use crate::znode::{ATIME, CTIME, MTIME, Time, Znode};
use crate::{Accounting, ZplError};
use dmu::{Objset, SyncMode, TxgManager};
use exec::{Exec, RwLock};
use ondisk::{Compression, ObjectId, Txg};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use zap::{Match, NormFlags, Zap};

/// Object of the master node of every file system (OpenZFS: `MASTER_NODE_OBJ`).
pub(crate) const MASTER_NODE: ObjectId = ObjectId(1);
/// Newest version (OpenZFS: `ZPL_VERSION`).
pub const VERSION: u64 = 5;
/// Version from which on nodes have system attributes (OpenZFS: `ZPL_VERSION_SA`).
pub(crate) const VERSION_SA: u64 = 5;
/// Version from which on directory entries carry the type (OpenZFS: `ZPL_VERSION_DIRENT_TYPE`).
const VERSION_DIRENT_TYPE: u64 = 2;
/// Seconds of age from which an access time is renewed with `relatime`.
const RELATIME_SECONDS: i64 = 24 * 60 * 60;
/// Longest name in bytes (OpenZFS: `ZFS_MAX_DATASET_NAME_LEN` is another matter; `MAXNAMELEN` − 1).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest name in bytes with the property `longname`.
pub const LONG_NAME_BYTES_MAX: usize = zap::LONGNAME_BYTES_MAX - 1;

/// Rules of how names are compared, and which are allowed: fixed when the file system was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameRules {
    pub(crate) norm: NormFlags,
    case: CaseSensitivity,
    utf8_only: bool,
}

/// Ground of a file system: what all of its parts stand on.
pub(crate) struct Store {
    pub(crate) objset: Arc<Objset>,
    pub(crate) exec: Exec,
    pub(crate) sa: Sa,
    pub(crate) room: Arc<Room>,
    pub(crate) unlinked: Arc<UnlinkedSet>,
    pub(crate) limits: Limits,
    pub(crate) counts: DatasetCounts,
    pub(crate) journal: Journal,
    pub(crate) rules: NameRules,
    settings: RwLock<Settings>,
    direct: OnceLock<Direct>,
    /// Time that counts instead of the clock's, while operations are done again as they were.
    replayed_time: RwLock<Option<Time>>,
    is_replayed: AtomicBool,
}

impl NameRules {
    fn read(master: &Zap) -> Result<NameRules, ZplError> {
        let property = |name: &str| master.try_lookup_u64(name).map(Option::unwrap_or_default);
        let case = match property("casesensitivity")? {
            0 => CaseSensitivity::Sensitive,
            1 => CaseSensitivity::Insensitive,
            2 => CaseSensitivity::Mixed,
            _ => return Err(ZplError::CORRUPT),
        };
        let mut norm = NormFlags(property("normalization")?);
        if case != CaseSensitivity::Sensitive {
            norm = norm.with(NormFlags::TOUPPER);
        }
        Ok(NameRules { norm, case, utf8_only: property("utf8only")? != 0 })
    }

    /// Way in which a name is looked up.
    pub(crate) fn matching(&self) -> Match {
        match (self.norm.is_none(), self.case) {
            (true, _) => Match::Exact,
            (false, CaseSensitivity::Mixed) => Match::NormalizeMatchCase,
            (false, _) => Match::Normalize,
        }
    }
}

impl Store {
    /// Opens the object set; without `txgs` it is read-only.
    pub(crate) fn open(objset: &Arc<Objset>, txgs: Option<Arc<TxgManager>>, settings: Settings) -> Result<Store, ZplError> {
        let master = Zap::hold(objset, MASTER_NODE)?;
        let version = master.lookup_u64("VERSION")?;
        if version == 0 || version > VERSION {
            return Err(ZplError::NotSupported);
        }
        let rules = NameRules::read(&master)?;
        let sa = Sa::open(objset, version, master.try_lookup_u64("SA_ATTRS")?.map(ObjectId))?;
        let unlinked = match master.try_lookup_u64("DELETE_QUEUE")? {
            Some(object) => Some(Zap::hold(objset, ObjectId(object))?),
            None => None,
        };
        let unlinked = Arc::new(UnlinkedSet::new(unlinked));
        let counts = DatasetCounts::default();
        counts.unlinked(unlinked.count());
        // One that lacks what its version needs is damaged: it is not made worse.
        let txgs = txgs.filter(|_| sa.is_modern() || version < VERSION_SA);
        if txgs.is_some() {
            Accounting::install(objset);
        }
        let room = Arc::new(Room::new(txgs, unlinked.clone()));
        Ok(Store {
            objset: objset.clone(),
            exec: objset.io().exec().clone(),
            sa,
            room: room.clone(),
            unlinked,
            limits: Limits::read(objset, room)?,
            counts,
            journal: Journal::default(),
            rules,
            settings: RwLock::new(settings),
            direct: OnceLock::new(),
            replayed_time: RwLock::new(None),
            is_replayed: AtomicBool::new(false),
        })
    }

    /// Properties in effect. Nodes of old file systems have no project.
    pub(crate) fn settings(&self) -> Settings {
        let settings = *self.settings.read();
        Settings { project_quota: settings.project_quota && self.sa.is_modern(), ..settings }
    }

    /// True when directory entries carry the type.
    pub(crate) fn has_types(&self) -> bool {
        self.sa.version() >= VERSION_DIRENT_TYPE
    }

    /// Looks again which version the file system has, which was raised: what is made from now on is as that has it.
    ///
    /// # Errors
    /// Those of reading the master node.
    pub(crate) fn renew_version(&self) -> Result<(), ZplError> {
        let master = Zap::hold(&self.objset, MASTER_NODE)?;
        self.sa.set_version(master.lookup_u64("VERSION")?, master.try_lookup_u64("SA_ATTRS")?.map(ObjectId));
        Ok(())
    }

    /// Replaces the properties.
    pub(crate) fn set_settings(&self, settings: Settings) {
        *self.settings.write() = settings;
    }

    /// Names the parameters and counters of direct I/O.
    pub(crate) fn set_direct(&self, direct: Direct) {
        let _ = self.direct.set(direct);
    }

    /// Parameters and counters of direct I/O.
    pub(crate) fn direct(&self) -> &Direct {
        self.direct.get_or_init(Direct::default)
    }

    pub(crate) fn is_snapshot(&self) -> bool {
        self.settings.read().snapshot
    }

    pub(crate) fn now(&self) -> Time {
        let replayed = if self.is_replayed.load(Ordering::Relaxed) { *self.replayed_time.read() } else { None };
        replayed.unwrap_or_else(|| self.exec.wall_clock())
    }

    /// Sets the time of an operation that is done again; None lets the clock go on.
    pub(crate) fn set_replayed_time(&self, time: Option<Time>) {
        *self.replayed_time.write() = time;
        self.is_replayed.store(time.is_some(), Ordering::Relaxed);
    }

    /// Checks that anything can be changed; gives the properties that say so.
    pub(crate) fn check_writable(&self) -> Result<Settings, ZplError> {
        let settings = self.settings();
        if self.room.is_read_only() || settings.read_only { Err(ZplError::ReadOnly) } else { Ok(settings) }
    }

    /// Bytes of a record, at most.
    pub(crate) fn record_size(&self) -> u64 {
        self.objset.props().record_size as u64
    }

    /// True when blocks of zeros become holes.
    pub(crate) fn compresses(&self) -> bool {
        self.objset.props().compression != Compression::OFF
    }

    /// Makes durable what was done to the objects, which a txg up to this one changed last: by the log where there is one, with what
    /// else goes with every commit, else by the txg.
    pub(crate) fn commit(&self, objects: &[ObjectId], txg: Txg) -> Result<(), ZplError> {
        let (Some(log), Some((first, others))) = (self.journal.log(), objects.split_first()) else { return self.room.wait_txg(txg) };
        if self.room.is_synced(txg) {
            return Ok(());
        }
        let unlogged = || objects.iter().map(|object| self.journal.unlogged(Some(*object))).max().unwrap_or(Txg(0));
        // Before, so that the log need not hold what builds on it.
        self.room.wait_txg(unlogged())?;
        others.iter().for_each(|object| log.promote(*object));
        log.commit(Some(*first))?;
        self.room.wait_txg(unlogged())
    }

    /// Makes durable what was done to any object.
    pub(crate) fn commit_all(&self) -> Result<(), ZplError> {
        let Some(log) = self.journal.log() else { return self.room.sync() };
        self.room.wait_txg(self.journal.unlogged(None))?;
        log.commit(None)?;
        self.room.wait_txg(self.journal.unlogged(None))
    }

    /// Waits for a synchronous write to an object.
    pub(crate) fn wait_for_stable(&self, object: ObjectId, txg: Txg) -> Result<(), ZplError> {
        if self.objset.props().sync == SyncMode::Disabled {
            return Ok(());
        }
        self.commit(&[object], txg)
    }

    /// Longest name that a file can get, in bytes: the property `longname` decides.
    pub(crate) fn name_bytes_max(&self) -> usize {
        if self.settings().longname { LONG_NAME_BYTES_MAX } else { NAME_BYTES_MAX }
    }

    pub(crate) fn check_name(&self, name: &[u8]) -> Result<(), ZplError> {
        if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            return Err(ZplError::Invalid);
        }
        if name.len() > self.name_bytes_max() {
            return Err(ZplError::NameTooLong);
        }
        if name == b"." || name == b".." {
            return Err(ZplError::Exists);
        }
        if self.rules.utf8_only && std::str::from_utf8(name).is_err() {
            return Err(ZplError::NotUtf8);
        }
        Ok(())
    }

    /// Renews the access time in memory; it reaches the object with the next change or when the node leaves memory.
    pub(crate) fn note_access(&self, node: &Znode) {
        let settings = self.settings();
        if !settings.atime || self.room.is_read_only() {
            return;
        }
        let now = self.now();
        let mut state = node.state.lock();
        let times = state.fields.times;
        let stale = times[ATIME] <= times[MTIME] || times[ATIME] <= times[CTIME] || now.0 - times[ATIME].0 >= RELATIME_SECONDS;
        if stale || !settings.relatime {
            state.fields.times[ATIME] = now;
            state.atime_dirty = true;
        }
    }
}
