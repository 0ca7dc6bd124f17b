//! Messages that come back as they were, and what hostile or damaged bytes do: they are refused, and nothing panics.

use abd::Abd;
use dpusm::{Capabilities, Capability, Compress, Feature, OpError, QueueLimits, Sizes, StoreKind};
use exec::SplitMix;
use ondisk::{ByteOrder, Checksum, Compression};
use target_wire::{
    BufferRef, Challenge, HEADER_BYTES, Header, Hello, Kind, Limits, NOISE_BYTES, OpenStore, OperandRef, Proof, ReadError, Received,
    Refused, VERSION, ViewRef, Welcome, WireCompletion, WireOp, WireOutcome, WireProgram, WireResult, read_frame, write_frame,
};

fn number(random: &mut SplitMix) -> u64 {
    random.next_u64() >> random.below(64)
}

fn view(random: &mut SplitMix) -> ViewRef {
    ViewRef { buffer: number(random), offset: number(random), bytes: number(random) }
}

fn views(random: &mut SplitMix, most: usize) -> Vec<ViewRef> {
    (0..random.below(most + 1)).map(|_| view(random)).collect()
}

fn operand(random: &mut SplitMix) -> OperandRef {
    match random.below(3) {
        0 => OperandRef::View(view(random)),
        1 => OperandRef::Result(number(random) as u32),
        _ => OperandRef::Padding(number(random) as u32),
    }
}

fn order(random: &mut SplitMix) -> ByteOrder {
    ByteOrder::from_little(random.below(2) == 0)
}

fn op(random: &mut SplitMix) -> WireOp {
    let kind = number(random) as u8;
    match random.below(13) {
        0 => WireOp::CopyIn { target: view(random) },
        1 => WireOp::CopyOut { source: operand(random) },
        2 => WireOp::ZeroFill { target: operand(random) },
        3 => WireOp::ZeroTest { source: operand(random) },
        4 => {
            let (limit_bytes, round_to_bytes) = (number(random) as usize, number(random) as usize);
            let how = Compress { kind: Compression(kind), level: number(random) as u8, limit_bytes, round_to_bytes };
            WireOp::Compress { source: view(random), target: view(random), how }
        }
        5 => WireOp::Decompress { source: view(random), target: view(random), kind: Compression(kind) },
        6 => WireOp::Checksum { source: operand(random), kind: Checksum(kind), order: order(random) },
        7 => WireOp::RaidGenerate { parity: views(random, 3), data: views(random, 255) },
        8 => {
            let targets = (0..random.below(4)).map(|_| number(random) as u32).collect();
            WireOp::RaidReconstruct { parity: views(random, 3), data: views(random, 20), targets }
        }
        9 => WireOp::Compare { left: view(random), right: view(random) },
        10 => WireOp::Store { source: operand(random), store: number(random), offset: number(random) },
        11 => WireOp::Load { target: view(random), store: number(random), offset: number(random) },
        _ => WireOp::Flush { store: number(random) },
    }
}

fn program(random: &mut SplitMix) -> WireProgram {
    let path = |random: &mut SplitMix| format!("/dev/disk {}", random.next_u64()).into();
    WireProgram {
        frees: (0..random.below(9)).map(|_| number(random)).collect(),
        closes: (0..random.below(3)).map(|_| number(random)).collect(),
        opens: (0..random.below(3))
            .map(|at| {
                let kind = if at == 0 { StoreKind::Disk } else { StoreKind::File };
                OpenStore { number: number(random), kind, path: path(random) }
            })
            .collect(),
        buffers: (0..random.below(9)).map(|_| BufferRef { number: number(random), bytes: number(random) }).collect(),
        ops: (0..random.below(20)).map(|_| op(random)).collect(),
    }
}

fn completion(random: &mut SplitMix) -> WireCompletion {
    let results = (0..random.below(20))
        .map(|_| {
            let outcome = match random.below(9) {
                0 => Ok(WireOutcome::Done),
                1 => Ok(WireOutcome::Compressed(None)),
                2 => Ok(WireOutcome::Compressed(Some(number(random)))),
                3 => Ok(WireOutcome::Checksum(std::array::from_fn(|_| number(random)))),
                4 => Ok(WireOutcome::Flag(random.below(2) == 0)),
                5 => Ok(WireOutcome::Copied(number(random))),
                6 => Ok(WireOutcome::Stored(number(random))),
                7 => Err(OpError::Io(random.below(4096) as i32)),
                _ => Err(OpError::Skipped),
            };
            WireResult { outcome, device_ns: number(random) }
        })
        .collect();
    WireCompletion { opens: (0..random.below(3)).map(|at| if at == 0 { Ok(()) } else { Err(OpError::NoMemory) }).collect(), results }
}

fn welcome() -> Welcome {
    let list = [
        Feature::CopyIn { scatter: true },
        Feature::CopyOut { scatter: false },
        Feature::ZeroFill,
        Feature::ZeroTest,
        Feature::Compare,
        Feature::Compress { kind: Compression::ZSTD, level_min: 1, level_max: 19 },
        Feature::Decompress { kind: Compression::LZ4 },
        Feature::Checksum { kind: Checksum::FLETCHER_4, order: ByteOrder::Big },
        Feature::RaidGenerate { parity: 2, data_columns_max: 255 },
        Feature::RaidReconstruct { parity: 3, data_columns_max: 10 },
        Feature::Store { kind: StoreKind::Disk },
        Feature::Load { kind: StoreKind::File },
    ];
    let sizes = Sizes { min_bytes: 512, max_bytes: usize::MAX, align_bytes: 16 };
    let list = list.map(|feature| Capability { feature, sizes }).to_vec();
    let queue = QueueLimits { graphs_max: 7, bytes_max: u64::MAX };
    let about = "zirconia-target 0.1.0 on storage-1".to_string();
    let capabilities = Capabilities { list, queue };
    Welcome { session: 3, epoch: u64::MAX, lease_ns: 30_000_000_000, memory_bytes_max: 1 << 30, about, capabilities }
}

/// A field that came back changed would write somewhere else on a disk.
#[test]
fn every_message_comes_back_as_it_was() {
    let mut random = SplitMix::new(1);
    for _ in 0..2000 {
        let program = program(&mut random);
        assert_eq!(WireProgram::decode(&program.encode()), Ok(program));
        let completion = completion(&mut random);
        assert_eq!(WireCompletion::decode(&completion.encode()), Ok(completion));
    }
    let welcome = welcome();
    assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
    for session in [None, Some((1, u64::MAX))] {
        assert_eq!(Proof::decode(&Proof { session }.encode()), Ok(Proof { session }));
    }
    let noise = std::array::from_fn(|at| at as u8);
    let hello = Hello { version: VERSION, noise };
    assert_eq!((Hello::decode(&hello.encode()), Hello::version(&hello.encode())), (Ok(hello), Ok(VERSION)));
    assert_eq!(Challenge::decode(&Challenge { noise }.encode()), Ok(Challenge { noise }));
}

/// Bytes from anybody who can reach the port: refused or read, never a panic, never more memory than was sent.
#[test]
fn no_bytes_make_a_decoder_panic() {
    let mut random = SplitMix::new(2);
    let seeds: Vec<Vec<u8>> = (0..40)
        .flat_map(|_| [program(&mut random).encode(), completion(&mut random).encode()])
        .chain([welcome().encode(), Hello { version: VERSION, noise: [7; NOISE_BYTES] }.encode()])
        .collect();
    let mut read = 0;
    for round in 0..40_000 {
        let mut bytes = if round % 4 == 0 {
            let count = random.below(64);
            random.bytes(count)
        } else {
            seeds[random.below(seeds.len())].clone()
        };
        for _ in 0..random.below(4) {
            if !bytes.is_empty() {
                let at = random.below(bytes.len());
                match random.below(3) {
                    0 => bytes[at] = random.next_u64() as u8,
                    1 => bytes.truncate(at),
                    _ => bytes.insert(at, random.next_u64() as u8),
                }
            }
        }
        if let Ok(program) = WireProgram::decode(&bytes) {
            assert_eq!(program.encode(), bytes, "two forms of one program");
            read += 1;
        }
        let _ = WireCompletion::decode(&bytes);
        let _ = Welcome::decode(&bytes);
        let _ = (Hello::decode(&bytes), Challenge::decode(&bytes), Proof::decode(&bytes), Refused::decode(&bytes));
    }
    assert!(read > 1000, "the decoders refused nearly everything ({read} read): nothing was tested");
}

fn frame(random: &mut SplitMix) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let (message, payload) = (random.below(300), random.below(5000));
    let (message, payload) = (random.bytes(message), random.bytes(payload));
    let mut link = Vec::new();
    let header = Header { kind: Kind::Execute, epoch: 5, op: 6, floor: 4 };
    let (head, tail) = payload.split_at(payload.len() / 3);
    let bytes = write_frame(&mut link, &header, &message, &Abd::gang(&[Abd::from_slice(head), Abd::from_slice(tail)])).unwrap();
    assert_eq!(bytes as usize, link.len());
    assert_eq!(link.len(), HEADER_BYTES + message.len() + payload.len());
    (link, message, payload)
}

/// One damaged byte anywhere is noticed: behind a good header only this frame is lost, in the header the connection is.
#[test]
fn every_damaged_byte_is_noticed() {
    let mut random = SplitMix::new(3);
    for _ in 0..20 {
        let (link, message, payload) = frame(&mut random);
        match read_frame(&mut &link[..], &Limits::SESSION) {
            Ok(Received::Whole(frame)) => {
                assert_eq!(frame.header.op, 6);
                assert!(frame.message == message && frame.payload.to_vec() == payload);
            }
            other => panic!("{other:?}"),
        }
        for at in 0..link.len() {
            let mut damaged = link.clone();
            damaged[at] ^= 1 << random.below(8);
            let got = read_frame(&mut &damaged[..], &Limits::SESSION);
            match got {
                Err(ReadError::NoHeader) => assert!(at < HEADER_BYTES, "byte {at}"),
                Ok(Received::Damaged(header)) => assert!(at >= HEADER_BYTES && header.op == 6, "byte {at}"),
                other => panic!("byte {at}: {other:?}"),
            }
        }
        let cut = random.below(link.len() - 1) + 1;
        assert!(matches!(read_frame(&mut &link[..cut], &Limits::SESSION), Err(ReadError::Io(_))));
        assert!(matches!(read_frame(&mut &link[..0], &Limits::SESSION), Err(ReadError::Closed)));
    }
}

/// Who has not proved anything gets no memory.
#[test]
fn long_frames_are_refused_before_they_are_read() {
    let mut link = Vec::new();
    write_frame(&mut link, &Header::of(Kind::Hello), &[0; 20 << 10], &Abd::default()).unwrap();
    assert!(matches!(read_frame(&mut &link[..HEADER_BYTES], &Limits::HANDSHAKE), Err(ReadError::TooLong)));
    link.clear();
    write_frame(&mut link, &Header::of(Kind::Hello), &[], &Abd::zeroed(1)).unwrap();
    assert!(matches!(read_frame(&mut &link[..HEADER_BYTES], &Limits::HANDSHAKE), Err(ReadError::TooLong)));
}
