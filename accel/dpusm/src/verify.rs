//! Sampled verification: a provider's results are computed again in software, for a share of the blocks.
//!
//! Z.I.A. never looks at what a provider gave ("it must not lie"); a wrong compressor with a right checksum is silent corruption
//! there. [`Sampler`] picks the blocks, [`verify`] judges one result. Compressed bytes are judged by what they decompress to:
//! compressors differ in what they write.

use abd::{Abd, AbdPart};
use exec::{Mutex, SplitMix};
use ondisk::{ByteOrder, Checksum, Compression};

/// Picks a share of the blocks, by a seed.
#[derive(Debug)]
pub struct Sampler {
    per_million: u64,
    random: Mutex<SplitMix>,
}

impl Sampler {
    /// Picks `percent` (0 to 100) of the blocks, the same ones for the same seed and order.
    pub fn new(percent: f64, seed: u64) -> Sampler {
        let per_million = (percent.clamp(0.0, 100.0) * 10_000.0).round() as u64;
        Sampler { per_million, random: Mutex::new(SplitMix::new(seed)) }
    }

    /// True when the next block is to be verified.
    pub fn pick(&self) -> bool {
        match self.per_million {
            0 => false,
            1_000_000.. => true,
            share => self.random.lock().next_u64() % 1_000_000 < share,
        }
    }
}

/// A result with what it was computed from, in host memory.
#[derive(Clone, Debug)]
pub enum Claim<'a> {
    /// `output` (padding included or not) is `source` compressed.
    Compress {
        /// Compression algorithm.
        kind: Compression,
        /// Bytes of the block.
        source: &'a Abd,
        /// Bytes that are stored.
        output: &'a Abd,
    },
    /// `output` is the block that `source` decompresses to.
    Decompress {
        /// Compression algorithm.
        kind: Compression,
        /// Bytes that are stored.
        source: &'a Abd,
        /// Bytes of the block.
        output: &'a Abd,
    },
    /// The checksum of `data`.
    Checksum {
        /// Checksum algorithm.
        kind: Checksum,
        /// Byte order of the data.
        order: ByteOrder,
        /// Bytes that are summed up.
        data: &'a Abd,
        /// Words of the checksum.
        words: [u64; 4],
    },
    /// The columns of a row agree: for generated parity and for reconstructed columns.
    Row {
        /// Parity columns.
        parity: &'a [Abd],
        /// Data columns.
        data: &'a [Abd],
    },
    /// The columns of a row of which some were lost: `data` are all data columns now.
    Rebuilt {
        /// Parity columns of the row.
        parities: usize,
        /// Parity columns that were known, by their numbers.
        known: &'a [(usize, Abd)],
        /// Number of the data columns that were computed.
        lost: usize,
        /// All data columns.
        data: &'a [Abd],
        /// Parity columns that were computed, by their numbers.
        parity: &'a [(usize, Abd)],
    },
    /// A zero test.
    Zero {
        /// Bytes that are tested.
        data: &'a Abd,
        /// Answer: true when all are zero.
        is_zero: bool,
    },
    /// A comparison.
    Differ {
        /// One buffer.
        left: &'a Abd,
        /// The other buffer.
        right: &'a Abd,
        /// Answer: true when they differ.
        differ: bool,
    },
}

/// True when the claim is what software says.
pub fn verify(claim: &Claim) -> bool {
    match claim {
        Claim::Compress { kind, source, output } => decompresses_to(*kind, output, source),
        Claim::Decompress { kind, source, output } => decompresses_to(*kind, source, output),
        Claim::Checksum { kind, order, data, words } => checksum(*kind, *order, data) == Some(*words),
        Claim::Row { parity, data } => row_agrees(parity, data),
        Claim::Rebuilt { parities, known, lost, data, parity } => is_solution(*parities, known, *lost, data, parity),
        Claim::Zero { data, is_zero } => data.is_zero() == *is_zero,
        Claim::Differ { left, right, differ } => (left != right) == *differ,
    }
}

fn decompresses_to(kind: Compression, packed: &Abd, block: &Abd) -> bool {
    let packed = packed.to_stable().to_contiguous();
    let mut out = AbdPart::scratch(block.len());
    let done = packed.as_contiguous().is_some_and(|bytes| kernels::decompress(kind, bytes, &mut out).is_ok());
    done && out.freeze() == block.to_stable()
}

pub(crate) fn checksum(kind: Checksum, order: ByteOrder, data: &Abd) -> Option<[u64; 4]> {
    let data = data.to_stable();
    let runs: Vec<&[u8]> = data.chunks().collect();
    kernels::checksum(kind, &runs, order).ok()
}

/// The parity columns of a row.
pub(crate) fn parity_of(data: &[Abd], parities: usize) -> Option<Vec<Abd>> {
    let data: Vec<Abd> = data.iter().map(|column| column.to_stable().to_contiguous()).collect();
    let columns: Option<Vec<&[u8]>> = data.iter().map(Abd::as_contiguous).collect();
    let longest = data.iter().map(Abd::len).max().unwrap_or(0);
    let mut made: Vec<AbdPart> = (0..parities).map(|_| AbdPart::scratch(longest)).collect();
    let mut targets: Vec<&mut [u8]> = made.iter_mut().map(|column| &mut column[..]).collect();
    kernels::raidz::generate(&columns?, &mut targets).ok()?;
    Some(made.into_iter().map(AbdPart::freeze).collect())
}

fn row_agrees(parity: &[Abd], data: &[Abd]) -> bool {
    parity_of(data, parity.len()).is_some_and(|made| made.iter().zip(parity).all(|(made, claimed)| *made == claimed.to_stable()))
}

/// True when the data columns solve as many of the known parity columns as columns were lost: that many determine them, and what is left over may be
/// damaged on its device. Computed parity must follow from them.
fn is_solution(parities: usize, known: &[(usize, Abd)], lost: usize, data: &[Abd], parity: &[(usize, Abd)]) -> bool {
    let Some(made) = parity_of(data, parities) else { return false };
    let agrees = |(number, bytes): &&(usize, Abd)| made.get(*number).is_some_and(|made| *made == bytes.to_stable());
    known.iter().filter(agrees).count() >= lost && parity.iter().all(|column| agrees(&column))
}
