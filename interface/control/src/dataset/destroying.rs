//! `zfs destroy`: datasets with what depends on them, and snapshots.

use crate::dataset::calls;
use crate::dataset::clearing::{Cleared, Purpose};
use crate::dataset::datasets::{Datasets, kind_of};
use crate::dataset::dependents::{dependents, dependents_of_all, receiving_from, roots};
use crate::dataset::names::{check_opened, descendants, select_range};
use crate::dataset::properties::text_of;
use crate::dataset::references;
use crate::failure::{self, because};
use crate::mount::mounts::{Directory, is_within};
use crate::pool::OpenPool;
use control_api::{DatasetDestroy, ErrorKind, Failure, Named, Response};
use dsl::DslError;
use dsl::prop::table;
use exec::Exec;
use std::sync::Arc;

/// Nanoseconds for which a dataset that is to go may still be looked at.
const LOOK_NS: u64 = 2_000_000_000;
/// Nanoseconds between two attempts.
const AGAIN_NS: u64 = 5_000_000;

/// Times that a dataset with all that depends on it is destroyed, each with what came to depend on it during the one before.
const ROUNDS: u32 = 4;

/// Repeats what is refused because somebody holds the dataset. A user's hold is another error: these are the daemon's own, of statistics that are
/// being gathered, or of the last answer of a mount that is gone already.
pub(super) fn once_nobody_looks<T>(exec: &Exec, mut attempt: impl FnMut() -> Result<T, DslError>) -> Result<T, DslError> {
    let until = exec.now_ns().saturating_add(LOOK_NS);
    loop {
        match attempt() {
            Err(DslError::Busy) if exec.now_ns() < until => exec.sleep_ns(AGAIN_NS),
            result => return result,
        }
    }
}

/// Gives up what interrupted receives left that goes on from this snapshot.
fn give_up_receives(pool: &OpenPool, snapshot: &str) -> Result<(), DslError> {
    for dataset in receiving_from(pool, snapshot)? {
        let partial = pool.dsl().partial_receive(&dataset)?.map(|handle| handle.object());
        partial.map_or(Ok(()), |object| pool.dsl().receive_abort(object))?;
    }
    Ok(())
}

/// Destroys snapshots, and what interrupted receives left that goes on from them.
fn destroy_snapshots_with_receives(pool: &OpenPool, names: &[String], defer: bool) -> Result<(), DslError> {
    match pool.dsl().destroy_snapshots(names, defer) {
        Err(DslError::HasClones) => {
            names.iter().try_for_each(|name| give_up_receives(pool, name))?;
            pool.dsl().destroy_snapshots(names, defer)
        }
        result => result,
    }
}

/// Refuses to destroy a snapshot from which a receive goes on that nobody sees.
pub(super) fn check_no_receive(pool: &OpenPool, snapshot: &str) -> Result<(), Failure> {
    let failed = |error: DslError| failure::dataset("open", snapshot, &error);
    let Some(dataset) = receiving_from(pool, snapshot).map_err(failed)?.into_iter().next() else { return Ok(()) };
    let why = format!("a receive into '{dataset}', interrupted or under way, goes on from it");
    let next = format!("receive the rest of it, give it up with 'zfs receive -A {dataset}', or use '-R' to destroy both");
    Err(because(ErrorKind::Busy, format!("cannot destroy '{snapshot}'"), why).advise(next))
}

/// Failure of destroying what a receive keeps that is under way; None where there is none.
fn is_received(pool: &OpenPool, name: &str) -> Option<Failure> {
    let is_into = |dataset: &String| pool.streams.received_into(dataset) > 0;
    let why = if name.contains('@') {
        let dataset = receiving_from(pool, name).ok()?.into_iter().find(is_into)?;
        format!("snapshot is busy: a receive into '{dataset}', which goes on from it, is under way")
    } else if is_into(&name.to_string()) {
        "dataset is busy: a receive into it is under way".to_string()
    } else {
        return None;
    };
    let failure = because(ErrorKind::Busy, format!("cannot destroy '{name}'"), why);
    Some(failure.advise("wait until it is through, or end its 'zfs receive'"))
}

/// Advice about a snapshot that is mounted by itself (`mount -t zfs`), with its place; None where it is not.
pub(super) fn mounted_by_hand(pool: &OpenPool, snapshot: &str) -> Option<String> {
    let mounted = pool.mounts.mounted(snapshot).filter(|_| snapshot.contains('@'))?;
    Some(match pool.mounts.place_of(&mounted) {
        Some(place) => format!("'{snapshot}' is mounted at {place}: unmount it first (umount)"),
        None => format!(
            "'{snapshot}' was unmounted, and is in use all the same: close the files that are open there (lsof, fuser), or unmount it in the other \
             mount namespace that has it"
        ),
    })
}

/// Failure of destroying a snapshot that is in use, by what has it; None where nobody knows.
fn in_use(pool: &OpenPool, snapshot: &str) -> Option<Failure> {
    let open = || {
        let used = pool.volumes.in_use(pool.pool().exec(), snapshot)?;
        Some(format!("close what has the volume '{used}' open (losetup, lsof, fuser, 'zirconia target sessions')"))
    };
    is_received(pool, snapshot).or_else(|| {
        let next = mounted_by_hand(pool, snapshot).or_else(open)?;
        Some(because(ErrorKind::Busy, format!("cannot destroy snapshot {snapshot}"), DslError::Busy).advise(next))
    })
}

/// Failure of destroying snapshots some of which are in use: a line for each of these, and one about all where nobody knows which.
fn busy_snapshots(pool: &OpenPool, names: &[String], asked: &str) -> Failure {
    let lines = names.iter().filter_map(|name| in_use(pool, name)).collect();
    failure::joined(lines).err().unwrap_or_else(|| {
        let what = if let [name] = names { format!("snapshot {name}") } else { format!("snapshots '{asked}'") };
        // As of a user's hold: whoever sends it holds it, too.
        because(ErrorKind::Busy, format!("cannot destroy {what}"), DslError::Busy)
            .advise("somebody reads it (zfs send, zfs diff): wait until that is through")
    })
}

/// Destroys datasets, snapshots and bookmarks, in this order, up to the first that stays.
fn destroy_each(pool: &OpenPool, names: &[String]) -> Result<(), Failure> {
    for name in names {
        let gone = once_nobody_looks(pool.pool().exec(), || {
            if name.contains('@') {
                destroy_snapshots_with_receives(pool, std::slice::from_ref(name), false)
            } else if name.contains('#') {
                pool.dsl().destroy_bookmark(name)
            } else {
                pool.dsl().destroy_dataset(name)
            }
        });
        gone.map_err(|error| match error {
            DslError::Held => references::held(pool, std::slice::from_ref(name)),
            DslError::Busy if name.contains('@') => busy_snapshots(pool, std::slice::from_ref(name), name),
            other => {
                is_received(pool, name).filter(|_| other == DslError::Busy).unwrap_or_else(|| failure::dataset("destroy", name, &other))
            }
        })?;
    }
    Ok(())
}

/// Snapshots that were marked for destruction and that clones among these started as: they may go with them.
fn marked_origins(pool: &OpenPool, names: &[String]) -> Vec<String> {
    let origin = |name: &String| pool.dsl().hold(name).and_then(|handle| handle.origin()).ok().flatten();
    let is_marked = |snapshot: &String| pool.dsl().hold(snapshot).is_ok_and(|handle| text_of(&handle, "defer_destroy") == "on");
    names.iter().filter(|name| !name.contains(['@', '#'])).filter_map(origin).filter(is_marked).collect()
}

/// Failure of destroying what has clones, which are named.
fn has_clones(name: &str, kind: &str, clones: &[String]) -> Failure {
    because(ErrorKind::Busy, format!("cannot destroy '{name}'"), format!("{kind} has dependent clones"))
        .advise(format!("use '-R' to destroy the following datasets:\n{}", clones.join("\n")))
}

/// Snapshots that `fs@a`, `fs@a,b`, `fs@a%c`, `fs@%c`, `fs@a%` names.
fn named_snapshots(pool: &OpenPool, request: &DatasetDestroy) -> Result<Vec<String>, Failure> {
    let (filesystem, list) = request.name.split_once('@').unwrap_or((&request.name, ""));
    let filesystems = if request.recursive { descendants(pool, filesystem)? } else { vec![filesystem.to_string()] };
    let mut names = Vec::new();
    for filesystem in filesystems {
        let known = pool.dsl().snapshots(&filesystem).map_err(|error| failure::dataset("destroy", &request.name, &error))?;
        let known: Vec<String> = known.into_iter().map(|snapshot| snapshot.name).collect();
        for word in list.split(',') {
            names.extend(select_range(&known, word).into_iter().map(|name| format!("{filesystem}@{name}")));
        }
    }
    if names.is_empty() {
        return Err(because(
            ErrorKind::NotFound,
            format!("could not find any snapshots to destroy: '{}'", request.name),
            "check snapshot names",
        ));
    }
    Ok(names)
}

impl Datasets {
    pub(crate) fn destroy(&self, request: &DatasetDestroy) -> Result<Response, Failure> {
        if request.name.contains('#') {
            return references::destroy_bookmark(&self.pools, request);
        }
        let pool = self.pools.pool_of(&request.name, "destroy")?;
        if request.name.contains('@') {
            return self.destroy_snapshots(&pool, request);
        }
        // Only snapshots go later.
        if request.defer {
            check_opened(&request.name, Named::Snapshot)?;
        }
        // The pool's own file system stays: everything in it goes.
        let is_pool = !request.name.contains('/');
        if is_pool && !request.recursive {
            let next = "use 'zfs destroy -r {}' to destroy all datasets in the pool\nuse 'zpool destroy {}' to destroy the pool itself";
            return Err(because(ErrorKind::Invalid, format!("cannot destroy '{}'", request.name), "operation does not apply to pools")
                .advise(next.replace("{}", &request.name)));
        }
        let handle = pool.dsl().hold(&request.name).map_err(|error| failure::dataset("destroy", &request.name, &error))?;
        let reclaim_bytes = handle.space().used;
        let kind = if kind_of(&handle) == table::VOLUME { "volume" } else { "filesystem" };
        drop(handle);
        let mut names = dependents(&pool, &request.name)?;
        let (own, clones): (Vec<&String>, Vec<&String>) = names.iter().partition(|name| is_within(name, &request.name));
        let what = format!("cannot destroy '{}'", request.name);
        if !request.recursive && !own.is_empty() {
            let list: Vec<&str> = own.into_iter().map(String::as_str).collect();
            return Err(because(ErrorKind::Busy, what, format!("{kind} has children"))
                .advise(format!("use '-r' to destroy the following datasets:\n{}", list.join("\n"))));
        }
        if !request.clones && !clones.is_empty() {
            let clones: Vec<String> = clones.into_iter().cloned().collect();
            return Err(has_clones(&request.name, kind, &clones));
        }
        names.extend(Some(request.name.clone()).filter(|_| !is_pool));
        if !request.dry_run {
            self.destroy_tree(&pool, request, &mut names)?;
        }
        Ok(Response::Destroyed { names, reclaim_bytes })
    }

    /// Destroys a dataset with these that depend on it, and with what came to depend on it meanwhile, which is added: what was being received has
    /// snapshots once all of it has come.
    fn destroy_tree(&self, pool: &Arc<OpenPool>, request: &DatasetDestroy, names: &mut Vec<String>) -> Result<(), Failure> {
        let what = format!("cannot destroy '{}'", request.name);
        let mut doomed = names.clone();
        for _ in 1..ROUNDS {
            let Err(failure) = self.destroy_all(pool, &doomed, None, (what.clone(), request.force)) else { return Ok(()) };
            let left = dependents(pool, &request.name).unwrap_or_default();
            let more: Vec<String> = left.iter().filter(|name| !names.contains(name)).cloned().collect();
            let is_allowed = |name: &String| request.recursive && (request.clones || is_within(name, &request.name));
            if more.is_empty() || !more.iter().all(is_allowed) {
                return Err(failure);
            }
            doomed = left.into_iter().chain(names.last().filter(|name| **name == request.name).cloned()).collect();
            *names = more.into_iter().chain(std::mem::take(names)).collect();
        }
        self.destroy_all(pool, &doomed, None, (what, request.force))
    }

    /// Destroys datasets, snapshots and bookmarks, in this order, once nobody uses them; what is still there when one stays is mounted again. What lies in
    /// `cleared`, if that is a dataset, nobody uses already.
    pub(super) fn destroy_all(
        &self,
        pool: &Arc<OpenPool>,
        names: &[String],
        cleared: Option<&str>,
        (what, force): (String, bool),
    ) -> Result<(), Failure> {
        if names.is_empty() {
            return Ok(());
        }
        let is_cleared = |name: &str| cleared.is_some_and(|cleared| is_within(name, cleared));
        let mut roots = roots(names);
        roots.retain(|root| !is_cleared(root));
        // Those of what stays are browsed there.
        let is_browsed = |name: &str| name.contains('@') && !is_cleared(name) && !roots.iter().any(|root| is_within(name, root));
        let snapshots: Vec<String> = names.iter().filter(|name| is_browsed(name)).cloned().chain(marked_origins(pool, names)).collect();
        let purpose = Purpose { what, verb: "destroyed", directory: Directory::Remove, doomed: Vec::new(), force, volumes: true };
        let cleared = Cleared::clear(self, pool, &roots, &purpose)?;
        let destroyed = pool.mounts.close_snapshots(&snapshots, "destroy").and_then(|()| destroy_each(pool, names));
        if destroyed.is_err() {
            cleared.bring_back(&self.mounter).iter().for_each(|failure| tracing::warn!("{failure}"));
        } else {
            // Others' places that were dead in what is gone.
            drop(cleared);
            self.mounter.restore_others();
        }
        destroyed
    }

    fn destroy_snapshots(&self, pool: &Arc<OpenPool>, request: &DatasetDestroy) -> Result<Response, Failure> {
        let mut names = named_snapshots(pool, request)?;
        if !request.clones && !request.defer {
            let mut refused = Vec::new();
            for name in &names {
                let clones = dependents(pool, name)?;
                refused.extend((!clones.is_empty()).then(|| has_clones(name, "snapshot", &clones)));
                refused.extend(check_no_receive(pool, name).err().filter(|_| clones.is_empty()));
            }
            failure::joined(refused)?;
        }
        let clones = if request.clones { dependents_of_all(pool, &names)? } else { Vec::new() };
        let held = names.iter().map(|name| pool.dsl().hold(name)).collect::<Result<Vec<_>, _>>();
        let reclaim_bytes = held.map_or(0, |handles| handles.iter().map(|handle| handle.space().used).sum());
        if !request.dry_run {
            self.destroy_all(pool, &clones, None, (format!("cannot destroy '{}'", request.name), request.force))?;
            pool.mounts.close_snapshots(&names, "destroy")?;
            let exec = pool.pool().exec();
            once_nobody_looks(exec, || destroy_snapshots_with_receives(pool, &names, request.defer)).map_err(|error| match error {
                DslError::Held => references::held(pool, &names),
                DslError::Busy => busy_snapshots(pool, &names, &request.name),
                other => failure::dataset("destroy snapshots", &request.name, &other),
            })?;
            calls::log_destroy(pool, &names, request.defer);
        }
        names.extend(clones);
        Ok(Response::Destroyed { names, reclaim_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, `zfs destroy -rf` of a file system that somebody has just written to, or whose statistics are being read, ends with "dataset is busy".
    #[test]
    fn a_dataset_that_is_looked_at_for_a_moment_is_destroyed_all_the_same() {
        let exec: Exec = Arc::new(exec::Inline::new(1));
        let mut attempts = 0;
        let outcome = once_nobody_looks(&exec, || {
            attempts += 1;
            if attempts < 4 { Err(DslError::Busy) } else { Ok(attempts) }
        });
        assert_eq!(outcome, Ok(4));
        assert_eq!(
            once_nobody_looks(&exec, || Err::<(), _>(DslError::HasClones)),
            Err(DslError::HasClones),
            "other refusals are told at once"
        );
        assert_eq!(once_nobody_looks(&exec, || Err::<(), _>(DslError::Busy)), Err(DslError::Busy), "whoever stays is told of");
    }
}
