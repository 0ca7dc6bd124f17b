//! Turning the engine's typed errors into one clear message: what, why, next step.

use control_api::{ErrorKind, Failure};
use dsl::DslError;
use pool::{PoolError, ScanError};
use std::fmt::Display;

/// Failure of what needs a thread that the system does not start.
pub fn no_thread(what: impl Into<String>) -> Failure {
    let advice = "nothing was done: end other programs, or raise the limit ('prlimit --nproc', LimitNPROC=, TasksMax=), and try again";
    Failure::new(ErrorKind::Busy, what, exec::NoThread.to_string()).advise(advice)
}

/// Failure of a dataset operation on `name`: `cannot VERB 'name': …`.
pub fn dataset(verb: &str, name: &str, error: &DslError) -> Failure {
    let failure = Failure::new(kind(error), format!("cannot {verb} '{name}'"), reason(verb, error));
    match error {
        DslError::HasChildren => failure.advise("use '-r' to destroy the following datasets too: its children and their snapshots"),
        DslError::HasSnapshots => failure.advise("use '-r' to destroy its snapshots too"),
        DslError::Busy => failure.advise("unmount it first, or see what has files open there (lsof, fuser)"),
        DslError::LogWaits => failure.advise("the daemon's log says why; 'zfs unload-key' and 'zfs load-key' try it again"),
        DslError::NoSpace => failure.advise("destroy snapshots or files that are not needed, or add devices"),
        DslError::Quota => failure.advise("raise the quota of the dataset or of its parents, or remove files"),
        _ => failure,
    }
}

/// Reason of a failure, as far as it hangs on the verb: what a pool's version lacks is not always a property.
fn reason(verb: &str, error: &DslError) -> String {
    match (error, verb.split(' ').next()) {
        (DslError::OldVersion(_), Some("receive")) => "pool must be upgraded to receive this stream.".to_string(),
        (DslError::OldVersion(_), Some("destroy" | "hold")) => "pool must be upgraded".to_string(),
        _ => error.to_string(),
    }
}

fn kind(error: &DslError) -> ErrorKind {
    match error {
        DslError::NotFound => ErrorKind::NotFound,
        DslError::Exists | DslError::TagExists | DslError::Conflict { .. } => ErrorKind::Exists,
        DslError::NoSuchTag => ErrorKind::NotFound,
        DslError::Busy | DslError::HasChildren | DslError::HasSnapshots | DslError::HasClones | DslError::Held | DslError::LogWaits => {
            ErrorKind::Busy
        }
        DslError::Quota | DslError::NoSpace => ErrorKind::NoSpace,
        DslError::ReadOnly
        | DslError::ReadOnlyProperty
        | DslError::NoKey
        | DslError::OtherRoot
        | DslError::WrongKey
        | DslError::OtherKeys => ErrorKind::Permission,
        DslError::Unsupported | DslError::OldVersion(_) | DslError::NeedsFeature(_) | DslError::Encrypted => ErrorKind::Unsupported,
        DslError::Corrupt { .. } => ErrorKind::Damaged,
        DslError::Dmu(_) | DslError::Zap(_) | DslError::Sync(_) | DslError::Suspended => ErrorKind::Io,
        _ => ErrorKind::Invalid,
    }
}

/// Advice where this system has no id: OpenZFS's words, and the command of ours.
pub(crate) const GIVE_HOSTID: [&str; 2] =
    ["Set a unique system hostid with the zgenhostid(8) command.", "'zirconia hostid' does that, too."];

/// Failure with one clear message for a pool's error.
pub(crate) fn pool_failure(what: String, error: &PoolError) -> Failure {
    let kind = match error {
        PoolError::NotFound | PoolError::NoSuchDevice => ErrorKind::NotFound,
        PoolError::NoReplicas | PoolError::LogsWait(_) | PoolError::SpareInUse | PoolError::Rebuilding | PoolError::Expanding => {
            ErrorKind::Busy
        }
        PoolError::Scan(ScanError::Resilvering) => ErrorKind::Busy,
        PoolError::CheckpointExists | PoolError::DiscardingCheckpoint => ErrorKind::Busy,
        PoolError::NoCheckpoint => ErrorKind::NotFound,
        PoolError::NeedsFeature(_) | PoolError::VdevTooBig => ErrorKind::Unsupported,
        PoolError::AshiftMismatch | PoolError::NotRemoving => ErrorKind::Invalid,
        PoolError::Unremovable(_) => ErrorKind::Unsupported,
        PoolError::Ambiguous(_) | PoolError::Invalid(_) | PoolError::BadProperty | PoolError::BadValue => ErrorKind::Invalid,
        PoolError::UnsupportedFeatures { .. } | PoolError::UnsupportedVersion(_) => ErrorKind::Unsupported,
        PoolError::Active { .. } | PoolError::ActiveElsewhere | PoolError::NoHostid => ErrorKind::Busy,
        PoolError::InUse { .. } | PoolError::Destroyed | PoolError::Device { .. } | PoolError::Closed => ErrorKind::Busy,
        PoolError::ReadOnly => ErrorKind::Permission,
        PoolError::NoUberblock | PoolError::Corrupt(_) | PoolError::Salt { .. } | PoolError::SpaceMap(..) | PoolError::Object(..) => {
            ErrorKind::Damaged
        }
        PoolError::Unsound { .. } => ErrorKind::Damaged,
        _ => ErrorKind::Io,
    };
    let failure = Failure::new(kind, what, error.to_string());
    match error {
        PoolError::InUse { .. } => failure.advise(USED_ELSEWHERE),
        PoolError::Active { .. } => failure.advise(ACTIVE_ELSEWHERE),
        PoolError::Unclaimed => failure.advise("Clear the device errors, then run 'zpool import'."),
        PoolError::NoHostid => failure.advise(GIVE_HOSTID[1]),
        PoolError::ActiveElsewhere => {
            failure.advise("it has changed since this system was sure that it has it: 'zpool export -f' gives it up here")
        }
        PoolError::MissingLogs(paths) => {
            let which = if paths.is_empty() { String::new() } else { format!(": {}", paths.join(", ")) };
            failure.advise(format!("{NO_LOGS}{which}; use '-m' to import the pool anyway"))
        }
        PoolError::LogsWait(_) => failure.advise("load the key ('zfs load-key'), which replays the log, and then remove the device"),
        PoolError::Destroyed => failure.advise("import it with '-D' to bring it back"),
        PoolError::MissingDevices(_) | PoolError::MissingVdev(_) => failure
            .advise("attach the missing devices, name their directories with '-d', and try again; 'zpool import' shows which are missing"),
        PoolError::UnsupportedFeatures { read_only: true, .. } | PoolError::SpaceMap(..) | PoolError::Unsound { .. } => {
            failure.advise("import it with '-o readonly=on'")
        }
        PoolError::UnsupportedFeatures { .. } => {
            failure.advise("access the pool with a system that supports these features, or recreate it from backup")
        }
        PoolError::Device { problem: pool::DeviceProblem::InUse, .. } => failure.advise("use '-f' to override, which destroys that pool"),
        PoolError::Bias(..) => failure.advise("see to its devices and try again, or import it with '-o readonly=on'"),
        PoolError::Unwritable => {
            failure.advise("see to the devices (cables, room in the file system below them), or import it with '-o readonly=on'")
        }
        PoolError::CheckpointExists => failure.advise("'zpool checkpoint -d' discards it"),
        PoolError::DiscardingCheckpoint => failure.advise("'zpool wait -t discard' tells when that is done"),
        PoolError::NotFound => failure.advise("'zpool import -d DIR' lists what is found in a directory"),
        _ => failure,
    }
}

/// Advice about a pool that another system used last, in OpenZFS's words.
const USED_ELSEWHERE: &str = "The pool can be imported, use 'zpool import -f' to import the pool.";
/// Advice about a pool that another system has open, in OpenZFS's words.
const ACTIVE_ELSEWHERE: &str = "Export the pool on the other system, then run 'zpool import'.";

/// True for the failure of a pool that is another system's, as far as its labels say.
pub(crate) fn is_elsewhere(failure: &Failure) -> bool {
    matches!(failure.next.as_deref(), Some(USED_ELSEWHERE | ACTIVE_ELSEWHERE))
}

/// Beginning of the advice about a pool whose log devices are missing.
const NO_LOGS: &str = "its log devices are missing or corrupted";

/// True for the failure of a pool that would be open, but for its log devices.
pub(crate) fn lacks_logs(failure: &Failure) -> bool {
    failure.next.as_deref().is_some_and(|next| next.starts_with(NO_LOGS))
}

/// Failure of a request whose pool has to be brought back first.
pub(crate) fn suspended(what: String) -> Failure {
    because(ErrorKind::Io, what, "pool I/O is currently suspended")
}

/// Failure of a given kind about `what`.
pub fn because(kind: ErrorKind, what: impl Into<String>, why: impl Display) -> Failure {
    Failure::new(kind, what, why.to_string())
}

/// Reason why a file is not believed, with what can be done about it.
pub(crate) fn believable(why: &service::trust::Distrust) -> String {
    why.advice().map_or_else(|| why.to_string(), |advice| format!("{why}; {advice}"))
}

/// Failure of a `kind` that is made, and there, but not mounted (OpenZFS: `zfs_mount_and_share`).
pub(crate) fn made_unmounted(kind: &str, failure: Failure) -> Failure {
    let next = failure.next.map(|next| format!("\n{next}")).unwrap_or_default();
    let why = format!("{}{next}\n{kind} successfully created, but not mounted", failure.why);
    because(ErrorKind::NotMounted, failure.what, why)
}

/// Joins failures to one: the first, and the others below it.
pub fn joined(failures: Vec<Failure>) -> Result<(), Failure> {
    let mut failures = failures.into_iter();
    let Some(mut first) = failures.next() else { return Ok(()) };
    for other in failures {
        let next = first.next.take().map(|next| format!("\n{next}")).unwrap_or_default();
        first.why = format!("{}{next}\n{other}", first.why);
    }
    Err(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, somebody who destroys or receives looks for a property that was never set.
    #[test]
    fn what_a_version_lacks_is_told_in_words_of_the_verb() {
        let why = |verb| dataset(verb, "tank/a", &DslError::OldVersion(18)).why;
        assert_eq!(why("destroy snapshots"), "pool must be upgraded");
        assert_eq!(why("hold snapshot"), "pool must be upgraded");
        assert_eq!(why("receive"), "pool must be upgraded to receive this stream.");
        assert_eq!(why("set property for"), "pool must be upgraded to set this property or value");
    }
}
