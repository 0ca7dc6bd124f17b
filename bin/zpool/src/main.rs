//! The `zpool` command: OpenZFS 2.3's verbs, options and output over Zirconia's daemon.
#![forbid(unsafe_code)]
// `println!` panics when its reader is gone: see `cli::print`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod add;
mod args;
mod checkpoint;
mod create;
mod divided;
mod draid;
mod events;
mod expansion;
mod get;
mod history;
mod import;
mod iostat;
mod list;
mod names;
mod power;
mod rebuild;
mod removal;
mod rewind;
mod scripts;
mod spec;
mod split;
mod status;
mod sweeps;
mod upgrade;
mod vdev_get;
mod vdevs;
mod wait;

use args::{Arguments, Verb};
use cli::{Client, Lacking, Stop, done};
use control_api::{
    ErrorKind, Failure, LabelClear, PoolClear, PoolFreeze, PoolPrefetch, PoolReguid, PoolScrub, PoolSet, PoolSync, PoolTarget, Request,
    ScrubAction,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run_with::<Arguments>(&LACKING, |arguments| run(arguments.verb))
}

/// Verbs and options that `zpool` of OpenZFS 2.3 has besides.
const LACKING: Lacking = Lacking { verbs: &["ddtprune"], options: &[("import", &["E", "V"])] };

fn run(verb: Verb) -> Result<u8, Stop> {
    let client = Client::from_environment()?;
    match verb {
        Verb::Create(arguments) => create::run(&client, arguments),
        Verb::Destroy { force, pool } => Ok(done(&client, &Request::PoolDestroy(PoolTarget { pool, force, hard: false }))?),
        Verb::Export { all, force, hard_force, pools } => export(&client, all, (force || hard_force, hard_force), pools),
        Verb::Import(arguments) => import::run(&client, arguments),
        Verb::List(arguments) => list::run(&client, &arguments),
        Verb::Status(arguments) => status::run(&client, &arguments),
        Verb::Get(arguments) => get::run(&client, &arguments),
        Verb::Set { assignment, pool, vdev } => set(&client, &assignment, (pool, vdev)),
        Verb::Upgrade(arguments) => upgrade::run(&client, &arguments),
        Verb::Reguid { guid, pool } => {
            let guid = guid.map(|word| guid_number(&word)).transpose()?;
            Ok(done(&client, &Request::PoolReguid(PoolReguid { pool, guid }))?)
        }
        Verb::Checkpoint { discard, wait, pool } => checkpoint::run(&client, pool, (discard, wait)),
        Verb::Split(arguments) => split::run(&client, arguments),
        Verb::Scrub(arguments) => scrub(&client, &arguments),
        Verb::Resilver { pools } => {
            each(pools, |pool| done(&client, &Request::PoolScrub(PoolScrub { pool, action: ScrubAction::Resilver })))
        }
        Verb::Initialize(arguments) => sweeps::initialize(&client, &arguments),
        Verb::Trim(arguments) => sweeps::trim(&client, &arguments),
        Verb::Offline(arguments) => vdevs::offline(&client, &arguments),
        Verb::Online(arguments) => vdevs::online(&client, &arguments),
        Verb::Attach(arguments) => vdevs::attach(&client, &arguments),
        Verb::Replace(arguments) => vdevs::replace(&client, &arguments),
        Verb::Add(arguments) => add::run(&client, &arguments),
        Verb::Remove(arguments) => vdevs::remove(&client, &arguments),
        Verb::Reopen { keep_resilver, pools } => vdevs::reopen(&client, keep_resilver, pools),
        Verb::Detach { pool, device } => vdevs::detach(&client, pool, device),
        Verb::Clear { rewind, dry_run, power, pool, device } => {
            if power {
                // What cannot be switched on may be there all the same.
                power::on(&client, &pool, device.as_slice())?;
            }
            clear(&client, PoolClear { pool, device, rewind, dry_run })
        }
        Verb::Prefetch { kind, pool } => prefetch(&client, kind.as_deref(), pool),
        Verb::Sync { force, pools } => Ok(done(&client, &Request::PoolSync(PoolSync { pools, force }))?),
        Verb::Freeze { pool } => Ok(done(&client, &Request::PoolFreeze(PoolFreeze { pool }))?),
        Verb::History(arguments) => Ok(history::run(&client, &arguments)?),
        Verb::Events(arguments) => events::run(&client, &arguments),
        Verb::Iostat(arguments) => iostat::run(&client, &arguments),
        Verb::Wait(arguments) => wait::run(&client, &arguments),
        Verb::Labelclear { force, device } => {
            Ok(done(&client, &Request::LabelClear(LabelClear { device: labelled_path(&device), force }))?)
        }
        Verb::Version { json } => Ok(version(json)),
    }
}

/// Path of the device that `labelclear` means: a file, or a device by its short name (OpenZFS: `zpool_do_labelclear`).
fn labelled_path(word: &str) -> String {
    if word.contains('/') || std::path::Path::new(word).exists() { cli::absolute(word) } else { spec::device_path(word) }
}

/// Has tables of deduplication read into memory (OpenZFS: `zpool_do_prefetch`).
fn prefetch(client: &Client, kind: Option<&str>, pool: String) -> Result<u8, Stop> {
    match kind {
        None => return Err(Stop::usage("missing prefetch type")),
        Some("ddt") => {}
        Some(_) => return Err(Stop::usage("unsupported prefetch type")),
    }
    Ok(done(client, &Request::PoolPrefetch(PoolPrefetch { pool }))?)
}

fn clear(client: &Client, request: PoolClear) -> Result<u8, Stop> {
    if request.dry_run && !request.rewind {
        return Err(Stop::usage("-n only meaningful with -F"));
    }
    let what = format!("cannot clear errors for {}", request.pool);
    let goes_back = request.rewind;
    Ok(rewind::answered(&what, rewind::ask(client, goes_back, &Request::PoolClear(request))?)?)
}

fn export(client: &Client, all: bool, (force, hard): (bool, bool), pools: Vec<String>) -> Result<u8, Stop> {
    let one = |pool: &String| done(client, &Request::PoolExport(PoolTarget { pool: pool.clone(), force, hard }));
    match (all, pools.is_empty()) {
        (true, true) => {}
        (false, false) => return each(pools, |pool| one(&pool)),
        (true, false) => return Err(Stop::usage("too many arguments")),
        (false, true) => return Err(Stop::usage("missing pool argument")),
    }
    // All at once: none of them waits for another one's devices (OpenZFS: `zpool_export_one_async`). Pools that others rest on come after
    // those.
    let mut left: Vec<String> = list::reports(client, Vec::new(), false)?.into_iter().map(|pool| pool.name).collect();
    loop {
        let before = left.len();
        let failures: Vec<(String, control_api::Failure)> = std::thread::scope(|scope| {
            let begun: Vec<_> = left.iter().map(|pool| scope.spawn(|| one(pool).err().map(|failure| (pool.clone(), failure)))).collect();
            begun.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
        });
        left.retain(|pool| failures.iter().any(|(failed, _)| failed == pool));
        if left.is_empty() || left.len() == before {
            failures.iter().for_each(|(_, failure)| cli::errln!("{failure}"));
            return Ok(if left.is_empty() { 0 } else { cli::EXIT_FAILURE });
        }
    }
}

/// Goes on with the next pool when one fails; the exit code says that one did.
fn each(pools: Vec<String>, mut work: impl FnMut(String) -> Result<u8, control_api::Failure>) -> Result<u8, Stop> {
    let mut code = 0;
    for pool in pools {
        if let Err(failure) = work(pool) {
            cli::errln!("{failure}");
            code = cli::EXIT_FAILURE;
        }
    }
    Ok(code)
}

fn set(client: &Client, assignment: &str, (pool, vdev): (String, Option<String>)) -> Result<u8, Stop> {
    let (property, value) = assignment.split_once('=').ok_or_else(|| Stop::usage("missing value in property=value argument"))?;
    let table = if vdev.is_some() { cli::property::VDEV } else { cli::property::POOL };
    let property = match cli::property::described(table, property) {
        Some(known) => known.name,
        None if vdev.is_some() && !property.contains(':') => return Err(Stop::usage(format!("invalid property '{property}'"))),
        None => property,
    };
    let vdev = vdev.map(|word| guid_of(client, &pool, &word)).transpose()?;
    Ok(done(client, &Request::PoolSet(PoolSet { pool, property: property.to_string(), value: value.to_string(), vdev }))?)
}

/// Number of a guid as a command line has it: a decimal number, negative ones counted from the end (OpenZFS: `strtoull`).
fn guid_number(word: &str) -> Result<u64, Stop> {
    let number = match word.strip_prefix('-') {
        Some(digits) => digits.parse().map(u64::wrapping_neg),
        None => word.parse(),
    };
    number.map_err(|_| Stop::usage(format!("invalid GUID: {word}")))
}

/// Guid of a vdev that a word names.
fn guid_of(client: &Client, pool: &str, word: &str) -> Result<u64, Stop> {
    let reports = list::reports(client, vec![pool.to_string()], false)?;
    let words = [word.to_string()];
    let places = reports.first().map(|report| vdev_get::places(report, &words));
    match places {
        Some(Ok(places)) if places.len() == 1 => Ok(places[0].vdev.guid),
        _ => {
            Err(Stop::from(Failure::new(ErrorKind::NotFound, format!("invalid vdev '{word}'"), format!("pool '{pool}' has no such vdev"))))
        }
    }
}

fn scrub(client: &Client, arguments: &args::Scrub) -> Result<u8, Stop> {
    let &args::Scrub { errors, pause, stop, since_last, wait, ref pools } = arguments;
    let exclude = |one: &str, other: &str| Stop::usage(format!("invalid option combination: -{one} and -{other} are mutually exclusive"));
    let action = match (pause, stop, since_last, errors) {
        (true, true, ..) => return Err(exclude("s", "p")),
        (true, _, true, _) => return Err(exclude("p", "C")),
        (_, true, true, _) => return Err(exclude("s", "C")),
        (_, _, true, true) => return Err(exclude("e", "C")),
        (true, ..) => ScrubAction::Pause,
        (_, true, ..) => ScrubAction::Stop,
        (_, _, true, _) => ScrubAction::StartFromLast,
        (.., true) => ScrubAction::StartErrors,
        _ => ScrubAction::Start,
    };
    if wait && (pause || stop) {
        return Err(Stop::usage("invalid option combination: -w cannot be used with -p or -s"));
    }
    let code = each(pools.clone(), |pool| done(client, &Request::PoolScrub(PoolScrub { pool, action })))?;
    if wait && code == 0 {
        for pool in pools {
            wait::until_idle(client, pool, &["scrub".to_string()])?;
        }
    }
    Ok(code)
}

fn version(json: bool) -> u8 {
    let version = env!("CARGO_PKG_VERSION");
    if json {
        cli::outln!("{}", cli::json::version("zpool", version));
    } else {
        cli::outln!("zirconia-{version}\non-disk format: pool version 5000, feature flags of OpenZFS 2.3");
    }
    0
}
