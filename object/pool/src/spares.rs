//! Devices beside the tree: the lists of spares and caches in the MOS (OpenZFS: `spa_load_spares`, `spa_sync_aux_dev`,
//! `vdev_draid_spare_create`), and the labels that spares carry.
//!
//! A spare that stands in for a device stays on the list. Several pools may list the same spare; who of them uses it is for the
//! owner of the pools to know.

use crate::add::AddSpec;
use crate::attach::Edited;
use crate::config::PoolState;
use crate::features::DIRECTORY;
use crate::labels::{Device, flush_all, init_writes, read_configs, write_all};
use crate::mos_objects::{create_packed, read_packed, write_packed};
use crate::sync::VERSION;
use crate::{DeviceProblem, LeafSpec, Pool, PoolError};
use dmu::{Objset, Tx};
use exec::Exec;
use nvlist::NvList;
use ondisk::{Guid, ObjectId};
use std::sync::Arc;
use vdev::{Leaf, LeafKind, TopKind, TopVdev};
use zap::Zap;

/// The directory's entries, which are the names of the arrays in them too.
const SPARES: &str = "spares";
const CACHES: &str = "l2cache";

/// A spare of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spare {
    /// Its guid.
    pub guid: Guid,
    /// Its path; a distributed spare's name (`draid2-0-0`).
    pub path: String,
    /// `file`, `disk` or `dspare`.
    pub kind: String,
    /// It stands in for a device of this pool now.
    pub in_use: bool,
    /// log2 of its sector size.
    pub ashift: u32,
}

impl Spare {
    /// True for a spare that is part of a dRAID vdev and has no device of its own.
    pub fn is_distributed(&self) -> bool {
        self.kind == "dspare"
    }
}

/// Which list a device is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuxKind {
    Spare,
    Cache,
}

/// The lists as the MOS has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AuxDevices {
    pub spares: Vec<NvList>,
    pub caches: Vec<NvList>,
}

fn guid_of(list: &NvList) -> Option<Guid> {
    list.get_u64("guid").map(Guid)
}

impl AuxDevices {
    /// Writes the lists of a new pool: the distributed spares of its dRAID vdevs.
    pub fn create(mos: &Arc<Objset>, exec: &Exec, tops: &[TopVdev], tx: &Tx) -> Result<AuxDevices, PoolError> {
        let mut lists = AuxDevices::default();
        lists.add_distributed(tops, exec);
        lists.write(&AuxDevices::default(), mos, tx)?;
        Ok(lists)
    }

    /// Reads the lists.
    pub fn load(mos: &Arc<Objset>) -> Result<AuxDevices, PoolError> {
        let list = |entry: &str| -> Result<Vec<NvList>, PoolError> {
            let Some(object) = Zap::hold(mos, DIRECTORY)?.try_lookup_u64(entry)? else { return Ok(Vec::new()) };
            let list = read_packed(mos, ObjectId(object))?;
            Ok(list.get_nvlist_array(entry).unwrap_or_default().to_vec())
        };
        Ok(AuxDevices { spares: list(SPARES)?, caches: list(CACHES)? })
    }

    /// The entry of a device and its list.
    pub fn find(&self, guid: Guid) -> Option<(AuxKind, &NvList)> {
        let on = |list: &'_ [NvList]| list.iter().position(|entry| guid_of(entry) == Some(guid));
        let spare = on(&self.spares).map(|index| (AuxKind::Spare, &self.spares[index]));
        spare.or_else(|| on(&self.caches).map(|index| (AuxKind::Cache, &self.caches[index])))
    }

    /// The lists without a device.
    #[must_use]
    pub fn without(&self, guid: Guid) -> AuxDevices {
        let mut lists = self.clone();
        lists.spares.retain(|entry| guid_of(entry) != Some(guid));
        lists.caches.retain(|entry| guid_of(entry) != Some(guid));
        lists
    }

    /// Lists the distributed spares that new dRAID vdevs bring.
    pub fn add_distributed(&mut self, tops: &[TopVdev], exec: &Exec) {
        for top in tops {
            let TopKind::Draid(config) = top.kind else { continue };
            for id in 0..config.spares() as u64 {
                let mut list = NvList::new();
                list.add("type", "dspare").add("guid", exec.random_u64().max(1));
                list.add("path", format!("draid{}-{}-{id}", config.parity(), top.id).as_str());
                list.add("top_guid", top.guid.0).add("spareid", id);
                list.add("whole_disk", 1u64).add("is_spare", 1u64).add("ashift", u64::from(top.ashift));
                self.spares.push(list);
            }
        }
    }

    /// Writes the lists that differ from `before`. An empty list stays, as in OpenZFS.
    pub fn write(&self, before: &AuxDevices, mos: &Arc<Objset>, tx: &Tx) -> Result<(), PoolError> {
        for (entry, list, old) in [(SPARES, &self.spares, &before.spares), (CACHES, &self.caches, &before.caches)] {
            if list == old {
                continue;
            }
            let directory = Zap::hold(mos, DIRECTORY)?;
            let object = match directory.try_lookup_u64(entry)? {
                Some(object) => ObjectId(object),
                None => {
                    let object = create_packed(mos, tx)?;
                    directory.add_u64(entry, object.0, tx)?;
                    object
                }
            };
            let mut packed = NvList::new();
            packed.add(entry, list.clone());
            write_packed(mos, object, &packed, tx)?;
        }
        Ok(())
    }
}

/// The label of a spare that is not in use (OpenZFS: `vdev_aux_label_generate`): it names no pool, so that several may share it.
pub(crate) fn spare_label(guid: Guid, path: &str) -> NvList {
    let mut label = NvList::new();
    label.add("version", VERSION).add("state", PoolState::Spare.number()).add("guid", guid.0).add("path", path);
    label
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

impl Pool {
    /// The pool's spares.
    pub fn spares(&self) -> Vec<Spare> {
        let (tree, aux) = {
            let config = self.syncer.config.lock();
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
        let aux = self.syncer.config.lock().aux.clone();
        aux.caches.iter().filter_map(|list| Some((guid_of(list)?, list.get_str("path")?.to_string()))).collect()
    }

    /// Adds spares only: see [`Pool::add`].
    pub fn add_spares(&self, spares: Vec<LeafSpec>) -> Result<(), PoolError> {
        self.add(AddSpec { spares, ..AddSpec::default() })
    }

    /// Takes a spare that is not in use, or a cache, off its list; `device` gets a label that says so, if it can be written.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::SpareInUse`], [`PoolError::Target`] for distributed spares.
    pub fn remove_aux(&self, guid: Guid, device: Option<Device>) -> Result<(), PoolError> {
        self.check_writeable()?;
        let name = self.name();
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
        self.notify("sysevent.fs.zfs.vdev_remove_aux", Some(guid));
        Ok(())
    }

    /// The leaf that a spare becomes when it stands in for a device.
    pub(crate) fn spare_leaf(&self, guid: Guid) -> Result<Leaf, PoolError> {
        let aux = self.syncer.config.lock().aux.clone();
        match aux.find(guid) {
            Some((AuxKind::Spare, entry)) => Ok(Leaf { is_spare: true, ..Leaf::from_config(entry)? }),
            _ => Err(PoolError::NoSuchDevice),
        }
    }
}
