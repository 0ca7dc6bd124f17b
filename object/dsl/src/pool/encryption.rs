//! Keys of new datasets (OpenZFS: `dsl_crypto_params_create_nvlist`, `dmu_objset_create_crypt_check`, `dsl_dataset_create_crypt_sync`).
//!
//! A dataset is encrypted with keys of its own, which are random. Its encryption root's key, a user's, wraps them: that of a dataset above it, or one that
//! comes with the dataset, which then is an encryption root.

use super::keystore::{PASSPHRASE, wrapping_key};
use super::tree::Tree;
use crate::dir::Dir;
use crate::keys::{self, KeyFacts};
use crate::prop::table::{self, Parsed, Prop};
use crate::{DslError, features};
use crypt::{CryptError, DataKey, PBKDF2_ITERATIONS_DEFAULT, PBKDF2_ITERATIONS_MIN, Suite, WrappedKey, WrappingKey, random};
use dmu::Tx;
use std::sync::Arc;

/// Values of the property `encryption` that name no suite.
const ON: u64 = 1;
const OFF: u64 = 2;

/// Error of cryptography where keys are made.
pub(super) fn failed(error: CryptError) -> DslError {
    match error {
        CryptError::Random => DslError::NoRandom,
        _ => DslError::BadKey,
    }
}

/// A user's key for an encryption root, and how it came from what the user gave.
pub(super) struct RootKey {
    format: u64,
    salt: u64,
    iterations: u64,
    key: Arc<WrappingKey>,
}

impl RootKey {
    /// The key of what a user gives in this `keyformat`; of a passphrase with a new salt, and as many iterations, or the usual number. Takes a while
    /// then.
    ///
    /// Errors: [`DslError::BadKey`]; [`DslError::BadValue`] for iterations that are too few, or for keys that are no passphrases.
    pub(super) fn new(format: u64, iterations: Option<u64>, secret: &[u8]) -> Result<RootKey, DslError> {
        let (salt, iterations) = match (format == PASSPHRASE, iterations) {
            (true, None) => (random::bytes().map_err(failed)?, PBKDF2_ITERATIONS_DEFAULT),
            (true, Some(count)) if count >= PBKDF2_ITERATIONS_MIN => (random::bytes().map_err(failed)?, count),
            (false, None | Some(0)) => ([0; 8], 0),
            _ => return Err(DslError::BadValue),
        };
        let salt = u64::from_le_bytes(salt);
        let key = Arc::new(wrapping_key(&KeyFacts { suite: 0, root: 0, format, iterations, salt }, secret)?);
        Ok(RootKey { format, salt, iterations, key })
    }

    /// The key.
    pub(super) fn key(&self) -> Arc<WrappingKey> {
        self.key.clone()
    }

    /// Facts of keys that it wraps, but for their suite and root.
    pub(super) fn facts(&self) -> KeyFacts {
        KeyFacts { suite: 0, root: 0, format: self.format, iterations: self.iterations, salt: self.salt }
    }
}

/// Encryption that a new dataset is to have.
#[derive(Default)]
pub(crate) struct Encryption {
    /// Value of the property `encryption`; None for what the dataset above has.
    suite: Option<u64>,
    /// Key that makes it an encryption root.
    root: Option<RootKey>,
}

impl Encryption {
    /// Wish for none.
    pub(super) fn none() -> Encryption {
        Encryption { suite: Some(OFF), root: None }
    }

    /// Takes the wish out of the properties of a new dataset: what is left is stored as other properties are. `secret` is what a user gives for the key
    /// of a new encryption root.
    ///
    /// Errors: [`DslError::BadValue`] for properties that do not go together; those of [`RootKey::new`].
    pub(crate) fn take(properties: &mut Vec<(String, String)>, secret: Option<&[u8]>) -> Result<Encryption, DslError> {
        let suite = number(properties, "encryption")?;
        let format = number(properties, "keyformat")?.filter(|format| *format != 0);
        let iterations = number(properties, "pbkdf2iters")?.filter(|count| *count != 0);
        let has_location = properties.iter().any(|(name, value)| name == "keylocation" && value != "none");
        let Some(format) = format else {
            let is_plain = iterations.is_none() && !has_location;
            return if is_plain { Ok(Encryption { suite, root: None }) } else { Err(DslError::BadValue) };
        };
        if suite == Some(OFF) {
            return Err(DslError::BadValue);
        }
        if !has_location {
            properties.retain(|(name, _)| name != "keylocation");
            properties.push(("keylocation".to_string(), "prompt".to_string()));
        }
        let root = RootKey::new(format, iterations, secret.ok_or(DslError::BadKey)?)?;
        Ok(Encryption { suite, root: Some(root) })
    }

    /// Keys of a new dataset below `parent`, or of the root; None for one that is not encrypted.
    ///
    /// Errors: [`DslError::NoKey`] when the key that it would inherit is not loaded, [`DslError::BadValue`] when there is none, or one for what is not
    /// encrypted; [`DslError::NeedsFeature`].
    pub(super) fn keys(&self, tree: &Tree, parent: Option<&Dir>) -> Result<Option<NewKeys>, DslError> {
        let above = parent.map_or(Ok(None), |parent| keys::facts_of(&tree.meta, parent))?;
        let suite = match (self.suite, &above) {
            (Some(OFF), _) | (None, None) => None,
            (Some(ON), _) => Some(Suite::Aes256Gcm),
            (Some(number), _) => Some(Suite::from_number(number).ok_or(DslError::BadValue)?),
            (None, Some(above)) => Some(Suite::from_number(above.suite).ok_or(DslError::Unsupported)?),
        };
        let Some(suite) = suite else {
            return if self.root.is_none() { Ok(None) } else { Err(DslError::BadValue) };
        };
        if !tree.meta.services.feature_enabled(features::ENCRYPTION) {
            return Err(DslError::NeedsFeature(features::ENCRYPTION));
        }
        // OpenZFS's errata 4. A new pool has either both or none.
        if parent.is_some() && !tree.meta.services.feature_enabled(features::BOOKMARK_V2) {
            return Err(DslError::NeedsFeature(features::BOOKMARK_V2));
        }
        let (with, facts) = match (&self.root, above) {
            (Some(root), _) => (root.key(), KeyFacts { suite: suite.number(), ..root.facts() }),
            (None, Some(above)) => (tree.keystore.get(above.root).ok_or(DslError::NoKey)?, KeyFacts { suite: suite.number(), ..above }),
            (None, None) => return Err(DslError::BadValue),
        };
        let key = Arc::new(DataKey::generate(suite).map_err(failed)?);
        let wrapped = WrappedKey::seal(&key, &with, random::bytes().map_err(failed)?).map_err(failed)?;
        Ok(Some(NewKeys { key, wrapped, facts, with }))
    }
}

/// Takes a property out of a list, and gives its number.
pub(super) fn number(properties: &mut Vec<(String, String)>, name: &str) -> Result<Option<u64>, DslError> {
    let Some(place) = properties.iter().position(|(own, _)| own == name) else { return Ok(None) };
    let (_, text) = properties.remove(place);
    let Prop::Native(desc) = table::find(name)? else { return Err(DslError::BadProperty) };
    match desc.parse(&text)? {
        Parsed::Number(number) => Ok(Some(number)),
        Parsed::Text(_) => Err(DslError::BadValue),
    }
}

/// Keys that a new dataset gets.
pub(super) struct NewKeys {
    key: Arc<DataKey>,
    wrapped: WrappedKey,
    /// Facts of the wrapping; its root is 0 where the dataset is its own.
    facts: KeyFacts,
    with: Arc<WrappingKey>,
}

impl NewKeys {
    /// Most bytes of a block that they encrypt.
    pub(super) fn block_bytes_max(&self) -> u64 {
        self.facts.record_bytes_max() as u64
    }

    /// The dataset's own keys.
    pub(super) fn key(&self) -> Arc<DataKey> {
        self.key.clone()
    }

    /// Gives a new directory the keys; that of a new encryption root is loaded from now on.
    pub(super) fn store(&self, tree: &Tree, dir: &Dir, tx: &Tx) -> Result<(), DslError> {
        let is_root = self.facts.root == 0;
        let facts = KeyFacts { root: if is_root { dir.object } else { self.facts.root }, ..self.facts };
        keys::create(&tree.meta, dir, (&facts, &self.wrapped), tx)?;
        if is_root {
            tree.keystore.load(dir.object, self.with.clone());
        }
        Ok(())
    }
}
