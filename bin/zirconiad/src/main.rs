//! The daemon: owns pools and mounts, and answers requests on its unix socket until it is told to stop.
//!
//! One daemon per state directory: the lock file decides. SIGTERM and SIGINT unmount, sync and close every pool first.
#![forbid(unsafe_code)]

mod server;

use clap::Parser;
use control::Control;
use control_api::{ErrorKind, Failure, StateDir};
use exec::{Exec, Pool};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;
use std::sync::Arc;

/// The process that owns Zirconia's pools.
#[derive(Debug, Parser)]
#[command(name = "zirconiad", version)]
struct Arguments {
    /// Leave the terminal's session (the commands start the daemon so).
    #[arg(long)]
    background: bool,
    /// Worker threads; the default is one per core, at least four.
    #[arg(long)]
    threads: Option<usize>,
    /// Serve the metrics (GET /metrics) at this address and port too, to whoever can reach it.
    #[arg(long, value_name = "address:port")]
    metrics: Option<SocketAddr>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("zirconiad: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let is_root = rustix::process::geteuid().is_root();
    let state = StateDir::from_environment(is_root)
        .map_err(|error| Failure::new(ErrorKind::Invalid, "cannot start the daemon", error.to_string()))?;
    if arguments.background {
        // Already a session leader is as good.
        let _ = rustix::process::setsid();
    }
    let _lock = lock(&state)?;
    let cores = std::thread::available_parallelism().map_or(4, usize::from);
    let exec: Exec = Arc::new(Pool::new(arguments.threads.unwrap_or(cores.max(4))));
    let control = Control::start(exec, state.clone());
    control.mount_tree();
    control.watch();
    let metrics = metrics_address(arguments)?;
    let served = server::serve(&state, control.clone(), metrics);
    control.shutdown();
    let _ = std::fs::remove_file(state.socket());
    served
}

/// Where the metrics are served besides the socket: the option, else `ZIRCONIA_METRICS` (daemons that commands start).
fn metrics_address(arguments: &Arguments) -> Result<Option<SocketAddr>, Failure> {
    let from_environment = || std::env::var("ZIRCONIA_METRICS").ok().filter(|text| !text.is_empty());
    match (arguments.metrics, from_environment()) {
        (Some(address), _) => Ok(Some(address)),
        (None, Some(text)) => text.parse().map(Some).map_err(|_| {
            Failure::new(ErrorKind::Invalid, "cannot start the daemon", format!("ZIRCONIA_METRICS is '{text}', not address:port"))
        }),
        (None, None) => Ok(None),
    }
}

/// Takes the state directory's lock, or says who has it.
fn lock(state: &StateDir) -> Result<File, Failure> {
    let failed = |why: String| Failure::new(ErrorKind::Io, "cannot start the daemon", why);
    std::fs::create_dir_all(state.path()).map_err(|error| failed(format!("{}: {error}", state.path().display())))?;
    let _ = std::fs::set_permissions(state.path(), std::fs::Permissions::from_mode(0o755));
    let path = state.lock();
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|error| failed(format!("{}: {error}", path.display())))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let owner = std::fs::read_to_string(&path).unwrap_or_default();
        return Err(Failure::new(
            ErrorKind::Busy,
            "cannot start the daemon",
            format!("process {} owns {}", owner.trim(), state.path().display()),
        )
        .advise("stop it with 'zirconia stop', or set ZIRCONIA_STATE to another directory"));
    }
    let _ = file.set_len(0);
    let _ = writeln!(file, "{}", std::process::id());
    // The lock is ours, so a socket that is still there belongs to a daemon that died.
    let _ = std::fs::remove_file(state.socket());
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Users would look for an option that is not described, or try one that is not there.
    #[test]
    fn the_manual_page_has_every_verb_and_option() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/man8/zirconiad.8");
        assert_eq!(cli::manual::check(&Arguments::command(), page.as_ref()), Ok(()));
    }
}
