//! The read machine of leaves and mirrors: candidates in order of preference, each holding the whole block.

use crate::areas::LABEL_START_BYTES;
use crate::read_step::{Common, ReadFailure, ReadMode, ReadOutcome, ReadStep, Repair, SITS_OUT, Verify};
use crate::{LeafId, LeafIo, Part, TopVdev, VdevTree};
use abd::Abd;
use kstat::Counter;
use ondisk::Txg;
use std::sync::LazyLock;

/// Equal loads are spread over a mirror's leaves in pieces of 2 MiB (OpenZFS: `vdev_mirror_shift`).
const SPREAD_SHIFT: u32 = 21;

/// Counters of how reads chose among the leaves of mirrors, in this process (OpenZFS: `vdev_mirror_stats`).
static CHOICES: LazyLock<[Counter; 2]> = LazyLock::new(Default::default);

/// Numbers of times that a leaf of a mirror was chosen because it has less to do than the others, and that several were alike.
pub fn mirror_choices() -> [u64; 2] {
    [0, 1].map(|at| CHOICES[at].get())
}

/// Usable leaves of a vdev without parity in the order in which they are to be tried for what was written there at `offset` in `birth`, and how many of the
/// last of them lack it.
pub(crate) fn candidates(
    tree: &VdevTree,
    top: &TopVdev,
    (offset, birth): (u64, Txg),
    load: &dyn Fn(LeafId) -> u64,
) -> (Vec<LeafId>, usize) {
    let slot = top.slots.first().map_or(&[][..], Vec::as_slice);
    let usable = |leaf: &&LeafId| tree.leaf(**leaf).state.is_usable();
    let mut candidates: Vec<LeafId> = slot.iter().filter(usable).copied().collect();
    if candidates.len() < 2 {
        return (candidates, 0);
    }
    // What one that sits out would be asked is spread over the others.
    let sits = |leaf: &LeafId| load(*leaf) == SITS_OUT;
    if candidates.iter().any(sits) {
        candidates.sort_by_cached_key(sits);
    }
    let awake = candidates.iter().position(sits).unwrap_or(candidates.len()).max(1);
    candidates[..awake].rotate_left((offset >> SPREAD_SHIFT) as usize % awake);
    let order = |leaf: LeafId| (tree.leaf(leaf).lacks(birth), load(leaf));
    candidates.sort_by_cached_key(|&leaf| order(leaf));
    let alike = matches!(&candidates[..], [first, second, ..] if order(*first) == order(*second));
    CHOICES[usize::from(alike)].bump();
    let stale = candidates.iter().filter(|&&leaf| tree.leaf(leaf).lacks(birth)).count();
    (candidates, stale)
}

#[derive(Debug)]
pub(crate) struct Copies {
    offset: u64,
    /// Usable leaves, best first; the last `stale` of them lack the block's txg.
    candidates: Vec<LeafId>,
    stale: usize,
    /// Number of candidates that were tried.
    tried: usize,
    /// Leaves that were tried in vain; true with bytes that did not verify, false with a device error.
    bad: Vec<(LeafId, bool)>,
}

impl Copies {
    pub(crate) fn start(common: &Common, top: &TopVdev, offset: u64, load: &dyn Fn(LeafId) -> u64) -> (Copies, ReadStep) {
        let (candidates, stale) = candidates(&common.tree, top, (offset, common.birth), load);
        let mut copies = Copies { offset: offset + LABEL_START_BYTES, candidates, stale, tried: 0, bad: Vec::new() };
        let count = if common.mode == ReadMode::Scrub { copies.candidates.len() } else { 1 };
        let step = copies.issue(common, count);
        (copies, step)
    }

    fn issue(&mut self, common: &Common, count: usize) -> ReadStep {
        let next = &self.candidates[self.tried.min(self.candidates.len())..];
        let next = &next[..count.min(next.len())];
        if next.is_empty() {
            let suspects: Vec<LeafId> = self.bad.iter().filter(|(_, corrupt)| *corrupt).map(|(leaf, _)| *leaf).collect();
            return ReadStep::Lost(ReadFailure { corrupt: !suspects.is_empty(), suspects });
        }
        let length = common.length;
        let io = |&leaf: &LeafId| LeafIo { leaf, offset: self.offset, length, part: Part::Data(0..length), column: 0 };
        let ios: Vec<LeafIo> = next.iter().map(io).collect();
        self.tried += ios.len();
        ReadStep::Issue(ios)
    }

    fn is_stale(&self, leaf: LeafId) -> bool {
        self.candidates[self.candidates.len() - self.stale..].contains(&leaf)
    }

    pub(crate) fn complete(&mut self, common: &Common, results: Vec<Option<Abd>>, verify: Verify<'_>) -> ReadStep {
        let first = self.tried - results.len().min(self.tried);
        let mut good: Option<Abd> = None;
        for (index, result) in results.into_iter().enumerate() {
            let leaf = self.candidates[first + index];
            let Some(bytes) = result.filter(|bytes| bytes.len() >= common.psize) else {
                self.bad.push((leaf, false));
                continue;
            };
            let block = if bytes.len() == common.psize { bytes } else { bytes.slice(0..common.psize) };
            match &good {
                // Comparing with a verified copy is cheaper than another checksum and as strict.
                Some(good) if *good == block => {}
                Some(_) => self.bad.push((leaf, true)),
                None if verify(&block) => good = Some(block),
                None => self.bad.push((leaf, true)),
            }
        }
        let Some(data) = good else { return self.issue(common, 1) };
        if common.mode == ReadMode::Resilver {
            let first_stale = self.candidates.len() - self.stale;
            let untouched = &self.candidates[self.tried.max(first_stale)..];
            self.bad.extend(untouched.iter().map(|&leaf| (leaf, false)));
        }
        let repairs = if self.bad.is_empty() { Vec::new() } else { self.repairs(common, &data) };
        ReadStep::Done(ReadOutcome { data, repairs })
    }

    fn repairs(&self, common: &Common, data: &Abd) -> Vec<Repair> {
        let padding = common.length - common.psize;
        let padded = if padding == 0 { data.clone() } else { Abd::gang(&[data.clone(), Abd::zeroed(padding)]) };
        let repair = |&(leaf, corrupt): &(LeafId, bool)| Repair {
            leaf,
            offset: self.offset,
            data: padded.clone(),
            corrupt: corrupt && !self.is_stale(leaf),
        };
        self.bad.iter().map(repair).collect()
    }
}
