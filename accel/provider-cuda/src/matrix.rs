//! How missing columns of a row follow from the others: coefficients for the kernel that computes sums of products.
//!
//! Reconstruction is linear, so its matrix is what it makes of unit vectors: `kernels::raidz` itself is asked, and the device
//! computes the very same sums, also for rows that do not agree with themselves. Columns end at different lengths; where a missing
//! one ends, it is no unknown any more, so each such range has a matrix of its own.

use crate::jobs::TARGETS_MAX;
use dpusm::OpError;
use std::ops::Range;

/// A range of bytes of a row in which the same columns are computed from the same others.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) range: Range<usize>,
    /// Columns that are computed, parity first.
    pub(crate) targets: Vec<usize>,
    /// Columns that they are computed from.
    pub(crate) sources: Vec<usize>,
    /// Coefficients of each source for each target.
    pub(crate) coefficients: Vec<[u8; TARGETS_MAX]>,
}

/// The segments of a row with columns of these `lengths` (parity first) in which `targets` are missing.
pub(crate) fn segments(lengths: &[usize], parities: usize, targets: &[usize]) -> Result<Vec<Segment>, OpError> {
    let mut ends: Vec<usize> = targets.iter().map(|target| lengths[*target]).filter(|length| *length > 0).collect();
    ends.sort_unstable();
    ends.dedup();
    let mut start = 0;
    let mut list = Vec::with_capacity(ends.len());
    for end in ends {
        list.push(segment(lengths, parities, targets, start..end)?);
        start = end;
    }
    Ok(list)
}

fn segment(lengths: &[usize], parities: usize, missing: &[usize], range: Range<usize>) -> Result<Segment, OpError> {
    let reaches = |column: &usize| lengths[*column] > range.start;
    let targets: Vec<usize> = missing.iter().copied().filter(reaches).collect();
    let sources: Vec<usize> = (0..lengths.len()).filter(|column| !missing.contains(column)).filter(reaches).collect();
    let count = sources.len();
    let mut units = vec![0u8; count * count];
    (0..count).for_each(|n| units[n * count + n] = 1);
    // A column with no bytes counts as zeros.
    let known = |column: usize| match sources.iter().position(|source| *source == column) {
        Some(n) => &units[n * count..(n + 1) * count],
        None => &[],
    };
    let lost_data: Vec<usize> = targets.iter().copied().filter(|target| *target >= parities).collect();
    let mut made = vec![vec![0u8; count]; lost_data.len()];
    if !lost_data.is_empty() {
        let parity: Vec<Option<&[u8]>> = (0..parities).map(|column| (!missing.contains(&column)).then(|| known(column))).collect();
        let data: Vec<Option<&[u8]>> =
            (parities..lengths.len()).map(|column| (!lost_data.contains(&column)).then(|| known(column))).collect();
        let mut outputs: Vec<&mut [u8]> = made.iter_mut().map(|column| &mut column[..]).collect();
        kernels::raidz::reconstruct(&data, &parity, &mut outputs).map_err(|_| OpError::NotSupported)?;
    }
    let mut parity = vec![vec![0u8; count]; parities];
    if targets.iter().any(|target| *target < parities) {
        let data: Vec<&[u8]> = (parities..lengths.len())
            .map(|column| lost_data.iter().position(|lost| *lost == column).map_or_else(|| known(column), |lost| &made[lost][..]))
            .collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[..]).collect();
        kernels::raidz::generate(&data, &mut outputs).map_err(|_| OpError::NotSupported)?;
    }
    let mut coefficients = vec![[0u8; TARGETS_MAX]; count];
    for (place, target) in targets.iter().enumerate() {
        let row = match lost_data.iter().position(|lost| lost == target) {
            Some(lost) => &made[lost],
            None => &parity[*target],
        };
        coefficients.iter_mut().zip(row).for_each(|(of_source, value)| of_source[place] = *value);
    }
    Ok(Segment { range, targets, sources, coefficients })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wrong coefficient is a wrong column on a disk.
    #[test]
    fn one_missing_column_of_a_single_parity_row_is_the_sum_of_the_others() {
        let found = segments(&[512, 512, 512, 0], 1, &[1]).unwrap();
        let one = Segment { range: 0..512, targets: vec![1], sources: vec![0, 2], coefficients: vec![[1, 0, 0]; 2] };
        assert_eq!(found, [one]);
    }

    /// Beyond its end a missing column is known to be zeros, and must not take part in what is solved for.
    #[test]
    fn a_short_missing_column_makes_a_range_of_its_own() {
        let found = segments(&[1024, 1024, 1024, 512], 2, &[2, 3]).unwrap();
        let seen: Vec<_> = found.iter().map(|segment| (segment.range.clone(), segment.targets.clone(), segment.sources.clone())).collect();
        assert_eq!(seen, [(0..512, vec![2, 3], vec![0, 1]), (512..1024, vec![2], vec![0, 1])]);
        assert_eq!(found[1].coefficients, [[1, 0, 0], [0, 0, 0]], "P alone gives the column");
    }
}
