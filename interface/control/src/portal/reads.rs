//! Reads of a volume as one piece, as every door to the network has them: what is in memory is given where it was asked for, the rest by threads that may wait.

use abd::Abd;
use std::ops::Range;
use std::sync::Arc;
use zvol::{Access, Volume, VolumeError};

/// Bytes of a read that is answered where it came in, at most: cutting a larger one into its blocks takes longer than to hand it on.
const AT_HAND_BYTES_MAX: u64 = 64 << 10;

/// Bytes of a small range that are in memory, all of them; waits for nothing.
pub(super) fn at_hand(volume: &Volume, range: &Range<u64>) -> Option<Abd> {
    let bytes = range.end - range.start;
    let data = if bytes <= AT_HAND_BYTES_MAX { volume.read_at_hand(range.start, bytes) } else { None };
    // What is short is for who may say why.
    data.filter(|data| data.len() as u64 == bytes)
}

/// Reads a range in one piece, without waiting for what goes past the cache: [`VolumeError::OutOfRange`] when it ends behind the volume, which may have
/// shrunk.
pub(super) fn whole(volume: &Arc<Volume>, range: &Range<u64>, then: impl FnOnce(Result<Abd, VolumeError>) + Send + 'static) {
    let bytes = range.end - range.start;
    let checked = move |result: Result<Abd, VolumeError>| {
        let is_short = result.as_ref().is_ok_and(|data| data.len() as u64 != bytes);
        then(if is_short { Err(VolumeError::OutOfRange) } else { result });
    };
    volume.read_then(range.start, bytes, Access::default(), Box::new(checked));
}
