//! One direction's key, or one of the handshake: AES-256-GCM under nonces that count, as in the Noise Protocol Framework (revision 34, sections 5.1, 11.3, 12.4).
//!
//! Each use takes the next nonce, on both sides, so what is used twice, left out or in another order does not open. After
//! [`KEY_BYTES_MAX`] the key gives way to one that was made with it (section 4.2, `Rekey`): GCM's promise wears off with the bytes under one key.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of a tag.
pub(crate) const TAG_BYTES: usize = 16;
/// Bytes under one key, after which the next one begins: 2^30 blocks, of which an observer has an advantage of 2^-68 at the most.
const KEY_BYTES_MAX: u64 = 16 << 30;

/// Reason why a handshake, or what comes after it, fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseError {
    /// The other side does not have the secret, or somebody changed what it said.
    Secret,
    /// The system has no random numbers, or no nonce is left.
    System,
}

impl fmt::Display for NoiseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoiseError::Secret => "what came was not sealed with the secret",
            NoiseError::System => "the system has no keys",
        })
    }
}
impl std::error::Error for NoiseError {}

/// See the module.
pub(crate) struct Cipher {
    key: LessSafeKey,
    counter: u64,
    /// Bytes that are left to the key.
    left: u64,
    /// Bytes of each key.
    bytes_max: u64,
}

fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn schedule(key: &[u8; 32]) -> Result<LessSafeKey, NoiseError> {
    UnboundKey::new(&AES_256_GCM, key).map(LessSafeKey::new).map_err(|_| NoiseError::System)
}

impl Cipher {
    /// A key that was not used.
    pub(crate) fn new(key: &[u8; 32]) -> Result<Cipher, NoiseError> {
        Cipher::with(key, KEY_BYTES_MAX)
    }

    fn with(key: &[u8; 32], bytes_max: u64) -> Result<Cipher, NoiseError> {
        Ok(Cipher { key: schedule(key)?, counter: 0, left: bytes_max, bytes_max })
    }

    /// The next nonce. The last one is `Rekey`'s, and nobody lives to see it.
    fn next(&mut self) -> Result<Nonce, NoiseError> {
        let own = self.counter;
        self.counter = own.checked_add(1).ok_or(NoiseError::System)?;
        Ok(nonce(own))
    }

    /// Encrypts where the bytes are; the tag, also over `beside`.
    pub(crate) fn seal(&mut self, beside: &[u8], data: &mut [u8]) -> Result<[u8; TAG_BYTES], NoiseError> {
        let nonce = self.next()?;
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(beside), data).map_err(|_| NoiseError::System)?;
        self.used(data.len())?;
        let tag: &[u8] = tag.as_ref();
        tag.try_into().map_err(|_| NoiseError::System)
    }

    /// Decrypts into `plain`, which is as long; when that fails, `plain` holds nothing of use, and nothing opens any more.
    pub(crate) fn open(&mut self, beside: &[u8], tag: &[u8], sealed: &[u8], plain: &mut [u8]) -> Result<(), NoiseError> {
        let nonce = self.next()?;
        self.key.open_separate_gather(nonce, Aad::from(beside), sealed, tag, plain).map_err(|_| NoiseError::Secret)?;
        self.used(sealed.len())
    }

    fn used(&mut self, bytes: usize) -> Result<(), NoiseError> {
        self.left = self.left.saturating_sub(bytes as u64);
        if self.left > 0 {
            return Ok(());
        }
        let mut next = Zeroizing::new([0u8; 32]);
        let _tag = self.key.seal_in_place_separate_tag(nonce(u64::MAX), Aad::empty(), &mut next[..]).map_err(|_| NoiseError::System)?;
        (self.key, self.left) = (schedule(&next)?, self.bytes_max);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(bytes_max: u64) -> (Cipher, Cipher) {
        (Cipher::with(&[7; 32], bytes_max).unwrap(), Cipher::with(&[7; 32], bytes_max).unwrap())
    }

    fn sealed(by: &mut Cipher, text: &[u8]) -> (Vec<u8>, [u8; TAG_BYTES]) {
        let mut data = text.to_vec();
        let tag = by.seal(b"beside", &mut data).unwrap();
        (data, tag)
    }

    /// Both sides change keys at the same byte; if they did not, a long resilver would end with a connection that is lost for good.
    #[test]
    fn keys_change_on_both_sides_at_once() {
        let (mut ours, mut theirs) = pair(1000);
        let (mut first, _) = pair(u64::MAX);
        let mut differ = 0;
        for round in 0..100u8 {
            let text = vec![round; usize::from(round) * 13];
            let (data, tag) = sealed(&mut ours, &text);
            let mut plain = vec![0; data.len()];
            theirs.open(b"beside", &tag, &data, &mut plain).unwrap();
            assert_eq!(plain, text);
            differ += usize::from(sealed(&mut first, &text) != (data, tag));
        }
        assert!(differ > 80, "the key stayed what it was");
    }

    /// Bytes that were heard may be said again, in another order, or left out: nothing of that opens.
    #[test]
    fn nothing_opens_out_of_its_turn() {
        let (mut ours, _) = pair(1 << 20);
        let all: Vec<_> = (0..3u8).map(|number| sealed(&mut ours, &[number; 40])).collect();
        for order in [&[1][..], &[2], &[0, 0], &[0, 2], &[0, 1, 1], &[0, 1, 0]] {
            let (_, mut theirs) = pair(1 << 20);
            let mut plain = [0; 40];
            let (last, before) = order.split_last().unwrap();
            for number in before {
                let (data, tag) = &all[*number];
                theirs.open(b"beside", tag, data, &mut plain).unwrap();
            }
            let (data, tag) = &all[*last];
            assert_eq!(theirs.open(b"beside", tag, data, &mut plain), Err(NoiseError::Secret), "{order:?}");
        }
        let (_, mut theirs) = pair(1 << 20);
        let (data, tag) = &all[0];
        assert_eq!(theirs.open(b"besides", tag, data, &mut [0; 40]), Err(NoiseError::Secret));
    }
}
