//! Blocks that carry their own checksum: labels, gang headers, intent-log blocks (OpenZFS: `zio_checksum.c`).
//!
//! The trailer (`zio_eck_t`) is a magic number and the checksum. While the checksum is computed, the place of the checksum holds
//! a *verifier* that says where the block belongs, so that a right block in the wrong place does not verify.

use super::word::{word, word_bytes};
use super::{ChecksumError, checksum, words};
use ondisk::{ByteOrder, Checksum};
use sha2::{Digest, Sha256};

/// Size of the trailer: magic and four words, in bytes.
pub const EMBEDDED_CHECKSUM_BYTES: usize = 40;
/// First word of the trailer.
pub const ZEC_MAGIC: u64 = 0x0210_da7a_b10c_7a11;

/// Offset in bytes of the trailer of a `zilog2` block (`zil_chain_t`: padding, next block pointer, bytes used, trailer).
const ZILOG2_TRAILER: usize = 144;
const ZILOG2_USED: usize = 136;
/// Unit in bytes of the bytes used: `ZIL_MIN_BLKSZ`.
const ZILOG2_UNIT: u64 = 4096;

/// The words that stand in for the checksum while it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verifier(pub [u64; 4]);

impl Verifier {
    /// Verifier of a label block at byte `offset` of the device.
    pub fn label(offset: u64) -> Verifier {
        Verifier([offset, 0, 0, 0])
    }
    /// Verifier of a gang header whose block pointer has this first address and birth.
    pub fn gang_header(dva: ondisk::Dva, birth: ondisk::Txg) -> Verifier {
        Verifier([u64::from(dva.vdev.0), dva.offset, birth.0, 0])
    }
    /// Verifier of an intent-log block: the checksum words of the block pointer that leads to it.
    pub fn log_block(words: [u64; 4]) -> Verifier {
        Verifier(words)
    }

    fn bytes(self, order: ByteOrder) -> [u8; 32] {
        let mut out = [0; 32];
        for (raw, word) in out.chunks_exact_mut(8).zip(self.0) {
            raw.copy_from_slice(&word_bytes(order, word));
        }
        out
    }
}

fn word_at(block: &[u8], at: usize, order: ByteOrder) -> Option<u64> {
    let (raw, _) = block.get(at..)?.split_first_chunk::<8>()?;
    Some(word(order, *raw))
}

/// Offset in bytes of the trailer, and number of bytes of the block that are covered.
fn extent(kind: Checksum, block: &[u8], order: ByteOrder) -> Option<(usize, usize)> {
    if kind != Checksum::ZILOG2 {
        return Some((block.len().checked_sub(EMBEDDED_CHECKSUM_BYTES)?, block.len()));
    }
    let used = word_at(block, ZILOG2_USED, order)?.checked_next_multiple_of(ZILOG2_UNIT)?;
    let used = usize::try_from(used).ok()?;
    (used <= block.len() && used >= ZILOG2_TRAILER + EMBEDDED_CHECKSUM_BYTES).then_some((ZILOG2_TRAILER, used))
}

fn is_embedded(kind: Checksum) -> bool {
    matches!(kind, Checksum::LABEL | Checksum::GANG_HEADER | Checksum::ZILOG | Checksum::ZILOG2)
}

fn sum(kind: Checksum, block: &[u8], at: usize, verifier: Verifier, order: ByteOrder) -> Result<[u64; 4], ChecksumError> {
    let (head, tail) = (&block[..at + 8], &block[at + EMBEDDED_CHECKSUM_BYTES..]);
    checksum(kind, &[head, &verifier.bytes(order), tail], order)
}

/// Writes the trailer of `block` (little-endian), last step before the block goes to a device.
///
/// # Errors
/// `Unsupported` when the kind is not an embedded one, `Malformed` when the block is too short for its trailer.
pub fn embed(kind: Checksum, block: &mut [u8], verifier: Verifier) -> Result<(), ChecksumError> {
    let (at, words) = sum_to_embed(kind, block, verifier)?;
    block[at + 8..at + EMBEDDED_CHECKSUM_BYTES].copy_from_slice(&Verifier(words).bytes(ByteOrder::Little));
    Ok(())
}

/// As [`embed`], of a block of an encrypted dataset's intent log, whose trailer has the MAC by now: the checksum, folded, gets the place beside it.
///
/// # Errors
/// Those of [`embed`].
pub fn embed_half(kind: Checksum, block: &mut [u8], verifier: Verifier) -> Result<(), ChecksumError> {
    let (at, words) = sum_to_embed(kind, block, verifier)?;
    block[at + 8..at + 24].copy_from_slice(&folded(words, ByteOrder::Little));
    Ok(())
}

/// Puts the magic into a little-endian block; the trailer's offset in bytes, and the sum that is to be in it.
fn sum_to_embed(kind: Checksum, block: &mut [u8], verifier: Verifier) -> Result<(usize, [u64; 4]), ChecksumError> {
    if !is_embedded(kind) {
        return Err(ChecksumError::Unsupported(kind));
    }
    let order = ByteOrder::Little;
    let (at, covered) = extent(kind, block, order).ok_or(ChecksumError::Malformed)?;
    block[at..at + 8].copy_from_slice(&word_bytes(order, ZEC_MAGIC));
    Ok((at, sum(kind, &block[..covered], at, verifier, order)?))
}

/// The half of a sum that stands beside a MAC (OpenZFS: `zio_checksum_handle_crypt`).
fn folded([a, b, c, d]: [u64; 4], order: ByteOrder) -> [u8; 16] {
    let mut half = [0; 16];
    half[..8].copy_from_slice(&word_bytes(order, a ^ c));
    half[8..].copy_from_slice(&word_bytes(order, b ^ d));
    half
}

/// Checks the trailer of `block`; returns the byte order of the machine that wrote it.
///
/// # Errors
/// `Malformed` when there is no trailer, `Mismatch` when it does not verify, `Unsupported` when the kind is not an embedded one.
pub fn verify_embedded(kind: Checksum, block: &[u8], verifier: Verifier) -> Result<ByteOrder, ChecksumError> {
    let (order, at, actual) = sum_of_trailed(kind, block, verifier)?;
    let stored = &block[at + 8..at + EMBEDDED_CHECKSUM_BYTES];
    if Verifier(actual).bytes(order) == stored { Ok(order) } else { Err(ChecksumError::Mismatch) }
}

/// As [`verify_embedded`], of a block of an encrypted dataset's intent log: of four words two are its MAC, which takes a key to look at; the others
/// have the checksum, folded.
///
/// # Errors
/// Those of [`verify_embedded`].
pub fn verify_embedded_half(kind: Checksum, block: &[u8], verifier: Verifier) -> Result<ByteOrder, ChecksumError> {
    let (order, at, actual) = sum_of_trailed(kind, block, verifier)?;
    if folded(actual, order) == block[at + 8..at + 24] { Ok(order) } else { Err(ChecksumError::Mismatch) }
}

/// Byte order of a block with a trailer, the trailer's offset in bytes, and the sum that should be in it.
fn sum_of_trailed(kind: Checksum, block: &[u8], verifier: Verifier) -> Result<(ByteOrder, usize, [u64; 4]), ChecksumError> {
    if !is_embedded(kind) {
        return Err(ChecksumError::Unsupported(kind));
    }
    let magic_at = if kind == Checksum::ZILOG2 {
        ZILOG2_TRAILER
    } else {
        block.len().checked_sub(EMBEDDED_CHECKSUM_BYTES).ok_or(ChecksumError::Malformed)?
    };
    let order = match word_at(block, magic_at, ByteOrder::Little) {
        Some(ZEC_MAGIC) => ByteOrder::Little,
        Some(word) if word.swap_bytes() == ZEC_MAGIC => ByteOrder::Big,
        _ => return Err(ChecksumError::Malformed),
    };
    let (at, covered) = extent(kind, block, order).ok_or(ChecksumError::Malformed)?;
    Ok((order, at, sum(kind, &block[..covered], at, verifier, order)?))
}

/// The checksum of label blocks that differ in their trailers only, such as those of one device's four labels: what they share is
/// summed once.
#[derive(Clone, Debug)]
pub struct LabelSum {
    /// Fed with everything before the trailer, and the magic number.
    head: Sha256,
}

impl LabelSum {
    /// Sum of a block, whatever its trailer is; none when it has no room for one.
    pub fn of(block: &[u8]) -> Option<LabelSum> {
        let (head, _) = block.split_at_checked(block.len().checked_sub(EMBEDDED_CHECKSUM_BYTES)?)?;
        let mut sum = Sha256::new();
        sum.update(head);
        sum.update(word_bytes(ByteOrder::Little, ZEC_MAGIC));
        Some(LabelSum { head: sum })
    }

    /// The trailer of the block at a place, as [`embed`] writes it.
    pub fn trailer(&self, verifier: Verifier) -> [u8; EMBEDDED_CHECKSUM_BYTES] {
        let mut sum = self.head.clone();
        sum.update(verifier.bytes(ByteOrder::Little));
        let mut trailer = [0; EMBEDDED_CHECKSUM_BYTES];
        trailer[..8].copy_from_slice(&word_bytes(ByteOrder::Little, ZEC_MAGIC));
        let words = words(&sum.finalize().into(), ByteOrder::Big);
        trailer[8..].copy_from_slice(&Verifier(words).bytes(ByteOrder::Little));
        trailer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: Checksum, length: usize, used: u64) -> Vec<u8> {
        let mut block: Vec<u8> = (0..length).map(|n| (n * 7 + n / 256) as u8).collect();
        if kind == Checksum::ZILOG2 {
            block[ZILOG2_USED..ZILOG2_USED + 8].copy_from_slice(&used.to_le_bytes());
        }
        block
    }

    /// If this fails, labels are written that nobody can read, or a block of one label is taken for another's.
    #[test]
    fn labels_that_share_their_sum_have_the_trailers_of_their_own() {
        for length in [40, 8192, 112 << 10] {
            let mut label = block(Checksum::LABEL, length, 0);
            let sum = LabelSum::of(&label).unwrap();
            for offset in [16384, 278_528] {
                embed(Checksum::LABEL, &mut label, Verifier::label(offset)).unwrap();
                assert_eq!(label[length - EMBEDDED_CHECKSUM_BYTES..], sum.trailer(Verifier::label(offset)));
            }
        }
        assert!(LabelSum::of(&[0; 39]).is_none());
    }

    /// A label or log block that verifies in the wrong place or with a flipped bit would be taken for the pool's.
    #[test]
    fn only_the_right_block_in_the_right_place_verifies() {
        for (kind, length, covered) in [
            (Checksum::LABEL, 8192, 8192),
            (Checksum::GANG_HEADER, 512, 512),
            (Checksum::ZILOG, 4096, 4096),
            (Checksum::ZILOG2, 12288, 8192),
        ] {
            let verifier = Verifier([16384, 3, 9, 0]);
            let mut good = block(kind, length, 5000);
            embed(kind, &mut good, verifier).unwrap();
            assert_eq!(verify_embedded(kind, &good, verifier), Ok(ByteOrder::Little), "{kind}");
            assert_eq!(verify_embedded(kind, &good, Verifier([16385, 3, 9, 0])), Err(ChecksumError::Mismatch));
            for at in (0..covered).step_by(61) {
                good[at] ^= 4;
                assert!(verify_embedded(kind, &good, verifier).is_err(), "{kind} byte {at}");
                good[at] ^= 4;
            }
        }
    }

    /// If this fails, the intent log of an encrypted dataset ends at its first block, and what it promised is lost.
    #[test]
    fn beside_a_mac_half_of_the_checksum_counts() {
        let (kind, verifier) = (Checksum::ZILOG2, Verifier([7, 8, 9, 10]));
        let mut log = block(kind, 8192, 5000);
        embed(kind, &mut log, verifier).unwrap();
        assert_eq!(verify_embedded_half(kind, &log, verifier), Err(ChecksumError::Mismatch), "it is not folded");
        let word = |log: &[u8], index: usize| word_at(log, ZILOG2_TRAILER + 8 + 8 * index, ByteOrder::Little).unwrap();
        let folded = [word(&log, 0) ^ word(&log, 2), word(&log, 1) ^ word(&log, 3)];
        for (index, words) in [folded[0], folded[1], 0x1111, 0x2222].into_iter().enumerate() {
            log[ZILOG2_TRAILER + 8 + 8 * index..][..8].copy_from_slice(&words.to_le_bytes());
        }
        assert_eq!(verify_embedded_half(kind, &log, verifier), Ok(ByteOrder::Little));
        assert!(verify_embedded(kind, &log, verifier).is_err() && verify_embedded_half(kind, &log, Verifier([7, 8, 9, 11])).is_err());
        let written = log.clone();
        log[ZILOG2_TRAILER..ZILOG2_TRAILER + 24].fill(0xEE);
        embed_half(kind, &mut log, verifier).unwrap();
        assert!(log == written, "what is written keeps the MAC");
        log[4096] ^= 1;
        assert_eq!(verify_embedded_half(kind, &log, verifier), Err(ChecksumError::Mismatch));
    }

    /// Hostile lengths in a log block must not make the reader crash.
    #[test]
    fn short_and_hostile_blocks_are_errors() {
        for kind in (0..=20).map(Checksum) {
            for length in (0..300).chain([4096]) {
                for used in [0, 1, 4096, 4097, u64::MAX, u64::MAX - 4095] {
                    let mut short = vec![0xFF; length];
                    for (at, word) in [(ZILOG2_USED, used), (ZILOG2_TRAILER, ZEC_MAGIC)] {
                        if length >= at + 8 {
                            short[at..at + 8].copy_from_slice(&word.to_le_bytes());
                        }
                    }
                    assert!(verify_embedded(kind, &short, Verifier([0; 4])).is_err());
                }
            }
        }
    }
}
