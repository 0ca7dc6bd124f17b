//! Fletcher-2 and Fletcher-4 (OpenZFS: `zfs_fletcher.c`): which implementation computes them, and sums of data that comes in pieces.

use super::fletcher_lanes::{Fletcher4Implementation, LANES_MAX, Lanes, STRIPE_BYTES};
use super::fletcher_portable as portable;
use ondisk::ByteOrder;
use std::sync::atomic::{AtomicUsize, Ordering};

impl Fletcher4Implementation {
    /// The checksum of one slice.
    pub fn sum(&'static self, data: &[u8], order: ByteOrder) -> [u64; 4] {
        let mut state = Fletcher4::with(self, order);
        state.update(data);
        state.finish()
    }
}

/// Every implementation for this architecture, slowest first; not each is supported by this machine.
pub static ALL: &[&Fletcher4Implementation] = &[
    &portable::SCALAR,
    #[cfg(target_arch = "x86_64")]
    &super::fletcher_sse::SSE2,
    #[cfg(target_arch = "x86_64")]
    &super::fletcher_sse::SSSE3,
    #[cfg(target_arch = "x86_64")]
    &super::fletcher_avx2::AVX2,
    #[cfg(target_arch = "x86_64")]
    &super::fletcher_avx512::AVX512,
];

/// The fastest implementation that this machine supports.
pub fn fastest() -> &'static Fletcher4Implementation {
    static CHOICE: std::sync::OnceLock<&'static Fletcher4Implementation> = std::sync::OnceLock::new();
    CHOICE.get_or_init(|| ALL.iter().rev().find(|one| one.is_supported()).unwrap_or(&ALL[0]))
}

/// Position in [`ALL`], plus one, of the implementation that was chosen; 0: the fastest.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

/// Has the implementation of this name compute checksums from now on, or the fastest one (OpenZFS: `zfs_fletcher_4_impl`). False, and
/// nothing changes, when there is none of the name or this machine lacks its instructions.
pub fn choose(name: Option<&str>) -> bool {
    let found = name.map_or(Some(0), |name| ALL.iter().position(|one| one.name == name && one.is_supported()).map(|at| at + 1));
    found.map(|chosen| CHOSEN.store(chosen, Ordering::Relaxed)).is_some()
}

/// The implementation that is used.
pub fn chosen() -> &'static Fletcher4Implementation {
    CHOSEN.load(Ordering::Relaxed).checked_sub(1).and_then(|at| ALL.get(at).copied()).unwrap_or_else(fastest)
}

/// Fletcher-4 of data that arrives in pieces of any length.
#[derive(Clone)]
pub struct Fletcher4 {
    implementation: &'static Fletcher4Implementation,
    order: ByteOrder,
    lanes: Lanes,
    pending: [u8; STRIPE_BYTES],
    pending_bytes: usize,
}

impl Fletcher4 {
    /// Makes a sum of nothing yet.
    pub fn new(order: ByteOrder) -> Fletcher4 {
        Fletcher4::with(chosen(), order)
    }

    /// Makes a sum with a chosen implementation, which must be supported.
    pub fn with(implementation: &'static Fletcher4Implementation, order: ByteOrder) -> Fletcher4 {
        assert!(implementation.is_supported(), "{} is not supported by this machine", implementation.name);
        Fletcher4 { implementation, order, lanes: Lanes::ZERO, pending: [0; STRIPE_BYTES], pending_bytes: 0 }
    }

    /// Adds `data`.
    pub fn update(&mut self, mut data: &[u8]) {
        if self.pending_bytes > 0 {
            let take = data.len().min(STRIPE_BYTES - self.pending_bytes);
            self.pending[self.pending_bytes..self.pending_bytes + take].copy_from_slice(&data[..take]);
            self.pending_bytes += take;
            data = &data[take..];
            if self.pending_bytes < STRIPE_BYTES {
                return;
            }
            (self.implementation.update)(&mut self.lanes, &self.pending, self.order);
            self.pending_bytes = 0;
        }
        let (whole, rest) = data.split_at(data.len() / STRIPE_BYTES * STRIPE_BYTES);
        if !whole.is_empty() {
            (self.implementation.update)(&mut self.lanes, whole, self.order);
        }
        self.pending[..rest.len()].copy_from_slice(rest);
        self.pending_bytes = rest.len();
    }

    /// The sums, for code that adds multiples of [`STRIPE_BYTES`] to them as the widest implementation does, which must be this one.
    /// Nothing may be pending.
    pub(crate) fn wide_lanes(&mut self) -> &mut Lanes {
        assert!(self.implementation.lanes == LANES_MAX && self.pending_bytes == 0, "these are not whole stripes of the widest lanes");
        &mut self.lanes
    }

    /// Returns the checksum. Bytes after the last whole 32-bit word do not count, as in OpenZFS.
    pub fn finish(&self) -> [u64; 4] {
        let mut sums = self.lanes.combine(self.implementation.lanes);
        portable::scalar(&mut sums, &self.pending[..self.pending_bytes], self.order);
        sums
    }
}

/// Sums of `first` followed by `second`, where `second` covers `second_bytes` (a multiple of four).
pub(crate) fn concatenate(first: [u64; 4], second: [u64; 4], second_bytes: usize) -> [u64; 4] {
    let n = (second_bytes / 4) as u128;
    let [one, two, three] = [n, n * (n + 1) / 2, n * (n + 1) / 2 * (n + 2) / 3].map(|count| count as u64);
    let [a, b, c, d] = first;
    [
        a.wrapping_add(second[0]),
        b.wrapping_add(one.wrapping_mul(a)).wrapping_add(second[1]),
        c.wrapping_add(one.wrapping_mul(b)).wrapping_add(two.wrapping_mul(a)).wrapping_add(second[2]),
        d.wrapping_add(one.wrapping_mul(c)).wrapping_add(two.wrapping_mul(b)).wrapping_add(three.wrapping_mul(a)).wrapping_add(second[3]),
    ]
}

/// Fletcher-4 of the concatenation of `data`.
pub fn fletcher4(data: &[&[u8]], order: ByteOrder) -> [u64; 4] {
    let mut state = Fletcher4::new(order);
    for part in data {
        state.update(part);
    }
    state.finish()
}

/// Fletcher-2 of the concatenation of `data`: two pairs of sums over alternating 64-bit words. Bytes after the last whole
/// 16 do not count, as in OpenZFS.
pub fn fletcher2(data: &[&[u8]], order: ByteOrder) -> [u64; 4] {
    let mut sums = [0u64; 4];
    let mut pending = [0u8; 16];
    let mut pending_bytes = 0;
    for part in data {
        let mut part = *part;
        if pending_bytes > 0 {
            let take = part.len().min(16 - pending_bytes);
            pending[pending_bytes..pending_bytes + take].copy_from_slice(&part[..take]);
            pending_bytes += take;
            part = &part[take..];
            if pending_bytes < 16 {
                continue;
            }
            portable::fletcher2(&mut sums, &[pending], order);
        }
        let (pairs, rest) = part.as_chunks::<16>();
        portable::fletcher2(&mut sums, pairs, order);
        pending[..rest.len()].copy_from_slice(rest);
        pending_bytes = rest.len();
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    /// Checksum straight from the definition.
    fn reference(data: &[u8], order: ByteOrder) -> [u64; 4] {
        let (mut a, mut b, mut c, mut d) = (0u64, 0u64, 0u64, 0u64);
        for word in data.chunks_exact(4) {
            let raw: [u8; 4] = word.try_into().unwrap();
            let word = if order == ByteOrder::Little { u32::from_le_bytes(raw) } else { u32::from_be_bytes(raw) };
            a = a.wrapping_add(u64::from(word));
            b = b.wrapping_add(a);
            c = c.wrapping_add(b);
            d = d.wrapping_add(c);
        }
        [a, b, c, d]
    }

    const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

    /// If one implementation differs, a pool written on one machine reads as corrupt on another.
    #[test]
    fn every_implementation_equals_the_reference() {
        let data = noise(70_000);
        for one in ALL.iter().filter(|one| one.is_supported()) {
            for order in ORDERS {
                for start in [0, 1, 3, 8, 63] {
                    for length in (0..400).chain([512, 4096, 8200, 65_536, 69_900]) {
                        let part = &data[start..start + length];
                        assert_eq!(one.sum(part, order), reference(part, order), "{} {start} {length}", one.name);
                    }
                }
            }
        }
        let ones = vec![0xFF; 1 << 20];
        for one in ALL.iter().filter(|one| one.is_supported()) {
            assert_eq!(one.sum(&ones, ByteOrder::Little), reference(&ones, ByteOrder::Little), "{}", one.name);
        }
    }

    /// Who chooses an implementation must get that one, and no machine may be asked for instructions that it lacks.
    #[test]
    fn an_implementation_can_be_chosen() {
        for one in ALL {
            assert_eq!(choose(Some(one.name)), one.is_supported(), "{}", one.name);
            assert!(!one.is_supported() || std::ptr::eq(chosen(), *one), "{}", one.name);
        }
        assert!(!choose(Some("no such")));
        assert!(choose(None) && std::ptr::eq(chosen(), fastest()));
    }

    /// Blocks lie scattered in memory; where the cuts are must not change the checksum.
    #[test]
    fn cuts_do_not_matter() {
        let data = noise(5000);
        for order in ORDERS {
            let (whole4, whole2) = (fletcher4(&[&data], order), fletcher2(&[&data], order));
            for step in [1, 2, 3, 5, 16, 31, 32, 33, 100, 512, 4999] {
                let parts: Vec<&[u8]> = data.chunks(step).collect();
                assert_eq!(fletcher4(&parts, order), whole4, "{step}");
                assert_eq!(fletcher2(&parts, order), whole2, "{step}");
            }
        }
    }

    /// The one-pass parity and checksum joins sums of columns; a wrong join is a wrong block pointer.
    #[test]
    fn joined_sums_are_those_of_the_whole() {
        let data = noise(40_000);
        for cut in [0, 4, 8, 512, 20_000, 39_996, 40_000] {
            let (first, second) = data.split_at(cut);
            let sums = [first, second].map(|part| reference(part, ByteOrder::Little));
            assert_eq!(concatenate(sums[0], sums[1], second.len()), reference(&data, ByteOrder::Little), "{cut}");
        }
    }
}
