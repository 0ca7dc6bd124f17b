//! FUSE over io_uring (Linux 6.14): requests are served on the processor of whoever makes them, and one system call answers a request and
//! waits for the next. It stands beside read(2), by which FORGET and INTERRUPT still come.
//!
//! A mount has seats: buffers for one request each, some for every processor that the kernel knows. Memory for seats is bounded for the
//! process; mounts that come later are served by read(2), as are all where the kernel does not offer rings. docs/adr/0017 has the choice.

mod processors;
mod ring;
mod rings;
mod seat;

pub(crate) use rings::{Place, Rings};
pub(crate) use seat::Turn;

use std::sync::atomic::{AtomicUsize, Ordering};

/// Switch of the kernel's module.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// Bytes of payload of all seats of this process, at most. They are memory once requests as large as that came.
const SEAT_BYTES_MAX: usize = 256 << 20;

static SEAT_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Way on which a mount's requests come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Uring {
    /// Through read(2).
    #[default]
    Off,
    /// Through io_uring where the kernel offers it.
    Auto,
    /// As `Auto`; what the kernel's module does not offer is switched on there (root only).
    On,
}

/// True when the kernel offers FUSE over io_uring for mounts that come now.
pub fn uring_is_offered() -> bool {
    std::fs::read_to_string(SWITCH).is_ok_and(|text| matches!(text.trim(), "Y" | "1"))
}

impl Uring {
    /// True when a mount that comes now is to have rings; may switch on what is off.
    pub(crate) fn is_wanted(self) -> bool {
        if self == Uring::On && !uring_is_offered() {
            // Whether it helped is read again.
            let _ = std::fs::write(SWITCH, "Y");
        }
        self != Uring::Off && uring_is_offered()
    }
}

/// Share of the memory for seats.
#[derive(Debug)]
pub(crate) struct Share(usize);

impl Share {
    /// Takes so many bytes, if they are left.
    fn take(bytes: usize) -> Option<Share> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= SEAT_BYTES_MAX);
        SEAT_BYTES.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok().map(|_| Share(bytes))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        SEAT_BYTES.fetch_sub(self.0, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::{SEAT_BYTES_MAX, Share};

    /// A thousand mounts with seats for large requests would take the machine's memory.
    #[test]
    fn memory_for_seats_is_bounded() {
        let half = Share::take(SEAT_BYTES_MAX / 2);
        assert!(half.is_some() && Share::take(SEAT_BYTES_MAX / 2 + 1).is_none() && Share::take(usize::MAX).is_none());
        drop(half);
        assert!(Share::take(SEAT_BYTES_MAX).is_some());
    }
}
