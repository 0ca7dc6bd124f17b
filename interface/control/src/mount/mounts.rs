//! Mounted file systems: which dataset is where, and everything that keeps it there.
//!
//! Invariants: a dataset has one entry from before its file system is opened until its last request is answered and its nodes are
//! forgotten, so that there are never two caches of nodes of one file system; what is leaving blocks whoever wants to mount, rename
//! or destroy it. No lock of these is held while a mount comes or goes; whoever works on mounts has the turn ([`crate::mount::turns`]).

use crate::failure::{self, because};
use crate::mount::heirs::Heirs;
use crate::mount::opens::Opens;
use crate::mount::stored::Stored;
use crate::mount::whereabouts::{Asked, Standing, foreign_link, resolved};
use crate::mount::working;
use crate::report::direct_rows;
use control_api::{ErrorKind, Failure};
use dmu::TxgManager;
use dsl::DatasetHandle;
use exec::{Exec, Mutex};
use fuse::{MountFacts, MountOptions, MountTable, Readers, Session};
use ondisk::{ObjectId, ObjsetId};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use zpl::direct::{Direct, DirectSnapshot, DirectStats};
use zpl::{EnteredSnapshot, Node, Remembered, Settings, SnapshotSource, Zfs, ZplError, ZplFuse};

/// Nanoseconds that a mount waits for another one of the same file system that is leaving.
const LEAVE_NS: u64 = 5_000_000_000;

/// Mounted file system; dropping it unmounts.
pub(crate) struct Mounted {
    /// Number among all mounts of this daemon, and of those before with which it goes on.
    pub(crate) number: u32,
    name: Mutex<String>,
    pub(crate) session: Session,
    zfs: Arc<Zfs>,
    pub(crate) handler: Arc<ZplFuse>,
    /// Options that the mount was asked for beyond the properties.
    options: Mutex<Vec<String>>,
    /// Places at which it was asked to be mounted.
    pub(crate) asked: Mutex<Asked>,
    /// True while somebody unmounts it.
    pub(crate) leaving: AtomicBool,
    /// True when somebody waits for its end to take it away, who gave up to say so.
    pub(crate) is_awaited: AtomicBool,
}

/// Fate of the directory that a file system was mounted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directory {
    /// Directory stays.
    Keep,
    /// Dataset has another place from now on: its directory goes when it is empty and its place follows from the dataset's name
    /// (OpenZFS: `remove_mountpoint`). No other directory at which it is shown goes.
    Moves,
    /// Dataset goes, and its directory as with [`Directory::Moves`].
    Remove,
    /// Pool goes: only what was made for this mount, and not inside of another file system of a pool, whose contents are its user's.
    RemoveMade,
}

/// Entry of the table of mounts.
enum Slot {
    /// Mount that is being opened.
    Coming,
    There(Arc<Mounted>),
}

#[derive(Default)]
struct State {
    slots: BTreeMap<String, Slot>,
    /// Names at and below which nothing may be mounted, and what is done to them.
    barred: Vec<(String, &'static str)>,
    /// Directories that were made for mounts whose place follows from the dataset's name: device and inode, to know them again.
    made: BTreeMap<PathBuf, (u64, u64)>,
}

/// Mounts of one pool.
pub struct Mounts {
    state: Mutex<State>,
    pub(crate) table: Mutex<MountTable>,
    /// Threads that serve the mounts: the pool's own, so that none waits for another pool.
    readers: Mutex<Option<Readers>>,
    /// Counts of direct I/O: of the pool, and of each dataset since the pool was opened, mounted or not.
    pool_direct: Arc<DirectStats>,
    direct: Mutex<BTreeMap<String, Arc<DirectStats>>>,
    /// Datasets whose objects programs have.
    pub(crate) stored: Arc<Stored>,
}

impl Default for Mounts {
    fn default() -> Self {
        let (state, table, readers, direct) = (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        Mounts { state, table, readers, pool_direct: DirectStats::new(None), direct, stored: Arc::default() }
    }
}

/// Place, behaviour and options of a file system to be mounted.
pub struct MountPlan {
    /// Mountpoint as an absolute path, altroot included.
    pub mountpoint: String,
    /// Path at which it is mounted first, when it is moved to its place later.
    pub staged: Option<PathBuf>,
    /// True to refuse to cover a directory that has entries.
    pub must_be_empty: bool,
    /// True when the place follows from the dataset's name (`mountpoint` is inherited or default), so the directory may be ours to remove.
    pub made_for_it: bool,
    /// Settings and questions that the file system is opened with.
    pub opens: Opens,
    /// Flags of the mount.
    pub options: MountOptions,
    /// Options that were asked for beyond the properties.
    pub wishes: Vec<String>,
    /// True when the place was said by hand, not by the properties.
    pub by_hand: bool,
    /// True when the mount is by the one who keeps others from mounting the file system.
    pub past_bar: bool,
    /// True when what is mounted elsewhere already gets one more place.
    pub elsewhere: bool,
    /// Number of the mount, if it comes.
    pub number: u32,
}

/// Mount that another daemon left.
pub(crate) struct Left {
    /// Connection to the kernel.
    pub connection: OwnedFd,
    pub facts: MountFacts,
    pub number: u32,
    pub asked: Asked,
    /// Nodes that the kernel remembers.
    pub remembered: Vec<Remembered>,
    pub snapshots: Vec<EnteredSnapshot>,
    /// Share in what that daemon left if it died, which ends when all that the kernel sends again has come.
    pub heir: Option<Arc<Heirs>>,
    /// True when it is not known what the kernel remembers besides.
    pub is_unknown: bool,
}

/// Kernel's side of a file system that is opened to be served.
#[derive(Default)]
struct Kernels<'a> {
    /// Nodes that it remembers.
    remembered: &'a [Remembered],
    /// True when it may remember others.
    is_unknown: bool,
}

/// True for a dataset and what is below it.
pub(crate) fn is_within(name: &str, root: &str) -> bool {
    name.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
}

/// Bar that keeps a name and what is below it from being mounted while it lives.
pub(crate) struct Bar<'a> {
    mounts: &'a Mounts,
    name: String,
}

impl Drop for Bar<'_> {
    fn drop(&mut self) {
        let mut state = self.mounts.state.lock();
        if let Some(index) = state.barred.iter().position(|(name, _)| *name == self.name) {
            state.barred.swap_remove(index);
        }
    }
}

/// Right to fill an entry; it is empty again when it was not filled.
struct Claim<'a> {
    mounts: &'a Mounts,
    name: String,
    is_filled: bool,
}

impl Claim<'_> {
    fn fill(mut self, mounted: Mounted) {
        self.is_filled = true;
        self.mounts.state.lock().slots.insert(self.name.clone(), Slot::There(Arc::new(mounted)));
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.is_filled {
            self.mounts.state.lock().slots.remove(&self.name);
        }
    }
}

/// Result of a claim.
enum Claimed<'a> {
    Free(Claim<'a>),
    /// Detached while files are open, or mounted elsewhere: the same file system can be mounted once more, and only that one. With it, whether
    /// that is its place from then on.
    Again(Arc<Mounted>, bool),
}

impl Mounts {
    /// Keeps a name from being mounted; busy when somebody else works on it, or mounts there just now.
    pub(crate) fn bar(&self, name: &str, verb: &'static str, force: bool) -> Result<Bar<'_>, Failure> {
        let mut state = self.state.lock();
        let crosses = |(other, _): &&(String, &str)| is_within(other, name) || is_within(name, other);
        let coming = |(other, slot): &(&String, &Slot)| matches!(slot, Slot::Coming) && is_within(other, name);
        let busy = match (state.barred.iter().find(crosses), state.slots.iter().find(coming)) {
            (Some((other, what)), _) => Some(format!("'{other}' is being {what}")),
            (None, Some((other, _))) => Some(format!("'{other}' is being mounted")),
            (None, None) => {
                self.stored.find(&|other| is_within(other, name)).map(|other| format!("a program has the objects of '{other}'"))
            }
        };
        if let Some(why) = busy.filter(|_| !force) {
            return Err(because(ErrorKind::Busy, format!("cannot change '{name}'"), "dataset is busy").advise(why));
        }
        state.barred.push((name.to_string(), verb));
        drop(state);
        Ok(Bar { mounts: self, name: name.to_string() })
    }

    /// True while a dataset is mounted, is about to be, or may not be.
    pub(crate) fn is_taken(&self, name: &str) -> bool {
        self.all().iter().any(|mounted| mounted.name() == name) || {
            let state = self.state.lock();
            state.slots.contains_key(name) || state.barred.iter().any(|(other, _)| other.is_empty() || is_within(name, other))
        }
    }

    /// Keeps everything from being mounted any more.
    pub(crate) fn close(&self) {
        self.state.lock().barred.push((String::new(), "closed"));
    }

    /// Mounts that have not ended, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Mounted>> {
        let mut state = self.state.lock();
        let is_over = |slot: &Slot| matches!(slot, Slot::There(mounted) if mounted.session.has_ended());
        state.slots.retain(|_, slot| !is_over(slot));
        let there = |slot: &Slot| match slot {
            Slot::There(mounted) => Some(mounted.clone()),
            Slot::Coming => None,
        };
        state.slots.values().filter_map(there).collect()
    }

    /// Mounts at or below a dataset that have not ended; what lies deepest in the tree of directories first.
    pub(crate) fn below(&self, name: &str) -> Vec<Arc<Mounted>> {
        let mut list = self.all();
        list.retain(|mounted| is_within(&mounted.name(), name));
        deepest_first(&mut list);
        list
    }

    /// Mount of a dataset.
    pub(crate) fn mounted(&self, name: &str) -> Option<Arc<Mounted>> {
        self.there(name)
    }

    pub(crate) fn there(&self, name: &str) -> Option<Arc<Mounted>> {
        let mut state = self.state.lock();
        match state.slots.get(name)? {
            Slot::There(mounted) if mounted.session.has_ended() => {
                state.slots.remove(name);
                None
            }
            Slot::There(mounted) => Some(mounted.clone()),
            Slot::Coming => None,
        }
    }

    /// Renames a dataset with what is below it; what is mounted of them stays where it is.
    pub(crate) fn renamed(&self, from: &str, to: &str) {
        let mut state = self.state.lock();
        let names: Vec<String> = state.slots.keys().filter(|name| is_within(name, from)).cloned().collect();
        for old in names {
            let Some(slot) = state.slots.remove(&old) else { continue };
            let new = old.replacen(from, to, 1);
            if let Slot::There(mounted) = &slot {
                mounted.name.lock().clone_from(&new);
            }
            state.slots.insert(new, slot);
        }
        drop(state);
        let mut direct = self.direct.lock();
        let names: Vec<String> = direct.keys().filter(|name| is_within(name, from)).cloned().collect();
        for old in names {
            let counts = direct.remove(&old);
            direct.extend(counts.map(|counts| (old.replacen(from, to, 1), counts)));
        }
    }

    /// Mountpoint and name of the mounted dataset that a path is in.
    pub fn dataset_at(&self, path: &str) -> Option<(String, String)> {
        let inside = self.list().into_iter().filter(|(_, place)| Path::new(path).starts_with(place));
        inside.max_by_key(|(_, place)| place.len()).map(|(name, place)| (place, name))
    }

    /// Counts of direct I/O of the pool.
    pub fn direct_of_pool(&self) -> &Arc<DirectStats> {
        &self.pool_direct
    }

    /// Counts of direct I/O of a dataset.
    pub fn direct_of(&self, name: &str) -> Arc<DirectStats> {
        let mut direct = self.direct.lock();
        direct.entry(name.to_string()).or_insert_with(|| DirectStats::new(Some(self.pool_direct.clone()))).clone()
    }

    /// Object set of a mounted file system, and a file's counts of direct I/O since it came into memory.
    pub fn direct_of_file(&self, name: &str, object: ObjectId) -> Option<(ObjsetId, DirectSnapshot)> {
        let zfs = self.there(name).map(|mounted| mounted.zfs.clone())?;
        let counts = zfs.node(object).ok().and_then(|node| zfs.direct_counts(&node));
        Some((zfs.objset().id(), counts.unwrap_or_default()))
    }

    fn remember_made(&self, plan: &MountPlan, prepared: &Prepared) {
        let place = Path::new(&plan.mountpoint);
        if let Some(identity) = identity(place).filter(|_| prepared.made && plan.made_for_it) {
            self.state.lock().made.insert(place.to_path_buf(), identity);
        }
    }

    /// Removes the directories that were made for file systems of this pool and nothing is mounted on, deepest first: those that were unmounted
    /// before their pool goes. Only the very ones that were made, and only empty ones.
    pub(crate) fn remove_made_directories(&self) {
        let made = std::mem::take(&mut self.state.lock().made);
        for (place, known) in made.iter().rev() {
            if identity(place) == Some(*known) && !is_inside_of_a_pool(place) {
                let _ = std::fs::remove_dir(place);
            }
        }
    }

    /// Name and place of every mount.
    pub fn list(&self) -> Vec<(String, String)> {
        self.all().into_iter().filter_map(|mounted| Some((mounted.name(), self.place_of(&mounted)?))).collect()
    }

    /// Object sets of mounted file systems.
    pub fn objsets(&self) -> Vec<Arc<dmu::Objset>> {
        self.all().into_iter().map(|mounted| mounted.zfs.objset().clone()).collect()
    }

    /// Counts of what users did to each mounted file system.
    pub fn counts(&self, zio: &zio::Zio) -> Vec<metrics::DatasetView> {
        let view = |mounted: Arc<Mounted>| metrics::DatasetView {
            name: mounted.name(),
            objset: mounted.zfs.objset().id().0,
            counts: mounted.zfs.counts(),
            log: mounted.zfs.log_counts(),
            direct: direct_rows::rows(
                &self.direct_of(&mounted.name()).snapshot(),
                zio.changed_buffers(Some(mounted.zfs.objset().id()), None),
                mounted.zfs.objset().shared_direct_reads(),
            ),
        };
        self.all().into_iter().map(view).collect()
    }

    /// Name of the dataset mounted at this path; the topmost where one of several is ours.
    pub fn find(&self, mountpoint: &str) -> Option<String> {
        let rows = self.table.lock().rows().unwrap_or_default();
        let top = fuse::topmost(&rows, Path::new(mountpoint)).map(|row| row.device);
        let mut here = self.all();
        here.retain(|mounted| mounted.is_at(&rows, Path::new(mountpoint)));
        let index = here.iter().position(|mounted| Some(mounted.session.number()) == top).unwrap_or_default();
        here.get(index).map(|mounted| mounted.name())
    }

    /// True when what is mounted at this path, last of all, is of this pool.
    pub(crate) fn is_on_top(&self, mountpoint: &str) -> bool {
        let rows = self.table.lock().rows().unwrap_or_default();
        let top = fuse::topmost(&rows, Path::new(mountpoint)).map(|row| row.device);
        self.all().iter().any(|mounted| Some(mounted.session.number()) == top)
    }

    /// Takes a name's entry, or says why it is not to be had.
    fn claim(&self, exec: &Exec, name: &str, place: &Path, plan: &MountPlan) -> Result<Claimed<'_>, Failure> {
        let what = || format!("cannot mount '{name}'");
        let until = exec.now_ns().saturating_add(LEAVE_NS);
        loop {
            let present = {
                let mut state = self.state.lock();
                if let Some((_, verb)) =
                    state.barred.iter().find(|(barred, _)| barred.is_empty() || !plan.past_bar && is_within(name, barred))
                {
                    return Err(because(ErrorKind::Busy, what(), "mountpoint or dataset is busy").advise(format!("it is being {verb}")));
                }
                if self.stored.find(&|other| other == name).is_some() {
                    return Err(because(ErrorKind::Busy, what(), "mountpoint or dataset is busy").advise("a program has its objects"));
                }
                match state.slots.get(name) {
                    Some(Slot::There(mounted)) if !mounted.session.has_ended() => mounted.clone(),
                    Some(Slot::Coming) => {
                        let busy = because(ErrorKind::Busy, what(), "mountpoint or dataset is busy");
                        return Err(busy.advise("another command is mounting it"));
                    }
                    _ => {
                        state.slots.insert(name.to_string(), Slot::Coming);
                        drop(state);
                        return Ok(Claimed::Free(Claim { mounts: self, name: name.to_string(), is_filled: false }));
                    }
                }
            };
            match self.standing(&present) {
                Standing::Mounted(_) if plan.elsewhere && !self.is_at(&present, place) => {
                    return Ok(Claimed::Again(present, !plan.by_hand));
                }
                Standing::Mounted(_) => return Err(because(ErrorKind::Busy, what(), "filesystem already mounted")),
                Standing::Detached => return Ok(Claimed::Again(present, true)),
                Standing::Gone => {}
                Standing::Leaving if exec.now_ns() >= until => {
                    let busy = because(ErrorKind::Busy, what(), "mountpoint or dataset is busy");
                    return Err(busy.advise("it is being unmounted: requests to it are not answered yet"));
                }
                Standing::Leaving => drop(present.session.wait_end(100_000_000)),
            }
        }
    }

    /// Threads that serve this pool's mounts.
    fn readers(&self, exec: &Exec) -> Result<Readers, fuse::Errno> {
        let mut readers = self.readers.lock();
        match &*readers {
            Some(readers) => Ok(readers.clone()),
            None => Ok(readers.insert(Readers::new(exec)?).clone()),
        }
    }

    /// Mounts a file system.
    pub fn mount(&self, exec: &Exec, handle: DatasetHandle, txgs: Option<Arc<TxgManager>>, plan: MountPlan) -> Result<(), Failure> {
        let name = handle.name();
        let what = format!("cannot mount '{name}'");
        let place = plan.staged.clone().unwrap_or_else(|| PathBuf::from(&plan.mountpoint));
        let refused = |error: fuse::MountError| match error {
            fuse::MountError::Mount(fuse::Errno::EBUSY) => because(ErrorKind::Busy, &*what, "mountpoint or dataset is busy"),
            error => because(ErrorKind::Permission, &*what, error).advise("is /dev/fuse there, and may this user mount on that directory?"),
        };
        let claim = match self.claim(exec, &name, &place, &plan)? {
            Claimed::Free(claim) => claim,
            Claimed::Again(mounted, moves) => {
                let prepared = prepare(exec, &place, &plan)?;
                mounted.session.mount_again(&place, self.shown(&mounted).as_deref(), &plan.options).map_err(refused)?;
                if moves || !mounted.asked.lock().has(&mounted.session.mountpoint()) {
                    mounted.session.moved(plan.staged.as_ref().unwrap_or(&prepared.real));
                }
                self.remember_made(&plan, &prepared);
                mounted.asked.lock().add(&plan, prepared);
                return Ok(());
            }
        };
        let prepared = prepare(exec, &place, &plan)?;
        self.remember_made(&plan, &prepared);
        let mut asked = Asked::default();
        asked.add(&plan, prepared);
        let (zfs, handler) = self.open(handle, txgs, plan.opens, (plan.number, Kernels::default()))?;
        let readers = self.readers(exec).map_err(|error| because(ErrorKind::Io, &*what, error))?;
        let session = Session::mount_with(&readers, handler.clone(), &place, &plan.options).map_err(refused)?;
        let way = if session.has_rings() { "io_uring" } else { "read(2)" };
        tracing::debug!("'{name}' is mounted at {}; its requests come through {way}", place.display());
        claim.fill(Mounted::new(plan.number, name, session, (zfs, handler), plan.wishes, asked));
        Ok(())
    }

    /// Opens a file system that is to be served by the mount of this number.
    fn open(
        &self,
        handle: DatasetHandle,
        txgs: Option<Arc<TxgManager>>,
        opens: Opens,
        (number, kernels): (u32, Kernels<'_>),
    ) -> Result<(Arc<Zfs>, Arc<ZplFuse>), Failure> {
        let name = handle.name();
        let what = format!("cannot mount '{name}'");
        let objset = handle.objset().map_err(|error| failure::dataset("mount", &name, &error))?;
        // The kernel asks as long as the mount lasts.
        let settings = Settings { posix_acl: opens.enforces_lists, ..opens.settings };
        let zfs = Zfs::open(&objset, txgs.filter(|_| !objset.is_read_only()), settings).map_err(|error| match error {
            // No file of the user's is meant.
            ZplError::NotFound => {
                because(ErrorKind::Damaged, &*what, "its master node or root directory is missing: the file system is damaged")
            }
            error => because(ErrorKind::Damaged, &*what, error),
        })?;
        let dataset = Arc::new(handle);
        zfs.set_space_source(dataset.clone());
        zfs.set_direct(Direct { tunables: opens.direct.clone(), stats: self.direct_of(&name) });
        // Before what nobody has open is deleted.
        if !kernels.remembered.is_empty() {
            zfs.take_over(kernels.remembered);
        }
        if kernels.is_unknown {
            zfs.take_over_unknown();
        }
        if !zfs.is_read_only() {
            let source: Weak<Zfs> = Arc::downgrade(&zfs);
            let tells_xattrs = dataset.logs_xattrs();
            let log = dataset.intent_log(source).map_err(|error| failure::dataset("mount", &name, &error))?;
            zfs.begin(log, tells_xattrs, !opens.settings.read_only).map_err(|error| because(ErrorKind::Io, &*what, error))?;
            opens.account(&zfs);
        }
        let snapshots: Option<Arc<dyn SnapshotSource>> = if dataset.is_snapshot() { None } else { Some(dataset) };
        let handler = ZplFuse::new(zfs.clone(), snapshots).with_health(opens.is_suspended).with_workers(opens.works_in);
        let handler = handler.with_write_back(opens.writes_back).with_lists(opens.enforces_lists);
        let handler = match opens.arena {
            Some((arena, when_entered)) => handler.with_arena(arena, number, when_entered),
            None => handler,
        };
        Ok((zfs, Arc::new(handler)))
    }

    /// Serves a file system that another daemon served, whose kernel's side is as it left it. `begins` is called when everything is there, before
    /// the first request is served.
    pub(crate) fn adopt(
        &self,
        exec: &Exec,
        handle: DatasetHandle,
        txgs: Option<Arc<TxgManager>>,
        plan: MountPlan,
        left: Left,
        begins: impl FnOnce(),
    ) -> Result<(), Failure> {
        let Left { connection, facts, number, asked, remembered, snapshots, heir, is_unknown } = left;
        let name = handle.name();
        let what = format!("cannot go on with the mount of '{name}'");
        let Claimed::Free(claim) = self.claim(exec, &name, &facts.mountpoint, &plan)? else {
            return Err(because(ErrorKind::Busy, what, "filesystem already mounted"));
        };
        let kernels = Kernels { remembered: &remembered, is_unknown };
        let opens = Opens { enforces_lists: facts.negotiated.has_posix_acl(), ..plan.opens };
        let (zfs, handler) = self.open(handle, txgs, opens, (number, kernels))?;
        for snapshot in &snapshots {
            if let Err(error) = handler.enter_again(snapshot) {
                tracing::warn!("the snapshot {name}@{} that is in use cannot be opened again: {error}", snapshot.name);
            }
        }
        let readers = self.readers(exec).map_err(|error| because(ErrorKind::Io, &*what, error))?;
        begins();
        let session = match heir {
            Some(heir) => Session::adopt_from_dead(&readers, handler.clone(), connection, facts, Box::new(move || drop(heir))),
            None => Session::adopt(&readers, handler.clone(), connection, facts),
        };
        let session = session.map_err(|error| because(ErrorKind::Io, what, error))?;
        claim.fill(Mounted::new(number, name, session, (zfs, handler), plan.wishes, asked));
        Ok(())
    }

    /// Has the kernel tell what it keeps of these file systems, where it may keep anything: what programs wrote is in a snapshot.
    pub(crate) fn flush<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
        for mounted in names.filter_map(|name| self.there(name)).filter(|mounted| mounted.session.writes_back()) {
            mounted.session.flush().map_err(|errno| {
                because(ErrorKind::Io, format!("cannot write what the kernel keeps of '{}'", mounted.name()), format!("{errno}"))
            })?;
        }
        Ok(())
    }

    /// Changes a mount in place; false when it is not mounted.
    pub(crate) fn remount(&self, name: &str, plan: &MountPlan) -> Result<bool, Failure> {
        let Some(mounted) = self.there(name).filter(|mounted| matches!(self.standing(mounted), Standing::Mounted(_))) else {
            return Ok(false);
        };
        let what = format!("cannot mount '{name}'");
        if mounted.zfs.settings().read_only && !plan.opens.settings.read_only {
            mounted.zfs.drain_unlinked().map_err(|error| because(ErrorKind::Io, &*what, error))?;
        }
        // First what still works: a write must not be let through by the one and refused by the other.
        if !plan.opens.settings.read_only {
            mounted.handler.set_settings(plan.opens.settings);
        }
        // The path leads to what lies over it, whose flags would change.
        if self.is_covered(&mounted) {
            mounted.handler.set_settings(plan.opens.settings);
            return Err(because(ErrorKind::Busy, what, "something else is mounted over it")
                .advise("the file system itself follows its properties; flags of its mount follow when it is mounted again"));
        }
        let changed = match mounted.session.remount(&plan.options) {
            // Files are open for writing: the kernel lets their writes through, we don't.
            Err(fuse::Errno::EBUSY) if plan.options.read_only => {
                mounted.session.remount(&MountOptions { read_only: false, ..plan.options.clone() })
            }
            other => other,
        };
        mounted.handler.set_settings(plan.opens.settings);
        *mounted.options.lock() = plan.wishes.iter().filter(|word| *word != "remount").cloned().collect();
        changed.map(|()| true).map_err(|errno| because(ErrorKind::Permission, what, format!("{errno}")))
    }

    /// Options that a mount was asked for beyond its properties.
    pub(crate) fn wishes(&self, name: &str) -> Vec<String> {
        self.there(name).map(|mounted| mounted.wishes()).unwrap_or_default()
    }

    /// Closes snapshots that were browsed under `.zfs/snapshot` and are to be destroyed or renamed. Busy when a file of one is open, or a
    /// directory is where a program works.
    pub fn close_snapshots(&self, names: &[String], verb: &str) -> Result<(), Failure> {
        for name in names {
            let Some((filesystem, snapshot)) = name.split_once('@') else { continue };
            let Some(mounted) = self.there(filesystem) else { continue };
            let busy = || because(ErrorKind::Busy, format!("cannot {verb} snapshot {name}"), "dataset is busy");
            if let (true, Standing::Mounted(place)) = (mounted.handler.has_entered(snapshot), self.standing(&mounted))
                && let Some(program) = working::somebody_in(&place.join(".zfs/snapshot").join(snapshot))
            {
                return Err(busy().advise(format!(
                    "process {program} works in {}/.zfs/snapshot/{snapshot}: let it change its directory",
                    place.display()
                )));
            }
            if !mounted.handler.close_snapshot(snapshot) {
                return Err(busy().advise("close the files that are open under .zfs/snapshot"));
            }
        }
        Ok(())
    }

    /// True when a program works in a snapshot of the mounted file system that has this object set.
    pub(crate) fn works_in(&self, objset: ObjsetId, snapshot: &str) -> bool {
        let own = self.all().into_iter().find(|mounted| mounted.zfs.objset().id() == objset);
        let places = own.map(|mounted| self.places(&mounted)).unwrap_or_default();
        places.iter().any(|place| working::somebody_in(&place.join(".zfs/snapshot").join(snapshot)).is_some())
    }

    /// Has a mounted file system look again at what users, groups and projects may use, and at its version, which were changed.
    pub fn renew(&self, name: &str) {
        if let Some(mounted) = self.there(name) {
            // Where the master node cannot be read those stay that were read before: a new version takes what older ones made.
            let _ = mounted.zfs.renew();
        }
    }

    /// Applies changed properties to a mounted file system.
    pub fn apply(&self, name: &str, settings: Settings) {
        if let Some(mounted) = self.there(name) {
            mounted.handler.set_settings(settings);
        }
    }
}

/// Sorts mounts so that what lies in another comes before it: by the parts of their places, backwards.
fn deepest_first(list: &mut [Arc<Mounted>]) {
    list.sort_by_cached_key(|mounted| std::cmp::Reverse(mounted.session.mountpoint()));
}

impl std::fmt::Debug for Mounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mounted({})", self.name())
    }
}

impl Mounted {
    fn new(
        number: u32,
        name: String,
        session: Session,
        (zfs, handler): (Arc<Zfs>, Arc<ZplFuse>),
        options: Vec<String>,
        asked: Asked,
    ) -> Mounted {
        let (name, options, asked) = (Mutex::new(name), Mutex::new(options), Mutex::new(asked));
        let (leaving, is_awaited) = (AtomicBool::new(false), AtomicBool::new(false));
        Mounted { number, name, session, zfs, handler, options, asked, leaving, is_awaited }
    }

    /// Calls [`ZplFuse::changed_beneath`].
    pub(crate) fn changed_beneath(&self, node: &Node, range: Range<u64>, then: impl FnOnce() + Send + 'static) {
        self.handler.changed_beneath(node, range, then);
    }

    /// Calls [`ZplFuse::attributes_changed`].
    pub(crate) fn attributes_changed(&self, node: &Node) {
        self.handler.attributes_changed(node);
    }

    /// Name of the mounted dataset.
    pub(crate) fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// File system that is mounted.
    pub(crate) fn zfs(&self) -> &Arc<Zfs> {
        &self.zfs
    }

    /// Options that the mount was asked for beyond the properties.
    pub(crate) fn wishes(&self) -> Vec<String> {
        self.options.lock().clone()
    }

    /// Removes the directory that the file system was mounted on, which left this place, if it is one to remove: at any other place than that
    /// of its name the directory is its user's.
    pub(crate) fn remove_directory(&self, left: &Path, directory: Directory) {
        let Some(own) = self.asked.lock().own.clone().filter(|own| own.follows && own.place == left) else { return };
        let place = own.place;
        let goes = match directory {
            Directory::Keep => false,
            Directory::Moves | Directory::Remove => true,
            Directory::RemoveMade => own.made && !is_inside_of_a_pool(&place),
        };
        if goes {
            // Fails when something is in it: then it is not ours alone.
            self.session.apart((), move || drop(std::fs::remove_dir(place)));
        }
    }
}

/// Device and inode of a directory, which tell it from another one that has its name later.
fn identity(place: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(place).ok().filter(std::fs::Metadata::is_dir).map(|facts| (facts.dev(), facts.ino()))
}

/// True for a directory inside of a file system that a FUSE server (we) serves.
fn is_inside_of_a_pool(place: &Path) -> bool {
    const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
    let above = place.parent().unwrap_or(place);
    rustix::fs::statfs(above).is_ok_and(|stat| stat.f_type as u64 == FUSE_SUPER_MAGIC)
}

/// Directory that is there for a mount.
pub(crate) struct Prepared {
    /// True when it was made now.
    pub made: bool,
    /// Path of the mount's place without links.
    pub real: PathBuf,
}

/// Does [`prepare_directory`] apart; the directory may be one of ours.
fn prepare(exec: &Exec, place: &Path, plan: &MountPlan) -> Result<Prepared, Failure> {
    let (place, must_be_empty, mountpoint) = (place.to_path_buf(), plan.must_be_empty, plan.mountpoint.clone());
    let otherwise = because(ErrorKind::Io, format!("cannot mount '{mountpoint}'"), "its directory cannot be looked at");
    let work = move || {
        let made = prepare_directory(&place, must_be_empty, &mountpoint)?;
        Ok(Prepared { made, real: resolved(Path::new(&mountpoint)) })
    };
    fuse::apart(exec, Err(otherwise), work)
}

/// Makes the directory for a mount; true when it was not there.
pub(crate) fn prepare_directory(path: &Path, must_be_empty: bool, mountpoint: &str) -> Result<bool, Failure> {
    let what = || format!("cannot mount '{mountpoint}'");
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        // What a killed daemon left behind; root's mounts slide beneath it.
        fuse::clear_dead_mount(path);
    }
    if let Some(link) = foreign_link(path, 0).filter(|_| is_root) {
        return Err(because(ErrorKind::Permission, what(), format!("'{}' is another user's link", link.display())));
    }
    if fuse::is_dead(path) {
        return Ok(false);
    }
    let made = std::fs::symlink_metadata(path).is_err();
    if made {
        std::fs::create_dir_all(path).map_err(|error| {
            because(ErrorKind::Permission, what(), format!("failed to create mountpoint: {}", os_text(&error)))
                .advise("choose a place that you may write: zfs set mountpoint=/path …, or import with -R")
        })?;
    }
    if must_be_empty && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(because(ErrorKind::Busy, what(), "directory is not empty"));
    }
    Ok(made)
}

/// Words of the system's error, without its number.
fn os_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}
