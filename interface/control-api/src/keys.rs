//! Requests about the keys of encrypted datasets.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use zeroize::{Zeroize, Zeroizing};

/// Bytes of a user's key, which are wiped when they go.
pub type KeyBytes = Zeroizing<Vec<u8>>;

/// A user's key, its bytes in hexadecimal: those of `keyformat=raw`, digits of `keyformat=hex`, or a passphrase. It is shown to nobody.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct UserKey(String);

impl UserKey {
    /// A key of these bytes.
    pub fn new(bytes: &[u8]) -> UserKey {
        UserKey(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The bytes; None when they are not written in hexadecimal.
    pub fn bytes(&self) -> Option<KeyBytes> {
        let (pairs, rest) = self.0.as_bytes().as_chunks::<2>();
        let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
        // All the room at once: what grows leaves copies behind.
        let mut bytes: KeyBytes = Zeroizing::new(Vec::with_capacity(pairs.len()));
        for [high, low] in pairs {
            bytes.push(value(*high)? << 4 | value(*low)?);
        }
        rest.is_empty().then_some(bytes)
    }
}

impl Drop for UserKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserKey(…)")
    }
}

/// `zfs load-key`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeyLoad {
    /// Name of the encryption root.
    pub name: String,
    /// Key that the dataset's own are wrapped with.
    pub key: UserKey,
    /// `-n`: only look whether it is the right one.
    #[serde(default)]
    pub dry_run: bool,
}

/// `zfs unload-key`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeyUnload {
    /// Name of the encryption root.
    pub name: String,
}

/// `zfs change-key`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeyChange {
    /// Name of the dataset.
    pub name: String,
    /// `-o`: properties of the new key.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// The new key; None for that of the encryption root above (`-i`).
    #[serde(default)]
    pub key: Option<UserKey>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, keys are in logs; or no key of raw bytes gets to the daemon as it was given.
    #[test]
    fn keys_are_not_shown_and_any_byte_goes_over() {
        let bytes: Vec<u8> = (0..=255).collect();
        let key = UserKey::new(&bytes);
        assert_eq!(key.bytes(), Some(KeyBytes::new(bytes)));
        let request = KeyLoad { name: "tank/secret".to_string(), key, dry_run: false };
        let shown = format!("{request:?}");
        assert!(shown.contains("UserKey(…)") && !shown.contains("0102"), "{shown}");
        assert_eq!((UserKey("abc".to_string()).bytes(), UserKey("xy".to_string()).bytes()), (None, None));
    }
}
