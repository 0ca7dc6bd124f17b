//! Block pointers as MACs see them: what stays when a block is stored elsewhere (OpenZFS: `zio_crypt_bp_zero_nonportable_blkprop`).

use ondisk::BlockPtr;

const PROPERTIES: usize = 6;

const fn bits(low: u32, count: u32) -> u64 {
    ((1 << count) - 1) << low
}
/// Checksum and dedup: the pool's affair.
const NEVER: u64 = bits(40, 8) | bits(62, 1);
/// Physical size, compression and byte order: may change with the pool where blocks of pointers are concerned.
const NOT_OF_INDIRECT: u64 = bits(16, 16) | bits(32, 7) | bits(63, 1);

/// Appends the form of `bp` for keys of `version`: properties, MAC and, from version 1 on, a word of zeros.
pub(crate) fn append(bp: &BlockPtr, version: u64, out: &mut Vec<u8>) {
    let mask = if bp.level() > 0 { NEVER | NOT_OF_INDIRECT } else { NEVER };
    let properties = if bp.is_hole() { 0 } else { bp.0[PROPERTIES] & !mask };
    out.extend(properties.to_le_bytes());
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
