//! Number of metaslabs to flush in a txg, so that the log space maps stay short (OpenZFS: `spa_estimate_metaslabs_to_flush`).
//!
//! A log is needed until every metaslab with changes in it was flushed after its txg. Metaslabs are flushed in the order in which they were flushed
//! before, so that the oldest logs become free first; from how fast logs grow follows how many a txg has to flush.

use exec::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tunables of a pool's log space maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceLogTunables {
    /// Leave the logs at an export, for tests (OpenZFS: `zfs_keep_log_spacemaps_at_export`).
    pub keep_at_export: bool,
    /// Metaslabs flushed in a txg at least (OpenZFS: `zfs_min_metaslabs_to_flush`).
    pub metaslabs_min: u64,
    /// Blocks of all logs, in percent of the metaslabs with changes in them (OpenZFS: `zfs_unflushed_log_block_pct`) …
    pub blocks_percent: u64,
    /// … but no less than this (OpenZFS: `zfs_unflushed_log_block_min`) …
    pub blocks_min: u64,
    /// … and no more than this (OpenZFS: `zfs_unflushed_log_block_max`).
    pub blocks_max: u64,
    /// Number of logs (OpenZFS: `zfs_unflushed_log_txg_max`).
    pub txgs_max: u64,
    /// Newest logs by which the next one's length is estimated (OpenZFS: `zfs_max_log_walking`).
    pub looks_back: u64,
    /// Bytes of memory that changes may take which are in the logs only (OpenZFS: `zfs_unflushed_max_mem_amt`).
    pub memory_max: u64,
}

impl Default for SpaceLogTunables {
    fn default() -> Self {
        SpaceLogTunables {
            keep_at_export: false,
            metaslabs_min: 1,
            blocks_percent: 400,
            blocks_min: 1000,
            blocks_max: 1 << 17,
            txgs_max: 1000,
            looks_back: 5,
            memory_max: 16 << 20,
        }
    }
}

/// Wishes of whoever has the pool about its log space maps.
#[derive(Debug, Default)]
pub(crate) struct LogControl {
    tunables: Mutex<SpaceLogTunables>,
    /// The next txg is to flush all metaslabs.
    flush_all: AtomicBool,
}

impl LogControl {
    /// Changes the tunables.
    pub fn tune(&self, tunables: SpaceLogTunables) {
        *self.tunables.lock() = tunables;
    }

    /// The tunables as of now.
    pub fn tunables(&self) -> SpaceLogTunables {
        *self.tunables.lock()
    }

    /// Has the next txg flush all metaslabs, unless logs are to be kept: the pool is about to be exported.
    pub fn flush_for_export(&self) {
        self.flush_all.store(!self.tunables().keep_at_export, Ordering::Relaxed);
    }

    /// True once after somebody wanted all to be flushed.
    pub fn take_flush_all(&self) -> bool {
        self.flush_all.swap(false, Ordering::Relaxed)
    }
}

/// A log of an earlier txg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// Blocks of the log.
    pub blocks: u64,
    /// Metaslabs with changes in logs whose first such log it is.
    pub metaslabs: u64,
}

/// Blocks that the logs may have together.
fn blocks_limit(rows: &[Row], tunables: &SpaceLogTunables) -> u64 {
    let metaslabs: u64 = rows.iter().map(|row| row.metaslabs).sum();
    let wanted = metaslabs.saturating_mul(tunables.blocks_percent) / 100;
    wanted.max(tunables.blocks_min).min(tunables.blocks_max)
}

/// Number of metaslabs with changes to flush in a txg, with these logs before it, oldest first: so many that, if it stayed with that and with logs
/// as long as the last ones, neither their blocks nor their number went over what they may be.
pub(crate) fn metaslabs_to_flush(rows: &[Row], tunables: &SpaceLogTunables) -> u64 {
    let recent = rows.iter().rev().take(usize::try_from(tunables.looks_back).unwrap_or(usize::MAX));
    let looked_at = recent.len() as u64;
    let incoming = if looked_at == 0 { 0 } else { i128::from(recent.map(|row| row.blocks).sum::<u64>().div_ceil(looked_at)) };
    let stored: u64 = rows.iter().map(|row| row.blocks).sum();
    let mut blocks_left = i128::from(blocks_limit(rows, tunables)) - i128::from(stored) - incoming;
    let mut txgs_left = i128::from(tunables.txgs_max) - rows.len() as i128;
    let (mut txgs_ahead, mut flushes, mut most) = (1, 0, i128::from(tunables.metaslabs_min));
    for row in rows {
        if blocks_left >= 0 && txgs_left >= 0 {
            // So many txgs until there is no room any more.
            let skipped = if incoming == 0 { txgs_left + 1 } else { (txgs_left + 1).min(blocks_left / incoming + 1) };
            blocks_left -= skipped * incoming;
            txgs_left -= skipped;
            txgs_ahead += skipped;
        }
        // By then this log must be free, and for that its metaslabs flushed.
        blocks_left += i128::from(row.blocks);
        txgs_left += 1;
        flushes += i128::from(row.metaslabs);
        if flushes > 0 {
            most = most.max(1 + (flushes - 1) / txgs_ahead);
        }
    }
    u64::try_from(most).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Logs of a pool whose every txg changes all of its metaslabs, flushed as [`metaslabs_to_flush`] says: the most logs and blocks that there were
    /// at a time, and the most metaslabs that a txg flushed after `settled` txgs.
    fn run(metaslabs: u64, blocks: u64, txgs: u64, tunables: &SpaceLogTunables) -> (usize, u64, u64) {
        let settled = txgs / 2;
        let mut logs: BTreeMap<u64, u64> = BTreeMap::new();
        let mut queue: BTreeSet<(u64, u64)> = BTreeSet::new();
        let (mut most_logs, mut most_blocks, mut most_flushed) = (0_usize, 0_u64, 0_u64);
        for txg in 1..=txgs {
            let of = |at: u64| queue.iter().filter(|(since, _)| *since == at).count() as u64;
            let rows: Vec<Row> = logs.iter().map(|(at, blocks)| Row { blocks: *blocks, metaslabs: of(*at) }).collect();
            let wanted = metaslabs_to_flush(&rows, tunables).min(metaslabs);
            if txg > settled {
                most_flushed = most_flushed.max(wanted);
            }
            for _ in 0..wanted {
                let Some((_, metaslab)) = queue.pop_first() else { break };
                queue.insert((txg, metaslab));
            }
            if queue.is_empty() {
                queue = (0..metaslabs).map(|metaslab| (txg, metaslab)).collect();
            }
            let oldest = queue.first().map_or(txg, |(since, _)| *since);
            logs = logs.split_off(&oldest);
            logs.insert(txg, blocks);
            most_logs = most_logs.max(logs.len());
            most_blocks = most_blocks.max(logs.values().sum());
        }
        (most_logs, most_blocks, most_flushed)
    }

    /// If this fails, logs grow until an import reads them for hours, or each txg writes as much as without them.
    #[test]
    fn logs_stay_within_their_limits_and_few_metaslabs_are_flushed() {
        let tunables = SpaceLogTunables { blocks_percent: 400, blocks_min: 50, txgs_max: 100, ..SpaceLogTunables::default() };
        for (metaslabs, blocks) in [(1, 1), (16, 1), (200, 1), (200, 10), (200, 40)] {
            let (most_logs, most_blocks, most_flushed) = run(metaslabs, blocks, 600, &tunables);
            let what = format!("{metaslabs} metaslabs, {blocks} blocks a txg");
            let limit = (metaslabs * 4).max(50);
            assert!(most_logs as u64 <= tunables.txgs_max + 2, "{what}: {most_logs} logs");
            assert!(most_blocks <= limit + 2 * blocks, "{what}: {most_blocks} blocks, {limit} wanted");
            // In the time in which the logs fill up once each metaslab has to be flushed once.
            let txgs = (limit / blocks).min(tunables.txgs_max);
            assert!(most_flushed <= 1 + 2 * metaslabs.div_ceil(txgs.max(1)), "{what}: {most_flushed} metaslabs flushed in a txg");
        }
    }

    /// If this fails, a value that somebody tries ends the sync of the pool for good.
    #[test]
    fn no_value_of_a_tunable_is_too_large_or_too_small() {
        let rows = [Row { blocks: u64::MAX / 4, metaslabs: 3 }, Row { blocks: 0, metaslabs: u64::MAX / 4 }, Row::default()];
        for value in [0, 1, u64::MAX] {
            let tunables = SpaceLogTunables {
                keep_at_export: false,
                metaslabs_min: value,
                blocks_percent: value,
                blocks_min: value,
                blocks_max: value,
                txgs_max: value,
                looks_back: value,
                memory_max: value,
            };
            for rows in [&rows[..], &rows[..1], &[]] {
                assert!(metaslabs_to_flush(rows, &tunables) >= value, "{value}: {rows:?}");
            }
        }
    }

    /// If this fails, an export leaves logs that every import has to read, or `zfs_keep_log_spacemaps_at_export` keeps none.
    #[test]
    fn an_export_flushes_once_and_not_where_logs_are_to_be_kept() {
        let control = LogControl::default();
        assert!(!control.take_flush_all(), "nobody wants it");
        control.flush_for_export();
        assert!(control.take_flush_all());
        assert!(!control.take_flush_all(), "once");
        control.tune(SpaceLogTunables { keep_at_export: true, ..SpaceLogTunables::default() });
        control.flush_for_export();
        assert!(!control.take_flush_all());
    }
}
