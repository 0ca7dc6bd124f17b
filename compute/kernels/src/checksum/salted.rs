//! Checksums that are keyed with a salt of the pool, so that nobody who does not know it can make blocks whose checksums agree
//! (OpenZFS: `skein_zfs.c`, `edonr_zfs.c`, `blake3_zfs.c`).

use super::edonr::{EdonR, HASH_BYTES};
use super::skein::Skein;
use ondisk::Checksum;

/// Bytes of a salt (OpenZFS: `zio_cksum_salt_t`).
pub const SALT_BYTES: usize = 32;

/// True for the algorithms that are keyed with the pool's salt (OpenZFS: `ZCHECKSUM_FLAG_SALTED`).
pub fn needs_salt(kind: Checksum) -> bool {
    matches!(kind, Checksum::SKEIN | Checksum::EDONR | Checksum::BLAKE3)
}

/// A pool's salt, with what the algorithms make of it once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salt {
    bytes: [u8; SALT_BYTES],
    skein: Skein,
    edonr: EdonR,
}

impl Salt {
    /// The salt with these bytes.
    pub fn new(bytes: [u8; SALT_BYTES]) -> Salt {
        // One whole block before the data: the hash of the salt, and the hash of that.
        let first = EdonR::hash(&bytes);
        let mut edonr = EdonR::new();
        edonr.update(&first);
        edonr.update(&EdonR::hash(&first));
        Salt { bytes, skein: Skein::keyed(&bytes), edonr }
    }

    /// The salt as the pool keeps it.
    pub fn bytes(&self) -> &[u8; SALT_BYTES] {
        &self.bytes
    }

    /// The hash of `data`, the concatenation of its slices; None for an algorithm without a salt.
    pub(super) fn hash(&self, kind: Checksum, data: &[&[u8]]) -> Option<[u8; 32]> {
        match kind {
            Checksum::SKEIN => {
                let mut message = self.skein.clone();
                data.iter().for_each(|part| message.update(part));
                Some(message.finish())
            }
            Checksum::EDONR => {
                let mut message = self.edonr.clone();
                data.iter().for_each(|part| message.update(part));
                let hash: [u8; HASH_BYTES] = message.finish();
                hash.first_chunk().copied()
            }
            Checksum::BLAKE3 => {
                let mut message = blake3::Hasher::new_keyed(&self.bytes);
                data.iter().for_each(|part| {
                    message.update(part);
                });
                Some(*message.finalize().as_bytes())
            }
            _ => None,
        }
    }
}
