//! Giving space back and claiming it: at once for plain blocks, after its headers were read for a gang.

use crate::copies::CopySpec;
use crate::core::Core;
use crate::gang::{self, GangTree};
use crate::snapshot::Snapshot;
use crate::verify::check_pointer;
use crate::{ErrorKind, Priority, ReadFlags, UnitThen, ZioError};
use ondisk::{BlockPtr, Bookmark, Dva, Txg};
use std::sync::Arc;

/// Frees `bp` in `txg`.
pub(crate) fn free(core: &Arc<Core>, txg: Txg, bp: &BlockPtr) {
    if bp.is_hole() || bp.is_embedded() {
        return;
    }
    let (snapshot, born) = (core.snapshot(), bp.physical_birth());
    if bp.is_dedup() {
        // Others may share the block; only the dedup table knows. Without it the space is kept, never given away.
        return core.block_lost(&snapshot, &Bookmark::default(), bp.dva(0));
    }
    if !bp.is_gang() {
        for dva in bp.dvas() {
            give_back(core, &snapshot, (txg, born), &dva);
        }
        return;
    }
    if check_pointer(bp).is_err() {
        return;
    }
    core.pending_frees.begin();
    let flags = ReadFlags::default();
    let spec = CopySpec { bp: *bp, bookmark: Bookmark::default(), priority: Priority::AsyncWrite, flags, header: true };
    let (owner, view) = (core.clone(), snapshot.clone());
    let done = move |result: Result<GangTree, ZioError>| {
        match result {
            Ok(tree) => tree.spaces(&view.view.tree).for_each(|dva| give_back(&owner, &view, (txg, born), &dva)),
            // The headers are gone: the space of the members leaks, as in OpenZFS.
            Err(error) => owner.block_lost(&view, &error.bookmark, error.dva),
        }
        owner.pending_frees.end();
    };
    gang::assemble(core, &snapshot, spec, Box::new(done));
}

/// Frees one address of a block with this birth. One that is not allocated means that a block pointer was wrong: it is reported and changes nothing.
fn give_back(core: &Core, snapshot: &Snapshot, times: (Txg, Txg), dva: &Dva) {
    if !free_places(core, snapshot, times, dva) {
        core.block_lost(snapshot, &Bookmark::default(), *dva);
    }
}

/// Frees an address where its bytes are: of a removed vdev that is elsewhere, of one that is being removed here and, as far as it was copied, elsewhere
/// too (OpenZFS: `metaslab_free_impl`, `free_from_removing_vdev`). Where they are it stays allocated when a checkpoint has the block. False when some of it is
/// not allocated.
fn free_places(core: &Core, snapshot: &Snapshot, times: (Txg, Txg), dva: &Dva) -> bool {
    let tree = &snapshot.view.tree;
    if tree.top(dva.vdev).is_some() {
        return free_piece(core, snapshot, times, dva);
    }
    let Some(pieces) = tree.places(dva, &mut |vdev, range| core.obsolete.note(vdev, range)) else { return false };
    // All of them, also after one that is not allocated.
    pieces.iter().filter(|piece| !free_piece(core, snapshot, times, &piece.place)).count() == 0
}

/// Frees an address on a vdev that is there.
fn free_piece(core: &Core, snapshot: &Snapshot, times: (Txg, Txg), place: &Dva) -> bool {
    let (txg, born) = times;
    let was_here = snapshot.view.allocator.free_born(txg, born, place);
    let leaving = snapshot.view.tree.top(place.vdev).and_then(|top| top.mapping.as_ref());
    let Some(mapping) = leaving.filter(|_| was_here) else { return was_here };
    let length = place.asize.min(mapping.end().saturating_sub(place.offset));
    // What follows was not copied yet, and is not going to be.
    core.obsolete.skip(place.asize - length);
    if length == 0 {
        return true;
    }
    let Some(copied) = mapping.pieces(place.offset, length) else { return false };
    core.obsolete.note(place.vdev, place.offset..place.offset + length);
    copied.iter().filter(|piece| !free_places(core, snapshot, times, &piece.place)).count() == 0
}

/// Takes the space of a block that was written before a crash and is found again at import.
pub(crate) fn claim(core: &Arc<Core>, txg: Txg, bp: &BlockPtr, then: UnitThen) {
    let fail = |kind| ZioError::new(kind, Bookmark::default()).at(bp.dva(0));
    let snapshot = core.snapshot();
    if let Err(kind) = check_pointer(bp) {
        return then(Err(fail(kind)));
    }
    if !bp.is_gang() {
        let taken = bp.dvas().try_for_each(|dva| snapshot.view.allocator.claim(txg, &dva));
        return then(taken.map_err(|_| fail(ErrorKind::Corrupt)));
    }
    let flags = ReadFlags::default();
    let spec = CopySpec { bp: *bp, bookmark: Bookmark::default(), priority: Priority::SyncRead, flags, header: true };
    let view = snapshot.clone();
    let error = fail(ErrorKind::Corrupt);
    let done = move |result: Result<GangTree, ZioError>| {
        then(result.and_then(|tree| {
            let taken = tree.spaces(&view.view.tree).try_for_each(|dva| view.view.allocator.claim(txg, &dva));
            taken.map_err(|_| error)
        }));
    };
    gang::assemble(core, &snapshot, spec, Box::new(done));
}
