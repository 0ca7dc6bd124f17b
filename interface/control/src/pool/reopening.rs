//! Opening pools again: those of the last time when the daemon starts, and those that were not there then, when their devices return.

use crate::device::beneath;
use crate::device::devices::Devices;
use crate::failure::{because, lacks_logs, no_thread, pool_failure};
use crate::mount::handing::Handing;
use crate::mount::returning::Returning;
use crate::pool::Pools;
use crate::pool::absent::{Trace, trace};
use crate::pool::hostid::host;
use crate::pool::intake::{ImportWish, Intake};
use crate::pool::opening::Opening;
use crate::pool::remembered::Remembered;
use crate::pool::rewinding::{preview, remark_of, report_of};
use crate::provider::accelerators::Accelerators;
use crate::report::pictures;
use crate::requests::THREADS;
use control_api::{ErrorKind, Failure, ImportSearch, PoolClear, PoolImport, Response, shown};
use device::BlockDevice;
use exec::Exec;
use ondisk::Guid;
use pool::{FoundPool, ImportOptions, PoolError, PoolState, Rewind};
use std::path::Path;
use std::sync::Arc;
use vdev::{LeafKind, LeafState, TopKind, VdevTree};

/// Number of rounds in which the labels of devices are asked for more devices: each finds what the one before named.
const ROUNDS: u32 = 4;

/// Way in which a pool that is not open is tried.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// True to do without log devices that are missing.
    missing_log: bool,
    /// True to go back to an older state where the newest cannot be opened.
    rewind: bool,
}

/// Opening of the pools that were open when the last daemon ended, and of those whose devices return.
pub(crate) struct Reopening {
    pub exec: Exec,
    pub pools: Arc<Pools>,
    pub opening: Arc<Opening>,
    pub devices: Arc<Devices>,
    pub intake: Arc<Intake>,
    pub returning: Arc<Returning>,
    pub handing: Arc<Handing>,
    pub accelerators: Arc<Accelerators>,
}

impl Reopening {
    /// Opens the pools that were open when the last daemon of this state directory ended. Does not wait for that.
    pub(crate) fn open_pools(self: &Arc<Self>) {
        let entries = self.intake.file.remembered();
        let names: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
        self.pools.absent.note(entries);
        self.opening.begin(&names);
        self.accelerators.set_opening(true);
        let own = self.clone();
        drop(self.exec.spawn_operation("z-open", Box::new(move || own.open_all(&names))));
    }

    fn open_all(&self, names: &[String]) {
        self.returning.clear_stage();
        let mut left = names.to_vec();
        // Devices of some may be files in others: each round finds more, or is the last.
        while !left.is_empty() && !self.pools.is_stopping() {
            let opened = self.open_round(&left);
            // What is mounted in a file system of another pool comes after that one.
            let pools: Vec<_> = self.pools.all().into_iter().filter(|pool| opened.contains(&pool.name())).collect();
            self.returning.mount_after_start(&pools);
            left.retain(|name| !opened.contains(name));
            if opened.is_empty() || !left.iter().any(|name| self.lies_in_a_mount(name)) {
                break;
            }
        }
        self.handing.cut_off_rest();
        self.accelerators.set_opening(false);
        self.opening.end();
        self.returning.note_mounts();
    }

    /// Opens those of the pools that can be opened; returns their names.
    fn open_round(&self, names: &[String]) -> Vec<String> {
        let mut opened = Vec::new();
        for name in names.iter().take_while(|_| !self.pools.is_stopping()) {
            match self.open(name, Way::default()) {
                Ok(response) => {
                    if let Response::Done { remarks } = response {
                        remarks.iter().for_each(|remark| tracing::warn!("{name}: {remark}"));
                    }
                    // Programs wait for their mounts.
                    self.pools.get(name).iter().for_each(|pool| self.handing.adopt(pool));
                    self.opening.opened(name);
                    opened.push(name.clone());
                }
                // Somebody imported it or let it go meanwhile.
                Err(_) if !self.pools.absent.contains(name) => {}
                Err(failure) => tracing::warn!("{failure}"),
            }
        }
        opened
    }

    /// True for a pool that is not open and of which a device is a file in a file system of this daemon.
    fn lies_in_a_mount(&self, name: &str) -> bool {
        self.pools
            .absent
            .entry(name)
            .is_some_and(|entry| entry.paths.iter().any(|path| beneath::own_dataset_under(&self.pools, path).is_some()))
    }

    /// Does `zpool clear` of a pool that is not open: tries once more, with `-F` also older states. One of which everybody could know that only its
    /// log devices are missing is opened without what is on them, where they still are (OpenZFS: `zfs_ioc_clear`).
    pub(crate) fn clear(&self, request: &PoolClear) -> Result<Response, Failure> {
        let (name, way) = (&request.pool, Way { rewind: request.rewind, missing_log: false });
        if request.dry_run {
            return self.preview(name);
        }
        let was_known = self.pools.absent.lacks_logs(name);
        match self.try_again(name, way) {
            Err(failure) if was_known && lacks_logs(&failure) => {
                tracing::warn!("'{name}' is opened without its log devices, since somebody cleared it: what is on them only is given up");
                self.try_again(name, Way { missing_log: true, ..way })
            }
            result => result,
        }
    }

    /// Tells which state of a pool that is not open would be taken.
    fn preview(&self, name: &str) -> Result<Response, Failure> {
        let what = format!("cannot open '{name}' again");
        let failed = |error: PoolError| pool_failure(what.clone(), &error);
        let entry = self.pools.absent.entry(name).ok_or_else(|| failed(PoolError::NotFound))?;
        let found = self.paths_of(&entry).1.ok_or_else(|| failed(PoolError::NotFound))?;
        let options = ImportOptions { read_only: entry.read_only, rewind: Rewind::Recent, host: host(), ..ImportOptions::default() };
        let report = preview(&self.exec, &found, &options, self.intake.settings.runtime(), &what)?;
        Ok(Response::Rewound { reports: vec![report], remarks: Vec::new() })
    }

    /// Tries once more to open a pool that is not open.
    fn try_again(&self, name: &str, way: Way) -> Result<Response, Failure> {
        let opened = self.open(name, way)?;
        let pool = self.pools.open_pool(name)?;
        let report = report_of(pool.pool());
        let advice = report.as_ref().filter(|_| !pool.is_read_only()).map(remark_of);
        self.returning.mount_after_start(&[pool]);
        Ok(match (opened, report) {
            (Response::Done { mut remarks }, Some(report)) => {
                remarks.extend(advice);
                Response::Rewound { reports: vec![report], remarks }
            }
            (opened, _) => opened,
        })
    }

    /// Opens one of the absent pools, and mounts nothing.
    fn open(&self, name: &str, way: Way) -> Result<Response, Failure> {
        let what = format!("cannot open '{name}' again");
        if self.exec.lacks_threads(THREADS) {
            return Err(no_thread(what));
        }
        let Some(entry) = self.pools.absent.entry(name) else {
            return Err(because(ErrorKind::NotFound, what, "no such pool"));
        };
        let guid = Guid(entry.guid);
        let Some(_claim) = self.pools.claim(name, Some(guid)) else {
            return Err(because(ErrorKind::Busy, what, "it is being opened, or another pool has its name"));
        };
        let tried = entry.paths.iter().map(|path| trace(path)).collect();
        let (paths, found) = self.paths_of(&entry);
        if let Some((why, advice)) = found.as_ref().and_then(|found| farewell(found, &entry)) {
            tracing::info!("pool '{name}' is forgotten: {why}; {advice}");
            self.pools.absent.forget(|absent| absent.name == name);
            self.returning.clear_dead(name);
            self.intake.file.remember();
            return Err(because(ErrorKind::NotFound, what, why).advise(advice));
        }
        // Who only reads a pool does it no harm; what the daemon before had until it left its mounts to this one is this system's, whatever its id.
        let is_sure = entry.read_only || self.handing.takes_over(guid);
        let refused = match &found {
            Some(_) if is_sure => None,
            Some(found) => objection(found, &what),
            None => self.replaced(&entry, &what),
        };
        let vdevs = found.and_then(|found| found.tree().ok().map(|tree| pictures::tree(&entry.name, &tree, None)));
        if let Some(failure) = refused {
            self.pools.absent.failed(name, &failure, vdevs, tried);
            return Err(failure);
        }
        // Whatever it was, it stays so: an alternate root means none only where nothing was said.
        let cachefile = entry.cachefile.clone().unwrap_or_default();
        let properties = [("cachefile".to_string(), cachefile)].into();
        let request = PoolImport {
            // Somebody may have taken it since it was looked at.
            force: is_sure,
            altroot: entry.altroot.clone(),
            no_mount: true,
            properties,
            temporary: entry.temporary,
            new_name: entry.temporary.then(|| entry.name.clone()),
            missing_log: way.missing_log,
            rewind: way.rewind,
            ..PoolImport::default()
        };
        let opened = self.intake.import_devices(&paths, guid, &ImportWish::new(&request, entry.read_only, true, what));
        if let Err(failure) = &opened {
            self.pools.absent.failed(name, failure, vdevs, tried);
        }
        opened
    }

    /// Paths of the devices of a remembered pool: where they were, where their labels say that others are, and else wherever devices
    /// are looked for. And the pool, as far as it was found there.
    fn paths_of(&self, entry: &Remembered) -> (Vec<String>, Option<FoundPool>) {
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
            let anywhere = self.devices.candidates(&ImportSearch::default()).unwrap_or_default();
            let searched = pool::find_pools(&self.exec, anywhere).into_iter().find(|found| found.guid().0 == entry.guid);
            let more: Vec<String> = searched.iter().flat_map(FoundPool::devices).map(path_of).collect();
            // One device by two paths is one device.
            let known: Vec<Trace> = paths.iter().map(|path| trace(path)).collect();
            let before = paths.len();
            paths.extend(more.into_iter().filter(|path| !known.contains(&trace(path))));
            if paths.len() > before {
                // What is newer there counts.
                found = self.find_remembered(entry, &paths).or(found);
            }
        }
        (paths.into_iter().filter(|path| Path::new(path).exists()).collect(), found)
    }

    fn find_remembered(&self, entry: &Remembered, paths: &[String]) -> Option<FoundPool> {
        self.pools_at(paths).into_iter().find(|found| found.guid().0 == entry.guid)
    }

    /// Pools of which a device is at one of these paths.
    fn pools_at(&self, paths: &[String]) -> Vec<FoundPool> {
        let search = |path: &String| {
            let search = ImportSearch { paths: vec![path.clone()], ..ImportSearch::default() };
            self.devices.candidates(&search).unwrap_or_default()
        };
        let devices: Vec<Arc<dyn BlockDevice>> = paths.iter().filter(|path| Path::new(path).is_absolute()).flat_map(search).collect();
        pool::find_pools(&self.exec, devices)
    }

    /// Failure of a pool that is nowhere, and whose devices are another pool's by now. None for others.
    fn replaced(&self, entry: &Remembered, what: &str) -> Option<Failure> {
        let others = self.pools_at(&entry.paths);
        let names: Vec<String> = others.iter().map(|other| format!("'{}' (guid {})", shown(other.name()), other.guid())).collect();
        let why = format!("its devices are another pool's by now: {}", names.join(", "));
        (!names.is_empty()).then(|| because(ErrorKind::NotFound, what, why).advise("'zpool export' forgets the one that was there"))
    }

    /// Tries pools whose devices changed since they were tried last. Does not wait for that.
    pub(crate) fn look_again(self: &Arc<Self>) {
        let wanting = self.pools.absent.changed(|name| self.opening.is_left(name));
        if wanting.is_empty() || self.pools.is_stopping() || !self.pools.absent.begin() {
            return;
        }
        let own = self.clone();
        let work = move || {
            for name in wanting {
                match own.try_again(&name, Way::default()) {
                    Ok(_) => tracing::info!("'{name}' is open again"),
                    Err(failure) => tracing::warn!("{failure}"),
                }
            }
            own.pools.absent.end();
        };
        drop(self.exec.spawn_operation("z-absent", Box::new(work)));
    }
}

/// True when every device of a pool was found that it was not told to do without, as far as its labels tell.
fn is_whole(found: &FoundPool, tree: &VdevTree) -> bool {
    let lacks_top = !found.has_removed_vdevs() && tree.tops.iter().any(|top| top.kind == TopKind::Missing);
    !lacks_top && !tree.leaves.iter().any(|leaf| leaf.state == LeafState::Missing)
}

/// Reason why a pool is not to be opened any more, with what brings it back: its labels say that it was destroyed or exported, which the daemon may have
/// had no time or no room to write down, or another system did. None for others.
fn farewell(found: &FoundPool, entry: &Remembered) -> Option<(&'static str, &'static str)> {
    match found.state() {
        PoolState::Destroyed => Some(("the pool was destroyed", "import it with '-D' to bring it back")),
        // Who only reads a pool leaves its labels as they were, and a device that was away when it was imported has old ones.
        PoolState::Exported if !entry.read_only && found.tree().is_ok_and(|tree| is_whole(found, &tree)) => {
            Some(("the pool was exported", "'zpool import' brings it back"))
        }
        _ => None,
    }
}

/// Failure of a pool that nobody is to open again unasked: another system used it last (OpenZFS: `spa_verify_host`), or what is there of it says that it
/// was exported. None for others.
fn objection(found: &FoundPool, what: &str) -> Option<Failure> {
    if found.state() == PoolState::Exported {
        let why = "its devices that are there say that it was exported, and others are missing";
        return Some(because(ErrorKind::Busy, what, why).advise("'zpool import' imports it without them"));
    }
    found.check_host(host().id).err().map(|error| pool_failure(what.to_string(), &error))
}

fn path_of(device: &Arc<dyn BlockDevice>) -> String {
    device.path().to_string_lossy().into_owned()
}
