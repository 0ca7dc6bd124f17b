//! Urgency of an I/O: on whose behalf it is, and which class of the scheduler that makes it.

use device::IoPriority;
use vdev_queue::{Class, IoKind};

/// Urgency of an I/O (OpenZFS: `zio_priority_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// Reads that somebody waits for.
    #[default]
    SyncRead,
    /// Writes that somebody waits for (intent log).
    SyncWrite,
    /// Reads ahead.
    AsyncRead,
    /// Writes of a transaction group.
    AsyncWrite,
    /// Reads and repairs of a scrub.
    Scrub,
    /// Reads and writes of a healing resilver.
    Resilver,
    /// Reads and writes of a sequential rebuild.
    Rebuild,
    /// Moving data off a device that is being removed.
    Removal,
    /// Writing every free sector of a device once.
    Initializing,
    /// Telling devices what is free.
    Trim,
    /// Freeing what was destroyed.
    AsyncDestroy,
}

impl Priority {
    /// True when nobody waits for such a request, and whoever does is served first.
    pub fn is_background(self) -> bool {
        !matches!(self, Priority::SyncRead | Priority::SyncWrite | Priority::AsyncRead | Priority::AsyncWrite)
    }

    /// The class of a leaf I/O of this kind on behalf of such a request. As in OpenZFS (`vdev_queue_io`), a resilver is scheduled as a
    /// scrub is, and repairs are asynchronous writes, but for those of a rebuild; asynchronous destroy, which reads ahead there,
    /// is background work here.
    pub fn class(self, kind: IoKind) -> Class {
        let class = match self {
            Priority::SyncRead => Class::SyncRead,
            Priority::SyncWrite => Class::SyncWrite,
            Priority::AsyncRead => Class::AsyncRead,
            Priority::AsyncWrite => Class::AsyncWrite,
            Priority::Scrub | Priority::Resilver | Priority::AsyncDestroy => Class::Scrub,
            Priority::Rebuild => Class::Rebuild,
            Priority::Removal => Class::Removal,
            Priority::Initializing => Class::Initializing,
            Priority::Trim => Class::Trim,
        };
        class.for_kind(kind)
    }
}

/// Urgency of a class for the kernel's scheduler of the device.
pub(crate) fn io_priority(class: Class) -> IoPriority {
    match class {
        Class::SyncRead | Class::SyncWrite => IoPriority::Awaited,
        Class::AsyncRead => IoPriority::Ahead,
        Class::AsyncWrite => IoPriority::Batch,
        Class::Rebuild => IoPriority::Repair,
        Class::Scrub | Class::Removal | Class::Trim => IoPriority::Background,
        Class::Initializing => IoPriority::Idle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, the kernel lets background work go before what somebody waits for.
    #[test]
    fn what_is_waited_for_comes_first() {
        for class in Class::ALL {
            let priority = io_priority(class);
            assert_eq!(priority == IoPriority::Awaited, class.is_promised(), "{class:?}");
            assert_eq!(priority < IoPriority::Unsaid, class.is_background(), "{class:?}");
        }
    }
}
