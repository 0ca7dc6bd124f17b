//! Many threads in one tree: whatever they did to each other, the tree is sound afterwards. No model can say what the outcome
//! is; these rules hold for any: names lead to nodes, link counts are numbers of names, nothing is unreachable.

use abd::Abd;
use dmu::ObjsetProps;
use dmu::testing::{MemBlockIo, TestPool};
use ondisk::{ObjectId, ObjsetType};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zpl::{CreateOptions, NewNode, Node, Place, RenameMode, SetAttrs, SetMode, Settings, WriteData, Zfs, ZplError};

const THREADS: u64 = 4;
const STEPS: u64 = 1500;

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
    fn name(&mut self) -> Vec<u8> {
        format!("n{}", self.below(8)).into_bytes()
    }
}

/// Node of a directory somewhere in the tree.
fn walk(zfs: &Arc<Zfs>, rng: &mut Rng) -> Result<Node, ZplError> {
    let mut at = zfs.node(zfs.root())?;
    for _ in 0..rng.below(4) {
        match zfs.lookup(&at, &rng.name()) {
            Ok(next) if next.fields().is_directory() => at = next,
            _ => break,
        }
    }
    Ok(at)
}

/// Does one operation; errors that other threads can cause are part of the game.
fn step(zfs: &Arc<Zfs>, rng: &mut Rng) -> Result<(), ZplError> {
    let directory = walk(zfs, rng)?;
    let name = rng.name();
    let new = |mode| NewNode { mode, ..NewNode::default() };
    match rng.below(14) {
        0..=2 => zfs.create_node(&directory, &name, &new(0o100_644)).map(|_| ()),
        3 => zfs.create_node(&directory, &name, &new(0o040_755)).map(|_| ()),
        4 | 5 => zfs.unlink(&directory, &name),
        6 => zfs.rmdir(&directory, &name),
        7 | 8 => {
            let (other, target) = (walk(zfs, rng)?, rng.name());
            let mode = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange][rng.below(3) as usize];
            zfs.rename(Place { directory: &directory, name: &name }, Place { directory: &other, name: &target }, mode)
        }
        9 => {
            let node = zfs.lookup(&directory, &name)?;
            zfs.link(&node, &walk(zfs, rng)?, &rng.name())
        }
        10 => {
            let node = zfs.lookup(&directory, &name)?;
            zfs.set_xattr(&node, b"user.x", &vec![1; rng.below(3000) as usize], SetMode::Any)
        }
        11 => zfs.set_attrs(&zfs.lookup(&directory, &name)?, &SetAttrs { mode: Some(rng.below(512)), ..SetAttrs::default() }),
        12 => zfs.truncate(&zfs.lookup(&directory, &name)?, rng.below(100_000)),
        _ => {
            let node = zfs.lookup(&directory, &name)?;
            let data = Abd::from_slice(&vec![7; 1 + rng.below(9000) as usize]);
            let write = WriteData { offset: rng.below(50_000), data, may_keep: true, kill_suid: false, synchronous: rng.below(50) == 0 };
            zfs.write(&node, write)?;
            zfs.read(&node, 0, 100_000).map(|_| ())
        }
    }
}

fn expected(error: ZplError) -> bool {
    use ZplError::{Exists, Invalid, IsDirectory, NotDirectory, NotEmpty, NotFound, NotPermitted};
    matches!(error, NotFound | Exists | NotDirectory | IsDirectory | NotEmpty | Invalid | NotPermitted)
}

/// Counts the names of every node below `directory`.
fn count(zfs: &Arc<Zfs>, directory: &Node, names: &mut BTreeMap<ObjectId, u64>) {
    let mut entries = Vec::new();
    zfs.list(directory, 3, &mut |entry| {
        entries.push((entry.name.to_vec(), entry.dirent.object));
        true
    })
    .expect("a listing");
    assert_eq!(directory.fields().size, entries.len() as u64 + 2, "the size of a directory");
    let mut subdirectories = 0;
    for (name, object) in entries {
        let node = zfs.lookup(directory, &name).expect("a listed name leads to a node");
        assert_eq!(node.object(), object);
        *names.entry(object).or_default() += 1;
        if node.fields().is_directory() {
            assert_eq!(node.fields().parent, directory.object().0, "the parent of a directory");
            subdirectories += 1;
            count(zfs, &node, names);
        }
    }
    assert_eq!(directory.fields().links, 2 + subdirectories, "the links of a directory");
}

#[test]
fn the_tree_is_sound_after_threads_fought_over_it() {
    let io = MemBlockIo::threaded(2);
    let exec = dmu::BlockIo::exec(&io).clone();
    let pool = TestPool::create(io, ObjsetType::ZFS, ObjsetProps { record_size: 4096, ..ObjsetProps::default() }).expect("an object set");
    Zfs::create(&pool.objset, &CreateOptions::default(), &pool.txgs.assign(0).expect("a transaction")).expect("a file system");
    let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings::default()).expect("it opens");
    let steps = std::env::var("ZPL_THREAD_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(STEPS);
    let (done, failures) = (Arc::new(AtomicU64::new(0)), Arc::new(exec::Mutex::new(Vec::new())));
    let workers: Vec<exec::OperationHandle> = (0..THREADS)
        .map(|worker| {
            let (zfs, done, failures) = (zfs.clone(), done.clone(), failures.clone());
            let work = move || {
                let mut rng = Rng(worker + 1);
                for _ in 0..steps {
                    match step(&zfs, &mut rng) {
                        Err(error) if !expected(error) => failures.lock().push(error),
                        _ => {
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            };
            exec.spawn_operation(&format!("worker-{worker}"), Box::new(work))
        })
        .collect();
    workers.into_iter().for_each(exec::OperationHandle::join);
    assert_eq!(*failures.lock(), []);
    assert_eq!(done.load(Ordering::Relaxed), THREADS * steps, "a thread died");
    zfs.forget_all();
    drop(zfs);

    let pool = pool.reopen().expect("it opens again");
    let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings::default()).expect("the file system opens again");
    assert_eq!(zfs.drain_unlinked(), Ok(0), "nodes stayed in the unlinked set");
    let root = zfs.node(zfs.root()).expect("root");
    let mut names = BTreeMap::from([(root.object(), 1)]);
    count(&zfs, &root, &mut names);
    for (object, count) in &names {
        let fields = zfs.node(*object).expect("node").fields();
        if !fields.is_directory() {
            assert_eq!(fields.links, *count, "the links of {object}");
        }
    }
    let mut all = BTreeSet::new();
    let mut object = ObjectId(0);
    while let Some(next) = pool.objset.next_object(object).expect("objects") {
        all.insert(next);
        object = next;
    }
    // Master node, SA master, registry, layouts, unlinked set; everything else has a name.
    assert_eq!(all.len(), names.len() + 5, "objects without a name");
    assert_eq!(pool.io.violations(), Vec::<&str>::new());
}

/// If this fails, a directory counts fewer names than it has, and an `rmdir` takes files along: whoever was slow to read its
/// attributes has the old ones.
#[test]
fn a_node_that_changed_while_it_was_read_is_read_again() {
    let pool = TestPool::create(MemBlockIo::inline(1), ObjsetType::ZFS, ObjsetProps::default()).expect("an object set");
    Zfs::create(&pool.objset, &CreateOptions::default(), &pool.txgs.assign(0).expect("a transaction")).expect("a file system");
    let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings::default()).expect("it opens");
    let root = zfs.node(zfs.root()).expect("the root");
    let directory = zfs.create_node(&root, b"d", &NewNode { mode: 0o040_755, ..NewNode::default() }).expect("a directory");
    // So many attributes that a part lies in a block of its own, which has to be read.
    zfs.set_xattr(&directory, b"user.much", &[7; 3000], SetMode::Any).expect("set");
    let object = directory.object();
    drop(directory);
    pool.sync().expect("synced");
    let other = zfs.clone();
    pool.io.before_next_read(move || {
        let directory = other.node(object).expect("read meanwhile");
        other.create_node(&directory, b"f", &NewNode { mode: 0o100_644, ..NewNode::default() }).map(drop).expect("a file");
    });
    let directory = zfs.node(object).expect("read");
    assert_eq!(directory.fields().size, 3, "a directory with one name");
    drop(directory);
    assert_eq!(zfs.rmdir(&root, b"d"), Err(ZplError::NotEmpty));
}
