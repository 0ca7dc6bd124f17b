//! `zfs unmount`, and whatever else makes file systems leave: all of a tree or, when one is in use, none; by force within a deadline,
//! whatever has files open there.
//!
//! By force, what is in use is cut off from its server, so that everything that waits for it gets an error, and then detached. One
//! that does not come to its end all the same (its pool waits for a device) stays in the table of mounts and blocks its name.

use crate::failure::because;
use crate::lifting;
use crate::mounting::Wish;
use crate::mounts::{Directory, END_NS, Mounted, Mounts, Standing};
use crate::turns::Turn;
use crate::{Control, OpenPool};
use control_api::{ErrorKind, Failure, Response, UnmountRequest};
use exec::{Condvar, Exec, Mutex};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// After so long without progress (a path leads through a server that does not answer) everything is cut off at once.
const STALL_NS: u64 = 2_000_000_000;
/// Longest time for the forced end of any number of mounts.
pub(crate) const FORCED_NS: u64 = 10_000_000_000;
const STEP: Duration = Duration::from_millis(20);

/// A mount that is to leave by force, and the mounts of its pool.
pub(crate) type Leaver = (Arc<Mounts>, Arc<Mounted>);

/// How far the forced end of some mounts is.
#[derive(Default)]
struct Forced {
    /// Mounts that were looked at, and whether that is all.
    progress: Mutex<(usize, bool)>,
    changed: Condvar,
    /// Nothing is asked of the servers any more.
    is_hard: AtomicBool,
}

fn busy(place: &Path) -> Failure {
    because(ErrorKind::Busy, format!("cannot unmount '{}'", place.display()), "pool or dataset is busy")
}

impl Mounts {
    /// Unmounts it, unless it is in use, from its place; where it is mounted elsewhere it stays.
    pub(crate) fn leave(&self, mounted: &Mounted) -> Result<(), Failure> {
        let place = match self.standing(mounted) {
            Standing::Gone => return Ok(()),
            Standing::Leaving if mounted.session.wait_end(END_NS) => return Ok(()),
            Standing::Leaving => return Err(busy(&mounted.session.mountpoint()).advise("it is being unmounted already")),
            Standing::Detached => {
                return Err(busy(&mounted.session.mountpoint()).advise(
                    "it was detached while files are open there, or is mounted in another mount namespace; '-f' cuts their programs off",
                ));
            }
            Standing::Mounted(place) => place,
        };
        if self.is_covered(mounted) {
            return Err(busy(&place).advise("something else is mounted over it: unmount that first"));
        }
        if mounted.leaving.swap(true, Ordering::AcqRel) {
            return Err(busy(&place).advise("it is being unmounted already"));
        }
        let outcome = match mounted.session.unmount(false) {
            // A bind mount, or one more that was asked for.
            Ok(()) if !self.places(mounted).is_empty() => Ok(()),
            Ok(()) if mounted.session.wait_end(END_NS) => Ok(()),
            Ok(()) => Err(busy(&place).advise("it is mounted in another mount namespace too, or its pool does not answer")),
            Err(fuse::Errno::EBUSY) => Err(busy(&place).advise("close the files that are open there (lsof, fuser), or use '-f'")),
            Err(errno) => Err(because(ErrorKind::Busy, format!("cannot unmount '{}'", place.display()), errno)),
        };
        mounted.leaving.store(false, Ordering::Release);
        outcome
    }
}

impl Mounts {
    /// [`Mounts::leave`], from every place where it is mounted if `everywhere`.
    fn leave_all(&self, mounted: &Mounted, everywhere: bool) -> Result<(), Failure> {
        self.leave(mounted)?;
        while everywhere && matches!(self.standing(mounted), Standing::Mounted(_)) {
            self.leave(mounted)?;
        }
        Ok(())
    }
}

/// One mount's way out by force.
fn force_out(mounts: &Mounts, mounted: &Mounted, is_hard: &AtomicBool) {
    let standing = mounts.standing(mounted);
    mounted.leaving.store(true, Ordering::Release);
    let is_there = matches!(standing, Standing::Mounted(_)) && !mounts.is_covered(mounted);
    if is_there && !is_hard.load(Ordering::Acquire) && mounted.session.unmount(false).is_ok() && mounted.session.wait_end(STALL_NS / 4) {
        return;
    }
    let _ = mounted.session.cut();
    if is_there {
        let _ = mounted.session.detach();
        for place in mounts.places(mounted) {
            mounted.session.moved(&place);
            let _ = mounted.session.detach();
        }
    }
}

/// Ends mounts within [`FORCED_NS`], whatever has files open there; what is left did not come to its end.
pub(crate) fn force(exec: &Exec, mut list: Vec<Leaver>) -> Vec<Leaver> {
    list = lifting::leaving_order(list, Vec::new());
    let begun = exec.now_ns();
    let forced = Arc::new(Forced::default());
    let (state, ordered) = (forced.clone(), list.clone());
    let work = move || {
        for (mounts, mounted) in ordered {
            force_out(&mounts, &mounted, &state.is_hard);
            state.progress.lock().0 += 1;
            state.changed.notify_all();
        }
        state.progress.lock().1 = true;
        state.changed.notify_all();
    };
    drop(exec.spawn_operation("z-unmount", Box::new(work)));
    let mut last = (0, begun);
    loop {
        let now = exec.now_ns();
        let mut progress = forced.progress.lock();
        if progress.1 || now - begun > FORCED_NS {
            break;
        }
        if progress.0 > last.0 {
            last = (progress.0, now);
        }
        if now - last.1 > STALL_NS && !forced.is_hard.swap(true, Ordering::AcqRel) {
            drop(progress);
            for (_, mounted) in &list {
                mounted.leaving.store(true, Ordering::Release);
                let _ = mounted.session.cut();
            }
            continue;
        }
        forced.changed.wait_for(&mut progress, STEP);
    }
    let left = |mounted: &Mounted| !mounted.session.wait_end((begun + FORCED_NS).saturating_sub(exec.now_ns()).max(1));
    list.retain(|(_, mounted)| left(mounted));
    list
}

impl Control {
    /// Unmounts a dataset and what is below it, all or, when one is in use, none; tells what to mount to have it back.
    pub(crate) fn unmount_tree(
        self: &Arc<Self>,
        turn: &Turn<'_>,
        pool: &Arc<OpenPool>,
        name: &str,
        force: bool,
        directory: Directory,
    ) -> Result<Vec<Wish>, Failure> {
        let own: Vec<Leaver> = pool.mounts.below(name).into_iter().map(|mounted| (pool.mounts.clone(), mounted)).collect();
        let is_own = |mounted: &Mounted| own.iter().any(|(_, own)| std::ptr::eq(&**own, mounted));
        // What hides some of them goes, too, and comes back.
        let list = lifting::leaving_order(own.clone(), self.all_mounts());
        let (mut wishes, mut lifted) = (Vec::new(), Vec::new());
        if force {
            let own: Vec<Arc<Mounted>> = own.iter().map(|(_, mounted)| mounted.clone()).collect();
            self.check_unserved(&own)?;
            for (mounts, mounted) in list.iter().filter(|(_, mounted)| !is_own(mounted)) {
                let wish = self.wish_again(mounts, mounted);
                lifted.extend(wish.filter(|_| mounts.leave(mounted).is_ok()));
            }
            wishes.extend(own.iter().map(|mounted| Wish::again(pool, mounted)));
            let forced = self.unmount_by_force(pool, own);
            if forced.is_err() {
                self.put_back(turn, lifted);
                return forced.map(|()| wishes);
            }
        } else {
            for (mounts, mounted) in &list {
                let wish = if is_own(mounted) { Some(Wish::again(pool, mounted)) } else { self.wish_again(mounts, mounted) };
                let everywhere = is_own(mounted) && directory == Directory::RemoveMade;
                let was_there = matches!(mounts.standing(mounted), Standing::Mounted(_));
                if let Err(failure) = mounts.leave_all(mounted, everywhere) {
                    // Another mount namespace has it too: it goes on there, and is the same when it is mounted here again.
                    let is_elsewhere = was_there && mounts.standing(mounted) == Standing::Detached;
                    if !(is_elsewhere && is_own(mounted) && directory == Directory::Keep) {
                        lifted.append(&mut wishes);
                        lifted.extend(wish.filter(|_| is_elsewhere));
                        self.put_back(turn, lifted);
                        return Err(failure);
                    }
                }
                turn.step();
                if is_own(mounted) { wishes.extend(wish) } else { lifted.extend(wish) }
            }
        }
        for (_, mounted) in list.iter().filter(|(_, mounted)| is_own(mounted)) {
            mounted.remove_directory(directory);
        }
        self.put_back(turn, lifted);
        drop(list);
        drop(own);
        // What has ended lets go of its dataset.
        drop(pool.mounts.all());
        self.sync_after_unmount(pool)?;
        wishes.reverse();
        Ok(wishes)
    }

    fn unmount_by_force(&self, pool: &Arc<OpenPool>, list: Vec<Arc<Mounted>>) -> Result<(), Failure> {
        let left = force(&self.exec, list.into_iter().map(|mounted| (pool.mounts.clone(), mounted)).collect());
        match left.first() {
            Some((_, mounted)) => Err(busy(&mounted.session.mountpoint())
                .advise("its programs are cut off, but requests that it has already do not end: does its pool wait for a device?")),
            None => Ok(()),
        }
    }

    /// What was written is on disk when a file system is unmounted, as far as its devices answer.
    fn sync_after_unmount(&self, pool: &OpenPool) -> Result<(), Failure> {
        if pool.is_read_only() || pool.pool().zio().is_suspended() {
            return Ok(());
        }
        pool.pool().sync().map_err(|error| because(ErrorKind::Io, format!("cannot sync '{}'", pool.name()), error))
    }

    pub(crate) fn unmount(self: &Arc<Self>, request: &UnmountRequest) -> Result<Response, Failure> {
        match &request.target {
            Some(target) => self.unmount_one(target, request.force)?,
            None => self.unmount_all(request.force)?,
        }
        Ok(crate::pools::done())
    }

    fn unmount_one(self: &Arc<Self>, target: &str, force: bool) -> Result<(), Failure> {
        let turn = self.turn();
        let name = if target.starts_with('/') { self.unmount_target(target)? } else { target.to_string() };
        let pool = self.pool_of(&name, "open")?;
        pool.mounts.choose(&name, Path::new(target));
        let what = format!("cannot unmount '{target}'");
        if name.contains('@') && !target.starts_with('/') {
            let what = format!("cannot open '{name}'");
            return Err(because(ErrorKind::Invalid, what, "operation not applicable to datasets of this type"));
        }
        let handle = pool.dsl().hold(&name).map_err(|error| crate::failure::dataset("open", &name, &error))?;
        if !name.contains('@') && crate::mounting::text_of(&handle, "mountpoint") == "legacy" {
            return Err(because(ErrorKind::Invalid, what, "legacy mountpoint").advise("use umount(8) to unmount this filesystem"));
        }
        drop(handle);
        if !pool.mounts.all().iter().any(|mounted| mounted.name() == name) {
            return Err(because(ErrorKind::Invalid, what, "not currently mounted"));
        }
        // What is mounted on top of it goes first.
        self.unmount_tree(&turn, &pool, &name, force, Directory::Keep).map(drop)
    }

    /// The dataset whose mount a path names.
    fn unmount_target(&self, path: &str) -> Result<String, Failure> {
        let refused = |why: &str| Err(because(ErrorKind::NotFound, format!("cannot unmount '{path}'"), why));
        let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let text = place.to_string_lossy().into_owned();
        let pools: Vec<Arc<OpenPool>> = self.pools.read().values().cloned().collect();
        let on_top = pools.iter().find(|pool| pool.mounts.is_on_top(&text)).and_then(|pool| pool.mounts.find(&text));
        if let Some(name) = on_top.or_else(|| pools.iter().find_map(|pool| pool.mounts.find(&text))) {
            return Ok(name);
        }
        let best = pools.iter().filter_map(|pool| pool.mounts.dataset_at(&text)).max_by_key(|(place, _)| place.len());
        match best {
            Some(_) => refused("not a mountpoint"),
            None if place.exists() => refused("not a ZFS filesystem"),
            None => refused("not currently mounted"),
        }
    }

    /// Everything but what is mounted by hand (`legacy`, `noauto`); one that is in use does not hold up the others.
    fn unmount_all(self: &Arc<Self>, force: bool) -> Result<(), Failure> {
        let turn = self.turn();
        let pools: Vec<Arc<OpenPool>> = self.pools.read().values().cloned().collect();
        let mut list: Vec<Leaver> = Vec::new();
        for pool in &pools {
            for mounted in pool.mounts.all() {
                let Ok(handle) = pool.dsl().hold(&mounted.name()) else { continue };
                let is_manual = handle.is_snapshot()
                    || crate::mounting::text_of(&handle, "mountpoint") == "legacy"
                    || crate::mounting::text_of(&handle, "canmount") == "noauto";
                if !is_manual {
                    list.push((pool.mounts.clone(), mounted));
                }
            }
        }
        let list = lifting::leaving_order(list, Vec::new());
        let mut failures = Vec::new();
        if force {
            let left = self::force(&self.exec, list);
            failures.extend(left.iter().map(|(_, mounted)| busy(&mounted.session.mountpoint())));
        } else {
            for (mounts, mounted) in list {
                failures.extend(mounts.leave(&mounted).err());
                turn.step();
            }
        }
        for pool in &pools {
            failures.extend(self.sync_after_unmount(pool).err());
        }
        crate::failure::joined(failures)
    }

    /// Ends every mount of these pools for the end of the daemon; files that are open do not keep it.
    pub(crate) fn unmount_for_good(&self, pools: &[Arc<OpenPool>]) {
        let mut list = Vec::new();
        for open in pools {
            open.mounts.close();
            if open.pool().zio().is_suspended() {
                // Requests that wait for a device must not keep the daemon: its pool is left as after a crash.
                open.pool().zio().abandon();
            }
            list.extend(open.mounts.all().into_iter().map(|mounted| (open.mounts.clone(), mounted)));
        }
        for (_, mounted) in force(&self.exec, list) {
            eprintln!("{}", busy(&mounted.session.mountpoint()).advise("requests to it do not end"));
        }
    }
}
