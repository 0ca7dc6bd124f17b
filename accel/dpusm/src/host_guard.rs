//! Host memory that tests of copies give to a provider: guarded bytes lie around it, and what is only read must stay.

use crate::Fault;
use abd::{Abd, AbdPart};

/// Guarded bytes on each side: a page, so that what lies between them is aligned to one.
const MARGIN: usize = 4096;
/// Byte that they are full of.
const GUARD: u8 = 0x3C;

/// Bytes that a provider is to copy from, in pieces that lie apart.
pub(crate) struct HostSource {
    pieces: Vec<(Abd, Vec<u8>)>,
}

impl HostSource {
    /// Makes pieces of these lengths, which together are `bytes`.
    pub(crate) fn new(bytes: &[u8], lengths: &[usize]) -> HostSource {
        let (guard, mut at) = ([GUARD; MARGIN], 0);
        let mut piece = |length: &usize| {
            let image = [&guard[..], &bytes[at..at + length], &guard[..]].concat();
            at += length;
            (Abd::from_slice(&image), image)
        };
        HostSource { pieces: lengths.iter().map(&mut piece).collect() }
    }

    /// The bytes for the provider.
    pub(crate) fn bytes(&self) -> Abd {
        let inner: Vec<Abd> = self.pieces.iter().map(|(all, image)| all.slice(MARGIN..image.len() - MARGIN)).collect();
        Abd::gang(&inner)
    }

    /// Checks that nothing was changed.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let is_same = self.pieces.iter().all(|(all, image)| all.to_vec() == *image);
        if is_same { Ok(()) } else { Err(Fault::ChangedSource) }
    }
}

/// Surroundings of memory that a provider is to copy to.
pub(crate) struct HostRoom {
    around: Vec<(AbdPart, AbdPart)>,
}

impl HostRoom {
    /// Makes parts of these lengths for the provider, and what it must leave alone.
    pub(crate) fn new(lengths: &[usize]) -> (Vec<AbdPart>, HostRoom) {
        let (mut parts, mut around) = (Vec::new(), Vec::new());
        for length in lengths {
            let mut all = AbdPart::scratch(length + 2 * MARGIN);
            all.fill(GUARD);
            let (before, rest) = all.split_at(MARGIN);
            let (room, after) = rest.split_at(*length);
            parts.push(room);
            around.push((before, after));
        }
        (parts, HostRoom { around })
    }

    /// Checks that nothing was written beside the parts.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let is_clean = |part: &AbdPart| part.iter().all(|byte| *byte == GUARD);
        let all_clean = self.around.iter().all(|(before, after)| is_clean(before) && is_clean(after));
        if all_clean { Ok(()) } else { Err(Fault::WroteOutside) }
    }
}
