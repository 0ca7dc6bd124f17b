//! Streams of LZ4 that no compressor makes, through the kernel that decompresses: what it gives, and what it refuses, is what a decoder that goes byte
//! by byte gives and refuses.

use crate::kernels::{Emulated, decompress, emulated};
use dpusm::{Device, OpError};
use exec::SplitMix;
use ondisk::Compression;

/// Bytes before the stream: its length.
const HEADER: usize = 4;

/// A stream as it is written, and the block that it stands for.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    block: Vec<u8>,
}

impl Stream {
    fn extra(&mut self, count: usize) {
        if let Some(left) = count.checked_sub(15) {
            self.bytes.extend(std::iter::repeat_n(255, left / 255));
            self.bytes.push((left % 255) as u8);
        }
    }

    fn sequence(&mut self, literals: &[u8], offset: usize, length: usize) {
        self.bytes.push((literals.len().min(15) << 4 | (length - 4).min(15)) as u8);
        self.extra(literals.len());
        self.bytes.extend_from_slice(literals);
        self.bytes.extend_from_slice(&(offset as u16).to_le_bytes());
        self.extra(length - 4);
        self.block.extend_from_slice(literals);
        for _ in 0..length {
            self.block.push(self.block[self.block.len() - offset]);
        }
    }

    /// The last literals: as many as every decoder wants.
    fn end(mut self) -> Stream {
        self.bytes.push(15 << 4);
        self.extra(20);
        self.bytes.extend_from_slice(b"twenty bytes of text");
        self.block.extend_from_slice(b"twenty bytes of text");
        self
    }

    fn stored(&self) -> Vec<u8> {
        stored(&self.bytes)
    }
}

fn stored(stream: &[u8]) -> Vec<u8> {
    [&(stream.len() as u32).to_be_bytes()[..], stream].concat()
}

/// A count of a token with its extra bytes.
fn count(stream: &[u8], at: &mut usize, of_token: usize) -> Option<usize> {
    let (mut count, mut byte) = (of_token, 255);
    while of_token == 15 && byte == 255 {
        byte = *stream.get(*at)?;
        *at += 1;
        count += usize::from(byte);
    }
    Some(count)
}

/// The block of `bytes` bytes that is stored so; None when it is malformed.
fn reference(stored: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let body = u32::from_be_bytes(*stored.first_chunk::<HEADER>()?) as usize;
    let stream = stored.get(HEADER..HEADER + body)?;
    let (mut at, mut made) = (0, Vec::new());
    while at < stream.len() {
        let token = usize::from(stream[at]);
        at += 1;
        let literals = count(stream, &mut at, token >> 4)?;
        made.extend_from_slice(stream.get(at..at + literals)?);
        at += literals;
        if made.len() > bytes {
            return None;
        }
        if at == stream.len() {
            break;
        }
        let offset = usize::from(u16::from_le_bytes([*stream.get(at)?, *stream.get(at + 1)?]));
        at += 2;
        let length = 4 + count(stream, &mut at, token & 15)?;
        if offset == 0 || offset > made.len() || length > bytes - made.len() {
            return None;
        }
        for _ in 0..length {
            made.push(made[made.len() - offset]);
        }
    }
    (made.len() == bytes).then_some(made)
}

fn comes_back(device: &Device, stream: &Stream, padding: usize, name: &str) {
    let (mut packed, bytes) = (stream.stored(), stream.block.len());
    assert!(reference(&packed, bytes).as_ref() == Some(&stream.block), "{name}: the test writes no stream");
    let mut block = vec![0; bytes];
    kernels::decompress(Compression::LZ4, &packed, &mut block).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(block == stream.block, "{name}: software");
    packed.resize(packed.len() + padding, 0);
    assert!(decompress(device, Compression::LZ4, &packed, bytes).as_ref() == Ok(&stream.block), "{name}");
}

/// A stream with sequences of any kind.
fn random_stream(random: &mut SplitMix, sequences: usize) -> Stream {
    let mut stream = Stream::default();
    let (is_short, is_near) = (random.chance(2), random.chance(2));
    for number in 0..sequences {
        let literals = match random.below(40) {
            0 if !is_short => random.below(5000),
            1..10 => 1 + random.below(20),
            _ => random.below(3),
        };
        let literals = literals.max(usize::from(number == 0));
        let length = 4 + match random.below(40) {
            0 if !is_short => random.below(6000),
            1..10 => random.below(40),
            _ => random.below(8),
        };
        let there = (stream.block.len() + literals).min(65_535);
        let offset = 1 + random.below(if is_near { there.min(9) } else { there });
        let bytes = random.bytes(literals);
        stream.sequence(&bytes, offset, length);
    }
    stream.end()
}

/// What another program wrote must be readable, however it cut its blocks into sequences: long ones and short ones, matches that reach into themselves,
/// into what is made at the same time, and far back.
#[test]
fn streams_of_every_shape_come_back() {
    let Emulated { device, .. } = emulated();
    // Each match needs the one before.
    for offset in 1..10 {
        let mut stream = Stream::default();
        stream.sequence(b"123456789", offset, 4);
        (0..2500).for_each(|_| stream.sequence(b"", offset, 4));
        comes_back(&device, &stream.end(), 0, &format!("a chain of matches {offset} back"));
    }
    // Counts at the edges of bytes, and of what is at hand at a time.
    let counts = [4, 5, 18, 19, 20, 24, 25, 273, 274, 275, 528, 529, 2040, 2044, 2048, 2059, 2060, 2314, 4090, 4096, 4097, 9000];
    let noise = SplitMix::new(3).bytes(9000);
    for literals in counts {
        let mut stream = Stream::default();
        stream.sequence(&noise[..literals], literals, literals);
        for length in counts {
            let there = stream.block.len().min(65_535);
            stream.sequence(&noise[..length % 16], 1, length);
            stream.sequence(&noise[..literals], there, length);
            stream.sequence(b"", 8, length);
        }
        comes_back(&device, &stream.end(), literals % 512, &format!("{literals} literals"));
    }
    let mut random = SplitMix::new(11);
    for round in 0..60 {
        let sequences = 1 + random.below(2000);
        let stream = random_stream(&mut random, sequences);
        comes_back(&device, &stream, random.below(512), &format!("random stream {round}"));
    }
}

/// A stream that was damaged, or made to do damage, is refused whenever it is malformed, and never decompressed to something else.
#[test]
fn hostile_streams_are_judged_like_byte_by_byte() {
    let Emulated { device, .. } = emulated();
    let mut refused = 0;
    let mut judge = |packed: &[u8], bytes: usize, name: &str| {
        let wanted = reference(packed, bytes).ok_or(OpError::Failed);
        refused += usize::from(wanted.is_err());
        assert!(decompress(&device, Compression::LZ4, packed, bytes) == wanted, "{name}");
    };
    let mut stream = Stream::default();
    stream.sequence(b"a pool of disks", 3, 30);
    (1..12).for_each(|offset| stream.sequence(&b"some text"[..offset % 4], offset, 4 + offset));
    stream.sequence(&[255; 40], 5, 600);
    (1..12).for_each(|offset| stream.sequence(b"", 3 * offset, 4));
    let stream = stream.end();
    let (packed, bytes) = (stream.stored(), stream.block.len());
    for at in 0..packed.len() {
        for bits in [1, 0x10, 0x80, 0xFF] {
            let mut harmed = packed.clone();
            harmed[at] ^= bits;
            judge(&harmed, bytes, &format!("{bits:#x} at {at}"));
        }
        if at > 0 {
            judge(&packed[..at], bytes, &format!("the first {at} bytes"));
        }
        judge(&stored(&stream.bytes[..at.min(stream.bytes.len())]), bytes, &format!("a stream of {at} bytes"));
    }
    let mut random = SplitMix::new(12);
    for round in 0..150 {
        let sequences = 100 + random.below(900);
        let stream = random_stream(&mut random, sequences);
        let mut packed = stream.stored();
        for _ in 0..1 + random.below(3) {
            let at = HEADER + random.below(packed.len() - HEADER);
            packed[at] = if random.chance(3) { 255 } else { random.next_u64() as u8 };
        }
        judge(&packed, stream.block.len(), &format!("random stream {round}"));
    }
    // Nothing but lengths that go on.
    for bytes in [1, 4096, 100_000] {
        judge(&stored(&vec![255; 20_000]), bytes, "ones");
        judge(&stored(&vec![0; 20_000]), bytes, "zeros");
    }
    assert!(refused > 450, "{refused}");
}
