//! Datasets that nobody uses for a while: what is mounted of them leaves, volumes are closed, and nothing of either comes until it is over.

use crate::dataset::datasets::Datasets;
use crate::failure::because;
use crate::mount::mounting::Mounter;
use crate::mount::mounts::{Bar, Directory};
use crate::mount::wish::Wish;
use crate::pool::OpenPool;
use crate::volume::Away;
use control_api::{ErrorKind, Failure};
use std::sync::Arc;

/// Purpose for which datasets are cleared.
pub(super) struct Purpose {
    /// Words for what cannot be done while somebody uses one: `cannot destroy 'tank/a'`.
    pub what: String,
    /// Word for what is being done to them.
    pub verb: &'static str,
    /// Fate of the directories that they are mounted on.
    pub directory: Directory,
    /// Snapshots that are destroyed meanwhile, and leave as well. Others are mounts of their own, which stay, unless their dataset is removed.
    pub doomed: Vec<String>,
    /// True to cut off whoever uses them.
    pub force: bool,
    /// True when volumes are meant, too; else they go on.
    pub volumes: bool,
}

impl Purpose {
    /// Refuses what would go on at other places, unless those are cut off: it would be in use there without an open file.
    fn check_places(&self, pool: &OpenPool, roots: &[String]) -> Result<(), Failure> {
        let goes = self.directory == Directory::Remove;
        let mut places: Vec<String> = Vec::new();
        for root in roots.iter().filter(|_| !self.force) {
            places.extend(pool.mounts.shown_besides(root, goes).iter().map(|place| format!("'{}'", place.display())));
        }
        if places.is_empty() {
            return Ok(());
        }
        let busy = because(ErrorKind::Busy, self.what.clone(), "dataset is busy");
        Err(busy.advise(format!("it is shown at {} too (a bind mount?): unmount that first (umount), or use '-f'", places.join(", "))))
    }
}

/// Datasets that nobody uses, until this is dropped.
pub(super) struct Cleared<'a> {
    _away: Vec<Away>,
    _bars: Vec<Bar<'a>>,
    /// Wishes for what was mounted, what left first last.
    left: Vec<Wish>,
}

impl<'a> Cleared<'a> {
    /// Clears these datasets, none of which lies in another one, and what is below them; all or, when one is in use, none.
    pub fn clear(datasets: &Datasets, pool: &'a Arc<OpenPool>, roots: &[String], purpose: &Purpose) -> Result<Cleared<'a>, Failure> {
        let exec = pool.pool().exec();
        let away = roots.iter().filter(|_| purpose.volumes).map(|root| pool.volumes.leave(exec, root, purpose.what.clone(), purpose.force));
        let away = away.collect::<Result<Vec<_>, _>>()?;
        let turn = datasets.mounter.turn();
        let bars = roots.iter().map(|root| pool.mounts.bar(root, purpose.verb, false)).collect::<Result<Vec<_>, _>>()?;
        purpose.check_places(pool, roots)?;
        let mut left = Vec::new();
        for root in roots {
            let (unmounter, force, directory) = (&datasets.unmounter, purpose.force, purpose.directory);
            let unmounted = if directory == Directory::Remove {
                unmounter.unmount_tree(&turn, pool, root, force, directory)
            } else {
                unmounter.unmount_filesystems(&turn, pool, (root, &purpose.doomed), (force, directory))
            };
            match unmounted {
                // What leaves first comes back last.
                Ok(wishes) => left.extend(wishes.into_iter().rev()),
                Err(failure) => {
                    datasets.mounter.put_back(&turn, left);
                    return Err(failure);
                }
            }
        }
        Ok(Cleared { _away: away, _bars: bars, left })
    }

    /// Mounts again what is still there, where it was; returns what went wrong.
    pub fn bring_back(self, mounter: &Mounter) -> Vec<Failure> {
        let wishes = self.left.iter().rev().filter(|wish| wish.pool.dsl().hold(&wish.name).is_ok());
        let wishes = wishes.map(|wish| Wish { past_bar: true, ..wish.clone() }).collect();
        let turn = mounter.turn();
        let failures = mounter.mount_wishes(&turn, wishes);
        // What was dead is so again, if it is still there.
        mounter.restore_lost();
        failures
    }
}
