//! Hosts that share memory and mean no good, or make mistakes: files that are no such memory, places outside of it, bytes that change. The
//! target reads and writes nothing else, ends the sessions of those who break the rules, and goes on for others.

use crate::{SECRET, connect};
use abd::Abd;
use dpusm::{Feature, HostStore, RegisterOptions, Registry, StoreKind};
use exec::{Exec, Pool, SplitMix};
use provider_software::{Software, SoftwareOptions};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use target_server::{Listening, Stores, Target, TargetSetup};
use target_wire::{
    Address, BufferRef, Channel, CompletionRoom, Connection, ExecutePlaces, Frame, Header, Kind, Limits, Listener, OperandRef, Place,
    Proof, ReadError, Refusal, Refused, Region, RegionAnswer, RegionOffer, SHARED_MEMORY, Secret, ViewRef, Welcome, WireCompletion, WireOp,
    WireOutcome, WireProgram,
};

const REGION: u64 = 1 << 20;
const BLOCK: u64 = 8192;

struct Nowhere;

impl Stores for Nowhere {
    fn open(&self, _kind: StoreKind, _path: &Path) -> Result<Arc<dyn HostStore>, i32> {
        Err(2)
    }
}

fn target() -> (Arc<Target>, Listening) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let exec: Exec = Arc::new(Pool::new(3));
    let features = vec![Feature::CopyIn { scatter: true }, Feature::CopyOut { scatter: true }, Feature::ZeroFill];
    let software = Software::new(&exec, SoftwareOptions { features, ..SoftwareOptions::default() });
    let device = Registry::new(&exec).register(software, &RegisterOptions { test_bytes_max: 512, ..RegisterOptions::default() }).unwrap();
    let target = Target::new(&exec, device, TargetSetup::new(Secret::new(SECRET).unwrap()), Arc::new(Nowhere));
    let name = format!("target-server-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let listening = target.listen(Listener::bind(&Address::Unix(std::env::temp_dir().join(name))).unwrap()).unwrap();
    (target, listening)
}

/// A host made by hand.
struct Raw {
    connection: Connection,
    channel: Channel,
    welcome: Welcome,
    /// True when the target agreed to share memory.
    agreed: bool,
}

impl Raw {
    fn new(listening: &Listening, features: u64) -> Raw {
        let (mut connection, mut channel) = connect(listening);
        let header = Header::with_features(Kind::Proof, features);
        channel.sealer.write(&mut connection, &header, &Proof { session: None }.encode(), &Abd::default()).unwrap();
        let answer = channel.opener.read(&mut connection, &Limits::SESSION).unwrap();
        assert_eq!(answer.header.kind, Kind::Welcome);
        let agreed = answer.header.has_feature(SHARED_MEMORY);
        Raw { connection, channel, welcome: Welcome::decode(&answer.message).unwrap(), agreed }
    }

    fn hear(&mut self) -> Result<Frame, ReadError> {
        self.channel.opener.read(&mut self.connection, &Limits::SESSION)
    }

    fn whole(&mut self) -> Frame {
        self.hear().unwrap()
    }

    /// Offers a file, or none; true when it was taken.
    fn offer(&mut self, file: Option<OwnedFd>, bytes: u64) -> bool {
        let mut frame = Vec::new();
        let offer = RegionOffer { bytes }.encode();
        self.channel.sealer.write(&mut frame, &Header::of(Kind::Region), &offer, &Abd::default()).unwrap();
        match file {
            Some(file) => self.connection.send_with_file(&frame, file.as_fd()).unwrap(),
            None => self.connection.write_all(&frame).unwrap(),
        }
        let answer = self.whole();
        assert_eq!(answer.header.kind, Kind::Region);
        RegionAnswer::decode(&answer.message).unwrap().is_taken
    }

    /// Connects, with memory as it should be.
    fn sharing(listening: &Listening) -> (Raw, Region) {
        let mut host = Raw::new(listening, SHARED_MEMORY);
        let region = Region::create(REGION).unwrap();
        assert!(host.agreed && host.offer(Some(region.as_fd().try_clone_to_owned().unwrap()), REGION));
        (host, region)
    }

    fn send(&mut self, op: u64, kind: Kind, message: &[u8], payload: &Abd) {
        let header = Header { kind, epoch: self.welcome.epoch, op, floor: 0 };
        self.channel.sealer.write(&mut self.connection, &header, message, payload).unwrap();
    }

    fn send_places(&mut self, op: u64, places: ExecutePlaces) {
        self.send(op, Kind::ExecutePlaces, &places.encode(&round_trip(op).encode()), &Abd::default());
    }

    /// True when the target says that the rules were broken, and ends the connection.
    fn ends_refused(mut self) -> bool {
        let answer = self.whole();
        answer.header.kind == Kind::Refused && Refused::decode(&answer.message).unwrap().why == Refusal::Protocol && self.hear().is_err()
    }
}

/// A block in and out of a new buffer.
fn round_trip(number: u64) -> WireProgram {
    let view = ViewRef { buffer: number, offset: 0, bytes: BLOCK };
    WireProgram {
        frees: vec![number.wrapping_sub(1)],
        buffers: vec![BufferRef { number, bytes: BLOCK }],
        ops: vec![WireOp::CopyIn { target: view }, WireOp::CopyOut { source: OperandRef::View(view) }],
        ..WireProgram::default()
    }
}

fn block(byte: u8) -> Abd {
    Abd::from_slice(&[byte; BLOCK as usize])
}

fn is_done(completion: &[u8]) -> bool {
    let outcomes: Vec<_> = WireCompletion::decode(completion).unwrap().results.iter().map(|result| result.outcome).collect();
    outcomes == [Ok(WireOutcome::Done), Ok(WireOutcome::Copied(BLOCK))]
}

/// True when it works in frames as if nothing had been said of memory.
fn works_in_frames(host: &mut Raw) -> bool {
    host.send(1, Kind::Execute, &round_trip(1).encode(), &block(9));
    let answer = host.whole();
    answer.header.kind == Kind::Completion && answer.payload == block(9) && is_done(&answer.message)
}

fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("region", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

fn again(region: &Region, options: &mut std::fs::OpenOptions) -> OwnedFd {
    options.open(format!("/proc/self/fd/{}", region.as_fd().as_raw_fd())).unwrap().into()
}

/// The bytes of an answer lie where the host wanted them, and nowhere else; an answer that is sent again has them in its frame.
#[test]
fn an_answer_lies_in_its_room_once() {
    let (target, listening) = target();
    let (mut host, region) = Raw::sharing(&listening);
    let crc = region.write(4096, &block(5)).unwrap();
    let room = Place { offset: 100_001, bytes: BLOCK + 7 };
    let places = ExecutePlaces { payload: Some((Place { offset: 4096, bytes: BLOCK }, crc)), room: Some(room) };
    host.send_places(1, places);
    let answer = host.whole();
    assert_eq!((answer.header.kind, answer.payload.len()), (Kind::CompletionRoom, 0));
    let (said, completion) = CompletionRoom::decode(&answer.message).unwrap();
    assert!(is_done(completion));
    let mut wanted = vec![0; REGION as usize];
    wanted[4096..4096 + BLOCK as usize].fill(5);
    wanted[100_001..100_001 + BLOCK as usize].fill(5);
    assert_eq!(said, CompletionRoom { bytes: BLOCK, crc });
    assert!(region.read(Place { offset: 0, bytes: REGION }).unwrap().0.to_vec() == wanted, "something else was written");
    // The same operation again: it may have other plans for the room by now.
    region.write(0, &Abd::zeroed(REGION as usize)).unwrap();
    host.send(1, Kind::Execute, &round_trip(1).encode(), &block(5));
    let answer = host.whole();
    assert!(answer.header.kind == Kind::Completion && answer.payload == block(5) && is_done(&answer.message));
    assert!(region.read(Place { offset: 0, bytes: REGION }).unwrap().0.is_zero());
    // Room that is too small is not used.
    host.send(
        2,
        Kind::ExecutePlaces,
        &ExecutePlaces { payload: None, room: Some(Place { bytes: BLOCK - 1, ..room }) }.encode(&round_trip(2).encode()),
        &block(6),
    );
    let answer = host.whole();
    assert!(answer.header.kind == Kind::Completion && answer.payload == block(6));
    assert_eq!(target.stats().executed, 2);
}

/// A host of before, which offers nothing, is asked for nothing, over the same socket.
#[test]
fn a_host_that_knows_nothing_of_it_is_served_as_before() {
    let (_target, listening) = target();
    let mut host = Raw::new(&listening, 0);
    assert!(!host.agreed && works_in_frames(&mut host));
    // Features that nobody knows yet are nothing to agree to.
    let mut host = Raw::new(&listening, !SHARED_MEMORY);
    assert!(!host.agreed && works_in_frames(&mut host));
    host.send_places(2, ExecutePlaces::default());
    assert!(host.ends_refused());
}

/// Whatever is no memory of sealed length is declined, and the session goes on in frames.
#[test]
fn files_that_are_no_shared_memory_are_declined() {
    let (target, listening) = target();
    let both = SealFlags::SHRINK | SealFlags::GROW;
    let (pipe, _writer) = std::io::pipe().unwrap();
    let files: Vec<(Option<OwnedFd>, u64)> = vec![
        (None, REGION),
        (Some(memory(REGION, SealFlags::empty())), REGION),
        (Some(memory(REGION, SealFlags::GROW)), REGION),
        (Some(memory(REGION, SealFlags::SHRINK)), REGION),
        (Some(memory(REGION, both)), REGION + 1),
        (Some(memory(REGION, both)), REGION - 1),
        (Some(memory(0, both)), 0),
        (Some(memory(Region::BYTES_MAX + 1, both)), Region::BYTES_MAX + 1),
        (Some(pipe.into()), REGION),
        (Some(File::open("/dev/zero").unwrap().into()), REGION),
        (Some(File::open(std::env::temp_dir()).unwrap().into()), REGION),
    ];
    let count = files.len() as u64;
    for (number, (file, bytes)) in files.into_iter().enumerate() {
        let mut host = Raw::new(&listening, SHARED_MEMORY);
        assert!(host.agreed && !host.offer(file, bytes), "file {number}");
        assert!(works_in_frames(&mut host), "file {number}");
        host.send_places(2, ExecutePlaces { payload: None, room: Some(Place { offset: 0, bytes: 1 }) });
        assert!(host.ends_refused(), "file {number}");
    }
    assert_eq!((target.stats().sessions, target.stats().executed), (0, count));
    // One that says that it shares memory, and then does not: nobody waits for it longer than for any other.
    let mut host = Raw::new(&listening, SHARED_MEMORY);
    host.send(1, Kind::Execute, &round_trip(1).encode(), &block(9));
    assert!(host.hear().is_err());
}

/// A place outside of the memory would be bytes of others; whoever names one loses the session.
#[test]
fn places_outside_of_the_memory_end_the_session() {
    let (target, listening) = target();
    let outside =
        [(REGION, 1), (REGION - BLOCK + 1, BLOCK), (u64::MAX, BLOCK), (1, u64::MAX), (u64::MAX, u64::MAX), (0, REGION + 1), (0, 0)];
    for (offset, bytes) in outside {
        let place = Place { offset, bytes };
        for places in [ExecutePlaces { payload: Some((place, 0)), room: None }, ExecutePlaces { payload: None, room: Some(place) }] {
            let (mut host, _region) = Raw::sharing(&listening);
            host.send_places(1, places);
            assert!(host.ends_refused(), "{places:?}");
        }
    }
    // Two payloads, a second offer, an answer of its own, a message that is none.
    let place = Place { offset: 0, bytes: BLOCK };
    let both = ExecutePlaces { payload: Some((place, 0)), room: None }.encode(&round_trip(1).encode());
    let deeds = [
        (Kind::ExecutePlaces, both, BLOCK as usize),
        (Kind::Region, RegionOffer { bytes: REGION }.encode(), 0),
        (Kind::CompletionRoom, CompletionRoom { bytes: 1, crc: 1 }.encode(&[]), 0),
        (Kind::ExecutePlaces, vec![0xFF; 9], 0),
        (Kind::ExecutePlaces, Vec::new(), 0),
    ];
    for (kind, message, payload) in deeds {
        let (mut host, _region) = Raw::sharing(&listening);
        host.send(1, kind, &message, &Abd::zeroed(payload));
        assert!(host.ends_refused(), "{kind:?}");
    }
    assert_eq!((target.stats().sessions, target.stats().executed), (0, 0));
}

/// Bytes that are not those that were announced are not used: changed, taken out, or never to be read.
#[test]
fn bytes_that_changed_are_asked_for_again() {
    let (target, listening) = target();
    let (mut host, region) = Raw::sharing(&listening);
    let place = Place { offset: 0, bytes: BLOCK };
    let crc = region.write(0, &block(5)).unwrap();
    let places = ExecutePlaces { payload: Some((place, crc)), room: Some(Place { offset: BLOCK, bytes: BLOCK }) };
    let is_damaged = |host: &mut Raw, places| {
        host.send_places(1, places);
        host.whole().header.kind == Kind::Damaged
    };
    assert!(is_damaged(&mut host, ExecutePlaces { payload: Some((place, crc ^ 1)), ..places }));
    region.write(77, &Abd::from_slice(&[4])).unwrap();
    assert!(is_damaged(&mut host, places));
    fallocate(&region, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, REGION).unwrap();
    assert!(is_damaged(&mut host, places));
    // Memory that the target cannot read.
    let mut other = Raw::new(&listening, SHARED_MEMORY);
    assert!(other.offer(Some(again(&region, File::options().write(true))), REGION));
    region.write(0, &block(5)).unwrap();
    assert!(is_damaged(&mut other, places));
    assert!(works_in_frames(&mut other));
    // Memory that it cannot write: the answer is in the frame.
    let mut other = Raw::new(&listening, SHARED_MEMORY);
    assert!(other.offer(Some(again(&region, File::options().read(true))), REGION));
    other.send_places(1, places);
    let answer = other.whole();
    assert!(answer.header.kind == Kind::Completion && answer.payload == block(5));
    assert_eq!((target.stats().damaged, target.stats().executed), (4, 2));
    assert!(works_in_frames(&mut host));
}

/// A host that names the same slots for everything, and anything for slots, harms itself only.
#[test]
fn slots_that_are_used_twice_harm_nobody_else() {
    let (target, listening) = target();
    let (mut other, others) = Raw::sharing(&listening);
    let (mut host, region) = Raw::sharing(&listening);
    let mut random = SplitMix::new(8);
    let crc = region.write(0, &block(5)).unwrap();
    let (mut done, mut damaged) = ([0; 3], [0; 3]);
    for round in 0..60 {
        // Blocks as announced, other ones, and some that change while they are used.
        let sort = round % 3;
        region.write(0, &Abd::from_slice(&[if sort == 1 { 6 } else { 5 }; 4 * BLOCK as usize])).unwrap();
        // Thirty at a time; rooms lie over payloads and over each other.
        let first = round as u64 * 30 + 1;
        for op in first..first + 30 {
            let mut place = || Place { offset: random.below(4) as u64 * BLOCK / 2, bytes: BLOCK };
            host.send_places(op, ExecutePlaces { payload: Some((place(), crc)), room: Some(place()) });
            if sort == 2 {
                region.write(random.below(2 * BLOCK as usize) as u64, &Abd::from_slice(&[op as u8])).unwrap();
            }
        }
        for _ in 0..30 {
            match host.whole().header.kind {
                Kind::CompletionRoom => done[sort] += 1,
                Kind::Damaged => damaged[sort] += 1,
                kind => panic!("{kind:?}"),
            }
        }
    }
    println!("{done:?} done, {damaged:?} damaged");
    assert_eq!((done[0], damaged[0], done[1], damaged[1], done[2] + damaged[2]), (600, 0, 0, 600, 600));
    assert!(others.read(Place { offset: 0, bytes: REGION }).unwrap().0.is_zero());
    assert!(works_in_frames(&mut other));
    target.stop();
    assert_eq!(target.stats().buffers, 0);
}
