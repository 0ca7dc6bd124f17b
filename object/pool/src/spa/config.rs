//! The pool's configuration lists: what labels and the MOS config object hold (OpenZFS: `spa_config_generate`).

use nvlist::NvList;
use ondisk::{Guid, Txg};
use vdev::{ConfigScope, LeafId, Node, TopKind, VdevTree};

/// Newest pool version; it has feature flags (OpenZFS: `SPA_VERSION`).
pub const VERSION: u64 = 5000;
/// Newest version without feature flags (OpenZFS: `SPA_VERSION_BEFORE_FEATURES`).
pub(crate) const VERSION_BEFORE_FEATURES: u64 = 28;

/// True for versions of pools that there are (OpenZFS: `SPA_VERSION_IS_SUPPORTED`).
pub fn is_version(version: u64) -> bool {
    version == VERSION || (1..=VERSION_BEFORE_FEATURES).contains(&version)
}

/// State of a pool as its labels tell it (OpenZFS: `pool_state_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PoolState {
    /// In use, or not exported before the machine stopped.
    #[default]
    Active,
    /// Exported: no host uses the pool.
    Exported,
    /// Destroyed by `zpool destroy`.
    Destroyed,
    /// Not a pool: the device is a spare of one or more pools, and not in use.
    Spare,
    /// Not a pool: the device is a cache of one.
    Cache,
}

impl PoolState {
    /// The number on disk.
    pub fn number(self) -> u64 {
        match self {
            PoolState::Active => 0,
            PoolState::Exported => 1,
            PoolState::Destroyed => 2,
            PoolState::Spare => 3,
            PoolState::Cache => 4,
        }
    }
    /// The state with this number.
    pub fn from_number(number: u64) -> Option<PoolState> {
        use PoolState::{Active, Cache, Destroyed, Exported, Spare};
        [Active, Exported, Destroyed, Spare, Cache].into_iter().find(|state| state.number() == number)
    }
}

/// Host that uses a pool: goes into its labels so that another host notices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The host's id (`/etc/hostid`, `spl_hostid`), 0 for none.
    pub id: u64,
    /// The host's name.
    pub name: String,
}

/// Facts in a configuration list besides the vdevs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolFacts {
    pub version: u64,
    pub name: String,
    /// The name on the devices, where `name` is one for this import only.
    pub stored_name: Option<String>,
    pub state: PoolState,
    pub guid: Guid,
    pub comment: Option<String>,
    pub compatibility: Option<String>,
    pub host: Host,
    /// Active features that must be known to read the MOS.
    pub mos_features: Vec<String>,
    /// Space is counted with parity: the pool was made before version 3 (OpenZFS: `spa_deflate`).
    pub counts_parity: bool,
}

impl PoolFacts {
    fn stored_name(&self) -> &str {
        self.stored_name.as_deref().unwrap_or(&self.name)
    }

    fn head(&self, txg: Txg) -> NvList {
        let mut list = NvList::new();
        list.add("version", self.version).add("name", self.stored_name()).add("state", self.state.number());
        list.add("txg", txg.0).add("pool_guid", self.guid.0).add("errata", 0u64);
        if let Some(comment) = &self.comment {
            list.add("comment", comment.as_str());
        }
        if let Some(compatibility) = &self.compatibility {
            list.add("compatibility", compatibility.as_str());
        }
        if self.host.id != 0 {
            list.add("hostid", self.host.id);
        }
        list.add("hostname", self.host.name.as_str());
        list
    }

    fn tail(&self, mut list: NvList, tree: &VdevTree, vdev_tree: NvList) -> NvList {
        let holes: Vec<u64> = tree.tops.iter().filter(|top| top.kind == TopKind::Hole).map(|top| u64::from(top.id.0)).collect();
        if !holes.is_empty() {
            list.add("hole_array", holes);
        }
        list.add("vdev_children", tree.tops.len() as u64).add("vdev_tree", vdev_tree);
        let mut features = NvList::new();
        for guid in &self.mos_features {
            features.add_boolean(guid.as_str());
        }
        list.add("features_for_read", features);
        list
    }

    /// The list for the MOS config object.
    pub fn mos_config(&self, tree: &VdevTree, txg: Txg) -> NvList {
        let mut list = self.head(txg);
        list.add_boolean("com.delphix:has_per_vdev_zaps");
        self.tail(list, tree, tree.to_config(ConfigScope::Mos))
    }

    /// The list for the labels of one leaf.
    pub fn label_config(&self, tree: &VdevTree, leaf: LeafId, txg: Txg) -> NvList {
        let leaf = tree.leaf(leaf);
        let top = &tree.tops[leaf.top.0 as usize];
        let mut list = self.head(txg);
        list.add("top_guid", top.guid.0).add("guid", leaf.guid.0);
        if top.is_log {
            list.add("is_log", 1u64);
        }
        self.tail(list, tree, tree.top_config(top, ConfigScope::Label))
    }

    /// The list for the labels of a leaf that leaves `tree`: what it was, with a txg of 0, which is never imported (OpenZFS:
    /// `vdev_label_init`).
    pub fn left_label(&self, tree: &VdevTree, leaf: LeafId) -> NvList {
        let mut list = self.label_config(tree, leaf, Txg(0));
        list.add("create_txg", 0u64);
        list
    }

    /// The list for the labels of a spare or cache that left the pool: a txg of 0 is never imported.
    pub fn detached_label(&self, leaf: Guid) -> NvList {
        let mut list = self.head(Txg(0));
        list.add("guid", leaf.0).add("create_txg", 0u64);
        list
    }

    /// The facts of a configuration list, with OpenZFS's defaults for what it lacks.
    pub fn from_config(list: &NvList) -> Option<PoolFacts> {
        let text = |name: &str| list.get_str(name).map(str::to_string);
        Some(PoolFacts {
            version: list.get_u64("version")?,
            name: text("name")?,
            stored_name: None,
            state: PoolState::from_number(list.get_u64("state")?)?,
            guid: Guid(list.get_u64("pool_guid")?),
            comment: text("comment"),
            compatibility: text("compatibility"),
            host: Host { id: list.get_u64("hostid").unwrap_or(0), name: text("hostname").unwrap_or_default() },
            mos_features: label_features(list),
            counts_parity: false,
        })
    }
}

/// The label of a spare that is not in use (OpenZFS: `vdev_aux_label_generate`): it names no pool, so that several may share it.
pub(crate) fn spare_label(guid: Guid, path: &str) -> NvList {
    aux_label(PoolState::Spare, guid).with("path", path)
}

/// The label of a cache device, which names no pool either.
pub(crate) fn cache_label(guid: Guid, path: &str, ashift: u32) -> NvList {
    aux_label(PoolState::Cache, guid).with("ashift", u64::from(ashift)).with("path", path)
}

fn aux_label(state: PoolState, guid: Guid) -> NvList {
    let mut label = NvList::new();
    label.add("version", VERSION).add("state", state.number()).add("guid", guid.0);
    label
}

/// Features that a configuration list says are needed to read the MOS.
pub(crate) fn label_features(list: &NvList) -> Vec<String> {
    let names = list.get_nvlist("features_for_read").into_iter().flat_map(NvList::iter);
    names.filter_map(|(name, _)| name.to_str().map(str::to_string)).collect()
}

/// The sum of all vdevs' guids, as the uberblock has it (OpenZFS: `vdev_guid_sum`).
pub(crate) fn guid_sum(tree: &VdevTree) -> u64 {
    fn of(node: &Node) -> u64 {
        node.children.iter().map(of).fold(node.guid.0, u64::wrapping_add)
    }
    tree.tops.iter().map(|top| top.node.as_ref().map_or(top.guid.0, of)).fold(tree.guid.0, u64::wrapping_add)
}
