//! What the MOS knows of the keys of encrypted datasets, without any key (OpenZFS: `dsl_crypt.c`).
//!
//! A directory that is encrypted names a key object in its ZAP; a clone shares its origin's, which counts its users. The key object says which
//! directory is the encryption root: the one whose user's key wraps the keys of all datasets that have it for their root.

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::meta::{Meta, damaged};
use crate::raw::RawStream;
use crate::{DslError, features, marks};
use crypt::{KEY_VERSION, Mac, Suite, WrappedKey};
use dmu::Tx;
use ondisk::names::{dd_field, ds_field};
use ondisk::{BLOCK_BYTES_MAX, DslDatasetPhys, ObjectType};
use std::sync::atomic::{AtomicBool, Ordering};
use zap::{Value, Zap};

const SUITE: &str = "DSL_CRYPTO_SUITE";
const ROOT: &str = "DSL_CRYPTO_ROOT_DDOBJ";
const USERS: &str = "DSL_CRYPTO_REFCOUNT";
const KEYS_VERSION: &str = "DSL_CRYPTO_VERSION";
/// Entry of our own: the MAC of the wrapping that came raw last. Whoever gives the keys another one here leaves it behind.
const CAME: &str = "org.zirconia:came";

/// Erratum of pools whose encrypted datasets have keys of the first version (OpenZFS: `ZPOOL_ERRATA_ZOL_6845_ENCRYPTION`).
pub(crate) const ERRATUM_KEYS: u64 = 3;
/// Erratum of pools with encrypted snapshots that name no set of IVs (OpenZFS: `ZPOOL_ERRATA_ZOL_8308_ENCRYPTION`).
const ERRATUM_IV_SETS: u64 = 4;

/// True when raw streams go on whatever the names of sets of IVs are.
static IGNORES_IV_SETS: AtomicBool = AtomicBool::new(false);

/// Sets whether raw streams are received that go on from what names no set of IVs, or another one (OpenZFS: `zfs_disable_ivset_guid_check`): for
/// copies of old snapshots, which then get a name.
pub fn set_ignores_iv_sets(are_ignored: bool) {
    IGNORES_IV_SETS.store(are_ignored, Ordering::Relaxed);
}

/// Facts of an encrypted dataset that everybody may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyFacts {
    /// Number of the suite, a value of the property `encryption`.
    pub(crate) suite: u64,
    /// Directory that is the encryption root.
    pub(crate) root: u64,
    /// Value of the property `keyformat`.
    pub(crate) format: u64,
    /// Iterations of PBKDF2; 0 for keys that are no passphrases.
    pub(crate) iterations: u64,
    /// Salt of PBKDF2.
    pub(crate) salt: u64,
}

impl KeyFacts {
    /// Most bytes of a record: CCM with IVs of 12 bytes ends one byte before 16 MiB.
    pub(crate) fn record_bytes_max(&self) -> usize {
        let is_ccm = matches!(Suite::from_number(self.suite), Some(Suite::Aes128Ccm | Suite::Aes192Ccm | Suite::Aes256Ccm));
        if is_ccm { BLOCK_BYTES_MAX / 2 } else { BLOCK_BYTES_MAX }
    }
}

/// Facts of a snapshot's keys that a raw stream has: nobody can open anything with them who has not the user's key (OpenZFS:
/// `dsl_crypto_populate_key_nvlist`).
#[derive(Clone, Debug)]
pub struct RawKeys {
    /// Keys of the dataset, wrapped.
    pub wrapped: WrappedKey,
    /// Value of the property `keyformat`.
    pub format: u64,
    /// Iterations of PBKDF2.
    pub iterations: u64,
    /// Salt of PBKDF2.
    pub salt: u64,
    /// Name of the snapshot's set of IVs; 0 when it has none.
    pub ivs: u64,
}

/// Raw keys of a snapshot. Error: [`DslError::NotEncrypted`].
pub(crate) fn raw_of(meta: &Meta, snapshot: &Dataset) -> Result<RawKeys, DslError> {
    let (Some(object), Some(facts)) = (object_of(meta, &snapshot.dir)?, facts_of(meta, &snapshot.dir)?) else {
        return Err(DslError::NotEncrypted);
    };
    let KeyFacts { format, iterations, salt, .. } = facts;
    Ok(RawKeys { wrapped: wrapped(meta, object)?, format, iterations, salt, ivs: ivs_of(meta, snapshot)? })
}

/// The directory's key object; None for what is not encrypted.
pub(crate) fn object_of(meta: &Meta, dir: &Dir) -> Result<Option<u64>, DslError> {
    if meta.hold(dir.object)?.info()?.kind != ObjectType::OTN_ZAP_METADATA {
        return Ok(None);
    }
    Ok(meta.zap(dir.object)?.try_lookup_u64(dd_field::CRYPTO_KEY_OBJ)?.filter(|object| *object != 0))
}

/// Facts of a directory's keys; None for what is not encrypted.
pub(crate) fn facts_of(meta: &Meta, dir: &Dir) -> Result<Option<KeyFacts>, DslError> {
    let Some(object) = object_of(meta, dir)? else { return Ok(None) };
    let keys = meta.zap(object)?;
    let number = |name: &str| keys.try_lookup_u64(name);
    let (Some(suite), Some(root)) = (number(SUITE)?, number(ROOT)?) else {
        return Err(damaged(object, "the keys of an encrypted dataset"));
    };
    let (format, iterations) = (number("keyformat")?.unwrap_or(0), number("pbkdf2iters")?.unwrap_or(0));
    Ok(Some(KeyFacts { suite, root, format, iterations, salt: number("pbkdf2salt")?.unwrap_or(0) }))
}

/// A key object's keys, wrapped (OpenZFS: `dsl_crypto_key_open`).
pub(crate) fn wrapped(meta: &Meta, object: u64) -> Result<WrappedKey, DslError> {
    let table = meta.zap(object)?;
    let missing = || damaged(object, "the keys of an encrypted dataset");
    let number = |name: &str| -> Result<u64, DslError> { table.try_lookup_u64(name)?.ok_or_else(missing) };
    Ok(WrappedKey {
        suite: Suite::from_number(number(SUITE)?).ok_or(DslError::Unsupported)?,
        guid: number("DSL_CRYPTO_GUID")?,
        // Keys of the first version say nothing of it.
        version: table.try_lookup_u64(KEYS_VERSION)?.unwrap_or(0),
        iv: bytes(&table, "DSL_CRYPTO_IV")?.ok_or_else(missing)?,
        mac: bytes(&table, "DSL_CRYPTO_MAC")?.ok_or_else(missing)?,
        master: bytes(&table, "DSL_CRYPTO_MASTER_KEY_1")?.ok_or_else(missing)?,
        hmac: bytes(&table, "DSL_CRYPTO_HMAC_KEY_1")?.ok_or_else(missing)?,
    })
}

/// The bytes of an entry; None when it is not there, or has another length.
fn bytes<const N: usize>(table: &Zap, name: &str) -> Result<Option<[u8; N]>, DslError> {
    Ok(match table.try_lookup(name)? {
        Some(Value::U8(bytes)) => bytes.try_into().ok(),
        _ => None,
    })
}

/// Entries of a key object that say how its keys are wrapped, and with what.
fn write_wrapping(table: &Zap, facts: &KeyFacts, wrapped: &WrappedKey, tx: &Tx) -> Result<(), DslError> {
    let numbers = [
        (SUITE, facts.suite),
        (ROOT, facts.root),
        ("DSL_CRYPTO_GUID", wrapped.guid),
        (KEYS_VERSION, wrapped.version),
        ("keyformat", facts.format),
        ("pbkdf2salt", facts.salt),
        ("pbkdf2iters", facts.iterations),
    ];
    numbers.into_iter().try_for_each(|(name, number)| table.update_u64(name, number, tx))?;
    let strings = [
        ("DSL_CRYPTO_IV", wrapped.iv.to_vec()),
        ("DSL_CRYPTO_MAC", wrapped.mac.to_vec()),
        ("DSL_CRYPTO_MASTER_KEY_1", wrapped.master.to_vec()),
        ("DSL_CRYPTO_HMAC_KEY_1", wrapped.hmac.to_vec()),
    ];
    Ok(strings.into_iter().try_for_each(|(name, bytes)| table.update(name, &Value::U8(bytes), tx))?)
}

/// Gives a directory a key object of its own (OpenZFS: `dsl_crypto_key_create_sync`).
pub(crate) fn create(meta: &Meta, dir: &Dir, (facts, wrapped): (&KeyFacts, &WrappedKey), tx: &Tx) -> Result<(), DslError> {
    let object = meta.create_zap(ObjectType::OTN_ZAP_METADATA, tx)?;
    let table = meta.zap(object)?;
    write_wrapping(&table, facts, wrapped, tx)?;
    table.add_u64(USERS, 1, tx)?;
    meta.zapify(&meta.hold(dir.object)?, tx)?;
    Ok(meta.zap(dir.object)?.add_u64(dd_field::CRYPTO_KEY_OBJ, object, tx)?)
}

/// Writes another encryption root into a key object: the key that wraps it stays.
pub(crate) fn set_root(meta: &Meta, object: u64, root: u64, tx: &Tx) -> Result<(), DslError> {
    Ok(meta.zap(object)?.update_u64(ROOT, root, tx)?)
}

/// Gives a clone's new directory the keys of its origin, if that is encrypted (OpenZFS: `dsl_crypto_key_clone_sync`).
pub(crate) fn share(meta: &Meta, origin: &Dir, clone: &Dir, tx: &Tx) -> Result<(), DslError> {
    let Some(object) = object_of(meta, origin)? else { return Ok(()) };
    let table = meta.zap(object)?;
    table.update_u64(USERS, table.try_lookup_u64(USERS)?.unwrap_or(1) + 1, tx)?;
    meta.zapify(&meta.hold(clone.object)?, tx)?;
    Ok(meta.zap(clone.object)?.add_u64(dd_field::CRYPTO_KEY_OBJ, object, tx)?)
}

/// Writes how the keys of a key object are wrapped from now on (OpenZFS: `dsl_crypto_key_sync`).
pub(crate) fn rewrap(meta: &Meta, object: u64, (facts, wrapped): (&KeyFacts, &WrappedKey), tx: &Tx) -> Result<(), DslError> {
    write_wrapping(&meta.zap(object)?, facts, wrapped, tx)
}

/// Notes that the keys of a key object are wrapped as they came raw.
pub(crate) fn note_came(meta: &Meta, object: u64, wrapped: &WrappedKey, tx: &Tx) -> Result<(), DslError> {
    Ok(meta.zap(object)?.update(CAME, &Value::U8(wrapped.mac.to_vec()), tx)?)
}

/// True for keys that are wrapped as they came raw, false for those that somebody gave another key here since; None where that is not known.
pub(crate) fn are_as_they_came(meta: &Meta, object: u64) -> Result<Option<bool>, DslError> {
    let came: Option<Mac> = bytes(&meta.zap(object)?, CAME)?;
    let own = wrapped(meta, object)?.mac;
    Ok(came.map(|came| came == own))
}

/// Looks whether a raw stream has the keys of a directory (OpenZFS: `dsl_crypto_recv_raw_key_check`).
///
/// Errors: [`DslError::NotEncrypted`], [`DslError::OtherKeys`].
pub(crate) fn check_keys(meta: &Meta, dir: &Dir, raw: &RawStream) -> Result<(), DslError> {
    let object = object_of(meta, dir)?.ok_or(DslError::NotEncrypted)?;
    let own = wrapped(meta, object)?;
    let is_same = (own.guid, own.suite) == (raw.keys.wrapped.guid, raw.keys.wrapped.suite);
    if is_same { Ok(()) } else { Err(DslError::OtherKeys) }
}

/// Looks whether a raw stream goes on from what this snapshot has: its keys, and its set of IVs (OpenZFS: `dsl_crypto_recv_raw_objset_check`).
///
/// Errors: those of [`check_keys`]; [`DslError::NoIvSet`], [`DslError::OtherIvSet`].
pub(crate) fn check_raw(meta: &Meta, from: &Dataset, raw: &RawStream) -> Result<(), DslError> {
    check_keys(meta, &from.dir, raw)?;
    if IGNORES_IV_SETS.load(Ordering::Relaxed) {
        return Ok(());
    }
    match (ivs_of(meta, from)?, raw.from_ivs) {
        (0, _) | (_, 0) => Err(DslError::NoIvSet),
        (here, there) if here != there => Err(DslError::OtherIvSet),
        _ => Ok(()),
    }
}

/// True for a directory with keys of the first version, which is read and not written (OpenZFS: `dsl_dir_incompatible_encryption_version`).
pub(crate) fn are_old(meta: &Meta, dir: &Dir) -> Result<bool, DslError> {
    let Some(object) = object_of(meta, dir)? else { return Ok(false) };
    Ok(meta.zap(object)?.try_lookup_u64(KEYS_VERSION)?.unwrap_or(0) != KEY_VERSION)
}

/// Number of the erratum that a dataset has (OpenZFS: `zpool_errata_t`): 3 with keys of the first version, 4 for an encrypted snapshot that does not
/// name its set of IVs, or a head whose last one does not; 0 without one.
pub(crate) fn erratum_of(meta: &Meta, dataset: &Dataset) -> Result<u64, DslError> {
    if object_of(meta, &dataset.dir)?.is_none() {
        return Ok(0);
    }
    if are_old(meta, &dataset.dir)? {
        return Ok(ERRATUM_KEYS);
    }
    let snapshot = if dataset.is_snapshot { Some(dataset.object) } else { last_snapshot(meta, dataset)? };
    let ivs = snapshot.map(|object| ivs_in(meta, object)).transpose()?;
    Ok(if ivs == Some(0) { ERRATUM_IV_SETS } else { 0 })
}

/// Last snapshot of a head; that from which a clone, or any new dataset, starts is another one's.
fn last_snapshot(meta: &Meta, head: &Dataset) -> Result<Option<u64>, DslError> {
    let last = head.phys().ds_prev_snap_obj;
    if last == 0 {
        return Ok(None);
    }
    let phys = DslDatasetPhys::decode(&meta.hold(last)?.bonus()?).map_err(|_| damaged(last, "the record of a DSL dataset is short"))?;
    Ok((phys.ds_dir_obj == head.dir.object).then_some(last))
}

/// Refuses what is encrypted, for operations that this release cannot do with it.
pub(crate) fn refuse(meta: &Meta, dir: &Dir) -> Result<(), DslError> {
    if object_of(meta, dir)?.is_some() { Err(DslError::Encrypted) } else { Ok(()) }
}

/// A look that a directory may go below another one: what is not its own encryption root must stay below the one that it has (OpenZFS:
/// `dsl_dir_rename_crypt_check`).
pub(crate) fn check_move(meta: &Meta, dir: &Dir, to: &Dir) -> Result<(), DslError> {
    let Some(own) = facts_of(meta, dir)? else { return Ok(()) };
    let stays = own.root == dir.object || facts_of(meta, to)?.is_some_and(|above| above.root == own.root);
    if stays { Ok(()) } else { Err(DslError::OtherRoot) }
}

/// Takes a directory that goes off its keys; the last one takes them along (OpenZFS: `dsl_crypto_key_destroy_sync`).
pub(crate) fn release(meta: &Meta, dir: &Dir, tx: &Tx) -> Result<(), DslError> {
    let Some(object) = object_of(meta, dir)? else { return Ok(()) };
    let keys = meta.zap(object)?;
    match keys.try_lookup_u64(USERS)?.unwrap_or(1) {
        0 | 1 => meta.free_object(object, tx),
        users => Ok(keys.update_u64(USERS, users - 1, tx)?),
    }
}

/// Gives a new snapshot of an encrypted dataset in this directory the name of its set of IVs, by which raw streams know it; none without the feature
/// `bookmark_v2`, by which OpenZFS tells pools that have the errata 4 from others (OpenZFS: `dsl_dataset_snapshot_sync_impl`).
pub(crate) fn name_ivs(meta: &Meta, dir: &Dir, snapshot: u64, tx: &Tx) -> Result<(), DslError> {
    if object_of(meta, dir)?.is_none() || !meta.services.feature_enabled(features::BOOKMARK_V2) {
        return Ok(());
    }
    let own = marks::own_table(meta, snapshot)?.ok_or_else(|| damaged(snapshot, "a snapshot of an encrypted dataset without a ZAP"))?;
    // 56 bits, never 0 (OpenZFS: unique_create).
    Ok(own.add_u64(ds_field::IVSET_GUID, (meta.io.exec().random_u64() >> 8).max(1), tx)?)
}

/// Gives a snapshot that came raw the name of its set of IVs where it was encrypted.
pub(crate) fn rename_ivs(meta: &Meta, snapshot: &Dataset, ivs: u64, tx: &Tx) -> Result<(), DslError> {
    match marks::own_table(meta, snapshot.object)? {
        Some(own) if ivs != 0 => Ok(own.update_u64(ds_field::IVSET_GUID, ivs, tx)?),
        _ => Ok(()),
    }
}

/// Name of a snapshot's set of IVs; 0 when it has none (OpenZFS: `DS_FIELD_IVSET_GUID`).
pub(crate) fn ivs_of(meta: &Meta, snapshot: &Dataset) -> Result<u64, DslError> {
    ivs_in(meta, snapshot.object)
}

fn ivs_in(meta: &Meta, snapshot: u64) -> Result<u64, DslError> {
    match marks::own_table(meta, snapshot)? {
        Some(own) => Ok(own.try_lookup_u64(ds_field::IVSET_GUID)?.unwrap_or(0)),
        None => Ok(0),
    }
}
