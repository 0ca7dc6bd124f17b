//! A dataset's own keys: the master key, which keys of blocks come from, and the key of HMACs (OpenZFS: `zio_crypt_key_t`).

use crate::aead::Cipher;
use crate::salt::SaltInUse;
use crate::{CryptError, KEY_VERSION, Salt, Secret, Suite, random};
use aws_lc_rs::{hkdf, hmac};
use exec::Mutex;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Bytes of an HMAC key.
pub(crate) const HMAC_KEY_BYTES: usize = 64;

/// Keys of blocks that are kept ready, the one used last at the end: a dataset has one for each time that its key was loaded to write.
const CIPHERS_KEPT: usize = 16;

/// Keys of one dataset, and of its clones.
pub struct DataKey {
    suite: Suite,
    guid: u64,
    version: u64,
    keys: Secret,
    kept: Mutex<Vec<(Salt, Arc<Cipher>)>>,
    /// Salt of what is being written.
    in_use: Mutex<SaltInUse>,
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataKey {:#x} ({:?})", self.guid, self.suite)
    }
}

/// Length of what is derived, for the library.
struct Length(usize);
impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl DataKey {
    /// New keys from `keys`: random bytes, first those of the master key, then 64 for HMACs; `guid` is random too.
    ///
    /// Error: `Key` when there are more or fewer bytes.
    pub fn new(suite: Suite, guid: u64, version: u64, keys: Secret) -> Result<DataKey, CryptError> {
        if keys.bytes().len() != DataKey::bytes_of(suite) {
            return Err(CryptError::Key);
        }
        Ok(DataKey { suite, guid, version, keys, kept: Mutex::default(), in_use: Mutex::default() })
    }

    /// New keys for a new dataset, of the system's random bytes (OpenZFS: `zio_crypt_key_init`). Error: `Random`.
    pub fn generate(suite: Suite) -> Result<DataKey, CryptError> {
        let mut filled = Ok(());
        let keys = Secret::new(DataKey::bytes_of(suite), |bytes| filled = random::fill(bytes));
        filled?;
        DataKey::new(suite, u64::from_le_bytes(random::bytes()?), KEY_VERSION, keys)
    }

    /// Salt for one block more (OpenZFS: `zio_crypt_key_get_salt`). Error: `Random`.
    pub(crate) fn salt_to_write(&self) -> Result<Salt, CryptError> {
        self.in_use.lock().take(random::bytes)
    }

    /// Bytes of both keys of a suite together.
    pub fn bytes_of(suite: Suite) -> usize {
        suite.key_bytes() + HMAC_KEY_BYTES
    }

    /// Suite that blocks are encrypted with.
    pub fn suite(&self) -> Suite {
        self.suite
    }
    /// Name of the keys.
    pub fn guid(&self) -> u64 {
        self.guid
    }
    /// Version of the keys: 0 or [`crate::KEY_VERSION`].
    pub fn version(&self) -> u64 {
        self.version
    }
    pub(crate) fn keys(&self) -> &[u8] {
        self.keys.bytes()
    }

    /// The cipher of blocks with this salt: HKDF-SHA-512 of the master key, with the salt as its info.
    pub(crate) fn cipher(&self, salt: &Salt) -> Result<Arc<Cipher>, CryptError> {
        if let Some(cipher) = self.kept(salt) {
            return Ok(cipher);
        }
        let mut key = Zeroizing::new(vec![0u8; self.suite.key_bytes()]);
        let master = hkdf::Salt::new(hkdf::HKDF_SHA512, &[]).extract(&self.keys()[..self.suite.key_bytes()]);
        let info: [&[u8]; 1] = [salt];
        let derived = master.expand(&info, Length(key.len())).and_then(|derived| derived.fill(&mut key));
        derived.map_err(|_| CryptError::Key)?;
        let cipher = Arc::new(Cipher::new(self.suite, &key)?);
        let mut kept = self.kept.lock();
        if kept.len() == CIPHERS_KEPT {
            kept.remove(0);
        }
        kept.push((*salt, cipher.clone()));
        Ok(cipher)
    }

    fn kept(&self, salt: &Salt) -> Option<Arc<Cipher>> {
        let mut kept = self.kept.lock();
        let place = kept.iter().position(|(own, _)| own == salt)?;
        kept[place..].rotate_left(1);
        kept.last().map(|(_, cipher)| cipher.clone())
    }

    /// HMAC-SHA-512 over the parts, one after another.
    pub(crate) fn hmac(&self, parts: &[&[u8]]) -> [u8; 64] {
        let key = hmac::Key::new(hmac::HMAC_SHA512, &self.keys()[self.suite.key_bytes()..]);
        let mut context = hmac::Context::with_key(&key);
        parts.iter().for_each(|part| context.update(part));
        let mut sum = [0; 64];
        sum.copy_from_slice(context.sign().as_ref());
        sum
    }
}
