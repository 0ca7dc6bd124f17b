//! Devices of an open pool that are slow or err among their siblings: named, and sitting out where the property `autosit` of their vdev says so.
//!
//! OpenZFS looks at the children of a RAID-Z with each of its reads (`vdev_child_slow_outlier`) and lets one sit out that is some ten times slower than
//! the others; here whoever owns the pool looks again and again, at all of its devices, and three times is enough.

mod siblings;

use crate::spa::Spa;
use crate::spa::vdev_props::{AUTOSIT, VdevProps};
use exec::Mutex;
use ondisk::Guid;
use siblings::{Look, Siblings};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::{Bias, LeafId, LeafState, VdevTree};
use zio::{Defect, EXTENDED, IoKind, Sample, Spell};

/// Histograms of the times that a device takes for reads and writes, and whose errors belong to them.
const COMPARED: [(&str, IoKind); 2] = [("vdev_disk_r_lat_histo", IoKind::Read), ("vdev_disk_w_lat_histo", IoKind::Write)];

/// Device of which something is news.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlier {
    /// Guid of its leaf.
    pub leaf: Guid,
    /// Path of its leaf.
    pub path: String,
    /// Defect that sets it apart.
    pub defect: Defect,
}

/// News of a look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outlying {
    /// Devices that stand out from now on.
    pub named: Vec<Outlier>,
    /// Devices that sit out from now on.
    pub sat_out: Vec<Outlier>,
}

/// Memory of how the devices of a pool do beside each other.
pub struct Outliers {
    spa: Arc<Spa>,
    siblings: Mutex<Siblings>,
    /// Defects for which leaves sit out.
    sat_out_for: Mutex<BTreeMap<Guid, Defect>>,
}

impl Outliers {
    pub(crate) fn new(spa: Arc<Spa>) -> Outliers {
        Outliers { spa, siblings: Mutex::default(), sat_out_for: Mutex::default() }
    }

    /// Compares what devices did since the last look, to be called once in a while (OpenZFS: every `vdev_raidz_outlier_check_interval_ms`), and lets
    /// those sit out whose reads are slow, where `props` say so and redundancy makes up for them. Nothing of a suspended pool.
    pub fn look(&self, props: &dyn Fn() -> Arc<VdevProps>) -> Outlying {
        let zio = self.spa.zio();
        if zio.is_suspended() {
            return Outlying::default();
        }
        let tree = self.spa.tree();
        let (told, slow) = {
            let looks = self.looks(&tree);
            let mut siblings = self.siblings.lock();
            (siblings.look(&looks), siblings.slow_readers())
        };
        let outlier = |(leaf, defect): (Guid, Defect)| {
            let path = tree.leaves.iter().find(|known| known.guid == leaf).map_or_else(String::new, |known| known.path.clone());
            Outlier { leaf, path, defect }
        };
        // Looked for only when somebody is slow: they may have to be read.
        let props = if slow.is_empty() || !zio.may_sit_out() { Arc::default() } else { props() };
        let mut sat_out_for = self.sat_out_for.lock();
        sat_out_for.retain(|leaf, _| zio.sits_out(*leaf));
        let sits = |(leaf, _): &(Guid, Defect)| has_autosit(&tree, &props, *leaf) && zio.sit_out(*leaf, Spell::Usual);
        let sat_out: Vec<(Guid, Defect)> = slow.into_iter().filter(sits).collect();
        sat_out_for.extend(sat_out.iter().copied());
        // Whether they are slow shows anew when that is over.
        let mut siblings = self.siblings.lock();
        sat_out.iter().for_each(|(leaf, _)| siblings.forget(*leaf));
        Outlying { named: told.into_iter().map(outlier).collect(), sat_out: sat_out.into_iter().map(outlier).collect() }
    }

    /// Remarks on devices that stand out or sit out now, by the guids of their leaves.
    pub fn remarks(&self) -> BTreeMap<Guid, String> {
        let mut remarks: BTreeMap<Guid, String> =
            self.siblings.lock().defects().into_iter().map(|(leaf, defect)| (leaf, defect.to_string())).collect();
        let sat_out_for = self.sat_out_for.lock();
        for leaf in self.spa.tree().leaves.iter().filter(|leaf| self.spa.zio().sits_out(leaf.guid)) {
            let why = sat_out_for.get(&leaf.guid).map_or_else(String::new, |defect| format!(", {defect}"));
            remarks.insert(leaf.guid, format!("sits out{why}"));
        }
        remarks
    }

    /// Leaves that are open and do the same as others; siblings are those with heads or without, on vdevs for the same
    /// blocks: metadata has other requests than data.
    fn looks(&self, tree: &VdevTree) -> Vec<Look> {
        let devices = self.spa.config.lock().devices.clone();
        let mut looks = Vec::new();
        for top in &tree.tops {
            let class = match top.bias {
                _ if top.is_log => 1,
                Bias::None => 0,
                Bias::Special => 2,
                Bias::Dedup => 3,
            };
            for id in top.leaves() {
                let Some(device) = devices.get(id.0 as usize).and_then(Option::as_ref) else { continue };
                let group = class * 2 + u32::from(device.is_rotational());
                looks.extend(self.look_of(tree, id, group));
            }
        }
        looks
    }

    /// Leaf as it is now, to be compared; None for one that is not in use, or has work that its siblings don't, or less.
    fn look_of(&self, tree: &VdevTree, id: LeafId, group: u32) -> Option<Look> {
        let leaf = tree.leaf(id);
        if leaf.state != LeafState::Online || !leaf.missing_txgs.is_empty() || self.spa.zio().sits_out(leaf.guid) {
            return None;
        }
        let stats = self.spa.zio().leaf_stats_of(leaf.guid);
        let (counts, mut extended) = (stats.counts(), stats.extended());
        let samples = COMPARED.map(|(name, kind)| {
            let at = EXTENDED.iter().position(|stat| stat.name == name);
            let latencies = at.and_then(|at| extended.get_mut(at)).map(std::mem::take).unwrap_or_default();
            Sample { latencies, errors: counts.errors[kind as usize] }
        });
        Some(Look { guid: leaf.guid, group, samples })
    }
}

/// True when the vdev that a leaf belongs to lets slow devices sit out.
fn has_autosit(tree: &VdevTree, props: &VdevProps, leaf: Guid) -> bool {
    let top = tree.leaf_by_guid(leaf).and_then(|id| tree.top(tree.leaf(id).top));
    top.and_then(|top| props.get(&top.guid)?.get(AUTOSIT)).is_some_and(|value| value == "on")
}
