//! Who uses how much: the accounting objects that `zfs userspace` reads, kept by the DMU's sync through [`dmu::ObjsetHook`].
//!
//! OpenZFS: `zpl_get_file_info` (`zfs_quota.c`), `do_userquota_update`, `do_userobjquota_update` (`dmu_objset.c`). The names
//! are ids in hexadecimal, with the prefix `obj-` for counts of objects.

use abd::Abd;
use dmu::{DmuError, GROUPUSED_OBJECT, ObjectOwner, Objset, ObjsetHook, OwnerDelta, PROJECTUSED_OBJECT, RecordError, Tx, USERUSED_OBJECT};
use exec::Mutex;
use ondisk::{ObjectId, ObjectType, objset_flags};
use std::collections::BTreeMap;
use std::sync::Arc;
use zap::{Zap, ZapError};

const SA_MAGIC: u32 = 0x2F_505A;
const UID: usize = 24;
const GID: usize = 32;
const FLAGS: usize = 48;
const PROJID: usize = 128;
const FLAG_PROJID: u64 = 0x8000_0000_0000;
const ZNODE_UID: usize = 128;
const ZNODE_GID: usize = 136;

/// Hook that counts the use of one file system.
#[derive(Debug)]
pub struct Accounting {
    /// True to count objects, too (feature `userobj_accounting`).
    objects: bool,
    /// True to count projects (feature `project_quota`).
    projects: bool,
    /// Changes of users, groups and projects that are not in their tables yet: more than none only after a failed sync.
    unsettled: Mutex<[Sums; 3]>,
}

/// Changes of bytes and of numbers of objects, by id.
type Sums = BTreeMap<u64, (i64, i64)>;

impl Accounting {
    /// Makes the hook; `objects` and `projects` say which features the pool has active for the object set.
    pub fn new(objects: bool, projects: bool) -> Accounting {
        Accounting { objects, projects, unsettled: Mutex::default() }
    }

    /// Installs the hook that continues what the object set's flags say is counted, of a file system that is mounted or received into.
    pub fn install(objset: &Objset) {
        let flags = objset.flags();
        if flags & objset_flags::USERACCOUNTING_COMPLETE == 0 {
            return;
        }
        let has = |flag: u64| flags & flag != 0;
        match (has(objset_flags::USEROBJACCOUNTING_COMPLETE), has(objset_flags::PROJECTQUOTA_COMPLETE)) {
            // Where counting objects was cut short, those that were counted are taken out as they change.
            (false, false) => objset.set_accounting(Some(Arc::new(Accounting::new(true, false))), objset_flags::USEROBJACCOUNTING_COMPLETE),
            (objects, projects) => objset.set_hook(Arc::new(Accounting::new(objects, projects))),
        }
    }
}

fn word(bytes: &[u8], offset: usize, foreign: bool) -> Option<u64> {
    let raw: [u8; 8] = bytes.get(offset..offset + 8)?.try_into().ok()?;
    Some(if foreign { u64::from_be_bytes(raw) } else { u64::from_le_bytes(raw) })
}

/// The error of a table in the DMU's terms, with what is wrong with which table.
fn dmu_error(table: ObjectId, error: ZapError) -> DmuError {
    let (object, what) = match error {
        ZapError::Dmu(error) => return error,
        ZapError::Corrupt { object, what, .. } => (object, what),
        ZapError::WrongType => (table, "an entry holds integers of another size or number"),
        ZapError::Full => (table, "too many names have the same hash"),
        _ => (table, "it does not take the names of users"),
    };
    DmuError::Record(RecordError::Table { object, what })
}

fn add(zap: &Zap, name: &str, delta: i64, tx: &Tx) -> Result<(), DmuError> {
    if delta == 0 {
        return Ok(());
    }
    zap.increment(name, delta, tx).map(|_| ()).map_err(|error| dmu_error(zap.dnode().object(), error))
}

impl Accounting {
    /// Opens the accounting object, which is made when it is missing.
    fn table(&self, objset: &Arc<Objset>, object: ObjectId, tx: &Tx) -> Result<Zap, DmuError> {
        let wrong = |error| dmu_error(object, error);
        match objset.hold(object) {
            Ok(dnode) => Zap::open(dnode).map_err(wrong),
            Err(DmuError::NoSuchObject) => {
                let options = zap::CreateOptions { claim: Some(object), ..zap::CreateOptions::new(ObjectType::USERGROUP_USED) };
                zap::create_with(objset, options, tx).map_err(wrong)?;
                Zap::hold(objset, object).map_err(wrong)
            }
            Err(error) => Err(error),
        }
    }

    /// Applies the sums to a table; what was applied is taken out of them.
    fn settle(&self, objset: &Arc<Objset>, object: ObjectId, sums: &mut Sums, tx: &Tx) -> Result<(), DmuError> {
        if sums.is_empty() {
            return Ok(());
        }
        let zap = self.table(objset, object, tx)?;
        while let Some(mut entry) = sums.first_entry() {
            let id = *entry.key();
            let (bytes, objects) = *entry.get();
            add(&zap, &format!("{id:x}"), bytes, tx)?;
            entry.insert((0, objects));
            if self.objects {
                add(&zap, &format!("obj-{id:x}"), objects, tx)?;
            }
            entry.remove();
        }
        Ok(())
    }
}

impl ObjsetHook for Accounting {
    fn owner(&self, bonus_type: ObjectType, bonus: &[u8], _spill: Option<&Abd>) -> Option<ObjectOwner> {
        if bonus_type == ObjectType::ZNODE {
            return Some(ObjectOwner { uid: word(bonus, ZNODE_UID, false)?, gid: word(bonus, ZNODE_GID, false)?, project: None });
        }
        if bonus_type != ObjectType::SA {
            return None;
        }
        let magic = bonus.get(..4)?;
        let foreign = magic == SA_MAGIC.to_be_bytes();
        if magic == [0; 4] {
            return Some(ObjectOwner { uid: 0, gid: 0, project: self.projects.then_some(0) });
        }
        let raw = [*bonus.get(4)?, *bonus.get(5)?];
        let info = if foreign { u16::from_be_bytes(raw) } else { u16::from_le_bytes(raw) };
        let header = usize::from(info >> 10) * 8;
        let at = |offset| word(bonus, header + offset, foreign);
        let project = if at(FLAGS)? & FLAG_PROJID != 0 { at(PROJID)? } else { 0 };
        Some(ObjectOwner { uid: at(UID)?, gid: at(GID)?, project: self.projects.then_some(project) })
    }

    fn apply(&self, objset: &Arc<Objset>, deltas: &[OwnerDelta], tx: &Tx) -> Result<(), DmuError> {
        let mut sums = self.unsettled.lock().clone();
        for delta in deltas {
            let ids = [Some(delta.owner.uid), Some(delta.owner.gid), delta.owner.project.filter(|_| self.projects)];
            for (sum, id) in sums.iter_mut().zip(ids) {
                if let Some(id) = id {
                    let entry = sum.entry(id).or_default();
                    entry.0 += delta.bytes;
                    entry.1 += delta.objects;
                }
            }
        }
        let tables = [USERUSED_OBJECT, GROUPUSED_OBJECT, PROJECTUSED_OBJECT];
        let mut settle = || tables.into_iter().zip(&mut sums).try_for_each(|(table, sums)| self.settle(objset, table, sums, tx));
        let result = settle();
        *self.unsettled.lock() = sums;
        result
    }

    fn counts(&self) -> u64 {
        let more = [(self.objects, objset_flags::USEROBJACCOUNTING_COMPLETE), (self.projects, objset_flags::PROJECTQUOTA_COMPLETE)];
        let counted = more.into_iter().filter(|(is_counted, _)| *is_counted);
        counted.fold(objset_flags::USERACCOUNTING_COMPLETE, |all, (_, flag)| all | flag)
    }

    fn has_unsettled(&self) -> bool {
        self.unsettled.lock().iter().any(|sums| !sums.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dmu::testing::{MemBlockIo, TestPool};
    use dmu::{NewObject, ObjsetProps};
    use ondisk::ObjsetType;
    use std::error::Error;

    fn tables(objset: &Arc<Objset>) -> Vec<BTreeMap<String, u64>> {
        let table = |object| {
            let mut table = BTreeMap::new();
            if let Ok(zap) = Zap::hold(objset, object) {
                let listed = zap.for_each(|entry| {
                    table.insert(String::from_utf8_lossy(&entry.name).into_owned(), entry.first_integer);
                    Ok(())
                });
                listed.expect("listed");
            }
            table
        };
        [USERUSED_OBJECT, GROUPUSED_OBJECT].into_iter().map(table).collect()
    }

    /// If this fails, an I/O error in the middle of accounting leaves a user charged twice, or not at all.
    #[test]
    fn a_sync_that_failed_while_it_accounted_charges_everybody_once() {
        let mut expected = None;
        for count in 0.. {
            let pool = TestPool::create(MemBlockIo::inline(5), ObjsetType::ZFS, ObjsetProps::default()).expect("create");
            pool.objset.set_hook(Arc::new(Accounting::new(true, false)));
            let new = NewObject { bonus_type: ObjectType::ZNODE, bonus_len: 264, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
            let make = |pool: &TestPool, id: u64| {
                let tx = pool.txgs.assign(0).expect("assign");
                let dnode = pool.objset.allocate_object(new, &tx).expect("allocate");
                let mut bonus = [0; 264];
                bonus[ZNODE_UID..ZNODE_UID + 8].copy_from_slice(&id.to_le_bytes());
                bonus[ZNODE_GID..ZNODE_GID + 8].copy_from_slice(&(100 + id).to_le_bytes());
                dnode.set_bonus(&bonus, &tx).expect("bonus");
            };
            make(&pool, 1);
            let hook_pool = pool.reopen().expect("reopen");
            hook_pool.objset.set_hook(Arc::new(Accounting::new(true, false)));
            (1..=3).for_each(|id| make(&hook_pool, id));
            let txg = hook_pool.txgs.open_txg();
            if count > 0 {
                hook_pool.io.fail_after(count, false);
            }
            let failed = hook_pool.objset.sync(txg).is_err();
            hook_pool.io.heal();
            if failed {
                hook_pool.objset.sync(txg).expect("the second try works");
            }
            let found = tables(&hook_pool.objset);
            match &expected {
                None => expected = Some(found),
                Some(expected) => assert_eq!(&found, expected, "operation {count}"),
            }
            if count > 0 && !failed {
                break;
            }
        }
        assert_eq!(expected.expect("one round at least")[0].get("obj-1"), Some(&2));
    }

    /// If this fails, an administrator whose pool stopped for a damaged table of users is not told which table, of what damage.
    #[test]
    fn a_damaged_table_is_named() {
        let damaged = ZapError::Corrupt { object: ObjectId(9), block: 2, what: "a leaf points to itself" };
        for (error, words) in
            [(damaged, "object 9 is damaged: a leaf points to itself"), (ZapError::Full, "object 5 is damaged: too many names")]
        {
            let error = dmu_error(ObjectId(5), error);
            assert_eq!(error.to_string(), DmuError::Corrupt.to_string(), "users read what they always read");
            assert!(error.source().is_some_and(|cause| cause.to_string().contains(words)), "{error:?}");
        }
        let lost = DmuError::from(dmu::BlockError::Checksum);
        assert_eq!(dmu_error(ObjectId(5), ZapError::Dmu(lost)), lost);
    }
}
