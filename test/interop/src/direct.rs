//! Pools written by direct I/O: every record size, compressed and not, over, under and between buffered writes, punches,
//! snapshots and txgs. A directly written block must look to OpenZFS like any other.

use crate::shadow::{Expected, KINDS, Shadow, content};
use crate::touch::{new_file, write};
use crate::{Failure, driver};
use abd::Abd;
use dsl::{DatasetHandle, TxSpace};
use exec::SplitMix;
use pool::Pool;
use std::sync::Arc;
use zpl::direct::Access;
use zpl::{Allocate, Node, WriteData, Zfs};

/// Record sizes, and whether the quick subset has them.
const RECORDS: [(&str, usize, bool); 16] = [
    ("512", 512, true),
    ("1K", 1 << 10, false),
    ("2K", 2 << 10, false),
    ("4K", 4 << 10, true),
    ("8K", 8 << 10, false),
    ("16K", 16 << 10, true),
    ("32K", 32 << 10, false),
    ("64K", 64 << 10, false),
    ("128K", 128 << 10, true),
    ("256K", 256 << 10, false),
    ("512K", 512 << 10, false),
    ("1M", 1 << 20, true),
    ("2M", 2 << 20, false),
    ("4M", 4 << 20, true),
    ("8M", 8 << 20, false),
    ("16M", 16 << 20, true),
];
/// Values of compression, copies, checksum.
const HOW: [(&str, &str, &str); 10] = [
    ("off", "1", "on"),
    ("lz4", "1", "on"),
    ("zstd", "1", "fletcher2"),
    ("off", "2", "sha256"),
    ("lz4", "3", "fletcher4"),
    ("zstd", "2", "sha512"),
    ("off", "3", "off"),
    ("off", "1", "blake3"),
    ("lz4", "1", "skein"),
    ("off", "2", "edonr"),
];
/// Number of those that are used for records above 1 MiB, and in the quick subset.
const HOW_FEW: usize = 4;
const STEPS: u64 = 24;
const STEPS_LARGE: u64 = 10;
const PAGE: usize = 4096;
/// Bytes beyond whole blocks: the tail is written through the cache.
const TAIL_BYTES: usize = 3000;

/// File, what it must hold, and what changes both.
struct Target<'a> {
    pool: &'a Pool,
    name: &'a str,
    zfs: &'a Arc<Zfs>,
    handle: &'a DatasetHandle,
    node: Node,
    bytes: Vec<u8>,
    record: usize,
    random: SplitMix,
}

impl Target<'_> {
    fn below(&mut self, limit: usize) -> usize {
        (self.random.next_u64() % limit.max(1) as u64) as usize
    }

    fn write_direct(&mut self, first: usize, blocks: usize) -> Result<(), Failure> {
        let kind = KINDS[self.below(KINDS.len())];
        let bytes = content(blocks * self.record, self.random.next_u64(), kind);
        let start = first * self.record;
        let dnode = self.handle.objset()?.hold(self.node.object())?;
        let tx = self.handle.assign(TxSpace::Writes(bytes.len() as u64))?;
        dnode.write_direct(start as u64, &bytes, &tx)?;
        drop(tx);
        self.bytes[start..start + bytes.len()].copy_from_slice(&bytes);
        let mut out = vec![0; bytes.len()];
        dnode.read_direct_into(start as u64, &mut out)?;
        if out == bytes { Ok(()) } else { Err("a direct read finds other bytes than were written directly".into()) }
    }

    /// Writes through the file layer, as O_DIRECT asks: page-aligned, so that heads and tails go through the cache.
    fn write_flagged(&mut self, offset: usize, length: usize) -> Result<(), Failure> {
        let start = offset / PAGE * PAGE;
        let end = (start + length.next_multiple_of(PAGE)).min((self.bytes.len() - TAIL_BYTES) / PAGE * PAGE);
        if start >= end {
            return Ok(());
        }
        let bytes = content(end - start, self.random.next_u64(), KINDS[self.below(2)]);
        let data = Abd::from_slice(&bytes);
        let write = WriteData { offset: start as u64, data, may_keep: true, kill_suid: false, synchronous: false };
        self.zfs.write_with(&self.node, write, Access::DIRECT)?;
        self.bytes[start..end].copy_from_slice(&bytes);
        Ok(())
    }

    fn step(&mut self, step: u64) -> Result<(), Failure> {
        let whole = (self.bytes.len() - TAIL_BYTES) / self.record;
        let first = self.below(whole);
        let blocks = 1 + self.below((whole - first).min(3));
        let offset = first * self.record + self.below(self.record);
        let length = (1 + self.below(2 * self.record)).min(self.bytes.len() - offset);
        match self.below(10) {
            0..=3 => self.write_direct(first, blocks)?,
            4 => {
                // Twice in one txg: the first one's space comes back.
                self.write_direct(first, blocks)?;
                self.write_direct(first, blocks)?;
            }
            5 => {
                let bytes = content(length, step, KINDS[0]);
                write(self.zfs, &self.node, offset as u64, &bytes)?;
                self.bytes[offset..offset + length].copy_from_slice(&bytes);
            }
            6 => {
                self.zfs.allocate(&self.node, offset as u64, length as u64, Allocate::Punch)?;
                self.bytes[offset..offset + length].fill(0);
            }
            7 | 8 => self.write_flagged(offset, length)?,
            _ => match step % 3 {
                0 => self.pool.dsl().snapshot(&[format!("{}@s{step}", self.name)], Vec::new())?,
                _ => self.pool.sync()?,
            },
        }
        Ok(())
    }
}

/// Makes one file per record size, compression, number of copies and checksum; `every` of them, or the quick subset.
pub fn direct(pool: &Pool, every: bool) -> Result<Expected, Failure> {
    let mut expected = Expected::default();
    for (number, (size, record, quick)) in RECORDS.into_iter().enumerate() {
        if !every && !quick {
            continue;
        }
        let few = !every || record > 1 << 20;
        for (compression, copies, checksum) in HOW.into_iter().take(if few { HOW_FEW } else { HOW.len() }) {
            if record > 4 << 20 && copies != "1" {
                continue;
            }
            let name = format!("{}/direct-{size}-{compression}-{copies}", pool.name());
            let properties = [("recordsize", size), ("compression", compression), ("copies", copies), ("checksum", checksum)];
            pool.dsl().create_dataset(&name, driver::filesystem(&properties))?;
            let zfs = driver::open(pool, &name)?;
            let handle = pool.dsl().hold(&name)?;
            let root = zfs.node(zfs.root())?;
            let (blocks, steps) = if record > 1 << 20 { (2, STEPS_LARGE) } else { (12.max(4 * PAGE / record), STEPS) };
            let bytes = content(blocks * record + TAIL_BYTES, number as u64, KINDS[0]);
            let node = new_file(&zfs, &root, b"direct", &bytes)?;
            let random = SplitMix::new(number as u64 + 77);
            let mut target = Target { pool, name: &name, zfs: &zfs, handle: &handle, node, bytes, record, random };
            for step in 0..steps {
                target.step(step).map_err(|error| format!("{name}, step {step}: {error}"))?;
            }
            let mut shadow = Shadow::default();
            shadow.files.insert("/direct".to_string(), target.bytes);
            expected.add(&name, &shadow);
            zfs.sync()?;
        }
    }
    let (writes, _) = pool.iostats().direct_write.get();
    if writes == 0 { Err("nothing was written directly".into()) } else { Ok(expected) }
}
