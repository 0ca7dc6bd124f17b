//! The events that the pipeline posts, with OpenZFS's class and field names (`zfs_fm.c`, `sys/fm/fs/zfs.h`).

use crate::error::{SUSPENDED_ACTION, ZioError, whose};
use crate::snapshot::Snapshot;
use kstat::Event;
use leaf::{FailedIo, LeafTiming};
use ondisk::{Bookmark, Dva, Guid};
use vdev::LeafId;

/// Check of a buffer of direct I/O that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Read,
    Write,
}

fn of_pool(class: &'static str, snapshot: &Snapshot) -> Event {
    let facts = &snapshot.view.facts;
    Event::new(class).with("pool", facts.name.as_str()).with("pool_guid", facts.guid.0)
}

fn of_leaf(class: &'static str, snapshot: &Snapshot, leaf: LeafId) -> Event {
    let counts = snapshot.stats(leaf).counts();
    let [reads, writes, ..] = counts.errors;
    let leaf = snapshot.view.tree.leaf(leaf);
    of_pool(class, snapshot)
        .with("vdev_guid", leaf.guid.0)
        .with("vdev_path", leaf.path.as_str())
        .with("vdev_read_errors", reads)
        .with("vdev_write_errors", writes)
        .with("vdev_cksum_errors", counts.checksum_errors)
        .with("vdev_delays", counts.slow_ios)
}

fn with_bookmark(event: Event, bookmark: &Bookmark) -> Event {
    event
        .with("zio_objset", bookmark.objset.0)
        .with("zio_object", bookmark.object.0)
        .with("zio_level", i64::from(bookmark.level.0))
        .with("zio_blkid", bookmark.block.0)
}

fn with_io(event: Event, io: &FailedIo) -> Event {
    event.with("zio_type", io.kind as u64).with("zio_priority", io.class as u64).with("zio_offset", io.offset).with("zio_size", io.bytes)
}

/// `ereport.fs.zfs.io`: a device reported an error.
pub(crate) fn leaf_io(snapshot: &Snapshot, leaf: LeafId, io: &FailedIo) -> Event {
    with_io(of_leaf("ereport.fs.zfs.io", snapshot, leaf), io)
}

/// `ereport.fs.zfs.io` of a device beside the leaves.
pub(crate) fn beside_io(snapshot: &Snapshot, guid: Guid, io: &FailedIo) -> Event {
    with_io(of_guid("ereport.fs.zfs.io", snapshot, guid), io)
}

/// A vdev of the current view, by guid; one that left it has no path.
fn of_guid(class: &'static str, snapshot: &Snapshot, guid: Guid) -> Event {
    match snapshot.find(guid) {
        Some(leaf) => of_leaf(class, snapshot, leaf),
        None => of_pool(class, snapshot).with("vdev_guid", guid.0),
    }
}

/// `ereport.fs.zfs.delay`: an I/O took `zio_slow_io_ms` or longer.
pub(crate) fn delay(snapshot: &Snapshot, leaf: Guid, io: &LeafTiming) -> Event {
    of_guid("ereport.fs.zfs.delay", snapshot, leaf)
        .with("zio_type", io.kind as u64)
        .with("zio_priority", io.class as u64)
        .with("zio_offset", io.offset)
        .with("zio_size", io.bytes)
        .with("zio_delay", io.disk_ns)
        .with("zio_timestamp", io.issued_ns)
        .with("zio_delta", io.queued_ns.saturating_add(io.disk_ns))
}

/// `ereport.fs.zfs.deadman`: a device has had an I/O for too long.
pub(crate) fn deadman(snapshot: &Snapshot, leaf: Guid, age_ns: u64) -> Event {
    of_guid("ereport.fs.zfs.deadman", snapshot, leaf).with("zio_delta", age_ns)
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

/// `ereport.fs.zfs.authentication`: a block is not what somebody with the key wrote.
pub(crate) fn not_authentic(snapshot: &Snapshot, bookmark: &Bookmark) -> Event {
    with_bookmark(of_pool("ereport.fs.zfs.authentication", snapshot), bookmark)
}

/// `ereport.fs.zfs.io_failure`: the pool is suspended, for a block of `dataset` or for something that is none.
pub(crate) fn suspended(snapshot: &Snapshot, why: Option<&ZioError>, dataset: Option<String>) -> Event {
    let event = of_pool("ereport.fs.zfs.io_failure", snapshot).with("action", SUSPENDED_ACTION);
    let Some(error) = why else { return event };
    let event = with_bookmark(event, &error.bookmark).with("why", error.kind.to_string());
    event.with("dataset", whose(error.bookmark.objset, dataset.as_deref()))
}
