//! Spares and caches of a pool in use, and the labels that spares carry.
//!
//! A spare that stands in for a device stays on the list. Several pools may list the same spare; who of them uses it is for the
//! owner of the pools to know.

use super::VdevOps;
use super::spec::{LeafSpec, labelled_spare, write_label};
use crate::label::Device;
use crate::spa::aux_devices::{AuxKind, guid_of};
use crate::spa::config::spare_label;
use crate::sync::changes::Edited;
use crate::{DeviceProblem, PoolError};
use exec::Exec;
use nvlist::NvList;
use ondisk::Guid;
use vdev::{Leaf, LeafKind};

/// A spare of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spare {
    /// Guid of the spare.
    pub guid: Guid,
    /// Path of the spare; a distributed spare's name (`draid2-0-0`).
    pub path: String,
    /// `file`, `disk` or `dspare`.
    pub kind: String,
    /// True while the spare stands in for a device of this pool.
    pub in_use: bool,
    /// log2 of the sector size in bytes.
    pub ashift: u32,
}

impl Spare {
    /// True for a spare that is part of a dRAID vdev and has no device of its own.
    pub fn is_distributed(&self) -> bool {
        self.kind == "dspare"
    }
}

/// The entry for a new spare; its device gets a label that says so. One that is a spare of another pool keeps its guid.
pub(crate) fn new_entry(exec: &Exec, spec: &LeafSpec, guid: Guid) -> Result<NvList, PoolError> {
    if vdev::leaf_asize(spec.device.size_bytes()).is_none() {
        return Err(PoolError::Device { path: spec.path.clone(), problem: DeviceProblem::TooSmall });
    }
    let shared = labelled_spare(exec, &spec.device);
    let guid = shared.unwrap_or(guid);
    if shared.is_none() {
        write_label(exec, &spec.device, &spare_label(guid, &spec.path))?;
    }
    let kind = if spec.kind == LeafKind::Disk { "disk" } else { "file" };
    let ashift = spec.device.ashift().clamp(vdev::ASHIFT_MIN, vdev::ASHIFT_MAX);
    Ok(entry_of(&Spare { guid, path: spec.path.clone(), kind: kind.to_string(), in_use: false, ashift }))
}

/// A spare as its list has it (OpenZFS: `vdev_config_generate` with `VDEV_CONFIG_L2CACHE`).
pub(crate) fn entry_of(spare: &Spare) -> NvList {
    let mut entry = NvList::new();
    entry.add("type", spare.kind.as_str()).add("guid", spare.guid.0).add("path", spare.path.as_str());
    if spare.kind == "disk" {
        entry.add("whole_disk", 0u64);
    }
    entry.add("is_spare", 1u64).add("ashift", u64::from(spare.ashift));
    entry
}

impl VdevOps {
    /// The pool's spares.
    pub fn spares(&self) -> Vec<Spare> {
        let (tree, aux) = {
            let config = self.spa.config.lock();
            (config.tree.clone(), config.aux.clone())
        };
        let spare = |list: &NvList| {
            let guid = guid_of(list)?;
            Some(Spare {
                guid,
                path: list.get_str("path")?.to_string(),
                kind: list.get_str("type")?.to_string(),
                in_use: tree.leaves.iter().any(|leaf| leaf.guid == guid),
                ashift: list.get_u64("ashift").and_then(|shift| u32::try_from(shift).ok()).unwrap_or(vdev::ASHIFT_MIN),
            })
        };
        aux.spares.iter().filter_map(spare).collect()
    }

    /// Guid and path of the pool's cache devices: they are listed, but this release does not use them.
    pub fn caches(&self) -> Vec<(Guid, String)> {
        let aux = self.spa.config.lock().aux.clone();
        aux.caches.iter().filter_map(|list| Some((guid_of(list)?, list.get_str("path")?.to_string()))).collect()
    }

    /// Takes a spare that is not in use, or a cache, off its list; `device` gets a label that says so, if it can be written.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::SpareInUse`], [`PoolError::Target`] for distributed spares.
    pub fn remove_aux(&self, guid: Guid, device: Option<Device>) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        let name = self.spa.name();
        self.change_tree(Box::new(move |config, _| {
            let (kind, entry) = config.aux.find(guid).ok_or(PoolError::NoSuchDevice)?;
            if kind == AuxKind::Spare && config.tree.leaf_by_guid(guid).is_some() {
                return Err(PoolError::SpareInUse);
            }
            if entry.get_str("type") == Some("dspare") {
                return Err(PoolError::Target("dRAID spares cannot be removed"));
            }
            let path = entry.get_str("path").unwrap_or_default();
            let word = if kind == AuxKind::Spare { "spare" } else { "l2cache" };
            let log = Some(("vdev remove", format!("{name} vdev ({word}) {path}")));
            let labels = device.map(|device| (device, config.facts.detached_label(guid), None)).into_iter().collect();
            Ok(Edited { log, labels, aux: Some(config.aux.without(guid)), tree: config.tree.clone(), ..Edited::default() })
        }))?;
        self.spa.notify("sysevent.fs.zfs.vdev_remove_aux", Some(guid));
        Ok(())
    }

    /// The leaf that a spare becomes when it stands in for a device.
    pub(crate) fn spare_leaf(&self, guid: Guid) -> Result<Leaf, PoolError> {
        let aux = self.spa.config.lock().aux.clone();
        match aux.find(guid) {
            Some((AuxKind::Spare, entry)) => Ok(Leaf { is_spare: true, ..Leaf::from_config(entry)? }),
            _ => Err(PoolError::NoSuchDevice),
        }
    }
}
