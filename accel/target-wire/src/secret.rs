//! The shared secret: what a host and its targets know, and nobody else. It never crosses the link.
//!
//! Every connection has keys of its own, which come from it and from what both sides throw away ([`crate::Initiator`]). Who hears a handshake can try guesses
//! at the secret, so it is to be random, not a word.

use service::trust::{self, Distrust};
use sha2::{Digest, Sha256};
use std::fmt;
use zeroize::Zeroizing;

/// Shortest secret, in bytes.
pub const SECRET_BYTES_MIN: usize = 16;
/// Bytes of a block of SHA-256.
const BLOCK_BYTES: usize = 64;

/// Reason why there is no secret.
#[derive(Debug)]
pub enum SecretError {
    /// The file cannot be read.
    Io(std::io::Error),
    /// The secret is shorter than [`SECRET_BYTES_MIN`].
    Short,
    /// Others than this user and root can have written it.
    Distrusted(Distrust),
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretError::Io(error) => write!(f, "the secret cannot be read: {error}"),
            SecretError::Distrusted(why) => write!(f, "the secret is not believed: {why}"),
            SecretError::Short => write!(f, "the secret has fewer than {SECRET_BYTES_MIN} bytes"),
        }
    }
}
impl std::error::Error for SecretError {}

/// Secret that a host and its targets know, and nobody else.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// A secret of these bytes.
    ///
    /// # Errors
    /// `Short`.
    pub fn new(bytes: &[u8]) -> Result<Secret, SecretError> {
        if bytes.len() < SECRET_BYTES_MIN { Err(SecretError::Short) } else { Ok(Secret(bytes.to_vec())) }
    }

    /// The secret in a file: its bytes without white space at the end. Whoever could write the file could let anybody in.
    ///
    /// # Errors
    /// `Io`, `Short`, `Distrusted`.
    pub fn read(path: &std::path::Path) -> Result<Secret, SecretError> {
        let real = trust::file(path).map_err(|why| match why {
            Distrust::Io { error, .. } => SecretError::Io(error),
            other => SecretError::Distrusted(other),
        })?;
        let bytes = std::fs::read(real).map_err(SecretError::Io)?;
        Secret::new(bytes.trim_ascii_end())
    }

    /// The key of the handshake: as long as that wants it, and of no use elsewhere.
    pub(crate) fn psk(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(hmac_sha256(&self.0, &[b"zirconia-target 2 secret"]))
    }
}

/// HMAC-SHA256 (RFC 2104) of `parts` one after the other.
pub(crate) fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut block = [0u8; BLOCK_BYTES];
    if key.len() > BLOCK_BYTES {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let mut inner = Sha256::new();
    inner.update(block.map(|byte| byte ^ 0x36));
    parts.iter().for_each(|part| inner.update(part));
    let mut outer = Sha256::new();
    outer.update(block.map(|byte| byte ^ 0x5C));
    outer.update(inner.finalize());
    outer.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 4231, cases 1, 2 and 6: what every other implementation computes.
    #[test]
    fn the_mac_is_the_standard_one() {
        let cases: [(&[u8], &[u8], &str); 3] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (b"Jefe", b"what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, text, wanted) in cases {
            let (head, tail) = text.split_at(text.len() / 2);
            assert_eq!(hex(&hmac_sha256(key, &[head, tail])), wanted);
        }
    }

    /// A secret of a few letters is guessed in no time by who hears one handshake.
    #[test]
    fn a_short_secret_is_none() {
        assert!(matches!(Secret::new(b"too short"), Err(SecretError::Short)));
        assert!(Secret::new(&[7; SECRET_BYTES_MIN]).is_ok());
    }
}
