//! The pool as a tree of datasets: who owns what of it, and creation and opening of the whole.
//!
//! [`DslPool`] holds the owners and hands on: the name space ([`tree`]), its counts ([`limits`]), its room ([`crate::space`]), what waits to be
//! freed ([`freeing`]), and what makes, changes and destroys datasets. None of them knows the pool.
//!
//! The configuration lock orders looks at the name space against sync tasks, which take it for writing. It may be held for
//! reading while the MOS is read; nobody who holds it waits for a txg.

mod bookmarks;
mod bptree;
mod change_key;
mod create;
mod delegations;
mod destroy;
mod encryption;
mod facts;
mod freeing;
mod holds;
mod intent;
mod keystore;
mod limits;
mod list_keys;
mod livelists;
mod logs;
mod mos;
mod promote;
mod receive;
mod redaction;
mod rename;
mod rollback;
mod settings;
mod snapshot;
mod sync;
mod task;
mod tree;
mod upgrade;
mod verbs;
mod waiting;

pub use bookmarks::{BookmarkEntry, BookmarkSpace};
pub use create::{CreateDataset, DatasetInit};
use delegations::Place;
pub use delegations::{Delegation, Subject, is_delegation, is_permission, is_permission_set};
pub use facts::SnapshotEntry;
pub use holds::UserHold;
pub use intent::FailedLog;
use logs::Knows;
pub use logs::{IntentLogs, LostLogs, PendingLogs};
pub use mos::Mos;
pub use receive::{ReceiveBegin, ReceiveEnd, StreamRedaction};
pub use redaction::RedactionList;

use crate::DslError;
use crate::PoolServices;
use crate::dir::{Dir, NewDir};
use crate::handle::DatasetHandle;
use crate::meta::Meta;
use crate::space::Space;
use bookmarks::Bookmarks;
use create::Creation;
use destroy::Destruction;
use dmu::{Objset, Tx, TxgManager};
use exec::{RwLock, RwLockReadGuard};
use freeing::{FREE_DIR, Freeing};
use holds::Holds;
pub(crate) use intent::LiveLogs;
use limits::Limits;
use ondisk::names::spa_version;
use ondisk::{BlockPtr, Txg};
use promote::Promotion;
use receive::Receiving;
use rename::Renaming;
use rollback::Rollback;
pub use settings::ReceivedValue;
use settings::Settings;
use snapshot::{ORIGIN_DIR, Snapshots};
use std::sync::Arc;
use task::Tasks;
use tree::Tree;
pub use upgrade::Upgraded;
use zil::Arena;

const MOS_DIR: &str = "$MOS";

/// The datasets of a pool. All methods may be called from any thread; those that change something wait for a txg and
/// must not be called in syncing context.
pub struct DslPool {
    mos: Mos,
    txgs: Arc<TxgManager>,
    config: RwLock<()>,
    tasks: Tasks<DslPool>,
    mos_dir: Arc<Dir>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) space: Arc<Space>,
    pub(crate) limits: Arc<Limits>,
    freeing: Arc<Freeing>,
    pub(crate) live_logs: Arc<LiveLogs>,
    settings: Arc<Settings>,
    creation: Creation,
    snapshots: Snapshots,
    renaming: Renaming,
    rollback: Rollback,
    promotion: Promotion,
    receiving: Receiving,
    destruction: Destruction,
    holds: Holds,
    pub(crate) bookmarks: Arc<Bookmarks>,
}

impl std::fmt::Debug for DslPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DslPool {{ name: {:?} }}", self.tree.root_dir.name())
    }
}

impl DslPool {
    /// Fills a new MOS: root directory, `$MOS`, `$FREE`, `$ORIGIN` with its snapshot, and the list of blocks to free, as far as the
    /// pool's version has them (OpenZFS: `dsl_pool_create`). In syncing context of the pool's first txg.
    pub fn create(mos: Mos, services: Arc<dyn PoolServices>, txgs: Arc<TxgManager>, tx: &Tx) -> Result<Arc<DslPool>, DslError> {
        let meta = Meta::new(mos.objset().clone(), services.clone());
        let root = Dir::create(&meta, &NewDir { parent: None, name: "" }, tx)?;
        let root = Dir::load(&meta, root, None, services.pool_name())?;
        Dir::create(&meta, &NewDir { parent: Some(&root), name: MOS_DIR }, tx)?;
        let version = services.version();
        if version >= spa_version::DEADLISTS {
            Dir::create(&meta, &NewDir { parent: Some(&root), name: FREE_DIR }, tx)?;
            Freeing::create(&meta, tx)?;
        }
        let pool = DslPool::assemble(mos, meta, txgs, root)?;
        if version >= spa_version::ORIGIN {
            upgrade::make_origin(&pool, tx)?;
        }
        Ok(pool)
    }

    /// Opens what [`DslPool::create`] or OpenZFS made.
    pub fn open(mos: Mos, services: Arc<dyn PoolServices>, txgs: Arc<TxgManager>) -> Result<Arc<DslPool>, DslError> {
        let meta = Meta::new(mos.objset().clone(), services.clone());
        let root = Dir::load(&meta, meta.directory()?.lookup_u64("root_dataset")?, None, services.pool_name())?;
        meta.load_empty_bpobj()?;
        let pool = DslPool::assemble(mos, meta, txgs, root)?;
        if let Some(origin) = pool.tree.special_dir(ORIGIN_DIR)? {
            pool.tree.set_origin(origin.phys().dd_head_dataset_obj)?;
        }
        Ok(pool)
    }

    fn assemble(mos: Mos, meta: Meta, txgs: Arc<TxgManager>, root: Arc<Dir>) -> Result<Arc<DslPool>, DslError> {
        let meta = Arc::new(meta);
        let tree = Arc::new(Tree::new(meta.clone(), root.clone()));
        let freeing = Arc::new(Freeing::open(tree.clone())?);
        let limits = Arc::new(Limits::new(tree.clone()));
        let live_logs = Arc::new(LiveLogs::new(meta.clone(), txgs.clone(), tree.waiting.clone()));
        let space = Arc::new(Space::new(meta, txgs.clone(), root));
        let settings = Arc::new(Settings::new(tree.clone(), limits.clone(), space.clone()));
        let bookmarks = Arc::new(Bookmarks::new(tree.clone()));
        Ok(Arc::new(DslPool {
            mos,
            txgs,
            config: RwLock::new(()),
            tasks: Tasks::default(),
            mos_dir: tree.special_dir(MOS_DIR)?.ok_or(DslError::NotFound)?,
            creation: Creation::new(tree.clone(), limits.clone(), space.clone(), settings.clone()),
            snapshots: Snapshots::new(tree.clone(), limits.clone(), space.clone(), settings.clone()),
            renaming: Renaming::new(tree.clone(), limits.clone(), space.clone()),
            rollback: Rollback::new(tree.clone(), space.clone(), freeing.clone(), live_logs.clone(), bookmarks.clone()),
            promotion: Promotion::new(tree.clone(), limits.clone(), space.clone(), bookmarks.clone()),
            receiving: Receiving::new(tree.clone(), live_logs.clone(), bookmarks.clone()),
            destruction: Destruction::new(tree.clone(), limits.clone(), freeing.clone(), live_logs.clone(), bookmarks.clone()),
            holds: Holds::new(tree.clone()),
            bookmarks,
            tree,
            space,
            limits,
            freeing,
            live_logs,
            settings,
        }))
    }

    /// The pool's version (see `ondisk::names::spa_version`).
    pub fn version(&self) -> u64 {
        self.tree.meta.services.version()
    }

    /// The meta object set.
    pub fn mos(&self) -> &Arc<Objset> {
        self.mos.objset()
    }
    /// The transaction groups.
    pub fn txgs(&self) -> &Arc<TxgManager> {
        &self.txgs
    }
    pub(crate) fn config(&self) -> RwLockReadGuard<'_, ()> {
        self.config.read()
    }
    /// Gives the object sets in memory what follows from the pool's features, as these changed. In syncing context.
    pub fn features_changed(&self) -> Result<(), DslError> {
        self.tree.refresh_props(&self.tree.root_dir)
    }
    /// Bytes used in the pool: what the root directory counts.
    pub fn used_bytes(&self) -> u64 {
        self.tree.root_dir.used()
    }
    /// Bytes that wait to be freed in the background (the `freeing` property).
    pub fn freeing_bytes(&self) -> u64 {
        self.freeing.bytes()
    }

    /// Bytes of destroyed datasets that could not be freed because what led to them is damaged (the `leaked` property).
    ///
    /// # Errors
    /// Those of reading the MOS.
    pub fn leaked_bytes(&self) -> Result<u64, DslError> {
        let _config = self.config();
        self.freeing.leaked_bytes()
    }

    /// True when blocks wait to be freed by [`DslPool::sync_frees`].
    pub fn has_frees(&self) -> bool {
        self.freeing.is_pending()
    }

    /// Calls `visit` on every block of destroyed datasets that waits to be freed, for checks of space.
    pub fn for_each_queued(&self, visit: &mut dyn FnMut(&BlockPtr) -> Result<(), DslError>) -> Result<(), DslError> {
        self.freeing.for_each_queued(visit)
    }

    /// Sets limits of the livelists of clones: the number of blocks born that a part of one is left at for the next (OpenZFS:
    /// `zfs_livelist_max_entries`), and the percentage of a clone that it has to share with its origin (`zfs_livelist_min_percent_shared`;
    /// -1: nothing).
    pub fn tune_livelists(&self, entries_max: u64, min_percent_shared: i64) {
        self.tree.meta.livelists.set(entries_max, min_percent_shared);
    }

    /// Sets for how many percent of the usual time of writing to an intent log whoever writes next waits for others to write with it, 100 ms at most
    /// (OpenZFS: `zfs_commit_timeout_pct`).
    pub fn tune_logs(&self, gather_percent: u64) {
        self.live_logs.set_gather_percent(gather_percent);
    }

    /// Sets the factor by which bytes may become more on devices: what is received may exceed its `refquota` by so many transactions (OpenZFS:
    /// `spa_asize_inflation`).
    pub fn tune_receives(&self, inflation: u64) {
        self.receiving.set_inflation(inflation);
    }

    /// Number of the erratum that datasets of the pool have, as far as they were looked at since it was opened (OpenZFS: `spa_errata`): 3 for keys of the
    /// first version, else 4 for encrypted snapshots that name no set of IVs, and 0 for none.
    pub fn erratum(&self) -> u64 {
        self.tree.erratum()
    }

    /// Holds a dataset by its full name (`pool/fs` or `pool/fs@snapshot`).
    pub fn hold(self: &Arc<Self>, name: &str) -> Result<DatasetHandle, DslError> {
        let _config = self.config();
        Ok(DatasetHandle::new(self.clone(), self.tree.find(name)?))
    }

    /// Holds a dataset by its object.
    pub fn hold_object(self: &Arc<Self>, object: u64) -> Result<DatasetHandle, DslError> {
        let _config = self.config();
        Ok(DatasetHandle::new(self.clone(), self.tree.dataset(object)?))
    }

    /// Name of the dataset whose object set has this number, as far as it is in memory: neither reads nor waits. Of a snapshot the
    /// file system's with an `@`.
    pub fn known_name(&self, objset: u64) -> Option<String> {
        self.tree.known_name(objset)
    }

    /// Last components of the names of a dataset's children, sorted.
    pub fn children(&self, name: &str) -> Result<Vec<String>, DslError> {
        let _config = self.config();
        self.tree.child_names(name)
    }

    /// The snapshots of a dataset, oldest first.
    pub fn snapshots(&self, name: &str) -> Result<Vec<SnapshotEntry>, DslError> {
        let _config = self.config();
        let head = self.tree.head(&*self.tree.find_dir(name)?)?;
        self.tree.snapshots_of(&head)
    }

    /// The bookmarks of a dataset, oldest first.
    ///
    /// # Errors
    /// [`DslError::NotFound`], those of reading the MOS.
    pub fn bookmarks(&self, name: &str) -> Result<Vec<BookmarkEntry>, DslError> {
        let _config = self.config();
        let head = self.tree.head(&*self.tree.find_dir(name)?)?;
        self.bookmarks.list(&head)
    }

    /// Redaction list of a bookmark (full name), held; None for a bookmark without one.
    ///
    /// # Errors
    /// [`DslError::NotFound`], [`DslError::Corrupt`], those of reading the MOS.
    pub fn redaction_list(&self, bookmark: &str) -> Result<Option<RedactionList>, DslError> {
        let _config = self.config();
        self.bookmarks.hold_list(bookmark)
    }

    /// True when what the dataset `earlier` was in this txg is an earlier point of what `dir` is now.
    pub(crate) fn is_before(&self, dir: &Arc<Dir>, earlier: &str, txg: u64) -> Result<bool, DslError> {
        let _config = self.config();
        let earlier = self.tree.find_dir(earlier)?;
        self.bookmarks.is_before(dir, &earlier, txg)
    }

    /// The holds of users on a snapshot (full name), sorted by tag.
    ///
    /// # Errors
    /// [`DslError::NotSnapshot`], [`DslError::NotFound`], those of reading the MOS.
    pub fn user_holds(&self, name: &str) -> Result<Vec<UserHold>, DslError> {
        let _config = self.config();
        let found = self.tree.snapshots_named(&[name.to_string()])?;
        self.holds.list(found.first().ok_or(DslError::NotFound)?)
    }

    /// Permissions that were delegated at a dataset and above it, by the full names of the datasets that have some; its own come first
    /// (OpenZFS: `dsl_deleg_get`).
    ///
    /// # Errors
    /// [`DslError::NotFound`], those of reading the MOS.
    pub fn delegations(&self, name: &str) -> Result<Vec<(String, Vec<Delegation>)>, DslError> {
        let _config = self.config();
        delegations::above(&self.tree, name)
    }

    /// True when the pool lets users do what was delegated to them: its property `delegation` (OpenZFS: `spa_delegation`).
    ///
    /// # Errors
    /// Those of reading the MOS.
    pub fn delegates(&self) -> Result<bool, DslError> {
        let _config = self.config();
        delegations::is_on(&self.tree.meta)
    }

    /// True when a user was delegated a permission on a file system or volume, or on a snapshot, for which what was delegated for descendants of
    /// its file system counts (OpenZFS: `dsl_deleg_access`).
    ///
    /// # Errors
    /// [`DslError::NotFound`], [`DslError::BadName`], those of reading the MOS.
    pub fn is_delegated(&self, name: &str, permission: &str, subject: &Subject) -> Result<bool, DslError> {
        let _config = self.config();
        let dataset = self.tree.find(name)?;
        let place = if dataset.is_snapshot { Place::Below } else { Place::Here };
        delegations::is_delegated(&self.tree, (&dataset.dir, place), permission, subject)
    }

    /// True when a user was delegated a permission for descendants of a file system or volume.
    ///
    /// # Errors
    /// As of [`DslPool::is_delegated`].
    pub fn is_delegated_below(&self, name: &str, permission: &str, subject: &Subject) -> Result<bool, DslError> {
        let _config = self.config();
        let dataset = self.tree.find(name)?;
        delegations::is_delegated(&self.tree, (&dataset.dir, Place::Below), permission, subject)
    }

    /// True when a user will have a permission on a dataset that the user makes in this one: those for descendants, and those of creators.
    ///
    /// # Errors
    /// As of [`DslPool::is_delegated`].
    pub fn is_delegated_in(&self, parent: &str, permission: &str, subject: &Subject) -> Result<bool, DslError> {
        let _config = self.config();
        let dataset = self.tree.find(parent)?;
        delegations::is_delegated(&self.tree, (&dataset.dir, Place::New), permission, subject)
    }

    /// Bytes of the pool that may be taken when a block of an intent log is that lies among data.
    pub fn bytes_with_logs(&self) -> u64 {
        self.space.bytes_with_logs()
    }

    /// Looks at the logs of all datasets of a pool that is being opened: those to be replayed, and those to be given up with its first
    /// txg. What somebody `knows` can be replayed; logs that end on a device that was `lost` are given up, and those that went on after the txg
    /// `root`, of which the root on disk is, in txgs that the pool left behind.
    ///
    /// # Errors
    /// The names of the datasets that have something to be replayed which cannot be. The log of a dataset that can't be read can't be
    /// told; nothing can be written there either.
    pub fn look_at_logs(&self, root: Txg, knows: Knows<'_>, lost: &LostLogs) -> Result<IntentLogs, Vec<String>> {
        let _config = self.config();
        IntentLogs::look(&self.tree, (self.txgs.synced_txg(), root), knows, lost)
    }

    /// Claims the space of logs that are to be replayed, in the pool's first txg: before anything else is allocated.
    ///
    /// # Errors
    /// The names of the datasets whose logs could not be read.
    pub fn claim_logs(&self, logs: &mut IntentLogs) -> Result<(), Vec<String>> {
        logs.claim(&self.tree, self.txgs.synced_txg())
    }

    /// Names the arena of the pool with this guid, before any dataset is used; false when it has one already.
    pub fn set_arena(&self, arena: Arc<Arena>, guid: u64) -> bool {
        arena.attach(guid, &self.txgs);
        self.live_logs.set_arena(arena)
    }

    /// Arena of the pool, where its mounts are to outlive the process.
    pub fn arena(&self) -> Option<&Arc<Arena>> {
        self.live_logs.arena()
    }

    /// A look that all datasets can be upgraded that an upgrade from a version to another one changes; part of the check of a sync task.
    ///
    /// # Errors
    /// Those of reading the MOS, also of records that are damaged.
    pub fn check_upgrade(&self, from: u64, to: u64) -> Result<Upgraded, DslError> {
        upgrade::check(self, from, to)
    }

    /// Makes what pools of version `to` have and those of version `from` lack, in syncing context; who calls it sets the version with the same txg,
    /// afterwards.
    ///
    /// # Errors
    /// Those of changing the MOS.
    pub fn upgrade(&self, from: u64, to: u64, found: &Upgraded, tx: &Tx) -> Result<(), DslError> {
        upgrade::carry_out(self, from, to, found, tx)
    }

    /// Sets the name of the root dataset, after the pool was imported under another name.
    pub fn rename_pool(&self, name: &str) {
        self.tree.root_dir.rename(None, name);
    }
}
