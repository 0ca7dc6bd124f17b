//! The `zpool` command: OpenZFS 2.3's verbs, options and output over Zirconia's daemon.
#![forbid(unsafe_code)]

mod args;
mod create;
mod get;
mod history;
mod import;
mod iostat;
mod list;
mod status;
mod wait;

use args::{Arguments, Verb};
use clap::Parser;
use cli::Client;
use control_api::{Failure, LabelClear, PoolClear, PoolNames, PoolScrub, PoolSet, PoolTarget, Request, ScrubAction};
use std::process::ExitCode;

fn main() -> ExitCode {
    match Arguments::try_parse() {
        Ok(arguments) => cli::finish(run(arguments.verb)),
        Err(error) => {
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { cli::EXIT_USAGE } else { 0 })
        }
    }
}

fn run(verb: Verb) -> Result<u8, Failure> {
    let client = Client::from_environment()?;
    match verb {
        Verb::Create(arguments) => create::run(&client, arguments),
        Verb::Destroy { force, pool } => done(&client, &Request::PoolDestroy(PoolTarget { pool, force })),
        Verb::Export { all, force, pools } => export(&client, all, force, pools),
        Verb::Import(arguments) => import::run(&client, arguments),
        Verb::List(arguments) => list::run(&client, &arguments),
        Verb::Status(arguments) => status::run(&client, &arguments),
        Verb::Get(arguments) => get::run(&client, &arguments),
        Verb::Set { assignment, pool } => set(&client, &assignment, pool),
        Verb::Scrub { pause, stop, wait, pools } => scrub(&client, pause, stop, wait, pools),
        Verb::Clear { pool, device, .. } => done(&client, &Request::PoolClear(PoolClear { pool, device })),
        Verb::Sync { pools } => done(&client, &Request::PoolSync(PoolNames { pools })),
        Verb::History(arguments) => history::run(&client, &arguments),
        Verb::Iostat(arguments) => iostat::run(&client, &arguments),
        Verb::Wait(arguments) => wait::run(&client, &arguments),
        Verb::Labelclear { force, device } => {
            let device = std::path::absolute(&device).map_or(device, |path| path.to_string_lossy().into_owned());
            done(&client, &Request::LabelClear(LabelClear { device, force }))
        }
        Verb::Version { json } => Ok(version(json)),
    }
}

/// Performs a request and prints its remarks.
fn done(client: &Client, request: &Request) -> Result<u8, Failure> {
    for remark in client.perform(request)? {
        println!("{remark}");
    }
    Ok(0)
}

fn usage(what: &str, why: &str) -> Failure {
    Failure::new(control_api::ErrorKind::Invalid, what, why)
}

fn export(client: &Client, all: bool, force: bool, pools: Vec<String>) -> Result<u8, Failure> {
    let pools = match (all, pools.is_empty()) {
        (true, true) => list::reports(client, Vec::new(), false)?.into_iter().map(|pool| pool.name).collect(),
        (false, false) => pools,
        _ => return Err(usage("cannot export", "name the pools, or use -a alone")),
    };
    for pool in pools {
        done(client, &Request::PoolExport(PoolTarget { pool, force }))?;
    }
    Ok(0)
}

fn set(client: &Client, assignment: &str, pool: String) -> Result<u8, Failure> {
    let (property, value) =
        assignment.split_once('=').ok_or_else(|| usage("cannot set property", "missing value in property=value argument"))?;
    done(client, &Request::PoolSet(PoolSet { pool, property: property.to_string(), value: value.to_string() }))
}

fn scrub(client: &Client, pause: bool, stop: bool, wait: bool, pools: Vec<String>) -> Result<u8, Failure> {
    let action = match (pause, stop) {
        (true, true) => return Err(usage("cannot scrub", "-s and -p are mutually exclusive")),
        (true, false) => ScrubAction::Pause,
        (false, true) => ScrubAction::Stop,
        (false, false) => ScrubAction::Start,
    };
    if wait && action != ScrubAction::Start {
        return Err(usage("cannot scrub", "-w waits for a scrub that it starts; it goes with neither -s nor -p"));
    }
    for pool in &pools {
        done(client, &Request::PoolScrub(PoolScrub { pool: pool.clone(), action }))?;
    }
    if wait {
        for pool in &pools {
            wait::until_idle(client, pool, &["scrub".to_string()])?;
        }
    }
    Ok(0)
}

fn version(json: bool) -> u8 {
    let version = env!("CARGO_PKG_VERSION");
    if json {
        let text = serde_json::json!({
            "output_version": {"command": "zpool version", "vers_major": 0, "vers_minor": 1},
            "zfs_version": {"userland": format!("zirconia-{version}"), "kernel": "none"}
        });
        println!("{text}");
    } else {
        println!("zirconia-{version}\non-disk format: pool version 5000, feature flags of OpenZFS 2.3");
    }
    0
}
