//! What every implementation of Fletcher-4 works in, its lanes, and what an implementation is. Which ones there are it does not know (`fletcher`).
//!
//! Fletcher-4 over 32-bit words w₁…wₙ keeps four running sums mod 2⁶⁴: a += w, b += a, c += b, d += c. Vector code gives word i to
//! lane i mod N, each lane keeps its own four sums, and [`Lanes::combine`] computes the sums of the whole from those of the lanes.

use ondisk::ByteOrder;

/// Lanes in the widest implementation.
pub(super) const LANES_MAX: usize = 16;
/// Updates of every implementation take multiples of this many bytes: one word for each lane.
pub(super) const STRIPE_BYTES: usize = 4 * LANES_MAX;

/// Running sums a, b, c, d of each lane. Of N > 1 lanes the N/2 even ones come first, then the odd ones.
///
/// Vector code adds whole 64-bit words: that gives the sums of the even lanes plus 2³² times those of the odd ones, and saves
/// taking the words apart; one shift gives the odd lanes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Lanes(pub(super) [[u64; LANES_MAX]; 4]);

impl Lanes {
    /// Sums of nothing yet.
    pub(super) const ZERO: Lanes = Lanes([[0; LANES_MAX]; 4]);

    /// The sums of the interleaved sequence from those of its `lanes` lanes.
    ///
    /// Word j (from 0) of lane k is word n·j+k of the whole. A word with m words after it counts C(m+i, i) times in sum i; written
    /// as a polynomial in the words that follow it within its lane, that needs of each lane sum x only the moments Σ C(k, i)·xₖ.
    pub(super) fn combine(&self, lanes: usize) -> [u64; 4] {
        let mut moments = [[0u64; 4]; 4];
        let half = lanes.div_ceil(2);
        for k in (0..lanes).rev() {
            let slot = k / 2 + k % 2 * half;
            for (sum, moments) in self.0.iter().zip(&mut moments) {
                for i in (1..4).rev() {
                    moments[i] = moments[i].wrapping_add(moments[i - 1]);
                }
                moments[0] = moments[0].wrapping_add(sum[slot]);
            }
        }
        let [a, b, c, d] = moments;
        let n = lanes as u64;
        let (square, cube, pairs) = (n * n, n * n * n, n * (n - 1) / 2);
        let add = |terms: &[(u64, u64)]| terms.iter().fold(0u64, |sum, (factor, moment)| sum.wrapping_add(factor.wrapping_mul(*moment)));
        [
            a[0],
            add(&[(n, b[0])]).wrapping_sub(a[1]),
            add(&[(square, c[0]), (1, a[2])]).wrapping_sub(add(&[(pairs, b[0]), (n, b[1])])),
            add(&[(cube, d[0]), ((cube + 2 * n).wrapping_sub(3 * square) / 6, b[0]), (pairs, b[1]), (n, b[2])]).wrapping_sub(add(&[
                (cube - square, c[0]),
                (square, c[1]),
                (1, a[3]),
            ])),
        ]
    }
}

/// One way to compute Fletcher-4.
pub struct Fletcher4Implementation {
    /// Name by which `zbench` and tests call it.
    pub name: &'static str,
    pub(super) supported: fn() -> bool,
    pub(super) lanes: usize,
    /// Adds a multiple of [`STRIPE_BYTES`] bytes.
    pub(super) update: fn(&mut Lanes, &[u8], ByteOrder),
}

impl Fletcher4Implementation {
    /// True when its sums are in the form that [`Fletcher4::wide_lanes`] gives.
    pub(crate) fn is_wide(&self) -> bool {
        self.lanes == LANES_MAX
    }
    /// True when this machine has the instructions.
    pub fn is_supported(&self) -> bool {
        (self.supported)()
    }
}
