//! Cutting an access by bytes into its blocks.

/// A part of a block that an access touches.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub block: u64,
    /// Offset in the block.
    pub within: usize,
    pub length: usize,
}

/// Cuts an access into blocks.
pub(super) fn segments(offset: u64, length: usize, block_size: usize) -> impl Iterator<Item = Segment> {
    let size = block_size as u64;
    let end = offset + length as u64;
    let mut position = offset;
    std::iter::from_fn(move || {
        if position >= end {
            return None;
        }
        let block = if size.is_power_of_two() { position >> size.trailing_zeros() } else { position / size };
        let within = position - block * size;
        let length = (size - within).min(end - position);
        position += length;
        Some(Segment { block, within: within as usize, length: length as usize })
    })
}
