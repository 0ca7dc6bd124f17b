//! Seats: buffers that the kernel puts a request into, and the reply is put into before they are given back.
//!
//! Invariants: a seat's memory is mapped as long as the kernel may use it (the ring that armed it keeps the seat until the kernel gave it
//! up); it is touched here only by who has the [`Turn`], which exists from the arrival of a request until it is answered, once.
#![expect(unsafe_code, reason = "the kernel reads and writes buffers that it was told of before")]

use super::Share;
use crate::abi;
use crate::served::Mount;
use abd::Abd;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes from the header of one seat to the next one's.
const HEADER_STRIDE: usize = size_of::<abi::UringHeader>().next_power_of_two();

/// Memory of a mount's seats: headers, then payloads.
pub(crate) struct Area {
    start: usize,
    bytes: usize,
    seats: usize,
    /// Bytes of the largest payload.
    capacity: usize,
    /// Address and bytes of the header and of the payload of each seat: two `iovec` each.
    places: Box<[[usize; 4]]>,
    _share: Share,
}

impl Area {
    /// Maps memory for so many seats; it costs nothing before it is used.
    pub fn new(seats: usize, capacity: usize, share: Share) -> rustix::io::Result<Area> {
        let headers = (seats * HEADER_STRIDE).next_multiple_of(abd::PAGE_BYTES);
        let bytes = headers + seats * capacity;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, of which nobody else knows.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        // A header of a few hundred bytes shall not cost a huge page. Refused where the kernel has none.
        // SAFETY: the mapping is ours, and keeps what is in it.
        let _ = unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxNoHugepage) };
        let start = start.expose_provenance();
        let place = |seat| [start + seat * HEADER_STRIDE, size_of::<abi::UringHeader>(), start + headers + seat * capacity, capacity];
        Ok(Area { start, bytes, seats, capacity, places: (0..seats).map(place).collect(), _share: share })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`; every seat, and so whoever may use it, is gone.
        let _ = unsafe { rustix::mm::munmap(std::ptr::with_exposed_provenance_mut(self.start), self.bytes) };
    }
}

/// Receiver of seats whose requests are answered.
pub(crate) trait GiveBack: Send + Sync {
    /// Gives the seat's reply, which has this number, to the kernel soon.
    fn give_back(&self, seat: Arc<Seat>, commit_id: u64);
}

/// Buffer for one request of a mount, in one of the kernel's queues.
pub(crate) struct Seat {
    area: Arc<Area>,
    index: usize,
    /// Number of the queue: that of a processor.
    pub queue: u16,
    ring: Arc<dyn GiveBack>,
    pub mount: Arc<Mount>,
    /// Number under which the ring knows it.
    pub slot: AtomicU32,
}

impl Seat {
    pub fn new(area: &Arc<Area>, index: usize, queue: u16, ring: Arc<dyn GiveBack>, mount: &Arc<Mount>) -> Arc<Seat> {
        debug_assert!(index < area.seats);
        Arc::new(Seat { area: area.clone(), index, queue, ring, mount: mount.clone(), slot: AtomicU32::new(0) })
    }

    /// Address of the two `iovec` that say where its buffers are.
    pub fn vectors(&self) -> u64 {
        self.area.places[self.index].as_ptr().addr() as u64
    }

    /// Number of the slot.
    pub fn slot(&self) -> u32 {
        self.slot.load(Ordering::Relaxed)
    }

    fn header(&self) -> *mut abi::UringHeader {
        std::ptr::with_exposed_provenance_mut(self.area.places[self.index][0])
    }
}

/// Request that came to a seat, and the duty to answer it.
pub(crate) struct Turn {
    seat: Arc<Seat>,
    head: abi::InHeader,
    commit_id: u64,
    payload_bytes: usize,
    is_answered: bool,
}

impl Turn {
    /// Takes the turn of a seat to which a request came. Only its ring calls this, once for each completion.
    pub fn begin(seat: Arc<Seat>) -> Turn {
        // SAFETY: aligned (the stride is a power of two, the mapping begins on a page) and mapped, and nobody writes it until the turn ends.
        let header = unsafe { &*seat.header() };
        let head = abi::InHeader::read_from_prefix(&header.in_out).map(|(head, _)| head).unwrap_or_default();
        let (commit_id, payload_bytes) = (header.commit_id, header.payload_bytes as usize);
        Turn { seat, head, commit_id, payload_bytes, is_answered: false }
    }

    pub fn mount(&self) -> &Arc<Mount> {
        &self.seat.mount
    }

    /// Head of the request.
    pub fn head(&self) -> abi::InHeader {
        self.head
    }

    /// Records of the request's kind, and what comes behind them: names, or the bytes of a WRITE. None when the kernel says what cannot be.
    pub fn body(&self) -> Option<(&[u8], &[u8])> {
        let records = (self.head.len as usize).checked_sub(size_of::<abi::InHeader>() + self.payload_bytes)?;
        // SAFETY: as in `begin`.
        let header = unsafe { &*self.seat.header() };
        Some((header.op_in.get(..records)?, self.memory().get(..self.payload_bytes)?))
    }

    fn memory(&self) -> &[u8] {
        let [.., start, bytes] = self.seat.area.places[self.seat.index];
        // SAFETY: mapped, initialised (fresh pages are zero), and nobody else touches it while there is a turn.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(start), bytes) }
    }

    fn memory_mut(&mut self) -> &mut [u8] {
        let [.., start, bytes] = self.seat.area.places[self.seat.index];
        // SAFETY: as above, and the turn is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(start), bytes) }
    }

    /// Answers: `records`, then `data`; an error carries neither.
    pub fn answer(mut self, records: &[u8], data: Option<&Abd>, error: i32) {
        self.put(records, data, error);
    }

    fn put(&mut self, records: &[u8], data: Option<&Abd>, error: i32) {
        let (middle, length) = (records.len(), records.len() + data.map_or(0, Abd::len));
        let (error, length) = match error {
            0 if length > self.seat.area.capacity => (-libc::EIO, 0),
            0 => (0, length),
            error => (error, 0),
        };
        if length > 0 {
            let memory = &mut self.memory_mut()[..length];
            memory[..middle].copy_from_slice(records);
            if let Some(data) = data {
                data.copy_to(0, &mut memory[middle..]);
            }
        }
        let head = abi::OutHeader { len: (size_of::<abi::OutHeader>() + length) as u32, error, unique: self.head.unique };
        // SAFETY: as in `begin`, and the turn is borrowed alone; the kernel looks at it after the commit that follows.
        let header = unsafe { &mut *self.seat.header() };
        header.in_out[..size_of::<abi::OutHeader>()].copy_from_slice(head.as_bytes());
        header.payload_bytes = length as u32;
        self.is_answered = true;
        self.seat.ring.give_back(self.seat.clone(), self.commit_id);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_answered {
            self.put(&[], None, -libc::EIO);
        }
    }
}
