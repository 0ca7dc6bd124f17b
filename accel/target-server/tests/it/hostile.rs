//! A host that has the secret and means no good: programs of all sorts, sent again, out of order, with numbers that are not there. The
//! target answers each once, stays within the quota, and goes on for others.

use crate::{SECRET, connect, plain};
use abd::Abd;
use dpusm::{Compress, Feature, HostDone, HostStore, RegisterOptions, Registry, StoreKind};
use exec::{Exec, Pool, SplitMix};
use ondisk::{ByteOrder, Checksum, Compression};
use provider_software::{Software, SoftwareOptions};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use target_server::{Listening, Stores, Target, TargetSetup};
use target_wire::{
    Address, BufferRef, Challenge, Channel, Connection, Frame, Header, Initiator, Kind, Limits, Listener, OpenStore, OperandRef, Proof,
    ReadError, Refusal, Refused, Secret, ViewRef, Welcome, WireCompletion, WireOp, WireProgram, read_frame, write_frame,
};

const QUOTA: u64 = 1 << 20;

/// Takes everything.
struct Sink;

impl HostStore for Sink {
    fn write(&self, _offset: u64, _data: Abd, done: HostDone) {
        done(Ok(()));
    }

    fn flush(&self, done: HostDone) {
        done(Ok(()));
    }
}

struct Sinks;

impl Stores for Sinks {
    fn open(&self, _kind: StoreKind, path: &Path) -> Result<Arc<dyn HostStore>, i32> {
        if path == Path::new("/sink") { Ok(Arc::new(Sink)) } else { Err(2) }
    }
}

fn target() -> (Arc<Target>, Listening) {
    let exec: Exec = Arc::new(Pool::new(3));
    let raid = |parity| [Feature::RaidGenerate { parity, data_columns_max: 8 }, Feature::RaidReconstruct { parity, data_columns_max: 8 }];
    let mut features = vec![
        Feature::CopyIn { scatter: true },
        Feature::CopyOut { scatter: true },
        Feature::ZeroFill,
        Feature::ZeroTest,
        Feature::Compare,
        Feature::Compress { kind: Compression::LZ4, level_min: 0, level_max: 0 },
        Feature::Decompress { kind: Compression::LZ4 },
        Feature::Checksum { kind: Checksum::FLETCHER_4, order: ByteOrder::Little },
        Feature::Store { kind: StoreKind::File },
        Feature::Load { kind: StoreKind::File },
    ];
    features.extend((1..=3).flat_map(raid));
    let software = Software::new(&exec, SoftwareOptions { features, ..SoftwareOptions::default() });
    let options = RegisterOptions { scratch: Some(std::env::temp_dir()), test_bytes_max: 512, ..RegisterOptions::default() };
    let device = Registry::new(&exec).register(software, &options).unwrap();
    let setup = TargetSetup { memory_bytes_max: QUOTA, ..TargetSetup::new(Secret::new(SECRET).unwrap()) };
    let target = Target::new(&exec, device, setup, Arc::new(Sinks));
    let listening = target.listen(Listener::bind(&Address::Tcp("127.0.0.1:0".to_string())).unwrap()).unwrap();
    (target, listening)
}

/// A host made by hand.
struct Raw {
    connection: Connection,
    channel: Channel,
    welcome: Welcome,
}

impl Raw {
    fn new(listening: &Listening, session: Option<(u64, u64)>) -> Result<Raw, Refusal> {
        let (mut connection, mut channel) = connect(listening);
        channel.sealer.write(&mut connection, &Header::of(Kind::Proof), &Proof { session }.encode(), &Abd::default()).unwrap();
        let answer = channel.opener.read(&mut connection, &Limits::SESSION).unwrap();
        match answer.header.kind {
            Kind::Welcome => Ok(Raw { connection, channel, welcome: Welcome::decode(&answer.message).unwrap() }),
            _ => Err(Refused::decode(&answer.message).unwrap().why),
        }
    }

    fn say(&mut self, header: &Header, message: &[u8], payload: &Abd) {
        self.channel.sealer.write(&mut self.connection, header, message, payload).unwrap();
    }

    fn hear(&mut self) -> Result<Frame, ReadError> {
        self.channel.opener.read(&mut self.connection, &Limits::SESSION)
    }

    fn send(&mut self, op: u64, floor: u64, program: &WireProgram, payload: &Abd) {
        let header = Header { kind: Kind::Execute, epoch: self.welcome.epoch, op, floor };
        self.say(&header, &program.encode(), payload);
    }
}

fn place(random: &mut SplitMix) -> u64 {
    [0, 1, 512, 4096, 5000, 8192, 1 << 20, 1 << 40, u64::MAX][random.below(9)]
}

fn view(random: &mut SplitMix) -> ViewRef {
    // Mostly what is there: the buffers of the first program, 8 KiB each.
    if random.below(4) > 0 {
        let (offset, bytes) = [(0, 8192), (0, 4096), (4096, 4096), (512, 512), (8192, 0), (0, 512)][random.below(6)];
        return ViewRef { buffer: random.below(4) as u64, offset, bytes };
    }
    ViewRef { buffer: random.below(8) as u64, offset: place(random), bytes: place(random) }
}

fn operand(random: &mut SplitMix) -> OperandRef {
    match random.below(4) {
        0 => OperandRef::Result(random.below(6) as u32),
        1 => OperandRef::Padding(random.below(6) as u32),
        _ => OperandRef::View(view(random)),
    }
}

fn op(random: &mut SplitMix) -> WireOp {
    let views = |random: &mut SplitMix, most: usize| (0..random.below(most)).map(|_| view(random)).collect();
    match random.below(13) {
        0 => WireOp::CopyIn { target: view(random) },
        1 => WireOp::CopyOut { source: operand(random) },
        2 => WireOp::ZeroFill { target: operand(random) },
        3 => WireOp::ZeroTest { source: operand(random) },
        4 => {
            let kind = [Compression::LZ4, Compression::LZ4, Compression(200)][random.below(3)];
            let (limit_bytes, round_to_bytes) = (place(random) as usize, place(random) as usize);
            WireOp::Compress { source: view(random), target: view(random), how: Compress { kind, level: 0, limit_bytes, round_to_bytes } }
        }
        5 => WireOp::Decompress { source: view(random), target: view(random), kind: Compression::LZ4 },
        6 => {
            let kind = [Checksum::FLETCHER_4, Checksum(250)][random.below(2)];
            WireOp::Checksum { source: operand(random), kind, order: ByteOrder::Little }
        }
        7 => WireOp::RaidGenerate { parity: views(random, 4), data: views(random, 6) },
        8 => {
            let targets = (0..random.below(4)).map(|_| random.below(9) as u32).collect();
            WireOp::RaidReconstruct { parity: views(random, 4), data: views(random, 6), targets }
        }
        9 => WireOp::Compare { left: view(random), right: view(random) },
        10 => WireOp::Store { source: operand(random), store: random.below(3) as u64, offset: place(random) },
        11 => WireOp::Load { target: view(random), store: random.below(3) as u64, offset: place(random) },
        _ => WireOp::Flush { store: random.below(3) as u64 },
    }
}

fn program(random: &mut SplitMix) -> WireProgram {
    let numbers = |random: &mut SplitMix, most: usize| (0..random.below(most)).map(|_| random.below(8) as u64 + 4).collect();
    let path = |random: &mut SplitMix| ["/sink", "/etc/passwd", ""][random.below(3)].into();
    WireProgram {
        frees: numbers(random, 3),
        closes: Vec::new(),
        opens: (0..random.below(2))
            .map(|_| OpenStore { number: random.below(3) as u64, kind: StoreKind::File, path: path(random) })
            .collect(),
        buffers: (0..random.below(2)).map(|_| BufferRef { number: random.below(8) as u64, bytes: place(random) }).collect(),
        ops: (0..random.below(5)).map(|_| op(random)).collect(),
    }
}

/// The next completion, judged by its form.
fn answer(host: &mut Raw, programs: &[WireProgram], answered: &mut BTreeSet<u64>) {
    let frame = host.hear().unwrap();
    assert_eq!((frame.header.kind, frame.header.epoch), (Kind::Completion, host.welcome.epoch));
    let completion = WireCompletion::decode(&frame.message).unwrap();
    let program = &programs[frame.header.op as usize];
    assert_eq!((completion.opens.len(), completion.results.len()), (program.opens.len(), program.ops.len()), "{program:?}");
    assert!(frame.payload.len() as u64 <= QUOTA);
    answered.insert(frame.header.op);
}

/// A panic would take a worker from all hosts; memory beyond the quota would take it from them.
#[test]
fn no_program_harms_the_target() {
    let (target, listening) = target();
    let mut host = Raw::new(&listening, None).unwrap();
    let mut random = SplitMix::new(5);
    let first = WireProgram {
        opens: vec![OpenStore { number: 0, kind: StoreKind::File, path: "/sink".into() }],
        buffers: (0..4).map(|number| BufferRef { number, bytes: 8192 }).collect(),
        ops: (0..4).map(|buffer| WireOp::ZeroFill { target: OperandRef::View(ViewRef { buffer, offset: 0, bytes: 8192 }) }).collect(),
        ..WireProgram::default()
    };
    let mut programs = vec![first];
    programs.extend((1..3000).map(|_| program(&mut random)));
    let mut answered = BTreeSet::new();
    let mut ran = 0;
    for number in 0..programs.len() {
        let sources: u64 =
            programs[number].ops.iter().map(|op| if let WireOp::CopyIn { target } = op { target.bytes.min(1 << 20) } else { 0 }).sum();
        let right = random.below(10) > 0;
        let payload = Abd::zeroed(if right { sources as usize } else { random.below(1000) });
        let (op, floor) = (number as u64, number.saturating_sub(100) as u64);
        host.send(op, floor, &programs[number], &payload);
        answer(&mut host, &programs, &mut answered);
        ran += 1;
        // Again: the same answer, nothing is run.
        if random.below(20) == 0 {
            let before = target.stats().executed;
            host.send(op, floor, &programs[number], &payload);
            answer(&mut host, &programs, &mut answered);
            assert_eq!(target.stats().executed, before);
        }
        assert!(target.stats().buffer_bytes <= QUOTA, "{:?}", target.stats());
    }
    assert_eq!((answered.len(), target.stats().executed), (programs.len(), ran));
    // One below the floor is not answered again: the next one is the first to be.
    let last = programs.len() as u64;
    programs.push(WireProgram::default());
    host.send(5, 0, &programs[5], &Abd::default());
    host.send(last, 0, &programs[last as usize], &Abd::default());
    answered.clear();
    answer(&mut host, &programs, &mut answered);
    assert_eq!(answered.into_iter().collect::<Vec<_>>(), [last]);
    // Every worker is still there for somebody else.
    let mut other = Raw::new(&listening, None).unwrap();
    other.send(0, 0, &programs[0], &Abd::default());
    answer(&mut other, &programs, &mut BTreeSet::new());
    target.stop();
    assert_eq!(target.stats().buffers, 0);
}

/// Frames of another session, or of no host at all, end the session instead of being guessed at.
#[test]
fn a_host_that_breaks_the_rules_loses_its_session() {
    let (target, listening) = target();
    let other = Raw::new(&listening, None).unwrap();
    type Deed = fn(&mut Raw, &Raw);
    let deeds: [Deed; 4] = [
        |host, other| {
            host.welcome.epoch = other.welcome.epoch;
            host.send(1, 0, &WireProgram::default(), &Abd::default());
        },
        |host, _| {
            let header = Header { kind: Kind::Execute, epoch: host.welcome.epoch, op: 1, floor: 0 };
            host.say(&header, &[0xFF; 9], &Abd::default());
        },
        |host, _| {
            let header = Header { kind: Kind::Completion, epoch: host.welcome.epoch, op: 1, floor: 0 };
            host.say(&header, &[], &Abd::default());
        },
        |host, _| {
            let header = Header { kind: Kind::Goodbye, epoch: host.welcome.epoch, op: 1, floor: 0 };
            host.say(&header, &[], &Abd::default());
        },
    ];
    for (number, deed) in deeds.into_iter().enumerate() {
        let mut host = Raw::new(&listening, None).unwrap();
        let session = (host.welcome.session, host.welcome.epoch);
        deed(&mut host, &other);
        while let Ok(frame) = host.hear() {
            assert_eq!(frame.header.kind, Kind::Refused, "deed {number}");
        }
        assert_eq!(Raw::new(&listening, Some(session)).map(|_| ()), Err(Refusal::Session), "deed {number}");
    }
    assert_eq!(target.stats().sessions, 1);
    let session = Some((other.welcome.session, other.welcome.epoch ^ 1));
    assert_eq!(Raw::new(&listening, session).map(|_| ()), Err(Refusal::Session), "a guessed epoch");
}

/// If this fails, anybody who reaches the port keeps every host from its disks, without knowing the secret.
#[test]
fn crowds_that_prove_nothing_keep_no_host_out() {
    let (target, listening) = target();
    let crowd: Vec<Connection> = (0..300)
        .map(|_| {
            let mut silent = Connection::open(listening.address(), Duration::from_secs(5)).unwrap();
            silent.write_all(b"ZTGT").unwrap();
            silent
        })
        .collect();
    let hosts: Vec<Raw> = (0..10).map(|_| Raw::new(&listening, None).unwrap_or_else(|why| panic!("{why:?}"))).collect();
    let welcomes: BTreeSet<u64> = hosts.iter().map(|host| host.welcome.session).collect();
    assert_eq!(welcomes.len(), 10);
    drop((crowd, hosts));
    drop(listening);
    target.stop();
}

/// A host of the first version, which says everything in the open, is told so in words that it understands; it would else look for damage on the link.
#[test]
fn the_first_version_is_refused_by_name() {
    let (target, listening) = target();
    // As it said Hello: its version, the session to go on with or none, a nonce.
    let anew = [&[1u8, 0][..], &[7; 32]].concat();
    let again = [&[1u8, 1][..], &[9; 16], &[7; 32]].concat();
    for hello in [anew, again] {
        let mut connection = Connection::open(listening.address(), Duration::from_secs(5)).unwrap();
        write_frame(&mut connection, &Header::of(Kind::Hello), &hello, &Abd::default()).unwrap();
        let answer = plain(&mut connection);
        assert_eq!((answer.header.kind, Refused::decode(&answer.message).unwrap().why), (Kind::Refused, Refusal::Version));
        assert!(read_frame(&mut connection, &Limits::HANDSHAKE).is_err());
    }
    assert_eq!((target.stats().sessions, target.stats().refused), (0, 0));
}

/// Somebody who recorded a host's connection and plays it again gets no session, renews none, and has nothing carried out.
#[test]
fn a_recorded_connection_is_no_host() {
    let (target, listening) = target();
    let (mut recorded, mut proof) = (Vec::new(), Vec::new());
    let mut connection = Connection::open(listening.address(), Duration::from_secs(5)).unwrap();
    let (initiator, hello) = Initiator::new(&Secret::new(SECRET).unwrap()).unwrap();
    write_frame(&mut recorded, &Header::of(Kind::Hello), &hello.encode(), &Abd::default()).unwrap();
    connection.write_all(&recorded).unwrap();
    let mut channel = initiator.finish(&Challenge::decode(&plain(&mut connection).message).unwrap()).unwrap();
    channel.sealer.write(&mut proof, &Header::of(Kind::Proof), &Proof { session: None }.encode(), &Abd::default()).unwrap();
    connection.write_all(&proof).unwrap();
    assert_eq!(channel.opener.read(&mut connection, &Limits::SESSION).unwrap().header.kind, Kind::Welcome);
    for _ in 0..3 {
        let mut again = Connection::open(listening.address(), Duration::from_secs(5)).unwrap();
        again.write_all(&[&recorded[..], &proof].concat()).unwrap();
        assert_eq!(plain(&mut again).header.kind, Kind::Challenge);
        let mut rest = Vec::new();
        // Nothing comes but the end, by whichever name.
        let _ = again.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
    assert_eq!((target.stats().sessions, target.stats().executed), (1, 0));
    drop((connection, channel));
}

/// A frame that somebody on the link changed, or said twice, ends the connection, carries nothing out, and is counted; the session stays for its host.
#[test]
fn who_is_on_the_link_has_nothing_carried_out() {
    let (target, listening) = target();
    let first = Raw::new(&listening, None).unwrap();
    let session = (first.welcome.session, first.welcome.epoch);
    drop(first);
    let ends = |mut host: Raw| assert!(host.hear().is_err());
    let executed = || target.stats().executed;
    let program = WireProgram::default();
    for (number, deed) in ["flipped", "replayed", "reordered", "truncated"].into_iter().enumerate() {
        let mut host = Raw::new(&listening, Some(session)).unwrap();
        let mut frame = |op| {
            let mut bytes = Vec::new();
            let header = Header { kind: Kind::Execute, epoch: session.1, op, floor: 0 };
            host.channel.sealer.write(&mut bytes, &header, &program.encode(), &Abd::default()).unwrap();
            bytes
        };
        let op = number as u64 * 10 + 1;
        let (mut one, other) = (frame(op), frame(op + 1));
        let before = executed();
        match deed {
            "flipped" => {
                one[20] ^= 1;
                host.connection.write_all(&one).unwrap();
            }
            "replayed" => {
                host.connection.write_all(&[&one[..], &one].concat()).unwrap();
                assert_eq!(host.hear().unwrap().header.op, op);
            }
            "reordered" => host.connection.write_all(&[&other[..], &one].concat()).unwrap(),
            _ => {
                let end = one.len() - 1;
                host.connection.write_all(&[&one[..end], &other].concat()).unwrap();
            }
        }
        ends(host);
        assert_eq!(executed() - before, u64::from(deed == "replayed"), "{deed}");
    }
    assert_eq!((target.stats().damaged, target.stats().repeated, target.stats().sessions), (4, 0, 1));
}
