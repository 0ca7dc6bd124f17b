//! The state directory: where a daemon keeps its socket, lock, cache file and proc-like tree.

use crate::{ErrorKind, Failure};
use service::trust::{Distrust, make_folder};
use std::fmt;
use std::path::{Path, PathBuf};

/// The state directory of root.
const SYSTEM: &str = "/run/zirconia";

/// Why there is no state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateDirError {
    /// Not root, and neither `ZIRCONIA_STATE` nor `XDG_RUNTIME_DIR` is set.
    NoPlace,
}

impl fmt::Display for StateDirError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no state directory: set ZIRCONIA_STATE or XDG_RUNTIME_DIR")
    }
}

impl std::error::Error for StateDirError {}

/// `$ZIRCONIA_STATE`, else `/run/zirconia` as root, else `$XDG_RUNTIME_DIR/zirconia`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// From the environment.
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

    /// Of the machine: where root's daemon is found by everybody.
    pub fn system() -> StateDir {
        StateDir(PathBuf::from(SYSTEM))
    }

    /// At a given place.
    pub fn at(path: &Path) -> StateDir {
        StateDir(path.to_path_buf())
    }

    /// Makes sure that it is there, and that nobody but this user and root can have put there what is believed of it.
    ///
    /// # Errors
    /// Why it is not to be used, for `what`.
    pub fn prepare(&self, what: &str) -> Result<(), Failure> {
        make_folder(&self.0).map_err(|why| distrusted(what, &why))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The statistics, as in `/proc/spl/kstat/zfs`.
    pub fn kstat(&self) -> PathBuf {
        self.0.join("proc/spl/kstat/zfs")
    }

    /// The daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.0.join("zirconiad.sock")
    }

    /// Where root's daemon answers every local user, questions only.
    pub fn reader_socket(&self) -> PathBuf {
        self.0.join("zirconiad.read.sock")
    }

    /// The lock that the daemon holds while it lives.
    pub fn lock(&self) -> PathBuf {
        self.0.join("zirconiad.lock")
    }

    /// What an auto-started daemon says.
    pub fn log(&self) -> PathBuf {
        self.0.join("zirconiad.log")
    }

    /// The pools to open again at start.
    pub fn cache_file(&self) -> PathBuf {
        self.0.join("pools.json")
    }
}

/// A failure because a file or folder is not believed.
pub fn distrusted(what: &str, why: &Distrust) -> Failure {
    let failure = Failure::new(ErrorKind::Permission, what, why.to_string());
    match why.advice() {
        Some(advice) => failure.advise(advice),
        None => failure,
    }
}
