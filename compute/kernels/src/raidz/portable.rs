//! RAID-Z in plain Rust, eight bytes at a time in a 64-bit word.

use super::gf::{REDUCTION, double};
use super::implementation::{Combine, Implementation};
use std::ops::Range;

/// Implementation that runs everywhere.
pub(super) static PORTABLE: Implementation = Implementation { name: "scalar", supported: || true, combine, generate, with_fletcher4: None };

const LOW_BITS: u64 = 0x0101_0101_0101_0101;

#[inline]
fn double_word(word: u64) -> u64 {
    (word << 1 & !LOW_BITS) ^ ((word >> 7 & LOW_BITS) * u64::from(REDUCTION))
}

#[inline]
fn multiply_word(images: &[u64; 8], word: u64) -> u64 {
    (0..8).fold(0, |sum, bit| sum ^ ((word >> bit & LOW_BITS) * images[bit]))
}

fn images(c: u8) -> [u64; 8] {
    let mut image = c;
    std::array::from_fn(|_| {
        let value = u64::from(image);
        image = double(image);
        value
    })
}

/// The bytes of `column` at `at`, as many as fit below `end`, as a word.
#[inline]
fn load(column: &[u8], at: usize, end: usize) -> u64 {
    if let Some((bytes, _)) = column[at..end].split_first_chunk::<8>() {
        return u64::from_le_bytes(*bytes);
    }
    column[at..end].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[inline]
fn store(column: &mut [u8], at: usize, end: usize, word: u64) {
    let length = (end - at).min(8);
    column[at..at + length].copy_from_slice(&word.to_le_bytes()[..length]);
}

fn generate(data: &[&[u8]], parity: &mut [&mut [u8]], range: Range<usize>) {
    for at in range.clone().step_by(8) {
        let (mut p, mut q, mut r) = (0, 0, 0);
        for column in data {
            let word = load(column, at, range.end);
            p ^= word;
            q = double_word(q) ^ word;
            r = double_word(double_word(r)) ^ word;
        }
        for (out, word) in parity.iter_mut().zip([p, q, r]) {
            store(out, at, range.end, word);
        }
    }
}

fn combine(job: &Combine, mut xor: Option<&mut [u8]>, products: &mut [&mut [u8]], range: Range<usize>) {
    for at in range.clone().step_by(8) {
        let (mut plain, mut sums) = (0, [0u64; 2]);
        for (n, source) in job.sources.iter().enumerate() {
            let word = load(source, at, range.end);
            if n < job.xor_sources {
                plain ^= word;
            }
            for (sum, row) in sums.iter_mut().zip(job.rows).take(products.len()) {
                *sum ^= multiply_word(&images(row[n]), word);
            }
        }
        for (out, &word) in products.iter_mut().zip(&sums) {
            store(out, at, range.end, word);
            if job.fold {
                plain ^= word;
            }
        }
        if let Some(out) = xor.as_deref_mut() {
            store(out, at, range.end, plain);
        }
    }
}
