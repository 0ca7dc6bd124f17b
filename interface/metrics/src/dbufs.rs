//! `dbufs`, the table of what is cached, and `dbufstats`, its counts (OpenZFS: `dbuf_stats.c`, `dbuf.c`), as `dbufstat` reads them.
//!
//! There is one cache: a row is a block in it. In the "dbuf cache" (`dbc`, `cache_*`) is what has a decompressed copy beside its compressed
//! bytes: such copies have a budget of their own. What is not there is 0: holds, a second level, hits of ghosts, a cache of metadata.

use crate::PoolView;
use arc::{BlockCounts, CachedBlock};
use dmu::{DnodeInfo, Objset};
use kstat::Value;
use ondisk::{ObjectId, ObjsetId};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

/// State `DB_CACHED`.
const CACHED: u32 = 4;
/// Numbers of the lists: `ARC_STATE_MRU`, `ARC_STATE_MFU`, `ARC_STATE_UNCACHED`.
const LISTS: [u32; 3] = [1, 3, 6];
/// Flags `ARC_FLAG_PREFETCH`, `…_UNCACHED`, `…_IN_HASH_TABLE`, `…_INDIRECT`, `…_BUFC_METADATA`, `…_HAS_L1HDR`, `…_COMPRESSED_ARC`, `…_NO_BUF`.
const FLAGS: [u32; 8] = [1 << 2, 1 << 5, 1 << 7, 1 << 10, 1 << 17, 1 << 18, 1 << 20, 1 << 23];
/// Widths of the columns before the first bar, before the second, and after it.
const WIDTHS: [&[usize]; 3] =
    [&[16, 8, 8, 8, 8, 10, 8, 8, 5, 5, 7, 3], &[5, 5, 9, 6, 8, 12, 6, 6, 6, 6, 6, 8, 8, 8, 6], &[6, 6, 8, 8, 6, 6, 6, 8, 8]];
const NAMES: [&str; 3] = [
    "pool objset object level blkid offset dbsize usize meta state dbholds dbc",
    "list atype flags count asize access mru gmru mfu gmfu l2 l2_dattr l2_asize l2_comp aholds",
    "dtype btype data_bs meta_bs bsize lvls dholds blocks dsize",
];

fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    let cells: Vec<String> = cells.zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    cells.join(" ")
}

/// Text of the table `dbufs`.
pub(crate) fn dbufs(pools: &[PoolView]) -> String {
    let heads: Vec<String> = NAMES.iter().zip(WIDTHS).map(|(names, widths)| line(names.split(' '), widths)).collect();
    let mut text = format!("{:<105} | {:<119} | dnode\n{}\n", "dbuf", "arcbuf", heads.join(" | "));
    for pool in pools {
        let objsets: HashMap<ObjsetId, &Arc<Objset>> = pool.objsets.iter().map(|objset| (objset.id(), objset)).collect();
        let mut dnodes: HashMap<(ObjsetId, ObjectId), Option<(DnodeInfo, usize)>> = HashMap::new();
        for block in pool.cache.blocks() {
            let (objset, object) = (block.bookmark.objset, block.bookmark.object);
            let look = || objsets.get(&objset).and_then(|objset| objset.known(object));
            let dnode = dnodes.entry((objset, object)).or_insert_with(look);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}", row(&pool.name, &block, dnode.as_ref()));
        }
    }
    text
}

fn row(pool: &str, block: &CachedBlock, dnode: Option<&(DnodeInfo, usize)>) -> String {
    let parts: [Vec<String>; 3] = [dbuf(pool, block), arcbuf(block), dnode_cells(block, dnode)];
    let lines: Vec<String> = parts.iter().zip(WIDTHS).map(|(cells, widths)| line(cells.iter().map(String::as_str), widths)).collect();
    lines.join(" | ")
}

fn dbuf(pool: &str, block: &CachedBlock) -> Vec<String> {
    let at = &block.bookmark;
    let numbers = [
        at.objset.0 as i64,
        at.object.0 as i64,
        i64::from(at.level.0),
        at.block.0 as i64,
        at.block.0.wrapping_mul(block.logical_bytes) as i64,
        block.logical_bytes as i64,
        0,
        i64::from(block.is_metadata),
        i64::from(CACHED),
        0,
        i64::from(block.has_copy()),
    ];
    std::iter::once(pool.to_string()).chain(numbers.map(|number| number.to_string())).collect()
}

fn arcbuf(block: &CachedBlock) -> Vec<String> {
    let list = match (block.is_uncached, block.is_frequent) {
        (true, _) => LISTS[2],
        (false, true) => LISTS[1],
        (false, false) => LISTS[0],
    };
    let indirect = block.bookmark.level.0 > 0;
    let raised =
        [block.is_prefetched, block.is_uncached, true, indirect, block.is_metadata, true, block.is_compressed, !block.is_decompressed];
    let flags = FLAGS.iter().zip(raised).filter(|(_, is_raised)| *is_raised).fold(0, |flags, (flag, _)| flags | flag);
    let head = [list.to_string(), u32::from(block.is_metadata).to_string(), format!("{flags:#x}")];
    let numbers = [
        u64::from(block.is_decompressed),
        block.held_bytes,
        block.used_ns / 1_000_000,
        u64::from(block.uses[0]),
        0,
        u64::from(block.uses[1]),
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    head.into_iter().chain(numbers.map(|number| number.to_string())).collect()
}

/// Cells of a block's dnode; of one that is not in memory only the type is known.
fn dnode_cells(block: &CachedBlock, dnode: Option<&(DnodeInfo, usize)>) -> Vec<String> {
    let mut numbers = [0; 9];
    numbers[0] = u64::from(block.object_type.0);
    if let Some((info, holds)) = dnode {
        let size = (info.max_block.0 + 1).saturating_mul(info.block_size as u64);
        numbers = [
            u64::from(info.kind.0),
            u64::from(info.bonus_type.0),
            info.block_size as u64,
            1 << info.indirect_shift,
            info.bonus_len as u64,
            u64::from(info.levels),
            *holds as u64,
            info.used_bytes.div_ceil(512),
            size,
        ];
    }
    numbers.map(|number| number.to_string()).to_vec()
}

/// Counts of `dbufstats`, over all pools.
pub(crate) fn dbufstats(pools: &[PoolView]) -> Vec<(String, Value)> {
    let sum = pools.iter().map(|pool| pool.cache.block_counts()).fold(BlockCounts::default(), |mut sum, counts| {
        sum.copies.resize(counts.copies.len(), (0, 0));
        sum.copies.iter_mut().zip(&counts.copies).for_each(|(sum, (count, bytes))| *sum = (sum.0 + count, sum.1 + bytes));
        BlockCounts {
            blocks: sum.blocks + counts.blocks,
            hits: sum.hits + counts.hits,
            misses: sum.misses + counts.misses,
            shards: sum.shards + counts.shards,
            copy_bytes: sum.copy_bytes + counts.copy_bytes,
            copy_bytes_most: sum.copy_bytes_most + counts.copy_bytes_most,
            copy_bytes_target: sum.copy_bytes_target + counts.copy_bytes_target,
            copies_evicted: sum.copies_evicted + counts.copies_evicted,
            copies: sum.copies,
        }
    });
    rows(sum)
}

fn rows(mut sum: BlockCounts) -> Vec<(String, Value)> {
    sum.copies.resize(12, (0, 0));
    let named = |name: &str, value: u64| (name.to_string(), Value::U64(value));
    let mut rows = vec![
        named("cache_count", sum.copies.iter().map(|(count, _)| count).sum()),
        named("cache_size_bytes", sum.copy_bytes),
        named("cache_size_bytes_max", sum.copy_bytes_most),
        named("cache_target_bytes", sum.copy_bytes_target),
        named("cache_lowater_bytes", sum.copy_bytes_target),
        named("cache_hiwater_bytes", sum.copy_bytes_target),
        named("cache_total_evicts", sum.copies_evicted),
    ];
    rows.extend(sum.copies.iter().enumerate().map(|(level, (count, _))| named(&format!("cache_level_{level}"), *count)));
    rows.extend(sum.copies.iter().enumerate().map(|(level, (_, bytes))| named(&format!("cache_level_{level}_bytes"), *bytes)));
    let hash = [
        ("hash_hits", sum.hits),
        ("hash_misses", sum.misses),
        ("hash_collisions", 0),
        ("hash_elements", sum.blocks),
        ("hash_chains", 0),
        ("hash_chain_max", 0),
        ("hash_insert_race", 0),
        ("hash_table_count", sum.shards),
        ("hash_mutex_count", sum.shards),
        ("metadata_cache_count", 0),
        ("metadata_cache_size_bytes", 0),
        ("metadata_cache_size_bytes_max", 0),
        ("metadata_cache_overflow", 0),
    ];
    rows.extend(hash.map(|(name, value)| named(name, value)));
    rows
}
