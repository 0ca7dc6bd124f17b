//! Loads what is free and allocated of a pool that is being opened. A space map that is broken for good costs its metaslab: nothing is
//! allocated there any more, and whoever owns the pool is told.

use crate::PoolError;
use crate::spa::services::Services;
use crate::sync::log_spacemap::LoggedChanges;
use crate::sync::spacemap::{Contents, SpaceMaps};
use dmu::{BlockError, Cause, DmuError, with_causes};
use metaslab::{Allocator, BROKEN_ACTION};
use ondisk::VdevId;
use vdev::{TopVdev, VdevTree};

/// Replays every space map into the allocator; `goes_on`: the logs of changes will be gone on with. With `totals_only` the map's headers are asked how
/// much is allocated, as far as they tell, and maps are not read: nobody is going to allocate (OpenZFS loads metaslabs when they are needed).
///
/// # Errors
/// That of a map that a device failed to give, which may come back; and of a broken one of which a log of changes has news that is given up: those
/// would have to go to the map before.
pub(crate) fn load(
    services: &Services,
    maps: &SpaceMaps,
    (logged, goes_on): (&LoggedChanges, bool),
    tree: &VdevTree,
    totals_only: bool,
) -> Result<(), PoolError> {
    for top in tree.tops.iter().filter(|top| top.is_concrete()) {
        for metaslab in 0..maps.metaslabs(top.id) {
            if totals_only && tell_one(&services.allocator, maps, logged, (top.id, metaslab)).is_some() {
                continue;
            }
            let Err(error) = load_one(&services.allocator, maps, logged, (top.id, metaslab)) else { continue };
            let has_news = services.writeable && !goes_on && logged.changes.contains_key(&(top.id, metaslab));
            if !is_for_good(&error) {
                return Err(error);
            }
            let error = match error {
                PoolError::SpaceMap(..) => error,
                cause => PoolError::SpaceMap(top.id, metaslab, Some(Cause::new(cause))),
            };
            if has_news {
                return Err(error);
            }
            give_up(services, (top, metaslab), &error)?;
        }
    }
    Ok(())
}

fn load_one(allocator: &Allocator, maps: &SpaceMaps, logged: &LoggedChanges, (vdev, metaslab): (VdevId, u32)) -> Result<(), PoolError> {
    let Contents { mut allocated, mut trail } = maps.load(vdev, metaslab)?;
    let contradiction = || PoolError::SpaceMap(vdev, metaslab, None);
    if !logged.apply(vdev, metaslab, &mut allocated) {
        return Err(contradiction());
    }
    let segments: Vec<_> = allocated.iter().collect();
    allocator.load(vdev, metaslab, &segments).map_err(|_| contradiction())?;
    trail.extend(logged.changes.get(&(vdev, metaslab)).into_iter().flat_map(|change| change.allocs.iter()));
    allocator.go_on_behind(vdev, metaslab, trail);
    if maps.has_map(vdev, metaslab) {
        // OpenZFS writes headers anew that tell no lengths.
        let free = maps.histogram(vdev, metaslab).unwrap_or_else(|| allocator.synced_histogram(vdev, metaslab));
        allocator.note_histogram(vdev, metaslab, &free);
    }
    Ok(())
}

/// Makes known how much is allocated in a metaslab; None where its map has to be read for that, or contradicts itself.
fn tell_one(allocator: &Allocator, maps: &SpaceMaps, logged: &LoggedChanges, (vdev, metaslab): (VdevId, u32)) -> Option<()> {
    let has_map = maps.has_map(vdev, metaslab);
    let histogram = if has_map { Some(maps.histogram(vdev, metaslab)?) } else { None };
    let (taken, given) = logged.changes.get(&(vdev, metaslab)).map_or((0, 0), |change| (change.allocs.total(), change.frees.total()));
    let bytes = maps.allocated_bytes(vdev, metaslab)?.checked_add(taken)?.checked_sub(given)?;
    allocator.tell(vdev, metaslab, bytes).ok()?;
    if let Some(free) = histogram {
        allocator.note_histogram(vdev, metaslab, &free);
    }
    Some(())
}

/// False when a device that works again may make it good.
fn is_for_good(error: &PoolError) -> bool {
    !matches!(error, PoolError::Dmu(DmuError::Block(BlockError::Io | BlockError::Suspended, _)) | PoolError::Closed)
}

/// Has nothing allocated in a metaslab any more, and says so.
fn give_up(services: &Services, (top, metaslab): (&TopVdev, u32), error: &PoolError) -> Result<(), PoolError> {
    let why = with_causes(error);
    services.allocator.distrust(top.id, metaslab, why.clone()).map_err(|_| PoolError::SpaceMap(top.id, metaslab, None))?;
    let event = services.event("ereport.fs.zfs.space_map").with("vdev_guid", top.guid.0).with("vdev", u64::from(top.id.0));
    services.events.event(event.with("metaslab", u64::from(metaslab)).with("why", why).with("action", BROKEN_ACTION));
    Ok(())
}
