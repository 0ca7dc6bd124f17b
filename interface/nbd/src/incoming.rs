//! Bytes that come in: headers out of a buffer that takes many at a time, payloads into memory of their own, where they stay.

use abd::{Abd, AbdPart};
use std::io::IoSliceMut;

/// Size in bytes of the buffer that headers and small payloads are read into.
const STAGE_BYTES: usize = 64 * 1024;

/// Payload that is being received.
struct Payload {
    part: AbdPart,
    filled: usize,
}

/// Bytes that have come and were not taken yet.
pub(crate) struct Incoming {
    stage: Vec<u8>,
    start: usize,
    end: usize,
    payload: Option<Payload>,
}

impl Incoming {
    pub(crate) fn new() -> Incoming {
        Incoming { stage: vec![0; STAGE_BYTES], start: 0, end: 0, payload: None }
    }

    /// Places for the next bytes, in order; with room whenever all that is whole was taken.
    pub(crate) fn spaces(&mut self) -> [IoSliceMut<'_>; 2] {
        if self.start > 0 {
            self.stage.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let rest: &mut [u8] = match &mut self.payload {
            Some(payload) => &mut payload.part[payload.filled..],
            None => &mut [],
        };
        [IoSliceMut::new(rest), IoSliceMut::new(&mut self.stage[self.end..])]
    }

    /// Notes that `count` bytes were put into what [`Incoming::spaces`] gave.
    pub(crate) fn filled(&mut self, count: usize) {
        let mut count = count;
        if let Some(payload) = &mut self.payload {
            let into = count.min(payload.part.len() - payload.filled);
            payload.filled += into;
            count -= into;
        }
        self.end = (self.end + count).min(self.stage.len());
    }

    /// Copies bytes in, as if they had been received; gives the number of those that found room.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        for mut space in self.spaces() {
            let count = space.len().min(bytes.len() - done);
            space[..count].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
        self.filled(done);
        done
    }

    /// Takes a header of `N` bytes, when it is whole; not while a payload is expected.
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let header = *self.stage[self.start..self.end].first_chunk::<N>()?;
        self.start += N;
        Some(header)
    }

    /// Expects a payload of `length` bytes, which the caller has checked, behind what was taken.
    pub(crate) fn expect(&mut self, length: usize) {
        let have = length.min(self.end - self.start);
        let mut part = AbdPart::scratch(length);
        part[..have].copy_from_slice(&self.stage[self.start..self.start + have]);
        self.start += have;
        self.payload = Some(Payload { part, filled: have });
    }

    /// Takes the payload that was expected, when it is whole.
    pub(crate) fn payload(&mut self) -> Option<Abd> {
        let payload = self.payload.take_if(|payload| payload.filled == payload.part.len())?;
        Some(payload.part.freeze())
    }
}
