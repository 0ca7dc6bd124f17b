//! What is written of a device on the device itself, so that its blocks are found again: which log blocks there are, and the one that is being filled.
//! Without I/O.

use abd::Abd;
use kernels::checksum::fletcher4;
use ondisk::{ByteOrder, Compression, Guid, L2ARC_LOG_BLOCK_BYTES, L2arcHeader, L2arcLogBlock, L2arcLogEntry, L2arcLogPtr, L2arcSweep};
use std::collections::VecDeque;

/// Log blocks of a device.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    /// The log block that is being filled, of which nothing is on the device.
    open: Draft,
    /// Log blocks that are on the device, the oldest first.
    written: VecDeque<L2arcLogPtr>,
    /// True while the newest log blocks may lead to others that are not among those, as they were not looked for, or not all read.
    has_more: bool,
    /// State of the last trim of the whole device, and its time in seconds since 1970.
    trim: (u64, u64),
}

/// Log blocks that a round writes, and what it leaves for the next one.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// Number of entries of each log block; 0 for none.
    capacity: usize,
    entries: Vec<L2arcLogEntry>,
    /// Bytes of the blocks that the entries list, on the device.
    payload_bytes: u64,
    /// Newest log blocks, the newest first.
    newest: [L2arcLogPtr; 2],
    /// Log blocks of this round.
    pub(crate) fresh: Vec<L2arcLogPtr>,
}

impl Draft {
    /// True when the block after `more` others fills a log block.
    pub(crate) fn fills_after(&self, more: usize) -> bool {
        self.capacity > 0 && (self.entries.len() + more + 1).is_multiple_of(self.capacity)
    }

    /// Lists a block that takes so many bytes; true when the log block is full then.
    pub(crate) fn list(&mut self, entry: L2arcLogEntry, allocated: u64) -> bool {
        if self.capacity == 0 {
            return false;
        }
        self.entries.push(entry);
        self.payload_bytes += allocated;
        self.entries.len() == self.capacity
    }

    /// Ends the log block that is being filled: its bytes, in whole sectors, which go to this offset. `sweep` is what is there once it is written: where
    /// that does not have the log block before the one before, this one leads to none.
    pub(crate) fn end(&mut self, daddr: u64, sector: u64, sweep: &L2arcSweep) -> Abd {
        let is_older = self.fresh.len() < 2;
        let previous = Some(&self.newest[1]).filter(|pointer| !is_older || sweep.holds(pointer)).cloned().unwrap_or_default();
        let block = L2arcLogBlock { previous, entries: std::mem::take(&mut self.entries) };
        let first = block.entries.first().map_or(0, |entry| entry.le_daddr);
        let (compression, bytes) = packed(block.encode(), sector as usize);
        let checksum = fletcher4(&[bytes.as_slice()], ByteOrder::Little);
        let payload = (first, std::mem::take(&mut self.payload_bytes));
        let pointer = L2arcLogPtr::new((daddr, bytes.len() as u64), compression, payload, checksum);
        self.newest = [pointer.clone(), self.newest[0].clone()];
        self.fresh.push(pointer);
        Abd::from_slice(&bytes)
    }
}

/// Bytes of a log block as they are stored: compressed, where that saves a sector.
fn packed(plain: Vec<u8>, sector: usize) -> (Compression, Vec<u8>) {
    let mut target = vec![0; plain.len()];
    let limit = plain.len().saturating_sub(sector);
    match kernels::compress(Compression::LZ4, 0, &plain, &mut target[..limit]) {
        Some(length) => {
            target[length..].fill(0);
            target.truncate(length.next_multiple_of(sector));
            (Compression::LZ4, target)
        }
        None => (Compression::OFF, plain),
    }
}

/// Reason why bytes are not a log block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Bytes that are not those that were written.
    Checksum,
    /// Bytes that cannot be decompressed.
    Packing,
    /// Bytes without the magic of a log block.
    Magic,
}

/// Log block of which these are the bytes that are stored, with so many entries (OpenZFS: `l2arc_log_blk_read`).
///
/// # Errors
/// The first of [`Unread`] that is the case.
pub fn unpack_log(pointer: &L2arcLogPtr, stored: &[u8], entries: usize) -> Result<L2arcLogBlock, Unread> {
    if fletcher4(&[stored], ByteOrder::Little) != pointer.lbp_cksum {
        return Err(Unread::Checksum);
    }
    let mut plain = vec![0; L2ARC_LOG_BLOCK_BYTES];
    let compression = pointer.compression();
    if !matches!(compression, Compression::OFF | Compression::LZ4) {
        return Err(Unread::Packing);
    }
    kernels::decompress(compression, stored, &mut plain).map_err(|_| Unread::Packing)?;
    L2arcLogBlock::decode(&plain, entries).ok_or(Unread::Magic)
}

impl Journal {
    /// Journal of a device without log blocks, which are to have so many entries.
    pub(crate) fn new(capacity: usize) -> Journal {
        let newest = [L2arcLogPtr::default(), L2arcLogPtr::default()];
        let open = Draft { capacity, entries: Vec::new(), payload_bytes: 0, newest, fresh: Vec::new() };
        Journal { open, written: VecDeque::new(), has_more: false, trim: (0, 0) }
    }

    /// Log block with which a round goes on.
    pub(crate) fn draft(&self) -> Draft {
        self.open.clone()
    }

    /// Takes over the log blocks that a round wrote.
    pub(crate) fn accept(&mut self, draft: Draft) {
        for pointer in &draft.fresh {
            self.open.newest = [pointer.clone(), self.open.newest[0].clone()];
        }
        let newest = self.open.newest.clone();
        self.written.extend(draft.fresh);
        self.open = Draft { newest, fresh: Vec::new(), ..draft };
    }

    /// Forgets log blocks that are not there any more, with everything that they list; true when there were any, or may have been.
    pub(crate) fn evict(&mut self, sweep: &L2arcSweep) -> bool {
        let before = self.written.len();
        while self.written.front().is_some_and(|pointer| !sweep.holds(pointer)) {
            self.written.pop_front();
        }
        for pointer in self.open.newest.iter_mut().filter(|pointer| !sweep.holds(pointer)) {
            *pointer = L2arcLogPtr::default();
        }
        self.written.len() != before || self.has_more
    }

    /// Goes on behind the log blocks that a header leads to.
    pub(crate) fn adopt(&mut self, header: &L2arcHeader) {
        self.open.newest = header.dh_start_lbps.clone();
        self.has_more = true;
        self.trim = (header.dh_trim_state, header.dh_trim_action_time);
    }

    /// Knows a log block that is older than all that it knows.
    pub(crate) fn found(&mut self, pointer: L2arcLogPtr) {
        self.written.push_front(pointer);
    }

    /// Knows every log block that there is; leads to none any more where there is none.
    pub(crate) fn found_all(&mut self) {
        self.has_more = false;
        if self.written.is_empty() {
            self.open.newest = [L2arcLogPtr::default(), L2arcLogPtr::default()];
        }
    }

    /// Knows that the whole device was trimmed, at so many seconds since 1970.
    pub(crate) fn trimmed(&mut self, seconds: u64) {
        self.trim = (L2arcHeader::TRIM_COMPLETE, seconds);
    }

    /// Bytes that log blocks take of the device, and their number.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.written.iter().map(L2arcLogPtr::asize).sum(), self.written.len() as u64)
    }

    /// The header of the device, of this pool.
    pub(crate) fn header(&self, (pool, device): (Guid, Guid), sweep: &L2arcSweep) -> L2arcHeader {
        let (lb_asize, lb_count) = self.size();
        L2arcHeader {
            dh_magic: L2arcHeader::MAGIC,
            dh_version: L2arcHeader::VERSION,
            dh_spa_guid: pool.0,
            dh_vdev_guid: device.0,
            dh_log_entries: self.open.capacity as u64,
            dh_evict: sweep.evict,
            dh_flags: if sweep.is_first { L2arcHeader::EVICT_FIRST } else { 0 },
            dh_start: sweep.start,
            dh_end: sweep.end,
            dh_start_lbps: self.open.newest.clone(),
            dh_lb_asize: lb_asize,
            dh_lb_count: lb_count,
            dh_trim_action_time: self.trim.1,
            dh_trim_state: self.trim.0,
            ..L2arcHeader::default()
        }
    }
}
