//! Disjoint writable parts of one buffer: fill them on several threads, then join them again without a copy.
//!
//! The way of a RAID-Z read: one logical buffer, one part per data column, each device reads straight into its part, and
//! [`Abd::join`] gives the contiguous block.

use crate::aligned::OwnedRange;
use crate::{Abd, Runs};
use std::io::IoSliceMut;
use std::ops::{Deref, DerefMut};

/// An exclusively owned, contiguous, writable part of an allocation.
///
/// Not `Clone`; other parts and slices of the same allocation may exist but never cover the same bytes.
#[derive(Debug)]
pub struct AbdPart(OwnedRange);

impl AbdPart {
    /// A part that is a whole fresh allocation; its contents are unspecified (but initialized).
    pub fn scratch(length: usize) -> AbdPart {
        AbdPart(OwnedRange::allocate(length))
    }

    /// Cuts the part at `middle` bytes; panics when `middle` exceeds its length.
    pub fn split_at(self, middle: usize) -> (AbdPart, AbdPart) {
        let (head, tail) = self.0.split_at(middle);
        (AbdPart(head), AbdPart(tail))
    }

    /// Cuts the part into consecutive parts of the given lengths, whose sum must be its length (else it panics).
    pub fn split_lengths(self, lengths: impl IntoIterator<Item = usize>) -> Vec<AbdPart> {
        let mut parts = Vec::new();
        let mut rest = self;
        for length in lengths {
            let (head, tail) = rest.split_at(length);
            parts.push(head);
            rest = tail;
        }
        assert!(rest.is_empty(), "{} bytes are in no part", rest.len());
        parts
    }

    /// Gives up exclusivity: a readable buffer of the same bytes, without a copy.
    pub fn freeze(self) -> Abd {
        let length = self.0.len();
        Abd { runs: Runs::One(self.0.into_shared()), length }
    }
}

impl Deref for AbdPart {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for AbdPart {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

impl Abd {
    /// A fresh buffer cut into consecutive writable parts of the given lengths; [`Abd::join`] makes it one buffer again.
    pub fn scratch_parts(lengths: &[usize]) -> Vec<AbdPart> {
        AbdPart::scratch(lengths.iter().sum()).split_lengths(lengths.iter().copied())
    }

    /// Takes the buffer for writing: without a copy when it is one run that nobody else holds, else as a copy.
    pub fn into_part(self) -> AbdPart {
        let (runs, length) = (self.runs, self.length);
        let shared = match runs {
            Runs::One(run) => match run.into_owned() {
                Ok(owned) => return AbdPart(owned),
                Err(run) => Runs::One(run),
            },
            many => many,
        };
        let mut part = AbdPart::scratch(length);
        Abd { runs: shared, length }.copy_to(0, &mut part);
        part
    }

    /// The parts in order as one buffer, without a copy: neighbours of one allocation become one run again, so that parts
    /// made by [`Abd::scratch_parts`] give a contiguous buffer; parts of different allocations give a gang.
    pub fn join(parts: impl IntoIterator<Item = AbdPart>) -> Abd {
        let mut abd = Abd::default();
        for part in parts {
            abd.push_run(part.0.into_shared());
        }
        abd
    }
}

/// The parts as a scatter list for a vectored read.
pub fn io_slices_mut(parts: &mut [AbdPart]) -> Vec<IoSliceMut<'_>> {
    parts.iter_mut().filter(|part| !part.is_empty()).map(|part| IoSliceMut::new(part)).collect()
}

/// Copies `source` into the parts in order, from the first byte of the first; returns how many bytes fitted.
pub fn fill_parts(parts: &mut [AbdPart], source: &[u8]) -> usize {
    crate::stats::copied(source.len());
    let mut done = 0;
    for part in parts {
        let count = part.len().min(source.len() - done);
        part[..count].copy_from_slice(&source[done..done + count]);
        done += count;
    }
    done
}
