//! How a pool's data is read and written: through the cache, or directly (OpenZFS: `spa_iostats_t`, `spa_stats.c`).
//!
//! The data path bumps reads and writes, sweeps their trims.

use crate::Counter;

/// Requests and their bytes.
#[derive(Debug, Default)]
pub struct CountBytes {
    /// Number of requests.
    pub count: Counter,
    /// Number of their bytes.
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

/// Fate of the free extents that a kind of trim met.
#[derive(Debug, Default)]
pub struct TrimCounts {
    /// Extents given back to the device.
    pub written: CountBytes,
    /// Extents too short to be worth it.
    pub skipped: CountBytes,
    /// Extents refused by the device.
    pub failed: CountBytes,
}

impl TrimCounts {
    fn all(&self) -> [&CountBytes; 3] {
        [&self.written, &self.skipped, &self.failed]
    }
}

/// The counters of one pool.
#[derive(Debug, Default)]
pub struct IoStats {
    /// `arc_read_*`: reads that the cache could not answer, prefetches and metadata included.
    pub arc_read: CountBytes,
    /// `arc_write_*`: blocks that a buffered write touched, and the bytes it asked for.
    pub arc_write: CountBytes,
    /// Blocks that a direct read really read (not holes, not what was in memory), whole blocks counted. `direct_read_*` are these and the parts of
    /// [`IoStats::direct_shared`], as OpenZFS counts whatever a direct read asks of a block.
    pub direct_read: CountBytes,
    /// `direct_write_*`: blocks that a direct write issued, whether they then succeeded or not.
    pub direct_write: CountBytes,
    /// `direct_shared_*`: parts of blocks that direct reads took from what the device read of a neighbour had brought. Our own.
    pub direct_shared: CountBytes,
    /// `direct_coalesced_*`: blocks that short direct writes filled, issued as a direct write of the whole, whether they then succeeded or not. Our own;
    /// they are not in `direct_write_*`.
    pub direct_coalesced: CountBytes,
    /// `trim_*`: extents that `zpool trim` met.
    pub trim: TrimCounts,
    /// `autotrim_*`: extents that the property `autotrim` met.
    pub autotrim: TrimCounts,
    /// `simple_trim_*`: trims of whole devices, of which there are none yet.
    pub simple_trim: TrimCounts,
}

impl IoStats {
    /// Names and values, in OpenZFS's order, then our own.
    pub fn rows(&self) -> Vec<(String, u64)> {
        let trims = self.trims().into_iter().flat_map(|(kind, counts)| {
            let outcomes = ["written", "skipped", "failed"].into_iter().zip(counts.all());
            outcomes.flat_map(move |(outcome, done)| pair(&format!("{kind}_extents_{outcome}"), &format!("{kind}_bytes_{outcome}"), done))
        });
        let data = [
            ("arc_read", &self.arc_read),
            ("arc_write", &self.arc_write),
            ("direct_read", &self.direct_reads()),
            ("direct_write", &self.direct_write),
            ("direct_shared", &self.direct_shared),
            ("direct_coalesced", &self.direct_coalesced),
        ];
        trims.chain(data.into_iter().flat_map(|(name, done)| pair(&format!("{name}_count"), &format!("{name}_bytes"), done))).collect()
    }

    /// All that direct reads asked of blocks.
    fn direct_reads(&self) -> CountBytes {
        let all = CountBytes::default();
        for (count, bytes) in [self.direct_read.get(), self.direct_shared.get()] {
            all.add(count, bytes);
        }
        all
    }

    fn trims(&self) -> [(&'static str, &TrimCounts); 3] {
        [("trim", &self.trim), ("autotrim", &self.autotrim), ("simple_trim", &self.simple_trim)]
    }

    /// Sets everything to zero, as writing to the kstat does.
    pub fn reset(&self) {
        let data = [&self.arc_read, &self.arc_write, &self.direct_read, &self.direct_write, &self.direct_shared, &self.direct_coalesced];
        data.into_iter().for_each(CountBytes::reset);
        self.trims().into_iter().flat_map(|(_, counts)| counts.all()).for_each(CountBytes::reset);
    }
}

fn pair(count: &str, bytes: &str, done: &CountBytes) -> [(String, u64); 2] {
    let values = done.get();
    [(count.to_string(), values.0), (bytes.to_string(), values.1)]
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
        stats.direct_shared.add(7, 70);
        stats.direct_coalesced.add(8, 80);
        stats.trim.written.add(5, 50);
        stats.autotrim.failed.add(6, 60);
        let rows = stats.rows();
        let value = |name: &str| rows.iter().find(|(row, _)| row == name).map(|(_, value)| *value);
        for (name, expected) in [
            ("arc_read_count", 1),
            ("arc_write_bytes", 20),
            ("direct_read_count", 10),
            ("direct_read_bytes", 100),
            ("direct_write_bytes", 40),
        ] {
            assert_eq!(value(name), Some(expected), "{name}");
        }
        for (name, expected) in
            [("trim_extents_written", 5), ("autotrim_bytes_failed", 60), ("direct_shared_bytes", 70), ("direct_coalesced_bytes", 80)]
        {
            assert_eq!(value(name), Some(expected), "{name}");
        }
        assert_eq!((rows.len(), rows[0].0.as_str(), rows[18].0.as_str()), (30, "trim_extents_written", "arc_read_count"));
        stats.reset();
        assert!(stats.rows().iter().all(|(_, value)| *value == 0));
    }
}
