//! What waits to be freed in the background, and what never will be: the list of blocks of destroyed snapshots, the queue of destroyed
//! datasets, and their space in `$FREE` and `$LEAK` (OpenZFS: `dsl_process_async_destroys`).

use super::bptree::{Bptree, FREE_TIME_NS};
use super::livelists::Livelists;
use super::tree::Tree;
use crate::bpobj::Bpobj;
use crate::dir::{Dir, NewDir};
use crate::meta::{Meta, Usage};
use crate::traverse::Walk;
use crate::{DslError, features};
use dmu::Tx;
use exec::RwLock;
use ondisk::names::spa_version;
use ondisk::{BlockPtr, dd_used};
use std::sync::Arc;

/// The directory that what waits is charged to.
pub(super) const FREE_DIR: &str = "$FREE";
/// Space of destroyed datasets that nobody can find any more; made when there is some (OpenZFS: `LEAK_DIR_NAME`).
const LEAK_DIR: &str = "$LEAK";
/// The list of blocks in the pool directory.
const FREE_BPOBJ_NAME: &str = "free_bpobj";

/// Form of that list: one that can refer to others (OpenZFS: `BPOBJ_SIZE_V2`).
const NEW_LIST: usize = 2;

/// Blocks that are nobody's and not free yet.
pub(crate) struct Freeing {
    tree: Arc<Tree>,
    /// Directory that what waits is charged to, and the list of blocks of destroyed snapshots; none in pools before version 26, where nothing waits.
    place: RwLock<Option<(Arc<Dir>, u64)>>,
    livelists: Livelists,
    bptree: Bptree,
}

impl Freeing {
    /// Makes an empty list; `$FREE` is there.
    pub(super) fn create(meta: &Meta, tx: &Tx) -> Result<(), DslError> {
        let list = meta.bpobj_alloc(tx)?;
        Ok(meta.directory()?.add_u64(FREE_BPOBJ_NAME, list, tx)?)
    }

    /// Opens what waits in the pool.
    pub(super) fn open(tree: Arc<Tree>) -> Result<Freeing, DslError> {
        let services = &tree.meta.services;
        let place = match tree.meta.directory()?.try_lookup_u64(FREE_BPOBJ_NAME)? {
            None if services.is_writeable() && services.version() >= spa_version::DEADLISTS => return Err(DslError::NotFound),
            None => None,
            Some(list) => Some((tree.special_dir(FREE_DIR)?.ok_or(DslError::NotFound)?, list)),
        };
        let (livelists, bptree) = (Livelists::load(tree.meta.clone())?, Bptree::load(tree.meta.clone())?);
        Ok(Freeing { place: RwLock::new(place), livelists, bptree, tree })
    }

    /// Makes the list, and what it is charged to, in a pool that gets version 26 or a later one (OpenZFS: `dsl_pool_upgrade_dir_clones`).
    pub(super) fn begin(&self, tx: &Tx) -> Result<(), DslError> {
        let meta = &self.tree.meta;
        let dir = Dir::create(meta, &NewDir { parent: Some(&self.tree.root_dir), name: FREE_DIR }, tx)?;
        let dir = self.tree.dir_known(dir, self.tree.root_dir.clone(), FREE_DIR.to_string())?;
        let list = meta.bpobj_alloc_of(NEW_LIST, tx)?;
        meta.directory()?.add_u64(FREE_BPOBJ_NAME, list, tx)?;
        *self.place.write() = Some((dir, list));
        Ok(())
    }

    /// Directory that what waits is charged to.
    fn free_dir(&self) -> Option<Arc<Dir>> {
        self.place.read().as_ref().map(|(dir, _)| dir.clone())
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> u64 {
        self.free_dir().map_or(0, |dir| dir.used())
    }

    /// Bytes that could not be freed because what led to them is damaged.
    pub(super) fn leaked_bytes(&self) -> Result<u64, DslError> {
        Ok(self.tree.special_dir(LEAK_DIR)?.map_or(0, |dir| dir.used()))
    }

    /// True when something waits.
    pub(super) fn is_pending(&self) -> bool {
        let has_list = || self.list() != 0 && Bpobj::open(&self.tree.meta, self.list()).is_ok_and(|list| !list.is_empty());
        !self.bptree.is_empty() || !self.livelists.is_empty() || has_list()
    }

    /// The list that blocks of destroyed snapshots go to, after a look that it can be read.
    pub(super) fn check_list(&self) -> Result<(), DslError> {
        match self.list() {
            0 => Ok(()),
            list => Bpobj::open(&self.tree.meta, list).map(drop),
        }
    }

    /// The object of the list of blocks, or 0; what is moved there is charged with [`Freeing::charge`].
    pub(super) fn list(&self) -> u64 {
        self.place.read().as_ref().map_or(0, |(_, list)| *list)
    }

    /// Charges space that waits to be freed, or no longer does.
    pub(super) fn charge(&self, change: Usage, tx: &Tx) -> Result<(), DslError> {
        self.free_dir().map_or(Ok(()), |dir| dir.charge(dd_used::HEAD, change, tx))
    }

    /// Charges space that is lost for good to `$LEAK` (OpenZFS: `dsl_process_async_destroys`).
    fn charge_leak(&self, left: Usage, tx: &Tx) -> Result<(), DslError> {
        if left.is_zero() {
            return Ok(());
        }
        let dir = match self.tree.special_dir(LEAK_DIR)? {
            Some(dir) => dir,
            None => self.tree.dir(Dir::create(&self.tree.meta, &NewDir { parent: Some(&self.tree.root_dir), name: LEAK_DIR }, tx)?)?,
        };
        dir.charge(dd_used::HEAD, left, tx)
    }

    /// Gives up the blocks of a dataset that its root leads to and that were born after a txg, which sum up to `usage`: they are queued, or, in
    /// pools without the feature for that, freed in this txg.
    pub(super) fn give_up(&self, dataset: u64, (root, after): (&BlockPtr, u64), usage: Usage, tx: &Tx) -> Result<(), DslError> {
        if self.tree.meta.services.feature_enabled(features::ASYNC_DESTROY) {
            self.bptree.add(root, after, usage, tx)?;
            return self.charge(usage, tx);
        }
        let io = &*self.tree.meta.io;
        let walk = Walk { skip_unreadable: true, ..Walk::all(io, dataset, root, after) };
        walk.run(&mut |bp| {
            if !bp.is_embedded() {
                io.free(tx.txg(), bp);
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Gives up the live blocks of a livelist, which sum up to `usage`: it is queued.
    pub(super) fn give_up_list(&self, list: u64, usage: Usage, tx: &Tx) -> Result<(), DslError> {
        self.livelists.add(list, tx)?;
        self.charge(usage, tx)
    }

    /// Calls `visit` on every block of destroyed datasets that waits.
    pub(super) fn for_each_queued(&self, visit: &mut dyn FnMut(&BlockPtr) -> Result<(), DslError>) -> Result<(), DslError> {
        self.livelists.for_each(visit)?;
        self.bptree.for_each(visit)
    }

    /// Frees at most `blocks_max` blocks and says how many.
    pub(super) fn drain(&self, blocks_max: u64, tx: &Tx) -> Result<u64, DslError> {
        let meta = &self.tree.meta;
        if self.list() == 0 {
            // Nothing waits there, ever.
            return Ok(0);
        }
        let mut freed = Usage::default();
        let count = meta.bpobj_drain(self.list(), blocks_max, tx, |bp| {
            freed += meta.usage(bp);
            if !bp.is_embedded() {
                meta.io.free(tx.txg(), bp);
            }
            Ok(())
        })?;
        self.charge(-freed, tx)?;
        let until_ns = meta.io.exec().now_ns().saturating_add(FREE_TIME_NS);
        let (listed, freed) = self.livelists.drain((blocks_max.saturating_sub(count), until_ns), tx)?;
        self.charge(-freed, tx)?;
        let count = count + listed;
        let drained = self.bptree.drain(blocks_max.saturating_sub(count), tx)?;
        self.charge(-drained.freed, tx)?;
        if let Some(left) = drained.left {
            // What unreadable blocks left charged moves to `$LEAK` (OpenZFS: with `zfs_free_leak_on_eio`).
            self.charge(-left, tx)?;
            self.charge_leak(left, tx)?;
            self.bptree.remove(tx)?;
        }
        self.settle(tx)?;
        Ok(count + drained.blocks)
    }

    /// Moves to `$LEAK` the bytes still charged to `$FREE` when nothing waits any more: they were on lists that could not be read.
    fn settle(&self, tx: &Tx) -> Result<(), DslError> {
        let Some(phys) = self.free_dir().map(|dir| dir.phys()) else { return Ok(()) };
        let left = Usage::new(phys.dd_used_bytes, phys.dd_compressed_bytes, phys.dd_uncompressed_bytes);
        if left.used == 0 || self.is_pending() {
            return Ok(());
        }
        self.charge(-left, tx)?;
        self.charge_leak(left, tx)
    }
}
