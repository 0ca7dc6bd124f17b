//! Numbers of requests of all mounts of this process, by the way on which they came.

use kstat::Sheet;
use std::sync::LazyLock;

const BY_READ: usize = 0;
const BY_RING: usize = 1;

static SHEET: LazyLock<Sheet> = LazyLock::new(|| Sheet::new(2));

/// Requests that the mounts of this process have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Number of requests that came through read(2).
    pub by_read: u64,
    /// Number of requests that came through io_uring.
    pub by_ring: u64,
}

/// Counts so far, of all mounts of this process.
pub fn request_counts() -> RequestCounts {
    RequestCounts { by_read: SHEET.get(BY_READ), by_ring: SHEET.get(BY_RING) }
}

/// Counts a request that came through read(2).
pub(crate) fn came_by_read() {
    SHEET.row().add(BY_READ, 1);
}

/// Counts a request that came through io_uring.
pub(crate) fn came_by_ring() {
    SHEET.row().add(BY_RING, 1);
}
