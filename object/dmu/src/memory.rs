//! What dnodes and records of dirty blocks take of memory, apart from the bytes of blocks (OpenZFS: `dnode_size`, `dbuf_size`,
//! `bonus_size` of `arcstats`).
//!
//! Invariant: what is counted is held by a [`Counted`] inside the thing itself, so a figure falls exactly when its memory goes.

use kstat::Counter;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Kinds of things whose memory is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Dnode,
    Bonus,
    Dbuf,
    Indirect,
}

#[derive(Default)]
struct Pair {
    count: Counter,
    bytes: Counter,
}

static HELD: LazyLock<[Pair; 4]> = LazyLock::new(Default::default);

/// A thing in memory, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    what: What,
    bytes: u64,
}

impl Counted {
    pub(crate) fn new(what: What, bytes: usize) -> Counted {
        let held = &HELD[what as usize];
        held.count.bump();
        held.bytes.add(bytes as u64);
        Counted { what, bytes: bytes as u64 }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let held = &HELD[self.what as usize];
        held.count.sub(1);
        held.bytes.sub(self.bytes);
    }
}

/// Bytes of records that direct reads keep for the neighbours of what they read.
static WINDOWS: AtomicU64 = AtomicU64::new(0);

/// Room for a record that a direct read keeps, until it is dropped.
#[derive(Debug)]
pub(crate) struct Room(u64);

impl Room {
    /// Room for so many bytes, unless all of them together were more than `most` then.
    pub(crate) fn take(bytes: u64, most: u64) -> Option<Room> {
        let fits = |held: u64| held.checked_add(bytes).filter(|held| *held <= most);
        WINDOWS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok().map(|_| Room(bytes))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        WINDOWS.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Memory that the object layer of this process holds besides the bytes of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Number of dnodes in memory.
    pub dnodes: u64,
    /// Bytes of those dnodes, without bonuses.
    pub dnode_bytes: u64,
    /// Bytes of their bonuses, as they were when the dnodes came to memory.
    pub bonus_bytes: u64,
    /// Number of records of dirty blocks.
    pub dbufs: u64,
    /// Bytes of those records, without those of the blocks.
    pub dbuf_bytes: u64,
    /// Number of indirect blocks that dnodes remember; most are in the cache, too.
    pub indirects: u64,
    /// Bytes of those indirect blocks.
    pub indirect_bytes: u64,
    /// Bytes of records that direct reads keep for the neighbours of what they read; they are of buffers.
    pub direct_window_bytes: u64,
}

/// Memory that the object layer holds now.
pub fn memory_use() -> MemoryUse {
    let [dnode, bonus, dbuf, indirect] = [What::Dnode, What::Bonus, What::Dbuf, What::Indirect].map(|what| {
        let held = &HELD[what as usize];
        // Read while others count: a sum may be below zero for a moment.
        [held.count.get(), held.bytes.get()].map(|value| (value as i64).max(0) as u64)
    });
    MemoryUse {
        dnodes: dnode[0],
        dnode_bytes: dnode[1],
        bonus_bytes: bonus[1],
        dbufs: dbuf[0],
        dbuf_bytes: dbuf[1],
        indirects: indirect[0],
        indirect_bytes: indirect[1],
        direct_window_bytes: WINDOWS.load(Ordering::Relaxed),
    }
}
