//! Mounts that hide each other. The kernel lets go of a mount only by a path that leads to it, and only when nothing is mounted in it: so what
//! lies over one goes before it and comes back after it, and what a new mount would hide is mounted in it instead.

use crate::mount::mounts::{Directory, Mounted, Mounts};
use crate::mount::turns::Turn;
use crate::mount::whereabouts::Standing;
use crate::mount::wish::Wish;
use crate::pool::{OpenPool, Pools};
use fuse::{MountRow, MountTable};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Mount that is to leave by force, and the mounts of its pool.
pub(crate) type Leaver = (Arc<Mounts>, Arc<Mounted>);

/// Order in which mounts can leave: what lies in or over another one first, what has no place last. With them, of `others`, what hides
/// one of them, and what lies in that.
pub(crate) fn leaving_order(list: Vec<Leaver>, others: Vec<Leaver>) -> Vec<Leaver> {
    let rows = MountTable::default().rows().unwrap_or_default();
    let (mut placed, mut leaving, mut lost) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    for (mounts, mounted) in others {
        let id = mounted.row(&rows).map(|row| row.id);
        placed.extend(id.map(|id| (id, (mounts, mounted))));
    }
    for (mounts, mounted) in list {
        match mounted.row(&rows).map(|row| row.id) {
            Some(id) => {
                leaving.insert(id);
                placed.insert(id, (mounts, mounted));
            }
            None => lost.push((mounts, mounted)),
        }
    }
    let tree = Tree::new(&rows);
    tree.with_covers(&mut leaving);
    let mut order = Order { tree: &tree, seen: BTreeSet::new(), ids: Vec::new() };
    leaving.iter().for_each(|id| order.visit(*id));
    let ids = order.ids.into_iter().filter(|id| leaving.contains(id));
    ids.filter_map(|id| placed.remove(&id)).chain(lost).collect()
}

/// Table of mounts, by the mounts that others are in or over.
struct Tree<'a> {
    rows: &'a [MountRow],
    by_id: BTreeMap<u64, &'a MountRow>,
    inside: BTreeMap<u64, Vec<u64>>,
}

impl<'a> Tree<'a> {
    fn new(rows: &'a [MountRow]) -> Tree<'a> {
        let mut inside: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.id != row.parent) {
            inside.entry(row.parent).or_default().push(row.id);
        }
        Tree { rows, by_id: rows.iter().map(|row| (row.id, row)).collect(), inside }
    }

    fn covers(&self, id: u64) -> Vec<u64> {
        let covers = self.by_id.get(&id).map(|row| fuse::covers(self.rows, row)).unwrap_or_default();
        covers.into_iter().map(|row| row.id).collect()
    }

    /// Adds what hides these mounts, and what lies in that.
    fn with_covers(&self, leaving: &mut BTreeSet<u64>) {
        let mut new: Vec<u64> = leaving.iter().flat_map(|id| self.covers(*id)).collect();
        while let Some(id) = new.pop() {
            if leaving.insert(id) {
                new.extend(self.inside.get(&id).into_iter().flatten());
                new.extend(self.covers(id));
            }
        }
    }
}

struct Order<'a> {
    tree: &'a Tree<'a>,
    seen: BTreeSet<u64>,
    ids: Vec<u64>,
}

impl Order<'_> {
    fn visit(&mut self, id: u64) {
        if !self.seen.insert(id) {
            return;
        }
        self.tree.covers(id).into_iter().for_each(|over| self.visit(over));
        self.tree.inside.get(&id).into_iter().flatten().for_each(|inside| self.visit(*inside));
        self.ids.push(id);
    }
}

/// Mounts of all pools.
pub(crate) fn all_mounts(pools: &Pools) -> Vec<Leaver> {
    let of_pool = |pool: &Arc<OpenPool>| pool.mounts.all().into_iter().map(|mounted| (pool.mounts.clone(), mounted)).collect::<Vec<_>>();
    pools.all().iter().flat_map(of_pool).collect()
}

/// Wish to have a mount back; None when its pool is not open.
pub(crate) fn wish_again(pools: &Pools, mounts: &Arc<Mounts>, mounted: &Mounted) -> Option<Wish> {
    let pool = pools.find(|pool| Arc::ptr_eq(&pool.mounts, mounts));
    pool.map(|pool| Wish::again(&pool, mounted))
}

/// Unmounts what lies at places inside of one where nothing is mounted yet; a mount there would hide it. What is in use stays.
pub(crate) fn lift_within(pools: &Pools, turn: &Turn<'_>, place: &Path) -> Vec<Wish> {
    let is_within = |mounted: &Mounted| {
        let own = mounted.session.mountpoint();
        own != place && own.starts_with(place)
    };
    let mut inside = all_mounts(pools);
    inside.retain(|(mounts, mounted)| is_within(mounted) && matches!(mounts.standing(mounted), Standing::Mounted(_)));
    let is_free = || MountTable::default().rows().is_some_and(|rows| !rows.iter().any(|row| row.place == place));
    if inside.is_empty() || !is_free() {
        return Vec::new();
    }
    let mut wishes = Vec::new();
    for (mounts, mounted) in leaving_order(inside, Vec::new()) {
        let Some(wish) = wish_again(pools, &mounts, &mounted) else { continue };
        let place = mounted.session.mountpoint();
        if mounts.leave(&mounted, &turn.patience).is_ok() {
            mounted.remove_directory(&place, Directory::RemoveMade);
            wishes.push(Wish { past_bar: true, ..wish });
        }
        turn.step();
    }
    wishes.reverse();
    wishes
}
