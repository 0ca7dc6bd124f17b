//! The launcher: puts Zirconia's programs on PATH for one shell, and starts, asks and stops the daemon.
#![forbid(unsafe_code)]
// `println!` panics when its reader is gone: see `cli::print`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod hostid;
mod provider;
mod target;

use clap::{Parser, Subcommand};
use cli::Client;
use control_api::{DaemonInfo, ErrorKind, Failure, Interlude, Request, Response, StateDir, Upgrade};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// OpenZFS's format and commands as an ordinary process.
#[derive(Debug, Parser)]
#[command(name = "zirconia", version, disable_help_subcommand = true, disable_help_flag = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print shell commands that put zpool, zfs and zdb of Zirconia first on PATH, and their manual pages first on MANPATH:
    /// eval "$(zirconia shellenv)".
    Shellenv,
    /// Start the daemon.
    Start,
    /// Say whether the daemon runs, and what it owns.
    Status,
    /// Unmount, sync and close every pool, and end the daemon. Of a suspended pool what could not be written is given up, which is said. A daemon
    /// that is just starting or being replaced is waited for; one that died does not start again.
    Stop,
    /// Replace the running daemon by the zirconiad beside this program, or another one. What is mounted stays mounted, and programs that use it
    /// wait a moment.
    Upgrade {
        /// The program that is to be the daemon.
        #[arg(value_name = "path")]
        program: Option<PathBuf>,
    },
    /// Accelerators that stages of the write pipeline run on.
    #[command(subcommand)]
    Provider(provider::Verb),
    /// Volumes that the network sees as disks of iSCSI, and who may use them.
    #[command(subcommand)]
    Target(target::Verb),
    /// Give this system an id by which others know it, as pools with multihost=on need it.
    Hostid(hostid::Wish),
}

/// Time that pools may take to be open again.
const OPENING: Duration = Duration::from_secs(30);
/// Words for an upgrade that fails.
const REPLACE: &str = "cannot replace the daemon";

fn main() -> ExitCode {
    if hostid::is_called() {
        return hostid::alone();
    }
    cli::run::<Arguments>(|arguments| Ok(run(&arguments.verb)?))
}

fn run(verb: &Verb) -> Result<u8, Failure> {
    let client = Client::from_environment;
    match verb {
        Verb::Shellenv => shellenv(),
        Verb::Start => start(&client()?),
        Verb::Status => status(&client()?),
        Verb::Stop => stop(&client()?),
        Verb::Upgrade { program } => upgrade(&client()?, program.as_deref()),
        Verb::Provider(verb) => provider::run(verb),
        Verb::Target(verb) => target::run(verb),
        Verb::Hostid(wish) => hostid::run(wish),
    }
}

/// Refuses what is asked of another user's daemon.
fn check_own(client: &Client, request: &Request) -> Result<(), Failure> {
    if client.is_foreign() { Err(client.refusal(request)) } else { Ok(()) }
}

fn start(client: &Client) -> Result<u8, Failure> {
    let info = until_started(OPENING, || {
        client.begin()?;
        until_open(client)
    })?;
    describe(client.state(), &info);
    Ok(0)
}

/// Starts a daemon and waits for its pools, by `start`. One that ends meanwhile was stopped by somebody else, or died: then it begins again, as long
/// as `patience`.
fn until_started(patience: Duration, mut start: impl FnMut() -> Result<DaemonInfo, Failure>) -> Result<DaemonInfo, Failure> {
    let begun = Instant::now();
    loop {
        match start() {
            Err(failure) if failure.kind == ErrorKind::Disconnected && begun.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

/// Tells whether a daemon runs, and starts none.
fn status(client: &Client) -> Result<u8, Failure> {
    if let Some(state) = client.foreign_state(&Request::Info) {
        describe(state, &as_info(client.ask_as_anybody(state, &Request::Info)?)?);
        return Ok(0);
    }
    if client.is_running() {
        match info(client) {
            Ok(info) => {
                describe(client.state(), &info);
                return Ok(0);
            }
            // It has just ended.
            Err(failure) if failure.kind == ErrorKind::Disconnected => {}
            Err(failure) => return Err(failure),
        }
    }
    cli::outln!("not running ({})", client.state().path().display());
    match awaited(client) {
        Some(why) => cli::outln!("{why}; see {}", client.state().log().display()),
        None => say_dead(client),
    }
    Ok(3)
}

/// Says which mounts are dead of a daemon that is not there, and does not come by itself.
fn say_dead(client: &Client) {
    cli::dead::words(client.state()).iter().for_each(|words| cli::errln!("{words}"));
}

/// Reason why a daemon that does not listen now will soon; none when there is none.
fn awaited(client: &Client) -> Option<String> {
    if let Some((Interlude { deaths, pause_ms, .. }, last)) = client.interlude() {
        let times = if deaths == 1 { "died".to_string() } else { format!("died {deaths} times, the last time") };
        let (last, pause) = (cli::time::long(last), Duration::from_millis(pause_ms));
        return Some(format!("the daemon {times} on {last}, and is started again {pause:?} after that"));
    }
    client.owner().map(|owner| format!("process {owner} is just starting, ending or being replaced"))
}

/// Waits until pools of the last time are open, and mounted: what is written before that lies beneath their mounts.
fn until_open(client: &Client) -> Result<DaemonInfo, Failure> {
    let begun = Instant::now();
    loop {
        let info = info(client)?;
        if !info.is_opening || begun.elapsed() > OPENING {
            return Ok(info);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn shellenv() -> Result<u8, Failure> {
    let failed = |why: &str| Failure::new(ErrorKind::Io, "cannot find this program", why);
    let own = std::env::current_exe().map_err(|error| failed(&error.to_string()))?;
    let folder = own.parent().ok_or_else(|| failed("it has no folder"))?;
    let quoted = folder.to_string_lossy().replace('\'', "'\\''");
    cli::outln!("export PATH='{quoted}':\"$PATH\"");
    if let Some(manuals) = manuals(folder) {
        // The empty part at the end keeps the system's own pages.
        cli::outln!("export MANPATH='{}':\"${{MANPATH-}}\"", manuals.to_string_lossy().replace('\'', "'\\''"));
    }
    if let Ok(state) = std::env::var("ZIRCONIA_STATE") {
        cli::outln!("export ZIRCONIA_STATE='{}'", state.replace('\'', "'\\''"));
    }
    Ok(0)
}

/// Folder of the manual pages: beside the programs (`PREFIX/bin`, `PREFIX/share/man`), or at the root of the source tree they were built in.
fn manuals(programs: &Path) -> Option<PathBuf> {
    let installed = programs.parent().map(|prefix| prefix.join("share/man"));
    let in_tree = programs.ancestors().map(|folder| folder.join("man"));
    installed.into_iter().chain(in_tree).find(|folder| folder.join("man8/zpool.8").is_file())
}

/// Tells what a daemon says of itself.
fn describe(state: &StateDir, info: &DaemonInfo) {
    cli::outln!(
        "zirconiad {} (process {}) has run for {} s; state in {}",
        info.version,
        info.pid,
        info.uptime_seconds,
        state.path().display()
    );
    let none = if info.is_opening { "none yet" } else { "none" };
    cli::outln!("pools: {}", if info.pools.is_empty() { none.to_string() } else { info.pools.join(", ") });
    if info.is_opening {
        cli::outln!("others are being opened or mounted: see 'zpool list'");
    }
    info.closed_ports.iter().for_each(|sentence| cli::outln!("{sentence}"));
}

fn stop(client: &Client) -> Result<u8, Failure> {
    check_own(client, &Request::Stop)?;
    let Some(remarks) = client.stop()? else {
        cli::outln!("not running");
        say_dead(client);
        return Ok(0);
    };
    remarks.iter().for_each(cli::say);
    // It answers no more before it has unmounted and synced; it lets go of its lock when all of that is done. One that another command starts
    // meanwhile is none of ours.
    let (begun, stopped) = (Instant::now(), client.owner());
    while client.is_owned() && client.owner() == stopped {
        if begun.elapsed() > Duration::from_secs(60) {
            return Err(Failure::new(ErrorKind::Timeout, "cannot stop the daemon", "it is still at work after 60 s"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(0)
}

fn upgrade_request(program: String) -> Request {
    Request::Upgrade(Upgrade { program })
}

fn info(client: &Client) -> Result<DaemonInfo, Failure> {
    as_info(client.call_running(&Request::Info)?)
}

fn as_info(response: Response) -> Result<DaemonInfo, Failure> {
    match response {
        Response::Info(info) => Ok(info),
        other => Err(cli::unexpected("cannot ask the daemon", other)),
    }
}

/// Failure of what was asked of a daemon that went away meanwhile.
fn gone(failure: Failure) -> Failure {
    if failure.kind != ErrorKind::Disconnected {
        return failure;
    }
    let why = "it ended meanwhile: another 'zirconia upgrade' is replacing it, it was stopped, or it died";
    Failure::new(failure.kind, REPLACE, why).advise("see 'zirconia status'")
}

/// True when there is no daemon, and none comes: while it is replaced, somebody has its lock, and one that died starts again soon.
fn is_gone(client: &Client) -> bool {
    let is_there = |pause| {
        std::thread::sleep(Duration::from_millis(pause));
        client.is_owned() || client.is_running()
    };
    ![0, 100, 300, 600].into_iter().any(is_there)
}

fn upgrade(client: &Client, program: Option<&Path>) -> Result<u8, Failure> {
    /// Time after which a daemon should answer: one that does not get on is given up before, and the program before it goes on.
    const PATIENCE: Duration = Duration::from_secs(120);
    check_own(client, &upgrade_request(String::new()))?;
    let path = program.map_or_else(cli::daemon_program, Path::to_path_buf);
    let failed = |kind, why: String| Failure::new(kind, REPLACE, why);
    let path = std::fs::canonicalize(&path).map_err(|error| failed(ErrorKind::NotFound, format!("{}: {error}", path.display())))?;
    let asked = path.to_str().ok_or_else(|| failed(ErrorKind::Invalid, format!("{}: its name is not UTF-8", path.display())))?;
    if !client.is_running() {
        return Err(match awaited(client) {
            Some(why) => {
                failed(ErrorKind::Busy, why).advise(format!("try again then; see 'zirconia status' and {}", client.state().log().display()))
            }
            None => failed(ErrorKind::NotFound, "it is not running: there is nothing to replace".to_string())
                .advise("'zirconia start' starts the zirconiad beside this program"),
        });
    }
    let before = info(client).map_err(gone)?;
    match client.call_running(&upgrade_request(asked.to_string())).map_err(gone)? {
        Response::Done { remarks } => remarks.iter().for_each(cli::say),
        other => return Err(cli::unexpected(REPLACE, other)),
    }
    let begun = Instant::now();
    let after = loop {
        match info(client) {
            Ok(after) if after.pid != before.pid && !after.is_opening => break after,
            // Pools are still being opened: 'zpool list' says which.
            Ok(after) if after.pid != before.pid && begun.elapsed() > OPENING => break after,
            Err(_) if is_gone(client) => {
                let why = "it ended meanwhile: somebody stopped it, or it died".to_string();
                return Err(failed(ErrorKind::NotFound, why).advise(format!("see {}", client.state().log().display())));
            }
            _ if begun.elapsed() > PATIENCE => {
                let who = client.owner().map_or_else(|| asked.to_string(), |owner| format!("process {owner}"));
                let why = format!("{who} does not answer after {} s", PATIENCE.as_secs());
                return Err(failed(ErrorKind::Timeout, why).advise(format!("see {}", client.state().log().display())));
            }
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    if after.program != asked {
        let advice = format!("see {}", client.state().log().display());
        return Err(
            failed(ErrorKind::Io, format!("{asked} did not start; {} goes on, process {}", after.program, after.pid)).advise(advice)
        );
    }
    // It may be stopped again by now, and nobody asked for another one.
    describe(client.state(), &after);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Users would look for an option that is not described, or try one that is not there.
    #[test]
    fn the_manual_page_has_every_verb_and_option() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/man8/zirconia.8");
        assert_eq!(cli::manual::check(&Arguments::command(), page.as_ref()), Ok(()));
    }

    fn info(pid: u32) -> DaemonInfo {
        DaemonInfo {
            version: String::new(),
            pid,
            uptime_seconds: 0,
            pools: Vec::new(),
            is_opening: false,
            program: String::new(),
            closed_ports: Vec::new(),
        }
    }

    /// Who starts the service while somebody else stops it would be left without one, with an error of a socket.
    #[test]
    fn a_start_begins_again_when_its_daemon_is_stopped_meanwhile() {
        let gone = |kind| Failure::new(kind, "cannot talk to the daemon", "Connection refused");
        let mut outcomes = vec![Ok(info(3)), Err(gone(ErrorKind::Disconnected)), Err(gone(ErrorKind::Disconnected))];
        let started = until_started(Duration::from_secs(60), || outcomes.pop().expect("another try"));
        assert_eq!(started.map(|info| info.pid), Ok(3));
        let mut tries = 0;
        let mut fail = |kind, patience| {
            tries += 1;
            until_started(patience, || Err(gone(kind))).map_err(|failure| failure.kind)
        };
        assert_eq!(fail(ErrorKind::Permission, Duration::from_secs(60)), Err(ErrorKind::Permission));
        assert_eq!(fail(ErrorKind::Disconnected, Duration::ZERO), Err(ErrorKind::Disconnected));
        assert_eq!(tries, 2);
    }

    /// Who is told that somebody stopped it looks for that person, and not for a crash.
    #[test]
    fn an_upgrade_whose_daemon_went_away_says_that_it_may_have_died() {
        let said = gone(Failure::new(ErrorKind::Disconnected, "cannot talk to the daemon", "Broken pipe"));
        assert!(said.why.contains("or it died"), "{said}");
        let other = gone(Failure::new(ErrorKind::Permission, "cannot talk to the daemon", "no"));
        assert_eq!(other.why, "no");
    }

    /// `man zpool` in a shell that evaluated `shellenv` would find the page of another program, or none.
    #[test]
    fn pages_are_found_beside_installed_programs_and_in_the_tree() {
        let root = std::env::temp_dir().join(format!("zirconia-manuals-{}", std::process::id()));
        for pages in ["prefix/share/man/man8", "tree/man/man8"] {
            std::fs::create_dir_all(root.join(pages)).expect("a temporary directory");
            std::fs::write(root.join(pages).join("zpool.8"), "").expect("a temporary file");
        }
        assert_eq!(manuals(&root.join("prefix/bin")), Some(root.join("prefix/share/man")));
        assert_eq!(manuals(&root.join("tree/target/release")), Some(root.join("tree/man")));
        assert_eq!(manuals(Path::new("/nowhere/bin")), None);
        std::fs::remove_dir_all(&root).expect("a temporary directory");
    }
}
