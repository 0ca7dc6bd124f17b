//! Mounts the in-memory file system for real and uses it through the kernel. Where `/dev/fuse` cannot be used (a container
//! without the device) the tests say so and check nothing.

#[path = "../examples/memfs/fs.rs"]
mod fs;

use exec::{Condvar, Mutex};
use fuse::{
    Caller, DirSink, Entry, Errno, FileAttr, FileHandle, Handler, Lane, NodeId, Opened, ReadRequest, Readers, Reply, Session, Uring,
};
use need::Need;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

struct Mounted {
    session: Option<fuse::Session>,
    at: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.session.take());
        let _ = std::fs::remove_dir(&self.at);
    }
}

fn mount(name: &str) -> Option<Mounted> {
    mount_by(name, Uring::Off)
}

fn mount_by(name: &str, uring: Uring) -> Option<Mounted> {
    let readers = Readers::new(&(Arc::new(exec::Pool::new(1)) as exec::Exec)).expect("a set of readers");
    mount_on(&readers, Arc::new(fs::MemFs::new()), name, uring)
}

/// Ways on which requests come: all of which there are.
fn ways() -> Vec<Uring> {
    let has_rings = fuse::uring_is_offered();
    if !has_rings {
        need::missing(Need::Rings, "mounts whose requests come through io_uring", "enable_uring is off, or not there").unwrap();
    }
    if has_rings { vec![Uring::Off, Uring::Auto] } else { vec![Uring::Off] }
}

/// Mounts that are the same but for the way on which requests come, one after the other.
fn mounts(name: &str) -> impl Iterator<Item = Mounted> {
    ways().into_iter().filter_map(move |uring| mount_by(name, uring))
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|index| (index as u8).wrapping_mul(31).wrapping_add((index >> 9) as u8) ^ seed).collect()
}

fn exercise_data(at: &Path) {
    let path = at.join("data");
    let bytes = pattern((5 << 20) + 777, 3);
    File::create(&path).and_then(|mut file| file.write_all(&bytes)).expect("a file is written");
    assert_eq!(std::fs::read(&path).expect("it is read back"), bytes, "what was written is lost or altered");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("reopened");
    file.write_all_at(b"overwritten", 1_048_570).expect("an unaligned write across a chunk");
    let mut middle = [0; 11];
    file.read_exact_at(&mut middle, 1_048_570).expect("read");
    assert_eq!(&middle, b"overwritten");
    file.set_len(100).expect("truncate");
    assert_eq!(std::fs::read(&path).expect("read"), &bytes[..100]);
    file.set_len(3 << 20).expect("extend");
    let mut zeros = vec![1; 4096];
    file.read_exact_at(&mut zeros, 2 << 20).expect("read");
    assert!(zeros.iter().all(|byte| *byte == 0), "an extended file shows old bytes");
    file.sync_all().expect("fsync");
    let mut seeker = File::open(&path).expect("open");
    assert_eq!(seeker.seek(SeekFrom::End(0)).expect("seek"), 3 << 20);
}

#[test]
fn files_hold_what_was_written() {
    for mounted in mounts("data") {
        exercise_data(&mounted.at);
        let direct = mounted.at.join("direct");
        let bytes = pattern(3 << 20, 9);
        // Program buffers of any alignment must work with O_DIRECT: databases and object stores refuse to start otherwise.
        let mut file = OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_DIRECT).open(&direct).expect("O_DIRECT open");
        file.write_all(&bytes[..1000]).and_then(|()| file.write_all(&bytes[1000..])).expect("unaligned O_DIRECT writes");
        let mut back = Vec::new();
        OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(&direct)
            .and_then(|mut file| file.read_to_end(&mut back))
            .expect("unaligned O_DIRECT reads");
        assert!(back == bytes, "direct I/O lost bytes");
    }
}

#[test]
fn names_links_and_listing_behave() {
    for mounted in mounts("names") {
        let at = &mounted.at;
        std::fs::create_dir(at.join("d")).expect("mkdir");
        for index in 0..3000 {
            File::create(at.join(format!("d/file-with-a-longer-name-{index}"))).expect("create");
        }
        let mut listed: Vec<_> = std::fs::read_dir(at.join("d")).expect("opendir").map(|entry| entry.expect("entry").file_name()).collect();
        listed.sort();
        listed.dedup();
        assert_eq!(listed.len(), 3000, "a listing over several replies lost or doubled names");
        std::fs::hard_link(at.join("d/file-with-a-longer-name-1"), at.join("hard")).expect("link");
        let (one, two) = (std::fs::metadata(at.join("hard")), std::fs::metadata(at.join("d/file-with-a-longer-name-1")));
        assert_eq!(one.expect("stat").ino(), two.expect("stat").ino(), "hard links are one inode");
        std::os::unix::fs::symlink("d/../hard", at.join("soft")).expect("symlink");
        assert_eq!(std::fs::read_link(at.join("soft")).expect("readlink"), Path::new("d/../hard"));
        std::fs::rename(at.join("hard"), at.join("moved")).expect("rename");
        assert!(std::fs::metadata(at.join("soft")).is_err(), "the old name is still there after a rename");
        assert_eq!(std::fs::remove_dir(at.join("d")).expect_err("not empty").raw_os_error(), Some(libc::ENOTEMPTY));
        let path = CString::new(at.join("pipe").as_os_str().as_encoded_bytes()).expect("no zero byte");
        rustix::fs::mknodat(rustix::fs::CWD, path.as_c_str(), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("mknod");
        let statistics = rustix::fs::statvfs(at.as_path()).expect("statfs");
        assert_eq!(statistics.f_namemax, 255);
    }
}

#[test]
fn attributes_travel_both_ways() {
    for mounted in mounts("attr") {
        let path = mounted.at.join("file");
        std::fs::write(&path, b"x").expect("write");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("chmod");
        assert_eq!(std::fs::metadata(&path).expect("stat").mode() & 0o7777, 0o640);
        let before_epoch = rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec { tv_sec: -5, tv_nsec: 7 },
            last_modification: rustix::fs::Timespec { tv_sec: 1 << 33, tv_nsec: 9 },
        };
        rustix::fs::utimensat(rustix::fs::CWD, path.as_path(), &before_epoch, rustix::fs::AtFlags::empty()).expect("utimensat");
        let stat = std::fs::metadata(&path).expect("stat");
        assert_eq!(
            (stat.atime(), stat.atime_nsec(), stat.mtime(), stat.mtime_nsec()),
            (-5, 7, 1 << 33, 9),
            "times outside 1970..2106 are lost"
        );
        let value = vec![7u8; 5000];
        rustix::fs::setxattr(path.as_path(), c"user.note", &value, rustix::fs::XattrFlags::CREATE).expect("setxattr");
        let mut room = vec![0u8; 8192];
        let length = rustix::fs::getxattr(path.as_path(), c"user.note", &mut room).expect("getxattr");
        assert_eq!(&room[..length], &value[..]);
        let length = rustix::fs::listxattr(path.as_path(), &mut room).expect("listxattr");
        assert_eq!(&room[..length], b"user.note\0");
        assert_eq!(rustix::fs::getxattr(path.as_path(), c"user.none", &mut room).expect_err("absent"), rustix::io::Errno::NODATA);
    }
}

#[test]
fn an_unmount_waits_for_open_files_unless_lazy() {
    for mounted in mounts("unmount") {
        let file = File::create(mounted.at.join("open")).expect("create");
        let session = mounted.session.as_ref().expect("mounted");
        assert_eq!(session.unmount(false), Err(fuse::Errno::EBUSY), "an unmount pulled the rug from under an open file");
        drop(file);
        session.unmount(true).expect("a lazy unmount");
        session.join();
        assert!(!session.is_alive());
    }
}

/// Directory in which a lookup of a name that begins with `wait` lasts until it is let go.
struct Waiting {
    let_go: Mutex<bool>,
    changed: Condvar,
    waiting: AtomicUsize,
    told: AtomicBool,
}

impl Waiting {
    fn new() -> Arc<Waiting> {
        let (let_go, changed) = (Mutex::new(false), Condvar::new());
        Arc::new(Waiting { let_go, changed, waiting: AtomicUsize::new(0), told: AtomicBool::new(false) })
    }

    /// Has all lookups end.
    fn let_go(&self) {
        *self.let_go.lock() = true;
        self.changed.notify_all();
    }
}

fn directory() -> FileAttr {
    FileAttr { ino: 1, mode: 0o040_755, nlink: 2, ..FileAttr::default() }
}

impl Handler for Waiting {
    fn destroy(&self) {
        self.told.store(true, Ordering::SeqCst);
    }
    fn lookup(&self, _: &Caller, _: NodeId, name: &[u8]) -> Reply<Entry> {
        if name.starts_with(b"wait") {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let mut let_go = self.let_go.lock();
            while !*let_go {
                self.changed.wait(&mut let_go);
            }
        }
        Err(Errno::ENOENT)
    }
    fn getattr(&self, _: &Caller, _: NodeId, _: Option<FileHandle>) -> Reply<(FileAttr, Duration)> {
        Ok((directory(), Duration::ZERO))
    }
    fn open(&self, _: &Caller, _: NodeId, _: u32) -> Reply<Opened> {
        Err(Errno::EIO)
    }
    fn read(&self, _: &Caller, _: &ReadRequest) -> Reply<abd::Abd> {
        Err(Errno::EIO)
    }
    fn readdir(&self, _: &Caller, _: NodeId, _: FileHandle, _: u64, _: &mut dyn DirSink) -> Reply<()> {
        Ok(())
    }
}

fn mount_on(readers: &Readers, handler: Arc<dyn Handler>, name: &str, uring: Uring) -> Option<Mounted> {
    let at = std::env::temp_dir().join(format!("zirconia-fuse-{name}-{uring:?}-{}", std::process::id()));
    std::fs::create_dir_all(&at).expect("the temporary folder is writable");
    // Many of them have memory for seats at once.
    let max_write = if uring == Uring::Off { 1 << 20 } else { 128 << 10 };
    match Session::mount_with(readers, handler, &at, &fuse::MountOptions { uring, max_write, ..fuse::MountOptions::default() }) {
        Ok(session) => {
            let wanted = uring != Uring::Off && fuse::uring_is_offered();
            assert_eq!(session.has_rings(), wanted, "requests come on another way than was asked for");
            Some(Mounted { session: Some(session), at })
        }
        Err(error) => {
            let _ = std::fs::remove_dir(&at);
            need::missing(Need::Fuse, &format!("a mount ({name})"), error).unwrap();
            None
        }
    }
}

/// A thousand file systems must not cost a thousand threads, and requests that wait must not keep others from being served, in
/// this mount or another, nor may the end of a mount come before they are answered.
#[test]
fn a_few_threads_serve_many_mounts_and_who_waits_holds_up_nobody() {
    ways().into_iter().for_each(serve_many);
}

fn serve_many(uring: Uring) {
    let exec: exec::Exec = Arc::new(exec::Pool::new(1));
    let readers = Readers::new(&exec).expect("a set of readers");
    let waiting = Waiting::new();
    let Some(slow) = mount_on(&readers, waiting.clone(), "slow", uring) else { return };
    let others: Vec<Mounted> =
        (0..40).map(|number| mount_on(&readers, Arc::new(fs::MemFs::new()), &format!("many{number}"), uring).expect("mounted")).collect();
    assert!(readers.threads() <= 3, "{readers:?}");
    let copy = pattern(200_000, 5);
    std::thread::scope(|scope| {
        for number in 0..6 {
            let name = slow.at.join(format!("wait{number}"));
            scope.spawn(move || assert!(std::fs::metadata(name).is_err()));
        }
        while waiting.waiting.load(Ordering::SeqCst) < 6 {
            exec.sleep_ns(1_000_000);
        }
        // Six threads wait. The mount itself and all others answer, several at once.
        assert!(std::fs::metadata(slow.at.join("other")).is_err());
        for mounted in &others {
            scope.spawn(|| {
                std::fs::write(mounted.at.join("file"), &copy).expect("written");
                assert!(std::fs::read(mounted.at.join("file")).expect("read") == copy);
            });
        }
        // An unmount of one does not disturb the rest, and a lazy one of the slow mount ends when its requests are answered.
        let session = slow.session.as_ref().expect("mounted");
        session.unmount(true).expect("detached");
        assert!(!waiting.told.load(Ordering::SeqCst) && !session.has_ended(), "told of the end while requests are served");
        waiting.let_go();
    });
    slow.session.as_ref().expect("mounted").join();
    assert!(waiting.told.load(Ordering::SeqCst));
    assert!(readers.threads() <= 16, "{readers:?}");
    drop((slow, others));
    while readers.threads() > 0 {
        exec.sleep_ns(1_000_000);
    }
    // The set serves again.
    let again = mount_on(&readers, Arc::new(fs::MemFs::new()), "again", uring).expect("mounted");
    std::fs::write(again.at.join("file"), b"x").expect("written");
}

/// The directory of [`Waiting`] in lanes: two of lookups that last, by the last letter of the name, and one of all else.
struct Laned {
    waiting: Arc<Waiting>,
    lanes: [Arc<Lane>; 3],
    /// Number of lookups that last, of which somebody asked for the lane: they were read.
    read: AtomicUsize,
}

impl Handler for Laned {
    fn lane(&self, _: NodeId, name: &[u8]) -> Option<Arc<Lane>> {
        let lane = match name {
            [b'w', .., b'a'] => 0,
            [b'w', .., b'b'] => 1,
            _ => 2,
        };
        self.read.fetch_add(usize::from(lane < 2), Ordering::SeqCst);
        Some(self.lanes[lane].clone())
    }
    fn lookup(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Reply<Entry> {
        self.waiting.lookup(caller, parent, name)
    }
    fn getattr(&self, caller: &Caller, node: NodeId, handle: Option<FileHandle>) -> Reply<(FileAttr, Duration)> {
        self.waiting.getattr(caller, node, handle)
    }
    fn open(&self, caller: &Caller, node: NodeId, flags: u32) -> Reply<Opened> {
        self.waiting.open(caller, node, flags)
    }
    fn read(&self, caller: &Caller, request: &ReadRequest) -> Reply<abd::Abd> {
        self.waiting.read(caller, request)
    }
    fn readdir(&self, caller: &Caller, node: NodeId, handle: FileHandle, offset: u64, sink: &mut dyn DirSink) -> Reply<()> {
        self.waiting.readdir(caller, node, handle, offset, sink)
    }
}

/// Requests that wait for two suspended pools, more than there are threads, would hold up those of every other pool below the mount; and requests that
/// were handed to other threads would never be answered.
#[test]
fn requests_that_wait_in_some_lanes_hold_up_no_other() {
    let exec: exec::Exec = Arc::new(exec::Pool::new(1));
    let readers = Readers::new(&exec).expect("a set of readers");
    let waiting = Waiting::new();
    let lanes = [(); 3].map(|()| Lane::new(&exec));
    let handler = Arc::new(Laned { waiting: waiting.clone(), lanes, read: AtomicUsize::new(0) });
    let Some(mounted) = mount_on(&readers, handler.clone(), "lanes", Uring::Off) else { return };
    std::thread::scope(|scope| {
        for name in (0..30).flat_map(|number| [format!("wait{number}a"), format!("wait{number}b")]) {
            let path = mounted.at.join(name);
            scope.spawn(move || assert_eq!(std::fs::metadata(path).expect_err("nothing").kind(), std::io::ErrorKind::NotFound));
        }
        // All were read, though none is answered; all threads of the two lanes' own wait, and some of those who read: others may have had their places.
        while handler.read.load(Ordering::SeqCst) < 60 || waiting.waiting.load(Ordering::SeqCst) < 16 + 16 {
            exec.sleep_ns(1_000_000);
        }
        assert!(std::fs::metadata(mounted.at.join("other")).is_err());
        waiting.let_go();
    });
    assert!(waiting.waiting.load(Ordering::SeqCst) >= 60, "somebody was not asked");
    assert!(readers.threads() <= 16, "{readers:?}");
}

/// A forced unmount, an export, a stop would wait for as long as somebody has a file open.
#[test]
fn a_session_that_is_cut_ends_whatever_has_files_open() {
    for mounted in mounts("cut") {
        let mut file = File::create(mounted.at.join("open")).expect("create");
        let session = mounted.session.as_ref().expect("mounted");
        if need::lacks(Need::Root, "a_session_that_is_cut_ends_whatever_has_files_open").unwrap() {
            return;
        }
        session.cut().expect("root can abort a connection");
        assert!(session.wait_end(10_000_000_000), "it did not end");
        assert_eq!(file.write(b"x").map_err(|error| error.raw_os_error()), Err(Some(libc::ENOTCONN)));
        assert!(fuse::is_dead(&mounted.at));
        session.detach().expect("detached");
        assert!(!fuse::is_dead(&mounted.at));
    }
}

/// If this fails, whoever ends a mount of theirs (a daemon that stops, or is replaced) cuts off that of somebody else, which the kernel gave its number.
#[test]
fn a_mount_that_is_over_does_not_end_the_next_one_of_its_number() {
    let exec: exec::Exec = Arc::new(exec::Pool::new(1));
    let [ours, theirs] = [0, 1].map(|_| Readers::new(&exec).expect("a set of readers"));
    let fresh = |readers: &Readers, name: &str| mount_on(readers, Arc::new(fs::MemFs::new()), name, Uring::Off);
    // Other programs that mount something at this moment may get it.
    for _ in 0..100 {
        let Some(mut over) = fresh(&ours, "over") else { return };
        if need::lacks(Need::Root, "a_mount_that_is_over_does_not_end_the_next_one_of_its_number").unwrap() {
            return;
        }
        let session = over.session.take().expect("mounted");
        // Nobody reads that it is over.
        session.pause();
        rustix::mount::unmount(&over.at, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
        let next = fresh(&theirs, "next").expect("mounted");
        // Somebody else's is at its place, too.
        let covering = fresh(&theirs, "over").expect("mounted");
        let is_same = next.session.as_ref().expect("mounted").number() == session.number();
        assert!(!session.is_alive(), "it is believed to go on");
        session.cut().expect("nothing is to be done");
        let _ = session.detach();
        drop(session);
        for other in [&next, &covering] {
            assert!(std::fs::write(other.at.join("file"), b"x").is_ok(), "{} was cut off, or taken away", other.at.display());
            assert!(other.session.as_ref().expect("mounted").is_alive(), "{} was taken away", other.at.display());
        }
        if is_same {
            return;
        }
    }
    panic!("the kernel gave no number again");
}

/// The connections of mounts on block devices have other names: one that is cut by a wrong one goes on, and somebody else's ends.
#[test]
fn a_mount_on_a_block_device_is_cut_by_its_own_number() {
    let at = std::env::temp_dir().join(format!("zirconia-fuse-block-{}", std::process::id()));
    std::fs::create_dir_all(&at).expect("the temporary folder is writable");
    let exec: exec::Exec = Arc::new(exec::Pool::new(1));
    let options = fuse::MountOptions { forwards_sync: true, ..fuse::MountOptions::default() };
    let session = match Session::mount(&exec, Arc::new(fs::MemFs::new()), &at, &options) {
        Ok(session) => session,
        Err(error) => {
            let _ = std::fs::remove_dir(&at);
            need::missing(Need::Loops, "a mount on a block device", error).unwrap();
            return;
        }
    };
    assert_ne!(session.number().0, 0, "a block device has a major number");
    session.cut().expect("root can abort a connection");
    assert!(session.wait_end(10_000_000_000), "it did not end");
    assert!(fuse::is_dead(&at));
    session.detach().expect("detached");
    let _ = std::fs::remove_dir(&at);
}

/// A snapshot would not have what programs had written before it was taken.
#[test]
fn what_the_kernel_keeps_is_told_by_a_flush() {
    for uring in ways() {
        let at = std::env::temp_dir().join(format!("zirconia-fuse-back-{uring:?}-{}", std::process::id()));
        std::fs::create_dir_all(&at).expect("the temporary folder is writable");
        let exec: exec::Exec = Arc::new(exec::Pool::new(1));
        let options = fuse::MountOptions { writes_back: true, forwards_sync: true, uring, ..fuse::MountOptions::default() };
        let server = Arc::new(fs::MemFs::new());
        let session = match Session::mount(&exec, server.clone(), &at, &options) {
            Ok(session) => session,
            Err(error) => {
                let _ = std::fs::remove_dir(&at);
                need::missing(Need::Loops, "a mount with a write-back cache", error).unwrap();
                return;
            }
        };
        assert!(session.writes_back());
        let told = || server.lookup(&Caller::default(), NodeId::ROOT, b"kept").expect("the file is there").attr.size;
        let mut file = File::create(at.join("kept")).expect("create");
        for _ in 0..500 {
            file.write_all(&[7; 100]).expect("written");
        }
        assert_eq!(told(), 0, "each write was told at once: nothing is kept");
        session.flush().expect("flushed");
        assert_eq!(told(), 50_000);
        drop((file, session));
        let _ = std::fs::remove_dir(&at);
    }
}

/// Directory whose attributes the kernel may keep for an hour.
struct Kept;

impl Handler for Kept {
    fn lookup(&self, _: &Caller, _: NodeId, _: &[u8]) -> Reply<Entry> {
        Err(Errno::ENOENT)
    }
    fn getattr(&self, _: &Caller, _: NodeId, _: Option<FileHandle>) -> Reply<(FileAttr, Duration)> {
        Ok((directory(), Duration::from_secs(3600)))
    }
    fn open(&self, _: &Caller, _: NodeId, _: u32) -> Reply<Opened> {
        Err(Errno::EIO)
    }
    fn read(&self, _: &Caller, _: &ReadRequest) -> Reply<abd::Abd> {
        Err(Errno::EIO)
    }
    fn readdir(&self, _: &Caller, _: NodeId, _: FileHandle, _: u64, _: &mut dyn DirSink) -> Reply<()> {
        Ok(())
    }
}

/// A dead mount that is taken for one that lives is not replaced in one go: what programs write while mounts come one by one on top of it
/// lands in their parents, and is hidden by the next of them.
#[test]
fn a_dead_mount_is_known_while_its_attributes_are_cached() {
    let readers = Readers::new(&(Arc::new(exec::Pool::new(1)) as exec::Exec)).expect("a set of readers");
    let Some(mounted) = mount_on(&readers, Arc::new(Kept), "kept", Uring::Off) else { return };
    if need::lacks(Need::Root, "a_dead_mount_is_known_while_its_attributes_are_cached").unwrap() {
        return;
    }
    std::fs::symlink_metadata(&mounted.at).expect("its attributes, which the kernel keeps");
    assert!(!fuse::is_dead(&mounted.at));
    let session = mounted.session.as_ref().expect("mounted");
    session.cut().expect("root can abort a connection");
    assert!(session.wait_end(10_000_000_000), "it did not end");
    std::fs::symlink_metadata(&mounted.at).expect("the kernel still answers: this test is about that");
    assert!(fuse::is_dead(&mounted.at), "a dead mount was believed to live");
    session.detach().expect("detached");
    assert!(!fuse::is_dead(&mounted.at));
}

/// If this fails, what programs write at the place of a file system that is locked lands beneath it, in the clear.
#[test]
fn what_is_buried_is_dead_until_it_is_taken_away() {
    if need::lacks(Need::Root, "what_is_buried_is_dead_until_it_is_taken_away").unwrap() {
        return;
    }
    let at = std::env::temp_dir().join(format!("zirconia-fuse-buried-{}", std::process::id()));
    std::fs::create_dir_all(&at).expect("the temporary folder is writable");
    if let Err(error) = fuse::bury(&at, "tank/locked") {
        let _ = std::fs::remove_dir(&at);
        need::missing(Need::Fuse, "a mount without a server", error).unwrap();
        return;
    }
    assert!(fuse::is_dead(&at));
    let outcomes = [File::create(at.join("file")).map(drop), std::fs::create_dir(at.join("new")), std::fs::read_dir(&at).map(drop)];
    assert_eq!(outcomes.map(|outcome| outcome.err().and_then(|error| error.raw_os_error())), [Some(libc::ENOTCONN); 3]);
    let rows = fuse::MountTable::default().rows().expect("a table");
    let row = fuse::topmost(&rows, &at).expect("its row");
    assert_eq!((row.kind.as_str(), row.source.as_str()), ("fuse.zfs", "tank/locked"));
    assert!(fuse::clear_dead_mount(&at) && !fuse::is_dead(&at));
    assert_eq!(std::fs::read_dir(&at).expect("the directory beneath").count(), 0);
    let _ = std::fs::remove_dir(&at);
}

/// A second session for what somebody detached lazily would be a second cache of the same file system.
#[test]
fn what_was_detached_is_mounted_again_with_its_one_state() {
    let Some(mounted) = mount("again") else { return };
    if need::lacks(Need::Root, "what_was_detached_is_mounted_again_with_its_one_state").unwrap() {
        return;
    }
    let mut file = File::create(mounted.at.join("open")).expect("create");
    let session = mounted.session.as_ref().expect("mounted");
    session.unmount(true).expect("a lazy unmount");
    assert!(session.is_alive() && !mounted.at.join("open").exists());
    session.mount_again(&mounted.at, None, &fuse::MountOptions::default()).expect("the same superblock again");
    file.write_all(b"through the old descriptor").expect("written");
    assert_eq!(std::fs::read(mounted.at.join("open")).expect("read"), b"through the old descriptor");
    drop(file);
    session.remount(&fuse::MountOptions { read_only: true, ..fuse::MountOptions::default() }).expect("remount");
    assert_eq!(File::create(mounted.at.join("new")).map_err(|error| error.raw_os_error()).err(), Some(Some(libc::EROFS)));
}

/// If this fails, programs see errors, lose a write or do one twice while the daemon is upgraded.
#[test]
fn a_mount_goes_from_server_to_server_under_programs() {
    let Some(mut mounted) = mount("handed") else { return };
    let handler: Arc<dyn Handler> = Arc::new(fs::MemFs::new());
    let first = mounted.session.take().expect("mounted");
    // The file system that all of them serve.
    let exec: exec::Exec = Arc::new(exec::Pool::new(1));
    while !first.unmount(false).is_ok_and(|()| first.wait_end(1_000_000_000)) {
        exec.sleep_ns(1_000_000);
    }
    let readers = || Readers::new(&exec).expect("readers");
    let mut session =
        Session::mount_with(&readers(), handler.clone(), &mounted.at, &fuse::MountOptions::default()).expect("it was mounted just now");
    let stop = AtomicBool::new(false);
    let writes = |number: u32| {
        let path = mounted.at.join(format!("log{number}"));
        let mut file = OpenOptions::new().create_new(true).append(true).open(&path).expect("create");
        let mut count = 0u32;
        while !stop.load(Ordering::Relaxed) {
            writeln!(file, "{count}").expect("append");
            let other = path.with_extension("new");
            std::fs::create_dir(&other).and_then(|()| std::fs::remove_dir(&other)).expect("a directory comes and goes");
            count += 1;
        }
        let wanted: String = (0..count).map(|line| format!("{line}\n")).collect();
        assert_eq!(std::fs::read_to_string(&path).expect("read"), wanted, "a write was lost or done twice");
    };
    // A program that sees an error ends the test.
    std::thread::scope(|scope| {
        let writes = &writes;
        (0..3).for_each(|number| drop(scope.spawn(move || writes(number))));
        for _ in 0..30 {
            exec.sleep_ns(10_000_000);
            session.pause();
            while !session.is_quiet() {
                exec.sleep_ns(1_000_000);
            }
            let (connection, facts) = session.connection().expect("a descriptor");
            let next = Session::adopt(&readers(), handler.clone(), connection, facts).expect("adopted");
            // As the end of its process would.
            std::mem::forget(std::mem::replace(&mut session, next));
        }
        session.pause();
        session.resume().expect("it goes on when nobody takes it");
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(session.mountpoint(), std::fs::canonicalize(&mounted.at).expect("there"));
    mounted.session = Some(session);
}

/// Programs that outlive a server wrote into the directory beneath while its mount was replaced.
#[test]
fn a_new_mount_slides_beneath_a_dead_one() {
    let Some(dead) = mount("dead") else { return };
    if need::lacks(Need::Root, "a_new_mount_slides_beneath_a_dead_one").unwrap() {
        return;
    }
    let session = dead.session.as_ref().expect("mounted");
    let folder = std::env::temp_dir().join(format!("zirconia-fuse-stage-{}", std::process::id()));
    session.cut().expect("cut");
    assert!(session.wait_end(10_000_000_000));
    let place = dead.at.join("stray");
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (told, at) = (stop.clone(), place.clone());
    let exec: exec::Exec = Arc::new(exec::Pool::new(1));
    let write = move || {
        while !told.load(std::sync::atomic::Ordering::Relaxed) {
            let _ = File::create(&at);
        }
    };
    let writer = exec.spawn_operation("writer", Box::new(write));
    let stage = fuse::Stage::new(&folder).expect("a stage");
    let new = fuse::Session::mount(&exec, Arc::new(fs::MemFs::new()), &stage.tree(), &fuse::MountOptions::default()).expect("mounted");
    stage.slide(&dead.at).expect("slid");
    new.moved(&dead.at);
    assert!(!fuse::is_dead(&dead.at) && !folder.exists());
    while !place.exists() {
        exec.sleep_ns(1_000_000);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join();
    drop(new);
    assert!(!fuse::is_dead(&dead.at), "the dead mount stayed beneath");
    assert!(!place.exists(), "a file was written beneath the mounts");
}
