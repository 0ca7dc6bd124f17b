//! Pools written by direct I/O: every record size, compressed and not, over, under and between buffered writes, punches,
//! snapshots and txgs. A directly written block must look to OpenZFS like any other.

use crate::shadow::{Expected, KINDS, Shadow, content};
use crate::touch::{new_file, write};
use crate::{Failure, driver};
use dsl::{DatasetHandle, TxSpace};
use exec::SplitMix;
use pool::Pool;
use std::sync::Arc;
use zpl::{Allocate, Node, Zfs};

const RECORDS: [(&str, usize); 6] =
    [("4K", 4 << 10), ("16K", 16 << 10), ("128K", 128 << 10), ("1M", 1 << 20), ("4M", 4 << 20), ("16M", 16 << 20)];
const STEPS: u64 = 24;
/// More than whole blocks: the tail is written through the cache.
const TAIL_BYTES: usize = 3000;

/// A file, what it must hold, and what changes both.
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

    fn step(&mut self, step: u64) -> Result<(), Failure> {
        let whole = (self.bytes.len() - TAIL_BYTES) / self.record;
        let first = self.below(whole);
        let blocks = 1 + self.below((whole - first).min(3));
        let offset = first * self.record + self.below(self.record);
        let length = (1 + self.below(2 * self.record)).min(self.bytes.len() - offset);
        match self.below(8) {
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
            _ => match step % 3 {
                0 => self.pool.dsl().snapshot(&[format!("{}@s{step}", self.name)], Vec::new())?,
                _ => self.pool.sync()?,
            },
        }
        Ok(())
    }
}

/// One file per record size, compression and number of copies.
pub fn direct(pool: &Pool) -> Result<Expected, Failure> {
    let mut expected = Expected::default();
    for (number, (size, record)) in RECORDS.into_iter().enumerate() {
        for (compression, copies, checksum) in [("off", "1", "on"), ("lz4", "1", "on"), ("off", "2", "sha256"), ("zstd", "1", "fletcher2")]
        {
            if record > 1 << 20 && copies != "1" {
                continue;
            }
            let name = format!("{}/direct-{size}-{compression}-{copies}", pool.name());
            let properties = [("recordsize", size), ("compression", compression), ("copies", copies), ("checksum", checksum)];
            pool.dsl().create_dataset(&name, driver::filesystem(&properties))?;
            let zfs = driver::open(pool, &name)?;
            let handle = pool.dsl().hold(&name)?;
            let root = zfs.node(zfs.root())?;
            let blocks = if record > 1 << 20 { 2 } else { 12 };
            let bytes = content(blocks * record + TAIL_BYTES, number as u64, KINDS[0]);
            let node = new_file(&zfs, &root, b"direct", &bytes)?;
            let random = SplitMix::new(number as u64 + 77);
            let mut target = Target { pool, name: &name, zfs: &zfs, handle: &handle, node, bytes, record, random };
            for step in 0..STEPS {
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
