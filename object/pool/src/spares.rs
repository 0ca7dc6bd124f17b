//! The list of spares in the MOS: the distributed spares that a new dRAID vdev brings (OpenZFS: `vdev_draid_spare_create`,
//! `spa_load_spares`).

use crate::features::DIRECTORY;
use crate::mos_objects::{create_packed, read_packed, write_packed};
use crate::{Pool, PoolError};
use dmu::{Objset, Tx};
use exec::Exec;
use nvlist::NvList;
use ondisk::{Guid, ObjectId};
use std::sync::Arc;
use vdev::{TopKind, VdevTree};
use zap::Zap;

/// The directory's entry.
const ENTRY: &str = "spares";

/// A spare of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spare {
    /// Its guid.
    pub guid: Guid,
    /// Its path; a distributed spare's name (`draid2-0-0`).
    pub path: String,
    /// `file`, `disk` or `dspare`.
    pub kind: String,
    /// It stands in for a device now.
    pub in_use: bool,
}

/// Lists the distributed spares of `tree`, if it has any.
pub(crate) fn create(mos: &Arc<Objset>, exec: &Exec, tree: &VdevTree, tx: &Tx) -> Result<(), PoolError> {
    let mut spares = Vec::new();
    for top in &tree.tops {
        let TopKind::Draid(config) = top.kind else { continue };
        for id in 0..config.spares() as u64 {
            let mut list = NvList::new();
            list.add("type", "dspare").add("guid", exec.random_u64().max(1));
            list.add("path", format!("draid{}-{}-{id}", config.parity(), top.id).as_str());
            list.add("top_guid", top.guid.0).add("spareid", id);
            list.add("whole_disk", 1u64).add("is_spare", 1u64).add("ashift", u64::from(top.ashift));
            spares.push(list);
        }
    }
    if spares.is_empty() {
        return Ok(());
    }
    let object = create_packed(mos, tx)?;
    let mut list = NvList::new();
    list.add("spares", spares);
    write_packed(mos, object, &list, tx)?;
    Zap::hold(mos, DIRECTORY)?.add_u64(ENTRY, object.0, tx)?;
    Ok(())
}

impl Pool {
    /// The pool's spares, as its MOS lists them.
    pub fn spares(&self) -> Result<Vec<Spare>, PoolError> {
        let Some(object) = Zap::hold(self.mos(), DIRECTORY)?.try_lookup_u64(ENTRY)? else { return Ok(Vec::new()) };
        let list = read_packed(self.mos(), ObjectId(object))?;
        let tree = self.tree();
        let spare = |list: &NvList| {
            let guid = Guid(list.get_u64("guid")?);
            Some(Spare {
                guid,
                path: list.get_str("path")?.to_string(),
                kind: list.get_str("type")?.to_string(),
                in_use: tree.leaves.iter().any(|leaf| leaf.guid == guid),
            })
        };
        Ok(list.get_nvlist_array(ENTRY).unwrap_or_default().iter().filter_map(spare).collect())
    }
}
