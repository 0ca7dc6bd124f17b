//! The newest txgs of a pool: when each was opened, how long it was in which state, and what its sync did (OpenZFS:
//! `spa_txg_history_*`, kstat `txgs`).

use kstat::Records;
use ondisk::Txg;
use std::sync::Arc;

/// Txgs remembered unless told otherwise (OpenZFS: `zfs_txg_history`).
const TXGS_MAX: usize = 100;
/// Widths of the columns.
const WIDTHS: [usize; 12] = [8, 16, 5, 12, 12, 12, 8, 8, 12, 12, 12, 12];
const HEAD: [&str; 12] = ["txg", "birth", "state", "ndirty", "nread", "nwritten", "reads", "writes", "otime", "qtime", "wtime", "stime"];

/// Totals of the I/O of a pool's devices until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoTotals {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
}

impl IoTotals {
    /// I/O since `before`.
    fn since(&self, before: &IoTotals) -> IoTotals {
        IoTotals {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            reads: self.reads.saturating_sub(before.reads),
            writes: self.writes.saturating_sub(before.writes),
        }
    }
}

/// Stage that a txg has completed (OpenZFS: `txg_state_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// Txg takes no more transactions.
    Open = 1,
    /// No transaction holds the txg any more.
    Quiesced = 2,
    /// Sync of the txg began.
    Waited = 3,
    /// Txg is on disk.
    Synced = 4,
}

/// Record of a txg in the history.
#[derive(Clone, Debug, Default)]
pub struct TxgRecord {
    txg: Txg,
    /// Times in nanoseconds at which the txg was opened and completed each stage of [`Passed`]; 0: not yet.
    times_ns: [u64; 5],
    dirty_bytes: u64,
    io: IoTotals,
}

impl TxgRecord {
    /// The letter of what it is: open, quiescing, waiting, syncing, committed.
    fn state(&self) -> &'static str {
        let passed = self.times_ns.iter().skip(1).filter(|time| **time != 0).count();
        ["O", "Q", "W", "S", "C"][passed]
    }

    fn show(&self) -> String {
        let spent = |at: usize| match self.times_ns[at] {
            0 => 0,
            end => end.saturating_sub(self.times_ns[at - 1]),
        };
        let IoTotals { read_bytes, written_bytes, reads, writes } = self.io;
        let numbers = [self.dirty_bytes, read_bytes, written_bytes, reads, writes, spent(1), spent(2), spent(3), spent(4)];
        let mut cells = vec![self.txg.0.to_string(), self.times_ns[0].to_string(), self.state().to_string()];
        cells.extend(numbers.map(|number| number.to_string()));
        row(cells.iter().map(String::as_str))
    }
}

fn row<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cells: Vec<String> = cells.zip(WIDTHS).map(|(cell, width)| format!("{cell:<width$}")).collect();
    cells.join(" ") + "\n"
}

/// The newest txgs of a pool.
#[derive(Clone, Debug)]
pub(crate) struct TxgHistory(Arc<Records<TxgRecord>>);

impl TxgHistory {
    pub(crate) fn new() -> TxgHistory {
        TxgHistory(Arc::new(Records::new(row(HEAD.into_iter()), TxgRecord::show, |_| 1, TXGS_MAX)))
    }

    pub(crate) fn records(&self) -> &Arc<Records<TxgRecord>> {
        &self.0
    }

    /// `txg` was opened.
    pub(crate) fn opened(&self, txg: Txg, now_ns: u64) {
        self.0.add(TxgRecord { txg, times_ns: [now_ns.max(1), 0, 0, 0, 0], ..TxgRecord::default() });
    }

    /// `txg` has this behind it.
    pub(crate) fn passed(&self, txg: Txg, what: Passed, now_ns: u64) {
        self.with(txg, |record| record.times_ns[what as usize] = now_ns.max(1));
    }

    /// Notes the bytes dirty when the sync of `txg` began, and the device I/O from `before` to `after`.
    pub(crate) fn synced(&self, txg: Txg, dirty_bytes: u64, (before, after): (IoTotals, IoTotals)) {
        self.with(txg, |record| (record.dirty_bytes, record.io) = (dirty_bytes, after.since(&before)));
    }

    fn with(&self, txg: Txg, mut change: impl FnMut(&mut TxgRecord)) {
        self.0.change(|record| {
            let is_it = record.txg == txg;
            if is_it {
                change(record);
            }
            is_it || record.txg < txg
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kstat::Cursor;

    /// Scripts that draw these times take columns by their places.
    #[test]
    fn a_txg_goes_through_its_states() {
        let history = TxgHistory::new();
        let last = || {
            let text = String::from_utf8(Cursor::new(history.records().clone()).read(0, 1 << 20).unwrap()).unwrap();
            text.lines().last().unwrap().split_whitespace().map(String::from).collect::<Vec<_>>().join(" ")
        };
        history.opened(Txg(6), 900);
        history.opened(Txg(7), 1000);
        assert_eq!(last(), "7 1000 O 0 0 0 0 0 0 0 0 0");
        history.passed(Txg(7), Passed::Open, 1500);
        assert_eq!(last(), "7 1000 Q 0 0 0 0 0 500 0 0 0");
        history.passed(Txg(7), Passed::Quiesced, 1600);
        history.passed(Txg(7), Passed::Waited, 1630);
        assert_eq!(last(), "7 1000 S 0 0 0 0 0 500 100 30 0");
        let totals = |n| IoTotals { read_bytes: 10 * n, written_bytes: 20 * n, reads: n, writes: 2 * n };
        history.synced(Txg(7), 77, (totals(3), totals(5)));
        history.passed(Txg(7), Passed::Synced, 2630);
        assert_eq!(last(), "7 1000 C 77 20 40 2 4 500 100 30 1000");
        history.passed(Txg(99), Passed::Synced, 1);
        let text = String::from_utf8(Cursor::new(history.records().clone()).read(0, 200).unwrap()).unwrap();
        assert!(text.starts_with("txg      birth            state ndirty       nread"), "{text}");
    }
}
