//! `zdb -d` of a whole pool: the meta object set, every dataset, and the count of features in use (OpenZFS: `dump_zpool` in `zdb.c`).

use crate::dump::{DIRECTORY, Dump};
use crate::objset::{self, ObjsetError, Range, Subject};
use crate::removal;
use dmu::Objset;
use dsl::{DatasetHandle, DslError, PropValue};
use ondisk::{DslDatasetPhys, DslDirPhys, Feature, ObjectId};
use pool::Pool;
use std::collections::BTreeMap;
use std::sync::Arc;
use zap::{Value, Zap};

/// Txg of a pool's creation (OpenZFS: `TXG_INITIAL`).
const TXG_INITIAL: u64 = 4;
/// Number of levels of directories at most: they cannot be nested deeper than their names allow.
const DEPTH_MAX: usize = 256;

/// Numbers of uses of features by datasets, by the features' names.
#[derive(Default)]
struct Used(BTreeMap<&'static str, u64>);

impl Used {
    fn add(&mut self, guid: &str) {
        if let Some(feature) = Feature::from_guid(guid) {
            *self.0.entry(feature.info().guid).or_default() += 1;
        }
    }
}

fn dir(mos: &Arc<Objset>, object: u64) -> Option<DslDirPhys> {
    DslDirPhys::decode(&mos.hold(ObjectId(object)).ok()?.bonus().ok()?).ok()
}
fn dataset(mos: &Arc<Objset>, object: u64) -> Option<DslDatasetPhys> {
    DslDatasetPhys::decode(&mos.hold(ObjectId(object)).ok()?.bonus().ok()?).ok()
}

/// Names and objects of a name table whose values are objects, in its order.
fn entries(mos: &Arc<Objset>, object: u64) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    if let Ok(zap) = Zap::hold(mos, ObjectId(object)) {
        // What an unreadable leaf held is missing; the object itself is shown as damaged.
        let _ = zap.for_each(|entry| {
            found.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.first_integer));
            Ok(())
        });
    }
    found
}

/// Subject of the meta object set.
pub fn meta(pool: &Pool) -> Subject {
    let mos = pool.mos().clone();
    let root = Zap::hold(&mos, DIRECTORY).and_then(|zap| zap.lookup_u64("root_dataset")).ok();
    let children = root.and_then(|root| dir(&mos, root)).map(|root| entries(&mos, root.dd_child_dir_zapobj)).unwrap_or_default();
    let own = children.iter().find(|(name, _)| name == "$MOS").and_then(|(_, object)| dir(&mos, *object));
    let bytes = own.map_or(0, |dir| dir.dd_used_bytes);
    Subject { objset: mos, is_locked: false, name: "mos".to_string(), bytes, created: TXG_INITIAL, dataset: None }
}

/// Subject of a dataset; of an encrypted one with its contents if its key is loaded.
pub fn subject(pool: &Pool, handle: &DatasetHandle) -> Result<Subject, DslError> {
    let phys = dataset(pool.mos(), handle.object()).ok_or(DslError::NotFound)?;
    let is_locked = handle.is_locked()?;
    let is_unlocked = handle.is_encrypted()? && !is_locked;
    Ok(Subject {
        objset: if is_unlocked { handle.objset()? } else { handle.stored()? },
        is_locked,
        name: handle.name(),
        bytes: phys.ds_referenced_bytes,
        created: phys.ds_creation_txg,
        dataset: Some(phys),
    })
}

/// Dataset of a full name; a number after the slash may be its object.
pub fn by_name(pool: &Pool, name: &str) -> Result<DatasetHandle, DslError> {
    match pool.dsl().hold(name) {
        Ok(handle) => Ok(handle),
        Err(error) => number_of(name).map_or(Err(error), |object| pool.dsl().hold_object(object)),
    }
}

/// Dataset whose number, decimal or hexadecimal with `0x`, follows the pool's name.
pub fn by_number(pool: &Pool, name: &str) -> Result<DatasetHandle, DslError> {
    number_of(name).map_or(Err(DslError::NotFound), |object| pool.dsl().hold_object(object))
}

/// Loads the key of an encrypted dataset; gives the name of its encryption root (OpenZFS: `zdb_load_key`).
///
/// # Errors
/// What to tell the user.
pub fn unlock(dataset: &DatasetHandle, key: &str) -> Result<String, String> {
    let entry = dataset.prop("encryptionroot").map_err(|error| error.to_string())?;
    let PropValue::Text(root) = entry.value else { return Err(DslError::NotEncrypted.to_string()) };
    let loaded = dataset.pool().load_key(&root, key.as_bytes(), false);
    loaded.map_err(|error| format!("couldn't load encryption key for {root}: {error}"))?;
    Ok(root)
}

fn number_of(name: &str) -> Option<u64> {
    let (_, text) = name.split_once('/')?;
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())
}

/// Shows everything; returns the exit status.
pub fn dump_pool(dump: &mut Dump<'_>, pool: &Pool) -> u8 {
    let mos = pool.mos().clone();
    show(dump, &mos, &meta(pool), &[]);
    if dump.datasets >= 3 {
        dump_frees(dump, &mos);
    }
    let mut used = Used::default();
    match Zap::hold(&mos, DIRECTORY).and_then(|zap| zap.lookup_u64("root_dataset")) {
        Ok(root) => {
            dump_dir(dump, pool, root, 0, &mut used);
            dump_origin(dump, &mos, root);
        }
        Err(error) => dump.damage(format_args!("the root dataset: {error}")),
    }
    dump_deleted_livelists(dump, &mos, &mut used);
    dump_features(dump, pool, &used)
}

/// Shows the livelists of destroyed clones, whose blocks wait to be freed, and counts them (OpenZFS: `deleted_livelists_dump_mos`).
fn dump_deleted_livelists(dump: &mut Dump<'_>, mos: &Arc<Objset>, used: &mut Used) {
    if let Ok(Some(queue)) = Zap::hold(mos, DIRECTORY).and_then(|zap| zap.try_lookup_u64("com.delphix:deleted_clones")) {
        for (_, list) in entries(mos, queue) {
            used.add("com.delphix:livelist");
            objset::dump_deadlist(dump, mos, list, "Deleted Livelist");
        }
    }
}

/// Shows the blocks that wait to be freed.
fn dump_frees(dump: &mut Dump<'_>, mos: &Arc<Objset>) {
    for (name, title) in [("sync_bplist", "Deferred frees"), ("free_bpobj", "Pool snapshot frees")] {
        if let Ok(Some(object)) = Zap::hold(mos, DIRECTORY).and_then(|zap| zap.try_lookup_u64(name)) {
            objset::dump_bpobj(dump, mos, object, title);
        }
    }
}

/// Shows the deadlists of the empty dataset that every other one comes from: its own, then its snapshot's.
fn dump_origin(dump: &mut Dump<'_>, mos: &Arc<Objset>, root: u64) {
    let children = dir(mos, root).map(|root| entries(mos, root.dd_child_dir_zapobj)).unwrap_or_default();
    let origin = children.iter().find(|(name, _)| name == "$ORIGIN").and_then(|(_, object)| dir(mos, *object));
    let Some(head) = origin.and_then(|origin| dataset(mos, origin.dd_head_dataset_obj)) else { return };
    for phys in [Some(head.clone()), dataset(mos, head.ds_prev_snap_obj)].into_iter().flatten() {
        objset::dump_deadlist(dump, mos, phys.ds_deadlist_obj, "Deadlist");
    }
}

/// Shows a subject; what cannot be read is said.
pub fn show(dump: &mut Dump<'_>, mos: &Arc<Objset>, subject: &Subject, ranges: &[Range]) {
    if let Err(error) = objset::dump(dump, mos, subject, ranges) {
        match error {
            ObjsetError::Dmu(dmu::DmuError::NoSuchObject) => dump.damage(format_args!("{}: no such object", subject.name)),
            error => dump.damage(format_args!("{}: {error}", subject.name)),
        }
    }
}

/// Shows a directory: its children first, then its snapshots, then itself (OpenZFS: `dmu_objset_find_impl`).
fn dump_dir(dump: &mut Dump<'_>, pool: &Pool, object: u64, depth: usize, used: &mut Used) {
    let mos = pool.mos();
    let Some(phys) = dir(mos, object).filter(|_| depth < DEPTH_MAX) else {
        return dump.damage(format_args!("the directory, object {object}, cannot be read"));
    };
    for (name, child) in entries(mos, phys.dd_child_dir_zapobj) {
        if !name.starts_with('$') {
            dump_dir(dump, pool, child, depth + 1, used);
        }
    }
    let head = phys.dd_head_dataset_obj;
    let Some(head_phys) = dataset(mos, head) else {
        return dump.damage(format_args!("the dataset, object {head}, cannot be read"));
    };
    for (_, snapshot) in entries(mos, head_phys.ds_snapnames_zapobj) {
        dump_dataset(dump, pool, snapshot, used);
    }
    if entries(mos, object).iter().any(|(name, _)| name == "com.delphix:livelist") {
        used.add("com.delphix:livelist");
    }
    dump_dataset(dump, pool, head, used);
}

fn dump_dataset(dump: &mut Dump<'_>, pool: &Pool, object: u64, used: &mut Used) {
    for (name, value) in entries(pool.mos(), object) {
        match name.as_str() {
            "com.delphix:bookmarks" => count_bookmarks(pool.mos(), value, used),
            guid if Feature::from_guid(guid).is_some_and(|feature| feature.info().per_dataset()) => used.add(guid),
            _ => {}
        }
    }
    match pool.dsl().hold_object(object).and_then(|handle| subject(pool, &handle)) {
        Ok(subject) => show(dump, pool.mos(), &subject, &[]),
        Err(error) => dump.damage(format_args!("the dataset, object {object}: {error}")),
    }
}

/// Counts the features that bookmarks use.
fn count_bookmarks(mos: &Arc<Objset>, object: u64, used: &mut Used) {
    const HAS_WRITTEN: u64 = 1;
    let Ok(zap) = Zap::hold(mos, ObjectId(object)) else { return };
    for (name, _) in entries(mos, object) {
        let Ok(Value::U64(words)) = zap.lookup(&name) else { continue };
        if words.get(4).is_some_and(|flags| flags & HAS_WRITTEN != 0) {
            used.add("com.delphix:bookmark_written");
        }
        if let Some(&list) = words.get(3).filter(|list| **list != 0) {
            used.add("com.delphix:redaction_bookmarks");
            let info = mos.hold(ObjectId(list)).and_then(|dnode| dnode.info());
            if info.is_ok_and(|info| info.has_spill) {
                used.add("com.delphix:redaction_list_spill");
            }
        }
    }
}

/// Compares the pool's counts of features with what its datasets use; returns 2 when they differ.
fn dump_features(dump: &mut Dump<'_>, pool: &Pool, used: &Used) -> u8 {
    const BY_BOOKMARKS: [&str; 4] = ["redaction_bookmarks", "bookmark_written", "livelist", "redaction_list_spill"];
    let counts = pool.features();
    let count = |name: &str| counts.iter().find(|(known, ..)| known == name).and_then(|(_, _, count)| *count);
    let mut status = 0;
    for feature in Feature::ALL {
        let info = feature.info();
        if !info.per_dataset() && !BY_BOOKMARKS.contains(&info.name) {
            continue;
        }
        let Some(count) = count(info.name) else { continue };
        let found = used.0.get(info.guid).copied().unwrap_or(0);
        if found == count {
            dump.line(format_args!("Verified {} feature refcount of {count} is correct", info.name));
        } else {
            dump.line(format_args!("{} feature refcount mismatch: {found} consumers != {count} refcount", info.name));
            status = 2;
        }
    }
    if status == 0 { removal::dump_features(dump, pool) } else { status }
}
