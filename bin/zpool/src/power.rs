//! Power of the slots that devices are in (OpenZFS: `zpool_power_on`, `zpool_power_off`): where the driver of an enclosure lets it be switched, the slot's
//! folder in sysfs has a file with `on` or `off`.

use crate::{list, vdev_get};
use cli::Client;
use control_api::{Failure, VdevReport};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Name of the file.
const FILE: &str = "power_status";
/// Longest time that a slot takes to be switched, or a device to be there afterwards.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Word for the power of a device's slot: `on` or `off`, or `-` where that cannot be told.
pub fn word(vdev: &VdevReport) -> &'static str {
    match slot(vdev).and_then(|slot| is_on(&slot)) {
        Some(true) => "on",
        Some(false) => "off",
        None => "-",
    }
}

/// Switches on the slots of the devices that words name, or of all devices of a pool without words, and waits until the devices are there. True when each of
/// them is in a slot that can be switched.
///
/// # Errors
/// Those of a pool that is not there.
pub fn on(client: &Client, pool: &str, words: &[String]) -> Result<bool, Failure> {
    let leaves = leaves(client, pool, words)?;
    let switched: Vec<&VdevReport> = leaves.iter().filter(|leaf| slot(leaf).is_some_and(|slot| switch(&slot, true))).collect();
    // They come at about the same time.
    for path in switched.iter().filter_map(|leaf| leaf.path.as_ref()) {
        wait(|| Path::new(path).exists());
    }
    Ok(switched.len() == leaves.len())
}

/// Switches off the slot of a device; false where that cannot be done.
///
/// # Errors
/// Those of a pool that is not there.
pub fn off(client: &Client, pool: &str, device: &str) -> Result<bool, Failure> {
    let leaves = leaves(client, pool, &[device.to_string()])?;
    Ok(!leaves.is_empty() && leaves.iter().all(|leaf| slot(leaf).is_some_and(|slot| switch(&slot, false))))
}

/// Devices that words name; all of a pool without words.
fn leaves(client: &Client, pool: &str, words: &[String]) -> Result<Vec<VdevReport>, Failure> {
    let reports = list::reports(client, vec![pool.to_string()], false)?;
    let Some(report) = reports.first() else { return Ok(Vec::new()) };
    let words = if words.is_empty() { vec![vdev_get::ALL.to_string()] } else { words.to_vec() };
    let places = vdev_get::places(report, &words).unwrap_or_default();
    Ok(places.into_iter().map(|place| place.vdev.clone()).filter(|vdev| vdev.children.is_empty()).collect())
}

/// Folder of the slot that a device is in.
fn slot(vdev: &VdevReport) -> Option<PathBuf> {
    vdev.identity[2].as_ref().filter(|_| vdev.children.is_empty()).map(PathBuf::from)
}

fn is_on(slot: &Path) -> Option<bool> {
    match std::fs::read_to_string(slot.join(FILE)).ok()?.trim() {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// Switches a slot, and waits until it says that it is so; false when it does not.
fn switch(slot: &Path, on: bool) -> bool {
    let word = if on { "on" } else { "off" };
    is_on(slot).is_some() && std::fs::write(slot.join(FILE), word).is_ok() && wait(|| is_on(slot) == Some(on))
}

/// Waits until something is so; false when that takes too long.
fn wait(is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody would pull a disk that still has power.
    #[test]
    fn slots_are_switched_where_they_can_be() {
        let folder = std::env::temp_dir().join(format!("zirconia-slot-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let vdev = VdevReport { identity: [None, None, Some(folder.display().to_string())], ..VdevReport::default() };
        assert_eq!((word(&vdev), switch(&folder, true)), ("-", false));
        assert!(!folder.join(FILE).exists());
        std::fs::write(folder.join(FILE), "on\n").expect("a file");
        assert_eq!((word(&vdev), switch(&folder, false), word(&vdev), switch(&folder, true), word(&vdev)), ("on", true, "off", true, "on"));
        // Only devices are in slots.
        let above = VdevReport { children: vec![vdev.clone()], ..vdev };
        assert_eq!(word(&above), "-");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
