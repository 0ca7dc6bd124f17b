//! `zirconia-target`: the process on the storage side that owns buffers and writes disks for hosts elsewhere (docs/target-protocol.md).
//!
//! It computes on the machine that has the disks, in software or on an accelerator there; hosts load it as a provider. SIGTERM and SIGINT end it:
//! sessions end, what runs goes on to its end, nothing more is begun. So does the end of its accelerator, with a failure: hosts go on in software, and
//! whoever started it starts it again.
#![forbid(unsafe_code)]

mod accelerator;
mod stores;

use accelerator::{Source, Unusable};
use clap::Parser;
use exec::{Exec, Pool};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use stores::Allowed;
use target_server::{Listening, Target, TargetSetup};
use target_wire::{Address, Listener, Secret, SecretError};
use tokio::signal::unix::{SignalKind, signal};

/// Compute and write disks for hosts elsewhere.
#[derive(Debug, Parser)]
#[command(name = "zirconia-target", version)]
struct Arguments {
    /// Where to listen; may be given several times. Port 0 is one that the system chooses, which is then shown.
    #[arg(long, required = true, value_name = "unix:path|tcp:host:port")]
    listen: Vec<Address>,
    /// A file with the secret that hosts have to know, of at least 16 bytes.
    #[arg(long, value_name = "file")]
    secret_file: PathBuf,
    /// A device or file that hosts may write, or a folder of such; may be given several times.
    #[arg(long, required = true, value_name = "path")]
    allow: Vec<PathBuf>,
    /// Most memory of a session, in bytes, with K, M or G behind it in units of 1024; the default is 1G.
    #[arg(long, default_value = "1G", value_name = "bytes", value_parser = bytes)]
    memory: u64,
    /// Seconds after which a session ends whose host says nothing, 1 to 3600; the default is 30.
    #[arg(long, default_value_t = 30, value_name = "seconds", value_parser = clap::value_parser!(u32).range(1..=3600))]
    lease: u32,
    /// Most sessions; the default is 16.
    #[arg(long, default_value_t = 16, value_name = "count")]
    sessions: usize,
    /// What computes: software, which is the default; cuda, for the first GPU of NVIDIA in this machine; or the path of a vendor's library.
    #[arg(long, default_value = "software", value_name = "software|cuda|library")]
    provider: Source,
    /// Worker threads; the default is one per core, at least four.
    #[arg(long, value_name = "count")]
    threads: Option<usize>,
}

fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no number of bytes");
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// Reason why there is no target.
#[derive(Debug)]
enum Failure {
    Secret(PathBuf, SecretError),
    Allow(PathBuf, io::Error),
    Listen(Address, io::Error),
    Provider(Unusable),
    /// The accelerator ended.
    Ended(Source, String),
    Signals(io::Error),
    Threads(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Secret(path, error) => write!(f, "{}: {error}", path.display()),
            Failure::Allow(path, error) => write!(f, "{}: {error}", path.display()),
            Failure::Listen(address, error) => write!(f, "cannot listen at {address}: {error}"),
            Failure::Provider(error) => error.fmt(f),
            Failure::Ended(source, why) => write!(f, "the provider ({source}) has ended: {why}"),
            Failure::Threads(error) => write!(f, "cannot start its threads: {error}"),
            Failure::Signals(error) => write!(f, "cannot wait for signals: {error}"),
        }
    }
}

fn main() -> ExitCode {
    service::close_inherited();
    service::raise_limits();
    if let Some(library) = library() {
        return match provider_process::helper::serve(&library) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("zirconia-target: {}: {error}", library.display());
                ExitCode::FAILURE
            }
        };
    }
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("zirconia-target: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Path of the library that this process is for, when the daemon started it for one: not for people, so none of the options.
fn library() -> Option<PathBuf> {
    let mut words = std::env::args_os().skip(1);
    (words.next()? == provider_process::WORD).then(|| words.next().map(PathBuf::from))?
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let secret = Secret::read(&arguments.secret_file).map_err(|error| Failure::Secret(arguments.secret_file.clone(), error))?;
    let stores = Allowed::new(&arguments.allow).map_err(|(path, error)| Failure::Allow(path, error))?;
    // From here on a signal ends it in good order.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Signals)?;
    let entered = runtime.enter();
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Signals)?;
    drop(entered);
    let cores = std::thread::available_parallelism().map_or(4, usize::from);
    let exec: Exec = Arc::new(Pool::start(arguments.threads.unwrap_or(cores.max(4)), 0).map_err(Failure::Threads)?);
    let setup = TargetSetup {
        lease_ns: u64::from(arguments.lease) * 1_000_000_000,
        memory_bytes_max: arguments.memory,
        sessions_max: arguments.sessions,
        ..TargetSetup::new(secret)
    };
    let accelerator = arguments.provider.open(&exec).map_err(Failure::Provider)?;
    let target = Target::new(&exec, accelerator.device.clone(), setup, Arc::new(stores));
    let listening = arguments.listen.iter().map(|address| listen(&target, address)).collect::<Result<Vec<Listening>, _>>()?;
    for one in &listening {
        println!("zirconia-target: listening at {}", one.address());
    }
    let outcome = runtime.block_on(async {
        tokio::select! {
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
            why = accelerator.ended() => Err(Failure::Ended(arguments.provider.clone(), why)),
        }
    });
    drop(listening);
    target.stop();
    outcome
}

fn listen(target: &Arc<Target>, address: &Address) -> Result<Listening, Failure> {
    let failed = |error| Failure::Listen(address.clone(), error);
    target.listen(Listener::bind(address).map_err(failed)?).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Users would look for an option that is not described, or try one that is not there.
    #[test]
    fn the_manual_page_has_every_option() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/man8/zirconia-target.8");
        assert_eq!(cli::manual::check(&Arguments::command(), page.as_ref()), Ok(()));
    }

    #[test]
    fn memory_has_a_unit_or_none() {
        for (text, wanted) in [("512", 512), ("4K", 4096), ("3m", 3 << 20), ("1G", 1 << 30)] {
            assert_eq!(bytes(text), Ok(wanted));
        }
        for text in ["", "G", "0", "1T", "-1", "99999999999G"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
