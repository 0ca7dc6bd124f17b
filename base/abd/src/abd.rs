//! The buffer itself: one run or a gang of runs, shared by clones and slices, and what is read from it or written to it.
//!
//! It knows neither where memory comes from (`slab`) nor what makes ranges of it safe to hold (`aligned`).

use crate::AbdPart;
use crate::aligned::{SharedRange, lend_shared};
use crate::stats;
use exec::Exec;
use std::io::IoSlice;
use std::ops::Range;

/// Bytes of unstable memory that are copied at a time before something is computed from them: they stay in the cache.
const PIECE_BYTES: usize = 16 << 10;

/// One run without an allocation for the list, or any number of them.
#[derive(Clone, Debug)]
pub(crate) enum Runs {
    One(SharedRange),
    Many(Vec<SharedRange>),
}

impl Default for Runs {
    fn default() -> Self {
        Runs::Many(Vec::new())
    }
}

impl Runs {
    fn as_slice(&self) -> &[SharedRange] {
        match self {
            Runs::One(run) => std::slice::from_ref(run),
            Runs::Many(runs) => runs,
        }
    }
}

/// A buffer of immutable-when-shared bytes.
#[derive(Clone, Debug, Default)]
pub struct Abd {
    pub(crate) runs: Runs,
    pub(crate) length: usize,
}

impl Abd {
    /// A contiguous buffer of zeros.
    pub fn zeroed(length: usize) -> Abd {
        let mut part = AbdPart::scratch(length);
        part.fill(0);
        part.freeze()
    }

    /// A contiguous buffer whose contents are unspecified (old bytes of the process, never uninitialized memory).
    pub fn scratch(length: usize) -> Abd {
        AbdPart::scratch(length).freeze()
    }

    /// A copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Abd {
        stats::note_copied(bytes.len());
        let mut part = AbdPart::scratch(bytes.len());
        part.copy_from_slice(bytes);
        part.freeze()
    }

    /// A gang of `parts` in order, without a copy; neighbours of one allocation become one run.
    pub fn gang(parts: &[Abd]) -> Abd {
        let mut abd = Abd::default();
        for run in parts.iter().flat_map(|part| part.runs.as_slice()) {
            abd.push_run(run.clone());
        }
        abd
    }

    /// Appends a run; empty ones are dropped, adjacent ones merged.
    pub(crate) fn push_run(&mut self, run: SharedRange) {
        if run.len() == 0 {
            return;
        }
        self.length += run.len();
        self.runs = match std::mem::take(&mut self.runs) {
            Runs::One(mut last) if last.is_followed_by(&run) => {
                last.append(run);
                Runs::One(last)
            }
            Runs::One(last) => Runs::Many(vec![last, run]),
            Runs::Many(runs) if runs.is_empty() => Runs::One(run),
            Runs::Many(mut runs) => {
                match runs.last_mut() {
                    Some(last) if last.is_followed_by(&run) => last.append(run),
                    _ => runs.push(run),
                }
                Runs::Many(runs)
            }
        };
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True when there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The part `range`, sharing the bytes. Panics when it is not inside the buffer.
    pub fn slice(&self, range: Range<usize>) -> Abd {
        assert!(range.start <= range.end && range.end <= self.length, "slice {range:?} of {} bytes", self.length);
        if let Runs::One(run) = &self.runs {
            return Abd { runs: Runs::One(run.slice(range.start, range.end)), length: range.end - range.start };
        }
        let mut abd = Abd::default();
        let mut position = 0;
        for run in self.runs.as_slice() {
            let start = range.start.max(position);
            let end = range.end.min(position + run.len());
            if start < end {
                abd.push_run(run.slice(start - position, end - position));
            }
            position += run.len();
        }
        abd
    }

    /// The bytes, when they are one stable run.
    pub fn as_contiguous(&self) -> Option<&[u8]> {
        match self.runs.as_slice() {
            [] => Some(&[]),
            [run] if !run.is_unstable() => Some(run.bytes()),
            _ => None,
        }
    }

    /// True when somebody else may change some of the bytes at any time: two looks at them may differ, and no slice of them
    /// can be had.
    pub fn is_unstable(&self) -> bool {
        self.runs.as_slice().iter().any(SharedRange::is_unstable)
    }

    /// Copies what is unstable to where nobody changes it any more (and nothing else); the same bytes.
    pub fn to_stable(&self) -> Abd {
        if !self.is_unstable() {
            return self.clone();
        }
        let mut part = AbdPart::scratch(self.length);
        self.copy_to(0, &mut part);
        part.freeze()
    }

    /// Address and length of each run.
    pub fn extents(&self) -> impl Iterator<Item = (*const u8, usize)> {
        self.runs.as_slice().iter().map(|run| (run.address(), run.len()))
    }

    /// Computes something over the bytes in order: stable runs are seen where they are, unstable ones through a private copy
    /// of a piece at a time. Stops when `step` gives None.
    pub fn fold<T>(&self, start: T, mut step: impl FnMut(T, &[u8]) -> Option<T>) -> Option<T> {
        let mut value = start;
        for run in self.runs.as_slice() {
            if !run.is_unstable() {
                value = step(value, run.bytes())?;
                continue;
            }
            let mut piece = [0; PIECE_BYTES];
            for at in (0..run.len()).step_by(PIECE_BYTES) {
                let piece = &mut piece[..PIECE_BYTES.min(run.len() - at)];
                run.copy_to(at, piece);
                value = step(value, piece)?;
            }
        }
        Some(value)
    }

    /// The bytes run by run. Panics for unstable bytes ([`Abd::is_unstable`]): use [`Abd::fold`] where those can come.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.runs.as_slice().iter().map(SharedRange::bytes)
    }

    /// The runs as a gather list for a vectored write.
    pub fn io_slices(&self) -> Vec<IoSlice<'_>> {
        self.runs.as_slice().iter().map(SharedRange::io_slice).collect()
    }

    /// Gives the same bytes as one run; copies only a gang.
    pub fn to_contiguous(&self) -> Abd {
        if self.as_contiguous().is_some() {
            return self.clone();
        }
        let mut part = AbdPart::scratch(self.length);
        self.copy_to(0, &mut part);
        part.freeze()
    }

    /// Copies `out.len()` bytes starting at `offset` into `out`.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) {
        stats::note_copied(out.len());
        self.peek(offset, out);
    }

    /// As [`Abd::copy_to`], not counted: for a look at a few bytes, or at a piece that is computed on at once.
    pub fn peek(&self, offset: usize, out: &mut [u8]) {
        assert!(offset + out.len() <= self.length, "copy of {}+{} of {} bytes", offset, out.len(), self.length);
        let mut skip = offset;
        let mut done = 0;
        for run in self.runs.as_slice() {
            if done == out.len() {
                break;
            }
            if skip >= run.len() {
                skip -= run.len();
                continue;
            }
            let count = (run.len() - skip).min(out.len() - done);
            run.copy_to(skip, &mut out[done..done + count]);
            done += count;
            skip = 0;
        }
    }

    /// Overwrites the bytes from `offset` on with `source`; copies the buffer first when it is shared or a gang.
    pub fn copy_from(&mut self, offset: usize, source: &[u8]) {
        assert!(offset + source.len() <= self.length, "copy of {}+{} into {} bytes", offset, source.len(), self.length);
        stats::note_copied(source.len());
        self.make_mut()[offset..offset + source.len()].copy_from_slice(source);
    }

    /// True when every byte is zero.
    pub fn is_zero(&self) -> bool {
        self.fold((), |(), bytes| slice_is_zero(bytes).then_some(())).is_some()
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.length];
        self.copy_to(0, &mut out);
        out
    }

    /// The bytes for writing, when nobody else holds them and they are one run.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.runs {
            Runs::One(run) => run.get_mut(),
            Runs::Many(runs) => match runs.as_mut_slice() {
                [] => Some(&mut []),
                [run] => run.get_mut(),
                _ => None,
            },
        }
    }

    /// The bytes for writing; copies first when they are shared or a gang.
    pub fn make_mut(&mut self) -> &mut [u8] {
        if self.get_mut().is_none() {
            let mut own = AbdPart::scratch(self.length);
            self.copy_to(0, &mut own);
            *self = own.freeze();
        }
        self.get_mut().expect("the buffer was made unique above")
    }
}

/// Lends `bytes` to `work` as a buffer, without a copy, and returns when every clone and slice of it is gone: waits for
/// I/Os that still use it. The result of `work` must not contain the buffer, or this never returns.
pub fn with_lent<R>(exec: &Exec, bytes: &[u8], work: impl FnOnce(Abd) -> R) -> R {
    lend_shared(exec, bytes, |run| work(Abd { length: run.len(), runs: Runs::One(run) }))
}

/// True when every byte of `bytes` is zero; looks at wide blocks and stops at the first that is not.
pub fn slice_is_zero(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks::<256>();
    let zero = |block: &[u8]| block.iter().fold(0u8, |acc, byte| acc | byte) == 0;
    // The first bytes decide nearly always.
    bytes.first().is_none_or(|byte| *byte == 0) && blocks.iter().all(|block| zero(block)) && zero(rest)
}

/// Number that bytes fold into, from that of the bytes before them (or any other): equal bytes give equal numbers, others nearly always others. For
/// models and tests, which compare what they saw with it; no checksum of a format.
pub fn fingerprint(before: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
    let hash = words.iter().fold(before, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)))
}

impl PartialEq for Abd {
    fn eq(&self, other: &Abd) -> bool {
        if self.length != other.length {
            return false;
        }
        let (left, right) = (self.to_contiguous(), other.to_contiguous());
        match (left.as_contiguous(), right.as_contiguous()) {
            // The same bytes need not be looked at.
            (Some(left), Some(right)) => std::ptr::eq(left, right) || left == right,
            _ => false,
        }
    }
}
impl Eq for Abd {}
