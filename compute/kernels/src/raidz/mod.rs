//! RAID-Z parity: generation of P, Q, R and reconstruction of up to three missing data columns (OpenZFS: `vdev_raidz.c`,
//! `vdev_raidz_math.c`).
//!
//! Columns may differ in length: a shorter one counts as zeros beyond its end. The coefficients depend on how many data columns
//! the row has, so callers pass all of them, also empty ones. Every operation is one pass: each byte of each column that is
//! needed is loaded once, every result is stored once. The work of one vector step is a `Combine`: at most one result that is a
//! plain sum and at most two that are sums of products. That covers everything: with P there, the last missing column is the sum of
//! P, the known columns and the other missing ones; without P at most two columns can be missing.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod gf;
#[cfg(target_arch = "x86_64")]
mod gfni;
#[cfg(target_arch = "x86_64")]
mod gfni_fletcher;
mod implementation;
mod portable;
pub mod reference;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vector;

pub(crate) use implementation::WithFletcher4;
use implementation::{Combine, FEW};
pub use implementation::{DATA_COLUMNS_MAX, Implementation};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most parity columns of a row.
pub const PARITY_MAX: usize = 3;
/// Reason why a reconstruction was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaidzError {
    /// More data columns are missing than parity columns are there.
    TooFewColumns,
    /// The columns given do not form a row: a wrong number of them, or lengths that cannot be.
    Shape,
}

impl std::fmt::Display for RaidzError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RaidzError::TooFewColumns => "more columns are missing than parity can replace",
            RaidzError::Shape => "the columns do not form a RAID-Z row",
        })
    }
}
impl std::error::Error for RaidzError {}

/// Every implementation for this architecture, slowest first; not each is supported by this machine.
pub static ALL: &[&Implementation] = &[
    &portable::PORTABLE,
    #[cfg(target_arch = "x86_64")]
    &avx2::AVX2,
    #[cfg(target_arch = "x86_64")]
    &avx512::AVX512BW,
    #[cfg(target_arch = "x86_64")]
    &gfni::GFNI,
];

/// The fastest implementation that this machine supports.
pub fn fastest() -> &'static Implementation {
    static CHOICE: std::sync::OnceLock<&'static Implementation> = std::sync::OnceLock::new();
    CHOICE.get_or_init(|| ALL.iter().rev().find(|one| one.is_supported()).unwrap_or(&ALL[0]))
}

/// Position in [`ALL`], plus one, of the implementation that was chosen; 0: the fastest.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

/// Has the implementation of this name compute parity from now on, or the fastest one (OpenZFS: `zfs_vdev_raidz_impl`). False, and
/// nothing changes, when there is none of the name or this machine lacks its instructions.
pub fn choose(name: Option<&str>) -> bool {
    let found = name.map_or(Some(0), |name| ALL.iter().position(|one| one.name == name && one.is_supported()).map(|at| at + 1));
    found.map(|chosen| CHOSEN.store(chosen, Ordering::Relaxed)).is_some()
}

/// The implementation that is used.
pub fn chosen() -> &'static Implementation {
    CHOSEN.load(Ordering::Relaxed).checked_sub(1).and_then(|at| ALL.get(at).copied()).unwrap_or_else(fastest)
}

/// Parity of the data columns: P, or P and Q, or P, Q and R by the number of `parity` columns, each as long as the longest data
/// column.
///
/// # Errors
/// `Shape` for no or too many columns, and for parity of another length.
pub fn generate(data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), RaidzError> {
    chosen().generate(data, parity)
}

/// Recomputes the missing data columns: those that are None in `data`, in order into `missing`, each with the length that the
/// column has. Uses the first parity columns that are not None, as many as needed; pass None for those that are not to be used.
///
/// # Errors
/// `TooFewColumns` when parity does not suffice; `Shape` when `missing` does not match, or parity is shorter than a column.
pub fn reconstruct(data: &[Option<&[u8]>], parity: &[Option<&[u8]>], missing: &mut [&mut [u8]]) -> Result<(), RaidzError> {
    chosen().reconstruct(data, parity, missing)
}

/// The coefficient of a data column in P, Q or R.
fn coefficient(parity: usize, column: usize, columns: usize) -> u8 {
    gf::power(parity * (columns - 1 - column))
}

/// Refuses a row for which there is no parity.
pub(crate) fn check_parity(data: &[&[u8]], parity: &[&mut [u8]], longest: usize) -> Result<(), RaidzError> {
    let well_formed = (1..=DATA_COLUMNS_MAX).contains(&data.len()) && (1..=PARITY_MAX).contains(&parity.len());
    if well_formed && parity.iter().all(|column| column.len() == longest) { Ok(()) } else { Err(RaidzError::Shape) }
}

impl Implementation {
    /// See [`generate`]. The implementation must be supported.
    ///
    /// # Errors
    /// As [`generate`].
    pub fn generate(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), RaidzError> {
        let longest = data.iter().map(|column| column.len()).max().unwrap_or(0);
        check_parity(data, parity, longest)?;
        self.generate_range(data, parity, 0..longest);
        Ok(())
    }

    /// Parity over a range of bytes of the row.
    pub(crate) fn generate_range(&self, data: &[&[u8]], parity: &mut [&mut [u8]], range: Range<usize>) {
        assert!(self.is_supported(), "{} is not supported by this machine", self.name);
        let mut at = range.start;
        while at < range.end {
            let next = boundary(data.iter().map(|column| column.len()), at).unwrap_or(range.end).min(range.end);
            if data.iter().all(|column| column.len() > at) {
                (self.generate)(data, parity, at..next);
            } else if data.len() <= FEW {
                self.generate_short::<FEW>(data, parity, at..next);
            } else {
                self.generate_short::<DATA_COLUMNS_MAX>(data, parity, at..next);
            }
            at = next;
        }
    }

    /// Parity of a range over which some columns do not reach.
    fn generate_short<const N: usize>(&self, data: &[&[u8]], parity: &mut [&mut [u8]], range: Range<usize>) {
        let mut sources: [&[u8]; N] = [&[]; N];
        let mut rows = [[0u8; N]; 2];
        let mut count = 0;
        for (n, column) in data.iter().enumerate().filter(|(_, column)| column.len() > range.start) {
            sources[count] = column;
            rows[0][count] = coefficient(1, n, data.len());
            rows[1][count] = coefficient(2, n, data.len());
            count += 1;
        }
        let job = Combine { sources: &sources[..count], xor_sources: count, rows: [&rows[0], &rows[1]], fold: false };
        if let Some((p, products)) = parity.split_first_mut() {
            (self.combine)(&job, Some(p), products, range);
        }
    }

    /// See [`reconstruct`]. The implementation must be supported.
    ///
    /// # Errors
    /// As [`reconstruct`].
    pub fn reconstruct(&self, data: &[Option<&[u8]>], parity: &[Option<&[u8]>], missing: &mut [&mut [u8]]) -> Result<(), RaidzError> {
        assert!(self.is_supported(), "{} is not supported by this machine", self.name);
        let holes = data.iter().filter(|column| column.is_none()).count();
        if holes != missing.len() || data.len() > DATA_COLUMNS_MAX || parity.len() > PARITY_MAX {
            return Err(RaidzError::Shape);
        }
        if data.len() <= FEW { self.solve::<FEW>(data, parity, missing) } else { self.solve::<DATA_COLUMNS_MAX>(data, parity, missing) }
    }

    fn solve<const N: usize>(&self, data: &[Option<&[u8]>], parity: &[Option<&[u8]>], missing: &mut [&mut [u8]]) -> Result<(), RaidzError> {
        let mut row = Row::<N>::new(data, parity, missing.len())?;
        let longest = missing.iter().map(|column| column.len()).max().unwrap_or(0);
        if row.parity().iter().any(|(_, column)| column.len() < longest) {
            return Err(RaidzError::Shape);
        }
        let mut at = 0;
        while at < longest {
            let known = data.iter().flatten().map(|column| column.len());
            let next = boundary(known.chain(missing.iter().map(|column| column.len())), at).unwrap_or(longest).min(longest);
            row.plan(data, missing, at)?;
            row.run(self, missing, at..next);
            at = next;
        }
        Ok(())
    }
}

/// The next length after `at` at which the set of columns that reach on changes.
fn boundary(lengths: impl Iterator<Item = usize>, at: usize) -> Option<usize> {
    lengths.filter(|&length| length > at).min()
}

/// The equations of one reconstruction, over a range in which the same columns take part.
struct Row<'a, const N: usize> {
    columns: usize,
    /// Number of a parity (0, 1, 2) and its bytes, as many as columns are missing.
    parity: [(usize, &'a [u8]); PARITY_MAX],
    parities: usize,
    sources: [&'a [u8]; N],
    rows: [[u8; N]; 2],
    sources_used: usize,
    xor_sources: usize,
    /// Positions in `missing` of the targets of this range.
    targets: [usize; PARITY_MAX],
    targets_used: usize,
}

impl<'a, const N: usize> Row<'a, N> {
    fn new(data: &[Option<&'a [u8]>], parity: &[Option<&'a [u8]>], holes: usize) -> Result<Row<'a, N>, RaidzError> {
        let mut row = Row {
            columns: data.len(),
            parity: [(0, &[]); PARITY_MAX],
            parities: 0,
            sources: [&[]; N],
            rows: [[0; N]; 2],
            sources_used: 0,
            xor_sources: 0,
            targets: [0; PARITY_MAX],
            targets_used: 0,
        };
        for (which, column) in parity.iter().enumerate().filter_map(|(which, column)| Some((which, (*column)?))).take(holes) {
            row.parity[row.parities] = (which, column);
            row.parities += 1;
        }
        if row.parities < holes { Err(RaidzError::TooFewColumns) } else { Ok(row) }
    }

    fn parity(&self) -> &[(usize, &'a [u8])] {
        &self.parity[..self.parities]
    }

    /// Sets sources, coefficients and targets for the range that starts at `at`: columns that ended before it are zeros.
    fn plan(&mut self, data: &[Option<&'a [u8]>], missing: &[&mut [u8]], at: usize) -> Result<(), RaidzError> {
        let mut holes = [0; PARITY_MAX];
        (self.targets_used, self.sources_used) = (0, 0);
        let mut known = [0u8; N];
        let mut hole = 0;
        for (n, column) in data.iter().enumerate() {
            match column {
                None => {
                    if missing[hole].len() > at {
                        holes[self.targets_used] = n;
                        self.targets[self.targets_used] = hole;
                        self.targets_used += 1;
                    }
                    hole += 1;
                }
                Some(bytes) if bytes.len() > at => {
                    self.sources[self.sources_used] = bytes;
                    known[self.sources_used] = n as u8;
                    self.sources_used += 1;
                }
                Some(_) => {}
            }
        }
        let targets = self.targets_used;
        let inverse = self.invert(&holes[..targets]).ok_or(RaidzError::TooFewColumns)?;
        let with_p = self.parity[0].0 == 0;
        let products = targets - usize::from(with_p);
        for (row, solution) in self.rows.iter_mut().zip(&inverse).take(products) {
            for (value, &n) in row.iter_mut().zip(&known[..self.sources_used]) {
                *value = (0..targets).fold(0, |sum, equation| {
                    sum ^ gf::product(solution[equation], coefficient(self.parity[equation].0, usize::from(n), self.columns))
                });
            }
            for (value, &by) in row[self.sources_used..].iter_mut().zip(&solution[..targets]) {
                *value = by;
            }
        }
        // P comes first of the parity columns, so the plain sum's sources are the known data and P.
        self.xor_sources = self.sources_used + usize::from(with_p);
        for equation in 0..targets {
            self.sources[self.sources_used] = self.parity[equation].1;
            self.sources_used += 1;
        }
        Ok(())
    }

    /// The inverse of the coefficients of the missing columns in the first equations.
    fn invert(&self, holes: &[usize]) -> Option<[[u8; PARITY_MAX]; PARITY_MAX]> {
        let size = holes.len();
        let mut left = [[0u8; PARITY_MAX]; PARITY_MAX];
        let mut right = [[0u8; PARITY_MAX]; PARITY_MAX];
        for equation in 0..size {
            right[equation][equation] = 1;
            for (value, &hole) in left[equation].iter_mut().zip(holes) {
                *value = coefficient(self.parity[equation].0, hole, self.columns);
            }
        }
        for pivot in 0..size {
            let row = (pivot..size).find(|&row| left[row][pivot] != 0)?;
            left.swap(pivot, row);
            right.swap(pivot, row);
            let scale = gf::inverse(left[pivot][pivot]);
            left[pivot] = left[pivot].map(|value| gf::product(scale, value));
            right[pivot] = right[pivot].map(|value| gf::product(scale, value));
            for row in (0..size).filter(|&row| row != pivot) {
                let factor = left[row][pivot];
                for column in 0..size {
                    left[row][column] ^= gf::product(factor, left[pivot][column]);
                    right[row][column] ^= gf::product(factor, right[pivot][column]);
                }
            }
        }
        Some(right)
    }

    fn run(&self, implementation: &Implementation, missing: &mut [&mut [u8]], range: Range<usize>) {
        let with_p = self.parity[0].0 == 0;
        let mut slots: [&mut [u8]; PARITY_MAX] = [&mut [], &mut [], &mut []];
        let mut rest = missing;
        let mut passed = 0;
        for (slot, &target) in slots.iter_mut().zip(&self.targets[..self.targets_used]) {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(target + 1 - passed);
            *slot = &mut *head[target - passed];
            (rest, passed) = (tail, target + 1);
        }
        let (products, last) = slots[..self.targets_used].split_at_mut(self.targets_used - usize::from(with_p));
        let xor = last.first_mut().map(|column| &mut **column);
        let job = Combine {
            sources: &self.sources[..self.sources_used],
            xor_sources: self.xor_sources,
            rows: [&self.rows[0], &self.rows[1]],
            fold: true,
        };
        (implementation.combine)(&job, xor, products, range);
    }
}
