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
        let is_clean = |part: &AbdPart| part[..] == [GUARD; MARGIN];
        let all_clean = self.around.iter().all(|(before, after)| is_clean(before) && is_clean(after));
        if all_clean { Ok(()) } else { Err(Fault::WroteOutside) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A provider that writes beside the memory which it was lent, or to what it only copies, would stand the tests, and damage the process that uses it.
    #[test]
    fn what_lies_around_a_providers_memory_is_looked_at() {
        let (bytes, lengths) = ((0..100).collect::<Vec<u8>>(), [60_usize, 40]);
        let source = HostSource::new(&bytes, &lengths);
        assert_eq!((source.bytes().to_vec(), source.check()), (bytes.clone(), Ok(())));
        let (parts, room) = HostRoom::new(&lengths);
        assert_eq!((parts.iter().map(|part| part.len()).collect::<Vec<_>>(), room.check()), (lengths.to_vec(), Ok(())));
        for (piece, length) in lengths.into_iter().enumerate() {
            for at in [MARGIN - 1, MARGIN, MARGIN + length] {
                let mut source = HostSource::new(&bytes, &lengths);
                let (all, image) = &mut source.pieces[piece];
                let mut changed = image.clone();
                changed[at] ^= 1;
                *all = Abd::from_slice(&changed);
                assert_eq!(source.check(), Err(Fault::ChangedSource), "byte {at} of piece {piece}");
            }
            let mut rooms = [HostRoom::new(&lengths).1, HostRoom::new(&lengths).1];
            rooms[0].around[piece].0[MARGIN - 1] ^= 1;
            rooms[1].around[piece].1[0] ^= 1;
            assert_eq!(rooms.map(|room| room.check()), [Err(Fault::WroteOutside); 2], "around piece {piece}");
        }
    }
}
