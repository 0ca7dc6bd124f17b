//! The events that the pipeline posts, with OpenZFS's class and field names (`zfs_fm.c`, `sys/fm/fs/zfs.h`).

use crate::direct::Check;
use crate::engine::Snapshot;
use kstat::Event;
use ondisk::{Bookmark, Dva};
use vdev::LeafId;
use vdev_queue::IoKind;

fn of_pool(class: &'static str, snapshot: &Snapshot) -> Event {
    let facts = &snapshot.view.facts;
    Event::new(class).with("pool", facts.name.as_str()).with("pool_guid", facts.guid.0)
}

fn of_leaf(class: &'static str, snapshot: &Snapshot, leaf: LeafId) -> Event {
    let leaf = snapshot.view.tree.leaf(leaf);
    of_pool(class, snapshot).with("vdev_guid", leaf.guid.0).with("vdev_path", leaf.path.as_str())
}

fn with_bookmark(event: Event, bookmark: &Bookmark) -> Event {
    event
        .with("zio_objset", bookmark.objset.0)
        .with("zio_object", bookmark.object.0)
        .with("zio_level", i64::from(bookmark.level.0))
        .with("zio_blkid", bookmark.block.0)
}

/// `ereport.fs.zfs.io`: a device reported an error.
pub(crate) fn leaf_io(snapshot: &Snapshot, leaf: LeafId, kind: IoKind) -> Event {
    of_leaf("ereport.fs.zfs.io", snapshot, leaf).with("zio_type", kind as u64)
}

/// `ereport.fs.zfs.checksum`: a device returned wrong bytes.
pub(crate) fn checksum(snapshot: &Snapshot, leaf: LeafId, bookmark: &Bookmark) -> Event {
    with_bookmark(of_leaf("ereport.fs.zfs.checksum", snapshot, leaf), bookmark)
}

/// `ereport.fs.zfs.dio_verify_rd` and `_wr`: a user changed a buffer during direct I/O.
pub(crate) fn dio_verify(snapshot: &Snapshot, dva: Dva, bookmark: &Bookmark, check: Check, errors: u64) -> Event {
    let class = match check {
        Check::Read => "ereport.fs.zfs.dio_verify_rd",
        Check::Write => "ereport.fs.zfs.dio_verify_wr",
    };
    let mut event = of_pool(class, snapshot);
    if let Some(top) = snapshot.view.tree.top(dva.vdev) {
        event = event.with("vdev_guid", top.guid.0);
    }
    let event = event.with("dio_verify_errors", errors).with("zio_offset", dva.offset).with("zio_size", dva.asize);
    with_bookmark(event, bookmark)
}

/// `ereport.fs.zfs.data`: a block is lost.
pub(crate) fn data(snapshot: &Snapshot, bookmark: &Bookmark, dva: Dva) -> Event {
    let event = with_bookmark(of_pool("ereport.fs.zfs.data", snapshot), bookmark);
    event.with("zio_offset", dva.offset).with("zio_size", dva.asize)
}

/// `ereport.fs.zfs.io_failure`: the pool is suspended.
pub(crate) fn suspended(snapshot: &Snapshot) -> Event {
    of_pool("ereport.fs.zfs.io_failure", snapshot)
}
