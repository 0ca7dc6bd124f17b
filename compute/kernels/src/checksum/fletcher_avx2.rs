//! Fletcher-4 with AVX2: 8 lanes in two groups of 4.
#![allow(unsafe_code, reason = "vector loads and the call into code for one instruction set")]

use super::fletcher_lanes::{Fletcher4Implementation, Lanes};
use ondisk::ByteOrder;
use std::arch::x86_64::*;

/// Sums in 256-bit registers.
pub(super) static AVX2: Fletcher4Implementation =
    Fletcher4Implementation { name: "avx2", supported: || is_x86_feature_detected!("avx2"), lanes: 8, update };

fn update(lanes: &mut Lanes, data: &[u8], order: ByteOrder) {
    // SAFETY: `Fletcher4::with` admits this implementation only on machines with the features.
    unsafe {
        match order {
            ByteOrder::Little => run::<false>(lanes, data),
            ByteOrder::Big => run::<true>(lanes, data),
        }
    }
}

#[target_feature(enable = "avx2")]
fn run<const SWAP: bool>(lanes: &mut Lanes, data: &[u8]) {
    let swap = _mm256_broadcastsi128_si256(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    let mut both = [_mm256_setzero_si256(); 4];
    let mut odd = both;
    for (sum, stored) in lanes.0.iter().enumerate() {
        // SAFETY: each sum has 16 words.
        unsafe {
            both[sum] = _mm256_loadu_si256(stored.as_ptr().cast());
            odd[sum] = _mm256_loadu_si256(stored.as_ptr().add(4).cast());
        }
        both[sum] = _mm256_add_epi64(both[sum], _mm256_slli_epi64::<32>(odd[sum]));
    }
    let ([mut a, mut b, mut c, mut d], [mut e, mut f, mut g, mut h]) = (both, odd);
    let (vectors, _) = data.as_chunks::<32>();
    for vector in vectors {
        // SAFETY: the array is one vector long.
        let mut words = unsafe { _mm256_loadu_si256(vector.as_ptr().cast()) };
        if SWAP {
            words = _mm256_shuffle_epi8(words, swap);
        }
        a = _mm256_add_epi64(a, words);
        b = _mm256_add_epi64(b, a);
        c = _mm256_add_epi64(c, b);
        d = _mm256_add_epi64(d, c);
        e = _mm256_add_epi64(e, _mm256_srli_epi64::<32>(words));
        f = _mm256_add_epi64(f, e);
        g = _mm256_add_epi64(g, f);
        h = _mm256_add_epi64(h, g);
    }
    let (both, odd) = ([a, b, c, d], [e, f, g, h]);
    for (sum, stored) in lanes.0.iter_mut().enumerate() {
        let even = _mm256_sub_epi64(both[sum], _mm256_slli_epi64::<32>(odd[sum]));
        // SAFETY: each sum has 16 words.
        unsafe {
            _mm256_storeu_si256(stored.as_mut_ptr().cast(), even);
            _mm256_storeu_si256(stored.as_mut_ptr().add(4).cast(), odd[sum]);
        }
    }
}
