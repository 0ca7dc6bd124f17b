//! Resume tokens: a list as text that names a receiving's place in its stream (OpenZFS: `get_receive_resume_token_impl`).
//!
//! `1-SUM-LENGTH-BYTES`, all hexadecimal: the first word of the fletcher4 of the bytes, the length of the packed list, and the packed list
//! as zlib compressed it. Keys of the list are OpenZFS's: `toguid`, `toname`, `object`, `offset`, `bytes`, `fromguid`, `largeblockok` …

use kernels::checksum::fletcher4;
use nvlist::{Encoding, NvList};
use ondisk::{ByteOrder, Compression};
use std::fmt;
use std::fmt::Write;

/// Bytes of the longest packed list: a token of more is refused before memory is asked for.
const LIST_BYTES_MAX: usize = 1 << 20;

/// Reason why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// Not four words, or not hexadecimal numbers in front.
    Syntax,
    /// A version other than 1.
    Version(u64),
    /// The list's bytes are not hexadecimal.
    Hex,
    /// The checksum is of other bytes.
    Checksum,
    /// The bytes do not decompress to their length.
    Compression,
    /// The bytes are no list.
    List(nvlist::DecodeError),
}
impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenError::Syntax => f.write_str("resume token is corrupt (invalid format)"),
            TokenError::Version(version) => write!(f, "resume token is corrupt (invalid version {version})"),
            TokenError::Hex => f.write_str("resume token is corrupt (payload is not hex-encoded)"),
            TokenError::Checksum => f.write_str("resume token is corrupt (incorrect checksum)"),
            TokenError::Compression => f.write_str("resume token is corrupt (decompression failed)"),
            TokenError::List(_) => f.write_str("resume token is corrupt (nvlist_unpack failed)"),
        }
    }
}
impl std::error::Error for TokenError {}

/// The token of a list.
pub fn encode(list: &NvList) -> String {
    let packed = list.encode(Encoding::NativeLittle);
    // Bytes that do not shrink grow by a few: zlib's head, its sum, and a head every 64 KiB.
    let mut compressed = vec![0; packed.len() + packed.len() / 1000 + 64];
    let length = kernels::compress(Compression::GZIP_6, 0, &packed, &mut compressed).unwrap_or_default();
    compressed.truncate(length);
    let sum = fletcher4(&[&compressed], ByteOrder::Little)[0];
    let mut token = format!("1-{sum:x}-{:x}-", packed.len());
    for byte in compressed {
        let _ = write!(token, "{byte:02x}");
    }
    token
}

/// The list in a token.
///
/// # Errors
/// A text that is no token, or not as it was made.
pub fn decode(token: &str) -> Result<NvList, TokenError> {
    let mut words = token.trim().split('-');
    let mut word = || words.next().ok_or(TokenError::Syntax);
    let (version, sum, length, bytes) = (word()?, word()?, word()?, word()?);
    let number = |text: &str| u64::from_str_radix(text, 16).map_err(|_| TokenError::Syntax);
    let (sum, length) = (number(sum)?, usize::try_from(number(length)?).map_err(|_| TokenError::Syntax)?);
    let version = number(version)?;
    if version != 1 {
        return Err(TokenError::Version(version));
    }
    if words.next().is_some() || length > LIST_BYTES_MAX {
        return Err(TokenError::Syntax);
    }
    let compressed = unhex(bytes).ok_or(TokenError::Hex)?;
    if fletcher4(&[&compressed], ByteOrder::Little)[0] != sum {
        return Err(TokenError::Checksum);
    }
    let mut packed = vec![0; length];
    kernels::decompress(Compression::GZIP_6, &compressed, &mut packed).map_err(|_| TokenError::Compression)?;
    NvList::decode(&packed).map_err(TokenError::List)
}

/// Bytes that a text spells, two digits each.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect::<Option<_>>()?;
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
