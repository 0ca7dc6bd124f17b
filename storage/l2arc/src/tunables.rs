//! Parameters of a second level, with OpenZFS's names and defaults (2.3).

/// Parameters of a second level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Bytes written at a time at most (`l2arc_write_max`).
    pub write_max: u64,
    /// Bytes that are added to that until a device is full for the first time (`l2arc_write_boost`).
    pub write_boost: u64,
    /// Number of times as many bytes of each list of the cache as are written that are looked at; 0 looks at all (`l2arc_headroom`).
    pub headroom: u64,
    /// Percent of that which are looked at where blocks are compressed (`l2arc_headroom_boost`).
    pub headroom_boost: u64,
    /// Seconds between looks (`l2arc_feed_secs`).
    pub feed_secs: u64,
    /// Milliseconds between looks at least (`l2arc_feed_min_ms`).
    pub feed_min_ms: u64,
    /// True to look again sooner as long as much is found (`l2arc_feed_again`).
    pub feed_again: bool,
    /// True to leave out what was read ahead and not used yet (`l2arc_noprefetch`).
    pub noprefetch: bool,
    /// True to read nothing from a device that is being written (`l2arc_norw`).
    pub norw: bool,
    /// Percent of the cache that what is known of blocks may take (`l2arc_meta_percent`).
    pub meta_percent: u64,
    /// 1 to take frequently used blocks only, 2 to take only such data, and all metadata (`l2arc_mfuonly`).
    pub mfuonly: u64,
    /// Percent of what is written that the device is told, ahead of that, not to need any more; with more than 0 all of a device of
    /// which nothing is known before it is used (`l2arc_trim_ahead`).
    pub trim_ahead: u64,
    /// True to find again what is on devices that are taken into use (`l2arc_rebuild_enabled`).
    pub rebuild_enabled: bool,
    /// Bytes of a device from which on what is written is listed on it, so that it can be found again (`l2arc_rebuild_blocks_min_l2size`).
    pub rebuild_blocks_min_l2size: u64,
}

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables {
            write_max: 32 << 20,
            write_boost: 32 << 20,
            headroom: 8,
            headroom_boost: 200,
            feed_secs: 1,
            feed_min_ms: 200,
            feed_again: true,
            noprefetch: true,
            norw: false,
            meta_percent: 33,
            mfuonly: 0,
            trim_ahead: 0,
            rebuild_enabled: true,
            rebuild_blocks_min_l2size: 1 << 30,
        }
    }
}

impl Tunables {
    /// Bytes of memory that what is known of blocks may take, of a cache that has so many.
    pub(crate) fn most_bytes(&self, cache_bytes: u64) -> u64 {
        (cache_bytes / 100).saturating_mul(self.meta_percent.min(100))
    }

    /// Bytes of each list of the cache that are looked at to find so many to write.
    pub(crate) fn reach(&self, bytes: u64) -> u64 {
        match self.headroom {
            0 => u64::MAX,
            headroom => bytes.saturating_mul(headroom).saturating_mul(self.headroom_boost.max(100)) / 100,
        }
    }

    /// Nanoseconds from the beginning of one look to the next (OpenZFS: `l2arc_write_interval`).
    pub(crate) fn interval_ns(&self, found_much: bool) -> u64 {
        let usual = self.feed_secs.saturating_mul(1_000_000_000);
        if self.feed_again && found_much { usual.min(self.feed_min_ms.saturating_mul(1_000_000)) } else { usual }
    }
}
