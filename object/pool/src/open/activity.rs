//! Another host that has a pool open is noticed before anything of it is opened here: its uberblocks change (OpenZFS: `spa_activity_check`).
//!
//! It is looked for where the pool is one that another host may have: its newest uberblock tells of heartbeats, or is from before them, its labels
//! name another host, and it was not exported. Then it is claimed ([`crate::heartbeat::claim`]), and so is an exported one with heartbeats. Whoever
//! has it suspends it when its own heartbeats fail for as long as its uberblocks say (`zfs_multihost_fail_intervals`), which is half of the time that
//! is waited here.

use super::find::FoundPool;
use super::progress;
use crate::PoolError;
use crate::label::{Device, KnownRings, forget_labels, read_labels};
use crate::spa::config::{Host, PoolState};
use crate::spa::multihost::MultihostTunables;
use exec::Exec;
use ondisk::{Guid, Uberblock};
use std::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;
/// Time between two looks, in nanoseconds.
const STEP_NS: u64 = SECOND_NS;
/// Factor of the time after which the other host suspends the pool, in percent (OpenZFS: `MMP_IMPORT_SAFETY_FACTOR`).
const SAFETY_PERCENT: u64 = 200;
/// Longest time that is waited, in nanoseconds: nobody who has a pool is silent for so long, whatever a damaged uberblock promises.
const LONGEST_NS: u64 = 3600 * SECOND_NS;
/// Most that is waited beyond that, in thousandths: hosts that begin at the same time end at different ones.
const RANDOM_MILLI: u64 = 250;
/// Number of looks after which the log is told once more how long it takes.
const STEPS_TOLD: u64 = 30;
/// Name of a host that no label tells.
const UNKNOWN: &str = "<unknown>";

/// Newest uberblock on some devices, and the host that the label beside it names.
pub(crate) struct Newest {
    /// Txg, timestamp and number of the heartbeat.
    pub mark: (u64, u64, u64),
    /// The uberblock.
    pub uberblock: Uberblock,
    /// Host that wrote it, as far as it has an id.
    pub host: Host,
}

/// Looks at the labels of devices as they are now, whatever this host remembers of them.
pub(crate) fn newest(exec: &Exec, devices: &[Device]) -> Option<Newest> {
    let look = |device: &Device| {
        forget_labels(device);
        let read = read_labels(exec, device, &mut KnownRings::default());
        let uberblock = read.uberblocks.first()?.clone();
        let config = read.config(uberblock.txg())?;
        let host = Host { id: config.get_u64("hostid").unwrap_or(0), name: config.get_str("hostname").unwrap_or(UNKNOWN).to_string() };
        Some(Newest { mark: uberblock.preference(), uberblock, host })
    };
    devices.iter().filter_map(look).max_by_key(|newest| newest.mark)
}

/// Nanoseconds that another host's heartbeats are looked for (OpenZFS: `spa_activity_check_duration`).
pub(crate) fn duration_ns(ub: &Uberblock, tunables: &MultihostTunables) -> u64 {
    let intervals = tunables.import_intervals.max(1);
    let least = intervals.saturating_mul(tunables.interval_ns()).max(SECOND_NS);
    let with_delay = |interval_ns: u64| interval_ns.saturating_add(ub.ub_mmp_delay).saturating_mul(intervals).max(least);
    let promised = match (ub.mmp_interval_ms(), ub.mmp_fail_intervals()) {
        (Some(interval), Some(fails)) if fails > 0 => (fails * interval).saturating_mul(MS_NS * SAFETY_PERCENT / 100),
        (Some(interval), Some(_)) => with_delay(interval * MS_NS),
        // Of 0.7, which did not say how often it wrote.
        _ if ub.mmp_valid() => with_delay(tunables.interval_ns()),
        _ => least,
    };
    promised.min(LONGEST_NS)
}

/// Host that no label tells.
pub(crate) fn nobody() -> Host {
    Host { id: 0, name: UNKNOWN.to_string() }
}

/// Watches devices on which `seen` was the newest uberblock, for as long as another host that has the pool of this name and guid may need to write
/// another one. Gives that host as soon as it did; None when nobody wrote.
pub(crate) fn watch(
    exec: &Exec,
    (name, guid): (&str, Guid),
    devices: &[Device],
    seen: &Uberblock,
    tunables: &MultihostTunables,
) -> Option<Host> {
    let planned = duration_ns(seen, tunables);
    let until = exec.now_ns().saturating_add(planned).saturating_add(planned / 1000 * (exec.random_u64() % RANDOM_MILLI));
    let mut steps = 0u64;
    loop {
        let left = until.saturating_sub(exec.now_ns());
        if steps.is_multiple_of(STEPS_TOLD) {
            tracing::info!("pool '{}': looking for another host's activity, {} ms remaining", name.escape_debug(), left / MS_NS);
            progress::note(guid, &format!("Checking MMP activity, {} ms remaining", left / MS_NS));
        }
        kstat::note_import_waits(guid.0, Duration::from_nanos(left));
        let now = newest(exec, devices);
        if now.as_ref().map(|newest| newest.mark) != Some(seen.preference()) {
            return Some(now.map_or_else(nobody, |newest| newest.host));
        }
        if left == 0 {
            return None;
        }
        exec.sleep_ns(left.min(STEP_NS));
        steps += 1;
    }
}

impl FoundPool {
    /// True when the pool's newest uberblock says that whoever has it writes heartbeats.
    pub(crate) fn has_heartbeats(&self) -> bool {
        self.best.as_ref().is_some_and(|ub| ub.mmp_valid() && ub.ub_mmp_delay != 0)
    }

    /// True when another host may have the pool open (OpenZFS: `spa_activity_check_required`).
    fn may_be_active(&self, ub: &Uberblock, hostid: u64) -> bool {
        let has_none = ub.mmp_valid() && ub.ub_mmp_delay == 0;
        !has_none && self.facts.host.id != hostid && self.state() == PoolState::Active
    }

    /// True when a host with this id has to claim the pool before it changes anything: another host had it last, with heartbeats, exported or not.
    pub(crate) fn is_to_be_claimed(&self, hostid: u64) -> bool {
        self.has_heartbeats() && self.facts.host.id != hostid && self.state() != PoolState::Destroyed
    }

    /// Looks whether another host has the pool open, as an import does, with or without force; waits for as long as that takes: 20 s and up to a
    /// quarter more with OpenZFS's defaults, none where it cannot be.
    ///
    /// # Errors
    /// [`PoolError::Active`] with the host, and [`PoolError::NoHostid`] where this one has no id and the pool is protected.
    pub fn look_for_activity(&self, exec: &Exec, hostid: u64, tunables: &MultihostTunables) -> Result<(), PoolError> {
        // Also one that was exported: nobody could tell this host from others while it has the pool.
        if self.has_heartbeats() && hostid == 0 {
            return Err(PoolError::NoHostid);
        }
        let Some(ub) = self.best.as_ref().filter(|ub| self.may_be_active(ub, hostid)) else { return Ok(()) };
        let devices: Vec<Device> = self.devices().cloned().collect();
        match watch(exec, (self.name(), self.guid()), &devices, ub, tunables) {
            None => Ok(()),
            Some(host) => {
                tracing::warn!("pool '{}' is active on '{}' (hostid {:x})", self.name().escape_debug(), host.name.escape_debug(), host.id);
                Err(PoolError::Active { hostid: host.id, hostname: host.name })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, an import ends before the other host had to show that it lives.
    #[test]
    fn as_long_is_waited_as_the_other_host_promised() {
        let tunables = MultihostTunables::default();
        let of = |config: u64, delay_ns: u64| Uberblock {
            ub_magic: Uberblock::MAGIC,
            ub_mmp_magic: Uberblock::MMP_MAGIC,
            ub_mmp_delay: delay_ns,
            ub_mmp_config: config,
            ..Uberblock::default()
        };
        let seconds = |ub: &Uberblock| duration_ns(ub, &tunables) / SECOND_NS;
        assert_eq!(seconds(&of(Uberblock::mmp_config_of(1000, 0, 10), 1)), 20);
        assert_eq!(seconds(&of(Uberblock::mmp_config_of(500, 0, 4), 1)), 4, "it says so itself");
        assert_eq!(seconds(&of(Uberblock::mmp_config_of(1000, 0, 0), 2 * SECOND_NS)), 60, "it never suspends");
        assert_eq!(seconds(&of(Uberblock::mmp_config_of(100, 0, 0), 1)), 20, "no less than is set here");
        assert_eq!(seconds(&of(0, 3 * SECOND_NS)), 80, "0.7");
        assert_eq!(seconds(&Uberblock { ub_mmp_magic: 0, ..of(0, 0) }), 20, "before heartbeats");
        let short = MultihostTunables { interval_ms: 1, import_intervals: 0, ..tunables };
        assert_eq!(duration_ns(&Uberblock::default(), &short), SECOND_NS);
    }
}
