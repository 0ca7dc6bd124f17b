//! Fletcher-4 with SSE2, and with SSSE3 where bytes are to be swapped in one instruction: 4 lanes in two groups of 2.
#![allow(unsafe_code, reason = "vector loads and the call into code for one instruction set")]

use super::fletcher_lanes::{Fletcher4Implementation, Lanes};
use ondisk::ByteOrder;
use std::arch::x86_64::*;

/// Sums in 128-bit registers.
pub(super) static SSE2: Fletcher4Implementation =
    Fletcher4Implementation { name: "sse2", supported: || is_x86_feature_detected!("sse2"), lanes: 4, update: update_sse2 };

/// Sums in 128-bit registers, for machines that shuffle bytes.
pub(super) static SSSE3: Fletcher4Implementation =
    Fletcher4Implementation { name: "ssse3", supported: || is_x86_feature_detected!("ssse3"), lanes: 4, update: update_ssse3 };

fn update_sse2(lanes: &mut Lanes, data: &[u8], order: ByteOrder) {
    // SAFETY: `Fletcher4::with` admits this implementation only on machines with the features.
    unsafe {
        match order {
            ByteOrder::Little => run(lanes, data, |words| words),
            ByteOrder::Big => run(lanes, data, |words| swap_sse2(words)),
        }
    }
}

fn update_ssse3(lanes: &mut Lanes, data: &[u8], order: ByteOrder) {
    // SAFETY: `Fletcher4::with` admits this implementation only on machines with the features.
    unsafe {
        match order {
            ByteOrder::Little => run(lanes, data, |words| words),
            ByteOrder::Big => run_swapped_ssse3(lanes, data),
        }
    }
}

/// The bytes of each 32-bit word in the other order.
#[target_feature(enable = "sse2")]
fn swap_sse2(words: __m128i) -> __m128i {
    let pairs = _mm_or_si128(_mm_slli_epi16::<8>(words), _mm_srli_epi16::<8>(words));
    _mm_or_si128(_mm_slli_epi32::<16>(pairs), _mm_srli_epi32::<16>(pairs))
}

#[target_feature(enable = "ssse3")]
fn run_swapped_ssse3(lanes: &mut Lanes, data: &[u8]) {
    let swap = _mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
    run(lanes, data, |words| _mm_shuffle_epi8(words, swap));
}

#[inline]
#[target_feature(enable = "sse2")]
fn run(lanes: &mut Lanes, data: &[u8], order: impl Fn(__m128i) -> __m128i) {
    let mut both = [_mm_setzero_si128(); 4];
    let mut odd = both;
    for (sum, stored) in lanes.0.iter().enumerate() {
        // SAFETY: each sum has 16 words.
        unsafe {
            both[sum] = _mm_loadu_si128(stored.as_ptr().cast());
            odd[sum] = _mm_loadu_si128(stored.as_ptr().add(2).cast());
        }
        both[sum] = _mm_add_epi64(both[sum], _mm_slli_epi64::<32>(odd[sum]));
    }
    let ([mut a, mut b, mut c, mut d], [mut e, mut f, mut g, mut h]) = (both, odd);
    let (vectors, _) = data.as_chunks::<16>();
    for vector in vectors {
        // SAFETY: the array is one vector long.
        let words = order(unsafe { _mm_loadu_si128(vector.as_ptr().cast()) });
        a = _mm_add_epi64(a, words);
        b = _mm_add_epi64(b, a);
        c = _mm_add_epi64(c, b);
        d = _mm_add_epi64(d, c);
        e = _mm_add_epi64(e, _mm_srli_epi64::<32>(words));
        f = _mm_add_epi64(f, e);
        g = _mm_add_epi64(g, f);
        h = _mm_add_epi64(h, g);
    }
    let (both, odd) = ([a, b, c, d], [e, f, g, h]);
    for (sum, stored) in lanes.0.iter_mut().enumerate() {
        let even = _mm_sub_epi64(both[sum], _mm_slli_epi64::<32>(odd[sum]));
        // SAFETY: each sum has 16 words.
        unsafe {
            _mm_storeu_si128(stored.as_mut_ptr().cast(), even);
            _mm_storeu_si128(stored.as_mut_ptr().add(2).cast(), odd[sum]);
        }
    }
}
