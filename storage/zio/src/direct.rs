//! Checks that direct I/O needs because the bytes are a user's: after a write, whether the buffer still is what was written;
//! and what is counted and told when it is not (OpenZFS: `zio_dio_checksum_verify`, `zio_dio_chksum_verify_error_report`).
//!
//! Only memory that others can write to is checked ([`Abd::is_unstable`]). Of everything else the type system knows that it
//! cannot have changed, so that a mismatch is the device's doing and is treated as such.

use crate::WriteRequest;
use crate::events::Check;
use exec::Mutex;
use ondisk::{BlockPtr, Bookmark, Checksum, Compression, Dva, ObjectId, ObjsetId, VdevId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// Parameters of direct I/O, by OpenZFS's names; each pool has its own.
#[derive(Debug)]
pub struct DirectParameters {
    /// `zfs_vdev_direct_write_verify`: other than 0, the buffer of a direct write that others can change is compared with the
    /// block's checksum once the devices have it. Default 1.
    pub write_verify: AtomicU32,
    /// Switch: other than 0, a buffer that was changed makes the write fail with an I/O error, as OpenZFS does; else a stable copy of
    /// it is written. Default 0.
    pub write_verify_strict: AtomicU32,
    /// `zfs_dio_write_verify_events_per_second`: events above this rate are not posted, per vdev. Default 20.
    pub events_per_second: AtomicU32,
}

impl Default for DirectParameters {
    fn default() -> DirectParameters {
        DirectParameters { write_verify: AtomicU32::new(1), write_verify_strict: AtomicU32::new(0), events_per_second: AtomicU32::new(20) }
    }
}

impl DirectParameters {
    pub(crate) fn verifies_writes(&self) -> bool {
        self.write_verify.load(Ordering::Relaxed) != 0
    }
    pub(crate) fn is_strict(&self) -> bool {
        self.write_verify_strict.load(Ordering::Relaxed) != 0
    }
}

/// Verify errors of one top-level vdev.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    errors: u64,
    /// The second that `posted` is about.
    second: u64,
    posted: u32,
}

/// Blocks whose buffer was changed during direct I/O, with their bytes: such blocks were written, or read, once more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangedBuffers {
    /// Blocks and bytes written again from a stable copy (or refused, when that is strict).
    pub writes: (u64, u64),
    /// Blocks and bytes read again into a buffer of their own.
    pub reads: (u64, u64),
}

impl ChangedBuffers {
    fn add(&mut self, other: ChangedBuffers) {
        let add = |sum: &mut (u64, u64), more: (u64, u64)| *sum = (sum.0 + more.0, sum.1 + more.1);
        add(&mut self.writes, other.writes);
        add(&mut self.reads, other.reads);
    }
}

/// Number of objects that have counts of their own; what happens to others is counted for their object sets.
const OBJECTS_MAX: usize = 4096;
/// Stands for the objects of a set that have no counts of their own.
const OTHERS: ObjectId = ObjectId(u64::MAX);

/// Counts of verify errors. Errors only: no I/O that goes well comes here.
#[derive(Debug, Default)]
pub(crate) struct VerifyErrors {
    by_vdev: Mutex<BTreeMap<VdevId, Seen>>,
    by_object: Mutex<BTreeMap<(ObjsetId, ObjectId), ChangedBuffers>>,
}

impl VerifyErrors {
    fn note_object(&self, bookmark: &Bookmark, bytes: u64, check: Check) {
        let mut all = self.by_object.lock();
        let own = (bookmark.objset, bookmark.object);
        let is_full = all.len() >= OBJECTS_MAX && !all.contains_key(&own);
        let one = match check {
            Check::Write => ChangedBuffers { writes: (1, bytes), ..ChangedBuffers::default() },
            Check::Read => ChangedBuffers { reads: (1, bytes), ..ChangedBuffers::default() },
        };
        all.entry(if is_full { (bookmark.objset, OTHERS) } else { own }).or_default().add(one);
    }

    /// Counts a failed check for the object, and on the top-level vdev of each of the block's addresses; gives those of which it is to be told, not
    /// more than `limit` a second of each, with the vdev's errors so far.
    pub(crate) fn note(&self, bp: &BlockPtr, bookmark: &Bookmark, check: Check, (now_ns, limit): (u64, u32)) -> Vec<(Dva, u64)> {
        self.note_object(bookmark, bp.lsize() as u64, check);
        let second = now_ns / 1_000_000_000;
        let mut told = Vec::new();
        for dva in bp.dvas() {
            let mut all = self.by_vdev.lock();
            let seen = all.entry(dva.vdev).or_default();
            seen.errors += 1;
            if seen.second != second {
                (seen.second, seen.posted) = (second, 0);
            }
            let post = seen.posted < limit;
            seen.posted += u32::from(post);
            told.extend(post.then_some((dva, seen.errors)));
        }
        told
    }

    /// Failed checks on this top-level vdev.
    pub(crate) fn of_vdev(&self, vdev: VdevId) -> u64 {
        self.by_vdev.lock().get(&vdev).map_or(0, |seen| seen.errors)
    }

    /// Forgets those of one vdev, or all.
    pub(crate) fn clear(&self, vdev: Option<VdevId>) {
        self.by_vdev.lock().retain(|known, _| vdev.is_some_and(|vdev| vdev != *known));
    }

    /// Counts of the changed buffers of this object, or of any of the object set, or of any at all.
    pub(crate) fn changed(&self, objset: Option<ObjsetId>, object: Option<ObjectId>) -> ChangedBuffers {
        let mut sum = ChangedBuffers::default();
        let all = self.by_object.lock();
        let wanted =
            all.iter().filter(|((set, one), _)| objset.is_none_or(|objset| objset == *set) && object.is_none_or(|object| object == *one));
        wanted.for_each(|(_, counts)| sum.add(*counts));
        sum
    }
}

/// True when the pipeline works on such bytes where they are although others may change them: what it computes comes from
/// one look, and one more look afterwards tells whether they changed. Everything else gets a stable copy first.
pub(crate) fn can_stay_unstable(request: &WriteRequest) -> bool {
    request.checksum == Checksum::FLETCHER_4 && request.copies == 1 && request.compression == Compression::OFF
}
