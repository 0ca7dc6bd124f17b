//! What makes bytes right: checksums in block pointers and inside blocks, and whether a pointer makes sense at all.

use crate::sum::sum_in;
use crate::{ErrorKind, Landed};
use abd::{Abd, AbdPart};
use kernels::ByteOrder;
use kernels::checksum::{Salt, Verifier, is_supported, needs_salt, verify_embedded, verify_embedded_half};
use ondisk::{BLOCK_BYTES_MAX, BlockPtr, Checksum, Compression, ObjectType, SECTOR_BYTES};

/// Bytes of a gang header (OpenZFS: `SPA_GANGBLOCKSIZE`).
pub(crate) const GANG_HEADER_BYTES: usize = 512;

/// Checks that a pointer read from disk can be followed (OpenZFS: `zfs_blkptr_verify`).
pub(crate) fn check_pointer(bp: &BlockPtr) -> Result<(), ErrorKind> {
    if bp.is_hole() {
        return if bp.lsize() <= BLOCK_BYTES_MAX { Ok(()) } else { Err(ErrorKind::Corrupt) };
    }
    if bp.lsize() > BLOCK_BYTES_MAX {
        return Err(ErrorKind::Corrupt);
    }
    if bp.is_embedded() {
        let fits = bp.psize() <= ondisk::EMBEDDED_PAYLOAD_BYTES && bp.embedded_kind() == ondisk::EmbeddedKind::DATA;
        return if fits { Ok(()) } else { Err(ErrorKind::Corrupt) };
    }
    if bp.psize() > BLOCK_BYTES_MAX || (bp.compression() == Compression::OFF && bp.lsize() != bp.psize()) {
        return Err(ErrorKind::Corrupt);
    }
    if !is_supported(bp.checksum_kind()) && !needs_salt(bp.checksum_kind()) {
        return Err(ErrorKind::Unsupported);
    }
    Ok(())
}

/// True when a block of this kind holds its checksum in itself.
fn is_embedded_kind(kind: Checksum) -> bool {
    matches!(kind, Checksum::LABEL | Checksum::GANG_HEADER | Checksum::ZILOG | Checksum::ZILOG2)
}

/// True when `data` (exactly the physical bytes) is what `bp` points at, in a pool with this salt.
pub(crate) fn block_is_right(salt: Option<&Salt>, bp: &BlockPtr, data: &Abd) -> bool {
    let kind = bp.checksum_kind();
    if is_embedded_kind(kind) {
        let data = data.to_contiguous();
        let Some(bytes) = data.as_contiguous() else { return false };
        let verify = if bp.uses_crypt() { verify_embedded_half } else { verify_embedded };
        return verify(kind, bytes, Verifier::log_block(bp.checksum())).is_ok();
    }
    let Ok(sum) = sum_in(salt, kind, data, ByteOrder::from_little(bp.is_little_endian())) else { return false };
    if bp.uses_crypt() && bp.object_type() != ObjectType::OBJSET {
        return truncated(kind, sum) == [bp.checksum()[0], bp.checksum()[1]];
    }
    sum == bp.checksum()
}

/// True for a block of which nothing can be read without its dataset's key. Of dnodes and of logs everything that others must follow is plain: what is
/// read of them is what is stored, with bonuses and records that are encrypted.
pub fn is_sealed(bp: &BlockPtr) -> bool {
    bp.is_encrypted() && !matches!(bp.object_type(), ObjectType::DNODE | ObjectType::INTENT_LOG)
}

/// The half of a checksum that is stored beside a MAC (OpenZFS: `zio_checksum_handle_crypt`).
pub(crate) fn truncated(kind: Checksum, sum: [u64; 4]) -> [u64; 2] {
    let strong = matches!(kind, Checksum::SHA256 | Checksum::SHA512 | Checksum::SKEIN | Checksum::BLAKE3);
    if strong { [sum[0], sum[1]] } else { [sum[0] ^ sum[2], sum[1] ^ sum[3]] }
}

/// Byte order of the gang header that `bp` points at, if `data` (exactly [`GANG_HEADER_BYTES`]) is one.
pub(crate) fn header_order(bp: &BlockPtr, data: &Abd) -> Option<ByteOrder> {
    let data = data.to_contiguous();
    let verifier = Verifier::gang_header(bp.dva(0), bp.physical_birth());
    verify_embedded(Checksum::GANG_HEADER, data.as_contiguous()?, verifier).ok()
}

/// The logical bytes of a block whose physical bytes are `data`.
pub(crate) fn decompress(bp: &BlockPtr, data: &Abd) -> Result<Abd, ErrorKind> {
    if bp.compression() == Compression::OFF {
        return if data.len() == bp.lsize() { Ok(data.clone()) } else { Err(ErrorKind::Corrupt) };
    }
    let mut target = AbdPart::scratch(bp.lsize());
    decompress_to(bp, data, &mut target)?;
    Ok(target.freeze())
}

/// As [`decompress`], of a compressed block into `target`, which is as long as the logical block.
pub(crate) fn decompress_to(bp: &BlockPtr, data: &Abd, target: &mut [u8]) -> Result<(), ErrorKind> {
    let source = data.to_contiguous();
    let source = source.as_contiguous().ok_or(ErrorKind::Corrupt)?;
    match kernels::decompress(bp.compression(), source, target) {
        Ok(()) => Ok(()),
        Err(kernels::DecompressError::Unsupported(_)) => Err(ErrorKind::Unsupported),
        Err(_) => Err(ErrorKind::Corrupt),
    }
}

/// Decompresses a block whose physical bytes are `data`; the logical bytes go to the target when that is one stable part.
pub(crate) fn decompress_into(bp: &BlockPtr, physical: &Abd, mut near: Vec<AbdPart>) -> Result<Landed, ErrorKind> {
    let fits = |part: &AbdPart| part.len() == bp.lsize() && !part.is_unstable();
    if bp.compression() == Compression::OFF || near.len() != 1 || !fits(&near[0]) {
        return decompress(bp, physical).map(Landed::Elsewhere);
    }
    let mut target = near.swap_remove(0);
    decompress_to(bp, physical, &mut target)?;
    Ok(Landed::InPlace(target.freeze()))
}

/// `bytes` rounded up to whole 512-byte sectors.
pub(crate) fn sectors(bytes: usize) -> usize {
    bytes.next_multiple_of(SECTOR_BYTES)
}
