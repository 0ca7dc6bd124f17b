//! Mounts that outlive a server which dies in the middle of a request: the in-memory file system served by one server after the other. Where
//! `/dev/fuse` cannot be used the tests say so and check nothing.

#[path = "../examples/memfs/fs.rs"]
mod fs;

use exec::{Condvar, Mutex};
use fuse::{Caller, DirSink, Done, Entry, FileAttr, FileHandle, Handler, Lasting, NewNode, NodeId, Opened, ReadRequest, Readers};
use fuse::{RenameRequest, Reply, Session, SetAttr, SetXattr, Underway, WriteRequest};
use need::Need;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

/// Moment at which a server dies in the middle of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dies {
    Never,
    /// Before anything is done.
    Before,
    /// Death after it is done, and before it is answered.
    After,
}

/// State that servers of one file system share: what was done by which request.
struct Shared {
    fs: fs::MemFs,
    done: Mutex<HashMap<u64, Done>>,
    begun: Mutex<HashMap<ThreadId, u64>>,
    /// True when answers may be given, and the number of those that waited.
    settled: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Lasting for Shared {
    fn begin(&self, unique: u64) -> Underway {
        self.begun.lock().insert(std::thread::current().id(), unique);
        Box::new(())
    }
    fn done_before(&self, unique: u64) -> Option<Done> {
        self.done.lock().get(&unique).copied()
    }
    fn is_settled(&self) -> bool {
        self.settled.lock().0
    }
    fn wait_settled(&self) -> Reply<()> {
        let mut settled = self.settled.lock();
        settled.1 += 1;
        self.changed.notify_all();
        while !settled.0 {
            self.changed.wait(&mut settled);
        }
        Ok(())
    }
}

/// Server that dies.
struct Mortal {
    shared: Arc<Shared>,
    dies: Mutex<Dies>,
    /// Number of answers that the thread owes with which it died.
    has_died: Arc<(Mutex<Option<usize>>, Condvar)>,
}

impl Mortal {
    fn new(shared: &Arc<Shared>, dies: Dies) -> Arc<Mortal> {
        Arc::new(Mortal { shared: shared.clone(), dies: Mutex::new(dies), has_died: Arc::default() })
    }

    /// Does a change, or dies: a thread of a dead process never comes back.
    fn change<T>(&self, work: impl FnOnce(&fs::MemFs) -> Reply<T>, outcome: impl FnOnce(&T) -> Done) -> Reply<T> {
        self.change_owing(1, work, outcome)
    }

    /// Does a change whose answer may be given by another thread: that counts as one more.
    fn change_owing<T>(&self, owed: usize, work: impl FnOnce(&fs::MemFs) -> Reply<T>, outcome: impl FnOnce(&T) -> Done) -> Reply<T> {
        let dies = *self.dies.lock();
        if dies == Dies::Before {
            self.die(owed);
        }
        let unique = self.shared.begun.lock()[&std::thread::current().id()];
        let reply = work(&self.shared.fs)?;
        self.shared.done.lock().insert(unique, outcome(&reply));
        if dies == Dies::After {
            self.die(owed);
        }
        Ok(reply)
    }

    fn die(&self, owed: usize) -> ! {
        *self.has_died.0.lock() = Some(owed);
        self.has_died.1.notify_all();
        loop {
            std::thread::park();
        }
    }

    /// Waits until a thread has died, and gives the number of answers that it owes.
    fn wait_for_death(&self) -> usize {
        let mut has_died = self.has_died.0.lock();
        loop {
            if let Some(owed) = *has_died {
                return owed;
            }
            self.has_died.1.wait(&mut has_died);
        }
    }
}

fn made(entry: &Entry) -> Done {
    Done { node: entry.node, bytes: 0 }
}

const NOTHING: Done = Done { node: NodeId(0), bytes: 0 };

impl Handler for Mortal {
    fn lasting(&self) -> Option<Arc<dyn Lasting>> {
        Some(self.shared.clone())
    }
    fn refer(&self, _: &Caller, node: NodeId) -> Reply<Entry> {
        let (attr, ttl) = self.shared.fs.getattr(&Caller::default(), node, None)?;
        Ok(Entry { node, generation: 1, attr, attr_ttl: ttl, entry_ttl: ttl })
    }
    fn lookup(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Reply<Entry> {
        self.shared.fs.lookup(caller, parent, name)
    }
    fn getattr(&self, caller: &Caller, node: NodeId, handle: Option<FileHandle>) -> Reply<(FileAttr, Duration)> {
        self.shared.fs.getattr(caller, node, handle)
    }
    fn open(&self, caller: &Caller, node: NodeId, flags: u32) -> Reply<Opened> {
        self.shared.fs.open(caller, node, flags)
    }
    fn read(&self, caller: &Caller, request: &ReadRequest) -> Reply<abd::Abd> {
        self.shared.fs.read(caller, request)
    }
    fn readdir(&self, caller: &Caller, node: NodeId, handle: FileHandle, offset: u64, sink: &mut dyn DirSink) -> Reply<()> {
        self.shared.fs.readdir(caller, node, handle, offset, sink)
    }
    fn readdirplus(&self, caller: &Caller, node: NodeId, handle: FileHandle, offset: u64, sink: &mut dyn DirSink) -> Reply<()> {
        self.shared.fs.readdirplus(caller, node, handle, offset, sink)
    }
    fn mkdir(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode) -> Reply<Entry> {
        self.change(|fs| fs.mkdir(caller, parent, name, new), made)
    }
    fn create(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode, flags: u32) -> Reply<(Entry, Opened)> {
        self.change(|fs| fs.create(caller, parent, name, new, flags), |(entry, _)| made(entry))
    }
    fn symlink(&self, caller: &Caller, parent: NodeId, name: &[u8], target: &[u8]) -> Reply<Entry> {
        self.change(|fs| fs.symlink(caller, parent, name, target), made)
    }
    fn link(&self, caller: &Caller, node: NodeId, parent: NodeId, name: &[u8]) -> Reply<Entry> {
        self.change(|fs| fs.link(caller, node, parent, name), made)
    }
    fn unlink(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Reply<()> {
        self.change(|fs| fs.unlink(caller, parent, name), |()| NOTHING)
    }
    fn rmdir(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Reply<()> {
        self.change(|fs| fs.rmdir(caller, parent, name), |()| NOTHING)
    }
    fn rename(&self, caller: &Caller, request: &RenameRequest<'_>) -> Reply<()> {
        self.change(|fs| fs.rename(caller, request), |()| NOTHING)
    }
    fn setattr(&self, caller: &Caller, node: NodeId, set: &SetAttr) -> Reply<(FileAttr, Duration)> {
        self.change(|fs| fs.setattr(caller, node, set), |_| NOTHING)
    }
    fn setxattr(&self, caller: &Caller, node: NodeId, set: &SetXattr<'_>) -> Reply<()> {
        self.change(|fs| fs.setxattr(caller, node, set), |()| NOTHING)
    }
    fn getxattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> Reply<Vec<u8>> {
        self.shared.fs.getxattr(caller, node, name)
    }
    fn write(&self, caller: &Caller, request: WriteRequest) -> Reply<u32> {
        self.change_owing(2, |fs| fs.write(caller, request), |bytes| Done { node: NodeId(0), bytes: u64::from(*bytes) })
    }
}

/// Mount whose servers die, each in the middle of one request.
struct Lasts {
    shared: Arc<Shared>,
    exec: exec::Exec,
    at: PathBuf,
    server: Arc<Mortal>,
    session: Option<Session>,
}

impl Lasts {
    fn new(name: &str) -> Option<Lasts> {
        let (done, begun) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { fs: fs::MemFs::new(), done, begun, settled: Mutex::new((true, 0)), changed: Condvar::new() });
        let exec: exec::Exec = Arc::new(exec::Pool::new(1));
        let server = Mortal::new(&shared, Dies::Never);
        let at = std::env::temp_dir().join(format!("zirconia-fuse-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&at).expect("the temporary folder is writable");
        match Session::mount(&exec, server.clone(), &at, &fuse::MountOptions::default()) {
            Ok(session) => Some(Lasts { shared, exec, at, server, session: Some(session) }),
            Err(error) => {
                let _ = std::fs::remove_dir(&at);
                need::missing(Need::Fuse, &format!("a mount ({name})"), error).unwrap();
                None
            }
        }
    }

    /// Has the server die in the middle of what the program asks for, and the next one go on.
    fn survives<T: Send>(&mut self, dies: Dies, program: impl FnOnce(&Path) -> std::io::Result<T> + Send) -> std::io::Result<T> {
        let at = self.at.clone();
        *self.server.dies.lock() = dies;
        std::thread::scope(|scope| {
            let asked = scope.spawn(move || program(&at));
            let owed_by_the_dead = self.server.wait_for_death();
            let old = self.session.take().expect("served");
            old.pause();
            // A thread of it that was just looking for a request would take what is sent again; those of a dead process do not.
            while old.answers_owed() != owed_by_the_dead {
                self.exec.sleep_ns(1_000_000);
            }
            let (connection, facts) = old.connection().expect("the keeper's descriptor");
            // As the end of its process would.
            std::mem::forget(old);
            self.server = Mortal::new(&self.shared, Dies::Never);
            let (told, heard) = std::sync::mpsc::channel();
            let all_came = Box::new(move || told.send(()).expect("heard"));
            let readers = Readers::new(&self.exec).expect("readers");
            let next = Session::adopt_from_dead(&readers, self.server.clone(), connection, facts, all_came);
            self.session = Some(next.expect("it goes on"));
            let outcome = asked.join().expect("the program has not failed");
            assert!(heard.recv_timeout(Duration::from_secs(20)).is_ok(), "all that was sent again has come");
            outcome
        })
    }
}

impl Drop for Lasts {
    fn drop(&mut self) {
        drop(self.session.take());
        let _ = std::fs::remove_dir(&self.at);
    }
}

/// True when the kernel sends again what a server had read: before Linux 6.9 it does not.
fn sends_again() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).flat_map(str::parse::<u32>);
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 9) {
        need::missing(Need::Fuse, "requests that are sent again", "the kernel has that from Linux 6.9 on").unwrap();
    }
    version >= (6, 9)
}

/// If this fails, programs see EEXIST or ENOENT for what they did, or something is done twice, when the daemon is killed.
#[test]
fn what_a_dead_server_had_done_is_not_done_again() {
    if !sends_again() {
        return;
    }
    let Some(mut lasts) = Lasts::new("killed") else { return };
    for dies in [Dies::Before, Dies::After] {
        let name = |name: &str| format!("{name}-{dies:?}");
        lasts.survives(dies, |at| std::fs::create_dir(at.join(name("d")))).expect("mkdir");
        lasts.survives(dies, |at| File::create_new(at.join(name("f"))).map(drop)).expect("create");
        lasts.survives(dies, |at| std::os::unix::fs::symlink("x", at.join(name("s")))).expect("symlink");
        lasts.survives(dies, |at| std::fs::hard_link(at.join(name("f")), at.join(name("h")))).expect("link");
        lasts.survives(dies, |at| std::fs::rename(at.join(name("h")), at.join(name("g")))).expect("rename");
        lasts.survives(dies, |at| std::fs::remove_file(at.join(name("g")))).expect("unlink");
        lasts.survives(dies, |at| std::fs::remove_dir(at.join(name("d")))).expect("rmdir");
        lasts.survives(dies, |at| set_new_attribute(&at.join(name("f")))).expect("setxattr");
        let path = lasts.at.join(name("f"));
        let mut file = OpenOptions::new().append(true).open(&path).expect("opened before");
        lasts.survives(dies, |_| file.write_all(b"once")).expect("write");
        lasts.survives(dies, |_| file.write_all(b"more")).expect("write");
        lasts.survives(dies, |_| file.set_len(6)).expect("truncate");
        assert_eq!(std::fs::read(&path).expect("read"), b"oncemo");
        let mut names: Vec<_> = std::fs::read_dir(&lasts.at).expect("a list").flatten().map(|entry| entry.file_name()).collect();
        names.retain(|found| found.to_string_lossy().ends_with(&format!("{dies:?}")));
        names.sort();
        assert_eq!(names, [name("f"), name("s")].map(std::ffi::OsString::from));
    }
}

fn set_new_attribute(path: &Path) -> std::io::Result<()> {
    Ok(rustix::fs::setxattr(path, "user.new", b"1", rustix::fs::XattrFlags::CREATE)?)
}

/// If this fails, programs are told of something that is gone when the daemon is killed then.
#[test]
fn nothing_is_answered_before_it_would_outlive_the_server() {
    if !sends_again() {
        return;
    }
    let Some(lasts) = Lasts::new("settles") else { return };
    lasts.shared.settled.lock().0 = false;
    let (told, answered) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for (number, name) in ["made", "file"].into_iter().enumerate() {
            let (told, path) = (told.clone(), lasts.at.join(name));
            scope.spawn(move || {
                let outcome = if number == 0 { std::fs::create_dir(path) } else { std::fs::write(path, b"bytes") };
                told.send(outcome.is_ok()).expect("heard");
            });
        }
        {
            let mut settled = lasts.shared.settled.lock();
            while settled.1 == 0 {
                lasts.shared.changed.wait(&mut settled);
            }
            // Lookups tell of the same state.
            assert!(answered.try_recv().is_err());
            settled.0 = true;
        }
        lasts.shared.changed.notify_all();
        assert_eq!([answered.recv(), answered.recv()], [Ok(true), Ok(true)]);
    });
}
