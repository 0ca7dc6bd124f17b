//! Spares and caches of a pool in use, and the labels that they carry.
//!
//! A spare that stands in for a device stays on the list. Several pools may list the same spare; who of them uses it is for the
//! owner of the pools to know.

use super::VdevOps;
use super::spec::{LeafSpec, labelled_spare, write_label};
use crate::label::Device;
use crate::spa::aux_devices::{AuxKind, guid_of};
use crate::spa::config::{cache_label, spare_label};
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
    check_size(spec)?;
    let shared = labelled_spare(exec, &spec.device);
    let guid = shared.unwrap_or(guid);
    if shared.is_none() {
        write_label(exec, &spec.device, &spare_label(guid, &spec.path))?;
    }
    let (kind, ashift) = (kind_of(spec).to_string(), ashift_of(spec));
    Ok(entry_of(&Spare { guid, path: spec.path.clone(), kind, in_use: false, ashift }))
}

fn check_size(spec: &LeafSpec) -> Result<(), PoolError> {
    match vdev::leaf_asize(spec.device.size_bytes()) {
        Some(_) => Ok(()),
        None => Err(PoolError::Device { path: spec.path.clone(), problem: DeviceProblem::TooSmall }),
    }
}

fn kind_of(spec: &LeafSpec) -> &'static str {
    if spec.kind == LeafKind::Disk { "disk" } else { "file" }
}

fn ashift_of(spec: &LeafSpec) -> u32 {
    spec.device.ashift().clamp(vdev::ASHIFT_MIN, vdev::ASHIFT_MAX)
}

/// Part of an entry that those of spares and of caches have.
fn entry_head(kind: &str, guid: Guid, path: &str) -> NvList {
    let mut entry = NvList::new();
    entry.add("type", kind).add("guid", guid.0).add("path", path);
    if kind == "disk" {
        entry.add("whole_disk", 0u64);
    }
    entry
}

/// A spare as its list has it (OpenZFS: `vdev_config_generate` with `VDEV_CONFIG_L2CACHE`).
pub(crate) fn entry_of(spare: &Spare) -> NvList {
    entry_head(&spare.kind, spare.guid, &spare.path).with("is_spare", 1u64).with("ashift", u64::from(spare.ashift))
}

/// A cache device as the pool's list has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheEntry {
    pub guid: Guid,
    pub path: String,
    /// `file` or `disk`.
    pub kind: String,
    /// True when somebody took it offline for good.
    pub is_offline: bool,
}

/// Name in an entry that says that a device was taken offline for good (OpenZFS: `ZPOOL_CONFIG_OFFLINE`).
const OFFLINE: &str = "offline";

/// The entry for a new cache device, which gets a label that says so.
pub(crate) fn new_cache_entry(exec: &Exec, spec: &LeafSpec, guid: Guid) -> Result<NvList, PoolError> {
    check_size(spec)?;
    write_label(exec, &spec.device, &cache_label(guid, &spec.path, ashift_of(spec)))?;
    Ok(entry_head(kind_of(spec), guid, &spec.path).with("ashift", u64::from(ashift_of(spec))))
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

    /// The pool's cache devices.
    pub fn caches(&self) -> Vec<CacheEntry> {
        let aux = self.spa.config.lock().aux.clone();
        let cache = |list: &NvList| {
            Some(CacheEntry {
                guid: guid_of(list)?,
                path: list.get_str("path")?.to_string(),
                kind: list.get_str("type").unwrap_or("disk").to_string(),
                is_offline: list.get_u64(OFFLINE).is_some_and(|offline| offline != 0),
            })
        };
        aux.caches.iter().filter_map(cache).collect()
    }

    /// Writes down that a cache device was taken offline for good, or is not any more, where that is news.
    ///
    /// Errors: [`PoolError::NoSuchDevice`].
    pub fn set_cache_offline(&self, guid: Guid, offline: bool) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        let entry = self.caches().into_iter().find(|entry| entry.guid == guid).ok_or(PoolError::NoSuchDevice)?;
        if entry.is_offline == offline {
            return Ok(());
        }
        self.change_aux(guid, move |entry| {
            entry.remove(OFFLINE);
            if offline {
                entry.add(OFFLINE, 1u64);
            }
        })
    }

    /// Writes down that a cache device is at another path.
    ///
    /// Errors: [`PoolError::NoSuchDevice`].
    pub fn set_cache_path(&self, guid: Guid, path: &str) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        let entry = self.caches().into_iter().find(|entry| entry.guid == guid).ok_or(PoolError::NoSuchDevice)?;
        if entry.path == path {
            return Ok(());
        }
        let path = path.to_string();
        self.change_aux(guid, move |entry| {
            entry.add("path", path.as_str());
        })
    }

    /// Changes the entry of a device that is on a list.
    fn change_aux(&self, guid: Guid, change: impl Fn(&mut NvList) + Send + 'static) -> Result<(), PoolError> {
        self.change_tree(Box::new(move |config, _| {
            let aux = config.aux.changed(guid, &change);
            Ok(Edited { aux: Some(aux), tree: config.tree.clone(), ..Edited::default() })
        }))
    }

    /// Takes a spare that is not in use, or a cache, off its list; `device` gets a label that says so, if it can be written.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::SpareInUse`], [`PoolError::Target`] for distributed spares.
    pub fn remove_aux(&self, guid: Guid, device: Option<Device>) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        let name = self.spa.name();
        self.change_leaves(Box::new(move |config, _| {
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
