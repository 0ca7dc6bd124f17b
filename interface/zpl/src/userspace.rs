//! What one user, group or project uses and may use (OpenZFS: `zfs_userspace_one`).

use dmu::{DmuError, GROUPUSED_OBJECT, Objset, PROJECTUSED_OBJECT, USERUSED_OBJECT};
use ondisk::ObjectId;
use std::sync::Arc;
use zap::{Zap, ZapError};

/// The object that names all others of a file system.
const MASTER_NODE: ObjectId = ObjectId(1);

/// The value of `userused`, `groupobjquota` …, 0 where nothing is counted or limited.
///
/// # Errors
/// `NotFound` for what is none of them.
pub fn value(objset: &Arc<Objset>, kind: &str, id: u64) -> Result<u64, ZapError> {
    let (who, what) =
        ["user", "group", "project"].into_iter().find_map(|who| Some((who, kind.strip_prefix(who)?))).ok_or(ZapError::NotFound)?;
    let (table, name) = match what {
        "used" | "objused" => {
            let object = match who {
                "user" => USERUSED_OBJECT,
                "group" => GROUPUSED_OBJECT,
                _ => PROJECTUSED_OBJECT,
            };
            (Some(object), if what == "used" { format!("{id:x}") } else { format!("obj-{id:x}") })
        }
        "quota" | "objquota" => {
            let table = Zap::hold(objset, MASTER_NODE)?.try_lookup_u64(format!("{kind}@"))?;
            (table.map(ObjectId), format!("{id:x}"))
        }
        _ => return Err(ZapError::NotFound),
    };
    let Some(table) = table else { return Ok(0) };
    match Zap::hold(objset, table) {
        Ok(zap) => Ok(zap.try_lookup_u64(&name)?.unwrap_or(0)),
        Err(ZapError::Dmu(DmuError::NoSuchObject)) => Ok(0),
        Err(error) => Err(error),
    }
}
