//! Mounted file systems follow their properties: a new mountpoint moves them and what is in them, `canmount=off` unmounts them, flags
//! change in place (OpenZFS: `changelist_gather`, `changelist_prefix`, `changelist_postfix`).

use crate::dataset::names::descendants;
use crate::failure;
use crate::mount::mounting::{Mounter, settings_of};
use crate::mount::mounts::{Directory, Mounted, is_within};
use crate::mount::turns::Turn;
use crate::mount::unmounting::Unmounter;
use crate::mount::wish::Wish;
use crate::pool::OpenPool;
use control_api::{ErrorKind, Failure, Remark, Response};
use dsl::PropSource;
use std::sync::Arc;

/// Remark after what keeps something from being mounted at its new place: no failure, as in OpenZFS since 2.2 (`changelist_postfix`, `set_callback`).
const UNABLE: &str = "property may be set but unable to remount filesystem";

/// Properties that are flags of the mount.
pub(super) const FLAGS: [&str; 6] = ["readonly", "exec", "setuid", "devices", "atime", "relatime"];

/// Property that the kernel is told of when a mount is made.
const LISTS: &str = "acltype";

/// Datasets whose properties change, and how mounts follow.
pub(crate) struct Following<'a> {
    /// Names of the datasets; what is below them inherits.
    pub names: &'a [String],
    /// Names of the properties.
    pub changed: &'a [&'a str],
    /// True when `canmount` becomes `off`.
    pub turns_off: bool,
    /// True to mount, unmount and move nothing (`-u`).
    pub no_mount: bool,
}

/// Change of properties that lets mounts follow.
pub(crate) struct Follower<'a> {
    pub mounter: &'a Mounter,
    pub unmounter: &'a Unmounter,
}

impl Follower<'_> {
    /// Changes properties and lets mounts follow. What has to move is unmounted first: in use, nothing changes.
    pub(crate) fn follow(
        &self,
        pool: &Arc<OpenPool>,
        following: &Following<'_>,
        change: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Response, Failure> {
        let changes = |name: &str| following.changed.contains(&name);
        let turn = self.mounter.turn();
        let moves = !following.no_mount && changes("mountpoint");
        let (mut again, mut new) = (Vec::new(), Vec::new());
        if moves {
            for name in following.names {
                let was_mounted =
                    self.unmounter.unmount_filesystems(&turn, pool, (name, &[]), (false, Directory::Moves)).map_err(without_force)?;
                // Setting a place mounts there, with all that inherits it.
                let mut names = descendants(pool, name)?;
                // What is dead of it follows as well.
                self.mounter.losses.dig_own(&self.unmounter.pools, name);
                names.retain(|below| follows(pool, below, name) && !was_mounted.iter().any(|wish| wish.name == *below));
                again.extend(was_mounted);
                new.extend(names.iter().map(|name| Wish::by_itself(pool, name)));
            }
        }
        // What is mounted in a file system that goes comes back without it.
        let is_mounted = |name: &String| pool.mounts.below(name).iter().any(|mounted| mounted.name() == *name);
        let goes = following.turns_off && !following.no_mount;
        let leaving: Vec<&String> = following.names.iter().filter(|name| goes && !moves && is_mounted(name)).collect();
        for name in &leaving {
            again.extend(self.unmounter.unmount_filesystems(&turn, pool, (name, &[]), (false, Directory::Keep)).map_err(without_force)?);
        }
        let changed = change();
        again.retain(|wish| changed.is_err() || !leaving.contains(&&wish.name));
        // The property is what was asked for, whether or not something can be mounted there (OpenZFS: `set_callback`).
        again.extend(new.into_iter().filter(|_| changed.is_ok()));
        let unable = self.mounter.mount_wishes(&turn, again);
        // What was dead is so at its place of now, and goes with what was unmounted for good.
        for name in leaving.iter().filter(|_| changed.is_ok()) {
            self.mounter.losses.forget(name);
        }
        self.mounter.restore_lost();
        let mut remarks: Vec<Remark> = unable.iter().map(|failure| Remark::Warning(failure.to_string())).collect();
        remarks.extend((!unable.is_empty()).then(|| Remark::Warning(UNABLE.to_string())));
        let mut failures = Vec::new();
        changed?;
        apply_settings(pool);
        let flags: Vec<&str> = following.changed.iter().copied().filter(|name| FLAGS.contains(name)).collect();
        for name in following.names.iter().filter(|_| !flags.is_empty()) {
            if rustix::process::geteuid().is_root() {
                failures.extend(self.mounter.remount_below(pool, name, following.changed).err());
            } else if !following.no_mount {
                remarks.extend(self.mount_anew(&turn, pool, name, &flags)?);
            }
        }
        for name in following.names.iter().filter(|name| changes(LISTS) && !following.no_mount && has_other_lists(pool, name)) {
            let said = self.mount_anew(&turn, pool, name, &[LISTS])?;
            // What is mounted at several places stays the same mount.
            remarks.extend(said.or_else(|| has_other_lists(pool, name).then(|| waits(&[LISTS]))));
        }
        failure::joined(failures)?;
        Ok(Response::Done { remarks })
    }

    /// Mounts anew what is not in use, for what can't be changed in place; for the rest the answer says what has to wait.
    fn mount_anew(&self, turn: &Turn<'_>, pool: &Arc<OpenPool>, name: &str, flags: &[&str]) -> Result<Option<Remark>, Failure> {
        match self.unmounter.unmount_tree(turn, pool, name, false, Directory::Keep) {
            Ok(again) => {
                let failures = self.mounter.mount_wishes(turn, again);
                self.mounter.restore_lost();
                failure::joined(failures).map(|()| None)
            }
            Err(failure) if failure.kind == ErrorKind::Busy => {
                // The server itself refuses writes and leaves times alone.
                let later: Vec<&str> = flags.iter().copied().filter(|flag| !["readonly", "atime", "relatime"].contains(flag)).collect();
                Ok((!later.is_empty()).then(|| waits(&later)))
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Remark that properties have to wait.
fn waits(properties: &[&str]) -> Remark {
    Remark::Output(format!("{}: takes effect when the file systems that are in use are mounted again", properties.join(", ")))
}

/// Advises `zfs unmount -f` instead of `-f`, which the commands that change properties don't have.
fn without_force(failure: Failure) -> Failure {
    let next = failure.next.map(|next| next.replace("or use '-f'", "or use 'zfs unmount -f' first"));
    Failure { next, ..failure }
}

/// True for the dataset `below` when it is `name`, or takes its mountpoint from there.
fn follows(pool: &OpenPool, below: &str, name: &str) -> bool {
    let source = pool.dsl().hold(below).and_then(|handle| handle.prop("mountpoint")).map(|entry| entry.source);
    below == name
        || match source {
            Ok(PropSource::Default) => true,
            Ok(PropSource::Inherited(from)) => is_within(name, &from),
            _ => false,
        }
}

/// True when the kernel keeps to access control lists of something that is mounted at or below a name though the property says otherwise, or does not
/// keep to them.
fn has_other_lists(pool: &OpenPool, name: &str) -> bool {
    let wanted = |name: &str| pool.dsl().hold(name).map(|handle| settings_of(pool, &handle, &[]).posix_acl);
    let differs =
        |mounted: &Arc<Mounted>| wanted(&mounted.name()).is_ok_and(|wanted| wanted != mounted.session.negotiated().has_posix_acl());
    pool.mounts.below(name).iter().any(differs)
}

/// Gives mounted file systems and open volumes their properties as they are now.
fn apply_settings(pool: &OpenPool) {
    for (name, _) in pool.mounts.list() {
        if let Ok(handle) = pool.dsl().hold(&name) {
            pool.mounts.apply(&name, settings_of(pool, &handle, &pool.mounts.wishes(&name)));
        }
    }
    pool.volumes.apply_settings(&pool.name());
}
