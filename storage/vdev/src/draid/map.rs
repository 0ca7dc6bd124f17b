//! Permutation maps: in which order each slice of the address space visits the children of a dRAID vdev.
//!
//! A map is a list of rows, each a permutation of the children's numbers. They follow from the seed of that number of
//! children by a fixed generator, so that every implementation computes the same ones (OpenZFS: `vdev_draid_generate_perms`,
//! `vdev_draid_rand`).

use super::seeds::{CHILDREN_MAX, CHILDREN_MIN, SEEDS, rows};

/// The other half of the generator's start (OpenZFS: `VDEV_DRAID_SEED`).
const SEED: u64 = 0xd_7a1d_5eed;

/// xoroshiro128++, whose two words of state are the two seeds.
struct Random(u64, u64);

impl Random {
    fn next(&mut self) -> u64 {
        let Random(low, high) = *self;
        let value = low.wrapping_add(high).rotate_left(17).wrapping_add(low);
        let mixed = high ^ low;
        *self = Random(low.rotate_left(49) ^ mixed ^ (mixed << 21), mixed.rotate_left(28));
        value
    }
}

/// The map of one number of children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PermutationMap {
    children: usize,
    /// Places of the children, row after row.
    places: Vec<u8>,
}

impl PermutationMap {
    /// The map for `children` children, None when there is none: outside 2–255.
    pub(crate) fn new(children: usize) -> Option<PermutationMap> {
        if !(CHILDREN_MIN..=CHILDREN_MAX).contains(&children) {
            return None;
        }
        let mut random = Random(SEED, SEEDS[children - CHILDREN_MIN].0);
        let mut row: Vec<u8> = (0..children).map(|child| child as u8).collect();
        let mut places = Vec::with_capacity(children * rows(children));
        for _ in 0..rows(children) {
            // Each row is a shuffle (Fisher–Yates) of the row before.
            for last in (1..children).rev() {
                let other = random.next() % (last as u64 + 1);
                row.swap(last, other as usize);
            }
            places.extend_from_slice(&row);
        }
        Some(PermutationMap { children, places })
    }

    /// The permutation of slice number `slice`: each row serves as often as there are children, turned by one each time
    /// (OpenZFS: `vdev_draid_get_perm`).
    pub(crate) fn permutation(&self, slice: u64) -> Permutation<'_> {
        let index = (slice % self.places.len() as u64) as usize;
        let row = index / self.children * self.children;
        Permutation { row: &self.places[row..row + self.children], turn: index % self.children }
    }
}

/// The order of the children within one slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation<'a> {
    row: &'a [u8],
    turn: usize,
}

impl Permutation<'_> {
    /// The child at `position` (OpenZFS: `vdev_draid_permute_id`).
    pub(crate) fn child(&self, position: usize) -> usize {
        let child = usize::from(self.row[position]) + self.turn;
        if child >= self.row.len() { child - self.row.len() } else { child }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map that differs from OpenZFS's finds none of the data on an existing pool of that width.
    #[test]
    fn maps_of_every_width_are_the_ones_of_the_format() {
        for children in CHILDREN_MIN..=CHILDREN_MAX {
            let map = PermutationMap::new(children).expect("a width of the format");
            let sum: u64 = map.places.as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
            assert_eq!(sum, SEEDS[children - CHILDREN_MIN].1, "{children} children");
            for row in map.places.chunks_exact(children) {
                let mut seen = row.to_vec();
                seen.sort_unstable();
                assert!(seen.iter().enumerate().all(|(index, &child)| index == usize::from(child)), "{children} children: {row:?}");
            }
        }
        assert_eq!(PermutationMap::new(1), None);
        assert_eq!(PermutationMap::new(256), None);
    }

    /// A slice that uses another row or another turn of it lies on other devices than OpenZFS says.
    #[test]
    fn slices_turn_through_rows_and_children() {
        let map = PermutationMap::new(14).expect("a width of the format");
        for slice in [0, 1, 13, 14, 14 * 256 - 1, 14 * 256, u64::MAX] {
            let order = map.permutation(slice);
            let mut children: Vec<usize> = (0..14).map(|position| order.child(position)).collect();
            let first = usize::from(map.places[(slice % (14 * 256)) as usize / 14 * 14]);
            assert_eq!(children[0], (first + (slice % (14 * 256)) as usize % 14) % 14);
            children.sort_unstable();
            assert_eq!(children, (0..14).collect::<Vec<_>>());
        }
    }
}
