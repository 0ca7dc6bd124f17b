//! Where the allocator puts things: copies apart, writers apart, all devices in turn, and the last room found.
use metaslab::{AllocRequest, Allocator, LoadError, NoSpace, Preference};
use ondisk::{Dva, Txg, VdevId};
use std::ops::Range;
use std::sync::Arc;
use vdev::{Bias, DraidConfig, TopKind, VdevTree};

const TXG: Txg = Txg(10);
const MIB: u64 = 1 << 20;
/// log2 of the bytes of a metaslab.
const SHIFT: u32 = 24;

fn tree(layout: &[(TopKind, usize)], leaf_bytes: u64) -> VdevTree {
    let mut tree = VdevTree::simple(layout, 12, leaf_bytes).expect("valid");
    tree.tops.iter_mut().for_each(|top| top.ms_shift = SHIFT);
    tree
}

/// The metaslabs of each vdev have what `allocated` gives, of their beginning.
fn loaded(tree: &VdevTree, shards: usize, allocated: impl Fn(u32, u32) -> u64) -> Allocator {
    let allocator = Allocator::new(tree, shards);
    for top in &tree.tops {
        for metaslab in 0..allocator.metaslab_count(top.id) {
            let start = u64::from(metaslab) << SHIFT;
            let taken = start..start + allocated(top.id.0, metaslab);
            let taken = if taken.is_empty() { &[][..] } else { std::slice::from_ref(&taken) };
            allocator.load(top.id, metaslab, taken).expect("valid");
        }
    }
    allocator
}

fn alloc(allocator: &Allocator, psize: u64, copies: u8, hint: u64) -> Result<Vec<Dva>, NoSpace> {
    let found = allocator.alloc(&AllocRequest { psize, copies, txg: TXG, hint })?;
    Ok(found[..usize::from(copies)].to_vec())
}

/// The smallest distance of two copies, in metaslabs; None when no two lie on one vdev.
fn nearest(copies: &[Dva]) -> Option<u64> {
    let pairs = copies.iter().enumerate().flat_map(|(index, one)| copies[..index].iter().map(move |other| (one, other)));
    pairs.filter(|(one, other)| one.vdev == other.vdev).map(|(one, other)| (one.offset >> SHIFT).abs_diff(other.offset >> SHIFT)).min()
}

/// If this fails, all copies of a block are lost with one device, or with one bad spot of it.
#[test]
fn copies_keep_their_distance_while_there_is_room() {
    let whole: u64 = 1 << SHIFT;
    let one = tree(&[(TopKind::Leaf, 1)], 1 << 30);
    let allocator = loaded(&one, 1, |_, _| 0);
    for _ in 0..40 {
        let copies = alloc(&allocator, 4096, 3, 0).expect("room");
        assert!(nearest(&copies).is_some_and(|distance| distance >= 8), "an eighth of 64 metaslabs: {copies:?}");
    }
    // Room in neighbours only, then in one metaslab only.
    let allocator = loaded(&one, 1, |_, metaslab| if metaslab < 3 { 0 } else { whole });
    assert_eq!(nearest(&alloc(&allocator, 4096, 3, 0).expect("room")), Some(1), "in three metaslabs");
    let allocator = loaded(&one, 1, |_, metaslab| if metaslab < 1 { 0 } else { whole });
    assert_eq!(nearest(&alloc(&allocator, 4096, 3, 0).expect("room")), Some(0), "better near than not at all");
    // The vdev whose turn it would be is full but for a little.
    let two = tree(&[(TopKind::Leaf, 1), (TopKind::Leaf, 1)], 1 << 30);
    let allocator = loaded(&two, 1, |vdev, _| if vdev == 1 { whole } else { 0 });
    let copies = alloc(&allocator, 4096, 2, 0).expect("room");
    assert!(nearest(&copies).is_some_and(|distance| distance >= 8), "{copies:?}");
    let allocator = loaded(&two, 1, |_, _| 0);
    for _ in 0..40 {
        let copies = alloc(&allocator, 4096, 3, 0).expect("room");
        assert!(nearest(&copies).is_some_and(|distance| distance >= 8), "two on one vdev, one on the other: {copies:?}");
        assert_eq!(nearest(&alloc(&allocator, 4096, 2, 0).expect("room")), None, "two on two");
    }
}

/// If this fails, one device of a pool does all the work and fills up while the others idle.
#[test]
fn vdevs_have_their_turn_by_how_many_devices_they_have() {
    let tree = tree(&[(TopKind::Raidz(1), 3), (TopKind::Leaf, 1), (TopKind::Mirror, 2)], 1 << 30);
    let allocator = loaded(&tree, 1, |_, _| 0);
    for round in 0..3 {
        for (vdev, bytes) in [(0, 3 * MIB), (1, MIB), (2, MIB)] {
            let mut had = 0;
            while had < bytes {
                let found = alloc(&allocator, 65536, 1, 0).expect("room")[0];
                assert_eq!(found.vdev, VdevId(vdev), "round {round}, after {had} bytes");
                had += found.asize;
            }
        }
    }
}

/// If this fails, files lie on a log device, which may be pulled, or on a device that is being emptied; or the room of a vdev is out of
/// reach once it is the only one.
#[test]
fn all_room_of_data_vdevs_is_used_and_none_of_others() {
    let mut tree = tree(&[(TopKind::Leaf, 1), (TopKind::Leaf, 1), (TopKind::Leaf, 1), (TopKind::Leaf, 1)], 64 * MIB);
    tree.tops[1].is_log = true;
    tree.tops[2].nonallocating = true;
    let allocator = loaded(&tree, 1, |_, _| 0);
    let mut used = [0; 4];
    while let Ok(found) = alloc(&allocator, MIB, 1, 0) {
        used[found[0].vdev.0 as usize] += found[0].asize;
    }
    assert_eq!(used, [64 * MIB, 0, 0, 64 * MIB]);
}

/// If this fails, metadata lies on slow disks although there are vdevs for it, small blocks take the room that is kept for it, or a block is refused
/// while there is room elsewhere.
#[test]
fn blocks_lie_where_they_are_best_and_elsewhere_when_that_is_full() {
    let mut tree = tree(&[(TopKind::Leaf, 1), (TopKind::Leaf, 1), (TopKind::Leaf, 1)], 64 * MIB);
    (tree.tops[1].bias, tree.tops[2].bias) = (Bias::Special, Bias::Dedup);
    let allocator = loaded(&tree, 1, |_, _| 0);
    let request = AllocRequest { psize: MIB, copies: 1, txg: TXG, hint: 0 };
    let take = |preference: Preference| allocator.alloc_preferring(preference, &request).map(|copies| copies[0].vdev.0);
    let used = || [0, 1, 2].map(|vdev| allocator.vdev_space(VdevId(vdev)).allocated / MIB);
    let plain = Preference::default();
    let (small, metadata) = (Preference { special_percent: 75, ..plain }, Preference { special_percent: 100, ..plain });
    let table = Preference { dedup: true, ..metadata };
    assert_eq!([plain, small, metadata, table].map(take), [Ok(0), Ok(1), Ok(1), Ok(2)]);
    while take(small) == Ok(1) {}
    assert_eq!(used(), [2, 48, 1], "a quarter is left for metadata");
    while take(table) == Ok(2) {}
    assert_eq!(used(), [2, 49, 64], "tables are metadata too");
    while take(metadata) == Ok(1) {}
    assert_eq!(used(), [3, 64, 64]);
    assert_eq!([small, metadata, table].map(take), [Ok(0); 3]);
    while take(metadata).is_ok() {}
    assert_eq!((used(), take(plain)), ([64; 3], Err(NoSpace)));
}

/// If this fails, a file lies on a vdev for metadata, which is small and soon full, though nobody asked for it.
#[test]
fn no_other_block_lies_on_a_vdev_for_some() {
    let mut tree = tree(&[(TopKind::Leaf, 1), (TopKind::Leaf, 1)], 64 * MIB);
    tree.tops[1].bias = Bias::Special;
    let allocator = loaded(&tree, 1, |_, _| 0);
    while alloc(&allocator, MIB, 1, 0).is_ok() {}
    assert_eq!([0, 1].map(|vdev| allocator.vdev_space(VdevId(vdev)).allocated), [64 * MIB, 0]);
    let copies = allocator.alloc_preferring(
        Preference { special_percent: 100, ..Preference::default() },
        &AllocRequest { psize: 4096, copies: 3, txg: TXG, hint: 0 },
    );
    assert_eq!(copies.expect("room").map(|copy| copy.vdev), [VdevId(1); 3], "all copies lie in one class");
}

/// If this fails, a block is written as a gang block, or refused, while there is a hole of its very size.
#[test]
fn the_last_hole_is_found() {
    let whole: u64 = 1 << SHIFT;
    let tree = tree(&[(TopKind::Leaf, 1)], 64 * MIB);
    let allocator = loaded(&tree, 1, |_, metaslab| if metaslab == 2 { whole - 65536 } else { whole });
    assert_eq!(alloc(&allocator, 65536 + 4096, 1, 0), Err(NoSpace));
    assert_eq!(alloc(&allocator, 65536, 1, 0).expect("room")[0].offset, 3 * whole - 65536);
    assert_eq!(alloc(&allocator, 4096, 1, 0), Err(NoSpace));
}

/// Nothing is free but the first metaslab, behind its first `taken` bytes.
fn only_first(tree: &VdevTree, taken: u64) -> Allocator {
    let (top, allocator) = (&tree.tops[0], Allocator::new(tree, 1));
    for metaslab in 0..allocator.metaslab_count(top.id) {
        let whole = top.metaslab_range(metaslab);
        let allocated = if metaslab == 0 { whole.start..whole.start + taken } else { whole };
        allocator.load(top.id, metaslab, if allocated.is_empty() { &[][..] } else { std::slice::from_ref(&allocated) }).expect("valid");
    }
    allocator
}

/// Allocations as a space map has them.
fn trail(allocator: &Allocator) -> Vec<Range<u64>> {
    allocator.take_deltas(TXG).into_iter().flat_map(|delta| delta.allocs).collect()
}

/// If this fails, what a pool writes after an import lies where the states before it have their blocks, and none of these can be gone back to; or
/// space that was freed never comes back.
#[test]
fn what_was_freed_before_an_import_is_used_last() {
    const BYTES: u64 = 65536;
    let tree = tree(&[(TopKind::Leaf, 1)], 64 * MIB);
    let before = only_first(&tree, 0);
    for place in 0..40 {
        assert_eq!(alloc(&before, BYTES, 1, 0).expect("room")[0].offset, place * BYTES);
    }
    let trail = trail(&before);
    for (taken, order) in [(10, [40..256, 10..40]), (0, [40..256, 0..40])] {
        let after = only_first(&tree, taken * BYTES);
        after.go_on_behind(VdevId(0), 0, trail.clone());
        let found: Vec<u64> = std::iter::from_fn(|| alloc(&after, BYTES, 1, 0).ok()).map(|copies| copies[0].offset / BYTES).collect();
        assert_eq!(found, order.into_iter().flatten().collect::<Vec<u64>>(), "{taken} of 40 are left");
    }
}

/// If this fails, a space map that names space outside of its metaslab has the allocator look there.
#[test]
fn allocations_of_other_metaslabs_are_passed_over() {
    let tree = tree(&[(TopKind::Leaf, 1)], 64 * MIB);
    let allocator = only_first(&tree, 0);
    allocator.go_on_behind(VdevId(0), 0, [0..65536, (1 << SHIFT)..(1 << SHIFT) + 65536]);
    allocator.go_on_behind(VdevId(7), 0, std::iter::once(0..131_072));
    assert_eq!(alloc(&allocator, 65536, 1, 0).expect("room")[0].offset, 65536);
}

/// If this fails, the states of a dRAID from before an import are written over by what comes after it.
#[test]
fn what_was_freed_before_an_import_is_used_last_in_every_group_of_a_draid() {
    let config = DraidConfig::new(2, 8, 0, 12).expect("a valid shape");
    let tree = VdevTree::simple(&[(TopKind::Draid(config), 12)], 12, 4 << 30).expect("valid");
    let before = only_first(&tree, 0);
    let mut freed = range_tree::RangeTree::new();
    for _ in 0..100 {
        let dva = alloc(&before, MIB, 1, 0).expect("room")[0];
        freed.add(dva.offset, dva.asize).expect("once");
    }
    let after = only_first(&tree, 0);
    after.go_on_behind(VdevId(0), 0, trail(&before));
    for _ in 0..100 {
        let dva = alloc(&after, MIB, 1, 0).expect("room")[0];
        assert!(!freed.overlaps(dva.offset, dva.asize), "{dva:?}");
    }
}

/// If this fails, all writers of a pool wait for each other at one metaslab.
#[test]
fn writers_have_metaslabs_of_their_own() {
    let tree = tree(&[(TopKind::Leaf, 1)], 64 * MIB);
    // The one with the most room is the first one's, and stays it.
    let allocator = loaded(&tree, 2, |_, metaslab| u64::from(metaslab) * MIB);
    let of = |hint: u64| alloc(&allocator, 65536, 1, hint).expect("room")[0].offset >> SHIFT;
    assert_eq!((of(0), of(1)), (0, 1));
    assert_eq!((of(0), of(1)), (0, 1));
}

/// If this fails, a trim writes over what is being written beside it, or what was lent counts as free or never comes back.
#[test]
fn what_is_lent_is_a_part_and_comes_back() {
    let tree = tree(&[(TopKind::Leaf, 1)], 64 * MIB);
    let allocator = Arc::new(loaded(&tree, 1, |_, _| 65536));
    let whole: u64 = 1 << SHIFT;
    let start = whole;
    let free_bytes = || allocator.free_bytes(VdevId(0), 1);
    let before = free_bytes();
    let window = start..start + 262_144;
    let loan = allocator.lend(VdevId(0), 1, &window, None);
    assert_eq!(loan.segments(), std::slice::from_ref(&(start + 65536..start + 262_144)), "not what is allocated");
    assert_eq!(free_bytes(), before - 196_608);
    assert!(allocator.lend(VdevId(0), 1, &window, None).segments().is_empty(), "it is lent once");
    let claim = |range: Range<u64>| {
        let dva = Dva { vdev: VdevId(0), offset: range.start, asize: range.end - range.start, gang: false };
        allocator.claim(TXG, &dva)
    };
    assert!(claim(start + 131_072..start + 135_168).is_err(), "nobody gets it");
    claim(start + 262_144..start + 266_240).expect("what is beside it is free");
    drop(loan);
    assert_eq!(free_bytes(), before - 4096);
    claim(start + 131_072..start + 135_168).expect("it came back");
    let mut only = range_tree::RangeTree::new();
    only.cover(start + 8192..start + 69_632);
    only.cover(start + 126_976..start + 200_704);
    let loan = allocator.lend(VdevId(0), 1, &(start..start + 196_608), Some(&only));
    let parts = [65536..69_632, 126_976..131_072, 135_168..196_608].map(|part| start + part.start..start + part.end);
    assert_eq!(loan.segments(), parts, "free, in the window, and in the set");
    assert_eq!(free_bytes(), before - 8192 - 69_632);
}

/// If this fails, the log does not say which metaslab keeps a pool from being imported.
#[test]
fn errors_say_what_is_wrong() {
    let error = LoadError { vdev: VdevId(3), metaslab: 17 };
    assert_eq!(error.to_string(), "the free space of metaslab 17 of vdev 3 contradicts itself");
    assert_eq!(NoSpace.to_string(), "no free segment is large enough");
}
