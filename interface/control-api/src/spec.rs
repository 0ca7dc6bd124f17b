//! What is to become vdevs, as a user asks for it: the one specification of commands, socket and daemon.
//!
//! `zpool` makes it of words, and the daemon makes `pool::TopSpec` of it, whose devices are open and whose geometry was checked. That stays another
//! type: an open device does not travel, and the engine knows nothing of requests.

use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Devices of a RAID-Z or dRAID at most.
const GROUP_MAX: usize = 255;

/// A vdev as a command line names it: a device, or a group of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum VdevSpec {
    /// A file or block device.
    Leaf {
        /// Absolute path.
        path: String,
    },
    /// A mirror.
    Mirror {
        /// Leaves.
        children: Vec<VdevSpec>,
    },
    /// RAID-Z.
    Raidz {
        /// 1, 2 or 3.
        parity: u8,
        /// Leaves.
        children: Vec<VdevSpec>,
    },
    /// dRAID.
    Draid {
        /// Parity columns of a group: 1, 2 or 3.
        parity: u8,
        /// Data columns of a group.
        data: u8,
        /// Distributed spares.
        spares: u8,
        /// Leaves.
        children: Vec<VdevSpec>,
    },
}

impl VdevSpec {
    /// Children of a group; none of a device.
    pub fn children(&self) -> &[VdevSpec] {
        match self {
            VdevSpec::Leaf { .. } => &[],
            VdevSpec::Mirror { children } | VdevSpec::Raidz { children, .. } | VdevSpec::Draid { children, .. } => children,
        }
    }

    /// Paths of its devices.
    pub fn paths(&self) -> Vec<&str> {
        match self {
            VdevSpec::Leaf { path } => vec![path],
            group => group.children().iter().flat_map(VdevSpec::paths).collect(),
        }
    }

    /// The type, as the word for it begins.
    pub fn kind(&self) -> &'static str {
        match self {
            VdevSpec::Leaf { .. } => "disk",
            VdevSpec::Mirror { .. } => "mirror",
            VdevSpec::Raidz { .. } => "raidz",
            VdevSpec::Draid { .. } => "draid",
        }
    }

    /// Parity columns; none for what has copies.
    pub fn parity(&self) -> u8 {
        match self {
            VdevSpec::Leaf { .. } | VdevSpec::Mirror { .. } => 0,
            VdevSpec::Raidz { parity, .. } | VdevSpec::Draid { parity, .. } => *parity,
        }
    }

    /// The word that asks for such a group, with every number (`raidz2`, `draid2:3d:6c:1s`); for a device its path.
    pub fn word(&self) -> String {
        match self {
            VdevSpec::Leaf { path } => path.clone(),
            VdevSpec::Mirror { .. } => self.kind().to_string(),
            VdevSpec::Raidz { parity, .. } => format!("raidz{parity}"),
            VdevSpec::Draid { parity, data, spares, children } => format!("draid{parity}:{data}d:{}c:{spares}s", children.len()),
        }
    }

    /// Numbers of children that it may have.
    pub fn widths(&self) -> RangeInclusive<usize> {
        match self {
            VdevSpec::Leaf { .. } => 0..=0,
            VdevSpec::Mirror { .. } => 2..=usize::MAX,
            VdevSpec::Raidz { parity, .. } => usize::from(*parity) + 1..=GROUP_MAX,
            VdevSpec::Draid { parity, data, spares, .. } => {
                [parity, data, spares].into_iter().map(|number| usize::from(*number)).sum()..=GROUP_MAX
            }
        }
    }
}

/// Words above the vdevs of each class that are not for all blocks, in the order in which commands list them (OpenZFS: `class_name` of `zpool`).
pub const VDEV_CLASSES: [&str; 3] = ["dedup", "special", "logs"];

/// Vdevs that a pool is made of, or gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NewVdevs {
    /// Top-level vdevs for data.
    pub vdevs: Vec<VdevSpec>,
    /// Top-level vdevs for metadata, and small blocks of files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub special: Vec<VdevSpec>,
    /// Top-level vdevs for tables of deduplication.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dedup: Vec<VdevSpec>,
    /// Vdevs for the intent log.
    #[serde(default)]
    pub logs: Vec<VdevSpec>,
    /// Absolute paths of spares.
    #[serde(default)]
    pub spares: Vec<String>,
    /// Absolute paths of cache devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<String>,
}

impl NewVdevs {
    /// Paths of spares and caches.
    pub fn beside(&self) -> impl Iterator<Item = &str> {
        self.spares.iter().chain(&self.caches).map(String::as_str)
    }

    /// Paths of the devices of vdevs: those that are spares are not among them.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.data().chain(&self.logs).flat_map(VdevSpec::paths)
    }

    /// Vdevs that a pool cannot do without: all but those for the intent log.
    pub fn data(&self) -> impl Iterator<Item = &VdevSpec> {
        self.vdevs.iter().chain(&self.special).chain(&self.dedup)
    }

    /// Vdevs of a class of [`VDEV_CLASSES`].
    pub fn of_class(&self, class: &str) -> &[VdevSpec] {
        match class {
            "dedup" => &self.dedup,
            "special" => &self.special,
            _ => &self.logs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PoolAdd, PoolCreate, Request};
    use serde_json::{from_value, json, to_value};

    fn leaf(path: &str) -> VdevSpec {
        VdevSpec::Leaf { path: path.into() }
    }

    /// If this fails, programs that talk to the daemon, and commands of another version, are not understood.
    #[test]
    fn requests_look_as_they_always_did() {
        let mirror = json!({"type": "mirror", "children": [{"type": "leaf", "path": "/a"}, {"type": "leaf", "path": "/b"}]});
        let draid = json!({"type": "draid", "parity": 1, "data": 2, "spares": 0, "children": []});
        let text = json!({"op": "pool-create", "args": {
            "pool": "tank", "vdevs": [mirror, draid], "properties": {}, "fs_properties": {}, "mountpoint": null, "altroot": null,
            "force": false, "dry_run": false, "no_features": false
        }});
        let vdevs = vec![
            VdevSpec::Mirror { children: vec![leaf("/a"), leaf("/b")] },
            VdevSpec::Draid { parity: 1, data: 2, spares: 0, children: Vec::new() },
        ];
        let new = NewVdevs { vdevs, ..NewVdevs::default() };
        let create = Request::PoolCreate(PoolCreate { pool: "tank".into(), new, ..PoolCreate::default() });
        assert_eq!(from_value::<Request>(text).unwrap(), create, "as older commands say it");
        let args = json!({
            "pool": "tank", "vdevs": [], "logs": [{"type": "leaf", "path": "/l"}], "spares": ["/s"], "ashift": null, "allow_in_use": false,
            "allow_ashift_mismatch": false, "dry_run": true
        });
        let new = NewVdevs { logs: vec![leaf("/l")], spares: vec!["/s".into()], ..NewVdevs::default() };
        let add = PoolAdd { pool: "tank".into(), new, dry_run: true, ..PoolAdd::default() };
        assert_eq!(to_value(Request::PoolAdd(add)).unwrap(), json!({"op": "pool-add", "args": args}));
    }

    /// If this fails, a device that is hidden in a group is not looked at before it is written to.
    #[test]
    fn no_device_is_overlooked() {
        let inner = VdevSpec::Mirror { children: vec![leaf("/b"), leaf("/c")] };
        let outer = VdevSpec::Raidz { parity: 1, children: vec![leaf("/a"), inner] };
        let new = NewVdevs {
            vdevs: vec![outer, leaf("/d")],
            special: vec![leaf("/m")],
            dedup: vec![leaf("/t")],
            logs: vec![leaf("/l")],
            spares: vec!["/s".into()],
            caches: vec!["/u".into()],
        };
        assert_eq!(new.paths().collect::<Vec<_>>(), ["/a", "/b", "/c", "/d", "/m", "/t", "/l"]);
        assert_eq!(new.beside().collect::<Vec<_>>(), ["/s", "/u"]);
    }
}
