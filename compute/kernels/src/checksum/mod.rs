//! Checksums of blocks, and of blocks that carry their own checksum.
//!
//! Values are the four 64-bit words of a block pointer's checksum, in native order. Data may be scattered over any number of
//! slices of any length; the result depends only on the bytes.

mod edonr;
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
mod pending;
mod salted;
mod skein;
mod word;

pub use embedded::{EMBEDDED_CHECKSUM_BYTES, LabelSum, Verifier, ZEC_MAGIC, embed, embed_half, verify_embedded, verify_embedded_half};
pub(crate) use fletcher::concatenate;
pub use fletcher::{ALL, Fletcher4, choose, chosen, fastest, fletcher2, fletcher4};
#[cfg(target_arch = "x86_64")]
pub(crate) use fletcher_avx512::with_words;
pub use fletcher_lanes::Fletcher4Implementation;
pub use salted::{SALT_BYTES, Salt, needs_salt};

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
/// `Unsupported` for `inherit`, `on`, the algorithms that need a salt ([`salted_checksum`]) and unknown numbers.
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

/// As [`checksum`], in a pool whose salt is `salt`; None where it is not known.
///
/// # Errors
/// `Unsupported` for `inherit`, `on`, unknown numbers, and for algorithms that need a salt where there is none.
pub fn salted_checksum(salt: Option<&Salt>, kind: Checksum, data: &[&[u8]], order: ByteOrder) -> Result<[u64; 4], ChecksumError> {
    if !needs_salt(kind) {
        return checksum(kind, data, order);
    }
    let hash = salt.and_then(|salt| salt.hash(kind, data)).ok_or(ChecksumError::Unsupported(kind))?;
    Ok(words(&hash, order))
}

/// True when [`checksum`] computes this algorithm: it needs no salt.
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

    /// Salt of the answers below.
    fn salt() -> Salt {
        Salt::new(std::array::from_fn(|n| n as u8))
    }

    /// Words as blocks of big-endian machines have them, of skein, edonr and blake3 by what OpenZFS 2.3.2's library computes over the same bytes.
    const SALTED: [(Checksum, usize, [u64; 4]); 9] = [
        (Checksum::SKEIN, 0, [0x2893854ca23662bd, 0x0f1e54e5dee5553b, 0x396750b0d75531a9, 0x2eb3ff17009a864d]),
        (Checksum::SKEIN, 512, [0x4b0489da8b85b47c, 0x3efe5c23bb20d390, 0x173b994e8ee7368a, 0x9aaa9fe5fa65abbf]),
        (Checksum::SKEIN, 4609, [0x7ca34a4e1eb1fd24, 0x2b1f314e99d9060a, 0xda9ac6babb69e7ba, 0xab12d0bc11cf3fac]),
        (Checksum::EDONR, 0, [0xb0c27546e93096df, 0xc971598d0c7fb4c2, 0xaee6448ef0de380d, 0xb10efb9ce751abda]),
        (Checksum::EDONR, 512, [0x0f1d6b825bad7fde, 0xce8c521c696c66dd, 0xe7653a63d5ab07ed, 0xa1f7762199d71b73]),
        (Checksum::EDONR, 4609, [0xa093b99a9b81f1f2, 0x7043b428266c9f64, 0x4623f9b8d1bb3648, 0x576a457b4ac56378]),
        (Checksum::BLAKE3, 0, [0x73492b19995d71cd, 0xb1e9d74decc09809, 0xeb732f1b00bc95c2, 0x7cb15f9dd4d6478f]),
        (Checksum::BLAKE3, 512, [0x12576ab0f77d6256, 0x22a6cbfbab0726b1, 0x971c600fe98d5471, 0xcb5663aaba40bb43]),
        (Checksum::BLAKE3, 4609, [0x51bb564f48220d53, 0x4987336371897e1f, 0x31af55a06261b223, 0x94de494cf0425f26]),
    ];

    /// If this fails, pools with salted checksums read as corrupt, and OpenZFS cannot read those that are written here.
    #[test]
    fn salted_checksums_are_those_of_openzfs() {
        for (kind, length, expected) in SALTED {
            let data: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let sum = |parts: &[&[u8]], order| salted_checksum(Some(&salt()), kind, parts, order);
            assert_eq!(sum(&[&data], ByteOrder::Big), Ok(expected), "{kind} of {length} bytes");
            assert_eq!(sum(&[&data], ByteOrder::Little), Ok(expected.map(u64::swap_bytes)), "{kind} of {length} bytes");
            for cut in [0, 1, 63, 64, 65, 127, 128, 129, 500].into_iter().filter(|cut| *cut <= length) {
                let (head, tail) = data.split_at(cut);
                assert_eq!(sum(&[head, &[], tail], ByteOrder::Big), Ok(expected), "{kind} of {length} bytes cut at {cut}");
            }
            let other = Salt::new([7; SALT_BYTES]);
            assert_ne!(salted_checksum(Some(&other), kind, &[&data], ByteOrder::Big), Ok(expected), "{kind} without its salt");
        }
    }

    /// Somebody who is asked for a checksum with no salt at hand must not make one up.
    #[test]
    fn salted_checksums_need_a_salt_and_others_do_not() {
        for number in 0..=255 {
            let kind = Checksum(number);
            let (without, with) = (
                salted_checksum(None, kind, &[b"abc"], ByteOrder::Little),
                salted_checksum(Some(&salt()), kind, &[b"abc"], ByteOrder::Little),
            );
            let needs = matches!(number, 12..=14);
            assert_eq!(needs_salt(kind), needs, "{kind}");
            assert_eq!(without, checksum(kind, &[b"abc"], ByteOrder::Little), "{kind}");
            assert_eq!((without.is_err(), with.is_ok()), (!is_supported(kind), is_supported(kind) || needs), "{kind}");
        }
        assert_eq!(*salt().bytes(), std::array::from_fn(|n| n as u8));
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
