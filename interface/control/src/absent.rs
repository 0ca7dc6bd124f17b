//! Pools that this daemon is to have open and has not, because their devices were not there when it started: they stay remembered,
//! are listed as UNAVAIL with the reason, and are opened when the devices return. And the names of pools that are just being made.

use crate::cache_file::Remembered;
use crate::failure::because;
use crate::{Control, report};
use control_api::{ErrorKind, Failure, ImportSearch, PoolImport, PoolReport, Property, Response, Value, VdevReport};
use device::BlockDevice;
use exec::Mutex;
use ondisk::Guid;
use pool::FoundPool;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vdev::LeafKind;

/// Why a pool is not open that was not tried yet.
const BEING_OPENED: &str = "it is being opened";
/// How often the labels of devices are asked for more devices: each round finds what the one before named.
const ROUNDS: u32 = 4;

/// What a path led to when it was looked at: file system, file, device number, bytes.
type Trace = Option<(u64, u64, u64, u64)>;

/// A pool that could not be opened.
#[derive(Clone, Debug)]
struct Absent {
    entry: Remembered,
    why: Failure,
    /// Its vdevs, as far as labels were found.
    vdevs: Option<VdevReport>,
    /// What its paths led to when it was tried last.
    tried: Vec<Trace>,
}

/// See the file's header.
#[derive(Debug, Default)]
pub(crate) struct Absents {
    pools: Mutex<BTreeMap<String, Absent>>,
    claims: Arc<Mutex<BTreeSet<String>>>,
    is_trying: AtomicBool,
}

/// A name that nobody else gets for a pool as long as this is there.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Mutex<BTreeSet<String>>>,
    name: String,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.name);
    }
}

fn trace(path: &str) -> Trace {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.rdev(), metadata.len()))
}

impl Control {
    /// Keeps the name for a pool that is being made or imported. `guid` is that of a pool that is imported: the one that is
    /// remembered under this name may be it.
    pub(crate) fn claim(&self, name: &str, guid: Option<Guid>) -> Option<Claim> {
        let mut claims = self.absent.claims.lock();
        let is_open = self.pools.read().contains_key(name);
        let is_other = |absent: &Absent| guid != Some(Guid(absent.entry.guid));
        let is_taken = is_open || self.absent.pools.lock().get(name).is_some_and(is_other);
        if is_taken || !claims.insert(name.to_string()) {
            return None;
        }
        Some(Claim { claims: self.absent.claims.clone(), name: name.to_string() })
    }

    /// What is remembered of the pools that are not open.
    pub(crate) fn absent_entries(&self) -> Vec<Remembered> {
        self.absent.pools.lock().values().map(|absent| absent.entry.clone()).collect()
    }

    pub(crate) fn is_absent(&self, name: &str) -> bool {
        self.absent.pools.lock().contains_key(name)
    }

    /// Why the pool of this name can't be used; None when it is not one of these.
    pub(crate) fn absent_failure(&self, name: &str) -> Option<Failure> {
        let why = self.absent.pools.lock().get(name)?.why.clone();
        let failure = because(ErrorKind::Busy, format!("cannot open '{name}'"), format!("pool is unavailable: {}", why.why));
        Some(failure.advise("it is opened when its devices are there; 'zpool clear' tries at once, 'zpool export' forgets it"))
    }

    /// Takes a pool off the list: it was opened, or nobody wants it any more. True when it was there.
    pub(crate) fn forget_absent(&self, is_it: impl Fn(&Remembered) -> bool) -> bool {
        let mut pools = self.absent.pools.lock();
        let before = pools.len();
        pools.retain(|_, absent| !is_it(&absent.entry));
        pools.len() != before
    }

    /// The reports of the pools that are not open.
    pub(crate) fn absent_reports(&self, wanted: impl Fn(&str) -> bool) -> Vec<PoolReport> {
        self.absent.pools.lock().values().filter(|absent| wanted(&absent.entry.name)).map(report_of).collect()
    }

    /// Lists the pools that were open when the last daemon of this state directory ended, to be tried now. Their names.
    pub(crate) fn note_remembered(&self) -> Vec<String> {
        let entries = self.remembered();
        let mut pools = self.absent.pools.lock();
        for entry in &entries {
            let why = Failure::new(ErrorKind::Busy, "", BEING_OPENED);
            pools.insert(entry.name.clone(), Absent { entry: entry.clone(), why, vdevs: None, tried: Vec::new() });
        }
        entries.into_iter().map(|entry| entry.name).collect()
    }

    /// True for a pool that is not open and of which a device is a file in a file system of this daemon.
    pub(crate) fn lies_in_a_mount(&self, name: &str) -> bool {
        let entry = self.absent.pools.lock().get(name).map(|absent| absent.entry.clone());
        entry.is_some_and(|entry| entry.paths.iter().any(|path| self.own_dataset_under(path).is_some()))
    }

    /// Tries once more to open a pool that is not open.
    pub(crate) fn try_absent(self: &Arc<Self>, name: &str) -> Result<Response, Failure> {
        let opened = self.open_absent(name)?;
        let pool = self.open_pool(name)?;
        self.mount_after_start(&[pool]);
        Ok(opened)
    }

    /// Opens one of them, and mounts nothing.
    pub(crate) fn open_absent(self: &Arc<Self>, name: &str) -> Result<Response, Failure> {
        let what = format!("cannot open '{name}' again");
        let absent = self.absent.pools.lock().get(name).cloned();
        let Some(Absent { entry, .. }) = absent else {
            return Err(because(ErrorKind::NotFound, what, "no such pool"));
        };
        let guid = Guid(entry.guid);
        let Some(_claim) = self.claim(name, Some(guid)) else {
            return Err(because(ErrorKind::Busy, what, "it is being opened, or another pool has its name"));
        };
        let tried = entry.paths.iter().map(|path| trace(path)).collect();
        let (paths, vdevs) = self.paths_of(&entry);
        // Whatever it was, it stays so: an alternate root means none only where nothing was said.
        let cachefile = entry.cachefile.clone().unwrap_or_default();
        let properties = [("cachefile".to_string(), cachefile)].into();
        let request = PoolImport {
            force: true,
            altroot: entry.altroot.clone(),
            no_mount: true,
            properties,
            temporary: entry.temporary,
            new_name: entry.temporary.then(|| entry.name.clone()),
            ..PoolImport::default()
        };
        let opened = self.import_devices(&paths, guid, &crate::pools::ImportWish::new(&request, entry.read_only, true, what));
        if let (Err(failure), Some(absent)) = (&opened, self.absent.pools.lock().get_mut(name)) {
            (absent.why, absent.vdevs, absent.tried) = (failure.clone(), vdevs, tried);
        }
        opened
    }

    /// Where the devices of a remembered pool are: where they were, where their labels say that others are, and else wherever devices
    /// are looked for. And what its vdevs look like.
    fn paths_of(&self, entry: &Remembered) -> (Vec<String>, Option<VdevReport>) {
        let (mut paths, mut rest): (Vec<String>, Vec<String>) = (Vec::new(), entry.paths.clone());
        let mut found = None;
        for _ in 0..ROUNDS {
            rest.retain(|path| !paths.contains(path));
            if rest.is_empty() {
                break;
            }
            paths.append(&mut rest);
            found = self.find_remembered(entry, &paths);
            let tree = found.as_ref().and_then(|found| found.tree().ok());
            let leaves = tree.iter().flat_map(|tree| &tree.leaves).filter(|leaf| leaf.kind != LeafKind::DraidSpare);
            rest.extend(leaves.map(|leaf| leaf.path.clone()).filter(|path| Path::new(path).exists()));
        }
        if !found.as_ref().and_then(|found| found.tree().ok()).is_some_and(|tree| tree.is_readable()) {
            let anywhere = self.candidates(&ImportSearch::default()).unwrap_or_default();
            let searched = pool::find_pools(&self.exec, anywhere).into_iter().find(|found| found.guid().0 == entry.guid);
            let more: Vec<String> = searched.iter().flat_map(FoundPool::devices).map(path_of).collect();
            // One device by two paths is one device.
            let known: Vec<Trace> = paths.iter().map(|path| trace(path)).collect();
            paths.extend(more.into_iter().filter(|path| !known.contains(&trace(path))));
        }
        let picture = |found: &FoundPool| found.tree().ok().map(|tree| report::tree(&entry.name, &tree, None));
        let vdevs = found.as_ref().and_then(picture);
        (paths.into_iter().filter(|path| Path::new(path).exists()).collect(), vdevs)
    }

    fn find_remembered(&self, entry: &Remembered, paths: &[String]) -> Option<FoundPool> {
        let search = |path: &String| {
            let search = ImportSearch { paths: vec![path.clone()], ..ImportSearch::default() };
            self.candidates(&search).unwrap_or_default()
        };
        let devices: Vec<Arc<dyn BlockDevice>> = paths.iter().filter(|path| Path::new(path).is_absolute()).flat_map(search).collect();
        pool::find_pools(&self.exec, devices).into_iter().find(|found| found.guid().0 == entry.guid)
    }

    /// Tries pools whose devices changed since they were tried last. Does not wait for that.
    pub(crate) fn look_for_absent(self: &Arc<Self>) {
        let changed = |absent: &&Absent| {
            !self.opening.is_left(&absent.entry.name) && absent.entry.paths.iter().map(|path| trace(path)).ne(absent.tried.iter().copied())
        };
        let wanting: Vec<String> = self.absent.pools.lock().values().filter(changed).map(|absent| absent.entry.name.clone()).collect();
        if wanting.is_empty() || self.is_stopping() || self.absent.is_trying.swap(true, Ordering::AcqRel) {
            return;
        }
        let control = self.clone();
        let work = move || {
            for name in wanting {
                match control.try_absent(&name) {
                    Ok(_) => eprintln!("'{name}' is open again"),
                    Err(failure) => eprintln!("{failure}"),
                }
            }
            control.absent.is_trying.store(false, Ordering::Release);
        };
        drop(self.exec.spawn_operation("z-absent", Box::new(work)));
    }
}

fn path_of(device: &Arc<dyn BlockDevice>) -> String {
    device.path().to_string_lossy().into_owned()
}

fn report_of(absent: &Absent) -> PoolReport {
    const STATE: &str = "UNAVAIL";
    let entry = &absent.entry;
    let leaf = |path: &String| VdevReport {
        kind: "disk".into(),
        name: path.clone(),
        path: Some(path.clone()),
        state: STATE.into(),
        ..VdevReport::default()
    };
    let bare = || VdevReport { children: entry.paths.iter().map(leaf).collect(), ..VdevReport::default() };
    let vdevs = absent.vdevs.clone().unwrap_or_else(bare);
    let text = |name: &str, text: &str| Property::fact(name, Value::Text(text.to_string()));
    let (status, action) = if absent.why.why == BEING_OPENED {
        ("The pool is being opened.".to_string(), "Wait until that is done.")
    } else {
        let action = "Make sure that its devices are connected: then it is opened by itself, or at once by 'zpool clear'. 'zpool export' forgets it.";
        (format!("The pool could not be opened: {}.", absent.why.why), action)
    };
    PoolReport {
        name: entry.name.clone(),
        guid: entry.guid,
        state: STATE.into(),
        status: Some(status),
        action: Some(action.into()),
        message_id: Some("ZFS-8000-3C".into()),
        vdevs: VdevReport { name: entry.name.clone(), kind: "root".into(), state: STATE.into(), ..vdevs },
        properties: vec![
            text("name", &entry.name),
            text("health", STATE),
            Property::fact("guid", Value::Number(entry.guid)),
            text("altroot", entry.altroot.as_deref().unwrap_or("-")),
        ],
        ..PoolReport::default()
    }
}
