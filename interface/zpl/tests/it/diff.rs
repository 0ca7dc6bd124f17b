//! Differences between snapshots, judged by walks over both whole trees.

use crate::pool::{DEVICE_BYTES, file, file_system, make_pool, open_fs};
use device::MemDevice;
use dmu::Objset;
use dsl::DatasetHandle;
use pool::Pool;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vdev::TopKind;
use zpl::{DiffKind, Difference, Fields, Listed, NewNode, Node, Place, RenameMode, SetAttrs, Settings, Zfs, diff};

const FS: &str = "zpltest/fs";
/// Index of the change time in [`Fields::times`].
const CTIME: usize = 2;
const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];

/// Path and attributes of every node, by its object.
type Tree = BTreeMap<u64, (String, Fields)>;

struct Snapshot {
    tree: Tree,
    objset: Arc<Objset>,
    _held: DatasetHandle,
}

fn take(pool: &Pool, name: &str) -> Snapshot {
    let full = format!("{FS}@{name}");
    pool.dsl().snapshot(std::slice::from_ref(&full), Vec::new()).expect("a snapshot");
    let held = pool.dsl().hold(&full).expect("it is there");
    let objset = held.objset().expect("its object set");
    let zfs = Zfs::open(&objset, None, Settings { snapshot: true, ..Settings::default() }).expect("it opens");
    let mut tree = Tree::new();
    let mut left = vec![(zfs.root(), String::new())];
    while let Some((object, path)) = left.pop() {
        let node = zfs.node(object).expect("a node");
        let fields = node.fields();
        if fields.is_directory() {
            let mut note = |listed: Listed<'_>| {
                let name = String::from_utf8_lossy(listed.name).into_owned();
                if name != "." && name != ".." {
                    left.push((listed.dirent.object, format!("{path}/{name}")));
                }
                true
            };
            zfs.list(&node, 0, &mut note).expect("a listing");
        }
        tree.insert(object.0, (if path.is_empty() { "/".to_string() } else { path }, fields));
    }
    Snapshot { tree, objset, _held: held }
}

/// Differences as two walks find them.
fn by_walks(old: &Tree, new: &Tree) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for object in old.keys().chain(new.keys()) {
        match (old.get(object), new.get(object)) {
            (Some((from, was)), Some((to, is))) if was.generation == is.generation => {
                if was.times[CTIME] != is.times[CTIME] {
                    lines.insert(if from == to { format!("M {to}") } else { format!("R {from} -> {to}") });
                }
            }
            (was, is) => {
                lines.extend(was.map(|(path, _)| format!("- {path}")));
                lines.extend(is.map(|(path, _)| format!("+ {path}")));
            }
        }
    }
    lines
}

fn line(one: &Difference) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match (one.kind, &one.new_path) {
        (DiffKind::Renamed, Some(to)) => format!("R {} -> {}", text(&one.path), text(to)),
        (DiffKind::Added, _) => format!("+ {}", text(&one.path)),
        (DiffKind::Removed, _) => format!("- {}", text(&one.path)),
        _ => format!("M {}", text(&one.path)),
    }
}

fn differences(old: &Snapshot, new: &Snapshot) -> Vec<Difference> {
    let mut found = Vec::new();
    diff(&old.objset, &new.objset, &mut |one| found.push(one)).expect("everything can be read");
    found
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

/// Directory at some random depth.
fn somewhere(zfs: &Arc<Zfs>, random: &mut Random) -> Node {
    let mut directory = zfs.node(zfs.root()).expect("the root");
    for _ in 0..random.below(3) {
        match zfs.lookup(&directory, NAMES[random.below(NAMES.len())]) {
            Ok(node) if node.fields().is_directory() => directory = node,
            _ => break,
        }
    }
    directory
}

/// Does something; what is not possible is left alone.
fn step(zfs: &Arc<Zfs>, random: &mut Random) {
    let (directory, other) = (somewhere(zfs, random), somewhere(zfs, random));
    let (name, new_name) = (NAMES[random.below(NAMES.len())], NAMES[random.below(NAMES.len())]);
    let _ = match random.below(7) {
        0 | 1 => zfs.create_node(&directory, name, &file()).map(drop),
        2 => zfs.create_node(&directory, name, &NewNode { mode: 0o040_755, ..NewNode::default() }).map(drop),
        3 => zfs.unlink(&directory, name),
        4 => zfs.rmdir(&directory, name),
        5 => zfs.lookup(&directory, name).and_then(|node| zfs.set_attrs(&node, &SetAttrs { uid: Some(7), ..SetAttrs::default() })),
        _ => {
            let (from, to) = (Place { directory: &directory, name }, Place { directory: &other, name: new_name });
            zfs.rename(from, to, RenameMode::Replace)
        }
    };
}

fn new_pool() -> (Pool, Arc<Zfs>) {
    let pool = make_pool(&[Arc::new(MemDevice::new("d0", DEVICE_BYTES))], TopKind::Leaf);
    pool.dsl().create_dataset(FS, file_system()).expect("a file system");
    let zfs = open_fs(&pool, FS);
    (pool, zfs)
}

/// If this fails, a backup that goes by `zfs diff` leaves out files that changed, or copies to the wrong place.
#[test]
fn differences_are_those_that_two_walks_find() {
    let (pool, zfs) = new_pool();
    let mut random = Random(1);
    let mut kinds = BTreeSet::new();
    let mut states = vec![take(&pool, "s0")];
    for number in 1..12 {
        // Whole blocks of dnodes come and go with many.
        for _ in 0..[3, 40, 200][number % 3] {
            pool.exec().sleep_ns(1_000_000);
            step(&zfs, &mut random);
        }
        states.push(take(&pool, &format!("s{number}")));
        let new = &states[number];
        for old in &states[..number] {
            let found: BTreeSet<String> = differences(old, new).iter().map(line).collect();
            assert_eq!(found, by_walks(&old.tree, &new.tree), "up to s{number}");
            kinds.extend(found.iter().filter_map(|line| line.chars().next()));
        }
    }
    assert_eq!(kinds.into_iter().collect::<String>(), "+-MR", "some kind of difference was not tried");
}

/// If this fails, a file that got or lost a name is told as another one, or not at all.
#[test]
fn links_are_counted_and_files_that_are_only_open_have_no_path() {
    let (pool, zfs) = new_pool();
    let root = zfs.node(zfs.root()).expect("the root");
    let [linked, open] = [b"linked", b"opened"].map(|name| zfs.create_node(&root, name, &file()).expect("a file"));
    let before = take(&pool, "before");
    pool.exec().sleep_ns(1_000_000);
    zfs.link(&linked, &root, b"second").expect("a link");
    // The last name that goes changes no time of the file, so that nothing would be told (OpenZFS: `zfs_drop_nlink_locked`).
    zfs.link(&open, &root, b"other").expect("a link");
    zfs.unlink(&root, b"opened").expect("unlinked");
    zfs.unlink(&root, b"other").expect("unlinked");
    let after = take(&pool, "after");
    let found = differences(&before, &after);
    let of = |path: &[u8]| found.iter().find(|one| one.path == path).unwrap_or_else(|| panic!("a difference of them: {found:?}"));
    assert_eq!((of(b"/linked").kind, of(b"/linked").links), (DiffKind::Modified, 1));
    assert_eq!(of(b"/opened").new_path.as_deref(), Some(b"(on_delete_queue)".as_slice()));
    assert_eq!(found.len(), 3, "the root is the third: {found:?}");
    drop(open);
}
