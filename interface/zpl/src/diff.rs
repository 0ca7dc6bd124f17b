//! Differences between two states of a file system (OpenZFS: `zfs diff`, that is `dmu_diff.c`, `zfs_obj_to_stats` and `libzfs_diff.c`).
//!
//! Objects are compared by their numbers: one with the same generation is the same node. Only those are looked at whose dnodes lie in blocks that
//! are not the same in both. A node's path comes from its parent attribute and the parent's entries, as in OpenZFS; of a file with several links
//! that is one of its names, and none where the name that the attribute means is gone.

use crate::ZplError;
use crate::entries::dirent;
use crate::sa::Sa;
use crate::store::MASTER_NODE;
use crate::znode::{CTIME, Fields, S_IFMT, Time, decode_fields, flag};
use dmu::{DmuError, Objset};
use ondisk::{ObjectId, ObjectType};
use std::collections::HashMap;
use std::sync::Arc;
use zap::Zap;

/// Path of a node whose last name is gone, and that is still open (OpenZFS's words).
const ON_DELETE_QUEUE: &[u8] = b"(on_delete_queue)";
/// Name that stands for the directory of a node's extended attributes (OpenZFS's words).
const XATTR_DIRECTORY: &[u8] = b"<xattrdir>";
/// Number of names of directories that are remembered at once.
const NAMES_MAX: usize = 1 << 20;
/// Number of directories above a node, at most: more are a circle.
const DEPTH_MAX: usize = 1 << 16;

/// Kinds of differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffKind {
    /// Node is in the newer state only.
    Added,
    /// Node is in the older state only.
    Removed,
    /// Node changed, or got more or fewer links.
    Modified,
    /// Node has another path.
    Renamed,
}

/// Difference between two states of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Kind of the difference.
    pub kind: DiffKind,
    /// Path below the file system's root, which is `/`; of what was renamed the older one.
    pub path: Vec<u8>,
    /// Newer path of what was renamed.
    pub new_path: Option<Vec<u8>>,
    /// Number of links more (or fewer, below 0) of a file; 0 where that is not what changed.
    pub links: i64,
    /// Type and permissions of the node.
    pub mode: u64,
    /// Change time of the node.
    pub ctime: Time,
}

/// Object at which a comparison ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiffError {
    /// Number of the object; 0 where it is none in particular.
    pub object: u64,
    /// True when it was to be read from the older state.
    pub is_older: bool,
    /// Error of reading it.
    pub error: ZplError,
}

/// Node as one of the states has it.
#[derive(Clone, Debug)]
struct Seen {
    fields: Fields,
    /// None when no path leads to it.
    path: Option<Vec<u8>>,
    on_queue: bool,
}

/// Object as one of the states has it.
enum Looked {
    /// No object has this number.
    Free,
    /// Object that is no node of the file system.
    Other,
    Node(Seen),
}

/// One of the states, with the names of directories that were looked into.
struct State {
    objset: Arc<Objset>,
    sa: Sa,
    unlinked: Option<Zap>,
    /// Directory of shares, which nobody sees as a part of the file system; 0 for none.
    shares: u64,
    directories: HashMap<u64, HashMap<u64, Vec<u8>>>,
    names: usize,
}

impl State {
    fn open(objset: &Arc<Objset>) -> Result<State, ZplError> {
        let master = Zap::hold(objset, MASTER_NODE)?;
        let sa = Sa::open(objset, master.lookup_u64("VERSION")?, master.try_lookup_u64("SA_ATTRS")?.map(ObjectId))?;
        let unlinked = match master.try_lookup_u64("DELETE_QUEUE")? {
            Some(object) => Some(Zap::hold(objset, ObjectId(object))?),
            None => None,
        };
        let shares = master.try_lookup_u64("SHARES")?.unwrap_or(0);
        Ok(State { objset: objset.clone(), sa, unlinked, shares, directories: HashMap::new(), names: 0 })
    }

    /// Attributes of an object: None for no object, and within that None for what is no node.
    fn fields(&self, object: u64) -> Result<Option<Option<Fields>>, ZplError> {
        let dnode = match self.objset.hold(ObjectId(object)) {
            Ok(dnode) => dnode,
            Err(DmuError::NoSuchObject) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let kind = dnode.info()?.bonus_type;
        if kind != ObjectType::SA && kind != ObjectType::ZNODE {
            return Ok(Some(None));
        }
        let attrs = self.sa.load(&dnode)?;
        Ok(Some(Some(decode_fields(&self.sa, &attrs)?)))
    }

    /// Looks at an object.
    fn look(&mut self, object: u64) -> Result<Looked, ZplError> {
        let fields = match self.fields(object)? {
            None => return Ok(Looked::Free),
            Some(None) => return Ok(Looked::Other),
            Some(Some(fields)) => fields,
        };
        let on_queue = match &self.unlinked {
            Some(set) => set.contains_int(object)?,
            None => false,
        };
        let path = if on_queue { Some(ON_DELETE_QUEUE.to_vec()) } else { self.path(object, fields)? };
        Ok(Looked::Node(Seen { fields, path, on_queue }))
    }

    /// Path of a node; None where its parent is gone or has no name for it.
    fn path(&mut self, mut object: u64, mut fields: Fields) -> Result<Option<Vec<u8>>, ZplError> {
        let mut components: Vec<Vec<u8>> = Vec::new();
        while fields.parent != object {
            if components.len() > DEPTH_MAX {
                return Err(ZplError::CORRUPT);
            }
            let Some(Some(parent)) = self.fields(fields.parent)? else { return Ok(None) };
            let name = match (fields.flags & flag::XATTR != 0 && fields.is_directory(), parent.is_directory()) {
                (true, _) => Some(XATTR_DIRECTORY.to_vec()),
                (false, true) => self.name_of(object, fields.parent)?,
                (false, false) => None,
            };
            let Some(name) = name else { return Ok(None) };
            components.push(name);
            (object, fields) = (fields.parent, parent);
        }
        if components.is_empty() {
            return Ok(Some(b"/".to_vec()));
        }
        Ok(Some(components.iter().rev().flat_map(|name| [b"/".as_slice(), name.as_slice()].concat()).collect()))
    }

    /// Name of an object in a directory.
    fn name_of(&mut self, object: u64, directory: u64) -> Result<Option<Vec<u8>>, ZplError> {
        if !self.directories.contains_key(&directory) {
            let mut names: HashMap<u64, Vec<u8>> = HashMap::new();
            Zap::hold(&self.objset, ObjectId(directory))?.for_each(|entry| {
                names.entry(dirent(entry.first_integer).object.0).or_insert_with(|| entry.name.clone());
                Ok(())
            })?;
            if self.names + names.len() > NAMES_MAX {
                self.directories.clear();
                self.names = 0;
            }
            self.names += names.len();
            self.directories.insert(directory, names);
        }
        Ok(self.directories.get(&directory).and_then(|names| names.get(&object)).cloned())
    }
}

/// Tells how a file system became another: `each` gets the differences in the order of the objects' numbers. Both are object sets of snapshots; the
/// older one is of the same file system, or of one that it is a clone of.
///
/// # Errors
/// The first object that cannot be read.
pub fn diff(older: &Arc<Objset>, newer: &Arc<Objset>, each: &mut dyn FnMut(Difference)) -> Result<(), DiffError> {
    let failed = |is_older: bool, object: u64| move |error: ZplError| DiffError { object, is_older, error };
    let mut old = State::open(older).map_err(failed(true, 0))?;
    let mut new = State::open(newer).map_err(failed(false, 0))?;
    let changed = newer.changed_since(older).map_err(|error| failed(false, 0)(error.into()))?;
    for object in changed.into_iter().flatten().filter(|object| *object != 0) {
        if object == new.shares {
            continue;
        }
        let before = old.look(object).map_err(failed(true, object))?;
        let now = new.look(object).map_err(failed(false, object))?;
        match (before, now) {
            // What had no name before is not missed.
            (Looked::Node(Seen { path: Some(path), on_queue: false, fields }), Looked::Free) => {
                each(Difference::of(DiffKind::Removed, path, &fields, 0));
            }
            (_, Looked::Free) => {}
            (before, now) => compare(node(before), node(now)).into_iter().for_each(&mut *each),
        }
    }
    Ok(())
}

fn node(looked: Looked) -> Option<Seen> {
    match looked {
        Looked::Node(seen) => Some(seen),
        Looked::Free | Looked::Other => None,
    }
}

impl Difference {
    fn of(kind: DiffKind, path: Vec<u8>, fields: &Fields, links: i64) -> Difference {
        Difference { kind, path, new_path: None, links, mode: fields.mode, ctime: fields.times[CTIME] }
    }
}

/// Number of links that a file has more; 0 for directories, and where it has none in one of the states.
fn more_links(old: Option<&Seen>, new: Option<&Seen>) -> i64 {
    match (old, new) {
        (Some(old), Some(new)) if !old.fields.is_directory() && !new.fields.is_directory() => match (old.fields.links, new.fields.links) {
            (0, _) | (_, 0) => 0,
            (before, now) => (now as i64).wrapping_sub(before as i64),
        },
        _ => 0,
    }
}

/// Compares what one number means in both states, while it is an object in the newer one (OpenZFS: `write_inuse_diffs_one`).
fn compare(old: Option<Seen>, new: Option<Seen>) -> Vec<Difference> {
    let links = more_links(old.as_ref(), new.as_ref());
    let with_path = |seen: Seen| seen.path.map(|path| (path, seen.fields));
    let only = |kind: DiffKind| if links == 0 { kind } else { DiffKind::Modified };
    match (old.and_then(with_path), new.and_then(with_path)) {
        (None, None) => Vec::new(),
        (None, Some((path, fields))) => vec![Difference::of(only(DiffKind::Added), path, &fields, links)],
        (Some((path, fields)), None) => vec![Difference::of(only(DiffKind::Removed), path, &fields, links)],
        (Some((old_path, old)), Some((new_path, new))) => {
            if old.generation != new.generation || (old.mode ^ new.mode) & S_IFMT != 0 {
                let removed = Difference::of(DiffKind::Removed, old_path, &old, 0);
                return vec![removed, Difference::of(DiffKind::Added, new_path, &new, 0)];
            }
            if old.times[CTIME] == new.times[CTIME] {
                return Vec::new();
            }
            if links != 0 {
                let path = if links > 0 { old_path } else { new_path };
                return vec![Difference::of(DiffKind::Modified, path, &new, links)];
            }
            if old_path == new_path {
                return vec![Difference::of(DiffKind::Modified, new_path, &new, 0)];
            }
            vec![Difference { new_path: Some(new_path), ..Difference::of(DiffKind::Renamed, old_path, &new, 0) }]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: Option<&str>, links: u64, seconds: i64) -> Option<Seen> {
        let fields = Fields { mode: 0o100_644, links, generation: 7, times: [(seconds, 0); 4], ..Fields::default() };
        Some(Seen { fields, path: path.map(|path| path.as_bytes().to_vec()), on_queue: false })
    }

    fn lines(differences: Vec<Difference>) -> Vec<(DiffKind, String, i64)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let line = |one: Difference| {
            let to = one.new_path.as_deref().map(|path| format!(" -> {}", text(path))).unwrap_or_default();
            (one.kind, format!("{}{to}", text(&one.path)), one.links)
        };
        differences.into_iter().map(line).collect()
    }

    /// If this fails, a backup that goes by `zfs diff` misses a name that came or went while the file stayed.
    #[test]
    fn names_that_come_and_go_are_told_by_the_name_that_is_there_both_times() {
        let one = |kind, path: &str, links| vec![(kind, path.to_string(), links)];
        assert_eq!(lines(compare(seen(Some("/a"), 1, 1), seen(Some("/b"), 2, 2))), one(DiffKind::Modified, "/a", 1));
        assert_eq!(lines(compare(seen(Some("/a"), 3, 1), seen(Some("/b"), 1, 2))), one(DiffKind::Modified, "/b", -2));
        assert_eq!(lines(compare(seen(None, 2, 1), seen(Some("/b"), 1, 2))), one(DiffKind::Modified, "/b", -1));
        assert_eq!(lines(compare(seen(Some("/a"), 1, 1), seen(Some("/b"), 1, 2))), one(DiffKind::Renamed, "/a -> /b", 0));
        assert_eq!(lines(compare(seen(Some("/a"), 1, 1), seen(Some("/a"), 1, 2))), one(DiffKind::Modified, "/a", 0));
        assert_eq!(lines(compare(None, seen(Some("/a"), 1, 2))), one(DiffKind::Added, "/a", 0));
        assert!(compare(seen(Some("/a"), 1, 2), seen(Some("/a"), 1, 2)).is_empty(), "nothing changed but its place on disk");
    }

    /// If this fails, a file in the place of a removed one that got its number is taken for the old one, renamed.
    #[test]
    fn a_number_that_is_used_again_is_another_file() {
        let other = seen(Some("/b"), 1, 2).map(|seen| Seen { fields: Fields { generation: 8, ..seen.fields }, ..seen });
        let expected = vec![(DiffKind::Removed, "/a".to_string(), 0), (DiffKind::Added, "/b".to_string(), 0)];
        assert_eq!(lines(compare(seen(Some("/a"), 1, 1), other)), expected);
    }
}
