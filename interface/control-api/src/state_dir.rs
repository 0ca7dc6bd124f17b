//! The state directory: where a daemon keeps its socket, lock, cache file and proc-like tree.

use crate::{ErrorKind, Failure};
use serde::{Deserialize, Serialize};
use service::trust::{Distrust, make_folder};
use std::fmt;
use std::path::{Path, PathBuf};

/// Bytes that the path of a socket has at most (Linux: `sun_path`, without the zero behind it).
const SOCKET_BYTES_MAX: usize = 107;
/// Path of the state directory of root.
const SYSTEM: &str = "/run/zirconia";

/// Reason why there is no state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateDirError {
    /// No place: not root, and neither `ZIRCONIA_STATE` nor `XDG_RUNTIME_DIR` is set.
    NoPlace,
}

impl fmt::Display for StateDirError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no state directory: set ZIRCONIA_STATE or XDG_RUNTIME_DIR")
    }
}

impl std::error::Error for StateDirError {}

/// State directory: `$ZIRCONIA_STATE`, else `/run/zirconia` as root, else `$XDG_RUNTIME_DIR/zirconia`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// State directory that the environment names.
    pub fn from_environment(is_root: bool) -> Result<StateDir, StateDirError> {
        // The daemon stands elsewhere than who starts it.
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| absolute(value.into()));
        if let Some(path) = set("ZIRCONIA_STATE") {
            return Ok(StateDir(path));
        }
        if is_root {
            return Ok(StateDir::system());
        }
        set("XDG_RUNTIME_DIR").map(|path| StateDir(path.join("zirconia"))).ok_or(StateDirError::NoPlace)
    }

    /// State directory of the machine: where root's daemon is found by everybody.
    pub fn system() -> StateDir {
        StateDir(PathBuf::from(SYSTEM))
    }

    /// State directory at a given path.
    pub fn at(path: &Path) -> StateDir {
        StateDir(path.to_path_buf())
    }

    /// Makes sure that the directory is there, and that nobody but this user and root can have put there what is believed of it.
    ///
    /// # Errors
    /// Why it is not to be used, for `what`.
    pub fn prepare(&self, what: &str) -> Result<(), Failure> {
        self.check_length(what)?;
        make_folder(&self.0).map_err(|why| distrusted(what, &why))
    }

    /// Refuses a directory whose socket would have a path that the system does not take.
    fn check_length(&self, what: &str) -> Result<(), Failure> {
        let socket = self.socket();
        let bytes = socket.as_os_str().len();
        if bytes <= SOCKET_BYTES_MAX {
            return Ok(());
        }
        let why = format!("{}: the path of a socket has at most {SOCKET_BYTES_MAX} bytes, this one {bytes}", socket.display());
        Err(Failure::new(ErrorKind::Invalid, what, why).advise("name a state directory with a shorter path (ZIRCONIA_STATE)"))
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Path of the statistics, as in `/proc/spl/kstat/zfs`.
    pub fn kstat(&self) -> PathBuf {
        self.0.join("proc/spl/kstat/zfs")
    }

    /// Path of the daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.0.join("zirconiad.sock")
    }

    /// Path of the socket on which root's daemon answers every local user, questions only.
    pub fn reader_socket(&self) -> PathBuf {
        self.0.join("zirconiad.read.sock")
    }

    /// Path of the socket at which clients of NBD find volumes.
    pub fn nbd_socket(&self) -> PathBuf {
        self.0.join("nbd.sock")
    }

    /// Path of the socket at which programs find the objects of datasets.
    pub fn osd_socket(&self) -> PathBuf {
        self.0.join("osd.sock")
    }

    /// Path of the lock that the daemon holds while it lives.
    pub fn lock(&self) -> PathBuf {
        self.0.join("zirconiad.lock")
    }

    /// Path of the [`Interlude`]: between two lives of a daemon the process that starts it again holds a lock on it.
    pub fn interlude(&self) -> PathBuf {
        self.0.join("zirconiad.again")
    }

    /// Path of the log: what an auto-started daemon says.
    pub fn log(&self) -> PathBuf {
        self.0.join("zirconiad.log")
    }

    /// Path of the list of what is mounted, which a daemon that ends in order empties.
    pub fn mounts_list(&self) -> PathBuf {
        self.0.join("mounts.json")
    }

    /// Path of the list of pools to open again at start.
    pub fn cache_file(&self) -> PathBuf {
        self.0.join("pools.json")
    }
}

/// Notice that a daemon died, as its file was written last, and is about to be started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interlude {
    /// Process id of the daemon that died last.
    pub process: u32,
    /// Number of deaths that count.
    pub deaths: usize,
    /// Milliseconds from the last of them to the next start.
    pub pause_ms: u64,
}

/// Failure because a file or folder is not believed.
pub fn distrusted(what: &str, why: &Distrust) -> Failure {
    let failure = Failure::new(ErrorKind::Permission, what, why.to_string());
    match why.advice() {
        Some(advice) => failure.advise(advice),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who chose a place deep in a tree would be told of a constant of the system's headers, and not what to change.
    #[test]
    fn a_path_that_is_too_long_for_a_socket_is_refused_with_the_limit() {
        let dir = |bytes: usize| StateDir::at(Path::new(&format!("/{}", "x".repeat(bytes - 1))));
        let room = SOCKET_BYTES_MAX - "/zirconiad.sock".len();
        assert_eq!(dir(room).check_length("cannot start"), Ok(()));
        let refused = dir(room + 1).check_length("cannot start").unwrap_err();
        assert!(
            refused.why.ends_with("at most 107 bytes, this one 108") && refused.next.is_some_and(|next| next.contains("ZIRCONIA_STATE"))
        );
    }
}
