//! Parity and checksum of a block in one pass over memory: the write path reads each byte of data once.
//!
//! Where the machine has the instructions, rows of few columns get both in one loop. Else large blocks are worked on in slices of every
//! column: parity first, whose parallel streams bring the slices into the cache at the memory's speed, then the checksum from there. Each
//! column keeps its own running sums; the sums of the block follow from those of its columns.

use crate::checksum::{self, ByteOrder, Fletcher4, Fletcher4Implementation, concatenate, fletcher4};
use crate::raidz::{self, RaidzError, WithFletcher4};

/// Bytes of each column per slice.
const SLICE_BYTES: usize = 16 << 10;
/// Bytes of a block above which one loop for both is faster, where there is one.
const SMALL_IN_ONE_LOOP_BYTES: usize = 16 << 10;
/// Bytes up to which a block stays in the second-level cache between two passes.
const SMALL_BYTES: usize = 256 << 10;

/// Parity of the data columns as [`raidz::generate`], and Fletcher-4 (little-endian) of the columns one after another, which
/// is the checksum of the block that the columns divide.
///
/// # Errors
/// As [`raidz::generate`].
pub fn generate_with_fletcher4(data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<[u64; 4], RaidzError> {
    let block_bytes: usize = data.iter().map(|column| column.len()).sum();
    let in_words = data.iter().all(|column| column.len() % 4 == 0);
    match data.len() {
        _ if block_bytes <= small_bytes(data.len()) || !in_words => two_passes(data, parity),
        0..=4 => one_pass::<4>(data, parity),
        5..=8 => one_pass::<8>(data, parity),
        9..=16 => one_pass::<16>(data, parity),
        17..=32 => one_pass::<32>(data, parity),
        _ => two_passes(data, parity),
    }
}

/// Bytes of a block up to which two passes are as fast.
fn small_bytes(columns: usize) -> usize {
    if one_loop(raidz::chosen(), checksum::chosen(), columns).is_some() { SMALL_IN_ONE_LOOP_BYTES } else { SMALL_BYTES }
}

/// Code that makes parity and checksum of so many columns in one loop, where the implementations have it.
fn one_loop(math: &raidz::Implementation, sums: &Fletcher4Implementation, columns: usize) -> Option<&'static WithFletcher4> {
    math.with_fletcher4().filter(|both| columns <= both.columns_max && sums.is_wide())
}

fn two_passes(data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<[u64; 4], RaidzError> {
    raidz::generate(data, parity)?;
    Ok(fletcher4(data, ByteOrder::Little))
}

fn one_pass<const N: usize>(data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<[u64; 4], RaidzError> {
    let longest = data.iter().map(|column| column.len()).max().unwrap_or(0);
    raidz::check_parity(data, parity, longest)?;
    let (math, fletcher) = (raidz::chosen(), checksum::chosen());
    let mut sums: [Fletcher4; N] = std::array::from_fn(|_| Fletcher4::with(fletcher, ByteOrder::Little));
    let mut done = 0;
    if let Some(both) = one_loop(math, fletcher, data.len()) {
        let shortest = data.iter().map(|column| column.len()).min().unwrap_or(0);
        done = shortest / both.step_bytes * both.step_bytes;
        (both.generate)(data, parity, 0..done, &mut sums[..data.len()]);
    }
    for start in (done..longest).step_by(SLICE_BYTES) {
        let end = longest.min(start + SLICE_BYTES);
        math.generate_range(data, parity, start..end);
        for (sum, column) in sums.iter_mut().zip(data) {
            sum.update(&column[start.min(column.len())..end.min(column.len())]);
        }
    }
    Ok(sums.iter().zip(data).fold([0; 4], |sum, (column_sum, column)| concatenate(sum, column_sum.finish(), column.len())))
}

/// As [`generate_with_fletcher4`] for data of which no slice can be had: `read` copies from (column, offset) into its buffer.
/// Every byte is asked for once, so that parity and checksum are those of the same bytes even when the data changes.
///
/// # Errors
/// As [`crate::raidz::generate`].
pub fn generate_with_fletcher4_from(
    lengths: &[usize],
    mut read: impl FnMut(usize, usize, &mut [u8]),
    parity: &mut [&mut [u8]],
) -> Result<[u64; 4], RaidzError> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    if parity.iter().any(|column| column.len() != longest) {
        return Err(RaidzError::Shape);
    }
    let mut pieces = vec![vec![0; SLICE_BYTES.min(longest)]; lengths.len()];
    let mut sums: Vec<Fletcher4> = lengths.iter().map(|_| Fletcher4::new(ByteOrder::Little)).collect();
    for start in (0..longest).step_by(SLICE_BYTES) {
        let end = longest.min(start + SLICE_BYTES);
        let mut columns: Vec<&[u8]> = Vec::with_capacity(lengths.len());
        for (column, piece) in pieces.iter_mut().enumerate() {
            let piece = &mut piece[..end.min(lengths[column]).saturating_sub(start)];
            if !piece.is_empty() {
                read(column, start, piece);
            }
            sums[column].update(piece);
            columns.push(piece);
        }
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[start..end]).collect();
        raidz::generate(&columns, &mut targets)?;
    }
    Ok(sums.iter().zip(lengths).fold([0; 4], |sum, (own, length)| concatenate(sum, own.finish(), *length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raidz::reference;

    /// The fused pass must write the same checksum and parity as the two passes: else every large raidz write is corrupt.
    #[test]
    fn one_pass_equals_two() {
        let block: Vec<u8> = (0..400_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for (columns, parities) in [(1, 1), (3, 1), (4, 2), (5, 3), (8, 3), (13, 2), (20, 3), (40, 1)] {
            for bytes in [4096usize, 16_896, 131_072, 300_000, 399_996, 400_000, 399_999] {
                let column_bytes = bytes.div_ceil(columns).next_multiple_of(512);
                let mut data: Vec<&[u8]> = block[..bytes].chunks(column_bytes).collect();
                data.resize(columns, &[]);
                let mut made = vec![vec![0; data[0].len()]; parities];
                let mut right = made.clone();
                let mut targets: Vec<&mut [u8]> = made.iter_mut().map(|column| &mut column[..]).collect();
                let sum = generate_with_fletcher4(&data, &mut targets).unwrap();
                reference::generate(&data, &mut right.iter_mut().map(|column| &mut column[..]).collect::<Vec<_>>());
                assert!(made == right, "{columns} {bytes}");
                assert_eq!(sum, fletcher4(&[&block[..bytes]], ByteOrder::Little), "{columns} {bytes}");
                let lengths: Vec<usize> = data.iter().map(|column| column.len()).collect();
                if lengths.iter().all(|length| length % 4 == 0) {
                    let mut pieces = vec![vec![1; data[0].len()]; parities];
                    let mut targets: Vec<&mut [u8]> = pieces.iter_mut().map(|column| &mut column[..]).collect();
                    let read = |column: usize, at: usize, out: &mut [u8]| out.copy_from_slice(&data[column][at..at + out.len()]);
                    assert_eq!(generate_with_fletcher4_from(&lengths, read, &mut targets).unwrap(), sum);
                    assert!(pieces == right, "{columns} {bytes} read");
                }
            }
        }
        let mut short = [0u8; 16];
        assert_eq!(generate_with_fletcher4(&[&block], &mut [&mut short]), Err(RaidzError::Shape));
    }
}
