//! Every failure set that the redundancy covers, on every shape: the block comes back and the repairs restore every column.
//! What the user loses when these fail: data that the pool still holds.
use abd::Abd;
use ondisk::Txg;
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::{LeafId, LeafState, ReadJob, ReadMode, ReadStep, TopKind, VdevTree, WriteOutcome, WritePlan};

type Media = BTreeMap<(LeafId, u64), Vec<u8>>;

fn pattern(length: usize) -> Abd {
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

fn write(tree: &VdevTree, offset: u64, data: &Abd) -> Media {
    let top = &tree.tops[0];
    let plan = WritePlan::new(tree, top, offset, data.len());
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
                        assert_eq!(bytes.len(), io.length);
                        Some(Abd::from_slice(bytes))
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

fn subsets(count: usize, most: usize) -> Vec<Vec<usize>> {
    (0u32..1 << count)
        .filter(|set| set.count_ones() as usize <= most)
        .map(|set| (0..count).filter(|bit| set >> bit & 1 == 1).collect())
        .collect()
}

fn shapes() -> Vec<(u8, usize)> {
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
    let plan = WritePlan::new(&tree, &tree.tops[0], 0, 8192);
    assert_eq!(plan.ios.len(), 3);
    assert_eq!(plan.assess(&[true, true, true]), WriteOutcome::Complete);
    assert_eq!(plan.assess(&[true, false, true]), WriteOutcome::Degraded(vec![plan.ios[1].leaf]));
    assert_eq!(plan.assess(&[true, false, false]), WriteOutcome::Lost);
    let tree = tree.with_leaf_state(LeafId(2), LeafState::Offline);
    let plan = WritePlan::new(&tree, &tree.tops[0], 0, 8192);
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
                let map = vdev::RaidzMap::new(top, offset, psize as usize);
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
