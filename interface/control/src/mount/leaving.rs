//! One mount's way out: unless it is in use, or by force within a deadline, whatever has files open there.
//!
//! By force, what is in use is cut off from its server, so that everything that waits for it gets an error, and detached when its last request
//! is answered.

use crate::failure::because;
use crate::mount::lifting::{self, Leaver};
use crate::mount::mounts::{Directory, END_NS, Mounted, Mounts};
use crate::mount::whereabouts::Standing;
use crate::pool::OpenPool;
use control_api::{ErrorKind, Failure};
use exec::{Condvar, Exec, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Nanoseconds without progress (a path leads through a server that does not answer) after which everything is cut off at once.
const STALL_NS: u64 = 2_000_000_000;

/// Longest time in nanoseconds for the forced end of mounts without one of them ending: a thousand take longer, on a busy machine. Below
/// the patience of whoever waits for a suspended pool, so that who waits is told of the mounts.
const FORCED_NS: u64 = 8_000_000_000;

const STEP: Duration = Duration::from_millis(20);
/// Nanoseconds between looks at mounts that have requests under way.
const LOOK_NS: u64 = 100_000_000;

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
    /// Number of times that something came of it.
    steps: usize,
    /// Indices of the mounts that have not left.
    left: BTreeSet<usize>,
    /// Time since when paths are asked that may lead through a server that does not answer; none while nothing is asked.
    asking_since_ns: Option<u64>,
    /// True when nobody waits for them any more.
    is_over: bool,
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

/// Has one mount leave, or cuts it off; true when it goes on elsewhere.
fn force_out(mounts: &Mounts, mounted: &Mounted, extent: Extent, is_hard: &AtomicBool) -> bool {
    let standing = mounts.standing(mounted);
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
    let is_cut = mounted.session.cut().is_ok();
    // Nobody is told that it did not leave when its pool goes; and what cannot be cut does not end while it is there.
    if extent == Extent::Everywhere || is_there && !is_cut {
        let place = mounted.session.mountpoint();
        let all = if extent == Extent::Everywhere { mounts.places(mounted) } else { Vec::new() };
        // What it left already may be somebody else's now.
        for place in Some(place).filter(|place| mounts.is_at(mounted, place)).into_iter().chain(all) {
            mounted.session.moved(&place);
            let _ = mounted.session.detach();
        }
    }
    false
}

/// Detaches a mount that was cut and has come to its end, from the place where it is still.
fn detach_dead(mounts: &Mounts, mounted: &Mounted) {
    let place = mounted.session.mountpoint();
    if !mounts.is_at(mounted, &place) || mounts.is_covered(mounted) {
        return;
    }
    // What has its number and answers is somebody else's.
    if mounted.session.apart(false, move || fuse::is_dead(&place)) {
        let _ = mounted.session.detach();
    }
}

/// Mounts that are forced to leave, in this order.
///
/// What was cut stays in its place, dead, until its last request is answered, and what is around it stays as it is: were it detached before, and its
/// command said that it did not leave, programs would write beneath it what the next mount hides.
struct Forcing {
    exec: Exec,
    rest: BTreeMap<usize, Leaver>,
    /// Indices of those that were asked to leave, or cut.
    tried: BTreeSet<usize>,
    extent: Extent,
    told: Arc<Forced>,
}

impl Forcing {
    /// Has them leave one after the other, and waits for those that have requests under way, also when the command does not any more.
    fn run(mut self) {
        let mut is_alone = false;
        loop {
            for index in self.rest.keys().copied().collect::<Vec<usize>>() {
                self.step(index);
            }
            if !is_alone && self.told.progress.lock().is_over {
                is_alone = true;
                // What the command did not come to goes on.
                self.rest.retain(|index, _| self.tried.contains(index));
                // Somebody waits for all of them already: one who repeats the command adds nothing.
                if self.rest.values().filter(|(_, mounted)| !mounted.is_awaited.swap(true, Ordering::AcqRel)).count() == 0 {
                    return;
                }
            }
            let Some((_, (_, first))) = self.rest.first_key_value() else { return };
            first.session.wait_end(LOOK_NS);
        }
    }

    /// Has one leave, unless another one that has not lies in it, and takes it away when it has come to its end.
    fn step(&mut self, index: usize) {
        let Some((mounts, mounted)) = self.rest.get(&index).cloned() else { return };
        let place = mounted.session.mountpoint();
        let is_inside = |(_, (mounts, other)): (&usize, &Leaver)| {
            let inner = other.session.mountpoint();
            inner.starts_with(&place) && mounts.is_at(other, &inner)
        };
        if self.rest.range(..index).any(is_inside) {
            return;
        }
        let mut is_done = false;
        if self.tried.insert(index) {
            self.told.progress.lock().asking_since_ns = Some(self.exec.now_ns());
            is_done = force_out(&mounts, &mounted, self.extent, &self.told.is_hard);
        }
        if !is_done && mounted.session.has_ended() {
            self.told.progress.lock().asking_since_ns = Some(self.exec.now_ns());
            detach_dead(&mounts, &mounted);
            is_done = true;
        }
        // It lets go of its dataset before anybody hears that it has left.
        drop((mounts, mounted));
        if is_done {
            drop(self.rest.remove(&index));
        }
        let mut progress = self.told.progress.lock();
        let has_asked = progress.asking_since_ns.take().is_some();
        progress.steps += usize::from(is_done || has_asked);
        if is_done {
            progress.left.remove(&index);
        }
        drop(progress);
        self.told.changed.notify_all();
    }
}

/// Has mounts leave, each within [`FORCED_NS`] of the one before, whatever has files open there; what is left of them did not come to its end: it
/// is dead, stays where it is, and goes by itself when it has.
pub(crate) fn force(exec: &Exec, list: Vec<Leaver>, extent: Extent) -> Vec<Leaver> {
    let list = lifting::leaving_order(list, Vec::new());
    let rest: BTreeMap<usize, Leaver> = list.iter().cloned().enumerate().collect();
    let progress = Mutex::new(Progress { left: rest.keys().copied().collect(), ..Progress::default() });
    let told = Arc::new(Forced { progress, ..Forced::default() });
    let forcing = Forcing { exec: exec.clone(), rest, tried: BTreeSet::new(), extent, told: told.clone() };
    let mut last = (0, exec.now_ns());
    drop(exec.spawn_operation("z-unmount", Box::new(move || forcing.run())));
    let left = loop {
        let now = exec.now_ns();
        let mut progress = told.progress.lock();
        if progress.steps > last.0 {
            last = (progress.steps, now);
        }
        if progress.left.is_empty() || now - last.1 > FORCED_NS {
            progress.is_over = true;
            break progress.left.clone();
        }
        let is_stalled = progress.asking_since_ns.is_some_and(|since| now.saturating_sub(since) > STALL_NS);
        if is_stalled && !told.is_hard.swap(true, Ordering::AcqRel) {
            let left = progress.left.clone();
            drop(progress);
            for (_, (_, mounted)) in list.iter().enumerate().filter(|(index, _)| left.contains(index)) {
                mounted.leaving.store(true, Ordering::Release);
                let _ = mounted.session.cut();
            }
            continue;
        }
        told.changed.wait_for(&mut progress, STEP);
    };
    list.into_iter().enumerate().filter(|(index, _)| left.contains(index)).map(|(_, leaver)| leaver).collect()
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
