//! What is known of blocks and devices: where each block lies, and how far the hand of each device is. Without I/O.
//!
//! A device is written from its start to its end and then from its start again. Its log has what was written in that order, so that what lies ahead of
//! the hand is what is at the log's front. Blocks that were forgotten stay in the log until the hand comes by.

use crate::journal::{Draft, Journal};
use arc::{BlockName, BlockPlace, Leaving, SecondCounts};
use device::DeviceError;
use ondisk::label::LABEL_START_BYTES;
use ondisk::{
    BLOCK_BYTES_MAX, Dva, Guid, L2ARC_LOG_ENTRIES_MAX, L2arcBlock, L2arcHeader, L2arcLogEntry, L2arcLogPtr, L2arcSweep, Txg, is_between,
};
use std::collections::{BTreeMap, VecDeque};
use vdev::LeafState;

/// A device of the second level, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// Online, or faulted or removed since its I/O fails, or offline.
    pub state: LeafState,
    /// Bytes that blocks take, and what lists them.
    pub allocated_bytes: u64,
    /// Bytes that blocks may take.
    pub size_bytes: u64,
}

/// Bytes of memory that a block costs: in the table and in the log.
pub(crate) const HEADER_BYTES: u64 = 160;
/// Number of I/Os in a row that fail until a device is taken out of use.
const FAILURES_MAX: u32 = 16;
/// Bytes that the header of a cache device takes behind its first labels, where a sector is not larger.
const HEADER_SECTOR_BYTES: u64 = L2arcHeader::SIZE as u64;

/// Use that a block was of when it was written: read ahead, recently used, frequently used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    Ahead = 0,
    Recent = 1,
    Frequent = 2,
}

impl Usage {
    fn of(is_prefetched: bool, is_frequent: bool) -> Usage {
        match (is_prefetched, is_frequent) {
            (true, _) => Usage::Ahead,
            (false, true) => Usage::Frequent,
            (false, false) => Usage::Recent,
        }
    }
}

/// Place of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) device: Guid,
    /// First byte on the device.
    pub(crate) offset: u64,
    /// Lengths in bytes: of the block on disk, with the rest of its last sector, and as it is read.
    pub(crate) physical: u32,
    pub(crate) allocated: u32,
    logical: u32,
    /// Version of the block; None for one that was found again, which may be an older one: its checksum tells.
    version: Option<u64>,
    usage: Usage,
    is_metadata: bool,
}

impl Place {
    /// Place of a block on a device.
    pub(crate) fn of(block: &Leaving, device: Guid, (offset, allocated): (u64, u64)) -> Place {
        let usage = Usage::of(block.is_prefetched, block.is_frequent);
        let (physical, allocated, version) = (block.physical_bytes as u32, allocated as u32, Some(block.name.version()));
        Place { device, offset, physical, allocated, logical: block.logical_bytes, version, usage, is_metadata: block.is_metadata }
    }

    fn has(&self, name: BlockName) -> bool {
        self.version.is_none_or(|version| version == name.version())
    }
}

/// A device, and what stays as it is while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) device: Guid,
    /// Number that neither another device has nor this one once it is back.
    serial: u64,
    /// First byte for blocks, and the first behind them.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) sector: u64,
    pub(crate) can_trim: bool,
    /// Number of entries of each log block; 0 for none.
    pub(crate) log_entries: usize,
}

impl Site {
    /// Bytes of the header.
    pub(crate) fn header_bytes(&self) -> usize {
        (self.start - LABEL_START_BYTES) as usize
    }

    /// Number of log blocks that there can be, as what each lists takes a sector at least.
    pub(crate) fn most_logs(&self) -> u64 {
        (self.end - self.start) / (self.sector * self.log_entries.max(1) as u64) + 1
    }

    /// True for an offset and a length that are whole sectors.
    pub(crate) fn is_aligned(&self, offset: u64, bytes: u64) -> bool {
        offset.is_multiple_of(self.sector) && bytes.is_multiple_of(self.sector)
    }

    /// Place of a block that a log block lists; None for what cannot be one.
    pub(crate) fn listed(&self, log: &L2arcLogPtr, entry: &L2arcLogEntry) -> Option<(BlockPlace, Place)> {
        let (dva, block) = (Dva::from_words(entry.le_dva), L2arcBlock::from_word(entry.le_prop));
        let (offset, allocated) = (entry.le_daddr, block.physical_bytes.next_multiple_of(self.sector));
        let is_inside = offset >= self.start && offset.checked_add(allocated).is_some_and(|end| end <= self.end);
        let is_its_own = is_between(log.lbp_payload_start, log.lbp_daddr, offset) && self.is_aligned(offset, allocated);
        if !is_inside || !is_its_own || dva.is_empty() || dva.gang || block.logical_bytes.max(allocated) > BLOCK_BYTES_MAX as u64 {
            return None;
        }
        let place = Place {
            device: self.device,
            offset,
            physical: block.physical_bytes as u32,
            allocated: allocated as u32,
            logical: block.logical_bytes as u32,
            version: None,
            usage: Usage::of(block.is_prefetched, block.list == L2arcBlock::FREQUENT),
            is_metadata: block.is_metadata,
        };
        Some((BlockPlace::new(dva, Txg(entry.le_birth)), place))
    }
}

/// A device that is to be taken into use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newcomer {
    pub(crate) guid: Guid,
    /// Allocatable bytes, and bytes of a sector.
    pub(crate) asize: u64,
    pub(crate) sector: u64,
    pub(crate) can_trim: bool,
    /// Bytes of a device from which on it gets log blocks.
    pub(crate) logged_from: u64,
}

/// Shift from the bytes of a device to the number of blocks that it has room for at least.
const LARGEST_BLOCK_SHIFT: u32 = BLOCK_BYTES_MAX.trailing_zeros();

impl Newcomer {
    /// The device with a serial number: as many blocks are listed together as there is room for of the largest ones (OpenZFS: `l2arc_rebuild_dev`).
    fn site(&self, serial: u64) -> Site {
        let start = LABEL_START_BYTES + self.sector.max(HEADER_SECTOR_BYTES);
        let end = LABEL_START_BYTES + self.asize / self.sector * self.sector;
        let room = ((end - start) >> LARGEST_BLOCK_SHIFT).min(L2ARC_LOG_ENTRIES_MAX as u64) as usize;
        let log_entries = if end < self.logged_from { 0 } else { room };
        Site { device: self.guid, serial, start, end, sector: self.sector, can_trim: self.can_trim, log_entries }
    }
}

/// A device.
#[derive(Debug)]
struct Device {
    site: Site,
    state: LeafState,
    sweep: L2arcSweep,
    /// True until it was looked for what is on it: nothing is written before.
    is_pending: bool,
    is_written: bool,
    /// Bytes of blocks that are known.
    allocated: u64,
    /// Number of I/Os that failed since one worked.
    failures: u32,
    /// Offsets of what was written, with the names of the blocks, the oldest first.
    log: VecDeque<(u64, BlockPlace)>,
    journal: Journal,
    /// The header as it is on the device.
    header: Option<L2arcHeader>,
}

impl Device {
    fn new(site: Site) -> Device {
        Device {
            site,
            state: LeafState::Online,
            sweep: L2arcSweep { start: site.start, end: site.end, hand: site.start, evict: site.start, is_first: true },
            is_pending: true,
            is_written: false,
            allocated: 0,
            failures: 0,
            log: VecDeque::new(),
            journal: Journal::new(site.log_entries),
            header: None,
        }
    }

    fn is_usable(&self) -> bool {
        self.state.is_usable()
    }
}

/// Room for a round of writes, ahead of the hand of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) site: Site,
    /// First byte on the device.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    is_first: bool,
}

impl Room {
    /// Part of the device that is written, once this round has come to an offset.
    pub(crate) fn sweep(&self, evict: u64) -> L2arcSweep {
        L2arcSweep { start: self.site.start, end: self.site.end, hand: self.offset, evict, is_first: self.is_first }
    }
}

/// Blocks and devices of a second level.
#[derive(Debug, Default)]
pub(crate) struct Known {
    devices: Vec<Device>,
    blocks: BTreeMap<BlockPlace, Place>,
    /// Number of the device whose turn is next.
    turn: usize,
    /// Number of devices that were ever added.
    serials: u64,
    /// Guid of the pool.
    pub(crate) pool: Guid,
    /// Bytes of memory that the cache was charged for.
    pub(crate) charged: u64,
    /// Counters; those of blocks are kept here too.
    pub(crate) counts: SecondCounts,
}

impl Known {
    /// Adds a device of which nothing is known yet.
    pub(crate) fn add(&mut self, newcomer: &Newcomer) {
        self.serials += 1;
        self.devices.push(Device::new(newcomer.site(self.serials)));
    }

    /// Forgets a device and what is on it.
    pub(crate) fn remove(&mut self, guid: Guid) {
        let Some(index) = self.devices.iter().position(|device| device.site.device == guid) else { return };
        let log = std::mem::take(&mut self.devices[index].log);
        log.into_iter().for_each(|(offset, block)| self.drop_at(guid, offset, block));
        self.devices.remove(index);
    }

    /// Uses a device no longer that somebody took offline, and forgets nothing of it.
    pub(crate) fn pause(&mut self, guid: Guid) {
        self.device_mut(guid).into_iter().for_each(|device| device.state = LeafState::Offline);
    }

    fn device(&self, guid: Guid) -> Option<&Device> {
        self.devices.iter().find(|device| device.site.device == guid)
    }
    fn device_mut(&mut self, guid: Guid) -> Option<&mut Device> {
        self.devices.iter_mut().find(|device| device.site.device == guid)
    }
    /// Device that is still the one that it was.
    fn at(&mut self, site: &Site) -> Option<&mut Device> {
        self.devices.iter_mut().find(|device| device.site == *site)
    }

    /// True while a device is in use, and still the one that it was.
    pub(crate) fn is_here(&mut self, site: &Site) -> bool {
        self.at(site).is_some_and(|device| device.is_usable())
    }

    /// Guids of the devices.
    pub(crate) fn guids(&self) -> Vec<Guid> {
        self.devices.iter().map(|device| device.site.device).collect()
    }

    /// True while a device takes blocks.
    pub(crate) fn is_in_use(&self) -> bool {
        self.devices.iter().any(Device::is_usable)
    }

    /// Report of a device.
    pub(crate) fn report(&self, guid: Guid) -> Option<DeviceReport> {
        let device = self.device(guid)?;
        let allocated_bytes = device.allocated + device.journal.size().0;
        Some(DeviceReport { state: device.state, allocated_bytes, size_bytes: device.site.end - device.site.start })
    }

    /// Place of a block of so many bytes, on a device that works.
    pub(crate) fn find(&self, name: BlockName, physical_bytes: usize) -> Option<Place> {
        let place = self.blocks.get(&name.place()).filter(|place| place.has(name) && place.physical as usize == physical_bytes)?;
        self.device(place.device).filter(|device| device.is_usable()).map(|_| *place)
    }

    /// True for a block that is known.
    pub(crate) fn has(&self, name: BlockName) -> bool {
        self.blocks.get(&name.place()).is_some_and(|place| place.has(name))
    }

    /// True while the block lies at a place.
    pub(crate) fn is_at(&self, name: BlockName, place: &Place) -> bool {
        self.blocks.get(&name.place()) == Some(place)
    }

    /// True while a device is being written.
    pub(crate) fn is_written(&self, guid: Guid) -> bool {
        self.device(guid).is_some_and(|device| device.is_written)
    }

    /// Bytes of memory for what is known now.
    pub(crate) fn header_bytes(&self) -> u64 {
        self.devices.iter().map(|device| device.log.len() as u64).sum::<u64>() * HEADER_BYTES
    }

    /// Counters as they are now.
    pub(crate) fn all_counts(&self) -> SecondCounts {
        let mut counts = SecondCounts { header_bytes: self.header_bytes(), ..self.counts };
        for (bytes, count) in self.devices.iter().map(|device| device.journal.size()) {
            (counts.log.allocated_bytes, counts.log.count) = (counts.log.allocated_bytes + bytes, counts.log.count + count);
        }
        counts
    }

    fn count(&mut self, place: &Place, change: impl Fn(&mut u64, u64)) {
        let allocated = u64::from(place.allocated);
        change(&mut self.counts.logical_bytes, u64::from(place.logical));
        change(&mut self.counts.allocated_bytes, allocated);
        change(&mut self.counts.by_use[place.usage as usize], allocated);
        change(&mut self.counts.by_kind[usize::from(place.is_metadata)], allocated);
        if let Some(device) = self.device_mut(place.device) {
            change(&mut device.allocated, allocated);
        }
    }

    /// Forgets a block; not another version of it.
    pub(crate) fn forget(&mut self, name: BlockName) {
        if self.has(name) {
            self.drop_block(name.place());
        }
    }

    fn drop_block(&mut self, block: BlockPlace) {
        if let Some(place) = self.blocks.remove(&block) {
            self.count(&place, |sum, bytes| *sum -= bytes);
        }
    }

    /// Forgets a block that was written at an offset, unless it lies elsewhere by now.
    fn drop_at(&mut self, guid: Guid, offset: u64, block: BlockPlace) {
        if self.blocks.get(&block).is_some_and(|place| place.device == guid && place.offset == offset) {
            self.drop_block(block);
        }
    }

    /// Knows a block that was written, unless its device is gone.
    pub(crate) fn insert(&mut self, name: BlockName, place: Place) {
        let Some(device) = self.device_mut(place.device).filter(|device| device.is_usable()) else { return };
        device.log.push_back((place.offset, name.place()));
        self.drop_block(name.place());
        self.blocks.insert(name.place(), place);
        self.count(&place, |sum, bytes| *sum += bytes);
    }

    /// Knows a block that was found again and was written before all that is known of its device. False for one that is known already, or when the
    /// device is gone.
    pub(crate) fn restore(&mut self, block: BlockPlace, place: Place) -> bool {
        let is_known = self.blocks.contains_key(&block);
        let Some(device) = self.device_mut(place.device).filter(|device| device.is_usable() && !is_known) else { return false };
        device.log.push_front((place.offset, block));
        self.blocks.insert(block, place);
        self.count(&place, |sum, bytes| *sum += bytes);
        true
    }

    /// Begins a round of writes of at most `bytes`, and `boost` more on a device that was not full yet, and a log block: on the next device that works,
    /// for which room is left to its end. One that was written to its end goes on at its start.
    pub(crate) fn begin(&mut self, (bytes, boost): (u64, u64)) -> Option<Room> {
        let count = self.devices.len();
        let is_ready = |device: &Device| device.is_usable() && !device.is_pending;
        let index = (0..count).map(|step| (self.turn + step) % count).find(|&index| is_ready(&self.devices[index]))?;
        self.turn = index + 1;
        let Device { site, sweep, .. } = self.devices[index];
        let log = if site.log_entries > 0 { ondisk::L2ARC_LOG_BLOCK_BYTES as u64 } else { 0 };
        let wanted = if sweep.is_first { bytes.saturating_add(boost) } else { bytes };
        // What is ahead of the hand is never all that there is.
        let bytes = wanted.saturating_add(log).min((site.end - site.start) / 2) / site.sector * site.sector;
        if sweep.hand + bytes > site.end {
            self.clear_to(&site, site.end);
            let sweep = &mut self.devices[index].sweep;
            (sweep.hand, sweep.evict, sweep.is_first) = (site.start, site.start, false);
        }
        let device = &mut self.devices[index];
        device.is_written = true;
        self.counts.feeds += 1;
        Some(Room { site, offset: device.sweep.hand, bytes, is_first: device.sweep.is_first })
    }

    /// Forgets what lies between the hand of a device and an offset, and moves nothing. True when it had log blocks there.
    pub(crate) fn clear_to(&mut self, site: &Site, offset: u64) -> bool {
        while let Some(device) = self.at(site) {
            let ahead = device.sweep.hand..offset.min(site.end);
            let Some(&(place, block)) = device.log.front().filter(|(place, _)| ahead.contains(place)) else { break };
            device.log.pop_front();
            self.drop_at(site.device, place, block);
        }
        let Some(device) = self.at(site).filter(|device| !device.sweep.is_first) else { return false };
        device.sweep.evict = device.sweep.evict.max(offset);
        device.journal.evict(&device.sweep)
    }

    /// Moves the hand of a device behind what a round wrote, and goes on with its log, if all of it was written.
    pub(crate) fn end(&mut self, site: &Site, hand: u64, log: Option<Draft>) {
        if let Some(device) = self.at(site) {
            (device.sweep.hand, device.is_written) = (hand, false);
            log.into_iter().for_each(|draft| device.journal.accept(draft));
        }
    }

    /// Log with which a round goes on.
    pub(crate) fn draft(&mut self, site: &Site) -> Option<Draft> {
        self.at(site).map(|device| device.journal.draft())
    }

    /// Device of which nobody has looked yet what is on it.
    pub(crate) fn pending(&self) -> Option<Site> {
        self.devices.iter().find(|device| device.is_pending && device.is_usable()).map(|device| device.site)
    }

    /// Lets a device be written, as it is known what is on it.
    pub(crate) fn settle(&mut self, site: &Site) {
        self.at(site).into_iter().for_each(|device| device.is_pending = false);
    }

    /// Goes on behind what a header says that was written. Where the hand had come to the start again since, and nothing was listed, that is there.
    pub(crate) fn adopt(&mut self, site: &Site, header: &L2arcHeader) {
        if let Some(device) = self.at(site) {
            let sweep = L2arcSweep::of(header, site.start);
            let is_around = !sweep.is_first && sweep.evict < sweep.hand;
            device.sweep = if is_around { L2arcSweep { hand: site.start, ..sweep } } else { sweep };
            device.journal.adopt(header);
            device.header = Some(header.clone());
        }
    }

    /// Changes the log of a device.
    pub(crate) fn with_journal(&mut self, site: &Site, change: impl FnOnce(&mut Journal)) {
        if let Some(device) = self.at(site) {
            change(&mut device.journal);
        }
    }

    /// The header that a device is to have, if that is another than it has. Without log blocks any header will do that leads to none.
    pub(crate) fn due_header(&mut self, site: &Site) -> Option<L2arcHeader> {
        let pool = self.pool;
        let device = self.at(site).filter(|device| device.is_usable())?;
        let header = device.journal.header((pool, site.device), &device.sweep);
        let is_due = device.header.as_ref().is_none_or(|written| site.log_entries > 0 && *written != header);
        is_due.then_some(header)
    }

    /// A header was written, or could not be.
    pub(crate) fn note_header(&mut self, site: &Site, header: Option<L2arcHeader>) {
        self.at(site).into_iter().for_each(|device| device.header = header.clone());
    }

    /// An I/O of a device worked.
    pub(crate) fn worked(&mut self, guid: Guid) {
        self.device_mut(guid).into_iter().for_each(|device| device.failures = 0);
    }

    /// An I/O of a device failed: one that is gone, or fails again and again, is used no longer.
    pub(crate) fn failed(&mut self, guid: Guid, error: DeviceError) {
        let Some(device) = self.device_mut(guid).filter(|device| device.is_usable()) else { return };
        device.failures += 1;
        match error {
            DeviceError::Gone => device.state = LeafState::Removed,
            _ if device.failures >= FAILURES_MAX => device.state = LeafState::Faulted,
            _ => {}
        }
    }

    /// Forgets what lies on devices that are used no longer as they fail, and the oldest of what others have until no more than `most` bytes of memory
    /// are taken.
    pub(crate) fn shrink_to(&mut self, most: u64) {
        let is_out = |device: &&Device| !device.is_usable() && device.state != LeafState::Offline;
        let out: Vec<Guid> = self.devices.iter().filter(is_out).map(|device| device.site.device).collect();
        for guid in out {
            self.drop_oldest(guid, usize::MAX);
        }
        let surplus = self.header_bytes().saturating_sub(most).div_ceil(HEADER_BYTES) as usize;
        let mut left = surplus;
        for guid in self.guids() {
            left -= self.drop_oldest(guid, left);
        }
    }

    fn drop_oldest(&mut self, guid: Guid, most: usize) -> usize {
        let mut dropped = 0;
        while dropped < most {
            let Some((offset, block)) = self.device_mut(guid).and_then(|device| device.log.pop_front()) else { break };
            self.drop_at(guid, offset, block);
            dropped += 1;
        }
        dropped
    }
}
