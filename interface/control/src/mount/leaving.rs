//! One mount's way out: unless it is in use, or by force within a deadline, whatever has files open there.
//!
//! By force, what is in use is cut off from its server, so that everything that waits for it gets an error, and then detached.

use crate::failure::because;
use crate::mount::lifting::{self, Leaver};
use crate::mount::mounts::{Directory, END_NS, Mounted, Mounts};
use crate::mount::whereabouts::Standing;
use crate::pool::OpenPool;
use control_api::{ErrorKind, Failure};
use exec::{Condvar, Exec, Mutex};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Nanoseconds without progress (a path leads through a server that does not answer) after which everything is cut off at once.
const STALL_NS: u64 = 2_000_000_000;

/// Longest time in nanoseconds for the forced end of mounts without one of them ending: a thousand take longer, on a busy machine.
const FORCED_NS: u64 = 10_000_000_000;

const STEP: Duration = Duration::from_millis(20);

/// Extent to which a file system that is forced leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// From its place. At others it goes on; those are dead from then on where what is in use had to be cut off.
    Place,
    /// From its place, and it ends: others are dead from then on, so that nothing is written beneath them.
    End,
    /// From all places.
    Everywhere,
}

impl Extent {
    /// Extent that goes with the fate of the directory.
    pub(crate) fn of(directory: Directory) -> Extent {
        match directory {
            Directory::Keep | Directory::Moves => Extent::Place,
            Directory::Remove => Extent::End,
            Directory::RemoveMade => Extent::Everywhere,
        }
    }
}

#[derive(Default)]
struct Progress {
    /// Number of mounts that were looked at.
    count: usize,
    is_all: bool,
    /// Indices of those that go on at other places.
    go_on: Vec<usize>,
}

/// State of the forced end of some mounts.
#[derive(Default)]
struct Forced {
    progress: Mutex<Progress>,
    changed: Condvar,
    /// True when nothing is asked of the servers any more.
    is_hard: AtomicBool,
}

/// Failure of a mount that does not leave.
pub(crate) fn busy(place: &Path) -> Failure {
    because(ErrorKind::Busy, format!("cannot unmount '{}'", place.display()), "pool or dataset is busy")
}

impl Mounts {
    /// Unmounts a file system, unless it is in use, from its place; where it is mounted elsewhere it stays.
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
            Ok(()) if self.is_anywhere(mounted) => Ok(()),
            Ok(()) if mounted.session.wait_end(END_NS) => Ok(()),
            Ok(()) => Err(busy(&place).advise("it is mounted in another mount namespace too, or its pool does not answer")),
            Err(fuse::Errno::EBUSY) => Err(busy(&place).advise("close the files that are open there (lsof, fuser), or use '-f'")),
            Err(errno) => Err(because(ErrorKind::Busy, format!("cannot unmount '{}'", place.display()), errno)),
        };
        mounted.leaving.store(false, Ordering::Release);
        outcome
    }

    /// Leaves as [`Mounts::leave`] does, from every place where it is mounted if `everywhere`.
    pub(crate) fn leave_all(&self, mounted: &Mounted, everywhere: bool) -> Result<(), Failure> {
        self.leave(mounted)?;
        while everywhere && matches!(self.standing(mounted), Standing::Mounted(_)) {
            self.leave(mounted)?;
        }
        Ok(())
    }
}

/// Unmounts what is not in use; false where it is.
fn leave_unused(mounts: &Mounts, mounted: &Mounted, extent: Extent) -> bool {
    let leaves = |place: &PathBuf| {
        mounted.session.moved(place);
        mounted.session.unmount(false).is_ok()
    };
    mounted.session.unmount(false).is_ok() && (extent != Extent::Everywhere || mounts.places(mounted).iter().all(leaves))
}

/// Takes one mount away by force; true when it goes on elsewhere.
fn force_out(mounts: &Mounts, mounted: &Mounted, extent: Extent, is_hard: &AtomicBool) -> bool {
    let standing = mounts.standing(mounted);
    let place = mounted.session.mountpoint();
    mounted.leaving.store(true, Ordering::Release);
    let is_there = matches!(standing, Standing::Mounted(_)) && !mounts.is_covered(mounted);
    if is_there && !is_hard.load(Ordering::Acquire) && leave_unused(mounts, mounted, extent) {
        let is_elsewhere = mounts.is_anywhere(mounted);
        if is_elsewhere && extent == Extent::Place {
            mounted.leaving.store(false, Ordering::Release);
            return true;
        }
        if !is_elsewhere && mounted.session.wait_end(STALL_NS / 4) {
            return false;
        }
    }
    let _ = mounted.session.cut();
    if is_there {
        let all = if extent == Extent::Everywhere { mounts.places(mounted) } else { Vec::new() };
        // What it left already may be somebody else's now.
        for place in Some(place).filter(|place| mounts.is_at(mounted, place)).into_iter().chain(all) {
            mounted.session.moved(&place);
            let _ = mounted.session.detach();
        }
    }
    false
}

/// Has mounts leave, each within [`FORCED_NS`] of the one before, whatever has files open there; what is left of them did not come to its end.
pub(crate) fn force(exec: &Exec, mut list: Vec<Leaver>, extent: Extent) -> Vec<Leaver> {
    list = lifting::leaving_order(list, Vec::new());
    let begun = exec.now_ns();
    let forced = Arc::new(Forced::default());
    let (state, ordered) = (forced.clone(), list.clone());
    let work = move || {
        for (index, (mounts, mounted)) in ordered.iter().enumerate() {
            let goes_on = force_out(mounts, mounted, extent, &state.is_hard);
            let mut progress = state.progress.lock();
            progress.count += 1;
            progress.go_on.extend(goes_on.then_some(index));
            state.changed.notify_all();
        }
        state.progress.lock().is_all = true;
        state.changed.notify_all();
    };
    drop(exec.spawn_operation("z-unmount", Box::new(work)));
    let mut last = (0, begun);
    let go_on = loop {
        let now = exec.now_ns();
        let mut progress = forced.progress.lock();
        if progress.count > last.0 {
            last = (progress.count, now);
        }
        if progress.is_all || now - last.1 > FORCED_NS {
            break progress.go_on.clone();
        }
        if now - last.1 > STALL_NS && !forced.is_hard.swap(true, Ordering::AcqRel) {
            drop(progress);
            for (_, mounted) in list.iter().skip(last.0) {
                mounted.leaving.store(true, Ordering::Release);
                let _ = mounted.session.cut();
            }
            continue;
        }
        forced.changed.wait_for(&mut progress, STEP);
    };
    let left = |mounted: &Mounted| !mounted.session.wait_end((last.1 + FORCED_NS).saturating_sub(exec.now_ns()).max(1));
    let stuck = list.into_iter().enumerate().filter(|(index, (_, mounted))| !go_on.contains(index) && left(mounted));
    stuck.map(|(_, leaver)| leaver).collect()
}

/// Ends every mount of these pools for the end of the daemon; files that are open do not keep it.
pub(crate) fn unmount_for_good(exec: &Exec, pools: &[Arc<OpenPool>]) {
    let mut list = Vec::new();
    for open in pools {
        open.mounts.close();
        if open.pool().zio().is_suspended() {
            // Requests that wait for a device must not keep the daemon: its pool is left as after a crash.
            open.pool().zio().abandon();
        }
        list.extend(open.mounts.all().into_iter().map(|mounted| (open.mounts.clone(), mounted)));
    }
    for (_, mounted) in force(exec, list, Extent::Everywhere) {
        tracing::warn!("{}", busy(&mounted.session.mountpoint()).advise("requests to it do not end"));
    }
}
