//! What the allocator says of its space, and where it puts things: numbers that users see, and that decide whether they may write.
use metaslab::{AllocRequest, Allocator, ClassSpace, VdevSpace};
use ondisk::{Dva, Txg, VdevId};
use std::ops::Range;
use std::sync::Arc;
use vdev::{Bias, TopKind, VdevTree};

const TXG: Txg = Txg(10);

fn loaded(tree: &VdevTree, shards: usize) -> Allocator {
    let allocator = Allocator::new(tree, shards);
    for top in &tree.tops {
        for metaslab in 0..allocator.metaslab_count(top.id) {
            allocator.load(top.id, metaslab, &[]).expect("empty");
        }
    }
    allocator
}

fn tree(layout: &[(TopKind, usize)]) -> VdevTree {
    VdevTree::simple(layout, 12, 300 << 20).expect("valid")
}

fn dva(vdev: u32, range: &Range<u64>) -> Dva {
    Dva { vdev: VdevId(vdev), offset: range.start, asize: range.end - range.start, gang: false }
}

fn synced(allocator: &Allocator, txg: Txg) {
    allocator.take_deltas(txg);
    allocator.sync_done(txg);
}

/// Segments by log2 of their length.
fn histogram(segments: &[(u64, u64)]) -> [u64; 64] {
    let mut sum = [0; 64];
    for (count, bytes) in segments {
        sum[bytes.ilog2() as usize] += count;
    }
    sum
}

/// If this fails, writers are let in for room that nothing is allocated from any more, and the pool stands still once the rest is full.
#[test]
fn a_vdev_that_takes_no_more_blocks_has_no_room_for_them() {
    let mut tree = tree(&[(TopKind::Leaf, 1), (TopKind::Leaf, 1)]);
    let allocator = loaded(&tree, 4);
    let before = allocator.class_space();
    tree.tops[1].nonallocating = true;
    allocator.follow(&tree);
    let after = allocator.class_space();
    assert_eq!(after.capacity, before.capacity, "it is there all the same");
    assert_eq!(after.deflated_capacity, before.deflated_capacity / 2);
}

/// If this fails, `zpool list`, `zfs list` and quotas are wrong: there seems to be room where there is none, or none where there is.
#[test]
fn what_is_used_is_the_sum_of_the_data_vdevs() {
    let mut tree = tree(&[(TopKind::Leaf, 1), (TopKind::Raidz(1), 3), (TopKind::Mirror, 2), (TopKind::Leaf, 1)]);
    tree.tops[2].is_log = true;
    (tree.tops[3].kind, tree.tops[3].node) = (TopKind::Hole, None);
    let allocator = loaded(&tree, 4);
    let taken = [4 << 20, 6 << 20, 8 << 20];
    for (vdev, bytes) in taken.iter().enumerate() {
        allocator.claim(TXG, &dva(vdev as u32, &(0..*bytes))).expect("free");
    }
    synced(&allocator, TXG);
    for (vdev, bytes) in taken.iter().enumerate() {
        assert!(allocator.free(TXG.next(), &dva(vdev as u32, &(bytes / 2..*bytes))));
    }
    synced(&allocator, TXG.next());
    let mut class = ClassSpace::default();
    for (top, bytes) in tree.tops.iter().zip(taken) {
        let capacity = top.metaslab_count() << top.ms_shift;
        let space = VdevSpace { allocated: bytes, capacity, deferred: bytes / 2 };
        assert_eq!(allocator.vdev_space(top.id), space, "{:?}", top.kind);
        if !top.is_log {
            class.allocated += bytes;
            class.capacity += capacity;
            class.deferred += bytes / 2;
            class.deflated_allocated += top.dsize(bytes);
            class.deflated_capacity += top.dsize(capacity);
        }
    }
    assert_eq!(allocator.class_space(), class, "logs and holes have no place for data");
    assert_eq!(allocator.vdev_space(VdevId(3)), VdevSpace::default());
    assert!(allocator.has_deferred(), "what was freed is still to come");
    synced(&allocator, TXG.next().next());
    assert!(allocator.has_deferred());
    synced(&allocator, Txg(TXG.0 + 3));
    assert!(!allocator.has_deferred());
    assert_eq!(
        allocator.class_space(),
        ClassSpace {
            allocated: 5 << 20,
            deferred: 0,
            deflated_allocated: tree.tops[0].dsize(2 << 20) + tree.tops[1].dsize(3 << 20),
            ..class
        }
    );
}

/// If this fails, `zfs list` promises room for files that only metadata may have, or `zpool list` forgets the vdevs for it.
#[test]
fn vdevs_for_some_blocks_are_part_of_the_pool_and_no_room_for_files() {
    let mut tree = tree(&[(TopKind::Leaf, 1), (TopKind::Leaf, 1), (TopKind::Leaf, 1)]);
    let plain = loaded(&tree, 1).class_space();
    (tree.tops[1].bias, tree.tops[2].bias) = (Bias::Special, Bias::Dedup);
    let allocator = loaded(&tree, 1);
    for vdev in 0..3 {
        allocator.claim(TXG, &dva(vdev, &(0..1 << 20))).expect("free");
    }
    let space = allocator.class_space();
    assert_eq!((space.capacity, space.deflated_capacity), (plain.capacity, plain.deflated_capacity / 3));
    assert_eq!((space.allocated, space.deflated_allocated), (3 << 20, tree.tops[0].dsize(1 << 20)));
    // Datasets count that, too.
    let elsewhere = || allocator.class_space().deflated_elsewhere;
    assert_eq!(elsewhere(), tree.tops[1].dsize(1 << 20) + tree.tops[2].dsize(1 << 20));
    synced(&allocator, TXG);
    assert!(allocator.free(TXG.next(), &dva(1, &(0..1 << 20))));
    synced(&allocator, TXG.next());
    assert_eq!(elsewhere(), tree.tops[2].dsize(1 << 20), "what was freed is nobody's");
}

/// If this fails, transactions announce less than they take: a full pool is written over its last reserve, and nothing can be removed.
#[test]
fn the_worst_vdev_tells_how_much_a_block_may_take() {
    let mut tree = tree(&[(TopKind::Leaf, 1), (TopKind::Raidz(1), 3), (TopKind::Raidz(2), 5), (TopKind::Raidz(3), 7)]);
    let told = |tree: &VdevTree| loaded(tree, 1).worst_dsize(512);
    let of = |tree: &VdevTree, index: usize| tree.tops[index].dsize(tree.tops[index].asize_for_psize(512));
    let each: Vec<u64> = (0..4).map(|index| of(&tree, index)).collect();
    assert!(each.is_sorted_by(|one, next| one < next), "parity of small blocks is more than that of large ones: {each:?}");
    assert_eq!(told(&tree), each[3]);
    tree.tops[3].is_log = true;
    assert_eq!(told(&tree), each[2], "a log has no blocks of files");
    (tree.tops[2].kind, tree.tops[2].node) = (TopKind::Hole, None);
    assert_eq!(told(&tree), each[1], "nor has what was removed");
}

/// If this fails, `zpool list` says that a pool is whole when it is in pieces, and space maps tell OpenZFS wrong lengths of what is free.
#[test]
fn pieces_are_counted_by_length() {
    let tree = tree(&[(TopKind::Leaf, 1)]);
    let allocator = loaded(&tree, 1);
    let whole: u64 = 1 << tree.tops[0].ms_shift;
    let count = u64::from(allocator.metaslab_count(VdevId(0)));
    assert!(count > 2);
    assert_eq!(allocator.free_histogram(VdevId(0)), histogram(&[(count, whole)]));
    // Three pieces: in front, in the middle, and the rest.
    for range in [65536..131072, 135168..262144] {
        allocator.claim(TXG, &dva(0, &range)).expect("free");
    }
    let pieces = [(1, 65536), (1, 4096), (1, whole - 262144)];
    assert_eq!(allocator.free_histogram(VdevId(0)), histogram(&[&pieces[..], &[(count - 1, whole)]].concat()));
    assert_eq!(allocator.synced_histogram(VdevId(0), 1), histogram(&[(1, whole)]));
    synced(&allocator, TXG);
    assert_eq!(allocator.synced_histogram(VdevId(0), 0), histogram(&pieces));
    // What was freed is free in the space map from the txg on that frees it, and for allocations later.
    assert!(allocator.free(TXG.next(), &dva(0, &(65536..131072))));
    assert_eq!(allocator.synced_histogram(VdevId(0), 0), histogram(&pieces), "not before it is taken");
    allocator.take_deltas(TXG.next());
    let told = histogram(&[&pieces[..], &[(1, 65536)]].concat());
    assert_eq!(allocator.synced_histogram(VdevId(0), 0), told, "taken");
    allocator.sync_done(TXG.next());
    assert_eq!(allocator.synced_histogram(VdevId(0), 0), told, "at rest");
    assert_eq!(allocator.free_histogram(VdevId(0)), histogram(&[&pieces[..], &[(count - 1, whole)]].concat()));
    let allocator = Arc::new(allocator);
    let (hold, _) = allocator.hold(VdevId(0), 0);
    (TXG.0 + 2..TXG.0 + 4).for_each(|txg| synced(&allocator, Txg(txg)));
    assert_eq!(allocator.synced_histogram(VdevId(0), 0), told, "held back");
    drop(hold);
    let loan = allocator.lend(VdevId(0), 0, &(0..4096), None);
    assert_eq!(loan.segments(), std::slice::from_ref(&(0..4096)));
    let lent = histogram(&[(1, 4096), (1, 131072), (1, whole - 262144)]);
    assert_eq!(allocator.synced_histogram(VdevId(0), 0), lent, "lent");
}

/// If this fails, FRAG of `zpool list` is not that of OpenZFS: of metaslabs by their free space, of vdevs for all blocks by their size.
#[test]
fn fragmentation_is_weighted_by_what_is_free() {
    let mut tree = tree(&[(TopKind::Leaf, 1), (TopKind::Leaf, 1), (TopKind::Leaf, 1)]);
    tree.tops[2].is_log = true;
    let allocator = loaded(&tree, 1);
    let (whole, count): (u64, _) = (1 << tree.tops[0].ms_shift, allocator.metaslab_count(VdevId(0)));
    let told = || ([0, 1, 2].map(|vdev| allocator.fragmentation(VdevId(vdev))), allocator.class_fragmentation());
    assert_eq!(told(), ([Some(0); 3], Some(0)), "metaslabs that nothing was allocated from yet");
    let note = |vdev: u32, metaslab: u32| allocator.note_histogram(VdevId(vdev), metaslab, &histogram(&[(7, 4096)]));
    note(0, 0);
    (0..count).for_each(|metaslab| note(1, metaslab));
    note(2, 0);
    let one = 93 / u64::from(count);
    assert_eq!(told(), ([Some(one), Some(93), Some(one)], Some(u64::midpoint(one, 93))), "logs are not the pool's");
    assert_eq!([0, 1].map(|metaslab| allocator.metaslab_fragmentation(VdevId(0), metaslab)), [Some(93), Some(0)]);
    allocator.claim(TXG, &dva(0, &(0..whole / 2))).expect("free");
    synced(&allocator, TXG);
    assert_eq!(allocator.fragmentation(VdevId(0)), Some(93 / (2 * u64::from(count) - 1)), "half as much is free there");
}

/// If this fails, FRAG is a number though nobody knows what is free in most metaslabs.
#[test]
fn fragmentation_of_what_nobody_knows_is_not_told() {
    let tree = tree(&[(TopKind::Leaf, 1)]);
    let count = Allocator::new(&tree, 1).metaslab_count(VdevId(0));
    for known in [count.div_ceil(2), count.div_ceil(2) - 1] {
        let allocator = Allocator::new(&tree, 1);
        (0..known).for_each(|metaslab| allocator.load(VdevId(0), metaslab, &[]).expect("empty"));
        (known..count).for_each(|metaslab| allocator.distrust(VdevId(0), metaslab, "lost".to_string()).expect("new"));
        let expected = (known == count.div_ceil(2)).then_some(0);
        assert_eq!((allocator.fragmentation(VdevId(0)), allocator.class_fragmentation()), (expected, expected), "{known} of {count}");
    }
}

/// If this fails, memory for free space is not counted, and a daemon with large pools takes more than it was allowed.
#[test]
fn pieces_take_memory() {
    let tree = tree(&[(TopKind::Leaf, 1)]);
    let allocator = loaded(&tree, 1);
    let before = allocator.memory_bytes();
    for piece in 0..4000 {
        allocator.claim(TXG, &dva(0, &(piece * 8192..piece * 8192 + 4096))).expect("free");
    }
    let pieces = allocator.memory_bytes() - before;
    assert!(pieces > 4000 * 2 * 8, "two numbers a piece at least: {pieces}");
    synced(&allocator, TXG);
    assert!(allocator.memory_bytes() - before > 4000 * 8, "those of allocated space went");
}

/// If this fails, `autotrim` leaves what was freed on the device, or trims what nobody freed.
#[test]
fn what_becomes_free_is_noted_once_for_whoever_asks() {
    let tree = tree(&[(TopKind::Leaf, 1), (TopKind::Leaf, 1)]);
    let allocator = loaded(&tree, 1);
    let parts = [0..65536, 131072..196608, 262144..327680];
    for vdev in 0..2 {
        parts.iter().for_each(|part| allocator.claim(TXG, &dva(vdev, part)).expect("free"));
    }
    synced(&allocator, TXG);
    let mut txg = TXG.next();
    let mut free = |part: &Range<u64>| {
        assert!(allocator.free(txg, &dva(0, part)) && allocator.free(txg, &dva(1, part)));
        for _ in 0..3 {
            synced(&allocator, txg);
            txg = txg.next();
        }
    };
    let noted = |vdev: u32| allocator.take_released(VdevId(vdev), 0).iter().collect::<Vec<_>>();
    free(&parts[0]);
    assert!(noted(0).is_empty(), "nobody asked");
    allocator.note_released(VdevId(0), true);
    free(&parts[1]);
    allocator.note_released(VdevId(0), true);
    assert_eq!(noted(0), std::slice::from_ref(&parts[1]), "asking twice forgets nothing");
    assert!(noted(0).is_empty(), "each but once");
    assert!(noted(1).is_empty(), "of the other vdev nobody asked");
    free(&parts[2]);
    allocator.note_released(VdevId(0), false);
    assert!(noted(0).is_empty(), "forgotten");
}

/// If this fails, a space map gets what a later txg did: after a power cut blocks that are in use count as free, and are written over.
#[test]
fn what_txgs_in_flight_do_is_told_apart() {
    let tree = tree(&[(TopKind::Leaf, 1)]);
    let allocator = loaded(&tree, 1);
    let parts = [0..4096, 65536..69632, 131072..135168];
    for (after, part) in parts.iter().enumerate() {
        allocator.claim(Txg(TXG.0 + after as u64), &dva(0, part)).expect("free");
    }
    for (after, part) in parts.iter().enumerate() {
        let txg = Txg(TXG.0 + after as u64);
        let deltas = allocator.take_deltas(txg);
        assert_eq!(deltas.iter().map(|delta| &delta.allocs[..]).collect::<Vec<_>>(), [std::slice::from_ref(part)], "of {txg:?} only");
        allocator.sync_done(txg);
    }
    for (after, part) in parts.iter().enumerate() {
        assert!(allocator.free(Txg(20 + after as u64), &dva(0, part)));
    }
    for (after, part) in parts.iter().enumerate() {
        let deltas = allocator.take_deltas(Txg(20 + after as u64));
        assert_eq!(deltas.iter().map(|delta| &delta.frees[..]).collect::<Vec<_>>(), [std::slice::from_ref(part)]);
        allocator.sync_done(Txg(20 + after as u64));
        assert_eq!(allocator.class_space().deferred, 4096 * (after as u64 + 1).min(2), "each rests for two txgs");
    }
}

/// If this fails, a damaged block pointer frees space that is in no file or in another one's, and that is written over.
#[test]
fn what_is_not_allocated_is_not_freed() {
    let tree = tree(&[(TopKind::Leaf, 1)]);
    let allocator = Arc::new(loaded(&tree, 1));
    let whole: u64 = 1 << tree.tops[0].ms_shift;
    let [first, second, last] = [0..4096, 65536..69632, whole - 4096..whole];
    for part in [&first, &second, &last] {
        allocator.claim(TXG, &dva(0, part)).expect("free");
    }
    synced(&allocator, TXG);
    let is_refused = |txg: Txg, range: Range<u64>, why: &str| {
        let before = allocator.class_space();
        assert!(!allocator.free(txg, &dva(0, &range)), "{range:?}: {why}");
        assert!(allocator.take_deltas(txg).is_empty(), "{why}");
        assert_eq!(allocator.class_space(), before, "{why}");
    };
    is_refused(Txg(11), 4096..8192, "it is free");
    is_refused(Txg(11), 0..8192, "half of it is free");
    is_refused(Txg(11), last.start..whole + 4096, "it ends in the next metaslab");
    is_refused(Txg(11), tree.tops[0].asize..tree.tops[0].asize + 4096, "it lies behind the vdev");
    is_refused(Txg(11), last.start..u64::MAX, "no vdev is so large");
    assert!(allocator.free(Txg(11), &dva(0, &first)));
    assert!(!allocator.free(Txg(12), &dva(0, &first)), "it was freed in the txg before, not yet taken");
    allocator.take_deltas(Txg(11));
    is_refused(Txg(12), first.clone(), "it was freed in the txg before");
    allocator.sync_done(Txg(11));
    is_refused(Txg(12), first.clone(), "it rests");
    let (hold, _) = allocator.hold(VdevId(0), 0);
    (12..14).for_each(|txg| synced(&allocator, Txg(txg)));
    is_refused(Txg(14), first.clone(), "it is held back");
    drop(hold);
    let loan = allocator.lend(VdevId(0), 0, &first, None);
    is_refused(Txg(14), first, "it is lent");
    drop(loan);
    assert!(allocator.free(Txg(14), &dva(0, &second)) && allocator.free(Txg(14), &dva(0, &last)), "what is allocated goes");
}

/// If this fails, a rebuild writes what it read over a file that was written meanwhile, or the space of a hold never comes back.
#[test]
fn what_is_freed_under_a_hold_comes_back_with_the_last_one() {
    let tree = tree(&[(TopKind::Mirror, 2)]);
    let allocator = Arc::new(loaded(&tree, 1));
    let [first, second] = [0..65536, 131072..196608];
    allocator.claim(TXG, &dva(0, &first)).expect("free");
    allocator.claim(TXG, &dva(0, &second)).expect("free");
    synced(&allocator, TXG);
    let free_bytes = || allocator.free_bytes(VdevId(0), 0);
    let before = free_bytes();
    let (one, allocated) = allocator.hold(VdevId(0), 0);
    assert_eq!(allocated, [first.clone(), second.clone()]);
    let (other, allocated) = allocator.hold(VdevId(0), 0);
    assert_eq!(allocated, [first.clone(), second.clone()]);
    assert!(allocator.free(Txg(11), &dva(0, &first)));
    (11..20).for_each(|txg| synced(&allocator, Txg(txg)));
    assert_eq!(free_bytes(), before, "held back");
    assert!(allocator.claim(Txg(20), &dva(0, &first)).is_err(), "nobody gets it");
    let space = allocator.vdev_space(VdevId(0));
    assert_eq!((space.allocated, space.deferred), (131_072, 65536), "it counts as in use, and as still to come");
    drop(one);
    assert_eq!(free_bytes(), before, "the other one still writes there");
    let space = allocator.vdev_space(VdevId(0));
    assert_eq!((space.allocated, space.deferred), (131_072, 65536));
    drop(other);
    assert_eq!(free_bytes(), before + 65536);
    let space = allocator.vdev_space(VdevId(0));
    assert_eq!((space.allocated, space.deferred), (65536, 0));
    assert!(allocator.free(Txg(20), &dva(0, &second)));
    (20..23).for_each(|txg| synced(&allocator, Txg(txg)));
    assert_eq!(free_bytes(), before + 131_072, "without a hold what is freed rests for two txgs");
}

/// If this fails, files that are written in one go lie in pieces over old holes, and disks with heads read them slowly; or a nearly full
/// pool breaks its last long pieces for short blocks, and writes gang blocks from then on.
#[test]
fn holes_are_filled_when_space_is_scarce_and_no_sooner() {
    let tree = tree(&[(TopKind::Leaf, 1)]);
    let whole: u64 = 1 << tree.tops[0].ms_shift;
    // All is allocated but a part of the second metaslab: a long hole in front, a short one behind it.
    let next_in = |long: u64| {
        let allocator = Allocator::new(&tree, 1);
        for metaslab in 0..allocator.metaslab_count(VdevId(0)) {
            let start = u64::from(metaslab) * whole;
            let parts = [start..start + whole, start + long..start + whole - 65536, start + whole - 61440..start + whole];
            allocator.load(VdevId(0), metaslab, if metaslab == 1 { &parts[1..] } else { &parts[..1] }).expect("valid");
        }
        let found = allocator.alloc(&AllocRequest { psize: 4096, copies: 1, txg: TXG, hint: 0 }).expect("room");
        found[0].offset - whole
    };
    let percent = whole / 100;
    assert_eq!(next_in((percent * 4 + 8192).next_multiple_of(4096)), 0, "there is enough: from the front");
    assert_eq!(next_in((percent * 3).next_multiple_of(4096)), whole - 65536, "little is left: the hole that fits");
    assert_eq!(next_in(8192), whole - 65536, "next to nothing is left");
}

/// If this fails, blocks of a file that is written lie in holes of older ones, here and there.
#[test]
fn blocks_follow_each_other() {
    let tree = tree(&[(TopKind::Leaf, 1)]);
    let allocator = loaded(&tree, 1);
    let mut txg = TXG;
    let mut next = |allocator: &Allocator| {
        let found = allocator.alloc(&AllocRequest { psize: 65536, copies: 1, txg, hint: 0 }).expect("room")[0];
        synced(allocator, txg);
        txg = txg.next();
        found
    };
    let first: Vec<Dva> = (0..8).map(|_| next(&allocator)).collect();
    for pair in first.windows(2) {
        assert_eq!(pair[1].offset, pair[0].offset + 65536);
    }
    for dva in &first[..4] {
        assert!(allocator.free(Txg(TXG.0 + 8), dva));
    }
    for number in 8..16 {
        assert_eq!(next(&allocator).offset, first[0].offset + number * 65536, "the hole in front is for later");
    }
}

/// Bytes of the metaslabs of [`many`].
const SMALL: u64 = 1 << 22;

/// Vdevs with so many metaslabs that one is set aside.
fn many(layout: &[(TopKind, usize)]) -> VdevTree {
    let mut tree = tree(layout);
    tree.tops.iter_mut().for_each(|top| top.ms_shift = SMALL.trailing_zeros());
    tree
}

fn request(psize: u64) -> AllocRequest {
    AllocRequest { psize, copies: 1, txg: TXG, hint: 0 }
}

/// If this fails, log blocks lie between those of files, and programs that sync wait for it; or files get what is kept for logs, or `zfs list` shows
/// room that they cannot have.
#[test]
fn a_metaslab_of_each_data_vdev_is_set_aside_for_logs() {
    let tree = many(&[(TopKind::Leaf, 1), (TopKind::Leaf, 1)]);
    let allocator = Allocator::new(&tree, 2);
    for top in &tree.tops {
        for metaslab in 0..allocator.metaslab_count(top.id) {
            // The sixth is the emptiest.
            let start = u64::from(metaslab) * SMALL;
            let taken = start..start + if metaslab == 5 { 4096 } else { 8192 };
            allocator.load(top.id, metaslab, std::slice::from_ref(&taken)).expect("valid");
        }
    }
    let before = allocator.class_space();
    assert!(allocator.alloc_embedded_log(&request(4096)).is_err(), "nothing is set aside");
    allocator.set_aside_for_logs();
    let deflated = |bytes: u64| tree.tops.iter().map(|top| top.dsize(bytes)).sum::<u64>();
    let expected = ClassSpace {
        deflated_allocated: before.deflated_allocated - deflated(4096),
        deflated_capacity: before.deflated_capacity - deflated(SMALL),
        deflated_logs: deflated(SMALL),
        ..before
    };
    assert_eq!(allocator.class_space(), expected);
    let logs: Vec<Dva> = (0..4).map(|_| allocator.alloc_embedded_log(&request(4096)).expect("room")[0]).collect();
    assert!(logs.iter().all(|dva| dva.offset / SMALL == 5), "{logs:?}");
    assert_eq!(logs.iter().map(|dva| dva.vdev.0).collect::<Vec<_>>(), [0, 1, 0, 1], "each in its turn");
    // One such block fits into each of the others.
    let mut count = 0;
    while let Ok([dva, ..]) = allocator.alloc(&request(SMALL / 2)) {
        assert_ne!(dva.offset / SMALL, 5, "a file in what is kept for logs");
        count += 1;
    }
    assert_eq!(count, 2 * (allocator.metaslab_count(VdevId(0)) - 1));
    let rest = request(SMALL - 3 * 4096);
    assert!(allocator.alloc_embedded_log(&rest).is_ok() && allocator.alloc_embedded_log(&rest).is_ok(), "logs have all of it");
    assert!(allocator.alloc_embedded_log(&request(4096)).is_err(), "and no more");
}

/// Small vdevs keep what they have for files; one that grows sets aside what is new, since the rest may be in use.
#[test]
fn vdevs_set_nothing_aside_before_they_have_enough() {
    let mut tree = many(&[(TopKind::Leaf, 1)]);
    let large = tree.clone();
    tree.tops[0].asize = 40 * SMALL;
    let allocator = loaded(&tree, 1);
    allocator.set_aside_for_logs();
    assert!(allocator.alloc_embedded_log(&request(4096)).is_err());
    assert_eq!(allocator.class_space().deflated_logs, 0);
    allocator.follow(&large);
    let [dva, ..] = allocator.alloc_embedded_log(&request(4096)).expect("room");
    assert_eq!(dva.offset / SMALL, 40);
    assert_eq!(allocator.class_space().deflated_logs, tree.tops[0].dsize(SMALL));
}

/// If this fails, blocks of a checkpoint are written over, or what was written after it was made never becomes free.
#[test]
fn what_a_checkpoint_has_stays_allocated_when_it_is_freed() {
    const BYTES: u64 = 1 << 20;
    let allocator = loaded(&tree(&[(TopKind::Leaf, 1)]), 1);
    let (old, new) = (0..BYTES, BYTES..2 * BYTES);
    for range in [&old, &new] {
        allocator.claim(TXG, &dva(0, range)).expect("free");
    }
    synced(&allocator, TXG);
    allocator.set_checkpoint(TXG);
    let next = TXG.next();
    assert!(allocator.free_born(next, TXG, &dva(0, &old)) && allocator.free_born(next, next, &dva(0, &new)));
    assert!(!allocator.free_born(next, TXG, &dva(0, &old)), "it is kept already");
    let freed: Vec<_> = allocator.take_deltas(next).into_iter().flat_map(|delta| delta.frees).collect();
    let kept: Vec<_> = allocator.take_kept().into_iter().flat_map(|kept| kept.segments).collect();
    assert_eq!((freed, kept), (vec![new.clone()], vec![old.clone()]));
    assert!(allocator.take_kept().is_empty(), "each once");
    allocator.sync_done(next);
    (2..5).for_each(|later| synced(&allocator, Txg(TXG.0 + later)));
    assert_eq!(allocator.vdev_space(VdevId(0)).allocated, BYTES, "the one that was written later is free");
    assert!(!allocator.free_born(Txg(TXG.0 + 5), TXG, &dva(0, &new)), "so a pointer to it is wrong");
    allocator.set_checkpoint(Txg::ZERO);
    assert!(allocator.free_born(Txg(TXG.0 + 5), TXG, &dva(0, &old)));
    (5..8).for_each(|later| synced(&allocator, Txg(TXG.0 + later)));
    assert_eq!(allocator.vdev_space(VdevId(0)).allocated, 0, "it was discarded");
}

/// If this fails, somebody is given space of which nobody knows whether it is free, or a pool that is only read shows wrong sizes.
#[test]
fn of_what_is_only_told_nothing_is_handed_out() {
    let tree = tree(&[(TopKind::Leaf, 1)]);
    let allocator = Allocator::new(&tree, 1);
    let (top, vdev) = (&tree.tops[0], VdevId(0));
    let bytes = 1 << top.ms_shift;
    assert!(allocator.tell(vdev, 0, bytes + 1).is_err(), "more than there is");
    for metaslab in 0..allocator.metaslab_count(vdev) {
        allocator.tell(vdev, metaslab, 1 << 20).expect("not known yet");
        assert!(allocator.tell(vdev, metaslab, 1 << 20).is_err(), "nothing counts twice");
        assert!(allocator.is_unknown(vdev, metaslab));
        assert_eq!(allocator.free_bytes(vdev, metaslab), bytes - (1 << 20));
    }
    let count = u64::from(allocator.metaslab_count(vdev));
    let told = allocator.vdev_space(vdev);
    assert_eq!((told.allocated, told.capacity), (count << 20, count * bytes));
    assert!(allocator.load(vdev, 0, &[]).is_err(), "what is told is not loaded over");
    assert!(allocator.claim(TXG, &dva(0, &(0..4096))).is_err());
    let request = AllocRequest { psize: 4096, copies: 1, txg: TXG, hint: 0 };
    assert!(allocator.alloc(&request).is_err());
    assert!(allocator.free(TXG, &dva(0, &(0..4096))), "it stays allocated");
    assert!(allocator.take_deltas(TXG).is_empty());
    assert_eq!(allocator.vdev_space(vdev), told);
    assert!(allocator.broken().is_empty(), "nothing is wrong with it");
}
