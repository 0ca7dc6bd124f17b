//! The end of a session: who waits for it, and how a connection is cut off whatever has files open.

use crate::{Errno, Reply};
use exec::{Condvar, Exec, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::time::Duration;

/// Path where systems mount the file system that aborts connections.
const CONTROL: &str = "/sys/fs/fuse/connections";
/// Number of bits of the minor number in the kernel's own numbers of devices.
const MINOR_BITS: u32 = 20;
/// Pause between looks at the clock of somebody who waits.
const STEP: Duration = Duration::from_millis(50);

/// End of a mount: whether every request was answered and the handler was told.
#[derive(Default)]
pub(crate) struct Ended {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Ended {
    pub fn is_over(&self) -> bool {
        *self.is_over.lock()
    }

    pub fn tell(&self) {
        *self.is_over.lock() = true;
        self.changed.notify_all();
    }

    /// Waits as long as `patience_ns`; false when the mount has not ended by then.
    pub fn wait(&self, exec: &Exec, patience_ns: u64) -> bool {
        let until = exec.now_ns().saturating_add(patience_ns);
        let mut is_over = self.is_over.lock();
        while !*is_over && exec.now_ns() < until {
            self.changed.wait_for(&mut is_over, STEP.min(Duration::from_nanos(patience_ns)));
        }
        *is_over
    }
}

/// True until the kernel ended the connection, whether or not somebody has read that (Linux: `fuse_dev_poll`).
pub(crate) fn is_connected(connection: impl AsFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut looks = [PollFd::new(&connection, PollFlags::empty())];
    poll(&mut looks, Some(&at_once)).is_err() || !looks[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Aborts the connection, which is that of the mount on this device (major and minor number; its name is the kernel's own number of it): what waits
/// for an answer, and everything later, gets an error. Nothing is done for one that has ended: its number may be somebody else's by now.
///
/// # Errors
/// There is no way: the control file system is not mounted, and this process may not do that itself.
pub(crate) fn abort(connection: impl AsFd, (major, minor): (u32, u32)) -> Reply<()> {
    let path = format!("{}/abort", major << MINOR_BITS | minor);
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(format!("{CONTROL}/{path}"), flags, Mode::empty()).or_else(|_| {
        // A mount of it that is on no path.
        let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&context)?;
        let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        rustix::fs::openat(&mount, path.as_str(), flags, Mode::empty())
    });
    // The file stays that of the connection which had the number when it was opened: this one, if it goes on still.
    if !is_connected(connection) {
        return Ok(());
    }
    rustix::io::write(&file?, b"1").map(drop).map_err(Errno::from)
}
