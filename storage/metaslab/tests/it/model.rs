//! The allocator against a map of every sector. What the user loses when these fail: two files in one place, or space that
//! never comes back.
use metaslab::{AllocRequest, Allocator, Aside};
use ondisk::{Dva, Txg, VdevId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use vdev::{DraidConfig, Part, TopKind, VdevTree, WritePlan};

fn allocator(layout: &[(TopKind, usize)], shards: usize, leaf_bytes: u64) -> (VdevTree, Allocator) {
    let tree = VdevTree::simple(layout, 12, leaf_bytes).expect("valid");
    let allocator = Allocator::new(&tree, shards);
    for top in &tree.tops {
        for metaslab in 0..allocator.metaslab_count(top.id) {
            allocator.load(top.id, metaslab, &[]).expect("empty");
        }
    }
    (tree, allocator)
}

struct Random(u64);
impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Segments that may not be handed out, by (vdev, offset).
#[derive(Default)]
struct Model(BTreeMap<(VdevId, u64), u64>);
impl Model {
    fn take(&mut self, dva: &Dva) {
        let before = self.0.range(..(dva.vdev, dva.offset + dva.asize)).next_back();
        if let Some((&(vdev, offset), &asize)) = before {
            assert!(vdev != dva.vdev || offset + asize <= dva.offset, "{dva:?} was handed out twice");
        }
        self.0.insert((dva.vdev, dva.offset), dva.asize);
    }
    fn give(&mut self, dva: &Dva) {
        assert_eq!(self.0.remove(&(dva.vdev, dva.offset)), Some(dva.asize));
    }
}

/// A space map per metaslab, as the pool keeps it: sector → allocated.
#[derive(Default)]
struct SpaceMaps(BTreeMap<(VdevId, u32), range_tree::RangeTree>);
impl SpaceMaps {
    fn apply(&mut self, allocator: &Allocator, txg: Txg) {
        for delta in allocator.take_deltas(txg) {
            let map = self.0.entry((delta.vdev, delta.metaslab)).or_default();
            for alloc in &delta.allocs {
                map.add(alloc.start, alloc.end - alloc.start).expect("allocated twice");
            }
            for free in &delta.frees {
                map.remove(free.start, free.end - free.start).expect("freed what was not allocated");
            }
            let whole: Vec<_> = map.iter().collect();
            assert_eq!(whole, allocator.synced_allocated(delta.vdev, delta.metaslab), "a condensed map would differ");
        }
    }
}

#[test]
fn random_work_never_hands_out_a_sector_twice_and_loses_none() {
    for (seed, layout) in
        [(1, vec![(TopKind::Leaf, 1)]), (2, vec![(TopKind::Raidz(1), 3), (TopKind::Mirror, 2)]), (3, vec![(TopKind::Leaf, 1); 3])]
    {
        let (tree, allocator) = allocator(&layout, 4, 300 << 20);
        let (mut random, mut model, mut maps) = (Random(seed), Model::default(), SpaceMaps::default());
        let mut live: Vec<Dva> = Vec::new();
        let mut resting: Vec<(Txg, Vec<Dva>)> = Vec::new();
        let mut failures = 0;
        for txg in (10..90).map(Txg) {
            for _ in 0..200 {
                let psize = 512 << random.below(13);
                let copies = 1 + random.below(3) as u8;
                let Ok(found) = allocator.alloc(&AllocRequest { psize, copies, txg, hint: random.below(7) }) else {
                    failures += 1;
                    continue;
                };
                for dva in found.iter().filter(|dva| !dva.is_empty()) {
                    assert_eq!(dva.asize, tree.tops[dva.vdev.0 as usize].asize_for_psize(psize));
                    model.take(dva);
                    live.push(*dva);
                }
                assert_eq!(found.iter().filter(|dva| !dva.is_empty()).count(), usize::from(copies));
            }
            let mut freed = Vec::new();
            for _ in 0..random.below(500).min(live.len() as u64) {
                let dva = live.swap_remove(random.below(live.len() as u64) as usize);
                assert!(allocator.free(txg, &dva));
                assert!(!allocator.free(txg, &dva), "a second free must be refused");
                freed.push(dva);
                if random.below(50) == 0 {
                    maps.apply(&allocator, txg);
                }
            }
            maps.apply(&allocator, txg);
            allocator.sync_done(txg);
            resting.push((txg, freed));
            if resting.len() > 2 {
                resting.remove(0).1.iter().for_each(|dva| model.give(dva));
            }
        }
        assert!(failures > 0, "the test must reach a full pool");
        let last = Txg(90);
        live.iter().for_each(|dva| assert!(allocator.free(last, dva)));
        for txg in [last, last.next(), last.next().next()] {
            maps.apply(&allocator, txg);
            allocator.sync_done(txg);
        }
        assert!(!allocator.has_deferred());
        assert_eq!(allocator.class_space().allocated, 0);
        assert!(maps.0.values().all(range_tree::RangeTree::is_empty));
    }
}

/// If this fails, the room of a vdev that was added or grew is handed out twice, or what it had before is lost.
#[test]
fn vdevs_that_are_added_and_grow_join_the_work() {
    let (tree, allocator) = allocator(&[(TopKind::Leaf, 1)], 4, 300 << 20);
    let (mut random, mut model, mut live) = (Random(11), Model::default(), Vec::new());
    let mut work = |txg: Txg, live: &mut Vec<Dva>| {
        for _ in 0..400 {
            let psize = 512 << random.below(11);
            if let Ok(found) = allocator.alloc(&AllocRequest { psize, copies: 1, txg, hint: random.below(7) }) {
                model.take(&found[0]);
                live.push(found[0]);
            }
        }
        allocator.take_deltas(txg);
        allocator.sync_done(txg);
    };
    work(Txg(5), &mut live);
    let before = allocator.class_space();
    // The same vdev is larger, and there are two more.
    let layout = [(TopKind::Leaf, 1), (TopKind::Raidz(1), 3), (TopKind::Mirror, 2)];
    let mut grown = VdevTree::simple(&layout, 12, 300 << 20).expect("valid");
    let shift = tree.tops[0].ms_shift;
    (grown.tops[0].ms_shift, grown.tops[0].asize) = (shift, tree.tops[0].asize + (3 << shift));
    allocator.follow(&grown);
    assert_eq!(allocator.class_space().allocated, before.allocated, "what is allocated stays so");
    assert_eq!(allocator.metaslab_count(VdevId(0)), tree.tops[0].metaslab_count() as u32 + 3);
    for txg in 6..40 {
        work(Txg(txg), &mut live);
    }
    for vdev in 0..3 {
        assert!(live.iter().any(|dva| dva.vdev == VdevId(vdev)), "vdev {vdev} is used");
    }
    assert!(live.iter().any(|dva| dva.vdev == VdevId(0) && dva.offset >= tree.tops[0].metaslab_count() << shift), "the new end too");
    for dva in &live {
        assert!(allocator.free(Txg(50), dva), "{dva:?}");
    }
    for txg in 50..53 {
        allocator.take_deltas(Txg(txg));
        allocator.sync_done(Txg(txg));
    }
    assert_eq!(allocator.class_space().allocated, 0);
    // One that left has nothing to give.
    let mut left = grown.clone();
    (left.tops[2].kind, left.tops[2].node) = (TopKind::Hole, None);
    allocator.follow(&left);
    for hint in 0..200 {
        let found = allocator.alloc(&AllocRequest { psize: 1 << 20, copies: 1, txg: Txg(60), hint }).expect("room");
        assert_ne!(found[0].vdev, VdevId(2));
    }
}

/// If this fails, files on dRAID are written and read at the speed of one group's children while the others idle.
#[test]
fn neighbouring_records_use_all_children_of_a_draid_alike() {
    let one =
        [((2, 8, 0, 12), 560, 1), ((2, 8, 0, 12), 700, 1), ((2, 8, 0, 12), 1500, 1), ((2, 8, 0, 12), 200_000, 1), ((1, 4, 2, 24), 2000, 1)];
    let several = [((2, 8, 0, 12), 700, 8), ((2, 8, 0, 12), 700, 64), ((2, 8, 0, 12), 200_000, 8), ((1, 4, 2, 24), 2000, 8)];
    for (shape, leaf_mib, files) in one.into_iter().chain(several) {
        let (parity, data, spares, children) = shape;
        let config = DraidConfig::new(parity, data, spares, children).expect("a valid shape");
        let (tree, allocator) = allocator(&[(TopKind::Draid(config), children)], 4, leaf_mib << 20);
        // What is left of earlier files lies on some of the children more than on others.
        let half = tree.tops[0].asize / 2 / tree.tops[0].asize_for_psize(RECORD);
        let mut txg = Txg(5);
        for turn in 0..2 {
            let (dvas, [written, read]) = records(&tree, &allocator, half.min(2000), files, txg);
            for (what, flight, most) in [("written", written, 1.04), ("read", read, 1.09)] {
                let mean = flight.mean();
                let told = format!("draid {shape:?} of {leaf_mib} MiB, {files} files, turn {turn}, {what}");
                assert!(mean <= most, "{told}: the busiest child has {mean:.3} × its share");
            }
            dvas.iter().for_each(|dva| assert!(allocator.free(txg, dva)));
            for _ in 0..4 {
                allocator.take_deltas(txg);
                allocator.sync_done(txg);
                txg = txg.next();
            }
        }
    }
}

const RECORD: u64 = 1 << 20;

/// Allocates records of some files in turns: where they lie, what is written, and what is read of it: no parity.
fn records(tree: &VdevTree, allocator: &Allocator, count: u64, files: u64, txg: Txg) -> (Vec<Dva>, [Flight; 2]) {
    let TopKind::Draid(config) = tree.tops[0].kind else { panic!("a dRAID is looked at") };
    let mut flights = [0, 1].map(|_| Flight::new(config.children(), config.spares()));
    let mut dvas = Vec::new();
    for block in 0..count {
        let request = AllocRequest { psize: RECORD, copies: 1, txg, hint: block % files };
        let dva = allocator.alloc(&request).expect("room")[0];
        let plan = WritePlan::new(tree, &tree.tops[0], dva.offset, RECORD as usize, Txg::ZERO);
        let columns = plan.ios.iter().map(|io| ((io.leaf.0 as usize, io.length as u64), matches!(io.part, Part::Data(_))));
        let columns: Vec<_> = columns.collect();
        flights[0].begin(columns.iter().map(|(column, _)| *column).collect());
        flights[1].begin(columns.iter().filter(|(_, is_data)| *is_data).map(|(column, _)| *column).collect());
        dvas.push(dva);
    }
    (dvas, flights)
}

/// The last records, and how much of them each child has.
struct Flight {
    window: VecDeque<Vec<(usize, u64)>>,
    load: Vec<u64>,
    /// Children that have a part of every row.
    disks: usize,
    /// The busiest child's load by its share, over time.
    busiest: Vec<f64>,
}

impl Flight {
    const RECORDS: usize = 64;

    fn new(children: usize, spares: usize) -> Flight {
        Flight { window: VecDeque::new(), load: vec![0; children], disks: children - spares, busiest: Vec::new() }
    }
    fn begin(&mut self, columns: Vec<(usize, u64)>) {
        columns.iter().for_each(|(child, bytes)| self.load[*child] += bytes);
        self.window.push_back(columns);
        if self.window.len() > Self::RECORDS {
            self.window.pop_front().into_iter().flatten().for_each(|(child, bytes)| self.load[child] -= bytes);
            // What is in flight is done when the busiest child is. The children that are spares there have nothing to do.
            let share = self.load.iter().sum::<u64>() as f64 / self.disks as f64;
            self.busiest.push(*self.load.iter().max().expect("children") as f64 / share);
        }
    }
    fn mean(&self) -> f64 {
        self.busiest.iter().sum::<f64>() / self.busiest.len() as f64
    }
}

#[test]
fn copies_lie_apart() {
    let (_, allocator) = allocator(&[(TopKind::Leaf, 1), (TopKind::Leaf, 1), (TopKind::Leaf, 1)], 2, 1 << 30);
    for hint in 0..50 {
        let found = allocator.alloc(&AllocRequest { psize: 4096, copies: 3, txg: Txg(5), hint }).expect("space");
        let mut vdevs: Vec<u32> = found.iter().map(|dva| dva.vdev.0).collect();
        vdevs.sort_unstable();
        assert_eq!(vdevs, [0, 1, 2], "one lost device must not take two copies");
    }
    let (tree, allocator) = self::allocator(&[(TopKind::Leaf, 1)], 2, 1 << 30);
    let found = allocator.alloc(&AllocRequest { psize: 4096, copies: 3, txg: Txg(5), hint: 0 }).expect("space");
    let eighth = tree.tops[0].asize / 8 / (1 << tree.tops[0].ms_shift) * (1 << tree.tops[0].ms_shift) / 2;
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        assert!(found[a].offset.abs_diff(found[b].offset) >= eighth, "copies side by side share the fate of a scratch");
    }
}

#[test]
fn a_failed_write_returns_its_space_at_once_and_loads_are_checked() {
    let (tree, allocator) = allocator(&[(TopKind::Leaf, 1)], 1, 100 << 20);
    let before = allocator.class_space().allocated;
    let found = allocator.alloc(&AllocRequest { psize: 8192, copies: 1, txg: Txg(5), hint: 0 }).expect("space");
    allocator.unalloc(Txg(5), &found[0]);
    assert_eq!(allocator.class_space().allocated, before);
    assert!(allocator.take_deltas(Txg(5)).is_empty());
    let fresh = Allocator::new(&tree, 1);
    assert!(fresh.load(VdevId(0), 0, &[0..4096, 0..4096]).is_err(), "overlapping segments");
    assert!(fresh.load(VdevId(0), 0, std::slice::from_ref(&(0..1 << 40))).is_err(), "outside of the metaslab");
    assert!(fresh.load(VdevId(0), 1 << 30, &[]).is_err(), "no such metaslab");
    fresh.load(VdevId(0), 0, &[0..4096, 8192..12288]).expect("valid");
    assert_eq!(fresh.class_space().allocated, 8192);
    fresh.claim(Txg(5), &Dva { vdev: VdevId(0), offset: 4096, asize: 4096, gang: false }).expect("free");
    assert!(fresh.claim(Txg(5), &Dva { vdev: VdevId(0), offset: 8192, asize: 4096, gang: false }).is_err());
}

/// If this fails, an accelerator that answers late writes over somebody's block, or the space of what it was given up with is lost.
#[test]
fn nobody_gets_space_to_which_somebody_may_still_write() {
    let (_, allocator) = allocator(&[(TopKind::Leaf, 1)], 1, 100 << 20);
    let allocator = Arc::new(allocator);
    let (space, free_bytes) = (|| allocator.class_space().allocated, || allocator.free_bytes(VdevId(0), 0));
    let (allocated_before, free_before) = (space(), free_bytes());
    let found = allocator.alloc(&AllocRequest { psize: 8192, copies: 1, txg: Txg(5), hint: 0 }).expect("space")[0];
    let aside = allocator.unalloc_aside(Txg(5), &found);
    assert!(matches!(aside, Some(Aside::Lent(_))), "{aside:?}");
    assert_eq!(space(), allocated_before, "no block has it");
    assert!(allocator.take_deltas(Txg(5)).is_empty(), "it is free on disk");
    assert!(allocator.claim(Txg(5), &found).is_err(), "somebody may still write there");
    drop(aside);
    allocator.claim(Txg(5), &found).expect("it is free again");
    allocator.unalloc(Txg(5), &found);
    assert_eq!((space(), free_bytes()), (allocated_before, free_before));

    // What is on its way to the disk already is freed, and rests until nobody writes there.
    let found = allocator.alloc(&AllocRequest { psize: 8192, copies: 1, txg: Txg(5), hint: 0 }).expect("space")[0];
    assert!(!allocator.take_deltas(Txg(5)).is_empty());
    let aside = allocator.unalloc_aside(Txg(5), &found);
    assert!(matches!(aside, Some(Aside::Held(_))), "{aside:?}");
    for txg in 5..10 {
        allocator.take_deltas(Txg(txg));
        allocator.sync_done(Txg(txg));
    }
    assert!(allocator.claim(Txg(10), &found).is_err(), "somebody may still write there");
    drop(aside);
    allocator.claim(Txg(10), &found).expect("it is free again");
    let nowhere = Dva { vdev: VdevId(7), ..found };
    assert!(allocator.unalloc_aside(Txg(10), &nowhere).is_none());
}

/// If this fails, blocks are written over others where nobody knows what is free, or the pool stops for one broken space map.
#[test]
fn nothing_is_allocated_where_nobody_knows_what_is_free() {
    let (tree, _) = allocator(&[(TopKind::Leaf, 1)], 1, 100 << 20);
    let allocator = Allocator::new(&tree, 1);
    let (vdev, bad) = (VdevId(0), 1);
    let count = allocator.metaslab_count(vdev);
    (0..count).filter(|metaslab| *metaslab != bad).for_each(|metaslab| allocator.load(vdev, metaslab, &[]).expect("empty"));
    allocator.distrust(vdev, bad, "its map is lost".to_string()).expect("not loaded");
    assert!(allocator.load(vdev, bad, &[]).is_err() && allocator.distrust(vdev, 0, String::new()).is_err(), "what is known stays so");
    let (size, range) = (1 << tree.tops[0].ms_shift, tree.tops[0].metaslab_range(bad));
    let broken = allocator.broken();
    assert_eq!(broken.iter().map(ToString::to_string).collect::<Vec<_>>(), ["vdev 0, metaslab 1: its map is lost"]);
    assert!(allocator.is_unknown(vdev, bad) && !allocator.is_unknown(vdev, 0));
    assert_eq!((allocator.class_space().allocated, allocator.free_bytes(vdev, bad)), (size, 0), "all of it counts as taken");
    let mut block = 0;
    while let Ok(found) = allocator.alloc(&AllocRequest { psize: 128 << 10, copies: 1, txg: Txg(5), hint: block }) {
        assert!(!range.contains(&found[0].offset), "{:#x} is where nobody knows what is free", found[0].offset);
        block += 1;
    }
    assert!(block > 100, "the others go on");
    // What is freed there stays taken.
    assert!(allocator.free(Txg(5), &Dva { vdev, offset: range.start, asize: 4096, gang: false }));
    assert!(allocator.take_deltas(Txg(5)).iter().all(|delta| delta.metaslab != bad), "its map is left as it is");
    (5..9).map(Txg).for_each(|txg| allocator.sync_done(txg));
    assert_eq!(allocator.free_bytes(vdev, bad), 0);
    let (_hold, taken) = Arc::new(allocator).hold(vdev, bad);
    assert_eq!(taken, [range], "a rebuild copies all of it");
}

#[test]
fn a_large_request_fails_while_small_ones_still_fit() {
    let (_, allocator) = allocator(&[(TopKind::Leaf, 1)], 1, 64 << 20);
    let mut blocks = Vec::new();
    while let Ok(found) = allocator.alloc(&AllocRequest { psize: 128 << 10, copies: 1, txg: Txg(5), hint: 0 }) {
        blocks.push(found[0]);
    }
    allocator.take_deltas(Txg(5));
    allocator.sync_done(Txg(5));
    for pair in blocks.chunks(2) {
        assert!(allocator.free(Txg(6), &pair[0]));
    }
    for txg in [6, 7, 8].map(Txg) {
        allocator.take_deltas(txg);
        allocator.sync_done(txg);
    }
    assert!(allocator.alloc(&AllocRequest { psize: 1 << 20, copies: 1, txg: Txg(9), hint: 0 }).is_err());
    assert!(allocator.alloc(&AllocRequest { psize: 64 << 10, copies: 1, txg: Txg(9), hint: 0 }).is_ok(), "gang blocks depend on it");
}

/// If this fails, a rebuild or a trim writes over a file that was just written, or space never comes back after one.
#[test]
fn what_is_held_or_lent_is_handed_to_nobody() {
    let (tree, allocator) = allocator(&[(TopKind::Mirror, 2)], 2, 200 << 20);
    let allocator = Arc::new(allocator);
    let count = allocator.metaslab_count(VdevId(0));
    let (mut random, mut model, mut maps) = (Random(9), Model::default(), SpaceMaps::default());
    let (mut live, mut resting): (Vec<Dva>, Vec<Vec<Dva>>) = (Vec::new(), Vec::new());
    let mut holds: Vec<(metaslab::Hold, Vec<std::ops::Range<u64>>)> = Vec::new();
    let mut loans: Vec<metaslab::Loan> = Vec::new();
    let overlaps = |dva: &Dva, ranges: &[std::ops::Range<u64>]| {
        ranges.iter().any(|range| range.start < dva.offset + dva.asize && dva.offset < range.end)
    };
    for txg in (10..120).map(Txg) {
        let mut born = Vec::new();
        for _ in 0..60 {
            let psize = 4096 << random.below(7);
            let request = AllocRequest { psize, copies: 1, txg, hint: random.below(7) };
            let Ok([dva, ..]) = allocator.alloc(&request) else { continue };
            model.take(&dva);
            assert!(!holds.iter().any(|(_, allocated)| overlaps(&dva, allocated)), "{dva:?} is being rebuilt");
            assert!(!loans.iter().any(|loan| overlaps(&dva, loan.segments())), "{dva:?} is being trimmed");
            born.push(dva);
        }
        let before = live.clone();
        if random.below(3) == 0 {
            let metaslab = random.below(u64::from(count)) as u32;
            let (hold, allocated) = allocator.hold(VdevId(0), metaslab);
            let range = tree.tops[0].metaslab_range(metaslab);
            let total: u64 = allocated.iter().map(|segment| segment.end - segment.start).sum();
            let expected = before.iter().filter(|dva| range.contains(&dva.offset)).map(|dva| dva.asize).sum::<u64>();
            assert_eq!(total, expected, "all that is on disk, and nothing that is being written");
            holds.push((hold, allocated));
        }
        if random.below(3) == 0 {
            let metaslab = random.below(u64::from(count)) as u32;
            let range = tree.tops[0].metaslab_range(metaslab);
            let window = range.start + random.below(8) * (1 << 20)..range.end;
            let loan = allocator.lend(VdevId(0), metaslab, &window, None);
            for dva in live.iter().chain(&born).chain(resting.iter().flatten()) {
                assert!(!overlaps(dva, loan.segments()), "{dva:?} would be trimmed away");
            }
            loans.push(loan);
        }
        live.append(&mut born);
        let mut freed = Vec::new();
        for _ in 0..random.below(120).min(live.len() as u64) {
            let dva = live.swap_remove(random.below(live.len() as u64) as usize);
            assert!(allocator.free(txg, &dva) && !allocator.free(txg, &dva));
            freed.push(dva);
        }
        // The hold of this txg saw what was freed in it after that.
        maps.apply(&allocator, txg);
        allocator.sync_done(txg);
        resting.push(freed);
        if resting.len() > 2 {
            resting.remove(0).iter().for_each(|dva| model.give(dva));
        }
        holds.retain(|_| random.below(3) > 0);
        loans.retain(|_| random.below(3) > 0);
    }
    holds.clear();
    loans.clear();
    let last = Txg(120);
    live.iter().for_each(|dva| assert!(allocator.free(last, dva)));
    for txg in [last, last.next(), last.next().next()] {
        maps.apply(&allocator, txg);
        allocator.sync_done(txg);
    }
    assert_eq!((allocator.class_space().allocated, allocator.class_space().deferred), (0, 0));
    let whole: u64 = (0..count).map(|metaslab| allocator.free_bytes(VdevId(0), metaslab)).sum();
    assert_eq!(whole, allocator.class_space().capacity);
}
