//! What crossed the link, counted where it is written and read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of what crossed the link so far. Bytes are those of whole frames, without what the transport adds; what goes through shared
/// memory is counted by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Frames to the target.
    pub frames_out: u64,
    /// Frames from the target.
    pub frames_in: u64,
    /// Bytes to the target.
    pub bytes_out: u64,
    /// Bytes from the target.
    pub bytes_in: u64,
    /// Programs, and other questions, that were answered: round trips.
    pub round_trips: u64,
    /// Frames that were sent again, because a connection was lost, or they or their answers were damaged in shared memory.
    pub resent: u64,
    /// Frames of the target that were not authentic, and bytes in shared memory that were not those that it announced.
    pub damaged: u64,
    /// Connections after the first one.
    pub reconnects: u64,
    /// Bytes to the target through shared memory; they did not cross the link.
    pub shared_out: u64,
    /// Bytes from the target through shared memory.
    pub shared_in: u64,
    /// Payloads, and rooms for them, that found no free slot in shared memory: they were in frames.
    pub shared_full: u64,
}

impl LinkStats {
    /// Bytes that crossed the link, in both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes_out + self.bytes_in
    }

    /// Counts of what came since an earlier look.
    pub fn since(&self, earlier: &LinkStats) -> LinkStats {
        LinkStats {
            frames_out: self.frames_out - earlier.frames_out,
            frames_in: self.frames_in - earlier.frames_in,
            bytes_out: self.bytes_out - earlier.bytes_out,
            bytes_in: self.bytes_in - earlier.bytes_in,
            round_trips: self.round_trips - earlier.round_trips,
            resent: self.resent - earlier.resent,
            damaged: self.damaged - earlier.damaged,
            reconnects: self.reconnects - earlier.reconnects,
            shared_out: self.shared_out - earlier.shared_out,
            shared_in: self.shared_in - earlier.shared_in,
            shared_full: self.shared_full - earlier.shared_full,
        }
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    frames_out: AtomicU64,
    frames_in: AtomicU64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    pub(crate) round_trips: AtomicU64,
    pub(crate) resent: AtomicU64,
    pub(crate) damaged: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) shared_out: AtomicU64,
    pub(crate) shared_in: AtomicU64,
    pub(crate) shared_full: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn sent(&self, bytes: u64) {
        add(&self.frames_out, 1);
        add(&self.bytes_out, bytes);
    }

    pub(crate) fn received(&self, bytes: u64) {
        add(&self.frames_in, 1);
        add(&self.bytes_in, bytes);
    }

    pub(crate) fn read(&self) -> LinkStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LinkStats {
            frames_out: of(&self.frames_out),
            frames_in: of(&self.frames_in),
            bytes_out: of(&self.bytes_out),
            bytes_in: of(&self.bytes_in),
            round_trips: of(&self.round_trips),
            resent: of(&self.resent),
            damaged: of(&self.damaged),
            reconnects: of(&self.reconnects),
            shared_out: of(&self.shared_out),
            shared_in: of(&self.shared_in),
            shared_full: of(&self.shared_full),
        }
    }
}
