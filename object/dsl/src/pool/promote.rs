//! Promoting clones: the snapshots up to the one that a clone was made from become its own, and the file system or volume that had them becomes
//! its clone (OpenZFS: `dsl_dataset_promote_sync`).
//!
//! No block changes, and no snapshot gets another one before it: only directories, links between snapshots and clones, bookmarks of what changes
//! hands, and the sums of space do.

use super::bookmarks::Bookmarks;
use super::limits::Limits;
use super::tree::Tree;
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::dir::Dir;
use crate::marks::Stored;
use crate::meta::{Usage, damaged};
use crate::ports::Inheritance;
use crate::space::Space;
use crate::{DslError, names};
use dmu::Tx;
use ondisk::names::spa_version;
use ondisk::{DD_FLAG_USED_BREAKDOWN, ObjsetId, Txg, dd_used, ds_flags};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A clone that can be promoted, and all that it is about.
pub(super) struct Promoted {
    clone: Arc<Dataset>,
    /// Snapshot that the clone was made from.
    origin: Arc<Dataset>,
    /// Head that becomes the clone.
    other: Arc<Dataset>,
    /// Snapshots that change hands, the newest, the origin, first.
    shared: Vec<Arc<Dataset>>,
    /// The first that came after the origin in the clone: a snapshot, or the clone itself.
    first: Arc<Dataset>,
    /// Snapshot that the oldest of those that change hands came from; none in pools before version 11, unless the other one is a clone itself.
    before: Option<Arc<Dataset>>,
    /// Bookmarks of the other one that go along with the snapshots.
    bookmarks: Vec<Stored>,
    sums: Sums,
}

/// Space that changes hands, and what snapshots alone have afterwards.
struct Sums {
    moved: Usage,
    /// Unique bytes of the origin.
    unique: u64,
    /// Bytes that only snapshots of the clone have.
    clone_snapshots: i64,
    /// Bytes that only snapshots of the other one have.
    other_snapshots: i64,
}

/// Promotion of clones, with the parts of the pool that it needs.
pub(crate) struct Promotion {
    tree: Arc<Tree>,
    limits: Arc<Limits>,
    space: Arc<Space>,
    bookmarks: Arc<Bookmarks>,
}

impl Promotion {
    pub(super) fn new(tree: Arc<Tree>, limits: Arc<Limits>, space: Arc<Space>, bookmarks: Arc<Bookmarks>) -> Promotion {
        Promotion { tree, limits, space, bookmarks }
    }

    /// The clone of this name, after a look that it can be promoted.
    pub(super) fn check(&self, name: &str) -> Result<Promoted, DslError> {
        let clone = self.tree.find(name)?;
        if clone.is_snapshot {
            return Err(DslError::IsSnapshot);
        }
        if !self.tree.is_clone(&clone.dir) {
            return Err(DslError::NotClone);
        }
        let origin = self.tree.dataset(clone.dir.phys().dd_origin_obj)?;
        let other = self.tree.head(&origin.dir)?;
        let before = match origin.dir.phys().dd_origin_obj {
            0 => None,
            object => Some(self.tree.dataset(object)?),
        };
        let is_temporary = clone.phys().ds_flags & ds_flags::NOPROMOTE != 0;
        // Who is a clone of what is noted since version 26.
        let are_noted = || before.as_ref().is_some_and(|before| before.dir.phys().dd_clones != 0) && origin.dir.phys().dd_clones != 0;
        if is_temporary || self.notes_clones() && !are_noted() {
            return Err(DslError::Unsupported);
        }
        self.tree.check_promotion(&clone.dir, &origin.dir)?;
        let shared = self.chain(&origin, before.as_ref().map_or(0, |before| before.object))?;
        self.check_names(&clone, &other, &shared)?;
        let bookmarks = self.bookmarks.check_move(&other, &clone, origin.phys().ds_creation_txg)?;
        let own = self.chain(&clone, origin.object)?;
        let first = own.last().cloned().ok_or(DslError::NotFound)?;
        let sums = self.sums([&shared, &own, &self.chain(&other, origin.object)?], &first, before.as_deref())?;
        self.space.check_transfer(&origin.dir, &clone.dir, sums.moved.used.max(0) as u64)?;
        Ok(Promoted { clone, origin, other, shared, first, before, bookmarks, sums })
    }

    /// True where directories note which heads are clones of their snapshots.
    fn notes_clones(&self) -> bool {
        self.tree.meta.services.version() >= spa_version::DIR_CLONES
    }

    /// A dataset and those before it up to the one with this object, which is left out (OpenZFS: `snaplist_make`).
    fn chain(&self, newest: &Arc<Dataset>, until: u64) -> Result<Vec<Arc<Dataset>>, DslError> {
        let (mut chain, mut seen) = (vec![newest.clone()], BTreeSet::from([newest.object]));
        let mut object = newest.phys().ds_prev_snap_obj;
        while object != until {
            if object == 0 || !seen.insert(object) {
                return Err(damaged(newest.object, "the snapshots before a dataset do not lead to its origin"));
            }
            let dataset = self.tree.dataset(object)?;
            object = dataset.phys().ds_prev_snap_obj;
            chain.push(dataset);
        }
        Ok(chain)
    }

    /// Nobody uses the snapshots, and their names fit the clone.
    fn check_names(&self, clone: &Dataset, other: &Dataset, shared: &[Arc<Dataset>]) -> Result<(), DslError> {
        let room = names::NAME_BYTES_MAX.saturating_sub(clone.dir.full_name().len() + 1);
        for snapshot in shared {
            if snapshot.holds.load(Ordering::Acquire) > 0 {
                return Err(DslError::Busy);
            }
            let name = String::from_utf8_lossy(&self.stored_name(other, snapshot)?).into_owned();
            if name.len() >= room {
                return Err(DslError::NameTooLong);
            }
            match self.tree.find_snapshot(clone, &name) {
                Ok(_) => return Err(DslError::Conflict { name }),
                Err(DslError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Name of a snapshot as the table of its head has it, whatever case it was asked for in.
    fn stored_name(&self, head: &Dataset, snapshot: &Dataset) -> Result<Vec<u8>, DslError> {
        Ok(self.tree.meta.zap(head.phys().ds_snapnames_zapobj)?.value_search(snapshot.object, 0)?)
    }

    /// Works out the sums, for what changes hands, what is the clone's own, and what stays the other one's.
    fn sums(&self, [shared, own, left]: [&[Arc<Dataset>]; 3], first: &Dataset, before: Option<&Dataset>) -> Result<Sums, DslError> {
        let origin = shared.first().ok_or(DslError::NotFound)?;
        // Every snapshot gave birth to what it refers to, less what the one before does, and what died in between.
        let mut moved = origin.contents() + -before.map_or_else(Usage::default, Dataset::contents);
        for snapshot in shared {
            moved += Deadlist::usage_of(&self.tree.meta, snapshot.phys().ds_deadlist_obj)?;
        }
        let since = self.tree.origin_txg(&origin.dir)?;
        let (clone_shared, clone_own) = (self.died_after(shared, since)?, self.died_after(own, since)?);
        let died = Deadlist::open(&self.tree.meta, first.phys().ds_deadlist_obj)?;
        let unique = died.usage_between(origin.phys().ds_prev_snap_txg, u64::MAX)?.used;
        Ok(Sums {
            moved,
            unique: unique.max(0) as u64,
            clone_snapshots: clone_shared + clone_own,
            other_snapshots: self.died_after(left, origin.phys().ds_creation_txg)?,
        })
    }

    /// Bytes on the deadlists of these datasets that were born after a txg (OpenZFS: `snaplist_space`).
    fn died_after(&self, datasets: &[Arc<Dataset>], txg: u64) -> Result<i64, DslError> {
        let mut used = 0;
        for dataset in datasets {
            used += Deadlist::open(&self.tree.meta, dataset.phys().ds_deadlist_obj)?.usage_between(txg, u64::MAX)?.used;
        }
        Ok(used)
    }

    /// Promotes the clone.
    pub(super) fn promote(&self, promoted: &Promoted, tx: &Tx) -> Result<(), DslError> {
        let Promoted { clone, origin, other, shared, bookmarks, sums, .. } = promoted;
        let passed = origin.phys().ds_next_snap_obj;
        self.tree.promote_root(&clone.dir, &other.dir, tx)?;
        // They tell of what came after origins that are not the datasets' any more.
        clone.drop_livelist(&self.tree.meta, tx)?;
        other.drop_livelist(&self.tree.meta, tx)?;
        self.relink(promoted, passed, tx)?;
        for snapshot in shared {
            self.take_over(promoted, snapshot, tx)?;
            self.move_clones(promoted, snapshot, passed, tx)?;
            // It is another directory's from now on.
            self.tree.forget(snapshot);
        }
        self.bookmarks.move_all(bookmarks, other, clone, tx)?;
        self.bookmarks.next_changed(clone, origin, tx)?;
        clone.follow_bookmarks(&self.tree.meta)?;
        other.follow_bookmarks(&self.tree.meta)?;
        let Usage { used, comp, uncomp } = sums.moved;
        let gained = snapshots_gain(&clone.dir, sums.clone_snapshots);
        clone.dir.charge(dd_used::SNAP, Usage { used: gained, comp: 0, uncomp: 0 }, tx)?;
        clone.dir.charge(dd_used::HEAD, Usage { used: used - gained, comp, uncomp }, tx)?;
        let gained = snapshots_gain(&other.dir, sums.other_snapshots);
        other.dir.charge(dd_used::SNAP, Usage { used: gained, comp: 0, uncomp: 0 }, tx)?;
        other.dir.charge(dd_used::HEAD, Usage { used: -used - gained, comp: -comp, uncomp: -uncomp }, tx)?;
        let (from, to, until) = (ObjsetId(other.object), ObjsetId(clone.object), Txg(origin.phys().ds_creation_txg));
        self.tree.meta.services.snapshots_inherited(&self.tree.meta.objset, &Inheritance { from, to, until }, tx)?;
        self.tree.log("promote", clone.object, String::new(), tx)
    }

    /// Has the origin go on with the clone, and the other one branch off, and notes who is a clone of what; `passed` is what came after the origin.
    fn relink(&self, promoted: &Promoted, passed: u64, tx: &Tx) -> Result<(), DslError> {
        let Promoted { clone, origin, other, first, before, sums, .. } = promoted;
        let meta = &self.tree.meta;
        origin.update(tx, |phys| {
            phys.ds_next_snap_obj = first.object;
            phys.ds_unique_bytes = sums.unique;
        })?;
        let next_clones = origin.phys().ds_next_clones_obj;
        if next_clones != 0 {
            self.tree.remove_next_clone(next_clones, first.object, tx)?;
            meta.zap(next_clones)?.add_int(passed, tx)?;
        }
        clone.dir.update(tx, |phys| phys.dd_origin_obj = before.as_ref().map_or(0, |before| before.object))?;
        other.dir.update(tx, |phys| phys.dd_origin_obj = origin.object)?;
        let Some(before) = before.as_ref().filter(|_| self.notes_clones()) else { return Ok(()) };
        meta.zap(other.dir.phys().dd_clones)?.remove_int(clone.object, tx)?;
        let above = meta.zap(before.dir.phys().dd_clones)?;
        above.add_int(clone.object, tx)?;
        above.remove_int(other.object, tx)?;
        Ok(meta.zap(clone.dir.clones_table(meta, tx)?)?.add_int(other.object, tx)?)
    }

    /// Makes a snapshot the clone's.
    fn take_over(&self, promoted: &Promoted, snapshot: &Dataset, tx: &Tx) -> Result<(), DslError> {
        let Promoted { clone, other, .. } = promoted;
        let name = self.stored_name(other, snapshot)?;
        self.tree.meta.zap(other.phys().ds_snapnames_zapobj)?.remove(&name, tx)?;
        self.tree.meta.zap(clone.phys().ds_snapnames_zapobj)?.add_u64(&name, snapshot.object, tx)?;
        self.limits.count_snapshots(&other.dir, -1, tx)?;
        self.limits.count_snapshots(&clone.dir, 1, tx)?;
        snapshot.update(tx, |phys| phys.ds_dir_obj = clone.dir.object)
    }

    /// Other clones of a snapshot that changes hands are noted where it is; the origin's own link is moved already.
    fn move_clones(&self, promoted: &Promoted, snapshot: &Dataset, passed: u64, tx: &Tx) -> Result<(), DslError> {
        let Promoted { clone, other, .. } = promoted;
        let meta = &self.tree.meta;
        let table = snapshot.phys().ds_next_clones_obj;
        if table == 0 || !self.notes_clones() {
            return Ok(());
        }
        for next in meta.integers(table)?.into_iter().filter(|next| *next != passed) {
            let head = self.tree.dataset(next)?.dir.phys().dd_head_dataset_obj;
            meta.zap(other.dir.phys().dd_clones)?.remove_int(head, tx)?;
            meta.zap(clone.dir.phys().dd_clones)?.add_int(head, tx)?;
        }
        Ok(())
    }
}

/// Bytes that the snapshots of a directory have more than before, where it tells kinds of space apart.
fn snapshots_gain(dir: &Dir, now: i64) -> i64 {
    let phys = dir.phys();
    if phys.dd_flags & DD_FLAG_USED_BREAKDOWN == 0 { 0 } else { now - phys.dd_used_breakdown[dd_used::SNAP] as i64 }
}
