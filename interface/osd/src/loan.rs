//! Loans: buffers that are lent to be filled, laid out as the blocks that they will be in.

use abd::{Abd, AbdPart, PAGE_BYTES};
use std::ops::{Deref, DerefMut, Range};

/// Bytes of a page of memory.
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;

/// Buffer for a range of an object's bytes; what is in it before it is filled is no matter.
#[derive(Debug)]
pub struct Loan {
    offset: u64,
    part: AbdPart,
}

impl Loan {
    /// Offset in the object, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Buffers for ranges; those that follow each other are one piece of memory, at the same place within a page as in the object.
    pub(crate) fn make(ranges: &[Range<u64>]) -> Vec<Loan> {
        let mut loans = Vec::with_capacity(ranges.len());
        for run in ranges.chunk_by(|one, next| one.end == next.start) {
            let Some(first) = run.first() else { continue };
            let lengths: Vec<usize> = run.iter().map(|range| range.end.saturating_sub(range.start) as usize).collect();
            let before = (first.start % PAGE) as usize;
            let memory = AbdPart::scratch(before + lengths.iter().sum::<usize>()).split_at(before).1;
            let parts = memory.split_lengths(lengths);
            loans.extend(run.iter().zip(parts).map(|(range, part)| Loan { offset: range.start, part }));
        }
        loans
    }

    /// Bytes of loans in runs that follow each other, each with its offset, without a copy. Of those that overlap the last one given counts.
    pub(crate) fn runs(loans: Vec<Loan>) -> Vec<(u64, Abd)> {
        let mut runs: Vec<(u64, u64, Vec<AbdPart>)> = Vec::new();
        for loan in loans {
            let end = loan.offset + loan.part.len() as u64;
            match runs.last_mut().filter(|run| run.1 == loan.offset) {
                Some(run) => {
                    run.1 = end;
                    run.2.push(loan.part);
                }
                None => runs.push((loan.offset, end, vec![loan.part])),
            }
        }
        runs.into_iter().map(|(offset, _, parts)| (offset, Abd::join(parts))).collect()
    }
}

impl Deref for Loan {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.part
    }
}

impl DerefMut for Loan {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.part
    }
}

#[cfg(test)]
mod tests {
    use super::{Loan, PAGE};

    /// If this fails, what a network wrote into buffers is copied on its way to the devices.
    #[test]
    fn neighbours_are_one_piece_of_memory_and_come_back_as_one() {
        let ranges = [4096..8192, 8192..70_000, 100_100..100_200];
        let mut loans = Loan::make(&ranges);
        assert_eq!(
            loans.iter().map(|loan| (loan.offset(), loan.len())).collect::<Vec<_>>(),
            [(4096, 4096), (8192, 61_808), (100_100, 100)]
        );
        for (number, loan) in loans.iter_mut().enumerate() {
            assert_eq!(loan.as_ptr() as u64 % PAGE, loan.offset() % PAGE);
            loan.fill(number as u8 + 1);
        }
        let runs = Loan::runs(loans);
        assert_eq!(runs.iter().map(|(offset, data)| (*offset, data.len())).collect::<Vec<_>>(), [(4096, 65_904), (100_100, 100)]);
        assert_eq!(runs[0].1.extents().count(), 1);
        assert!(runs[0].1.to_vec()[..4096] == [1; 4096] && runs[1].1.to_vec() == [3; 100]);
    }
}
