//! A proxy between host and target that knows where frames begin and end, and lets a test decide over each of them. Over Unix sockets
//! it hands the file of the shared memory on, keeps one for itself, and harms what lies in that memory too.

use abd::Abd;
use exec::Mutex;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use target_wire::{
    Address, CompletionRoom, Connection, ExecutePlaces, HEADER_BYTES, Kind, Limits, Listener, Place, Received, Region, WithFile,
    read_frame, write_frame,
};

/// Fate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The frame goes on.
    Pass,
    /// The frame goes on with this bit (of all its bits, modulo their number) flipped; three of four of those that have bytes in shared
    /// memory go on as they are, with a bit of those bytes flipped.
    Flip(u64),
    /// A completion whose bytes lie in its room goes on and claims that they are so many.
    Claim(u64),
    /// The frame does not go on, and the connection ends; the next one is as good as this one was.
    Break,
    /// The frame does not go on, and nothing does any more.
    Cut,
    /// The frame goes on, and nothing does after it.
    CutAfter,
}

/// Asked for each frame in both directions, in the order in which they come by.
pub type Judge = Arc<dyn Fn() -> Fate + Send + Sync>;

/// Knowledge of the proxy about the memory that both sides of a connection share.
#[derive(Default)]
struct Memory {
    region: Option<Region>,
    rooms: BTreeMap<u64, Place>,
}

/// See the module.
pub struct Proxy {
    pub address: Address,
    is_cut: Arc<AtomicBool>,
    in_memory: Arc<AtomicU64>,
}

/// State that the two directions of a connection share.
#[derive(Clone)]
struct Pump {
    judge: Judge,
    is_cut: Arc<AtomicBool>,
    memory: Arc<Mutex<Memory>>,
    in_memory: Arc<AtomicU64>,
}

impl Proxy {
    /// A proxy that listens where its target does: on a socket in the file system, or on a port.
    pub fn new(target: &Address, judge: Judge) -> Proxy {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let listener = Listener::bind(&match target {
            Address::Unix(path) => Address::Unix(path.with_extension(format!("proxy-{}", NEXT.fetch_add(1, Ordering::Relaxed)))),
            Address::Tcp(_) => Address::Tcp("127.0.0.1:0".to_string()),
        });
        let listener = listener.unwrap();
        let address = listener.address().unwrap();
        let (is_cut, in_memory) = (Arc::new(AtomicBool::new(false)), Arc::<AtomicU64>::default());
        let (target, cut, harmed) = (target.clone(), is_cut.clone(), in_memory.clone());
        std::thread::spawn(move || {
            while let Ok(host) = listener.accept() {
                if cut.load(Ordering::Acquire) {
                    // The port is gone from here on.
                    return;
                }
                let Ok(far) = Connection::open(&target, Duration::from_secs(5)) else { continue };
                let pump = Pump { judge: judge.clone(), is_cut: cut.clone(), memory: Arc::default(), in_memory: harmed.clone() };
                for (from, to) in [(host.try_clone(), far.try_clone()), (far.try_clone(), host.try_clone())] {
                    let pump = pump.clone();
                    std::thread::spawn(move || pump.run(from.unwrap(), to.unwrap()));
                }
            }
        });
        Proxy { address, is_cut, in_memory }
    }

    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// Number of bits that were flipped in shared memory.
    pub fn flipped_in_memory(&self) -> u64 {
        self.in_memory.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_cut.store(true, Ordering::Release);
        let _ = Connection::open(&self.address, Duration::from_secs(1));
    }
}

fn frame(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut bytes = vec![0; HEADER_BYTES];
    from.read_exact(&mut bytes).ok()?;
    let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize;
    let rest = half(32) + half(36);
    bytes.resize(HEADER_BYTES + rest, 0);
    from.read_exact(&mut bytes[HEADER_BYTES..]).ok()?;
    Some(bytes)
}

/// A frame, with the file that came with it.
fn frame_of(from: &mut Connection) -> Option<(Vec<u8>, Option<OwnedFd>)> {
    if !from.is_local() {
        return Some((frame(from)?, None));
    }
    let mut with = WithFile { connection: from, file: None };
    Some((frame(&mut with)?, with.file))
}

impl Memory {
    /// Place of the bytes of a frame in the memory.
    fn place(&mut self, bytes: &[u8]) -> Option<Place> {
        let Ok(Received::Whole(frame)) = read_frame(&mut &bytes[..], &Limits::SESSION) else { return None };
        match frame.header.kind {
            Kind::ExecutePlaces => {
                let (places, _) = ExecutePlaces::decode(&frame.message).ok()?;
                if let Some(room) = places.room {
                    self.rooms.insert(frame.header.op, room);
                }
                places.payload.map(|(place, _)| place)
            }
            Kind::CompletionRoom => {
                let (said, _) = CompletionRoom::decode(&frame.message).ok()?;
                self.rooms.get(&frame.header.op).map(|room| Place { bytes: said.bytes, ..*room })
            }
            _ => None,
        }
    }

    /// Flips a bit of a place.
    fn flip(&self, place: Place, bit: u64) {
        let at = Place { offset: place.offset + bit / 8 % place.bytes, bytes: 1 };
        let region = self.region.as_ref().unwrap();
        let byte = region.read(at).unwrap().0.to_vec()[0] ^ 1 << (bit % 8);
        region.write(at.offset, &Abd::from_slice(&[byte])).unwrap();
    }
}

/// Makes the same completion, with another length.
fn claim(bytes: &[u8], length: u64) -> Option<Vec<u8>> {
    let Ok(Received::Whole(frame)) = read_frame(&mut &bytes[..], &Limits::SESSION) else { return None };
    let (said, completion) = CompletionRoom::decode(&frame.message).ok().filter(|_| frame.header.kind == Kind::CompletionRoom)?;
    let mut other = Vec::new();
    let message = CompletionRoom { bytes: length, ..said }.encode(completion);
    write_frame(&mut other, &frame.header, &message, &frame.payload).unwrap();
    Some(other)
}

impl Pump {
    fn run(&self, mut from: Connection, mut to: Connection) {
        while let Some((bytes, file)) = frame_of(&mut from) {
            if let (Some(file), Ok(Received::Whole(frame))) = (&file, read_frame(&mut &bytes[..], &Limits::SESSION)) {
                let offer = target_wire::RegionOffer::decode(&frame.message).unwrap();
                self.memory.lock().region = Some(Region::accept(file.try_clone().ok(), offer.bytes).unwrap());
            }
            if !self.pass(bytes, file, &mut to) {
                break;
            }
        }
        from.shut_down();
        to.shut_down();
    }

    /// Lets a test decide over a frame; false when the connection ends.
    fn pass(&self, mut bytes: Vec<u8>, file: Option<OwnedFd>, to: &mut Connection) -> bool {
        if self.is_cut.load(Ordering::Acquire) {
            return false;
        }
        let place = self.memory.lock().place(&bytes);
        let fate = (self.judge)();
        match fate {
            Fate::Pass | Fate::CutAfter => {}
            Fate::Flip(bit) => match place {
                Some(place) if bit % 4 > 0 => {
                    self.memory.lock().flip(place, bit / 4);
                    self.in_memory.fetch_add(1, Ordering::Relaxed);
                }
                _ => {
                    let bit = bit as usize % (bytes.len() * 8);
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            },
            Fate::Claim(length) => bytes = claim(&bytes, length).unwrap_or(bytes),
            Fate::Break => return false,
            Fate::Cut => {
                self.is_cut.store(true, Ordering::Release);
                return false;
            }
        }
        let is_last = fate == Fate::CutAfter;
        if is_last {
            self.is_cut.store(true, Ordering::Release);
        }
        let sent = match file {
            Some(file) => to.send_with_file(&bytes, file.as_fd()),
            None => to.write_all(&bytes),
        };
        sent.is_ok() && !is_last
    }
}
