//! Every set of leaves that lack everything, of every shape, is rebuilt from the others. What the user loses when these fail: data
//! after the next failure, on a device that was rebuilt wrongly.
use abd::Abd;
use ondisk::Txg;
use std::collections::BTreeMap;
use vdev::{DraidConfig, LeafId, LeafState, RebuildJob, RebuildStep, TopKind, VdevTree, WritePlan};

type Media = BTreeMap<(LeafId, u64), Vec<u8>>;

fn pattern(length: usize) -> Abd {
    let mut state = 0x9E37_79B9_7F4A_7C15u64 ^ length as u64;
    let bytes: Vec<u8> = (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    Abd::from_slice(&bytes)
}

/// A part of the vdev full of data, as its leaves have it.
fn media(tree: &VdevTree, offset: u64, asize: u64) -> Media {
    let top = &tree.tops[0];
    let share = if let TopKind::Draid(config) = top.kind { (config.data() as u64, config.width() as u64) } else { (1, 1) };
    let data = pattern((asize / share.1 * share.0) as usize);
    let plan = WritePlan::new(tree, top, offset, data.len(), Txg::ZERO);
    let parity = plan.parity(&data);
    plan.ios.iter().map(|io| ((io.leaf, io.offset), plan.payload(io, &data, &parity).to_vec())).collect()
}

/// Rebuilds the part; `broken` leaves fail reads. Gives what was written, None when it is lost.
fn rebuild(tree: &VdevTree, part: (u64, u64), media: &Media, broken: &[LeafId]) -> Option<Option<Media>> {
    rebuild_sparing(tree, part, media, broken, [None; 2])
}

/// Rebuilds the part, without reading `spared` where the others do.
fn rebuild_sparing(
    tree: &VdevTree,
    (offset, asize): (u64, u64),
    media: &Media,
    broken: &[LeafId],
    spared: [Option<LeafId>; 2],
) -> Option<Option<Media>> {
    let (mut job, mut step) = RebuildJob::start(tree, &tree.tops[0], (offset, asize), spared)?;
    for _ in 0..100 {
        match step {
            RebuildStep::Issue(ios) => {
                assert!(!ios.is_empty());
                let read = |io: &vdev::LeafIo| {
                    assert!(!broken.is_empty() || !spared.contains(&Some(io.leaf)), "a leaf that is busy elsewhere was read");
                    assert!(!tree.leaf(io.leaf).lacks(Txg::INITIAL), "a leaf without data was read");
                    let bytes = media.get(&(io.leaf, io.offset)).filter(|_| !broken.contains(&io.leaf))?;
                    assert_eq!(bytes.len(), io.length);
                    Some(Abd::from_slice(bytes))
                };
                let results = ios.iter().map(read).collect();
                step = job.complete(results);
            }
            RebuildStep::Done(repairs) => {
                return Some(Some(repairs.into_iter().map(|repair| ((repair.leaf, repair.offset), repair.data.to_vec())).collect()));
            }
            RebuildStep::Lost => return Some(None),
        }
    }
    panic!("the job does not end");
}

#[test]
fn every_set_of_empty_leaves_is_rebuilt_from_the_others() {
    let draid = |parity, data, children| TopKind::Draid(DraidConfig::new(parity, data, 0, children).expect("a shape"));
    for (kind, count) in [(TopKind::Mirror, 2), (TopKind::Mirror, 3), (draid(1, 2, 4), 4), (draid(2, 3, 6), 6), (draid(3, 3, 7), 7)] {
        let whole = VdevTree::simple(&[(kind, count)], 12, 1 << 30).expect("valid");
        let top = &whole.tops[0];
        let most = if top.parity() == 0 { count - 1 } else { top.parity() };
        for offset in [0, 5 * top.extent_unit()] {
            let asize = top.rebuild_part(offset, 64 * top.extent_unit(), 64 << 10);
            assert!(asize > 0 && asize.is_multiple_of(top.extent_unit()));
            let media = media(&whole, offset, asize);
            assert_eq!(rebuild(&whole, (offset, asize), &media, &[]), None, "nothing lacks anything");
            for set in 1u32..1 << count {
                let chosen: Vec<LeafId> = (0..count as u32).filter(|index| set >> index & 1 == 1).map(LeafId).collect();
                let mut tree = whole.clone();
                chosen.iter().for_each(|leaf| tree.leaves[leaf.0 as usize].missing_txgs = vec![(Txg::INITIAL, Txg(50))]);
                let done = rebuild(&tree, (offset, asize), &media, &[]);
                let expected: Media = media.iter().filter(|((leaf, _), _)| chosen.contains(leaf)).map(|(k, v)| (*k, v.clone())).collect();
                match done {
                    // None of them has a column of this part.
                    None => assert!(expected.is_empty(), "{kind:?} {set:b}"),
                    Some(None) => assert!(expected.len() > most.min(count - 1), "{kind:?} {set:b}: lost without need"),
                    Some(Some(written)) => assert_eq!(written, expected, "{kind:?} {set:b}"),
                }
                if let Some(need) = top.rebuild_need(&tree, offset).filter(|need| need.sources.len() > need.wanted) {
                    // Whichever is busy elsewhere, the others do; and it serves when one of them fails.
                    for (index, busy) in need.sources.iter().enumerate() {
                        let other = need.sources[(index + 1) % need.sources.len()];
                        for broken in [&[][..], &[other]] {
                            let again = rebuild_sparing(&tree, (offset, asize), &media, broken, [Some(*busy), None]);
                            assert_eq!(again, Some(Some(expected.clone())), "{kind:?} {set:b}, without {busy:?}, {broken:?} fails");
                        }
                    }
                }
                // One less can be lost when a device fails meanwhile.
                if chosen.len() < most
                    && let Some(other) = (0..count as u32).map(LeafId).find(|leaf| !chosen.contains(leaf))
                    && !expected.is_empty()
                {
                    let again = rebuild(&tree, (offset, asize), &media, &[other]);
                    assert_eq!(again, Some(Some(expected)), "{kind:?} {set:b}, {other:?} fails");
                }
            }
        }
    }
}

/// If this fails, what a device that was away for a while still has is copied over what others wrote meanwhile.
#[test]
fn a_leaf_that_lacks_something_is_never_read() {
    let mut tree = VdevTree::simple(&[(TopKind::Mirror, 3)], 12, 1 << 30).expect("valid");
    let part = (0, 64 << 10);
    let media = media(&tree, part.0, part.1);
    tree.leaves[1].missing_txgs = vec![(Txg(20), Txg(22))];
    tree.leaves[2].missing_txgs = vec![(Txg::INITIAL, Txg(50))];
    let places = |written: Option<Option<Media>>| written.flatten().map(|media| media.keys().map(|(leaf, _)| leaf.0).collect::<Vec<_>>());
    assert_eq!(places(rebuild(&tree, part, &media, &[LeafId(1)])), Some(vec![1, 2]), "both are brought everything from the first");
    tree.leaves[0].state = LeafState::Offline;
    assert_eq!(rebuild(&tree, part, &media, &[]), Some(None), "nobody has everything");
    tree.leaves[1].state = LeafState::Faulted;
    assert_eq!(rebuild(&tree, part, &media, &[]), Some(None), "and never from the empty one");
}
