//! What is remembered of a pool across restarts.

use crate::pool::OpenPool;
use serde::{Deserialize, Serialize};
use vdev::{Leaf, LeafKind};

/// Entry of one pool in the file of pools that are to be open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    pub name: String,
    pub guid: u64,
    pub altroot: Option<String>,
    pub read_only: bool,
    pub paths: Vec<String>,
    /// Value of the property `cachefile`, when it was set.
    #[serde(default)]
    pub cachefile: Option<String>,
    /// True when the name is for this import only.
    #[serde(default)]
    pub temporary: bool,
}

impl Remembered {
    /// Entry of a pool with all of its devices, also those that are missing now.
    pub(crate) fn of(open: &OpenPool) -> Remembered {
        let (devices, tree) = (open.pool().devices(), open.pool().tree());
        let mut paths: Vec<String> = devices.iter().flatten().map(|device| device.path().to_string_lossy().into_owned()).collect();
        let is_elsewhere = |leaf: &&Leaf| leaf.kind != LeafKind::DraidSpare && leaf.path.starts_with('/');
        for leaf in tree.leaves.iter().filter(is_elsewhere) {
            if !paths.contains(&leaf.path) {
                paths.push(leaf.path.clone());
            }
        }
        Remembered {
            name: open.name(),
            guid: open.pool().guid().0,
            altroot: open.altroot().map(String::from),
            read_only: open.is_read_only(),
            paths,
            cachefile: open.cachefile(),
            temporary: open.pool().has_temporary_name(),
        }
    }
}
