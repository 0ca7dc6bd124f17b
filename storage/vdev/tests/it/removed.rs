//! Addresses on removed vdevs: where their bytes are now, over one removal or several, and those that lead nowhere.

use ondisk::{Dva, Txg, VdevId};
use std::sync::Arc;
use vdev::{MappedRange, Mapping, TopKind, VdevTree};

const SECTOR: u64 = 4096;

fn range(source: u64, vdev: u32, offset: u64, sectors: u64) -> MappedRange {
    let target = Dva { vdev: VdevId(vdev), offset: offset * SECTOR, asize: sectors * SECTOR, gang: false };
    MappedRange { source: source * SECTOR, target }
}

/// Vdev 0 was copied to 1 and 2, then 1 to 2.
fn sample() -> VdevTree {
    let layout = [(TopKind::Leaf, 1), (TopKind::Leaf, 1), (TopKind::Mirror, 2)];
    let mut tree = VdevTree::simple(&layout, 12, 1 << 30).expect("valid");
    let first = Mapping::new(
        vec![range(0, 1, 100, 8), range(8, 2, 50, 4), range(20, 1, 300, 2)],
        vec![(12 * SECTOR, Txg(9)), (22 * SECTOR, Txg(10))],
    );
    let second = Mapping::new(vec![range(100, 2, 500, 4), range(104, 2, 700, 4), range(300, 2, 800, 2)], vec![(302 * SECTOR, Txg(20))]);
    for (index, mapping) in [first, second].into_iter().enumerate() {
        let top = &mut tree.tops[index];
        (top.kind, top.node, top.mapping) = (TopKind::Indirect, None, mapping.map(Arc::new));
        assert!(top.mapping.is_some(), "the mapping is sound");
        top.slots.clear();
    }
    tree
}

fn at(sector: u64, sectors: u64) -> Dva {
    Dva { vdev: VdevId(0), offset: sector * SECTOR, asize: sectors * SECTOR, gang: false }
}

/// If this fails, a block that was copied in pieces, or whose copy was copied again, is put together from other bytes.
#[test]
fn bytes_are_found_over_every_removal() {
    let tree = sample();
    let mut passed = Vec::new();
    let pieces = tree.places(&at(2, 8), &mut |vdev, range| passed.push((vdev.0, range.start / SECTOR, range.end / SECTOR)));
    let shown: Vec<_> = pieces
        .expect("all of it is mapped")
        .iter()
        .map(|piece| (piece.at / SECTOR, piece.place.vdev.0, piece.place.offset / SECTOR, piece.place.asize / SECTOR, piece.birth.0))
        .collect();
    assert_eq!(shown, [(0, 2, 502, 2, 20), (2, 2, 700, 4, 20), (6, 2, 50, 2, 9)]);
    assert_eq!(passed, [(0, 2, 10), (1, 102, 108)]);
    let whole = tree.places(&at(21, 1), &mut |_, _| ()).expect("mapped");
    assert_eq!(whole.iter().map(|piece| piece.place.offset / SECTOR).collect::<Vec<_>>(), [801]);
}

/// If this fails, an address where nothing was leads to somebody else's bytes, or a hostile mapping keeps a reader for good.
#[test]
fn addresses_that_lead_nowhere_are_told() {
    let mut tree = sample();
    for (sector, sectors) in [(11, 2), (12, 4), (19, 2), (22, 1), (1 << 30, 1)] {
        assert!(tree.places(&at(sector, sectors), &mut |_, _| ()).is_none(), "{sectors} sectors at {sector}");
    }
    let circle = Mapping::new(vec![range(0, 0, 0, 8)], Vec::new()).map(Arc::new);
    tree.tops[0].mapping = circle;
    assert!(tree.places(&at(0, 4), &mut |_, _| ()).is_none(), "a circle ends");
    tree.tops[0].mapping = None;
    assert!(tree.places(&at(0, 4), &mut |_, _| ()).is_none(), "nobody knows the mapping");
    assert!(Mapping::new(vec![range(4, 1, 0, 8), range(8, 1, 100, 8)], Vec::new()).is_none(), "ranges overlap");
    assert!(Mapping::new(vec![range(4, 1, 0, 0)], Vec::new()).is_none(), "a range is empty");
}
