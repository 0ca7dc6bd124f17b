//! Fletcher-4 with AVX2: four lanes of 64-bit sums.
#![allow(unsafe_code, reason = "vector loads and the call into code for one instruction set")]

use super::ByteOrder;
use super::fletcher::{Fletcher4Implementation, Lanes, STRIPE_BYTES};
use std::arch::x86_64::*;

/// Four lanes in 256-bit registers.
pub(super) static AVX2: Fletcher4Implementation =
    Fletcher4Implementation { name: "avx2", supported: || is_x86_feature_detected!("avx2"), lanes: 4, update };

fn update(lanes: &mut Lanes, data: &[u8], order: ByteOrder) {
    debug_assert!(is_x86_feature_detected!("avx2"));
    // SAFETY: `Fletcher4::with` admits this implementation only on machines with AVX2.
    unsafe {
        match order {
            ByteOrder::Little => run::<false>(lanes, data),
            ByteOrder::Big => run::<true>(lanes, data),
        }
    }
}

#[target_feature(enable = "avx2")]
fn run<const SWAP: bool>(lanes: &mut Lanes, data: &[u8]) {
    let swap = _mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
    let mut sums = [_mm256_setzero_si256(); 4];
    for (register, sum) in sums.iter_mut().zip(&lanes.0) {
        // SAFETY: each sum has eight words; four are read.
        *register = unsafe { _mm256_loadu_si256(sum.as_ptr().cast()) };
    }
    let [mut a, mut b, mut c, mut d] = sums;
    let (stripes, _) = data.as_chunks::<STRIPE_BYTES>();
    for stripe in stripes {
        for half in 0..2 {
            // SAFETY: the stripe has 32 bytes; 16 are read at 0 and at 16.
            let mut words = unsafe { _mm_loadu_si128(stripe.as_ptr().add(16 * half).cast()) };
            if SWAP {
                words = _mm_shuffle_epi8(words, swap);
            }
            a = _mm256_add_epi64(a, _mm256_cvtepu32_epi64(words));
            b = _mm256_add_epi64(b, a);
            c = _mm256_add_epi64(c, b);
            d = _mm256_add_epi64(d, c);
        }
    }
    for (register, sum) in [a, b, c, d].into_iter().zip(&mut lanes.0) {
        // SAFETY: each sum has eight words; four are written.
        unsafe { _mm256_storeu_si256(sum.as_mut_ptr().cast(), register) };
    }
}
