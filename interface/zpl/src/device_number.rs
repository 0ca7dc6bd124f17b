//! Device numbers of special files: as stored, and as the kernel passes them.

/// Encoding of a stored device number in the kernel's 32 bits (`new_encode_dev`).
pub(crate) fn encode_device(stored: u64) -> u32 {
    let (major, minor) = ((stored >> 20) as u32 & 0xfff, stored as u32 & 0xf_ffff);
    (minor & 0xff) | major << 8 | (minor & !0xff) << 12
}

/// Stored device number of the kernel's 32-bit encoding.
pub(crate) fn decode_device(encoded: u32) -> u64 {
    let (major, minor) = (u64::from(encoded >> 8 & 0xfff), u64::from(encoded & 0xff | encoded >> 12 & 0xf_ff00));
    major << 20 | minor
}
