//! Going back to the newest snapshot of a dataset (OpenZFS: `dsl_dataset_rollback_sync`).
//!
//! OpenZFS makes a clone of the snapshot, has it change places with the head, and destroys it with what the head had. Here the head takes over
//! what the clone would have; on disk it is the same.

use super::bookmarks::Bookmarks;
use super::freeing::Freeing;
use super::intent::LiveLogs;
use super::logs;
use super::tree::Tree;
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::meta::Usage;
use crate::space::Space;
use crate::{DslError, names};
use dmu::Tx;
use ondisk::{DslDatasetPhys, dd_used};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A head and its newest snapshot.
pub(super) type Pair = (Arc<Dataset>, Arc<Dataset>);

/// Going back to snapshots, with the parts of the pool that it needs.
pub(crate) struct Rollback {
    tree: Arc<Tree>,
    space: Arc<Space>,
    freeing: Arc<Freeing>,
    live_logs: Arc<LiveLogs>,
    bookmarks: Arc<Bookmarks>,
}

impl Rollback {
    pub(super) fn new(
        tree: Arc<Tree>,
        space: Arc<Space>,
        freeing: Arc<Freeing>,
        live_logs: Arc<LiveLogs>,
        bookmarks: Arc<Bookmarks>,
    ) -> Rollback {
        Rollback { tree, space, freeing, live_logs, bookmarks }
    }

    /// The head and the snapshot of this full name, after a look that the one can go back to the other in this txg.
    pub(super) fn check(&self, name: &str, tx: &Tx) -> Result<Pair, DslError> {
        let (dataset, snapshot) = names::split(name)?;
        let snapshot = snapshot.ok_or(DslError::NotSnapshot)?;
        let head = self.tree.find(dataset)?;
        let target = self.tree.find_snapshot(&head, snapshot)?;
        let phys = head.phys();
        if phys.ds_prev_snap_obj != target.object {
            return Err(DslError::Exists);
        }
        // What the head gets in this txg would be born in the snapshot's.
        if phys.ds_prev_snap_txg >= tx.txg().0 {
            return Err(DslError::Again);
        }
        self.bookmarks.check_none_after(&head, phys.ds_prev_snap_txg)?;
        if head.holds.load(Ordering::Acquire) > 0 {
            return Err(DslError::Busy);
        }
        let quota = head.refquota.load(Ordering::Relaxed);
        if quota != 0 && target.referenced() > quota {
            return Err(DslError::Quota);
        }
        self.space.check_promise(&head)?;
        // What can't be read is found here, where it is the caller's error: in the sync it would be the pool's.
        self.tree.objset(&target)?;
        Deadlist::open(&self.tree.meta, phys.ds_deadlist_obj)?.usage_between(0, u64::MAX)?;
        Ok((head, target))
    }

    /// Has the head go back to the snapshot: what it got since is given up, what it gave up since is its own again.
    pub(super) fn roll_back(&self, head: &Dataset, target: &Dataset, tx: &Tx) -> Result<(), DslError> {
        let meta = &self.tree.meta;
        let (old, goal) = (head.phys(), target.phys());
        self.log_as_clone(head, &old, tx)?;
        self.live_logs.destroy(head.object, tx);
        // It tells of blocks that are given up here.
        head.drop_livelist(meta, tx)?;
        self.tree.forget_contents(head);
        let dead = Deadlist::open(meta, old.ds_deadlist_obj)?;
        let returns = dead.usage_between(self.tree.origin_txg(&head.dir)?, u64::MAX)?;
        let given_up = head.contents() + Deadlist::usage_of(meta, old.ds_deadlist_obj)? + -target.contents();
        let fresh = dead.clone_keys(goal.ds_creation_txg, target.object, tx)?;
        dead.free(tx)?;
        head.update(tx, |phys| {
            phys.ds_bp = goal.ds_bp;
            phys.ds_deadlist_obj = fresh;
            phys.ds_referenced_bytes = goal.ds_referenced_bytes;
            phys.ds_compressed_bytes = goal.ds_compressed_bytes;
            phys.ds_uncompressed_bytes = goal.ds_uncompressed_bytes;
            phys.ds_unique_bytes = 0;
        })?;
        target.update(tx, |phys| phys.ds_unique_bytes = 0)?;
        self.bookmarks.next_changed(head, target, tx)?;
        head.dir.charge(dd_used::HEAD, -given_up, tx)?;
        head.dir.transfer(returns.used, dd_used::SNAP, dd_used::HEAD, tx)?;
        // The refreservation is to hold what was the head's own once more.
        let promised = old.ds_unique_bytes.min(head.reserved()) as i64;
        head.dir.charge(dd_used::REFRSRV, Usage { used: promised, comp: 0, uncomp: 0 }, tx)?;
        self.freeing.give_up(head.object, (&old.ds_bp, goal.ds_creation_txg), given_up, tx)?;
        head.take_features_of(meta, target, tx)?;
        logs::disown(&self.tree, head, tx)
    }

    /// Tells the history of the clone that there would be, as OpenZFS does.
    fn log_as_clone(&self, head: &Dataset, old: &DslDatasetPhys, tx: &Tx) -> Result<(), DslError> {
        let clone = format!("{}/%rollback", self.tree.full_name(head)?);
        for (name, text) in
            [("clone swap", format!("parent={}", head.dir.name())), ("destroy", format!("(bptree, mintxg={})", old.ds_prev_snap_txg))]
        {
            self.tree.log_of(name, (clone.clone(), head.object), text, tx);
        }
        Ok(())
    }
}
