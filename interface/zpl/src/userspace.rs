//! What users, groups and projects use and may use (OpenZFS: `zfs_quota.c`).
//!
//! What is used is counted by the sync (see [`crate::Accounting`]), so that a limit is noticed at the first txg after the one that
//! passed it, as in OpenZFS. Limits stand in objects of the file system that its master node names.

use crate::ZplError;
use crate::recount::Recount;
use crate::room::Room;
use dmu::{DmuError, GROUPUSED_OBJECT, Objset, PROJECTUSED_OBJECT, Tx, USERUSED_OBJECT};
use exec::RwLock;
use ondisk::{ObjectId, ObjectType, objset_flags};
use std::sync::Arc;
use zap::{Zap, ZapError};

/// Object that names all others of a file system.
const MASTER_NODE: ObjectId = ObjectId(1);
/// Prefix of the ids in counts of objects.
const OBJECTS: &str = "obj-";
/// Kinds of owners, with the table of what they use.
const WHO: [(&str, ObjectId); 3] = [("user", USERUSED_OBJECT), ("group", GROUPUSED_OBJECT), ("project", PROJECTUSED_OBJECT)];

/// Table of a kind, None when nothing was ever entered, and what precedes the ids in it.
fn table(objset: &Arc<Objset>, kind: &str) -> Result<(Option<Zap>, &'static str), ZapError> {
    let (object, what) = WHO.into_iter().find_map(|(who, object)| Some((object, kind.strip_prefix(who)?))).ok_or(ZapError::NotFound)?;
    let (object, prefix) = match what {
        "used" => (Some(object), ""),
        "objused" => (Some(object), OBJECTS),
        "quota" | "objquota" => (Zap::hold(objset, MASTER_NODE)?.try_lookup_u64(format!("{kind}@"))?.map(ObjectId), ""),
        _ => return Err(ZapError::NotFound),
    };
    match object.map(|object| Zap::hold(objset, object)) {
        None | Some(Err(ZapError::Dmu(DmuError::NoSuchObject))) => Ok((None, prefix)),
        Some(held) => Ok((Some(held?), prefix)),
    }
}

/// Value of `userused`, `groupobjquota` …, 0 where nothing is counted or limited (OpenZFS: `zfs_userspace_one`).
///
/// # Errors
/// `NotFound` for what is none of them.
pub fn value(objset: &Arc<Objset>, kind: &str, id: u64) -> Result<u64, ZapError> {
    let (table, prefix) = table(objset, kind)?;
    Ok(table.map_or(Ok(None), |table| table.try_lookup_u64(format!("{prefix}{id:x}")))?.unwrap_or(0))
}

/// Ids with a value of this kind, and the values, in no order (OpenZFS: `zfs_userspace_many`). Entries of other systems' identities, without a
/// number here, are left out.
///
/// # Errors
/// `NotFound` for what is no kind.
pub fn list(objset: &Arc<Objset>, kind: &str) -> Result<Vec<(u64, u64)>, ZapError> {
    let mut found = Vec::new();
    let (table, prefix) = table(objset, kind)?;
    let Some(table) = table else { return Ok(found) };
    table.for_each(|entry| {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let id = name.strip_prefix(prefix).and_then(|id| u64::from_str_radix(id, 16).ok());
        found.extend(id.map(|id| (id, entry.first_integer)));
        Ok(())
    })?;
    Ok(found)
}

/// Sets a limit (`userquota`, `projectobjquota` …) in bytes or objects; 0 takes it away (OpenZFS: `zfs_set_userquota`).
///
/// # Errors
/// `NotFound` for what is no limit.
pub fn set(objset: &Arc<Objset>, kind: &str, id: u64, limit: u64, tx: &Tx) -> Result<(), ZapError> {
    if !kind.ends_with("quota") {
        return Err(ZapError::NotFound);
    }
    let table = match table(objset, kind)?.0 {
        Some(table) => table,
        None if limit == 0 => return Ok(()),
        None => {
            let object = zap::create(objset, ObjectType::USERGROUP_QUOTA, tx)?;
            Zap::hold(objset, MASTER_NODE)?.update_u64(format!("{kind}@"), object.0, tx)?;
            Zap::hold(objset, object)?
        }
    };
    let id = format!("{id:x}");
    if limit != 0 {
        return table.update_u64(&id, limit, tx);
    }
    match table.remove(&id, tx) {
        Err(ZapError::NotFound) => Ok(()),
        other => other,
    }
}

/// Owner who is charged for a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Owner {
    pub(crate) uid: Option<u64>,
    pub(crate) gid: Option<u64>,
    pub(crate) project: Option<u64>,
}

/// Tables of limits that a file system has, so that one without limits looks at nothing: of bytes and of objects, by [`WHO`].
#[derive(Default)]
struct Tables {
    bytes: [Option<Zap>; 3],
    objects: [Option<Zap>; 3],
}

impl Tables {
    /// Reads which tables there are.
    fn read(objset: &Arc<Objset>) -> Result<Tables, ZapError> {
        let mut limits = Tables::default();
        for (index, (who, _)) in WHO.into_iter().enumerate() {
            limits.bytes[index] = table(objset, &format!("{who}quota"))?.0;
            limits.objects[index] = table(objset, &format!("{who}objquota"))?.0;
        }
        Ok(limits)
    }
}

/// True when the id has a limit and has reached it; `who` and `what` say where its use is counted.
fn is_over(limits: Option<&Zap>, objset: &Arc<Objset>, (who, what): (&str, &str), id: u64) -> Result<bool, ZapError> {
    let Some(limits) = limits else { return Ok(false) };
    match limits.try_lookup_u64(format!("{id:x}"))? {
        Some(limit) => Ok(value(objset, &format!("{who}{what}"), id)? >= limit),
        None => Ok(false),
    }
}

/// Limits of a file system.
pub(crate) struct Limits {
    objset: Arc<Objset>,
    tables: RwLock<Tables>,
    /// Accounts that limits are compared with.
    pub(crate) recount: Recount,
}

impl Limits {
    /// Reads which limits there are.
    pub(crate) fn read(objset: &Arc<Objset>, room: Arc<Room>) -> Result<Limits, ZplError> {
        let recount = Recount::new(objset, room);
        Ok(Limits { objset: objset.clone(), tables: RwLock::new(Tables::read(objset)?), recount })
    }

    /// Looks again which limits there are; what was set counts from now on.
    ///
    /// # Errors
    /// Those of reading the master node.
    pub(crate) fn renew(&self) -> Result<(), ZplError> {
        let tables = Tables::read(&self.objset)?;
        *self.tables.write() = tables;
        Ok(())
    }

    /// Refuses what would charge somebody who has reached a limit: of bytes, and of objects where one is `added`
    /// (OpenZFS: `zfs_id_overblockquota`, `zfs_id_overobjquota`). Has accounts that are not complete made anew, as there.
    pub(crate) fn check(&self, owner: &Owner, added: bool) -> Result<(), ZplError> {
        self.recount.begin();
        let limits = self.tables.read();
        if limits.bytes.iter().chain(&limits.objects).all(Option::is_none) {
            return Ok(());
        }
        let counts_objects = self.objset.flags() & objset_flags::USEROBJACCOUNTING_COMPLETE != 0;
        for (index, id) in [owner.uid, owner.gid, owner.project].into_iter().enumerate() {
            let (Some(id), who) = (id, WHO[index].0) else { continue };
            let over_bytes = is_over(limits.bytes[index].as_ref(), &self.objset, (who, "used"), id)?;
            let of_objects = limits.objects[index].as_ref().filter(|_| added && counts_objects);
            if over_bytes || is_over(of_objects, &self.objset, (who, "objused"), id)? {
                return Err(ZplError::OverQuota);
            }
        }
        Ok(())
    }
}
