//! The launcher: puts Zirconia's programs on PATH for one shell, and starts, asks and stops the daemon.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use cli::Client;
use control_api::{ErrorKind, Failure, Request, Response};
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
    /// Print shell commands that put zpool, zfs and zdb of Zirconia first on PATH: eval "$(zirconia shellenv)".
    Shellenv,
    /// Start the daemon.
    Start,
    /// Say whether the daemon runs, and what it owns.
    Status,
    /// Unmount, sync and close every pool, and end the daemon.
    Stop,
}

fn main() -> ExitCode {
    cli::run::<Arguments>(|arguments| Ok(run(&arguments.verb)?))
}

fn run(verb: &Verb) -> Result<u8, Failure> {
    if matches!(verb, Verb::Shellenv) {
        return shellenv();
    }
    let client = Client::from_environment()?;
    match verb {
        Verb::Status if !client.is_running() => {
            println!("not running ({})", client.state().path().display());
            Ok(3)
        }
        Verb::Stop if !client.is_running() => {
            println!("not running");
            Ok(0)
        }
        Verb::Stop => stop(&client),
        _ => describe(&client),
    }
}

fn shellenv() -> Result<u8, Failure> {
    let failed = |why: &str| Failure::new(ErrorKind::Io, "cannot find this program", why);
    let own = std::env::current_exe().map_err(|error| failed(&error.to_string()))?;
    let folder = own.parent().ok_or_else(|| failed("it has no folder"))?;
    let quoted = folder.to_string_lossy().replace('\'', "'\\''");
    println!("export PATH='{quoted}':\"$PATH\"");
    if let Ok(state) = std::env::var("ZIRCONIA_STATE") {
        println!("export ZIRCONIA_STATE='{}'", state.replace('\'', "'\\''"));
    }
    Ok(0)
}

fn describe(client: &Client) -> Result<u8, Failure> {
    match client.call(&Request::Info)? {
        Response::Info(info) => {
            println!(
                "zirconiad {} (process {}) has run for {} s; state in {}",
                info.version,
                info.pid,
                info.uptime_seconds,
                client.state().path().display()
            );
            println!("pools: {}", if info.pools.is_empty() { "none".to_string() } else { info.pools.join(", ") });
            Ok(0)
        }
        other => Err(cli::unexpected("cannot ask the daemon", other)),
    }
}

fn stop(client: &Client) -> Result<u8, Failure> {
    match client.call_running(&Request::Stop)? {
        Response::Done { .. } => {}
        other => return Err(cli::unexpected("cannot stop the daemon", other)),
    }
    // It answers no more before it has unmounted and synced; it lets go of its lock when all of that is done.
    let begun = Instant::now();
    while client.is_running() || holds_lock(client) {
        if begun.elapsed() > Duration::from_secs(60) {
            return Err(Failure::new(ErrorKind::Timeout, "cannot stop the daemon", "it is still at work after 60 s"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(0)
}

fn holds_lock(client: &Client) -> bool {
    let Ok(file) = std::fs::File::open(client.state().lock()) else { return false };
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).is_err()
}
