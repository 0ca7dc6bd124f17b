//! Where an ordinary user's daemon can mount nothing: inside of its own mounts, which nobody else may enter, fusermount3 included. A file
//! system with such a place would be a directory of the one around it, and what is written there would be in the wrong one.

use crate::failure::because;
use crate::mount::place::{below_altroot, place_of};
use crate::mount::whereabouts::resolved;
use crate::pool::{OpenPool, Pools};
use control_api::{DatasetCreate, ErrorKind, Failure};
use std::path::Path;

/// Refuses a place inside of a mount of this daemon, where it may not mount; `what` cannot be done then.
pub(crate) fn check_enclosed(pools: &Pools, what: &str, name: &str, place: &Path) -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let place = resolved(place);
    let mounts = pools.mounts();
    let around = mounts.iter().filter(|(own, at)| own != name && place != Path::new(at) && place.starts_with(at));
    let Some((own, _)) = around.max_by_key(|(_, at)| at.len()) else { return Ok(()) };
    let why = format!("mountpoint '{}' lies in the mount of '{own}', where an ordinary user can mount nothing", place.display());
    let verb = if what.starts_with("cannot create") { "zfs create -o" } else { "zfs set" };
    Err(because(ErrorKind::Permission, what, why)
        .advise(format!("give it a place outside of it ('{verb} mountpoint=/PATH {name}'), or none ('{verb} canmount=noauto {name}')")))
}

/// Name of another file system that is mounted at just this place.
fn occupant<'a>(mounts: &'a [(String, String)], name: &str, place: &Path) -> Option<&'a str> {
    mounts.iter().find(|(own, at)| own != name && place == Path::new(at)).map(|(own, _)| own.as_str())
}

/// Failure to mount with its reason, where that is another mount of this daemon at the same place: fusermount3 may not enter that one either.
pub(crate) fn explained(pools: &Pools, failure: Failure, name: &str, place: &Path) -> Failure {
    if rustix::process::geteuid().is_root() || failure.kind != ErrorKind::Permission {
        return failure;
    }
    let (mounts, place) = (pools.mounts(), resolved(place));
    let Some(own) = occupant(&mounts, name, &place) else { return failure };
    let why = format!("'{own}' is mounted at '{}', and an ordinary user can mount nothing over it", place.display());
    because(ErrorKind::Permission, failure.what, why)
        .advise(format!("unmount that one first, or give this one another place ('zfs set mountpoint=/PATH {name}')"))
}

/// Refuses a file system that could not be mounted for that reason, before it is made.
pub(crate) fn check_new_place(pools: &Pools, pool: &OpenPool, request: &DatasetCreate) -> Result<(), Failure> {
    let is_wanted = request.properties.get("canmount").is_none_or(|value| value == "on");
    let Some((parent, last)) = request.name.rsplit_once('/').filter(|_| is_wanted && !request.no_mount) else { return Ok(()) };
    let place = match request.properties.get("mountpoint") {
        Some(own) => below_altroot(pool, own),
        // A parent that is not there is reported as that.
        None => pool
            .dsl()
            .hold(parent)
            .ok()
            .and_then(|handle| place_of(pool, &handle).ok())
            .map_or_else(String::new, |(above, _)| format!("{}/{last}", above.trim_end_matches('/'))),
    };
    if !place.starts_with('/') {
        return Ok(());
    }
    check_enclosed(pools, &format!("cannot create '{}'", request.name), &request.name, Path::new(&place))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, whoever receives a copy with its mountpoint is told of permissions, and not that the original is mounted there.
    #[test]
    fn another_file_system_at_the_same_place_is_named() {
        let mounts = [("p/a", "/m/a"), ("p/b", "/m/a/b")].map(|(name, at)| (name.to_string(), at.to_string()));
        assert_eq!(occupant(&mounts, "p/r", Path::new("/m/a")), Some("p/a"));
        assert_eq!(occupant(&mounts, "p/a", Path::new("/m/a")), None, "it is that one itself");
        assert_eq!(occupant(&mounts, "p/r", Path::new("/m")), None);
    }
}
