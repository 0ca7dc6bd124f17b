//! What is known of blocks and devices: where each block lies, and how far the hand of each device is. Without I/O.
//!
//! A device is written from its start to its end and then from its start again. Its log has what was written in that order, so that what lies ahead of
//! the hand is what is at the log's front. Blocks that were forgotten stay in the log until the hand comes by.

use arc::{BlockName, Leaving, SecondCounts};
use device::DeviceError;
use ondisk::Guid;
use ondisk::label::LABEL_START_BYTES;
use std::collections::{BTreeMap, VecDeque};
use vdev::LeafState;

/// A device of the second level, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// Online, or faulted or removed since its I/O fails.
    pub state: LeafState,
    /// Bytes that blocks take.
    pub allocated_bytes: u64,
    /// Bytes that blocks may take.
    pub size_bytes: u64,
}

/// Bytes of memory that a block costs: in the table and in the log.
pub(crate) const HEADER_BYTES: u64 = 160;
/// Number of I/Os in a row that fail until a device is taken out of use.
const FAILURES_MAX: u32 = 16;
/// Bytes that the header of a cache device takes behind its first labels (OpenZFS: `l2arc_dev_hdr_phys_t`).
const HEADER_SECTOR_BYTES: u64 = 512;

/// Use that a block was of when it was written: read ahead, recently used, frequently used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    Ahead = 0,
    Recent = 1,
    Frequent = 2,
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
    usage: Usage,
    is_metadata: bool,
}

impl Place {
    /// Place of a block on a device.
    pub(crate) fn of(block: &Leaving, device: Guid, (offset, allocated): (u64, u64)) -> Place {
        let usage = match (block.is_prefetched, block.is_frequent) {
            (true, _) => Usage::Ahead,
            (false, true) => Usage::Frequent,
            (false, false) => Usage::Recent,
        };
        let (physical, allocated) = (block.physical_bytes as u32, allocated as u32);
        Place { device, offset, physical, allocated, logical: block.logical_bytes, usage, is_metadata: block.is_metadata }
    }
}

/// A device.
#[derive(Debug)]
struct Device {
    guid: Guid,
    state: LeafState,
    /// First byte for blocks, and the first behind them.
    start: u64,
    end: u64,
    /// First byte of what is written next.
    hand: u64,
    sector: u64,
    can_trim: bool,
    /// True until the hand came to the end once.
    is_first: bool,
    is_written: bool,
    /// Bytes of blocks that are known.
    allocated: u64,
    /// Number of I/Os that failed since one worked.
    failures: u32,
    /// Offsets of what was written, with the names of the blocks, the oldest first.
    log: VecDeque<(u64, BlockName)>,
}

impl Device {
    fn is_usable(&self) -> bool {
        self.state.is_usable()
    }
}

/// Room for a round of writes, ahead of the hand of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) device: Guid,
    /// First byte on the device.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// First byte behind all blocks of the device.
    pub(crate) end: u64,
    pub(crate) sector: u64,
    pub(crate) can_trim: bool,
}

/// Blocks and devices of a second level.
#[derive(Debug, Default)]
pub(crate) struct Known {
    devices: Vec<Device>,
    blocks: BTreeMap<BlockName, Place>,
    /// Number of the device whose turn is next.
    turn: usize,
    /// Bytes of memory that the cache was charged for.
    pub(crate) charged: u64,
    /// Counters; those of blocks are kept here too.
    pub(crate) counts: SecondCounts,
}

impl Known {
    /// Adds a device of which nothing is known, with these allocatable bytes and bytes of a sector.
    pub(crate) fn add(&mut self, guid: Guid, (asize, sector): (u64, u64), can_trim: bool) {
        let start = LABEL_START_BYTES + sector.max(HEADER_SECTOR_BYTES);
        let end = LABEL_START_BYTES + asize / sector * sector;
        let (state, log) = (LeafState::Online, VecDeque::new());
        let (is_first, is_written, allocated, failures) = (true, false, 0, 0);
        self.devices.push(Device {
            guid,
            state,
            start,
            end,
            hand: start,
            sector,
            can_trim,
            is_first,
            is_written,
            allocated,
            failures,
            log,
        });
    }

    /// Forgets a device and what is on it.
    pub(crate) fn remove(&mut self, guid: Guid) {
        let Some(index) = self.devices.iter().position(|device| device.guid == guid) else { return };
        let log = std::mem::take(&mut self.devices[index].log);
        log.into_iter().for_each(|(offset, name)| self.drop_at(guid, offset, name));
        self.devices.remove(index);
    }

    fn device(&self, guid: Guid) -> Option<&Device> {
        self.devices.iter().find(|device| device.guid == guid)
    }
    fn device_mut(&mut self, guid: Guid) -> Option<&mut Device> {
        self.devices.iter_mut().find(|device| device.guid == guid)
    }

    /// Guids of the devices.
    pub(crate) fn guids(&self) -> Vec<Guid> {
        self.devices.iter().map(|device| device.guid).collect()
    }

    /// True while a device takes blocks.
    pub(crate) fn is_in_use(&self) -> bool {
        self.devices.iter().any(Device::is_usable)
    }

    /// Report of a device.
    pub(crate) fn report(&self, guid: Guid) -> Option<DeviceReport> {
        let device = self.device(guid)?;
        Some(DeviceReport { state: device.state, allocated_bytes: device.allocated, size_bytes: device.end - device.start })
    }

    /// Place of a block of so many bytes, on a device that works.
    pub(crate) fn find(&self, name: BlockName, physical_bytes: usize) -> Option<Place> {
        let place = self.blocks.get(&name).filter(|place| place.physical as usize == physical_bytes)?;
        self.device(place.device).filter(|device| device.is_usable()).map(|_| *place)
    }

    /// True for a block that is known.
    pub(crate) fn has(&self, name: BlockName) -> bool {
        self.blocks.contains_key(&name)
    }

    /// True while the block lies at a place.
    pub(crate) fn is_at(&self, name: BlockName, place: &Place) -> bool {
        self.blocks.get(&name) == Some(place)
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
        SecondCounts { header_bytes: self.header_bytes(), ..self.counts }
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

    /// Forgets a block.
    pub(crate) fn forget(&mut self, name: BlockName) {
        if let Some(place) = self.blocks.remove(&name) {
            self.count(&place, |sum, bytes| *sum -= bytes);
        }
    }

    /// Forgets a block that was written at an offset, unless it lies elsewhere by now.
    fn drop_at(&mut self, guid: Guid, offset: u64, name: BlockName) {
        if self.blocks.get(&name).is_some_and(|place| place.device == guid && place.offset == offset) {
            self.forget(name);
        }
    }

    /// Knows a block that was written, unless its device is gone.
    pub(crate) fn insert(&mut self, name: BlockName, place: Place) {
        let Some(device) = self.device_mut(place.device).filter(|device| device.is_usable()) else { return };
        device.log.push_back((place.offset, name));
        self.forget(name);
        self.blocks.insert(name, place);
        self.count(&place, |sum, bytes| *sum += bytes);
    }

    /// Begins a round of writes of at most `bytes`, and `boost` more on a device that was not full yet: on the next device that works, for which room
    /// is left to its end. One that was written to its end goes on at its start.
    pub(crate) fn begin(&mut self, (bytes, boost): (u64, u64)) -> Option<Room> {
        let count = self.devices.len();
        let index = (0..count).map(|step| (self.turn + step) % count).find(|&index| self.devices[index].is_usable())?;
        self.turn = index + 1;
        let device = &self.devices[index];
        let wanted = if device.is_first { bytes.saturating_add(boost) } else { bytes };
        // What is ahead of the hand is never all that there is.
        let bytes = wanted.min((device.end - device.start) / 2) / device.sector * device.sector;
        let (guid, end) = (device.guid, device.end);
        if device.hand + bytes > end {
            self.clear_to(guid, end);
            let device = &mut self.devices[index];
            (device.hand, device.is_first) = (device.start, false);
        }
        let device = &mut self.devices[index];
        device.is_written = true;
        self.counts.feeds += 1;
        Some(Room { device: guid, offset: device.hand, bytes, end, sector: device.sector, can_trim: device.can_trim })
    }

    /// Forgets what lies between the hand of a device and an offset, and moves nothing.
    pub(crate) fn clear_to(&mut self, guid: Guid, offset: u64) {
        while let Some(device) = self.device_mut(guid) {
            let ahead = device.hand..offset.min(device.end);
            let Some(&(place, name)) = device.log.front().filter(|(place, _)| ahead.contains(place)) else { return };
            device.log.pop_front();
            self.drop_at(guid, place, name);
        }
    }

    /// Moves the hand of a device behind what a round wrote.
    pub(crate) fn end(&mut self, guid: Guid, hand: u64) {
        if let Some(device) = self.device_mut(guid) {
            (device.hand, device.is_written) = (hand, false);
        }
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

    /// Forgets what lies on devices that are used no longer, and the oldest of what others have until no more than `most` bytes of memory are taken.
    pub(crate) fn shrink_to(&mut self, most: u64) {
        let out: Vec<Guid> = self.devices.iter().filter(|device| !device.is_usable()).map(|device| device.guid).collect();
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
            let Some((offset, name)) = self.device_mut(guid).and_then(|device| device.log.pop_front()) else { break };
            self.drop_at(guid, offset, name);
            dropped += 1;
        }
        dropped
    }
}
