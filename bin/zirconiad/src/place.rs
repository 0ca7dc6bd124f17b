//! The daemon's place in its state directory: the lock that says whose it is, and the socket where commands find it.
//!
//! Whoever removes them would leave a daemon that nobody reaches and that keeps its devices, beside the next one. So they are watched, and
//! put back as long as nobody else has taken the place.

use control_api::{ErrorKind, Failure, StateDir, distrusted};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};
use service::trust;
use std::fs::{File, Metadata};
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixListener;

/// Words for what cannot be done, in messages.
pub const START: &str = "cannot start the daemon";
/// Pause between looks, besides those when something is removed.
const LOOK: Duration = Duration::from_secs(2);
/// Bytes of a process's number, at most, as the lock has it.
const OWNER_BYTES: u64 = 32;
/// Bytes of a log that is long enough.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// Identity of a file: device and inode.
type Identity = (u64, u64);

fn identity(metadata: std::io::Result<Metadata>) -> Option<Identity> {
    metadata.ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Number of times that the lock is tried: who looks whether a daemon still has it holds it for a moment.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Takes the state directory's lock, or says who has it. `left` is the lock of a daemon that this one replaces.
pub fn lock(state: &StateDir, left: Option<File>) -> Result<File, Failure> {
    let path = state.lock();
    let is_the_lock = |file: &File| identity(file.metadata()) == identity(std::fs::symlink_metadata(&path));
    if let Some(mut file) = left.filter(is_the_lock) {
        let _ = file.rewind();
        return Ok(signed(file));
    }
    let take = || trust::lock(&path).map_err(|why| distrusted(START, &why));
    let (mut file, mut is_ours) = take()?;
    for _ in 0..LOCK_TRIES {
        if is_ours {
            break;
        }
        std::thread::sleep(LOCK_PAUSE);
        (file, is_ours) = take()?;
    }
    if !is_ours {
        let owner = owner(state).map_or_else(|| "another process".to_string(), |owner| format!("process {owner}"));
        return Err(Failure::new(ErrorKind::Busy, START, format!("{owner} owns {}", state.path().display()))
            .advise("stop it with 'zirconia stop', or set ZIRCONIA_STATE to another directory"));
    }
    Ok(signed(file))
}

/// Process that has the state directory, or had it last. What lies in the place of its lock and would wait for another end is not waited for.
pub fn owner(state: &StateDir) -> Option<u32> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = rustix::fs::open(state.lock(), flags, Mode::empty()).ok()?;
    let mut text = String::new();
    File::from(lock).take(OWNER_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Writes into the lock whose it is.
fn signed(mut file: File) -> File {
    let _ = file.set_len(0);
    let _ = writeln!(file, "{}", std::process::id());
    file
}

fn failed(why: String) -> Failure {
    Failure::new(ErrorKind::Io, "cannot serve requests", why)
}

/// Opens the socket of the state directory in a runtime, in the place of one that a daemon which died left: the lock is the caller's.
pub fn listen(state: &StateDir) -> Result<UnixListener, Failure> {
    let socket = state.socket();
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).map_err(|error| failed(format!("{}: {error}", socket.display())))?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600)).map_err(|error| failed(error.to_string()))?;
    Ok(listener)
}

/// Place of the daemon: its state directory, with the lock and socket in it.
pub struct Place {
    state: StateDir,
    lock: File,
    socket: Option<Identity>,
    /// True when what there is to say goes into the state directory's log.
    has_log: bool,
    /// Watch on what is removed there; None where the kernel has none.
    watch: Option<AsyncFd<OwnedFd>>,
    /// True when somebody else has the place now.
    is_taken: bool,
}

impl Place {
    /// Makes the place whose lock and socket are the daemon's.
    pub fn new(state: &StateDir, lock: File, has_log: bool) -> Place {
        let socket = identity(std::fs::symlink_metadata(state.socket()));
        Place { state: state.clone(), lock, socket, has_log, watch: None, is_taken: false }
    }

    /// True for a daemon that runs in front, perhaps on a terminal.
    pub fn has_terminal(&self) -> bool {
        !self.has_log
    }

    /// Begins to watch; to be called inside of a runtime.
    #[expect(deprecated, reason = "what takes its place is unsafe; an owned descriptor is what it has to be")]
    pub fn watch(&mut self) {
        let watched = || -> std::io::Result<AsyncFd<OwnedFd>> {
            let notices = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            inotify::add_watch(&notices, self.state.path(), WatchFlags::DELETE | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF)?;
            AsyncFd::new(notices)
        };
        self.watch = watched().ok();
    }

    /// Waits until something was removed, or for a while.
    pub async fn changed(&self) {
        let pause = tokio::time::sleep(LOOK);
        let Some(watch) = &self.watch else { return pause.await };
        tokio::select! {
            ready = watch.readable() => {
                let mut notices = [0_u8; 4096];
                while rustix::io::read(watch, &mut notices).is_ok_and(|bytes| bytes > 0) {}
                ready.into_iter().for_each(|mut ready| ready.clear_ready());
            }
            () = pause => {}
        }
    }

    fn has_lock(&self) -> bool {
        let own = identity(self.lock.metadata());
        own.is_some() && identity(std::fs::symlink_metadata(self.state.lock())) == own
    }

    fn has_socket(&self) -> bool {
        self.socket.is_some() && identity(std::fs::symlink_metadata(self.state.socket())) == self.socket
    }

    /// Puts back what was removed; the new socket, if it was. Keeps the log short. To be called inside of a runtime.
    pub fn put_back(&mut self) -> Option<UnixListener> {
        if self.has_log {
            // It is not there, or not believed, when somebody removed it: then nothing grows there.
            let _ = trust::shorten_log(&self.state.log(), LOG_BYTES_MAX);
        }
        if self.is_taken || self.has_lock() && self.has_socket() {
            return None;
        }
        let outcome = self.take_again();
        match &outcome {
            Ok(_) => tracing::warn!("{}: what was removed from the state directory is there again", self.state.path().display()),
            Err(failure) => {
                self.is_taken = failure.kind == control_api::ErrorKind::Busy;
                tracing::error!("{failure}");
            }
        }
        outcome.ok()
    }

    fn take_again(&mut self) -> Result<UnixListener, Failure> {
        self.state.prepare("cannot put back the state directory")?;
        if !self.has_lock() {
            self.lock = lock(&self.state, None)?;
        }
        let listener = listen(&self.state)?;
        self.socket = identity(std::fs::symlink_metadata(self.state.socket()));
        self.watch();
        if let (true, Ok(log)) = (self.has_log, trust::log(&self.state.log())) {
            let _ = service::take_log(&log);
        }
        Ok(listener)
    }
}
