//! Pools that this daemon is to have open and has not, because their devices were not there when it started, or because another system took them:
//! they stay remembered, are listed as UNAVAIL with the reason, and are opened when the devices return ([`crate::pool::reopening`]).

use crate::failure::{because, is_elsewhere, lacks_logs};
use crate::pool::remembered::Remembered;
use control_api::{ErrorKind, Failure, PoolReport, Property, Value, VdevReport, shown};
use exec::Mutex;
use ondisk::Guid;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reason why a pool is not open that was not tried yet.
const BEING_OPENED: &str = "it is being opened";

/// Identity of what a path led to when it was looked at: device of the file system, inode, device number, size in bytes.
pub(crate) type Trace = Option<(u64, u64, u64, u64)>;

/// Pool that could not be opened.
#[derive(Clone, Debug)]
struct Absent {
    entry: Remembered,
    why: Failure,
    /// Report of its vdevs, as far as labels were found.
    vdevs: Option<VdevReport>,
    /// Traces of its paths when it was tried last.
    tried: Vec<Trace>,
}

impl Absent {
    fn traces(&self) -> impl Iterator<Item = Trace> {
        self.entry.paths.iter().map(|path| trace(path))
    }
}

/// Pools that are to be open and are not, by name.
#[derive(Debug, Default)]
pub(crate) struct Absents {
    pools: Mutex<BTreeMap<String, Absent>>,
    is_trying: AtomicBool,
}

/// Returns what a path leads to now.
pub(crate) fn trace(path: &str) -> Trace {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.rdev(), metadata.len()))
}

impl Absents {
    /// Lists pools that are to be tried now.
    pub(crate) fn note(&self, entries: Vec<Remembered>) {
        let mut pools = self.pools.lock();
        for entry in entries {
            let why = Failure::new(ErrorKind::Busy, "", BEING_OPENED);
            pools.insert(entry.name.clone(), Absent { entry, why, vdevs: None, tried: Vec::new() });
        }
    }

    /// Entries of all absent pools, as they are remembered.
    pub(crate) fn entries(&self) -> Vec<Remembered> {
        self.pools.lock().values().map(|absent| absent.entry.clone()).collect()
    }

    /// Entry of the absent pool of this name, as it is remembered.
    pub(crate) fn entry(&self, name: &str) -> Option<Remembered> {
        self.pools.lock().get(name).map(|absent| absent.entry.clone())
    }

    /// True for an absent pool that would be open, but for its log devices: as far as it was tried.
    pub(crate) fn lacks_logs(&self, name: &str) -> bool {
        self.pools.lock().get(name).is_some_and(|absent| lacks_logs(&absent.why))
    }

    /// Guid of the absent pool of this name.
    pub(crate) fn guid(&self, name: &str) -> Option<Guid> {
        self.pools.lock().get(name).map(|absent| Guid(absent.entry.guid))
    }

    /// True when an absent pool has this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.pools.lock().contains_key(name)
    }

    /// Failure of requests for the pool of this name; None when it is not one of the absent.
    pub(crate) fn failure(&self, name: &str) -> Option<Failure> {
        self.refusal(name, format!("cannot open '{name}'"), "pool is unavailable")
    }

    /// Failure of requests for what is in the pool of this name, `what` cannot be done; None when it is not one of the absent.
    pub(crate) fn failure_within(&self, name: &str, what: String) -> Option<Failure> {
        self.refusal(name, what, &format!("pool '{name}' is not open"))
    }

    fn refusal(&self, name: &str, what: String, state: &str) -> Option<Failure> {
        let Absent { entry, why, .. } = self.pools.lock().get(name)?.clone();
        let failure = because(ErrorKind::Busy, what, format!("{state}: {}", why.why));
        Some(failure.advise(match () {
            () if why.why == BEING_OPENED => "wait until that is done".to_string(),
            () if lacks_logs(&why) => format!("it is opened when its log devices are there; {}", without_logs(&entry.name)),
            () if is_elsewhere(&why) => taken_back(&entry),
            () => "it is opened when its devices are there; 'zpool clear' tries at once, 'zpool export' forgets it".to_string(),
        }))
    }

    /// Notes that a pool was tried in vain: why, what its vdevs look like, and what its paths led to before.
    pub(crate) fn failed(&self, name: &str, why: &Failure, vdevs: Option<VdevReport>, tried: Vec<Trace>) {
        if let Some(absent) = self.pools.lock().get_mut(name) {
            (absent.why, absent.vdevs, absent.tried) = (why.clone(), vdevs, tried);
        }
    }

    /// Takes pools off the list: they were opened, or nobody wants them any more. True when one was there.
    pub(crate) fn forget(&self, is_it: impl Fn(&Remembered) -> bool) -> bool {
        let mut pools = self.pools.lock();
        let before = pools.len();
        pools.retain(|_, absent| !is_it(&absent.entry));
        pools.len() != before
    }

    /// Reports of those absent pools that are wanted.
    pub(crate) fn reports(&self, wanted: impl Fn(&str) -> bool) -> Vec<PoolReport> {
        self.pools.lock().values().filter(|absent| wanted(&absent.entry.name)).map(report_of).collect()
    }

    /// Names of pools that are not `left` to be tried and whose devices changed since they were tried last.
    pub(crate) fn changed(&self, is_left: impl Fn(&str) -> bool) -> Vec<String> {
        let is_changed = |absent: &&Absent| !is_left(&absent.entry.name) && absent.traces().ne(absent.tried.iter().copied());
        self.pools.lock().values().filter(is_changed).map(|absent| absent.entry.name.clone()).collect()
    }

    /// Begins to try pools whose devices changed; false while somebody does.
    pub(crate) fn begin(&self) -> bool {
        !self.is_trying.swap(true, Ordering::AcqRel)
    }

    /// Ends what [`Absents::begin`] began.
    pub(crate) fn end(&self) {
        self.is_trying.store(false, Ordering::Release);
    }
}

/// Advice how to have a pool without what its missing log devices have.
fn without_logs(name: &str) -> String {
    format!("'zpool clear {name}' opens it without what is on them only")
}

/// Advice about a pool that another system took: how to have it again, or to be rid of it. Devices that are files are not found by themselves.
fn taken_back(entry: &Remembered) -> String {
    let files = entry.paths.iter().filter(|path| !path.starts_with("/dev/"));
    let folders: BTreeSet<&str> = files.filter_map(|path| Path::new(path).parent()?.to_str()).collect();
    let places: String = folders.iter().map(|folder| format!("-d {folder} ")).collect();
    let name = &entry.name;
    format!(
        "once it is sure that it is not in use there any more, 'zpool import -f {places}{name}' takes it (two systems that write to a pool destroy it); \
         'zpool export {name}' forgets it here"
    )
}

/// Status, action and number of the message of an absent pool.
fn words(absent: &Absent) -> (String, String, Option<&'static str>) {
    let connect = "Make sure that its devices are connected: then it is opened by itself";
    let why = &absent.why.why;
    match () {
        () if why == BEING_OPENED => ("The pool is being opened.".to_string(), "Wait until that is done.".to_string(), None),
        () if lacks_logs(&absent.why) => {
            let status =
                "An intent log record could not be read: a log device is missing, and what programs made durable last may be on it only.";
            let action = format!("{connect}. If the log device cannot be brought back, {}.", without_logs(&absent.entry.name));
            (status.to_string(), action, Some("ZFS-8000-K4"))
        }
        () if is_elsewhere(&absent.why) => {
            let status = format!("The pool was not opened: {}.", shown(&why.replace(".\n", ". ")));
            let advice = taken_back(&absent.entry);
            (status, format!("Look who has it: {advice}."), Some("ZFS-8000-EY"))
        }
        () => {
            let action = format!("{connect}, or at once by 'zpool clear'. 'zpool export' forgets it.");
            (format!("The pool could not be opened: {why}."), action, Some("ZFS-8000-3C"))
        }
    }
}

/// Puts log devices that are missing where labels of the others say only that there is something.
fn name_logs(vdevs: &mut VdevReport, entry: &Remembered) {
    fn shows(vdev: &VdevReport, path: &String) -> bool {
        vdev.path.as_ref() == Some(path) || vdev.children.iter().any(|child| shows(child, path))
    }
    let (missing, there): (Vec<_>, Vec<_>) = std::mem::take(&mut vdevs.children).into_iter().partition(|child| child.kind == "missing");
    vdevs.children = there;
    let hidden: Vec<&String> = entry.paths.iter().filter(|path| !shows(vdevs, path)).collect();
    let leaf = |path: &&String| VdevReport { note: Some("cannot open".into()), is_log: true, ..unavailable(path) };
    match &missing[..] {
        // Devices of one mirror, or of what else it was.
        [only] if hidden.len() > 1 => {
            let children = hidden.iter().map(leaf).collect();
            vdevs.children.push(VdevReport { is_log: true, children, ..only.clone() });
        }
        _ => vdevs.children.extend(hidden.iter().map(leaf)),
    }
}

/// Report of a device that could not be opened.
fn unavailable(path: &str) -> VdevReport {
    let kind = if path.starts_with("/dev/") { "disk" } else { "file" };
    VdevReport { kind: kind.into(), name: path.into(), path: Some(path.into()), state: UNAVAILABLE.into(), ..VdevReport::default() }
}

/// State of pools that are not there, and of their devices.
const UNAVAILABLE: &str = "UNAVAIL";

fn report_of(absent: &Absent) -> PoolReport {
    let entry = &absent.entry;
    let bare = || VdevReport { children: entry.paths.iter().map(|path| unavailable(path)).collect(), ..VdevReport::default() };
    let mut vdevs = absent.vdevs.clone().unwrap_or_else(bare);
    if lacks_logs(&absent.why) {
        name_logs(&mut vdevs, entry);
    }
    let text = |name: &str, text: &str| Property::fact(name, Value::Text(text.to_string()));
    let (status, action, message_id) = words(absent);
    PoolReport {
        name: entry.name.clone(),
        guid: entry.guid,
        state: UNAVAILABLE.into(),
        status: Some(status),
        action: Some(action),
        message_id: message_id.map(String::from),
        vdevs: VdevReport { name: entry.name.clone(), kind: "root".into(), state: UNAVAILABLE.into(), ..vdevs },
        properties: vec![
            text("name", &entry.name),
            text("health", UNAVAILABLE),
            Property::fact("guid", Value::Number(entry.guid)),
            text("altroot", entry.altroot.as_deref().unwrap_or("-")),
        ],
        ..PoolReport::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::pool_failure;
    use pool::PoolError;

    /// If this fails, whoever looks for a pool that another system took is told to look for its cables, or is not told how to have it again.
    #[test]
    fn a_pool_that_another_system_took_says_so_with_what_helps() {
        let paths = ["/srv/a", "/srv/b", "/dev/sdx"].map(String::from).to_vec();
        let entry = Remembered { name: "tank".into(), guid: 7, altroot: None, read_only: false, paths, cachefile: None, temporary: false };
        let absents = Absents::default();
        absents.note(vec![entry]);
        let taken = PoolError::InUse { hostid: 0x12, hostname: "other\u{1b}[2J".into() };
        absents.failed("tank", &pool_failure("cannot open 'tank' again".into(), &taken), None, Vec::new());
        let report = absents.reports(|_| true).remove(0);
        assert_eq!((report.state.as_str(), report.message_id.as_deref()), ("UNAVAIL", Some("ZFS-8000-EY")));
        let status = report.status.unwrap_or_default();
        assert!(status.contains("another system. Last accessed by other\\033[2J (hostid=12)"), "{status}");
        assert!(report.action.unwrap_or_default().contains("'zpool import -f -d /srv tank'"));
        let asked = absents.failure("tank").expect("it is absent");
        assert!(asked.next.is_some_and(|next| next.contains("'zpool export tank' forgets it here")));
        assert_eq!(absents.entries().len(), 1, "it stays remembered");
    }
}
