//! `zfs load-key`, `unload-key` and `change-key`: keys of encryption roots, in OpenZFS's words (`zfs_crypto_load_key`, `zfs_crypto_unload_key`,
//! `zfs_crypto_rewrap`).

use crate::failure::{self, because};
use crate::pool::{OpenPool, Pools};
use crate::requests::done;
use control_api::{ErrorKind, Failure, KeyChange, KeyLoad, KeyUnload, Response, UserKey};
use dsl::{DslError, PropValue};

/// Loads the key of an encryption root, or looks whether it is the right one. What its datasets' intent logs have from before a crash is replayed first.
pub(crate) fn load(pools: &Pools, request: &KeyLoad) -> Result<Response, Failure> {
    let (name, pool) = (&request.name, pools.pool_of(&request.name, "open")?);
    let refused = |kind, why: String| because(kind, "Key load error", why);
    let key = request.key.bytes().ok_or_else(|| refused(ErrorKind::Invalid, "the key is not written in hexadecimal.".to_string()))?;
    pool.pool().load_key(name, &key, request.dry_run).map_err(|error| match error {
        DslError::NotEncrypted => refused(ErrorKind::Invalid, format!("'{name}' is not encrypted.")),
        DslError::NotEncryptionRoot { root } => {
            refused(ErrorKind::Invalid, format!("Keys must be loaded for encryption root of '{name}' ({root})."))
        }
        DslError::KeyLoaded => refused(ErrorKind::Exists, format!("Key already loaded for '{name}'.")),
        DslError::WrongKey => refused(ErrorKind::Permission, format!("Incorrect key provided for '{name}'.")),
        DslError::BadKey => refused(ErrorKind::Invalid, format!("that is no key of the 'keyformat' of '{name}'.")),
        error => failure::dataset("open", name, &error),
    })?;
    Ok(done())
}

/// Advice about a key that is used: the mounts that it is for, also those of clones that are elsewhere.
fn in_the_way(pool: &OpenPool, root: &str) -> String {
    let wanted = PropValue::Text(root.to_string());
    let has_it = |name: &String| {
        let found = pool.dsl().hold(name).and_then(|handle| handle.prop("encryptionroot"));
        found.is_ok_and(|entry| entry.value == wanted)
    };
    let top = root.split('/').next().unwrap_or(root);
    let names: Vec<String> = pool.mounts.below(top).iter().map(|mounted| mounted.name()).filter(has_it).collect();
    match names.is_empty() {
        true => "unmount what it and its descendants have mounted".to_string(),
        false => format!("unmount what has this key: {}", names.join(", ")),
    }
}

/// Forgets the key of an encryption root.
pub(crate) fn unload(pools: &Pools, request: &KeyUnload) -> Result<Response, Failure> {
    let (name, pool) = (&request.name, pools.pool_of(&request.name, "open")?);
    let refused = |kind, why: String| because(kind, "Key unload error", why);
    pool.dsl().unload_key(name).map_err(|error| match error {
        DslError::NotEncrypted => refused(ErrorKind::Invalid, format!("'{name}' is not encrypted.")),
        DslError::NotEncryptionRoot { root } => {
            refused(ErrorKind::Invalid, format!("Keys must be unloaded for encryption root of '{name}' ({root})."))
        }
        DslError::KeyUnloaded => refused(ErrorKind::NotFound, format!("Key already unloaded for '{name}'.")),
        DslError::Busy => refused(ErrorKind::Busy, format!("'{name}' is busy.")).advise(in_the_way(&pool, name)),
        error => failure::dataset("open", name, &error),
    })?;
    Ok(done())
}

/// Gives a dataset another key, or that of the encryption root above.
pub(crate) fn change(pools: &Pools, request: &KeyChange) -> Result<Response, Failure> {
    let (name, pool) = (&request.name, pools.pool_of(&request.name, "open")?);
    let refused = |kind, why: String| because(kind, "Key change error", why);
    let properties: Vec<(String, String)> = request.properties.clone().into_iter().collect();
    let result = match request.key.as_ref().map(UserKey::bytes) {
        Some(None) => return Err(refused(ErrorKind::Invalid, "the key is not written in hexadecimal.".to_string())),
        Some(Some(key)) => pool.dsl().change_key(name, properties, &key),
        None if properties.is_empty() => pool.dsl().inherit_key(name),
        None => Err(DslError::BadValue),
    };
    result.map_err(|error| match error {
        DslError::NotEncrypted => refused(ErrorKind::Invalid, "Dataset not encrypted.".to_string()),
        DslError::NotEncryptionRoot { root } => refused(ErrorKind::Invalid, format!("'{name}' has the key of '{root}'.")),
        DslError::OtherRoot => refused(ErrorKind::Invalid, format!("No dataset above '{name}' is encrypted.")),
        DslError::NoKey => refused(ErrorKind::Permission, "Key must be loaded.".to_string()),
        DslError::BadValue | DslError::BadProperty | DslError::ReadOnlyProperty => {
            refused(ErrorKind::Invalid, "Invalid properties for key change.".to_string())
        }
        DslError::BadKey => refused(ErrorKind::Invalid, "that is no key of this 'keyformat'.".to_string()),
        error => failure::dataset("open", name, &error),
    })?;
    Ok(done())
}
