//! Buffers of the engine: page-aligned, reference-counted, sliceable, copied only when shared *and* written.
//!
//! [`Abd`] is one run or a gang of runs over page-aligned allocations (OpenZFS: `abd.c`). Cloning and slicing are O(runs)
//! and copy no data; [`Abd::make_mut`] copies when somebody else still looks at the bytes.

mod aligned;

use aligned::AlignedBuf;
use std::ops::Range;
use std::sync::Arc;

/// Alignment of every allocation, in bytes: one page, as O_DIRECT and DMA need.
pub const PAGE_BYTES: usize = 4096;

#[derive(Clone, Debug)]
struct Run {
    buf: Arc<AlignedBuf>,
    offset: usize,
    length: usize,
}

impl Run {
    fn bytes(&self) -> &[u8] {
        &self.buf.as_slice()[self.offset..self.offset + self.length]
    }
}

/// A buffer of immutable-when-shared bytes.
#[derive(Clone, Debug, Default)]
pub struct Abd {
    runs: Vec<Run>,
    length: usize,
}

impl Abd {
    /// A contiguous buffer of zeros.
    pub fn zeroed(length: usize) -> Abd {
        let mut abd = Abd::scratch(length);
        abd.make_mut().fill(0);
        abd
    }

    /// A contiguous buffer whose contents are unspecified (old bytes of the process, never uninitialized memory).
    pub fn scratch(length: usize) -> Abd {
        Abd { runs: vec![Run { buf: Arc::new(AlignedBuf::new(length)), offset: 0, length }], length }
    }

    /// A copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Abd {
        let mut abd = Abd::scratch(bytes.len());
        abd.make_mut().copy_from_slice(bytes);
        abd
    }

    /// A gang of `parts` in order, without a copy.
    pub fn gang(parts: &[Abd]) -> Abd {
        let runs: Vec<Run> = parts.iter().flat_map(|part| part.runs.iter().filter(|run| run.length > 0).cloned()).collect();
        let length = runs.iter().map(|run| run.length).sum();
        Abd { runs, length }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True when there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The part `range`, sharing the bytes.
    pub fn slice(&self, range: Range<usize>) -> Abd {
        assert!(range.start <= range.end && range.end <= self.length, "slice {range:?} of {} bytes", self.length);
        let mut runs = Vec::with_capacity(1);
        let mut position = 0;
        for run in &self.runs {
            let start = range.start.max(position);
            let end = range.end.min(position + run.length);
            if start < end {
                runs.push(Run { buf: run.buf.clone(), offset: run.offset + start - position, length: end - start });
            }
            position += run.length;
        }
        Abd { runs, length: range.end - range.start }
    }

    /// The bytes, when they are one run.
    pub fn as_contiguous(&self) -> Option<&[u8]> {
        match self.runs.as_slice() {
            [] => Some(&[]),
            [run] => Some(run.bytes()),
            _ => None,
        }
    }

    /// The bytes run by run.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.runs.iter().map(Run::bytes)
    }

    /// The same bytes as one run; copies only a gang.
    pub fn to_contiguous(&self) -> Abd {
        if self.runs.len() <= 1 {
            return self.clone();
        }
        let mut abd = Abd::scratch(self.length);
        self.copy_to(0, abd.make_mut());
        abd
    }

    /// Copies `out.len()` bytes starting at `offset` into `out`.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) {
        assert!(offset + out.len() <= self.length, "copy of {}+{} of {} bytes", offset, out.len(), self.length);
        let mut skip = offset;
        let mut done = 0;
        for chunk in self.chunks() {
            if done == out.len() {
                break;
            }
            if skip >= chunk.len() {
                skip -= chunk.len();
                continue;
            }
            let count = (chunk.len() - skip).min(out.len() - done);
            out[done..done + count].copy_from_slice(&chunk[skip..skip + count]);
            done += count;
            skip = 0;
        }
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.length];
        self.copy_to(0, &mut out);
        out
    }

    /// The bytes for writing, when nobody else holds them and they are one run.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        match self.runs.as_mut_slice() {
            [] => Some(&mut []),
            [run] => {
                let range = run.offset..run.offset + run.length;
                Arc::get_mut(&mut run.buf).map(|buf| &mut buf.as_mut_slice()[range])
            }
            _ => None,
        }
    }

    /// The bytes for writing; copies first when they are shared or a gang.
    pub fn make_mut(&mut self) -> &mut [u8] {
        if self.get_mut().is_none() {
            let mut own = Abd::scratch(self.length);
            self.copy_to(0, own.get_mut().expect("a fresh buffer is not shared"));
            *self = own;
        }
        self.get_mut().expect("the buffer was made unique above")
    }
}

impl PartialEq for Abd {
    fn eq(&self, other: &Abd) -> bool {
        self.length == other.length && self.to_contiguous().as_contiguous() == other.to_contiguous().as_contiguous()
    }
}
impl Eq for Abd {}
