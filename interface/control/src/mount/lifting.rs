//! Mounts that hide each other. The kernel lets go of a mount only by a path that leads to it, and only when nothing is mounted in it: so what
//! lies over one goes before it and comes back after it, and what a new mount would hide is mounted in it instead.

use crate::mount::mounts::{Directory, Mounted, Mounts};
use crate::mount::turns::Turn;
use crate::mount::whereabouts::Standing;
use crate::mount::wish::Wish;
use crate::pool::{OpenPool, Pools};
use exec::Mutex;
use fuse::{MountRow, MountTable};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
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

/// Mounts in these that do not leave with them, each after the one that it is in. They leave from their places, or from `everywhere`.
pub(crate) fn inside<'a>(rows: &'a [MountRow], leaving: &[Leaver], everywhere: bool) -> Vec<(&'a MountRow, &'a MountRow)> {
    let places: BTreeMap<(u32, u32), PathBuf> =
        leaving.iter().map(|(_, mounted)| (mounted.session.number(), mounted.session.mountpoint())).collect();
    inside_places(rows, &places, everywhere)
}

fn inside_places<'a>(rows: &'a [MountRow], places: &BTreeMap<(u32, u32), PathBuf>, everywhere: bool) -> Vec<(&'a MountRow, &'a MountRow)> {
    let leaves = |row: &&MountRow| places.get(&row.device).is_some_and(|place| everywhere || *place == row.place);
    let around: BTreeMap<u64, &MountRow> = rows.iter().filter(leaves).map(|row| (row.id, row)).collect();
    let stays = rows.iter().filter(|row| !places.contains_key(&row.device));
    let pairs = stays.filter_map(|row| around.get(&row.parent).map(|around| (*around, row)));
    // What is at the same place hides it.
    pairs.filter(|(around, row)| around.place != row.place).collect()
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

/// Mounts, by name and place, that were taken into what hides their places: when that leaves, they are mounted at their places again.
#[derive(Default)]
pub(crate) struct Lifted(Mutex<BTreeSet<(String, PathBuf)>>);

fn name_and_place(mounted: &Mounted) -> (String, PathBuf) {
    (mounted.name(), mounted.session.mountpoint())
}

impl Lifted {
    /// Forgets what is not mounted any more.
    fn prune(&self, pools: &Pools) {
        let there: BTreeSet<_> = all_mounts(pools).iter().map(|(_, mounted)| name_and_place(mounted)).collect();
        self.0.lock().retain(|one| there.contains(one));
    }

    /// Mounts of these that are inside of what leaves, and do not leave themselves.
    pub(crate) fn inside(&self, pools: &Pools, leaving: &[Leaver]) -> Vec<Leaver> {
        let lifted = self.0.lock().clone();
        let places: Vec<PathBuf> = leaving.iter().map(|(_, mounted)| mounted.session.mountpoint()).collect();
        let is_meant = |mounted: &Arc<Mounted>| {
            let (name, own) = name_and_place(mounted);
            let is_inside = places.iter().any(|place| own != *place && own.starts_with(place));
            is_inside && lifted.contains(&(name, own)) && !leaving.iter().any(|(_, other)| Arc::ptr_eq(other, mounted))
        };
        let mut all = if lifted.is_empty() { Vec::new() } else { all_mounts(pools) };
        all.retain(|(_, mounted)| is_meant(mounted));
        all
    }
}

/// Unmounts what lies at places inside of one where nothing is mounted yet; a mount there would hide it. What is in use stays.
pub(crate) fn lift_within(pools: &Pools, lifted: &Lifted, turn: &Turn<'_>, place: &Path) -> Vec<Wish> {
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
    lifted.prune(pools);
    let mut wishes = Vec::new();
    for (mounts, mounted) in leaving_order(inside, Vec::new()) {
        let Some(wish) = wish_again(pools, &mounts, &mounted) else { continue };
        let place = mounted.session.mountpoint();
        if mounts.leave(&mounted, &turn.patience).is_ok() {
            mounted.remove_directory(&place, Directory::RemoveMade);
            wishes.push(Wish { past_bar: true, ..wish });
            lifted.0.lock().insert((mounted.name(), place));
        }
        turn.step();
    }
    wishes.reverse();
    wishes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a file system is unmounted with those of others in it, silently, or is said to be in use and nobody says by whom.
    #[test]
    fn what_is_mounted_inside_and_stays_is_known() {
        let row = |id: u64, parent: u64, place: &str| MountRow {
            id,
            parent,
            device: (0, id as u32),
            is_whole: true,
            place: PathBuf::from(place),
            kind: "fuse.zfs".to_string(),
            source: String::new(),
        };
        // 3 and 4 leave; 5 is in 4, 6 over 3, 7 beside both; 8 shows 4 elsewhere, with 9 in it.
        let mut rows = [
            row(1, 0, "/"),
            row(3, 1, "/q"),
            row(4, 3, "/q/a"),
            row(5, 4, "/q/a/p"),
            row(6, 3, "/q"),
            row(7, 1, "/r"),
            row(8, 1, "/b"),
            row(9, 8, "/b/x"),
        ];
        rows[6].device = (0, 4);
        let places = BTreeMap::from([((0, 3), PathBuf::from("/q")), ((0, 4), PathBuf::from("/q/a"))]);
        let found = |everywhere| {
            let pairs = inside_places(&rows, &places, everywhere);
            pairs.into_iter().map(|(around, row)| (around.id, row.id)).collect::<Vec<_>>()
        };
        assert_eq!((found(false), found(true)), (vec![(4, 5)], vec![(4, 5), (8, 9)]));
    }
}
