//! Remembered compressions, so that a measurement in real time does not pay for the compressor that the device would be.
//!
//! A block is found by its length, some of its bytes and its way of compression, and then compared byte by byte with a copy of the
//! block that was compressed: what comes out is exactly what the compressor wrote for the same bytes. Of blocks that are alike in the
//! bytes looked at the last one is remembered. Bounded, oldest first out.

use abd::Abd;
use dpusm::Compress;
use exec::Mutex;
use kernels::checksum::fletcher4;
use ondisk::ByteOrder;
use std::collections::{HashMap, VecDeque};

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    sum: [u64; 4],
    bytes: usize,
    kind: u8,
    level: u8,
    limit_bytes: usize,
    round_to_bytes: usize,
}

#[derive(Default)]
struct State {
    known: HashMap<Key, (Abd, Option<Abd>)>,
    order: VecDeque<Key>,
    bytes: u64,
}

/// Pieces of a block that it is found by, and bytes of each.
const SAMPLES: usize = 16;
const SAMPLE_BYTES: usize = 64;

/// A sum over some of a block's bytes, spread over all of it.
fn sum_of_samples(block: &Abd) -> [u64; 4] {
    let mut sample = [0; SAMPLES * SAMPLE_BYTES];
    let step = block.len() / SAMPLES;
    if step < SAMPLE_BYTES {
        let runs: Vec<&[u8]> = block.chunks().collect();
        return fletcher4(&runs, ByteOrder::Little);
    }
    for (index, piece) in sample.chunks_exact_mut(SAMPLE_BYTES).enumerate() {
        block.peek(index * step, piece);
    }
    fletcher4(&[&sample], ByteOrder::Little)
}

/// Blocks with what they compress to.
pub(crate) struct Memo {
    state: Mutex<State>,
    bytes_max: u64,
}

impl Memo {
    pub(crate) fn new(bytes_max: u64) -> Memo {
        Memo { state: Mutex::default(), bytes_max }
    }

    /// Compressed bytes of a block: remembered, or made by `make` and remembered.
    pub(crate) fn compressed(&self, block: &Abd, how: &Compress, make: impl FnOnce() -> Option<Abd>) -> Option<Abd> {
        if self.bytes_max == 0 {
            return make();
        }
        let key = Key {
            sum: sum_of_samples(block),
            bytes: block.len(),
            kind: how.kind.0,
            level: how.level,
            limit_bytes: how.limit_bytes,
            round_to_bytes: how.round_to_bytes,
        };
        let found = self.state.lock().known.get(&key).cloned();
        if let Some((known, packed)) = found
            && known == *block
        {
            return packed;
        }
        let made = make();
        // Copies: the block may be memory that its owner wants back.
        let kept = (Abd::from_slice(&block.to_vec()), made.as_ref().map(|packed| Abd::from_slice(&packed.to_vec())));
        self.keep(key, kept);
        made
    }

    fn keep(&self, key: Key, entry: (Abd, Option<Abd>)) {
        let size = |entry: &(Abd, Option<Abd>)| (entry.0.len() + entry.1.as_ref().map_or(0, Abd::len)) as u64;
        let mut state = self.state.lock();
        state.bytes += size(&entry);
        match state.known.insert(key, entry) {
            Some(before) => state.bytes -= size(&before),
            None => state.order.push_back(key),
        }
        while state.bytes > self.bytes_max {
            let Some(oldest) = state.order.pop_front() else { break };
            let gone = state.known.remove(&oldest);
            state.bytes -= gone.as_ref().map_or(0, size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::Compression;

    /// Blocks that differ only where nothing is looked at must not be taken for each other.
    #[test]
    fn a_byte_between_the_samples_counts() {
        let memo = Memo::new(1 << 20);
        let how = Compress { kind: Compression::LZ4, level: 0, limit_bytes: 3584, round_to_bytes: 512 };
        let block = |at: usize| Abd::from_slice(&(0..8192).map(|index| u8::from(index == at)).collect::<Vec<u8>>());
        for at in [100, 101, 8191, 100, 101] {
            let packed = Some(Abd::from_slice(&[at as u8; 100]));
            assert_eq!(memo.compressed(&block(at), &how, || packed.clone()), packed, "{at}");
        }
    }

    /// A wrong hit would write another block's data under this block's address.
    #[test]
    fn only_the_same_bytes_the_same_way_hit() {
        let memo = Memo::new(4096 * 8);
        let how = Compress { kind: Compression::LZ4, level: 0, limit_bytes: 3584, round_to_bytes: 512 };
        let block = |byte: u8| Abd::from_slice(&[byte; 4096]);
        let packed = |byte: u8| Some(Abd::from_slice(&[byte; 100]));
        assert_eq!(memo.compressed(&block(1), &how, || packed(1)), packed(1));
        assert_eq!(memo.compressed(&block(1), &how, || panic!("it is known")), packed(1));
        assert_eq!(memo.compressed(&block(2), &how, || packed(2)), packed(2));
        let other = Compress { level: 1, ..how };
        assert_eq!(memo.compressed(&block(1), &other, || None), None);
        assert_eq!(memo.compressed(&block(1), &other, || panic!("it is known")), None);
        // Eight blocks fill the memory: the first is forgotten.
        (10..20).for_each(|byte| drop(memo.compressed(&block(byte), &how, || packed(byte))));
        assert_eq!(memo.compressed(&block(1), &how, || packed(3)), packed(3));
        assert!(memo.state.lock().bytes <= 4096 * 8);
    }
}
