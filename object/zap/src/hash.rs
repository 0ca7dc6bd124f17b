//! The hash that spreads names over a ZAP: CRC-64 (ECMA polynomial, reflected) seeded with the object's salt.
//!
//! Only the top 28 bits (48 with [`crate::ZapFlags::HASH64`]) are kept, so that a cursor fits hash and collision
//! differentiator into 64 bits (OpenZFS: `zap_hash`, `zap_hashbits`).

/// The reflected ECMA-182 polynomial (OpenZFS: `ZFS_CRC64_POLY`).
const POLYNOMIAL: u64 = 0xC96C_5795_D787_0F42;

const TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0u64; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u64;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (if value & 1 == 1 { POLYNOMIAL } else { 0 });
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

/// One step of the CRC.
fn step(hash: u64, byte: u8) -> u64 {
    (hash >> 8) ^ TABLE[(hash as u8 ^ byte) as usize]
}

/// The hash of a byte string, before masking.
pub(crate) fn hash_bytes(salt: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(salt, |hash, &byte| step(hash, byte))
}

/// The hash of a key of 64-bit words, before masking: each word's bytes from the least significant on.
pub(crate) fn hash_words(salt: u64, words: &[u64]) -> u64 {
    words.iter().fold(salt, |hash, word| hash_bytes(hash, &word.to_le_bytes()))
}

/// Keeps the top `bits` bits.
pub(crate) fn mask(hash: u64, bits: u32) -> u64 {
    hash & !((1u64 << (64 - bits)) - 1)
}

/// The top `bits` bits as an index (OpenZFS: `ZAP_HASH_IDX`).
pub(crate) fn index(hash: u64, bits: u32) -> u64 {
    if bits == 0 { 0 } else { hash >> (64 - bits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wrong table scatters names where OpenZFS does not look: every file of a directory would be lost to it.
    #[test]
    fn table_matches_the_published_polynomial() {
        assert_eq!(TABLE[128], POLYNOMIAL);
        assert_eq!(TABLE[0], 0);
        // CRC-64/XZ of "123456789" uses the same table with inverted start and end.
        assert_eq!(!hash_bytes(!0, b"123456789"), 0x995D_C9BB_DF19_39FA);
    }

    /// Cursor offsets handed to programs rely on exactly these bits.
    #[test]
    fn mask_keeps_the_high_bits() {
        assert_eq!(mask(u64::MAX, 28), 0xFFFF_FFF0_0000_0000);
        assert_eq!(mask(u64::MAX, 48), 0xFFFF_FFFF_FFFF_0000);
        assert_eq!(index(0x8000_0000_0000_0000, 1), 1);
        assert_eq!(index(u64::MAX, 0), 0);
    }
}
