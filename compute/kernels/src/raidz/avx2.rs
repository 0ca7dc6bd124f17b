//! RAID-Z with AVX2: doubling by compare and add, products by two byte shuffles.
#![allow(unsafe_code, reason = "vector loads and stores and the call into code for one instruction set")]
#![allow(clippy::needless_range_loop, reason = "vectors are numbered across several accumulators")]

use super::gf::{NIBBLES, REDUCTION};
use super::implementation::{Combine, Implementation};
use super::portable::PORTABLE;
use std::arch::x86_64::*;
use std::ops::Range;

/// Two 256-bit vectors per column and step.
pub(super) static AVX2: Implementation =
    Implementation { name: "avx2", supported: || is_x86_feature_detected!("avx2"), combine, generate, with_fletcher4: None };

const VECTORS: usize = 2;
const STEP: usize = 32 * VECTORS;

fn generate(data: &[&[u8]], parity: &mut [&mut [u8]], range: Range<usize>) {
    assert!(data.iter().all(|column| column.len() >= range.end) && parity.iter().all(|column| column.len() >= range.end));
    let steps = range.start..range.start + range.len() / STEP * STEP;
    // SAFETY: `Implementation` methods assert that the machine has AVX2; every column reaches over `steps`, just asserted.
    unsafe {
        match parity {
            [p] => generate_steps::<1>(data, [p.as_mut_ptr(); 3], steps.clone()),
            [p, q] => generate_steps::<2>(data, [p.as_mut_ptr(), q.as_mut_ptr(), q.as_mut_ptr()], steps.clone()),
            [p, q, r] => generate_steps::<3>(data, [p.as_mut_ptr(), q.as_mut_ptr(), r.as_mut_ptr()], steps.clone()),
            _ => {}
        }
    }
    (PORTABLE.generate)(data, parity, steps.end..range.end);
}

#[inline]
#[target_feature(enable = "avx2")]
fn double(x: __m256i) -> __m256i {
    let carry = _mm256_cmpgt_epi8(_mm256_setzero_si256(), x);
    _mm256_xor_si256(_mm256_add_epi8(x, x), _mm256_and_si256(carry, _mm256_set1_epi8(REDUCTION as i8)))
}

/// # Safety
/// Columns and the first `PARITY` targets must reach over `range`, whose length is a multiple of `STEP`.
#[target_feature(enable = "avx2")]
unsafe fn generate_steps<const PARITY: usize>(data: &[&[u8]], targets: [*mut u8; 3], range: Range<usize>) {
    for at in range.step_by(STEP) {
        let mut sums = [[_mm256_setzero_si256(); VECTORS]; PARITY];
        for column in data {
            for vector in 0..VECTORS {
                // SAFETY: the column reaches over this step.
                let bytes = unsafe { _mm256_loadu_si256(column.as_ptr().add(at + 32 * vector).cast()) };
                for (power, sum) in sums.iter_mut().enumerate() {
                    let mut value = sum[vector];
                    for _ in 0..power {
                        value = double(value);
                    }
                    sum[vector] = _mm256_xor_si256(value, bytes);
                }
            }
        }
        for (sum, target) in sums.iter().zip(targets) {
            for (vector, value) in sum.iter().enumerate() {
                // SAFETY: the target reaches over this step.
                unsafe { _mm256_storeu_si256(target.add(at + 32 * vector).cast(), *value) };
            }
        }
    }
}

fn combine(job: &Combine, mut xor: Option<&mut [u8]>, products: &mut [&mut [u8]], range: Range<usize>) {
    job.check(&xor, products, &range);
    let steps = range.start..range.start + range.len() / STEP * STEP;
    let plain = xor.as_deref_mut().map(|target| target.as_mut_ptr());
    // SAFETY: `Implementation` methods assert that the machine has AVX2; `check` asserted that all columns reach over the range.
    unsafe {
        match products {
            [] => combine_steps::<0>(job, plain, [], steps.clone()),
            [one] => combine_steps::<1>(job, plain, [one.as_mut_ptr()], steps.clone()),
            [one, two, ..] => combine_steps::<2>(job, plain, [one.as_mut_ptr(), two.as_mut_ptr()], steps.clone()),
        }
    }
    (PORTABLE.combine)(job, xor, products, steps.end..range.end);
}

/// # Safety
/// Sources and targets must reach over `range`, whose length is a multiple of `STEP`.
#[target_feature(enable = "avx2")]
unsafe fn combine_steps<const ROWS: usize>(job: &Combine, plain: Option<*mut u8>, targets: [*mut u8; ROWS], range: Range<usize>) {
    let low_nibble = _mm256_set1_epi8(15);
    for at in range.step_by(STEP) {
        let mut sum = [_mm256_setzero_si256(); VECTORS];
        let mut sums = [[_mm256_setzero_si256(); VECTORS]; ROWS];
        for (n, source) in job.sources.iter().enumerate() {
            let mut bytes = [_mm256_setzero_si256(); VECTORS];
            for (vector, value) in bytes.iter_mut().enumerate() {
                // SAFETY: the source reaches over this step.
                *value = unsafe { _mm256_loadu_si256(source.as_ptr().add(at + 32 * vector).cast()) };
                if n < job.xor_sources {
                    sum[vector] = _mm256_xor_si256(sum[vector], *value);
                }
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let table = NIBBLES[usize::from(job.rows[row][n])].as_ptr();
                // SAFETY: a table has 32 bytes.
                let (low, high) = unsafe { (_mm_loadu_si128(table.cast()), _mm_loadu_si128(table.add(16).cast())) };
                let (low, high) = (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high));
                for (sum, &value) in sums.iter_mut().zip(&bytes) {
                    let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(value, low_nibble));
                    let of_high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16(value, 4), low_nibble));
                    *sum = _mm256_xor_si256(*sum, _mm256_xor_si256(of_low, of_high));
                }
            }
        }
        for vector in 0..VECTORS {
            for (sums, target) in sums.iter().zip(targets) {
                // SAFETY: the target reaches over this step.
                unsafe { _mm256_storeu_si256(target.add(at + 32 * vector).cast(), sums[vector]) };
                if job.fold {
                    sum[vector] = _mm256_xor_si256(sum[vector], sums[vector]);
                }
            }
            if let Some(target) = plain {
                // SAFETY: the target reaches over this step.
                unsafe { _mm256_storeu_si256(target.add(at + 32 * vector).cast(), sum[vector]) };
            }
        }
    }
}
