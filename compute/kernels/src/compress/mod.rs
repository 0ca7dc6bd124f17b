//! Compression of blocks in the formats of OpenZFS (`zio_compress.c`): off, lzjb, gzip-1…9, zle, lz4, zstd.
//!
//! A compressed block is padded with zeros to whole sectors before it is written, so every format here knows its own end: lz4 and
//! zstd by a length in front, the others by their bitstream. Contexts of the libraries are kept per thread; nothing else is
//! allocated.

mod gzip;
mod lz4;
mod lzjb;
mod zle;
mod zstd;

pub use zstd::{
    Header as ZstdHeader, ZSTD_LEVEL_DEFAULT, header_of as zstd_header_of, level_of as zstd_level_of, library_level as zstd_library_level,
};

use ondisk::Compression;

/// Every kind that [`compress`] and [`decompress`] know; each gzip level is one, zstd has its levels.
pub const COMPRESSIONS: [Compression; 13] = [
    Compression::LZJB,
    Compression::ZLE,
    Compression::LZ4,
    Compression::GZIP_1,
    Compression::GZIP_2,
    Compression::GZIP_3,
    Compression::GZIP_4,
    Compression::GZIP_5,
    Compression::GZIP_6,
    Compression::GZIP_7,
    Compression::GZIP_8,
    Compression::GZIP_9,
    Compression::ZSTD,
];

/// Reason why a block did not decompress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecompressError {
    /// The algorithm is not one we know.
    Unsupported(Compression),
    /// The bytes are not what this algorithm writes, or give another size than the block's.
    Malformed(Compression),
}

impl std::fmt::Display for DecompressError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DecompressError::Unsupported(kind) => write!(f, "compression algorithm {kind} is not supported"),
            DecompressError::Malformed(kind) => write!(f, "the block is not valid {kind} data of its size"),
        }
    }
}
impl std::error::Error for DecompressError {}

/// Compresses `source` into `target`, whose length is the largest useful result; returns the compressed size in bytes.
///
/// None when the result does not fit, or when `kind` does not compress (`off`, `empty`, `inherit`, `on`, unknown). OpenZFS stores a
/// block compressed only when that saves an eighth (`zio_get_compression_max_size`): the caller says so by the length of `target`.
/// `level` is the on-disk zstd level (0 and 255 mean the default); other kinds ignore it. `target` is scratch when None is returned.
pub fn compress(kind: Compression, level: u8, source: &[u8], target: &mut [u8]) -> Option<usize> {
    match kind {
        Compression::LZJB => lzjb::compress(source, target),
        Compression::ZLE => zle::compress(source, target),
        Compression::LZ4 => lz4::compress(source, target),
        Compression::ZSTD => zstd::compress(level, source, target),
        Compression(number) if gzip::LEVELS.contains(&number) => gzip::compress(number, source, target),
        _ => None,
    }
}

/// Decompresses `source` (padding after the compressed data is ignored) into the whole of `target`.
///
/// # Errors
/// `Malformed` for any input that is not exactly one block of `target`'s size, `Unsupported` for kinds that hold no data or are
/// unknown. `target` is unspecified after an error.
pub fn decompress(kind: Compression, source: &[u8], target: &mut [u8]) -> Result<(), DecompressError> {
    let done = match kind {
        Compression::OFF => source.get(..target.len()).map(|bytes| target.copy_from_slice(bytes)),
        Compression::LZJB => lzjb::decompress(source, target),
        Compression::ZLE => zle::decompress(source, target),
        Compression::LZ4 => lz4::decompress(source, target),
        Compression::ZSTD => zstd::decompress(source, target),
        Compression(number) if gzip::LEVELS.contains(&number) => gzip::decompress(source, target),
        _ => return Err(DecompressError::Unsupported(kind)),
    };
    done.ok_or(DecompressError::Malformed(kind))
}

/// The kind and zstd level that a value of the `compression` property names (OpenZFS: `compress_table` in `zfs_prop.c`).
///
/// `on` and `inherit` come back as such: what they stand for depends on the pool.
pub fn from_property(value: &str) -> Option<(Compression, u8)> {
    match value {
        "gzip" => Some((Compression::GZIP_6, 0)),
        "zstd" => Some((Compression::ZSTD, ZSTD_LEVEL_DEFAULT)),
        "empty" => None,
        _ if value.starts_with("zstd-") => Some((Compression::ZSTD, zstd::level_named(&value[5..])?)),
        _ => Compression::from_name(value).map(|kind| (kind, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
        }
    }

    /// Blocks of several characters: words, runs, zeros, noise, and mixtures.
    fn samples() -> Vec<Vec<u8>> {
        let mut next = random(7);
        let mut out = vec![vec![0; 4096], vec![0xAA; 512], b"a".to_vec(), vec![0; 1]];
        for length in [1usize, 63, 64, 65, 66, 67, 191, 192, 193, 512, 1000, 4096, 16_384, 131_072, 300_001] {
            let noise: Vec<u8> = (0..length).map(|_| next() as u8).collect();
            let words: Vec<u8> = (0..length).map(|_| b"etaoin "[next() as usize % 7]).collect();
            let sparse = noise.iter().enumerate().map(|(n, &byte)| if n / 100 % 3 == 0 { byte } else { 0 }).collect();
            let holes = noise.iter().map(|&byte| if byte < 128 { 0 } else { byte }).collect();
            let repeats: Vec<u8> = (0..length).map(|n| noise[n % 37.min(length)]).collect();
            out.extend([noise, words, sparse, holes, repeats]);
        }
        out
    }

    /// What was written must be what is read, for every kind, level and fit.
    #[test]
    fn every_kind_gives_back_its_input() {
        for kind in COMPRESSIONS {
            let levels: &[u8] = if kind == Compression::ZSTD { &[0, 1, 3, 9, 15, 103, 112, 113, 123, 255] } else { &[0] };
            let mut fitted = 0;
            for (sample, &level) in samples().iter().flat_map(|sample| levels.iter().map(move |level| (sample, level))) {
                for room in [sample.len(), sample.len() - sample.len() / 8, 20] {
                    let mut packed = vec![0u8; room];
                    let Some(length) = compress(kind, level, sample, &mut packed) else { continue };
                    fitted += 1;
                    packed.truncate(length);
                    packed.resize(length.next_multiple_of(512), 0);
                    let mut back = vec![0x55; sample.len()];
                    assert_eq!(decompress(kind, &packed, &mut back), Ok(()), "{kind} {level} {} bytes", sample.len());
                    assert!(back == *sample, "{kind} {level} {} bytes", sample.len());
                }
            }
            assert!(fitted > 20, "{kind} compressed only {fitted} samples");
        }
    }

    /// A damaged or hostile block is an error of that block, never a crash of the pool.
    #[test]
    fn damaged_streams_never_panic() {
        let mut next = random(11);
        let mut wrong_size = 0;
        for kind in COMPRESSIONS {
            for sample in samples().iter().filter(|sample| sample.len() <= 16_384) {
                let mut packed = vec![0u8; sample.len() + 64];
                let Some(length) = compress(kind, 0, sample, &mut packed) else { continue };
                packed.truncate(length);
                for _ in 0..40 {
                    let mut damaged = packed.clone();
                    for _ in 0..=next() % 3 {
                        let at = next() as usize % damaged.len();
                        damaged[at] = next() as u8;
                    }
                    damaged.truncate(1 + next() as usize % damaged.len());
                    let mut back = vec![0; sample.len()];
                    let _ = decompress(kind, &damaged, &mut back);
                }
                let mut longer = vec![0; sample.len() + 4096];
                wrong_size += usize::from(decompress(kind, &packed, &mut longer).is_err());
                let mut shorter = vec![0; sample.len() - 1];
                wrong_size += usize::from(kind == Compression::LZJB || decompress(kind, &packed, &mut shorter).is_err());
            }
            for length in 0..200 {
                let noise: Vec<u8> = (0..length).map(|_| next() as u8).collect();
                let mut back = vec![0; 4096];
                let _ = decompress(kind, &noise, &mut back);
            }
            assert!(decompress(kind, &[], &mut [0; 512]).is_err(), "{kind}");
        }
        assert!(wrong_size > 500, "{wrong_size}");
    }

    /// Property values must map to the numbers that OpenZFS stores.
    #[test]
    fn property_values_have_their_numbers() {
        for (value, expected) in [
            ("lz4", (15, 0)),
            ("gzip", (10, 0)),
            ("gzip-9", (13, 0)),
            ("zstd", (16, 3)),
            ("zstd-19", (16, 19)),
            ("zstd-fast", (16, 103)),
            ("zstd-fast-10", (16, 112)),
            ("zstd-fast-1000", (16, 123)),
        ] {
            assert_eq!(from_property(value), Some((Compression(expected.0), expected.1)), "{value}");
        }
        for value in ["zstd-20", "zstd-0", "zstd-fast-11", "zstd-", "empty", "best"] {
            assert_eq!(from_property(value), None, "{value}");
        }
    }
}
