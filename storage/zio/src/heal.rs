//! Healing: the bytes of a damaged block, which somebody has from elsewhere, are written again where it lies (OpenZFS: `do_corrective_recv`).

use crate::batch::{self, BatchOptions, LeafOp, LeafResult};
use crate::core::Core;
use crate::stages::may_leave;
use crate::verify::block_is_right;
use crate::{ErrorKind, Priority, UnitThen, ZioError, lost_copies};
use abd::Abd;
use exec::TaskClass;
use ondisk::{BlockPtr, Bookmark, Checksum};
use std::sync::Arc;

const OPTIONS: BatchOptions = BatchOptions { class: TaskClass::Interrupt, priority: Priority::SyncWrite, speculative: false };

/// Writes the physical bytes of a block to all its addresses, once they turned out to be its.
pub(crate) fn heal(core: &Arc<Core>, bp: &BlockPtr, bookmark: Bookmark, physical: &Abd, then: UnitThen) {
    let snapshot = core.snapshot();
    let fail = move |kind| Err(ZioError::new(kind, bookmark));
    if !snapshot.view.facts.writeable {
        return then(fail(ErrorKind::ReadOnly));
    }
    // Members of gangs have addresses of their own; without a checksum nobody knows what is right.
    if bp.is_hole() || bp.is_embedded() || bp.is_gang() || bp.checksum_kind() == Checksum::OFF {
        return then(fail(ErrorKind::Unsupported));
    }
    if physical.len() != bp.psize() || !block_is_right(snapshot.view.facts.salt.as_deref(), bp, physical) {
        return then(fail(ErrorKind::Checksum));
    }
    let copies: Option<Vec<_>> =
        bp.dvas().map(|dva| lost_copies::copies_at((core, &snapshot.view.tree), &dva, bp.physical_birth(), physical)).collect();
    let Some(copies) = copies.map(|copies| copies.into_iter().flatten().collect()) else {
        return then(fail(ErrorKind::Corrupt));
    };
    let (owner, may_leave) = (core.clone(), may_leave(&bookmark, bp.level(), bp.object_type()));
    lost_copies::rewrite(core, copies, may_leave, move |ops: Vec<LeafOp>| {
        batch::issue(&owner, &snapshot, OPTIONS, ops, move |results: Vec<LeafResult>| {
            let is_written = !results.is_empty() && results.iter().all(Result::is_ok);
            then(if is_written { Ok(()) } else { fail(ErrorKind::Io) });
        });
    });
}
