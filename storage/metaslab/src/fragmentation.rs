//! Fragmentation of free space: how much of it lies in short segments, in percent (OpenZFS: `metaslab_set_fragmentation`).

/// log2 of the shortest segment that the table knows (OpenZFS: `SPA_MINBLOCKSHIFT`).
const SHORTEST_LOG2: usize = 9;

/// Percent that free space in segments of 512 bytes counts, of 1 KiB, and so on up to 512 MiB and more (OpenZFS: `zfs_frag_table`).
const PERCENT: [u64; 21] = [100, 99, 97, 93, 88, 83, 77, 71, 64, 57, 50, 43, 36, 29, 23, 17, 12, 7, 3, 1, 0];

/// Fragmentation in percent, given the number of free segments by log2 of their length in bytes; 0 where nothing is free.
pub(crate) fn percent(histogram: &[u64; 64]) -> u64 {
    let (mut weighted, mut total) = (0_u128, 0_u128);
    for (log2, count) in histogram.iter().enumerate().skip(SHORTEST_LOG2) {
        let bytes = u128::from(*count) << log2;
        weighted += bytes * u128::from(PERCENT[(log2 - SHORTEST_LOG2).min(PERCENT.len() - 1)]);
        total += bytes;
    }
    weighted.checked_div(total).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::percent;

    /// Fragmentation of segments, given as pairs of how many there are and log2 of their length.
    fn of(segments: &[(u64, usize)]) -> u64 {
        let mut histogram = [0; 64];
        segments.iter().for_each(|(count, log2)| histogram[*log2] += count);
        percent(&histogram)
    }

    /// If this fails, `zpool list` shows another FRAG than OpenZFS does of the same pool.
    #[test]
    fn short_segments_count_by_the_bytes_in_them() {
        assert_eq!(of(&[]), 0, "a full metaslab");
        let each = [(9, 100), (10, 99), (12, 93), (17, 64), (20, 43), (24, 17), (28, 1), (29, 0), (30, 0), (40, 0)];
        for (log2, percent) in each {
            assert_eq!(of(&[(3, log2)]), percent, "2^{log2} bytes");
        }
        // Half of the bytes in each: (93 + 17) / 2.
        assert_eq!(of(&[(1 << 12, 12), (1, 24)]), 55);
        // One part of 4 KiB, 32 of 128 KiB: (93 + 32 × 64) / 33, rounded down.
        assert_eq!(of(&[(1, 12), (1, 17)]), 64);
        assert_eq!(of(&[(1, 12), (1, 29)]), 0, "a short one among long ones");
        assert_eq!(of(&[(u64::MAX, 63), (u64::MAX, 9)]), 0, "no count is too large");
    }
}
