//! Figures about a ZAP's shape, as `zdb` prints them (OpenZFS: `zap_stats_t`, `zap_get_stats`).

use crate::fat;
use crate::leaf::{CHAIN_END, array_chunks};
use crate::object::{Kind, Zap};
use crate::{ZapError, header::Header};

const HISTOGRAM: usize = 10;

/// The shape of a ZAP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Number of blocks up to the last used one.
    pub blocks: u64,
    /// Number of entries.
    pub entries: u64,
    /// Number of leaves; 0 for a micro ZAP, as are the figures below.
    pub leaves: u64,
    /// Bits of hash that index the pointer table.
    pub table_shift: u32,
    /// First block of the pointer table; 0 while it is embedded in the header.
    pub table_block: u64,
    /// Blocks of the pointer table; 0 while it is embedded in the header.
    pub table_blocks: u64,
    /// First block of the table that is being made, twice as large; 0 when none is.
    pub table_next: u64,
    /// Blocks that were copied to it.
    pub table_copied: u64,
    /// The salt of the hash.
    pub salt: u64,
    /// Leaves with 2^n pointers.
    pub leaves_with_2n_pointers: [u64; HISTOGRAM],
    /// Leaves with 5·n entries.
    pub leaves_with_n5_entries: [u64; HISTOGRAM],
    /// Leaves n tenths full.
    pub leaves_n_tenths_full: [u64; HISTOGRAM],
    /// Entries of n chunks.
    pub entries_using_n_chunks: [u64; HISTOGRAM],
    /// Buckets of the leaves' hash tables with n entries.
    pub buckets_with_n_entries: [u64; HISTOGRAM],
}

impl Stats {
    /// First word of a fat ZAP's header (OpenZFS: `ZBT_HEADER`).
    pub const BLOCK_TYPE: u64 = crate::header::BLOCK_TYPE_HEADER;
    /// Second word of a fat ZAP's header.
    pub const MAGIC: u64 = crate::header::ZAP_MAGIC;
}

impl Zap {
    /// Reads every leaf and counts.
    pub fn stats(&self) -> Result<Stats, ZapError> {
        let kind = self.state.kind.read();
        match &*kind {
            Kind::Micro(micro) => Ok(Stats {
                block_bytes: self.dnode.info()?.block_size as u64,
                blocks: 1,
                entries: micro.count() as u64,
                ..Stats::default()
            }),
            Kind::Fat(header) => self.fat_stats(header),
        }
    }

    fn fat_stats(&self, header: &Header) -> Result<Stats, ZapError> {
        let mut stats = Stats {
            block_bytes: header.block_bytes() as u64,
            blocks: header.free_block,
            entries: header.entries,
            leaves: header.leaves,
            table_shift: header.table.shift,
            table_block: header.table.block,
            table_blocks: header.table.blocks,
            table_next: header.table.next_block,
            table_copied: header.table.blocks_copied,
            salt: header.salt,
            ..Stats::default()
        };
        let mut last = 0;
        for at in fat::table_blocks_all(header) {
            let data = fat::block(&self.dnode, at)?;
            let table = if at == 0 { &fat::bytes(&data)[header.embedded_at()..] } else { fat::bytes(&data) };
            for raw in table.chunks_exact(8) {
                let leaf = raw.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
                if leaf != last {
                    self.leaf_stats(header, leaf, &mut stats)?;
                    last = leaf;
                }
            }
        }
        Ok(stats)
    }

    fn leaf_stats(&self, header: &Header, at: u64, stats: &mut Stats) -> Result<(), ZapError> {
        let slot = |n: usize| n.min(HISTOGRAM - 1);
        fat::with_leaf(&self.dnode, header, at, |leaf| {
            let pointers = header.table.shift.saturating_sub(leaf.prefix_len().into());
            stats.leaves_with_2n_pointers[slot(pointers as usize)] += 1;
            stats.leaves_with_n5_entries[slot(usize::from(leaf.entry_count()) / 5)] += 1;
            let used = header.block_bytes().saturating_sub(usize::from(leaf.free_count()) * 22);
            stats.leaves_n_tenths_full[slot(used * 10 / header.block_bytes())] += 1;
            let (mut chain, mut chains) = (0, 0);
            for (_, entry) in leaf.entries()? {
                let chunks = 1 + array_chunks(entry.name_integers.into()) + array_chunks(entry.value_bytes());
                stats.entries_using_n_chunks[slot(chunks)] += 1;
                chain += 1;
                if entry.next == CHAIN_END {
                    stats.buckets_with_n_entries[slot(chain)] += 1;
                    (chain, chains) = (0, chains + 1);
                }
            }
            stats.buckets_with_n_entries[0] += (leaf.hash_entries() as u64).saturating_sub(chains);
            Ok(())
        })
    }
}
