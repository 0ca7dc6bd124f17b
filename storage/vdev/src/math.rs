//! Parity columns as [`Abd`]s: generation, and the solution of missing data columns.
//!
//! Parity `j` (0–2) of data columns `0..n` is the sum over GF(2⁸) (polynomial 0x11d) of `column i × 2^(j·(n−1−i))`; shorter
//! columns count as padded with zeros (OpenZFS: `vdev_raidz_generate_parity_pqr`).

use abd::Abd;

const POLYNOMIAL: u32 = 0x11d;

const fn tables() -> ([u8; 512], [u8; 256]) {
    let (mut exp, mut log) = ([0u8; 512], [0u8; 256]);
    let (mut value, mut index) = (1u32, 0);
    while index < 255 {
        exp[index] = value as u8;
        exp[index + 255] = value as u8;
        log[value as usize] = index as u8;
        value <<= 1;
        if value & 0x100 != 0 {
            value ^= POLYNOMIAL;
        }
        index += 1;
    }
    (exp, log)
}
static TABLES: ([u8; 512], [u8; 256]) = tables();

fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    TABLES.0[TABLES.1[a as usize] as usize + TABLES.1[b as usize] as usize]
}
fn inverse(a: u8) -> u8 {
    TABLES.0[255 - TABLES.1[a as usize] as usize]
}
fn coefficient(parity: usize, column: usize, count: usize) -> u8 {
    TABLES.0[parity * (count - 1 - column) % 255]
}

/// Adds `factor × source` to `target`; a shorter `source` counts as padded with zeros.
fn add_scaled(target: &mut [u8], source: &[u8], factor: u8) {
    let mut row = [0u8; 256];
    for (value, product) in row.iter_mut().enumerate() {
        *product = multiply(factor, value as u8);
    }
    for (t, s) in target.iter_mut().zip(source) {
        *t ^= row[*s as usize];
    }
}

fn bytes(column: &Abd) -> &[u8] {
    column.as_contiguous().unwrap_or(&[])
}

/// `count` parity columns of `length` bytes for the data `columns` (contiguous buffers).
pub(crate) fn generate(columns: &[Abd], count: usize, length: usize) -> Vec<Abd> {
    (0..count)
        .map(|parity| {
            let mut out = Abd::zeroed(length);
            for (index, column) in columns.iter().enumerate() {
                add_scaled(out.make_mut(), bytes(column), coefficient(parity, index, columns.len()));
            }
            out
        })
        .collect()
}

/// Solves the data columns that are None from as many of the `parity` columns (number, bytes). `lengths` are the columns'
/// lengths. None when there is too little parity.
pub(crate) fn solve(columns: &[Option<Abd>], lengths: &[usize], parity: &[(usize, Abd)]) -> Option<Vec<Abd>> {
    let missing: Vec<usize> = (0..columns.len()).filter(|&index| columns[index].is_none()).collect();
    let parity = parity.get(..missing.len())?;
    // Each equation: the parity minus the known columns = the sum of the missing ones.
    let mut rights: Vec<Vec<u8>> = Vec::with_capacity(parity.len());
    let mut matrix: Vec<Vec<u8>> = Vec::with_capacity(parity.len());
    for (number, content) in parity {
        let mut right = bytes(content).to_vec();
        for (index, column) in columns.iter().enumerate() {
            if let Some(column) = column {
                add_scaled(&mut right, bytes(column), coefficient(*number, index, columns.len()));
            }
        }
        rights.push(right);
        matrix.push(missing.iter().map(|&index| coefficient(*number, index, columns.len())).collect());
    }
    for pivot in 0..missing.len() {
        let row = (pivot..missing.len()).find(|&row| matrix[row][pivot] != 0)?;
        matrix.swap(pivot, row);
        rights.swap(pivot, row);
        let scale = inverse(matrix[pivot][pivot]);
        matrix[pivot].iter_mut().for_each(|value| *value = multiply(*value, scale));
        rights[pivot].iter_mut().for_each(|value| *value = multiply(*value, scale));
        for row in (0..missing.len()).filter(|&row| row != pivot) {
            let factor = matrix[row][pivot];
            if factor != 0 {
                let (from_row, from_right) = (matrix[pivot].clone(), rights[pivot].clone());
                add_scaled(&mut matrix[row], &from_row, factor);
                add_scaled(&mut rights[row], &from_right, factor);
            }
        }
    }
    let mut solved: Vec<Abd> = columns.iter().map(|column| column.clone().unwrap_or_default()).collect();
    for (row, &index) in missing.iter().enumerate() {
        solved[index] = Abd::from_slice(&rights[row][..lengths[index]]);
    }
    Some(solved)
}
