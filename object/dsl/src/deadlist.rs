//! Deadlists: which blocks died since the previous snapshot, sorted into lists by the snapshot that still holds them.
//!
//! The object is a ZAP from "mintxg" (the creation txg of a snapshot, hexadecimal) to a list of the blocks that were born
//! after it and not after the next key; the bonus has the sums (OpenZFS: `dsl_deadlist.c`). Before version 26 of pools it is one list of all
//! blocks (OpenZFS: `dl_oldfmt`), and so it stays when a pool is upgraded, until its snapshot goes.

use crate::DslError;
use crate::bpobj::{Bpobj, passes};
use crate::meta::{Meta, Usage, bump, damaged};
use dmu::Tx;
use ondisk::names::spa_version;
use ondisk::{BlockPtr, DeadlistPhys, DslDatasetPhys, ObjectType};
use std::collections::{BTreeMap, BTreeSet};
use zap::{CreateOptions, Zap};

/// An open deadlist: its table in memory, written through.
pub(crate) struct Deadlist<'m> {
    meta: &'m Meta,
    object: u64,
    /// None for one list of all blocks.
    zap: Option<Zap>,
    /// Object of the list of block pointers, by the txg after which its blocks were born (mintxg).
    tree: BTreeMap<u64, u64>,
}

impl<'m> Deadlist<'m> {
    /// Makes an empty one (OpenZFS: `dsl_deadlist_alloc`).
    pub(crate) fn alloc(meta: &Meta, tx: &Tx) -> Result<u64, DslError> {
        if meta.services.version() < spa_version::DEADLISTS {
            return meta.bpobj_alloc(tx);
        }
        let options = CreateOptions {
            bonus_type: ObjectType::DEADLIST_HDR,
            bonus_len: DeadlistPhys::SIZE,
            ..CreateOptions::new(ObjectType::DEADLIST)
        };
        Ok(zap::create_with(&meta.objset, options, tx)?.0)
    }

    pub(crate) fn open(meta: &'m Meta, object: u64) -> Result<Deadlist<'m>, DslError> {
        let dnode = meta.hold(object)?;
        let mut tree = BTreeMap::new();
        if dnode.info()?.kind == ObjectType::BPOBJ {
            return Ok(Deadlist { meta, object, zap: None, tree });
        }
        let zap = Zap::open(dnode)?;
        let mut bad = false;
        zap.for_each(|entry| {
            match zap::parse_int_name(&entry.name) {
                Some(mintxg) => drop(tree.insert(mintxg, entry.first_integer)),
                None => bad = true,
            }
            Ok(())
        })?;
        if bad { Err(damaged(object, "a key of a deadlist is not a txg")) } else { Ok(Deadlist { meta, object, zap: Some(zap), tree }) }
    }

    /// Opens what cannot be of the old form: a livelist.
    pub(crate) fn open_keyed(meta: &'m Meta, object: u64) -> Result<Deadlist<'m>, DslError> {
        let list = Deadlist::open(meta, object)?;
        if list.is_old() { Err(damaged(object, "a livelist has no keys")) } else { Ok(list) }
    }

    /// True for one list of all blocks, as before version 26.
    pub(crate) fn is_old(&self) -> bool {
        self.zap.is_none()
    }

    /// The table of keys.
    fn table(&self) -> Result<&Zap, DslError> {
        self.zap.as_ref().ok_or_else(|| damaged(self.object, "a deadlist has no keys"))
    }

    /// Blocks of one list of all blocks, in the order in which they died.
    fn blocks(&self) -> Result<Vec<BlockPtr>, DslError> {
        let mut blocks = Vec::new();
        Bpobj::open(self.meta, self.object)?.for_each_backwards(|bp, _| {
            blocks.push(bp);
            Ok(())
        })?;
        blocks.reverse();
        Ok(blocks)
    }

    /// Blocks of one list of all blocks that were born up to a txg, and those that were born later.
    pub(crate) fn split(&self, txg: u64) -> Result<(Vec<BlockPtr>, Vec<BlockPtr>), DslError> {
        Ok(self.blocks()?.into_iter().partition(|bp| bp.birth().0 <= txg))
    }

    fn phys(&self) -> Result<DeadlistPhys, DslError> {
        DeadlistPhys::decode(&self.table()?.dnode().bonus()?).map_err(|_| damaged(self.object, "the bonus of a deadlist is short"))
    }

    fn add_usage(&self, delta: Usage, tx: &Tx) -> Result<(), DslError> {
        if delta.is_zero() {
            return Ok(());
        }
        let mut phys = self.phys()?;
        bump(&mut phys.dl_used, delta.used);
        bump(&mut phys.dl_comp, delta.comp);
        bump(&mut phys.dl_uncomp, delta.uncomp);
        Ok(self.table()?.dnode().set_bonus(&phys.encode(), tx)?)
    }

    /// Sums of all blocks of a deadlist, without opening its table (OpenZFS: `dsl_deadlist_space`).
    pub(crate) fn usage_of(meta: &Meta, object: u64) -> Result<Usage, DslError> {
        let dnode = meta.hold(object)?;
        if dnode.info()?.kind == ObjectType::BPOBJ {
            let list = Bpobj::open(meta, object)?;
            return if list.has_sums() { Ok(list.usage()) } else { Deadlist::open(meta, object)?.usage_between(0, u64::MAX) };
        }
        let bonus = dnode.bonus()?;
        let phys = DeadlistPhys::decode(&bonus).map_err(|_| damaged(object, "the bonus of a deadlist is short"))?;
        Ok(Usage::new(phys.dl_used, phys.dl_comp, phys.dl_uncomp))
    }

    /// Sums of the blocks with min < birth ≤ max; both are keys, or max is `u64::MAX`
    /// (OpenZFS: `dsl_deadlist_space_range`).
    pub(crate) fn usage_between(&self, min: u64, max: u64) -> Result<Usage, DslError> {
        let mut sum = Usage::default();
        if self.is_old() {
            let blocks = self.blocks()?.into_iter().filter(|bp| bp.birth().0 > min && bp.birth().0 <= max);
            blocks.for_each(|bp| sum += self.meta.usage(&bp));
            return Ok(sum);
        }
        for (_, &list) in self.tree.range(min..).take_while(|(mintxg, _)| **mintxg < max) {
            if !self.meta.is_empty_bpobj(list) {
                sum += Bpobj::open(self.meta, list)?.usage();
            }
        }
        Ok(sum)
    }

    /// The key of the list for blocks born in `birth`.
    fn key_for(&self, birth: u64) -> Result<u64, DslError> {
        let below = self.tree.range(..birth).next_back().or_else(|| self.tree.iter().next());
        below.map(|(mintxg, _)| *mintxg).ok_or_else(|| damaged(self.object, "a deadlist has no keys"))
    }

    /// The list for this key, a real one instead of the shared empty one.
    fn real_list(&mut self, mintxg: u64, tx: &Tx) -> Result<u64, DslError> {
        let list = self.tree[&mintxg];
        if !self.meta.is_empty_bpobj(list) {
            return Ok(list);
        }
        let fresh = self.meta.bpobj_alloc(tx)?;
        self.meta.bpobj_release_empty(tx)?;
        self.replace(mintxg, fresh, tx)?;
        Ok(fresh)
    }

    fn replace(&mut self, mintxg: u64, list: u64, tx: &Tx) -> Result<(), DslError> {
        self.tree.insert(mintxg, list);
        Ok(self.table()?.update_int_key(mintxg, list, tx)?)
    }

    /// Keys and lists, the lowest key first.
    pub(crate) fn entries(&self) -> Vec<(u64, u64)> {
        self.tree.iter().map(|(mintxg, list)| (*mintxg, *list)).collect()
    }

    /// Adds blocks (OpenZFS: `dsl_deadlist_insert`).
    pub(crate) fn insert(&mut self, bps: &[BlockPtr], tx: &Tx) -> Result<(), DslError> {
        self.put(bps, false, tx)
    }

    /// Notes of blocks of a livelist that they are freed.
    pub(crate) fn insert_freed(&mut self, bps: &[BlockPtr], tx: &Tx) -> Result<(), DslError> {
        self.put(bps, true, tx)
    }

    fn put(&mut self, bps: &[BlockPtr], freed: bool, tx: &Tx) -> Result<(), DslError> {
        if self.is_old() && !freed {
            return Bpobj::open(self.meta, self.object)?.enqueue(self.meta, bps, tx);
        }
        let mut by_key: BTreeMap<u64, Vec<BlockPtr>> = BTreeMap::new();
        let mut sum = Usage::default();
        for bp in bps {
            by_key.entry(self.key_for(bp.birth().0)?).or_default().push(*bp);
            sum += self.meta.usage(bp);
        }
        for (mintxg, group) in by_key {
            let mut list = Bpobj::open(self.meta, self.real_list(mintxg, tx)?)?;
            if freed { list.enqueue_freed(self.meta, &group, tx)? } else { list.enqueue(self.meta, &group, tx)? }
        }
        self.add_usage(if freed { -sum } else { sum }, tx)
    }

    /// True when this is a key.
    pub(crate) fn has_key(&self, mintxg: u64) -> bool {
        self.tree.contains_key(&mintxg)
    }

    /// Adds a key above all others; one list of all blocks has none (OpenZFS: `dsl_deadlist_add_key`).
    pub(crate) fn add_key(&mut self, mintxg: u64, tx: &Tx) -> Result<(), DslError> {
        let Some(zap) = &self.zap else { return Ok(()) };
        let list = self.meta.bpobj_alloc_empty(tx)?;
        zap.add_int_key(mintxg, list, tx)?;
        self.tree.insert(mintxg, list);
        Ok(())
    }

    fn merge_list(&mut self, mintxg: u64, list: u64, tx: &Tx) -> Result<(), DslError> {
        let into = self.tree[&mintxg];
        if !self.meta.is_empty_bpobj(into) {
            return self.meta.bpobj_enqueue_subobj(into, list, tx);
        }
        self.meta.bpobj_release_empty(tx)?;
        // When both were the shared one, its last reference may be gone only if this one is the other's.
        self.replace(mintxg, list, tx)
    }

    /// Removes a key; its blocks go to the key below. One list of all blocks has none (OpenZFS: `dsl_deadlist_remove_key`).
    pub(crate) fn remove_key(&mut self, mintxg: u64, tx: &Tx) -> Result<(), DslError> {
        if self.is_old() {
            return Ok(());
        }
        let object = self.object;
        let list = self.tree.remove(&mintxg).ok_or_else(|| damaged(object, "a deadlist lacks the key of a snapshot"))?;
        let below = self.tree.range(..mintxg).next_back().map(|(key, _)| *key);
        let below = below.ok_or_else(|| damaged(object, "a deadlist has no key below a snapshot's"))?;
        self.merge_list(below, list, tx)?;
        Ok(self.table()?.remove_int(mintxg, tx)?)
    }

    /// An empty deadlist with this one's keys below `maxtxg`; `newest` is the snapshot that what gets it goes on from, or 0. Where this one has no keys, they
    /// are those of the snapshots before that one (OpenZFS: `dsl_deadlist_clone`).
    pub(crate) fn clone_keys(&self, maxtxg: u64, newest: u64, tx: &Tx) -> Result<u64, DslError> {
        let object = Deadlist::alloc(self.meta, tx)?;
        let keys = match self.is_old() {
            true if self.meta.services.version() < spa_version::DEADLISTS => return Ok(object),
            true => keys_of_snapshots(self.meta, newest)?,
            false => self.tree.keys().copied().take_while(|mintxg| *mintxg < maxtxg).collect(),
        };
        let zap = self.meta.zap(object)?;
        for mintxg in keys {
            zap.add_int_key(mintxg, self.meta.bpobj_alloc_empty(tx)?, tx)?;
        }
        Ok(object)
    }

    /// Moves everything from deadlist `from` here; `from` is left without keys, and is to be freed (OpenZFS: `dsl_deadlist_merge`).
    pub(crate) fn merge(&mut self, from: &mut Deadlist<'m>, tx: &Tx) -> Result<(), DslError> {
        if from.is_old() {
            return self.insert(&from.blocks()?, tx);
        }
        let lists = std::mem::take(&mut from.tree);
        for (birth, list) in lists {
            let usage = if self.meta.is_empty_bpobj(list) { Usage::default() } else { Bpobj::open(self.meta, list)?.usage() };
            // The list's blocks were born after its key, so the key itself counts as a birth in the range.
            let key = self.tree.range(..=birth).next_back().or_else(|| self.tree.iter().next()).map(|(key, _)| *key);
            let key = key.ok_or_else(|| damaged(self.object, "a deadlist has no keys"))?;
            self.merge_list(key, list, tx)?;
            from.table()?.remove_int(birth, tx)?;
            self.add_usage(usage, tx)?;
        }
        let zero: DeadlistPhys = ondisk::Field::ZERO;
        Ok(from.table()?.dnode().set_bonus(&zero.encode(), tx)?)
    }

    /// Moves the lists with keys from `mintxg` on to list `object` (OpenZFS: `dsl_deadlist_move_bpobj`).
    pub(crate) fn move_to(&mut self, object: u64, mintxg: u64, tx: &Tx) -> Result<(), DslError> {
        let moved: Vec<(u64, u64)> = self.tree.range(mintxg..).map(|(key, list)| (*key, *list)).collect();
        for (key, list) in moved {
            let usage = if self.meta.is_empty_bpobj(list) { Usage::default() } else { Bpobj::open(self.meta, list)?.usage() };
            self.meta.bpobj_enqueue_subobj(object, list, tx)?;
            self.tree.remove(&key);
            self.table()?.remove_int(key, tx)?;
            self.add_usage(-usage, tx)?;
        }
        Ok(())
    }

    /// Removes a key with its list, not the blocks; a list that cannot be read is lost (OpenZFS: `dsl_deadlist_remove_entry`).
    pub(crate) fn remove_entry(&mut self, mintxg: u64, tx: &Tx) -> Result<(), DslError> {
        let list = self.tree.remove(&mintxg).ok_or_else(|| damaged(self.object, "a livelist lacks a key"))?;
        self.table()?.remove_int(mintxg, tx)?;
        let usage = match Bpobj::open(self.meta, list) {
            Ok(list) => list.usage(),
            Err(error) => return passes(error),
        };
        self.add_usage(-usage, tx)?;
        self.meta.bpobj_release(list, tx).or_else(passes)
    }

    /// Frees the deadlist and its lists, not the blocks (OpenZFS: `dsl_deadlist_free`).
    pub(crate) fn free(self, tx: &Tx) -> Result<(), DslError> {
        if self.is_old() {
            return self.meta.bpobj_free(self.object, tx);
        }
        for &list in self.tree.values() {
            self.meta.bpobj_release(list, tx)?;
        }
        self.meta.free_object(self.object, tx)
    }
}

/// Keys of the snapshots before what goes on from `newest`, that one included (OpenZFS: `dsl_deadlist_regenerate`).
fn keys_of_snapshots(meta: &Meta, newest: u64) -> Result<BTreeSet<u64>, DslError> {
    let (mut keys, mut object, mut created) = (BTreeSet::new(), newest, u64::MAX);
    while object != 0 {
        let bonus = meta.hold(object)?.bonus()?;
        let phys = DslDatasetPhys::decode(&bonus).map_err(|_| damaged(object, "the record of a DSL dataset is short"))?;
        if phys.ds_creation_txg >= created {
            return Err(damaged(object, "a snapshot is no older than the one after it"));
        }
        keys.insert(phys.ds_prev_snap_txg);
        (object, created) = (phys.ds_prev_snap_obj, phys.ds_creation_txg);
    }
    Ok(keys)
}
