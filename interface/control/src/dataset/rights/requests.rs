//! What each request needs of a user who is not the daemon's owner.

use super::{Asker, MAKE, permission_for};
use crate::dataset::datasets::{Datasets, kind_of, snapshots_meant};
use crate::dataset::following::FLAGS;
use crate::dataset::maker::Maker;
use crate::dataset::names::{check_name, descendants, filesystem_of, target_of};
use crate::dataset::sending::Outgoing;
use crate::dataset::{diff, encryption, rollback, sending, volumes};
use crate::failure::{self, because};
use crate::mount::mounts::is_within;
use crate::pool::OpenPool;
use control_api::{
    AllowChange, BookmarkCreate, DatasetClone, DatasetCreate, DatasetDestroy, DatasetInherit, DatasetPromote, DatasetQuery, DatasetRename,
    DatasetRollback, DatasetSet, DiffQuery, ErrorKind, Failure, Request, Response, SnapshotCreate, SnapshotHold, UserspaceQuery,
};
use dsl::DslError;
use dsl::prop::table;
use std::collections::BTreeSet;

/// Properties that mounts follow.
const OF_MOUNTS: [&str; 2] = ["mountpoint", "canmount"];

/// Request as it may be done for a user: without force, without what mounts or unmounts, and of exactly what was looked at. Whoever calls keeps
/// others from what was delegated to them. Receives judge by themselves, as what they do is in their streams; so does [`destroy`].
pub(crate) fn permitted(asker: &Asker<'_>, datasets: &Datasets, request: &Request) -> Result<Request, Failure> {
    match request {
        Request::DatasetCreate(request) => asker.create(request).map(Request::DatasetCreate),
        Request::DatasetSet(request) => asker.set(request).map(Request::DatasetSet),
        Request::DatasetInherit(request) => asker.inherit(request).map(Request::DatasetInherit),
        Request::Snapshot(request) => asker.snapshot(request).map(Request::Snapshot),
        Request::DatasetRename(request) => asker.rename(datasets, request).map(Request::DatasetRename),
        Request::Hold(request) => asker.hold(request, "hold").map(Request::Hold),
        Request::Release(request) => asker.hold(request, "release").map(Request::Release),
        Request::Bookmark(request) => asker.bookmark(request).map(Request::Bookmark),
        Request::DatasetClone(request) => asker.clone_snapshot(request).map(Request::DatasetClone),
        Request::DatasetPromote(request) => asker.promote(request).map(Request::DatasetPromote),
        Request::DatasetRollback(request) => asker.roll_back(request).map(Request::DatasetRollback),
        Request::AllowChange(request) => asker.allow(request).map(Request::AllowChange),
        Request::Userspace(query) => asker.userspace(query).map(Request::Userspace),
        Request::Diff(query) => asker.diff(query).map(Request::Diff),
        Request::SendPlan(plan) => {
            may_send(asker, &sending::prepare(asker.pools, plan, &|name| asker.check_send(name))?)?;
            Ok(request.clone())
        }
        _ => Err(asker.denied()),
    }
}

/// Refuses to send a snapshot without the permission on it (OpenZFS: `zfs_secpolicy_send_impl`).
pub(crate) fn may_send(asker: &Asker<'_>, outgoing: &Outgoing) -> Result<(), Failure> {
    outgoing.names().try_for_each(|name| asker.check_send(&name))
}

/// Question without what other users use and may use, as far as the user may not see that (OpenZFS: `zfs_secpolicy_userspace_one`).
pub(crate) fn visible(asker: &Asker<'_>, query: &DatasetQuery) -> DatasetQuery {
    let is_own = |kind: &str, id: u64| {
        let is_group = |group: &u32| u64::from(*group) == id;
        kind.starts_with("user") && id == u64::from(asker.user.uid) || kind.starts_with("group") && asker.user.groups.iter().any(is_group)
    };
    let may_all = |kind: &str| query.depth == Some(0) && !query.names.is_empty() && query.names.iter().all(|name| asker.has(name, kind));
    let may_see = |name: &String| match (table::is_owners(name), table::owner(name)) {
        (true, Some(id)) => is_own(permission_for(name), id) || may_all(permission_for(name)),
        (true, None) => false,
        (false, _) => true,
    };
    DatasetQuery { asked: query.asked.iter().filter(|name| may_see(name)).cloned().collect(), ..query.clone() }
}

/// Destroys for a user exactly what the user was seen to be allowed to (OpenZFS: `zfs_secpolicy_destroy`, `_destroy_snaps`,
/// `_destroy_bookmarks`).
pub(crate) fn destroy(asker: &Asker<'_>, datasets: &Datasets, request: &DatasetDestroy) -> Result<Response, Failure> {
    let request = DatasetDestroy { force: false, ..request.clone() };
    if let Some((filesystem, _)) = request.name.split_once('#') {
        check_name(filesystem, "open")?;
        asker.check(filesystem, &["destroy"])?;
        return datasets.destroy(&request);
    }
    let Response::Destroyed { names, reclaim_bytes } = datasets.destroy(&DatasetDestroy { dry_run: true, ..request.clone() })? else {
        return Err(asker.denied());
    };
    if request.dry_run {
        // Who only looks is in nobody's way: what is mounted is listed, too.
        asker.may_destroy(&names)?;
        return Ok(Response::Destroyed { names, reclaim_bytes });
    }
    let pool = asker.pools.pool_of(&request.name, "destroy")?;
    asker.check_destroy(&pool, &names)?;
    if request.name.contains('@') && !request.clones {
        // Of one file system all snapshots take the same permissions.
        return datasets.destroy(&request);
    }
    let in_order = if request.name.contains('@') { clones_first(datasets, &request, &names)? } else { names.clone() };
    datasets.destroy_all(&pool, &in_order, None, (asker.what.clone(), false))?;
    Ok(Response::Destroyed { names, reclaim_bytes })
}

/// Names of the snapshots that a request means and of what depends on them, in an order in which they can be destroyed.
fn clones_first(datasets: &Datasets, request: &DatasetDestroy, names: &[String]) -> Result<Vec<String>, Failure> {
    // Those that are marked may have clones: then the snapshots are named alone.
    let alone = DatasetDestroy { dry_run: true, clones: false, defer: true, ..request.clone() };
    let Response::Destroyed { names: asked, .. } = datasets.destroy(&alone)? else { return Ok(names.to_vec()) };
    let (snapshots, clones): (Vec<String>, Vec<String>) = names.iter().cloned().partition(|name| asked.contains(name));
    Ok(clones.into_iter().chain(snapshots).collect())
}

impl Asker<'_> {
    /// Refuses to send a dataset or snapshot without the permission on it.
    pub(crate) fn check_send(&self, name: &str) -> Result<(), Failure> {
        self.about(format!("warning: cannot send '{name}'")).check(name, &["send"])
    }

    fn create(&self, request: &DatasetCreate) -> Result<DatasetCreate, Failure> {
        check_name(&request.name, "create")?;
        let pool = self.pools.pool_of(&request.name, "create")?;
        if let Some(why) = encryption::users_objection(&request.properties) {
            return Err(because(ErrorKind::Invalid, self.what.clone(), why));
        }
        let properties = match request.volume {
            true => {
                let plan = volumes::NewVolume::plan(&request.name, &request.properties, request.sparse, &pool.pool().tree())?;
                plan.in_version(pool.pool().dsl().version(), &request.properties).properties
            }
            false => request.properties.clone(),
        };
        self.check_new((&request.name, request.parents), properties.keys().map(String::as_str)).map(drop)?;
        Ok(request.clone())
    }

    fn set(&self, request: &DatasetSet) -> Result<DatasetSet, Failure> {
        let pool = self.pools.pool_of(&request.name, "set property for")?;
        let handle = pool.dsl().hold(&request.name).map_err(|error| failure::dataset("open", &request.name, &error))?;
        let mut wanted: BTreeSet<String> = request.properties.keys().cloned().collect();
        // What follows from a volume's size is set, too.
        if kind_of(&handle) == table::VOLUME
            && let Ok(change) = volumes::change(&handle, &pool.pool().tree(), &request.properties)
        {
            wanted.extend(change.properties.into_keys());
        }
        drop(handle);
        wanted.iter().try_for_each(|property| self.check(&request.name, &[permission_for(property)]))?;
        let turns_off = request.properties.get("canmount").is_some_and(|value| value == "off");
        let goes = turns_off && pool.mounts.mounted(&request.name).is_some();
        if !request.no_mount && (goes || request.properties.contains_key("mountpoint")) {
            self.check_unmounted(&pool, &request.name)?;
        }
        if request.properties.keys().any(|name| FLAGS.contains(&name.as_str())) {
            self.check_places(&pool, &request.name)?;
        }
        Ok(DatasetSet { no_mount: true, ..request.clone() })
    }

    fn inherit(&self, request: &DatasetInherit) -> Result<DatasetInherit, Failure> {
        let pool = self.pools.pool_of(&request.name, "inherit property for")?;
        let names = if request.recursive { descendants(&pool, &request.name)? } else { vec![request.name.clone()] };
        names.iter().try_for_each(|name| self.check(name, &[permission_for(&request.property)]))?;
        if OF_MOUNTS.contains(&request.property.as_str()) {
            self.check_unmounted(&pool, &request.name)?;
        }
        if FLAGS.contains(&request.property.as_str()) {
            self.check_places(&pool, &request.name)?;
        }
        Ok(request.clone())
    }

    fn snapshot(&self, request: &SnapshotCreate) -> Result<SnapshotCreate, Failure> {
        let pool = self.pools.pool_of(request.names.first().map_or("", String::as_str), "create snapshot")?;
        let names = snapshots_meant(&pool, request)?;
        for name in &names {
            let asker = self.about(format!("cannot create snapshot '{name}'"));
            asker.check(filesystem_of(name), &["snapshot"])?;
            if !request.properties.is_empty() {
                asker.check(filesystem_of(name), &["userprop"])?;
            }
        }
        self.check_snapshot_limits(&pool, &names)?;
        Ok(SnapshotCreate { names, recursive: false, ..request.clone() })
    }

    /// Refuses a new name that the user may not give (OpenZFS: `zfs_secpolicy_rename_perms`).
    pub(in crate::dataset) fn check_rename(&self, pool: &OpenPool, from: &str, to: &str, parents: bool) -> Result<(), Failure> {
        self.check(from, &["rename", "mount"])?;
        match to.split_once('@') {
            Some((filesystem, _)) => self.check(filesystem, &MAKE),
            None => {
                self.check_made(to, parents, &MAKE).map(drop)?;
                self.check_limits_of_move(pool, from, to)
            }
        }
    }

    /// Refuses a place where limits leave no room for all that moves; what is above both places has it already.
    fn check_limits_of_move(&self, pool: &OpenPool, from: &str, to: &str) -> Result<(), Failure> {
        let below = descendants(pool, from)?;
        let mut snapshots = 0;
        for name in &below {
            snapshots += pool.dsl().snapshots(name).map_or(0, |list| list.len() as u64);
        }
        let parent = to.rsplit_once('/').map_or("", |(parent, _)| parent);
        let is_new = |above: &str| !is_within(from, above);
        self.check_limit(pool, parent, "filesystem", &|above| if is_new(above) { below.len() as u64 } else { 0 })?;
        self.check_limit(pool, parent, "snapshot", &|above| if is_new(above) { snapshots } else { 0 })
    }

    fn rename(&self, datasets: &Datasets, request: &DatasetRename) -> Result<DatasetRename, Failure> {
        let pool = self.pools.pool_of(&request.from, "rename")?;
        let target = target_of(&request.from, &request.to)?;
        let request = DatasetRename { force: false, ..request.clone() };
        if let (Some((filesystem, old)), Some((_, new))) = (request.from.split_once('@'), target.split_once('@')) {
            let filesystems = if request.recursive { descendants(&pool, filesystem)? } else { vec![filesystem.to_string()] };
            for (at, filesystem) in filesystems.iter().enumerate() {
                let from = format!("{filesystem}@{old}");
                // Those that have none are passed over, but for the first.
                if at == 0 || pool.dsl().hold(&from).is_ok() {
                    self.check_rename(&pool, &from, &format!("{filesystem}@{new}"), false)?;
                }
            }
            return Ok(request);
        }
        drop(pool.dsl().hold(&request.from).map_err(|error| failure::dataset("rename", &request.from, &error))?);
        self.check_rename(&pool, &request.from, &target, request.parents)?;
        if !request.no_unmount {
            self.check_unmounted(&pool, &request.from)?;
        }
        let is_possible = target.split('/').next() == request.from.split('/').next() && pool.dsl().hold(&target).is_err();
        if let (true, true, Some((parent, _))) = (request.parents, is_possible, target.rsplit_once('/')) {
            let above = DatasetCreate { name: parent.to_string(), parents: true, no_mount: true, ..DatasetCreate::default() };
            datasets.create(&above, Maker::of(Some(self.user)))?;
        }
        Ok(DatasetRename { parents: false, ..request })
    }

    fn hold(&self, request: &SnapshotHold, permission: &str) -> Result<SnapshotHold, Failure> {
        let filesystem = filesystem_of(&request.name);
        let pool = self.pools.pool_of(filesystem, "open")?;
        let filesystems = if request.recursive { descendants(&pool, filesystem)? } else { vec![filesystem.to_string()] };
        filesystems.iter().try_for_each(|name| self.check(name, &[permission]))?;
        Ok(request.clone())
    }

    fn bookmark(&self, request: &BookmarkCreate) -> Result<BookmarkCreate, Failure> {
        let (filesystem, _) = request.bookmark.split_once('#').ok_or_else(|| self.denied())?;
        self.check(filesystem, &["bookmark"])?;
        Ok(request.clone())
    }

    fn clone_snapshot(&self, request: &DatasetClone) -> Result<DatasetClone, Failure> {
        check_name(&request.name, "create")?;
        if !request.origin.contains('@') {
            return Err(self.denied());
        }
        self.check(&request.origin, &["clone"])?;
        let above = self.check_new((&request.name, request.parents), request.properties.keys().map(String::as_str))?;
        // The size is no property of a new volume here: it changes one that is there.
        if request.properties.contains_key("volsize") {
            self.check_in(&above, &["volsize"])?;
        }
        Ok(request.clone())
    }

    /// Refuses to promote a clone without the permissions on it and on what it is of (OpenZFS: `zfs_secpolicy_promote`), or where limits leave no
    /// room for the snapshots that become its own.
    pub(in crate::dataset) fn check_promote(&self, pool: &OpenPool, name: &str) -> Result<(), Failure> {
        self.check(name, &["promote", "mount"])?;
        let origin = pool.dsl().hold(name).and_then(|handle| handle.origin());
        // Without one nothing is done.
        let failed = |error: DslError| failure::dataset("promote", name, &error);
        let Some(origin) = origin.map_err(failed)? else { return Ok(()) };
        self.check(&origin, &["promote"])?;
        let (other, taken) = (filesystem_of(&origin), pool.dsl().hold(&origin).map_err(failed)?.creation_txg());
        let snapshots = pool.dsl().snapshots(other).map_err(failed)?;
        let moving = snapshots.iter().filter(|snapshot| snapshot.creation_txg <= taken).count() as u64;
        self.check_limit(pool, name, "snapshot", &|above| if is_within(other, above) { 0 } else { moving })
    }

    fn promote(&self, request: &DatasetPromote) -> Result<DatasetPromote, Failure> {
        let pool = self.pools.pool_of(&request.name, "open")?;
        self.check_promote(&pool, &request.name)?;
        Ok(request.clone())
    }

    fn roll_back(&self, request: &DatasetRollback) -> Result<DatasetRollback, Failure> {
        check_name(&request.name, "open")?;
        let filesystem = filesystem_of(&request.name);
        let pool = self.pools.pool_of(filesystem, "open")?;
        self.check(filesystem, &["rollback"])?;
        self.check_places(&pool, filesystem)?;
        let mut request = DatasetRollback { force: false, ..request.clone() };
        if request.recursive || request.clones {
            let (names, bookmarks) = rollback::doomed(&pool, &request)?;
            self.check_destroy(&pool, &names)?;
            if !bookmarks.is_empty() {
                self.check(filesystem, &["destroy"])?;
            }
            // What comes meanwhile was not looked at.
            let is_any = !names.is_empty() || !bookmarks.is_empty();
            (request.recursive, request.clones) = (request.recursive && is_any, request.clones && is_any);
        }
        Ok(request)
    }

    /// Refuses to delegate what the user has not, or the right to delegate; and to take back what is not the user's own (OpenZFS:
    /// `dsl_deleg_can_allow`, `dsl_deleg_can_unallow`).
    fn allow(&self, request: &AllowChange) -> Result<AllowChange, Failure> {
        let pool = self.pools.pool_of(&request.name, "open")?;
        let names = if request.remove && request.recursive { descendants(&pool, &request.name)? } else { vec![request.name.clone()] };
        let own = self.user.uid.to_string();
        for name in &names {
            self.check(name, &["allow"])?;
            for entry in &request.entries {
                let (kind, whom) = entry.who.split_once('$').ok_or_else(|| self.denied())?;
                if request.remove && (!matches!(kind, "ul" | "ud" | "Ul" | "Ud") || whom != own) {
                    return Err(self.denied());
                }
                for permission in entry.permissions.iter().filter(|_| !request.remove) {
                    if permission == "allow" {
                        return Err(self.denied());
                    }
                    self.check(name, &[permission.as_str()])?;
                }
            }
        }
        Ok(request.clone())
    }

    fn userspace(&self, query: &UserspaceQuery) -> Result<UserspaceQuery, Failure> {
        let name = if query.name.starts_with('/') { self.pools.by_mountpoint(&query.name)? } else { query.name.clone() };
        for who in &query.who {
            for what in ["used", "quota", "objused", "objquota"] {
                self.check(&name, &[format!("{who}{what}").as_str()])?;
            }
        }
        Ok(UserspaceQuery { name, ..query.clone() })
    }

    fn diff(&self, query: &DiffQuery) -> Result<DiffQuery, Failure> {
        diff::compared(query)?.iter().try_for_each(|name| self.check(name, &["diff"]))?;
        Ok(query.clone())
    }
}
