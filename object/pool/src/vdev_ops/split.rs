//! Mirrors that are divided: one leaf of each leaves the pool, and together they are a pool of their own (OpenZFS: `spa_vdev_split_mirror`).
//!
//! The leaves leave with a txg, before anything of it is written: what they hold is the pool as it was with the txg before. Their labels say that
//! they left. From there the new pool is opened, and its first txg makes of the tree that it finds its own; with that txg's uberblock it is there, at
//! whatever point power goes off before or after. The pool that they left is whole at any time.

use crate::PoolError;
use crate::label::Device;
use crate::spa::aux_devices::AuxDevices;
use crate::spa::config::PoolFacts;
use crate::spa::state::Config;
use crate::sync::changes::{Edit, Edited};
use exec::Mutex;
use ondisk::{Guid, Txg, Uberblock};
use std::sync::Arc;
use vdev::{LeafId, LeafState, NodeKind, VdevTree};

const ONLY_MIRRORS: &str = "Source pool must be composed only of mirrors";
const ONE_OF_EACH: &str = "Device list must include at most one disk from each mirror";
const NOT_READY: &str = "a device is not in use, is a spare, or is being replaced";

/// Pool as it was when leaves left it.
pub(crate) struct SplitOff {
    pub tree: Arc<VdevTree>,
    /// The leaves that left, with their devices.
    pub leaves: Vec<(LeafId, Device)>,
    pub facts: PoolFacts,
    /// Uberblock of the state that they hold.
    pub uberblock: Uberblock,
}

/// Place for what leaves with a txg.
pub(crate) type Taken = Arc<Mutex<Option<SplitOff>>>;

/// The change by which one leaf of each mirror leaves the pool; `taken` gets what it was until then.
pub(crate) fn leave(guids: Vec<Guid>, taken: Taken) -> Edit {
    Box::new(move |config: &Config, _| {
        let off = chosen(config, &guids)?;
        let mut next = VdevTree::clone(&config.tree);
        for guid in &guids {
            let id = next.leaf_by_guid(*guid).ok_or(PoolError::NoSuchDevice)?;
            next = next.detach(id)?;
        }
        let paths: Vec<&str> = off.leaves.iter().map(|(id, _)| config.tree.leaf(*id).path.as_str()).collect();
        let log = Some(("detach", format!("vdev={}", paths.join(","))));
        *taken.lock() = Some(off);
        Ok(Edited { tree: next.into(), log, ..Edited::default() })
    })
}

/// The change that makes of the pool that leaves have left the one, with this guid, that consists of them. Spares and caches stay with the other.
pub(crate) fn settle(guid: Guid, kept: Vec<Guid>, from: String) -> Edit {
    Box::new(move |config: &Config, _| {
        let find = |guid: &Guid| config.tree.leaf_by_guid(*guid).ok_or(PoolError::NoSuchDevice);
        let kept = kept.iter().map(find).collect::<Result<Vec<LeafId>, PoolError>>()?;
        let tree = config.tree.split_off(guid, &kept)?;
        let log = Some(("split", format!("from pool {from}")));
        Ok(Edited { tree: tree.into(), aux: Some(AuxDevices::default()), log, ..Edited::default() })
    })
}

/// Looks whether these are leaves that can leave, one of each mirror.
fn chosen(config: &Config, guids: &[Guid]) -> Result<SplitOff, PoolError> {
    let tree = &config.tree;
    let find = |guid: &Guid| tree.leaf_by_guid(*guid).ok_or(PoolError::NoSuchDevice);
    let ids = guids.iter().map(find).collect::<Result<Vec<LeafId>, PoolError>>()?;
    for top in tree.tops.iter().filter(|top| top.is_concrete() && !top.is_log) {
        if top.node.as_ref().map(|node| node.kind) != Some(NodeKind::Mirror) {
            return Err(PoolError::Target(ONLY_MIRRORS));
        }
        if ids.iter().filter(|id| tree.leaf(**id).top == top.id).count() != 1 {
            return Err(PoolError::Target(ONE_OF_EACH));
        }
    }
    let leaves = ids.into_iter().map(|id| Ok((id, ready(config, id)?))).collect::<Result<Vec<_>, PoolError>>()?;
    Ok(SplitOff { tree: tree.clone(), leaves, facts: config.facts.clone(), uberblock: config.uberblock.clone() })
}

/// The device of a leaf that has everything, and that the pool can do without.
fn ready(config: &Config, id: LeafId) -> Result<Device, PoolError> {
    let (tree, leaf) = (&config.tree, config.tree.leaf(id));
    let is_plain = tree.parent_kind(id) == Some(NodeKind::Mirror) && !leaf.is_spare && !tree.tops[leaf.top.0 as usize].is_log;
    if !is_plain || leaf.state != LeafState::Online {
        return Err(PoolError::Target(NOT_READY));
    }
    let is_whole = leaf.missing_txgs.is_empty() && leaf.resilver_txg == Txg::ZERO && leaf.rebuild_txg == Txg::ZERO;
    if !is_whole || tree.is_required(id) {
        return Err(PoolError::NoReplicas);
    }
    config.devices.get(id.0 as usize).cloned().flatten().ok_or(PoolError::NoSuchDevice)
}
