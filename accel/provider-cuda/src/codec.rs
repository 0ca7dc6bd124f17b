//! gzip and zstd on the GPU: what a library of NVIDIA's (nvCOMP) does of them, and for which kinds and levels it is used.
//!
//! The library compresses to raw deflate and to ordinary zstd frames, and takes these; our kernels put what ZFS stores around them
//! (`stream_wrap`, `stream_unwrap`). A block is one chunk of the library's, the blocks of a wave are a batch.

use dpusm::{Feature, Sizes};
use ondisk::Compression;

/// Largest block, as in the on-disk format.
pub(crate) const BLOCK_BYTES_MAX: usize = 16 << 20;
/// The first and last zstd levels, in their on-disk numbers, of what is offered by itself: 1 to 19 in three parts, and the fast ones. All are the same here, and
/// not on the host: a range is compared with it at its quickest level.
const ZSTD_LEVELS: [(u8, u8); 4] = [(1, 2), (3, 9), (10, 19), (103, 123)];
/// The version of zstd that the header of a block names. Readers find the order of its fields by it (its upper byte is zero), and
/// nothing else; nvCOMP says of no version that its frames are of it, so this is the one that software writes.
const ZSTD_VERSION: u32 = 10507;

/// Work of a library on the blocks of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Codec {
    /// Compresses to raw deflate.
    Deflate {
        /// nvCOMP's number, of 0 (fastest) to 5 (smallest).
        algorithm: u8,
    },
    /// Decompresses raw deflate.
    Inflate,
    /// Compresses to frames of zstd.
    ZstdPack,
    /// Decompresses frames of zstd.
    ZstdUnpack,
}

impl Codec {
    /// True when it compresses.
    pub fn packs(self) -> bool {
        matches!(self, Codec::Deflate { .. } | Codec::ZstdPack)
    }

    /// True for raw deflate, around which zlib has the block's Adler-32.
    pub fn is_deflate(self) -> bool {
        matches!(self, Codec::Deflate { .. } | Codec::Inflate)
    }
}

/// Number of the blocks of a batch, and their bytes when they are not compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Work that is done on them.
    pub codec: Codec,
    /// Number of blocks.
    pub count: usize,
    /// Bytes of the largest.
    pub bytes_max: usize,
    /// Bytes of all together.
    pub bytes_total: usize,
}

/// A batch on its way. All addresses are of device memory: tables with an entry for each block, in the same order.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// Blocks of the batch.
    pub chunks: Chunks,
    /// Addresses of the bytes that are read.
    pub sources: u64,
    /// Lengths of the bytes that are read, 64 bits each.
    pub source_bytes: u64,
    /// Addresses of the bytes that are written.
    pub targets: u64,
    /// Lengths of the room there when decompressing, in bytes, 64 bits each.
    pub target_rooms: u64,
    /// Address for the numbers of bytes that were written, 64 bits each.
    pub made: u64,
    /// Address for the status of each, 32 bits: 0 when it is good.
    pub statuses: u64,
    /// Memory for the library.
    pub temp: u64,
    /// Bytes of `temp`, as many as it wants for these blocks.
    pub temp_bytes: usize,
}

/// The level of gzip, 1 to 9; None for other kinds.
fn gzip_level(kind: Compression) -> Option<u8> {
    (Compression::GZIP_1.0..=Compression::GZIP_9.0).contains(&kind.0).then(|| kind.0 - Compression::GZIP_1.0 + 1)
}

/// Codec that compresses to a kind; None when that is not gzip or zstd.
///
/// nvCOMP's header compares the size of what its algorithms make with zlib's: 2 is below zlib's level 1, 4 below its level 6, 5 is
/// the smallest there is; 1 is larger than level 1, and nobody gets less than was asked for. zstd has no levels there.
pub(crate) fn packer(kind: Compression) -> Option<Codec> {
    match gzip_level(kind) {
        Some(..=3) => Some(Codec::Deflate { algorithm: 2 }),
        Some(4..=6) => Some(Codec::Deflate { algorithm: 4 }),
        Some(_) => Some(Codec::Deflate { algorithm: 5 }),
        None => (kind == Compression::ZSTD).then_some(Codec::ZstdPack),
    }
}

/// Codec that decompresses a kind; None when that is not gzip or zstd.
pub(crate) fn unpacker(kind: Compression) -> Option<Codec> {
    match kind {
        Compression::ZSTD => Some(Codec::ZstdUnpack),
        _ => gzip_level(kind).map(|_| Codec::Inflate),
    }
}

/// Word that a compressed block begins with: the header of zlib with its hint at the level, or the level of zstd and its version.
pub(crate) fn word(kind: Compression, level: u8) -> u64 {
    match gzip_level(kind) {
        Some(1) => 0x7801,
        Some(2..=5) => 0x785E,
        Some(6) => 0x789C,
        Some(_) => 0x78DA,
        None => {
            let level = if matches!(level, 0 | 255) { kernels::compress::ZSTD_LEVEL_DEFAULT } else { level };
            u64::from(u32::from(level) << 24 | ZSTD_VERSION)
        }
    }
}

/// Features of gzip and zstd, and the codec of each.
pub(crate) fn features() -> Vec<(Feature, Codec)> {
    let mut list = Vec::new();
    for kind in kernels::compress::COMPRESSIONS {
        let levels: &[(u8, u8)] = if kind == Compression::ZSTD { &ZSTD_LEVELS } else { &[(0, 0)] };
        let pack = |&(level_min, level_max)| Feature::Compress { kind, level_min, level_max };
        list.extend(packer(kind).into_iter().flat_map(|codec| levels.iter().map(move |range| (pack(range), codec))));
        list.extend(unpacker(kind).map(|codec| (Feature::Decompress { kind }, codec)));
    }
    list
}

/// The blocks that ZFS has, as far as `offered` admits them.
pub(crate) fn sizes(offered: Sizes) -> Sizes {
    const SECTOR_BYTES: usize = 512;
    let (min_bytes, max_bytes) = (offered.min_bytes.max(SECTOR_BYTES), offered.max_bytes.min(BLOCK_BYTES_MAX));
    Sizes { min_bytes, max_bytes, ..offered }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of a GPU and of software must look alike to whoever reads the level in them.
    #[test]
    fn headers_are_those_of_software() {
        for level in [0, 1, 3, 19, 103, 123] {
            let mut out = vec![0; 4096];
            kernels::compress(Compression::ZSTD, level, &[7; 4096], &mut out).unwrap();
            assert_eq!(out[4..8], (word(Compression::ZSTD, level) as u32).to_be_bytes());
        }
        for kind in kernels::compress::COMPRESSIONS.into_iter().filter(|kind| gzip_level(*kind).is_some()) {
            let header = word(kind, 0) as u16;
            let mut out = vec![0; 4096];
            kernels::compress(kind, 0, &[7; 4096], &mut out).unwrap();
            assert!(header.is_multiple_of(31) && header >> 8 == u16::from(out[0]), "{kind}");
        }
    }
}
