//! From logical to physical bytes: holes, compression, embedding, rounding (OpenZFS: `zio_write_compress`).

use crate::dedup::Dedup;
use crate::view::PoolView;
use crate::{ErrorKind, WriteRequest};
use abd::{Abd, AbdPart};
use crypt::Seal;
use ondisk::{BlockPtr, Checksum, Compression, EMBEDDED_PAYLOAD_BYTES, ObjectType};

/// Pass from which on blocks of the syncing txg are rewritten in place (OpenZFS: `zfs_sync_pass_rewrite`).
const PASS_REWRITE: u32 = 2;
/// Pass from which on they are not compressed (OpenZFS: `zfs_sync_pass_dont_compress`).
const PASS_DONT_COMPRESS: u32 = 8;

/// Form that the logical bytes have got.
#[derive(Debug)]
pub(crate) enum Prepared {
    /// Nothing to store: a hole.
    Hole(BlockPtr),
    /// Nothing to store: the bytes are in the pointer.
    Embedded(BlockPtr),
    /// Bytes to store.
    Physical(Abd, Compression),
}

/// True when `request` replaces a block that was written in its own txg. A pointer that was born in it may share an older block.
fn replaces_own(request: &WriteRequest) -> bool {
    !request.previous.is_hole() && request.previous.physical_birth() == request.txg
}

/// True when the block is to be rewritten where it is.
pub(crate) fn rewrites(request: &WriteRequest, psize: usize) -> bool {
    let previous = &request.previous;
    let is_own = !previous.is_embedded() && !previous.is_dedup() && previous.psize() == psize;
    replaces_own(request) && is_own && request.pass >= PASS_REWRITE
}

/// True when the block is the one that it replaces if both have the same checksum: strong, of compressed data of a file or volume (OpenZFS:
/// `dmu_write_policy`, `zio_nop_write`). One that somebody waits for replaces nothing.
pub(crate) fn may_repeat(request: &WriteRequest, (psize, compression): (usize, Compression)) -> bool {
    const STRONG: [Checksum; 5] = [Checksum::SHA256, Checksum::SHA512, Checksum::SKEIN, Checksum::EDONR, Checksum::BLAKE3];
    let previous = &request.previous;
    let is_data = request.level == 0 && !request.object_type.is_metadata() && request.seal.is_none() && !request.can_fail;
    let is_sure = request.compression != Compression::OFF && STRONG.contains(&request.checksum);
    // One that is to be listed has to have an address of its own.
    if !is_data || !is_sure || request.dedup != Dedup::Off || previous.is_hole() || previous.is_embedded() || replaces_own(request) {
        return false;
    }
    let is_plain = !previous.is_gang() && !previous.uses_crypt() && !previous.is_dedup() && previous.is_little_endian();
    let has_sizes = previous.psize() == psize && previous.lsize() == request.lsize() && previous.object_type() == request.object_type;
    let has_forms = previous.checksum_kind() == request.checksum && previous.compression() == compression;
    is_plain && has_sizes && has_forms && previous.dvas().count() == usize::from(request.copies)
}

/// The compression that a request really gets.
pub fn effective_compression(request: &WriteRequest) -> Compression {
    let late = replaces_own(request) && request.pass >= PASS_DONT_COMPRESS;
    if late { Compression::OFF } else { request.compression }
}

/// The level at which a request is compressed, where there are levels.
pub fn effective_level(request: &WriteRequest) -> u8 {
    match (request.compression, request.zstd_level) {
        (Compression::ZSTD, 0 | u8::MAX) => kernels::compress::ZSTD_LEVEL_DEFAULT,
        (_, level) => level,
    }
}

/// Sizes that a pool's vdevs allocate.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    /// Least length in bytes.
    pub least: usize,
    /// Bytes by which lengths differ above that.
    pub step: usize,
}

impl Units {
    /// Units of this view.
    pub fn of(view: &PoolView) -> Units {
        let (least, step) = view.tree.alloc_units();
        Units { least: least as usize, step: step as usize }
    }

    /// Bytes that are stored of a block that was compressed to `length` bytes.
    pub fn physical_bytes(&self, length: usize) -> usize {
        if length > self.least { length.next_multiple_of(self.step) } else { self.least }
    }

    /// Longest useful result of compressing `lsize` bytes: an eighth must be saved, and whole sectors (dRAID: stripes) count; smaller blocks may
    /// still fit into the pointer (OpenZFS: `zio_get_compression_max_size`).
    pub fn compress_limit(&self, compression: Compression, lsize: usize) -> usize {
        let longest = lsize - (lsize >> 3);
        if compression == Compression::ZLE {
            return longest;
        }
        let whole = longest - longest % self.step;
        if whole < self.least { EMBEDDED_PAYLOAD_BYTES } else { whole }
    }
}

/// Turns the request's bytes into what goes to the devices.
pub(crate) fn prepare(view: &PoolView, request: &WriteRequest) -> Result<Prepared, ErrorKind> {
    if request.seal.as_ref().is_some_and(Seal::is_stored) {
        return Ok(Prepared::Physical(request.data.clone(), request.compression));
    }
    let compression = effective_compression(request);
    match compression {
        Compression::OFF => return Ok(Prepared::Physical(request.data.clone(), Compression::OFF)),
        Compression::ON | Compression::INHERIT => return Err(ErrorKind::Unsupported),
        _ if request.data.is_zero() => return Ok(Prepared::Hole(hole(view, request))),
        Compression::EMPTY => return Ok(Prepared::Physical(request.data.clone(), Compression::OFF)),
        _ => {}
    }
    let lsize = request.data.len();
    let units = Units::of(view);
    let limit = units.compress_limit(compression, lsize);
    let mut target = AbdPart::scratch(limit.next_multiple_of(units.step).max(units.least));
    let source = request.data.to_contiguous();
    let source = source.as_contiguous().ok_or(ErrorKind::Corrupt)?;
    let Some(length) = kernels::compress(compression, request.zstd_level, source, &mut target[..limit]) else {
        return Ok(Prepared::Physical(request.data.clone(), Compression::OFF));
    };
    if length <= EMBEDDED_PAYLOAD_BYTES && may_embed(view, request) {
        let (kind, level, txg) = (request.object_type, request.level, request.txg);
        return Ok(Prepared::Embedded(BlockPtr::embedded(&target[..length], lsize, compression, kind, level, txg)));
    }
    let rounded = units.physical_bytes(length);
    if rounded >= lsize {
        return Ok(Prepared::Physical(request.data.clone(), Compression::OFF));
    }
    target[length..rounded].fill(0);
    Ok(Prepared::Physical(target.freeze().slice(0..rounded), compression))
}

/// Bytes of a compressed block as they may be on disk, made once more of those that are read. None where they do not fit; otherwise the checksum says
/// whether it is them: of other levels of zstd, and of accelerators, they may be others.
pub(crate) fn pack_again(bp: &BlockPtr, logical: &Abd) -> Option<Abd> {
    let psize = bp.psize();
    let mut target = AbdPart::scratch(psize);
    let source = logical.to_contiguous();
    let length = kernels::compress(bp.compression(), 0, source.as_contiguous()?, &mut target[..psize])?;
    target[length..psize].fill(0);
    Some(target.freeze())
}

/// True for level-0 blocks whose pointer need not carry a fill count: they may live in the pointer.
pub fn may_embed(view: &PoolView, request: &WriteRequest) -> bool {
    let has_fill = matches!(request.object_type, ObjectType::DNODE | ObjectType::OBJSET);
    request.level == 0 && !has_fill && view.facts.embedded_data && request.seal.is_none()
}

/// The pointer of a block of zeros: it has a birth only when something was there before.
fn hole(view: &PoolView, request: &WriteRequest) -> BlockPtr {
    let mut bp = BlockPtr::HOLE;
    if request.previous.birth().0 != 0 && view.facts.hole_birth {
        bp.set_lsize(request.data.len());
        bp.set_object_type(request.object_type);
        bp.set_level(request.level);
        bp.set_birth(request.txg, request.txg);
    }
    bp
}
