//! Who uses how much, counted anew from the objects and compared with the tables that `zfs userspace` reads.

use crate::Failure;
use dmu::{GROUPUSED_OBJECT, Objset, PROJECTUSED_OBJECT, USERUSED_OBJECT};
use ondisk::{ObjectId, ObjectType, ObjsetType, objset_flags};
use std::collections::BTreeMap;
use std::sync::Arc;
use zap::Zap;
use zpl::{Settings, Zfs};

/// Bytes that a dnode counts beside its blocks (OpenZFS: `DNODE_MIN_SIZE`).
const DNODE_BYTES: u64 = 512;

type Counts = BTreeMap<String, u64>;

/// Checks the tables of a file system; snapshots keep theirs too. Nothing to check when they were never complete.
pub fn check(objset: &Arc<Objset>) -> Result<(), Failure> {
    let flags = objset.flags();
    if objset.kind() != ObjsetType::ZFS || flags & objset_flags::USERACCOUNTING_COMPLETE == 0 {
        return Ok(());
    }
    let objects = flags & objset_flags::USEROBJACCOUNTING_COMPLETE != 0;
    let zfs = Zfs::open(objset, None, Settings::default())?;
    let mut expected: [Counts; 3] = Default::default();
    let mut at = ObjectId(0);
    while let Some(object) = objset.next_object(at)? {
        at = object;
        let info = objset.hold(object)?.info()?;
        if !matches!(info.bonus_type, ObjectType::SA | ObjectType::ZNODE) {
            continue;
        }
        let fields = zfs.node(object)?.fields();
        for (counts, owner) in expected.iter_mut().zip([fields.uid, fields.gid, fields.project]) {
            *counts.entry(format!("{owner:x}")).or_default() += info.used_bytes + DNODE_BYTES;
            if objects {
                *counts.entry(format!("obj-{owner:x}")).or_default() += 1;
            }
        }
    }
    let projects = flags & objset_flags::PROJECTQUOTA_COMPLETE != 0;
    let tables = [("user", USERUSED_OBJECT), ("group", GROUPUSED_OBJECT), ("project", PROJECTUSED_OBJECT)];
    for ((kind, table), expected) in tables.into_iter().zip(expected).filter(|((kind, _), _)| projects || *kind != "project") {
        compare(objset, kind, table, &expected)?;
    }
    Ok(())
}

fn compare(objset: &Arc<Objset>, kind: &str, table: ObjectId, expected: &Counts) -> Result<(), Failure> {
    let mut found = Counts::new();
    Zap::hold(objset, table)?.for_each(|entry| {
        found.insert(String::from_utf8_lossy(&entry.name).into_owned(), entry.first_integer);
        Ok(())
    })?;
    found.retain(|_, count| *count != 0);
    match expected.iter().find(|(owner, count)| found.get(*owner) != Some(*count)) {
        Some((owner, count)) => Err(format!("{kind} {owner} uses {count}, the table says {:?}", found.get(owner)).into()),
        None if found.len() != expected.len() => {
            Err(format!("{} {kind}s use space, the table says {}", expected.len(), found.len()).into())
        }
        None => Ok(()),
    }
}
