//! Giving space back: at once for plain blocks, after its headers were read for a gang.

use crate::engine::{Core, Snapshot};
use crate::gang::{self, GangTree};
use crate::read::CopySpec;
use crate::verify::check_pointer;
use crate::{Priority, ReadFlags, events};
use ondisk::{BlockPtr, Bookmark, Dva, Txg};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Frees `bp` in `txg`.
pub(crate) fn free(core: &Arc<Core>, txg: Txg, bp: &BlockPtr) {
    if bp.is_hole() || bp.is_embedded() {
        return;
    }
    let snapshot = core.snapshot();
    if !bp.is_gang() {
        for dva in bp.dvas() {
            give_back(core, &snapshot, txg, &dva);
        }
        return;
    }
    if check_pointer(bp).is_err() {
        return;
    }
    core.pending_frees.count.fetch_add(1, Ordering::AcqRel);
    let flags = ReadFlags::default();
    let spec = CopySpec { bp: *bp, bookmark: Bookmark::default(), priority: Priority::AsyncWrite, flags, header: true };
    let (owner, view) = (core.clone(), snapshot.clone());
    let done = move |result: Result<GangTree, crate::ZioError>| {
        match result {
            Ok(tree) => tree.spaces(&view.view.tree).for_each(|dva| give_back(&owner, &view, txg, &dva)),
            // The headers are gone: the space of the members leaks, as in OpenZFS.
            Err(error) => owner.events.event(events::data(&view, &error.bookmark, error.dva)),
        }
        owner.pending_frees.count.fetch_sub(1, Ordering::AcqRel);
        owner.pending_frees.changed.notify_all();
    };
    gang::assemble(core, &snapshot, spec, Box::new(done));
}

/// Frees one address. One that is not allocated means that a block pointer was wrong: it is reported and changes nothing.
fn give_back(core: &Core, snapshot: &Snapshot, txg: Txg, dva: &Dva) {
    if !snapshot.view.allocator.free(txg, dva) {
        core.events.event(events::data(snapshot, &Bookmark::default(), *dva));
    }
}

/// Waits until no free is pending.
pub(crate) fn wait(core: &Core) {
    let pending = &core.pending_frees;
    pending.changed.wait_until(&core.exec, &|| pending.count.load(Ordering::Acquire) == 0);
}
