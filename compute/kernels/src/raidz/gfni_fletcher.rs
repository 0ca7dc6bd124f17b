//! Parity and Fletcher-4 of a row in one loop, with AVX-512 and GFNI: while the memory brings the next bytes of each column, there is
//! arithmetic for both to do, and each byte is loaded once. Fetching ahead of the loads (`prefetcht0`) makes it slower on the machine of docs/bench.
#![allow(unsafe_code, reason = "vector loads and stores and the call into code for one instruction set")]
#![allow(clippy::needless_range_loop, reason = "vectors are numbered across several accumulators")]

use super::gfni::{VECTOR, matrix};
use super::implementation::WithFletcher4;
use crate::checksum::{Fletcher4, with_words};
use std::arch::x86_64::*;
use std::ops::Range;

/// Vectors of each column per step.
const WIDTH: usize = 8;
const STEP_BYTES: usize = WIDTH * VECTOR;
/// Number of columns, at most; of more, slices in turn are as fast: their sums and their streams contend for the nearest cache.
const COLUMNS_MAX: usize = 8;

pub(super) static WITH_FLETCHER4: WithFletcher4 = WithFletcher4 { step_bytes: STEP_BYTES, columns_max: COLUMNS_MAX, generate };

fn generate(data: &[&[u8]], parity: &mut [&mut [u8]], range: Range<usize>, sums: &mut [Fletcher4]) {
    assert!(data.iter().all(|column| column.len() >= range.end) && parity.iter().all(|column| column.len() >= range.end));
    assert!(range.len().is_multiple_of(STEP_BYTES) && data.len() == sums.len() && data.len() <= COLUMNS_MAX);
    // SAFETY: `Implementation` methods assert that the machine has the features; every column reaches over the range, just asserted.
    unsafe {
        match parity {
            [p] => steps::<1>(data, [p.as_mut_ptr()], range, sums),
            [p, q] => steps::<2>(data, [p.as_mut_ptr(), q.as_mut_ptr()], range, sums),
            [p, q, r] => steps::<3>(data, [p.as_mut_ptr(), q.as_mut_ptr(), r.as_mut_ptr()], range, sums),
            _ => {}
        }
    }
}

/// # Safety
/// Columns and targets must reach over `range`, whose length is a multiple of the step.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn steps<const PARITY: usize>(data: &[&[u8]], targets: [*mut u8; PARITY], range: Range<usize>, sums: &mut [Fletcher4]) {
    let (by_2, by_4) = (matrix(2), matrix(4));
    let mut states = [[_mm512_setzero_si512(); 8]; COLUMNS_MAX];
    for (state, sum) in states.iter_mut().zip(sums.iter_mut()) {
        *state = sum.wide_lanes().as_vectors();
    }
    for at in range.step_by(STEP_BYTES) {
        let mut row = [[_mm512_setzero_si512(); WIDTH]; PARITY];
        for (column, state) in data.iter().zip(&mut states) {
            let mut sums = *state;
            for vector in 0..WIDTH {
                // SAFETY: the column reaches over this step.
                let words = unsafe { _mm512_loadu_si512(column.as_ptr().add(at + vector * VECTOR).cast()) };
                row[0][vector] = _mm512_xor_si512(row[0][vector], words);
                if PARITY > 1 {
                    row[1][vector] = _mm512_xor_si512(_mm512_gf2p8affine_epi64_epi8::<0>(row[1][vector], by_2), words);
                }
                if PARITY > 2 {
                    row[2][vector] = _mm512_xor_si512(_mm512_gf2p8affine_epi64_epi8::<0>(row[2][vector], by_4), words);
                }
                sums = with_words(sums, words);
            }
            *state = sums;
        }
        for (row, target) in row.iter().zip(targets) {
            for (vector, value) in row.iter().enumerate() {
                // SAFETY: the target reaches over this step.
                unsafe { _mm512_storeu_si512(target.add(at + vector * VECTOR).cast(), *value) };
            }
        }
    }
    for (state, sum) in states.iter().zip(sums) {
        sum.wide_lanes().set_vectors(*state);
    }
}
