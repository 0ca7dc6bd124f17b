//! Counts of how the bytes of objects moved: directly or through memory, copied or not, and why.

use kstat::Sheet;

/// Kind of bytes that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Bytes that were to be written.
    Asked,
    /// Bytes of them that went to the devices directly.
    Direct,
    /// Bytes of these that waited in memory for the rest of their block.
    Coalesced,
    /// Bytes of blocks that were written directly.
    Written,
    /// Bytes that were copied into blocks in memory.
    Copied,
    /// Bytes in buffers that were lent.
    Lent,
    /// Bytes through memory because the object is smaller than a record.
    Small,
    /// Bytes through memory because a page of them is not whole.
    Misaligned,
    /// Bytes through memory because there was no room to write them at once.
    NoRoom,
    /// Bytes through memory because direct I/O is off.
    Off,
    /// Bytes that were read.
    Read,
    /// Bytes of them that came from the devices directly, or from what was left of a block that did.
    ReadDirect,
    /// Bytes of blocks that were read directly.
    Fetched,
    /// Bytes that came from what was left of a block.
    Left,
}

const CELLS: usize = Count::Left as usize + 1;

/// Counters of a device.
#[derive(Debug)]
pub(crate) struct Stats(Sheet);

impl Default for Stats {
    fn default() -> Stats {
        Stats(Sheet::new(CELLS))
    }
}

impl Stats {
    pub(crate) fn add(&self, count: Count, bytes: u64) {
        self.0.row().add(count as usize, bytes);
    }

    /// Sums of the counters.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let get = |count: Count| self.0.get(count as usize);
        Snapshot {
            asked: get(Count::Asked),
            direct: get(Count::Direct),
            coalesced: get(Count::Coalesced),
            written: get(Count::Written),
            copied: get(Count::Copied),
            lent: get(Count::Lent),
            small: get(Count::Small),
            misaligned: get(Count::Misaligned),
            no_room: get(Count::NoRoom),
            off: get(Count::Off),
            read: get(Count::Read),
            read_direct: get(Count::ReadDirect),
            fetched: get(Count::Fetched),
            left: get(Count::Left),
        }
    }
}

/// Counts of bytes since the device was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Bytes that were to be written.
    pub asked: u64,
    /// Bytes of them that went to the devices directly, past the dirty data of txgs.
    pub direct: u64,
    /// Bytes of these that waited in memory until the rest of their block came.
    pub coalesced: u64,
    /// Bytes of blocks that were written directly.
    pub written: u64,
    /// Bytes that were copied into blocks in memory; what else went through memory is there without a copy.
    pub copied: u64,
    /// Bytes in buffers that were lent to be filled.
    pub lent: u64,
    /// Bytes that went through memory because their object is smaller than a record.
    pub small: u64,
    /// Bytes that went through memory because they begin or end within a page.
    pub misaligned: u64,
    /// Bytes that went through memory because there was no room for their blocks at once.
    pub no_room: u64,
    /// Bytes that went through memory because direct I/O is off.
    pub off: u64,
    /// Bytes that were read.
    pub read: u64,
    /// Bytes of them that did not come through the cache.
    pub read_direct: u64,
    /// Bytes of blocks that were read for these.
    pub fetched: u64,
    /// Bytes of these that came from what was left of a block which somebody else read before.
    pub left: u64,
}

impl Snapshot {
    /// Share of what was to be written that went directly, in thousandths; all of nothing.
    pub fn direct_share(&self) -> u64 {
        self.direct.saturating_mul(1000).checked_div(self.asked).unwrap_or(1000)
    }

    /// Bytes of blocks that were read for a thousand that were asked of direct reads; a thousand of nothing.
    pub fn fetched_share(&self) -> u64 {
        self.fetched.saturating_mul(1000).checked_div(self.read_direct).unwrap_or(1000)
    }
}
