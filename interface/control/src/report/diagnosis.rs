//! What `zpool status` says is wrong with a pool, and what to do: OpenZFS's order of problems, its words and message numbers
//! (`libzfs_status.c: check_status`, `zpool_main.c: print_status_reason`). Texts have their line breaks, since scripts look for lines.

use control_api::{RebuildReport, ScanReport, VdevReport};
use std::path::Path;

/// Problem of a pool, and what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Diagnosis {
    /// Number of OpenZFS's page about it; some problems have none.
    pub message_id: Option<&'static str>,
    /// Text that says what is wrong.
    pub status: &'static str,
    /// Text that says what to do.
    pub action: &'static str,
    /// True when the pool works as it should: `zpool status -x` is silent about that.
    pub is_remark: bool,
}

const fn problem(message_id: Option<&'static str>, status: &'static str, action: &'static str) -> Diagnosis {
    Diagnosis { message_id, status, action, is_remark: false }
}

const RESILVERING: Diagnosis = problem(
    None,
    "One or more devices is currently being resilvered.  The pool will\n\tcontinue to function, possibly in a degraded state.",
    "Wait for the resilver to complete.",
);
const REBUILD_SCRUB: Diagnosis = problem(
    None,
    "One or more devices have been sequentially resilvered, scrubbing\n\tthe pool is recommended.",
    "Use 'zpool scrub' to verify all data checksums.",
);
const SUSPENDED: &str = "One or more devices are faulted in response to IO failures.";
const RECONNECT: &str = zio::SUSPENDED_ACTION;
const SUSPENDED_WAIT: Diagnosis = problem(Some("ZFS-8000-HC"), SUSPENDED, RECONNECT);
const SUSPENDED_CONTINUE: Diagnosis = problem(Some("ZFS-8000-JQ"), SUSPENDED, RECONNECT);
const SUSPENDED_MULTIHOST: Diagnosis = problem(
    Some("ZFS-8000-MM"),
    "The pool is suspended because multihost writes failed or were delayed;\n\tanother system could import the pool undetected.",
    "Make sure the pool's devices are connected, then reboot your system and\n\timport the pool or run 'zpool clear' to resume the pool.",
);
const FAULTED_NO_REPLICAS: Diagnosis = problem(
    None,
    "One or more devices are faulted in response to persistent errors.  There are insufficient replicas for the pool to\n\tcontinue functioning.",
    "Destroy and re-create the pool from a backup source.  Manually marking the device\n\trepaired using 'zpool clear' may allow some data to be recovered.",
);
const ONLINE_IT: &str = "Attach the missing device and online it using 'zpool online'.";
const MISSING_NO_REPLICAS: Diagnosis = problem(
    Some("ZFS-8000-3C"),
    "One or more devices could not be opened.  There are insufficient\n\treplicas for the pool to continue functioning.",
    ONLINE_IT,
);
const LABEL_NO_REPLICAS: Diagnosis = problem(
    Some("ZFS-8000-5E"),
    "One or more devices could not be used because the label is missing \n\tor invalid.  There are insufficient replicas for the pool to continue\n\tfunctioning.",
    "Destroy and re-create the pool from\n\ta backup source.",
);
const DAMAGED_DATA: Diagnosis = problem(
    Some("ZFS-8000-8A"),
    "One or more devices has experienced an error resulting in data\n\tcorruption.  Applications may be affected.",
    "Restore the file in question if possible.  Otherwise restore the\n\tentire pool from backup.",
);
const FAULTED: Diagnosis = problem(
    None,
    "One or more devices are faulted in response to persistent errors.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
    "Replace the faulted device, or use 'zpool clear' to mark the device\n\trepaired.",
);
const MISSING: Diagnosis = problem(
    Some("ZFS-8000-2Q"),
    "One or more devices could not be opened.  Sufficient replicas exist for\n\tthe pool to continue functioning in a degraded state.",
    ONLINE_IT,
);
const LABEL: Diagnosis = problem(
    Some("ZFS-8000-4J"),
    "One or more devices could not be used because the label is missing or\n\tinvalid.  Sufficient replicas exist for the pool to continue\n\tfunctioning in a degraded state.",
    "Replace the device using 'zpool replace'.",
);
const ERRORS: Diagnosis = problem(
    Some("ZFS-8000-9P"),
    "One or more devices has experienced an unrecoverable error.  An\n\tattempt was made to correct the error.  Applications are unaffected.",
    "Determine if the device needs to be replaced, and clear the errors\n\tusing 'zpool clear' or replace the device with 'zpool replace'.",
);
const OFFLINE: Diagnosis = problem(
    None,
    "One or more devices has been taken offline by the administrator.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
    "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.",
);
const REMOVED: Diagnosis = problem(
    None,
    "One or more devices has been removed by the administrator.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
    "Online the device using zpool online' or replace the device with\n\t'zpool replace'.",
);
const OLD_KEYS: Diagnosis = problem(
    Some("ZFS-8000-ER"),
    "Errata #3 detected.\n\tExisting encrypted datasets contain an on-disk incompatibility\n\twhich needs to be corrected.",
    "To correct the issue backup existing encrypted datasets to new\n\tencrypted datasets and destroy the old ones. 'zfs mount -o ro' can\n\tbe used to temporarily mount existing encrypted datasets readonly.",
);
const NAMELESS_IV_SETS: Diagnosis = problem(
    Some("ZFS-8000-ER"),
    "Errata #4 detected.\n\tExisting encrypted snapshots and bookmarks contain an on-disk\n\tincompatibility. This may cause on-disk corruption if they are used\n\twith 'zfs recv'.",
    "To correct the issue, enable the bookmark_v2 feature. No additional\n\taction is needed if there are no encrypted snapshots or bookmarks.\n\tIf preserving the encrypted snapshots and bookmarks is required, use\n\ta non-raw send to backup and restore them. Alternately, they may be\n\tremoved to resolve the incompatibility.",
);
const OLD_VERSION: Diagnosis = Diagnosis {
    message_id: None,
    status: "The pool is formatted using a legacy on-disk format.  The pool can\n\tstill be used, but some features are unavailable.",
    action: "Upgrade the pool using 'zpool upgrade'.  Once this is done, the\n\tpool will no longer be accessible on software that does not support\n\tfeature flags.",
    is_remark: true,
};
const FEATURES_OFF: Diagnosis = Diagnosis {
    message_id: None,
    status: "Some supported and requested features are not enabled on the pool.\n\tThe pool can still be used, but some features are unavailable.",
    action: "Enable all features using 'zpool upgrade'. Once this is done,\n\tthe pool may no longer be accessible by software that does not support\n\tthe features. See zpool-features(7) for details.",
    is_remark: true,
};
const FEATURES_UNTOLD: Diagnosis = Diagnosis {
    message_id: None,
    status: "This pool has a compatibility list specified, but it could not be\n\tread/parsed at this time. The pool can still be used, but this\n\tshould be investigated.",
    action: "Check the value of the 'compatibility' property against the\n\tappropriate file in /etc/zfs/compatibility.d or /usr/share/zfs/compatibility.d.",
    is_remark: true,
};
const FEATURES_BEYOND: Diagnosis = Diagnosis {
    message_id: None,
    status: "One or more features are enabled on the pool despite not being\n\trequested by the 'compatibility' property.",
    action: "Consider setting 'compatibility' to an appropriate value, or\n\tadding needed features to the relevant file in\n\t/etc/zfs/compatibility.d or /usr/share/zfs/compatibility.d.",
    is_remark: true,
};

/// Ways in which version and features of a pool fit its property `compatibility`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Nothing to say.
    Whole,
    /// Pool of a version before feature flags, which is not said to be for old systems.
    OldVersion,
    /// A feature that pools made here have, and that is wanted, is not enabled.
    Lacking,
    /// A feature is enabled that is not among those that are wanted.
    Beyond,
    /// Files with the features that are wanted cannot be read.
    Untold,
}

/// Facts about a pool that a diagnosis goes by.
pub(crate) struct Facts<'a> {
    /// Tree of vdevs with their states and counters.
    pub vdevs: &'a VdevReport,
    /// Flag of a pool that waits for its devices, None of others: true when it goes on with errors meanwhile (`failmode=continue`).
    pub suspended: Option<bool>,
    /// True of one that is suspended because its heartbeats failed or were late.
    pub has_missed_heartbeats: bool,
    /// Number of damaged blocks.
    pub error_count: u64,
    /// Report of the last scan.
    pub scan: Option<&'a ScanReport>,
    /// Reports of sequential rebuilds.
    pub rebuilds: &'a [RebuildReport],
    /// Number of the erratum that its datasets have; 0 without one.
    pub erratum: u64,
    /// Fit of the pool's features and the property `compatibility`.
    pub fit: Fit,
}

/// True when `is_so` holds for a leaf; what is being replaced does not count, since that is being mended.
fn any(vdev: &VdevReport, is_so: &dyn Fn(&VdevReport) -> bool) -> bool {
    match (vdev.kind.as_str(), vdev.children.is_empty()) {
        ("replacing", _) => false,
        (_, true) => is_so(vdev),
        (_, false) => vdev.children.iter().any(|child| any(child, is_so)),
    }
}

/// True when there is something at the device's place, but not the device.
fn has_wrong_label(vdev: &VdevReport) -> bool {
    vdev.state == "UNAVAIL" && vdev.path.as_ref().is_some_and(|path| Path::new(path).exists())
}

/// First problem that a pool has, in OpenZFS's order.
pub(crate) fn diagnose(facts: &Facts<'_>) -> Option<Diagnosis> {
    let is_in = |state: &'static str| any(facts.vdevs, &move |vdev| vdev.state == state);
    let scans = |function: &str, state: &str| facts.scan.is_some_and(|scan| scan.function == function && scan.state == state);
    if scans("resilver", "scanning") || facts.rebuilds.iter().any(|rebuild| rebuild.state == "active") {
        return Some(RESILVERING);
    }
    let rebuilt = facts.rebuilds.iter().filter(|rebuild| rebuild.state == "complete").map(|rebuild| rebuild.end_time).max();
    if let Some(rebuilt) = rebuilt {
        let is_unverified = match facts.scan {
            None => true,
            Some(scan) => scan.function == "scrub" && scan.state == "finished" && rebuilt > scan.end_time,
        };
        if is_unverified {
            return Some(REBUILD_SCRUB);
        }
    }
    match facts.suspended {
        Some(_) if facts.has_missed_heartbeats => return Some(SUSPENDED_MULTIHOST),
        Some(true) => return Some(SUSPENDED_CONTINUE),
        Some(false) => return Some(SUSPENDED_WAIT),
        None => {}
    }
    let has_wrong_label = any(facts.vdevs, &has_wrong_label);
    let is_missing = any(facts.vdevs, &|vdev| vdev.state == "UNAVAIL" && !self::has_wrong_label(vdev));
    let is_faulted = is_in("FAULTED");
    let is_open = !matches!(facts.vdevs.state.as_str(), "UNAVAIL" | "FAULTED");
    let has_errors = any(facts.vdevs, &|vdev| vdev.state == "DEGRADED" || vdev.read_errors + vdev.write_errors + vdev.checksum_errors > 0);
    let found = [
        (!is_open && is_faulted, FAULTED_NO_REPLICAS),
        (!is_open && is_missing, MISSING_NO_REPLICAS),
        (!is_open && has_wrong_label, LABEL_NO_REPLICAS),
        (facts.error_count > 0, DAMAGED_DATA),
        (is_faulted, FAULTED),
        (is_missing, MISSING),
        (has_wrong_label, LABEL),
        (has_errors, ERRORS),
        (is_in("OFFLINE"), OFFLINE),
        (is_in("REMOVED"), REMOVED),
        (facts.erratum == 3, OLD_KEYS),
        (facts.erratum == 4, NAMELESS_IV_SETS),
        (facts.fit == Fit::OldVersion, OLD_VERSION),
        (facts.fit == Fit::Untold, FEATURES_UNTOLD),
        (facts.fit == Fit::Lacking, FEATURES_OFF),
        (facts.fit == Fit::Beyond, FEATURES_BEYOND),
    ];
    found.into_iter().find(|(is_so, _)| *is_so).map(|(_, diagnosis)| diagnosis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(state: &str) -> VdevReport {
        VdevReport { kind: "disk".into(), state: state.into(), path: Some(format!("/nowhere/{state}")), ..VdevReport::default() }
    }

    fn mirror(state: &str, children: Vec<VdevReport>) -> VdevReport {
        let mirror = VdevReport { kind: "mirror".into(), state: state.into(), children, ..VdevReport::default() };
        VdevReport { kind: "root".into(), state: state.into(), children: vec![mirror], ..VdevReport::default() }
    }

    fn id<'a>(vdevs: &'a VdevReport, change: impl FnOnce(&mut Facts<'a>)) -> (Option<&'static str>, &'static str) {
        let mut facts = Facts {
            vdevs,
            suspended: None,
            has_missed_heartbeats: false,
            error_count: 0,
            scan: None,
            rebuilds: &[],
            erratum: 0,
            fit: Fit::Whole,
        };
        change(&mut facts);
        diagnose(&facts).map_or((None, ""), |found| (found.message_id, found.action.split(' ').next().unwrap_or_default()))
    }

    /// Monitoring and people act on these numbers: a wrong one sends them after the wrong trouble.
    #[test]
    fn each_problem_has_openzfs_s_number() {
        let degraded = |state: &str| mirror("DEGRADED", vec![leaf("ONLINE"), leaf(state)]);
        let lost = |state: &str| mirror("UNAVAIL", vec![leaf(state), leaf(state)]);
        let healthy = mirror("ONLINE", vec![leaf("ONLINE"), leaf("ONLINE")]);
        assert_eq!(id(&healthy, |_| {}), (None, ""));
        assert_eq!(id(&degraded("UNAVAIL"), |_| {}), (Some("ZFS-8000-2Q"), "Attach"));
        assert_eq!(id(&degraded("FAULTED"), |_| {}), (None, "Replace"));
        assert_eq!(id(&degraded("DEGRADED"), |_| {}), (Some("ZFS-8000-9P"), "Determine"), "too many checksum errors");
        assert_eq!(id(&degraded("OFFLINE"), |_| {}), (None, "Online"));
        assert_eq!(id(&degraded("REMOVED"), |_| {}), (None, "Online"));
        assert_eq!(id(&lost("UNAVAIL"), |_| {}), (Some("ZFS-8000-3C"), "Attach"));
        assert_eq!(id(&lost("FAULTED"), |_| {}), (None, "Destroy"));
        assert_eq!(id(&healthy, |facts| facts.error_count = 1), (Some("ZFS-8000-8A"), "Restore"));
        assert_eq!(id(&degraded("OFFLINE"), |facts| facts.suspended = Some(false)), (Some("ZFS-8000-HC"), "Make"));
        assert_eq!(id(&degraded("OFFLINE"), |facts| facts.suspended = Some(true)), (Some("ZFS-8000-JQ"), "Make"));
        let missed = |facts: &mut Facts<'_>| (facts.suspended, facts.has_missed_heartbeats) = (Some(false), true);
        assert_eq!(id(&degraded("OFFLINE"), missed), (Some("ZFS-8000-MM"), "Make"));
        assert_eq!(id(&healthy, |facts| facts.fit = Fit::OldVersion), (None, "Upgrade"));
        for erratum in [3, 4] {
            assert_eq!(
                id(&healthy, |facts| (facts.erratum, facts.fit) = (erratum, Fit::Lacking)),
                (Some("ZFS-8000-ER"), "To"),
                "{erratum}"
            );
        }
        assert_eq!(id(&healthy, |facts| facts.fit = Fit::Lacking), (None, "Enable"));
        assert_eq!(id(&healthy, |facts| facts.fit = Fit::Beyond), (None, "Consider"));
        assert_eq!(id(&healthy, |facts| facts.fit = Fit::Untold), (None, "Check"));
        let here = VdevReport { path: Some("/dev/null".into()), ..leaf("UNAVAIL") };
        assert_eq!(id(&mirror("DEGRADED", vec![leaf("ONLINE"), here]), |_| {}), (Some("ZFS-8000-4J"), "Replace"));
        let errors = VdevReport { checksum_errors: 3, ..leaf("ONLINE") };
        assert_eq!(id(&mirror("ONLINE", vec![leaf("ONLINE"), errors]), |_| {}), (Some("ZFS-8000-9P"), "Determine"));
    }

    /// What is being mended is said first, and what is being replaced is no trouble of its own.
    #[test]
    fn work_under_way_comes_first() {
        let scan = |function: &str, state: &str| ScanReport {
            function: function.into(),
            state: state.into(),
            end_time: 50,
            ..ScanReport::default()
        };
        let degraded = mirror("DEGRADED", vec![leaf("ONLINE"), leaf("UNAVAIL")]);
        let resilver = scan("resilver", "scanning");
        assert_eq!(id(&degraded, |facts| (facts.scan, facts.suspended) = (Some(&resilver), Some(false))), (None, "Wait"));
        let rebuilt = [RebuildReport { state: "complete".into(), end_time: 60, ..RebuildReport::default() }];
        let scrub = scan("scrub", "finished");
        let healthy = mirror("ONLINE", vec![leaf("ONLINE")]);
        assert_eq!(id(&healthy, |facts| (facts.rebuilds, facts.scan) = (&rebuilt, Some(&scrub))), (None, "Use"));
        let later = ScanReport { end_time: 70, ..scrub.clone() };
        assert_eq!(id(&healthy, |facts| (facts.rebuilds, facts.scan) = (&rebuilt, Some(&later))), (None, ""));
        let replacing =
            VdevReport { kind: "replacing".into(), state: "DEGRADED".into(), children: vec![leaf("UNAVAIL")], ..VdevReport::default() };
        assert_eq!(id(&mirror("DEGRADED", vec![replacing]), |_| {}), (None, ""));
    }
}
