//! What is to become vdevs: devices as the caller names them, checked by their labels, and laid out.

use crate::label::{Device, flush_all, init_writes, read_configs, write_all};
use crate::spa::aux_devices::guid_of;
use crate::spa::config::PoolState;
use crate::{DeviceProblem, PoolError};
use exec::Exec;
use nvlist::NvList;
use ondisk::{Guid, Txg};
use vdev::{Bias, Leaf, LeafId, LeafKind, Node, NodeKind, TopKind, TopVdev};

/// One device that joins a pool, open: what a request names by its path (`control_api::VdevSpec`), once the daemon has looked at it.
#[derive(Clone, Debug)]
pub struct LeafSpec {
    /// Path to record.
    pub path: String,
    /// File or disk.
    pub kind: LeafKind,
    /// The device, open for writing.
    pub device: Device,
}

/// One top-level vdev that joins a pool. Not the specification of a request: its devices are open, and the numbers of its kind fit each other.
#[derive(Clone, Debug)]
pub struct TopSpec {
    /// One device, a mirror, RAID-Z or dRAID.
    pub kind: TopKind,
    /// Devices of the vdev.
    pub leaves: Vec<LeafSpec>,
}

/// Top-level vdevs that are for some blocks only.
#[derive(Clone, Debug, Default)]
pub struct ClassSpec {
    /// Vdevs for metadata, and small blocks of files.
    pub special: Vec<TopSpec>,
    /// Vdevs for tables of deduplication.
    pub dedup: Vec<TopSpec>,
}

impl ClassSpec {
    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.special.is_empty() && self.dedup.is_empty()
    }
    /// The vdevs in the order in which they join.
    pub(crate) fn tops(&self) -> impl Iterator<Item = &TopSpec> {
        self.special.iter().chain(&self.dedup)
    }
    /// Classes of the same vdevs.
    fn biases(&self) -> impl Iterator<Item = Bias> {
        let of = |tops: &[TopSpec], bias| std::iter::repeat_n(bias, tops.len());
        of(&self.special, Bias::Special).chain(of(&self.dedup, Bias::Dedup))
    }
    /// Says of `tops`, which begin with what was laid out from these, what they are for.
    pub(crate) fn mark(&self, tops: &mut [TopVdev]) {
        tops.iter_mut().zip(self.biases()).for_each(|(top, bias)| top.bias = bias);
    }
}

/// Reason why a pool has no vdevs for some blocks only.
pub(crate) const NO_CLASSES: &str = "special and dedup vdevs need the feature 'allocation_classes', which is not enabled";

/// Pool that a device belongs to, as its newest label tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Name of the pool.
    pub pool: String,
    /// Guid of the pool.
    pub guid: Guid,
    /// Guid of the leaf that the device is.
    pub leaf: Guid,
    /// Active or exported.
    pub state: PoolState,
}

/// The pool that a device belongs to and that could be imported; None for a device without a label, of a pool that was
/// destroyed or never finished, and for one that left its pool, or waits as a spare.
pub fn membership(exec: &Exec, device: &Device) -> Option<Membership> {
    let configs = read_configs(exec, device);
    let newest = configs.first()?;
    // A label of txg 0 is what an unfinished creation leaves behind, and what a detached device has.
    let is_finished = newest.get_u64("txg").is_some_and(|txg| txg != 0);
    let state = newest.get_u64("state").and_then(PoolState::from_number);
    if !is_finished || state == Some(PoolState::Destroyed) {
        return None;
    }
    Some(Membership {
        pool: newest.get_str("name").unwrap_or_default().to_string(),
        guid: Guid(newest.get_u64("pool_guid").unwrap_or(0)),
        leaf: Guid(newest.get_u64("guid").unwrap_or(0)),
        state: state.unwrap_or_default(),
    })
}

/// Refuses a device that belongs to a pool.
pub(crate) fn check_device(exec: &Exec, leaf: &LeafSpec) -> Result<(), PoolError> {
    match membership(exec, &leaf.device) {
        Some(_) => Err(PoolError::Device { path: leaf.path.clone(), problem: DeviceProblem::InUse }),
        None => Ok(()),
    }
}

/// A guid by chance.
pub(crate) fn new_guid(exec: &Exec) -> Guid {
    loop {
        let guid = exec.random_u64();
        if guid != 0 {
            return Guid(guid);
        }
    }
}

/// Top-level vdevs that are to be; the numbers of their leaves begin with 0.
pub(crate) struct NewTops {
    pub tops: Vec<TopVdev>,
    pub leaves: Vec<Leaf>,
    pub devices: Vec<Device>,
}

/// Lays out top-level vdevs.
pub(crate) fn build_tops(exec: &Exec, specs: &[TopSpec], ashift: Option<u32>) -> Result<NewTops, PoolError> {
    let (mut tops, mut leaves, mut devices) = (Vec::new(), Vec::new(), Vec::new());
    for top in specs {
        let create_txg = Txg::INITIAL;
        let mut children = Vec::new();
        for (id, leaf) in top.leaves.iter().enumerate() {
            let guid = new_guid(exec);
            let number = LeafId(leaves.len() as u32);
            let whole_disk = (leaf.kind == LeafKind::Disk).then_some(false);
            leaves.push(Leaf { kind: leaf.kind, guid, path: leaf.path.clone(), whole_disk, ..Leaf::default() });
            devices.push(leaf.device.clone());
            children.push(Node { kind: NodeKind::Leaf(number), id: id as u64, guid, create_txg, children: Vec::new() });
        }
        let smallest = top.leaves.iter().filter_map(|leaf| vdev::leaf_asize(leaf.device.size_bytes())).min().unwrap_or(0);
        let widest = top.leaves.iter().map(|leaf| leaf.device.ashift()).max().unwrap_or(vdev::ASHIFT_MIN);
        let ashift = ashift.unwrap_or_else(|| widest.clamp(vdev::ASHIFT_MIN, vdev::ASHIFT_MAX));
        let interior = |kind, children: Vec<Node>| Node { kind, id: 0, guid: new_guid(exec), create_txg, children };
        let (node, asize) = match top.kind {
            TopKind::Leaf if children.len() == 1 => (children.remove(0), smallest),
            TopKind::Mirror if children.len() > 1 => (interior(NodeKind::Mirror, children), smallest),
            TopKind::Raidz(parity) => {
                let count = children.len() as u64;
                (interior(NodeKind::Raidz(parity), children), smallest * count)
            }
            TopKind::Draid(config) if children.len() == config.children() => {
                (interior(NodeKind::Draid(config), children), config.asize(smallest))
            }
            _ => return Err(PoolError::Invalid("the number of devices does not fit the type of vdev")),
        };
        let ms_shift = vdev::metaslab_shift(top.kind, asize);
        tops.push(TopVdev { guid: node.guid, kind: top.kind, ashift, asize, ms_shift, node: Some(node), ..TopVdev::default() });
    }
    Ok(NewTops { tops, leaves, devices })
}

/// The guid in the label of a device that is a spare of some pool.
pub(crate) fn labelled_spare(exec: &Exec, device: &Device) -> Option<Guid> {
    let configs = read_configs(exec, device);
    let label = configs.first()?;
    (label.get_u64("state") == Some(PoolState::Spare.number())).then(|| guid_of(label)).flatten()
}

/// The guid in the label of a device, whatever it is.
pub fn label_guid(exec: &Exec, device: &Device) -> Option<Guid> {
    guid_of(read_configs(exec, device).first()?)
}

/// Writes a label to a device that is no leaf.
pub(crate) fn write_label(exec: &Exec, device: &Device, label: &NvList) -> Result<(), PoolError> {
    write_all(exec, init_writes(device, label)?).into_iter().collect::<Result<(), _>>()?;
    Ok(flush_all(exec, std::slice::from_ref(device)).into_iter().collect::<Result<(), _>>()?)
}
