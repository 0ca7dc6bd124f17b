//! zstd: a header of compressed length, level and library version, then one frame without magic, size or checksum
//! (OpenZFS: `zfs_zstd.c`, `zstd.h`).

use super::lz4;
use std::cell::RefCell;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, ResetDirective};

/// Bytes in front of the frame: big-endian length, then big-endian level << 24 | version.
const HEADER: usize = 8;
/// The level of plain `zstd`.
pub const ZSTD_LEVEL_DEFAULT: u8 = 3;
/// On-disk number of zstd-fast-1.
const FAST_1: u8 = 103;
/// Library levels of the fast levels after zstd-fast-10.
const FAST_LATER: [u16; 11] = [20, 30, 40, 50, 60, 70, 80, 90, 100, 500, 1000];
/// From this library level and this size a cheap attempt decides whether a costly one is worth it.
const ABORT_LEVEL: i32 = 3;
const ABORT_BYTES: usize = 128 << 10;

thread_local! {
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// The library's level (negative: fast) of an on-disk level, or None when the number is not one (`zio_zstd_levels`).
pub fn library_level(level: u8) -> Option<i32> {
    match level {
        1..=19 => Some(i32::from(level)),
        103..=112 => Some(-i32::from(level - FAST_1 + 1)),
        113..=123 => Some(-i32::from(FAST_LATER[usize::from(level - 113)])),
        _ => None,
    }
}

/// The on-disk level of what follows `zstd-` in a property value.
pub(super) fn level_named(name: &str) -> Option<u8> {
    let wanted = match name.strip_prefix("fast") {
        Some("") => -1,
        Some(fast) => -fast.strip_prefix('-')?.parse::<i32>().ok()?,
        None => name.parse().ok()?,
    };
    (1..=123).find(|&level| library_level(level) == Some(wanted))
}

/// Header in front of a frame (OpenZFS: `zfs_zstdhdr_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the frame.
    pub frame_bytes: u32,
    /// Version of the library that wrote the frame: major × 10000 + minor × 100 + patch.
    pub version: u32,
    /// On-disk level with which the block was compressed.
    pub level: u8,
}

/// The header of a compressed block, or None when it has no valid one.
pub fn header_of(source: &[u8]) -> Option<Header> {
    let [a, b, c, d, raw @ ..] = *source.first_chunk::<HEADER>()?;
    // Writers have disagreed about byte and field order; the version's upper byte is 0 and tells them apart (zfs_get_hdrmeta).
    let (level, [high, middle, low]) = match raw.iter().rev().position(|&byte| byte == 0)? {
        0 => (raw[0], [raw[3], raw[2], raw[1]]),
        1 => (raw[3], [raw[2], raw[1], raw[0]]),
        2 => (raw[0], [raw[1], raw[2], raw[3]]),
        _ => (raw[3], [raw[0], raw[1], raw[2]]),
    };
    let version = u32::from_be_bytes([0, high, middle, low]);
    library_level(level).map(|_| Header { frame_bytes: u32::from_be_bytes([a, b, c, d]), version, level })
}

/// The on-disk level with which a block was compressed, or None when it has no valid header.
pub fn level_of(source: &[u8]) -> Option<u8> {
    header_of(source).map(|header| header.level)
}

fn new_compressor() -> Option<CCtx<'static>> {
    let mut context = CCtx::try_create()?;
    for parameter in [CParameter::Format(FrameFormat::Magicless), CParameter::ChecksumFlag(false), CParameter::ContentSizeFlag(false)] {
        context.set_parameter(parameter).ok()?;
    }
    Some(context)
}

fn new_decompressor() -> Option<DCtx<'static>> {
    let mut context = DCtx::try_create()?;
    context.set_parameter(DParameter::Format(FrameFormat::Magicless)).ok()?;
    Some(context)
}

fn frame(library: i32, source: &[u8], target: &mut [u8]) -> Option<usize> {
    COMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = new_compressor();
        }
        let context = slot.as_mut()?;
        context.set_parameter(CParameter::CompressionLevel(library)).ok()?;
        let done = context.compress2(target, source);
        if done.is_err() {
            // Too little room is the common failure; it leaves the context in the middle of a frame.
            context.reset(ResetDirective::SessionOnly).ok()?;
        }
        done.ok()
    })
}

/// Compresses a block, and returns the bytes written; None when the result does not fit or the level is not one.
pub(super) fn compress(level: u8, source: &[u8], target: &mut [u8]) -> Option<usize> {
    let level = if matches!(level, 0 | 255) { ZSTD_LEVEL_DEFAULT } else { level };
    let library = library_level(level)?;
    if target.len() < HEADER {
        return None;
    }
    if library >= ABORT_LEVEL && source.len() >= ABORT_BYTES && lz4::compress(source, target).is_none() {
        frame(1, source, &mut target[HEADER..])?;
    }
    let length = frame(library, source, &mut target[HEADER..])?;
    target[..4].copy_from_slice(&u32::try_from(length).ok()?.to_be_bytes());
    target[4..HEADER].copy_from_slice(&(u32::from(level) << 24 | zstd_safe::version_number()).to_be_bytes());
    Some(HEADER + length)
}

/// Decompresses the whole of `target`; None when the stream is malformed.
pub(super) fn decompress(source: &[u8], target: &mut [u8]) -> Option<()> {
    level_of(source)?;
    let (prefix, _) = source.split_first_chunk::<4>()?;
    let body = source.get(HEADER..)?.get(..usize::try_from(u32::from_be_bytes(*prefix)).ok()?)?;
    let length = DECOMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = new_decompressor();
        }
        slot.as_mut()?.decompress(target, body).ok()
    })?;
    (length == target.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, `zdb -Z` misleads whoever looks for the level or the library that wrote a block, on machines of either byte order.
    #[test]
    fn headers_of_every_writer_are_read() {
        let found = |raw: [u8; 4]| header_of(&[&[0, 0, 1, 2][..], &raw[..]].concat());
        let wanted = Some(Header { frame_bytes: 258, version: 10_405, level: 3 });
        for raw in [[3, 0, 0x28, 0xA5], [0, 0x28, 0xA5, 3], [3, 0xA5, 0x28, 0], [0xA5, 0x28, 0, 3]] {
            assert_eq!(found(raw), wanted, "{raw:x?}");
        }
        assert_eq!((found([20, 0, 0x28, 0xA5]), found([1, 1, 1, 1]), header_of(&[0; 7])), (None, None, None));
        let mut packed = [0; 64];
        let length = compress(7, &[7; 512], &mut packed).unwrap();
        let header = header_of(&packed).unwrap();
        assert_eq!((header.frame_bytes as usize, header.version, header.level), (length - HEADER, zstd_safe::version_number(), 7));
    }
}
