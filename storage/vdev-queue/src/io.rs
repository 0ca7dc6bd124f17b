//! What goes into the queue (`Io`) and what comes out of it (`Issue`): values; buffers and completions stay with the caller.

use crate::{Class, IoKind};

/// Name of a queued I/O, given by [`VdevQueue::add`](crate::VdevQueue::add); grows with every call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IoId(pub u64);

/// Name of an I/O that was handed to the device; grows in the order of issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IssueId(pub u64);

/// An I/O of one leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Kind of operation that is asked of the device.
    pub kind: IoKind,
    /// Class, by whom the I/O is for; [`Class::for_kind`] is applied.
    pub class: Class,
    /// First byte on the device.
    pub offset: u64,
    /// Number of bytes.
    pub size_bytes: u64,
    /// True when it may be merged with neighbours.
    pub merge: bool,
    /// True for a write of padding without data: made only where it joins two others (OpenZFS: `ZIO_FLAG_OPTIONAL`, `ZIO_FLAG_NODATA`).
    pub optional: bool,
    /// Only I/Os of equal flavour are merged (OpenZFS: `ZIO_FLAG_AGG_INHERIT`: what their errors mean must be the same).
    pub flavour: u32,
}

impl Io {
    /// An I/O that may be merged and carries data.
    pub fn new(class: Class, kind: IoKind, offset: u64, size_bytes: u64) -> Io {
        Io { kind, class, offset, size_bytes, merge: true, optional: false, flavour: 0 }
    }

    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.size_bytes)
    }
}

/// One queued I/O inside an [`Issue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name of the queued I/O.
    pub id: IoId,
    /// First byte on the device.
    pub offset: u64,
    /// Number of bytes.
    pub size_bytes: u64,
    /// True for padding: zeros are to be written.
    pub optional: bool,
}

/// One I/O for the device, made of one or more that were queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Name of the I/O, for [`VdevQueue::done`](crate::VdevQueue::done).
    pub id: IssueId,
    /// Class of all parts.
    pub class: Class,
    /// Kind of all parts.
    pub kind: IoKind,
    /// First byte on the device.
    pub offset: u64,
    /// Number of bytes from the first to the end of the last part, gaps between reads included.
    pub size_bytes: u64,
    /// Time in ns that the oldest part waited.
    pub queued_ns: u64,
    /// The I/Os that it serves, by offset; they do not overlap. Gaps are only between reads and are to be thrown away.
    pub parts: Vec<Part>,
    /// True for a lonely piece of padding: nothing goes to the device, the part is complete, and `done` is not called.
    pub needless: bool,
}

/// Facts of an I/O that came back from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Class of the I/O.
    pub class: Class,
    /// Number of queued I/Os that it served.
    pub parts: u32,
    /// Time in ns that its oldest part waited in the queue.
    pub queued_ns: u64,
    /// Time in ns that the device took.
    pub device_ns: u64,
    /// True when the device took `zio_slow_io_ms` or longer.
    pub slow: bool,
}

/// An I/O that the device has had for longer than `zfs_deadman_ziotime_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// Name of the I/O.
    pub id: IssueId,
    /// Class of the I/O.
    pub class: Class,
    /// Kind of operation that was asked.
    pub kind: IoKind,
    /// First byte on the device.
    pub offset: u64,
    /// Number of bytes.
    pub size_bytes: u64,
    /// Time in ns for which the device has had it.
    pub device_ns: u64,
}
