//! The vdev tree as configuration lists, in OpenZFS's order of entries (`vdev_config_generate`, `vdev_alloc`).

use crate::{
    DraidConfig, DraidSpare, Leaf, LeafId, LeafKind, LeafState, Node, NodeKind, RemovalObjects, TopKind, TopVdev, TreeError, VdevTree,
    Widths,
};
use nvlist::{NvList, Value};
use ondisk::names::config as vdev_config;
use ondisk::{Guid, ObjectId, Txg, VdevId};

/// Most levels that interior nodes may nest: top-level, mirror or raidz, spare, replacing, leaf.
const DEPTH_MAX: usize = 6;
const IDENTITY: [&str; 3] = ["devid", "phys_path", "vdev_enc_sysfs_path"];

/// Scope of a configuration: which of the optional entries it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigScope {
    /// Entries for the labels: without the ZAPs.
    Label,
    /// Entries for the MOS config object: with the ZAPs (OpenZFS: `VDEV_CONFIG_MOS`).
    Mos,
}

impl VdevTree {
    /// The tree of a root vdev's list (`vdev_tree` of the MOS config).
    pub fn from_config(root: &NvList) -> Result<VdevTree, TreeError> {
        if root.get_str("type") != Some("root") {
            return Err(TreeError::Entry("type"));
        }
        let guid = Guid(root.get_u64("guid").ok_or(TreeError::Entry("guid"))?);
        let mut leaves = Vec::new();
        let mut tops = Vec::new();
        for child in root.get_nvlist_array("children").unwrap_or_default() {
            tops.push(TopVdev::from_config(child, &mut leaves)?);
        }
        let mut tree = VdevTree::assemble(guid, tops, leaves)?;
        tree.create_txg = Txg(root.get_u64("create_txg").unwrap_or(0));
        tree.root_zap = ObjectId(root.get_u64("com.klarasystems:vdev_zap_root").unwrap_or(0));
        Ok(tree)
    }

    /// The root vdev's list.
    pub fn to_config(&self, scope: ConfigScope) -> NvList {
        let mut list = NvList::new();
        list.add("type", "root").add("id", 0u64).add("guid", self.guid.0);
        if self.create_txg.0 != 0 {
            list.add("create_txg", self.create_txg.0);
        }
        if scope == ConfigScope::Mos && self.root_zap.0 != 0 {
            list.add("com.klarasystems:vdev_zap_root", self.root_zap.0);
        }
        let children: Vec<NvList> = self.tops.iter().map(|top| self.top_config(top, scope)).collect();
        list.add("children", children);
        list
    }

    /// One top-level vdev's list (`vdev_tree` of a label).
    pub fn top_config(&self, top: &TopVdev, scope: ConfigScope) -> NvList {
        match &top.node {
            Some(node) if top.is_concrete() => self.node_config(node, Some(top), scope),
            _ => {
                let mut list = NvList::new();
                let (hole, removed) = (top.kind == TopKind::Hole, top.is_removed());
                let kind = match top.kind {
                    TopKind::Hole => "hole",
                    TopKind::Indirect => "indirect",
                    _ => "missing",
                };
                list.add("type", kind).add("id", u64::from(top.id.0)).add("guid", top.guid.0);
                add_top(&mut list, top);
                if hole {
                    list.add("is_hole", 1u64);
                }
                if removed {
                    add_removed(&mut list, top, scope);
                }
                list
            }
        }
    }

    fn node_config(&self, node: &Node, top: Option<&TopVdev>, scope: ConfigScope) -> NvList {
        let mut list = NvList::new();
        let leaf = if let NodeKind::Leaf(leaf) = node.kind { Some(self.leaf(leaf)) } else { None };
        list.add("type", node.kind.type_name(leaf)).add("id", node.id).add("guid", node.guid.0);
        if let Some(leaf) = leaf {
            if !leaf.path.is_empty() {
                list.add("path", leaf.path.as_str());
            }
            for (name, value) in IDENTITY.iter().zip(&leaf.identity) {
                if let Some(value) = value {
                    list.add(*name, value.as_str());
                }
            }
            if let Some(whole) = leaf.whole_disk {
                list.add("whole_disk", u64::from(whole));
            }
            if let Some(spare) = leaf.draid_spare {
                list.add("top_guid", spare.top.0).add("spareid", spare.id);
            }
            if leaf.is_spare {
                list.add("is_spare", 1u64);
            }
        }
        add_redundancy(&mut list, node.kind);
        if let Some(top) = top {
            top.widths.add_to(&mut list);
            add_top(&mut list, top);
        }
        if let Some(leaf) = leaf.filter(|leaf| leaf.dtl.0 != 0) {
            list.add("DTL", leaf.dtl.0);
        }
        if let Some(top) = top {
            add_removal_objects(&mut list, &top.objects);
        }
        if node.create_txg.0 != 0 {
            list.add("create_txg", node.create_txg.0);
        }
        if scope == ConfigScope::Mos {
            if let Some(leaf) = leaf.filter(|leaf| leaf.zap.0 != 0) {
                list.add("com.delphix:vdev_zap_leaf", leaf.zap.0);
            }
            if let Some(top) = top.filter(|top| top.zap.0 != 0) {
                list.add("com.delphix:vdev_zap_top", top.zap.0);
            }
        }
        match leaf {
            Some(leaf) => add_leaf_state(&mut list, leaf, scope),
            None => {
                let children: Vec<NvList> = node.children.iter().map(|child| self.node_config(child, None, scope)).collect();
                list.add("children", children);
            }
        }
        list
    }
}

fn add_top(list: &mut NvList, top: &TopVdev) {
    list.add("metaslab_array", top.ms_array.0).add("metaslab_shift", u64::from(top.ms_shift));
    list.add("ashift", u64::from(top.ashift)).add("asize", top.asize).add("is_log", u64::from(top.is_log));
    if top.nonallocating && (top.is_leaving || !top.is_emptying) {
        list.add("non_allocating", 1u64);
    }
    if top.is_leaving {
        list.add("removing", 1u64);
    }
}

/// Objects of a vdev that was removed, or is being removed.
fn add_removal_objects(list: &mut NvList, objects: &RemovalObjects) {
    if objects.mapping.0 != 0 {
        list.add(vdev_config::INDIRECT_OBJECT, objects.mapping.0);
    }
    if objects.births.0 != 0 {
        list.add(vdev_config::INDIRECT_BIRTHS, objects.births.0);
    }
    if let Some(previous) = objects.previous {
        list.add(vdev_config::PREV_INDIRECT_VDEV, u64::from(previous.0));
    }
}

/// Entries of a vdev that was removed, behind those of any top-level vdev.
fn add_removed(list: &mut NvList, top: &TopVdev, scope: ConfigScope) {
    add_removal_objects(list, &top.objects);
    if top.objects.create_txg.0 != 0 {
        list.add("create_txg", top.objects.create_txg.0);
    }
    if scope == ConfigScope::Mos && top.zap.0 != 0 {
        list.add("com.delphix:vdev_zap_top", top.zap.0);
    }
    list.add("children", Vec::<NvList>::new());
}

fn add_redundancy(list: &mut NvList, kind: NodeKind) {
    match kind {
        NodeKind::Raidz(parity) => {
            list.add("nparity", u64::from(parity));
        }
        NodeKind::Draid(config) => {
            list.add("nparity", config.parity() as u64).add("draid_ndata", config.data() as u64);
            list.add("draid_nspares", config.spares() as u64).add("draid_ngroups", config.groups() as u64);
        }
        _ => {}
    }
}

fn add_leaf_state(list: &mut NvList, leaf: &Leaf, scope: ConfigScope) {
    let kept = !leaf.is_state_temporary;
    if leaf.state == LeafState::Offline && kept {
        list.add("offline", 1u64);
    }
    if leaf.resilver_txg.0 != 0 {
        list.add("resilver_txg", leaf.resilver_txg.0);
    }
    if leaf.rebuild_txg.0 != 0 {
        list.add("rebuild_txg", leaf.rebuild_txg.0);
    }
    if leaf.unspare {
        list.add("unspare", 1u64);
    }
    if leaf.resilver_deferred && scope == ConfigScope::Mos {
        list.add_boolean("com.datto:resilver_defer");
    }
    match leaf.state {
        // A fault that an administrator declared; any other is found again by whoever imports the pool.
        LeafState::Faulted if kept => list.add("faulted", 1u64).add("aux_state", "external"),
        LeafState::Degraded if kept => list.add("degraded", 1u64),
        LeafState::Removed if kept => list.add("removed", 1u64),
        _ => list,
    };
}

impl NodeKind {
    /// Type as configurations have it (OpenZFS: `vdev_op_type`); of a leaf what backs it.
    pub fn type_name(self, leaf: Option<&Leaf>) -> &'static str {
        match self {
            NodeKind::Mirror => "mirror",
            NodeKind::Raidz(_) => "raidz",
            NodeKind::Draid(_) => "draid",
            NodeKind::Replacing => "replacing",
            NodeKind::Spare => "spare",
            NodeKind::Leaf(_) => match leaf.map(|leaf| leaf.kind) {
                Some(LeafKind::Disk) => "disk",
                Some(LeafKind::Missing) => "missing",
                Some(LeafKind::DraidSpare) => "dspare",
                _ => "file",
            },
        }
    }
}

impl TopVdev {
    /// A top-level vdev from its list; its leaves are appended to `leaves`. Unassembled: see [`VdevTree::assemble`].
    pub fn from_config(list: &NvList, leaves: &mut Vec<Leaf>) -> Result<TopVdev, TreeError> {
        let number = |name: &'static str| list.get_u64(name).unwrap_or(0);
        let mut top = TopVdev {
            guid: Guid(list.get_u64("guid").ok_or(TreeError::Entry("guid"))?),
            ashift: u32::try_from(number("ashift")).map_err(|_| TreeError::Entry("ashift"))?,
            asize: number("asize"),
            ms_array: ObjectId(number("metaslab_array")),
            ms_shift: u32::try_from(number("metaslab_shift")).map_err(|_| TreeError::Entry("metaslab_shift"))?,
            zap: ObjectId(number("com.delphix:vdev_zap_top")),
            is_log: number("is_log") != 0,
            // OpenZFS says so of vdevs that are being removed since 2.2 only.
            nonallocating: number("non_allocating") != 0 || number("removing") != 0,
            is_leaving: number("removing") != 0,
            objects: RemovalObjects {
                mapping: ObjectId(number(vdev_config::INDIRECT_OBJECT)),
                births: ObjectId(number(vdev_config::INDIRECT_BIRTHS)),
                previous: list.get_u64(vdev_config::PREV_INDIRECT_VDEV).and_then(|id| u32::try_from(id).ok()).map(VdevId),
                ..RemovalObjects::default()
            },
            widths: Widths::of(list),
            ..TopVdev::default()
        };
        match list.get_str("type").ok_or(TreeError::Entry("type"))? {
            "hole" => top.kind = TopKind::Hole,
            "missing" => top.kind = TopKind::Missing,
            "indirect" => {
                top.kind = TopKind::Indirect;
                top.objects.create_txg = Txg(number("create_txg"));
            }
            _ => top.node = Some(node_from_config(list, leaves, DEPTH_MAX)?),
        }
        Ok(top)
    }
}

fn node_from_config(list: &NvList, leaves: &mut Vec<Leaf>, depth: usize) -> Result<Node, TreeError> {
    let depth = depth.checked_sub(1).ok_or(TreeError::Geometry("depth"))?;
    let kind = match list.get_str("type").ok_or(TreeError::Entry("type"))? {
        "mirror" => NodeKind::Mirror,
        "raidz" => {
            let parity = list.get_u64("nparity").unwrap_or(1);
            NodeKind::Raidz(u8::try_from(parity).map_err(|_| TreeError::Entry("nparity"))?)
        }
        "replacing" => NodeKind::Replacing,
        "spare" => NodeKind::Spare,
        "file" => leaf_from_config(list, LeafKind::File, leaves)?,
        "disk" => leaf_from_config(list, LeafKind::Disk, leaves)?,
        "missing" => leaf_from_config(list, LeafKind::Missing, leaves)?,
        "draid" => NodeKind::Draid(draid_from_config(list)?),
        "dspare" => leaf_from_config(list, LeafKind::DraidSpare, leaves)?,
        _ => return Err(TreeError::Entry("type")),
    };
    let children = match kind {
        NodeKind::Leaf(_) => &[],
        _ => list.get_nvlist_array("children").ok_or(TreeError::Entry("children"))?,
    };
    Ok(Node {
        kind,
        id: list.get_u64("id").unwrap_or(0),
        guid: Guid(list.get_u64("guid").ok_or(TreeError::Entry("guid"))?),
        create_txg: Txg(list.get_u64("create_txg").unwrap_or(0)),
        children: children.iter().map(|child| node_from_config(child, leaves, depth)).collect::<Result<_, _>>()?,
    })
}

fn draid_from_config(list: &NvList) -> Result<DraidConfig, TreeError> {
    let children = list.get_nvlist_array("children").ok_or(TreeError::Entry("children"))?.len() as u64;
    let number = |name: &'static str| list.get_u64(name).ok_or(TreeError::Entry(name));
    DraidConfig::with_groups([number("nparity")?, number("draid_ndata")?, number("draid_nspares")?, children, number("draid_ngroups")?])
}

impl Leaf {
    /// A device that hangs on no vdev yet, from its entry in a list of spares or caches.
    pub fn from_config(list: &NvList) -> Result<Leaf, TreeError> {
        let mut leaves = Vec::new();
        node_from_config(list, &mut leaves, 1)?;
        leaves.pop().ok_or(TreeError::Entry("type"))
    }
}

fn leaf_from_config(list: &NvList, kind: LeafKind, leaves: &mut Vec<Leaf>) -> Result<NodeKind, TreeError> {
    let number = |name: &'static str| list.get_u64(name).unwrap_or(0);
    let state = if number("offline") != 0 {
        LeafState::Offline
    } else if number("faulted") != 0 && list.get_str("aux_state") == Some("external") {
        LeafState::Faulted
    } else if number("removed") != 0 {
        LeafState::Removed
    } else if kind == LeafKind::Missing || number("not_present") != 0 {
        LeafState::Missing
    } else if number("degraded") != 0 {
        LeafState::Degraded
    } else {
        LeafState::Online
    };
    let id = LeafId(u32::try_from(leaves.len()).map_err(|_| TreeError::Geometry("number of leaves"))?);
    leaves.push(Leaf {
        kind,
        guid: Guid(list.get_u64("guid").ok_or(TreeError::Entry("guid"))?),
        path: list.get_str("path").unwrap_or_default().to_string(),
        state,
        is_not_present: number("not_present") != 0,
        identity: IDENTITY.map(|name| list.get_str(name).map(str::to_string)),
        whole_disk: match list.get("whole_disk") {
            Some(Value::Uint64(value)) => Some(*value != 0),
            _ => None,
        },
        zap: ObjectId(number("com.delphix:vdev_zap_leaf")),
        dtl: ObjectId(number("DTL")),
        resilver_txg: Txg(number("resilver_txg")),
        rebuild_txg: Txg(number("rebuild_txg")),
        is_spare: number("is_spare") != 0,
        unspare: number("unspare") != 0,
        resilver_deferred: list.contains("com.datto:resilver_defer"),
        draid_spare: (kind == LeafKind::DraidSpare).then(|| DraidSpare { top: Guid(number("top_guid")), id: number("spareid") }),
        ..Leaf::default()
    });
    Ok(NodeKind::Leaf(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> VdevTree {
        let draid = DraidConfig::new(1, 4, 1, 7).expect("valid");
        let layout = [(TopKind::Raidz(2), 6), (TopKind::Mirror, 2), (TopKind::Leaf, 1), (TopKind::Draid(draid), 7)];
        let mut tree = VdevTree::simple(&layout, 12, 1 << 30).expect("valid");
        tree.leaves[3].state = LeafState::Offline;
        tree.leaves[4].state = LeafState::Faulted;
        tree.leaves[5].dtl = ObjectId(77);
        tree.leaves[6].zap = ObjectId(130);
        tree.tops[1].zap = ObjectId(131);
        tree.root_zap = ObjectId(129);
        tree
    }

    /// A configuration that changes on its way through labels loses devices or states.
    #[test]
    fn configurations_survive_the_round_trip() {
        let tree = sample();
        let list = tree.to_config(ConfigScope::Mos);
        let packed = list.encode(nvlist::Encoding::Xdr);
        let again = VdevTree::from_config(&NvList::decode(&packed).expect("decodes")).expect("valid");
        assert_eq!(again, tree);
        let label = tree.top_config(&tree.tops[1], ConfigScope::Label);
        assert!(!label.contains("com.delphix:vdev_zap_top"));
    }

    /// If this fails, addresses on vdevs that were removed lead nowhere after the next import, or a removal does not go on.
    #[test]
    fn removals_survive_the_round_trip() {
        let mut tree = sample();
        let objects = RemovalObjects { mapping: ObjectId(301), births: ObjectId(302), previous: Some(VdevId(0)), create_txg: Txg(0) };
        tree.tops[1].objects = objects;
        (tree.tops[2].is_leaving, tree.tops[2].nonallocating) = (true, true);
        tree.tops[2].objects = RemovalObjects { mapping: ObjectId(303), births: ObjectId(304), ..RemovalObjects::default() };
        let mut tree = tree.without_contents(VdevId(1), Guid(99)).expect("valid");
        (tree.create_txg, tree.root_zap) = (Txg(4), ObjectId(129));
        let again = VdevTree::from_config(&tree.to_config(ConfigScope::Mos)).expect("valid");
        assert_eq!(again, tree);
        let removed = &again.tops[1];
        assert!(removed.is_removed() && !removed.is_concrete() && removed.zap == ObjectId(131));
        assert_eq!((removed.objects.previous, removed.objects.create_txg), (Some(VdevId(0)), Txg(4)), "the node's txg stays");
        assert!(again.top(VdevId(1)).is_none() && again.addressed(VdevId(1)).is_some(), "blocks have addresses there, and no storage");
        let asize = 1 << 20;
        assert_eq!(removed.dsize(asize), asize, "what is freed there counts as what was born there");
    }

    /// If this fails, a crash while a removal is about to begin leaves a vdev that nothing is written to any more, or is written to while it is emptied.
    #[test]
    fn what_is_emptied_for_a_removal_is_in_use_after_a_crash() {
        let mut tree = sample();
        let is_empty = |tree: &VdevTree| VdevTree::from_config(&tree.to_config(ConfigScope::Mos)).expect("valid").tops[1].nonallocating;
        (tree.tops[1].nonallocating, tree.tops[1].is_emptying) = (true, true);
        assert!(!is_empty(&tree));
        tree.tops[1].is_leaving = true;
        assert!(is_empty(&tree), "it began");
        (tree.tops[1].is_leaving, tree.tops[1].is_emptying) = (false, false);
        assert!(is_empty(&tree), "somebody's wish");
    }

    /// If this fails, a device that OpenZFS did not find when it imported the pool is told as one that was at its path.
    #[test]
    fn what_another_import_did_not_find_is_missing() {
        let mut list = sample().to_config(ConfigScope::Mos);
        let mirror = &mut list.get_nvlist_array_mut("children").expect("children")[1];
        mirror.get_nvlist_array_mut("children").expect("children")[0].set("not_present", 1u64);
        let tree = VdevTree::from_config(&list).expect("valid");
        let found = tree.leaves.iter().filter(|leaf| leaf.is_not_present).map(|leaf| leaf.state);
        assert_eq!(found.collect::<Vec<_>>(), [LeafState::Missing]);
    }

    /// A hostile label must end in an error, not in a panic or a wrong geometry.
    #[test]
    fn contradictions_are_refused() {
        let good = sample().to_config(ConfigScope::Mos);
        let spoil = |change: &dyn Fn(&mut NvList)| {
            let mut list = good.clone();
            change(&mut list.get_nvlist_array_mut("children").expect("children")[0]);
            VdevTree::from_config(&list).err()
        };
        assert_eq!(spoil(&|_| ()), None);
        assert_eq!(
            spoil(&|top| {
                top.set("ashift", 3u64);
            }),
            Some(TreeError::Geometry("ashift"))
        );
        assert_eq!(
            spoil(&|top| {
                top.set("nparity", 6u64);
            }),
            Some(TreeError::Geometry("columns of a raidz"))
        );
        assert_eq!(
            spoil(&|top| {
                top.set("type", "draid");
            }),
            Some(TreeError::Entry("draid_ndata"))
        );
        assert_eq!(
            spoil(&|top| {
                top.remove("guid");
            }),
            Some(TreeError::Entry("guid"))
        );
        assert_eq!(
            spoil(&|top| {
                top.set("metaslab_shift", 64u64);
            }),
            Some(TreeError::Geometry("metaslab_shift"))
        );
        assert_eq!(
            spoil(&|top| {
                top.set("asize", 0u64);
            }),
            Some(TreeError::Geometry("asize"))
        );
    }
}
