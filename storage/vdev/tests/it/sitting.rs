//! Leaves that sit out: which are read, in every set of those and of others that fail. What users lose when these fail: blocks that the pool has, or the
//! pace of all devices to the slowest one.
use crate::failures::{Media, draid, draid_blocks, draids, pattern, replacing, shapes, subsets, write};
use abd::Abd;
use ondisk::Txg;
use std::collections::BTreeSet;
use std::sync::Arc;
use vdev::{LeafId, LeafState, ReadJob, ReadMode, ReadStep, SITS_OUT, TopKind, VdevTree};

fn ids(leaves: &[usize]) -> Vec<LeafId> {
    leaves.iter().map(|leaf| LeafId(*leaf as u32)).collect()
}

/// Reads the block while `sitting` leaves sit out and reads of `dead` ones fail; gives the leaves that were read, and None when it is lost.
fn read(tree: &Arc<VdevTree>, (offset, want): (u64, &Abd), media: &Media, [sitting, dead]: [&[LeafId]; 2]) -> Option<BTreeSet<LeafId>> {
    let load = |leaf: LeafId| if sitting.contains(&leaf) { SITS_OUT } else { 0 };
    let (mut job, mut step) = ReadJob::start(tree, &tree.tops[0], (offset, want.len()), Txg(9), ReadMode::Normal, &load);
    let mut asked = BTreeSet::new();
    for _ in 0..100 {
        match step {
            ReadStep::Issue(ios) => {
                assert!(!ios.is_empty());
                asked.extend(ios.iter().map(|io| io.leaf));
                let bytes = |io: &vdev::LeafIo| media.get(&(io.leaf, io.offset)).filter(|_| !dead.contains(&io.leaf));
                let results = ios.iter().map(|io| bytes(io).map(|bytes| Abd::from_slice(&bytes[..io.length]))).collect();
                step = job.complete(results, &mut |block| block == want);
            }
            ReadStep::Done(outcome) => {
                assert_eq!(&outcome.data, want);
                for repair in &outcome.repairs {
                    assert!(dead.contains(&repair.leaf), "what sits out is right, and not written anew");
                }
                return Some(asked);
            }
            ReadStep::Lost(_) => return None,
        }
    }
    panic!("the read never ended");
}

/// If this fails, a slow device of a RAID-Z is waited for although it sits out; or a block is lost because one does.
#[test]
fn what_sits_out_is_read_only_where_parity_does_not_do() {
    for (parity, columns) in shapes() {
        let tree = Arc::new(VdevTree::simple(&[(TopKind::Raidz(parity), columns)], 9, 1 << 30).unwrap());
        let parity = usize::from(parity);
        for sectors in [1, columns - parity, 2 * columns + 1] {
            let data = pattern(sectors * 512 - 100);
            let media = write(&tree, 4096, &data);
            for sitting in subsets(columns, parity) {
                for dead in subsets(columns, parity) {
                    let what = format!("raidz{parity} of {columns}, {sectors} sectors, {sitting:?} sit out, {dead:?} fail");
                    let asked = read(&tree, (4096, &data), &media, [&ids(&sitting), &ids(&dead)]).expect(&what);
                    let out: BTreeSet<&usize> = sitting.iter().chain(&dead).collect();
                    let is_spared = sitting.iter().all(|leaf| !asked.contains(&LeafId(*leaf as u32)));
                    assert!(is_spared || out.len() > parity, "{what}: {asked:?}");
                }
            }
        }
    }
}

/// If this fails, the same of dRAID, where a block has two rows and the columns move from row to row.
#[test]
fn what_sits_out_of_a_draid_is_read_only_where_parity_does_not_do() {
    for shape in draids() {
        let (tree, group) = draid(shape);
        let tree = Arc::new(tree);
        for (offset, data) in draid_blocks(shape, group, tree.tops[0].asize_for_psize(1)) {
            let media = write(&tree, offset, &data);
            for sitting in subsets(shape.3, shape.0).into_iter().filter(|set| set.len() == shape.0) {
                let asked = read(&tree, (offset, &data), &media, [&ids(&sitting), &[]]).expect("readable");
                assert!(sitting.iter().all(|leaf| !asked.contains(&LeafId(*leaf as u32))), "{shape:?}: {sitting:?} of {asked:?}");
                let dead = [LeafId(0)];
                assert!(read(&tree, (offset, &data), &media, [&ids(&sitting), &dead]).is_some(), "{shape:?}: {sitting:?}");
            }
        }
    }
}

/// If this fails, wrong bytes of one device are not put right while another one sits out, whose bytes would do it.
#[test]
fn what_sits_out_helps_to_find_wrong_bytes() {
    let tree = Arc::new(VdevTree::simple(&[(TopKind::Raidz(2), 6)], 9, 1 << 30).unwrap());
    let data = pattern(128 << 10);
    let clean = write(&tree, 0, &data);
    for (sitting, liar) in (0..6).flat_map(|sitting| (0..6).map(move |liar| (sitting, liar))).filter(|(sitting, liar)| sitting != liar) {
        let mut media = clean.clone();
        media.iter_mut().filter(|((leaf, _), _)| leaf.0 == liar).for_each(|(_, bytes)| bytes[17] ^= 1);
        let load = |leaf: LeafId| if leaf.0 == sitting { SITS_OUT } else { 0 };
        let (mut job, mut step) = ReadJob::start(&tree, &tree.tops[0], (0, data.len()), Txg(9), ReadMode::Normal, &load);
        while let ReadStep::Issue(ios) = &step {
            let results = ios.iter().map(|io| Some(Abd::from_slice(&media[&(io.leaf, io.offset)][..io.length]))).collect();
            step = job.complete(results, &mut |block| *block == data);
        }
        let ReadStep::Done(outcome) = step else { panic!("lost: {sitting} sits out, {liar} lies") };
        assert_eq!(outcome.data, data);
        assert!(outcome.repairs.iter().all(|repair| repair.leaf.0 == liar), "{sitting} {liar}");
    }
}

/// If this fails, every other read of a mirror waits for its slow device.
#[test]
fn what_sits_out_of_a_mirror_is_read_last() {
    let tree = Arc::new(VdevTree::simple(&[(TopKind::Mirror, 3)], 9, 1 << 30).unwrap());
    for megabytes in 0..8u64 {
        let (offset, data) = (megabytes << 20, pattern(5000));
        let media = write(&tree, offset, &data);
        for sitting in subsets(3, 2) {
            for dead in subsets(3, 2) {
                let asked = read(&tree, (offset, &data), &media, [&ids(&sitting), &ids(&dead)]).expect("a copy is left");
                let others_do = (0..3).any(|leaf| !sitting.contains(&leaf) && !dead.contains(&leaf));
                let is_spared = sitting.iter().all(|leaf| !asked.contains(&LeafId(*leaf as u32)));
                assert_eq!(is_spared, others_do || sitting.is_empty(), "{sitting:?} sit out, {dead:?} fail: {asked:?}");
            }
        }
    }
}

/// If this fails, a device that is being replaced is read while it sits out, although the new one has everything.
#[test]
fn a_replacement_is_read_for_what_sits_out() {
    for kind in [TopKind::Raidz(1), TopKind::Raidz(2)] {
        let tree = Arc::new(replacing(kind, 5, 2));
        let data = pattern(8192);
        let media = write(&tree, 0, &data);
        for (sitting, other) in [(LeafId(2), LeafId(3)), (LeafId(3), LeafId(2))] {
            let asked = read(&tree, (0, &data), &media, [&[sitting], &[]]).expect("readable");
            assert!(asked.contains(&other) && !asked.contains(&sitting), "{sitting:?}: {asked:?}");
        }
    }
}

/// If this fails, so many devices sit out that reads need them all the same; or none can although the others would do.
#[test]
fn no_more_sit_out_than_redundancy_makes_up_for() {
    let can = |tree: &VdevTree, leaf: u32, sitting: &[u32]| tree.can_sit_out(LeafId(leaf), &|other| sitting.contains(&other.0));
    let raidz = VdevTree::simple(&[(TopKind::Raidz(2), 6)], 9, 1 << 30).unwrap();
    assert!(can(&raidz, 0, &[]) && can(&raidz, 0, &[5]) && can(&raidz, 0, &[0, 5]) && !can(&raidz, 0, &[4, 5]));
    let degraded = raidz.with_leaf_state(LeafId(3), LeafState::Faulted);
    assert!(can(&degraded, 0, &[]) && !can(&degraded, 0, &[5]));
    let mirror = VdevTree::simple(&[(TopKind::Mirror, 3)], 9, 1 << 30).unwrap();
    assert!(can(&mirror, 0, &[1]) && !can(&mirror, 0, &[1, 2]) && !can(&mirror.with_leaf_state(LeafId(2), LeafState::Offline), 0, &[1]));
    let mut resilvering = mirror.clone();
    resilvering.leaves[2].missing_txgs = vec![(Txg(5), Txg(20))];
    assert!(can(&resilvering, 0, &[]) && !can(&resilvering, 0, &[1]), "what lacks blocks does not do for others");
    let stripe = VdevTree::simple(&[(TopKind::Leaf, 1), (TopKind::Leaf, 1)], 9, 1 << 30).unwrap();
    assert!(!can(&stripe, 0, &[]));
}
