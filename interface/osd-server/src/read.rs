//! Reading: bytes of an object into the memory that its client shares, of pieces that follow each other at once.

use crate::errors::errno_of;
use crate::memory::Memories;
use osd::Object;
use osd_client::Piece;
use rustix::io::Errno;
use std::sync::Arc;

/// Reads pieces; gives the bytes of each that there were.
pub(crate) fn read(memories: &Memories, object: &Arc<Object>, pieces: &[Piece], is_direct: bool) -> Result<Vec<u64>, Errno> {
    let mut counts = Vec::with_capacity(pieces.len());
    for run in pieces.chunk_by(|one, next| one.end() == Some(next.offset)) {
        let Some(first) = run.first() else { continue };
        let length: u64 = run.iter().map(|piece| piece.place.bytes).sum();
        let data = if is_direct { object.read_direct(first.offset, length) } else { object.read(first.offset, length) };
        let data = data.map_err(errno_of)?;
        let mut at = 0;
        for piece in run {
            let end = data.len().min(at + piece.place.bytes as usize);
            memories.store(&piece.place, &data.slice(at..end))?;
            counts.push((end - at) as u64);
            at = end;
        }
    }
    Ok(counts)
}
