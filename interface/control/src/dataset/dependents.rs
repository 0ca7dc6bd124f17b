//! What cannot be without a dataset or a snapshot: children, snapshots, and clones of these, wherever they are (OpenZFS: `zfs_iter_dependents`). What is
//! received into and nobody sees is none of it: it goes with what it lies in, and with the snapshot that it goes on from.

use crate::failure;
use crate::mount::mounts::is_within;
use crate::pool::OpenPool;
use control_api::Failure;
use dsl::DslError;
use std::collections::BTreeSet;

/// Names of what depends on a dataset or snapshot, in an order in which all of it can be destroyed.
pub(super) fn dependents(pool: &OpenPool, name: &str) -> Result<Vec<String>, Failure> {
    let mut walk = Walk { pool, seen: BTreeSet::from([name.to_string()]), found: Vec::new() };
    walk.below(name)?;
    Ok(walk.found)
}

/// Names of what depends on any of these, without what several of them have twice; as [`dependents`].
pub(super) fn dependents_of_all(pool: &OpenPool, names: &[String]) -> Result<Vec<String>, Failure> {
    let mut walk = Walk { pool, seen: names.iter().cloned().collect(), found: Vec::new() };
    names.iter().try_for_each(|name| walk.below(name))?;
    Ok(walk.found)
}

/// True for the name of a dataset that nobody sees: what is received on top of another one comes into it.
fn is_hidden(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|last| last.starts_with('%'))
}

/// Names of the datasets into which a receive that goes on from this snapshot is under way, or was interrupted.
pub(super) fn receiving_from(pool: &OpenPool, snapshot: &str) -> Result<Vec<String>, DslError> {
    let clones = pool.dsl().hold(snapshot)?.clones()?;
    let parent = |clone: &String| clone.rsplit_once('/').map(|(parent, _)| parent.to_string());
    Ok(clones.iter().filter(|clone| is_hidden(clone)).filter_map(parent).collect())
}

/// File systems and volumes among these that lie in none of the others.
pub(super) fn roots(names: &[String]) -> Vec<String> {
    let is_dataset = |name: &&String| !name.contains(['@', '#']);
    let is_inside = |name: &String| names.iter().filter(is_dataset).any(|other| other != name && is_within(name, other));
    names.iter().filter(|name| is_dataset(name) && !is_inside(name)).cloned().collect()
}

/// Walk through what depends on something.
struct Walk<'a> {
    pool: &'a OpenPool,
    seen: BTreeSet<String>,
    found: Vec<String>,
}

impl Walk<'_> {
    fn below(&mut self, name: &str) -> Result<(), Failure> {
        for next in self.directly_below(name)? {
            if self.seen.insert(next.clone()) {
                self.below(&next)?;
                self.found.push(next);
            }
        }
        Ok(())
    }

    fn directly_below(&self, name: &str) -> Result<Vec<String>, Failure> {
        let failed = |error: DslError| failure::dataset("open", name, &error);
        let dsl = self.pool.dsl();
        if name.contains('@') {
            let clones = dsl.hold(name).and_then(|handle| handle.clones()).map_err(failed)?;
            return Ok(clones.into_iter().filter(|clone| !is_hidden(clone)).collect());
        }
        let children = dsl.children(name).map_err(failed)?.into_iter().map(|child| format!("{name}/{child}"));
        let snapshots = dsl.snapshots(name).map_err(failed)?.into_iter().map(|snapshot| format!("{name}@{}", snapshot.name));
        Ok(children.chain(snapshots).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, `zfs destroy -R` unmounts the same file system twice, or leaves one mounted that goes.
    #[test]
    fn roots_are_the_datasets_that_all_others_lie_in() {
        let names = ["t/a/b", "t/a@s", "t/a", "t/ab", "t/c/d@s", "t/c/d", "t/e#m"].map(String::from);
        assert_eq!(roots(&names), ["t/a", "t/ab", "t/c/d"]);
        assert!(roots(&names[1..2]).is_empty(), "a snapshot is none");
    }

    /// If this fails, `zfs destroy` tells users to destroy what they cannot name, or leaves out what they can.
    #[test]
    fn what_is_received_into_is_hidden_and_nothing_else() {
        assert!(is_hidden("t/a/%recv"));
        assert!(!is_hidden("t/a%b/c") && !is_hidden("t/a") && !is_hidden("t"));
    }
}
