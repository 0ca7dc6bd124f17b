//! Bytes that tests write and look for again: they follow from a seed, so that nobody has to keep them.

/// Bytes of a seed that do not compress and do not repeat; a longer pattern of the seed begins with a shorter one, and no two small seeds share
/// their bytes.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// If this fails, tests take bytes of another file, or of another place of the same one, for those that were lost.
    #[test]
    fn patterns_are_told_apart_by_seed_and_place() {
        let words: Vec<u8> = (0..64).flat_map(|seed| pattern(1024, seed)).collect();
        let (words, rest) = words.as_chunks::<8>();
        assert!(rest.is_empty());
        assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), words.len());
        assert_eq!((0..=20).map(|length| pattern(length, 3)).find(|short| pattern(20, 3)[..short.len()] != short[..]), None);
        assert_eq!((0..=20).find(|length| pattern(*length, 3).len() != *length), None);
    }
}
