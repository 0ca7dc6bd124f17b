//! Every failure set that the redundancy covers, on every shape: the block comes back and the repairs restore every column.
//! What the user loses when these fail: data that the pool still holds.
use abd::Abd;
use ondisk::{Guid, Txg};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::{
    DraidConfig, DraidSpare, LeafId, LeafKind, LeafState, Node, NodeKind, ReadJob, ReadMode, ReadStep, TopKind, VdevTree, WriteOutcome,
    WritePlan,
};

pub(crate) type Media = BTreeMap<(LeafId, u64), Vec<u8>>;

pub(crate) fn pattern(length: usize) -> Abd {
    let mut state = 0x9E37_79B9_7F4A_7C15u64 ^ length as u64;
    let bytes: Vec<u8> = (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect();
    Abd::from_slice(&bytes)
}

pub(crate) fn write(tree: &VdevTree, offset: u64, data: &Abd) -> Media {
    let top = &tree.tops[0];
    let plan = WritePlan::new(tree, top, offset, data.len(), Txg::ZERO);
    let padded = Abd::gang(&[data.clone(), Abd::zeroed(plan.length - data.len())]);
    let parity = plan.parity(&padded);
    let mut media = Media::new();
    for io in &plan.ios {
        let payload = plan.payload(io, &padded, &parity);
        assert_eq!(payload.len(), io.length);
        assert!(media.insert((io.leaf, io.offset), payload.to_vec()).is_none(), "two parts of a block on one place");
    }
    media
}

/// Reads the block from `media`; `dead` leaves fail. Returns the data and applies the repairs to `media`.
fn read(tree: &Arc<VdevTree>, extent: (u64, usize), mode: ReadMode, media: &mut Media, dead: &[LeafId], want: &Abd) -> Option<Vec<LeafId>> {
    let (mut job, mut step) = ReadJob::start(tree, &tree.tops[0], extent, Txg(9), mode, &|_| 0);
    for _ in 0..100 {
        match step {
            ReadStep::Issue(ios) => {
                assert!(!ios.is_empty());
                let results = ios
                    .iter()
                    .map(|io| {
                        let bytes = media.get(&(io.leaf, io.offset)).filter(|_| !dead.contains(&io.leaf))?;
                        assert!(io.length <= bytes.len());
                        Some(Abd::from_slice(&bytes[..io.length]))
                    })
                    .collect();
                step = job.complete(results, &mut |block| block == want);
            }
            ReadStep::Done(outcome) => {
                assert_eq!(&outcome.data, want);
                for repair in &outcome.repairs {
                    media.insert((repair.leaf, repair.offset), repair.data.to_vec());
                }
                return Some(outcome.repairs.iter().filter(|repair| repair.corrupt).map(|repair| repair.leaf).collect());
            }
            ReadStep::Lost(_) => return None,
        }
    }
    panic!("the read never ended");
}

pub(crate) fn subsets(count: usize, most: usize) -> Vec<Vec<usize>> {
    (0u32..1 << count)
        .filter(|set| set.count_ones() as usize <= most)
        .map(|set| (0..count).filter(|bit| set >> bit & 1 == 1).collect())
        .collect()
}

pub(crate) fn shapes() -> Vec<(u8, usize)> {
    vec![(1, 2), (1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 6), (3, 4), (3, 5), (3, 7)]
}

#[test]
fn raidz_survives_every_set_of_missing_devices() {
    for (parity, columns) in shapes() {
        let tree = VdevTree::simple(&[(TopKind::Raidz(parity), columns)], 9, 1 << 30).unwrap();
        for sectors in 1..=2 * columns + 1 {
            for offset in [0, 512 * 7, (1 << 20) + 512 * 3] {
                let data = pattern(sectors * 512 - 100);
                let media = write(&tree, offset, &data);
                for missing in subsets(columns, usize::from(parity)) {
                    let mut degraded = tree.clone();
                    for &leaf in &missing {
                        degraded = degraded.with_leaf_state(LeafId(leaf as u32), LeafState::Missing);
                    }
                    let mut media = media.clone();
                    let found = read(&Arc::new(degraded), (offset, data.len()), ReadMode::Normal, &mut media, &[], &data);
                    assert_eq!(found, Some(vec![]), "raidz{parity} of {columns}, {sectors} sectors, without {missing:?}");
                }
            }
        }
    }
}

#[test]
fn raidz_finds_and_repairs_every_set_of_corrupt_columns() {
    for (parity, columns) in shapes() {
        let tree = Arc::new(VdevTree::simple(&[(TopKind::Raidz(parity), columns)], 9, 1 << 30).unwrap());
        for sectors in [1, 2, columns, 2 * columns + 1] {
            let data = pattern(sectors * 512);
            let clean = write(&tree, 4096, &data);
            let places: Vec<(LeafId, u64)> = clean.keys().copied().collect();
            for corrupt in subsets(places.len(), usize::from(parity)) {
                for mode in [ReadMode::Normal, ReadMode::Scrub] {
                    let mut media = clean.clone();
                    for &index in &corrupt {
                        media.get_mut(&places[index]).unwrap()[0] ^= 0x55;
                    }
                    let found = read(&tree, (4096, data.len()), mode, &mut media, &[], &data).expect("readable");
                    if mode == ReadMode::Scrub {
                        assert_eq!(found.len(), corrupt.len(), "raidz{parity} of {columns}, {sectors} sectors, {corrupt:?}");
                        assert_eq!(media, clean, "repairs restore every column");
                    }
                }
            }
        }
    }
}

#[test]
fn raidz_reports_loss_beyond_its_parity_and_recovers_from_failing_reads() {
    let tree = Arc::new(VdevTree::simple(&[(TopKind::Raidz(2), 6)], 12, 1 << 30).unwrap());
    let data = pattern(128 << 10);
    let clean = write(&tree, 0, &data);
    for dead in subsets(6, 3) {
        let dead: Vec<LeafId> = dead.into_iter().map(|leaf| LeafId(leaf as u32)).collect();
        let found = read(&tree, (0, data.len()), ReadMode::Scrub, &mut clean.clone(), &dead, &data);
        assert_eq!(found.is_some(), dead.len() <= 2, "{dead:?}");
    }
    // One device fails and another one lies: still within two parities.
    for (dead, liar) in (0..6).flat_map(|dead| (0..6).filter(move |&liar| liar != dead).map(move |liar| (dead, liar))) {
        let mut media = clean.clone();
        for ((leaf, _), bytes) in &mut media {
            if leaf.0 == liar {
                bytes[17] ^= 1;
            }
        }
        assert!(read(&tree, (0, data.len()), ReadMode::Normal, &mut media, &[LeafId(dead)], &data).is_some(), "{dead} {liar}");
    }
}

#[test]
fn mirrors_fall_back_and_scrub_checks_every_copy() {
    let tree = VdevTree::simple(&[(TopKind::Mirror, 3)], 9, 1 << 30).unwrap();
    let data = pattern(5000);
    let clean = write(&tree, 0, &data);
    assert_eq!(clean.len(), 3);
    for dead in subsets(3, 3) {
        for corrupt in subsets(3, 3) {
            let mut media = clean.clone();
            for ((leaf, _), bytes) in &mut media {
                if corrupt.contains(&(leaf.0 as usize)) {
                    bytes[1] ^= 1;
                }
            }
            let dead_ids: Vec<LeafId> = dead.iter().map(|&leaf| LeafId(leaf as u32)).collect();
            let good = (0..3).any(|leaf| !dead.contains(&leaf) && !corrupt.contains(&leaf));
            let found = read(&Arc::new(tree.clone()), (0, data.len()), ReadMode::Scrub, &mut media, &dead_ids, &data);
            assert_eq!(found.is_some(), good);
            if good {
                assert_eq!(media, clean);
            }
            let found = read(&Arc::new(tree.clone()), (0, data.len()), ReadMode::Normal, &mut clean.clone(), &dead_ids, &data);
            assert_eq!(found.is_some(), dead.len() < 3);
        }
    }
}

#[test]
fn stale_leaves_are_read_only_when_nothing_else_is_left() {
    let mut tree = VdevTree::simple(&[(TopKind::Mirror, 2)], 9, 1 << 30).unwrap();
    tree.leaves[0].missing_txgs = vec![(Txg(5), Txg(20))];
    let (_, step) = ReadJob::start(&Arc::new(tree.clone()), &tree.tops[0], (0, 512), Txg(9), ReadMode::Normal, &|_| 0);
    let ReadStep::Issue(ios) = step else { panic!("nothing to read") };
    assert_eq!(ios[0].leaf, LeafId(1), "leaf 0 lacks txg 9");
    let (_, step) = ReadJob::start(&Arc::new(tree.clone()), &tree.tops[0], (0, 512), Txg(4), ReadMode::Normal, &|leaf| u64::from(leaf.0));
    let ReadStep::Issue(ios) = step else { panic!("nothing to read") };
    assert_eq!(ios[0].leaf, LeafId(0), "the less loaded leaf comes first");
}

#[test]
fn degraded_writes_name_the_leaves_that_lack_the_block() {
    let tree = VdevTree::simple(&[(TopKind::Raidz(1), 3)], 12, 1 << 30).unwrap();
    let plan = WritePlan::new(&tree, &tree.tops[0], 0, 8192, Txg::ZERO);
    assert_eq!(plan.ios.len(), 3);
    assert_eq!(plan.assess(&[true, true, true]), WriteOutcome::Complete);
    assert_eq!(plan.assess(&[true, false, true]), WriteOutcome::Degraded(vec![plan.ios[1].leaf]));
    assert_eq!(plan.assess(&[true, false, false]), WriteOutcome::Lost);
    let tree = tree.with_leaf_state(LeafId(2), LeafState::Offline);
    let plan = WritePlan::new(&tree, &tree.tops[0], 0, 8192, Txg::ZERO);
    assert_eq!(plan.assess(&[true, true]), WriteOutcome::Degraded(vec![LeafId(2)]));
    assert_eq!(plan.assess(&[true, false]), WriteOutcome::Lost);
}

#[test]
fn blocks_stay_within_their_allocation() {
    for (parity, columns) in shapes() {
        for ashift in [9, 12] {
            let tree = VdevTree::simple(&[(TopKind::Raidz(parity), columns)], ashift, 1 << 30).unwrap();
            let top = &tree.tops[0];
            let mut offset = 0;
            let mut taken = std::collections::BTreeSet::new();
            for sectors in 1..60u64 {
                let psize = sectors << ashift;
                let map = vdev::RaidzMap::new(top, offset, psize as usize, Txg::ZERO);
                assert_eq!(map.asize, top.asize_for_psize(psize));
                for column in &map.columns {
                    for sector in 0..column.length as u64 >> ashift {
                        let place = (column.slot, (column.offset >> ashift) + sector);
                        assert!(taken.insert(place), "raidz{parity} of {columns}: two blocks on {place:?}");
                    }
                }
                offset += map.asize;
            }
        }
    }
    let tree = VdevTree::simple(&[(TopKind::Raidz(1), 3)], 12, 1 << 30).unwrap();
    assert_eq!(tree.tops[0].asize_for_psize(4096), 8192);
    assert_eq!(tree.tops[0].asize_for_psize(8192), 16384);
    assert_eq!(tree.tops[0].asize_for_psize(128 << 10), 196_608);
}

/// (parity, data, spares, children)
pub(crate) fn draids() -> Vec<(usize, usize, usize, usize)> {
    vec![(1, 1, 0, 2), (1, 3, 1, 6), (2, 3, 0, 7), (2, 4, 2, 9), (3, 2, 1, 6)]
}

pub(crate) fn draid(shape: (usize, usize, usize, usize)) -> (VdevTree, u64) {
    let config = DraidConfig::new(shape.0, shape.1, shape.2, shape.3).unwrap();
    let tree = VdevTree::simple(&[(TopKind::Draid(config), shape.3)], 9, 1 << 30).unwrap();
    (tree, (config.width() as u64) << 24)
}

/// Blocks of one stripe and of several, in the middle of a group and over the end of one.
pub(crate) fn draid_blocks((_, data, _, _): (usize, usize, usize, usize), group: u64, asize: u64) -> Vec<(u64, Abd)> {
    let mut blocks = Vec::new();
    for sectors in [1, 2, data, data + 1, 3 * data - 1] {
        for offset in [0, 5 * group, group - asize, 4 * group - asize] {
            blocks.push((offset, pattern(sectors * 512 - 100)));
        }
    }
    blocks
}

/// A dRAID vdev must give its data back without any `parity` of its children, also where a block lies in two groups.
#[test]
fn draid_survives_every_set_of_missing_devices() {
    for shape in draids() {
        let (tree, group) = draid(shape);
        for (offset, data) in draid_blocks(shape, group, tree.tops[0].asize_for_psize(1)) {
            let media = write(&tree, offset, &data);
            let parts: usize = media.values().map(Vec::len).sum();
            assert_eq!(parts as u64, tree.tops[0].asize_for_psize(data.len() as u64), "every sector of the stripes is written");
            for missing in subsets(shape.3, shape.0) {
                let mut degraded = tree.clone();
                for &leaf in &missing {
                    degraded = degraded.with_leaf_state(LeafId(leaf as u32), LeafState::Missing);
                }
                let degraded = Arc::new(degraded);
                for mode in [ReadMode::Normal, ReadMode::Scrub] {
                    let found = read(&degraded, (offset, data.len()), mode, &mut media.clone(), &[], &data);
                    assert_eq!(found, Some(vec![]), "{shape:?} at {offset}, {} bytes, without {missing:?}", data.len());
                }
                let written = write(&degraded, offset, &data);
                assert!(written.iter().all(|(place, bytes)| media[place] == *bytes));
            }
        }
    }
}

/// Silent damage of up to `parity` children, in data, parity or the zeros between, is found and undone.
#[test]
fn draid_finds_and_repairs_every_set_of_corrupt_children() {
    for shape in draids() {
        let (tree, group) = draid(shape);
        let tree = Arc::new(tree);
        for (offset, data) in draid_blocks(shape, group, tree.tops[0].asize_for_psize(1)) {
            let data = pattern(data.len().next_multiple_of(512));
            let clean = write(&tree, offset, &data);
            for corrupt in subsets(shape.3, shape.0) {
                for last in [false, true] {
                    let mut media = clean.clone();
                    let mut damaged = 0;
                    for ((leaf, _), bytes) in media.iter_mut().filter(|((leaf, _), _)| corrupt.contains(&(leaf.0 as usize))) {
                        let at = if last { bytes.len() - 1 } else { 0 };
                        bytes[at] ^= 0x55 + leaf.0 as u8;
                        damaged += 1;
                    }
                    let mut scrubbed = media.clone();
                    let found = read(&tree, (offset, data.len()), ReadMode::Scrub, &mut scrubbed, &[], &data).expect("readable");
                    assert_eq!(found.len(), damaged, "{shape:?} at {offset}, {} bytes, {corrupt:?}", data.len());
                    assert!(scrubbed == clean, "repairs restore every column");
                    assert!(read(&tree, (offset, data.len()), ReadMode::Normal, &mut media, &[], &data).is_some());
                }
            }
        }
    }
}

/// What failing reads cost is written back whole, zeros included; one child too many is a loss.
#[test]
fn draid_reports_loss_beyond_its_parity() {
    for shape in draids() {
        let (tree, group) = draid(shape);
        let tree = Arc::new(tree);
        for (offset, data) in draid_blocks(shape, group, tree.tops[0].asize_for_psize(1)) {
            let clean = write(&tree, offset, &data);
            for dead in subsets(shape.3, shape.0) {
                let dead: Vec<LeafId> = dead.into_iter().map(|leaf| LeafId(leaf as u32)).collect();
                let mut media = clean.clone();
                assert!(read(&tree, (offset, data.len()), ReadMode::Normal, &mut media, &dead, &data).is_some());
                assert_eq!(media, clean);
            }
            let all: Vec<LeafId> = (0..shape.3 as u32).map(LeafId).collect();
            assert!(read(&tree, (offset, data.len()), ReadMode::Scrub, &mut clean.clone(), &all, &data).is_none());
        }
    }
}

/// The tree of `shape` in which distributed spare 0 stands in for child 1.
fn with_spare(shape: (usize, usize, usize, usize)) -> VdevTree {
    let mut tree = draid(shape).0;
    let spare = LeafId(tree.leaves.len() as u32);
    let top = tree.tops[0].guid;
    tree.leaves.push(vdev::Leaf { kind: LeafKind::DraidSpare, draid_spare: Some(DraidSpare { top, id: 0 }), ..vdev::Leaf::default() });
    let node = tree.tops[0].node.as_mut().unwrap();
    let old = node.children[1].clone();
    let leaf = Node { kind: NodeKind::Leaf(spare), id: 1, guid: ondisk::Guid(99), create_txg: Txg(4), children: vec![] };
    node.children[1] = Node { kind: NodeKind::Spare, children: vec![old, leaf], ..node.children[1].clone() };
    VdevTree::assemble(tree.guid, tree.tops, tree.leaves).unwrap()
}

/// While a distributed spare stands in for a child, blocks have full redundancy without that child.
#[test]
fn a_distributed_spare_holds_what_the_child_it_stands_for_held() {
    let shape = (2, 4, 2, 9);
    let group = draid(shape).1;
    let tree = with_spare(shape).with_leaf_state(LeafId(1), LeafState::Offline);
    for (offset, data) in draid_blocks(shape, group, tree.tops[0].asize_for_psize(1)) {
        let media = write(&tree, offset, &data);
        assert!(media.keys().all(|(leaf, _)| leaf.0 != 1 && leaf.0 < 9), "neither the lost child nor a leaf without a device");
        for missing in subsets(9, 2).into_iter().filter(|missing| !missing.contains(&1)) {
            let mut degraded = tree.clone();
            for &leaf in &missing {
                degraded = degraded.with_leaf_state(LeafId(leaf as u32), LeafState::Missing);
            }
            let found = read(&Arc::new(degraded), (offset, data.len()), ReadMode::Normal, &mut media.clone(), &[], &data);
            assert_eq!(found, Some(vec![]), "at {offset}, {} bytes, without {missing:?}", data.len());
        }
    }
}

/// Before the dirty time logs are read nobody knows which holder of a column lacks a block. If this fails, a pool is not imported
/// whose spare alone has what the child it stands for missed, and another child missed too.
#[test]
fn what_only_one_holder_of_a_column_has_is_found_without_its_log() {
    for shape in [(1, 2, 1, 4), (2, 4, 2, 9)] {
        let (group, tree) = (draid(shape).1, Arc::new(with_spare(shape)));
        for (offset, data) in draid_blocks(shape, group, tree.tops[0].asize_for_psize(1)) {
            let clean = write(&tree, offset, &data);
            // Where a block has two rows, the spare's places of one row are columns of the other one.
            let most = if tree.tops[0].is_one_row(offset, data.len() as u64, Txg::ZERO) { shape.0 } else { shape.0 - 1 };
            for wrong in subsets(shape.3, most).into_iter().filter(|wrong| !wrong.contains(&1)) {
                let mut media = clean.clone();
                for ((leaf, _), bytes) in media.iter_mut().filter(|((leaf, _), _)| leaf.0 == 1 || wrong.contains(&(leaf.0 as usize))) {
                    bytes.fill(0xE0 + leaf.0 as u8);
                }
                let what = format!("{shape:?} at {offset}, {} bytes, {wrong:?}", data.len());
                for mode in [ReadMode::Normal, ReadMode::Scrub] {
                    let mut media = media.clone();
                    let found = read(&tree, (offset, data.len()), mode, &mut media, &[], &data);
                    assert!(found.is_some(), "{what}: the other holder has the column");
                    let healed = |((leaf, place), bytes): (&(LeafId, u64), &Vec<u8>)| leaf.0 != 1 || clean[&(*leaf, *place)] == *bytes;
                    assert!(mode == ReadMode::Normal || media.iter().all(healed), "{what}: what is wrong is written again");
                }
            }
        }
    }
}

/// A label may say that a spare stands in for the very child that it lies on: reads must end all the same.
#[test]
fn a_spare_that_stands_for_itself_holds_nothing() {
    let shape = (1, 3, 2, 6);
    let mut tree = draid(shape).0;
    let top = tree.tops[0].guid;
    for (index, leaf) in tree.leaves.iter_mut().enumerate() {
        (leaf.kind, leaf.draid_spare) = (LeafKind::DraidSpare, Some(DraidSpare { top, id: index as u64 % 3 }));
    }
    let plan = WritePlan::new(&tree, &tree.tops[0], 0, 8192, Txg::ZERO);
    assert_eq!(plan.ios, vec![]);
    assert_eq!(plan.assess(&[]), WriteOutcome::Lost);
    let (_, step) = ReadJob::start(&Arc::new(tree.clone()), &tree.tops[0], (0, 8192), Txg(9), ReadMode::Normal, &|_| 0);
    assert!(matches!(step, ReadStep::Lost(_)));
}

/// A leaf below a `replacing` node of each shape, next to the one that it replaces.
pub(crate) fn replacing(kind: TopKind, count: usize, replaced: usize) -> VdevTree {
    let tree = VdevTree::simple(&[(kind, count + 1)], 9, 1 << 30).unwrap();
    let (mut tops, leaves) = (tree.tops.clone(), tree.leaves.clone());
    let node = tops[0].node.as_mut().unwrap();
    let new = node.children.pop().unwrap();
    let old = node.children[replaced].clone();
    let pair = vec![Node { id: 0, ..old.clone() }, Node { id: 1, ..new }];
    node.children[replaced] = Node { kind: NodeKind::Replacing, id: old.id, guid: Guid(77), create_txg: Txg(4), children: pair };
    VdevTree::assemble(tree.guid, tops, leaves).unwrap()
}

/// If this fails, a resilver ends and the device still lacks blocks: with the next failure they are gone.
#[test]
fn a_resilver_brings_every_lacking_leaf_what_it_lacks_and_needs_nothing_from_it() {
    let shapes = [(TopKind::Mirror, 2), (TopKind::Mirror, 3), (TopKind::Raidz(1), 3), (TopKind::Raidz(2), 5), (TopKind::Raidz(3), 7)];
    for (kind, count) in shapes {
        let parity = if let TopKind::Raidz(parity) = kind { usize::from(parity) } else { count - 1 };
        let plain = VdevTree::simple(&[(kind, count)], 9, 1 << 30).unwrap();
        let trees = (0..count)
            .map(|replaced| (replacing(kind, count, replaced), count, vec![count]))
            .chain(subsets(count, parity).into_iter().map(|stale| (plain.clone(), count, stale)));
        for (mut tree, count, stale) in trees {
            for sectors in [1, 2, count, 2 * count + 1] {
                let data = pattern(sectors * 512 - 100);
                let clean = write(&tree, 4096, &data);
                for &leaf in &stale {
                    tree.leaves[leaf].missing_txgs = vec![(Txg(9), Txg(9))];
                }
                // What a lacking leaf holds is garbage that must not be needed, and is not to be read.
                let mut media = clean.clone();
                for ((leaf, _), bytes) in &mut media {
                    if stale.contains(&(leaf.0 as usize)) {
                        bytes.fill(0xEE);
                    }
                }
                let dead: Vec<LeafId> = stale.iter().map(|&leaf| LeafId(leaf as u32)).collect();
                let view = Arc::new(tree.clone());
                let found = read(&view, (4096, data.len()), ReadMode::Resilver, &mut media, &dead, &data);
                assert_eq!(found, Some(vec![]), "{kind:?} of {count}, {sectors} sectors, stale {stale:?}");
                assert_eq!(media, clean, "{kind:?} of {count}, {sectors} sectors, stale {stale:?}");
            }
        }
    }
}

/// A device fails while a spare stands in for what is to take its place, and some of them do not answer. If this fails, the resilver ends in the
/// belief that those have what was never written to them: with the next failure it is gone.
#[test]
fn who_was_asked_in_vain_gets_the_block_too() {
    let (count, replaced) = (5, 1);
    let mut tree = replacing(TopKind::Raidz(2), count, replaced);
    let (mut tops, mut leaves) = (tree.tops.clone(), tree.leaves.clone());
    leaves.push(vdev::Leaf { guid: Guid(99), ..leaves[count].clone() });
    let spare = Node { kind: NodeKind::Leaf(LeafId(count as u32 + 1)), id: 1, guid: Guid(99), create_txg: Txg(4), children: vec![] };
    let pair = &mut tops[0].node.as_mut().unwrap().children[replaced].children;
    let new = Node { id: 0, ..pair[1].clone() };
    pair[1] = Node { kind: NodeKind::Spare, guid: Guid(98), children: vec![new, spare], ..pair[1].clone() };
    tree = VdevTree::assemble(tree.guid, tops, leaves).unwrap();
    let holders = [replaced, count, count + 1];
    for sectors in [1, 2, count, 2 * count + 1] {
        let data = pattern(sectors * 512 - 100);
        let clean = write(&tree, 4096, &data);
        for (stale, dead) in subsets(3, 3).into_iter().flat_map(|stale| subsets(3, 3).into_iter().map(move |dead| (stale.clone(), dead))) {
            let of = |set: &[usize]| set.iter().map(|&index| LeafId(holders[index] as u32)).collect::<Vec<_>>();
            let (stale, dead) = (of(&stale), of(&dead));
            let mut view = tree.clone();
            stale.iter().for_each(|leaf| view.leaves[leaf.0 as usize].missing_txgs = vec![(Txg(9), Txg(9))]);
            let view = Arc::new(view);
            for (mode, other) in [(ReadMode::Resilver, None), (ReadMode::Scrub, None), (ReadMode::Resilver, Some(LeafId(3)))] {
                let mut media = clean.clone();
                media.iter_mut().filter(|((leaf, _), _)| stale.contains(leaf)).for_each(|(_, bytes)| bytes.fill(0xEE));
                let found = read(&view, (4096, data.len()), mode, &mut media, &[&dead[..], other.as_slice()].concat(), &data);
                assert_eq!(found, Some(vec![]), "{sectors} sectors, stale {stale:?}, dead {dead:?}, {mode:?}");
                assert_eq!(media, clean, "{sectors} sectors, stale {stale:?}, dead {dead:?}, {mode:?}");
            }
        }
    }
}

/// A rebuild looks at no checksum, and copies to a spare what is wrong on the device. If this fails, the scrub after it says that all is well, and the
/// block is gone when the device leaves and the next one fails.
#[test]
fn a_scrub_looks_at_every_leaf_that_should_have_a_column() {
    let trees = [(1, 2, 1, 4), (2, 4, 2, 9)].map(with_spare).into_iter();
    let replaced = [(TopKind::Raidz(1), 3, 1), (TopKind::Raidz(2), 5, 0)].map(|(kind, count, at)| replacing(kind, count, at));
    for tree in trees.chain(replaced).map(Arc::new) {
        for sectors in [1, 3, 8, 19] {
            let data = pattern(sectors * 512 - 100);
            let clean = write(&tree, 0, &data);
            for place in clean.keys() {
                let what = format!("{:?}, {sectors} sectors, {place:?}", tree.tops[0].kind);
                let mut media = clean.clone();
                media.get_mut(place).unwrap().iter_mut().for_each(|byte| *byte ^= 0x55);
                let found = read(&tree, (0, data.len()), ReadMode::Scrub, &mut media, &[], &data).expect("readable");
                assert_eq!((found, &media), (vec![place.0], &clean), "{what}");
                // The same wrong bytes in the place of the device and its spare.
                let same: Vec<_> = clean.keys().filter(|other| clean[*other] == clean[place]).copied().collect();
                if same.len() == 2 {
                    let mut media = clean.clone();
                    same.iter().for_each(|other| media.get_mut(other).unwrap()[0] ^= 0x55);
                    let found = read(&tree, (0, data.len()), ReadMode::Scrub, &mut media, &[], &data).expect("readable");
                    assert_eq!((found.len(), &media), (2, &clean), "{what}, twice");
                }
            }
        }
    }
}

/// An accelerator computes what a dead device had. If this fails, a scrub is content with that, and does not see what is wrong on a spare.
#[test]
fn a_scrub_looks_at_spares_also_where_somebody_else_computes() {
    let (shape, length) = ((2, 4, 2, 9), 4 * 512);
    let (group, tree, data) = (draid(shape).1, Arc::new(with_spare(shape)), pattern(length));
    let twins = |media: &Media| -> Vec<(LeafId, u64)> {
        let has_twin = |place: &&(LeafId, u64)| media.iter().any(|(other, bytes)| other != *place && *bytes == media[*place]);
        media.keys().filter(has_twin).copied().collect()
    };
    let mut blocks = (0..9).map(|number| (number * group, write(&tree, number * group, &data)));
    let (offset, clean) = blocks.find(|(_, media)| twins(media).len() == 2).expect("a column on a device and on its spare");
    let (extent, plan) = ((offset, length), WritePlan::new(&tree, &tree.tops[0], offset, length, Txg::ZERO));
    let leaves: Vec<LeafId> = clean.keys().map(|(leaf, _)| *leaf).collect();
    let cases = twins(&clean).into_iter().flat_map(|place| leaves.iter().map(move |dead| (place, *dead)));
    for (place, dead) in cases.filter(|(place, dead)| place.0 != *dead) {
        let mut media = clean.clone();
        media.get_mut(&place).unwrap()[0] ^= 0x55;
        let (mut job, mut step) = ReadJob::start(&tree, &tree.tops[0], extent, Txg(9), ReadMode::Scrub, &|_| 0);
        let mut verify = |block: &Abd| *block == data;
        while let ReadStep::Issue(ios) = step {
            let read = |io: &vdev::LeafIo| Some(Abd::from_slice(&media[&(io.leaf, io.offset)])).filter(|_| io.leaf != dead);
            step = match job.to_compute(ios.iter().map(read).collect()) {
                Err(results) => job.complete(results, &mut verify),
                Ok(rows) => {
                    let computed = |row: &vdev::LostRow| {
                        let mut at = 0;
                        let column = |length: &usize| {
                            at += length;
                            data.slice(at - length..at)
                        };
                        let (columns, parity) = (row.lengths.iter().map(column).collect(), plan.parity(&data));
                        let parity = row.wanted_parity.iter().map(|&number| (number, parity[number].clone())).collect();
                        vdev::ComputedRow { row: row.row, data: columns, parity }
                    };
                    job.go_on(rows.iter().map(computed).collect(), &mut verify)
                }
            };
        }
        let ReadStep::Done(outcome) = step else { panic!("{place:?} wrong, {dead:?} dead: {step:?}") };
        let found: Vec<_> = outcome.repairs.iter().filter(|repair| repair.corrupt).map(|repair| repair.leaf).collect();
        assert_eq!(found, vec![place.0], "{place:?} wrong, {dead:?} dead");
    }
}

/// If this fails, a scrub clears the log of a device that it never wrote to.
#[test]
fn a_scrub_too_brings_a_replacement_what_it_lacks() {
    for (kind, count) in [(TopKind::Raidz(1), 3), (TopKind::Mirror, 2)] {
        let mut tree = replacing(kind, count, 1);
        let data = pattern(4000);
        let clean = write(&tree, 0, &data);
        tree.leaves[count].missing_txgs = vec![(Txg(1), Txg(20))];
        let mut media = clean.clone();
        media.iter_mut().filter(|((leaf, _), _)| leaf.0 as usize == count).for_each(|(_, bytes)| bytes.fill(0xEE));
        assert!(read(&Arc::new(tree), (0, data.len()), ReadMode::Scrub, &mut media, &[], &data).is_some());
        assert_eq!(media, clean, "{kind:?}");
    }
}

/// A metaslab that begins within a stripe hands out addresses that OpenZFS refuses to read.
#[test]
fn metaslabs_of_draid_hold_whole_stripes() {
    for shape in draids() {
        let (tree, _) = draid(shape);
        let top = &tree.tops[0];
        let stripe = ((shape.0 + shape.1) as u64) << top.ashift;
        for index in 0..top.metaslab_count() as u32 {
            let range = top.metaslab_range(index);
            let part = u64::from(index) << top.ms_shift..u64::from(index + 1) << top.ms_shift;
            assert!(range.start.is_multiple_of(stripe) && range.end.is_multiple_of(stripe));
            assert!(range.start >= part.start && range.end <= part.end);
            assert!(range.start - part.start < stripe && part.end - range.end < stripe);
            assert!(top.accepts(range.start, 512, Txg::ZERO) && !top.accepts(range.start + 512, 512, Txg::ZERO));
        }
        assert_eq!(tree.alloc_units(), ((shape.1 as u64) << 9, (shape.1 as u64) << 9));
    }
}
