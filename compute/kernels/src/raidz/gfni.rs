//! RAID-Z with AVX-512 and GFNI: multiplication by any constant is one `vgf2p8affineqb` with an 8×8 bit matrix.
#![allow(unsafe_code, reason = "vector loads and stores and the call into code for one instruction set")]
#![allow(clippy::needless_range_loop, reason = "vectors are numbered across several accumulators")]

use super::gf::MATRICES;
use super::gfni_fletcher::WITH_FLETCHER4;
use super::implementation::{Combine, DATA_COLUMNS_MAX, FEW, Implementation};
use super::portable::PORTABLE;
use std::arch::x86_64::*;
use std::ops::Range;

/// Four 512-bit vectors per column and step: whole cache lines of one column before the next, because columns often start at the
/// same offset within a page and then share cache sets.
pub(super) static GFNI: Implementation = Implementation {
    name: "avx512-gfni",
    supported: || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("gfni"),
    combine,
    generate,
    with_fletcher4: Some(&WITH_FLETCHER4),
};

pub(super) const VECTOR: usize = 64;
const WIDE: usize = 4;

/// Splits a range in parts for wide steps, single vectors, and the bytes that are left.
fn split(range: &Range<usize>) -> [Range<usize>; 3] {
    let wide = range.start + range.len() / (WIDE * VECTOR) * (WIDE * VECTOR);
    let single = wide + (range.end - wide) / VECTOR * VECTOR;
    [range.start..wide, wide..single, single..range.end]
}

fn generate(data: &[&[u8]], parity: &mut [&mut [u8]], range: Range<usize>) {
    assert!(data.iter().all(|column| column.len() >= range.end) && parity.iter().all(|column| column.len() >= range.end));
    let [wide, single, rest] = split(&range);
    // SAFETY: `Implementation` methods assert that the machine has the features; every column reaches over the range, just asserted.
    unsafe {
        match parity {
            [p] => {
                let targets = [p.as_mut_ptr()];
                generate_steps::<1, WIDE>(data, targets, wide);
                generate_steps::<1, 1>(data, targets, single);
            }
            [p, q] => {
                let targets = [p.as_mut_ptr(), q.as_mut_ptr()];
                generate_steps::<2, WIDE>(data, targets, wide);
                generate_steps::<2, 1>(data, targets, single);
            }
            [p, q, r] => {
                let targets = [p.as_mut_ptr(), q.as_mut_ptr(), r.as_mut_ptr()];
                generate_steps::<3, WIDE>(data, targets, wide);
                generate_steps::<3, 1>(data, targets, single);
            }
            _ => {}
        }
    }
    if !rest.is_empty() {
        (PORTABLE.generate)(data, parity, rest);
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn matrix(c: u8) -> __m512i {
    _mm512_set1_epi64(MATRICES[usize::from(c)] as i64)
}

/// a ⊕ b ⊕ c.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

/// # Safety
/// Columns and targets must reach over `range`, whose length is a multiple of `WIDTH` vectors.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn generate_steps<const PARITY: usize, const WIDTH: usize>(data: &[&[u8]], targets: [*mut u8; PARITY], range: Range<usize>) {
    // Horner's rule over pairs of columns: sum·x² + first·x + second, with x = 2 for Q and 4 for R.
    let (by_2, by_4, by_16) = (matrix(2), matrix(4), matrix(16));
    let (pairs, odd) = data.as_chunks::<2>();
    for at in range.step_by(WIDTH * VECTOR) {
        let mut sums = [[_mm512_setzero_si512(); WIDTH]; PARITY];
        for [first, second] in pairs {
            for vector in 0..WIDTH {
                let place = at + vector * VECTOR;
                // SAFETY: both columns reach over this step.
                let (a, b) = unsafe {
                    (_mm512_loadu_si512(first.as_ptr().add(place).cast()), _mm512_loadu_si512(second.as_ptr().add(place).cast()))
                };
                sums[0][vector] = xor3(sums[0][vector], a, b);
                if PARITY > 1 {
                    let product = _mm512_gf2p8affine_epi64_epi8::<0>(sums[1][vector], by_4);
                    sums[1][vector] = xor3(product, _mm512_gf2p8affine_epi64_epi8::<0>(a, by_2), b);
                }
                if PARITY > 2 {
                    let product = _mm512_gf2p8affine_epi64_epi8::<0>(sums[2][vector], by_16);
                    sums[2][vector] = xor3(product, _mm512_gf2p8affine_epi64_epi8::<0>(a, by_4), b);
                }
            }
        }
        for column in odd {
            for vector in 0..WIDTH {
                // SAFETY: the column reaches over this step.
                let a = unsafe { _mm512_loadu_si512(column.as_ptr().add(at + vector * VECTOR).cast()) };
                sums[0][vector] = _mm512_xor_si512(sums[0][vector], a);
                if PARITY > 1 {
                    sums[1][vector] = _mm512_xor_si512(_mm512_gf2p8affine_epi64_epi8::<0>(sums[1][vector], by_2), a);
                }
                if PARITY > 2 {
                    sums[2][vector] = _mm512_xor_si512(_mm512_gf2p8affine_epi64_epi8::<0>(sums[2][vector], by_4), a);
                }
            }
        }
        for (sum, target) in sums.iter().zip(targets) {
            for (vector, value) in sum.iter().enumerate() {
                // SAFETY: the target reaches over this step.
                unsafe { _mm512_storeu_si512(target.add(at + vector * VECTOR).cast(), *value) };
            }
        }
    }
}

fn combine(job: &Combine, mut xor: Option<&mut [u8]>, products: &mut [&mut [u8]], range: Range<usize>) {
    job.check(&xor, products, &range);
    let [wide, single, rest] = split(&range);
    let targets = [0, 1].map(|n| products.get_mut(n).map_or(std::ptr::null_mut(), |target| target.as_mut_ptr()));
    let plain = xor.as_deref_mut().map(|target| target.as_mut_ptr());
    // SAFETY: `Implementation` methods assert that the machine has the features; `check` asserted that all columns reach over the range.
    unsafe {
        if job.sources.len() <= FEW {
            dispatch::<FEW>(job, plain, targets, products.len(), [wide, single]);
        } else {
            dispatch::<DATA_COLUMNS_MAX>(job, plain, targets, products.len(), [wide, single]);
        }
    }
    if !rest.is_empty() {
        (PORTABLE.combine)(job, xor, products, rest);
    }
}

/// # Safety
/// As [`combine_steps`], for the first `rows` targets.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn dispatch<const N: usize>(job: &Combine, plain: Option<*mut u8>, targets: [*mut u8; 2], rows: usize, ranges: [Range<usize>; 2]) {
    let mut matrices = [[0u64; 2]; N];
    for (row, coefficients) in job.rows.iter().enumerate().take(rows) {
        for (matrix, &c) in matrices.iter_mut().zip(*coefficients).take(job.sources.len()) {
            matrix[row] = MATRICES[usize::from(c)];
        }
    }
    let matrices = &matrices[..job.sources.len()];
    let [wide, single] = ranges;
    // SAFETY: the caller's promise; `split` makes multiples of the step.
    unsafe {
        match (rows, plain) {
            (0, Some(plain)) => {
                combine_steps::<0, true, WIDE>(job, matrices, plain, targets, wide);
                combine_steps::<0, true, 1>(job, matrices, plain, targets, single);
            }
            (1, Some(plain)) => {
                combine_steps::<1, true, WIDE>(job, matrices, plain, targets, wide);
                combine_steps::<1, true, 1>(job, matrices, plain, targets, single);
            }
            (2, Some(plain)) => {
                combine_steps::<2, true, WIDE>(job, matrices, plain, targets, wide);
                combine_steps::<2, true, 1>(job, matrices, plain, targets, single);
            }
            (1, None) => {
                combine_steps::<1, false, WIDE>(job, matrices, targets[0], targets, wide);
                combine_steps::<1, false, 1>(job, matrices, targets[0], targets, single);
            }
            (2, None) => {
                combine_steps::<2, false, WIDE>(job, matrices, targets[0], targets, wide);
                combine_steps::<2, false, 1>(job, matrices, targets[0], targets, single);
            }
            _ => {}
        }
    }
}

/// # Safety
/// Sources, the first `ROWS` targets and (with `PLAIN`) `plain` must reach over `range`, whose length is a multiple of `WIDTH` vectors.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn combine_steps<const ROWS: usize, const PLAIN: bool, const WIDTH: usize>(
    job: &Combine,
    matrices: &[[u64; 2]],
    plain: *mut u8,
    targets: [*mut u8; 2],
    range: Range<usize>,
) {
    let (in_sum, beside) = job.sources.split_at(job.xor_sources);
    let (in_sum_matrices, beside_matrices) = matrices.split_at(job.xor_sources);
    for at in range.step_by(WIDTH * VECTOR) {
        let mut sum = [_mm512_setzero_si512(); WIDTH];
        let mut sums = [[_mm512_setzero_si512(); WIDTH]; ROWS];
        for (source, matrices) in in_sum.iter().zip(in_sum_matrices) {
            for vector in 0..WIDTH {
                // SAFETY: the source reaches over this step.
                let bytes = unsafe { _mm512_loadu_si512(source.as_ptr().add(at + vector * VECTOR).cast()) };
                if PLAIN {
                    sum[vector] = _mm512_xor_si512(sum[vector], bytes);
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let product = _mm512_gf2p8affine_epi64_epi8::<0>(bytes, _mm512_set1_epi64(matrices[row] as i64));
                    sums[vector] = _mm512_xor_si512(sums[vector], product);
                }
            }
        }
        for (source, matrices) in beside.iter().zip(beside_matrices) {
            for vector in 0..WIDTH {
                // SAFETY: the source reaches over this step.
                let bytes = unsafe { _mm512_loadu_si512(source.as_ptr().add(at + vector * VECTOR).cast()) };
                for (row, sums) in sums.iter_mut().enumerate() {
                    let product = _mm512_gf2p8affine_epi64_epi8::<0>(bytes, _mm512_set1_epi64(matrices[row] as i64));
                    sums[vector] = _mm512_xor_si512(sums[vector], product);
                }
            }
        }
        for (sums, target) in sums.iter().zip(targets) {
            for (vector, value) in sums.iter().enumerate() {
                if PLAIN && job.fold {
                    sum[vector] = _mm512_xor_si512(sum[vector], *value);
                }
                // SAFETY: the target reaches over this step.
                unsafe { _mm512_storeu_si512(target.add(at + vector * VECTOR).cast(), *value) };
            }
        }
        if PLAIN {
            for (vector, value) in sum.iter().enumerate() {
                // SAFETY: the target reaches over this step.
                unsafe { _mm512_storeu_si512(plain.add(at + vector * VECTOR).cast(), *value) };
            }
        }
    }
}
