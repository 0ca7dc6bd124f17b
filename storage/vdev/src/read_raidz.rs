//! The read machine of RAID-Z and dRAID: columns, known failures, and the search for silent corruption.
//!
//! A dRAID block at the end of a group has two rows, each with parity of its own. Behind a dRAID column's data lie zeros that
//! parity counts in: a scrub reads and compares them, a plain read leaves them alone (OpenZFS: `vdev_draid_map_alloc_read`,
//! `vdev_draid_map_verify_empty`).

use crate::read::{Common, ReadFailure, ReadMode, ReadOutcome, ReadStep, Repair, Verify};
use crate::size::LABEL_START_BYTES;
use crate::{LeafId, LeafIo, Part, RaidzColumn, RaidzMap, TopVdev, math};
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
    /// Usable leaves that lack the block's txg and are to have it: the last of the candidates.
    lacking: usize,
    offset: u64,
    /// Bytes to read: the column's own, or with the zeros behind them.
    length: usize,
    /// Without the zeros; 0 for a column that holds nothing but zeros.
    data_length: usize,
    /// With the zeros.
    padded: usize,
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
        if self.mismatch || common.mode == ReadMode::Scrub {
            return (0..self.columns.len()).filter(|&index| self.is_idle(index)).collect();
        }
        if self.map.rows() == 1 {
            return self.wanted_of_row(0);
        }
        (0..self.map.rows()).flat_map(|row| self.wanted_of_row(row)).collect()
    }

    fn wanted_of_row(&self, row: usize) -> Vec<usize> {
        let first = row * self.map.width;
        let (parities, columns) = (first..first + self.map.parity, first + self.map.parity..first + self.map.width);
        let idle = |index: &usize| self.is_idle(*index);
        let fresh = |index: &usize| idle(index) && !self.columns[*index].stale;
        let data: Vec<usize> = columns.clone().filter(fresh).collect();
        let absent = columns.clone().filter(|&index| !self.is_read(index)).count() - data.len();
        let have = parities.clone().filter(|&index| self.is_read(index)).count();
        let more = absent.saturating_sub(have);
        let mut wanted: Vec<usize> = parities.clone().filter(fresh).take(more).collect();
        if wanted.len() < more {
            // Not enough fresh columns: the stale ones may still hold the right bytes.
            wanted = (parities.start..columns.end).filter(idle).collect();
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
            let part = self.map.parity_index(index).map_or_else(|| Part::Data(self.map.columns[index].data.clone()), Part::Parity);
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

    /// True when the column matters: it holds parity or data.
    fn counts(&self, index: usize) -> bool {
        self.columns[index].data_length > 0
    }

    /// Columns of `row` that matter and did not come back.
    fn failed(&self, row: usize) -> usize {
        let columns = row * self.map.width..(row + 1) * self.map.width;
        columns.filter(|&index| self.counts(index) && !self.is_read(index)).count()
    }

    /// Suspects ever larger sets of what came back, until one set makes the block verify: devices, with their columns in every
    /// row; then, where there are two rows, columns of each row on their own.
    fn search(&self, common: &Common, verify: Verify<'_>) -> ReadStep {
        let read: Vec<usize> = (0..self.columns.len()).filter(|&index| self.counts(index) && self.is_read(index)).collect();
        let parity = self.map.parity;
        let least_failed = (0..self.map.rows()).map(|row| self.failed(row)).min().unwrap_or(0);
        let most = parity.saturating_sub(least_failed);
        let mut slots: Vec<usize> = read.iter().map(|&index| self.map.columns[index].slot).collect();
        if self.map.rows() > 1 {
            slots.sort_unstable();
            slots.dedup();
            let on = |slots: Vec<usize>| read.iter().copied().filter(|&index| slots.contains(&self.map.columns[index].slot)).collect();
            if let Some(step) = self.suspect_each(common, &slots, most, on, verify) {
                return step;
            }
        }
        if let Some(step) = self.suspect_each(common, &read, most, |columns| columns, verify) {
            return step;
        }
        let complete = (0..self.map.rows()).all(|row| self.failed(row) <= parity);
        let suspects = if complete { read.iter().map(|&index| self.columns[index].leaf).collect() } else { Vec::new() };
        ReadStep::Lost(ReadFailure { corrupt: complete, suspects })
    }

    /// Tries the sets of at most `most` of `from`, small ones first; `columns` names the columns of a set.
    fn suspect_each(
        &self,
        common: &Common,
        from: &[usize],
        most: usize,
        columns: impl Fn(Vec<usize>) -> Vec<usize>,
        verify: Verify<'_>,
    ) -> Option<ReadStep> {
        for count in 1..=most.min(from.len()) {
            let mut choice: Vec<usize> = (0..count).collect();
            loop {
                let suspects = columns(choice.iter().map(|&index| from[index]).collect());
                if let Some(step) = self.attempt(common, &suspects, verify) {
                    return Some(step);
                }
                if !next_combination(&mut choice, from.len()) {
                    break;
                }
            }
        }
        None
    }

    /// The bytes of a column, unless it did not come back or is in `suspects`. Nobody needs to read that a column is empty.
    fn trusted(&self, index: usize, suspects: &[usize]) -> Option<Abd> {
        let column = &self.columns[index];
        match &column.state {
            _ if column.data_length == 0 => Some(Abd::default()),
            State::Read(bytes) if suspects.contains(&index) || bytes.len() < column.data_length => None,
            State::Read(bytes) if bytes.len() == column.data_length => Some(bytes.clone()),
            State::Read(bytes) => Some(bytes.slice(0..column.data_length)),
            _ => None,
        }
    }

    /// The data columns of `row` with those in `suspects` taken as lost, if they can be computed.
    fn solve_row(&self, row: usize, suspects: &[usize]) -> Option<Vec<Abd>> {
        let first = row * self.map.width;
        let data_columns = first + self.map.parity..first + self.map.width;
        let mut data: Vec<Option<Abd>> = data_columns.map(|index| self.trusted(index, suspects)).collect();
        if data.iter().all(Option::is_some) {
            return Some(data.into_iter().flatten().collect());
        }
        let lengths: Vec<usize> = self.map.data_columns(row).iter().map(|column| column.length).collect();
        let parity = |index: usize| Some((index, self.trusted(first + index, suspects)?.to_contiguous()));
        let parities: Vec<(usize, Abd)> = (0..self.map.parity).filter_map(parity).collect();
        data.iter_mut().flatten().for_each(|column| *column = column.to_contiguous());
        math::solve(&data, &lengths, &parities)
    }

    /// The block with the columns in `suspects` taken as lost, if it can be computed and verifies.
    fn attempt(&self, common: &Common, suspects: &[usize], verify: Verify<'_>) -> Option<ReadStep> {
        let is_data = |index: usize| self.map.parity_index(index).is_none();
        let whole = (0..self.columns.len()).all(|index| !is_data(index) || !self.counts(index) || self.is_read(index));
        if whole && !suspects.is_empty() && !suspects.iter().any(|&index| is_data(index)) {
            return None; // only parity is suspected: nothing new
        }
        let rows = (0..self.map.rows()).map(|row| self.solve_row(row, suspects)).collect::<Option<Vec<_>>>()?;
        if whole
            && suspects.is_empty()
            && let Some(expected) = self.fused(common)
        {
            let columns: Vec<Abd> = rows[0].iter().map(Abd::to_contiguous).collect();
            let (parity, sum) = math::generate_with_fletcher4(&columns, self.map.parity, self.map.parity_length(0));
            if sum != expected {
                return None;
            }
            let repairs = self.repairs(common, &rows, Some(parity));
            return Some(ReadStep::Done(ReadOutcome { data: Abd::gang(&rows[0]), repairs }));
        }
        let block = if let [row] = &rows[..] { Abd::gang(row) } else { Abd::gang(&rows.concat()) };
        let block = if block.len() == common.psize { block } else { block.slice(0..common.psize) };
        if !verify(&block) {
            return None;
        }
        let repairs = self.repairs(common, &rows, None);
        Some(ReadStep::Done(ReadOutcome { data: block, repairs }))
    }

    /// The checksum to verify together with the parity: known, of exactly the columns of one row, and all of them came back.
    fn fused(&self, common: &Common) -> Option<[u64; 4]> {
        if common.mode != ReadMode::Scrub || self.map.rows() != 1 {
            return None;
        }
        let bytes: usize = self.map.data_columns(0).iter().map(|column| column.length).sum();
        let all = bytes == common.psize && (0..self.columns.len()).all(|index| self.is_read(index));
        common.fletcher4.filter(|_| all)
    }

    /// Compares what came back with the verified data and the parity that follows from it, unless that is known.
    fn repairs(&self, common: &Common, data: &[Vec<Abd>], known_parity: Option<Vec<Abd>>) -> Vec<Repair> {
        let map = &self.map;
        let wants = |index: usize| !matches!(self.columns[index].state, State::Idle) || self.columns[index].lacking > 0;
        let wants_parity = |row: usize| (row * map.width..row * map.width + map.parity).any(wants);
        let generate = |row: usize| {
            let columns: Vec<Abd> = data[row].iter().map(Abd::to_contiguous).collect();
            math::generate(&columns, map.parity, map.parity_length(row))
        };
        let right_parity: Vec<Vec<Abd>> = match known_parity {
            Some(known) => vec![known],
            None => (0..map.rows()).map(|row| if wants_parity(row) { generate(row) } else { Vec::new() }).collect(),
        };
        let right = |index: usize| {
            let (row, position) = (index / map.width, index % map.width);
            if position < map.parity { &right_parity[row][position] } else { &data[row][position - map.parity] }
        };
        let mut repairs = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            let repair = |leaf, corrupt| Repair { leaf, offset: column.offset, data: column.padded_with_zeros(right(index)), corrupt };
            // Leaves of the slot that lack the block and were not looked at.
            let lacking = &column.candidates[column.tried.max(column.candidates.len() - column.lacking)..];
            repairs.extend(lacking.iter().map(|&leaf| repair(leaf, false)));
            let corrupt = match &column.state {
                State::Idle | State::Pending => continue,
                State::Failed if column.candidates.is_empty() => continue,
                State::Failed => false,
                State::Read(_) if column.stale && common.mode == ReadMode::Normal => continue,
                State::Read(bytes) if column.is_right(bytes, right(index)) => continue,
                State::Read(_) => !column.stale,
            };
            repairs.push(repair(column.leaf, corrupt));
        }
        repairs
    }
}

impl Column {
    fn new(common: &Common, top: &TopVdev, column: &RaidzColumn) -> Column {
        let tree = &common.tree;
        let mut holders: Vec<(bool, LeafId)> = Vec::with_capacity(1);
        top.each_holder(tree, column.slot, column.offset, &mut |leaf, chain| {
            if chain.iter().all(|&link| tree.leaf(link).state.is_usable()) {
                holders.push((chain.iter().any(|&link| tree.leaf(link).lacks(common.birth)), leaf));
            }
        });
        if holders.len() > 1 {
            holders.sort_by_key(|&(lacks, _)| lacks);
        }
        let stale = holders.first().is_some_and(|&(lacks, _)| lacks);
        let lacking = if common.mode == ReadMode::Normal { 0 } else { holders.iter().filter(|(lacks, _)| *lacks).count() };
        let candidates: Vec<LeafId> = holders.into_iter().map(|(_, leaf)| leaf).collect();
        let length = if common.mode == ReadMode::Scrub { column.padded } else { column.length };
        let state = match candidates.first() {
            _ if length == 0 => State::Read(Abd::default()),
            None => State::Failed,
            Some(_) => State::Idle,
        };
        let leaf = candidates.first().copied().unwrap_or_default();
        let offset = column.offset + LABEL_START_BYTES;
        Column { candidates, tried: 0, state, leaf, stale, lacking, offset, length, data_length: column.length, padded: column.padded }
    }

    /// True when `bytes`, as they were read, are `right` and zeros.
    fn is_right(&self, bytes: &Abd, right: &Abd) -> bool {
        if bytes.len() == right.len() {
            return bytes == right;
        }
        bytes.slice(0..right.len()) == *right && bytes.slice(right.len()..bytes.len()).is_zero()
    }

    fn padded_with_zeros(&self, right: &Abd) -> Abd {
        if right.len() == self.padded { right.clone() } else { Abd::gang(&[right.clone(), Abd::zeroed(self.padded - right.len())]) }
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
