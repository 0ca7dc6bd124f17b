//! What `zpool import` says of a pool that is not open: its state, whether it can be imported, why not, and what to do (OpenZFS:
//! `zpool_import_status`, `show_import`; its words, with their line breaks, since scripts look for lines).

use crate::failure::GIVE_HOSTID;
use crate::report::pictures;
use control_api::{ImportCandidate, VdevReport, shown};
use exec::Exec;
use pool::{Examined, FoundPool, PoolError, PoolState};
use std::sync::Arc;

const MISSING: &str = "One or more devices are missing from the system.";
const DESPITE: &str =
    "The pool can be imported despite missing or damaged devices.  The\n\tfault tolerance of the pool may be compromised if imported.";
const ATTACH: &str = "The pool cannot be imported. Attach the missing\n\tdevices and try again.";
const BY_NAME: &str = "The pool can be imported using its name or numeric identifier.";
const DESTROYED: &str = "The pool was destroyed, but can be imported using the '-Df' flags.";
const WITH_FORCE: &str = "The pool can be imported using its name or numeric identifier and\n\tthe '-f' flag.";
const WITHOUT_SOME: &str = "The pool can be imported using its name or numeric identifier, though\n\tsome features will not be available without an explicit 'zpool upgrade'.";
const ACTIVE: &str = "The pool is currently imported by another system.";
const HELD: &str = "The pool, or a device of it, is in use by another process of this system.";
const LET_GO: &str = "The pool cannot be imported until that process has let it go: export it\n\tthere, or end what has its devices open.";
const NO_HOSTID: &str = "The pool has the multihost property on.  It cannot\n\tbe safely imported when the system hostid is not set.";
const SALT: &str = "The salt of the pool's skein, edonr and blake3 checksums is missing or damaged.";
const BIAS: &str = "Nobody knows which blocks one of the pool's devices is for.";
const LEGACY: &str = "The pool is formatted using a legacy on-disk version.";

/// Words about a pool in the listing.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    status: Option<String>,
    action: String,
    message_id: Option<&'static str>,
    /// State and the remark behind it, if the state is another than that of its vdevs.
    state: Option<(&'static str, &'static str)>,
    features: Vec<String>,
    /// True when nobody knows all of its vdevs.
    has_more_devices: bool,
}

fn said(status: &str, action: &str) -> Said {
    Said { status: (!status.is_empty()).then(|| status.to_string()), action: action.to_string(), ..Said::default() }
}

/// Words about a pool that cannot be imported as it is.
fn refused(problem: &PoolError) -> Said {
    let unavailable = |remark| Some(("UNAVAIL", remark));
    match problem {
        PoolError::UnsupportedVersion(_) => Said {
            message_id: Some("ZFS-8000-A5"),
            state: unavailable("newer version"),
            ..said(
                "The pool is formatted using an incompatible version.",
                "The pool cannot be imported.  Access the pool on a system running newer\n\tsoftware, or recreate the pool from backup.",
            )
        },
        PoolError::UnsupportedFeatures { features, read_only: false } => Said {
            state: unavailable("unsupported feature(s)"),
            features: features.clone(),
            ..said(
                "The pool uses the following feature(s) not supported on this system:",
                "The pool cannot be imported. Access the pool on a system that supports\n\tthe required feature(s), or recreate the pool from backup.",
            )
        },
        PoolError::UnsupportedFeatures { features, read_only: true } => Said {
            state: unavailable("unsupported feature(s)"),
            features: features.clone(),
            ..said(
                "The pool can only be accessed in read-only mode on this system. It\n\tcannot be accessed in read-write mode because it uses the following\n\tfeature(s) not supported on this system:",
                "The pool cannot be imported in read-write mode. Import the pool with\n\t\"-o readonly=on\", access the pool on a system that supports the\n\trequired feature(s), or recreate the pool from backup.",
            )
        },
        PoolError::MissingVdev(_) => {
            Said { message_id: Some("ZFS-8000-6X"), state: unavailable("missing device"), has_more_devices: true, ..said(MISSING, ATTACH) }
        }
        PoolError::MissingDevices(_) => {
            Said { message_id: Some("ZFS-8000-3C"), state: unavailable("insufficient replicas"), ..said(MISSING, ATTACH) }
        }
        PoolError::Active { hostid, hostname } => {
            let from =
                format!("The pool must be exported from {} (hostid={hostid:x})\n\tbefore it can be safely imported.", shown(hostname));
            Said { message_id: Some("ZFS-8000-EY"), state: unavailable("currently in use"), ..said(ACTIVE, &from) }
        }
        PoolError::NoHostid => {
            Said { message_id: Some("ZFS-8000-EY"), state: unavailable("currently in use"), ..said(NO_HOSTID, &GIVE_HOSTID.join("\n\t")) }
        }
        PoolError::IntentLogs(datasets) => {
            let status = format!("The intent logs of the following file systems cannot be replayed here:\n\t{}", datasets.join("\n\t"));
            let action = "The pool cannot be imported in read-write mode. Import the pool with\n\t\"-o readonly=on\", or import it with OpenZFS, mount them and export it.";
            said(&status, action)
        }
        PoolError::Salt { .. } | PoolError::Bias(..) => {
            let status = if matches!(problem, PoolError::Bias(..)) { BIAS } else { SALT };
            let action = "The pool cannot be imported in read-write mode. Import the pool with\n\t\"-o readonly=on\", or recreate the pool from backup.";
            Said { message_id: Some("ZFS-8000-72"), state: Some(("FAULTED", "corrupted data")), ..said(status, action) }
        }
        _ => Said {
            message_id: Some("ZFS-8000-72"),
            state: Some(("FAULTED", "corrupted data")),
            ..said("The pool metadata is corrupted.", "The pool cannot be imported due to damaged devices or data.")
        },
    }
}

/// Words about a pool whose devices somebody else on this machine has.
fn held() -> Said {
    Said { message_id: Some("ZFS-8000-EY"), state: Some(("UNAVAIL", "currently in use")), ..said(HELD, LET_GO) }
}

/// Words about a pool that can be imported.
fn welcome(found: &FoundPool, examined: &Examined, vdevs: &VdevReport) -> Said {
    if vdevs.state != "ONLINE" {
        // Of a log device nothing else is needed than that somebody says so.
        let lacks_log = vdevs.children.iter().any(|top| top.is_log && top.state == "UNAVAIL");
        let action = if lacks_log { format!("{DESPITE}\n\tIts log devices are missing: use the '-m' flag.") } else { DESPITE.to_string() };
        return Said { message_id: Some("ZFS-8000-2Q"), ..said(MISSING, &action) };
    }
    if found.version() < pool::VERSION_WITH_FEATURES {
        return said(LEGACY, WITHOUT_SOME);
    }
    if examined.lacks_features {
        let status = "Some supported features are not enabled on the pool.\n\t(Note that they may be intentionally disabled if the\n\t'compatibility' property is set.)";
        return said(status, WITHOUT_SOME);
    }
    said("", BY_NAME)
}

/// Says why vdevs are not there, as a listing without counters does.
fn annotate(vdev: &mut VdevReport) {
    vdev.children.iter_mut().for_each(annotate);
    vdev.note = match (vdev.state.as_str(), vdev.children.is_empty()) {
        ("UNAVAIL", true) if vdev.kind == "missing" => None,
        ("UNAVAIL", true) => Some("cannot open".to_string()),
        ("UNAVAIL", false) => Some("insufficient replicas".to_string()),
        _ => vdev.note.take().filter(|_| vdev.state != "ONLINE"),
    };
}

/// Entry of one pool in the listing, which somebody else on this machine has where it `is_held`. Waits, as an import does, where another
/// system may have the pool.
pub(crate) fn candidate(exec: &Exec, runtime: pool::Runtime, found: &FoundPool, hostid: u64, is_held: bool) -> ImportCandidate {
    // Nobody is told of what is wrong with a pool that is not open.
    let runtime = pool::Runtime { events: Arc::new(kstat::NoEvents), providers: None, ..runtime };
    let examined = found.examine(exec, &runtime);
    let name = shown(found.name()).into_owned();
    let mut vdevs = examined.tree.as_ref().map(|tree| pictures::tree(&name, tree, None)).unwrap_or_default();
    annotate(&mut vdevs);
    let activity = if is_held { None } else { found.look_for_activity(exec, hostid, &runtime.multihost).err() };
    let problem = activity.as_ref().or(examined.problem.as_ref());
    let mut said = match problem {
        _ if is_held => held(),
        Some(problem) => refused(problem),
        None => welcome(found, &examined, &vdevs),
    };
    let is_free = problem.is_none() && !is_held;
    let (last, hostname) = found.host();
    if is_free && found.state() == PoolState::Active && last != 0 && last != hostid {
        said.status = Some(format!("The pool was last accessed by another system ('{}', hostid {last:x}).", shown(hostname)));
        said.message_id = Some("ZFS-8000-EY");
        said.action = if vdevs.state == "ONLINE" { WITH_FORCE.to_string() } else { said.action };
    }
    if found.state() == PoolState::Destroyed && is_free {
        said.action = DESTROYED.to_string();
    }
    if let Some((state, note)) = said.state {
        (vdevs.name, vdevs.state, vdevs.note) = (name.clone(), state.to_string(), Some(note.to_string()));
    }
    ImportCandidate {
        name,
        guid: found.guid().0,
        state: vdevs.state.clone(),
        is_destroyed: found.state() == PoolState::Destroyed,
        status: said.status,
        action: Some(said.action),
        message_id: said.message_id.map(String::from),
        comment: found.comment().map(|comment| shown(comment).into_owned()),
        vdevs,
        unsupported_features: said.features,
        has_more_devices: said.has_more_devices,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever finds a pool from elsewhere is told there what to do about it; if this fails, the listing says that it can be imported and the
    /// import then refuses it, or the other way round.
    #[test]
    fn every_obstacle_has_its_state_and_its_way_out() {
        let features = || vec!["com.example:new".to_string()];
        for (problem, state, action) in [
            (PoolError::UnsupportedVersion(6000), Some("UNAVAIL"), "a system running newer"),
            (
                PoolError::UnsupportedFeatures { features: features(), read_only: false },
                Some("UNAVAIL"),
                "cannot be imported. Access the pool",
            ),
            (PoolError::UnsupportedFeatures { features: features(), read_only: true }, Some("UNAVAIL"), "\"-o readonly=on\""),
            (PoolError::MissingDevices(Vec::new()), Some("UNAVAIL"), "Attach the missing"),
            (PoolError::MissingVdev(ondisk::VdevId(1)), Some("UNAVAIL"), "Attach the missing"),
            (PoolError::Active { hostid: 26, hostname: "other".into() }, Some("UNAVAIL"), "exported from other (hostid=1a)"),
            (PoolError::NoHostid, Some("UNAVAIL"), "zgenhostid(8) command.\n\t'zirconia hostid' does that"),
            (PoolError::IntentLogs(vec!["tank/a".into()]), None, "\"-o readonly=on\""),
            (PoolError::Salt { is_missing: true }, Some("FAULTED"), "\"-o readonly=on\""),
            (PoolError::Bias(ondisk::Guid(1), zap::ZapError::WrongType), Some("FAULTED"), "\"-o readonly=on\""),
            (PoolError::NoUberblock, Some("FAULTED"), "due to damaged devices or data"),
        ] {
            let said = refused(&problem);
            assert_eq!(said.state.map(|(state, _)| state), state, "{problem:?}");
            assert!(said.action.contains(action), "{problem:?}: {}", said.action);
            assert!(said.status.is_some(), "{problem:?}");
        }
    }
}
