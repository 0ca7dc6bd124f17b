//! `zfs rollback`: a dataset that goes back to one of its snapshots.

use crate::dataset::clearing::{Cleared, Purpose};
use crate::dataset::datasets::{Datasets, kind_of};
use crate::dataset::dependents::dependents_of_all;
use crate::dataset::destroying::{check_no_receive, once_nobody_looks};
use crate::dataset::names::{check_opened, filesystem_of};
use crate::dataset::references;
use crate::failure::{self, because};
use crate::mount::mounts::Directory;
use crate::pool::OpenPool;
use crate::requests::done;
use control_api::{DatasetRollback, ErrorKind, Failure, Named, Response};
use dsl::prop::table;
use dsl::{DatasetHandle, DslError};

/// Newer snapshots and bookmarks that are named when a rollback is refused because of them.
const NAMED_MAX: usize = 32;

/// Snapshots and bookmarks newer than the snapshot that a dataset goes back to, and clones of them.
struct Newer {
    /// Full names of the snapshots, oldest first.
    snapshots: Vec<String>,
    /// Full names of the bookmarks, oldest first.
    bookmarks: Vec<String>,
    /// Full names of what depends on them, in an order in which it can be destroyed.
    clones: Vec<String>,
}

impl Newer {
    fn of(pool: &OpenPool, request: &DatasetRollback) -> Result<Newer, Failure> {
        let failed = |error: DslError| failure::dataset("open", &request.name, &error);
        let filesystem = filesystem_of(&request.name);
        let taken = pool.dsl().hold(&request.name).map_err(failed)?.creation_txg();
        let all = pool.dsl().snapshots(filesystem).map_err(failed)?;
        let newer = all.iter().filter(|snapshot| snapshot.creation_txg > taken);
        let snapshots: Vec<String> = newer.map(|snapshot| format!("{filesystem}@{}", snapshot.name)).collect();
        let marks = pool.dsl().bookmarks(filesystem).map_err(failed)?;
        let newer = marks.iter().filter(|mark| mark.creation_txg > taken);
        let bookmarks = newer.map(|mark| format!("{filesystem}#{}", mark.name)).collect();
        let clones = dependents_of_all(pool, &snapshots)?;
        Ok(Newer { snapshots, bookmarks, clones })
    }

    /// Failure of destroying those that users hold, in OpenZFS's words; without one of them nothing is destroyed.
    fn held(&self, pool: &OpenPool) -> Result<(), Failure> {
        let snapshots = self.clones.iter().filter(|name| name.contains('@')).chain(&self.snapshots);
        let held = snapshots.filter(|name| references::is_held(pool, name));
        failure::joined(held.map(|name| failure::dataset("destroy", name, &DslError::Held)).collect())
            .map_err(|failure| failure.advise("'zfs holds' shows who holds a snapshot"))
    }

    /// Objection to a rollback that was not told to destroy them, in OpenZFS's words (`rollback_check`).
    fn objection(&self, request: &DatasetRollback) -> Option<Failure> {
        let refused =
            |why: &str, next: String| Some(because(ErrorKind::Busy, format!("cannot rollback to '{}'", request.name), why).advise(next));
        let mut list: Vec<String> = self.snapshots.iter().chain(&self.bookmarks).cloned().collect();
        if !request.recursive && !request.clones && !list.is_empty() {
            if list.len() > NAMED_MAX {
                list.truncate(NAMED_MAX);
                list.push(format!("Output limited to {NAMED_MAX} snapshots/bookmarks"));
            }
            let next = format!("use '-r' to force deletion of the following snapshots and bookmarks:\n{}", list.join("\n"));
            return refused("more recent snapshots or bookmarks exist", next);
        }
        if !request.clones && !self.clones.is_empty() {
            let next = format!("use '-R' to force deletion of the following clones and dependents:\n{}", self.clones.join("\n"));
            return refused("clones of previous snapshots exist", next);
        }
        None
    }
}

/// Size of a volume and the space that is kept for it, in bytes; None for a file system.
fn sizes(handle: &DatasetHandle) -> Result<Option<(u64, u64)>, DslError> {
    if kind_of(handle) != table::VOLUME {
        return Ok(None);
    }
    Ok(Some((handle.prop_u64("volsize")?.0, handle.prop_u64("refreservation")?.0)))
}

/// Full names of what a rollback destroys that is told to: snapshots with the clones that go, and bookmarks.
pub(super) fn doomed(pool: &OpenPool, request: &DatasetRollback) -> Result<(Vec<String>, Vec<String>), Failure> {
    let Newer { snapshots, bookmarks, clones } = Newer::of(pool, request)?;
    Ok((clones.into_iter().chain(snapshots).collect(), bookmarks))
}

impl Datasets {
    pub(crate) fn roll_back(&self, request: &DatasetRollback) -> Result<Response, Failure> {
        check_opened(&request.name, Named::Snapshot)?;
        let pool = self.pools.pool_of(&request.name, "open")?;
        let newer = Newer::of(&pool, request)?;
        if let Some(failure) = newer.objection(request) {
            return Err(failure);
        }
        if !request.clones {
            newer.snapshots.iter().try_for_each(|snapshot| check_no_receive(&pool, snapshot))?;
        }
        newer.held(&pool)?;
        // Before anything is destroyed for it.
        let filesystem = filesystem_of(&request.name).to_string();
        let handle = pool.dsl().hold(&filesystem).map_err(|error| failure::dataset("open", &filesystem, &error))?;
        let volumes = kind_of(&handle) == table::VOLUME;
        drop(handle);
        let what = format!("cannot rollback '{filesystem}'");
        // By force it leaves from every place where it is shown: else it would go on there.
        let directory = if request.force { Directory::RemoveMade } else { Directory::Keep };
        let purpose = Purpose { what, verb: "rolled back", directory, doomed: newer.snapshots.clone(), force: request.force, volumes };
        let cleared = Cleared::clear(self, &pool, std::slice::from_ref(&filesystem), &purpose)?;
        let newer: Vec<String> = newer.clones.into_iter().chain(newer.snapshots).chain(newer.bookmarks).collect();
        let what = format!("cannot rollback to '{}'", request.name);
        let gone = self.destroy_all(&pool, &newer, Some(&filesystem), (what, request.force));
        let went_back = gone.and_then(|()| go_back(&pool, &filesystem, &request.name));
        let failures = cleared.bring_back(&self.mounter);
        went_back?;
        failure::joined(failures)?;
        Ok(done())
    }
}

/// Goes back to the newest snapshot. The space that is kept for a volume follows its size where both were the same.
fn go_back(pool: &OpenPool, filesystem: &str, snapshot: &str) -> Result<(), Failure> {
    let failed = |error: DslError| {
        let refused = |kind, why: String| because(kind, format!("cannot rollback '{filesystem}'"), why);
        match error {
            DslError::Exists => refused(ErrorKind::Exists, format!("there is a snapshot or bookmark more recent than '{snapshot}'")),
            DslError::NotFound => refused(ErrorKind::NotFound, format!("'{snapshot}' is not found among snapshots of '{filesystem}'")),
            error => failure::dataset("rollback", filesystem, &error),
        }
    };
    let before = pool.dsl().hold(filesystem).and_then(|handle| sizes(&handle)).map_err(failed)?;
    once_nobody_looks(pool.pool().exec(), || pool.dsl().rollback(snapshot)).map_err(failed)?;
    if let Some((size, _)) = before.filter(|(size, kept)| size == kept) {
        let handle = pool.dsl().hold(filesystem).map_err(failed)?;
        if let Some((now, _)) = sizes(&handle).map_err(failed)?.filter(|(now, _)| *now != size) {
            handle.set_props(&[("refreservation".to_string(), now.to_string())]).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, somebody who is about to destroy all that is listed is told that there is more, or not told.
    #[test]
    fn a_list_says_that_it_is_limited_where_it_is() {
        let request = DatasetRollback { name: "tank@0".into(), recursive: false, clones: false, force: false };
        for (snapshots, bookmarks) in [(1, 0), (0, NAMED_MAX), (NAMED_MAX, 0), (20, NAMED_MAX - 20), (NAMED_MAX, 1), (20, 20)] {
            let names = |kind: char, count| (0..count).map(|number| format!("tank{kind}{number}")).collect::<Vec<_>>();
            let newer = Newer { snapshots: names('@', snapshots), bookmarks: names('#', bookmarks), clones: Vec::new() };
            let said = newer.objection(&request).and_then(|failure| failure.next).expect("there are newer ones");
            let named = said.lines().filter(|line| line.starts_with("tank")).count();
            assert_eq!(named, (snapshots + bookmarks).min(NAMED_MAX));
            assert_eq!(said.contains("Output limited"), named < snapshots + bookmarks, "{snapshots} and {bookmarks}");
        }
    }
}
