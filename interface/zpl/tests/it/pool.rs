//! File systems in a whole pool on memory devices: what was written is there after an export and import, OpenZFS's `zdb` finds
//! no error and reads the same bytes, and a full pool can be emptied.

use abd::Abd;
use device::{BlockDevice, MemDevice};
use dsl::{CreateDataset, DslError};
use exec::{Exec, Inline};
use fuse::{Caller, DirEntry, DirSink, Entry, Errno, FileHandle, Handler, NodeId};
use need::pattern;
use ondisk::ObjsetType;
use pool::{ImportOptions, LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use std::process::Command;
use std::sync::Arc;
use vdev::{LeafKind, TopKind};
use zpl::{
    Allocate, CreateOptions, NewNode, Node, SetMode, Settings, Snapdir, Space, SpaceSource, TxKind, WriteData, Zfs, ZplError, ZplFuse,
};

pub const DEVICE_BYTES: usize = 96 << 20;

pub fn exec() -> Exec {
    Arc::new(Inline::new(11))
}

pub fn file_system() -> CreateDataset {
    CreateDataset {
        kind: ObjsetType::ZFS,
        properties: Vec::new(),
        init: Box::new(|objset, tx| Zfs::create(objset, &CreateOptions::default(), tx).map_err(|_| DslError::Unsupported)),
    }
}

pub fn make_pool(devices: &[Arc<MemDevice>], kind: TopKind) -> Pool {
    let leaves = devices.iter().map(|device| {
        let path = device.path().display().to_string();
        LeafSpec { path, kind: LeafKind::File, device: device.clone() }
    });
    let spec = PoolSpec { ashift: Some(9), ..PoolSpec::new("zpltest", vec![TopSpec { kind, leaves: leaves.collect() }], file_system()) };
    Pool::create(&exec(), spec, &Runtime::new()).expect("a pool")
}

pub fn open_fs(pool: &Pool, name: &str) -> Arc<Zfs> {
    let handle = pool.dsl().hold(name).expect("the dataset");
    let zfs = Zfs::open(&handle.objset().expect("its object set"), Some(pool.txgs().clone()), Settings::default()).expect("a file system");
    zfs.set_space_source(Arc::new(handle));
    zfs
}

pub fn file() -> NewNode<'static> {
    NewNode { mode: 0o100_644, uid: 1000, gid: 100, ..NewNode::default() }
}

pub fn write(zfs: &Arc<Zfs>, node: &Node, offset: u64, bytes: &[u8]) -> Result<u64, ZplError> {
    let data = Abd::from_slice(bytes);
    zfs.write(node, WriteData { offset, data, may_keep: true, kill_suid: false, synchronous: false })
}

fn fill(zfs: &Arc<Zfs>) {
    let root = zfs.node(zfs.root()).expect("root");
    let directory = zfs.create_node(&root, b"dir", &NewNode { mode: 0o040_750, ..NewNode::default() }).expect("mkdir");
    for index in 0..40u64 {
        let node = zfs.create_node(&directory, format!("f{index}").as_bytes(), &file()).expect("create");
        write(zfs, &node, 0, &pattern(1 << (index % 18), index)).expect("write");
        zfs.set_xattr(&node, b"user.seed", &pattern(1 << (index % 14), index), SetMode::Any).expect("setxattr");
        if index % 5 == 0 {
            zfs.unlink(&directory, format!("f{index}").as_bytes()).expect("unlink");
        }
    }
    let big = zfs.create_node(&root, b"big", &file()).expect("create");
    write(zfs, &big, 0, &pattern(3_000_000, 99)).expect("write");
    write(zfs, &big, 9_000_000, &pattern(100_000, 98)).expect("write behind a hole");
    zfs.create_node(&root, b"link", &NewNode { mode: 0o120_777, target: b"dir/f1", ..NewNode::default() }).expect("symlink");
}

fn check(zfs: &Arc<Zfs>) {
    let root = zfs.node(zfs.root()).expect("root");
    let directory = zfs.lookup(&root, b"dir").expect("dir");
    assert_eq!(directory.fields().size, 2 + 32);
    for index in (0..40u64).filter(|index| index % 5 != 0) {
        let node = zfs.lookup(&directory, format!("f{index}").as_bytes()).expect("a file");
        assert_eq!(zfs.read(&node, 0, 1 << 20).expect("read").to_vec(), pattern(1 << (index % 18), index));
        assert_eq!(zfs.get_xattr(&node, b"user.seed"), Ok(pattern(1 << (index % 14), index)));
    }
    let big = zfs.lookup(&root, b"big").expect("big");
    assert_eq!(zfs.read(&big, 9_000_000, 200_000).expect("read").to_vec(), pattern(100_000, 98));
    assert_eq!(zfs.read_link(&zfs.lookup(&root, b"link").expect("link")), Ok(b"dir/f1".to_vec()));
}

/// Has `zdb` of OpenZFS judge what we wrote, where it is installed.
fn judge(devices: &[Arc<MemDevice>], name: &str) {
    if need::lacks(need::Need::Zdb, &format!("zdb's judgement of {name}")).unwrap() {
        return;
    }
    let program = need::zdb().expect("it is not lacking");
    let folder = std::env::temp_dir().join(format!("zirconia-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for (index, device) in devices.iter().enumerate() {
        std::fs::write(folder.join(format!("d{index}")), device.contents()).expect("an image");
    }
    need::judged(&program, &folder, "zpltest").expect("a clean pool");
    let copy = folder.join("copy");
    let mut zdb = Command::new(&program);
    let done = zdb.args(["-e", "-p"]).arg(&folder).args(["-r", "zpltest/fs", "big"]).arg(&copy).output().expect("zdb starts");
    assert!(done.status.success(), "zdb -r: {}", String::from_utf8_lossy(&done.stderr));
    let bytes = std::fs::read(&copy).expect("the copy");
    assert!(bytes.len() == 9_100_000 && bytes[..3_000_000] == pattern(3_000_000, 99)[..], "zdb reads other bytes");
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn a_tree_survives_export_and_import_and_openzfs_reads_it() {
    for (kind, count) in [(TopKind::Leaf, 1), (TopKind::Raidz(1), 3)] {
        let devices: Vec<Arc<MemDevice>> = (0..count).map(|index| Arc::new(MemDevice::new(&format!("d{index}"), DEVICE_BYTES))).collect();
        let pool = make_pool(&devices, kind);
        pool.dsl().create_dataset("zpltest/fs", file_system()).expect("a file system");
        {
            let zfs = open_fs(&pool, "zpltest/fs");
            fill(&zfs);
            check(&zfs);
        }
        pool.export().expect("exported");
        judge(&devices, if count == 1 { "leaf" } else { "raidz" });
        let opened = devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
        let pool = Pool::import(&exec(), opened, &ImportOptions::default(), &Runtime::new()).expect("imported");
        check(&open_fs(&pool, "zpltest/fs"));
        pool.export().expect("exported again");
    }
}

/// A pool that cannot be emptied once it is full is lost.
#[test]
fn a_full_file_system_says_so_and_can_be_emptied() {
    let devices = vec![Arc::new(MemDevice::new("d0", DEVICE_BYTES))];
    let pool = make_pool(&devices, TopKind::Leaf);
    pool.dsl().create_dataset("zpltest/fs", file_system()).expect("a file system");
    {
        let zfs = open_fs(&pool, "zpltest/fs");
        let root = zfs.node(zfs.root()).expect("root");
        let bytes = pattern(1 << 20, 5);
        let mut names = Vec::new();
        let error = loop {
            let name = format!("fill{}", names.len());
            let written = zfs.create_node(&root, name.as_bytes(), &file()).and_then(|node| write(&zfs, &node, 0, &bytes).map(|_| ()));
            if zfs.lookup(&root, name.as_bytes()).is_ok() {
                names.push(name);
            }
            if let Err(error) = written {
                break error;
            }
            assert!(names.len() < 200, "a pool of 96 MiB took 200 MiB");
        };
        assert_eq!(error, ZplError::NoSpace);
        assert!(names.len() > 30, "full after {} MiB", names.len());
        for name in &names {
            zfs.unlink(&root, name.as_bytes()).expect("deleting works on a full pool");
        }
        pool.sync().and_then(|()| pool.sync()).and_then(|()| pool.sync()).expect("synced");
        let node = zfs.create_node(&root, b"again", &file()).expect("there is space again");
        write(&zfs, &node, 0, &bytes).expect("written");
    }
    pool.export().expect("exported");
}

/// If this fails, a full pool stays full for seconds after something was deleted, and fallocate promises what there is not.
#[test]
fn what_was_deleted_from_a_full_pool_can_be_used_at_once() {
    let pool = make_pool(&[Arc::new(MemDevice::new("d0", DEVICE_BYTES))], TopKind::Leaf);
    pool.dsl().create_dataset("zpltest/fs", file_system()).expect("a file system");
    {
        let zfs = open_fs(&pool, "zpltest/fs");
        let root = zfs.node(zfs.root()).expect("root");
        let node = zfs.create_node(&root, b"full", &file()).expect("create");
        let bytes = pattern(1 << 20, 5);
        let mut offset = 0;
        while write(&zfs, &node, offset, &bytes).is_ok() {
            offset += 1 << 20;
        }
        assert!(offset > 30 << 20, "full after {offset} bytes");
        for how in [Allocate::Extend, Allocate::KeepSize] {
            assert_eq!(zfs.allocate(&node, offset, 200 << 20, how), Err(ZplError::NoSpace), "{how:?}");
            assert_eq!(node.fields().size, offset);
        }
        // As the kernel does it: the name goes, and the last reference a little later.
        Zfs::keep(&node);
        let object = node.object();
        drop(node);
        zfs.unlink(&root, b"full").expect("deleting works on a full pool");
        zfs.release(object, 1);
        let node = zfs.create_node(&root, b"again", &file()).expect("there is space again");
        for part in 0..offset >> 21 {
            write(&zfs, &node, part << 20, &bytes).expect("and enough of it");
        }
        assert_eq!(zfs.allocate(&node, 0, 10 << 20, Allocate::Extend), Ok(()));
    }
    pool.export().expect("exported");
}

/// Source of space that has none until somebody lets go of a file.
struct Full {
    zfs: std::sync::Weak<Zfs>,
    held: ondisk::ObjectId,
    refusals: std::sync::atomic::AtomicU64,
}

impl SpaceSource for Full {
    fn space(&self) -> Space {
        Space::default()
    }
    fn assign(&self, txgs: &Arc<dmu::TxgManager>, bytes: u64, kind: TxKind) -> Result<dmu::Tx, ZplError> {
        if kind == TxKind::Frees {
            return Ok(txgs.assign(bytes)?);
        }
        let zfs = self.zfs.upgrade().ok_or(ZplError::STOPPED)?;
        match self.refusals.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Err(ZplError::OverQuota),
            1 => {
                zfs.release(self.held, 1);
                Err(ZplError::OverQuota)
            }
            2 => Ok(txgs.assign(bytes)?),
            _ => Err(ZplError::NoSpace),
        }
    }
}

/// If this fails, `rm old; cp new .` is told that the quota is exceeded, because the kernel lets go of a file a moment after `rm` ended.
#[test]
fn the_deletion_of_removed_files_is_waited_for() {
    let pool =
        dmu::testing::TestPool::create(dmu::testing::MemBlockIo::inline(2), ObjsetType::ZFS, dmu::ObjsetProps::default()).expect("create");
    Zfs::create(&pool.objset, &CreateOptions::default(), &pool.txgs.assign(0).expect("a transaction")).expect("a file system");
    let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings::default()).expect("opens");
    let root = zfs.node(zfs.root()).expect("root");
    let node = zfs.create_node(&root, b"old", &file()).expect("create");
    Zfs::keep(&node);
    let held = node.object();
    drop(node);
    zfs.unlink(&root, b"old").expect("unlinked");
    let full = Arc::new(Full { zfs: Arc::downgrade(&zfs), held, refusals: Default::default() });
    zfs.set_space_source(full.clone());
    zfs.create_node(&root, b"new", &file()).expect("the third time there is room");
    assert_eq!(zfs.create_node(&root, b"more", &file()).err(), Some(ZplError::NoSpace));
    assert_eq!(full.refusals.load(std::sync::atomic::Ordering::Relaxed), 4, "with nothing left to wait for the answer comes at once");
}

/// Names of a listing, taken a few at a time, as the kernel does.
struct Names(Vec<(String, u64)>, usize);

impl DirSink for Names {
    fn add(&mut self, entry: DirEntry<'_>) -> bool {
        if self.1 == 0 {
            return false;
        }
        self.1 -= 1;
        self.0.push((String::from_utf8_lossy(entry.name).into_owned(), entry.next));
        true
    }
    fn fits(&self, _name: &[u8]) -> bool {
        self.1 > 0
    }
    fn add_plus(&mut self, entry: DirEntry<'_>, _found: &Entry) -> bool {
        self.add(entry)
    }
}

fn names(handler: &ZplFuse, step: usize) -> Vec<String> {
    let (mut all, mut offset) = (Vec::new(), 0);
    loop {
        let mut names = Names(Vec::new(), step);
        handler.readdir(&Caller::default(), NodeId::ROOT, FileHandle(0), offset, &mut names).expect("listed");
        let Some((_, next)) = names.0.last() else { return all };
        offset = *next;
        all.extend(names.0.into_iter().map(|(name, _)| name));
    }
}

/// If this fails, a snapshot that somebody once looked into cannot be destroyed, or is destroyed under an open file.
#[test]
fn a_snapshot_that_was_browsed_can_be_destroyed_unless_a_file_of_it_is_open() {
    let pool = make_pool(&[Arc::new(MemDevice::new("d0", DEVICE_BYTES))], TopKind::Leaf);
    pool.dsl().create_dataset("zpltest/fs", file_system()).expect("a file system");
    {
        let zfs = open_fs(&pool, "zpltest/fs");
        fill(&zfs);
        zfs.sync().expect("synced");
        pool.dsl().snapshot(&["zpltest/fs@a".into()], Vec::new()).expect("snapshot");
        let snapshots = Arc::new(pool.dsl().hold("zpltest/fs").expect("held"));
        let handler = ZplFuse::new(zfs, Some(snapshots));
        let caller = Caller::default();
        let destroy = || pool.dsl().destroy_snapshots(&["zpltest/fs@a".into()], false);
        let control = handler.lookup(&caller, NodeId::ROOT, b".zfs").expect(".zfs").node;
        let list = handler.lookup(&caller, control, b"snapshot").expect("snapshot").node;
        let root = handler.lookup(&caller, list, b"a").expect("entered").node;
        let big = handler.lookup(&caller, root, b"big").expect("a file").node;
        let open = handler.open(&caller, big, 0).expect("opened");
        assert_eq!(destroy(), Err(DslError::Busy), "the mount holds it");
        assert!(!handler.close_snapshot("a"), "a file is open");
        handler.release(big, open.handle, 0);
        assert!(handler.close_snapshot("a") && handler.close_snapshot("never entered"));
        assert_eq!(destroy(), Ok(()));
        assert_eq!(handler.getattr(&caller, big, None).err(), Some(Errno::ESTALE));
        assert_eq!(handler.lookup(&caller, list, b"a").err(), Some(Errno::ENOENT));
    }
    pool.export().expect("exported");
}

/// If this fails, `ls -a` with `snapdir=visible` misses `.zfs` or loops, or `disabled` and `hidden` show it.
#[test]
fn the_control_directory_is_listed_when_it_is_visible() {
    let pool = make_pool(&[Arc::new(MemDevice::new("d0", DEVICE_BYTES))], TopKind::Leaf);
    pool.dsl().create_dataset("zpltest/fs", file_system()).expect("a file system");
    let zfs = open_fs(&pool, "zpltest/fs");
    fill(&zfs);
    let snapshots = Arc::new(pool.dsl().hold("zpltest/fs").expect("held"));
    let handler = ZplFuse::new(zfs.clone(), Some(snapshots));
    for (snapdir, listed, found) in [(Snapdir::Hidden, 0, true), (Snapdir::Visible, 1, true), (Snapdir::Disabled, 0, false)] {
        zfs.set_settings(Settings { snapdir, ..Settings::default() });
        let control = |names: &[String]| names.iter().filter(|name| *name == ".zfs").count();
        let whole = names(&handler, usize::MAX);
        assert_eq!((control(&whole), whole.len()), (listed, 5 + listed), "{snapdir:?}: {whole:?}");
        assert_eq!((names(&handler, 1), names(&handler, 2)), (whole.clone(), whole), "{snapdir:?}");
        assert_eq!(handler.lookup(&Caller::default(), NodeId::ROOT, b".zfs").is_ok(), found, "{snapdir:?}");
    }
}
