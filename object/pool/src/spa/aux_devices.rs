//! Devices beside the tree: the lists of spares and caches in the MOS (OpenZFS: `spa_load_spares`, `spa_sync_aux_dev`,
//! `vdev_draid_spare_create`).

use super::features::DIRECTORY;
use super::mos_objects::{create_packed, read_packed, write_packed};
use crate::PoolError;
use dmu::{Objset, Tx};
use exec::Exec;
use nvlist::NvList;
use ondisk::{Guid, ObjectId};
use std::sync::Arc;
use vdev::{TopKind, TopVdev};
use zap::Zap;

/// The directory's entries, which are the names of the arrays in them too.
const SPARES: &str = "spares";
const CACHES: &str = "l2cache";

/// Lists of devices beside the tree.
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

/// The guid of an entry.
pub(crate) fn guid_of(list: &NvList) -> Option<Guid> {
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

    /// The lists with another entry for a device.
    #[must_use]
    pub fn changed(&self, guid: Guid, change: impl Fn(&mut NvList)) -> AuxDevices {
        let mut lists = self.clone();
        let entries = lists.spares.iter_mut().chain(&mut lists.caches);
        entries.filter(|entry| guid_of(entry) == Some(guid)).for_each(change);
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
