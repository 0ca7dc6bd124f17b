//! Wrapped keys: a dataset's own keys as its key object has them (OpenZFS: `zio_crypt_key_wrap`, `zio_crypt_key_unwrap`).

use crate::aead::Cipher;
use crate::data_key::HMAC_KEY_BYTES;
use crate::{CryptError, DataKey, Iv, Mac, Secret, Suite, WrappingKey};
use zeroize::Zeroizing;

/// Version of keys that are made today. Version 0 authenticates less, and is only read.
pub const KEY_VERSION: u64 = 1;

/// Longest master key.
const MASTER_KEY_BYTES_MAX: usize = 32;

/// Master key and HMAC key of a dataset, encrypted with its wrapping key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    /// Suite of the dataset (`DSL_CRYPTO_SUITE`).
    pub suite: Suite,
    /// Name of the key: clones share it (`DSL_CRYPTO_GUID`).
    pub guid: u64,
    /// 0 or [`KEY_VERSION`] (`DSL_CRYPTO_VERSION`).
    pub version: u64,
    /// Initialization vector of the wrapping (`DSL_CRYPTO_IV`).
    pub iv: Iv,
    /// MAC of both keys, guid, suite and version (`DSL_CRYPTO_MAC`).
    pub mac: Mac,
    /// The master key, zeros behind the suite's length (`DSL_CRYPTO_MASTER_KEY_1`).
    pub master: [u8; MASTER_KEY_BYTES_MAX],
    /// The key of HMACs (`DSL_CRYPTO_HMAC_KEY_1`).
    pub hmac: [u8; HMAC_KEY_BYTES],
}

impl WrappedKey {
    /// Unwraps. Error: `Authentication` when `with` is not the key that it was wrapped with.
    pub fn open(&self, with: &WrappingKey) -> Result<DataKey, CryptError> {
        let master_bytes = self.suite.key_bytes();
        let cipher = Cipher::new(self.suite.wraps_as(), with.bytes())?;
        let sealed = [&self.master[..master_bytes], &self.hmac[..]].concat();
        let mut opened = Ok(());
        let keys = Secret::new(sealed.len(), |plain| opened = cipher.open(&self.iv, &self.aad(), &self.mac, &sealed, plain));
        opened?;
        DataKey::new(self.suite, self.guid, self.version, keys)
    }

    /// Wraps `key` with another key; `iv` must never have been used with it.
    pub fn seal(key: &DataKey, with: &WrappingKey, iv: Iv) -> Result<WrappedKey, CryptError> {
        let (suite, master_bytes) = (key.suite(), key.suite().key_bytes());
        let cipher = Cipher::new(suite.wraps_as(), with.bytes())?;
        let mut keys = Zeroizing::new(key.keys().to_vec());
        let (master, hmac) = ([0; MASTER_KEY_BYTES_MAX], [0; HMAC_KEY_BYTES]);
        let mut wrapped = WrappedKey { suite, guid: key.guid(), version: key.version(), iv, mac: Mac::default(), master, hmac };
        wrapped.mac = cipher.seal(&iv, &wrapped.aad(), &mut keys)?;
        wrapped.master[..master_bytes].copy_from_slice(&keys[..master_bytes]);
        wrapped.hmac.copy_from_slice(&keys[master_bytes..]);
        Ok(wrapped)
    }

    /// Words that are authenticated beside the keys: version 0 only says whose they are.
    fn aad(&self) -> Vec<u8> {
        let words = [self.guid, self.suite.number(), self.version];
        let count = if self.version == 0 { 1 } else { words.len() };
        words[..count].iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}
