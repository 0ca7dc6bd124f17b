//! Leaf reads of what a vdev plans: into one buffer, or into memory of the caller's, so that joining their bytes copies nothing.

use crate::batch::LeafOp;
use abd::{Abd, AbdPart};
use device::DeviceOp;
use vdev::{LeafIo, Part};

/// `data` followed by zeros up to `length` bytes.
pub(crate) fn pad(data: &Abd, length: usize) -> Abd {
    if data.len() >= length { data.clone() } else { Abd::gang(&[data.clone(), Abd::zeroed(length - data.len())]) }
}

/// Leaf reads whose data columns land in one buffer, so that joining them copies nothing.
pub(crate) fn read_ops(ios: &[LeafIo]) -> Vec<LeafOp> {
    let mut ops = Vec::with_capacity(ios.len());
    let mut rest = ios;
    while let Some(first) = rest.first() {
        let run = adjacent(rest);
        if run == 1 {
            ops.push(LeafOp { leaf: first.leaf, offset: first.offset, op: DeviceOp::read(first.length) });
        } else {
            let lengths: Vec<usize> = rest[..run].iter().map(|io| io.length).collect();
            for (io, part) in rest[..run].iter().zip(Abd::scratch_parts(&lengths)) {
                ops.push(LeafOp { leaf: io.leaf, offset: io.offset, op: DeviceOp::Read(vec![part]) });
            }
        }
        rest = &rest[run..];
    }
    ops
}

/// True when the I/Os bring exactly the first `length` bytes of the block, in order.
pub(crate) fn covers(ios: &[LeafIo], length: usize) -> bool {
    let range = |io: Option<&LeafIo>| io.and_then(|io| if let Part::Data(range) = &io.part { Some(range.clone()) } else { None });
    let (first, last) = (range(ios.first()), range(ios.last()));
    adjacent(ios) == ios.len() && first.is_some_and(|range| range.start == 0) && last.is_some_and(|range| range.end == length)
}

/// Leaf reads into consecutive pieces of `target`, which they cover.
pub(crate) fn target_ops(ios: &[LeafIo], target: Vec<AbdPart>) -> Vec<LeafOp> {
    let mut rest = target.into_iter();
    let mut current = rest.next();
    let mut ops = Vec::with_capacity(ios.len());
    for io in ios {
        let mut parts = Vec::with_capacity(1);
        let mut wanted = io.length;
        while let Some(part) = current.take() {
            if part.len() > wanted {
                let (head, tail) = part.split_at(wanted);
                parts.push(head);
                current = Some(tail);
                break;
            }
            wanted -= part.len();
            parts.push(part);
            current = rest.next();
            if wanted == 0 {
                break;
            }
        }
        ops.push(LeafOp { leaf: io.leaf, offset: io.offset, op: DeviceOp::Read(parts) });
    }
    ops
}

/// Number of the first I/Os that carry consecutive parts of the block.
fn adjacent(ios: &[LeafIo]) -> usize {
    let ends = |io: &LeafIo| if let Part::Data(range) = &io.part { Some(range.clone()) } else { None };
    let mut count = 1;
    let mut end = ends(&ios[0]).map(|range| range.end);
    while let (Some(position), Some(range)) = (end, ios.get(count).and_then(ends)) {
        if range.start != position {
            break;
        }
        end = Some(range.end);
        count += 1;
    }
    count
}
