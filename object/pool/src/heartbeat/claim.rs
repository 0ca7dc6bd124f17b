//! The claim of a pool with heartbeats that another host had last, before anything of it is changed (OpenZFS 2.3.6: `spa_activity_check_claim`,
//! `mmp_claim_uberblock`).
//!
//! The newest uberblock is written once more, as a heartbeat whose number was drawn, to every device, and has to be the newest one still when the
//! time between two heartbeats has passed; and so again. Of two hosts that claim a pool at the same time at most one finds its own number, and who
//! only looks ([`crate::open::activity`]) sees the numbers change. Uberblocks of txgs stay as they are.

use super::{MS_NS, Target, targets};
use crate::PoolError;
use crate::label::{Device, heartbeat_write};
use crate::open::activity::{Newest, newest, nobody};
use crate::spa::Spa;
use device::DeviceError;
use exec::Exec;
use ondisk::Uberblock;
use vdev::{TopVdev, VdevTree};

/// Number of times that a pool is claimed: who claims after this host has to see its first txg within so many intervals.
const ROUNDS: u32 = 3;
/// Longest time from a claim to the look at it, in nanoseconds, however seldom the pool's host before wrote heartbeats.
const ROUND_NS_MAX: u64 = 10_000_000_000;

/// Makes sure, before anything of a pool is changed, that nobody changed it since it was read. Where another host had it last, also claims it, and waits
/// meanwhile: three times as long as that host let pass between heartbeats, 3 s with OpenZFS's defaults.
///
/// # Errors
/// [`PoolError::Active`] when another host writes to it, [`PoolError::Unclaimed`] when too few devices could be written to.
pub(crate) fn claim(spa: &Spa, is_from_elsewhere: bool) -> Result<(), PoolError> {
    let (tree, targets, seen) = {
        let config = spa.config.lock();
        (config.tree.clone(), targets(&config.tree, &config.devices), config.uberblock.clone())
    };
    let exec = spa.exec();
    let devices: Vec<Device> = targets.iter().map(|target| target.device.clone()).collect();
    let changed = newest(exec, &devices).filter(|found| found.mark > seen.preference());
    if changed.is_some() {
        return Err(taken(spa, changed, seen.ub_txg));
    }
    let (Some(interval_ms), Some(fails), true) = (seen.mmp_interval_ms(), seen.mmp_fail_intervals(), is_from_elsewhere) else {
        // Its own, or of 0.7, whose heartbeats have no numbers.
        spa.multihost.begin_anew(exec.now_ns());
        return Ok(());
    };
    tracing::info!("pool '{}': claiming it, as another host had it", spa.name());
    let mut claimed = seen.clone();
    for _ in 0..ROUNDS {
        let sequence = drawn(seen.mmp_sequence().unwrap_or(0), exec.random_u64());
        claimed.ub_mmp_config = Uberblock::mmp_config_of(interval_ms, sequence, fails as u16);
        write(exec, (&tree, &targets), &claimed)?;
        exec.sleep_ns(interval_ms.saturating_mul(MS_NS).min(ROUND_NS_MAX));
        let found = newest(exec, &devices);
        if found.as_ref().is_none_or(|found| found.uberblock != claimed) {
            return Err(taken(spa, found, seen.ub_txg));
        }
    }
    // What is written from now on has to be newer.
    spa.config.lock().uberblock = claimed;
    // The time of the claim is none without heartbeats.
    spa.multihost.begin_anew(exec.now_ns());
    Ok(())
}

/// The error of a pool that another host has, or claims; `found` is the newest uberblock now, `txg` the one that this host read.
fn taken(spa: &Spa, found: Option<Newest>, txg: u64) -> PoolError {
    // The labels name who had it before, until a txg.
    let host = found.filter(|found| found.mark.0 > txg).map_or_else(nobody, |found| found.host);
    tracing::warn!("pool '{}' was taken, or claimed, by another host ({}) meanwhile", spa.name(), host.name.escape_debug());
    PoolError::Active { hostid: host.id, hostname: host.name }
}

/// Number of a claim, above that of the newest heartbeat; any when there is none above.
fn drawn(last: u64, random: u64) -> u16 {
    let last = last % u64::from(u16::MAX);
    (last + 1 + random % (u64::from(u16::MAX) - last)) as u16
}

/// Writes a claim to all devices, such that other hosts see it; those of data count.
fn write(exec: &Exec, (tree, targets): (&VdevTree, &[Target]), claimed: &Uberblock) -> Result<(), PoolError> {
    let is_written: Vec<bool> = targets.iter().map(|target| put(exec, target, claimed).is_ok()).collect();
    let is_shown = |top: &TopVdev| {
        let of_top = targets.iter().zip(&is_written).filter(|(target, _)| top.leaves().any(|leaf| tree.leaf(leaf).guid == target.guid));
        is_enough(top.parity(), &of_top.map(|(_, is_written)| *is_written).collect::<Vec<bool>>())
    };
    let mut tops = tree.tops.iter().filter(|top| top.is_concrete() && !top.is_log);
    if tops.all(is_shown) { Ok(()) } else { Err(PoolError::Unclaimed) }
}

/// True when everybody who can import a pool sees a claim that was written to these leaves of a vdev, or not: all that this host sees, or with parity as
/// many as nobody can do without.
fn is_enough(parity: usize, is_written: &[bool]) -> bool {
    let (written, all) = (is_written.iter().filter(|is_written| **is_written).count(), is_written.len());
    let wanted = if parity > 0 { all.min(parity + 1) } else { all };
    written > 0 && written >= wanted
}

fn put(exec: &Exec, target: &Target, claimed: &Uberblock) -> Result<(), DeviceError> {
    let (device, write) = (&target.device, heartbeat_write(&target.device, claimed, target.ashift, 0));
    if device.can_write_durably() {
        return device.write_durably(write.offset, &write.data);
    }
    device.write_at(exec, write.offset, &write.data)?;
    match device.flush(exec) {
        Err(DeviceError::Unsupported) => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a claim looks older than the heartbeat before it, and nobody sees it.
    #[test]
    fn a_claim_has_a_number_above_the_last_one() {
        for last in [0, 1, 7, 65533, 65534] {
            for random in [0, 1, 65_534, 65_535, 65_536, u64::MAX] {
                assert!(u64::from(drawn(last, random)) > last, "{last} {random}");
            }
        }
        assert_eq!((drawn(65534, 9), drawn(65535, 0)), (65535, 1), "there is none above: it begins anew");
    }

    /// If this fails, a host claims a pool where another one that sees other devices cannot see it, or none can have a pool that lost a device.
    #[test]
    fn a_claim_is_on_as_many_devices_as_nobody_can_do_without() {
        assert!(is_enough(0, &[true, true]) && !is_enough(0, &[true, false]) && !is_enough(0, &[]), "a mirror");
        assert!(is_enough(1, &[true, false, true]) && !is_enough(1, &[true, false, false]), "RAID-Z1");
        assert!(is_enough(2, &[true, true, true, false]) && !is_enough(2, &[true, true, false, false]), "RAID-Z2");
        assert!(is_enough(1, &[true]) && !is_enough(1, &[false]), "RAID-Z1 that lacks one of two");
    }
}
