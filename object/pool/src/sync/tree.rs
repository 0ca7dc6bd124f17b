//! Changes of the vdev tree, written: what hangs on vdevs in the MOS comes and goes with them (OpenZFS: the `_sync` functions of
//! `spa_vdev_attach` and its like).

use super::changes::{Changes, Detached, Edited, detached};
use super::spacemap::SpaceMaps;
use super::step::{SyncStep, Syncing};
use super::{dtl, log_spacemap};
use crate::PoolError;
use crate::label::{flush_all, init_writes, retired_ring_writes, write_all};
use crate::spa::Spa;
use crate::spa::aux_devices::AuxDevices;
use crate::spa::config::spare_label;
use crate::spa::features::{DRAID, RESILVER_DEFER};
use crate::spa::mos_objects::{create_vdev_zaps, destroy_vdev_zap};
use crate::spa::version::count_parity;
use dmu::Tx;
use exec::Mutex;
use nvlist::NvList;
use ondisk::{ObjectId, Uberblock};
use std::sync::Arc;
use vdev::{Leaf, LeafState, TopKind, VdevTree};

/// Makes changes of the tree current, in the sync only.
pub(crate) struct TreeWriter {
    spa: Arc<Spa>,
    /// Devices that left in the txg that is being synced.
    detached: Mutex<Vec<Detached>>,
}

/// The step that does what was asked for since the last txg. Before anything of the txg is written.
pub(crate) struct ApplyChanges {
    pub changes: Arc<Changes>,
    pub tree: Arc<TreeWriter>,
}

impl SyncStep for ApplyChanges {
    fn name(&self) -> &'static str {
        "changes of the vdev tree"
    }

    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        for change in self.changes.take() {
            let edited = {
                let config = self.tree.spa.config.lock();
                (change.edit)(&config, at.tx.txg())
            };
            match edited {
                Ok(edited) => self.tree.take_edit(edited, at.maps, at.tx)?,
                Err(error) => {
                    *change.outcome.lock() = Some(Err(error));
                    continue;
                }
            }
            *change.outcome.lock() = Some(Ok(()));
        }
        Ok(())
    }
}

impl TreeWriter {
    /// Makes the writer; nothing has left yet.
    pub fn new(spa: Arc<Spa>) -> TreeWriter {
        TreeWriter { spa, detached: Mutex::default() }
    }

    /// Lets go of leaves that nobody needs any more: their replacements have everything, or they stood in for others that do.
    pub fn end_replacements(&self, maps: &mut SpaceMaps, tx: &Tx) -> Result<(), PoolError> {
        if self.spa.check_no_checkpoint().is_err() {
            // They are in the tree that it would be gone back to.
            return Ok(());
        }
        loop {
            let (tree, aux) = {
                let config = self.spa.config.lock();
                (config.tree.clone(), config.aux.clone())
            };
            let Some(old) = tree.dispensable_leaf() else { return Ok(()) };
            let spare = tree.spare_of_replacement(old).map(|spare| tree.leaf(spare).guid);
            self.spa.services.tell_leaf("sysevent.fs.zfs.vdev_remove", tree.leaf(old));
            let log = Some(("detach", format!("vdev={}", tree.leaf(old).path)));
            let (next, aux) = detached(&tree, old, &aux)?;
            self.take_edit(Edited { tree: Arc::new(next), aux, log, ..Edited::default() }, maps, tx)?;
            // The spare that stood in for what was replaced.
            let config = self.spa.config.lock();
            let id = spare.and_then(|guid| config.tree.leaf_by_guid(guid)).filter(|&id| !config.tree.is_required(id));
            let (tree, aux) = (config.tree.clone(), config.aux.clone());
            drop(config);
            if let Some(id) = id {
                let (next, aux) = detached(&tree, id, &aux)?;
                self.take_edit(Edited { tree: Arc::new(next), aux, ..Edited::default() }, maps, tx)?;
            }
        }
    }

    /// Makes a change the current configuration, with what hangs on vdevs in the MOS.
    pub fn take_edit(&self, edited: Edited, maps: &mut SpaceMaps, tx: &Tx) -> Result<(), PoolError> {
        let Edited { tree, devices, aux, labels, log, hunt } = edited;
        let features = &self.spa.services.features;
        let counts_parity = self.spa.config.lock().facts.counts_parity;
        let tree = if counts_parity {
            let mut own = VdevTree::clone(&tree);
            count_parity(&mut own);
            Arc::new(own)
        } else {
            tree
        };
        let (before, aux_before, left) = {
            let mut config = self.spa.config.lock();
            let before = (config.tree.clone(), config.aux.clone());
            let left = config.take_tree(tree, &devices);
            config.aux = aux.unwrap_or_else(|| config.aux.clone());
            config.facts.guid = config.tree.guid;
            self.spa.publish(&config);
            (before.0, before.1, left)
        };
        if let Some((name, text)) = log {
            self.spa.services.log_internal(name, &text, tx);
        }
        let aux = self.spa.config.lock().aux.clone();
        aux.write(&aux_before, &self.spa.mos, tx)?;
        self.detached.lock().extend(labels);
        for (leaf, device) in left {
            destroy_vdev_zap(&self.spa.mos, leaf.zap, tx)?;
            dtl::destroy(&self.spa.mos, features, leaf.dtl, tx)?;
            if let Some(device) = device.filter(|_| leaf.state != LeafState::Missing) {
                let (label, last) = self.label_of_left(&before, &leaf, &aux);
                self.detached.lock().push((device, label, last));
            }
        }
        self.follow_tops(&before, maps, tx)?;
        // ZAPs and logs of new leaves are made on a copy, and taken over: making them waits.
        let mut tree = VdevTree::clone(&self.spa.config.lock().tree);
        create_vdev_zaps(&self.spa.mos, features, &mut tree, tx)?;
        dtl::record(&self.spa.mos, features, &mut tree, &[], tx)?;
        {
            let mut config = self.spa.config.lock();
            config.take_zaps(&tree);
            config.take_dtls(&tree);
            self.spa.publish(&config);
        }
        self.count_deferred(tx)?;
        if hunt { self.end_replacements(maps, tx) } else { Ok(()) }
    }

    /// Label for the device of a leaf of the tree `before` from now on: a spare again, or nobody's, with what it was until now.
    fn label_of_left(&self, before: &VdevTree, leaf: &Leaf, aux: &AuxDevices) -> (NvList, Option<Uberblock>) {
        if aux.find(leaf.guid).is_some() {
            return (spare_label(leaf.guid, &leaf.path), None);
        }
        let config = self.spa.config.lock();
        let Some(id) = before.leaf_by_guid(leaf.guid) else { return (config.facts.detached_label(leaf.guid), None) };
        // The uberblock of the last txg: the one that is being synced knows the device no longer.
        (config.facts.left_label(before, id), Some(config.uberblock.clone()))
    }

    /// Writes to devices that left that they did: once the pool's labels no longer name them. A device that can't be written
    /// keeps a label that no import takes for one.
    pub fn label_detached(&self) {
        for (device, label, last) in std::mem::take(&mut *self.detached.lock()) {
            if let Ok(writes) = init_writes(&device, &label) {
                let _ = write_all(&self.spa.services.exec, writes);
                let rings = last.map(|last| retired_ring_writes(&device, &last));
                let _ = write_all(&self.spa.services.exec, rings.unwrap_or_default());
                let _ = flush_all(&self.spa.services.exec, std::slice::from_ref(&device));
            }
        }
    }

    /// Follows a change of the top-level vdevs: space maps of those that left go, those that came or grew get room for theirs.
    /// Nothing is allocated from them before this.
    pub fn follow_tops(&self, before: &VdevTree, maps: &mut SpaceMaps, tx: &Tx) -> Result<(), PoolError> {
        let tree = self.spa.config.lock().tree.clone();
        let features = &self.spa.services.features;
        let draids = |tree: &VdevTree| tree.tops.iter().filter(|top| matches!(top.kind, TopKind::Draid(_))).count() as i64;
        let more = draids(&tree) - draids(before);
        if more != 0 {
            features.add(DRAID, more, tx)?;
        }
        for old in before.tops.iter().filter(|old| old.is_concrete()) {
            if tree.tops.get(old.id.0 as usize).is_none_or(|top| !top.is_concrete()) {
                maps.destroy(old.id, features, tx)?;
                log_spacemap::forget_vdev(&self.spa.mos, old, tx)?;
                // What is known of a removed vdev's contents stays.
                if tree.addressed(old.id).is_none() {
                    destroy_vdev_zap(&self.spa.mos, old.zap, tx)?;
                }
            }
        }
        maps.follow(&tree.tops);
        let fresh = tree.tops.iter().filter(|top| top.is_concrete() && top.ms_array == ObjectId(0)).map(|top| top.id);
        for id in fresh.collect::<Vec<_>>() {
            let array = maps.create_array(id, tx)?;
            let mut config = self.spa.config.lock();
            let mut next = VdevTree::clone(&config.tree);
            next.tops[id.0 as usize].ms_array = array;
            config.tree = next.into();
            self.spa.publish(&config);
        }
        self.spa.services.allocator.follow(&tree);
        Ok(())
    }

    /// The feature is active while a leaf waits for a resilver (OpenZFS: `dsl_scan_sync`, `vdev_clear_resilver_deferred`).
    pub fn count_deferred(&self, tx: &Tx) -> Result<(), PoolError> {
        let waiting = self.spa.config.lock().tree.leaves.iter().any(|leaf| leaf.resilver_deferred);
        let active = self.spa.services.features.refs(RESILVER_DEFER) != 0;
        match (waiting, active) {
            (true, false) => self.spa.services.features.add(RESILVER_DEFER, 1, tx),
            (false, true) => self.spa.services.features.add(RESILVER_DEFER, -1, tx),
            _ => Ok(()),
        }
    }
}
