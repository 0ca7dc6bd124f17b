//! Big-endian fields of headers, command descriptor blocks and parameter lists: what is missing reads as zero, so no length panics.

/// The field of `width` bytes (8 at most) at `at`; bytes beyond the end are zero.
pub(crate) fn field(bytes: &[u8], at: usize, width: usize) -> u64 {
    (at..at + width).fold(0, |value, index| value << 8 | u64::from(bytes.get(index).copied().unwrap_or(0)))
}

/// The byte at `at`.
pub(crate) fn be8(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// The field of two bytes at `at`.
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    field(bytes, at, 2) as u16
}

/// The field of four bytes at `at`.
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    field(bytes, at, 4) as u32
}

/// The field of eight bytes at `at`.
pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    field(bytes, at, 8)
}

/// Overwrites the bytes from `at` on; what does not fit is left out.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    let count = value.len().min(bytes.len().saturating_sub(at));
    if count > 0 {
        bytes[at..at + count].copy_from_slice(&value[..count]);
    }
}
