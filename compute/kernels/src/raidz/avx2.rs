//! RAID-Z with AVX2: doubling by compare and add, products by two byte shuffles.
#![allow(unsafe_code, reason = "vector loads and stores and the call into code for one instruction set")]

use super::gf::REDUCTION;
use super::implementation::{Combine, Implementation};
use super::portable::PORTABLE;
use super::vector::{self, Vector};
use std::arch::x86_64::*;
use std::ops::Range;

pub(super) static AVX2: Implementation =
    Implementation { name: "avx2", supported: || is_x86_feature_detected!("avx2"), combine, generate, with_fletcher4: None };

fn generate(data: &[&[u8]], parity: &mut [&mut [u8]], range: Range<usize>) {
    assert!(data.iter().all(|column| column.len() >= range.end) && parity.iter().all(|column| column.len() >= range.end));
    let steps = vector::steps::<__m256i>(&range);
    // SAFETY: `Implementation` methods assert that the machine has AVX2; every column reaches over `steps`, just asserted.
    unsafe { generate_steps(data, parity, steps.clone()) };
    (PORTABLE.generate)(data, parity, steps.end..range.end);
}

/// # Safety
/// As [`vector::generate`].
#[target_feature(enable = "avx2")]
unsafe fn generate_steps(data: &[&[u8]], parity: &mut [&mut [u8]], range: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe { vector::generate::<__m256i>(data, parity, range) };
}

fn combine(job: &Combine, mut xor: Option<&mut [u8]>, products: &mut [&mut [u8]], range: Range<usize>) {
    job.check(&xor, products, &range);
    let steps = vector::steps::<__m256i>(&range);
    // SAFETY: `Implementation` methods assert that the machine has AVX2; `check` asserted that all columns reach over the range.
    unsafe { combine_steps(job, xor.as_deref_mut(), products, steps.clone()) };
    (PORTABLE.combine)(job, xor, products, steps.end..range.end);
}

/// # Safety
/// As [`vector::combine`].
#[target_feature(enable = "avx2")]
unsafe fn combine_steps(job: &Combine, xor: Option<&mut [u8]>, products: &mut [&mut [u8]], range: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe { vector::combine::<__m256i>(job, xor, products, range) };
}

// SAFETY: every method is a few instructions of AVX2.
unsafe impl Vector for __m256i {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> __m256i {
        // SAFETY: the machine has AVX2.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_si256(to.cast(), self) };
    }

    #[inline(always)]
    unsafe fn xor(self, other: __m256i) -> __m256i {
        // SAFETY: the machine has AVX2.
        unsafe { _mm256_xor_si256(self, other) }
    }

    #[inline(always)]
    unsafe fn double(self) -> __m256i {
        // SAFETY: the machine has AVX2.
        unsafe {
            let carry = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self);
            _mm256_xor_si256(_mm256_add_epi8(self, self), _mm256_and_si256(carry, _mm256_set1_epi8(REDUCTION as i8)))
        }
    }

    #[inline(always)]
    unsafe fn tables(table: &[u8; 32]) -> [__m256i; 2] {
        // SAFETY: the machine has AVX2; a table has 32 bytes.
        unsafe {
            let (low, high) = (_mm_loadu_si128(table.as_ptr().cast()), _mm_loadu_si128(table.as_ptr().add(16).cast()));
            [_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high)]
        }
    }

    #[inline(always)]
    unsafe fn times(self, [low, high]: [__m256i; 2]) -> __m256i {
        // SAFETY: the machine has AVX2.
        unsafe {
            let low_nibble = _mm256_set1_epi8(15);
            let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(self, low_nibble));
            let of_high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16(self, 4), low_nibble));
            _mm256_xor_si256(of_low, of_high)
        }
    }
}
