//! Node numbers of file systems that know their files by paths: given when a path is first seen, and never changed.
//!
//! Invariant: a number is one path's for ever, whether or not something is there now. The root has the empty path and is node 1.

use crate::{DirEntry, Errno, NodeId, Reply};
use exec::Mutex;
use std::collections::HashMap;

/// Types of directory entries: `DT_DIR`, `DT_REG`.
const KINDS: (u32, u32) = (4, 8);

struct State {
    /// Paths of the nodes, that of node 1 first.
    paths: Vec<String>,
    nodes: HashMap<String, u64>,
}

/// Numbers of the paths of a file system, below its root.
pub struct PathNodes {
    state: Mutex<State>,
}

impl Default for PathNodes {
    fn default() -> PathNodes {
        PathNodes { state: Mutex::new(State { paths: vec![String::new()], nodes: HashMap::from([(String::new(), NodeId::ROOT.0)]) }) }
    }
}

/// Path of a name in the folder at a path.
fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_string() } else { format!("{folder}/{name}") }
}

impl PathNodes {
    /// Path of a node.
    ///
    /// # Errors
    /// ESTALE for a number that was never given.
    pub fn path(&self, node: NodeId) -> Reply<String> {
        let index = usize::try_from(node.0).ok().and_then(|number| number.checked_sub(1)).ok_or(Errno::ESTALE)?;
        self.state.lock().paths.get(index).cloned().ok_or(Errno::ESTALE)
    }

    /// Number of a path, given now if it is seen for the first time.
    pub fn node(&self, path: &str) -> u64 {
        let mut state = self.state.lock();
        if let Some(node) = state.nodes.get(path) {
            return *node;
        }
        state.paths.push(path.to_string());
        let node = state.paths.len() as u64;
        state.nodes.insert(path.to_string(), node);
        node
    }

    /// Path of a name in a folder. No number is given to it yet.
    ///
    /// # Errors
    /// ENOENT for a name that is not UTF-8, as no path is; ESTALE for a number of a folder that was never given.
    pub fn below(&self, folder: NodeId, name: &[u8]) -> Reply<String> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
        Ok(joined(&self.path(folder)?, name))
    }

    /// Hands the entries of a folder on to `take`, from the cookie `offset` on, until it has had enough: the folder itself, the one above, and `names` of
    /// its path, each with true for a folder.
    ///
    /// # Errors
    /// ESTALE for a number that was never given.
    pub fn list(
        &self,
        folder: NodeId,
        offset: u64,
        names: impl FnOnce(&str) -> Vec<(String, bool)>,
        take: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Reply<()> {
        let path = self.path(folder)?;
        let mut all = vec![(".".to_string(), true), ("..".to_string(), true)];
        all.extend(names(&path));
        for (index, (name, is_folder)) in all.iter().enumerate().skip(offset as usize) {
            let ino = if index < 2 { folder.0 } else { self.node(&joined(&path, name)) };
            let kind = if *is_folder { KINDS.0 } else { KINDS.1 };
            if !take(DirEntry { ino, next: index as u64 + 1, kind, name: name.as_bytes() }) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, what a program holds open becomes another file, or the kernel takes two files for one.
    #[test]
    fn a_number_is_one_path_for_ever() {
        let nodes = PathNodes::default();
        assert_eq!((nodes.node(""), nodes.path(NodeId::ROOT)), (1, Ok(String::new())));
        let (pool, volume) = (nodes.node("tank"), nodes.node("tank/vol"));
        assert!(pool != volume && ![pool, volume].contains(&1));
        assert_eq!((nodes.node("tank/vol"), nodes.node("tank")), (volume, pool), "seen again");
        assert_eq!(nodes.path(NodeId(volume)), Ok("tank/vol".to_string()));
        for unknown in [0, volume + 1, u64::MAX] {
            assert_eq!(nodes.path(NodeId(unknown)), Err(Errno::ESTALE), "{unknown}");
        }
        assert_eq!(nodes.below(NodeId(pool), b"vol"), Ok("tank/vol".to_string()));
        assert_eq!(nodes.below(NodeId::ROOT, b"tank"), Ok("tank".to_string()));
        assert_eq!(nodes.below(NodeId::ROOT, &[0xff]), Err(Errno::ENOENT));
    }

    /// If this fails, a listing that does not fit one answer loses names or never ends, or `ls -i` and stat(2) differ.
    #[test]
    fn a_listing_goes_on_where_it_ended_with_the_numbers_of_the_paths() {
        let nodes = PathNodes::default();
        let pool = nodes.node("tank");
        let names = |path: &str| {
            assert_eq!(path, "tank");
            vec![("a".to_string(), true), ("b".to_string(), false)]
        };
        let (mut seen, mut offset) = (Vec::new(), 0);
        loop {
            let (before, from) = (seen.len(), offset);
            let mut take = |entry: DirEntry<'_>| {
                // One entry fits each answer.
                let fits = seen.len() == before;
                if fits {
                    offset = entry.next;
                    seen.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino, entry.kind));
                }
                fits
            };
            nodes.list(NodeId(pool), from, names, &mut take).expect("a folder");
            if seen.len() == before {
                break;
            }
        }
        let (a, b) = (nodes.node("tank/a"), nodes.node("tank/b"));
        let wanted = [(".", pool, 4), ("..", pool, 4), ("a", a, 4), ("b", b, 8)];
        assert_eq!(seen, wanted.map(|(name, ino, kind)| (name.to_string(), ino, kind)));
    }
}
