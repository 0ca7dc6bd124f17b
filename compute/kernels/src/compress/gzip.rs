//! gzip-1…9: zlib streams (OpenZFS: `gzip.c`), written and read by libdeflate. The level is part of the kind's number.

use libdeflater::{CompressionLvl, Compressor, Decompressor};
use std::cell::RefCell;

/// The numbers of gzip-1 to gzip-9.
pub(super) const LEVELS: std::ops::RangeInclusive<u8> = 5..=13;

thread_local! {
    static COMPRESSORS: RefCell<[Option<Compressor>; 9]> = const { RefCell::new([const { None }; 9]) };
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
}

/// Compresses a block, and returns the bytes written; None when the result does not fit.
pub(super) fn compress(number: u8, source: &[u8], target: &mut [u8]) -> Option<usize> {
    let level = number.checked_sub(*LEVELS.start())?;
    COMPRESSORS.with_borrow_mut(|compressors| {
        let slot = compressors.get_mut(usize::from(level))?;
        if slot.is_none() {
            *slot = Some(Compressor::new(CompressionLvl::new(i32::from(level) + 1).ok()?));
        }
        slot.as_mut()?.zlib_compress(source, target).ok()
    })
}

/// Decompresses the whole of `target`; None when the stream is malformed.
pub(super) fn decompress(source: &[u8], target: &mut [u8]) -> Option<()> {
    let length = DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.zlib_decompress(source, target)).ok()?;
    (length == target.len()).then_some(())
}
