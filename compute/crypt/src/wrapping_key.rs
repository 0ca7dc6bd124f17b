//! Wrapping keys: what users give, as 32 bytes (OpenZFS: `libzfs_crypto.c`, `dsl_wrapping_key_t`).

use crate::{CryptError, Secret};
use aws_lc_rs::pbkdf2::{PBKDF2_HMAC_SHA1, derive};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

/// Bytes of a wrapping key, for every suite.
pub const WRAPPING_KEY_BYTES: usize = 32;
/// Bytes that a passphrase may have.
pub const PASSPHRASE_BYTES: RangeInclusive<usize> = 8..=512;
/// Iterations of PBKDF2 for new passphrases.
pub const PBKDF2_ITERATIONS_DEFAULT: u64 = 350_000;
/// Fewest iterations that may be asked for.
pub const PBKDF2_ITERATIONS_MIN: u64 = 100_000;

/// The key that a dataset's keys are wrapped with.
#[derive(Debug)]
pub struct WrappingKey(Secret);

impl WrappingKey {
    /// A key of `keyformat=raw`. Error: `Key` unless it has 32 bytes.
    pub fn raw(key: &[u8]) -> Result<WrappingKey, CryptError> {
        if key.len() == WRAPPING_KEY_BYTES { Ok(WrappingKey(Secret::copy_of(key))) } else { Err(CryptError::Key) }
    }

    /// A key of `keyformat=hex`. Error: `Key` unless it is 64 hexadecimal digits.
    pub fn hex(digits: &[u8]) -> Result<WrappingKey, CryptError> {
        if digits.len() != 2 * WRAPPING_KEY_BYTES || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(CryptError::Key);
        }
        let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0) as u8;
        let (pairs, _) = digits.as_chunks::<2>();
        Ok(WrappingKey(Secret::new(WRAPPING_KEY_BYTES, |key| {
            for (byte, [high, low]) in key.iter_mut().zip(pairs) {
                *byte = value(*high) << 4 | value(*low);
            }
        })))
    }

    /// The key of a passphrase: PBKDF2 with HMAC-SHA-1, as many times as the dataset says (slow, on purpose).
    ///
    /// Error: `Key` when the passphrase has fewer or more bytes than [`PASSPHRASE_BYTES`], or the count is 0 or above 32 bits. Counts below
    /// [`PBKDF2_ITERATIONS_MIN`] are taken: datasets that were received may have them.
    pub fn passphrase(passphrase: &[u8], salt: u64, iterations: u64) -> Result<WrappingKey, CryptError> {
        let count = u32::try_from(iterations).ok().and_then(NonZeroU32::new).ok_or(CryptError::Key)?;
        if !PASSPHRASE_BYTES.contains(&passphrase.len()) {
            return Err(CryptError::Key);
        }
        Ok(WrappingKey(Secret::new(WRAPPING_KEY_BYTES, |key| {
            derive(PBKDF2_HMAC_SHA1, count, &salt.to_le_bytes(), passphrase, key);
        })))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}
