//! Checksums of blocks, and of blocks that carry their own checksum.
//!
//! Values are the four 64-bit words of a block pointer's checksum, in native order. Data may be scattered over any number of
//! slices of any length; the result depends only on the bytes.

mod embedded;
mod fletcher;
#[cfg(target_arch = "x86_64")]
mod fletcher_avx2;
#[cfg(target_arch = "x86_64")]
mod fletcher_avx512;
mod fletcher_lanes;
mod fletcher_portable;
#[cfg(target_arch = "x86_64")]
mod fletcher_sse;
mod word;

pub use embedded::{EMBEDDED_CHECKSUM_BYTES, LabelSum, Verifier, ZEC_MAGIC, embed, verify_embedded, verify_embedded_half};
pub(crate) use fletcher::concatenate;
pub use fletcher::{ALL, Fletcher4, choose, chosen, fastest, fletcher2, fletcher4};
#[cfg(target_arch = "x86_64")]
pub(crate) use fletcher_avx512::with_words;
pub use fletcher_lanes::Fletcher4Implementation;

pub use ondisk::ByteOrder;
use ondisk::Checksum;
use sha2::digest::Update;
use sha2::{Digest, Sha256, Sha512_256};
use word::word;

/// Reason why a checksum was not computed or did not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumError {
    /// The algorithm is not one we compute.
    Unsupported(Checksum),
    /// The block does not have the form that its kind of embedded checksum needs (too short, no magic).
    Malformed,
    /// The bytes do not have the expected checksum.
    Mismatch,
}

impl std::fmt::Display for ChecksumError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ChecksumError::Unsupported(kind) => write!(f, "checksum algorithm {kind} is not supported"),
            ChecksumError::Malformed => f.write_str("the block has no embedded checksum"),
            ChecksumError::Mismatch => f.write_str("the checksum does not match"),
        }
    }
}
impl std::error::Error for ChecksumError {}

/// The checksum of `data`, the concatenation of its slices (OpenZFS: `zio_checksum_table`).
///
/// For `label`, `gang_header`, `zilog` and `zilog2` this is the bare algorithm; [`embed`] and [`verify_embedded`] do the rest.
///
/// # Errors
/// `Unsupported` for `inherit`, `on`, the salted algorithms (skein, edonr, blake3) and unknown numbers.
pub fn checksum(kind: Checksum, data: &[&[u8]], order: ByteOrder) -> Result<[u64; 4], ChecksumError> {
    Ok(match kind {
        Checksum::OFF | Checksum::NOPARITY => [0; 4],
        Checksum::FLETCHER_2 | Checksum::ZILOG => fletcher2(data, order),
        Checksum::FLETCHER_4 | Checksum::ZILOG2 => fletcher4(data, order),
        // SHA-256's words are big-endian whoever wrote the block (sha2_zfs.c: abd_checksum_sha256).
        Checksum::SHA256 | Checksum::LABEL | Checksum::GANG_HEADER => words(&digest::<Sha256>(data), ByteOrder::Big),
        Checksum::SHA512 => words(&digest::<Sha512_256>(data), order),
        other => return Err(ChecksumError::Unsupported(other)),
    })
}

/// True when [`checksum`] computes this algorithm.
pub fn is_supported(kind: Checksum) -> bool {
    checksum(kind, &[], ByteOrder::Little).is_ok()
}

fn digest<D: Digest + Update>(data: &[&[u8]]) -> [u8; 32] {
    let mut hasher = D::new();
    for part in data {
        Digest::update(&mut hasher, part);
    }
    let mut out = [0; 32];
    out.copy_from_slice(&hasher.finalize());
    out
}

fn words(digest: &[u8; 32], order: ByteOrder) -> [u64; 4] {
    let (words, _) = digest.as_chunks::<8>();
    std::array::from_fn(|n| word(order, words[n]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wrong digest order makes every sha256 or sha512 pool of OpenZFS read as corrupt.
    #[test]
    fn digests_have_the_word_order_of_block_pointers() {
        let value = checksum(Checksum::SHA256, &[b"a", b"", b"bc"], ByteOrder::Big).unwrap();
        assert_eq!(value, [0xba7816bf8f01cfea, 0x414140de5dae2223, 0xb00361a396177a9c, 0xb410ff61f20015ad]);
        let value = checksum(Checksum::SHA512, &[b"abc"], ByteOrder::Big).unwrap();
        assert_eq!(value, [0x53048e2681941ef9, 0x9b2e29b76b4c7dab, 0xe4c2d0c634fc6d46, 0xe0e2f13107e7af23]);
        let swapped = checksum(Checksum::SHA512, &[b"abc"], ByteOrder::Little).unwrap();
        assert_eq!(swapped, value.map(u64::swap_bytes));
    }

    /// An algorithm that we cannot compute must never pass for a match.
    #[test]
    fn unknown_algorithms_are_refused() {
        for number in 0..=255 {
            let kind = Checksum(number);
            let known = matches!(number, 2..=11);
            assert_eq!(is_supported(kind), known, "{kind}");
        }
    }
}
