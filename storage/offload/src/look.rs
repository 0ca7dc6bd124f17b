//! A look at a block before it is sent to be compressed: one that does not compress is stored as it is, and takes no link and no engine.
//!
//! Two cheap signs have to agree: its bytes are evenly distributed (no entropy coder saves an eighth), and LZ4 finds nothing that repeats within
//! its window. What only a wider window would have found is then not compressed, as with OpenZFS's early abort of zstd
//! (`zfs_zstd.c`): it costs room, never data.

use abd::{Abd, AbdPart};
use ondisk::Compression;

/// Pieces of the block whose bytes are counted, and bytes of each.
const PIECES: usize = 16;
const PIECE_BYTES: usize = 256;

/// True for algorithms that work longer on such a block than the look takes.
fn is_worth_it(kind: Compression) -> bool {
    kind == Compression::ZSTD || (Compression::GZIP_1.0..=Compression::GZIP_9.0).contains(&kind.0)
}

/// True when a block seems not to compress to `limit_bytes` with an algorithm.
pub(crate) fn is_hopeless(kind: Compression, data: &Abd, limit_bytes: usize) -> bool {
    if !is_worth_it(kind) || data.len() < PIECES * PIECE_BYTES {
        return false;
    }
    let data = data.to_contiguous();
    let Some(bytes) = data.as_contiguous() else { return false };
    is_even(bytes) && {
        let mut room = AbdPart::scratch(limit_bytes);
        kernels::compress(Compression::LZ4, 0, bytes, &mut room).is_none()
    }
}

/// True when equal bytes are hardly more frequent than by chance. Bytes of which an entropy coder could save an eighth have at most seven bits
/// each, and meet at least twice as often.
fn is_even(bytes: &[u8]) -> bool {
    let mut counts = [0u64; 256];
    let step = bytes.len() / PIECES;
    for piece in (0..PIECES).map(|piece| &bytes[piece * step..][..PIECE_BYTES]) {
        piece.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    }
    let count = (PIECES * PIECE_BYTES) as u64;
    let meetings: u64 = counts.iter().map(|count| count * count.saturating_sub(1)).sum();
    let by_chance = count * (count - 1) / 256;
    meetings < by_chance + by_chance / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use exec::SplitMix;

    fn noise(bytes: usize) -> Vec<u8> {
        let mut random = SplitMix::new(5);
        random.bytes(bytes)
    }

    fn hopeless(bytes: &[u8]) -> bool {
        is_hopeless(Compression::GZIP_6, &Abd::from_slice(bytes), bytes.len() - bytes.len() / 8)
    }

    /// A block that compresses and is not sent costs room on disk; one that does not and is sent costs the link and an engine.
    #[test]
    fn only_what_does_not_compress_is_hopeless() {
        for bytes in [16 << 10, 128 << 10, 1 << 20] {
            assert!(hopeless(&noise(bytes)), "{bytes} bytes of noise");
            let letters: Vec<u8> = noise(bytes).iter().map(|byte| b"0123456789abcdef"[usize::from(byte & 15)]).collect();
            assert!(!hopeless(&letters), "digits");
            let seven: Vec<u8> = noise(bytes).iter().map(|byte| byte & 0x7F).collect();
            assert!(!hopeless(&seven), "seven bits");
            let twice = noise(bytes / 4).repeat(4);
            assert!(bytes / 4 > 64 << 10 || !hopeless(&twice), "what repeats within 64 KiB");
            let mut half = noise(bytes);
            half[bytes / 2..].fill(0);
            assert!(!hopeless(&half), "half of it zeros");
        }
        assert!(!hopeless(&noise(2048)), "too small to be looked at");
        assert!(!is_hopeless(Compression::LZ4, &Abd::from_slice(&noise(16 << 10)), 14 << 10), "LZ4 itself is as quick");
    }
}
