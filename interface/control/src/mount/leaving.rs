//! One mount's way out: unless it is in use, or by force within a deadline, whatever has files open there.
//!
//! By force, what is in use is cut off from its server, so that everything that waits for it gets an error, and detached when its last request
//! is answered.

use crate::failure::because;
use crate::mount::forcing::{self, Asked, Outgoing};
use crate::mount::lifting::{self, Leaver};
use crate::mount::mounts::{Directory, Mounted, Mounts};
use crate::mount::patience::Patience;
use crate::mount::whereabouts::Standing;
use crate::pool::OpenPool;
use control_api::{ErrorKind, Failure};
use exec::Exec;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Failure of a mount that does not leave.
pub(crate) fn busy(place: &Path) -> Failure {
    because(ErrorKind::Busy, format!("cannot unmount '{}'", place.display()), "pool or dataset is busy")
}

/// Advice about a mount that somebody else unmounts.
const LEAVING: &str = "it is being unmounted already: wait for that, then try again";
/// Advice about a mount whose last requests are not answered.
const UNANSWERED: &str = "it is unmounted, but its last requests are not answered: does its pool wait for a device? See 'zpool status'";
/// Advice about a mount that another mount namespace has, which no program shows.
const HELD: &str =
    "another mount namespace has it too (a container?): unmount it there, end its programs, or use '-f', which cuts them off";
/// Advice about a mount that no path leads to.
const DETACHED: &str = "it was detached while files are open there, or another mount namespace has it: close the files (lsof, fuser), \
     end those programs, or use '-f', which cuts them off";

/// Advice about a mount that another mount namespace has, with a program there; none when no program shows it.
fn held(mounted: &Mounted, patience: &Patience) -> Option<String> {
    let program = patience.holder(mounted.session.number())?;
    Some(format!(
        "process {program} has it in another mount namespace: unmount it there (nsenter -m -t), end that process, \
         or use '-f', which cuts off who uses it"
    ))
}

impl Mounts {
    /// Unmounts a file system, unless it is in use, from its place; where it is mounted elsewhere it stays.
    pub(crate) fn leave(&self, mounted: &Mounted, patience: &Patience) -> Result<(), Failure> {
        let wait_end = |patience_ns| mounted.session.wait_end(patience_ns);
        let place = match self.standing(mounted) {
            Standing::Gone => return Ok(()),
            Standing::Leaving if patience.wait(|| false, wait_end) => return Ok(()),
            Standing::Leaving => return Err(busy(&mounted.session.mountpoint()).advise(LEAVING)),
            Standing::Detached => {
                let place = mounted.session.mountpoint();
                return Err(busy(&place).advise(held(mounted, patience).unwrap_or_else(|| DETACHED.to_string())));
            }
            Standing::Mounted(place) => place,
        };
        if self.is_covered(mounted) {
            return Err(busy(&place).advise("something else is mounted over it: unmount that first"));
        }
        if mounted.leaving.swap(true, Ordering::AcqRel) {
            return Err(busy(&place).advise(LEAVING));
        }
        let outcome = match mounted.session.unmount(false) {
            // A bind mount, or one more that was asked for.
            Ok(()) if self.is_anywhere(mounted) => Ok(()),
            Ok(()) if patience.wait(|| mounted.session.is_alive(), wait_end) => Ok(()),
            Ok(()) if mounted.session.is_alive() => Err(busy(&place).advise(held(mounted, patience).unwrap_or_else(|| HELD.to_string()))),
            Ok(()) => Err(busy(&place).advise(UNANSWERED)),
            Err(fuse::Errno::EBUSY) => Err(busy(&place).advise("close the files that are open there (lsof, fuser), or use '-f'")),
            Err(errno) => Err(because(ErrorKind::Busy, format!("cannot unmount '{}'", place.display()), errno)),
        };
        mounted.leaving.store(false, Ordering::Release);
        outcome
    }

    /// Leaves as [`Mounts::leave`] does, from every place where it is mounted if `everywhere`.
    pub(crate) fn leave_all(&self, mounted: &Mounted, everywhere: bool, patience: &Patience) -> Result<(), Failure> {
        self.leave(mounted, patience)?;
        while everywhere && matches!(self.standing(mounted), Standing::Mounted(_)) {
            self.leave(mounted, patience)?;
        }
        Ok(())
    }
}

/// Mount that is forced to leave, and how far.
#[derive(Clone)]
struct Out {
    mounts: Arc<Mounts>,
    mounted: Arc<Mounted>,
    extent: Extent,
}

impl Out {
    /// Unmounts what is not in use; false where it is.
    fn leave_unused(&self) -> bool {
        let Out { mounts, mounted, extent } = self;
        let leaves = |place: &PathBuf| {
            mounted.session.moved(place);
            mounted.session.unmount(false).is_ok()
        };
        mounted.session.unmount(false).is_ok() && (*extent != Extent::Everywhere || mounts.places(mounted).iter().all(leaves))
    }
}

impl Outgoing for Out {
    fn place(&self) -> PathBuf {
        self.mounted.session.mountpoint()
    }

    fn is_at(&self, place: &Path) -> bool {
        self.mounts.is_at(&self.mounted, place)
    }

    fn ask(&self, is_hard: &AtomicBool) -> Asked {
        let Out { mounts, mounted, extent } = self;
        let standing = mounts.standing(mounted);
        mounted.leaving.store(true, Ordering::Release);
        let is_there = matches!(standing, Standing::Mounted(_)) && !mounts.is_covered(mounted);
        if is_there && !is_hard.load(Ordering::Acquire) && self.leave_unused() {
            if !mounts.is_anywhere(mounted) {
                return Asked::Left;
            }
            if *extent == Extent::Place {
                mounted.leaving.store(false, Ordering::Release);
                return Asked::GoesOn;
            }
        }
        let is_cut = mounted.session.cut().is_ok();
        // Nobody is told that it did not leave when its pool goes; and what cannot be cut does not end while it is there.
        if *extent == Extent::Everywhere || is_there && !is_cut {
            let place = mounted.session.mountpoint();
            let all = if *extent == Extent::Everywhere { mounts.places(mounted) } else { Vec::new() };
            // What it left already may be somebody else's now.
            for place in Some(place).filter(|place| mounts.is_at(mounted, place)).into_iter().chain(all) {
                mounted.session.moved(&place);
                let _ = mounted.session.detach();
            }
        }
        Asked::Cut
    }

    fn is_alive(&self) -> bool {
        self.mounted.session.is_alive()
    }

    fn cut(&self) {
        self.mounted.leaving.store(true, Ordering::Release);
        let _ = self.mounted.session.cut();
    }

    fn has_ended(&self) -> bool {
        self.mounted.session.has_ended()
    }

    fn wait_end(&self, patience_ns: u64) {
        self.mounted.session.wait_end(patience_ns);
    }

    fn detach_dead(&self) {
        let place = self.place();
        if !self.is_at(&place) || self.mounts.is_covered(&self.mounted) {
            return;
        }
        // What has its number and answers is somebody else's.
        if self.mounted.session.apart(false, move || fuse::is_dead(&place)) {
            let _ = self.mounted.session.detach();
        }
    }

    fn is_awaited(&self) -> bool {
        self.mounted.is_awaited.swap(true, Ordering::AcqRel)
    }
}

/// Has mounts leave by force within the deadline of their command ([`forcing::force`]); returns those that did not come to their end.
pub(crate) fn force(exec: &Exec, list: Vec<Leaver>, extent: Extent, patience: &Patience) -> Vec<Arc<Mounted>> {
    let list = lifting::leaving_order(list, Vec::new());
    let list: Vec<Out> = list.into_iter().map(|(mounts, mounted)| Out { mounts, mounted, extent }).collect();
    forcing::force(exec, list, patience).into_iter().map(|out| out.mounted).collect()
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
    for mounted in force(exec, list, Extent::Everywhere, &Patience::new(exec)) {
        tracing::warn!("{}", busy(&mounted.session.mountpoint()).advise("requests to it do not end"));
    }
}
