//! lz4: a big-endian 32-bit length, then one LZ4 block (OpenZFS: `lz4_zfs.c`), written and read by liblz4.
#![allow(unsafe_code, reason = "calls into liblz4")]

use lz4_sys::{LZ4_compress_default, LZ4_decompress_safe};

const PREFIX: usize = 4;

/// Compresses a block, and returns the bytes written; None when the result does not fit.
pub(super) fn compress(source: &[u8], target: &mut [u8]) -> Option<usize> {
    let (prefix, body) = target.split_at_mut_checked(PREFIX)?;
    let (source_bytes, body_bytes) = (i32::try_from(source.len()).ok()?, i32::try_from(body.len()).ok()?);
    // SAFETY: both pointers are valid for the lengths passed with them; the library writes at most `body_bytes`.
    let length = unsafe { LZ4_compress_default(source.as_ptr().cast(), body.as_mut_ptr().cast(), source_bytes, body_bytes) };
    if length <= 0 {
        return None;
    }
    prefix.copy_from_slice(&length.to_be_bytes());
    Some(PREFIX + length as usize)
}

/// Decompresses the whole of `target`; None when the stream is malformed.
pub(super) fn decompress(source: &[u8], target: &mut [u8]) -> Option<()> {
    let (prefix, body) = source.split_first_chunk::<PREFIX>()?;
    let body = body.get(..usize::try_from(u32::from_be_bytes(*prefix)).ok()?)?;
    let (body_bytes, target_bytes) = (i32::try_from(body.len()).ok()?, i32::try_from(target.len()).ok()?);
    // SAFETY: both pointers are valid for the lengths passed with them; the `safe` decoder stays within both on any input.
    let length = unsafe { LZ4_decompress_safe(body.as_ptr().cast(), target.as_mut_ptr().cast(), body_bytes, target_bytes) };
    (length == target_bytes).then_some(())
}
