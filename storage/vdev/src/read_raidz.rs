//! The read machine of RAID-Z: columns, known failures, and the search for silent corruption.

use crate::read::{Common, ReadFailure, ReadMode, ReadOutcome, ReadStep, Repair, Verify};
use crate::size::LABEL_START_BYTES;
use crate::{LeafId, LeafIo, Part, RaidzMap, TopVdev, math};
use abd::Abd;

#[derive(Debug)]
enum State {
    /// Not read yet.
    Idle,
    /// An I/O is out.
    Pending,
    /// Bytes came back; whether they are right is another question.
    Read(Abd),
    /// No leaf of the slot delivered it.
    Failed,
}

#[derive(Debug)]
struct Column {
    /// Usable leaves of the slot, those that lack the txg last.
    candidates: Vec<LeafId>,
    tried: usize,
    state: State,
    /// The leaf being read, or that was read last.
    leaf: LeafId,
    /// Every usable leaf lacks the block's txg: read only when nothing else helps.
    stale: bool,
    offset: u64,
    length: usize,
}

#[derive(Debug)]
pub(crate) struct Raidz {
    map: RaidzMap,
    columns: Vec<Column>,
    /// Columns of the I/Os that are out, in the order issued.
    pending: Vec<usize>,
    /// The data as it came back did not verify.
    mismatch: bool,
}

impl Raidz {
    pub(crate) fn start(common: &Common, top: &TopVdev, offset: u64) -> (Raidz, ReadStep) {
        let map = RaidzMap::new(top, offset, common.length);
        let columns = map.columns.iter().map(|column| Column::new(common, top, column)).collect();
        let mut raidz = Raidz { map, columns, pending: Vec::new(), mismatch: false };
        let step = raidz.advance(common, &mut |_| false);
        (raidz, step)
    }

    pub(crate) fn complete(&mut self, common: &Common, results: Vec<Option<Abd>>, verify: Verify<'_>) -> ReadStep {
        let pending = std::mem::take(&mut self.pending);
        let mut results = results.into_iter();
        for index in pending {
            let column = &mut self.columns[index];
            column.state = match results.next().flatten() {
                Some(bytes) if bytes.len() == column.length => State::Read(bytes),
                _ if column.tried < column.candidates.len() => State::Idle,
                _ => State::Failed,
            };
        }
        self.advance(common, verify)
    }

    fn is_read(&self, index: usize) -> bool {
        matches!(self.columns[index].state, State::Read(_))
    }
    fn is_idle(&self, index: usize) -> bool {
        matches!(self.columns[index].state, State::Idle)
    }

    /// Picks the columns to read next; empty when everything that can help was read.
    fn wanted(&self, common: &Common) -> Vec<usize> {
        let parity = self.map.parity;
        let idle = |index: &usize| self.is_idle(*index);
        if self.mismatch || common.mode == ReadMode::Scrub {
            return (0..self.columns.len()).filter(idle).collect();
        }
        let fresh = |index: &usize| idle(index) && !self.columns[*index].stale;
        let data: Vec<usize> = (parity..self.columns.len()).filter(fresh).collect();
        let absent = (parity..self.columns.len()).filter(|&index| !self.is_read(index)).count() - data.len();
        let have = (0..parity).filter(|&index| self.is_read(index)).count();
        let more = absent.saturating_sub(have);
        let mut wanted: Vec<usize> = (0..parity).filter(fresh).take(more).collect();
        if wanted.len() < more {
            // Not enough fresh columns: the stale ones may still hold the right bytes.
            wanted = (0..self.columns.len()).filter(idle).collect();
        } else {
            wanted.extend(data);
        }
        wanted
    }

    fn issue(&mut self, wanted: Vec<usize>) -> ReadStep {
        let mut ios = Vec::with_capacity(wanted.len());
        for &index in &wanted {
            let column = &mut self.columns[index];
            column.leaf = column.candidates[column.tried];
            column.tried += 1;
            column.state = State::Pending;
            let part = if index < self.map.parity { Part::Parity(index) } else { Part::Data(self.map.columns[index].data.clone()) };
            ios.push(LeafIo { leaf: column.leaf, offset: column.offset, length: column.length, part, column: index as u32 });
        }
        self.pending = wanted;
        ReadStep::Issue(ios)
    }

    fn advance(&mut self, common: &Common, verify: Verify<'_>) -> ReadStep {
        loop {
            let wanted = self.wanted(common);
            if !wanted.is_empty() {
                return self.issue(wanted);
            }
            if let Some(step) = self.attempt(common, &[], verify) {
                return step;
            }
            if !self.mismatch && (0..self.columns.len()).any(|index| self.is_idle(index)) {
                self.mismatch = true;
                continue;
            }
            return self.search(common, verify);
        }
    }

    /// Suspects ever larger sets of columns that came back, until one set makes the block verify.
    fn search(&self, common: &Common, verify: Verify<'_>) -> ReadStep {
        let read: Vec<usize> = (0..self.columns.len()).filter(|&index| self.is_read(index)).collect();
        let failed = self.columns.len() - read.len();
        for count in 1..=self.map.parity.saturating_sub(failed) {
            let mut choice: Vec<usize> = (0..count).collect();
            loop {
                let suspects: Vec<usize> = choice.iter().map(|&index| read[index]).collect();
                if let Some(step) = self.attempt(common, &suspects, verify) {
                    return step;
                }
                if !next_combination(&mut choice, read.len()) {
                    break;
                }
            }
        }
        let complete = failed <= self.map.parity;
        let suspects = if complete { read.iter().map(|&index| self.columns[index].leaf).collect() } else { Vec::new() };
        ReadStep::Lost(ReadFailure { corrupt: complete, suspects })
    }

    /// The block with the columns in `suspects` taken as lost, if it can be computed and verifies.
    fn attempt(&self, common: &Common, suspects: &[usize], verify: Verify<'_>) -> Option<ReadStep> {
        let parity = self.map.parity;
        let trusted = |index: usize| match &self.columns[index].state {
            State::Read(bytes) if !suspects.contains(&index) => Some(bytes.clone()),
            _ => None,
        };
        let mut data: Vec<Option<Abd>> = (parity..self.columns.len()).map(trusted).collect();
        let whole = data.iter().all(Option::is_some);
        if whole && !suspects.is_empty() {
            return None; // only parity is suspected: nothing new
        }
        let solved: Vec<Abd> = if whole {
            data.into_iter().flatten().collect()
        } else {
            let lengths: Vec<usize> = self.map.data_columns().iter().map(|column| column.length).collect();
            let parities: Vec<(usize, Abd)> = (0..parity).filter_map(|index| Some((index, trusted(index)?.to_contiguous()))).collect();
            data.iter_mut().flatten().for_each(|column| *column = column.to_contiguous());
            math::solve(&data, &lengths, &parities)?
        };
        if whole && let Some(expected) = self.fused(common) {
            let columns: Vec<Abd> = solved.iter().map(Abd::to_contiguous).collect();
            let (parity, sum) = math::generate_with_fletcher4(&columns, parity, self.map.parity_length());
            if sum != expected {
                return None;
            }
            let repairs = self.repairs(common, &solved, Some(parity));
            return Some(ReadStep::Done(ReadOutcome { data: Abd::gang(&solved), repairs }));
        }
        let block = Abd::gang(&solved);
        let block = if block.len() == common.psize { block } else { block.slice(0..common.psize) };
        if !verify(&block) {
            return None;
        }
        let repairs = self.repairs(common, &solved, None);
        Some(ReadStep::Done(ReadOutcome { data: block, repairs }))
    }

    /// The checksum to verify together with the parity: known, of exactly the columns, and all of them came back.
    fn fused(&self, common: &Common) -> Option<[u64; 4]> {
        let bytes: usize = self.map.data_columns().iter().map(|column| column.length).sum();
        let all = common.mode == ReadMode::Scrub && bytes == common.psize && (0..self.columns.len()).all(|index| self.is_read(index));
        common.fletcher4.filter(|_| all)
    }

    /// Compares what came back with the verified data and the parity that follows from it, unless that is known.
    fn repairs(&self, common: &Common, data: &[Abd], known_parity: Option<Vec<Abd>>) -> Vec<Repair> {
        let parity = self.map.parity;
        let wants_parity = (0..parity).any(|index| !matches!(self.columns[index].state, State::Idle));
        let right_parity = match known_parity {
            Some(known) => known,
            None if wants_parity => {
                let columns: Vec<Abd> = data.iter().map(Abd::to_contiguous).collect();
                math::generate(&columns, parity, self.map.parity_length())
            }
            None => Vec::new(),
        };
        let mut repairs = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            let corrupt = match &column.state {
                State::Idle | State::Pending => continue,
                State::Failed if column.candidates.is_empty() => continue,
                State::Failed => false,
                State::Read(_) if column.stale && common.mode == ReadMode::Normal => continue,
                State::Read(bytes) => {
                    let right = if index < parity { &right_parity[index] } else { &data[index - parity] };
                    if bytes == right {
                        continue;
                    }
                    !column.stale
                }
            };
            let right = if index < parity { &right_parity[index] } else { &data[index - parity] };
            repairs.push(Repair { leaf: column.leaf, offset: column.offset, data: right.clone(), corrupt });
        }
        repairs
    }
}

impl Column {
    fn new(common: &Common, top: &TopVdev, column: &crate::RaidzColumn) -> Column {
        let tree = &common.tree;
        let mut candidates: Vec<LeafId> =
            top.slots[column.slot].iter().copied().filter(|&leaf| tree.leaf(leaf).state.is_usable()).collect();
        if candidates.len() > 1 {
            candidates.sort_by_key(|&leaf| tree.leaf(leaf).lacks(common.birth));
        }
        let stale = candidates.first().is_some_and(|&leaf| tree.leaf(leaf).lacks(common.birth));
        let state = if candidates.is_empty() { State::Failed } else { State::Idle };
        let leaf = candidates.first().copied().unwrap_or_default();
        Column { candidates, tried: 0, state, leaf, stale, offset: column.offset + LABEL_START_BYTES, length: column.length }
    }
}

/// Steps `choice` (ascending indices below `limit`) to the next combination; false after the last.
fn next_combination(choice: &mut [usize], limit: usize) -> bool {
    let count = choice.len();
    for position in (0..count).rev() {
        if choice[position] < limit - count + position {
            choice[position] += 1;
            for next in position + 1..count {
                choice[next] = choice[next - 1] + 1;
            }
            return true;
        }
    }
    false
}
