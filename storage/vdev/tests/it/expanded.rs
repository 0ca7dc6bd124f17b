//! RAID-Z vdevs that got devices, held against what moving sectors does: a block is laid out on as many children as there were when it was born, and every
//! sector goes where its number puts it on the children there are. What the user loses when these fail: everything that he had before he added a disk.
use super::failures::{Media, pattern, subsets};
use abd::Abd;
use ondisk::Txg;
use std::sync::Arc;
use vdev::{
    BOOT_BYTES, LABEL_START_BYTES, LeafId, LeafState, ReadJob, ReadMode, ReadStep, Reflow, Scratch, TopKind, VdevTree, WriteOutcome,
    WritePlan,
};

const SECTOR: u64 = 512;

/// A vdev of `columns` children, which got the last `txgs.len()` of them in these txgs.
fn expanded(parity: u8, columns: usize, txgs: &[u64]) -> VdevTree {
    let mut tree = VdevTree::simple(&[(TopKind::Raidz(parity), columns)], 9, 1 << 30).unwrap();
    tree.tops[0].widths.txgs = txgs.iter().copied().map(Txg).collect();
    tree
}

/// Places that are written for a block, sector by sector, with their bytes.
fn written(tree: &VdevTree, offset: u64, data: &Abd, birth: Txg) -> Media {
    let plan = WritePlan::new(tree, &tree.tops[0], offset, data.len(), birth);
    let padded = Abd::gang(&[data.clone(), Abd::zeroed(plan.length - data.len())]);
    let parity = plan.parity(&padded);
    let mut media = Media::new();
    for io in &plan.ios {
        for (number, sector) in plan.payload(io, &padded, &parity).to_vec().chunks(SECTOR as usize).enumerate() {
            assert!(media.insert((io.leaf, io.offset + number as u64 * SECTOR), sector.to_vec()).is_none(), "two sectors on one place");
        }
    }
    media
}

/// The sectors of a vdev of `from` children where they lie on `to` of them.
fn moved(media: &Media, from: u64, to: u64) -> Media {
    let place = |(leaf, offset): &(LeafId, u64)| {
        let sector = (offset - LABEL_START_BYTES) / SECTOR * from + u64::from(leaf.0);
        (LeafId((sector % to) as u32), sector / to * SECTOR + LABEL_START_BYTES)
    };
    media.iter().map(|(at, bytes)| (place(at), bytes.clone())).collect()
}

fn bytes_at(media: &Media, leaf: LeafId, offset: u64, length: usize) -> Option<Abd> {
    let sectors = (0..length as u64 / SECTOR).map(|number| media.get(&(leaf, offset + number * SECTOR)).cloned());
    Some(Abd::from_slice(&sectors.collect::<Option<Vec<_>>>()?.concat()))
}

/// Reads a block, with the repairs put in place; None when it is lost.
fn read(tree: &VdevTree, (offset, birth): (u64, Txg), mode: ReadMode, media: &mut Media, want: &Abd) -> Option<()> {
    let tree = Arc::new(tree.clone());
    let (mut job, mut step) = ReadJob::start(&tree, &tree.tops[0], (offset, want.len()), birth, mode, &|_| 0);
    loop {
        match step {
            ReadStep::Issue(ios) => {
                let results = ios.iter().map(|io| bytes_at(media, io.leaf, io.offset, io.length)).collect();
                step = job.complete(results, &mut |block| block == want);
            }
            ReadStep::Done(outcome) => {
                assert_eq!(&outcome.data, want);
                for repair in &outcome.repairs {
                    for (number, sector) in repair.data.to_vec().chunks(SECTOR as usize).enumerate() {
                        media.insert((repair.leaf, repair.offset + number as u64 * SECTOR), sector.to_vec());
                    }
                }
                return Some(());
            }
            ReadStep::Lost(_) => return None,
        }
    }
}

/// Widths before and after, with blocks of several sizes at several places.
fn cases(mut each: impl FnMut(u8, usize, usize, u64, &Abd)) {
    for (parity, before, after) in [(1, 2, 3), (1, 3, 4), (1, 3, 5), (1, 4, 8), (2, 3, 4), (2, 4, 6), (2, 7, 8), (3, 4, 5), (3, 5, 7)] {
        for sectors in [1, 2, before - 1, before, before + 1, 2 * before + 1, 4 * before + 3] {
            for offset in [0, 512 * 7, (1 << 20) + 512 * 3] {
                each(parity, before, after, offset, &pattern(sectors * 512 - 100));
            }
        }
    }
}

fn txgs_between(before: usize, after: usize) -> Vec<u64> {
    (0..(after - before) as u64).map(|number| 100 + 10 * number).collect()
}

#[test]
fn old_blocks_lie_where_moving_sectors_put_them() {
    cases(|parity, before, after, offset, data| {
        let txgs = txgs_between(before, after);
        let tree = expanded(parity, after, &txgs);
        let what = format!("raidz{parity} of {before}, then {after}, {} bytes at {offset}", data.len());
        for width in before..=after {
            let birth = if width == before { Txg(9) } else { Txg(txgs[width - before - 1]) };
            let narrow = VdevTree::simple(&[(TopKind::Raidz(parity), width)], 9, 1 << 30).unwrap();
            let expected = moved(&written(&narrow, offset, data, birth), width as u64, after as u64);
            assert_eq!(written(&tree, offset, data, birth), expected, "{what}, born at width {width}");
            let psize = data.len() as u64;
            assert_eq!(tree.tops[0].asize_at(psize, birth), narrow.tops[0].asize_for_psize(psize), "{what}");
            assert_eq!(tree.tops[0].width_at(birth), width);
        }
    });
}

#[test]
fn old_blocks_survive_every_set_of_missing_devices() {
    cases(|parity, before, after, offset, data| {
        let tree = expanded(parity, after, &txgs_between(before, after));
        let media = written(&tree, offset, data, Txg(9));
        for missing in subsets(after, usize::from(parity)) {
            let mut degraded = tree.clone();
            for &leaf in &missing {
                degraded = degraded.with_leaf_state(LeafId(leaf as u32), LeafState::Missing);
            }
            let found = read(&degraded, (offset, Txg(9)), ReadMode::Normal, &mut media.clone(), data);
            assert!(found.is_some(), "raidz{parity} of {before}, then {after}, {} bytes at {offset}, without {missing:?}", data.len());
        }
    });
}

/// A device that lied before the last expansion has its lies on all devices after it.
#[test]
fn what_a_device_got_wrong_before_or_after_is_found_and_repaired() {
    cases(|parity, before, after, offset, data| {
        let tree = expanded(parity, after, &txgs_between(before, after));
        let clean = written(&tree, offset, data, Txg(9));
        let sector = |at: &(LeafId, u64)| (at.1 - LABEL_START_BYTES) / SECTOR * after as u64 + u64::from(at.0.0);
        for (width, liar) in (before..=after).flat_map(|width| (0..width).map(move |liar| (width as u64, liar as u64))) {
            let mut media = clean.clone();
            media.iter_mut().filter(|(at, _)| sector(at) % width == liar).for_each(|(_, bytes)| bytes[3] ^= 0x55);
            let what = format!("raidz{parity} of {before}, then {after}, {} bytes at {offset}, child {liar} of {width}", data.len());
            assert!(read(&tree, (offset, Txg(9)), ReadMode::Scrub, &mut media, data).is_some(), "{what}");
            assert_eq!(media, clean, "{what}");
        }
    });
}

/// Users lose a block for each expansion that was under way when devices got things wrong: the one of which a part was moved.
#[test]
fn what_devices_got_wrong_while_a_block_was_moved_half_way_is_found_then() {
    for (parity, before, sectors) in [(1u8, 3u64, 9), (2, 5, 14), (3, 6, 11)] {
        let (after, data, first) = (before + 1, pattern(sectors * 512), 20 * before + 2);
        let offset = first * SECTOR;
        let mut tree = VdevTree::simple(&[(TopKind::Raidz(parity), after as usize)], 9, 1 << 30).unwrap();
        for synced in first..first + 3 * before {
            let reflow = Arc::new(Reflow::default());
            reflow.set_synced(synced * SECTOR);
            tree.tops[0].widths.reflow = Some(reflow);
            let clean = written(&tree, offset, &data, Txg(9));
            for liars in subsets(after as usize, usize::from(parity)) {
                let mut media = clean.clone();
                media.iter_mut().filter(|(at, _)| liars.contains(&(at.0.0 as usize))).for_each(|(_, bytes)| bytes.fill(0));
                let found = read(&tree, (offset, Txg(9)), ReadMode::Scrub, &mut media, &data);
                assert!(found.is_some(), "raidz{parity} of {after}, {synced} sectors moved, children {liars:?}");
            }
        }
    }
}

/// As above, and the rest of the block was moved, with what was wrong of it, before anybody read it.
#[test]
fn what_devices_got_wrong_while_a_block_was_moved_half_way_is_found_afterwards() {
    for (parity, before, sectors) in [(1u8, 3u64, 9), (2, 5, 14), (3, 6, 11)] {
        let (after, data, first) = (before + 1, pattern(sectors * 512), 20 * before + 2);
        let (offset, tree) = (first * SECTOR, expanded(parity, after as usize, &[100]));
        let clean = written(&tree, offset, &data, Txg(9));
        let sets = subsets(before as usize, usize::from(parity));
        for (row, liars) in (1..4).flat_map(|row| sets.iter().map(move |liars| (row, liars))) {
            let mut media = clean.clone();
            for ((leaf, place), bytes) in &mut media {
                let sector = (place - LABEL_START_BYTES) / SECTOR * after + u64::from(leaf.0);
                let width = if sector < first + row * before { after } else { before };
                if liars.contains(&((sector % width) as usize)) {
                    bytes.fill(0);
                }
            }
            let what = format!("raidz{parity} of {after}, {row} rows moved, children {liars:?}");
            assert!(read(&tree, (offset, Txg(9)), ReadMode::Scrub, &mut media, &data).is_some(), "{what}");
            assert_eq!(media, clean, "{what}");
        }
    }
}

#[test]
fn a_write_to_an_expanded_vdev_is_lost_when_a_row_is() {
    let tree = expanded(1, 5, &[100]);
    let plan = WritePlan::new(&tree, &tree.tops[0], 0, 16 << 10, Txg(9));
    let without = |lost: &[u32]| plan.assess(&plan.ios.iter().map(|io| !lost.contains(&io.leaf.0)).collect::<Vec<_>>());
    assert_eq!(without(&[]), WriteOutcome::Complete);
    assert!(matches!(without(&[2]), WriteOutcome::Degraded(_)));
    assert_eq!(without(&[2, 3]), WriteOutcome::Lost);
}

/// Rows before what is synced are at their new places, others at their old ones, and what was copied is written to both.
#[test]
fn during_an_expansion_rows_are_read_where_they_are_and_written_to_all_their_places() {
    let (before, after) = (4u64, 5u64);
    let data = pattern(9 * 512);
    let narrow = VdevTree::simple(&[(TopKind::Raidz(1), 4)], 9, 1 << 30).unwrap();
    let old = written(&narrow, 0, &data, Txg(9));
    let new = moved(&old, before, after);
    let in_scratch: Media = new.iter().map(|((leaf, offset), bytes)| ((*leaf, offset - BOOT_BYTES), bytes.clone())).collect();
    let reflow = Arc::new(Reflow::default());
    let mut tree = VdevTree::simple(&[(TopKind::Raidz(1), 5)], 9, 1 << 30).unwrap();
    tree.tops[0].widths.reflow = Some(reflow.clone());
    assert_eq!(written(&tree, 0, &data, Txg(9)), old);
    let all = |parts: &[&Media]| parts.iter().flat_map(|part| (*part).clone()).collect::<Media>();
    reflow.set_scratch(Scratch::Filling);
    reflow.set_next(1 << 20);
    assert_eq!(written(&tree, 0, &data, Txg(9)), all(&[&old, &in_scratch]));
    assert!(read(&tree, (0, Txg(9)), ReadMode::Normal, &mut old.clone(), &data).is_some());
    reflow.set_scratch(Scratch::Valid);
    reflow.set_synced(1 << 20);
    assert_eq!(written(&tree, 0, &data, Txg(9)), in_scratch);
    reflow.set_scratch(Scratch::Leaving);
    assert_eq!(written(&tree, 0, &data, Txg(9)), all(&[&in_scratch, &new]));
    assert!(read(&tree, (0, Txg(9)), ReadMode::Normal, &mut in_scratch.clone(), &data).is_some());
    reflow.set_scratch(Scratch::Unused);
    assert_eq!(written(&tree, 0, &data, Txg(9)), new);
}
