//! Fletcher-4 with AVX-512: 16 lanes in two groups of 8.
#![allow(unsafe_code, reason = "vector loads and the call into code for one instruction set")]

use super::fletcher_lanes::{Fletcher4Implementation, Lanes};
use ondisk::ByteOrder;
use std::arch::x86_64::*;

/// Sums in 512-bit registers.
pub(super) static AVX512: Fletcher4Implementation = Fletcher4Implementation {
    name: "avx512bw",
    supported: || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"),
    lanes: 16,
    update,
};

fn update(lanes: &mut Lanes, data: &[u8], order: ByteOrder) {
    // SAFETY: `Fletcher4::with` admits this implementation only on machines with the features.
    unsafe {
        match order {
            ByteOrder::Little => run::<false>(lanes, data),
            ByteOrder::Big => run::<true>(lanes, data),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn run<const SWAP: bool>(lanes: &mut Lanes, data: &[u8]) {
    let swap = _mm512_broadcast_i32x4(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    let mut sums = lanes.as_vectors();
    let (vectors, _) = data.as_chunks::<64>();
    for vector in vectors {
        // SAFETY: the array is one vector long.
        let mut words = unsafe { _mm512_loadu_si512(vector.as_ptr().cast()) };
        if SWAP {
            words = _mm512_shuffle_epi8(words, swap);
        }
        sums = with_words(sums, words);
    }
    lanes.set_vectors(sums);
}

/// The sums of [`Lanes::as_vectors`] with sixteen words more.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) fn with_words([a, b, c, d, e, f, g, h]: [__m512i; 8], words: __m512i) -> [__m512i; 8] {
    let a = _mm512_add_epi64(a, words);
    let b = _mm512_add_epi64(b, a);
    let c = _mm512_add_epi64(c, b);
    let d = _mm512_add_epi64(d, c);
    let e = _mm512_add_epi64(e, _mm512_srli_epi64::<32>(words));
    let f = _mm512_add_epi64(f, e);
    let g = _mm512_add_epi64(g, f);
    let h = _mm512_add_epi64(h, g);
    [a, b, c, d, e, f, g, h]
}

impl Lanes {
    /// The four sums of whole 64-bit words (those of even lanes and 2³² times those of odd ones), then the four sums of odd lanes: what
    /// loops add to.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(crate) fn as_vectors(&self) -> [__m512i; 8] {
        let mut vectors = [_mm512_setzero_si512(); 8];
        for (sum, stored) in self.0.iter().enumerate() {
            // SAFETY: each sum has 16 words.
            let (even, odd) = unsafe { (_mm512_loadu_si512(stored.as_ptr().cast()), _mm512_loadu_si512(stored.as_ptr().add(8).cast())) };
            vectors[sum] = _mm512_add_epi64(even, _mm512_slli_epi64::<32>(odd));
            vectors[4 + sum] = odd;
        }
        vectors
    }

    /// The reverse of [`Lanes::as_vectors`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(crate) fn set_vectors(&mut self, vectors: [__m512i; 8]) {
        for (sum, stored) in self.0.iter_mut().enumerate() {
            let odd = vectors[4 + sum];
            let even = _mm512_sub_epi64(vectors[sum], _mm512_slli_epi64::<32>(odd));
            // SAFETY: each sum has 16 words.
            unsafe {
                _mm512_storeu_si512(stored.as_mut_ptr().cast(), even);
                _mm512_storeu_si512(stored.as_mut_ptr().add(8).cast(), odd);
            }
        }
    }
}
