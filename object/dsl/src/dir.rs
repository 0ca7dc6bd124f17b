//! A directory of the name space: a dataset's place, its children, and the space of all of them (OpenZFS: `dsl_dir.c`).
//!
//! The record is kept decoded and written through to the MOS whenever it changes, in syncing context. Space goes up the
//! tree: what a directory's own change means to its parent depends on its reservation ([`Dir::charge`]).

use crate::DslError;
use crate::meta::{Meta, Usage, bump, damaged};
use dmu::{Announced, Dnode, NewObject, Tx};
use exec::{Mutex, RwLock};
use ondisk::names::spa_version;
use ondisk::{DD_FLAG_USED_BREAKDOWN, DslDirPhys, ObjectType, Txg, dd_used};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Txgs that can be in flight.
pub(crate) const TXG_SLOTS: usize = 4;

/// A directory in memory; there is one per object.
pub(crate) struct Dir {
    pub(crate) object: u64,
    dnode: Arc<Dnode>,
    parent: RwLock<Option<Arc<Dir>>>,
    name: RwLock<String>,
    phys: Mutex<DslDirPhys>,
    /// Bytes that transactions of each txg may still write.
    inflight: [AtomicI64; TXG_SLOTS],
    /// Transactions of each txg that free something.
    frees: [AtomicU64; TXG_SLOTS],
    /// Copies for the check of quotas, read without the lock.
    used: AtomicU64,
    quota: AtomicU64,
    reserved: AtomicU64,
}

/// Parent and name of a directory to be created.
pub(crate) struct NewDir<'a> {
    pub(crate) parent: Option<&'a Arc<Dir>>,
    pub(crate) name: &'a str,
}

impl Dir {
    /// Makes a directory object and enters it in its parent's table (OpenZFS: `dsl_dir_create_sync`). The root directory
    /// is entered in the pool directory.
    pub(crate) fn create(meta: &Meta, new: &NewDir<'_>, tx: &Tx) -> Result<u64, DslError> {
        let kind = NewObject { bonus_type: ObjectType::DSL_DIR, bonus_len: DslDirPhys::SIZE, ..NewObject::new(ObjectType::DSL_DIR) };
        let dnode = meta.allocate(kind, tx)?;
        let object = dnode.object().0;
        match new.parent {
            Some(parent) => {
                meta.zap(parent.phys().dd_child_dir_zapobj)?.add_u64(new.name, object, tx)?;
            }
            None => meta.directory()?.add_u64("root_dataset", object, tx)?,
        }
        let mut phys: DslDirPhys = ondisk::Field::ZERO;
        phys.dd_creation_time = meta.io.exec().wall_clock().0 as u64;
        phys.dd_parent_obj = new.parent.map_or(0, |parent| parent.object);
        phys.dd_props_zapobj = meta.create_zap(ObjectType::DSL_PROPS, tx)?;
        phys.dd_child_dir_zapobj = meta.create_zap(ObjectType::DSL_DIR_CHILD_MAP, tx)?;
        phys.dd_flags = if meta.services.version() < spa_version::USED_BREAKDOWN { 0 } else { DD_FLAG_USED_BREAKDOWN };
        dnode.set_bonus(&phys.encode(), tx)?;
        Ok(object)
    }

    /// Reads the record; `parent` and `name` say where it was found.
    pub(crate) fn load(meta: &Meta, object: u64, parent: Option<Arc<Dir>>, name: String) -> Result<Arc<Dir>, DslError> {
        let dnode = meta.hold(object)?;
        let info = dnode.info()?;
        if info.bonus_type != ObjectType::DSL_DIR {
            return Err(damaged(object, "not a DSL directory"));
        }
        let phys = DslDirPhys::decode(&dnode.bonus()?).map_err(|_| damaged(object, "the record of a DSL directory is short"))?;
        if phys.dd_parent_obj != parent.as_ref().map_or(0, |parent| parent.object) {
            return Err(damaged(object, "a DSL directory is not where its record says"));
        }
        let dir = Dir {
            object,
            dnode,
            parent: RwLock::new(parent),
            name: RwLock::new(name),
            inflight: Default::default(),
            frees: Default::default(),
            used: AtomicU64::new(0),
            quota: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            phys: Mutex::new(phys),
        };
        dir.publish(&dir.phys.lock());
        Ok(Arc::new(dir))
    }

    fn publish(&self, phys: &DslDirPhys) {
        self.used.store(phys.dd_used_bytes, Ordering::Relaxed);
        self.quota.store(phys.dd_quota, Ordering::Relaxed);
        self.reserved.store(phys.dd_reserved, Ordering::Relaxed);
    }

    /// Record of the directory, as in its bonus.
    pub(crate) fn phys(&self) -> DslDirPhys {
        self.phys.lock().clone()
    }

    /// Changes the record and writes it through.
    pub(crate) fn update<R>(&self, tx: &Tx, change: impl FnOnce(&mut DslDirPhys) -> R) -> Result<R, DslError> {
        let mut phys = self.phys.lock();
        let result = change(&mut phys);
        self.publish(&phys);
        self.dnode.set_bonus(&phys.encode(), tx)?;
        Ok(result)
    }

    pub(crate) fn parent(&self) -> Option<Arc<Dir>> {
        self.parent.read().clone()
    }
    /// The last component of the name.
    pub(crate) fn name(&self) -> String {
        self.name.read().clone()
    }
    pub(crate) fn rename(&self, parent: Option<Arc<Dir>>, name: &str) {
        *self.parent.write() = parent;
        *self.name.write() = name.to_string();
    }

    /// The full name.
    pub(crate) fn full_name(&self) -> String {
        let mut parts = vec![self.name()];
        let mut above = self.parent();
        while let Some(dir) = above {
            parts.push(dir.name());
            above = dir.parent();
        }
        parts.reverse();
        parts.join("/")
    }

    /// True when `other` is this directory or above it.
    pub(crate) fn is_within(self: &Arc<Self>, other: &Arc<Dir>) -> bool {
        let mut walk = Some(self.clone());
        while let Some(dir) = walk {
            if dir.object == other.object {
                return true;
            }
            walk = dir.parent();
        }
        false
    }

    // ---- space ----

    /// Charges a change of one kind of space to this directory and what follows from it to those above
    /// (OpenZFS: `dsl_dir_diduse_space`).
    pub(crate) fn charge(&self, kind: usize, delta: Usage, tx: &Tx) -> Result<(), DslError> {
        if delta.is_zero() {
            return Ok(());
        }
        let accounted = self.update(tx, |phys| {
            let accounted = accounted(phys, delta.used);
            add(phys, delta);
            if phys.dd_flags & DD_FLAG_USED_BREAKDOWN != 0 {
                bump(&mut phys.dd_used_breakdown[kind], delta.used);
            }
            accounted
        })?;
        match self.parent() {
            Some(parent) => {
                let up = Usage { used: accounted, ..delta };
                parent.charge_moving(up, delta.used, dd_used::CHILD_RSRV, dd_used::CHILD, tx)
            }
            None => Ok(()),
        }
    }

    /// Charges a change of which `to_new` bytes count as kind `new`, the difference coming out of kind `old`
    /// (OpenZFS: `dsl_dir_diduse_transfer_space`).
    pub(crate) fn charge_moving(&self, delta: Usage, to_new: i64, old: usize, new: usize, tx: &Tx) -> Result<(), DslError> {
        if delta.is_zero() && to_new == 0 {
            return Ok(());
        }
        let accounted = self.update(tx, |phys| {
            let accounted = accounted(phys, delta.used);
            add(phys, delta);
            if phys.dd_flags & DD_FLAG_USED_BREAKDOWN != 0 {
                bump(&mut phys.dd_used_breakdown[old], delta.used - to_new);
                bump(&mut phys.dd_used_breakdown[new], to_new);
            }
            accounted
        })?;
        match self.parent() {
            Some(parent) => {
                let up = Usage { used: accounted, ..delta };
                parent.charge_moving(up, delta.used, dd_used::CHILD_RSRV, dd_used::CHILD, tx)
            }
            None => Ok(()),
        }
    }

    /// Moves bytes between kinds of space (OpenZFS: `dsl_dir_transfer_space`).
    pub(crate) fn transfer(&self, bytes: i64, old: usize, new: usize, tx: &Tx) -> Result<(), DslError> {
        if bytes == 0 || self.phys.lock().dd_flags & DD_FLAG_USED_BREAKDOWN == 0 {
            return Ok(());
        }
        self.update(tx, |phys| {
            bump(&mut phys.dd_used_breakdown[old], -bytes);
            bump(&mut phys.dd_used_breakdown[new], bytes);
        })
    }

    /// Table of the clones of this directory's snapshots, made when there is none.
    pub(crate) fn clones_table(&self, meta: &Meta, tx: &Tx) -> Result<u64, DslError> {
        match self.phys().dd_clones {
            0 => {
                let clones = meta.create_zap(ObjectType::DSL_CLONES, tx)?;
                self.update(tx, |phys| phys.dd_clones = clones)?;
                Ok(clones)
            }
            clones => Ok(clones),
        }
    }

    /// Sets the quota.
    pub(crate) fn set_quota(&self, bytes: u64, tx: &Tx) -> Result<(), DslError> {
        self.update(tx, |phys| phys.dd_quota = bytes)
    }

    /// Sets the reservation and charges the parent (OpenZFS: `dsl_dir_set_reservation_sync_impl`).
    pub(crate) fn set_reservation(&self, bytes: u64, tx: &Tx) -> Result<(), DslError> {
        let delta = self.update(tx, |phys| {
            let used = phys.dd_used_bytes;
            let delta = used.max(bytes) as i64 - used.max(phys.dd_reserved) as i64;
            phys.dd_reserved = bytes;
            delta
        })?;
        match self.parent() {
            Some(parent) => parent.charge(dd_used::CHILD_RSRV, Usage { used: delta, comp: 0, uncomp: 0 }, tx),
            None => Ok(()),
        }
    }

    // ---- checks in open context, without locks ----

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
    pub(crate) fn quota(&self) -> u64 {
        self.quota.load(Ordering::Relaxed)
    }
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }
    /// Bytes that transactions may still write.
    pub(crate) fn inflight(&self) -> u64 {
        self.inflight.iter().map(|slot| slot.load(Ordering::Relaxed)).sum::<i64>().max(0) as u64
    }
    pub(crate) fn add_inflight(&self, slot: usize, bytes: i64) {
        self.inflight[slot].fetch_add(bytes, Ordering::Relaxed);
    }
    pub(crate) fn clear_inflight(&self, slot: usize) {
        self.inflight[slot].store(0, Ordering::Relaxed);
        self.frees[slot].store(0, Ordering::Relaxed);
    }
    /// A transaction of this txg frees something here or below.
    pub(crate) fn add_free(&self, slot: usize) {
        self.frees[slot].fetch_add(1, Ordering::Relaxed);
    }
    /// True when a txg that is not synced may change how much is used: after it one should look again.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.inflight() > 0 || self.frees.iter().any(|slot| slot.load(Ordering::Relaxed) > 0)
    }

    /// Change in bytes of the parent's usage by `delta` bytes more here, given how much is used.
    pub(crate) fn accounted_above(&self, used: u64, delta: i64) -> i64 {
        let reserved = self.reserved();
        let after = used.saturating_add_signed(delta);
        after.max(reserved) as i64 - used.max(reserved) as i64
    }

    /// Bytes that can still be used here; `pool_bytes` is what the pool offers to the root directory. With `without`,
    /// as if that directory above gave back the bytes beside it (OpenZFS: `dsl_dir_space_available`).
    pub(crate) fn available(&self, pool_bytes: u64, without: Option<(u64, u64)>) -> u64 {
        let parent = self.parent();
        let mut above = parent.as_ref().map_or(u64::MAX, |parent| parent.available(pool_bytes, without));
        let mut quota = if self.quota() == 0 { u64::MAX } else { self.quota() };
        if parent.is_none() {
            quota = quota.min(pool_bytes);
        }
        let mut used = self.used() + self.inflight();
        if self.reserved() > used && above != u64::MAX {
            above = above.saturating_add(self.reserved() - used);
        }
        if let Some((object, bytes)) = without
            && object == self.object
        {
            used = used.saturating_sub(bytes);
            above = above.saturating_add(bytes);
        }
        if used > quota { 0 } else { above.min(quota - used) }
    }
}

impl Announced for Dir {
    fn take_back(&self, txg: Txg, bytes: u64) {
        let (slot, bytes) = (txg.0 as usize % TXG_SLOTS, bytes as i64);
        self.add_inflight(slot, -bytes);
        let mut walk = self.parent();
        while let Some(dir) = walk {
            dir.add_inflight(slot, -bytes);
            walk = dir.parent();
        }
    }
}

fn accounted(phys: &DslDirPhys, delta: i64) -> i64 {
    let after = phys.dd_used_bytes.saturating_add_signed(delta);
    // Hostile numbers may differ by more than there is.
    after.max(phys.dd_reserved).wrapping_sub(phys.dd_used_bytes.max(phys.dd_reserved)) as i64
}

fn add(phys: &mut DslDirPhys, delta: Usage) {
    bump(&mut phys.dd_used_bytes, delta.used);
    bump(&mut phys.dd_compressed_bytes, delta.comp);
    bump(&mut phys.dd_uncompressed_bytes, delta.uncomp);
}
