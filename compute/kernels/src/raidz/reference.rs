//! RAID-Z from the definition, byte by byte: what every other implementation must equal. Slow on purpose.
//!
//! With data columns d₀…dₙ₋₁: P = Σ dᵢ, Q = Σ 2ⁿ⁻¹⁻ⁱ·dᵢ, R = Σ 4ⁿ⁻¹⁻ⁱ·dᵢ; a column that is shorter than the first counts as zeros
//! beyond its end (OpenZFS: `vdev_raidz.c`, theory statement).

use super::RaidzError;
use super::gf::multiply;

fn coefficient(parity: usize, column: usize, columns: usize) -> u8 {
    let base = [1, 2, 4][parity];
    (column + 1..columns).fold(1, |power, _| multiply(power, base))
}

/// Parity of `data`: one column of `parity` for P, then Q, then R.
pub fn generate(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    for (row, out) in parity.iter_mut().enumerate() {
        for (at, byte) in out.iter_mut().enumerate() {
            let terms = data.iter().enumerate().filter(|(_, column)| at < column.len());
            *byte = terms.fold(0, |sum, (n, column)| sum ^ multiply(coefficient(row, n, data.len()), column[at]));
        }
    }
}

/// Recomputes the missing data columns by Gaussian elimination over the equations of the parity columns that are there.
///
/// # Errors
/// `TooFewColumns` when there are fewer parity columns than missing data columns, `Shape` when `missing` does not match.
pub fn reconstruct(data: &[Option<&[u8]>], parity: &[Option<&[u8]>], missing: &mut [&mut [u8]]) -> Result<(), RaidzError> {
    let holes: Vec<usize> = (0..data.len()).filter(|&n| data[n].is_none()).collect();
    if holes.len() != missing.len() {
        return Err(RaidzError::Shape);
    }
    let rows: Vec<usize> = (0..parity.len()).filter(|&row| parity[row].is_some()).take(holes.len()).collect();
    if rows.len() < holes.len() {
        return Err(RaidzError::TooFewColumns);
    }
    let length = missing.iter().map(|column| column.len()).max().unwrap_or(0);
    for at in 0..length {
        let mut system: Vec<Vec<u8>> = Vec::new();
        for &row in &rows {
            let mut equation: Vec<u8> = holes.iter().map(|&hole| coefficient(row, hole, data.len())).collect();
            let known = data.iter().enumerate().filter_map(|(n, column)| Some((n, *column.as_ref()?.get(at)?)));
            let given = parity[row].and_then(|column| column.get(at).copied()).unwrap_or(0);
            equation.push(known.fold(given, |sum, (n, byte)| sum ^ multiply(coefficient(row, n, data.len()), byte)));
            system.push(equation);
        }
        let solution = solve(system).ok_or(RaidzError::TooFewColumns)?;
        for (column, value) in missing.iter_mut().zip(solution) {
            if let Some(byte) = column.get_mut(at) {
                *byte = value;
            }
        }
    }
    Ok(())
}

fn solve(mut system: Vec<Vec<u8>>) -> Option<Vec<u8>> {
    let size = system.len();
    for pivot in 0..size {
        let row = (pivot..size).find(|&row| system[row][pivot] != 0)?;
        system.swap(pivot, row);
        let inverse = (1..=255).find(|&c| multiply(c, system[pivot][pivot]) == 1)?;
        system[pivot] = system[pivot].iter().map(|&value| multiply(inverse, value)).collect();
        let equation = system[pivot].clone();
        for (_, other) in system.iter_mut().enumerate().filter(|(row, _)| *row != pivot) {
            let factor = other[pivot];
            for (value, &by) in other.iter_mut().zip(&equation) {
                *value ^= multiply(factor, by);
            }
        }
    }
    Some(system.into_iter().map(|equation| equation[size]).collect())
}
