//! `zfs unmount`, and whatever else makes file systems leave: all of a tree or, when one is in use, none; by force within a deadline,
//! whatever has files open there.
//!
//! By force, what is in use is cut off from its server, so that everything that waits for it gets an error, and then detached. One
//! that does not come to its end all the same (its pool waits for a device) stays in the table of mounts and blocks its name.

use crate::dataset::properties::text_of;
use crate::device::served::Served;
use crate::failure::{self, because};
use crate::mount::leaving::{self, Extent, busy};
use crate::mount::lifting::{self, Leaver, all_mounts, wish_again};
use crate::mount::lost::{Note, goes_along, pool_of};
use crate::mount::mounting::Mounter;
use crate::mount::mounts::{Directory, Mounted, is_within};
use crate::mount::patience::Patience;
use crate::mount::turns::Turn;
use crate::mount::whereabouts::Standing;
use crate::mount::wish::Wish;
use crate::pool::{OpenPool, Pools};
use control_api::{ErrorKind, Failure, Remark, Response, UnmountRequest};
use exec::Exec;
use fuse::{MountRow, MountTable};
use std::path::PathBuf;
use std::sync::Arc;

/// Unmounting of file systems of all pools.
pub(crate) struct Unmounter {
    pub exec: Exec,
    pub pools: Arc<Pools>,
    /// Mounter that mounts again what has to stay.
    pub mounter: Arc<Mounter>,
    /// Files that are devices, which keep their file systems.
    pub served: Arc<Served>,
}

impl Unmounter {
    /// Unmounts a dataset and what is below it, also snapshots that somebody mounted, all or, when one is in use, none; tells what to mount to have
    /// it back.
    pub(crate) fn unmount_tree(
        &self,
        turn: &Turn<'_>,
        pool: &Arc<OpenPool>,
        name: &str,
        force: bool,
        directory: Directory,
    ) -> Result<Vec<Wish>, Failure> {
        self.unmount_list(turn, pool, (name, pool.mounts.below(name)), (force, directory))
    }

    /// Unmounts as [`Unmounter::unmount_tree`] does, but for snapshots other than these: they are mounts of their own, which stay where somebody mounted
    /// them (OpenZFS: `changelist_gather` finds file systems only).
    pub(crate) fn unmount_filesystems(
        &self,
        turn: &Turn<'_>,
        pool: &Arc<OpenPool>,
        (name, snapshots): (&str, &[String]),
        how: (bool, Directory),
    ) -> Result<Vec<Wish>, Failure> {
        let mut list = pool.mounts.below(name);
        list.retain(|mounted| goes_along(&mounted.name(), name) || snapshots.contains(&mounted.name()));
        self.unmount_list(turn, pool, (name, list), how)
    }

    fn unmount_list(
        &self,
        turn: &Turn<'_>,
        pool: &Arc<OpenPool>,
        list: (&str, Vec<Arc<Mounted>>),
        how: (bool, Directory),
    ) -> Result<Vec<Wish>, Failure> {
        let left = self.leave_tree(turn, pool, list, how);
        if left.is_err() {
            self.mounter.losses.restore(&self.pools);
        }
        left
    }

    fn leave_tree(
        &self,
        turn: &Turn<'_>,
        pool: &Arc<OpenPool>,
        (name, list): (&str, Vec<Arc<Mounted>>),
        (force, directory): (bool, Directory),
    ) -> Result<Vec<Wish>, Failure> {
        let own: Vec<Leaver> = list.into_iter().map(|mounted| (pool.mounts.clone(), mounted)).collect();
        let place_of = |mounted: &Mounted| pool.mounts.place_of(mounted).map_or_else(|| mounted.session.mountpoint(), PathBuf::from);
        let left: Vec<PathBuf> = own.iter().map(|(_, mounted)| place_of(mounted)).collect();
        let is_own = |mounted: &Mounted| own.iter().any(|(_, own)| std::ptr::eq(&**own, mounted));
        // What hides some of them goes, too, and comes back; so does what is in them since they hid its place.
        let leaving = [own.clone(), self.mounter.lifted.inside(&self.pools, &own)].concat();
        let list = lifting::leaving_order(leaving, all_mounts(&self.pools));
        // A pool that is given up goes whatever is in it.
        if !force || !self.pools.leaving.has(name) {
            self.check_inside(name, &list, (force, Extent::of(directory)))?;
        }
        // What is dead in them keeps them from being unmounted.
        self.mounter.losses.dig_up(&self.pools, name, directory);
        let (mut wishes, mut lifted) = (Vec::new(), Vec::new());
        if force {
            let own: Vec<Arc<Mounted>> = own.iter().map(|(_, mounted)| mounted.clone()).collect();
            self.served.check_unserved(&own)?;
            for (mounts, mounted) in list.iter().filter(|(_, mounted)| !is_own(mounted)) {
                let wish = wish_again(&self.pools, mounts, mounted);
                lifted.extend(wish.filter(|_| mounts.leave(mounted, &turn.patience).is_ok()));
            }
            wishes.extend(own.iter().map(|mounted| Wish::again(pool, mounted)));
            let forced = self.unmount_by_force(turn, pool, own, Extent::of(directory));
            if forced.is_err() {
                self.mounter.put_back(turn, lifted);
                return forced.map(|()| wishes);
            }
        } else {
            let everywhere = Extent::of(directory) == Extent::Everywhere;
            let places = if everywhere { self.leave_beside(turn, pool, &own)? } else { Vec::new() };
            for (mounts, mounted) in &list {
                let wish = if is_own(mounted) { Some(Wish::again(pool, mounted)) } else { wish_again(&self.pools, mounts, mounted) };
                let was_there = matches!(mounts.standing(mounted), Standing::Mounted(_));
                if let Err(failure) = mounts.leave_all(mounted, everywhere && is_own(mounted), &turn.patience) {
                    // Another mount namespace has it too: it goes on there, and is the same when it is mounted here again.
                    let is_elsewhere = was_there && mounts.standing(mounted) == Standing::Detached;
                    if !(is_elsewhere && is_own(mounted) && directory == Directory::Keep) {
                        lifted.append(&mut wishes);
                        lifted.extend(wish.filter(|_| is_elsewhere));
                        self.mounter.put_back(turn, lifted);
                        self.put_back_places(turn, &places);
                        return Err(failure);
                    }
                }
                turn.step();
                if is_own(mounted) { wishes.extend(wish) } else { lifted.extend(wish) }
            }
        }
        for ((_, mounted), place) in own.iter().zip(&left) {
            mounted.remove_directory(place, directory);
        }
        self.mounter.put_back(turn, lifted);
        drop(list);
        drop(own);
        // What has ended lets go of its dataset.
        drop(pool.mounts.all());
        self.sync_after_unmount(pool)?;
        wishes.reverse();
        Ok(wishes)
    }

    /// Refuses to force a pool's file systems to leave while others are mounted inside of them.
    pub(crate) fn check_alone(&self, pool: &OpenPool) -> Result<(), Failure> {
        let list: Vec<Leaver> = pool.mounts.all().into_iter().map(|mounted| (pool.mounts.clone(), mounted)).collect();
        self.check_inside(&pool.name(), &list, (true, Extent::Everywhere))
    }

    /// Refuses to unmount what something else is mounted in that does not leave with it, as umount(2) does, also by force.
    fn check_inside(&self, name: &str, list: &[Leaver], how: (bool, Extent)) -> Result<(), Failure> {
        self.inside(name, list, how).map_or(Ok(()), |(place, why)| Err(busy(&place).advise(why)))
    }

    /// Place of something that is to leave and cannot, since something else is mounted in it, and what that is; `name` leaves with what is below it.
    /// By force file systems of pools count only, and no dead ones, which are dead again when what they are in is mounted.
    fn inside(&self, name: &str, list: &[Leaver], (force, extent): (bool, Extent)) -> Option<(PathBuf, String)> {
        let rows = MountTable::default().rows().unwrap_or_default();
        let others = all_mounts(&self.pools);
        let words = |(around, row): (&MountRow, &MountRow)| {
            let live = others.iter().find(|(_, other)| other.session.number() == row.device).map(|(_, other)| other.name());
            let at = row.place.display();
            let why = match (live, self.mounter.losses.name_of(row)) {
                (Some(live), _) => format!("'{live}' is mounted inside it, at {at}: unmount it first"),
                (None, _) if force => return None,
                (None, Some(dead)) if is_within(&dead, name) => return None,
                (None, Some(dead)) => {
                    format!("'{dead}', which could not be mounted again, is dead inside it, at {at}: unmount it first, or use '-f'")
                }
                (None, None) => format!("'{}' ({}) is mounted inside it, at {at}: unmount it first", row.source, row.kind),
            };
            Some((around.place.clone(), why))
        };
        lifting::inside(&rows, list, extent == Extent::Everywhere).into_iter().find_map(words)
    }

    /// Unmounts what is at several places from all but the one that is meant, as they may lie in other file systems; all, or none when one is in
    /// use. Returns wishes for every place.
    fn leave_beside(&self, turn: &Turn<'_>, pool: &Arc<OpenPool>, own: &[Leaver]) -> Result<Vec<Wish>, Failure> {
        check_parts(own)?;
        let places: Vec<Wish> = own.iter().flat_map(|(_, mounted)| every_place(&Wish::again(pool, mounted), mounted)).collect();
        let others = |(mounts, mounted): &Leaver| {
            let (first, mounted) = (mounted.session.mountpoint(), mounted.clone());
            let all = mounts.places(&mounted).into_iter().filter(move |place| *place != first);
            all.map(move |place| (place, mounted.clone())).collect::<Vec<_>>()
        };
        let mut beside: Vec<(PathBuf, Arc<Mounted>)> = own.iter().flat_map(others).collect();
        beside.sort_by(|a, b| b.0.cmp(&a.0));
        for (place, mounted) in beside {
            let first = mounted.session.mountpoint();
            mounted.session.moved(&place);
            let left = pool.mounts.leave(&mounted, &turn.patience);
            mounted.session.moved(&first);
            turn.step();
            if let Err(failure) = left {
                self.put_back_places(turn, &places);
                return Err(failure);
            }
        }
        Ok(places)
    }

    /// Mounts again, beside where they are, what was mounted at several places.
    fn put_back_places(&self, turn: &Turn<'_>, places: &[Wish]) {
        let at = |wish: &Wish| wish.place.clone().unwrap_or_default();
        let lacks = |wish: &&Wish| !wish.pool.mounts.is_there_at(&wish.name, &at(wish));
        self.mounter.put_back(turn, places.iter().filter(lacks).cloned().collect());
        // The first of them is the one that is meant when none is named.
        places.iter().rev().for_each(|wish| wish.pool.mounts.choose(&wish.name, &at(wish)));
    }

    fn unmount_by_force(&self, turn: &Turn<'_>, pool: &Arc<OpenPool>, list: Vec<Arc<Mounted>>, extent: Extent) -> Result<(), Failure> {
        let list = list.into_iter().map(|mounted| (pool.mounts.clone(), mounted)).collect();
        let left = leaving::force(&self.exec, list, extent, &turn.patience);
        left.first().map_or(Ok(()), |mounted| Err(unended(mounted)))
    }

    /// Writes to disk what a file system that is unmounted was given, as far as its devices answer.
    fn sync_after_unmount(&self, pool: &OpenPool) -> Result<(), Failure> {
        if pool.is_read_only() || pool.pool().zio().is_suspended() {
            return Ok(());
        }
        pool.pool().sync().map_err(|error| because(ErrorKind::Io, format!("cannot sync '{}'", pool.name()), error))
    }

    pub(crate) fn unmount(&self, request: &UnmountRequest) -> Result<Response, Failure> {
        let remarks = match &request.target {
            Some(target) => self.unmount_one(target, request.force)?,
            None => self.unmount_all(request.force)?,
        };
        Ok(Response::Done { remarks })
    }

    fn unmount_one(&self, target: &str, force: bool) -> Result<Vec<Remark>, Failure> {
        let turn = self.mounter.turn();
        let named = if target.starts_with('/') { Some(self.unmount_target(target)?) } else { None };
        let name = named.as_ref().map_or_else(|| target.to_string(), |(name, _)| name.clone());
        let pool = self.pools.pool_of(&name, "open")?;
        let what = format!("cannot unmount '{target}'");
        if name.contains('@') && !target.starts_with('/') {
            let what = format!("cannot open '{name}'");
            return Err(because(ErrorKind::Invalid, what, "operation not applicable to datasets of this type"));
        }
        let handle = pool.dsl().hold(&name).map_err(|error| failure::dataset("open", &name, &error))?;
        if !name.contains('@') && text_of(&handle, "mountpoint") == "legacy" {
            return Err(because(ErrorKind::Invalid, what, "legacy mountpoint").advise("use umount(8) to unmount this filesystem"));
        }
        drop(handle);
        let is_mounted = pool.mounts.all().iter().any(|mounted| mounted.name() == name);
        // It was mounted when a daemon died, and is dead since: all of it, or one of several places.
        let was_dead = match &named {
            Some((_, place)) if is_mounted => self.mounter.losses.forget_at(place),
            _ => !is_mounted && self.mounter.losses.has(&name) && self.mounter.losses.forget(&name),
        };
        if was_dead {
            return Ok(Vec::new());
        }
        if !is_mounted {
            return Err(because(ErrorKind::Invalid, what, "not currently mounted"));
        }
        // Children are in its own place only.
        if let (Some(mounted), Some((_, place))) = (pool.mounts.mounted(&name), &named)
            && pool.mounts.is_beside(&mounted, place)
        {
            pool.mounts.choose(&name, place);
            // Were it cut off, its own place would be dead: who has files open here goes on with them.
            let left = pool.mounts.leave(&mounted, &turn.patience).or_else(|failure| {
                let goes = force && !pool.mounts.is_covered(&mounted) && mounted.session.detach().is_ok();
                if goes { Ok(()) } else { Err(failure) }
            });
            pool.mounts.choose_own(&name);
            drop(mounted);
            return left.and_then(|()| self.sync_after_unmount(&pool)).map(|()| Vec::new());
        }
        // What is mounted on top of it goes first.
        drop(self.unmount_filesystems(&turn, &pool, (&name, &[]), (force, Directory::Keep))?);
        let unguarded = self.mounter.losses.forget_besides(&name);
        let mut on_elsewhere = pool.mounts.below(&name);
        on_elsewhere.retain(|mounted| goes_along(&mounted.name(), &name) && pool.mounts.standing(mounted) == Standing::Detached);
        Ok(goes_on(&on_elsewhere, &turn.patience).into_iter().chain(unguarded.iter().map(no_longer_dead)).collect())
    }

    /// Name of the dataset whose mount a path names, and that path without links.
    fn unmount_target(&self, path: &str) -> Result<(String, PathBuf), Failure> {
        let refused = |why: &str| Err(because(ErrorKind::NotFound, format!("cannot unmount '{path}'"), why));
        let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let text = place.to_string_lossy().into_owned();
        if let Some(name) = self.mounter.losses.name_at(&place) {
            return Ok((name, place));
        }
        let pools: Vec<Arc<OpenPool>> = self.pools.all();
        let on_top = pools.iter().find(|pool| pool.mounts.is_on_top(&text)).and_then(|pool| pool.mounts.find(&text));
        if let Some(name) = on_top.or_else(|| pools.iter().find_map(|pool| pool.mounts.find(&text))) {
            return Ok((name, place));
        }
        let best = pools.iter().filter_map(|pool| pool.mounts.dataset_at(&text)).max_by_key(|(place, _)| place.len());
        match best {
            Some(_) => refused("not a mountpoint"),
            None if place.exists() => refused("not a ZFS filesystem"),
            None => refused("not currently mounted"),
        }
    }

    /// Unmounts everything but what is mounted by hand (`legacy`, `noauto`); one that is in use does not hold up the others.
    fn unmount_all(&self, force: bool) -> Result<Vec<Remark>, Failure> {
        let turn = self.mounter.turn();
        let pools: Vec<Arc<OpenPool>> = self.pools.all();
        let mut list: Vec<Leaver> = Vec::new();
        for pool in &pools {
            self.mounter.losses.dig_up(&self.pools, &pool.name(), Directory::RemoveMade);
            for mounted in pool.mounts.all() {
                let Ok(handle) = pool.dsl().hold(&mounted.name()) else { continue };
                let is_manual =
                    handle.is_snapshot() || text_of(&handle, "mountpoint") == "legacy" || text_of(&handle, "canmount") == "noauto";
                if !is_manual {
                    list.push((pool.mounts.clone(), mounted));
                }
            }
        }
        let mut list = lifting::leaving_order(list, Vec::new());
        let (mut failures, mut on_elsewhere) = (Vec::new(), Vec::new());
        while let Some((place, why)) = self.inside("", &list, (force, Extent::Place)) {
            list.retain(|(_, mounted)| mounted.session.mountpoint() != place);
            failures.push(busy(&place).advise(why));
        }
        if force {
            let left = leaving::force(&self.exec, list, Extent::Place, &turn.patience);
            failures.extend(left.iter().map(|mounted| unended(mounted)));
        } else {
            for (mounts, mounted) in list {
                let was_there = matches!(mounts.standing(&mounted), Standing::Mounted(_));
                match mounts.leave(&mounted, &turn.patience) {
                    Err(_) if was_there && mounts.standing(&mounted) == Standing::Detached => on_elsewhere.push(mounted),
                    left => failures.extend(left.err()),
                }
                turn.step();
            }
        }
        for pool in &pools {
            failures.extend(self.sync_after_unmount(pool).err());
        }
        let mut remarks: Vec<Remark> = goes_on(&on_elsewhere, &turn.patience).into_iter().collect();
        if failures.is_empty() {
            let dead = self.mounter.losses.all();
            remarks.extend(dead.iter().filter(|note| pools.iter().any(|pool| pool.name() == pool_of(&note.name))).map(no_longer_dead));
            for pool in &pools {
                self.mounter.losses.forget(&pool.name());
            }
        } else {
            self.mounter.losses.restore(&self.pools);
        }
        failure::joined(failures).map(|()| remarks)
    }
}

/// Remark that the place of a file system, which could not be mounted again, is not dead any more.
fn no_longer_dead(note: &Note) -> Remark {
    let (name, place) = (&note.name, note.place.display());
    Remark::Warning(format!("warning: '{name}' could not be mounted again, and is unmounted now: {place} leads to what is around it"))
}

/// Remark that some file systems, which left, go on where another mount namespace has them; none where there are none.
fn goes_on(list: &[Arc<Mounted>], patience: &Patience) -> Option<Remark> {
    let first = list.first()?;
    let them =
        if list.len() > 1 { format!("'{}' and {} others are", first.name(), list.len() - 1) } else { format!("'{}' is", first.name()) };
    let program = patience.holder(first.session.number()).map_or_else(|| "a program".to_string(), |program| format!("process {program}"));
    Some(Remark::Warning(format!(
        "warning: {them} unmounted here, and still in use in another mount namespace, where {program} runs: until that ends, or unmounts there \
         (nsenter -m -t), nothing of this is destroyed or exported without force; 'zfs unmount -f' cuts it off"
    )))
}

/// Failure of a mount that was cut off and does not come to its end.
fn unended(mounted: &Mounted) -> Failure {
    busy(&mounted.session.mountpoint()).advise(
        "its programs are cut off, but requests that it has already do not end (does its pool wait for a device?): \
         it stays in its place, dead, until they do",
    )
}

/// Refuses to unmount everywhere what is shown in part (a bind mount of a directory): were the rest refused, that could not be put back.
fn check_parts(own: &[Leaver]) -> Result<(), Failure> {
    let part = |(mounts, mounted): &Leaver| Some((mounts.part(mounted)?, mounted.name()));
    let Some((place, name)) = own.iter().find_map(part) else { return Ok(()) };
    Err(busy(&place).advise(format!("it shows a directory of '{name}' (a bind mount): unmount that first, or use '-f'")))
}

/// Wishes for every place of a file system, the one first that is meant when none is named.
fn every_place(wish: &Wish, mounted: &Mounted) -> Vec<Wish> {
    let first = mounted.session.mountpoint();
    let mut places = wish.pool.mounts.places(mounted);
    places.sort_by_key(|place| *place != first);
    let at = |place: PathBuf| {
        let (place, by_hand) = mounted.said(&place);
        Wish { place: Some(place), by_hand, by_itself: false, ..wish.clone() }
    };
    places.into_iter().map(at).collect()
}
