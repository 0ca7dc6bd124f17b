//! Keys that users loaded, for as long as they are loaded (OpenZFS: `spa_keystore_t`).
//!
//! What is kept is the key of each encryption root. A dataset's own keys are unwrapped when it is opened, and live as long as that lasts.

use super::tree::Tree;
use crate::dataset::Dataset;
use crate::keys::{self, KeyFacts};
use crate::meta::Meta;
use crate::{DslError, names};
use crypt::{DataKey, WrappedKey, WrappingKey};
use dmu::Objset;
use exec::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Values of the property `keyformat`.
const RAW: u64 = 1;
const HEX: u64 = 2;
pub(super) const PASSPHRASE: u64 = 3;

/// Users' keys by the directory that is their encryption root.
#[derive(Default)]
pub(crate) struct Keystore {
    loaded: Mutex<BTreeMap<u64, Arc<WrappingKey>>>,
}

impl Keystore {
    /// True when the key of this encryption root is loaded.
    pub(crate) fn has(&self, root: u64) -> bool {
        self.loaded.lock().contains_key(&root)
    }

    /// The key of an encryption root, when it is loaded.
    pub(super) fn get(&self, root: u64) -> Option<Arc<WrappingKey>> {
        self.loaded.lock().get(&root).cloned()
    }

    pub(super) fn load(&self, root: u64, key: Arc<WrappingKey>) {
        self.loaded.lock().insert(root, key);
    }

    /// Forgets the key of an encryption root, if it is there.
    pub(super) fn forget(&self, root: u64) {
        self.loaded.lock().remove(&root);
    }

    /// Takes the key of an encryption root out, if it is there.
    fn take(&self, root: u64) -> Option<Arc<WrappingKey>> {
        self.loaded.lock().remove(&root)
    }

    /// Keys of a dataset whose directory has this key object, by the key of its encryption root.
    fn keys_of(&self, meta: &Meta, object: u64, root: u64) -> Result<Arc<DataKey>, DslError> {
        let with = self.get(root).ok_or(DslError::NoKey)?;
        keys::wrapped(meta, object)?.open(&with).map(Arc::new).map_err(|_| DslError::WrongKey)
    }
}

/// Wrapping key that a user gives, in the form that the facts name. Error: [`DslError::BadKey`].
pub(super) fn wrapping_key(facts: &KeyFacts, secret: &[u8]) -> Result<WrappingKey, DslError> {
    let key = match facts.format {
        RAW => WrappingKey::raw(secret),
        HEX => WrappingKey::hex(secret),
        PASSPHRASE => WrappingKey::passphrase(secret, facts.salt, facts.iterations),
        _ => return Err(DslError::Unsupported),
    };
    key.map_err(|_| DslError::BadKey)
}

/// Encryption root whose key is to be loaded.
pub(super) struct ToLoad {
    pub(super) root: u64,
    pub(super) facts: KeyFacts,
    pub(super) wrapped: WrappedKey,
}

impl Tree {
    /// The encryption root of this name, with what its key must open.
    ///
    /// Errors: [`DslError::NotEncrypted`], [`DslError::NotEncryptionRoot`].
    pub(super) fn to_load(&self, name: &str) -> Result<ToLoad, DslError> {
        if names::split(name)?.1.is_some() {
            return Err(DslError::IsSnapshot);
        }
        let dir = self.find_dir(name)?;
        let (Some(object), Some(facts)) = (keys::object_of(&self.meta, &dir)?, keys::facts_of(&self.meta, &dir)?) else {
            return Err(DslError::NotEncrypted);
        };
        if facts.root != dir.object {
            return Err(DslError::NotEncryptionRoot { root: self.dir(facts.root)?.full_name() });
        }
        Ok(ToLoad { root: facts.root, facts, wrapped: keys::wrapped(&self.meta, object)? })
    }

    /// Loads the key of the encryption root of this name, as that is now: somebody may have changed, loaded or destroyed it since `key` was made, and what
    /// a key that is not its own wrapped nobody could open again.
    ///
    /// Errors: those of [`Tree::to_load`]; [`DslError::KeyLoaded`], [`DslError::WrongKey`].
    pub(crate) fn load(&self, name: &str, key: WrappingKey) -> Result<(), DslError> {
        let wanted = self.to_load(name)?;
        if self.keystore.has(wanted.root) {
            return Err(DslError::KeyLoaded);
        }
        wanted.wrapped.open(&key).map_err(|_| DslError::WrongKey)?;
        self.keystore.load(wanted.root, Arc::new(key));
        Ok(())
    }

    /// The object set of a dataset, with its contents.
    ///
    /// Errors: [`DslError::NoKey`]; those of reading it.
    pub(crate) fn contents(&self, dataset: &Dataset) -> Result<Arc<Objset>, DslError> {
        let (meta, dir) = (&self.meta, &dataset.dir);
        let (Some(object), Some(facts)) = (keys::object_of(meta, dir)?, keys::facts_of(meta, dir)?) else {
            return self.objset(dataset);
        };
        let key = || self.keystore.keys_of(meta, object, facts.root);
        dataset.unlocked(meta, key, || self.objset_props(dataset))
    }

    /// Datasets of an encryption root that are open with their contents.
    pub(super) fn open_of(&self, root: u64) -> Result<Vec<Arc<Dataset>>, DslError> {
        let mut open = Vec::new();
        for dataset in self.unlocked_datasets() {
            if keys::facts_of(&self.meta, &dataset.dir)?.is_some_and(|facts| facts.root == root) {
                open.push(dataset);
            }
        }
        Ok(open)
    }

    /// Closes every dataset of an encryption root, and forgets its key. Errors: [`DslError::KeyUnloaded`]; [`DslError::Busy`] while somebody uses one.
    pub(super) fn lock(&self, root: u64) -> Result<(), DslError> {
        if self.open_of(root)?.iter().any(|dataset| dataset.is_used_unlocked()) {
            return Err(DslError::Busy);
        }
        let key = self.keystore.take(root).ok_or(DslError::KeyUnloaded)?;
        // Nobody opens one from now on; who did so meanwhile keeps the key here.
        let locked =
            self.open_of(root).and_then(|open| if open.iter().all(|dataset| dataset.lock()) { Ok(()) } else { Err(DslError::Busy) });
        if locked.is_err() {
            self.keystore.load(root, key);
        }
        locked
    }
}
