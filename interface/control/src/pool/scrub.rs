//! `zpool scrub`, `zpool wait`, and what `zpool status` says of scans and damaged files.

use crate::device::devices::Devices;
use crate::device::names::find_leaf;
use crate::failure::{because, pool_failure};
use crate::pool::OpenPool;
use control_api::{ErrorKind, ErrorScrubReport, Failure, PoolScrub, Remark, Response, ScanReport, ScrubAction, WITHOUT_EFFECT};
use device::{DeviceError, OpenOptions};
use dmu::Objset;
use pool::{Damaged, Pool, PoolError, ScanError, ScanFunction, ScanState, SweepKind, SweepState, SweepStatus};
use std::collections::BTreeSet;
use std::sync::Arc;
use vdev::Leaf;
use zpl::{Settings, Zfs};

/// Number of levels of directories that a path may have before it is given up.
const PATH_DEPTH_MAX: usize = 256;

fn state_name(state: ScanState, paused_since: Option<u64>) -> &'static str {
    match (state, paused_since) {
        (ScanState::Scanning, Some(_)) => "paused",
        (ScanState::Scanning, None) => "scanning",
        (ScanState::Finished, _) => "finished",
        (ScanState::Canceled, _) => "canceled",
    }
}

impl OpenPool {
    /// Report of the running or last scan.
    pub fn scan_report(&self) -> Option<ScanReport> {
        let status = self.pool().scan_status()?;
        let state = state_name(status.state, status.paused_since);
        Some(ScanReport {
            function: if status.function == ScanFunction::Scrub { "scrub" } else { "resilver" }.to_string(),
            state: state.to_string(),
            start_time: status.start_time as i64,
            end_time: status.end_time as i64,
            pause_time: status.paused_since.unwrap_or(0) as i64,
            to_examine_bytes: status.to_examine,
            examined_bytes: status.examined,
            issued_bytes: status.issued,
            skipped_bytes: status.skipped,
            repaired_bytes: status.repaired,
            errors: status.errors,
            rate_bytes_per_second: status.rate,
            examined_bytes_per_second: status.examined_rate,
            seconds_left: status.seconds_left,
            pass_start: status.pass_start as i64,
            pass_examined_bytes: status.pass_examined,
            pass_issued_bytes: status.pass_issued,
            pass_paused_seconds: status.pass_spent_paused,
        })
    }

    /// Report of the running or last error scrub.
    pub fn error_scrub_report(&self) -> Option<ErrorScrubReport> {
        let status = self.pool().error_scrub_status()?;
        Some(ErrorScrubReport {
            state: state_name(status.state, status.paused_since).to_string(),
            start_time: status.start_time as i64,
            end_time: status.end_time as i64,
            pause_time: status.paused_since.unwrap_or(0) as i64,
            to_examine: status.to_examine,
            examined: status.examined,
        })
    }

    /// Background work that runs, by the names of `zpool wait`; of initializing and trimming only that of `devices`, if any are named.
    pub fn busy(&self, devices: &[String]) -> Vec<String> {
        let mut busy = Vec::new();
        // What is wanted is asked first: what begins in between is seen to run.
        let is_wanted = self.pool().is_resilver_wanted() || self.pool().is_rebuilding();
        let scrub_follows = !is_wanted && self.pool().is_rebuild_ending();
        if let Some(status) = self.pool().scan_status()
            && status.state == ScanState::Scanning
            && status.paused_since.is_none()
        {
            busy.push(if status.function == ScanFunction::Scrub { "scrub" } else { "resilver" }.to_string());
        }
        if is_wanted && !busy.iter().any(|activity| activity == "resilver") {
            busy.push("resilver".to_string());
        }
        let scrubs_errors = self.error_scrub_report().is_some_and(|report| report.state == "scanning");
        if scrubs_errors || scrub_follows && !busy.iter().any(|activity| activity == "scrub") {
            busy.push("scrub".to_string());
        }
        if self.pool().tree().is_replacing() && busy.iter().any(|activity| activity == "resilver") {
            busy.push("replace".to_string());
        }
        let tree = self.pool().tree();
        let leaves: Vec<_> = devices.iter().filter_map(|device| Some(find_leaf(&tree, device)?.guid)).collect();
        let is_asked = |sweep: &&SweepStatus| sweep.state == SweepState::Active && (devices.is_empty() || leaves.contains(&sweep.leaf));
        for sweep in self.pool().sweep_status().iter().filter(is_asked) {
            let name = if sweep.kind == SweepKind::Trim { "trim" } else { "initialize" };
            if !busy.iter().any(|activity| activity == name) {
                busy.push(name.to_string());
            }
        }
        if self.pool().is_expanding() {
            busy.push("raidz_expand".to_string());
        }
        if self.pool().is_removing() {
            busy.push("remove".to_string());
        }
        if self.pool().checkpoint().is_some_and(|known| known.is_discarding) {
            busy.push("discard".to_string());
        }
        if self.dsl().has_frees() {
            busy.push("free".to_string());
        }
        busy
    }

    /// Number of damaged blocks known, and the names of the files that have them when wanted: in every snapshot and clone.
    ///
    /// # Errors
    /// What keeps the error log from being read: then nobody knows how many there are.
    pub fn errors(&self, names: bool) -> Result<(u64, Vec<String>), PoolError> {
        let (count, damaged) = self.pool().damaged_counted()?;
        let objects: BTreeSet<(u64, u64)> = damaged.iter().map(|block: &Damaged| (block.objset.0, block.object.0)).collect();
        let list = if names { objects.iter().map(|(objset, object)| self.name_object(*objset, *object)).collect() } else { Vec::new() };
        Ok((count, list))
    }

    /// Name of an object: `pool/fs:/path`, or the numbers where there is no path.
    fn name_object(&self, objset: u64, object: u64) -> String {
        let numbers = format!("<0x{objset:x}>:<0x{object:x}>");
        if objset == 0 {
            return format!("<metadata>:<0x{object:x}>");
        }
        let Ok(handle) = self.dsl().hold_object(objset) else { return numbers };
        let name = handle.name();
        match handle.objset().ok().and_then(|objset| path_of(&objset, object)) {
            Some(path) => match self.mounts.mountpoint(&name) {
                Some(place) => format!("{}{path}", place.trim_end_matches('/')),
                None => format!("{name}:{path}"),
            },
            None => format!("{name}:<0x{object:x}>"),
        }
    }
}

/// Path of an object from the root of its file system, through the parents that nodes remember.
fn path_of(objset: &Arc<Objset>, object: u64) -> Option<String> {
    let zfs = Zfs::open(objset, None, Settings::default()).ok()?;
    let mut names = Vec::new();
    let mut at = ondisk::ObjectId(object);
    while at != zfs.root() {
        if names.len() >= PATH_DEPTH_MAX {
            return None;
        }
        let node = zfs.node(at).ok()?;
        let parent = zfs.node(ondisk::ObjectId(zfs.attribute(&node, zpl::Attr::Parent)?)).ok()?;
        let mut found = None;
        zfs.list(&parent, 0, &mut |entry| {
            if entry.dirent.object == at {
                found = Some(String::from_utf8_lossy(entry.name).into_owned());
            }
            found.is_none()
        })
        .ok()?;
        names.push(found?);
        at = parent.object();
    }
    names.reverse();
    Some(format!("/{}", names.join("/")))
}

/// Kind of failure that a refusal is; None for an error that is no refusal.
fn kind_of(error: &ScanError) -> Option<ErrorKind> {
    match error {
        ScanError::NotRunning => Some(ErrorKind::Invalid),
        ScanError::NoHeadErrlog => Some(ErrorKind::Unsupported),
        ScanError::Running
        | ScanError::Resilvering
        | ScanError::Paused
        | ScanError::PausedToCancel
        | ScanError::ErrorScrubbing
        | ScanError::ErrorScrubPaused => Some(ErrorKind::Busy),
        ScanError::Sync(_) | ScanError::Dmu(_) | ScanError::Zap(_) | ScanError::Corrupt => None,
    }
}

/// End of the path of a leaf that is being replaced by what is at its place now.
const OLD: &str = "/old";
/// Number of times that labels are looked at: while they are being written some are not whole.
const LABEL_LOOKS: u32 = 3;

/// False when there is nothing any more where a leaf's device was, or something else. What cannot be looked at is left to its errors.
fn is_at_its_place(devices: &Devices, pool: &Pool, leaf: &Leaf) -> bool {
    let options = OpenOptions { read_only: true, exclusive: false, ..OpenOptions::default() };
    if leaf.path.ends_with(OLD) {
        return true;
    }
    (0..LABEL_LOOKS).any(|_| match devices.open_at(&leaf.path, &options, "") {
        Ok(Ok(device)) => pool.is_labelled(&device, leaf.guid),
        Ok(Err(DeviceError::NotFound)) => false,
        _ => true,
    })
}

/// Does `zpool scrub`, `zpool resilver`.
pub(crate) fn scrub(devices: &Devices, request: &PoolScrub) -> Result<Response, Failure> {
    let open = devices.pools.open_pool(&request.pool)?;
    let pool = open.pool();
    if matches!(request.action, ScrubAction::Start | ScrubAction::StartFromLast) && !open.is_read_only() {
        pool.look_for_leaves(&|leaf| is_at_its_place(devices, pool, leaf));
    }
    let (what, done) = match request.action {
        ScrubAction::Start => (format!("cannot scrub {}", request.pool), pool.scrub_start()),
        ScrubAction::StartFromLast => (format!("cannot scrub {}", request.pool), pool.scrub_start_from_last()),
        ScrubAction::StartErrors => (format!("cannot scrub {}", request.pool), pool.scrub_errors()),
        ScrubAction::Resilver => (format!("cannot restart resilver on {}", request.pool), pool.resilver_restart()),
        ScrubAction::Pause => (format!("cannot pause scrubbing {}", request.pool), pool.scrub_pause()),
        ScrubAction::Stop => (format!("cannot cancel scrubbing {}", request.pool), pool.scrub_stop()),
    };
    match done {
        Ok(()) => {}
        // Nothing to pause is no error (OpenZFS: `zpool_scan`).
        Err(PoolError::Scan(ScanError::NotRunning)) if request.action == ScrubAction::Pause => {
            let remark = format!("{WITHOUT_EFFECT}there is no active scrub to pause");
            return Ok(Response::Done { remarks: vec![Remark::Warning(remark)] });
        }
        Err(PoolError::Scan(error)) if kind_of(&error).is_some() => {
            return Err(because(kind_of(&error).unwrap_or(ErrorKind::Busy), what, error.to_string()));
        }
        Err(error) => return Err(pool_failure(what, &error)),
    }
    let is_scrub = matches!(request.action, ScrubAction::Start | ScrubAction::StartFromLast);
    let warning = format!("warning: will not scrub state that belongs to the checkpoint of pool '{}'", request.pool);
    let remarks = pool.checkpoint().filter(|_| is_scrub).map(|_| Remark::Output(warning)).into_iter().collect();
    Ok(Response::Done { remarks })
}
