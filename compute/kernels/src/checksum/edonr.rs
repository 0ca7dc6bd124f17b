//! Edon-R with 512 bits (Gligoroski et al., "Edon-R, An Infinite Family of Cryptographic Hash Functions", with the tweak of its feedback), as
//! OpenZFS uses it.

use super::pending::Pending;

const BLOCK_BYTES: usize = 128;
/// Bytes of a hash: half of the pipe.
pub(super) const HASH_BYTES: usize = 64;

type Half = [u64; 8];
type Pipe = [u64; 16];

/// Constant of the first Latin square; the second one has its complement.
const CONSTANT: u64 = 0xAAAA_AAAA_AAAA_AAAA;
/// Rotation of each word of the left operand, after the sum of these of its words.
const LEFT: [(u32, [usize; 5]); 8] = [
    (0, [0, 1, 2, 4, 7]),
    (5, [0, 1, 3, 4, 7]),
    (15, [0, 1, 4, 6, 7]),
    (22, [2, 3, 5, 6, 7]),
    (31, [1, 2, 3, 5, 6]),
    (40, [0, 2, 3, 4, 5]),
    (50, [0, 1, 5, 6, 7]),
    (59, [2, 3, 4, 5, 6]),
];
/// As [`LEFT`], of the right operand.
const RIGHT: [(u32, [usize; 5]); 8] = [
    (0, [0, 1, 2, 5, 7]),
    (10, [0, 1, 3, 4, 6]),
    (19, [0, 1, 2, 3, 5]),
    (29, [2, 3, 4, 6, 7]),
    (36, [0, 1, 3, 4, 5]),
    (44, [2, 4, 5, 6, 7]),
    (48, [1, 2, 5, 6, 7]),
    (55, [0, 3, 4, 6, 7]),
];
/// Words of the left and of the right operand whose exclusive sums make each word of the product.
const PRODUCT: [([usize; 3], [usize; 3]); 8] = [
    ([0, 1, 4], [0, 1, 5]),
    ([0, 4, 7], [2, 6, 7]),
    ([1, 6, 7], [0, 1, 3]),
    ([2, 3, 4], [0, 3, 4]),
    ([0, 1, 7], [1, 2, 5]),
    ([3, 5, 6], [3, 4, 6]),
    ([2, 5, 6], [2, 5, 7]),
    ([2, 3, 5], [4, 6, 7]),
];

fn spread(operand: &Half, table: &[(u32, [usize; 5]); 8], constant: u64) -> Half {
    std::array::from_fn(|n| {
        let (rotation, places) = &table[n];
        let first = if n == 0 { constant } else { 0 };
        places.iter().fold(first, |sum, place| sum.wrapping_add(operand[*place])).rotate_left(*rotation)
    })
}

/// The product of the quasigroup.
fn product(left: &Half, right: &Half) -> Half {
    let (left, right) = (spread(left, &LEFT, CONSTANT), spread(right, &RIGHT, !CONSTANT));
    let mixed = |words: &Half, places: &[usize; 3]| words[places[0]] ^ words[places[1]] ^ words[places[2]];
    PRODUCT.each_ref().map(|(from_left, from_right)| mixed(&left, from_left).wrapping_add(mixed(&right, from_right)))
}

fn reversed(half: &Half) -> Half {
    std::array::from_fn(|n| half[7 - n])
}

fn halves(words: &Pipe) -> (Half, Half) {
    (std::array::from_fn(|n| words[n]), std::array::from_fn(|n| words[8 + n]))
}

/// The pipe after one more block: four rows of products of the block and the pipe, then the feedback.
fn compressed(pipe: &Pipe, block: &[u8; BLOCK_BYTES]) -> Pipe {
    let (chunks, _) = block.as_chunks::<8>();
    let (low, high) = halves(&std::array::from_fn(|n| u64::from_le_bytes(chunks[n])));
    let (pipe_low, pipe_high) = halves(pipe);
    let x = product(&reversed(&high), &low);
    let y = product(&x, &high);
    let x = product(&pipe_high, &x);
    let y = product(&x, &y);
    let x = product(&x, &pipe_low);
    let y = product(&y, &x);
    let x = product(&reversed(&low), &x);
    let y = product(&x, &y);
    std::array::from_fn(|n| pipe[n] ^ if n < 8 { high[n] ^ x[n] } else { low[n - 8] ^ y[n - 8] })
}

/// A message that is being hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EdonR {
    pipe: Pipe,
    length_bytes: u64,
    pending: Pending<BLOCK_BYTES>,
}

impl EdonR {
    /// An empty message. The pipe begins with the bytes 0x80 to 0xff, most significant first.
    pub(super) fn new() -> EdonR {
        let word = |n: usize| u64::from_be_bytes(std::array::from_fn(|byte| 0x80 + (8 * n + byte) as u8));
        EdonR { pipe: std::array::from_fn(word), length_bytes: 0, pending: Pending::new() }
    }

    /// Adds bytes to the message.
    pub(super) fn update(&mut self, data: &[u8]) {
        let EdonR { pipe, length_bytes, pending } = self;
        *length_bytes += data.len() as u64;
        pending.feed(data, |block| *pipe = compressed(pipe, block));
    }

    /// The hash of the message: one bit, zeros and the number of bits fill the last block.
    pub(super) fn finish(mut self) -> [u8; HASH_BYTES] {
        let bits = self.length_bytes * 8;
        let zeros = (2 * BLOCK_BYTES - 9 - self.pending.rest().len()) % BLOCK_BYTES;
        self.update(&[0x80]);
        self.update(&[0; BLOCK_BYTES][..zeros]);
        self.update(&bits.to_le_bytes());
        // The block is whole, and stays as the last one.
        let mut pipe = self.pipe;
        if let Some(block) = self.pending.rest().first_chunk::<BLOCK_BYTES>() {
            pipe = compressed(&pipe, block);
        }
        let mut hash = [0; HASH_BYTES];
        for (bytes, word) in hash.chunks_exact_mut(8).zip(&pipe[8..]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        hash
    }

    /// The hash of these bytes.
    pub(super) fn hash(bytes: &[u8]) -> [u8; HASH_BYTES] {
        let mut message = EdonR::new();
        message.update(bytes);
        message.finish()
    }
}
