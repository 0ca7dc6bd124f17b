//! Disjoint writable parts of one buffer: fill them on several threads, then join them again without a copy.
//!
//! The way of a RAID-Z read: one logical buffer, one part per data column, each device reads straight into its part, and
//! [`Abd::join`] gives the contiguous block.

use crate::abd::{Abd, Runs};
use crate::aligned::{OwnedRange, lend_exclusive};
use crate::shared::SharedPages;
use exec::Exec;
use std::io::IoSliceMut;
use std::ops::{Deref, DerefMut, Range};

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

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Address at which the part starts, for looking at its alignment and for the kernel.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.address()
    }

    /// True when somebody else may change the bytes at any time: then no slice of them can be had, see [`Abd::is_unstable`].
    pub fn is_unstable(&self) -> bool {
        self.0.is_unstable()
    }

    /// Overwrites all bytes; panics when the lengths differ.
    pub fn copy_from_slice(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.len(), "a part takes as many bytes as it has");
        self.0.copy_from(0, bytes);
    }

    /// Overwrites the bytes from `offset` on; panics when they do not fit.
    pub fn copy_at(&mut self, offset: usize, bytes: &[u8]) {
        self.0.copy_from(offset, bytes);
    }

    /// Zeroes all bytes.
    pub fn zero(&mut self) {
        if !self.is_unstable() {
            return self.0.bytes_mut().fill(0);
        }
        let zeros = [0; 4096];
        for at in (0..self.len()).step_by(zeros.len()) {
            let count = zeros.len().min(self.len() - at);
            self.0.copy_from(at, &zeros[..count]);
        }
    }

    /// Copies `source` (of the part's length) into it, counted.
    pub fn copy_from_abd(&mut self, source: &Abd) {
        assert_eq!(source.len(), self.len(), "a part takes as many bytes as it has");
        if !self.is_unstable() {
            return source.copy_to(0, self.0.bytes_mut());
        }
        crate::stats::note_copied(source.len());
        let range = &mut self.0;
        source.fold(0, |at, bytes| {
            range.copy_from(at, bytes);
            Some(at + bytes.len())
        });
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

impl SharedPages {
    /// The range as the source of an I/O. Its bytes are unstable: see [`Abd::is_unstable`].
    pub fn abd(&self, range: Range<usize>) -> Abd {
        self.part(range).freeze()
    }

    /// The range as the destination of an I/O.
    pub fn part(&self, range: Range<usize>) -> AbdPart {
        AbdPart(self.range(range))
    }
}

/// Lends `bytes` to `work` as a writable part, without a copy, and returns when every part and buffer made of it is gone:
/// waits for I/Os that still use it. The result of `work` must not contain any of them, or this never returns.
pub fn with_lent_mut<R>(exec: &Exec, bytes: &mut [u8], work: impl FnOnce(AbdPart) -> R) -> R {
    lend_exclusive(exec, bytes, |range| work(AbdPart(range)))
}

/// The parts as a scatter list for a vectored read.
pub fn io_slices_mut(parts: &mut [AbdPart]) -> Vec<IoSliceMut<'_>> {
    parts.iter_mut().filter(|part| !part.is_empty()).map(|part| part.0.io_slice_mut()).collect()
}

/// Copies `source` into the parts in order, from the first byte of the first; returns how many bytes fitted.
pub fn fill_parts(parts: &mut [AbdPart], source: &[u8]) -> usize {
    crate::stats::note_copied(source.len());
    let mut done = 0;
    for part in parts {
        let count = part.len().min(source.len() - done);
        part.copy_at(0, &source[done..done + count]);
        done += count;
    }
    done
}
