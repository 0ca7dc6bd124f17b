//! `-b` and `-c` (every block), `-D`, `-h`, `-m` and `-s` of a whole pool.

use crate::dump::Dump;
use crate::import::OpenError;
use crate::label;
use pool::{DedupTable, Pool, Reading, SpaceReport, Unreadable};
use vdev::TopKind;

/// Walks every block; returns 2 when blocks and space maps differ, or blocks are damaged (OpenZFS: `dump_block_stats`).
/// With `is_verbose` the damaged ones are named.
pub fn blocks(dump: &mut Dump<'_>, pool: &Pool, (checksums, leaks): (u8, bool), is_verbose: bool) -> u8 {
    let reading = match checksums {
        0 => Reading::Nothing,
        1 => Reading::Metadata,
        _ => Reading::Everything,
    };
    let what = ["", "metadata checksums and ", "checksums and "][usize::from(checksums.min(2))];
    dump.line(format_args!("\nTraversing all blocks to verify {what}{}...\n", if leaks { "nothing leaked " } else { "nothing " }));
    let report = match pool.verify_blocks(reading) {
        Ok(report) => report,
        Err(error) => {
            dump.damage(format_args!("the blocks cannot be walked: {error}"));
            return 2;
        }
    };
    if report.unreadable > 0 {
        let advice = if is_verbose { "" } else { " ('-v' names them)" };
        dump.line(format_args!("{} blocks cannot be read, or have a wrong checksum{advice}", report.unreadable));
        report.named.iter().filter(|_| is_verbose).for_each(|block| dump.line(format_args!("\t{}", unreadable(block))));
    }
    if leaks {
        space(dump, &report);
    }
    dump.line(format_args!("\n\tbp count:       {:14}", report.blocks));
    dump.line(format_args!("\tganged count:   {:14}", report.gangs));
    dump.line(format_args!("\tbp allocated:   {:14}      avg: {:6}", report.bytes, report.bytes.checked_div(report.blocks).unwrap_or(0)));
    let is_right = report.unreadable == 0 && (!leaks || report.is_clean());
    if is_right { 0 } else { 2 }
}

/// Line of text about a damaged block: the address, in the order of OpenZFS's (`zdb_blkptr_done`), and the cause.
fn unreadable(block: &Unreadable) -> String {
    let place = block.at.map_or_else(
        || "of an intent log, or waiting to be freed".to_string(),
        |at| format!("objset {} object {} level {} blkid {}", at.objset.0, at.object.0, at.level.0, at.block.0),
    );
    format!("{place} ({}): {}", block.kind, block.error)
}

fn space(dump: &mut Dump<'_>, report: &SpaceReport) {
    if report.unknown > 0 {
        dump.line(format_args!("\t{} metaslabs have broken space maps: what lies there was held against nothing", report.unknown));
    }
    if report.kept > 0 {
        dump.line(format_args!("\t{} bytes are allocated for the sake of the checkpoint only", report.kept));
    }
    if report.overlapping == 0 && report.unallocated == 0 && report.leaked == 0 && report.unknown == 0 {
        return dump.line(format_args!("\tNo leaks (block sum matches space maps exactly)"));
    }
    for (bytes, what) in [
        (report.leaked, "leaked: allocated, and no block is there"),
        (report.overlapping, "claimed by two blocks"),
        (report.unallocated, "of blocks in free space"),
    ] {
        if bytes > 0 {
            dump.line(format_args!("\t{bytes} bytes {what}"));
        }
    }
}

/// Shows the checkpoint of a pool that has one, and holds it against the pool, with `reopen` as its opener; returns 2 when they do not agree, and 3 when
/// it cannot be opened (OpenZFS: `verify_checkpoint`).
pub fn checkpoint(dump: &mut Dump<'_>, pool: &Pool, reopen: Option<&dyn Fn() -> Result<Pool, OpenError>>) -> u8 {
    if pool.checkpoint().is_none() {
        return 0;
    }
    match pool.checkpoint_uberblock() {
        Ok(Some(ub)) => {
            let mut text = String::new();
            label::dump_uberblock(&mut text, &ub, false);
            dump.line(format_args!("\nCheckpointed uberblock found:\n{text}"));
        }
        Ok(None) => {
            dump.line(format_args!("\nPartially discarded checkpoint state found:"));
            return 0;
        }
        Err(error) => {
            dump.damage(format_args!("the checkpointed uberblock: {error}"));
            return 3;
        }
    }
    let Some(reopen) = reopen else { return 0 };
    let checked = reopen().and_then(|state| pool.verify_checkpoint(&state).map_err(OpenError::Pool));
    match checked {
        Ok(report) if report.is_clean() => 0,
        Ok(report) => {
            let (lost, foreign) = (report.lost, report.foreign);
            dump.line(format_args!(
                "the checkpoint lacks {lost} bytes that are free in the pool; {foreign} bytes are kept that it does not have"
            ));
            2
        }
        Err(error) => {
            dump.damage(format_args!("the checkpointed state cannot be opened: {error}"));
            3
        }
    }
}

/// Shows tables of deduplication; with more of the option their histograms (OpenZFS: `dump_all_ddts`, `dump_ddt_object`).
pub fn dedup(dump: &mut Dump<'_>, pool: &Pool, times: u8) {
    let tables = pool.dedup_tables();
    let mut others = 0;
    let directory = zap::Zap::hold(pool.mos(), ondisk::ObjectId(1));
    let counted = directory.and_then(|zap| {
        zap.for_each(|entry| {
            let is_known = entry.name == b"DDT-statistics" || tables.iter().any(|table| table.name.as_bytes() == entry.name);
            others += u32::from(entry.name.starts_with(b"DDT-") && !is_known);
            Ok(())
        })
    });
    if let Err(error) = counted {
        dump.damage(format_args!("the object directory: {error}"));
    }
    if others > 0 {
        dump.line(format_args!("{others} objects of other deduplication tables, which this release does not read"));
    }
    let mut all: Vec<cli::dedup::Sums> = Vec::new();
    let mut shown = "";
    for table in &tables {
        let algorithm = table.name.split("-zap-").next().unwrap_or_default();
        if algorithm != shown {
            dump.line(format_args!("{algorithm}: version=0 [LEGACY]; flags=0x00; rootobj=1"));
            shown = algorithm;
        }
        all.resize(all.len().max(table.histogram.len()), [0; 8]);
        all.iter_mut().zip(&table.histogram).for_each(|(sums, more)| *sums = cli::dedup::total(&[*sums, *more]));
        if table.entries == 0 {
            continue;
        }
        let DedupTable { name, entries, disk_bytes, memory_bytes, .. } = table;
        dump.line(format_args!("{name}: dspace={disk_bytes}; mspace={memory_bytes}; entries={entries}"));
        if times > 2 {
            dump.line(format_args!("{}", cli::dedup::histogram(&table.histogram, false)));
        }
    }
    let total = cli::dedup::total(&all);
    if total[0] == 0 {
        if others == 0 {
            dump.line(format_args!("All DDTs are empty"));
        }
        return;
    }
    if times > 1 {
        dump.line(format_args!("\nDDT histogram (aggregated over all DDTs):\n{}", cli::dedup::histogram(&all, true)));
    }
    dump.line(format_args!("\n{}", ratios(&total)));
}

/// Line of the ratios of all tables (OpenZFS: `dump_dedup_ratio`).
fn ratios([_, _, _, dsize, _, ref_lsize, ref_psize, ref_dsize]: &cli::dedup::Sums) -> String {
    let hundredths = |part: u64, whole: u64| (u128::from(part) * 100).checked_div(u128::from(whole)).unwrap_or(100);
    let shown = |hundredths: u128| format!("{}.{:02}", hundredths / 100, hundredths % 100);
    let (dedup, compress, copies) =
        (hundredths(*ref_dsize, *dsize), hundredths(*ref_lsize, *ref_psize), hundredths(*ref_dsize, *ref_psize));
    let product = (dedup * compress).checked_div(copies).unwrap_or(100);
    format!(
        "dedup = {}, compress = {}, copies = {}, dedup * compress / copies = {}\n",
        shown(dedup),
        shown(compress),
        shown(copies),
        shown(product)
    )
}

/// Shows the history of the pool (OpenZFS: `dump_history`).
pub fn history(dump: &mut Dump<'_>, pool: &Pool) {
    dump.line(format_args!("\nHistory:"));
    match pool.history() {
        Ok(records) => records.iter().for_each(|record| {
            let time = record.get_u64("history time").unwrap_or(0) as i64;
            let command = record.get_str("history command").map(str::to_string);
            let text = command.or_else(|| pool::shown_call(record)).unwrap_or_else(|| {
                let name = record.get_str("internal_name").unwrap_or_default();
                format!(
                    "[internal {name} txg:{}] {}",
                    record.get_u64("history txg").unwrap_or(0),
                    record.get_str("history internal str").unwrap_or_default()
                )
            });
            dump.line(format_args!("{} {text}", cli::time::history(time)));
        }),
        Err(error) => dump.damage(format_args!("the history: {error}")),
    }
}

/// Shows the metaslabs of every vdev, and with `each` how fragmented the free space of each of them is (OpenZFS: `dump_metaslabs`).
pub fn metaslabs(dump: &mut Dump<'_>, pool: &Pool, each: bool) {
    let tree = pool.tree();
    dump.line(format_args!("\nMetaslabs:"));
    for top in tree.tops.iter().filter(|top| top.is_concrete() && top.kind != TopKind::Hole) {
        let (size, all) = (1_u64 << top.ms_shift, pool.metaslab_bytes(top.id));
        dump.line(format_args!(
            "\tvdev {:10}   ms_unflushed_phys object 0\n\tmetaslabs {:5}   offset                space",
            top.id.0,
            all.len()
        ));
        for ((index, allocated), percent) in (0_u64..).zip(&all).zip(pool.metaslab_fragmentation(top.id)) {
            let free = dump.number(size.saturating_sub(*allocated));
            dump.line(format_args!("\tmetaslab {index:6}   offset {:12x}   size {size:12x}   free {free:>8}", index << top.ms_shift));
            if let Some(percent) = percent.filter(|_| each) {
                dump.line(format_args!("\tOn-disk histogram:\t\tfragmentation {percent}"));
            }
        }
    }
}

/// Shows how fragmented the free space of every vdev for data is, and of the pool (OpenZFS: `dump_metaslab_groups`).
pub fn fragmentation(dump: &mut Dump<'_>, pool: &Pool) {
    let status = pool.status();
    let text = |percent: Option<u64>| percent.map_or_else(|| "  -".to_string(), |percent| format!("{percent:3}%"));
    for (top, percent) in status.tree.tops.iter().zip(&status.vdev_fragmentation).filter(|(top, _)| top.is_normal()) {
        let count = pool.metaslab_fragmentation(top.id).len();
        dump.line(format_args!("\tvdev {:10}\t\tmetaslabs{count:5}\t\tfragmentation{}", top.id.0, text(*percent)));
    }
    dump.line(format_args!("\tpool {}\tfragmentation\t{}", status.name, text(status.fragmentation)));
}

/// Shows counts of what was read so far (OpenZFS: `show_pool_stats`).
pub fn statistics(dump: &mut Dump<'_>, pool: &Pool) {
    dump.line(format_args!("\n{:40} {:>10} {:>12} {:>8}", "device", "reads", "bytes", "errors"));
    for leaf in &pool.tree().leaves {
        let counts = pool.zio().leaf_stats_of(leaf.guid).counts();
        dump.line(format_args!("{:40} {:>10} {:>12} {:>8}", leaf.path, counts.ops[0], counts.bytes[0], counts.errors[0]));
    }
}
