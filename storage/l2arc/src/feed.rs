//! Rounds of writes: what is about to leave the cache goes to a device, in the order in which it is found (OpenZFS: `l2arc_feed_thread`,
//! `l2arc_write_buffers`).

use crate::journal::Draft;
use crate::known::{HEADER_BYTES, Place, Room};
use crate::{L2arc, Tunables};
use abd::Abd;
use arc::{Cache, Candidate, Leaving, LogCounts, Wish};
use device::{DeviceError, DeviceOp};
use exec::{Completion, completion};
use ondisk::{Compression, L2ARC_LOG_BLOCK_BYTES, L2arcBlock, L2arcLogEntry};
use zio::{LeafRequest, Priority};

/// Bytes that are written as one.
const CHUNK_BYTES: u64 = 1 << 20;

/// Outcome of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fed {
    /// Number of blocks that are known now and were not.
    pub blocks: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Nanoseconds from the beginning of this round to the next.
    pub interval_ns: u64,
}

/// Blocks that are written as one.
struct Chunk {
    /// First byte on the device.
    offset: u64,
    /// Bytes, sectors filled up with zeros.
    parts: Vec<Abd>,
    bytes: u64,
    blocks: Vec<(Leaving, Place)>,
}

/// A chunk that is being written.
struct Written {
    chunk: Chunk,
    done: Completion<Result<(), DeviceError>>,
}

impl Room {
    /// Bytes that so many take of the device.
    fn padded(&self, bytes: usize) -> u64 {
        (bytes as u64).next_multiple_of(self.site.sector)
    }

    /// Lays blocks out one behind the other, and log blocks between them.
    fn lay_out(&self, taken: Vec<Candidate>, log: &mut Draft) -> Layout {
        let mut layout = Layout { end: self.offset, chunks: Vec::new() };
        for candidate in taken {
            let (bytes, entry) = (self.padded(candidate.block.physical_bytes), entry(&candidate, layout.end));
            let place = Place::of(&candidate.block, self.site.device, (layout.end, bytes));
            layout.add(filled_up(candidate.physical, bytes as usize), Some((candidate.block, place)));
            if log.list(entry, bytes) {
                let behind = (layout.end + L2ARC_LOG_BLOCK_BYTES as u64).min(self.site.end);
                let stored = log.end(layout.end, self.site.sector, &self.sweep(behind));
                layout.add(stored, None);
            }
        }
        layout
    }
}

/// Things that a round writes, one behind the other.
struct Layout {
    /// First byte behind them.
    end: u64,
    chunks: Vec<Chunk>,
}

impl Layout {
    fn add(&mut self, part: Abd, block: Option<(Leaving, Place)>) {
        let bytes = part.len() as u64;
        if self.chunks.last().is_none_or(|chunk| chunk.bytes + bytes > CHUNK_BYTES) {
            self.chunks.push(Chunk { offset: self.end, parts: Vec::new(), bytes: 0, blocks: Vec::new() });
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.blocks.extend(block);
            chunk.parts.push(part);
            chunk.bytes += bytes;
        }
        self.end += bytes;
    }
}

/// Entry for a block that goes to an offset (OpenZFS: `l2arc_log_blk_insert`).
fn entry(candidate: &Candidate, le_daddr: u64) -> L2arcLogEntry {
    let (block, (dva, birth)) = (&candidate.block, candidate.block.address);
    let told = L2arcBlock {
        logical_bytes: u64::from(block.logical_bytes),
        physical_bytes: block.physical_bytes as u64,
        compression: block.compression,
        is_metadata: block.is_metadata,
        is_protected: block.is_protected,
        is_prefetched: block.is_prefetched,
        list: if block.is_frequent { L2arcBlock::FREQUENT } else { L2arcBlock::RECENT },
    };
    let le_complevel = u64::from(level(candidate));
    L2arcLogEntry { le_dva: dva.to_words(), le_birth: birth.0, le_prop: told.to_word(), le_daddr, le_complevel, ..L2arcLogEntry::default() }
}

/// Level at which a block was compressed, where there are levels and it says so.
fn level(candidate: &Candidate) -> u8 {
    let mut start = [0; 16];
    if candidate.block.compression != Compression::ZSTD || candidate.block.is_protected || candidate.physical.len() < start.len() {
        return 0;
    }
    candidate.physical.peek(0, &mut start);
    kernels::compress::zstd_level_of(&start).unwrap_or(0)
}

/// Counts log blocks that were written.
fn count_logs(counts: &mut LogCounts, log: &Draft) {
    for pointer in &log.fresh {
        counts.writes += 1;
        counts.note(pointer.asize(), pointer.lbp_payload_asize);
    }
}

/// Bytes of a block with zeros up to the end of its last sector.
fn filled_up(physical: Abd, bytes: usize) -> Abd {
    let length = physical.len();
    if length == bytes {
        return physical;
    }
    let mut whole = Abd::zeroed(bytes);
    physical.copy_to(0, &mut whole.make_mut()[..length]);
    whole
}

impl L2arc {
    /// Looks once for blocks that are about to leave the cache, and writes those to the device whose turn it is that it has not yet and that `allows`
    /// lets through; that is called under a lock of the cache, and must neither wait nor call it. Waits for the device. None while there is no device
    /// that works.
    pub fn feed(&self, cache: &Cache, allows: &mut dyn FnMut(&Leaving) -> bool) -> Option<Fed> {
        let tunables = self.tunables();
        let most = tunables.most_bytes(cache.max());
        self.rebuild(cache);
        let is_full = {
            let mut known = self.shared.known.lock();
            let is_full = known.is_in_use() && known.header_bytes() + HEADER_BYTES > most;
            known.counts.short_of_memory += u64::from(is_full);
            is_full
        };
        // The oldest make room for what is about to leave now.
        self.settle(cache, if is_full { most - most / 8 } else { most });
        let room = self.shared.known.lock().begin((tunables.write_max, tunables.write_boost))?;
        let log = self.shared.known.lock().draft(&room.site)?;
        let taken = self.gather(cache, (&room, &log), (&tunables, most), allows);
        let mut fed = self.write(&room, taken, log, &tunables);
        fed.interval_ns = tunables.interval_ns(fed.bytes > room.bytes / 2);
        Some(fed)
    }

    /// Forgets the oldest blocks until no more than `most` bytes of memory are taken, and charges the cache for what is left.
    pub fn settle(&self, cache: &Cache, most: u64) {
        let (surplus, lacking) = {
            let mut known = self.shared.known.lock();
            known.shrink_to(most);
            let now = known.header_bytes();
            let surplus = known.charged.saturating_sub(now);
            known.charged -= surplus;
            (surplus, now - known.charged)
        };
        if surplus > 0 {
            cache.release_headers(surplus);
        }
        if lacking > 0 && cache.charge_headers(lacking) {
            self.shared.known.lock().charged += lacking;
        }
    }

    /// Copies of blocks for the room, as far as memory allows to know them.
    fn gather(
        &self,
        cache: &Cache,
        (room, log): (&Room, &Draft),
        (tunables, most): (&Tunables, u64),
        allows: &mut dyn FnMut(&Leaving) -> bool,
    ) -> Vec<Candidate> {
        let known = &self.shared.known;
        let mut blocks = most.saturating_sub(known.lock().header_bytes()) / HEADER_BYTES;
        let (mut left, mut count) = (room.bytes, 0);
        let mut wants = |block: &Leaving| {
            if blocks == 0 || left < room.site.sector {
                return Wish::Enough;
            }
            let is_frequent_enough = match tunables.mfuonly {
                0 => true,
                2 => block.is_frequent || block.is_metadata,
                _ => block.is_frequent,
            };
            let cost = room.padded(block.physical_bytes) + if log.fills_after(count) { L2ARC_LOG_BLOCK_BYTES as u64 } else { 0 };
            let is_wanted = is_frequent_enough && !(tunables.noprefetch && block.is_prefetched) && cost <= left;
            if !is_wanted || !allows(block) || known.lock().has(block.name) {
                return Wish::Pass;
            }
            (blocks, left, count) = (blocks - 1, left - cost, count + 1);
            Wish::Take
        };
        let taken = cache.about_to_leave(tunables.reach(room.bytes), &mut wants);
        let charge = taken.len() as u64 * HEADER_BYTES;
        if !cache.charge_headers(charge) {
            known.lock().counts.short_of_memory += 1;
            return Vec::new();
        }
        known.lock().charged += charge;
        taken
    }

    /// Writes blocks, and knows those that were written.
    fn write(&self, room: &Room, taken: Vec<Candidate>, mut log: Draft, tunables: &Tunables) -> Fed {
        let site = &room.site;
        let Layout { end: hand, chunks } = room.lay_out(taken, &mut log);
        let ahead = if site.can_trim { (hand - room.offset).saturating_mul(tunables.trim_ahead) / 100 } else { 0 };
        let cleared = (hand + ahead / site.sector * site.sector).min(site.end);
        let had_logs = self.shared.known.lock().clear_to(site, cleared);
        if had_logs {
            // Whoever finds the device after a crash is not to look for what is written over now.
            self.write_header(site);
        }
        if ahead > 0 {
            // A device that cannot do it is written all the same.
            let _ = self.wait_io(site, room.offset, DeviceOp::Trim { length_bytes: cleared - room.offset }, Priority::Trim);
        }
        if !chunks.is_empty() {
            self.shared.known.lock().counts.writes[0] += 1;
        }
        let written: Vec<Written> = chunks.into_iter().map(|chunk| self.start(room, chunk)).collect();
        let fed = self.end(room, hand, log, written);
        self.write_header(site);
        fed
    }

    fn start(&self, room: &Room, chunk: Chunk) -> Written {
        let (done, wait) = completion();
        let op = DeviceOp::Write(Abd::gang(&chunk.parts));
        let request = LeafRequest { leaf: room.site.device, offset: chunk.offset, op, priority: Priority::AsyncWrite, speculative: false };
        self.zio.leaf_io(request, Box::new(move |result| done.complete(result.map(drop))));
        Written { chunk, done: wait }
    }

    /// Waits for what is written, and knows it. The log goes on only when all of it was.
    fn end(&self, room: &Room, hand: u64, log: Draft, written: Vec<Written>) -> Fed {
        let (mut fed, has_any, mut has_failed) = (Fed::default(), !written.is_empty(), false);
        for Written { chunk, done } in written {
            let outcome = done.wait(self.zio.exec());
            let mut known = self.shared.known.lock();
            if !known.is_here(&room.site) {
                has_failed = true;
                continue;
            }
            match outcome {
                Ok(()) => {
                    known.worked(room.site.device);
                    known.counts.written_bytes += chunk.bytes;
                    (fed.blocks, fed.bytes) = (fed.blocks + chunk.blocks.len() as u64, fed.bytes + chunk.bytes);
                    chunk.blocks.iter().for_each(|(block, place)| known.insert(block.name, *place));
                }
                Err(error) => {
                    has_failed = true;
                    known.failed(room.site.device, error);
                }
            }
        }
        let mut known = self.shared.known.lock();
        if !has_failed {
            count_logs(&mut known.counts.log, &log);
        }
        known.end(&room.site, hand, Some(log).filter(|_| !has_failed));
        known.counts.writes[1] += u64::from(has_any);
        known.counts.write_errors += u64::from(has_failed);
        fed
    }
}
