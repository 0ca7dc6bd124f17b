//! Reading: from a block pointer to logical bytes.
//!
//! ```text
//! read() ─hole, embedded─► then
//!   └─ gang? ── gang::read() ──┐
//!   └─ read_copies() ──────────┴─► decompress ─► then
//! ```

use crate::copies::{CopySpec, Extras, read_copies_with};
use crate::core::Core;
use crate::snapshot::Snapshot;
use crate::stage::Packed;
use crate::suspend::{Held, Hold, Resumes, may_recover};
use crate::together::{self, Place};
use crate::verify::{check_pointer, decompress, is_sealed};
use crate::{ErrorKind, Landed, LandedThen, ReadRequest, ReadThen, ZioError, gang};
use abd::{Abd, AbdPart};
use ondisk::{BlockPtr, Compression};
use std::sync::Arc;

/// Reads the logical bytes of a block.
pub(crate) fn read(core: &Arc<Core>, request: ReadRequest, then: ReadThen) {
    read_into(core, request, Vec::new(), Box::new(move |result| then(result.map(Landed::into_abd))));
}

/// Logical reads whose leaf I/Os, and then whose repairs, go out in one go.
pub(crate) fn read_together(core: &Arc<Core>, reads: Vec<(ReadRequest, ReadThen)>) {
    let places = together::places(reads.len());
    leaf::plugged(|| {
        for ((request, then), place) in reads.into_iter().zip(places) {
            read_as(core, request, Vec::new(), Some(place), Box::new(move |result| then(result.map(Landed::into_abd))));
        }
    });
}

/// A logical read into `target` where that is possible; nowhere in particular when it is empty.
pub(crate) fn read_into(core: &Arc<Core>, request: ReadRequest, target: Vec<AbdPart>, then: LandedThen) {
    read_as(core, request, target, None, then);
}

fn read_as(core: &Arc<Core>, request: ReadRequest, target: Vec<AbdPart>, place: Option<Place>, then: LandedThen) {
    let bp = &request.bp;
    let fail = |kind| Err(ZioError::new(kind, request.bookmark));
    if let Err(kind) = check_pointer(bp) {
        return then(fail(kind));
    }
    let raw = request.flags.raw || request.flags.scrub || request.flags.resilver;
    if bp.is_hole() {
        return then(Ok(Landed::Elsewhere(Abd::zeroed(bp.lsize()))));
    }
    if bp.is_embedded() {
        let payload = Abd::from_slice(&bp.embedded_payload());
        let result = if request.flags.raw { Ok(payload) } else { decompress_embedded(bp, &payload) };
        return then(result.map(Landed::Elsewhere).or_else(fail));
    }
    if is_sealed(bp) && !raw {
        return then(fail(ErrorKind::Unsupported));
    }
    let since = core.suspension.resumes();
    let snapshot = core.snapshot();
    let spec = CopySpec { bp: *bp, bookmark: request.bookmark, priority: request.priority, flags: request.flags, header: false };
    let (owner, view) = (core.clone(), snapshot.clone());
    let unpacks = !raw && bp.compression() != Compression::OFF;
    let (near, target) = if unpacks || bp.is_gang() { (target, Vec::new()) } else { (Vec::new(), target) };
    let finish = {
        let owner = owner.clone();
        move |result: Result<Landed, ZioError>| match result {
            Ok(landed) => then(Ok(landed)),
            Err(error) => {
                let then: ReadThen = Box::new(move |result| then(result.map(Landed::Elsewhere)));
                read_failed(&owner, (&view, since), request, then, error);
            }
        }
    };
    let deliver: LandedThen = Box::new(move |result| match result {
        Ok(Landed::Elsewhere(physical)) if !raw => {
            let unpacked = move |result: Result<Landed, ErrorKind>| finish(result.map_err(|kind| ZioError::new(kind, request.bookmark)));
            if owner.faults.strike(&owner.exec, &request.bookmark, request.bp.object_type(), None).is_some() {
                return unpacked(Err(ErrorKind::Io));
            }
            owner.stages.decompress(&request.bookmark, Packed { bp: request.bp, physical, near }, unpacked);
        }
        result => finish(result),
    });
    if bp.is_gang() {
        let deliver = move |result: Result<Abd, ZioError>| deliver(result.map(Landed::Elsewhere));
        gang::read(core, &snapshot, spec, Box::new(deliver));
    } else {
        read_copies_with(core, &snapshot, spec, Extras { target, group: place, feeds: true }, deliver);
    }
}

fn decompress_embedded(bp: &BlockPtr, payload: &Abd) -> Result<Abd, ErrorKind> {
    if bp.compression() == Compression::OFF && payload.len() != bp.lsize() {
        return Err(ErrorKind::Corrupt);
    }
    decompress(bp, payload)
}

/// Delivers a failed read, holds it, or, when the pool was resumed since it began, tries it again.
fn read_failed(core: &Arc<Core>, (snapshot, since): (&Snapshot, Resumes), request: ReadRequest, then: ReadThen, error: ZioError) {
    let patient = !request.flags.speculative && !request.flags.scrub && !request.flags.resilver;
    let then = if patient && may_recover(error.kind) {
        match core.hold(snapshot, Held::Read(request, then), since, Some(error)) {
            Hold::Kept { .. } => return,
            Hold::Outdated(Held::Read(request, then)) => return read(core, request, then),
            Hold::Refused(Held::Read(_, then)) => then,
            Hold::Outdated(held) | Hold::Refused(held) => return held.fail(error.kind),
        }
    } else {
        then
    };
    if !request.flags.speculative {
        core.stats.read_failures.bump();
        core.block_lost(snapshot, &request.bookmark, error.dva);
    }
    then(Err(error));
}
