//! The logical bytes of a block of which nobody says how it was compressed, by trying everything (OpenZFS: `zdb_decompress_block`).

use ondisk::{BLOCK_BYTES_MAX, Compression, SECTOR_BYTES};

/// Kinds that are tried at every size, in this order. All levels of gzip are read alike.
const KINDS: [Compression; 4] = [Compression::LZ4, Compression::LZJB, Compression::GZIP_1, Compression::ZSTD];

/// Block that something decompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// Logical bytes.
    pub bytes: Vec<u8>,
    /// Kind of compression that gave them.
    pub kind: Compression,
}

/// Unpacks a block of `lsize` logical bytes; where those are as many as `stored` has, the least number above them that any kind gives, up to the
/// largest block, and at last `lsize` itself (OpenZFS does not try that): who knows only the logical size gives it alone, and what follows the block
/// on the device need not go on as LZJB. ZLE fits nearly everything: it is tried after all others, and only with `with_zle`. `trying` hears of each
/// try: the size in bytes, and the kind. LZJB does not tell where a block ends: where the size is not known it gives the beginning.
pub fn unpack(stored: &[u8], lsize: usize, with_zle: bool, trying: &mut dyn FnMut(usize, Compression)) -> Option<Unpacked> {
    let is_known = lsize != stored.len();
    let (least, most) = if is_known { (lsize, lsize) } else { (lsize + SECTOR_BYTES, BLOCK_BYTES_MAX) };
    let mut target = vec![0; most];
    let mut fits = |size: usize, kind: Compression| {
        trying(size, kind);
        if kernels::decompress(kind, stored, &mut target[..size]).is_err() {
            return false;
        }
        // What nothing wrote, but a copy onto itself, is what was there before: here something else.
        let mut other: Vec<u8> = target[..size].iter().map(|byte| !byte).collect();
        kernels::decompress(kind, stored, &mut other).is_ok() && other == target[..size]
    };
    let sizes = |from: usize| (from..=most).step_by(SECTOR_BYTES);
    let given = (!is_known).then_some(lsize);
    let mut found = sizes(least).chain(given).flat_map(|size| KINDS.map(|kind| (size, kind))).find(|&(size, kind)| fits(size, kind));
    if found.is_none() && with_zle {
        found = sizes(lsize).map(|size| (size, Compression::ZLE)).find(|&(size, kind)| fits(size, kind));
    }
    let (size, kind) = found?;
    target.truncate(size);
    Some(Unpacked { bytes: target, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that compress to less than half.
    fn text(bytes: usize) -> Vec<u8> {
        let mut state = 7_u32;
        let mut next = move || {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            b"etao"[(state >> 24) as usize % 4]
        };
        (0..bytes).map(|_| next()).collect()
    }

    fn packed(kind: Compression, text: &[u8]) -> Vec<u8> {
        let mut packed = vec![0; text.len()];
        let length = kernels::compress(kind, 0, text, &mut packed).expect("it compresses");
        packed.truncate(length.next_multiple_of(SECTOR_BYTES));
        packed
    }

    /// If this fails, nobody reads what is left of a file whose block pointers are gone.
    #[test]
    fn blocks_are_unpacked_without_being_told_how() {
        let text = text(16 << 10);
        for kind in KINDS {
            let stored = packed(kind, &text);
            let mut tries = Vec::new();
            let found = unpack(&stored, text.len(), false, &mut |size, kind| tries.push((size, kind)));
            assert_eq!(found, Some(Unpacked { bytes: text.clone(), kind }), "{kind}");
            assert_eq!(tries.last(), Some(&(text.len(), kind)), "{kind}");
            let found = unpack(&stored, stored.len(), false, &mut |_, _| {}).expect("it is found");
            let length = if kind == Compression::LZJB { stored.len() + SECTOR_BYTES } else { text.len() };
            assert_eq!((found.kind, found.bytes == text[..length]), (kind, true), "{kind} of unknown size");
        }
    }

    /// If this fails, a block of LZJB is not found by its logical size alone, because of what lies behind it.
    #[test]
    fn what_follows_a_block_does_not_hide_it() {
        let text = text(64).repeat(16);
        let mut stored = packed(Compression::LZJB, &text);
        assert_eq!(stored.len(), SECTOR_BYTES);
        // Wherever in it a control byte is looked for, one of the next says that a match follows: one that is its own source.
        stored.extend([1_u8, 0, 0, 0].repeat(SECTOR_BYTES / 4));
        assert_eq!(stored.len(), text.len());
        let found = unpack(&stored, text.len(), true, &mut |_, _| {});
        assert_eq!(found, Some(Unpacked { bytes: text, kind: Compression::LZJB }));
    }

    /// If this fails, what is no compressed block at all is shown as one.
    #[test]
    fn zle_is_taken_last_and_only_where_it_may_be() {
        // A token that stands for 192 zeros: a match to what is not there for LZJB, and no header of the others.
        let stored = [255; 512];
        assert_eq!(unpack(&stored, 4096, false, &mut |_, _| {}), None);
        assert_eq!(unpack(&stored, 192 * 512, true, &mut |_, _| {}), Some(Unpacked { bytes: vec![0; 192 * 512], kind: Compression::ZLE }));
        // The other way to fit: a match of LZJB that is its own source.
        let mut copy = [0; 1024];
        copy[0] = 1;
        assert_eq!(unpack(&copy, 512, false, &mut |_, _| {}), None);
        let found = unpack(&packed(Compression::LZ4, &text(4096)), 4096, true, &mut |_, _| {}).expect("it is found");
        assert_eq!(found.kind, Compression::LZ4);
    }
}
