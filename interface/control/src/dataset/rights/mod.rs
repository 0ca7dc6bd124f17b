//! Rights of users to whom permissions were delegated: what each request needs (OpenZFS: the `zfs_secpolicy_…` functions, `zfs_check_settable`).
//!
//! Whoever is asked here is no owner of the daemon. All that is needed is looked at before anything is done, while nobody else does what was
//! delegated in the pool ([`OpenPool::delegated`]): so a name still means the same when it is done. What follows from OpenZFS's rules on Linux is
//! followed: users mount, unmount and move nothing that is mounted. What is mounted goes back to a snapshot, or receives, only where the path to it is
//! root's alone ([`Asker::check_places`]): the daemon mounts it again. Where OpenZFS looks at less than is done, more is looked at here: at every
//! dataset of a recursive rename of snapshots, and at the snapshot that a stream becomes a clone of.

mod requests;

pub(crate) use requests::{destroy, may_send, permitted, visible};

use super::allow::is_on;
use super::datasets::parentless;
use super::names::filesystem_of;
use super::properties::text_of;
use crate::failure::{self, because};
use crate::mount::mounts::is_within;
use crate::pool::{OpenPool, Pools};
use control_api::{ErrorKind, Failure};
use dsl::prop::table;
use dsl::{DslError, DslPool, PropEntry, PropValue, Subject};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Words of a refusal (OpenZFS: `EZFS_PERM`).
const DENIED: &str = "permission denied";
/// Words where a pool delegates nothing (OpenZFS: `EZFS_NODELEGATION`).
const OFF: &str = "delegated administration is disabled on pool";
/// Properties that a dataset is made with, which take no permission of their own (OpenZFS: `zfs_fill_zplprops_impl`, `zvol_create_cb`).
const OF_CREATION: [&str; 6] = ["casesensitivity", "normalization", "utf8only", "version", "volblocksize", "volsize"];
/// Permissions that whoever makes a dataset needs on what it is made in.
pub(super) const MAKE: [&str; 2] = ["create", "mount"];
/// Permissions that whoever destroys something needs on it.
pub(super) const DESTROY: [&str; 2] = ["mount", "destroy"];

/// User who asks for something.
#[derive(Clone)]
pub(crate) struct Asker<'a> {
    pub pools: &'a Pools,
    pub user: &'a Subject,
    /// Words for what cannot be done without a permission: `cannot create 'tank/x'`.
    pub what: String,
}

/// Beginning of the names of users' properties that the daemon itself looks at: it serves volumes by them (`zirconia:share.nbd`).
const OWN: &str = "zirconia:";

/// Permission that setting a property takes.
pub(super) fn permission_for(property: &str) -> &str {
    match property.split_once('@') {
        Some((kind, _)) if table::is_owners(property) => kind,
        _ if property.starts_with(OWN) => "share",
        _ if property.contains(':') => "userprop",
        _ => property,
    }
}

/// A number among a dataset's properties; None where there is no limit, or nothing is counted.
fn number_of(pool: &OpenPool, name: &str, property: &str) -> Option<u64> {
    match pool.dsl().hold(name).and_then(|handle| handle.prop(property)) {
        Ok(PropEntry { value: PropValue::Count(number) | PropValue::Number(number) | PropValue::Limit(number), .. }) => Some(number),
        _ => None,
    }
}

/// True for a place to which only root can change the path. The folder that it lies in is root's alone, whatever its sticky bit says: the directory
/// that is mounted on may be another user's, who can put something else there.
fn is_roots(place: &Path) -> bool {
    let is_kept = |found: &Metadata, may_be_sticky: bool| {
        let is_closed = found.mode() & 0o022 == 0 || may_be_sticky && found.mode() & 0o1000 != 0;
        found.is_dir() && found.uid() == 0 && is_closed
    };
    let is_safe = |(above, folder): (usize, &Path)| std::fs::symlink_metadata(folder).is_ok_and(|found| is_kept(&found, above > 0));
    place.is_absolute() && place.ancestors().skip(1).enumerate().all(is_safe)
}

impl Asker<'_> {
    /// Asker with the same user, for something else.
    pub(super) fn about(&self, what: impl Into<String>) -> Asker<'_> {
        Asker { what: what.into(), ..self.clone() }
    }

    pub(super) fn denied(&self) -> Failure {
        because(ErrorKind::Permission, self.what.clone(), DENIED)
    }

    /// Refuses unless the user has all of these permissions on a dataset or snapshot.
    pub(super) fn check(&self, name: &str, permissions: &[&str]) -> Result<(), Failure> {
        self.judge(name, permissions, &|dsl, permission| dsl.is_delegated(name, permission, self.user))
    }

    /// Refuses unless the user will have all of these permissions on what the user makes in a dataset.
    pub(super) fn check_in(&self, parent: &str, permissions: &[&str]) -> Result<(), Failure> {
        self.judge(parent, permissions, &|dsl, permission| dsl.is_delegated_in(parent, permission, self.user))
    }

    /// Refuses unless the user has all of these permissions on what lies in a dataset, whoever made it.
    pub(super) fn check_below(&self, name: &str, permissions: &[&str]) -> Result<(), Failure> {
        self.judge(name, permissions, &|dsl, permission| dsl.is_delegated_below(name, permission, self.user))
    }

    fn judge(&self, name: &str, permissions: &[&str], look: &dyn Fn(&DslPool, &str) -> Result<bool, DslError>) -> Result<(), Failure> {
        let pool = self.pools.pool_of(name, "open")?;
        let failed = |error: DslError| Failure { what: self.what.clone(), ..failure::dataset("open", name, &error) };
        if !is_on(&pool) {
            return Err(because(ErrorKind::Permission, self.what.clone(), OFF));
        }
        // What is given to a zone is root's outside of it (OpenZFS: `zfs_dozonecheck_impl`).
        let is_zoned = text_of(&pool.dsl().hold(filesystem_of(name)).map_err(failed)?, "zoned") == "on";
        let dsl: &DslPool = pool.dsl();
        for permission in permissions {
            if is_zoned || !look(dsl, permission).map_err(failed)? {
                return Err(self.denied());
            }
        }
        Ok(())
    }

    /// True when the user has a permission on a dataset.
    pub(super) fn has(&self, name: &str, permission: &str) -> bool {
        self.check(name, &[permission]).is_ok()
    }

    /// Refuses a new dataset, with these properties, that the user may not make; with `parents` also what lies above it and is not there. Gives the
    /// name of the nearest dataset above it that is there.
    pub(super) fn check_new<'p>(
        &self,
        (name, parents): (&str, bool),
        properties: impl Iterator<Item = &'p str>,
    ) -> Result<String, Failure> {
        let above = self.check_made(name, parents, &MAKE)?;
        self.check_room(name, &above)?;
        let mut properties = properties.filter(|property| !OF_CREATION.contains(property));
        properties.try_for_each(|property| self.check_in(&above, &[permission_for(property)]))?;
        Ok(above)
    }

    /// Refuses what is to be made at a name without these permissions on what it is made in, and without those to make what is missing above it;
    /// gives the name of the nearest dataset above it that is there.
    pub(super) fn check_made(&self, name: &str, parents: bool, permissions: &[&str]) -> Result<String, Failure> {
        let pool = self.pools.pool_of(name, "create")?;
        let parent = name.rsplit_once('/').ok_or_else(|| self.denied())?.0;
        let mut above = parent;
        while parents && matches!(pool.dsl().hold(above), Err(DslError::NotFound)) {
            above = above.rsplit_once('/').ok_or_else(|| self.denied())?.0;
        }
        if matches!(pool.dsl().hold(above), Err(DslError::NotFound)) {
            return Err(parentless(name));
        }
        if above == parent {
            self.check(above, permissions)?;
        } else {
            self.check(above, &MAKE)?;
            self.check_in(above, &MAKE)?;
            self.check_in(above, permissions)?;
        }
        Ok(above.to_string())
    }

    /// Refuses a new dataset that limits leave no room for, with what is made between it and the nearest one `above` it.
    pub(super) fn check_room(&self, name: &str, above: &str) -> Result<(), Failure> {
        let pool = self.pools.pool_of(name, "create")?;
        let new = name.matches('/').count().saturating_sub(above.matches('/').count());
        self.check_limit(&pool, above, "filesystem", &|_| new as u64)
    }

    /// Refuses more file systems or snapshots, as the kind says, than limits at or above a dataset allow; whoever may change a limit is not held
    /// to it (OpenZFS: `dsl_fs_ss_limit_check`, `dsl_enforce_ds_ss_limits`). `more` gives how many come to a dataset.
    pub(super) fn check_limit(&self, pool: &OpenPool, name: &str, kind: &str, more: &dyn Fn(&str) -> u64) -> Result<(), Failure> {
        let (limit, count) = (format!("{kind}_limit"), format!("{kind}_count"));
        let mut next = Some(name);
        while let Some(name) = next {
            if let (Some(most), Some(there)) = (number_of(pool, name, &limit), number_of(pool, name, &count))
                && most != u64::MAX
                && there != u64::MAX
                && there.saturating_add(more(name)) > most
                && !self.has(name, &limit)
            {
                return Err(because(ErrorKind::NoSpace, self.what.clone(), "out of space").advise(format!("see '{limit}' of '{name}'")));
            }
            next = name.rsplit_once('/').map(|(above, _)| above);
        }
        Ok(())
    }

    /// Refuses snapshots that limits leave no room for.
    pub(super) fn check_snapshot_limits(&self, pool: &OpenPool, names: &[String]) -> Result<(), Failure> {
        let more = |above: &str| names.iter().filter(|name| is_within(filesystem_of(name), above)).count() as u64;
        names.iter().try_for_each(|name| self.check_limit(pool, filesystem_of(name), "snapshot", &more))
    }

    /// Refuses to destroy datasets and snapshots, some of which the user may not destroy.
    pub(super) fn may_destroy(&self, names: &[String]) -> Result<(), Failure> {
        names.iter().try_for_each(|name| self.about(format!("cannot destroy '{name}'")).check(name, &DESTROY))
    }

    /// Refuses to destroy datasets and snapshots, some of which the user may not destroy, or something is mounted of.
    pub(super) fn check_destroy(&self, pool: &OpenPool, names: &[String]) -> Result<(), Failure> {
        self.may_destroy(names)?;
        names.iter().filter(|name| !name.contains('@')).try_for_each(|name| self.check_unmounted(pool, name))
    }

    /// Refuses what mounts something at or below a dataset again where it is, or changes a mount, unless nobody but root could have put another path
    /// in its place meanwhile.
    pub(super) fn check_places(&self, pool: &OpenPool, name: &str) -> Result<(), Failure> {
        let is_safe = |name: &str| pool.mounts.mountpoint(name).is_some_and(|place| is_roots(Path::new(&place)));
        let Some(name) = pool.mounts.below(name).iter().map(|mounted| mounted.name()).find(|name| !is_safe(name)) else { return Ok(()) };
        let why = format!("'{name}' is mounted where others than root can change the path");
        Err(because(ErrorKind::Busy, self.what.clone(), why).advise(format!("have root unmount it first: zfs unmount {name}")))
    }

    /// Refuses what would have to unmount something at or below a dataset: with OpenZFS on Linux only root does that.
    pub(super) fn check_unmounted(&self, pool: &OpenPool, name: &str) -> Result<(), Failure> {
        let Some(mounted) = pool.mounts.below(name).first().cloned() else { return Ok(()) };
        let place = pool.mounts.mountpoint(&mounted.name()).unwrap_or_else(|| mounted.name());
        Err(because(ErrorKind::Permission, format!("cannot unmount '{place}'"), DENIED).advise("root unmounts it: zfs unmount"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a user who owns a folder above a mountpoint has the daemon mount a file system over any other folder.
    #[test]
    fn places_are_safe_where_only_root_can_change_the_path() {
        assert!(is_roots(Path::new("/")) && is_roots(Path::new("/proc")));
        assert!(!is_roots(Path::new("relative/place")) && !is_roots(Path::new("/no/such/folder")));
        let folder = std::env::temp_dir().join(format!("z-rights-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("open/in")).expect("folders");
        let open = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
        std::fs::set_permissions(folder.join("open"), open).expect("opened");
        assert!(!is_roots(&folder.join("open/in")), "anybody can write there");
        let sticky = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o1777);
        std::fs::set_permissions(folder.join("open"), sticky).expect("sticky");
        assert!(!is_roots(&folder.join("open/in")), "whoever made it can move it");
        std::os::unix::fs::symlink("/", folder.join("link")).expect("a link");
        assert!(!is_roots(&folder.join("link/proc")), "a link is no folder");
        std::fs::remove_dir_all(folder).expect("removed");
    }

    /// If this fails, whoever may set one property sets another one.
    #[test]
    fn each_property_takes_its_own_permission() {
        let pairs = [
            ("compression", "compression"),
            ("com.example:x", "userprop"),
            ("com.example:userquota@7", "userprop"),
            ("zirconia:share.nbd", "share"),
            ("userquota@7", "userquota"),
            ("groupobjquota@7", "groupobjquota"),
            ("projectquota@7", "projectquota"),
            ("userquota", "userquota"),
            ("other@7", "other@7"),
        ];
        for (property, permission) in pairs {
            assert_eq!(permission_for(property), permission);
        }
        let settable = table::TABLE.iter().filter(|desc| desc.attr != table::Attr::ReadOnly && desc.name != "mlslabel");
        for desc in settable {
            assert!(dsl::is_permission(permission_for(desc.name)), "'{}' cannot be delegated", desc.name);
        }
    }
}
