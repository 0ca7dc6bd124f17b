//! RAID-Z with AVX-512BW: doubling by sign mask and add, products by two byte shuffles.
#![allow(unsafe_code, reason = "vector loads and stores and the call into code for one instruction set")]
#![allow(clippy::needless_range_loop, reason = "vectors are numbered across several accumulators")]

use super::gf::{NIBBLES, REDUCTION};
use super::implementation::{Combine, Implementation};
use super::portable::PORTABLE;
use std::arch::x86_64::*;
use std::ops::Range;

/// Two 512-bit vectors per column and step.
pub(super) static AVX512BW: Implementation = Implementation {
    name: "avx512bw",
    supported: || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"),
    combine,
    generate,
    with_fletcher4: None,
};

const VECTORS: usize = 2;
const STEP: usize = 64 * VECTORS;

fn generate(data: &[&[u8]], parity: &mut [&mut [u8]], range: Range<usize>) {
    assert!(data.iter().all(|column| column.len() >= range.end) && parity.iter().all(|column| column.len() >= range.end));
    let steps = range.start..range.start + range.len() / STEP * STEP;
    // SAFETY: `Implementation` methods assert that the machine has AVX-512BW; every column reaches over `steps`, just asserted.
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
#[target_feature(enable = "avx512f,avx512bw")]
fn double(x: __m512i) -> __m512i {
    let carry = _mm512_movepi8_mask(x);
    _mm512_xor_si512(_mm512_add_epi8(x, x), _mm512_maskz_mov_epi8(carry, _mm512_set1_epi8(REDUCTION as i8)))
}

/// # Safety
/// Columns and the first `PARITY` targets must reach over `range`, whose length is a multiple of `STEP`.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn generate_steps<const PARITY: usize>(data: &[&[u8]], targets: [*mut u8; 3], range: Range<usize>) {
    for at in range.step_by(STEP) {
        let mut sums = [[_mm512_setzero_si512(); VECTORS]; PARITY];
        for column in data {
            for vector in 0..VECTORS {
                // SAFETY: the column reaches over this step.
                let bytes = unsafe { _mm512_loadu_si512(column.as_ptr().add(at + 64 * vector).cast()) };
                for (power, sum) in sums.iter_mut().enumerate() {
                    let mut value = sum[vector];
                    for _ in 0..power {
                        value = double(value);
                    }
                    sum[vector] = _mm512_xor_si512(value, bytes);
                }
            }
        }
        for (sum, target) in sums.iter().zip(targets) {
            for (vector, value) in sum.iter().enumerate() {
                // SAFETY: the target reaches over this step.
                unsafe { _mm512_storeu_si512(target.add(at + 64 * vector).cast(), *value) };
            }
        }
    }
}

fn combine(job: &Combine, mut xor: Option<&mut [u8]>, products: &mut [&mut [u8]], range: Range<usize>) {
    job.check(&xor, products, &range);
    let steps = range.start..range.start + range.len() / STEP * STEP;
    let plain = xor.as_deref_mut().map(|target| target.as_mut_ptr());
    // SAFETY: `Implementation` methods assert that the machine has AVX-512BW; `check` asserted that all columns reach over the range.
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
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn combine_steps<const ROWS: usize>(job: &Combine, plain: Option<*mut u8>, targets: [*mut u8; ROWS], range: Range<usize>) {
    let low_nibble = _mm512_set1_epi8(15);
    for at in range.step_by(STEP) {
        let mut sum = [_mm512_setzero_si512(); VECTORS];
        let mut sums = [[_mm512_setzero_si512(); VECTORS]; ROWS];
        for (n, source) in job.sources.iter().enumerate() {
            let mut bytes = [_mm512_setzero_si512(); VECTORS];
            for (vector, value) in bytes.iter_mut().enumerate() {
                // SAFETY: the source reaches over this step.
                *value = unsafe { _mm512_loadu_si512(source.as_ptr().add(at + 64 * vector).cast()) };
                if n < job.xor_sources {
                    sum[vector] = _mm512_xor_si512(sum[vector], *value);
                }
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let table = NIBBLES[usize::from(job.rows[row][n])].as_ptr();
                // SAFETY: a table has 32 bytes.
                let (low, high) = unsafe { (_mm_loadu_si128(table.cast()), _mm_loadu_si128(table.add(16).cast())) };
                let (low, high) = (_mm512_broadcast_i32x4(low), _mm512_broadcast_i32x4(high));
                for (sum, &value) in sums.iter_mut().zip(&bytes) {
                    let of_low = _mm512_shuffle_epi8(low, _mm512_and_si512(value, low_nibble));
                    let of_high = _mm512_shuffle_epi8(high, _mm512_and_si512(_mm512_srli_epi16(value, 4), low_nibble));
                    *sum = _mm512_xor_si512(*sum, _mm512_xor_si512(of_low, of_high));
                }
            }
        }
        for vector in 0..VECTORS {
            for (sums, target) in sums.iter().zip(targets) {
                // SAFETY: the target reaches over this step.
                unsafe { _mm512_storeu_si512(target.add(at + 64 * vector).cast(), sums[vector]) };
                if job.fold {
                    sum[vector] = _mm512_xor_si512(sum[vector], sums[vector]);
                }
            }
            if let Some(target) = plain {
                // SAFETY: the target reaches over this step.
                unsafe { _mm512_storeu_si512(target.add(at + 64 * vector).cast(), sum[vector]) };
            }
        }
    }
}
