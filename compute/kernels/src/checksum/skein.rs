//! Skein-512 with a key and 256 bits of output ("The Skein Hash Function Family", version 1.3): Threefish-512 (section 3.3), its chaining UBI
//! (3.4), and the keyed form of the hash, Skein-MAC (2.6, 4.3).

use super::pending::Pending;

const BLOCK_BYTES: usize = 64;
/// Number of times that key and tweak go into a block, less one: every four rounds of 72.
const INJECTIONS: usize = 18;
/// Constant C240 of the key schedule.
const KEY_PARITY: u64 = 0x1BD1_1BDA_A9FC_1A22;
/// Rotations of the four pairs of words, round by round.
const ROTATIONS: [[u32; 4]; 8] = [
    [46, 36, 19, 37],
    [33, 27, 14, 42],
    [17, 49, 36, 39],
    [44, 9, 54, 56],
    [39, 30, 34, 24],
    [13, 50, 10, 17],
    [25, 29, 39, 43],
    [8, 35, 56, 22],
];
/// Place from which each word comes after a round.
const PERMUTATION: [usize; 8] = [2, 1, 4, 7, 6, 5, 0, 3];

// Types of what goes into a chain, and marks of its first and last block: all in the second word of a tweak.
const KEY: u64 = 0;
const CONFIGURATION: u64 = 4 << 56;
const MESSAGE: u64 = 48 << 56;
const OUTPUT: u64 = 63 << 56;
const FIRST: u64 = 1 << 62;
const LAST: u64 = 1 << 63;

type Words = [u64; 8];

fn words(bytes: &[u8; BLOCK_BYTES]) -> Words {
    let (chunks, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|n| u64::from_le_bytes(chunks[n]))
}

fn mix(state: &Words, rotations: &[u32; 4]) -> Words {
    let mut mixed = [0; 8];
    for (pair, rotation) in rotations.iter().enumerate() {
        let (low, high) = (state[2 * pair], state[2 * pair + 1]);
        mixed[2 * pair] = low.wrapping_add(high);
        mixed[2 * pair + 1] = high.rotate_left(*rotation) ^ mixed[2 * pair];
    }
    PERMUTATION.map(|from| mixed[from])
}

/// The words of a key and a tweak as often as injections come to them.
struct Schedule {
    key: [u64; INJECTIONS + 8],
    tweak: [u64; INJECTIONS + 2],
}

impl Schedule {
    fn new(key: &Words, tweak: [u64; 2]) -> Schedule {
        let parity = key.iter().fold(KEY_PARITY, |parity, word| parity ^ word);
        let tweak = [tweak[0], tweak[1], tweak[0] ^ tweak[1]];
        Schedule {
            key: std::array::from_fn(|n| if n % 9 == 8 { parity } else { key[n % 9] }),
            tweak: std::array::from_fn(|n| tweak[n % 3]),
        }
    }

    fn inject(&self, state: &mut Words, number: usize) {
        for (index, word) in state.iter_mut().enumerate() {
            *word = word.wrapping_add(self.key[number + index]);
        }
        state[5] = state[5].wrapping_add(self.tweak[number]);
        state[6] = state[6].wrapping_add(self.tweak[number + 1]);
        state[7] = state[7].wrapping_add(number as u64);
    }
}

/// Threefish-512 of one block.
fn threefish(key: &Words, tweak: [u64; 2], plain: &Words) -> Words {
    let schedule = Schedule::new(key, tweak);
    let mut state = *plain;
    for number in (0..INJECTIONS).step_by(2) {
        schedule.inject(&mut state, number);
        ROTATIONS[..4].iter().for_each(|rotations| state = mix(&state, rotations));
        schedule.inject(&mut state, number + 1);
        ROTATIONS[4..].iter().for_each(|rotations| state = mix(&state, rotations));
    }
    schedule.inject(&mut state, INJECTIONS);
    state
}

/// The chain after one more block.
fn chained(chain: &Words, block: &[u8; BLOCK_BYTES], tweak: [u64; 2]) -> Words {
    let plain = words(block);
    let cipher = threefish(chain, tweak, &plain);
    std::array::from_fn(|n| cipher[n] ^ plain[n])
}

/// The chain after a block that is filled up with zeros, of which `position` ends where `bytes` do.
fn padded(chain: &Words, bytes: &[u8], position: u64, marks: u64) -> Words {
    let mut block = [0; BLOCK_BYTES];
    block[..bytes.len()].copy_from_slice(bytes);
    chained(chain, &block, [position, marks])
}

/// The chain after something that is no longer than a block.
fn whole(chain: &Words, bytes: &[u8], kind: u64) -> Words {
    padded(chain, bytes, bytes.len() as u64, kind | FIRST | LAST)
}

/// A message that is being hashed with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Skein {
    chain: Words,
    /// Bytes of the message in the chain.
    position: u64,
    pending: Pending<BLOCK_BYTES>,
}

impl Skein {
    /// An empty message.
    pub(super) fn keyed(key: &[u8; 32]) -> Skein {
        // Identifier, version and bits of output; what stands for tree hashing is zero.
        let mut configuration = [0; 32];
        configuration[..4].copy_from_slice(b"SHA3");
        configuration[4..6].copy_from_slice(&1u16.to_le_bytes());
        configuration[8..16].copy_from_slice(&256u64.to_le_bytes());
        let chain = whole(&whole(&[0; 8], key, KEY), &configuration, CONFIGURATION);
        Skein { chain, position: 0, pending: Pending::new() }
    }

    /// Adds bytes to the message.
    pub(super) fn update(&mut self, data: &[u8]) {
        let Skein { chain, position, pending } = self;
        pending.feed(data, |block| {
            let first = if *position == 0 { FIRST } else { 0 };
            *position += BLOCK_BYTES as u64;
            *chain = chained(chain, block, [*position, MESSAGE | first]);
        });
    }

    /// The hash of the message.
    pub(super) fn finish(&self) -> [u8; 32] {
        let rest = self.pending.rest();
        let first = if self.position == 0 { FIRST } else { 0 };
        let chain = padded(&self.chain, rest, self.position + rest.len() as u64, MESSAGE | first | LAST);
        let output = whole(&chain, &0u64.to_le_bytes(), OUTPUT);
        let mut hash = [0; 32];
        for (bytes, word) in hash.chunks_exact_mut(8).zip(output) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        hash
    }
}
