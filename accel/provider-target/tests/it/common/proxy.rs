//! A proxy between host and target that has the secret: it is a target to the host and a host to the target, and lets a test decide over each frame on
//! its way, which it seals again and may harm then. Over Unix sockets it hands the file of the shared memory on, keeps one for itself, and harms what lies
//! in that memory too.

use abd::Abd;
use exec::Mutex;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use target_server::Target;
use target_wire::{
    Address, Challenge, Channel, CompletionRoom, Connection, ExecutePlaces, Frame, Header, Hello, Initiator, Kind, Limits, Listener,
    Opener, Place, Received, Region, RegionOffer, Sealer, WithFile, read_frame, respond, write_frame,
};

/// Fate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The frame goes on.
    Pass,
    /// The frame, as it is sealed, goes on with this bit (of all its bits, modulo their number) flipped; three of four of those that have bytes in shared
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

/// A judge that lets every frame pass but one.
pub struct Armed {
    /// Number of that frame, as [`Armed::passed`] counts; [`NEVER`] at first.
    at: Arc<AtomicU64>,
    passed: Arc<AtomicU64>,
}

/// Number of no frame.
pub const NEVER: u64 = u64::MAX;

impl Armed {
    /// Makes one with the fate of that frame; `is_killed`: the target ends first.
    pub fn new(target: &Arc<Target>, fate: Fate, is_killed: bool) -> (Armed, Judge) {
        let (at, passed) = (Arc::new(AtomicU64::new(NEVER)), Arc::new(AtomicU64::new(0)));
        let (own_at, own_passed, target) = (at.clone(), passed.clone(), target.clone());
        let judge = move || {
            let number = own_passed.fetch_add(1, Ordering::AcqRel);
            if number != own_at.load(Ordering::Acquire) {
                return Fate::Pass;
            }
            if is_killed {
                target.stop();
            }
            fate
        };
        (Armed { at, passed }, Arc::new(judge))
    }

    /// Number of frames that came by.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Acquire)
    }

    /// Chooses the frame by its number from now on, or none ([`NEVER`]).
    pub fn arm(&self, frame: u64) {
        self.at.store(frame.saturating_add(self.passed()), Ordering::Release);
    }
}

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
                std::thread::spawn(move || pump.connect(host, far));
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

/// A frame of the handshake that is in the open.
fn plain(from: &mut impl Read, kind: Kind) -> Option<Vec<u8>> {
    match read_frame(from, &Limits::HANDSHAKE) {
        Ok(Received::Whole(frame)) if frame.header.kind == kind => Some(frame.message),
        _ => None,
    }
}

fn packed(kind: Kind, message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, &Header::of(kind), message, &Abd::default()).unwrap();
    bytes
}

/// A sealed frame, with the file that came with it.
fn frame_of(from: &mut Connection, opener: &mut Opener) -> Option<(Frame, Option<OwnedFd>)> {
    if !from.is_local() {
        return Some((opener.read(from, &Limits::SESSION).ok()?, None));
    }
    let mut with = WithFile { connection: from, file: None };
    Some((opener.read(&mut with, &Limits::SESSION).ok()?, with.file))
}

impl Memory {
    /// Place of the bytes of a frame in the memory.
    fn place(&mut self, frame: &Frame) -> Option<Place> {
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
fn claim(frame: &mut Frame, length: u64) {
    if frame.header.kind == Kind::CompletionRoom {
        let (said, completion) = CompletionRoom::decode(&frame.message).unwrap();
        frame.message = CompletionRoom { bytes: length, ..said }.encode(completion);
    }
}

impl Pump {
    /// Shakes hands with both sides, then hands on what they say.
    fn connect(&self, mut host: Connection, mut far: Connection) {
        if let Some((near, beyond)) = self.shake_hands(&mut host, &mut far) {
            let (to_far, to_host) = ((near.opener, beyond.sealer), (beyond.opener, near.sealer));
            for (from, to, (opener, sealer)) in [(host.try_clone(), far.try_clone(), to_far), (far.try_clone(), host.try_clone(), to_host)]
            {
                let pump = self.clone();
                std::thread::spawn(move || pump.run(from.unwrap(), to.unwrap(), opener, sealer));
            }
        } else {
            host.shut_down();
            far.shut_down();
        }
    }

    /// The frames that are in the open; keys for the host, and for the target.
    fn shake_hands(&self, host: &mut Connection, far: &mut Connection) -> Option<(Channel, Channel)> {
        let secret = crate::common::secret();
        let hello = Hello::decode(&plain(host, Kind::Hello)?).ok()?;
        let (initiator, own) = Initiator::new(&secret).ok()?;
        let (challenge, near) = respond(&secret, &hello).ok()?;
        self.pass(packed(Kind::Hello, &own.encode()), far).then_some(())?;
        let beyond = initiator.finish(&Challenge::decode(&plain(far, Kind::Challenge)?).ok()?).ok()?;
        self.pass(packed(Kind::Challenge, &challenge.encode()), host).then_some(())?;
        Some((near, beyond))
    }

    fn run(&self, mut from: Connection, mut to: Connection, mut opener: Opener, mut sealer: Sealer) {
        while let Some((frame, file)) = frame_of(&mut from, &mut opener) {
            if let Some(file) = &file {
                let offer = RegionOffer::decode(&frame.message).unwrap();
                self.memory.lock().region = Some(Region::accept(file.try_clone().ok(), offer.bytes).unwrap());
            }
            if !self.hand_on(frame, file, &mut sealer, &mut to) {
                break;
            }
        }
        from.shut_down();
        to.shut_down();
    }

    /// The fate of the next frame; None when nothing goes on any more.
    fn judge(&self) -> Option<Fate> {
        if self.is_cut.load(Ordering::Acquire) {
            return None;
        }
        let fate = (self.judge)();
        if matches!(fate, Fate::Cut | Fate::CutAfter) {
            self.is_cut.store(true, Ordering::Release);
        }
        (!matches!(fate, Fate::Cut | Fate::Break)).then_some(fate)
    }

    /// Lets a test decide over a frame in the open; false when the connection ends.
    fn pass(&self, mut bytes: Vec<u8>, to: &mut Connection) -> bool {
        let Some(fate) = self.judge() else { return false };
        if let Fate::Flip(bit) = fate {
            flip(&mut bytes, bit);
        }
        to.write_all(&bytes).is_ok() && fate != Fate::CutAfter
    }

    /// Lets a test decide over a sealed frame; false when the connection ends.
    fn hand_on(&self, mut frame: Frame, file: Option<OwnedFd>, sealer: &mut Sealer, to: &mut Connection) -> bool {
        if self.is_cut.load(Ordering::Acquire) {
            return false;
        }
        let place = self.memory.lock().place(&frame);
        let Some(fate) = self.judge() else { return false };
        if let Fate::Claim(length) = fate {
            claim(&mut frame, length);
        }
        let mut bytes = Vec::new();
        sealer.write(&mut bytes, &frame.header, &frame.message, &frame.payload).unwrap();
        match (fate, place) {
            (Fate::Flip(bit), Some(place)) if bit % 4 > 0 => {
                self.memory.lock().flip(place, bit / 4);
                self.in_memory.fetch_add(1, Ordering::Relaxed);
            }
            (Fate::Flip(bit), _) => flip(&mut bytes, bit),
            _ => {}
        }
        let sent = match file {
            Some(file) => to.send_with_file(&bytes, file.as_fd()),
            None => to.write_all(&bytes),
        };
        sent.is_ok() && fate != Fate::CutAfter
    }
}

/// Flips a bit of a frame.
fn flip(bytes: &mut [u8], bit: u64) {
    let bit = bit as usize % (bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
}
