//! Mirrors that are divided: one leaf of each leaves the pool, and together they are a pool of their own (OpenZFS: `spa_vdev_split_mirror`).
//!
//! The leaves go offline with a txg, before anything of it is written: what they hold is the pool as it was with the txg before, and that is what
//! their labels say. From there the new pool is opened, and its first txg makes of the tree that it finds its own; with that txg's uberblock it is there.
//! Only then the old pool gives the leaves up. When power goes off before that uberblock, they are offline leaves of the old pool, which can be
//! brought back; after it, they are the new pool's, and the old one has leaves without a device. The old pool is whole at any time.

use crate::PoolError;
use crate::label::Device;
use crate::spa::Spa;
use crate::spa::aux_devices::AuxDevices;
use crate::spa::config::PoolFacts;
use crate::spa::state::Config;
use crate::sync::changes::{Edit, Edited};
use crate::vdev_ops::leaves::note_unflushed;
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
    /// The leaves that went offline, with their devices.
    pub leaves: Vec<(LeafId, Device)>,
    pub facts: PoolFacts,
    /// Uberblock of the state that they hold.
    pub uberblock: Uberblock,
}

/// Place for what leaves with a txg.
pub(crate) type Taken = Arc<Mutex<Option<SplitOff>>>;

/// The change by which one leaf of each mirror goes offline, for good; `taken` gets what the pool was until then.
pub(crate) fn leave(spa: Arc<Spa>, guids: Vec<Guid>, taken: Taken) -> Edit {
    Box::new(move |config: &Config, _| {
        let off = chosen(config, &guids)?;
        let mut next = VdevTree::clone(&config.tree);
        for (id, _) in &off.leaves {
            let leaf = &mut next.leaves[id.0 as usize];
            (leaf.state, leaf.is_state_temporary, leaf.too_many_errors) = (LeafState::Offline, false, false);
            note_unflushed(&spa, leaf.guid);
        }
        *taken.lock() = Some(off);
        Ok(Edited { tree: next.into(), ..Edited::default() })
    })
}

/// The change by which leaves that are another pool's by now are none of this one. They are offline: nothing is written to them.
pub(crate) fn give_up(guids: Vec<Guid>) -> Edit {
    Box::new(move |config: &Config, _| {
        let (mut next, mut paths) = (VdevTree::clone(&config.tree), Vec::new());
        for guid in guids {
            let id = next.leaf_by_guid(guid).ok_or(PoolError::NoSuchDevice)?;
            paths.push(next.leaf(id).path.clone());
            next = next.detach(id)?;
        }
        let log = Some(("detach", format!("vdev={}", paths.join(","))));
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
