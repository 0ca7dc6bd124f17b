//! Dirty time logs: the txgs whose writes a leaf missed, as a space map whose units are txgs (OpenZFS: `vdev_dtl_load`,
//! `vdev_dtl_sync`).

use crate::PoolError;
use crate::spa::features::Features;
use crate::spa::mos_objects::check_length;
use crate::spa::news::RebuildNews;
use dmu::{NewObject, Objset, Tx};
use ondisk::{
    BlockId, Guid, MapType, ObjectId, ObjectType, SpaceMapEncoder, SpaceMapEntries, SpaceMapEntry, SpaceMapPhys, SpaceMapRun, Txg,
};
use range_tree::RangeTree;
use scan::{ScanFunction, ScanOutcome};
use std::collections::BTreeSet;
use std::sync::Arc;
use vdev::{Leaf, LeafId, NodeKind, VdevTree};

/// Block size of new logs (OpenZFS: `zfs_vdev_dtl_sm_blksz`).
const BLOCK_BYTES: usize = 1 << 12;
const INDIRECT_SHIFT: u8 = 14;
const HISTOGRAM: &str = "com.delphix:spacemap_histogram";

/// Reads the logs of all leaves into the tree.
pub(crate) fn load(mos: &Arc<Objset>, tree: &mut VdevTree) -> Result<(), PoolError> {
    for leaf in tree.leaves.iter_mut().filter(|leaf| leaf.dtl.0 != 0) {
        let damaged = PoolError::Object(leaf.dtl, "a dirty time log");
        let dnode = mos.hold(leaf.dtl)?;
        let block_bytes = dnode.info()?.block_size as u64;
        let phys = SpaceMapPhys::decode_bonus(&dnode.bonus()?).map_err(|_| damaged.clone())?;
        check_length(&dnode, phys.smp_length)?;
        let mut txgs = RangeTree::new();
        let mut position = 0;
        while position < phys.smp_length {
            let block = dnode.read_block(BlockId(position / block_bytes))?.to_contiguous();
            let length = (phys.smp_length - position).min(block_bytes);
            let bytes = block.as_contiguous().and_then(|bytes| bytes.get(..length as usize)).ok_or(damaged.clone())?;
            for entry in SpaceMapEntries::new(bytes) {
                if let SpaceMapEntry::Run(run) = entry.map_err(|_| damaged.clone())? {
                    let end = run.offset.checked_add(run.run).ok_or(damaged.clone())?;
                    match run.kind {
                        MapType::Alloc => txgs.cover(run.offset..end),
                        MapType::Free => txgs.clear_range(run.offset..end),
                    };
                }
            }
            position += length;
        }
        leaf.missing_txgs = txgs.iter().map(|range| (Txg(range.start), Txg(range.end - 1))).collect();
    }
    Ok(())
}

/// Adds missed txgs to the leaves' logs and writes them; true when the configuration changed: a leaf got its first log, or lacks
/// again what a resilver is to bring it, which so cannot end well for it.
pub(crate) fn record(
    mos: &Arc<Objset>,
    features: &Features,
    tree: &mut VdevTree,
    missed: &[(Guid, Txg)],
    tx: &Tx,
) -> Result<bool, PoolError> {
    let mut created = false;
    for leaf in &mut tree.leaves {
        let mut txgs = RangeTree::new();
        for &(first, last) in &leaf.missing_txgs {
            txgs.cover(first.0..last.0 + 1);
        }
        let before = txgs.total();
        for (_, txg) in missed.iter().filter(|(guid, _)| *guid == leaf.guid) {
            txgs.cover(txg.0..txg.0 + 1);
            if *txg <= leaf.resilver_txg {
                leaf.resilver_txg = Txg(0);
                created = true;
            }
            if *txg <= leaf.rebuild_txg {
                leaf.rebuild_txg = Txg(0);
                created = true;
            }
        }
        // A leaf that was just attached lacks everything, and has no log yet.
        if txgs.total() != before || (before != 0 && leaf.dtl.0 == 0) {
            created |= write(mos, features, leaf, &txgs, tx)?;
        }
    }
    Ok(created)
}

/// Notes that a resilver began for all leaves that can be used now and lack something: those that it ends well for.
pub(crate) fn resilver_began(tree: &mut VdevTree, through: Txg) {
    for leaf in &mut tree.leaves {
        let takes_part = leaf.state.is_usable() && !leaf.missing_txgs.is_empty();
        leaf.resilver_txg = if takes_part { through } else { Txg(0) };
    }
}

/// Notes that a resilver ended which brought nobody everything; true when leaves took part in it.
pub(crate) fn resilver_ended(tree: &mut VdevTree) -> bool {
    let any = tree.leaves.iter().any(|leaf| leaf.resilver_txg.0 != 0);
    tree.leaves.iter_mut().for_each(|leaf| leaf.resilver_txg = Txg(0));
    any
}

/// No leaf waits for another resilver any more: one begins for all that lack something, or is about to; true when one waited.
pub(crate) fn clear_deferred(tree: &mut VdevTree) -> bool {
    let any = tree.leaves.iter().any(|leaf| leaf.resilver_deferred);
    tree.leaves.iter_mut().for_each(|leaf| leaf.resilver_deferred = false);
    any
}

/// Takes the txgs that a scan made good out of the logs of usable leaves for which `whole` holds; true when the configuration
/// changed.
pub(crate) fn excise(
    mos: &Arc<Objset>,
    features: &Features,
    tree: &mut VdevTree,
    (outcome, whole): (&ScanOutcome, &dyn Fn(&Leaf) -> bool),
    tx: &Tx,
) -> Result<bool, PoolError> {
    let (through, mut removed) = (outcome.through, false);
    let is_made_good = |leaf: &Leaf| {
        let known = leaf.missing_txgs.iter().any(|(first, _)| *first <= through);
        known && leaf.state.is_usable() && whole(leaf)
    };
    let beneath = beneath_spares(tree, through, &is_made_good);
    for leaf in &mut tree.leaves {
        if !is_made_good(leaf) {
            continue;
        }
        let mut txgs = RangeTree::new();
        for &(first, last) in leaf.missing_txgs.iter().filter(|(_, last)| *last > through) {
            txgs.cover(first.0.max(through.0 + 1)..last.0 + 1);
        }
        for txg in outcome.except.iter().filter(|txg| **txg <= through && leaf.lacks(**txg)) {
            txgs.cover(txg.0..txg.0 + 1);
        }
        removed |= leaf.resilver_txg.0 != 0;
        leaf.resilver_txg = Txg(0);
        if !txgs.is_empty() {
            write(mos, features, leaf, &txgs, tx)?;
            continue;
        }
        if leaf.dtl.0 != 0 {
            destroy(mos, features, leaf.dtl, tx)?;
            leaf.dtl = ObjectId(0);
            removed = true;
        }
        leaf.missing_txgs.clear();
    }
    for (guid, mut txgs) in beneath {
        let Some(leaf) = tree.leaves.iter_mut().find(|leaf| leaf.guid == guid) else { continue };
        for (first, last) in &leaf.missing_txgs {
            txgs.cover(first.0..last.0 + 1);
        }
        removed |= write(mos, features, leaf, &txgs, tx)?;
    }
    Ok(removed)
}

/// The devices that were not there while distributed spares were filled, with what the spares lacked: some of it would lie on them, and that
/// a spare has no gaps any more is true only where they have none (see [`vdev::VdevTree::lacks_part_of`]).
fn beneath_spares(tree: &VdevTree, through: Txg, is_made_good: &dyn Fn(&Leaf) -> bool) -> Vec<(Guid, RangeTree)> {
    let spares: Vec<LeafId> = (0..tree.leaves.len() as u32).map(LeafId).filter(|id| tree.leaf(*id).draid_spare.is_some()).collect();
    let mut beneath = Vec::new();
    for id in (0..tree.leaves.len() as u32).map(LeafId).filter(|id| tree.leaf(*id).draid_spare.is_none()) {
        let leaf = tree.leaf(id);
        // One that takes part in a resilver from its beginning was there all the time.
        let was_there = leaf.state.is_usable() && (leaf.missing_txgs.is_empty() || leaf.resilver_txg.0 != 0 || leaf.rebuild_txg.0 != 0);
        let mut txgs = RangeTree::new();
        let above = |spare: &&LeafId| {
            let spare_leaf = tree.leaf(**spare);
            // The device that it stands in for has no part of it.
            let stands_in = matches!(tree.parent_kind(**spare), Some(NodeKind::Spare | NodeKind::Replacing));
            spare_leaf.top == leaf.top && is_made_good(spare_leaf) && !(stands_in && tree.siblings(**spare).contains(&id))
        };
        for spare in spares.iter().filter(above) {
            for (first, last) in tree.leaf(*spare).missing_txgs.iter().filter(|(first, _)| *first <= through) {
                txgs.cover(first.0..last.0.min(through.0) + 1);
            }
        }
        if !was_there && !txgs.is_empty() {
            beneath.push((leaf.guid, txgs));
        }
    }
    beneath
}

/// Notes that a sequential rebuild began for the leaves of a vdev that have nothing, or takes what it brought out of their logs.
pub(crate) fn rebuilt(mos: &Arc<Objset>, features: &Features, tree: &mut VdevTree, news: &RebuildNews, tx: &Tx) -> Result<(), PoolError> {
    let vdev = match *news {
        RebuildNews::Began(vdev, _) => vdev,
        RebuildNews::Ended(vdev, through, is_whole) => {
            let outcome = ScanOutcome { function: ScanFunction::Resilver, through, except: BTreeSet::new() };
            let whole = |leaf: &Leaf| is_whole && leaf.top == vdev && leaf.rebuild_txg.0 != 0;
            excise(mos, features, tree, (&outcome, &whole), tx)?;
            vdev
        }
    };
    for leaf in tree.leaves.iter_mut().filter(|leaf| leaf.top == vdev) {
        leaf.rebuild_txg = match *news {
            RebuildNews::Began(_, through) if leaf.is_empty() => through,
            _ => Txg(0),
        };
    }
    Ok(())
}

/// Frees a log's object.
pub(crate) fn destroy(mos: &Arc<Objset>, features: &Features, log: ObjectId, tx: &Tx) -> Result<(), PoolError> {
    if log.0 == 0 {
        return Ok(());
    }
    if mos.hold(log)?.info()?.bonus_len >= SpaceMapPhys::SIZE {
        features.add(HISTOGRAM, -1, tx)?;
    }
    Ok(mos.free_object(log, tx)?)
}

/// Writes a leaf's log from scratch; true when it got a new object.
fn write(mos: &Arc<Objset>, features: &Features, leaf: &mut Leaf, txgs: &RangeTree, tx: &Tx) -> Result<bool, PoolError> {
    let created = leaf.dtl.0 == 0;
    if created {
        leaf.dtl = create(mos, features, tx)?;
    }
    leaf.missing_txgs = txgs.iter().map(|range| (Txg(range.start), Txg(range.end - 1))).collect();
    let dnode = mos.hold(leaf.dtl)?;
    dnode.free_range(0, u64::MAX, tx)?;
    let mut encoder = SpaceMapEncoder::new(0, dnode.info()?.block_size, features.refs("com.delphix:spacemap_v2") != 0);
    encoder.debug(MapType::Alloc, 1, tx.txg());
    for range in txgs.iter() {
        let run = SpaceMapRun { kind: MapType::Alloc, offset: range.start, run: range.end - range.start, vdev: None };
        encoder.run(run).map_err(|_| PoolError::Corrupt("a txg that no space map can hold"))?;
    }
    let length = encoder.length();
    dnode.write(0, &encoder.finish(), tx)?;
    let phys = SpaceMapPhys { smp_object: leaf.dtl.0, smp_length: length, smp_alloc: txgs.total() as i64, ..SpaceMapPhys::default() };
    let bonus = dnode.bonus()?.len().min(SpaceMapPhys::SIZE);
    dnode.set_bonus(&phys.encode()[..bonus], tx)?;
    Ok(created)
}

fn create(mos: &Arc<Objset>, features: &Features, tx: &Tx) -> Result<ObjectId, PoolError> {
    let histogram = features.is_enabled(HISTOGRAM);
    if histogram {
        features.add(HISTOGRAM, 1, tx)?;
    }
    let new = NewObject {
        block_size: BLOCK_BYTES,
        indirect_shift: INDIRECT_SHIFT,
        bonus_type: ObjectType::SPACE_MAP_HEADER,
        bonus_len: if histogram { SpaceMapPhys::SIZE } else { SpaceMapPhys::BYTES_V0 },
        ..NewObject::new(ObjectType::SPACE_MAP)
    };
    Ok(mos.allocate_object(new, tx)?.object())
}
