//! The kinds and classes of a leaf's I/O: what it does, who waits for it, and how the scheduler treats it. The scheduler and the
//! statistics use the same.

/// Kind of operation that an I/O asks of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IoKind {
    /// Bytes from the device.
    Read = 0,
    /// Bytes to the device.
    Write = 1,
    /// Makes durable what was written; never queued, because it is to come after what was written.
    Flush = 2,
    /// The device may forget bytes.
    Trim = 3,
}

impl IoKind {
    /// True when I/Os of this kind carry bytes, and neighbours may become one.
    pub(crate) fn merges(self) -> bool {
        matches!(self, IoKind::Read | IoKind::Write)
    }
}

/// Class of a leaf I/O, in the order in which classes are served above their minimum (OpenZFS: the queueable part of
/// `zio_priority_t`, `sys/zio_priority.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Reads that somebody waits for.
    SyncRead = 0,
    /// Writes that somebody waits for.
    SyncWrite = 1,
    /// Reads ahead.
    AsyncRead = 2,
    /// Writes of a transaction group, and repairs.
    AsyncWrite = 3,
    /// Scrub, healing resilver and the freeing of what was destroyed.
    Scrub = 4,
    /// Moving data off a device that is being removed.
    Removal = 5,
    /// Writing every free sector of a new device once.
    Initializing = 6,
    /// Trims of free space.
    Trim = 7,
    /// Reads and writes of a sequential rebuild.
    Rebuild = 8,
}

/// Number of classes.
pub const CLASSES: usize = 9;

impl Class {
    /// Every class, in order.
    pub const ALL: [Class; CLASSES] = [
        Class::SyncRead,
        Class::SyncWrite,
        Class::AsyncRead,
        Class::AsyncWrite,
        Class::Scrub,
        Class::Removal,
        Class::Initializing,
        Class::Trim,
        Class::Rebuild,
    ];

    /// The name inside parameters (`zfs_vdev_NAME_min_active`).
    pub fn name(self) -> &'static str {
        ["sync_read", "sync_write", "async_read", "async_write", "scrub", "removal", "initializing", "trim", "rebuild"][self as usize]
    }

    /// True when the credit throttle holds other classes back for this one (OpenZFS: `vdev_queue_is_interactive`; trims count).
    pub fn is_interactive(self) -> bool {
        !matches!(self, Class::Scrub | Class::Removal | Class::Initializing | Class::Rebuild)
    }

    /// True when the latency promise holds this class back.
    pub fn is_background(self) -> bool {
        matches!(self, Class::Scrub | Class::Removal | Class::Initializing | Class::Trim | Class::Rebuild)
    }

    /// True when the latency promise is about this class: somebody waits for each of its I/Os.
    pub fn is_promised(self) -> bool {
        matches!(self, Class::SyncRead | Class::SyncWrite)
    }

    /// True when the class is served in order of arrival; the others are served in order of offset (OpenZFS: `vdev_queue_class_fifo`).
    pub(crate) fn is_fifo(self) -> bool {
        matches!(self, Class::SyncRead | Class::SyncWrite | Class::Trim)
    }

    /// The class that an I/O of this kind has when its request asks for `self`: a read cannot be in a class of writes, nor the reverse
    /// (OpenZFS: `vdev_queue_io`).
    pub fn for_kind(self, kind: IoKind) -> Class {
        match (kind, self) {
            (IoKind::Trim, _) => Class::Trim,
            (IoKind::Read, Class::SyncWrite | Class::AsyncWrite | Class::Trim) => Class::AsyncRead,
            (IoKind::Write, Class::SyncRead | Class::AsyncRead | Class::Scrub | Class::Trim) => Class::AsyncWrite,
            _ => self,
        }
    }
}
