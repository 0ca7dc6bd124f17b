//! What an implementation of RAID-Z is: the functions that one instruction set has for one pass over columns. Which ones there are, what rows are
//! made of and which columns are missing it does not know.

use crate::checksum::Fletcher4;
use std::ops::Range;

/// Most data columns of a row.
pub const DATA_COLUMNS_MAX: usize = 255;
/// Rows of this many columns or fewer keep their lists small.
pub(super) const FEW: usize = 16;

/// Job of one pass over `sources`: the plain sum of the first `xor_sources` of them, and for each row of coefficients the
/// sum of products; with `fold` the products' results are added to the plain sum.
pub(super) struct Combine<'a> {
    pub(super) sources: &'a [&'a [u8]],
    pub(super) xor_sources: usize,
    pub(super) rows: [&'a [u8]; 2],
    pub(super) fold: bool,
}

impl Combine<'_> {
    /// Asserts what vector code relies on before it uses pointers.
    pub(super) fn check(&self, xor: &Option<&mut [u8]>, products: &[&mut [u8]], range: &Range<usize>) {
        let end = range.end;
        assert!(range.start <= end && self.xor_sources <= self.sources.len() && products.len() <= 2);
        assert!(self.sources.iter().all(|source| source.len() >= end));
        assert!(products.iter().all(|target| target.len() >= end) && xor.as_ref().is_none_or(|target| target.len() >= end));
        assert!(self.rows.iter().take(products.len()).all(|row| row.len() >= self.sources.len()));
    }
}

type CombineFn = fn(&Combine, Option<&mut [u8]>, &mut [&mut [u8]], Range<usize>);
type GenerateWithFletcher4 = fn(&[&[u8]], &mut [&mut [u8]], Range<usize>, &mut [Fletcher4]);
type GenerateFn = fn(&[&[u8]], &mut [&mut [u8]], Range<usize>);

/// Parity, and Fletcher-4 sums of each column in the form of the fastest implementation, of a whole number of steps over which all columns
/// reach.
pub(crate) struct WithFletcher4 {
    /// Bytes of each column per step.
    pub(crate) step_bytes: usize,
    /// Rows with more data columns are not taken.
    pub(crate) columns_max: usize,
    pub(crate) generate: GenerateWithFletcher4,
}

/// One way to compute parity.
pub struct Implementation {
    /// Name by which `zbench` and tests call it.
    pub name: &'static str,
    pub(super) supported: fn() -> bool,
    pub(super) combine: CombineFn,
    /// Parity of data columns that all reach over the range.
    pub(super) generate: GenerateFn,
    /// Parity and the checksum in one loop.
    pub(super) with_fletcher4: Option<&'static WithFletcher4>,
}

impl Implementation {
    /// True when this machine has the instructions.
    pub fn is_supported(&self) -> bool {
        (self.supported)()
    }

    /// Parity and checksum in one loop, if there is such code.
    pub(crate) fn with_fletcher4(&self) -> Option<&'static WithFletcher4> {
        self.with_fletcher4
    }
}
