//! Rounds of writes: what is about to leave the cache goes to a device, in the order in which it is found (OpenZFS: `l2arc_feed_thread`,
//! `l2arc_write_buffers`).

use crate::known::{HEADER_BYTES, Place, Room};
use crate::{L2arc, Tunables};
use abd::Abd;
use arc::{Cache, Candidate, Leaving, Wish};
use device::{DeviceError, DeviceOp};
use exec::{Completion, completion};
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
        (bytes as u64).next_multiple_of(self.sector)
    }

    /// Lays blocks out one behind the other.
    fn lay_out(&self, taken: Vec<Candidate>) -> Vec<Chunk> {
        let mut chunks: Vec<Chunk> = Vec::new();
        let mut offset = self.offset;
        for Candidate { block, physical } in taken {
            let bytes = self.padded(block.physical_bytes);
            if chunks.last().is_none_or(|chunk| chunk.bytes + bytes > CHUNK_BYTES) {
                chunks.push(Chunk { offset, parts: Vec::new(), bytes: 0, blocks: Vec::new() });
            }
            if let Some(chunk) = chunks.last_mut() {
                chunk.blocks.push((block, Place::of(&block, self.device, (offset, bytes))));
                chunk.parts.push(filled_up(physical, bytes as usize));
                chunk.bytes += bytes;
            }
            offset += bytes;
        }
        chunks
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
        let most = (cache.max() / 100).saturating_mul(tunables.meta_percent.min(100));
        let is_full = {
            let mut known = self.shared.known.lock();
            let is_full = known.is_in_use() && known.header_bytes() + HEADER_BYTES > most;
            known.counts.short_of_memory += u64::from(is_full);
            is_full
        };
        // The oldest make room for what is about to leave now.
        self.settle(cache, if is_full { most - most / 8 } else { most });
        let room = self.shared.known.lock().begin((tunables.write_max, tunables.write_boost))?;
        let taken = self.gather(cache, &room, (&tunables, most), allows);
        let mut fed = self.write(&room, taken, &tunables);
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
        room: &Room,
        (tunables, most): (&Tunables, u64),
        allows: &mut dyn FnMut(&Leaving) -> bool,
    ) -> Vec<Candidate> {
        let known = &self.shared.known;
        let mut blocks = most.saturating_sub(known.lock().header_bytes()) / HEADER_BYTES;
        let mut left = room.bytes;
        let mut wants = |block: &Leaving| {
            if blocks == 0 || left < room.sector {
                return Wish::Enough;
            }
            let is_frequent_enough = match tunables.mfuonly {
                0 => true,
                2 => block.is_frequent || block.is_metadata,
                _ => block.is_frequent,
            };
            let is_wanted =
                is_frequent_enough && !(tunables.noprefetch && block.is_prefetched) && room.padded(block.physical_bytes) <= left;
            if !is_wanted || !allows(block) || known.lock().has(block.name) {
                return Wish::Pass;
            }
            (blocks, left) = (blocks - 1, left - room.padded(block.physical_bytes));
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
    fn write(&self, room: &Room, taken: Vec<Candidate>, tunables: &Tunables) -> Fed {
        let chunks = room.lay_out(taken);
        let hand = chunks.last().map_or(room.offset, |chunk| chunk.offset + chunk.bytes);
        let ahead = if room.can_trim { (hand - room.offset).saturating_mul(tunables.trim_ahead) / 100 } else { 0 };
        let cleared = (hand + ahead / room.sector * room.sector).min(room.end);
        self.shared.known.lock().clear_to(room.device, cleared);
        if ahead > 0 {
            self.trim(room, cleared - room.offset);
        }
        if !chunks.is_empty() {
            self.shared.known.lock().counts.writes[0] += 1;
        }
        let written: Vec<Written> = chunks.into_iter().map(|chunk| self.start(room, chunk)).collect();
        self.end(room, hand, written)
    }

    /// Tells the device that what is about to be written over is not needed, nor what comes behind it.
    fn trim(&self, room: &Room, length_bytes: u64) {
        let (done, wait) = completion();
        let op = DeviceOp::Trim { length_bytes };
        let request = LeafRequest { leaf: room.device, offset: room.offset, op, priority: Priority::Trim, speculative: true };
        self.zio.leaf_io(request, Box::new(move |result| done.complete(result.map(drop))));
        // A device that cannot do it is written all the same.
        let _ = wait.wait(self.zio.exec());
    }

    fn start(&self, room: &Room, chunk: Chunk) -> Written {
        let (done, wait) = completion();
        let op = DeviceOp::Write(Abd::gang(&chunk.parts));
        let request = LeafRequest { leaf: room.device, offset: chunk.offset, op, priority: Priority::AsyncWrite, speculative: false };
        self.zio.leaf_io(request, Box::new(move |result| done.complete(result.map(drop))));
        Written { chunk, done: wait }
    }

    fn end(&self, room: &Room, hand: u64, written: Vec<Written>) -> Fed {
        let (mut fed, has_any, mut has_failed) = (Fed::default(), !written.is_empty(), false);
        for Written { chunk, done } in written {
            let outcome = done.wait(self.zio.exec());
            let mut known = self.shared.known.lock();
            match outcome {
                Ok(()) => {
                    known.worked(room.device);
                    known.counts.written_bytes += chunk.bytes;
                    (fed.blocks, fed.bytes) = (fed.blocks + chunk.blocks.len() as u64, fed.bytes + chunk.bytes);
                    chunk.blocks.iter().for_each(|(block, place)| known.insert(block.name, *place));
                }
                Err(error) => {
                    has_failed = true;
                    known.failed(room.device, error);
                }
            }
        }
        let mut known = self.shared.known.lock();
        known.end(room.device, hand);
        known.counts.writes[1] += u64::from(has_any);
        known.counts.write_errors += u64::from(has_failed);
        fed
    }
}
