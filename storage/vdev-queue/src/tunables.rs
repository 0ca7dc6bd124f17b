//! The parameters of one leaf's queue, under OpenZFS's names and with its defaults (`vdev_queue.c`, `zio.c`, `spa_misc.c`; zfs.4).

use crate::{CLASSES, Class};

/// Largest span of a merged I/O, in bytes, whatever the limits say (OpenZFS: `SPA_MAXBLOCKSIZE`).
pub const MERGED_BYTES_MAX: u64 = 16 << 20;

/// Use of the queue by I/Os (OpenZFS after 2.3: vdev property `scheduler`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Scheduler {
    /// On a non-rotational device everything but background work is issued without being queued; everything else is queued.
    #[default]
    Auto,
    /// Every I/O is queued.
    On,
    /// I/Os that somebody waits for are issued at once, without limits and unmerged.
    Off,
}

/// Latency that background work leaves to those who wait (`background_latency_target`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LatencyTarget {
    /// No promise: OpenZFS's credit throttle alone.
    Off,
    /// Within twice the idle value.
    #[default]
    Auto,
    /// p99 within so many nanoseconds, or twice the idle value where the idle device does not hold that.
    P99(u64),
}

/// Number of I/Os of a class that the device has at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveLimits {
    /// Served first, round robin over the classes, until each has this many.
    pub min: u32,
    /// Never more than this.
    pub max: u32,
}

/// A name that is no parameter, or a value that the parameter cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunableError {
    /// No parameter has this name.
    Unknown,
    /// The value is too large.
    Invalid,
}

impl std::fmt::Display for TunableError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TunableError::Unknown => "there is no such parameter of the I/O scheduler",
            TunableError::Invalid => "the parameter cannot have this value",
        })
    }
}

impl std::error::Error for TunableError {}

/// Parameters of one leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// `zfs_vdev_CLASS_min_active` and `zfs_vdev_CLASS_max_active`, by class.
    pub active: [ActiveLimits; CLASSES],
    /// `zfs_vdev_max_active`: I/Os that the device has at a time, of all classes.
    pub max_active: u32,
    /// `zfs_vdev_async_write_active_min_dirty_percent`: dirty data up to which async writes have their minimum.
    pub async_write_active_min_dirty_percent: u32,
    /// `zfs_vdev_async_write_active_max_dirty_percent`: dirty data from which on they have their maximum.
    pub async_write_active_max_dirty_percent: u32,
    /// `zfs_vdev_nia_delay`: non-interactive I/Os that complete without an interactive one before the device counts as idle.
    pub nia_delay: u32,
    /// `zfs_vdev_nia_credit`: non-interactive I/Os that may be issued between two completions of interactive ones.
    pub nia_credit: u32,
    /// `zfs_vdev_aggregation_limit` in bytes, for rotational devices; 0: nothing is merged.
    pub aggregation_limit: u64,
    /// `zfs_vdev_aggregation_limit_non_rotating` in bytes.
    pub aggregation_limit_non_rotating: u64,
    /// `zfs_vdev_read_gap_limit` in bytes: reads are merged across gaps up to this.
    pub read_gap_limit: u64,
    /// `zfs_vdev_write_gap_limit` in bytes: padding is written up to this where it joins two writes.
    pub write_gap_limit: u64,
    /// `zio_slow_io_ms`: time from which on an I/O counts as slow.
    pub slow_io_ms: u64,
    /// `zfs_deadman_enabled`: true when hung I/Os are looked for.
    pub deadman_enabled: bool,
    /// `zfs_deadman_ziotime_ms`: time beyond which an I/O counts as hung.
    pub deadman_ziotime_ms: u64,
    /// Use of the queue by I/Os.
    pub scheduler: Scheduler,
    /// Latency that background work leaves to those who wait (`background_latency_target`; OpenZFS has no such thing).
    pub latency_target: LatencyTarget,
}

impl Default for Tunables {
    fn default() -> Self {
        let limits = [(10, 10), (10, 10), (1, 3), (2, 10), (1, 3), (1, 2), (1, 1), (1, 2), (1, 3)];
        Tunables {
            active: limits.map(|(min, max)| ActiveLimits { min, max }),
            max_active: 1000,
            async_write_active_min_dirty_percent: 30,
            async_write_active_max_dirty_percent: 60,
            nia_delay: 5,
            nia_credit: 5,
            aggregation_limit: 1 << 20,
            aggregation_limit_non_rotating: 128 << 10,
            read_gap_limit: 32 << 10,
            write_gap_limit: 4 << 10,
            slow_io_ms: 30_000,
            deadman_enabled: true,
            deadman_ziotime_ms: 300_000,
            scheduler: Scheduler::Auto,
            latency_target: LatencyTarget::Auto,
        }
    }
}

enum Field<'a> {
    Count(&'a mut u32),
    Long(&'a mut u64),
    Switch(&'a mut bool),
}

impl Tunables {
    /// Limits of a class.
    pub fn limits(&self, class: Class) -> ActiveLimits {
        self.active[class as usize]
    }

    /// Number of async writes that the device may have, by how much of the dirty data that the pool may hold is dirty, and by whether
    /// somebody waits for the transaction group (OpenZFS: `vdev_queue_max_async_writes`).
    pub fn async_write_max(&self, dirty: Dirty) -> u32 {
        let ActiveLimits { min, max } = self.limits(Class::AsyncWrite);
        let bound = |percent: u32| u128::from(dirty.max_bytes) * u128::from(percent) / 100;
        let (low, high) = (bound(self.async_write_active_min_dirty_percent), bound(self.async_write_active_max_dirty_percent));
        let bytes = u128::from(dirty.bytes);
        if bytes > high || dirty.sync_task_waits {
            return max;
        }
        if bytes < low || high <= low || max <= min {
            return min;
        }
        min + u32::try_from((bytes - low) * u128::from(max - min) / (high - low)).unwrap_or(0)
    }

    /// Sets a parameter by OpenZFS's name; `zirconia_vdev_scheduler` (0 auto, 1 on, 2 off) is ours.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), TunableError> {
        if name == "zirconia_vdev_scheduler" {
            let known = [Scheduler::Auto, Scheduler::On, Scheduler::Off];
            self.scheduler = usize::try_from(value).ok().and_then(|index| known.get(index).copied()).ok_or(TunableError::Invalid)?;
            return Ok(());
        }
        match self.field(name).ok_or(TunableError::Unknown)? {
            Field::Count(field) => *field = u32::try_from(value).map_err(|_| TunableError::Invalid)?,
            Field::Long(field) => *field = value,
            Field::Switch(field) => *field = value != 0,
        }
        Ok(())
    }

    /// The value of a parameter by OpenZFS's name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.clone().field(name).map(|field| match field {
            Field::Count(field) => u64::from(*field),
            Field::Long(field) => *field,
            Field::Switch(field) => u64::from(*field),
        })
    }

    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "zfs_deadman_enabled" => Field::Switch(&mut self.deadman_enabled),
            "zfs_deadman_ziotime_ms" => Field::Long(&mut self.deadman_ziotime_ms),
            "zio_slow_io_ms" => Field::Long(&mut self.slow_io_ms),
            _ => match name.strip_prefix("zfs_vdev_")? {
                "max_active" => Field::Count(&mut self.max_active),
                "async_write_active_min_dirty_percent" => Field::Count(&mut self.async_write_active_min_dirty_percent),
                "async_write_active_max_dirty_percent" => Field::Count(&mut self.async_write_active_max_dirty_percent),
                "nia_delay" => Field::Count(&mut self.nia_delay),
                "nia_credit" => Field::Count(&mut self.nia_credit),
                "aggregation_limit" => Field::Long(&mut self.aggregation_limit),
                "aggregation_limit_non_rotating" => Field::Long(&mut self.aggregation_limit_non_rotating),
                "read_gap_limit" => Field::Long(&mut self.read_gap_limit),
                "write_gap_limit" => Field::Long(&mut self.write_gap_limit),
                rest => self.limit_field(rest)?,
            },
        })
    }

    fn limit_field(&mut self, name: &str) -> Option<Field<'_>> {
        let (class, is_min) = match name.strip_suffix("_min_active") {
            Some(class) => (class, true),
            None => (name.strip_suffix("_max_active")?, false),
        };
        let class = Class::ALL.into_iter().find(|known| known.name() == class)?;
        let limits = &mut self.active[class as usize];
        Some(Field::Count(if is_min { &mut limits.min } else { &mut limits.max }))
    }
}

/// The pool's dirty data, as far as async writes depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirty {
    /// Dirty bytes now.
    pub bytes: u64,
    /// `zfs_dirty_data_max`: most dirty bytes that the pool may hold.
    pub max_bytes: u64,
    /// True when a command waits for the transaction group: everything goes out as fast as possible.
    pub sync_task_waits: bool,
}

impl Default for Dirty {
    /// Nothing is known of dirty data (a pool that is being opened): async writes have their maximum.
    fn default() -> Self {
        Dirty { bytes: 1, max_bytes: 0, sync_task_waits: false }
    }
}
