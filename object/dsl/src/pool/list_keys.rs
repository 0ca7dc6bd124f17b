//! Keys of deadlists: each head has one for every snapshot before its last, and for bookmarks that count what is freed.

use super::tree::Tree;
use crate::DslError;
use crate::deadlist::Deadlist;
use crate::dir::Dir;
use dmu::Tx;
use std::sync::Arc;

/// Removes the key of a snapshot of a directory from the deadlists of all clones that were made after it (OpenZFS:
/// `dsl_dir_remove_clones_key`).
pub(super) fn remove_from_clones(tree: &Tree, dir: &Arc<Dir>, mintxg: u64, tx: &Tx) -> Result<(), DslError> {
    in_clones(tree, dir, mintxg, &mut |list| list.remove_key(mintxg, tx))
}

/// Removes the key of a bookmark of a head (its directory and deadlist) likewise, from that deadlist too. Clones whose own bookmark of the same snapshot went
/// first have none.
pub(super) fn remove_of_bookmark(tree: &Tree, head: (&Arc<Dir>, u64), mintxg: u64, tx: &Tx) -> Result<(), DslError> {
    in_clones(tree, head.0, mintxg, &mut |list| remove_if_there(list, mintxg, tx))?;
    remove_if_there(&mut Deadlist::open(&tree.meta, head.1)?, mintxg, tx)
}

fn remove_if_there(list: &mut Deadlist<'_>, mintxg: u64, tx: &Tx) -> Result<(), DslError> {
    if list.has_key(mintxg) { list.remove_key(mintxg, tx) } else { Ok(()) }
}

/// Calls `each` on the deadlists of the clones that were made after a txg of a directory, or of those clones.
fn in_clones(
    tree: &Tree,
    dir: &Arc<Dir>,
    after: u64,
    each: &mut dyn FnMut(&mut Deadlist<'_>) -> Result<(), DslError>,
) -> Result<(), DslError> {
    let mut waiting = vec![dir.clone()];
    while let Some(dir) = waiting.pop() {
        let clones = dir.phys().dd_clones;
        if clones == 0 {
            continue;
        }
        for object in tree.meta.integers(clones)? {
            let clone = tree.dataset(object)?;
            if tree.origin_txg(&clone.dir)? > after {
                each(&mut Deadlist::open(&tree.meta, clone.phys().ds_deadlist_obj)?)?;
                waiting.push(clone.dir.clone());
            }
        }
    }
    Ok(())
}
