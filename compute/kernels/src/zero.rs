//! Detection of blocks of zeros, which are stored as holes when compression is on (OpenZFS: `abd_cmp_zero`).

/// True when every byte is zero (also for no bytes at all). Stops at the first 256 bytes that are not.
pub fn is_zero(bytes: &[u8]) -> bool {
    let mut groups = bytes.chunks_exact(256);
    let clean = groups.by_ref().all(|group| {
        let (words, _) = group.as_chunks::<8>();
        words.iter().fold(0, |any, word| any | u64::from_le_bytes(*word)) == 0
    });
    clean && groups.remainder().iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::is_zero;

    /// A block with one byte set that is taken for zeros would be stored as a hole: the user's data is gone.
    #[test]
    fn one_set_byte_anywhere_is_seen() {
        for length in [0, 1, 255, 256, 257, 4096, 5000] {
            let mut bytes = vec![0u8; length];
            assert!(is_zero(&bytes), "{length}");
            for at in 0..length {
                bytes[at] = 0x80;
                assert!(!is_zero(&bytes), "{length} {at}");
                bytes[at] = 0;
            }
        }
    }
}
