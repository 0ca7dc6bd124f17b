//! Parity columns as [`Abd`]s: generation, and the solution of missing data columns, by `kernels::raidz`.

use abd::{Abd, AbdPart};

fn bytes(column: &Abd) -> &[u8] {
    column.as_contiguous().unwrap_or(&[])
}

/// `count` parity columns of `length` bytes for the data `columns` (contiguous buffers).
pub(crate) fn generate(columns: &[Abd], count: usize, length: usize) -> Vec<Abd> {
    fill(columns, count, length, kernels::raidz::generate).0
}

/// As [`generate`], and Fletcher-4 of the columns one after another, with each byte read from memory once.
pub(crate) fn generate_with_fletcher4(columns: &[Abd], count: usize, length: usize) -> (Vec<Abd>, [u64; 4]) {
    fill(columns, count, length, kernels::fused::generate_with_fletcher4)
}

/// As [`generate_with_fletcher4`] for columns that others may change: their bytes are looked at once.
pub(crate) fn generate_unstable(columns: &[Abd], count: usize, length: usize) -> (Vec<Abd>, [u64; 4]) {
    let lengths: Vec<usize> = columns.iter().map(Abd::len).collect();
    let mut parity: Vec<AbdPart> = (0..count).map(|_| AbdPart::scratch(length)).collect();
    let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[..]).collect();
    let read = |column: usize, offset: usize, out: &mut [u8]| columns[column].peek(offset, out);
    let sum = kernels::fused::generate_with_fletcher4_from(&lengths, read, &mut targets);
    debug_assert!(sum.is_ok(), "parity of a well-formed row");
    (parity.into_iter().map(AbdPart::freeze).collect(), sum.unwrap_or_default())
}

/// Lets `make` fill fresh parity columns.
fn fill<T: Default, E>(
    columns: &[Abd],
    count: usize,
    length: usize,
    make: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> Result<T, E>,
) -> (Vec<Abd>, T) {
    let data: Vec<&[u8]> = columns.iter().map(bytes).collect();
    let mut parity: Vec<AbdPart> = (0..count).map(|_| AbdPart::scratch(length)).collect();
    let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[..]).collect();
    // A map always has 1–3 parity columns as long as its longest data column, which is all that can be refused.
    let done = make(&data, &mut targets);
    debug_assert!(done.is_ok(), "parity of a well-formed row");
    (parity.into_iter().map(AbdPart::freeze).collect(), done.unwrap_or_default())
}

/// Solves the data columns that are None from as many of the `parity` columns (number, bytes). `lengths` are the columns'
/// lengths. None when there is too little parity.
pub(crate) fn solve(columns: &[Option<Abd>], lengths: &[usize], parity: &[(usize, Abd)]) -> Option<Vec<Abd>> {
    let data: Vec<Option<&[u8]>> = columns.iter().map(|column| column.as_ref().map(bytes)).collect();
    let mut given: [Option<&[u8]>; 3] = [None; 3];
    for (number, column) in parity {
        given[*number] = Some(bytes(column));
    }
    let lost = lengths.iter().zip(columns).filter(|(_, column)| column.is_none());
    let mut missing: Vec<Abd> = lost.map(|(&length, _)| Abd::scratch(length)).collect();
    let mut targets: Vec<&mut [u8]> = missing.iter_mut().map(Abd::make_mut).collect();
    kernels::raidz::reconstruct(&data, &given, &mut targets).ok()?;
    let mut missing = missing.into_iter();
    columns.iter().map(|column| column.clone().or_else(|| missing.next())).collect()
}
