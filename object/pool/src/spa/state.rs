//! The configuration of an open pool as of now: vdevs, devices and facts, and what of them the pipeline must know.

use super::aux_devices::AuxDevices;
use super::config::PoolFacts;
use super::services::Services;
use crate::label::Device;
use kernels::checksum::Salt;
use ondisk::{Guid, Txg, Uberblock};
use std::sync::Arc;
use vdev::{Leaf, VdevTree};
use zio::{Facts, FailMode, PoolView};

/// The configuration as of now.
pub(crate) struct Config {
    pub tree: Arc<VdevTree>,
    pub devices: Vec<Option<Device>>,
    pub facts: PoolFacts,
    /// Labels and the config object must be written.
    pub dirty: bool,
    /// Devices grew: the labels at their new ends need all uberblocks.
    pub grown: bool,
    pub uberblock: Uberblock,
    /// State and offset of an expansion that the next uberblock is to tell, if all devices of the vdev flush.
    pub reflow: Option<(u16, u64)>,
    pub fail_mode: FailMode,
    /// Spares and caches.
    pub aux: AuxDevices,
    /// Salt of the pool's keyed checksums.
    pub salt: Option<Arc<Salt>>,
}

impl Config {
    /// Takes over what `from` knows of the leaves' dirty time logs. What else changed in the meantime stays: only the sync
    /// writes logs, while states change at any time.
    pub fn take_dtls(&mut self, from: &VdevTree) {
        let mut tree = VdevTree::clone(&self.tree);
        for leaf in &mut tree.leaves {
            let Some(known) = from.leaf_by_guid(leaf.guid).map(|id| from.leaf(id)) else { continue };
            (leaf.dtl, leaf.missing_txgs) = (known.dtl, known.missing_txgs.clone());
            leaf.resilver_deferred = known.resilver_deferred;
            // A leaf that went away meanwhile takes part no longer.
            let usable = leaf.state.is_usable();
            leaf.resilver_txg = if usable { known.resilver_txg } else { Txg(0) };
            leaf.rebuild_txg = if usable { known.rebuild_txg } else { Txg(0) };
        }
        self.tree = Arc::new(tree);
    }
    /// Takes over the ZAPs that `from`, the same tree, has for vdevs.
    pub fn take_zaps(&mut self, from: &VdevTree) {
        let mut tree = VdevTree::clone(&self.tree);
        for (top, known) in tree.tops.iter_mut().zip(&from.tops) {
            top.zap = known.zap;
        }
        for leaf in &mut tree.leaves {
            leaf.zap = from.leaf_by_guid(leaf.guid).map_or(leaf.zap, |id| from.leaf(id).zap);
        }
        self.tree = Arc::new(tree);
    }
    /// View of the configuration for the pipeline.
    pub fn view(&self, services: &Services) -> PoolView {
        PoolView {
            tree: self.tree.clone(),
            devices: self.devices.clone(),
            allocator: services.allocator.clone(),
            facts: Facts {
                guid: self.facts.guid,
                name: self.facts.name.clone(),
                writeable: services.writeable,
                embedded_data: services.features.is_enabled("com.delphix:embedded_data"),
                hole_birth: services.features.refs("com.delphix:hole_birth") != 0,
                fail_mode: self.fail_mode,
                salt: self.salt.clone(),
                version: self.facts.version,
            },
        }
    }

    /// Puts `tree` in place of the current one, with the devices of the leaves that stay and `added`; gives what left. Leaves out of use have none:
    /// whoever brings one back opens it anew.
    pub fn take_tree(&mut self, tree: Arc<VdevTree>, added: &[(Guid, Device)]) -> Vec<(Leaf, Option<Device>)> {
        let old = std::mem::replace(&mut self.tree, tree);
        let mut devices = std::mem::take(&mut self.devices);
        let place_of = |leaf: &Leaf| {
            let find = |is_same: &dyn Fn(&Leaf) -> bool| old.leaves.iter().position(is_same);
            // One that became a top-level vdev has another guid, but its ZAP or else its path is its own.
            find(&|known| known.guid == leaf.guid)
                .or_else(|| find(&|known| known.zap.0 != 0 && known.zap == leaf.zap))
                .or_else(|| find(&|known| known.zap == leaf.zap && known.path == leaf.path))
        };
        let kept: Vec<Option<usize>> = self.tree.leaves.iter().map(place_of).collect();
        let device = |(leaf, place): (&Leaf, &Option<usize>)| {
            let fresh = added.iter().find(|(guid, _)| *guid == leaf.guid).map(|(_, device)| device.clone());
            fresh.or_else(|| devices.get((*place)?).cloned().flatten())
        };
        let next = self.tree.leaves.iter().zip(&kept).map(|of| device(of).filter(|_| of.0.state.is_usable())).collect();
        let gone = (0..old.leaves.len()).filter(|index| !kept.contains(&Some(*index)));
        let left = gone.map(|index| (old.leaves[index].clone(), devices[index].take())).collect();
        self.devices = next;
        self.dirty = true;
        left
    }
}
