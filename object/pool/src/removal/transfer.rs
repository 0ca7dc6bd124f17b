//! Copying parts of a vdev to their new places, device by device: no checksum tells here what is right, so each copy of a mirror is copied to another
//! device, and what was right on one of them still is (OpenZFS: `spa_vdev_copy_one_child`).

use abd::Abd;
use device::{DeviceError, DeviceOp};
use exec::{Completion, completion};
use ondisk::{Dva, Guid};
use vdev::{LABEL_START_BYTES, LeafId, TopVdev, VdevTree};
use zio::{LeafRequest, Priority, Zio};

/// Part of a vdev, and where it goes: its size is that of the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    /// Offset on the vdev that is being removed, in bytes.
    pub source: u64,
    pub target: Dva,
}

/// Leaves of the places that lack what was copied to them.
pub(super) type Lacking = Vec<Guid>;

/// Copy of a part: from one device to others.
struct Carriage<'a> {
    part: &'a Move,
    /// Leaves to read from, the first that works.
    from: Vec<LeafId>,
    /// Leaves to write to.
    to: Vec<LeafId>,
}

/// Does the moves from `top`, and waits until all is written. Gives the leaves that took no part of it, or not all.
///
/// # Errors
/// That of a device in use that failed, unless it goes on: then what one does not give comes from another, and what none gives is lost. Also without any
/// that could give a part, or take it.
pub(super) fn carry_out(zio: &Zio, tree: &VdevTree, top: &TopVdev, moves: &[Move], goes_on: bool) -> Result<Lacking, DeviceError> {
    let mut lacking = Lacking::new();
    let mut copies = Vec::new();
    for part in moves {
        copies.extend(plan(tree, top, part, &mut lacking)?);
    }
    let reads: Vec<_> = copies.iter().map(|copy| read(zio, tree, copy, 0)).collect();
    let (mut writes, mut failed) = (Vec::new(), None);
    for (copy, reading) in copies.iter().zip(reads) {
        match settled(zio, tree, copy, reading, goes_on) {
            Ok(bytes) => writes.extend(copy.to.iter().map(|&leaf| {
                let op = DeviceOp::Write(bytes.clone());
                (leaf, start(zio, tree, leaf, copy.part.target.offset, op))
            })),
            Err(error) => failed = Some(error),
        }
    }
    // Also of moves that failed: nobody may get the space while somebody writes to it.
    for (leaf, writing) in writes {
        if let Err(error) = writing.wait(zio.exec()) {
            lacking.push(tree.leaf(leaf).guid);
            failed = Some(error);
        }
    }
    match failed {
        Some(error) if !goes_on => Err(error),
        _ => Ok(lacking),
    }
}

/// Copies of a part, one for each leaf of its place: of the leaf with the same number, as far as there are so many.
fn plan<'a>(tree: &VdevTree, top: &TopVdev, part: &'a Move, lacking: &mut Lacking) -> Result<Vec<Carriage<'a>>, DeviceError> {
    let whole = |id: &LeafId| tree.leaf(*id).state.is_usable() && tree.leaf(*id).missing_txgs.is_empty();
    let sources: Vec<LeafId> = top.leaves().filter(whole).collect();
    let place = tree.top(part.target.vdev).ok_or(DeviceError::Gone)?;
    let mut copies: Vec<Carriage<'a>> = Vec::new();
    for (number, leaf) in place.leaves().enumerate() {
        if !tree.leaf(leaf).state.is_usable() {
            lacking.push(tree.leaf(leaf).guid);
            continue;
        }
        if sources.is_empty() {
            return Err(DeviceError::Gone);
        }
        let mut from = sources.clone();
        from.rotate_left(number % sources.len());
        match copies.iter_mut().find(|copy| copy.from == from) {
            Some(copy) => copy.to.push(leaf),
            None => copies.push(Carriage { part, from, to: vec![leaf] }),
        }
    }
    if copies.is_empty() { Err(DeviceError::Gone) } else { Ok(copies) }
}

type Reply = Completion<Result<Abd, DeviceError>>;

/// Starts the read of a part from the leaf with this number among those that have it.
fn read(zio: &Zio, tree: &VdevTree, copy: &Carriage<'_>, number: usize) -> Reply {
    start(zio, tree, copy.from[number], copy.part.source, DeviceOp::read(copy.part.target.asize as usize))
}

fn start(zio: &Zio, tree: &VdevTree, leaf: LeafId, offset: u64, op: DeviceOp) -> Reply {
    let (done, wait) = completion();
    let offset = offset + LABEL_START_BYTES;
    let request = LeafRequest { leaf: tree.leaf(leaf).guid, offset, op, priority: Priority::Removal, speculative: false };
    zio.leaf_io(request, Box::new(move |result| done.complete(result)));
    wait
}

/// The bytes of a part: from the leaf that was asked, or else, if it goes on, from the others.
fn settled(zio: &Zio, tree: &VdevTree, copy: &Carriage<'_>, first: Reply, goes_on: bool) -> Result<Abd, DeviceError> {
    let mut result = first.wait(zio.exec());
    for number in 1..copy.from.len() {
        if result.is_ok() || !goes_on {
            break;
        }
        result = read(zio, tree, copy, number).wait(zio.exec());
    }
    result
}
