//! RAID-Z with AVX-512BW: doubling by sign mask and add, products by two byte shuffles.
#![allow(unsafe_code, reason = "vector loads and stores and the call into code for one instruction set")]

use super::gf::REDUCTION;
use super::implementation::{Combine, Implementation};
use super::portable::PORTABLE;
use super::vector::{self, Vector};
use std::arch::x86_64::*;
use std::ops::Range;

pub(super) static AVX512BW: Implementation = Implementation {
    name: "avx512bw",
    supported: || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"),
    combine,
    generate,
    with_fletcher4: None,
};

fn generate(data: &[&[u8]], parity: &mut [&mut [u8]], range: Range<usize>) {
    assert!(data.iter().all(|column| column.len() >= range.end) && parity.iter().all(|column| column.len() >= range.end));
    let steps = vector::steps::<__m512i>(&range);
    // SAFETY: `Implementation` methods assert that the machine has AVX-512BW; every column reaches over `steps`, just asserted.
    unsafe { generate_steps(data, parity, steps.clone()) };
    (PORTABLE.generate)(data, parity, steps.end..range.end);
}

/// # Safety
/// As [`vector::generate`].
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn generate_steps(data: &[&[u8]], parity: &mut [&mut [u8]], range: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe { vector::generate::<__m512i>(data, parity, range) };
}

fn combine(job: &Combine, mut xor: Option<&mut [u8]>, products: &mut [&mut [u8]], range: Range<usize>) {
    job.check(&xor, products, &range);
    let steps = vector::steps::<__m512i>(&range);
    // SAFETY: `Implementation` methods assert that the machine has AVX-512BW; `check` asserted that all columns reach over the range.
    unsafe { combine_steps(job, xor.as_deref_mut(), products, steps.clone()) };
    (PORTABLE.combine)(job, xor, products, steps.end..range.end);
}

/// # Safety
/// As [`vector::combine`].
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn combine_steps(job: &Combine, xor: Option<&mut [u8]>, products: &mut [&mut [u8]], range: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe { vector::combine::<__m512i>(job, xor, products, range) };
}

// SAFETY: every method is a few instructions of AVX-512F and AVX-512BW.
unsafe impl Vector for __m512i {
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn zero() -> __m512i {
        // SAFETY: the machine has AVX-512BW.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_si512(to.cast(), self) };
    }

    #[inline(always)]
    unsafe fn xor(self, other: __m512i) -> __m512i {
        // SAFETY: the machine has AVX-512BW.
        unsafe { _mm512_xor_si512(self, other) }
    }

    #[inline(always)]
    unsafe fn double(self) -> __m512i {
        // SAFETY: the machine has AVX-512BW.
        unsafe {
            let carry = _mm512_movepi8_mask(self);
            _mm512_xor_si512(_mm512_add_epi8(self, self), _mm512_maskz_mov_epi8(carry, _mm512_set1_epi8(REDUCTION as i8)))
        }
    }

    #[inline(always)]
    unsafe fn tables(table: &[u8; 32]) -> [__m512i; 2] {
        // SAFETY: the machine has AVX-512BW; a table has 32 bytes.
        unsafe {
            let (low, high) = (_mm_loadu_si128(table.as_ptr().cast()), _mm_loadu_si128(table.as_ptr().add(16).cast()));
            [_mm512_broadcast_i32x4(low), _mm512_broadcast_i32x4(high)]
        }
    }

    #[inline(always)]
    unsafe fn times(self, [low, high]: [__m512i; 2]) -> __m512i {
        // SAFETY: the machine has AVX-512BW.
        unsafe {
            let low_nibble = _mm512_set1_epi8(15);
            let of_low = _mm512_shuffle_epi8(low, _mm512_and_si512(self, low_nibble));
            let of_high = _mm512_shuffle_epi8(high, _mm512_and_si512(_mm512_srli_epi16(self, 4), low_nibble));
            _mm512_xor_si512(of_low, of_high)
        }
    }
}
