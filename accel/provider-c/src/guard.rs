//! Host memory as a library gets it for its first copies: in a copy with guarded bytes around it. What the library writes where it must not is
//! seen, and does no harm: to whoever tests a library in another process its mistakes would look like anything, or like nothing.

use crate::ffi::CPiece;
use abd::{Abd, AbdPart};
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of copies of a library that are guarded: those of its tests, and some of its work.
const GUARDED_MAX: u64 = 10_000;
/// Guarded bytes on each side: a page, so that what lies between them is aligned as it is without them.
const MARGIN: usize = 4096;
/// Byte that they are full of.
const GUARD: u8 = 0x5A;

/// Count of a library's copies, as far as they are guarded.
#[derive(Default)]
pub(crate) struct Copies(AtomicU64);

impl Copies {
    /// True when the next copy is to be guarded.
    pub(crate) fn is_next_guarded(&self) -> bool {
        self.0.load(Ordering::Relaxed) < GUARDED_MAX && self.0.fetch_add(1, Ordering::Relaxed) < GUARDED_MAX
    }
}

/// Piece of memory between guarded bytes.
struct Piece(AbdPart);

impl Piece {
    fn new(bytes: usize) -> Piece {
        let mut all = AbdPart::scratch(bytes + 2 * MARGIN);
        all.fill(GUARD);
        Piece(all)
    }

    fn holding(bytes: &[u8]) -> Piece {
        let mut piece = Piece::new(bytes.len());
        piece.0.copy_at(MARGIN, bytes);
        piece
    }

    fn bytes(&self) -> &[u8] {
        &self.0[MARGIN..self.0.len() - MARGIN]
    }

    fn c_piece(&mut self) -> CPiece {
        let length = (self.0.len() - 2 * MARGIN) as u64;
        CPiece { bytes: self.0.as_mut_ptr().wrapping_add(MARGIN).cast(), length }
    }

    fn is_clean(&self) -> bool {
        let (before, after) = (&self.0[..MARGIN], &self.0[self.0.len() - MARGIN..]);
        before == [GUARD; MARGIN] && after == [GUARD; MARGIN]
    }
}

/// Memory of one copy.
pub(crate) struct Guarded {
    pieces: Vec<Piece>,
    /// Bytes that are only to be read.
    source: Option<Abd>,
}

impl Guarded {
    /// Memory with the bytes of `source`, which nobody changes any more.
    pub(crate) fn of_source(source: &Abd) -> Guarded {
        Guarded { pieces: source.chunks().map(Piece::holding).collect(), source: Some(source.clone()) }
    }

    /// Memory as large as `parts`.
    pub(crate) fn of_targets(parts: &[AbdPart]) -> Guarded {
        Guarded { pieces: parts.iter().map(|part| Piece::new(part.len())).collect(), source: None }
    }

    /// The pieces for C.
    pub(crate) fn c_pieces(&mut self) -> Vec<CPiece> {
        self.pieces.iter_mut().map(Piece::c_piece).collect()
    }

    /// Gives `parts` what was copied; false when something was changed that was not to be.
    pub(crate) fn end(self, parts: &mut [AbdPart]) -> bool {
        for (part, piece) in parts.iter_mut().zip(&self.pieces) {
            part.copy_from_slice(piece.bytes());
        }
        let is_same = self.source.iter().flat_map(Abd::chunks).zip(&self.pieces).all(|(bytes, piece)| bytes == piece.bytes());
        is_same && self.pieces.iter().all(Piece::is_clean)
    }
}
