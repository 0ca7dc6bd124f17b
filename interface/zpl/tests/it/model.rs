//! Random file-system programs against a model of the same in memory, over an object set in memory.
//!
//! After every program the object set is synced, everything in memory is forgotten, and the tree is read back and compared:
//! what differs is what a user would have lost.

use abd::Abd;
use dmu::testing::{MemBlockIo, TestPool};
use dmu::{ObjsetProps, Tx};
use ondisk::{ObjectId, ObjectType, ObjsetType};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zpl::{Allocate, CreateOptions, NewNode, Node, Place, RenameMode, SetAttrs, SetMode, Settings, WriteData, Zfs, ZplError};

const DIR: u64 = 0o040_755;
const REG: u64 = 0o100_644;
const LNK: u64 = 0o120_777;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Inode {
    names: Option<BTreeMap<Vec<u8>, usize>>,
    data: Vec<u8>,
    target: Vec<u8>,
    mode: u64,
    links: u64,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    parent: usize,
}

/// Model of the file system as a map; inode 0 is the root.
struct Model {
    inodes: Vec<Inode>,
}

type Outcome<T> = Result<T, ZplError>;

impl Model {
    fn new() -> Model {
        Model { inodes: vec![Inode { names: Some(BTreeMap::new()), mode: DIR, links: 2, ..Inode::default() }] }
    }
    fn dir(&mut self, inode: usize) -> &mut BTreeMap<Vec<u8>, usize> {
        self.inodes[inode].names.as_mut().expect("the program names directories only")
    }
    fn create(&mut self, dir: usize, name: &[u8], mode: u64, target: &[u8]) -> Outcome<usize> {
        if self.dir(dir).contains_key(name) {
            return Err(ZplError::Exists);
        }
        let is_dir = mode & 0o170_000 == 0o040_000;
        let inode = Inode {
            names: is_dir.then(BTreeMap::new),
            target: target.to_vec(),
            mode,
            links: if is_dir { 2 } else { 1 },
            parent: dir,
            ..Inode::default()
        };
        self.inodes.push(inode);
        let new = self.inodes.len() - 1;
        self.dir(dir).insert(name.to_vec(), new);
        self.inodes[dir].links += u64::from(is_dir);
        Ok(new)
    }
    fn remove(&mut self, dir: usize, name: &[u8], want_dir: bool) -> Outcome<()> {
        let inode = *self.dir(dir).get(name).ok_or(ZplError::NotFound)?;
        match (&self.inodes[inode].names, want_dir) {
            (Some(_), false) => return Err(ZplError::IsDirectory),
            (None, true) => return Err(ZplError::NotDirectory),
            (Some(names), true) if !names.is_empty() => return Err(ZplError::NotEmpty),
            _ => {}
        }
        self.dir(dir).remove(name);
        if want_dir {
            self.inodes[dir].links -= 1;
            self.inodes[inode].links = 0;
        } else {
            self.inodes[inode].links -= 1;
        }
        Ok(())
    }
    fn is_under(&self, mut inode: usize, above: usize) -> bool {
        loop {
            if inode == above {
                return true;
            }
            if inode == 0 {
                return false;
            }
            inode = self.inodes[inode].parent;
        }
    }
    fn rename(&mut self, from: usize, name: &[u8], to: usize, new: &[u8], mode: RenameMode) -> Outcome<()> {
        let source = *self.dir(from).get(name).ok_or(ZplError::NotFound)?;
        let target = self.dir(to).get(new).copied();
        let is_dir = self.inodes[source].names.is_some();
        if from != to && is_dir && self.is_under(to, source) {
            return Err(ZplError::Invalid);
        }
        match (target, mode) {
            (None, RenameMode::Exchange) => return Err(ZplError::NotFound),
            (Some(_), RenameMode::NoReplace) => return Err(ZplError::Exists),
            (Some(target), _) if target == source => return Ok(()),
            (Some(target), RenameMode::Exchange) => {
                let target_is_dir = self.inodes[target].names.is_some();
                if from != to && target_is_dir && self.is_under(from, target) {
                    return Err(ZplError::Invalid);
                }
                self.dir(from).insert(name.to_vec(), target);
                self.dir(to).insert(new.to_vec(), source);
                self.inodes[from].links += u64::from(target_is_dir);
                self.inodes[from].links -= u64::from(is_dir);
                self.inodes[to].links += u64::from(is_dir);
                self.inodes[to].links -= u64::from(target_is_dir);
                self.inodes[source].parent = to;
                self.inodes[target].parent = from;
                return Ok(());
            }
            (Some(target), RenameMode::Replace) => {
                match (is_dir, &self.inodes[target].names) {
                    (true, None) => return Err(ZplError::NotDirectory),
                    (false, Some(_)) => return Err(ZplError::IsDirectory),
                    (true, Some(names)) if !names.is_empty() => return Err(ZplError::NotEmpty),
                    _ => {}
                }
                self.remove(to, new, is_dir)?;
            }
            (None, _) => {}
        }
        self.dir(from).remove(name);
        self.dir(to).insert(new.to_vec(), source);
        self.inodes[from].links -= u64::from(is_dir);
        self.inodes[to].links += u64::from(is_dir);
        self.inodes[source].parent = to;
        Ok(())
    }
}

struct World {
    pool: TestPool,
    zfs: Arc<Zfs>,
    model: Model,
    /// Node of each inode of the model that can be reached.
    nodes: BTreeMap<usize, Node>,
}

fn props(record_size: usize) -> ObjsetProps {
    ObjsetProps { record_size, ..ObjsetProps::default() }
}

fn make_fs(seed: u64, record_size: usize, options: &CreateOptions) -> (TestPool, Arc<Zfs>) {
    let pool = TestPool::create(MemBlockIo::inline(seed), ObjsetType::ZFS, props(record_size)).expect("an object set");
    let tx: Tx = pool.txgs.assign(0).expect("a transaction");
    Zfs::create(&pool.objset, options, &tx).expect("a new file system");
    drop(tx);
    let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings::default()).expect("it opens");
    (pool, zfs)
}

impl World {
    fn new(seed: u64, record_size: usize) -> World {
        let (pool, zfs) = make_fs(seed, record_size, &CreateOptions::default());
        let root = zfs.node(zfs.root()).expect("a root");
        World { pool, zfs, model: Model::new(), nodes: BTreeMap::from([(0, root)]) }
    }

    fn pick_dir(&self, rng: &mut Rng) -> usize {
        let dirs: Vec<usize> = self
            .nodes
            .keys()
            .copied()
            .filter(|inode| self.model.inodes[*inode].names.is_some() && self.model.inodes[*inode].links > 0)
            .collect();
        dirs[rng.below(dirs.len() as u64) as usize]
    }

    fn pick_file(&self, rng: &mut Rng) -> Option<usize> {
        let files: Vec<usize> =
            self.nodes.keys().copied().filter(|inode| self.model.inodes[*inode].mode & 0o170_000 == 0o100_000).collect();
        (!files.is_empty()).then(|| files[rng.below(files.len() as u64) as usize])
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.below(100) {
            0..=29 => self.name_step(rng),
            30..=84 => self.data_step(rng),
            85..=92 => self.attribute_step(rng),
            93..=96 => self.check_file(rng),
            _ => self.pool.sync().expect("a sync"),
        }
    }

    fn name_step(&mut self, rng: &mut Rng) {
        let dir = self.pick_dir(rng);
        let node = self.nodes[&dir].clone();
        let name = format!("n{}", rng.below(12)).into_bytes();
        match rng.below(12) {
            0..=3 => self.create(dir, &name, REG, b""),
            4 => self.create(dir, &name, DIR, b""),
            5 => self.create(dir, &name, LNK, &vec![b'x'; 1 + rng.below(300) as usize]),
            6 | 7 => {
                let mine = self.zfs.unlink(&node, &name);
                assert_eq!(mine, self.model.remove(dir, &name, false), "unlink");
            }
            8 => assert_eq!(self.zfs.rmdir(&node, &name), self.model.remove(dir, &name, true), "rmdir"),
            9 => {
                let Some(file) = self.pick_file(rng) else { return };
                if self.model.inodes[file].links == 0 {
                    return;
                }
                let mine = self.zfs.link(&self.nodes[&file].clone(), &node, &name);
                let theirs = if self.model.dir(dir).contains_key(&name) { Err(ZplError::Exists) } else { Ok(()) };
                assert_eq!(mine, theirs, "link");
                if mine.is_ok() {
                    self.model.dir(dir).insert(name, file);
                    self.model.inodes[file].links += 1;
                }
            }
            _ => {
                let to = self.pick_dir(rng);
                let new = format!("n{}", rng.below(12)).into_bytes();
                let mode = [RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange][rng.below(4) as usize];
                let to_node = self.nodes[&to].clone();
                let mine = self.zfs.rename(Place { directory: &node, name: &name }, Place { directory: &to_node, name: &new }, mode);
                assert_eq!(mine, self.model.rename(dir, &name, to, &new, mode), "rename {name:?} to {new:?}, {mode:?}");
            }
        }
        drop(node);
        self.let_go(rng);
    }

    fn create(&mut self, dir: usize, name: &[u8], mode: u64, target: &[u8]) {
        let node = self.nodes[&dir].clone();
        let mine = self.zfs.create_node(&node, name, &NewNode { mode, target, ..NewNode::default() });
        match (mine, self.model.create(dir, name, mode, target)) {
            (Ok(new), Ok(inode)) => drop(self.nodes.insert(inode, new)),
            (mine, theirs) => assert_eq!(mine.map(|_| 0), theirs.map(|_| 0), "create"),
        }
    }

    /// Lets go of nodes without links, which are kept open for a while: their data must stay readable until then.
    fn let_go(&mut self, rng: &mut Rng) {
        let gone: Vec<usize> = self.nodes.keys().copied().filter(|inode| self.model.inodes[*inode].links == 0).collect();
        for inode in gone {
            if rng.below(3) == 0 {
                self.nodes.remove(&inode);
            }
        }
    }

    fn data_step(&mut self, rng: &mut Rng) {
        let Some(file) = self.pick_file(rng) else { return };
        let node = self.nodes[&file].clone();
        let data = &mut self.model.inodes[file].data;
        let offset = match rng.below(3) {
            0 => data.len() as u64,
            1 => rng.below(4) * 4096,
            _ => rng.below(60_000),
        };
        let length = [1, 511, 512, 4096, 8192, 1 + rng.below(20_000)][rng.below(6) as usize];
        match rng.below(10) {
            0..=6 => {
                let byte = (rng.next() >> 32) as u8;
                let bytes: Vec<u8> = (0..length).map(|index| byte.wrapping_add((index >> 3) as u8)).collect();
                let abd = if rng.below(2) == 0 {
                    Abd::from_slice(&bytes)
                } else {
                    let middle = bytes.len() / 2;
                    Abd::gang(&[Abd::from_slice(&bytes[..middle]), Abd::from_slice(&bytes[middle..])])
                };
                let write = WriteData { offset, data: abd, may_keep: rng.below(2) == 0, kill_suid: false, synchronous: rng.below(40) == 0 };
                assert_eq!(self.zfs.write(&node, write), Ok(length));
                let end = (offset + length) as usize;
                data.resize(data.len().max(end), 0);
                data[offset as usize..end].copy_from_slice(&bytes);
            }
            7 => {
                self.zfs.truncate(&node, offset).expect("truncate");
                data.resize(offset as usize, 0);
            }
            _ => {
                let how = [Allocate::Punch, Allocate::Zero, Allocate::ZeroKeepSize, Allocate::Extend][rng.below(4) as usize];
                self.zfs.allocate(&node, offset, length, how).expect("fallocate");
                let end = (offset + length) as usize;
                if matches!(how, Allocate::Zero | Allocate::Extend) {
                    data.resize(data.len().max(end), 0);
                }
                if how != Allocate::Extend && (offset as usize) < data.len() {
                    let end = end.min(data.len());
                    data[offset as usize..end].fill(0);
                }
            }
        }
    }

    fn attribute_step(&mut self, rng: &mut Rng) {
        let Some(file) = self.pick_file(rng) else { return };
        let node = self.nodes[&file].clone();
        let inode = &mut self.model.inodes[file];
        if rng.below(4) == 0 {
            let mode = rng.below(0o1000);
            self.zfs.set_attrs(&node, &SetAttrs { mode: Some(mode), ..SetAttrs::default() }).expect("chmod");
            inode.mode = 0o100_000 | mode;
            return;
        }
        let name = format!("user.x{}", rng.below(6)).into_bytes();
        if rng.below(3) == 0 {
            let theirs = inode.xattrs.remove(&name).map(|_| ()).ok_or(ZplError::NoAttribute);
            assert_eq!(self.zfs.remove_xattr(&node, &name), theirs, "removexattr");
        } else {
            let value = vec![rng.next() as u8; [3, 100, 5000, 40_000][rng.below(4) as usize]];
            self.zfs.set_xattr(&node, &name, &value, SetMode::Any).expect("setxattr");
            inode.xattrs.insert(name, value);
        }
    }

    fn check_file(&mut self, rng: &mut Rng) {
        let Some(file) = self.pick_file(rng) else { return };
        let node = self.nodes[&file].clone();
        compare_file(&self.zfs, &node, &self.model.inodes[file]);
    }

    /// Forgets everything in memory and compares the whole tree with the model.
    fn reopen_and_compare(self) {
        let World { pool, zfs, model, nodes } = self;
        drop(nodes);
        zfs.forget_all();
        drop(zfs);
        let pool = pool.reopen().expect("the object set opens again");
        let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings::default()).expect("the file system opens again");
        assert_eq!(zfs.drain_unlinked(), Ok(0), "deleted nodes stayed in the unlinked set");
        let mut seen = BTreeMap::new();
        let root = zfs.node(zfs.root()).expect("root");
        compare_tree(&zfs, &root, &model, 0, &mut seen);
        let mut objects = BTreeSet::new();
        let mut object = ObjectId(0);
        while let Some(next) = pool.objset.next_object(object).expect("objects") {
            objects.insert(next);
            object = next;
        }
        compare_accounting(&pool, &objects);
        let extra = objects.len() - seen.len();
        let xattr_objects: usize = seen.values().map(|inode| hidden(&zfs, *inode)).sum();
        // Master node, SA master, registry, layouts, unlinked set; the rest is reachable or leaked.
        assert_eq!(extra, 5 + xattr_objects, "objects leaked: {objects:?}");
        assert_eq!(pool.io.violations(), Vec::<&str>::new());
    }
}

/// Compares what `zfs userspace` shows with what the files take: else quotas are wrong.
fn compare_accounting(pool: &TestPool, objects: &BTreeSet<ObjectId>) {
    let mut sum = 0;
    for object in objects {
        let info = pool.objset.hold(*object).and_then(|dnode| dnode.info()).expect("an object");
        if info.bonus_type == ObjectType::SA {
            sum += info.used_bytes + 512;
        }
    }
    let used = zap::Zap::hold(&pool.objset, dmu::USERUSED_OBJECT).and_then(|zap| zap.lookup_u64("0")).expect("space of user 0");
    assert_eq!(used, sum);
}

fn hidden(zfs: &Arc<Zfs>, object: ObjectId) -> usize {
    let fields = zfs.node(object).expect("node").fields();
    if fields.xattr == 0 {
        return 0;
    }
    let directory = zfs.node(ObjectId(fields.xattr)).expect("the directory of extended attributes");
    let size = directory.fields().size as usize;
    1 + size - 2
}

fn compare_tree(zfs: &Arc<Zfs>, node: &Node, model: &Model, inode: usize, seen: &mut BTreeMap<usize, ObjectId>) {
    let theirs = &model.inodes[inode];
    let fields = node.fields();
    assert_eq!((fields.mode, fields.links), (theirs.mode, theirs.links), "mode and links of inode {inode}");
    if let Some(before) = seen.insert(inode, node.object()) {
        assert_eq!(before, node.object(), "hard links lead to different objects");
        return;
    }
    match &theirs.names {
        None if theirs.mode == LNK => assert_eq!(zfs.read_link(node).as_deref(), Ok(&theirs.target[..])),
        None => compare_file(zfs, node, theirs),
        Some(names) => {
            let mut listed = BTreeMap::new();
            let mut dots = 0;
            zfs.list(node, 0, &mut |entry| {
                if entry.name == b"." || entry.name == b".." {
                    dots += 1;
                } else {
                    listed.insert(entry.name.to_vec(), entry.dirent.object);
                }
                true
            })
            .expect("a listing");
            assert_eq!(dots, 2);
            assert!(listed.keys().eq(names.keys()), "names of inode {inode}: {:?}", listed.keys());
            assert_eq!(fields.size, names.len() as u64 + 2);
            for (name, child) in names {
                let found = zfs.lookup(node, name).expect("a listed name is found");
                compare_tree(zfs, &found, model, *child, seen);
            }
        }
    }
}

fn compare_file(zfs: &Arc<Zfs>, node: &Node, theirs: &Inode) {
    let size = node.fields().size;
    assert_eq!(size, theirs.data.len() as u64, "size");
    let mine = zfs.read(node, 0, u64::MAX >> 1).expect("read").to_vec();
    assert!(mine == theirs.data, "data differs at {:?}", mine.iter().zip(&theirs.data).position(|(one, other)| one != other));
    let names: BTreeSet<Vec<u8>> = zfs.list_xattrs(node).expect("listxattr").into_iter().collect();
    assert!(names.iter().eq(theirs.xattrs.keys()), "names of extended attributes");
    for (name, value) in &theirs.xattrs {
        assert_eq!(zfs.get_xattr(node, name).as_ref(), Ok(value), "an extended attribute");
    }
    let mut at = 0;
    while at < size {
        let data = zfs.seek_data(node, at).unwrap_or(size);
        let hole = &theirs.data[at as usize..data as usize];
        assert!(hole.iter().all(|byte| *byte == 0), "a hole reported over data between {at} and {data}");
        if data == size {
            break;
        }
        at = zfs.seek_hole(node, data).expect("a hole or the end");
        assert!(at > data, "data of no length at {data}");
    }
}

fn run(seed: u64, record_size: usize, steps: usize) {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut world = World::new(seed, record_size);
    for _ in 0..steps {
        world.step(&mut rng);
    }
    world.reopen_and_compare();
}

#[test]
fn random_programs_survive_reopening() {
    let rounds = std::env::var("ZPL_MODEL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    for seed in 1..=rounds {
        println!("seed {seed}");
        run(seed, [512, 4096, 128 << 10][seed as usize % 3], 400);
    }
}

/// A file that was open and unlinked when power went is deleted at the next mount: else its space is lost for good.
#[test]
fn unlinked_files_are_deleted_after_a_crash() {
    let (pool, zfs) = make_fs(7, 4096, &CreateOptions::default());
    let root = zfs.node(zfs.root()).expect("root");
    let new = NewNode { mode: REG, ..NewNode::default() };
    let node = zfs.create_node(&root, b"victim", &new).expect("create");
    let write = WriteData { offset: 0, data: Abd::zeroed(100_000), may_keep: true, kill_suid: false, synchronous: false };
    zfs.write(&node, write).expect("write");
    zfs.set_xattr(&node, b"user.big", &vec![1; 40_000], SetMode::Any).expect("an attribute of its own file");
    zfs.unlink(&root, b"victim").expect("unlink");
    assert_eq!(zfs.read(&node, 0, 10).expect("still readable").len(), 10);
    let object = node.object();
    // The crash: nobody lets go of the node.
    std::mem::forget((node, root));
    drop(zfs);
    let pool = pool.reopen().expect("reopen");
    let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings::default()).expect("open");
    assert!(pool.objset.hold(object).is_ok(), "the file was deleted while it was open");
    assert_eq!(zfs.drain_unlinked(), Ok(1));
    assert!(pool.objset.hold(object).is_err(), "the unlinked file still takes space");
    assert_eq!(zfs.drain_unlinked(), Ok(0));
}

/// If this fails, an upgrade of the daemon deletes files under programs that have them open, or leaks what those let go of later.
#[test]
fn what_the_kernel_refers_to_stays_with_another_server() {
    let (pool, zfs) = make_fs(7, 4096, &CreateOptions::default());
    let root = zfs.node(zfs.root()).expect("root");
    let make = |name: &[u8]| {
        let node = zfs.create_node(&root, name, &NewNode { mode: REG, ..NewNode::default() }).expect("create");
        let write = WriteData { offset: 0, data: Abd::zeroed(10_000), may_keep: true, kill_suid: false, synchronous: false };
        zfs.write(&node, write).expect("write");
        // As by two lookups.
        Zfs::keep(&node);
        Zfs::keep(&node);
        node.object()
    };
    let [nameless, named, untouched, forgotten] = [b"a", b"b", b"c", b"d"].map(|name| make(name));
    zfs.unlink(&root, b"a").expect("unlink");
    zfs.unlink(&root, b"d").expect("unlink");
    drop(root);
    let remembered = zfs.hand_over().expect("handed over");
    let references = |object: ObjectId| remembered.iter().find(|node| node.object == object.0).map(|node| node.references);
    assert_eq!([nameless, named, untouched, forgotten].map(references), [Some(2); 4]);
    pool.sync().expect("synced");
    // The daemon ends, and lets go of nothing.
    std::mem::forget(zfs);
    let pool = pool.reopen().expect("reopen");
    let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings::default()).expect("open");
    zfs.take_over(&remembered);
    zfs.drain_unlinked().expect("drained");
    let is_there = |object: ObjectId| pool.objset.hold(object).is_ok();
    zfs.release(forgotten, 2);
    assert!(is_there(nameless) && !is_there(forgotten), "what is open stays, what nobody has goes");
    let root = zfs.node(zfs.root()).expect("root");
    zfs.unlink(&root, b"b").expect("unlink");
    assert_eq!(zfs.node(named).and_then(|node| zfs.read(&node, 0, 10)).expect("it is open").len(), 10);
    zfs.release(named, 1);
    assert!(is_there(named), "one of two references is left");
    zfs.release(named, 1);
    zfs.release(nameless, 2);
    assert!(!is_there(named) && !is_there(nameless), "nobody has them");
    // What nobody asked for is handed on as it was.
    let again = zfs.hand_over().expect("handed over once more");
    assert_eq!(again.iter().find(|node| node.object == untouched.0), remembered.iter().find(|node| node.object == untouched.0));
    zfs.release(untouched, 2);
    assert!(zfs.hand_over().expect("once more").iter().all(|node| node.object != untouched.0) && is_there(untouched));
}

#[test]
fn names_compare_as_the_properties_say() {
    let options = CreateOptions {
        case: zpl::CaseSensitivity::Insensitive,
        normalization: zpl::NormFlags::FORM_D,
        utf8_only: true,
        ..CreateOptions::default()
    };
    let (_pool, zfs) = make_fs(8, 4096, &options);
    let root = zfs.node(zfs.root()).expect("root");
    let new = NewNode { mode: REG, ..NewNode::default() };
    let node = zfs.create_node(&root, "Grün".as_bytes(), &new).expect("create");
    assert_eq!(zfs.lookup(&root, "GRU\u{308}N".as_bytes()).expect("another spelling").object(), node.object());
    assert_eq!(zfs.create_node(&root, "grün".as_bytes(), &new).map(|_| ()), Err(ZplError::Exists));
    assert_eq!(zfs.create_node(&root, b"\xff\xfe", &new).map(|_| ()), Err(ZplError::NotUtf8));
    zfs.rename(
        Place { directory: &root, name: "grün".as_bytes() },
        Place { directory: &root, name: "GRÜN".as_bytes() },
        RenameMode::Replace,
    )
    .expect("a change of case only");
    let mut names = Vec::new();
    zfs.list(&root, 3, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })
    .expect("list");
    assert_eq!(names, ["GRÜN".as_bytes().to_vec()]);
}

/// Listings of a directory that is being emptied must show every name that was there all the time.
#[test]
fn cookies_survive_removal() {
    let (_pool, zfs) = make_fs(9, 4096, &CreateOptions::default());
    let root = zfs.node(zfs.root()).expect("root");
    let new = NewNode { mode: REG, ..NewNode::default() };
    for index in 0..3000 {
        zfs.create_node(&root, format!("file {index}").as_bytes(), &new).expect("create");
    }
    let (mut cookie, mut left) = (0, 3000);
    loop {
        let mut batch = Vec::new();
        zfs.list(&root, cookie, &mut |entry| {
            cookie = entry.next;
            batch.push(entry.name.to_vec());
            batch.len() < 50
        })
        .expect("list");
        if batch.is_empty() {
            break;
        }
        for name in batch.iter().filter(|name| !name.starts_with(b".")) {
            zfs.unlink(&root, name).expect("unlink");
            left -= 1;
        }
    }
    assert_eq!(left, 0, "rm -r of a large directory misses names");
    assert_eq!(root.fields().size, 2);
}

#[test]
fn setuid_and_groups_follow_the_rules() {
    let (_pool, zfs) = make_fs(10, 4096, &CreateOptions::default());
    let root = zfs.node(zfs.root()).expect("root");
    let shared = NewNode { mode: 0o042_775, gid: 7, ..NewNode::default() };
    let shared = zfs.create_node(&root, b"shared", &shared).expect("mkdir");
    let sub = zfs.create_node(&shared, b"sub", &NewNode { mode: DIR, gid: 1, ..NewNode::default() }).expect("mkdir");
    assert_eq!((sub.fields().gid, sub.fields().mode & 0o2000), (7, 0o2000), "a group's directory tree leaves the group");
    let file = zfs.create_node(&shared, b"file", &NewNode { mode: 0o106_755, gid: 1, ..NewNode::default() }).expect("create");
    assert_eq!(file.fields().gid, 7);
    zfs.set_attrs(&file, &SetAttrs { uid: Some(5), ..SetAttrs::default() }).expect("chown");
    assert_eq!(file.fields().mode & 0o6000, 0, "setuid survived a change of owner");
    let nameless = zfs.create_nameless(&root, &NewNode { mode: REG, ..NewNode::default() }).expect("O_TMPFILE");
    zfs.link(&nameless, &root, b"named").expect("linkat");
    assert_eq!(nameless.fields().links, 1);
    drop(nameless);
    assert!(zfs.lookup(&root, b"named").is_ok(), "a linked O_TMPFILE was deleted");
}
