//! What the tests share: a small write pipeline over a provider, as a pool will have it, and the same in software.

use abd::{Abd, AbdPart};
use dpusm::{
    Claim, Compress, Device, Feature, Graph, HostDone, HostStore, OpError, RaidContext, RegisterOptions, StoreKind, StoreTarget, View,
    verify,
};
use exec::{Mutex, SplitMix};
use ondisk::{ByteOrder, Checksum, Compression};
use std::sync::Arc;

/// Sector size of the disks.
pub const SECTOR: usize = 512;
/// Data and parity columns of the layout.
pub const DATA: usize = 3;
pub const PARITY: usize = 2;
/// Time that a graph may take, in virtual nanoseconds.
pub const DEADLINE_NS: u64 = 1_000_000_000;

/// The features that the pipeline uses: fewer than all, so that registration is quick.
pub fn features() -> Vec<Feature> {
    let raid =
        |parity| [Feature::RaidGenerate { parity, data_columns_max: 255 }, Feature::RaidReconstruct { parity, data_columns_max: 255 }];
    let mut list = vec![
        Feature::CopyIn { scatter: true },
        Feature::CopyOut { scatter: true },
        Feature::ZeroFill,
        Feature::ZeroTest,
        Feature::Compare,
        Feature::Compress { kind: Compression::LZ4, level_min: 0, level_max: 0 },
        Feature::Decompress { kind: Compression::LZ4 },
        Feature::Checksum { kind: Checksum::FLETCHER_4, order: ByteOrder::Little },
        Feature::Store { kind: StoreKind::Disk },
    ];
    list.extend(raid(1));
    list.extend(raid(2));
    list
}

/// Registration with tests of small blocks only.
pub fn options() -> RegisterOptions {
    RegisterOptions { scratch: Some(std::env::temp_dir()), test_bytes_max: 8192, ..RegisterOptions::default() }
}

/// Way in which blocks are compressed here.
pub fn how(block_bytes: usize) -> Compress {
    Compress { kind: Compression::LZ4, level: 0, limit_bytes: block_bytes - block_bytes / 8, round_to_bytes: SECTOR }
}

const WORDS: [&[u8]; 4] = [b"checksum ", b"parity ", b"compression ", b"the "];

/// Blocks of several characters: words, noise, runs.
pub fn blocks(count: usize, bytes: usize) -> Vec<Abd> {
    let mut random = SplitMix::new(42);
    (0..count)
        .map(|number| {
            let block: Vec<u8> = match number % 3 {
                0 => std::iter::repeat_with(|| WORDS[random.below(4)]).flatten().copied().take(bytes).collect(),
                1 => random.bytes(bytes),
                _ => (0..bytes).map(|at| (at / 100 + number) as u8).collect(),
            };
            Abd::from_slice(&block)
        })
        .collect()
}

/// A disk in memory.
#[derive(Default)]
pub struct Disk(pub Mutex<Vec<u8>>);

impl Disk {
    pub fn put(&self, offset: usize, bytes: &[u8]) {
        let mut disk = self.0.lock();
        let end = (offset + bytes.len()).max(disk.len());
        disk.resize(end, 0);
        disk[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub fn get(&self, offset: usize, bytes: usize) -> Vec<u8> {
        let disk = self.0.lock();
        (offset..offset + bytes).map(|at| disk.get(at).copied().unwrap_or(0xEE)).collect()
    }
}

impl HostStore for Disk {
    fn write(&self, offset: u64, data: Abd, done: HostDone) {
        self.put(offset as usize, &data.to_vec());
        done(Ok(()));
    }

    fn flush(&self, done: HostDone) {
        done(Ok(()));
    }
}

/// Facts that a block pointer would say of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub stored: Vec<u8>,
    pub is_compressed: bool,
    pub checksum: [u64; 4],
    pub parity: Vec<Vec<u8>>,
}

/// Lengths of the data columns of a block.
pub fn column_lengths(stored_bytes: usize) -> [usize; DATA] {
    let longest = stored_bytes.div_ceil(DATA).next_multiple_of(SECTOR);
    std::array::from_fn(|column| stored_bytes.saturating_sub(column * longest).min(longest))
}

fn parity_of(stored: &[u8]) -> Vec<Vec<u8>> {
    let lengths = column_lengths(stored.len());
    let mut rest = stored;
    let columns = lengths.map(|length| {
        let (column, tail) = rest.split_at(length);
        rest = tail;
        column
    });
    let mut parity = vec![vec![0; lengths[0]]; PARITY];
    let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[..]).collect();
    kernels::raidz::generate(&columns, &mut targets).unwrap();
    parity
}

fn finish_in_software(stored: Vec<u8>, is_compressed: bool) -> Written {
    let checksum = kernels::checksum(Checksum::FLETCHER_4, &[&stored], ByteOrder::Little).unwrap();
    let parity = parity_of(&stored);
    Written { stored, is_compressed, checksum, parity }
}

/// The whole pipeline in software.
pub fn software(block: &Abd) -> Written {
    let bytes = block.to_vec();
    let how = how(bytes.len());
    let mut out = vec![0; how.limit_bytes];
    match kernels::compress(how.kind, how.level, &bytes, &mut out).filter(|length| how.is_worth(*length, bytes.len())) {
        Some(length) => {
            out.truncate(length);
            out.resize(how.stored_bytes(length), 0);
            finish_in_software(out, true)
        }
        None => finish_in_software(bytes, false),
    }
}

/// A record on its way: where the host puts its columns.
pub struct Place<'a> {
    pub disks: &'a [Arc<Disk>],
    pub offset: usize,
}

impl Place<'_> {
    fn put(&self, written: &Written) {
        let mut rest = &written.stored[..];
        for (disk, parity) in self.disks.iter().zip(&written.parity) {
            disk.put(self.offset, parity);
        }
        for (disk, length) in self.disks[PARITY..].iter().zip(column_lengths(written.stored.len())) {
            let (column, tail) = rest.split_at(length);
            disk.put(self.offset, column);
            rest = tail;
        }
    }

    /// The columns on the disks, parity first.
    pub fn columns(&self, stored_bytes: usize) -> Vec<Vec<u8>> {
        let lengths = column_lengths(stored_bytes);
        let of = |index: usize| if index < PARITY { lengths[0] } else { lengths[index - PARITY] };
        (0..PARITY + DATA).map(|index| self.disks[index].get(self.offset, of(index))).collect()
    }
}

/// Writes a record through a provider, all of it verified; in software where that fails. Never fails.
pub fn write_record(device: &Device, block: &Abd, place: &Place) -> Written {
    let written = on_device(device, block, place);
    written.unwrap_or_else(|_| {
        let written = software(block);
        place.put(&written);
        written
    })
}

/// First the block's size and checksum, then, when the host knows where it goes, parity and writes.
fn on_device(device: &Device, block: &Abd, place: &Place) -> Result<Written, OpError> {
    let how = how(block.len());
    let (source, target) = (device.alloc(block.len())?, device.alloc(block.len())?);
    let mut graph = Graph::new();
    graph.copy_in(block, &source.whole());
    let packed = graph.compress(&source.whole(), &target.whole(), how);
    graph.zero_fill(packed.padding());
    let sum = graph.checksum(packed.result(), Checksum::FLETCHER_4, ByteOrder::Little);
    let out = graph.copy_out(packed.result(), vec![AbdPart::scratch(block.len() / 2), AbdPart::scratch(block.len() - block.len() / 2)]);
    let mut report = device.run(graph, DEADLINE_NS).map_err(|refused| refused.error)?;
    report.all()?;
    let length = report.compressed(packed)?;
    let (stored, checksum) = (report.take_bytes(out)?, report.checksum(sum)?);
    let claim = match length {
        Some(length) => Claim::Compress { kind: how.kind, source: block, output: &stored.slice(0..length) },
        None => Claim::Differ { left: block, right: &stored, differ: false },
    };
    let sum_claim = Claim::Checksum { kind: Checksum::FLETCHER_4, order: ByteOrder::Little, data: &stored, words: checksum };
    let padding_is_zero = length.is_none_or(|length| stored.slice(length..stored.len()).is_zero());
    if !verify(&claim) || !verify(&sum_claim) || !padding_is_zero {
        return Err(OpError::BadResult);
    }
    let whole = if length.is_some() { target.whole() } else { source.whole() };
    let stored = stored.to_vec();
    match row(device, &whole.slice(0..stored.len())?, place) {
        Ok(parity) if parity == parity_of(&stored) => Ok(Written { stored, is_compressed: length.is_some(), checksum, parity }),
        // What is stored was brought back before: only the rest is done in software.
        _ => {
            let written = finish_in_software(stored, length.is_some());
            place.put(&written);
            Ok(written)
        }
    }
}

/// Second round: parity, writes, flush; parity comes back for its verification.
fn row(device: &Device, stored: &View, place: &Place) -> Result<Vec<Vec<u8>>, OpError> {
    let lengths = column_lengths(stored.len());
    let buffers = (0..PARITY).map(|_| device.alloc(lengths[0])).collect::<Result<Vec<_>, _>>()?;
    let parity: Vec<View> = buffers.iter().map(|buffer| buffer.whole()).collect();
    let mut at = 0;
    let mut data = Vec::new();
    for length in lengths {
        data.push(stored.slice(at..at + length)?);
        at += length;
    }
    let row = RaidContext::new(parity.clone(), data)?;
    let mut graph = Graph::new();
    graph.raid_generate(&row);
    for (column, disk) in row.columns().iter().zip(place.disks) {
        let target = StoreTarget { kind: StoreKind::Disk, path: "disk".into(), host: disk.clone() };
        let store = device.open(&target)?;
        graph.store(column, &store, place.offset as u64);
        graph.flush(&store);
    }
    let outs: Vec<_> = parity.iter().map(|column| graph.copy_out(column, vec![AbdPart::scratch(column.len())])).collect();
    let mut report = device.run(graph, DEADLINE_NS).map_err(|refused| refused.error)?;
    report.all()?;
    outs.into_iter().map(|node| Ok(report.take_bytes(node)?.to_vec())).collect()
}
