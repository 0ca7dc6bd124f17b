//! Block pointers as MACs see them: what stays when a block is stored elsewhere (OpenZFS: `zio_crypt_bp_zero_nonportable_blkprop`).

use ondisk::BlockPtr;

const PROPERTIES: usize = 6;

const fn bits(low: u32, count: u32) -> u64 {
    ((1 << count) - 1) << low
}
/// Checksum and dedup: the pool's affair.
const NEVER: u64 = bits(40, 8) | bits(62, 1);
/// Physical size.
const SIZE: u64 = bits(16, 16);
/// Physical size, compression and byte order: may change with the pool where blocks of pointers are concerned.
const NOT_OF_INDIRECT: u64 = SIZE | bits(32, 7) | bits(63, 1);

/// Appends the form of `bp` for keys of `version`: properties, MAC and, from version 1 on, a word of zeros.
pub(crate) fn append(bp: &BlockPtr, version: u64, out: &mut Vec<u8>) {
    let mask = match version {
        // Of holes too, and for all levels alike.
        0 => NEVER | SIZE,
        _ if bp.is_hole() => u64::MAX,
        _ if bp.level() > 0 => NEVER | NOT_OF_INDIRECT,
        _ => NEVER,
    };
    out.extend((bp.0[PROPERTIES] & !mask).to_le_bytes());
    out.extend(bp.mac());
    if version > 0 {
        out.extend([0; 8]);
    }
}

/// Appends the forms of pointers that lie one after another in `raw`, whole ones only.
pub(crate) fn append_all(raw: &[u8], is_little: bool, version: u64, out: &mut Vec<u8>) {
    for bytes in raw.as_chunks::<{ BlockPtr::BYTES }>().0 {
        append(&BlockPtr::decode(bytes, is_little), version, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(bp: &BlockPtr, version: u64) -> u64 {
        let mut form = Vec::new();
        append(bp, version, &mut form);
        assert_eq!(form.len(), if version == 0 { 24 } else { 32 });
        let (words, _) = form.as_chunks::<8>();
        u64::from_le_bytes(words[0])
    }

    /// If this fails, whoever changes what a pointer says of its block changes what is read; or datasets with keys of the first version cannot be read.
    #[test]
    fn what_is_authenticated_of_pointers_is_openzfs_s() {
        // Every bit but those of an embedded block and of the level.
        let mut bp = BlockPtr::HOLE;
        bp.0[0] = 1;
        bp.0[PROPERTIES] = !(1 << 39 | 0x1F << 56);
        let kept = bp.0[PROPERTIES];
        let (checksum, dedup, size): (u64, u64, u64) = (0xFF << 40, 1 << 62, 0xFFFF << 16);
        assert_eq!(properties(&bp, 1), kept & !(checksum | dedup));
        assert_eq!(properties(&bp, 0), kept & !(checksum | dedup | size));
        bp.set_level(2);
        let (compression, order): (u64, u64) = (0x7F << 32, 1 << 63);
        assert_eq!(properties(&bp, 1), (kept | 2 << 56) & !(checksum | dedup | size | compression | order));
        assert_eq!(properties(&bp, 0), (kept | 2 << 56) & !(checksum | dedup | size));
        bp.0[0] = 0;
        assert_eq!((properties(&bp, 1), properties(&bp, 0)), (0, (kept | 2 << 56) & !(checksum | dedup | size)), "a hole with a birth");
    }
}
