//! Putting new mounts in the place of a dead one without a moment in which the directory beneath can be written.
//!
//! Programs that outlive the server get ENOTCONN from the dead mount. Were it taken away first, what they write then would land
//! in the directory that it covers. So the new mounts are put together elsewhere, slide beneath the dead one as a tree, and it
//! is detached last: whoever opens a path sees the one or the other.

use crate::mount::{detach, is_dead};
use crate::{Errno, Reply};
use rustix::fs::CWD;
use rustix::mount::{MountPropagationFlags, MoveMountFlags, UnmountFlags};
use std::path::{Path, PathBuf};

/// Folder in which a tree of mounts is put together. What is still here when it is dropped goes.
#[derive(Debug)]
pub struct Stage {
    folder: PathBuf,
}

impl Stage {
    /// Makes the folder one whose mounts nobody else gets. Needs root.
    ///
    /// # Errors
    /// The errno of what failed.
    pub fn new(folder: &Path) -> Reply<Stage> {
        // What one that was killed left.
        Stage::clear_left(folder);
        let stage = Stage { folder: folder.to_path_buf() };
        std::fs::create_dir_all(stage.tree()).map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
        rustix::mount::mount_bind(folder, folder)?;
        // A mount whose parent is shared cannot be moved.
        rustix::mount::mount_change(folder, MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        std::fs::create_dir_all(stage.tree()).map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
        Ok(stage)
    }

    /// Path at which the root of the tree is to be mounted.
    pub fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// Puts the tree in the place of the dead mount. Before Linux 6.5 it comes on top of it.
    ///
    /// # Errors
    /// The errno of move_mount(2); nothing changed then.
    pub fn slide(self, place: &Path) -> Reply<()> {
        let beneath = rustix::mount::move_mount(CWD, self.tree(), CWD, place, MoveMountFlags::MOVE_MOUNT_BENEATH);
        match beneath {
            Ok(()) => {
                if is_dead(place) {
                    let _ = rustix::mount::unmount(place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
                }
                Ok(())
            }
            Err(_) => rustix::mount::move_mount(CWD, self.tree(), CWD, place, MoveMountFlags::empty()).map_err(Errno::from),
        }
    }

    /// Takes away what a process that was killed had put together there, and the folder.
    pub fn clear_left(folder: &Path) {
        drop(Stage { folder: folder.to_path_buf() });
    }

    fn clear(&self) {
        for place in [self.tree(), self.folder.clone()] {
            while detach(&place, false, true).is_ok() {}
        }
        let _ = std::fs::remove_dir(self.tree());
        let _ = std::fs::remove_dir(&self.folder);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.clear();
    }
}
