//! The words of checksums as the eight bytes that they are on devices, in either byte order. It knows no algorithm.

use ondisk::ByteOrder;

/// The eight bytes of a word as a number.
pub(super) fn word(order: ByteOrder, bytes: [u8; 8]) -> u64 {
    match order {
        ByteOrder::Little => u64::from_le_bytes(bytes),
        ByteOrder::Big => u64::from_be_bytes(bytes),
    }
}

/// A number as the eight bytes of a word.
pub(super) fn word_bytes(order: ByteOrder, word: u64) -> [u8; 8] {
    match order {
        ByteOrder::Little => word.to_le_bytes(),
        ByteOrder::Big => word.to_be_bytes(),
    }
}
