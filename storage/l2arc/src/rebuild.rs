//! Finding again what is on a device that is taken into use: its header, and log block after log block from the newest back (OpenZFS: `l2arc_rebuild`).
//! And the header that it gets, which leads there.

use crate::journal::{Journal, Unread, unpack_log};
use crate::known::{HEADER_BYTES, Site};
use crate::{L2arc, Tunables};
use arc::{Cache, RebuildCounts};
use device::DeviceOp;
use kernels::checksum::{Verifier, embed, verify_embedded};
use ondisk::label::LABEL_START_BYTES;
use ondisk::{Checksum, L2arcBlock, L2arcHeader, L2arcLogBlock, L2arcLogPtr, L2arcSweep, ZioEck, is_between};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use zio::Priority;

/// Reason why not everything was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// A log block could not be read.
    Io,
    /// A log block is not what was written, or makes no sense.
    Unread(Unread),
    /// Memory is short.
    Memory,
    /// The device, or the pool, is to go.
    Gone,
}

impl Stop {
    fn count(self, counts: &mut RebuildCounts) {
        match self {
            Stop::Io => counts.io_errors += 1,
            Stop::Unread(Unread::Checksum) => counts.checksum_errors += 1,
            Stop::Memory => counts.short_of_memory += 1,
            Stop::Unread(Unread::Packing | Unread::Magic) | Stop::Gone => {}
        }
    }
}

/// Bytes of a header as they are stored: a sector with its own checksum.
fn stored(site: &Site, header: &L2arcHeader) -> abd::Abd {
    let mut bytes = vec![0; site.header_bytes()];
    bytes[..L2arcHeader::SIZE].copy_from_slice(&header.encode());
    // A sector has room for the trailer.
    let _ = embed(Checksum::LABEL, &mut bytes, Verifier::label(LABEL_START_BYTES));
    abd::Abd::from_slice(&bytes)
}

/// Header of which these are the bytes that are stored; None for what is none.
fn read_header(stored: &[u8]) -> Option<L2arcHeader> {
    let order = verify_embedded(Checksum::LABEL, stored, Verifier::label(LABEL_START_BYTES)).ok()?;
    let header = L2arcHeader::decode_order(stored, order).ok()?;
    Some(L2arcHeader { dh_tail: ZioEck::default(), ..header })
}

/// True for a header of this device as it is now (OpenZFS: `l2arc_dev_hdr_read`).
fn is_of(site: &Site, pool: u64, header: &L2arcHeader, tunables: &Tunables) -> bool {
    let is_it = header.dh_magic == L2arcHeader::MAGIC
        && header.dh_version == L2arcHeader::VERSION
        && (header.dh_spa_guid, header.dh_vdev_guid) == (pool, site.device.0)
        && (header.dh_log_entries, header.dh_end) == (site.log_entries as u64, site.end);
    let sweep = L2arcSweep::of(header, site.start);
    let is_sane = is_between(site.start, site.end, header.dh_evict) && sweep.hand <= site.end && site.is_aligned(sweep.hand, sweep.evict);
    let is_trimmed = header.dh_trim_state == L2arcHeader::TRIM_COMPLETE || tunables.trim_ahead == 0 || !site.can_trim;
    is_it && is_sane && is_trimmed
}

impl L2arc {
    /// Looks what is on devices that were taken into use since the last look. Waits for them.
    pub(crate) fn rebuild(&self, cache: &Cache) {
        while !self.is_halted() {
            let pending = self.shared.known.lock().pending();
            let Some(site) = pending else { return };
            self.rebuild_device(cache, &site);
            if !self.is_halted() {
                self.shared.known.lock().settle(&site);
            }
        }
    }

    fn is_halted(&self) -> bool {
        self.shared.is_halted.load(Ordering::Acquire)
    }

    fn rebuild_device(&self, cache: &Cache, site: &Site) {
        let tunables = self.tunables();
        match self.find_header(site, &tunables) {
            Some(header) if site.log_entries > 0 => {
                self.shared.known.lock().adopt(site, &header);
                if tunables.rebuild_enabled {
                    self.restore(cache, site, &header);
                }
            }
            _ => {
                self.shared.known.lock().note_header(site, None);
                if tunables.trim_ahead > 0 && site.can_trim {
                    self.trim_all(site);
                }
            }
        }
        self.write_header(site);
    }

    /// Header of a device, if it is there and of this one.
    fn find_header(&self, site: &Site, tunables: &Tunables) -> Option<L2arcHeader> {
        let read = self.wait_io(site, LABEL_START_BYTES, DeviceOp::read(site.header_bytes()), Priority::SyncRead);
        let header = read.ok().and_then(|bytes| read_header(&bytes.to_vec()));
        let mut known = self.shared.known.lock();
        let pool = known.pool.0;
        let counts = &mut known.counts.rebuild;
        let Some(header) = header else {
            counts.header_errors += 1;
            return None;
        };
        let is_of = is_of(site, pool, &header, tunables);
        counts.unsupported += u64::from(!is_of);
        Some(header).filter(|_| is_of)
    }

    /// Writes the header of a device, where that is another than it has.
    pub(crate) fn write_header(&self, site: &Site) {
        let due = self.shared.known.lock().due_header(site);
        let Some(header) = due else { return };
        let op = DeviceOp::Write(stored(site, &header));
        let written = self.wait_io(site, LABEL_START_BYTES, op, Priority::AsyncWrite);
        let mut known = self.shared.known.lock();
        match written {
            Ok(_) => known.note_header(site, Some(header)),
            Err(error) => {
                known.counts.write_errors += 1;
                known.note_header(site, None);
                known.failed(site.device, error);
            }
        }
    }

    /// Tells a device that nothing of it is needed (OpenZFS: `vdev_trim_l2arc_thread`). One that cannot is used all the same.
    fn trim_all(&self, site: &Site) {
        // In parts, so that others get at the device meanwhile.
        const PART_BYTES: u64 = 1 << 30;
        let mut offset = site.start;
        while offset < site.end && !self.is_halted() && self.shared.known.lock().is_here(site) {
            let length_bytes = PART_BYTES.min(site.end - offset);
            if self.wait_io(site, offset, DeviceOp::Trim { length_bytes }, Priority::Trim).is_err() {
                return;
            }
            offset += length_bytes;
        }
        let seconds = self.zio.exec().wall_clock().0;
        if offset == site.end {
            self.shared.known.lock().with_journal(site, |journal| journal.trimmed(seconds.max(0) as u64));
        }
    }

    /// Knows what log blocks list, from those on that a header leads to.
    fn restore(&self, cache: &Cache, site: &Site, header: &L2arcHeader) {
        let mut found = 0;
        let outcome = self.restore_chain(cache, site, header, &mut found);
        let mut known = self.shared.known.lock();
        match outcome {
            Ok(()) => {
                known.counts.rebuild.success += u64::from(found > 0);
                known.with_journal(site, Journal::found_all);
            }
            Err(stop) => stop.count(&mut known.counts.rebuild),
        }
        tracing::debug!("cache device (vdev {}): {found} log blocks found again: {outcome:?}", site.device.0);
    }

    fn restore_chain(&self, cache: &Cache, site: &Site, header: &L2arcHeader, found: &mut u64) -> Result<(), Stop> {
        let sweep = L2arcSweep::of(header, site.start);
        let [mut this, mut before] = header.dh_start_lbps.clone();
        // Whoever makes up log blocks may lead in a circle, or through every sector.
        let mut seen = BTreeSet::new();
        while *found < site.most_logs()
            && sweep.holds(&this)
            && site.is_aligned(this.lbp_daddr, this.asize())
            && seen.insert(this.lbp_daddr)
        {
            let block = self.read_log(site, &this)?;
            self.restore_log(cache, site, &this, &block)?;
            *found += 1;
            if sweep.is_round(&this, &before) {
                break;
            }
            (this, before) = (before, block.previous);
        }
        Ok(())
    }

    /// Reads a log block, and checks it.
    fn read_log(&self, site: &Site, pointer: &L2arcLogPtr) -> Result<L2arcLogBlock, Stop> {
        if self.is_halted() || !self.shared.known.lock().is_here(site) {
            return Err(Stop::Gone);
        }
        let read = self.wait_io(site, pointer.lbp_daddr, DeviceOp::read(pointer.asize() as usize), Priority::AsyncRead);
        let bytes = read.map_err(|error| {
            self.shared.known.lock().failed(site.device, error);
            Stop::Io
        })?;
        unpack_log(pointer, &bytes.to_vec(), site.log_entries).map_err(Stop::Unread)
    }

    /// Knows the blocks that a log block lists, the newest first, as far as memory allows.
    fn restore_log(&self, cache: &Cache, site: &Site, pointer: &L2arcLogPtr, block: &L2arcLogBlock) -> Result<(), Stop> {
        let charge = block.entries.len() as u64 * HEADER_BYTES;
        let most = self.tunables().most_bytes(cache.max());
        let held = self.shared.known.lock().header_bytes();
        if held + charge > most || !cache.charge_headers(charge) {
            return Err(Stop::Memory);
        }
        let mut known = self.shared.known.lock();
        let mut sum = RebuildCounts { log_blocks: 1, ..RebuildCounts::default() };
        for entry in block.entries.iter().rev() {
            let told = L2arcBlock::from_word(entry.le_prop);
            sum.logical_bytes += told.logical_bytes;
            sum.allocated_bytes += told.physical_bytes.next_multiple_of(site.sector);
            sum.blocks += 1;
            let is_new = site.listed(pointer, entry).is_some_and(|(block, place)| known.restore(block, place));
            sum.known_blocks += u64::from(!is_new);
        }
        known.with_journal(site, |journal| journal.found(pointer.clone()));
        let surplus = sum.known_blocks * HEADER_BYTES;
        known.charged += charge - surplus;
        let counts = &mut known.counts;
        counts.log.note(pointer.asize(), sum.allocated_bytes);
        counts.rebuild.add(&sum);
        drop(known);
        // What was known already, or makes no sense, takes no memory, however much of it a device lists.
        cache.release_headers(surplus);
        Ok(())
    }
}
