//! The set against a bitmap that cannot be wrong, over random programs; small chunks make splits frequent.

use crate::{NotContained, Overlap, RangeTree};

const UNITS: usize = 700;

/// A small generator (xorshift64*), so that a failure names its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}

#[derive(Clone)]
struct Bitmap([bool; UNITS]);

impl Bitmap {
    fn ranges(&self) -> Vec<std::ops::Range<u64>> {
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < UNITS {
            let end = (at..UNITS).find(|unit| !self.0[*unit]).unwrap_or(UNITS);
            if end > at {
                ranges.push(at as u64..end as u64);
            }
            at = end.max(at + 1);
        }
        ranges
    }

    fn first_fit(&self, cursor: usize, size: usize, align: usize) -> Option<u64> {
        let starts = (cursor.next_multiple_of(align)..UNITS).step_by(align);
        starts.filter(|start| start + size <= UNITS).find(|start| self.0[*start..start + size].iter().all(|set| *set)).map(|s| s as u64)
    }

    fn best_fit(&self, size: u64) -> Option<u64> {
        let fitting = self.ranges().into_iter().filter(|range| range.end - range.start >= size);
        fitting.min_by_key(|range| (range.end - range.start, range.start)).map(|range| range.start)
    }
}

fn check(seed: u64, tree: &mut RangeTree, model: &Bitmap, random: &mut Random) {
    let ranges = model.ranges();
    assert_eq!(tree.iter().collect::<Vec<_>>(), ranges, "seed {seed}");
    assert_eq!(tree.iter().rev().collect::<Vec<_>>(), ranges.iter().rev().cloned().collect::<Vec<_>>(), "seed {seed}");
    assert_eq!(tree.total(), model.0.iter().filter(|set| **set).count() as u64, "seed {seed}");
    assert_eq!((tree.count(), tree.is_empty()), (ranges.len(), ranges.is_empty()), "seed {seed}");
    assert_eq!(tree.largest(), ranges.iter().map(|range| range.end - range.start).max().unwrap_or(0), "seed {seed}");
    let mut histogram = [0; 64];
    ranges.iter().for_each(|range| histogram[(range.end - range.start).ilog2() as usize] += 1);
    assert_eq!(tree.histogram(), &histogram, "seed {seed}");
    assert_eq!(tree.span(), ranges.first().map(|first| first.start..ranges[ranges.len() - 1].end), "seed {seed}");
    let (cursor, size, align) = (random.below(UNITS), 1 + random.below(20), 1 + random.below(5));
    assert_eq!(tree.first_fit_from(cursor as u64, size as u64, align as u64), model.first_fit(cursor, size, align), "seed {seed}");
    assert_eq!(tree.best_fit(size as u64), model.best_fit(size as u64), "seed {seed}");
    let aligned = tree.best_fit_aligned(size as u64, align as u64);
    assert_eq!(aligned.is_some(), model.first_fit(0, size, align).is_some(), "seed {seed}");
    assert!(aligned.is_none_or(|start| start % align as u64 == 0 && tree.contains(start, size as u64)), "seed {seed}");
    let from: Vec<_> = ranges.iter().filter(|range| range.end > cursor as u64).cloned().collect();
    assert_eq!(tree.iter_from(cursor as u64).collect::<Vec<_>>(), from, "seed {seed}");
}

fn run(seed: u64, steps: usize, index_early: bool) {
    let mut random = Random(seed);
    let mut tree = RangeTree::new();
    let mut model = Bitmap([false; UNITS]);
    if index_early {
        assert_eq!(tree.best_fit(1), None);
    }
    for _ in 0..steps {
        let start = random.below(UNITS);
        let len = random.below(24.min(UNITS - start) + 1);
        let (set, unset) = {
            let units = &model.0[start..start + len];
            (units.iter().filter(|unit| **unit).count(), units.iter().filter(|unit| !**unit).count())
        };
        let (from, length) = (start as u64, len as u64);
        assert_eq!(tree.contains(from, length), unset == 0, "seed {seed}");
        assert_eq!(tree.overlaps(from, length), set > 0, "seed {seed}");
        match random.below(6) {
            0 | 1 => {
                assert_eq!(tree.add(from, length), if set == 0 { Ok(()) } else { Err(Overlap) }, "seed {seed}");
                if set == 0 {
                    model.0[start..start + len].fill(true);
                }
            }
            2 | 3 => {
                assert_eq!(tree.remove(from, length), if unset == 0 { Ok(()) } else { Err(NotContained) }, "seed {seed}");
                if unset == 0 {
                    model.0[start..start + len].fill(false);
                }
            }
            4 => {
                assert_eq!(tree.cover(from..from + length), unset as u64, "seed {seed}");
                model.0[start..start + len].fill(true);
            }
            _ => {
                assert_eq!(tree.clear_range(from..from + length), set as u64, "seed {seed}");
                model.0[start..start + len].fill(false);
            }
        }
        if index_early || random.below(8) == 0 {
            check(seed, &mut tree.clone(), &model, &mut random);
        }
    }
    check(seed, &mut tree, &model, &mut random);
}

/// A range lost or invented here is a block leaked or handed out twice.
#[test]
fn agrees_with_a_bitmap() {
    for seed in 1..40 {
        run(seed, 400, seed % 2 == 0);
    }
}

/// Refused updates must leave no trace, or a caller that reports corruption then corrupts.
#[test]
fn refusals_change_nothing() {
    let mut tree = RangeTree::new();
    tree.add(10, 10).unwrap();
    let before = tree.clone();
    assert_eq!(tree.add(19, 1), Err(Overlap));
    assert_eq!(tree.add(5, 6), Err(Overlap));
    assert_eq!(tree.add(u64::MAX, 2), Err(Overlap));
    assert_eq!(tree.remove(9, 2), Err(NotContained));
    assert_eq!(tree.remove(10, 11), Err(NotContained));
    assert_eq!(tree.remove(u64::MAX, 2), Err(NotContained));
    assert_eq!(tree, before);
    assert_eq!((tree.total(), tree.histogram().iter().sum::<u64>()), (10, 1));
}

/// The end of the number line is a legal place for a range.
#[test]
fn reaches_the_largest_number() {
    let mut tree = RangeTree::new();
    tree.add(u64::MAX - 10, 10).unwrap();
    assert_eq!(tree.first_fit_from(0, 10, 1), Some(u64::MAX - 10));
    assert_eq!(tree.first_fit_from(u64::MAX - 3, 10, 1), None);
    assert_eq!(tree.first_fit_from(u64::MAX - 3, 2, 1 << 40), None);
    tree.clear();
    assert!(tree.is_empty() && tree.span().is_none());
}
