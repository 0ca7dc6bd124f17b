//! `zfs mount`, and whatever else makes file systems appear: in the order of their places, each with the options that its properties and
//! the request ask for.

use crate::dataset::names::descendants;
use crate::dataset::properties::{self, text_of};
use crate::failure::{self, because};
use crate::mount::enclosed::{check_enclosed, explained};
use crate::mount::holding::Holding;
use crate::mount::lifting::{Lifted, lift_within};
use crate::mount::lost::{Losses, pool_of};
use crate::mount::mounts::{Left, MountPlan};
use crate::mount::opens::Opens;
use crate::mount::options::Asked;
use crate::mount::place::place_of;
use crate::mount::turns::{Turn, Turns};
use crate::mount::wish::Wish;
use crate::pool::{OpenPool, Pools};
use crate::requests::done;
use control_api::{ErrorKind, Failure, MountReport, MountRequest, Response};
use dsl::{DatasetHandle, DslError, PropEntry, PropValue};
use exec::{Exec, Mutex};
use fuse::{MountOptions, Stage, Uring};
use metrics::Parameters;
use ondisk::{ObjsetId, ObjsetType};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zpl::direct::Tunables;

/// Wish with everything that it takes.
struct Ready {
    wish: Wish,
    handle: DatasetHandle,
    plan: MountPlan,
}

/// Mounting of file systems of all pools.
pub(crate) struct Mounter {
    exec: Exec,
    pools: Arc<Pools>,
    parameters: Arc<Parameters>,
    direct: Arc<Tunables>,
    holding: Arc<Holding>,
    turns: Turns,
    /// Folder in which trees of mounts are put together.
    pub stage: PathBuf,
    /// Lock for one tree of mounts to take the place of a dead one at a time: two that take turns would detach each other's.
    staging: Mutex<()>,
    /// File systems that were mounted when their daemon died, and have not come back.
    pub losses: Losses,
    /// File systems in what was mounted around their places later.
    pub lifted: Lifted,
}

impl Mounter {
    /// Makes the mounter; `stage` is the folder in which trees of mounts are put together.
    pub(crate) fn new(
        exec: &Exec,
        pools: &Arc<Pools>,
        (parameters, direct): (&Arc<Parameters>, &Arc<Tunables>),
        holding: &Arc<Holding>,
        stage: PathBuf,
    ) -> Mounter {
        let (exec, pools, parameters, direct) = (exec.clone(), pools.clone(), parameters.clone(), direct.clone());
        let (holding, turns, staging, losses) = (holding.clone(), Turns::default(), Mutex::default(), Losses::new(&exec));
        Mounter { exec, pools, parameters, direct, holding, turns, stage, staging, losses, lifted: Lifted::default() }
    }

    /// Parameters of direct I/O, which file systems and volumes follow.
    pub(crate) fn tunables(&self) -> &Arc<Tunables> {
        &self.direct
    }

    /// Waits for the turn to mount and unmount. Whoever has it does not ask again.
    pub(crate) fn turn(&self) -> Turn<'_> {
        self.turns.turn(&self.exec, &|| self.pools.has_suspended())
    }

    pub(crate) fn mount(&self, request: &MountRequest) -> Result<Response, Failure> {
        let known = Asked::known(&request.options);
        let request = &MountRequest { options: if request.sloppy { known } else { request.options.clone() }, ..request.clone() };
        let asked = Asked::read(&request.options);
        let Some(name) = &request.name else {
            let pools: Vec<Arc<OpenPool>> = self.pools.all();
            if !request.all {
                let mut mounts: Vec<(String, String)> = pools.iter().flat_map(|pool| pool.mounts.in_table()).collect();
                mounts.retain(|(name, _)| !name.contains('@'));
                return Ok(Response::Mounts(mounts.into_iter().map(|(name, mountpoint)| MountReport { name, mountpoint }).collect()));
            }
            asked.map_err(|_| because(ErrorKind::Invalid, "cannot mount", "Invalid argument"))?;
            failure::joined(self.mount_all_with(&pools, &request.options))?;
            return Ok(done());
        };
        let pool = self.pools.pool_of(name, "open")?;
        let remounts = asked.as_ref().is_ok_and(|asked| asked.remount);
        if name.contains('@') && request.place.is_none() && !remounts {
            let what = format!("cannot open '{name}'");
            return Err(because(ErrorKind::Invalid, what, "operation not applicable to datasets of this type"));
        }
        let asked = asked.map_err(|_| because(ErrorKind::Invalid, format!("cannot mount '{name}'"), "Invalid argument"))?;
        let place = request.place.as_ref().map(PathBuf::from);
        let options = request.options.clone();
        let forced = request.force;
        let wish = Wish { by_hand: place.is_some(), place, options, by_itself: false, forced, ..Wish::by_itself(&pool, name) };
        let turn = self.turn();
        if asked.remount {
            let handle = pool.dsl().hold(name).map_err(|error| failure::dataset("open", name, &error))?;
            if asked.read_only == Some(false) && (handle.is_snapshot() || pool.is_read_only()) {
                return Err(because(ErrorKind::Permission, format!("cannot mount '{name}'"), fuse::Errno::EROFS));
            }
            return self.remount(wish);
        }
        if let Some(ready) = self.ready(&wish, request.overlay)? {
            failure::joined(self.mount_ready(&turn, vec![ready]))?;
        }
        Ok(done())
    }

    /// Changes what is mounted; options of its mount that are not named stay.
    fn remount(&self, wish: Wish) -> Result<Response, Failure> {
        let mut options = wish.pool.mounts.wishes(&wish.name);
        options.extend(wish.options.iter().flat_map(|list| list.split(',')).map(String::from));
        let wish = Wish { options, ..wish };
        let is_done = match self.ready(&wish, true)? {
            Some(ready) => wish.pool.mounts.remount(&wish.name, &ready.plan)?,
            None => false,
        };
        if is_done {
            return Ok(done());
        }
        Err(because(ErrorKind::Invalid, format!("cannot mount '{}'", wish.name), "Invalid argument").advise("it is not mounted"))
    }

    /// Mounts what should be mounted by itself in these pools; returns what went wrong.
    pub(crate) fn mount_all(&self, pools: &[Arc<OpenPool>]) -> Vec<Failure> {
        self.mount_all_with(pools, &[])
    }

    /// Does [`Mounter::mount_all`] with these options.
    pub(crate) fn mount_all_with(&self, pools: &[Arc<OpenPool>], options: &[String]) -> Vec<Failure> {
        let turn = self.turn();
        let wishes = pools.iter().flat_map(|pool| self.automatic(pool)).map(|wish| Wish { options: options.to_vec(), ..wish });
        self.mount_wishes(&turn, wishes.collect())
    }

    /// Wishes to mount, each by itself, every dataset of a pool that is not mounted.
    pub(crate) fn automatic(&self, pool: &Arc<OpenPool>) -> Vec<Wish> {
        let mounted: BTreeSet<String> = pool.mounts.list().into_iter().map(|(name, _)| name).collect();
        let names = descendants(pool, &pool.name()).unwrap_or_else(|failure| {
            tracing::warn!("{failure}");
            Vec::new()
        });
        names.iter().filter(|name| !mounted.contains(*name)).map(|name| Wish::by_itself(pool, name)).collect()
    }

    /// Mounts in the order of places, what is in another after it; returns what went wrong.
    pub(crate) fn mount_wishes(&self, turn: &Turn<'_>, wishes: Vec<Wish>) -> Vec<Failure> {
        let (mut list, mut failures) = (Vec::new(), Vec::new());
        for wish in wishes {
            match self.ready(&wish, false) {
                Ok(ready) => list.extend(ready),
                Err(failure) => failures.push(failure),
            }
        }
        failures.extend(self.mount_ready(turn, list));
        failures
    }

    /// Goes on with the mount of a file system that another daemon served; `begins` is called before the first request is served.
    pub(crate) fn adopt(&self, _: &Turn<'_>, wish: Wish, left: Left, begins: impl FnOnce()) -> Result<(), Failure> {
        let Some(Ready { wish, handle, plan }) = self.ready(&wish, true)? else {
            return Err(because(ErrorKind::Invalid, format!("cannot go on with the mount of '{}'", wish.name), "it cannot be mounted"));
        };
        wish.pool.mounts.adopt(&self.exec, handle, wish.pool.txgs(), plan, left, begins)
    }

    /// Mounts again what left, the last of them first.
    pub(crate) fn put_back(&self, turn: &Turn<'_>, wishes: Vec<Wish>) {
        let wishes = wishes.into_iter().rev().map(|wish| Wish { past_bar: true, ..wish });
        self.mount_wishes(turn, wishes.collect()).iter().for_each(|failure| tracing::warn!("{failure}"));
    }

    /// Has what was dead, and was taken away for something that did not come to be, dead again. Whoever calls has the turn.
    pub(crate) fn restore_lost(&self) {
        self.losses.restore(&self.pools);
    }

    /// Does [`Mounter::restore_lost`] for what was dead in something that is gone, with a turn of its own.
    pub(crate) fn restore_others(&self) {
        if !self.losses.away().is_empty() {
            let _turn = self.turn();
            self.restore_lost();
        }
    }

    /// Adds what was lost inside of what is mounted now, and can be mounted again.
    fn add_lost(&self, list: &mut Vec<Ready>) {
        // Somebody else may have unmounted it with what it was in.
        self.losses.prune(&self.pools);
        for note in self.losses.all() {
            let at = |ready: &Ready| PathBuf::from(&ready.plan.mountpoint);
            let is_there = list.iter().any(|ready| ready.wish.name == note.name && at(ready) == note.place);
            let is_inside = list.iter().any(|ready| at(ready) != note.place && note.place.starts_with(at(ready)));
            let Some(pool) = self.pools.get(pool_of(&note.name)).filter(|_| is_inside && !is_there) else { continue };
            let wish = Wish::by_itself(&pool, &note.name);
            let wish = Wish { place: Some(note.place), by_hand: note.by_hand, options: note.options, again: true, ..wish };
            list.extend(self.ready(&wish, false).ok().flatten());
        }
    }

    /// True for what lies in something that is lost: it comes back with that.
    fn waits(&self, wish: &Wish, place: &Path, staged: Option<&Staged>) -> bool {
        wish.by_itself && self.losses.encloses(place, &|at| staged.is_some_and(|tree| tree.has(at)))
    }

    /// Puts a tree in its place, with something dead where what was mounted in it does not come back.
    fn finish(&self, tree: Staged) -> Result<(), Failure> {
        for note in self.losses.to_bury(&tree.place, &|at| tree.has(at)) {
            tree.path_of(&note.place).iter().for_each(|at| self.losses.bury_at(&note, at));
        }
        for (wish, place) in tree.finish()? {
            self.losses.settled(&self.pools, &wish.name, &place, wish.by_hand);
        }
        Ok(())
    }

    /// Takes away what a mount at this place would hide; what is dead is so again by itself. Tells what to mount again.
    fn lift(&self, turn: &Turn<'_>, place: &Path) -> Vec<Wish> {
        self.losses.lift(place);
        lift_within(&self.pools, &self.lifted, turn, place)
    }

    fn mount_ready(&self, turn: &Turn<'_>, mut list: Vec<Ready>) -> Vec<Failure> {
        self.add_lost(&mut list);
        list.sort_by(|a, b| Path::new(&a.plan.mountpoint).cmp(Path::new(&b.plan.mountpoint)));
        let is_dead = |place: &Path| {
            let at = place.to_path_buf();
            rustix::process::geteuid().is_root() && fuse::apart(&self.exec, false, move || fuse::is_dead(&at))
        };
        let staging = list.iter().any(|ready| is_dead(Path::new(&ready.plan.mountpoint))).then(|| self.staging.lock());
        let mut failures = Vec::new();
        // A tree that is put together to take the place of a dead one.
        let mut staged: Option<Staged> = None;
        // A dead mount that stays: what is mounted over it one by one would be written beneath the next.
        let mut kept: Option<PathBuf> = None;
        for mut ready in list {
            // Whoever had the turn before may have mounted it.
            if staging.is_some() && ready.wish.by_itself && ready.wish.is_fulfilled() {
                continue;
            }
            let place = PathBuf::from(&ready.plan.mountpoint);
            if let Some(tree) = staged.take_if(|tree| !place.starts_with(&tree.place)) {
                failures.extend(self.finish(tree).err());
            }
            if self.waits(&ready.wish, &place, staged.as_ref()) && (staged.is_some() || is_dead(&place)) {
                continue;
            }
            if staged.is_none() && kept.as_ref().is_none_or(|kept| !place.starts_with(kept)) && is_dead(&place) {
                match Staged::new(&self.stage, &place) {
                    Ok(tree) => staged = Some(tree),
                    Err(failure) => {
                        failures.push(failure);
                        kept = Some(place.clone());
                    }
                }
            }
            if kept.as_ref().is_some_and(|kept| place.starts_with(kept)) {
                continue;
            }
            ready.plan.staged = staged.as_ref().and_then(|tree| tree.path_of(&place));
            let Ready { wish, handle, plan } = ready;
            let lifted = if staged.is_none() { self.lift(turn, &place) } else { Vec::new() };
            let allowed = check_enclosed(&self.pools, &format!("cannot mount '{}'", wish.name), &wish.name, &place);
            match allowed.and_then(|()| wish.pool.mounts.mount(&self.exec, handle, wish.pool.txgs(), plan)) {
                Ok(()) => {
                    wish.pool.mounts.mounted(&wish.name).iter().for_each(|mounted| self.holding.hold(&wish.pool, mounted));
                    match &mut staged {
                        Some(tree) => tree.mounts.push((wish, place)),
                        None => self.losses.settled(&self.pools, &wish.name, &place, wish.by_hand),
                    }
                }
                Err(failure) => {
                    failures.push(explained(&self.pools, failure, &wish.name, &place));
                    // The dead mount stays rather than that anything is written beneath it.
                    if staged.take_if(|tree| tree.mounts.is_empty()).is_some() {
                        kept = Some(place);
                    }
                }
            }
            turn.step();
            if !lifted.is_empty() {
                failures.extend(self.mount_wishes(turn, lifted));
            }
        }
        failures.extend(staged.and_then(|tree| self.finish(tree).err()));
        self.losses.bury(&self.pools);
        failures
    }

    /// Prepares the mount of a file system; None when it is to be left alone.
    fn ready(&self, wish: &Wish, overlay: bool) -> Result<Option<Ready>, Failure> {
        let (pool, name) = (&wish.pool, &wish.name);
        let handle = pool.dsl().hold(name).map_err(|error| failure::dataset("open", name, &error))?;
        let what = format!("cannot mount '{name}'");
        if let Some(failure) = unusable(&handle, wish)? {
            return if wish.by_itself { Ok(None) } else { Err(failure) };
        }
        let (mountpoint, made_for_it) = place_of(pool, &handle)?;
        let asked = Asked::read(&wish.options).map_err(|_| because(ErrorKind::Invalid, &*what, "Invalid argument"))?;
        if let Some(refusal) = refusal(wish, &handle, &mountpoint, &asked) {
            return refusal.map_or(Ok(None), |(why, next)| {
                let failure = because(ErrorKind::Invalid, what, why);
                Err(next.map_or(failure.clone(), |next| failure.advise(next)))
            });
        }
        let failed = |error: DslError| failure::dataset("mount", name, &error);
        if handle.is_locked().map_err(failed)? {
            return if wish.by_itself { Ok(None) } else { Err(failed(DslError::NoKey)) };
        }
        check_keys(wish, &handle, &asked)?;
        // One that is noted may be another one than the properties say now.
        let is_own = !wish.by_hand && wish.place.as_ref().is_none_or(|place| place == Path::new(&mountpoint));
        let place = wish.place.as_ref().map_or(mountpoint, |place| place.to_string_lossy().into_owned());
        let (settings, mut options) = how(pool, &handle, &asked);
        // Where nothing is written there is nothing to sync, and the kernel forwards none.
        let syncs = || asked.syncfs.unwrap_or_else(|| self.parameters.get("zirconia_mount_syncfs") == Some(1));
        // What the kernel has not told yet reaches us only where its syncs do: a snapshot counts on that.
        options.writes_back = !options.read_only && asked.writeback;
        options.forwards_sync = options.writes_back || !options.read_only && syncs();
        options.uring = match self.parameters.get("zirconia_fuse_uring") {
            Some(1) => Uring::Auto,
            Some(2) => Uring::On,
            _ => Uring::Off,
        };
        // What is encrypted is in no arena, in the clear.
        let arena = pool.pool().arena().filter(|_| !handle.is_encrypted().unwrap_or(true));
        let plan = MountPlan {
            mountpoint: place,
            staged: None,
            must_be_empty: text_of(&handle, "overlay") == "off" && !overlay && !asked.remount,
            made_for_it: made_for_it && is_own,
            opens: Opens {
                settings,
                accounts: pool.accounts(),
                direct: self.direct.clone(),
                writes_back: options.writes_back,
                enforces_lists: options.posix_acl,
                is_suspended: is_suspended(pool),
                works_in: works_in(pool, handle.object()),
                arena: arena.map(|arena| (arena, self.notes_snapshots(pool, handle.object()))),
            },
            options,
            wishes: wish.options.clone(),
            by_hand: wish.by_hand,
            past_bar: wish.past_bar,
            elsewhere: wish.place.is_some() || wish.again,
            number: self.holding.next_number(),
        };
        Ok(Some(Ready { wish: wish.clone(), handle, plan }))
    }

    /// Returns who notes that a snapshot of a mounted file system was entered.
    fn notes_snapshots(&self, pool: &Arc<OpenPool>, objset: u64) -> Box<dyn Fn() + Send + Sync> {
        let (pool, holding) = (Arc::downgrade(pool), self.holding.clone());
        Box::new(move || {
            let Some(pool) = pool.upgrade() else { return };
            let mounted = pool.mounts.all().into_iter().find(|mounted| mounted.zfs().objset().id().0 == objset);
            mounted.iter().for_each(|mounted| holding.hold(&pool, mounted));
        })
    }

    /// Gives mounted file systems at and below a name the flags that their properties ask for now; what their mounts were asked for
    /// beyond them stays, but for the properties that changed.
    pub(crate) fn remount_below(&self, pool: &Arc<OpenPool>, name: &str, changed: &[&str]) -> Result<(), Failure> {
        let stays = |word: &String| {
            let asked = Asked::read(std::slice::from_ref(word)).unwrap_or_default();
            !changed.iter().any(|property| asked.temporary(property).is_some())
        };
        let mut failures = Vec::new();
        for mounted in pool.mounts.below(name) {
            let options: Vec<String> = mounted.wishes().iter().flat_map(|list| list.split(',')).map(String::from).filter(stays).collect();
            let place = Some(mounted.session.mountpoint());
            if let Ok(Some(ready)) = self.ready(&Wish { place, options, ..Wish::again(pool, &mounted) }, true) {
                failures.extend(pool.mounts.remount(&mounted.name(), &ready.plan).err());
            }
        }
        failure::joined(failures)
    }
}

/// Failure for what no wish can have mounted: it is no file system, or not whole.
fn unusable(handle: &DatasetHandle, wish: &Wish) -> Result<Option<Failure>, Failure> {
    let name = &wish.name;
    let is_meant = (wish.forced || wish.again) && dsl::allows_redacted();
    if handle.has_feature(dsl::features::REDACTED_DATASETS) && !is_meant {
        let why = "Dataset is not complete, was created by receiving a redacted zfs send stream.";
        let failure = because(ErrorKind::Invalid, format!("cannot mount '{name}'"), why);
        return Ok(Some(failure.advise("'zfs mount -f' mounts it where the parameter zfs_allow_redacted_dataset_mount is 1")));
    }
    if handle.is_inconsistent() {
        let failure = because(ErrorKind::Busy, format!("cannot mount '{name}'"), "it was not received to its end");
        return Ok(Some(failure.advise("receive the rest of it, or give it up with 'zfs receive -A'")));
    }
    if handle.kind().map_err(|error| failure::dataset("mount", name, &error))? == ObjsetType::ZFS {
        return Ok(None);
    }
    let why = "operation not applicable to datasets of this type";
    Ok(Some(because(ErrorKind::Invalid, format!("cannot open '{name}'"), why)))
}

/// Reason why a file system is not mounted; the inner None says nothing about it.
#[allow(clippy::type_complexity)]
fn refusal(wish: &Wish, handle: &DatasetHandle, mountpoint: &str, asked: &Asked) -> Option<Option<(&'static str, Option<&'static str>)>> {
    let quiet = |why, next| Some(if wish.by_itself { None } else { Some((why, next)) });
    if handle.is_snapshot() {
        return if wish.place.is_none() && !asked.remount { quiet("snapshots are mounted by mount(8)", None) } else { None };
    }
    // Over the root no path leads to the mount, and so nobody could unmount it.
    let is_root = |place: &Path| place.has_root() && place.parent().is_none();
    let over_root = ("'/' is the root of the running system", Some("set another mountpoint, or import the pool with '-R DIR'"));
    if let (Some(place), false) = (&wish.place, asked.remount) {
        return is_root(place).then_some(Some(over_root));
    }
    if asked.remount {
        return None;
    }
    match (text_of(handle, "canmount").as_str(), mountpoint) {
        (_, "legacy") => quiet("legacy mountpoint", Some("use mount(8) to mount this filesystem")),
        (_, "none") => quiet("no mountpoint set", None),
        ("off", _) => quiet("'canmount' property is set to 'off'", None),
        ("noauto", _) if wish.by_itself && !wish.again => Some(None),
        _ if wish.by_itself && !wish.again && wish.pool.mounts.mountpoint(&wish.name).is_some() => Some(None),
        (_, place) if is_root(Path::new(place)) => Some(Some(over_root)),
        _ => None,
    }
}

/// Tree of mounts that takes the place of a dead one.
struct Staged {
    stage: Stage,
    place: PathBuf,
    mounts: Vec<(Wish, PathBuf)>,
}

impl Staged {
    /// Begins a tree; fails where that can't be: the dead mount stays.
    fn new(folder: &Path, place: &Path) -> Result<Staged, Failure> {
        let stage = Stage::new(folder).map_err(|errno| not_replaced(place, errno))?;
        Ok(Staged { stage, place: place.to_path_buf(), mounts: Vec::new() })
    }

    /// Path of a place while the tree is put together.
    fn path_of(&self, place: &Path) -> Option<PathBuf> {
        let below = place.strip_prefix(&self.place).ok()?;
        let tree = self.stage.tree();
        Some(if below.as_os_str().is_empty() { tree } else { tree.join(below) })
    }

    /// True when something is mounted there already.
    fn has(&self, place: &Path) -> bool {
        self.mounts.iter().any(|(_, at)| at == place)
    }

    /// Puts the tree in its place; returns what is mounted there now.
    fn finish(self) -> Result<Vec<(Wish, PathBuf)>, Failure> {
        self.stage.slide(&self.place).map_err(|errno| not_replaced(&self.place, errno))?;
        self.mounts.iter().for_each(|(wish, place)| wish.pool.mounts.moved(&wish.name, place));
        Ok(self.mounts)
    }
}

fn not_replaced(place: &Path, errno: fuse::Errno) -> Failure {
    because(ErrorKind::Io, format!("cannot mount '{}'", place.display()), format!("the dead mount can't be replaced: {errno}"))
        .advise(format!("umount -R -l {}, then zfs mount -a", place.display()))
}

/// Returns a question whether the pool is suspended, for as long as it is open.
fn is_suspended(pool: &Arc<OpenPool>) -> Box<dyn Fn() -> bool + Send + Sync> {
    let pool = Arc::downgrade(pool);
    Box::new(move || pool.upgrade().is_some_and(|pool| pool.pool().zio().is_suspended()))
}

/// Returns a question whether a program works in a snapshot of a mounted file system.
fn works_in(pool: &Arc<OpenPool>, objset: u64) -> Box<dyn Fn(&str) -> bool + Send + Sync> {
    let mounts = Arc::downgrade(&pool.mounts);
    Box::new(move |snapshot| mounts.upgrade().is_some_and(|mounts| mounts.works_in(ObjsetId(objset), snapshot)))
}

/// Failure of a mount for writing of what has keys of the first version, which are not written with (OpenZFS: `dmu_objset_own_impl`).
fn check_keys(wish: &Wish, handle: &DatasetHandle, asked: &Asked) -> Result<(), Failure> {
    let is_for_reading = asked.read_only.unwrap_or_else(|| text_of(handle, "readonly") != "off");
    let has_old_keys = || handle.has_old_keys().map_err(|error| failure::dataset("mount", &wish.name, &error));
    if is_for_reading || wish.pool.is_read_only() || handle.is_snapshot() || !has_old_keys()? {
        return Ok(());
    }
    let failure = because(ErrorKind::Permission, format!("cannot mount '{}'", wish.name), fuse::Errno::EROFS);
    Err(failure.advise("its keys are of the first version: 'zfs mount -o ro' mounts it; 'zpool status' tells how to get rid of them"))
}

/// Behaviour and flags of a mount, as properties and request ask for.
fn how(pool: &OpenPool, handle: &DatasetHandle, asked: &Asked) -> (zpl::Settings, MountOptions) {
    let mut settings = properties::settings(pool, handle);
    asked.apply(&mut settings);
    settings.read_only |= pool.is_read_only() || handle.is_snapshot() || handle.is_encrypted_for_good().unwrap_or(true);
    settings.snapshot = handle.is_snapshot();
    let on = |property: &str, option: Option<bool>| option.unwrap_or(text_of(handle, property) != "off");
    let options = MountOptions {
        source: handle.name(),
        read_only: settings.read_only,
        suid: on("setuid", asked.suid),
        devices: on("devices", asked.devices),
        exec: on("exec", asked.exec),
        atime: settings.atime,
        posix_acl: settings.posix_acl,
        max_write: request_bytes_max(handle),
        ..MountOptions::default()
    };
    settings.atime &= !settings.read_only;
    (settings, options)
}

/// Behaviour of a mounted file system, with what its mount was asked for.
pub(crate) fn settings_of(pool: &OpenPool, handle: &DatasetHandle, wishes: &[String]) -> zpl::Settings {
    let asked = Asked::read(wishes).unwrap_or_default();
    how(pool, handle, &asked).0
}

/// Largest request of the mount in bytes: it must hold a whole record, or direct writes of such records could never be direct.
fn request_bytes_max(handle: &DatasetHandle) -> u32 {
    let record = match handle.prop("recordsize") {
        Ok(PropEntry { value: PropValue::Bytes(bytes), .. }) => bytes,
        _ => 0,
    };
    (record.min(16 << 20) as u32).max(MountOptions::default().max_write)
}
