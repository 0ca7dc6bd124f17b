//! Files that are protected, what a rename leaves behind, and what properties allow of names and attributes. When these fail, a log that is append-only can be rewritten, an immutable
//! file changed, or a name that an overlay removed comes back; a file cannot be found by its name, or a dataset is not marked for systems that end names earlier.

use abd::Abd;
use dmu::ObjsetProps;
use dmu::testing::{MemBlockIo, TestPool};
use fuse::{Caller, DirEntry, DirSink, Entry, Errno, FileHandle, Handler, NodeId, SetXattr};
use ondisk::ObjsetType;
use std::sync::Arc;
use zpl::{
    Allocate, CreateOptions, FlagChange, NewNode, Node, Place, RenameMode, SetAttrs, SetMode, Settings, WriteData, Zfs, ZplError, ZplFuse,
};

// As `ZPL_FLAGS` has them.
const READONLY: u64 = 1 << 32;
const IMMUTABLE: u64 = 0x10 << 32;
const APPENDONLY: u64 = 0x40 << 32;
const REPARSE: u64 = 0x800 << 32;
const PROJINHERIT: u64 = 0x4000 << 32;

fn write(zfs: &Arc<Zfs>, node: &Node, offset: u64) -> Result<u64, ZplError> {
    let data = Abd::from_slice(b"new!");
    zfs.write(node, WriteData { offset, data, may_keep: true, kill_suid: false, synchronous: false })
}

struct Bed {
    pool: TestPool,
    zfs: Arc<Zfs>,
    root: Node,
    file: Node,
}

fn bed() -> Bed {
    let pool = TestPool::create(MemBlockIo::inline(3), ObjsetType::ZFS, ObjsetProps::default()).expect("an object set");
    Zfs::create(&pool.objset, &CreateOptions::default(), &pool.txgs.assign(0).expect("a transaction")).expect("a file system");
    let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings::default()).expect("it opens");
    let root = zfs.node(zfs.root()).expect("a root");
    let file = zfs.create_node(&root, b"f", &NewNode { mode: 0o100_644, ..NewNode::default() }).expect("a file");
    write(&zfs, &file, 0).expect("written");
    Bed { pool, zfs, root, file }
}

impl Bed {
    fn mark(&self, set: u64) {
        self.zfs.change_flags(&self.file, FlagChange { mask: READONLY | IMMUTABLE | APPENDONLY, set, project: None }).expect("marked");
    }

    /// Checks what no protected file lets happen.
    fn is_kept(&self) {
        let (zfs, root, file) = (&self.zfs, &self.root, &self.file);
        let refused = Err(ZplError::NotPermitted);
        assert_eq!(write(zfs, file, 0).map(drop), refused);
        assert_eq!(zfs.truncate(file, 0), refused);
        assert_eq!(zfs.unlink(root, b"f"), refused);
        assert_eq!(zfs.link(file, root, b"g"), refused);
        let to = Place { directory: root, name: b"g" };
        assert_eq!(zfs.rename(Place { directory: root, name: b"f" }, to, RenameMode::Replace), refused);
        assert_eq!(zfs.set_attrs(file, &SetAttrs { mode: Some(0o777), ..SetAttrs::default() }), refused);
        assert_eq!(zfs.set_attrs(file, &SetAttrs { mtime: Some((1, 0)), ..SetAttrs::default() }), refused);
        assert_eq!(zfs.set_xattr(file, b"user.a", b"b", SetMode::Any), refused);
        assert_eq!(zfs.remove_xattr(file, b"user.a"), refused);
    }
}

#[test]
fn protected_files_stay_as_they_are() {
    let bed = bed();
    let (zfs, file) = (&bed.zfs, &bed.file);
    let touch = SetAttrs { mtime: Some((5, 0)), touches: true, ..SetAttrs::default() };
    bed.mark(IMMUTABLE);
    bed.is_kept();
    assert_eq!(write(zfs, file, 4), Err(ZplError::NotPermitted));
    assert_eq!(zfs.allocate(file, 0, 4, Allocate::Zero), Err(ZplError::NotPermitted));
    assert_eq!(zfs.set_attrs(file, &touch), Err(ZplError::NotPermitted));
    bed.mark(APPENDONLY);
    bed.is_kept();
    assert_eq!(write(zfs, file, 4), Ok(4), "it can be appended to");
    assert_eq!(zfs.set_attrs(file, &touch), Ok(()), "and touched");
    // DOS's mark is for programs that look at it; OpenZFS on Linux writes all the same.
    bed.mark(READONLY);
    assert_eq!(write(zfs, file, 0), Ok(4));
    bed.mark(0);
    assert_eq!(zfs.unlink(&bed.root, b"f"), Ok(()));
}

/// What is not kept must not seem to be.
#[test]
fn flags_without_a_meaning_here_are_refused() {
    let bed = bed();
    let set = |set: u64| bed.zfs.change_flags(&bed.file, FlagChange { mask: set, set, project: None });
    assert_eq!(set(REPARSE), Err(ZplError::NotPermitted));
    assert_eq!(set(PROJINHERIT), Err(ZplError::NotSupported), "no projects are counted");
    let moved = FlagChange { project: Some(7), ..FlagChange::default() };
    assert_eq!(bed.zfs.change_flags(&bed.file, moved), Err(ZplError::NotSupported), "so it can't get another");
}

/// When this fails, files leave the quota of their project without anybody noticing, or are charged to the wrong one.
#[test]
fn a_project_is_handed_on_and_nothing_of_another_comes_in() {
    let bed = bed();
    let (zfs, root) = (&bed.zfs, &bed.root);
    zfs.set_settings(Settings { project_quota: true, xattr_sa: false, ..zfs.settings() });
    let folder = zfs.create_node(root, b"folder", &NewNode { mode: 0o040_755, ..NewNode::default() }).expect("a folder");
    let file = zfs.create_node(root, b"other", &NewNode { mode: 0o100_644, ..NewNode::default() }).expect("a file");
    zfs.change_flags(&folder, FlagChange { mask: PROJINHERIT, set: PROJINHERIT, project: Some(7) }).expect("it has a project");
    let inside = zfs.create_node(&folder, b"inside", &NewNode { mode: 0o100_644, ..NewNode::default() }).expect("a file in it");
    assert_eq!((folder.fields().project, inside.fields().project, file.fields().project), (7, 7, 0));
    let (from, to) = (Place { directory: root, name: b"other" }, Place { directory: &folder, name: b"other" });
    assert_eq!(zfs.link(&file, &folder, b"link"), Err(ZplError::CrossDevice));
    assert_eq!(zfs.rename(from, to, RenameMode::Replace), Err(ZplError::CrossDevice));
    // Extended attributes that are files go with their file.
    zfs.set_xattr(&file, b"user.a", &[1; 4096], SetMode::Any).expect("an attribute");
    zfs.change_flags(&file, FlagChange { project: Some(7), ..FlagChange::default() }).expect("it moves");
    let attributes = zfs.node(ondisk::ObjectId(file.fields().xattr)).expect("their directory");
    assert_eq!((file.fields().project, attributes.fields().project), (7, 7));
    assert_eq!(zfs.link(&file, &folder, b"link"), Ok(()));
    assert_eq!(zfs.rename(from, to, RenameMode::Replace), Ok(()));
    // It is on disk.
    assert_eq!(zfs.attribute(&file, zpl::Attr::Projid), Some(7));
}

/// When this fails, the files of file systems that are older than projects stay out of every project, or are charged to a number that is none.
#[test]
fn an_older_file_gets_a_number_with_its_first_project() {
    let bed = bed();
    let (zfs, file) = (&bed.zfs, &bed.file);
    zfs.set_xattr(file, b"user.a", &[1; 200], SetMode::Any).expect("an attribute behind the place of the number");
    let before = zfs.list_xattrs(file);
    zfs.set_settings(Settings { project_quota: true, ..zfs.settings() });
    assert_eq!(zfs.attribute(file, zpl::Attr::Projid), None);
    zfs.change_flags(file, FlagChange { project: Some(7), ..FlagChange::default() }).expect("its first");
    assert_eq!((file.fields().project, zfs.attribute(file, zpl::Attr::Projid)), (7, Some(7)));
    assert_eq!((zfs.list_xattrs(file), zfs.get_xattr(file, b"user.a")), (before, Ok(vec![1; 200])));
    // Where the accounts of all systems look: behind the header of 8 bytes and the number of links.
    let bonus = bed.pool.objset.hold(file.object()).expect("the object").bonus().expect("its attributes").to_vec();
    let header = usize::from(u16::from_le_bytes([bonus[4], bonus[5]]) >> 10) * 8;
    assert_eq!(bonus[header + 128..header + 136], 7u64.to_le_bytes());
    let folder = zfs.create_node(&bed.root, b"folder", &NewNode { mode: 0o040_755, ..NewNode::default() }).expect("a folder");
    zfs.set_settings(Settings { project_quota: false, ..zfs.settings() });
    let old = zfs.create_node(&folder, b"old", &NewNode { mode: 0o040_755, ..NewNode::default() }).expect("an older folder");
    zfs.set_settings(Settings { project_quota: true, ..zfs.settings() });
    zfs.change_flags(&old, FlagChange { mask: PROJINHERIT, set: PROJINHERIT, project: None }).expect("it hands on what it has");
    assert_eq!((old.fields().flags & PROJINHERIT != 0, zfs.attribute(&old, zpl::Attr::Projid)), (true, Some(0)));
}

/// When this fails, who looks how much room a project has left is told of the whole pool's.
#[test]
fn a_directory_of_a_project_shows_what_the_project_may_use() {
    let bed = bed();
    let zfs = &bed.zfs;
    zfs.set_settings(Settings { project_quota: true, ..zfs.settings() });
    let folder = zfs.create_node(&bed.root, b"folder", &NewNode { mode: 0o040_755, ..NewNode::default() }).expect("a folder");
    zfs.change_flags(&folder, FlagChange { mask: PROJINHERIT, set: PROJINHERIT, project: Some(7) }).expect("it has a project");
    let handler = ZplFuse::new(zfs.clone(), None);
    let shown = |node: NodeId| handler.statfs(&Caller::default(), node).map(|stat| (stat.blocks, stat.bavail, stat.files, stat.ffree));
    let id = NodeId(folder.object().0);
    assert_eq!(shown(id), shown(NodeId::ROOT), "without a limit");
    let tx = bed.pool.txgs.assign(0).expect("a transaction");
    for (kind, limit) in [("projectquota", 100 << 20), ("projectobjquota", 100)] {
        zpl::userspace::set(zfs.objset(), kind, 7, limit, &tx).expect("set");
    }
    drop(tx);
    assert_eq!(shown(id), Ok((204_800, 204_800, 100, 100)));
    assert_ne!(shown(NodeId::ROOT), shown(id), "elsewhere all is seen");
}

/// When this fails, copies of files that were zeroed through mappings or writes have no holes, as OpenZFS's have.
#[test]
fn blocks_of_zeros_are_holes_before_they_are_synced() {
    let bed = bed();
    let (zfs, file) = (&bed.zfs, &bed.file);
    let block = 128 << 10;
    zfs.objset().set_props(ObjsetProps { compression: ondisk::Compression::OFF, ..ObjsetProps::default() });
    let write = |at: u64, byte: u8| {
        let data = Abd::from_slice(&vec![byte; block as usize]);
        zfs.write(file, WriteData { offset: at * block, data, may_keep: true, kill_suid: false, synchronous: false }).expect("written")
    };
    for (at, byte) in [(0, 1), (1, 1), (2, 1), (3, 1), (1, 0)] {
        assert_eq!(write(at, byte), block);
    }
    assert_eq!((zfs.seek_hole(file, 0), zfs.seek_data(file, block)), (Ok(4 * block), Ok(block)), "without compression zeros are stored");
    zfs.objset().set_props(ObjsetProps { compression: ondisk::Compression::LZ4, ..ObjsetProps::default() });
    assert_eq!((zfs.seek_hole(file, 0), zfs.seek_data(file, block)), (Ok(block), Ok(2 * block)));
    assert_eq!(zfs.seek_hole(file, 2 * block), Ok(4 * block));
}

/// When this fails, other systems do not see attributes that were set for them, or an old value comes back.
#[test]
fn attributes_of_users_are_stored_for_other_systems_where_that_is_asked_for() {
    let bed = bed();
    let (zfs, file) = (&bed.zfs, &bed.file);
    let stored = || {
        let list = zfs.sa_xattrs(file).expect("read").map(|(_, list)| list);
        list.map(|list| list.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>()).unwrap_or_default()
    };
    for (is_compatible, expected) in [(false, "user.a"), (true, "a"), (false, "user.a")] {
        zpl::set_xattr_compat(is_compatible);
        assert_eq!(zfs.set_xattr(file, b"user.a", expected.as_bytes(), SetMode::Any), Ok(()));
        assert_eq!(stored(), [expected], "one spelling");
        assert_eq!(zfs.get_xattr(file, b"user.a"), Ok(expected.as_bytes().to_vec()));
        assert_eq!(zfs.list_xattrs(file), Ok(vec![b"user.a".to_vec()]));
        assert_eq!(zfs.set_xattr(file, b"user.a", b"", SetMode::Create), Err(ZplError::Exists));
    }
    zpl::set_xattr_compat(true);
    let removed = zfs.remove_xattr(file, b"user.a");
    zpl::set_xattr_compat(false);
    assert_eq!((removed, stored().is_empty()), (Ok(()), true));
}

#[test]
fn a_whiteout_takes_the_old_name() {
    let bed = bed();
    let (zfs, root) = (&bed.zfs, &bed.root);
    let (from, to) = (Place { directory: root, name: b"f" }, Place { directory: root, name: b"g" });
    let whiteout = NewNode { mode: 0o020_000, uid: 7, gid: 8, ..NewNode::default() };
    assert_eq!(zfs.rename_leaving(from, to, RenameMode::Exchange, Some(&whiteout)), Err(ZplError::Invalid));
    zfs.rename_leaving(from, to, RenameMode::Replace, Some(&whiteout)).expect("renamed");
    let left = zfs.lookup(root, b"f").expect("something is there").fields();
    assert_eq!((left.mode, left.rdev, left.uid, left.gid, left.links), (0o020_000, 0, 7, 8, 1));
    let moved = zfs.lookup(root, b"g").expect("moved");
    assert!(zfs.read(&moved, 0, 9).expect("read") == Abd::from_slice(b"new!"));
    assert_eq!(root.fields().size, 4, "the root has two names more than its own");
}

#[test]
fn long_names_are_made_where_they_may_be_and_found_everywhere() {
    let bed = bed();
    let (zfs, root) = (&bed.zfs, &bed.root);
    let long = [b'a'; 1024];
    let make = |bytes: usize| zfs.create_node(root, &long[..bytes], &NewNode { mode: 0o100_644, ..NewNode::default() }).map(drop);
    let rename = |from: usize, to: usize| {
        let (from, to) = (Place { directory: root, name: &long[..from] }, Place { directory: root, name: &long[..to] });
        zfs.rename(from, to, RenameMode::Replace)
    };
    assert_eq!(make(255), Ok(()));
    assert_eq!(make(256), Err(ZplError::NameTooLong));
    assert_eq!(zfs.lookup(root, &long[..256]).map(drop), Err(ZplError::NameTooLong));
    assert!(!zfs.objset().has_long_names());
    zfs.set_settings(Settings { longname: true, ..zfs.settings() });
    assert_eq!(make(256), Ok(()));
    assert_eq!(make(1023), Ok(()));
    assert_eq!(make(1024), Err(ZplError::NameTooLong));
    assert_eq!(zfs.lookup(root, &long[..300]).map(drop), Err(ZplError::NotFound));
    assert!(zfs.objset().has_long_names());
    zfs.set_settings(Settings { longname: false, ..zfs.settings() });
    let mut listed = Vec::new();
    let list = zfs.list(root, 0, &mut |entry| {
        listed.push(entry.name.len());
        true
    });
    assert_eq!(list, Ok(()));
    assert!(listed.contains(&1023) && listed.contains(&256), "{listed:?}");
    assert_eq!(zfs.lookup(root, &long[..1023]).map(drop), Ok(()));
    assert_eq!(rename(255, 257), Err(ZplError::NameTooLong));
    assert_eq!(rename(1023, 3), Ok(()), "it gets a shorter one");
    assert_eq!(zfs.unlink(root, &long[..256]), Ok(()));
}

/// Somebody who switched them off must neither see nor lose what is there.
#[test]
fn attributes_of_users_can_be_switched_off() {
    let bed = bed();
    let (zfs, file) = (&bed.zfs, &bed.file);
    assert_eq!(zfs.set_xattr(file, b"user.a", b"1", SetMode::Any), Ok(()));
    zfs.set_settings(Settings { user_xattrs: false, ..zfs.settings() });
    assert_eq!(zfs.get_xattr(file, b"user.a"), Err(ZplError::NotSupported));
    assert_eq!(zfs.set_xattr(file, b"user.a", b"2", SetMode::Any), Err(ZplError::NotSupported));
    assert_eq!(zfs.remove_xattr(file, b"user.a"), Err(ZplError::NotSupported));
    assert_eq!(zfs.set_xattr(file, b"trusted.b", b"2", SetMode::Any), Ok(()));
    assert_eq!(zfs.list_xattrs(file), Ok(vec![b"trusted.b".to_vec()]));
    zfs.set_settings(Settings { user_xattrs: true, ..zfs.settings() });
    assert_eq!(zfs.get_xattr(file, b"user.a"), Ok(b"1".to_vec()));
}

/// If this fails, everybody hears which attributes of the administrator a file has (overlays, container runtimes, backup marks).
#[test]
fn names_of_the_administrators_attributes_are_the_administrators() {
    let bed = bed();
    for name in [b"trusted.b".as_slice(), b"user.a", b"security.c"] {
        assert_eq!(bed.zfs.set_xattr(&bed.file, name, b"1", SetMode::Any), Ok(()));
    }
    let handler = ZplFuse::new(bed.zfs.clone(), None);
    let entry = handler.lookup(&Caller::default(), NodeId::ROOT, b"f").expect("it is there");
    let names = |uid| {
        let list = handler.listxattr(&Caller { uid, ..Caller::default() }, entry.node).expect("listed");
        let mut names: Vec<String> = String::from_utf8(list).expect("text").split_terminator('\0').map(String::from).collect();
        names.sort();
        names
    };
    assert_eq!(names(0), ["security.c", "trusted.b", "user.a"]);
    assert_eq!(names(7), ["security.c", "user.a"]);
}

/// If this fails, somebody sets a list that nobody keeps to, or a new file is open to whom nobody let in: the kernel applied the umask already, or left
/// that to us.
#[test]
fn lists_count_where_the_kernel_keeps_to_them() {
    const DEFAULT: &[u8] = b"system.posix_acl_default";
    // u::rwx,g::rwx,o::rwx, which says that no umask counts.
    let value: Vec<u8> =
        [2u32, 0x0007_0001, u32::MAX, 0x0007_0004, u32::MAX, 0x0007_0020, u32::MAX].iter().flat_map(|word| word.to_le_bytes()).collect();
    let set = SetXattr { name: DEFAULT, value: &value, flags: 0, kill_sgid: false };
    let new = fuse::NewNode { mode: 0o100_666, umask: 0o027, ..fuse::NewNode::default() };
    for is_kept in [false, true] {
        let bed = bed();
        let zfs = &bed.zfs;
        zfs.set_settings(Settings { posix_acl: true, ..zfs.settings() });
        let (handler, caller) = (ZplFuse::new(zfs.clone(), None).with_lists(is_kept), Caller::default());
        let mode = |name: &[u8]| handler.mknod(&caller, NodeId::ROOT, name, &new).map(|entry| entry.attr.mode);
        assert_eq!(mode(b"before"), Ok(if is_kept { 0o100_640 } else { 0o100_666 }));
        assert_eq!(handler.setxattr(&caller, NodeId::ROOT, &set), if is_kept { Ok(()) } else { Err(Errno::EOPNOTSUPP) });
        assert_eq!(mode(b"after"), Ok(0o100_666));
        // The property is set while files are open: nobody is shown a list to which the kernel does not keep.
        zfs.set_settings(Settings { posix_acl: true, ..zfs.settings() });
        handler.set_settings(zfs.settings());
        assert_eq!(zfs.settings().posix_acl, is_kept);
        assert_eq!(handler.getxattr(&caller, NodeId::ROOT, DEFAULT), if is_kept { Ok(value.clone()) } else { Err(Errno::EOPNOTSUPP) });
        // What the kernel asks as long as the mount lasts.
        handler.set_settings(Settings { posix_acl: false, ..zfs.settings() });
        assert_eq!(zfs.settings().posix_acl, is_kept);
        assert_eq!(handler.getxattr(&caller, NodeId::ROOT, DEFAULT), if is_kept { Ok(value.clone()) } else { Err(Errno::EOPNOTSUPP) });
        assert_eq!(handler.removexattr(&caller, NodeId::ROOT, DEFAULT), if is_kept { Ok(()) } else { Err(Errno::EOPNOTSUPP) });
    }
}

/// Listing that takes what it is given.
struct Taken;

impl DirSink for Taken {
    fn add(&mut self, _: DirEntry<'_>) -> bool {
        true
    }
    fn fits(&self, _: &[u8]) -> bool {
        true
    }
    fn add_plus(&mut self, _: DirEntry<'_>, _: &Entry) -> bool {
        true
    }
}

/// If this fails, each look into a directory is asked for anew, or whoever wants attributes of a listing that is kept asks for each alone; or the
/// root goes on to list `.zfs` when it is hidden, or looks leave no time where they are to.
#[test]
fn directories_are_listed_from_what_the_kernel_kept_for_a_while() {
    let bed = bed();
    let (zfs, exec) = (&bed.zfs, bed.pool.io.exec_of());
    let (handler, caller) = (ZplFuse::new(zfs.clone(), None), Caller::default());
    let folder =
        handler.mkdir(&caller, NodeId::ROOT, b"folder", &fuse::NewNode { mode: 0o040_755, ..fuse::NewNode::default() }).expect("made").node;
    let opened = |node| handler.opendir(&caller, node, 0).map(|opened| (opened.cache_dir, opened.keep_cache)).expect("opened");
    let list = |node, plus| match plus {
        true => handler.readdirplus(&caller, node, FileHandle(0), 0, &mut Taken).expect("listed"),
        false => handler.readdir(&caller, node, FileHandle(0), 0, &mut Taken).expect("listed"),
    };
    list(folder, false);
    assert_eq!(opened(folder), (true, false), "names that came without attributes are asked for with them");
    list(folder, true);
    list(NodeId::ROOT, true);
    assert_eq!((opened(folder), opened(NodeId::ROOT)), ((true, true), (false, false)));
    exec.sleep_ns(31_000_000_000);
    assert_eq!(opened(folder), (true, false), "after a while they are asked for with attributes again");
    handler.mkdir(&caller, folder, b"inner", &fuse::NewNode { mode: 0o040_755, ..fuse::NewNode::default() }).expect("made");
    list(folder, true);
    assert_eq!(opened(folder), (true, false), "attributes that the next sync changes are asked for with the next listing");
    bed.pool.sync().expect("synced");
    list(folder, true);
    assert_eq!(opened(folder), (true, true), "they are settled");
    zfs.set_settings(Settings { relatime: false, ..zfs.settings() });
    assert_eq!(opened(folder), (false, false), "each look leaves its time");
}

/// If this fails, who asked for the time of each read (`relatime=off`) has that of the first one only; or everybody's files are read anew each time
/// that they are opened.
#[test]
fn files_are_read_anew_where_each_read_leaves_its_time() {
    let bed = bed();
    let zfs = &bed.zfs;
    let (handler, caller) = (ZplFuse::new(zfs.clone(), None), Caller::default());
    let new = fuse::NewNode { mode: 0o644, ..fuse::NewNode::default() };
    let (entry, _) = handler.create(&caller, NodeId::ROOT, b"file", &new, 0).expect("made");
    let keeps = |atime: bool, relatime: bool, read_only: bool| {
        zfs.set_settings(Settings { atime, relatime, read_only, ..zfs.settings() });
        handler.open(&caller, entry.node, 0).expect("opened").keep_cache
    };
    assert!(keeps(true, true, false));
    assert!(!keeps(true, false, false));
    assert!(keeps(false, false, false));
    assert!(keeps(true, false, true));
    let passes = |relatime: bool, flags: u32| {
        zfs.set_settings(Settings { atime: true, relatime, read_only: false, ..zfs.settings() });
        handler.open(&caller, entry.node, flags).expect("opened").direct_io
    };
    assert!(passes(false, 0), "of reads of an empty file the kernel says nothing by itself");
    assert!(!passes(true, 0) && !passes(false, 2));
}
