//! The daemon: owns pools and mounts, and answers requests on its unix socket until it is told to stop.
//!
//! One daemon per state directory: the lock file decides. SIGTERM and SIGINT unmount, sync and close every pool first.
#![forbid(unsafe_code)]

mod everyone;
mod hall;
mod hands;
mod held;
mod keeper;
mod launch;
mod line;
mod place;
mod ports;
mod readers;
mod server;
mod sign;
mod streaming;
mod supervisor;

use clap::Parser;
use control::{Control, Heritage};
use control_api::{ErrorKind, Failure, StateDir, distrusted, shown_lines};
use exec::{Exec, Pool};
use keeper::{Begin, Line};
use place::{Place, START};
use ports::{Ports, Service};
use rustix::fs::{Mode, OFlags};
use server::{Door, Ending};
use service::trust;
use sign::Sign;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Time that the process may take to end once all pools are closed.
const END: Duration = Duration::from_secs(10);

/// The process that owns Zirconia's pools.
#[derive(Debug, Parser)]
#[command(name = "zirconiad", version)]
struct Arguments {
    /// Return once the daemon answers, or say why it does not; it leaves the terminal's session, keeps nothing open of its caller's, and writes what
    /// there is to say into the state directory's log (the commands start the daemon so).
    #[arg(long)]
    background: bool,
    /// Started by the process that was asked for a daemon in the background: this one stays.
    #[arg(long, hide = true)]
    watching: bool,
    /// Started by the process that starts it again when it dies.
    #[arg(long, hide = true)]
    supervised: bool,
    /// Worker threads; the default is one per core, at least four.
    #[arg(long)]
    threads: Option<usize>,
    /// Serve the metrics (GET /metrics) at this address and port too, to whoever can reach it.
    #[arg(long, value_name = "address:port")]
    metrics: Option<SocketAddr>,
    /// Serve volumes over iSCSI at this address and port, or at this port of 127.0.0.1, to initiators that 'zirconia target allow' named.
    #[arg(long, value_name = "address:port", value_parser = portal_address)]
    iscsi: Option<SocketAddr>,
    /// Serve volumes over NBD at this address and port, or at this port of 127.0.0.1, to whoever can reach it, besides the socket of the state directory.
    #[arg(long, value_name = "address:port", value_parser = portal_address)]
    nbd: Option<SocketAddr>,
}

/// Opens the descriptor behind the standard ones on nothing: it is the first that is opened here, and the only one that programs which are run on
/// events inherit. zed leaves them one of its own there, and scripts count on it that theirs begin with 4.
fn third_descriptor() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()).ok()
}

fn main() -> ExitCode {
    service::begin();
    let _third = third_descriptor();
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure);
            ExitCode::FAILURE
        }
    }
}

/// Says why the daemon cannot start or go on: to whoever started it, and once it has its log, there.
fn complain(why: &dyn std::fmt::Display) {
    match logging::is_telling() {
        true => tracing::error!("{why}"),
        false => eprintln!("zirconiad: {}", shown_lines(&why.to_string())),
    }
}

/// Level of the log, from the environment.
fn log_level() -> Result<Option<tracing::Level>, Failure> {
    let refuse = |word| format!("{} is '{word}', not off, error, warn, info or debug", logging::VARIABLE);
    logging::wish().map_err(|word| Failure::new(ErrorKind::Invalid, START, refuse(word)))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let is_root = rustix::process::geteuid().is_root();
    let state = StateDir::from_environment(is_root).map_err(|error| Failure::new(ErrorKind::Invalid, START, error.to_string()))?;
    launch::check_descriptors()?;
    let cores = std::thread::available_parallelism().map_or(4, usize::from);
    let workers = arguments.threads.unwrap_or(cores.max(4)).max(1);
    launch::check_threads(workers)?;
    state.prepare(START)?;
    match arguments {
        Arguments { background: false, .. } | Arguments { supervised: true, .. } => {}
        Arguments { watching: true, .. } => supervisor::run(&state),
        Arguments { watching: false, .. } => std::process::exit(launch::run(&state)?),
    }
    let (metrics, level) = (wish(arguments.metrics, "ZIRCONIA_METRICS", full_address)?, log_level()?);
    let iscsi = wish(arguments.iscsi, "ZIRCONIA_ISCSI", portal_address)?;
    let nbd = wish(arguments.nbd, "ZIRCONIA_NBD", portal_address)?;
    let failed = |error: std::io::Error| Failure::new(ErrorKind::Io, START, error.to_string());
    let socket = if arguments.supervised { line::taken_from(std::io::stdin()) } else { None };
    let Begin { heritage, lock, can_hold } = socket.as_ref().map_or_else(|| Ok(Begin::default()), keeper::begin).map_err(failed)?;
    let lock = place::lock(&state, lock)?;
    // Who connects from now on waits. Nobody has them any more who had this state directory before.
    let ports = Ports::open([(Service::Iscsi, iscsi), (Service::Nbd, nbd), (Service::Metrics, metrics)]);
    let line = socket.map(|socket| Line::new(socket, &lock, can_hold)).transpose().map_err(failed)?;
    let log = arguments.background.then(|| trust::log(&state.log()).map_err(|why| distrusted(START, &why))).transpose()?;
    // The door is open before anything is looked at that takes time; what is said from here on is for the log.
    let door = Door::open(&state)?;
    let mut sign = if arguments.supervised { Sign::keep().map_err(failed)? } else { Sign::none() };
    let place = Place::new(&state, lock, log.is_some());
    if let Some(log) = log {
        // Already a session leader is as good.
        let _ = rustix::process::setsid();
        service::take_log(&log).map_err(failed)?;
    }
    logging::tell(level);
    tracing::info!("zirconiad {} begins, process {}", env!("CARGO_PKG_VERSION"), std::process::id());
    let exec: Exec = Arc::new(Pool::start(workers, launch::KEPT).map_err(failed).inspect_err(|failure| sign.fail(failure))?);
    live(exec, &state, (door, place), ports, (line, heritage), &mut sign).inspect_err(|failure| sign.fail(failure))
}

/// Opens the pools and serves until the end, with what the daemon before left; `sign` is for whoever waits for the beginning.
fn live(
    exec: Exec,
    state: &StateDir,
    (door, mut place): (Door, Place),
    ports: Ports,
    (line, heritage): (Option<Line>, Heritage),
    sign: &mut Sign,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(ErrorKind::Io, START, error.to_string());
    let control = Control::start(exec.clone(), state.clone());
    control.mount_tree();
    control.watch();
    control.serve_nbd().map_err(failed)?;
    control.serve_objects();
    let (usher, readers) = ports.serve(&control).map_err(failed)?;
    let everyone = everyone::serve(state, control.clone())?;
    if let Some(line) = line {
        control.inherit(Arc::new(line), heritage);
    }
    control.open_pools();
    let served = door.serve(&control, &mut place, readers, sign);
    usher.end();
    if let Ok(Ending::Replaced) = served {
        // Whatever is under way: everything that counts is on disk, and programs wait.
        tracing::info!("zirconiad leaves its mounts to the next daemon");
        std::process::exit(0);
    }
    tracing::info!("zirconiad ends");
    let _ = std::fs::remove_file(state.reader_socket());
    if let Some(everyone) = everyone {
        everyone.end();
    }
    control.shutdown();
    let _ = std::fs::remove_file(state.socket());
    // What is left waits for devices that do not answer, at most; it must not keep the process.
    drop(exec.spawn_operation("z-end", Box::new(end_late)));
    served.map(drop)
}

/// Ends the process when it did not end by itself.
fn end_late() {
    std::thread::sleep(END);
    std::process::exit(1)
}

/// Address and port, or a port of this machine alone.
fn portal_address(text: &str) -> Result<SocketAddr, String> {
    let own = || text.parse::<u16>().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    text.parse::<SocketAddr>().or_else(|_| own()).map_err(|_| "it is neither address:port nor a port".to_string())
}

/// Address and port in full.
fn full_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "it is not address:port".to_string())
}

/// Address of a port, where the option says, else the variable (daemons that commands start), which `parse` understands; none where neither does.
fn wish(option: Option<SocketAddr>, variable: &str, parse: fn(&str) -> Result<SocketAddr, String>) -> Result<Option<SocketAddr>, Failure> {
    let text = std::env::var(variable).unwrap_or_default();
    if option.is_some() || text.is_empty() {
        return Ok(option);
    }
    parse(&text).map(Some).map_err(|why| Failure::new(ErrorKind::Invalid, START, format!("{variable} is '{text}': {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Who says a port only means this machine: a disk that everybody in the network finds is said in full.
    #[test]
    fn a_port_alone_is_of_this_machine() {
        let address = |text: &str| portal_address(text).map(|address| address.to_string());
        assert_eq!(address("3260"), Ok("127.0.0.1:3260".to_string()));
        assert_eq!(address("0.0.0.0:3260"), Ok("0.0.0.0:3260".to_string()));
        assert_eq!(address("[::1]:3260"), Ok("[::1]:3260".to_string()));
        assert!(address("host").is_err() && address("127.0.0.1").is_err() && address("70000").is_err());
    }

    /// Users would look for an option that is not described, or try one that is not there.
    #[test]
    fn the_manual_page_has_every_verb_and_option() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/man8/zirconiad.8");
        assert_eq!(cli::manual::check(&Arguments::command(), page.as_ref()), Ok(()));
    }
}
