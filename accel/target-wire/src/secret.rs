//! The shared secret, and how each side proves that it has it: HMAC-SHA256 over what both said in the handshake.
//!
//! Each side chooses a nonce, and the proof of one side is none of the other's, so nothing that was heard can be said again. The
//! secret itself never crosses the link. Frames after the handshake are under a CRC, not under a MAC: the link has to be one on which
//! nobody else can write (a network of its own, or a tunnel).

use service::trust::{self, Distrust};
use sha2::{Digest, Sha256};
use std::fmt;

/// Shortest secret, in bytes.
pub const SECRET_BYTES_MIN: usize = 16;
/// Bytes of a block of SHA-256.
const BLOCK_BYTES: usize = 64;

/// A random number that is used once.
pub type Nonce = [u8; 32];

/// Side that proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The host.
    Host,
    /// The target.
    Target,
}

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

    /// Proof that only a side that has the secret can give, for the messages of the handshake so far.
    pub fn proof(&self, side: Side, hello: &[u8], challenge: &[u8]) -> [u8; 32] {
        let label: &[u8] = if side == Side::Host { b"zirconia-target 1 host" } else { b"zirconia-target 1 target" };
        let lengths = [label.len() as u64, hello.len() as u64, challenge.len() as u64].map(u64::to_le_bytes).concat();
        hmac_sha256(&self.0, &[&lengths, label, hello, challenge])
    }

    /// True when a proof is right; takes as long whatever is wrong with it.
    pub fn accepts(&self, proof: &[u8; 32], side: Side, hello: &[u8], challenge: &[u8]) -> bool {
        let own = self.proof(side, hello, challenge);
        own.iter().zip(proof).fold(0, |differ, (left, right)| differ | (left ^ right)) == 0
    }
}

/// HMAC-SHA256 (RFC 2104) of `parts` one after the other.
pub fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
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

    /// Somebody who heard a handshake could repeat it, or turn the host's own proof against it.
    #[test]
    fn a_proof_holds_for_one_side_and_one_handshake() {
        let secret = Secret::new(b"a secret that is long enough").unwrap();
        let proof = secret.proof(Side::Host, b"hello", b"challenge");
        assert!(secret.accepts(&proof, Side::Host, b"hello", b"challenge"));
        assert!(!secret.accepts(&proof, Side::Target, b"hello", b"challenge"));
        assert!(!secret.accepts(&proof, Side::Host, b"hello", b"challengf"));
        assert!(!secret.accepts(&proof, Side::Host, b"helloc", b"hallenge"));
        assert!(!Secret::new(b"another secret, long enough").unwrap().accepts(&proof, Side::Host, b"hello", b"challenge"));
        assert!(matches!(Secret::new(b"too short"), Err(SecretError::Short)));
    }
}
