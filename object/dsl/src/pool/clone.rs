//! Clones: datasets that start as a snapshot (OpenZFS: `dmu_objset_clone_sync`).

use super::DslPool;
use crate::{DslError, names};
use dmu::Tx;
use ondisk::ObjsetType;
use std::sync::Arc;

impl DslPool {
    /// Makes a dataset that starts as the snapshot `origin`.
    pub fn clone_snapshot(self: &Arc<Self>, name: &str, origin: &str, properties: Vec<(String, String)>) -> Result<(), DslError> {
        let (name, origin) = (name.to_string(), origin.to_string());
        let check = move |pool: &Arc<DslPool>, _: &Tx| {
            let checked = pool.check_props(&properties, ObjsetType::ZFS, false)?;
            let (name, snapshot) = names::split(&name)?;
            if snapshot.is_some() {
                return Err(DslError::BadName);
            }
            names::check_depth(name)?;
            let (parent, last) = names::split_parent(name)?;
            let parent = pool.check_new(parent, last)?;
            pool.check_room()?;
            let origin = pool.find(&origin)?;
            if !origin.is_snapshot { Err(DslError::NotSnapshot) } else { Ok((parent, last.to_string(), origin, checked)) }
        };
        self.sync_task(check, |pool, (parent, last, origin, checked), tx| {
            let object = pool.create_record(&parent, &last, Some(&origin), 0, tx)?;
            let clone = pool.dataset(object)?;
            pool.store_props(&clone, &checked, tx)?;
            pool.disown_log(&clone, tx)?;
            let text = format!("origin={} ({})", pool.full_name(&origin)?, origin.object);
            pool.log("clone", object, text, tx)
        })
    }
}
