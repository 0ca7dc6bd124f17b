//! The pointers of an indirect block, kept in memory without the holes behind them.

use abd::Abd;
use ondisk::BlockPtr;

/// Number of the first pointers of a block that alone are kept where all behind them are holes: each file system has a tree of objects of
/// six levels, of which each block of 128 KiB has one pointer.
const FEW: usize = 16;

/// Bytes kept of a block.
#[derive(Debug)]
pub(super) enum Kept {
    Whole(Abd),
    /// First bytes of the block, up to its last pointer, and its size in bytes; the others are zero.
    Start(Box<[u8]>, usize),
}

impl Kept {
    pub(super) fn of(block: &Abd) -> Kept {
        let start = block.as_contiguous().map(|bytes| bytes.split_at(bytes.len().min(FEW * BlockPtr::BYTES)));
        match start {
            Some((start, rest)) if abd::slice_is_zero(rest) => Kept::Start(used(start).into(), block.len()),
            _ => Kept::Whole(block.clone()),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Kept::Whole(block) => block.len(),
            Kept::Start(start, _) => start.len(),
        }
    }

    pub(super) fn pointer(&self, index: usize) -> BlockPtr {
        match self {
            Kept::Whole(block) => decode_pointer(block, index),
            Kept::Start(start, _) => pointer_of(start, index),
        }
    }

    pub(super) fn block(&self) -> Abd {
        match self {
            Kept::Whole(block) => block.clone(),
            Kept::Start(start, length) => {
                let mut block = Abd::zeroed(*length);
                block.make_mut()[..start.len()].copy_from_slice(start);
                block
            }
        }
    }
}

/// Bytes up to the last pointer that is not zeros.
fn used(bytes: &[u8]) -> &[u8] {
    let last = bytes.chunks(BlockPtr::BYTES).rposition(|raw| !abd::slice_is_zero(raw));
    &bytes[..last.map_or(0, |last| (last + 1) * BlockPtr::BYTES).min(bytes.len())]
}

/// Pointer `index` of bytes; a hole beyond their end.
fn pointer_of(bytes: &[u8], index: usize) -> BlockPtr {
    let start = index * BlockPtr::BYTES;
    match bytes.get(start..start + BlockPtr::BYTES).and_then(|raw| raw.first_chunk()) {
        Some(raw) => BlockPtr::decode(raw, true),
        None => BlockPtr::HOLE,
    }
}

/// Pointer `index` of an indirect block; a hole beyond its end.
pub(crate) fn decode_pointer(block: &Abd, index: usize) -> BlockPtr {
    let start = index * BlockPtr::BYTES;
    if let Some(bytes) = block.as_contiguous() {
        return pointer_of(bytes, index);
    }
    let mut raw = [0; BlockPtr::BYTES];
    if start + raw.len() <= block.len() {
        block.copy_to(start, &mut raw);
    }
    BlockPtr::decode(&raw, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 128 << 10;

    fn block_of(pointers: usize) -> Abd {
        let mut block = Abd::zeroed(BYTES);
        for (index, raw) in block.make_mut().chunks_exact_mut(BlockPtr::BYTES).take(pointers).enumerate() {
            let mut bp = BlockPtr::HOLE;
            bp.set_lsize(4096 * (index + 1));
            raw.copy_from_slice(&bp.encode());
        }
        block
    }

    /// A thousand mounted file systems held half a gigabyte of zeros, and those with a change 18 KiB of them each; what is kept must say the same as
    /// the block.
    #[test]
    fn of_blocks_with_few_pointers_only_these_are_kept() {
        for (pointers, bytes) in [(0, 0), (1, 128), (FEW, 2048), (FEW + 1, BYTES), (1024, BYTES)] {
            let block = block_of(pointers);
            let kept = Kept::of(&block);
            assert_eq!(kept.bytes(), bytes, "{pointers} pointers");
            assert!(kept.block().to_vec() == block.to_vec(), "{pointers} pointers");
            for index in [0, 1, FEW - 1, FEW, 1023, 1024] {
                assert_eq!(kept.pointer(index), decode_pointer(&block, index), "pointer {index} of {pointers}");
            }
        }
    }
}
