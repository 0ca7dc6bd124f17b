//! What scenarios and campaigns need of the machine, and how they begin where it does not meet that.

use need::{Missing, Need};

/// No needs.
pub const NOTHING: &[Need] = &[];
/// Needs of scenarios with mounts.
pub const MOUNTS: &[Need] = &[Need::Fuse];
/// Needs of scenarios with mounts, and root's rights.
pub const ROOT: &[Need] = &[Need::Fuse, Need::Root];
/// Needs of scenarios with mounts on loop devices.
pub const LOOPS: &[Need] = &[Need::Fuse, Need::Root, Need::Loops];
/// Needs of scenarios with overlays, which root mounts.
pub const OVERLAY: &[Need] = &[Need::Fuse, Need::Root, Need::Overlay];
/// Needs of scenarios with QEMU as a client.
pub const QEMU: &[Need] = &[Need::Qemu];
/// Needs of scenarios with mounts, and programs for access control lists.
pub const LISTS: &[Need] = &[Need::Fuse, Need::Acl];
/// Needs of scenarios with mounts, and keys from a web server.
pub const WEB: &[Need] = &[Need::Fuse, Need::Web];
/// Needs of scenarios with files in memory.
pub const SHM: &[Need] = &[Need::Shm];

/// True when a need is not met, and `what` may be left out for that.
pub fn lacks_any(needs: &[Need], what: &str) -> Result<bool, Missing> {
    for &need in needs {
        if need::lacks(need, what)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Does [`lacks_any`] before a whole campaign; `Err` says how the campaign ends.
pub fn begins(needs: &[Need], what: &str) -> Result<(), bool> {
    match lacks_any(needs, what) {
        Ok(false) => Ok(()),
        Ok(true) => Err(true),
        Err(missing) => {
            println!("FAIL  {missing}");
            Err(false)
        }
    }
}
