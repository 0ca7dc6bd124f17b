//! Parts of a volume that are stored, and that are not, as every door tells its users.

use std::ops::Range;
use zvol::{Volume, VolumeError};

/// Bytes that are told of at a time, at least: a sector.
const STEP: u64 = 512;

/// Parts of a range in order, from its beginning: their lengths in bytes, and true for those that are stored; at most so many.
///
/// # Errors
/// A range that is empty or ends behind the volume, and those of looking.
pub(crate) fn stored(volume: &Volume, range: &Range<u64>, parts_max: usize) -> Result<Vec<(u64, bool)>, VolumeError> {
    let end = range.end;
    if end > volume.size() || range.is_empty() {
        return Err(VolumeError::OutOfRange);
    }
    let (mut at, mut parts) = (range.start, Vec::new());
    while at < end && parts.len() < parts_max {
        let data = volume.seek_data(at)?.unwrap_or(end);
        let next = if data > at { data } else { volume.seek_hole(at)?.unwrap_or(end) };
        // A block may become a hole between the two questions.
        let next = next.max(at.saturating_add(STEP)).min(end);
        parts.push((next - at, data <= at));
        at = next;
    }
    Ok(parts)
}
