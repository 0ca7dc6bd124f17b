//! Syncing an object set: everything that one txg changed goes to new blocks, children before parents.
//!
//! ```text
//! dirty dnodes ─▶ level 0, spill ─▶ level 1 ─▶ … ─▶ dnode records into the meta-dnode's blocks
//!                                                     │ accounting hook ─▶ accounting objects
//!                                                     ▼
//!                                   meta-dnode: level 0 ─▶ … ─▶ objset block ─▶ new root pointer
//! ```
//! All dnodes advance together, a level at a time, so that many small objects keep as many writes in flight as one big one.
//! A dnode that fails is left as it was (its new blocks are freed, its old ones not yet killed) and stays dirty.
//!
//! OpenZFS: `dmu_objset_sync`, `dnode_sync`, `dbuf_sync_list`, `dbuf_write_ready`.

mod delta;
mod free;
mod node;
mod pointer;
mod write_set;

use crate::dnode::dnode_phys;
use crate::objset::{Objset, OwnerCharges};
use crate::props::{BlockKind, write_policy};
use crate::special::is_own;
use crate::{BlockWrite, Dedup, DmuError, Dnode, Keep, Tx};
use abd::Abd;
use node::{Committed, NodeSync};
use ondisk::{
    BlockId, BlockPtr, Checksum, Compression, DNODE_SLOT_BYTES, DNODE_SLOTS_PER_BLOCK, META_DNODE_OBJECT, ObjectType, ObjsetPhys, Txg,
};
use pointer::{Shape, finish_pointer, is_in_place};
use std::sync::Arc;
use write_set::WriteSet;

/// Dnodes that advance together: bounds the memory of a sync.
const DNODES_PER_BATCH: usize = 16 << 10;

impl Objset {
    /// Writes everything that is dirty in `txg`; gives the new root pointer (the old one when nothing was dirty). May be
    /// called again in the same txg. On error nothing of the failed part is referenced and the call can be repeated.
    pub fn sync(&self, txg: Txg) -> Result<BlockPtr, DmuError> {
        self.context().blocks.check_writable()?;
        self.table().end_rest(txg);
        if !self.is_dirty(txg) {
            return Ok(self.root_bp());
        }
        self.touch_marked(txg)?;
        let (ordinary, mut own) = split(self.context().dirty.take(txg));
        let mut charges = self.accounting().begin();
        let mut batches: Vec<Vec<Arc<Dnode>>> = ordinary.chunks(DNODES_PER_BATCH).map(<[_]>::to_vec).rev().collect();
        let mut result = Ok(());
        while let Some(batch) = batches.pop() {
            if result.is_ok() {
                result = self.sync_dnodes(batch, txg, &mut charges);
            } else {
                batch.into_iter().for_each(|dnode| self.context().dirty.add(dnode, txg));
            }
        }
        match result {
            Ok(()) => result = charges.settle(self.shared(), &Tx::syncing(txg)),
            Err(_) => self.accounting().keep(charges),
        }
        let (later, more) = split(self.context().dirty.take(txg));
        later.into_iter().for_each(|dnode| self.context().dirty.add(dnode, txg));
        own.extend(more);
        own.sort_by_key(|dnode| dnode.object());
        own.dedup_by_key(|dnode| dnode.object());
        if let Err(error) = result {
            own.into_iter().for_each(|dnode| self.context().dirty.add(dnode, txg));
            return Err(error);
        }
        let (meta, special): (Vec<_>, Vec<_>) = own.into_iter().partition(|dnode| dnode.object() == META_DNODE_OBJECT);
        let result = self.sync_dnodes(special, txg, &mut OwnerCharges::none());
        if result.is_err() {
            meta.into_iter().for_each(|dnode| self.context().dirty.add(dnode, txg));
            return result.map(|()| BlockPtr::HOLE);
        }
        self.sync_dnodes(meta, txg, &mut OwnerCharges::none())?;
        let root = self.sync_root(txg)?;
        debug_assert!(!self.meta().contents.has_changes(txg), "the meta-dnode is synced last, with all records in it");
        debug_assert_eq!(self.root_bp(), root, "the head points to what was written");
        self.context().pins.release(txg);
        Ok(root)
    }

    /// Syncs dnodes, a level at a time; those that failed stay dirty.
    fn sync_dnodes(&self, dnodes: Vec<Arc<Dnode>>, txg: Txg, charges: &mut OwnerCharges) -> Result<(), DmuError> {
        let props = self.props();
        let mut set = WriteSet::new(self.context().blocks.env.io.clone());
        let mut jobs: Vec<NodeSync> = dnodes.into_iter().filter_map(|dnode| NodeSync::begin(dnode, txg, props)).collect();
        for job in &mut jobs {
            job.start(&mut set);
        }
        let mut level = 0;
        loop {
            let results = set.wait();
            for job in &mut jobs {
                job.collect(&results);
            }
            level += 1;
            let mut is_done = true;
            for job in jobs.iter_mut().filter(|job| job.has_level(level)) {
                is_done = false;
                job.build(level, &mut set);
            }
            if is_done {
                break;
            }
        }
        debug_assert!(jobs.iter().all(|job| !job.has_level(level)), "dnodes are committed when all their levels are written");
        let mut result = Ok(());
        for job in jobs {
            if let Err(error) = self.commit(job, txg, charges) {
                result = Err(error);
            }
        }
        result
    }

    /// Puts a dnode's new root in place, or takes back what was written for it.
    fn commit(&self, mut job: NodeSync, txg: Txg, charges: &mut OwnerCharges) -> Result<(), DmuError> {
        let object = job.object();
        job.flags = charges.flags(job.flags);
        let is_own = is_own(object);
        let stored = match job.error {
            Some(error) => Err(error),
            None if is_own => Ok(()),
            None => self.store_dnode(&job, txg),
        };
        if let Err(error) = stored {
            self.context().dirty.add(job.dnode.clone(), txg);
            job.abandon();
            return Err(error);
        }
        let freed_slots = job.core.freed.then_some(job.core.slots);
        if let Some(ledger) = &self.context().blocks.env.ledger {
            let Committed { dnode, before, after } = job.commit(ledger.as_ref());
            charges.add(&dnode, &before, &after);
        }
        match freed_slots {
            Some(slots) => self.table().forget(object, slots, txg),
            None if !is_own => self.table().settle(object),
            None => {}
        }
        Ok(())
    }

    /// Encodes the dnode into its slots of the meta-dnode's block.
    fn store_dnode(&self, job: &NodeSync, txg: Txg) -> Result<(), DmuError> {
        if job.core.freed && !job.exists() {
            return Ok(());
        }
        let per_block = DNODE_SLOTS_PER_BLOCK as u64;
        let object = job.object().0;
        let start = (object % per_block) as usize * DNODE_SLOT_BYTES;
        let length = usize::from(job.core.slots) * DNODE_SLOT_BYTES;
        let tx = Tx::syncing(txg);
        self.meta().modify_block(BlockId(object / per_block), &tx, |block| {
            let slots = block.get_mut(start..start + length).ok_or(DmuError::Corrupt)?;
            if job.core.freed {
                slots.fill(0);
                return Ok(());
            }
            let sealed = self.context().sealed.is_sealed().then(|| job.core.sealed_in(slots));
            job.phys().encode_into(slots)?;
            if let Some((at, bonus)) = sealed {
                slots.get_mut(at..at + bonus.len()).ok_or(DmuError::Corrupt)?.copy_from_slice(&bonus);
            }
            Ok(())
        })?
    }

    /// Writes the objset block.
    fn sync_root(&self, txg: Txg) -> Result<BlockPtr, DmuError> {
        let fill = self.object_count();
        let phys = self.phys(txg);
        let props = self.props();
        let data = Abd::from_slice(&phys.encode()?);
        let old = self.root_bp();
        self.head().set_dirty(txg);
        let kind = BlockKind {
            object_type: ObjectType::OBJSET,
            level: 0,
            spill: false,
            checksum: Checksum::INHERIT,
            compression: Compression::INHERIT,
        };
        let policy = write_policy(&props, kind);
        let shape = Shape { txg, lsize: data.len(), object_type: kind.object_type, level: 0, fill, hole_birth: false };
        let bookmark = self.context().blocks.bookmark(META_DNODE_OBJECT, u8::MAX, 0);
        let mut set = WriteSet::new(self.context().blocks.env.io.clone());
        let mut write = BlockWrite {
            txg,
            bookmark,
            data,
            object_type: kind.object_type,
            level: 0,
            fill,
            checksum: policy.checksum,
            compression: if old.uses_crypt() { Compression::OFF } else { policy.compression },
            zstd_level: policy.zstd_level,
            copies: policy.copies,
            small_bytes: policy.small_bytes,
            dedup: Dedup::Off,
            previous: old,
            keep: Keep::Kept,
            seal: None,
        };
        self.context().sealed.protect(&mut write, None);
        set.submit(write);
        let new = set.wait().into_iter().next().ok_or(DmuError::Corrupt)?.map_err(|error| DmuError::of_block(error, bookmark))?;
        let mut new = finish_pointer(new, &old, &shape);
        // The root of an encrypted dataset stays one, also where nobody has the key: its MACs cover neither the log's header nor where it is.
        new.set_uses_crypt(old.uses_crypt() || new.uses_crypt());
        if let Some(ledger) = &self.context().blocks.env.ledger
            && !is_in_place(&old, &new)
        {
            if !old.is_hole() {
                ledger.kill(txg, &old);
            }
            ledger.born(txg, &new);
        }
        self.head().synced(txg, new);
        Ok(new)
    }

    /// The objset block's contents as of `txg`.
    fn phys(&self, txg: Txg) -> ObjsetPhys {
        let counts_sectors = self.props().counts_sectors;
        let record = |dnode: &Arc<Dnode>| {
            let (core, tree) = dnode.contents.record_at(txg);
            dnode_phys(&core, &tree, counts_sectors)
        };
        let [user, group, project] = self.table().special().map(|dnode| dnode.as_ref().map(record));
        self.head().phys(txg, self.kind(), record(self.meta()), [user, group, project])
    }
}

/// Ordinary dnodes in order of their numbers, and the object set's own (meta-dnode, accounting).
fn split(dnodes: Vec<Arc<Dnode>>) -> (Vec<Arc<Dnode>>, Vec<Arc<Dnode>>) {
    let (own, mut ordinary): (Vec<_>, Vec<_>) = dnodes.into_iter().partition(|dnode| is_own(dnode.object()));
    ordinary.sort_by_key(|dnode| dnode.object());
    (ordinary, own)
}
