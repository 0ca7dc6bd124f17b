//! Scripted clients against a connection without a socket: what they rely on, what they must not get away with, and what of theirs ends it.

mod sockets;

use crate::proto::{STATE_HOLE_ZERO, chunk, command, command_flag, error, field, flag, info, option, reply};
use crate::testing::{Bench, RamExport, RamExports, Script, conversations, serve};
use crate::{Piece, Shape};
use exec::SplitMix;
use std::sync::Arc;

const NAME: &str = "tank/vol";
const OTHER: &str = "tank/other";
const BLOCK: usize = 4096;
const SHAPE: Shape = Shape { bytes: 64 << 10, block_bytes: BLOCK as u32, is_read_only: false };
const MODERN: u32 = 3;

fn exports() -> Arc<RamExports> {
    RamExports::new(&[(NAME, SHAPE), (OTHER, Shape { is_read_only: true, ..SHAPE })])
}

fn export(exports: &RamExports) -> Arc<RamExport> {
    exports.get(NAME).expect("it is there")
}

/// Answer to an option: the option, the kind, the data.
type OptionReply = (u32, u32, Vec<u8>);

/// Answers to the options of a client, behind the greeting.
fn haggle(script: &Script) -> Vec<OptionReply> {
    let mut bench = Bench::new(&exports());
    bench.take(&script.0);
    let (greeting, mut rest) = bench.sent.split_at(18);
    assert_eq!(greeting, b"NBDMAGICIHAVEOPT\0\x03");
    let mut replies = Vec::new();
    while !rest.is_empty() {
        assert_eq!(field(rest, 0, 8), 0x0003_E889_0455_65A9);
        let (number, kind, length) = (field(rest, 8, 4) as u32, field(rest, 12, 4) as u32, field(rest, 16, 4) as usize);
        replies.push((number, kind, rest[20..20 + length].to_vec()));
        rest = &rest[20 + length..];
    }
    replies
}

/// Client that has an export, and asks for one thing at a time.
struct Client {
    bench: Bench,
    is_structured: bool,
}

/// Chunk of a reply: its kind and what is in it.
type Chunk = (u16, Vec<u8>);

impl Client {
    fn new(exports: &Arc<RamExports>, name: &str, is_structured: bool) -> Client {
        let begin = Script::begin(MODERN);
        let script = match is_structured {
            true => {
                let begin = begin.option(option::STRUCTURED_REPLY, &[]);
                begin.contexts(option::SET_META_CONTEXT, name, &["base:allocation"])
            }
            false => begin,
        };
        let mut bench = Bench::new(exports);
        bench.take(&script.about(option::GO, name, &[]).0);
        assert_eq!(bench.closed, None);
        bench.sent.clear();
        Client { bench, is_structured }
    }

    fn send(&mut self, kind: (u16, u16), at: usize, bytes: usize, data: &[u8]) {
        self.bench.take(&Script::default().request(kind, at as u64, bytes as u32, data).0);
    }

    /// Chunks of the answer to a request, or its error and data in simple replies, as if they were a chunk of that number.
    fn ask(&mut self, kind: (u16, u16), at: usize, bytes: usize, data: &[u8]) -> Vec<Chunk> {
        self.send(kind, at, bytes, data);
        self.answers()
    }

    fn answers(&mut self) -> Vec<Chunk> {
        let sent = std::mem::take(&mut self.bench.sent);
        let (mut rest, mut chunks) = (&sent[..], Vec::new());
        while !rest.is_empty() {
            if !self.is_structured {
                assert_eq!(field(rest, 0, 4), 0x6744_6698);
                chunks.push((field(rest, 4, 4) as u16, rest[16..].to_vec()));
                break;
            }
            assert_eq!(field(rest, 0, 4), 0x668E_33EF);
            let (flags, kind, length) = (field(rest, 4, 2) as u16, field(rest, 6, 2) as u16, field(rest, 16, 4) as usize);
            chunks.push((kind, rest[20..20 + length].to_vec()));
            rest = &rest[20 + length..];
            assert_eq!(flags == chunk::DONE, rest.is_empty(), "the last chunk, and no other, says that it is that");
        }
        chunks
    }

    /// Error of a request, 0 where there is none.
    fn error(&mut self, kind: (u16, u16), at: usize, bytes: usize, data: &[u8]) -> u32 {
        let chunks = self.ask(kind, at, bytes, data);
        match (&chunks[..], self.is_structured) {
            ([(number, data)], false) => {
                assert!(*number == 0 || data.is_empty(), "an error has no data");
                u32::from(*number)
            }
            ([(chunk::ERROR, data)], true) => field(data, 0, 4) as u32,
            _ => 0,
        }
    }

    /// Bytes of a range, put together of chunks.
    fn read(&mut self, flags: u16, at: usize, bytes: usize) -> Vec<u8> {
        let chunks = self.ask((flags, command::READ), at, bytes, &[]);
        if !self.is_structured {
            assert_eq!((chunks.len(), chunks[0].0), (1, 0));
            return chunks[0].1.clone();
        }
        let mut read = vec![0xEE; bytes];
        for (kind, data) in chunks {
            let offset = field(&data, 0, 8) as usize - at;
            match kind {
                chunk::OFFSET_DATA => read[offset..offset + data.len() - 8].copy_from_slice(&data[8..]),
                chunk::OFFSET_HOLE => read[offset..offset + field(&data, 8, 4) as usize].fill(0),
                other => panic!("a chunk of kind {other}"),
            }
        }
        read
    }
}

fn ok(number: u32) -> OptionReply {
    (number, reply::ACK, Vec::new())
}

/// If this fails, clients do not find a volume, take it for another one, or for one of another size.
#[test]
fn exports_are_listed_described_and_taken() {
    let listed = haggle(&Script::begin(MODERN).option(option::LIST, &[]));
    let names: Vec<&[u8]> = listed.iter().filter(|reply| reply.1 == reply::SERVER).map(|reply| &reply.2[4..]).collect();
    assert_eq!(names, [OTHER.as_bytes(), NAME.as_bytes()]);
    assert_eq!(listed.last(), Some(&ok(option::LIST)));
    let always = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::CAN_MULTI_CONN | flag::SEND_CACHE;
    let writable = always | flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO;
    let facts = |flags: u16| [&info::EXPORT.to_be_bytes()[..], &(64u64 << 10).to_be_bytes(), &flags.to_be_bytes()].concat();
    let about = haggle(&Script::begin(MODERN).about(option::INFO, NAME, &[3, 1, 77]));
    let sizes = [&info::BLOCK_SIZE.to_be_bytes()[..], &[1, 4096, 32 << 20].map(u32::to_be_bytes).concat()].concat();
    let named = [&info::NAME.to_be_bytes()[..], NAME.as_bytes()].concat();
    let informed = |data| (option::INFO, reply::INFO, data);
    assert_eq!(about, [informed(facts(writable)), informed(named), informed(sizes), ok(option::INFO)]);
    let about = haggle(&Script::begin(MODERN).option(option::STRUCTURED_REPLY, &[]).about(option::GO, OTHER, &[]));
    let read_only = facts(always | flag::READ_ONLY | flag::SEND_DF);
    assert_eq!(about, [ok(option::STRUCTURED_REPLY), (option::GO, reply::INFO, read_only), ok(option::GO)]);
    for (flags, zeros) in [(0, 124), (1, 124), (3, 0)] {
        let mut bench = Bench::new(&exports());
        bench.take(&Script::begin(flags).option(option::EXPORT_NAME, NAME.as_bytes()).0);
        assert_eq!(bench.sent[18..], [&facts(writable)[2..], &vec![0; zeros]].concat(), "{flags}");
    }
}

/// If this fails, a client that asks for something that is not here cannot go on without it, or never learns why.
#[test]
fn options_that_cannot_be_had_are_refused_and_the_haggling_goes_on() {
    let unknown = 0x7777;
    let nested = [&100u32.to_be_bytes()[..], b"short"].concat();
    let too_many = [&0u32.to_be_bytes()[..], &9u16.to_be_bytes()].concat();
    let begin = || Script::begin(MODERN);
    for (script, number, kind) in [
        (begin().option(unknown, b"anything"), unknown, reply::ERR_UNSUP),
        (begin().option(11, &[]), 11, reply::ERR_UNSUP),
        (begin().option(option::STARTTLS, &[]), option::STARTTLS, reply::ERR_UNSUP),
        (begin().option(option::STARTTLS, b"x"), option::STARTTLS, reply::ERR_INVALID),
        (begin().option(option::LIST, b"x"), option::LIST, reply::ERR_INVALID),
        (begin().option(option::STRUCTURED_REPLY, b"x"), option::STRUCTURED_REPLY, reply::ERR_INVALID),
        (begin().about(option::GO, "tank/none", &[]), option::GO, reply::ERR_UNKNOWN),
        (begin().about(option::INFO, "", &[]), option::INFO, reply::ERR_UNKNOWN),
        (begin().about(option::INFO, "a\0b", &[]), option::INFO, reply::ERR_INVALID),
        (begin().about(option::GO, &"n".repeat(4097), &[]), option::GO, reply::ERR_INVALID),
        (begin().option(option::GO, &[]), option::GO, reply::ERR_INVALID),
        (begin().option(option::GO, &nested), option::GO, reply::ERR_INVALID),
        (begin().option(option::INFO, &too_many), option::INFO, reply::ERR_INVALID),
        (begin().option(option::INFO, &[0xFF; 6]), option::INFO, reply::ERR_INVALID),
        (begin().contexts(option::SET_META_CONTEXT, NAME, &[]), option::SET_META_CONTEXT, reply::ERR_INVALID),
    ] {
        let replies = haggle(&script.option(option::STRUCTURED_REPLY, &[]));
        assert_eq!((replies[0].0, replies[0].1), (number, kind));
        assert_eq!(replies.last(), Some(&ok(option::STRUCTURED_REPLY)), "after {number:#x}");
    }
    let structured = || begin().option(option::STRUCTURED_REPLY, &[]);
    let replies = haggle(&structured().contexts(option::LIST_META_CONTEXT, "tank/none", &[]));
    assert_eq!(replies[1].1, reply::ERR_UNKNOWN);
    let context = |number, id: u32| (number, reply::META_CONTEXT, [&id.to_be_bytes()[..], b"base:allocation"].concat());
    let (list, set, none): (u32, u32, &[&str]) = (option::LIST_META_CONTEXT, option::SET_META_CONTEXT, &[]);
    for (number, queries, found) in [
        (list, none, true),
        (list, &["base:"][..], true),
        (list, &["base:other"][..], false),
        (list, &["qemu:dirty-bitmap:x", "base:allocation"][..], true),
        (set, none, false),
        (set, &["base:"][..], false),
        (set, &["x-y:z", "base:allocation"][..], true),
    ] {
        let replies = haggle(&structured().contexts(number, NAME, queries));
        let expected = [found.then(|| context(number, u32::from(number == set))), Some(ok(number))];
        assert_eq!(replies[1..], expected.into_iter().flatten().collect::<Vec<_>>(), "{queries:?}");
    }
}

/// If this fails, a guest reads other bytes than it wrote, or what it freed comes back, or goes beside it; with either kind of replies.
#[test]
fn an_export_is_an_array_of_bytes() {
    for (is_structured, seed) in [(true, 1), (false, 2), (true, 3), (false, 4)] {
        let exports = exports();
        let mut client = Client::new(&exports, NAME, is_structured);
        let (mut random, mut model) = (SplitMix::new(seed), vec![0u8; SHAPE.bytes as usize]);
        for round in 0..300 {
            let at = random.below(model.len() - 1);
            let bytes = (1 + random.below(3 * BLOCK)).min(model.len() - at);
            match random.below(4) {
                0 => {
                    let data: Vec<u8> = (0..bytes).map(|at| (at * 7 + round) as u8 | 1).collect();
                    assert_eq!(client.error((0, command::WRITE), at, bytes, &data), 0);
                    model[at..at + bytes].copy_from_slice(&data);
                }
                1 => {
                    let flags = [0, command_flag::NO_HOLE, command_flag::FUA][random.below(3)];
                    assert_eq!(client.error((flags, command::WRITE_ZEROES), at, bytes, &[]), 0);
                    model[at..at + bytes].fill(0);
                }
                _ => {
                    let flags = if is_structured && random.chance(2) { command_flag::DF } else { 0 };
                    assert!(client.read(flags, at, bytes) == model[at..at + bytes], "{round}: {at}, {bytes}");
                }
            }
        }
    }
}

/// If this fails, a copy of a sparse volume is as large as the volume, or lacks what is in it.
#[test]
fn holes_are_told_apart_from_data() {
    let exports = exports();
    let mut client = Client::new(&exports, NAME, true);
    assert_eq!(client.error((0, command::WRITE), 2 * BLOCK, BLOCK, &[7; BLOCK]), 0);
    let place = |at: usize| (at as u64).to_be_bytes();
    let hole = |at: usize, bytes: usize| (chunk::OFFSET_HOLE, [&place(at)[..], &(bytes as u32).to_be_bytes()].concat());
    let data = |at: usize, bytes: &[u8]| (chunk::OFFSET_DATA, [&place(at)[..], bytes].concat());
    let read = client.ask((0, command::READ), BLOCK - 10, 3 * BLOCK, &[]);
    assert_eq!(read, [hole(BLOCK - 10, BLOCK + 10), data(2 * BLOCK, &[7; BLOCK]), hole(3 * BLOCK, BLOCK - 10)]);
    let whole = [&[0; 10][..], &[7; BLOCK], &[0; 10]].concat();
    let read = client.ask((command_flag::DF, command::READ), 2 * BLOCK - 10, BLOCK + 20, &[]);
    assert_eq!(read, [data(2 * BLOCK - 10, &whole)]);
    let status = |extents: &[(usize, u32)]| {
        let words = extents.iter().flat_map(|(bytes, state)| [*bytes as u32, *state]);
        vec![(chunk::BLOCK_STATUS, [1].into_iter().chain(words).flat_map(u32::to_be_bytes).collect::<Vec<u8>>())]
    };
    let all = client.ask((0, command::BLOCK_STATUS), 512, 4 * BLOCK - 512, &[]);
    assert_eq!(all, status(&[(2 * BLOCK - 512, STATE_HOLE_ZERO), (BLOCK, 0), (BLOCK, STATE_HOLE_ZERO)]));
    let one = client.ask((command_flag::REQ_ONE, command::BLOCK_STATUS), 2 * BLOCK, 5 * BLOCK, &[]);
    assert_eq!(one, status(&[(BLOCK, 0)]));
}

/// If this fails, a guest takes bytes that devices lost for its own, or loses those beside them.
#[test]
fn what_cannot_be_read_is_said_to_be_so() {
    let exports = exports();
    let mut client = Client::new(&exports, NAME, true);
    client.ask((0, command::WRITE), BLOCK, BLOCK, &[7; BLOCK]);
    client.ask((0, command::WRITE), 3 * BLOCK, BLOCK, &[8; BLOCK]);
    export(&exports).lose(BLOCK..2 * BLOCK);
    let chunks = client.ask((0, command::READ), 0, 4 * BLOCK, &[]);
    let kinds: Vec<u16> = chunks.iter().map(|chunk| chunk.0).collect();
    assert_eq!(kinds, [chunk::OFFSET_HOLE, chunk::ERROR_OFFSET, chunk::OFFSET_HOLE, chunk::OFFSET_DATA]);
    let lost = [&error::IO.to_be_bytes()[..], &[0; 2], &(BLOCK as u64).to_be_bytes()].concat();
    assert_eq!(chunks[1].1, lost);
    assert_eq!(chunks[3].1[8..], [8; BLOCK]);
    assert_eq!(client.error((command_flag::DF, command::READ), 0, 4 * BLOCK, &[]), error::IO);
    let mut old = Client::new(&exports, NAME, false);
    assert_eq!(old.error((0, command::READ), 0, 4 * BLOCK, &[]), error::IO);
    assert_eq!(old.read(0, 3 * BLOCK, BLOCK), [8; BLOCK], "the connection goes on");
}

/// If this fails, a guest loses what it was told is on disk: by its own flush, by that of another connection, or by FUA.
#[test]
fn what_was_made_durable_is() {
    for is_structured in [true, false] {
        let exports = exports();
        let disk = export(&exports);
        let (mut a, mut b) = (Client::new(&exports, NAME, is_structured), Client::new(&exports, NAME, is_structured));
        a.ask((0, command::WRITE), 0, BLOCK, &[1; BLOCK]);
        a.ask((command_flag::FUA, command::WRITE), BLOCK, BLOCK, &[2; BLOCK]);
        assert_eq!((disk.stable()[0], disk.stable()[BLOCK]), (0, 2), "only that was to be durable");
        assert_eq!(b.error((0, command::FLUSH), 0, 0, &[]), 0);
        assert_eq!(disk.stable()[0], 1);
        a.ask((0, command::WRITE_ZEROES), 0, BLOCK, &[]);
        assert_eq!(disk.stable()[0], 1);
        a.ask((command_flag::FUA, command::WRITE_ZEROES), 0, BLOCK, &[]);
        a.ask((command_flag::FUA, command::TRIM), BLOCK, BLOCK, &[]);
        assert_eq!((disk.stable()[0], disk.stable()[BLOCK]), (0, 0));
    }
}

/// If this fails, a guest writes to a disk that it may only read, or behind the end, or takes a failure for success.
#[test]
fn requests_that_cannot_be_are_refused_and_the_connection_goes_on() {
    let end = SHAPE.bytes as usize;
    let zeroes = command::WRITE_ZEROES;
    let (fast, no_hole) = (command_flag::FAST_ZERO, command_flag::NO_HOLE);
    for is_structured in [true, false] {
        let exports = exports();
        let mut client = Client::new(&exports, NAME, is_structured);
        for (kind, at, bytes, expected) in [
            ((0, 99), 0, 512, error::INVAL),
            ((0, 8), 0, 512, error::INVAL),
            ((0, command::READ), end - 1, 2, error::INVAL),
            ((0, command::READ), usize::MAX - 1, 512, error::INVAL),
            ((0, command::TRIM), end, 1, error::INVAL),
            ((0, command::CACHE), end, 1, error::INVAL),
            ((0, zeroes), end - 1, 2, error::NOSPC),
            ((0x20, command::READ), 0, 512, error::INVAL),
            ((no_hole, command::READ), 0, 512, error::INVAL),
            ((fast, command::TRIM), 0, 512, error::INVAL),
            ((fast, zeroes), 0, 512, error::NOTSUP),
            ((fast | no_hole, zeroes), 0, BLOCK, error::NOTSUP),
            ((fast, zeroes), 0, 2 * BLOCK, 0),
            ((0, command::FLUSH), 512, 0, error::INVAL),
            ((0, command::CACHE), 0, 512, 0),
            ((0, command::READ), 0, 0, 0),
            ((0, zeroes), end, 0, 0),
            ((command_flag::FUA, command::READ), 0, 512, 0),
            ((command_flag::DF, command::READ), 0, 512, if is_structured { 0 } else { error::INVAL }),
            ((0, command::BLOCK_STATUS), 0, 512, if is_structured { 0 } else { error::INVAL }),
            ((0, command::BLOCK_STATUS), 0, 0, error::INVAL),
        ] {
            assert_eq!(client.error(kind, at, bytes, &[]), expected, "{kind:?} {at} {bytes} {is_structured}");
        }
        for (kind, at) in [((0, command::WRITE), end - 511), ((0, command::WRITE), usize::MAX - 100)] {
            assert_eq!(client.error(kind, at, 512, &[9; 512]), error::NOSPC);
        }
        assert_eq!(client.error((no_hole, command::WRITE), 0, 512, &[9; 512]), error::INVAL);
        assert!(export(&exports).stable().iter().all(|byte| *byte == 0));
        export(&exports).reshape(|shape| shape.bytes = 0);
        assert_eq!(client.error((0, command::WRITE), 0, 512, &[9; 512]), error::NOSPC, "it shrank");
        let mut reader = Client::new(&exports, OTHER, is_structured);
        for kind in [command::TRIM, zeroes] {
            assert_eq!(reader.error((0, kind), 0, BLOCK, &[]), error::PERM);
        }
        assert_eq!(reader.error((0, command::WRITE), 0, 512, &[9; 512]), error::PERM);
        assert_eq!(reader.read(0, 0, 512), [0; 512]);
    }
}

/// If this fails, a client that has the contexts of one export asks another one for them.
#[test]
fn contexts_are_of_the_export_that_they_were_set_for() {
    let (some, none): (&[&str], &[&str]) = (&["base:allocation"], &[]);
    for (name, queries, found) in [(NAME, some, true), (OTHER, some, false), (NAME, none, false)] {
        let mut bench = Bench::new(&exports());
        let script = Script::begin(MODERN).option(option::STRUCTURED_REPLY, &[]);
        let script = script.contexts(option::SET_META_CONTEXT, NAME, &["base:allocation"]);
        let script = script.contexts(option::SET_META_CONTEXT, name, queries).about(option::GO, NAME, &[]);
        bench.take(&script.0);
        let mut client = Client { bench, is_structured: true };
        client.bench.sent.clear();
        assert_eq!(client.error((0, command::BLOCK_STATUS), 0, 512, &[]) == 0, found, "{name} {queries:?}");
    }
}

/// If this fails, one client with a bug, or a port scanner, ends the daemon, takes its memory, or keeps it busy.
#[test]
fn hostile_inputs_end_their_connection() {
    let taken = || Script::begin(MODERN).about(option::GO, NAME, &[]);
    let long = [b"IHAVEOPT".as_slice(), &[0, 0, 0, 3], &u32::MAX.to_be_bytes()].concat();
    let many = (0..65).fold(Script::begin(MODERN), |script, _| script.option(option::STRUCTURED_REPLY, &[]));
    for (what, bytes) in [
        ("flags that nobody offered", Script::begin(4).0),
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("no option", [Script::begin(MODERN).0, b"OPTIONS / RTSP/1".to_vec()].concat()),
        ("an option of four gigabytes", [Script::begin(MODERN).0, long].concat()),
        ("options without an end", many.0),
        ("an export that is not there", Script::begin(MODERN).option(option::EXPORT_NAME, b"tank/none").0),
        ("an export whose name is none", Script::begin(MODERN).option(option::EXPORT_NAME, &[0xFF; 9]).0),
        ("no request", [taken().0, vec![0; 28]].concat()),
        ("a write of more than 32 MiB", taken().request((0, command::WRITE), 0, (32 << 20) + 1, &[]).0),
        ("an end", taken().request((0, command::DISC), 0, 0, &[]).0),
        ("an abort", Script::begin(MODERN).option(option::ABORT, b"whatever").0),
    ] {
        let mut bench = Bench::new(&exports());
        bench.take(&bytes);
        assert!(bench.closed.is_some(), "{what}");
        assert_eq!(bench.take(&[0; 100]), 0, "{what}: nothing is taken any more");
    }
}

/// If this fails, damaged words of a client end the daemon.
#[test]
fn damaged_conversations_end_at_most_their_connection() {
    for seed in 0..1000 {
        let mut random = SplitMix::new(seed);
        for mut bytes in conversations() {
            for _ in 0..random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] = random.next_u64() as u8;
            }
            bytes.truncate(1 + random.below(2 * bytes.len()));
            serve(&bytes);
        }
    }
}

/// If this fails, a client takes as much memory as it likes by asking without listening, or stands still after it did.
#[test]
fn so_much_is_under_way_and_no_more() {
    let exports = exports();
    let disk = export(&exports);
    let mut client = Client::new(&exports, NAME, true);
    disk.hold();
    let requests = (0..200).fold(Script::default(), |script, _| script.request((0, command::READ), 0, 512, &[]));
    let taken = client.bench.take(&requests.0);
    assert_eq!(disk.held(), 128);
    disk.release();
    client.bench.settle();
    client.bench.take(&requests.0[taken..]);
    assert!(client.bench.is_idle());
    let answers = std::mem::take(&mut client.bench.sent);
    let (mut rest, mut count) = (&answers[..], 0);
    while !rest.is_empty() {
        rest = &rest[20 + field(rest, 16, 4) as usize..];
        count += 1;
    }
    assert_eq!(count, 200, "of one chunk each");
}

/// If this fails, a daemon that ends, or a volume that goes, leaves requests unanswered, or writes go on behind its back.
#[test]
fn what_is_under_way_ends_before_the_connection_does() {
    let exports = exports();
    let disk = export(&exports);
    let mut client = Client::new(&exports, NAME, true);
    disk.hold();
    client.send((0, command::WRITE), 0, 512, &[1; 512]);
    client.bench.leave();
    assert_eq!((client.bench.closed, client.bench.is_idle()), (None, false));
    assert_eq!(client.bench.take(&[0; 28]), 0, "nothing new is taken");
    disk.release();
    client.bench.settle();
    assert!(client.bench.closed.is_some());
    assert_eq!(client.answers(), [(chunk::NONE, Vec::<u8>::new())]);
    let mut client = Client::new(&exports, NAME, true);
    disk.take_away();
    assert_eq!(client.error((0, command::READ), 0, 512, &[]), error::SHUTDOWN);
    assert!(client.bench.closed.is_some());
}

/// If this fails, pieces that do not make up what was asked for are sent as if they did.
#[test]
fn pieces_know_their_length() {
    assert_eq!(Piece::Data(abd::Abd::zeroed(5)).bytes() + Piece::Hole(7).bytes() + Piece::Lost(1, crate::ExportError::Io).bytes(), 13);
}
