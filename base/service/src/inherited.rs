//! What a process takes over from whoever started it, and gives up: descriptors, the umask, soft limits, the folder, the terminal.

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit, umask};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Descriptors that root gives itself where the hard limit is lower: each mounted file system takes a few.
const FILES: u64 = 1 << 20;

/// True once it was seen, before Rust's runtime began, that there is no standard output.
static OUTPUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Entry of the list of functions that are called before `main`: afterwards the runtime has put `/dev/null` where a standard descriptor was closed,
/// which cannot be told from one that somebody meant.
#[allow(
    unsafe_code,
    reason = "only the linker's list is early enough; its function asks for one flag and stores it, which needs no runtime"
)]
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look_at_output;

extern "C" fn look_at_output() {
    // SAFETY: asking for the flags of a descriptor changes nothing, and it need not be open.
    #[expect(unsafe_code, reason = "a descriptor that may be closed can't be borrowed")]
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    OUTPUT_CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// True when this process was started with its standard output closed (`>&-`): what is written there is lost without an error.
pub fn output_was_closed() -> bool {
    OUTPUT_CLOSED.load(Ordering::Relaxed)
}

/// Makes this process a service: no descriptors but the standard ones, files that only their owner can write unless said otherwise, no soft
/// limits below the hard ones, and no folder kept busy. To be called before anything else is opened.
pub fn begin() {
    close_inherited();
    umask(Mode::from_raw_mode(0o022));
    raise_limits();
    // What is named by a relative path was made absolute by who named it.
    let _ = std::env::set_current_dir("/");
}

/// Closes every descriptor but standard input, output and error. To be called before anything is opened.
pub fn close_inherited() {
    // SAFETY: nothing of this process has opened a descriptor yet; those are whoever's who started it.
    #[expect(unsafe_code, reason = "descriptors that no value owns can't be closed otherwise")]
    let closed = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    if closed == 0 {
        return;
    }
    // Kernels before 5.9.
    let names = |folder: std::fs::ReadDir| folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd").map(|folder| names(folder).collect()).unwrap_or_default();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // SAFETY: as above; the folder's own descriptor is closed already, and closing it again is an error without effect.
        #[expect(unsafe_code, reason = "as above")]
        unsafe {
            libc::close(descriptor);
        }
    }
}

/// Takes every descriptor but the standard ones from the calling thread, and from no other: to be called at the start of a thread, before it has
/// anything open. False where the system cannot do that (Linux before 5.9); the thread has them all then.
pub fn stand_apart() -> bool {
    // SAFETY: the thread gets a table of its own in which they are closed; those of the other threads stay, and this one has no value that
    // owns one.
    #[expect(unsafe_code, reason = "descriptors that no value owns can't be closed otherwise")]
    let closed = unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE as libc::c_int) };
    closed == 0
}

/// Descriptors that this process may have open.
pub fn descriptors_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises soft limits to the hard ones. A limit that cannot be raised stays: what needs it fails by itself, and says so.
pub fn raise_limits() {
    for resource in [Resource::Nofile, Resource::Fsize] {
        let own = getrlimit(resource);
        let _ = setrlimit(resource, Rlimit { current: own.maximum, ..own });
    }
    // Root's devices are larger than what a shell that started this may write; who isn't root is told by the write.
    if geteuid().is_root() {
        let _ = setrlimit(Resource::Fsize, Rlimit { current: None, maximum: None });
    }
    // SAFETY: no handler is set; what the signal would say, the write says too.
    #[expect(unsafe_code, reason = "signals can't be ignored otherwise")]
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    let own = getrlimit(Resource::Nofile);
    let allowed = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse::<u64>().ok());
    let wanted = allowed.map_or(FILES, |allowed| allowed.min(FILES));
    if geteuid().is_root() && own.maximum.is_some_and(|hard| hard < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: Some(wanted) });
    }
}

/// From now on what is said goes to `log`, and nothing is read.
///
/// # Errors
/// Those of the system.
pub fn take_log(log: &File) -> io::Result<()> {
    let nothing = File::open(Path::new("/dev/null"))?;
    for (file, standard) in [(&nothing, libc::STDIN_FILENO), (log, libc::STDOUT_FILENO), (log, libc::STDERR_FILENO)] {
        // SAFETY: the file is open, and the standard descriptors are nobody's to close.
        #[expect(unsafe_code, reason = "standard descriptors that are values can't be replaced")]
        let replaced = unsafe { libc::dup2(file.as_raw_fd(), standard) };
        if replaced < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
