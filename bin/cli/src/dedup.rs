//! Histograms of tables of deduplication, as OpenZFS prints them (`zpool_dump_ddt`).

use crate::number::{nice_bytes, nice_count};

/// Sums of entries: blocks, their logical, physical and deflated bytes, and the same four counted as often as they are referred to.
pub type Sums = [u64; 8];

/// Sums of all rows.
pub fn total(rows: &[Sums]) -> Sums {
    let mut all = [0; 8];
    for row in rows {
        all.iter_mut().zip(row).for_each(|(sum, more)| *sum = u64::saturating_add(*sum, *more));
    }
    all
}

fn line(first: &str, sums: &Sums) -> String {
    let [blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize] = *sums;
    let sizes = |sizes: [u64; 3]| sizes.map(|bytes| format!("   {:>5}", nice_bytes(bytes))).concat();
    let (left, right) = (sizes([lsize, psize, dsize]), sizes([ref_lsize, ref_psize, ref_dsize]));
    format!("{first:>6}   {:>6}{left}   {:>6}{right}\n", nice_count(blocks), nice_count(ref_blocks))
}

/// The table of a histogram, row by row of the number of references, and their total where it is `summed`; rows without blocks are left out.
pub fn histogram(rows: &[Sums], summed: bool) -> String {
    const HEAD: &str = "\nbucket              allocated                       referenced          \n\
                        ______   ______________________________   ______________________________\n\
                        refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE\n\
                        ------   ------   -----   -----   -----   ------   -----   -----   -----\n";
    let filled = rows.iter().enumerate().filter(|(_, sums)| sums[0] != 0);
    let mut text = HEAD.to_string();
    filled.for_each(|(bit, sums)| text.push_str(&line(&nice_count(1u64.checked_shl(bit as u32).unwrap_or(0)), sums)));
    if summed {
        text.push_str(&line("Total", &total(rows)));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::histogram;

    /// If this fails, scripts that read OpenZFS's histograms read nothing, or the wrong column.
    #[test]
    fn rows_without_blocks_are_left_out_and_columns_are_as_in_openzfs() {
        let rows = [[2, 8192, 4096, 4096, 2, 8192, 4096, 4096], [0; 8], [1, 131_072, 131_072, 131_072, 5, 655_360, 655_360, 655_360]];
        let text = histogram(&rows, true);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "bucket   \x20          allocated             \x20         referenced          ");
        assert_eq!(
            lines[3..],
            [
                "refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE",
                "------   ------   -----   -----   -----   ------   -----   -----   -----",
                "     1        2      8K      4K      4K        2      8K      4K      4K",
                "     4        1    128K    128K    128K        5    640K    640K    640K",
                " Total        3    136K    132K    132K        7    648K    644K    644K",
                "",
            ]
        );
        assert!(!histogram(&rows, false).contains("Total"));
    }
}
