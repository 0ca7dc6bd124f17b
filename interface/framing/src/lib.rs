//! The receiving half of a connection: headers out of a buffer that takes many at a time, payloads into memory of their own, where they stay.
//!
//! A protocol takes heads and says how long a payload is behind each, once it has checked that; what a head means is its own.
#![forbid(unsafe_code)]

use abd::{Abd, AbdPart};
use std::io::IoSliceMut;

/// Size in bytes of the buffer that headers and small payloads are read into; no head of a protocol is longer.
const STAGE_BYTES: usize = 64 * 1024;
/// Bytes that are taken behind a payload at least as long as the buffer: room for the next heads, not for the next payload, whose bytes would be copied.
const BEHIND_LARGE_BYTES: usize = 4 * 1024;

/// Payload that is being received.
struct Payload {
    part: AbdPart,
    filled: usize,
}

/// Bytes that have come and were not taken yet.
///
/// [`Incoming::spaces`] says where the next bytes go, [`Incoming::filled`] how many came.
pub struct Incoming {
    stage: Vec<u8>,
    start: usize,
    end: usize,
    payload: Option<Payload>,
}

impl Default for Incoming {
    fn default() -> Incoming {
        Incoming { stage: vec![0; STAGE_BYTES], start: 0, end: 0, payload: None }
    }
}

impl Incoming {
    /// Places for the next bytes, in order; with room whenever all that is whole was taken.
    pub fn spaces(&mut self) -> [IoSliceMut<'_>; 2] {
        if self.start > 0 {
            abd::note_copied(self.end - self.start);
            self.stage.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let is_large = self.payload.as_ref().is_some_and(|payload| payload.part.len() >= STAGE_BYTES);
        let behind = if is_large { BEHIND_LARGE_BYTES } else { STAGE_BYTES };
        let rest: &mut [u8] = match &mut self.payload {
            Some(payload) => &mut payload.part[payload.filled..],
            None => &mut [],
        };
        let last = self.stage.len().min(self.end + behind);
        [IoSliceMut::new(rest), IoSliceMut::new(&mut self.stage[self.end..last])]
    }

    /// Notes that `count` bytes were put into what [`Incoming::spaces`] gave.
    pub fn filled(&mut self, count: usize) {
        let mut count = count;
        if let Some(payload) = &mut self.payload {
            let into = count.min(payload.part.len() - payload.filled);
            payload.filled += into;
            count -= into;
        }
        self.end = (self.end + count).min(self.stage.len());
    }

    /// Copies bytes in, as if they had been received; gives the number of those that found room. For tests and whatever has no vectored read.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        for mut space in self.spaces() {
            let count = space.len().min(bytes.len() - done);
            space[..count].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
        self.filled(done);
        done
    }

    /// Bytes behind what was taken, and behind the payload that is expected, as far as they have come.
    pub fn staged(&self) -> &[u8] {
        &self.stage[self.start..self.end]
    }

    /// Takes `count` bytes, when they are there; not while a payload is expected.
    pub fn take(&mut self, count: usize) -> Option<&[u8]> {
        if self.payload.is_some() {
            return None;
        }
        let taken = self.stage[self.start..self.end].get(..count)?;
        self.start += count;
        Some(taken)
    }

    /// Takes a head of `N` bytes, when it is whole; not while a payload is expected.
    pub fn head<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.first_chunk::<N>().copied()
    }

    /// Expects a payload of `length` bytes, which the caller has checked, behind what was taken.
    pub fn expect(&mut self, length: usize) {
        let have = length.min(self.end - self.start);
        let mut part = AbdPart::scratch(length);
        // What came with the head, or with those before it, has no other way: of small payloads all of it, of large ones a part.
        abd::note_copied(have);
        part[..have].copy_from_slice(&self.stage[self.start..self.start + have]);
        self.start += have;
        self.payload = Some(Payload { part, filled: have });
    }

    /// Takes the payload that was expected, when it is whole.
    pub fn payload(&mut self) -> Option<Abd> {
        let payload = self.payload.take_if(|payload| payload.filled == payload.part.len())?;
        Some(payload.part.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, what a client sends is taken for something else, depending on how the network cuts it.
    #[test]
    fn messages_come_out_as_they_went_in_however_they_are_cut() {
        let payloads: Vec<Vec<u8>> = [0, 1, 5, 70, 0, 300].iter().map(|length| (0..*length).map(|at: usize| at as u8).collect()).collect();
        let message = |payload: &Vec<u8>| [&(payload.len() as u32).to_be_bytes()[..], &payload[..], b"end"].concat();
        let sent: Vec<u8> = payloads.iter().flat_map(message).collect();
        for piece in 1..=sent.len() {
            let (mut incoming, mut received, mut is_begun) = (Incoming::default(), Vec::new(), false);
            for bytes in sent.chunks(piece) {
                assert_eq!(incoming.push(bytes), bytes.len());
                loop {
                    if !is_begun {
                        let Some(head) = incoming.head::<4>() else { break };
                        incoming.expect(u32::from_be_bytes(head) as usize);
                        is_begun = true;
                    }
                    if let Some(payload) = incoming.payload() {
                        received.push(payload.to_vec());
                    }
                    let Some(tail) = incoming.take(3) else { break };
                    assert_eq!(tail, b"end");
                    is_begun = false;
                }
            }
            assert!(received == payloads && !is_begun && incoming.staged().is_empty(), "pieces of {piece} bytes");
        }
    }

    /// If this fails, a measurement says of writes that their bytes were copied less often than they were.
    #[test]
    fn bytes_that_were_staged_count_as_copied() {
        let before = abd::copied();
        for _ in 0..500 {
            let mut incoming = Incoming::default();
            assert_eq!(incoming.push(&[7; 40_000]), 40_000);
            incoming.expect(40_000);
            assert!(incoming.payload().is_some_and(|payload| payload.len() == 40_000));
        }
        // Other tests copy meanwhile, but not as much.
        assert!(abd::copied() - before >= 500 * 40_000);
    }

    /// If this fails, large writes over a network cost a copy of a good part of their bytes.
    #[test]
    fn large_payloads_do_not_come_by_way_of_the_stage() {
        let mut incoming = Incoming::default();
        assert_eq!(incoming.push(&[1; 100]), 100);
        assert!(incoming.take(100).is_some());
        incoming.expect(4 * STAGE_BYTES);
        assert_eq!(incoming.push(&vec![2; 8 * STAGE_BYTES]), 4 * STAGE_BYTES + BEHIND_LARGE_BYTES);
        assert!(incoming.payload().is_some());
        assert_eq!(incoming.staged().len(), BEHIND_LARGE_BYTES);
    }
}
