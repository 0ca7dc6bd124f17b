//! Counts of direct I/O by name, for the tree of statistics.

use metrics::DirectRow;
use zio::ChangedBuffers;
use zpl::direct::{DirectSnapshot, Reason};

/// Rows of every count by name, reasons that did not occur too, for the tree of statistics.
///
/// `shared` are the parts of blocks, and their bytes, that came with the device read of a neighbour.
pub(crate) fn rows(counts: &DirectSnapshot, changed: ChangedBuffers, shared: (u64, u64)) -> Vec<DirectRow> {
    let row = |name, (requests, bytes)| DirectRow { name, requests, bytes };
    let mut rows = vec![
        row("asked", counts.asked),
        row("direct_read", counts.direct_reads),
        row("direct_write", counts.direct_writes),
        row("refused", counts.rejected),
        row("verify_write", changed.writes),
        row("verify_read", changed.reads),
        row("shared_read", shared),
        row("coalesced_write", counts.coalesced_writes),
    ];
    rows.extend(Reason::ALL.iter().map(|reason| {
        let found = counts.fallbacks.iter().find(|count| count.reason == *reason);
        row(reason.name(), found.map_or((0, 0), |count| (count.requests, count.bytes)))
    }));
    rows
}
