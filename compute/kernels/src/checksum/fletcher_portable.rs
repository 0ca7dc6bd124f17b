//! Fletcher sums in plain Rust, one word after another: the reference, what runs everywhere, and the ends of odd lengths.

use super::fletcher_lanes::{Fletcher4Implementation, Lanes};
use super::word::word;
use ondisk::ByteOrder;

/// One word after another.
pub(super) static SCALAR: Fletcher4Implementation =
    Fletcher4Implementation { name: "scalar", supported: || true, lanes: 1, update: update_scalar };
/// Adds whole 32-bit words to a, b, c, d.
pub(super) fn scalar(sums: &mut [u64; 4], data: &[u8], order: ByteOrder) {
    let [mut a, mut b, mut c, mut d] = *sums;
    let (words, _) = data.as_chunks::<4>();
    for word in words {
        let word = u32::from_le_bytes(*word);
        a = a.wrapping_add(u64::from(if order == ByteOrder::Big { word.swap_bytes() } else { word }));
        b = b.wrapping_add(a);
        c = c.wrapping_add(b);
        d = d.wrapping_add(c);
    }
    *sums = [a, b, c, d];
}

fn update_scalar(lanes: &mut Lanes, data: &[u8], order: ByteOrder) {
    let mut sums = lanes.0.map(|sum| sum[0]);
    scalar(&mut sums, data, order);
    for (sum, value) in lanes.0.iter_mut().zip(sums) {
        sum[0] = value;
    }
}

/// Adds whole pairs of 64-bit words to the two pairs of sums of Fletcher-2.
pub(super) fn fletcher2(sums: &mut [u64; 4], pairs: &[[u8; 16]], order: ByteOrder) {
    let [mut a0, mut a1, mut b0, mut b1] = *sums;
    for pair in pairs {
        let (words, _) = pair.as_chunks::<8>();
        a0 = a0.wrapping_add(word(order, words[0]));
        a1 = a1.wrapping_add(word(order, words[1]));
        b0 = b0.wrapping_add(a0);
        b1 = b1.wrapping_add(a1);
    }
    *sums = [a0, a1, b0, b1];
}
