//! One mount's way out: unless it is in use, or by force within a deadline, whatever has files open there.
//!
//! By force, what is in use is cut off from its server, so that everything that waits for it gets an error, and then detached.

use crate::failure::because;
use crate::mount::lifting::{self, Leaver};
use crate::mount::mounts::{END_NS, Mounted, Mounts, Standing};
use crate::pool::OpenPool;
use control_api::{ErrorKind, Failure};
use exec::{Condvar, Exec, Mutex};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Nanoseconds without progress (a path leads through a server that does not answer) after which everything is cut off at once.
const STALL_NS: u64 = 2_000_000_000;

/// Longest time in nanoseconds for the forced end of any number of mounts.
const FORCED_NS: u64 = 10_000_000_000;

const STEP: Duration = Duration::from_millis(20);

/// State of the forced end of some mounts.
#[derive(Default)]
struct Forced {
    /// Number of mounts that were looked at, and whether that is all.
    progress: Mutex<(usize, bool)>,
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
            Ok(()) if !self.places(mounted).is_empty() => Ok(()),
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

/// Takes one mount away by force.
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
    for (_, mounted) in force(exec, list) {
        tracing::warn!("{}", busy(&mounted.session.mountpoint()).advise("requests to it do not end"));
    }
}
