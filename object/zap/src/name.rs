//! Keys of entries: byte strings, optionally compared by case or Unicode form, or arrays of 64-bit words.
//!
//! The hash of a string comes from its normalized form, so every spelling of a name lies in the same hash chain; which
//! spelling matches is then decided by comparing (OpenZFS: `zap_name_init_str`, `zap_match`, `u8_textprep_str`).

use crate::{ZapError, hash};
use unicode_normalization::UnicodeNormalization;

/// Most bytes of a name, final zero byte included (OpenZFS: `ZAP_MAXNAMELEN`).
pub const NAME_BYTES_MAX: usize = 256;
/// Most bytes of a name of a directory (OpenZFS: `ZAP_MAXNAMELEN_NEW`).
pub const LONGNAME_BYTES_MAX: usize = 1024;

/// Normalization of names in a ZAP: the flags of OpenZFS's `u8_textprep.h`, as `mz_normflags` and `zap_normflags` store them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NormFlags(pub u64);

impl NormFlags {
    /// Names are compared byte by byte.
    pub const NONE: NormFlags = NormFlags(0);
    /// Fold to upper case.
    pub const TOUPPER: NormFlags = NormFlags(0x02);
    /// Canonical decomposition.
    pub const FORM_D: NormFlags = NormFlags(0x10);
    /// Compatibility decomposition.
    pub const FORM_KD: NormFlags = NormFlags(0x20);
    /// Canonical decomposition and composition.
    pub const FORM_C: NormFlags = NormFlags(0x50);
    /// Compatibility decomposition and canonical composition.
    pub const FORM_KC: NormFlags = NormFlags(0x60);
    const TOLOWER: u64 = 0x04;
    const FORM_MASK: u64 = 0x70;

    /// Both sets of flags.
    #[must_use]
    pub fn with(self, other: NormFlags) -> NormFlags {
        NormFlags(self.0 | other.0)
    }
    /// True when names are compared byte by byte.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
    fn without_case(self) -> NormFlags {
        NormFlags(self.0 & !NormFlags::TOUPPER.0)
    }
}

/// Way in which a lookup compares names (OpenZFS: `matchtype_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Match {
    /// Byte by byte.
    #[default]
    Exact,
    /// Comparison by the normalized form (`MT_NORMALIZE`).
    Normalize,
    /// Comparison by the normalized form except for case (`MT_NORMALIZE | MT_MATCH_CASE`).
    NormalizeMatchCase,
}

/// A name ready to look for.
#[derive(Debug)]
pub(crate) enum Key<'a> {
    /// A string; `wanted` is the normalized form to compare with, and how to make it, for a normalizing lookup.
    Text { name: &'a [u8], wanted: Option<(NormFlags, Vec<u8>)>, hash: u64 },
    /// Words of 64 bits.
    Words { words: &'a [u64], hash: u64 },
}

/// Facts of a ZAP that decide how its keys hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyRules {
    pub(crate) salt: u64,
    pub(crate) norm: NormFlags,
    pub(crate) hash_bits: u32,
    pub(crate) words: bool,
    pub(crate) prehashed: bool,
}

impl<'a> Key<'a> {
    /// A string key.
    pub(crate) fn text(rules: KeyRules, name: &'a [u8], matching: Match) -> Result<Key<'a>, ZapError> {
        if name.is_empty() || name.contains(&0) {
            return Err(ZapError::BadName);
        }
        if name.len() >= LONGNAME_BYTES_MAX {
            return Err(ZapError::NameTooLong);
        }
        if rules.words || rules.norm.is_none() && matching != Match::Exact {
            return Err(ZapError::NotSupported);
        }
        if rules.norm.is_none() {
            let hash = hash::mask(hash::hash_bytes(rules.salt, name), rules.hash_bits);
            return Ok(Key::Text { name, wanted: None, hash });
        }
        let normal = normalize(name, rules.norm);
        let hash = hash::mask(hash::hash_bytes(rules.salt, &normal), rules.hash_bits);
        let wanted = match matching {
            Match::Exact => None,
            Match::Normalize => Some((rules.norm, normal)),
            Match::NormalizeMatchCase => Some((rules.norm.without_case(), normalize(name, rules.norm.without_case()))),
        };
        Ok(Key::Text { name, wanted, hash })
    }

    /// A key of words.
    pub(crate) fn words(rules: KeyRules, words: &'a [u64]) -> Result<Key<'a>, ZapError> {
        if !rules.words {
            return Err(ZapError::NotSupported);
        }
        if words.is_empty() {
            return Err(ZapError::BadName);
        }
        let hash = if rules.prehashed { words[0] } else { hash::hash_words(rules.salt, words) };
        Ok(Key::Words { words, hash: hash::mask(hash, rules.hash_bits) })
    }

    pub(crate) fn hash(&self) -> u64 {
        match self {
            Key::Text { hash, .. } | Key::Words { hash, .. } => *hash,
        }
    }

    /// The stored form: the string with a zero byte, or the words big-endian.
    pub(crate) fn to_stored(&self) -> Vec<u8> {
        match self {
            Key::Text { name, .. } => {
                let mut stored = Vec::with_capacity(name.len() + 1);
                stored.extend_from_slice(name);
                stored.push(0);
                stored
            }
            Key::Words { words, .. } => words.iter().flat_map(|word| word.to_be_bytes()).collect(),
        }
    }

    /// Length of the stored form in bytes.
    pub(crate) fn stored_bytes(&self) -> usize {
        match self {
            Key::Text { name, .. } => name.len() + 1,
            Key::Words { words, .. } => words.len() * 8,
        }
    }

    /// Number of integers in the name as the leaf counts them.
    pub(crate) fn integers(&self) -> u16 {
        match self {
            Key::Text { name, .. } => name.len() as u16 + 1,
            Key::Words { words, .. } => words.len() as u16,
        }
    }

    /// True when the stored name (without its zero byte) is a match; only for strings.
    pub(crate) fn matches_text(&self, stored: &[u8]) -> bool {
        match self {
            Key::Text { name, wanted: None, .. } => *name == stored,
            Key::Text { wanted: Some((flags, wanted)), .. } => normalize(stored, *flags) == *wanted,
            Key::Words { .. } => false,
        }
    }

    /// True when only the exact bytes match, so lengths can be compared first.
    pub(crate) fn is_exact(&self) -> bool {
        !matches!(self, Key::Text { wanted: Some(_), .. })
    }
}

/// The single-character upper case of `c`: characters whose upper case is a sequence stay as they are.
fn upper(c: char) -> char {
    let mut mapped = c.to_uppercase();
    match (mapped.next(), mapped.next()) {
        (Some(single), None) => single,
        _ => c,
    }
}

/// The normalized form of `name`. Bytes that are not UTF-8 stay as they are (OpenZFS: `U8_TEXTPREP_IGNORE_INVALID`).
pub(crate) fn normalize(name: &[u8], flags: NormFlags) -> Vec<u8> {
    if flags.is_none() {
        return name.to_vec();
    }
    if name.is_ascii() {
        // Forms do not change ASCII.
        return match flags {
            NormFlags(bits) if bits & NormFlags::TOUPPER.0 != 0 => name.to_ascii_uppercase(),
            NormFlags(bits) if bits & NormFlags::TOLOWER != 0 => name.to_ascii_lowercase(),
            _ => name.to_vec(),
        };
    }
    let mut out = Vec::with_capacity(name.len() * 2);
    for chunk in name.utf8_chunks() {
        let cased: String = match flags {
            NormFlags(bits) if bits & NormFlags::TOUPPER.0 != 0 => chunk.valid().chars().map(upper).collect(),
            NormFlags(bits) if bits & NormFlags::TOLOWER != 0 => chunk.valid().to_lowercase(),
            _ => chunk.valid().to_string(),
        };
        let formed: String = match NormFlags(flags.0 & NormFlags::FORM_MASK) {
            NormFlags::FORM_D => cased.nfd().collect(),
            NormFlags::FORM_KD => cased.nfkd().collect(),
            NormFlags::FORM_C => cased.nfc().collect(),
            NormFlags::FORM_KC => cased.nfkc().collect(),
            _ => cased,
        };
        out.extend_from_slice(formed.as_bytes());
        out.extend_from_slice(chunk.invalid());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case-insensitive share that does not find `README` as `readme` is broken for its clients.
    #[test]
    fn folds_case_and_form() {
        assert_eq!(normalize(b"readMe", NormFlags::TOUPPER), b"README");
        let composed = "caf\u{e9}".as_bytes();
        let decomposed = "cafe\u{301}".as_bytes();
        assert_eq!(normalize(composed, NormFlags::FORM_D), decomposed);
        assert_eq!(normalize(decomposed, NormFlags::FORM_C), composed);
        assert_eq!(normalize("\u{fb01}".as_bytes(), NormFlags::FORM_KD), b"fi");
        assert_eq!(normalize("\u{fb01}".as_bytes(), NormFlags::FORM_KC.with(NormFlags::TOUPPER)), b"fi");
    }

    /// Names that are not UTF-8 exist on every Unix file system; they must survive unchanged.
    #[test]
    fn invalid_bytes_stay() {
        assert_eq!(normalize(b"a\xff\xc3\xa9", NormFlags::TOUPPER), b"A\xff\xc3\x89");
    }
}
