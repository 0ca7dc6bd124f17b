//! The model: a file system as a map of names to contents, with snapshots; nothing of the engine in it.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a node in the model; 0 is the root directory.
pub type NodeId = usize;

/// Contents of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Names of a directory.
    Directory(BTreeMap<String, NodeId>),
    /// Bytes of a file.
    File(Arc<Vec<u8>>),
    /// Target of a symbolic link.
    Symlink(String),
}

/// Node of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ModelNode {
    contents: Contents,
    links: u64,
    attributes: BTreeMap<String, Vec<u8>>,
    owner: Owner,
}

/// Permission bits and owner of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Permission bits.
    pub mode: u64,
    /// User id.
    pub uid: u64,
    /// Group id.
    pub gid: u64,
}

impl Owner {
    /// Root, with these permission bits.
    pub const fn root(mode: u64) -> Owner {
        Owner { mode, uid: 0, gid: 0 }
    }
}

/// View of what a path shows; compared between the model and a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Kind of the node: `d`, `f` or `l`.
    pub kind: char,
    /// Bytes of a file, or target of a symbolic link.
    pub data: Arc<Vec<u8>>,
    /// Number of links.
    pub links: u64,
    /// Extended attributes.
    pub attributes: BTreeMap<String, Vec<u8>>,
    /// Owner and permissions.
    pub owner: Owner,
}

/// Tree of all paths of one file system or snapshot; the root is the empty path.
pub type Tree = BTreeMap<String, Seen>;

/// State that a user sees: the file system and its snapshots by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Tree of the file system.
    pub head: Arc<Tree>,
    /// Trees of its snapshots, by their names.
    pub snapshots: BTreeMap<String, Arc<Tree>>,
}

impl State {
    /// Line that says where `self` differs from `other`.
    pub fn difference(&self, other: &State) -> String {
        let (ours, theirs): (Vec<_>, Vec<_>) = (self.snapshots.keys().collect(), other.snapshots.keys().collect());
        if ours != theirs {
            return format!("snapshots {ours:?} instead of {theirs:?}");
        }
        let trees = self.snapshots.iter().map(|(name, tree)| (name.as_str(), tree, &other.snapshots[name]));
        for (name, ours, theirs) in std::iter::once(("head", &self.head, &other.head)).chain(trees) {
            if let Some(what) = tree_difference(ours, theirs) {
                return format!("{name}: {what}");
            }
        }
        "nothing".to_string()
    }
}

/// Line that says where a tree differs from another one; None where it does not.
pub fn tree_difference(ours: &Tree, theirs: &Tree) -> Option<String> {
    for (path, seen) in ours {
        let Some(wanted) = theirs.get(path) else { return Some(format!("/{path} is there and should not be")) };
        if (seen.kind, seen.links, &seen.attributes) != (wanted.kind, wanted.links, &wanted.attributes) {
            return Some(format!("/{path}: {} with {} links instead of {} with {}", seen.kind, seen.links, wanted.kind, wanted.links));
        }
        if seen.owner != wanted.owner {
            return Some(format!("/{path}: {:?} instead of {:?}", seen.owner, wanted.owner));
        }
        if seen.data != wanted.data {
            let at = seen.data.iter().zip(wanted.data.iter()).position(|(a, b)| a != b);
            return Some(format!("/{path}: {} bytes instead of {}, first differing byte {at:?}", seen.data.len(), wanted.data.len()));
        }
    }
    theirs.keys().find(|path| !ours.contains_key(*path)).map(|path| format!("/{path} is missing"))
}

/// Model of the file system as it should be now.
#[derive(Clone, Debug)]
pub struct Model {
    nodes: Vec<ModelNode>,
    snapshots: BTreeMap<String, Arc<Tree>>,
}

impl Default for Model {
    fn default() -> Model {
        let contents = Contents::Directory(BTreeMap::new());
        let root = ModelNode { contents, links: 2, attributes: BTreeMap::new(), owner: Owner::root(0o755) };
        Model { nodes: vec![root], snapshots: BTreeMap::new() }
    }
}

impl Model {
    fn names(&mut self, directory: NodeId) -> Option<&mut BTreeMap<String, NodeId>> {
        match &mut self.nodes[directory].contents {
            Contents::Directory(names) => Some(names),
            _ => None,
        }
    }

    /// Node that a name stands for.
    pub fn lookup(&self, directory: NodeId, name: &str) -> Option<NodeId> {
        match &self.nodes[directory].contents {
            Contents::Directory(names) => names.get(name).copied(),
            _ => None,
        }
    }

    /// Contents of a node.
    pub fn contents(&self, node: NodeId) -> &Contents {
        &self.nodes[node].contents
    }

    /// Paths and nodes of the directories that can be reached.
    pub fn directories(&self) -> Vec<(String, NodeId)> {
        self.paths().into_iter().filter(|(_, node)| matches!(self.nodes[*node].contents, Contents::Directory(_))).collect()
    }

    /// Entries of every path but the root: directory, name and node.
    pub fn entries(&self) -> Vec<(NodeId, String, NodeId)> {
        let names = |(_, directory): (String, NodeId)| match &self.nodes[directory].contents {
            Contents::Directory(names) => names.iter().map(|(name, node)| (directory, name.clone(), *node)).collect(),
            _ => Vec::new(),
        };
        self.directories().into_iter().flat_map(names).collect()
    }

    /// Paths and nodes of all that can be reached.
    pub fn paths(&self) -> Vec<(String, NodeId)> {
        let mut found = vec![(String::new(), 0)];
        let mut next = 0;
        while let Some((path, node)) = found.get(next).cloned() {
            next += 1;
            if let Contents::Directory(names) = &self.nodes[node].contents {
                let join = |name: &str| if path.is_empty() { name.to_string() } else { format!("{path}/{name}") };
                found.extend(names.iter().map(|(name, child)| (join(name), *child)));
            }
        }
        found
    }

    /// Enters a new node.
    pub fn create(&mut self, directory: NodeId, name: &str, contents: Contents) -> NodeId {
        let is_directory = matches!(contents, Contents::Directory(_));
        let owner = Owner::root(match contents {
            Contents::Directory(_) => 0o755,
            Contents::File(_) => 0o644,
            Contents::Symlink(_) => 0o777,
        });
        self.nodes.push(ModelNode { contents, links: if is_directory { 2 } else { 1 }, attributes: BTreeMap::new(), owner });
        let new = self.nodes.len() - 1;
        self.nodes[directory].links += u64::from(is_directory);
        if let Some(names) = self.names(directory) {
            names.insert(name.to_string(), new);
        }
        new
    }

    /// Gives a file another name.
    pub fn link(&mut self, node: NodeId, directory: NodeId, name: &str) {
        self.nodes[node].links += 1;
        if let Some(names) = self.names(directory) {
            names.insert(name.to_string(), node);
        }
    }

    /// Takes a name away.
    pub fn remove(&mut self, directory: NodeId, name: &str) {
        let Some(node) = self.names(directory).and_then(|names| names.remove(name)) else { return };
        self.nodes[node].links -= 1;
        if matches!(self.nodes[node].contents, Contents::Directory(_)) {
            self.nodes[directory].links -= 1;
        }
    }

    /// Moves a name; what stood at the target is replaced.
    pub fn rename(&mut self, from: (NodeId, &str), to: (NodeId, &str)) {
        let Some(node) = self.lookup(from.0, from.1) else { return };
        if self.lookup(to.0, to.1) == Some(node) {
            return;
        }
        self.remove(to.0, to.1);
        let is_directory = u64::from(matches!(self.nodes[node].contents, Contents::Directory(_)));
        self.names(from.0).map(|names| names.remove(from.1));
        self.names(to.0).map(|names| names.insert(to.1.to_string(), node));
        self.nodes[from.0].links -= is_directory;
        self.nodes[to.0].links += is_directory;
    }

    /// Lets two names that are no directories change places.
    pub fn exchange(&mut self, one: (NodeId, &str), other: (NodeId, &str)) {
        let (Some(first), Some(second)) = (self.lookup(one.0, one.1), self.lookup(other.0, other.1)) else { return };
        self.names(one.0).map(|names| names.insert(one.1.to_string(), second));
        self.names(other.0).map(|names| names.insert(other.1.to_string(), first));
    }

    /// True when `node` is `above` or lies under it.
    pub fn is_under(&self, node: NodeId, above: NodeId) -> bool {
        let below = |directory: NodeId| match &self.nodes[directory].contents {
            Contents::Directory(names) => names.values().any(|child| self.is_under(node, *child)),
            _ => false,
        };
        node == above || below(above)
    }

    /// Changes the bytes of a file.
    pub fn edit(&mut self, node: NodeId, change: impl FnOnce(&mut Vec<u8>)) {
        if let Contents::File(data) = &mut self.nodes[node].contents {
            change(Arc::make_mut(data));
        }
    }

    /// Sets an extended attribute.
    pub fn set_attribute(&mut self, node: NodeId, name: &str, value: Vec<u8>) {
        self.nodes[node].attributes.insert(name.to_string(), value);
    }

    /// Takes an extended attribute away.
    pub fn remove_attribute(&mut self, node: NodeId, name: &str) {
        self.nodes[node].attributes.remove(name);
    }

    /// Extended attributes of a node.
    pub fn attributes(&self, node: NodeId) -> &BTreeMap<String, Vec<u8>> {
        &self.nodes[node].attributes
    }

    /// Gives a node another owner and other permissions.
    pub fn set_owner(&mut self, node: NodeId, owner: Owner) {
        self.nodes[node].owner = owner;
    }

    /// Number of names of a node, those of itself included.
    pub fn links(&self, node: NodeId) -> u64 {
        self.nodes[node].links
    }

    /// Remembers everything under a name.
    pub fn snapshot(&mut self, name: &str) {
        let tree = Arc::new(self.tree());
        self.snapshots.insert(name.to_string(), tree);
    }

    /// Forgets a snapshot.
    pub fn destroy_snapshot(&mut self, name: &str) {
        self.snapshots.remove(name);
    }

    /// Names of the snapshots.
    pub fn snapshots(&self) -> Vec<String> {
        self.snapshots.keys().cloned().collect()
    }

    fn tree(&self) -> Tree {
        let show = |(path, id): (String, NodeId)| {
            let node = &self.nodes[id];
            let (kind, data) = match &node.contents {
                Contents::Directory(_) => ('d', Arc::default()),
                Contents::File(data) => ('f', data.clone()),
                Contents::Symlink(target) => ('l', Arc::new(target.as_bytes().to_vec())),
            };
            (path, Seen { kind, data, links: node.links, attributes: node.attributes.clone(), owner: node.owner })
        };
        self.paths().into_iter().map(show).collect()
    }

    /// State that a user should see now.
    pub fn state(&self) -> State {
        State { head: Arc::new(self.tree()), snapshots: self.snapshots.clone() }
    }
}
