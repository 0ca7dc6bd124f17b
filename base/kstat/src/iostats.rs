//! How a pool's data is read and written: through the cache, or directly (OpenZFS: `spa_iostats_t`, `spa_stats.c`).
//!
//! Only the rows of the pool's `iostats` that the data path bumps; trims are counted where they are done.

use crate::Counter;

/// Requests and their bytes.
#[derive(Debug, Default)]
pub struct CountBytes {
    /// Requests.
    pub count: Counter,
    /// Their bytes.
    pub bytes: Counter,
}

impl CountBytes {
    /// `count` requests of `bytes` bytes in all.
    pub fn add(&self, count: u64, bytes: u64) {
        self.count.add(count);
        self.bytes.add(bytes);
    }

    /// Count and bytes now.
    pub fn get(&self) -> (u64, u64) {
        (self.count.get(), self.bytes.get())
    }

    fn reset(&self) {
        self.count.reset();
        self.bytes.reset();
    }
}

/// The counters of one pool.
#[derive(Debug, Default)]
pub struct IoStats {
    /// `arc_read_*`: reads that the cache could not answer, prefetches and metadata included.
    pub arc_read: CountBytes,
    /// `arc_write_*`: blocks that a buffered write touched, and the bytes it asked for.
    pub arc_write: CountBytes,
    /// `direct_read_*`: blocks that a direct read really read (not holes, not what was in memory), whole blocks counted.
    pub direct_read: CountBytes,
    /// `direct_write_*`: blocks that a direct write issued, whether they then succeeded or not.
    pub direct_write: CountBytes,
}

impl IoStats {
    /// Names and values, in OpenZFS's order.
    pub fn rows(&self) -> [(&'static str, u64); 8] {
        let [(arc_reads, arc_read_bytes), (arc_writes, arc_write_bytes)] = [self.arc_read.get(), self.arc_write.get()];
        let [(reads, read_bytes), (writes, write_bytes)] = [self.direct_read.get(), self.direct_write.get()];
        [
            ("arc_read_count", arc_reads),
            ("arc_read_bytes", arc_read_bytes),
            ("arc_write_count", arc_writes),
            ("arc_write_bytes", arc_write_bytes),
            ("direct_read_count", reads),
            ("direct_read_bytes", read_bytes),
            ("direct_write_count", writes),
            ("direct_write_bytes", write_bytes),
        ]
    }

    /// Sets everything to zero, as writing to the kstat does.
    pub fn reset(&self) {
        for counters in [&self.arc_read, &self.arc_write, &self.direct_read, &self.direct_write] {
            counters.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::IoStats;

    /// Monitoring reads these by name; a swapped pair would call direct I/O buffered.
    #[test]
    fn rows_carry_what_was_counted() {
        let stats = IoStats::default();
        stats.arc_read.add(1, 10);
        stats.arc_write.add(2, 20);
        stats.direct_read.add(3, 30);
        stats.direct_write.add(4, 40);
        let rows = stats.rows();
        assert_eq!(rows.map(|(_, value)| value), [1, 10, 2, 20, 3, 30, 4, 40]);
        assert_eq!(
            (rows[0].0, rows[3].0, rows[4].0, rows[7].0),
            ("arc_read_count", "arc_write_bytes", "direct_read_count", "direct_write_bytes")
        );
        stats.reset();
        assert_eq!(stats.rows().map(|(_, value)| value), [0; 8]);
    }
}
