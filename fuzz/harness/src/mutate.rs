//! Mutations of inputs: what follows from a seed and a random number, with values that decoders are known to stumble over.

use exec::SplitMix;

/// Bytes of the longest input.
const BYTES_MAX: usize = 64 << 10;
/// Numbers at the edges of things.
const EDGES: [u64; 18] =
    [0, 1, 2, 7, 8, 127, 128, 255, 256, 511, 512, 0xFFFF, 0x10000, 0x7FFF_FFFF, 0xFFFF_FFFF, 1 << 40, u64::MAX / 2, u64::MAX];

/// Makes a new input of one or two of `seeds`.
pub fn mutated(seeds: &[Vec<u8>], random: &mut SplitMix) -> Vec<u8> {
    if seeds.is_empty() || random.chance(16) {
        return noise(random);
    }
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..1 + random.below(8) {
        change(&mut bytes, seeds, random);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn noise(random: &mut SplitMix) -> Vec<u8> {
    let limit = 1 << (1 + random.below(10));
    let length = random.below(limit);
    random.bytes(length)
}

fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut SplitMix) {
    if bytes.is_empty() {
        bytes.push(random.next_u64() as u8);
        return;
    }
    let at = random.below(bytes.len());
    match random.below(10) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next_u64() as u8,
        2..5 => put_number(bytes, at, random),
        5 => bytes.truncate(at),
        6 => {
            let end = (at + 1 + random.below(32)).min(bytes.len());
            bytes.drain(at..end);
        }
        7 => {
            let piece: Vec<u8> = bytes[at..(at + 1 + random.below(64)).min(bytes.len())].to_vec();
            let place = random.below(bytes.len());
            bytes.splice(place..place, piece);
        }
        8 => {
            let other = &seeds[random.below(seeds.len())];
            if !other.is_empty() {
                let from = random.below(other.len());
                let piece = &other[from..(from + 1 + random.below(128)).min(other.len())];
                let end = (at + piece.len()).min(bytes.len());
                bytes.splice(at..end, piece.iter().copied());
            }
        }
        _ => {
            let end = (at + 1 + random.below(16)).min(bytes.len());
            bytes[at..end].fill([0, 0xFF][random.below(2)]);
        }
    }
}

/// Puts a number, mostly where numbers lie, in either byte order.
fn put_number(bytes: &mut [u8], at: usize, random: &mut SplitMix) {
    let width = [1, 2, 4, 8][random.below(4)];
    let at = if random.chance(3) { at } else { at / width * width };
    let value = if random.chance(3) { random.next_u64() } else { EDGES[random.below(EDGES.len())] };
    let raw = if random.chance(2) { value.to_le_bytes() } else { (value << (64 - 8 * width)).to_be_bytes() };
    for (place, byte) in bytes.iter_mut().skip(at).zip(&raw[..width]) {
        *place = *byte;
    }
}
