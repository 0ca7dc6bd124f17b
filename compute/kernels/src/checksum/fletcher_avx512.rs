//! Fletcher-4 with AVX-512: eight lanes of 64-bit sums.
#![allow(unsafe_code, reason = "vector loads and the call into code for one instruction set")]

use super::ByteOrder;
use super::fletcher::{Fletcher4Implementation, Lanes, STRIPE_BYTES};
use std::arch::x86_64::*;

/// Eight lanes in 512-bit registers.
pub(super) static AVX512: Fletcher4Implementation = Fletcher4Implementation {
    name: "avx512",
    supported: || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx2"),
    lanes: 8,
    update,
};

fn update(lanes: &mut Lanes, data: &[u8], order: ByteOrder) {
    debug_assert!(is_x86_feature_detected!("avx512f"));
    // SAFETY: `Fletcher4::with` admits this implementation only on machines with AVX-512F and AVX2.
    unsafe {
        match order {
            ByteOrder::Little => run::<false>(lanes, data),
            ByteOrder::Big => run::<true>(lanes, data),
        }
    }
}

#[target_feature(enable = "avx512f,avx2")]
fn run<const SWAP: bool>(lanes: &mut Lanes, data: &[u8]) {
    let swap = _mm256_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12, 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
    let mut sums = [_mm512_setzero_si512(); 4];
    for (register, sum) in sums.iter_mut().zip(&lanes.0) {
        // SAFETY: each sum has eight words.
        *register = unsafe { _mm512_loadu_si512(sum.as_ptr().cast()) };
    }
    let [mut a, mut b, mut c, mut d] = sums;
    let (stripes, _) = data.as_chunks::<STRIPE_BYTES>();
    for stripe in stripes {
        // SAFETY: the stripe has 32 bytes.
        let mut words = unsafe { _mm256_loadu_si256(stripe.as_ptr().cast()) };
        if SWAP {
            words = _mm256_shuffle_epi8(words, swap);
        }
        a = _mm512_add_epi64(a, _mm512_cvtepu32_epi64(words));
        b = _mm512_add_epi64(b, a);
        c = _mm512_add_epi64(c, b);
        d = _mm512_add_epi64(d, c);
    }
    for (register, sum) in [a, b, c, d].into_iter().zip(&mut lanes.0) {
        // SAFETY: each sum has eight words.
        unsafe { _mm512_storeu_si512(sum.as_mut_ptr().cast(), register) };
    }
}
