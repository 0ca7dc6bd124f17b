//! The read machine of blocks that were copied in pieces from a vdev that was removed (OpenZFS: `vdev_indirect_reconstruct_io_done`).
//!
//! No piece has a checksum of its own. One copy of each is read; when the whole does not verify, all copies of all pieces are, and every combination of
//! those that differ is tried.

use crate::areas::LABEL_START_BYTES;
use crate::read_copies::candidates;
use crate::read_step::{Common, ReadFailure, ReadMode, ReadOutcome, ReadStep, Repair, Verify};
use crate::{LeafId, LeafIo, Part, Piece};
use abd::Abd;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most combinations of copies that are tried (OpenZFS: `zfs_reconstruct_indirect_combinations_max`).
static COMBINATIONS_MAX: AtomicU64 = AtomicU64::new(4096);

/// Sets how many combinations of copies of a block in pieces are tried at most; 0: all of them.
pub fn set_combinations_max(most: u64) {
    COMBINATIONS_MAX.store(most, Ordering::Relaxed);
}

/// State of one copy of a piece.
#[derive(Debug)]
enum Held {
    Unasked,
    Failed,
    Bytes(Abd),
}

/// One copy of a piece.
#[derive(Debug)]
struct Replica {
    leaf: LeafId,
    /// True when the leaf is known to lack it.
    is_stale: bool,
    held: Held,
}

/// A piece of the block, with its copies in the order in which they are preferred.
#[derive(Debug)]
struct Section {
    /// Bytes of the padded block.
    range: Range<usize>,
    /// Device offset in bytes, labels included.
    offset: u64,
    copies: Vec<Replica>,
}

impl Section {
    /// Contents of the copies, each once.
    fn versions(&self) -> Vec<&Abd> {
        let mut versions: Vec<&Abd> = Vec::new();
        for copy in &self.copies {
            if let Held::Bytes(bytes) = &copy.held
                && !versions.contains(&bytes)
            {
                versions.push(bytes);
            }
        }
        versions
    }
}

#[derive(Debug)]
pub(crate) struct Split {
    sections: Vec<Section>,
    /// The copies whose results are awaited, by section and number.
    asked: Vec<(usize, usize)>,
}

impl Split {
    /// Starts with these pieces, which are all of the block; there are none when its address leads nowhere.
    pub(crate) fn start(common: &Common, pieces: &[Piece], load: &dyn Fn(LeafId) -> u64) -> (Split, ReadStep) {
        let section = |piece: &Piece| {
            let place = piece.place;
            let (leaves, stale) =
                common.tree.top(place.vdev).map(|top| candidates(&common.tree, top, (place.offset, piece.birth), load)).unwrap_or_default();
            let fresh = leaves.len() - stale;
            let copy = |(index, leaf): (usize, LeafId)| Replica { leaf, is_stale: index >= fresh, held: Held::Unasked };
            Section {
                range: piece.at as usize..(piece.at + place.asize) as usize,
                offset: place.offset + LABEL_START_BYTES,
                copies: leaves.into_iter().enumerate().map(copy).collect(),
            }
        };
        let mut split = Split { sections: pieces.iter().map(section).collect(), asked: Vec::new() };
        let is_hopeless = split.sections.is_empty() || split.sections.iter().any(|section| section.copies.is_empty());
        let step = match common.mode {
            _ if is_hopeless => ReadStep::Lost(ReadFailure { corrupt: split.sections.is_empty(), suspects: Vec::new() }),
            ReadMode::Normal => split.ask(|number| number == 0),
            ReadMode::Scrub | ReadMode::Resilver => split.ask(|_| true),
        };
        (split, step)
    }

    /// Asks for the copies that were not asked for, of those with the numbers that are wanted.
    fn ask(&mut self, wanted: impl Fn(usize) -> bool) -> ReadStep {
        let mut ios = Vec::new();
        for (place, section) in self.sections.iter().enumerate() {
            for (number, copy) in
                section.copies.iter().enumerate().filter(|(number, copy)| wanted(*number) && matches!(copy.held, Held::Unasked))
            {
                let (length, part) = (section.range.len(), Part::Data(section.range.clone()));
                ios.push(LeafIo { leaf: copy.leaf, offset: section.offset, length, part, column: 0 });
                self.asked.push((place, number));
            }
        }
        ReadStep::Issue(ios)
    }

    fn has_unasked(&self) -> bool {
        self.sections.iter().flat_map(|section| &section.copies).any(|copy| matches!(copy.held, Held::Unasked))
    }

    pub(crate) fn complete(&mut self, common: &Common, results: Vec<Option<Abd>>, verify: Verify<'_>) -> ReadStep {
        for ((place, number), result) in std::mem::take(&mut self.asked).into_iter().zip(results) {
            let section = &mut self.sections[place];
            let bytes = result.filter(|bytes| bytes.len() == section.range.len());
            section.copies[number].held = bytes.map_or(Held::Failed, Held::Bytes);
        }
        match self.solve(common, verify) {
            Some((data, right)) => ReadStep::Done(ReadOutcome { data, repairs: self.repairs(&right) }),
            None if self.has_unasked() => self.ask(|_| true),
            None => ReadStep::Lost(self.failure()),
        }
    }

    /// The block, and the right contents of each section, if a combination of what there is verifies.
    fn solve(&self, common: &Common, verify: Verify<'_>) -> Option<(Abd, Vec<Abd>)> {
        let versions: Vec<Vec<&Abd>> = self.sections.iter().map(Section::versions).collect();
        if versions.iter().any(Vec::is_empty) {
            return None;
        }
        let mut chosen = vec![0_usize; versions.len()];
        let most = COMBINATIONS_MAX.load(Ordering::Relaxed);
        let mut tried = 0;
        loop {
            let right: Vec<Abd> = chosen.iter().zip(&versions).map(|(&version, of)| of[version].clone()).collect();
            let whole = Abd::gang(&right);
            let block = if whole.len() > common.psize { whole.slice(0..common.psize) } else { whole };
            if verify(&block) {
                return Some((block, right));
            }
            tried += 1;
            // The next number, each section being a digit.
            let digit = chosen.iter().zip(&versions).position(|(version, of)| version + 1 < of.len())?;
            if tried == most {
                return None;
            }
            chosen[..digit].fill(0);
            chosen[digit] += 1;
        }
    }

    /// Writes of the right contents to all copies that were asked for and did not give them.
    fn repairs(&self, right: &[Abd]) -> Vec<Repair> {
        let mut repairs = Vec::new();
        for (section, data) in self.sections.iter().zip(right) {
            for copy in &section.copies {
                let corrupt = match &copy.held {
                    Held::Unasked => continue,
                    Held::Bytes(bytes) if bytes == data => continue,
                    Held::Bytes(_) => !copy.is_stale,
                    Held::Failed => false,
                };
                repairs.push(Repair { leaf: copy.leaf, offset: section.offset, data: data.clone(), corrupt });
            }
        }
        repairs
    }

    fn failure(&self) -> ReadFailure {
        let is_whole = self.sections.iter().all(|section| !section.versions().is_empty());
        let copies = self.sections.iter().flat_map(|section| &section.copies).filter(|_| is_whole);
        let suspects = copies.filter(|copy| matches!(copy.held, Held::Bytes(_))).map(|copy| copy.leaf).collect();
        ReadFailure { corrupt: is_whole, suspects }
    }
}

#[cfg(test)]
mod tests {
    use crate::{MappedRange, Mapping, ReadJob, ReadMode, ReadOutcome, ReadStep, TopKind, VdevTree};
    use abd::Abd;
    use ondisk::{Dva, Txg, VdevId};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const SECTOR: usize = 4096;

    /// Vdev 0 was copied to the mirrors 1 and 2: a block of three sectors lies in three pieces.
    fn sample() -> Arc<VdevTree> {
        let mut tree = VdevTree::simple(&[(TopKind::Leaf, 1), (TopKind::Mirror, 2), (TopKind::Mirror, 2)], 12, 1 << 30).expect("valid");
        let range = |sector: u64, vdev: u32, place: u64| MappedRange {
            source: sector * SECTOR as u64,
            target: Dva { vdev: VdevId(vdev), offset: place * SECTOR as u64, asize: SECTOR as u64, gang: false },
        };
        let mapping = Mapping::new(vec![range(7, 1, 30), range(8, 2, 60), range(9, 1, 90)], vec![(10 * SECTOR as u64, Txg(9))]);
        let top = &mut tree.tops[0];
        (top.kind, top.node, top.mapping) = (TopKind::Indirect, None, mapping.map(Arc::new));
        top.slots.clear();
        Arc::new(tree)
    }

    fn block() -> Abd {
        let bytes: Vec<u8> = (0..3 * SECTOR).map(|at| (at / SECTOR + 1) as u8).collect();
        Abd::from_slice(&bytes)
    }

    /// Devices: what each leaf has at each sector of its space for blocks.
    fn disks(tree: &VdevTree) -> BTreeMap<(u32, u64), Vec<u8>> {
        let mut disks = BTreeMap::new();
        for (piece, (vdev, place)) in [(1, 30), (2, 60), (1, 90)].into_iter().enumerate() {
            for leaf in tree.tops[vdev].leaves() {
                disks.insert((leaf.0, place), vec![piece as u8 + 1; SECTOR]);
            }
        }
        disks
    }

    /// Reads the block; `verify` is the comparison with what it is. Gives also the number of rounds.
    fn read(tree: &Arc<VdevTree>, disks: &BTreeMap<(u32, u64), Vec<u8>>, mode: ReadMode) -> (Option<ReadOutcome>, usize) {
        let extent = (7 * SECTOR as u64, 3 * SECTOR);
        let (mut job, mut step) = ReadJob::start(tree, &tree.tops[0], extent, Txg(5), mode, &|_| 0);
        let mut rounds = 0;
        loop {
            match step {
                ReadStep::Done(outcome) => return (Some(outcome), rounds),
                ReadStep::Lost(_) => return (None, rounds),
                ReadStep::Issue(ios) => {
                    rounds += 1;
                    let sector = |offset: u64| (offset - crate::LABEL_START_BYTES) / SECTOR as u64;
                    let results =
                        ios.iter().map(|io| disks.get(&(io.leaf.0, sector(io.offset))).map(|bytes| Abd::from_slice(bytes))).collect();
                    step = job.complete(results, &mut |data| *data == block());
                }
            }
        }
    }

    /// If this fails, a block in pieces is lost although a good copy of each piece is there, or what is wrong stays wrong: for every set of damaged
    /// copies, also of those that a device does not give.
    #[test]
    fn every_combination_of_copies_is_found() {
        let tree = sample();
        let whole = disks(&tree);
        let places: Vec<(u32, u64)> = whole.keys().copied().collect();
        for damaged in 0..1u32 << places.len() {
            for is_gone in [false, true] {
                let mut disks = whole.clone();
                let hit: Vec<_> = places.iter().enumerate().filter(|(bit, _)| (damaged >> bit) & 1 == 1).map(|(_, place)| *place).collect();
                for place in &hit {
                    if is_gone {
                        disks.remove(place);
                    } else {
                        disks.insert(*place, vec![0xEE; SECTOR]);
                    }
                }
                let pieces: Vec<u64> = places.iter().map(|(_, sector)| *sector).collect();
                let is_lost =
                    pieces.iter().any(|piece| places.iter().filter(|(_, sector)| sector == piece).all(|place| hit.contains(place)));
                for mode in [ReadMode::Normal, ReadMode::Scrub] {
                    let (outcome, rounds) = read(&tree, &disks, mode);
                    assert_eq!(outcome.is_none(), is_lost, "{hit:?}, gone: {is_gone}, {mode:?}");
                    assert!(rounds <= 2);
                    let Some(outcome) = outcome else { continue };
                    assert_eq!(outcome.data, block());
                    let repaired = outcome.repairs.len();
                    let corrupt = outcome.repairs.iter().filter(|repair| repair.corrupt).count();
                    if mode == ReadMode::Scrub || rounds > 1 {
                        assert_eq!(
                            (repaired, corrupt),
                            (hit.len(), if is_gone { 0 } else { hit.len() }),
                            "{hit:?}, gone: {is_gone}, {mode:?}"
                        );
                    }
                }
            }
        }
    }
}
