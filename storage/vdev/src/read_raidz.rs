//! The read machine of RAID-Z and dRAID: columns, known failures, and the search for silent corruption.
//!
//! A dRAID block at the end of a group has two rows, each with parity of its own. Behind a dRAID column's data lie zeros that
//! parity counts in: a scrub reads and compares them, a plain read leaves them alone (OpenZFS: `vdev_draid_map_alloc_read`,
//! `vdev_draid_map_verify_empty`).
//!
//! Columns on leaves that sit out are not read while parity makes up for them. Where something else fails they are, before the block is lost; and so are
//! all, once it did not verify.
//!
//! Several leaves can hold the same column: a device and the spare that stands in for it. Which of them lacks a block is known from
//! the dirty time logs, and not at all before those are read: then what the others hold is tried in every mixture.

use crate::read_step::{
    Common, ComputedRow, LostRow, Mending, MendingColumn, ReadFailure, ReadMode, ReadOutcome, ReadStep, Repair, SITS_OUT, Verify,
};
use crate::spread::Children;
use crate::{LeafId, LeafIo, Part, RaidzColumn, RaidzMap, TopVdev, math};
use abd::Abd;

/// Most mixtures of what the leaves of several columns hold that are tried.
const MIXTURES_MAX: usize = 256;

#[derive(Debug)]
enum State {
    /// The column was not read yet.
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
    /// Usable leaves of the slot, those that lack the txg last, and before them those that sit out.
    candidates: Vec<LeafId>,
    tried: usize,
    state: State,
    /// The leaf being read, or that was read last.
    leaf: LeafId,
    /// Number of candidates that do not lack the block's txg.
    fresh: usize,
    /// Number of those that do not sit out.
    awake: usize,
    /// Usable leaves that lack the block's txg and are to have it: the last of the candidates.
    lacking: usize,
    /// Candidates beside the one that was read first or last: with no bytes those before it that did not answer, then what those brought
    /// that were asked because nothing that the first one brought made the block verify.
    others: Vec<(LeafId, Option<Abd>)>,
    /// Version whose bytes count: 0 for those read first, else the others' with that number.
    version: usize,
    offset: u64,
    /// Bytes to read: the column's own, or with the zeros behind them.
    length: usize,
    /// Length in bytes without the zeros; 0 for a column that holds nothing but zeros.
    data_length: usize,
    /// Length in bytes with the zeros.
    padded: usize,
    /// Other places of the column, as the vdev is being expanded: the usable leaf, its offset, and whether it lacks the block.
    shadows: Vec<(LeafId, u64, bool)>,
}

#[derive(Debug)]
pub(crate) struct Raidz {
    map: RaidzMap,
    columns: Vec<Column>,
    /// Columns of the I/Os that are out, in the order issued.
    pending: Vec<usize>,
    /// True when the data as it came back did not verify.
    mismatch: bool,
    /// True when what other leaves hold of columns that were read came back last, after what was read first did not verify.
    has_others: bool,
    /// True when a scrub has asked all leaves that should have a column, not only the first of each.
    has_asked_all: bool,
    /// Rows that somebody else computed.
    computed: Vec<ComputedRow>,
}

impl Raidz {
    pub(crate) fn start(common: &Common, top: &TopVdev, offset: u64, load: &dyn Fn(LeafId) -> u64) -> (Raidz, ReadStep) {
        let map = RaidzMap::new(top, offset, common.length, common.birth);
        let mut columns: Vec<Column> = map.columns.iter().map(|column| Column::new(common, top, column, load)).collect();
        for shadow in map.shadows() {
            columns[shadow.index].add_shadow(common, top, &shadow.column);
        }
        let (pending, computed) = (Vec::new(), Vec::new());
        let mut raidz = Raidz { map, columns, pending, mismatch: false, has_others: false, has_asked_all: false, computed };
        let step = raidz.advance(common, &mut |_| false);
        (raidz, step)
    }

    /// Takes the results of the I/Os that were out.
    pub(crate) fn take(&mut self, results: Vec<Option<Abd>>) {
        let pending = std::mem::take(&mut self.pending);
        let (mut results, mut has_others) = (results.into_iter(), false);
        for index in pending {
            let column = &mut self.columns[index];
            let bytes = results.next().flatten().filter(|bytes| bytes.len() == column.length);
            if let State::Read(_) = column.state {
                column.others.push((column.candidates[column.tried], bytes));
                column.tried += 1;
                has_others = true;
                continue;
            }
            column.state = match bytes {
                Some(bytes) => State::Read(bytes),
                None if column.tried < column.candidates.len() => {
                    column.others.push((column.leaf, None));
                    State::Idle
                }
                None => State::Failed,
            };
        }
        // A scrub asks all of them before anything was tried.
        self.has_others = has_others && self.mismatch;
    }

    /// Goes on with what came back.
    pub(crate) fn proceed(&mut self, common: &Common, verify: Verify<'_>) -> ReadStep {
        if self.has_others { self.search_mixtures(common, verify) } else { self.advance(common, verify) }
    }

    /// True when a data column is known to have failed, or is on leaves only that lack the block or sit out, or a leaf is to have a parity column that
    /// it lacks.
    pub(crate) fn lacks_columns(&self) -> bool {
        let lacks = |index: usize| match (&self.columns[index].state, self.map.parity_index(index)) {
            (State::Read(_) | State::Pending, _) => false,
            (_, Some(_)) => self.columns[index].is_to_be_repaired(),
            (State::Failed, None) => true,
            (State::Idle, None) => !self.columns[index].is_awake(),
        };
        (0..self.columns.len()).any(lacks)
    }

    /// The rows whose lost columns can be computed now; none when something is still to be read, or when wrong bytes are being
    /// looked for.
    pub(crate) fn lost_rows(&self, common: &Common) -> Vec<LostRow> {
        // A sector a column is no work to hand over.
        if self.mismatch || self.map.is_spread() || self.is_to_ask_all(common) || !self.wanted(common).is_empty() {
            return Vec::new();
        }
        (0..self.map.rows()).filter_map(|row| self.lost_row(row)).collect()
    }

    fn lost_row(&self, row: usize) -> Option<LostRow> {
        let first = row * self.map.width;
        let data: Vec<Option<Abd>> = (first + self.map.parity..first + self.map.width).map(|index| self.trusted(index, &[])).collect();
        let parity: Vec<(usize, Abd)> =
            (0..self.map.parity).filter_map(|number| Some((number, self.trusted(first + number, &[])?))).collect();
        let lost = data.iter().filter(|column| column.is_none()).count();
        let lengths = self.map.data_columns(row).iter().map(|column| column.length).collect();
        let is_wanted = |number: &usize| !self.is_read(first + number) && self.columns[first + number].is_to_be_repaired();
        let wanted_parity: Vec<usize> = (0..self.map.parity).filter(is_wanted).collect();
        let is_lacking = lost > 0 || !wanted_parity.is_empty();
        (is_lacking && lost <= parity.len()).then_some(LostRow { row, parities: self.map.parity, parity, data, lengths, wanted_parity })
    }

    /// See [`crate::ReadJob::mending`].
    pub(crate) fn mending(&self, common: &Common) -> Option<Mending> {
        if common.mode != ReadMode::Resilver || self.map.rows() != 1 || self.map.is_spread() {
            return None;
        }
        let parities = self.map.parity;
        let columns = self.columns.iter().map(Column::mending).collect::<Option<Vec<MendingColumn>>>()?;
        let computed = columns.iter().filter(|column| column.length > 0 && column.from.is_none()).count();
        let is_lacking = columns.iter().any(|column| !column.to.is_empty());
        (is_lacking && (1..=parities).contains(&computed)).then_some(Mending { parities, columns })
    }

    /// Goes on after [`Raidz::take`]; `computed` columns count as long as the block verifies with them.
    pub(crate) fn go_on(&mut self, common: &Common, computed: Vec<ComputedRow>, verify: Verify<'_>) -> ReadStep {
        self.computed = computed;
        if !self.computed.is_empty()
            && let Some(step) = self.attempt(common, &[], verify)
        {
            return step;
        }
        self.computed.clear();
        self.proceed(common, verify)
    }

    /// The data columns that somebody else computed of a row, if they have the right form.
    fn computed_row(&self, row: usize) -> Option<Vec<Abd>> {
        let columns = &self.computed.iter().find(|computed| computed.row == row)?.data;
        let expected = self.map.data_columns(row).iter().map(|column| column.length);
        (columns.len() == self.map.width - self.map.parity && columns.iter().map(Abd::len).eq(expected)).then(|| columns.clone())
    }

    /// A parity column that somebody else computed, if it has the right form.
    fn computed_parity(&self, row: usize, number: usize) -> Option<&Abd> {
        let computed = self.computed.iter().find(|computed| computed.row == row)?;
        let (_, parity) = computed.parity.iter().find(|(of, _)| *of == number)?;
        Some(parity).filter(|parity| parity.len() == self.map.parity_length(row))
    }

    fn is_read(&self, index: usize) -> bool {
        matches!(self.columns[index].state, State::Read(_))
    }
    fn is_idle(&self, index: usize) -> bool {
        matches!(self.columns[index].state, State::Idle)
    }

    /// True for a scrub while leaves that should have a column that was read were not asked for it.
    fn is_to_ask_all(&self, common: &Common) -> bool {
        let is_unasked = |index: usize| self.is_read(index) && self.columns[index].tried < self.columns[index].fresh;
        common.mode == ReadMode::Scrub && !self.has_asked_all && (0..self.columns.len()).any(is_unasked)
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

    /// Columns of a row to read next: without those that sit out if that does, with them if not.
    fn wanted_of_row(&self, row: usize) -> Vec<usize> {
        let columns = row * self.map.width..(row + 1) * self.map.width;
        let idle = |index: &usize| self.is_idle(*index);
        let awake = self.enough_of_row(row, &|index| self.columns[index].is_awake());
        let fresh = || self.enough_of_row(row, &|index| !self.columns[index].is_stale());
        // Not enough fresh columns: the stale ones may still hold the right bytes.
        awake.or_else(fresh).unwrap_or_else(|| columns.filter(idle).collect())
    }

    /// The columns that `counts` picks and that are still to be read so that the row is whole or can be computed; None when that takes others.
    fn enough_of_row(&self, row: usize, counts: &dyn Fn(usize) -> bool) -> Option<Vec<usize>> {
        let first = row * self.map.width;
        let (parities, columns) = (first..first + self.map.parity, first + self.map.parity..first + self.map.width);
        let picked = |index: &usize| self.is_idle(*index) && counts(*index);
        let data: Vec<usize> = columns.clone().filter(picked).collect();
        let absent = columns.filter(|&index| !self.is_read(index)).count() - data.len();
        let have = parities.clone().filter(|&index| self.is_read(index)).count();
        let more = absent.saturating_sub(have);
        let mut wanted: Vec<usize> = parities.filter(picked).take(more).collect();
        if wanted.len() < more {
            return None;
        }
        wanted.extend(data);
        Some(wanted)
    }

    fn issue(&mut self, wanted: Vec<usize>) -> ReadStep {
        let mut ios = Vec::with_capacity(wanted.len());
        for &index in &wanted {
            let column = &mut self.columns[index];
            column.leaf = column.candidates[column.tried];
            column.tried += 1;
            column.state = State::Pending;
            let leaf = column.leaf;
            ios.push(self.io(index, leaf));
        }
        self.pending = wanted;
        ReadStep::Issue(ios)
    }

    fn io(&self, index: usize, leaf: LeafId) -> LeafIo {
        let column = &self.columns[index];
        let part = self.map.parity_index(index).map_or_else(|| Part::Data(self.map.columns[index].data.clone()), Part::Parity);
        LeafIo { leaf, offset: column.offset, length: column.length, part, column: index as u32 }
    }

    /// Asks the leaves that hold the same columns as those that were read; None when there are none, or they could not help.
    fn ask_others(&mut self) -> Option<ReadStep> {
        if self.is_complete() { self.ask(|column| column.data_length > 0, |column| column.candidates.len()) } else { None }
    }

    /// Asks, of the columns that were read and for which `counts` holds, the leaves that were not asked up to the number `until`; None when there
    /// are none.
    fn ask(&mut self, counts: impl Fn(&Column) -> bool, until: impl Fn(&Column) -> usize) -> Option<ReadStep> {
        let (mut pending, mut ios) = (Vec::new(), Vec::new());
        for index in (0..self.columns.len()).filter(|&index| self.is_read(index) && counts(&self.columns[index])) {
            let column = &self.columns[index];
            for &leaf in column.candidates.get(column.tried..until(column)).unwrap_or_default() {
                pending.push(index);
                ios.push(self.io(index, leaf));
            }
        }
        self.pending = pending;
        (!ios.is_empty()).then_some(ReadStep::Issue(ios))
    }

    fn advance(&mut self, common: &Common, verify: Verify<'_>) -> ReadStep {
        loop {
            let wanted = self.wanted(common);
            if !wanted.is_empty() {
                return self.issue(wanted);
            }
            // What a device and its spare have is looked at on both (OpenZFS: `vdev_mirror_io_start`): a rebuild may have copied what is wrong.
            if self.is_to_ask_all(common) {
                self.has_asked_all = true;
                if let Some(step) = self.ask(|_| true, |column| column.fresh) {
                    return step;
                }
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

    /// Looks for columns that are wrong; when that does not help, for leaves that hold them too.
    fn search(&mut self, common: &Common, verify: Verify<'_>) -> ReadStep {
        self.mismatch = true;
        if let Some(step) = self.suspect(common, verify).or_else(|| self.ask_others()) {
            return step;
        }
        if self.has_asked_all { self.search_mixtures(common, verify) } else { self.lost() }
    }

    /// Searches with what other leaves hold in place of what was read first, in every mixture.
    fn search_mixtures(&mut self, common: &Common, verify: Verify<'_>) -> ReadStep {
        let versions = self.columns.iter().enumerate().map(|(index, column)| (index, column.versions()));
        let doubts: Vec<(usize, Vec<usize>)> = versions.filter(|(_, versions)| versions.len() > 1).collect();
        let mixtures = doubts.iter().fold(1usize, |product, (_, versions)| product.saturating_mul(versions.len()));
        // The first mixture is what was read first, and was searched.
        for number in 1..mixtures.min(MIXTURES_MAX) {
            let mut rest = number;
            for (index, versions) in &doubts {
                self.columns[*index].version = versions[rest % versions.len()];
                rest /= versions.len();
            }
            if let Some(step) = self.attempt(common, &[], verify).or_else(|| self.suspect(common, verify)) {
                return step;
            }
        }
        self.lost()
    }

    /// Suspects ever larger sets of what came back, until one set makes the block verify: devices, with their columns in every
    /// row; then, where there are two rows, columns of each row on their own.
    fn suspect(&self, common: &Common, verify: Verify<'_>) -> Option<ReadStep> {
        let read: Vec<usize> = (0..self.columns.len()).filter(|&index| self.counts(index) && self.is_read(index)).collect();
        let parity = self.map.parity;
        let least_failed = (0..self.map.rows()).map(|row| self.failed(row)).min().unwrap_or(0);
        let most = parity.saturating_sub(least_failed);
        if let Some(children) = self.map.children() {
            // As many sets of columns as there are sectors would never end; who failed is a device, perhaps of a time when there were fewer.
            let on = |chosen: Vec<usize>| {
                read.iter().copied().filter(|&index| chosen.iter().any(|&child| children.has(child, &self.map, index))).collect()
            };
            let all: Vec<usize> = (0..children.count()).collect();
            let found = self.suspect_each(common, &all, most, on, verify);
            return found.or_else(|| self.suspect_cuts(common, &children, (read.as_slice(), most), verify));
        }
        let mut slots: Vec<usize> = read.iter().map(|&index| self.map.columns[index].slot).collect();
        if self.map.rows() > 1 {
            slots.sort_unstable();
            slots.dedup();
            let on = |slots: Vec<usize>| read.iter().copied().filter(|&index| slots.contains(&self.map.columns[index].slot)).collect();
            if let Some(step) = self.suspect_each(common, &slots, most, on, verify) {
                return Some(step);
            }
        }
        self.suspect_each(common, &read, most, |columns| columns, verify)
    }

    /// Suspects devices that failed when a part of the block had been moved to one child more; what was wrong of the rest was moved later.
    fn suspect_cuts(&self, common: &Common, children: &Children, (read, most): (&[usize], usize), verify: Verify<'_>) -> Option<ReadStep> {
        for cut in children.cuts(&self.map, most) {
            let has = |index: usize, chosen: &[usize]| chosen.iter().any(|&child| cut.has(child, &self.map, index));
            let on = |chosen: Vec<usize>| read.iter().copied().filter(|&index| has(index, &chosen)).collect();
            let all: Vec<usize> = (0..cut.width).collect();
            if let Some(step) = self.suspect_each(common, &all, most, on, verify) {
                return Some(step);
            }
        }
        None
    }

    /// True when so much came back that the block could be computed, were it right.
    fn is_complete(&self) -> bool {
        (0..self.map.rows()).all(|row| self.failed(row) <= self.map.parity)
    }

    fn lost(&self) -> ReadStep {
        let complete = self.is_complete();
        let mut suspects = Vec::new();
        for index in (0..self.columns.len()).filter(|&index| complete && self.counts(index) && self.is_read(index)) {
            let column = &self.columns[index];
            suspects.push(column.leaf);
            suspects.extend(column.others.iter().filter(|(_, bytes)| bytes.is_some()).map(|(leaf, _)| *leaf));
        }
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
        if column.data_length == 0 {
            return Some(Abd::default());
        }
        let bytes = column.bytes().filter(|_| !suspects.contains(&index) && column.is_there())?;
        Some(if bytes.len() == column.data_length { bytes.clone() } else { bytes.slice(0..column.data_length) })
    }

    /// The data columns of `row` with those in `suspects` taken as lost, if they can be computed.
    fn solve_row(&self, row: usize, suspects: &[usize]) -> Option<Vec<Abd>> {
        let first = row * self.map.width;
        let data_columns = first + self.map.parity..first + self.map.width;
        let mut data: Vec<Option<Abd>> = data_columns.map(|index| self.trusted(index, suspects)).collect();
        if data.iter().all(Option::is_some) {
            return Some(data.into_iter().flatten().collect());
        }
        if suspects.is_empty()
            && let Some(columns) = self.computed_row(row)
        {
            return Some(columns);
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
            let repairs = self.repairs(common, &rows, &[parity.into_iter().map(Some).collect()]);
            return Some(ReadStep::Done(ReadOutcome { data: Abd::gang(&rows[0]), repairs }));
        }
        let block = self.block_of(&rows);
        let block = if block.len() == common.psize { block } else { block.slice(0..common.psize) };
        if !verify(&block) {
            return None;
        }
        let parity: Vec<_> = rows.iter().enumerate().map(|(row, data)| self.right_parity(row, data, suspects)).collect();
        let repairs = self.repairs(common, &rows, &parity);
        Some(ReadStep::Done(ReadOutcome { data: block, repairs }))
    }

    /// The block that the data columns of its rows make up.
    fn block_of(&self, rows: &[Vec<Abd>]) -> Abd {
        match rows {
            [row] => Abd::gang(row),
            _ if !self.map.is_spread() => Abd::gang(&rows.concat()),
            _ => {
                // Neighbours in the block lie in different rows.
                let placed = |(row, columns): (usize, &Vec<Abd>)| {
                    let starts: Vec<usize> = self.map.data_columns(row).iter().map(|column| column.data.start).collect();
                    starts.into_iter().zip(columns.clone()).filter(|(_, bytes)| !bytes.is_empty()).collect::<Vec<_>>()
                };
                let mut parts: Vec<(usize, Abd)> = rows.iter().enumerate().flat_map(placed).collect();
                parts.sort_by_key(|(start, _)| *start);
                Abd::gang(&parts.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>()).to_contiguous()
            }
        }
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

    /// Parity columns of a row with the verified `data` that something is to be compared with or repaired from; no columns at all when
    /// nothing is.
    ///
    /// What the lost columns were computed from, and nothing more than that, is right when they are.
    fn right_parity(&self, row: usize, data: &[Abd], suspects: &[usize]) -> Vec<Option<Abd>> {
        let first = row * self.map.width;
        let is_idle = |column: &Column| matches!(column.state, State::Idle) && !column.is_to_be_repaired();
        if self.columns[first..first + self.map.parity].iter().all(is_idle) {
            return Vec::new();
        }
        let came = |index: &usize| self.columns[*index].is_there();
        let lost = (first + self.map.parity..first + self.map.width).filter(|index| !came(index)).count();
        let is_proven = suspects.is_empty() && (first..first + self.map.parity).filter(came).count() == lost;
        let is_wanted = |number: usize| {
            let column = &self.columns[first + number];
            let is_compared = matches!(&column.state, State::Read(bytes) if !is_proven || bytes.len() != column.data_length);
            is_compared || column.is_to_be_repaired()
        };
        let wanted: Vec<usize> = (0..self.map.parity).filter(|&number| is_wanted(number)).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let mut right = vec![None; self.map.parity];
        let computed: Option<Vec<&Abd>> = wanted.iter().map(|&number| self.computed_parity(row, number)).collect();
        if let Some(computed) = computed {
            wanted.iter().zip(computed).for_each(|(&number, parity)| right[number] = Some(parity.clone()));
            return right;
        }
        let columns: Vec<Abd> = data.iter().map(Abd::to_contiguous).collect();
        math::generate(&columns, self.map.parity, self.map.parity_length(row)).into_iter().map(Some).collect()
    }

    /// Compares what came back with the verified data and with what is known of the parity that follows from it, row by row.
    fn repairs(&self, common: &Common, data: &[Vec<Abd>], parity: &[Vec<Option<Abd>>]) -> Vec<Repair> {
        let map = &self.map;
        let right = |index: usize| {
            let (row, position) = (index / map.width, index % map.width);
            if position < map.parity { parity[row].get(position)?.as_ref() } else { Some(&data[row][position - map.parity]) }
        };
        let mut repairs = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            let Some(right) = right(index) else { continue };
            let repair = |leaf, corrupt| Repair { leaf, offset: column.offset, data: column.padded_with_zeros(right), corrupt };
            // Leaves of the slot that lack the block and were not looked at.
            let lacking = &column.candidates[column.tried.max(column.candidates.len() - column.lacking)..];
            repairs.extend(lacking.iter().map(|&leaf| repair(leaf, false)));
            let asked = match &column.state {
                State::Idle | State::Pending => None,
                State::Failed if column.candidates.is_empty() => None,
                State::Failed => Some((column.leaf, None)),
                State::Read(bytes) => Some((column.leaf, Some(bytes))),
            };
            let others = column.others.iter().map(|(leaf, bytes)| (*leaf, bytes.as_ref()));
            for (leaf, bytes) in asked.into_iter().chain(others) {
                let lacks = column.lacks(leaf);
                let is_fine = |bytes: &Abd| (lacks && common.mode == ReadMode::Normal) || column.is_right(bytes, right);
                if !bytes.is_some_and(is_fine) {
                    repairs.push(repair(leaf, bytes.is_some() && !lacks));
                }
            }
        }
        // Nobody looked at the other places. Where a part of the block was wrong, they may be, too.
        let is_repaired = !repairs.is_empty();
        let is_needed = |lacks: bool| is_repaired || (lacks && common.mode != ReadMode::Normal);
        for (index, column) in self.columns.iter().enumerate().filter(|(_, column)| !column.shadows.is_empty()) {
            let Some(right) = right(index) else { continue };
            let shadows = column.shadows.iter().filter(|(.., lacks)| is_needed(*lacks));
            repairs.extend(shadows.map(|&(leaf, offset, _)| Repair {
                leaf,
                offset,
                data: column.padded_with_zeros(right),
                corrupt: false,
            }));
        }
        repairs
    }
}

impl Column {
    fn new(common: &Common, top: &TopVdev, column: &RaidzColumn, load: &dyn Fn(LeafId) -> u64) -> Column {
        let tree = &common.tree;
        // Those that lack the block's txg, and those that sit out.
        let mut holders: Vec<(bool, bool, LeafId)> = Vec::with_capacity(1);
        top.each_holder(tree, column.slot, column.offset, &mut |leaf, chain| {
            if chain.iter().all(|&link| tree.leaf(link).state.is_usable()) {
                let lacks = chain.iter().any(|&link| tree.leaf(link).lacks(common.birth));
                holders.push((lacks, !lacks && load(leaf) == SITS_OUT, leaf));
            }
        });
        if holders.len() > 1 {
            holders.sort_by_key(|&(lacks, sits, _)| (lacks, sits));
        }
        let fresh = holders.iter().filter(|(lacks, ..)| !lacks).count();
        let awake = holders.iter().filter(|(lacks, sits, _)| !lacks && !sits).count();
        let lacking = if common.mode == ReadMode::Normal { 0 } else { holders.len() - fresh };
        let candidates: Vec<LeafId> = holders.into_iter().map(|(.., leaf)| leaf).collect();
        let length = if common.mode == ReadMode::Scrub { column.padded } else { column.length };
        let state = match candidates.first() {
            _ if length == 0 => State::Read(Abd::default()),
            None => State::Failed,
            Some(_) => State::Idle,
        };
        let leaf = candidates.first().copied().unwrap_or_default();
        let offset = column.device_offset();
        let (data_length, padded) = (column.length, column.padded);
        Column {
            candidates,
            tried: 0,
            state,
            leaf,
            fresh,
            awake,
            lacking,
            others: Vec::new(),
            version: 0,
            offset,
            length,
            data_length,
            padded,
            shadows: Vec::new(),
        }
    }

    /// Notes another place of the column.
    fn add_shadow(&mut self, common: &Common, top: &TopVdev, place: &RaidzColumn) {
        let tree = &common.tree;
        top.each_holder(tree, place.slot, place.offset, &mut |leaf, chain| {
            if chain.iter().all(|&link| tree.leaf(link).state.is_usable()) {
                let lacks = chain.iter().any(|&link| tree.leaf(link).lacks(common.birth));
                self.shadows.push((leaf, place.device_offset(), lacks));
            }
        });
    }

    /// The column as somebody else could restore it; None when its I/O brought something already, or goes to a leaf that lacks it, or zeros lie behind it.
    fn mending(&self) -> Option<MendingColumn> {
        let from = match self.state {
            State::Pending => Some(self.leaf),
            State::Read(_) if self.data_length > 0 => return None,
            _ => None,
        };
        if self.data_length != self.padded || from.is_some_and(|leaf| self.lacks(leaf)) {
            return None;
        }
        let first = self.tried.max(self.candidates.len() - self.lacking);
        let to = if self.data_length == 0 { Vec::new() } else { self.candidates[first..].to_vec() };
        Some(MendingColumn { offset: self.offset, length: self.data_length, from, to })
    }

    /// True when every usable leaf that was not asked yet lacks the block's txg: read only when nothing else helps.
    fn is_stale(&self) -> bool {
        self.tried >= self.fresh && !self.candidates.is_empty()
    }

    /// True when a usable leaf that was not asked yet has the block's txg and does not sit out.
    fn is_awake(&self) -> bool {
        self.tried < self.awake
    }

    fn lacks(&self, leaf: LeafId) -> bool {
        self.candidates[self.fresh..].contains(&leaf)
    }

    /// True when the column's bytes came back, or it has none.
    fn is_there(&self) -> bool {
        self.data_length == 0 || self.bytes().is_some_and(|bytes| bytes.len() >= self.data_length)
    }

    /// True when a leaf lacks it and is to have it, or did not deliver it.
    fn is_to_be_repaired(&self) -> bool {
        self.lacking > 0 || !self.others.is_empty() || (matches!(self.state, State::Failed) && !self.candidates.is_empty())
    }

    /// The bytes that count.
    fn bytes(&self) -> Option<&Abd> {
        match &self.state {
            State::Read(bytes) if self.version == 0 => Some(bytes),
            State::Read(_) => self.others[self.version - 1].1.as_ref(),
            _ => None,
        }
    }

    /// The versions of its bytes that differ, what was read first before the others.
    fn versions(&self) -> Vec<usize> {
        let (mut versions, mut known) = (vec![0], Vec::new());
        known.extend(self.bytes());
        for (index, (_, bytes)) in self.others.iter().enumerate() {
            if let Some(bytes) = bytes.as_ref().filter(|bytes| !known.contains(bytes)) {
                versions.push(index + 1);
                known.push(bytes);
            }
        }
        versions
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
