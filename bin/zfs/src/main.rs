//! The `zfs` command: OpenZFS 2.3's verbs, options and output over Zirconia's daemon.
#![forbid(unsafe_code)]
// `println!` panics when its reader is gone: see `cli::print`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod allow;
mod args;
mod bookmark;
mod columns;
mod diff;
mod direct_stats;
mod export;
mod get;
mod holds;
mod keys;
mod list;
mod mount_zfs;
mod project;
mod receive;
mod redact;
mod send;
mod share;
mod upgrade;
mod userspace;
mod wait;

use args::{Arguments, Verb};
use cli::number::nice_bytes;
use cli::property::{self, DATASET};
use cli::{Client, Lacking, Stop, done, properties};
use control_api::{
    DatasetClone, DatasetCreate, DatasetDestroy, DatasetInherit, DatasetPromote, DatasetRename, DatasetRollback, DatasetSet, ErrorKind,
    Failure, MountRequest, RedactRequest, Request, Response, SnapshotCreate, SnapshotHold, UnmountRequest,
};
use serde_json::{Map, json};
use std::process::ExitCode;

fn main() -> ExitCode {
    if mount_zfs::is_called() {
        return mount_zfs::main();
    }
    cli::run_with::<Arguments>(&LACKING, |arguments| run(arguments.verb))
}

/// Verbs and options that `zfs` of OpenZFS 2.3 has besides, and `rewrite` of 2.4.
const LACKING: Lacking = Lacking { verbs: &["program", "zone", "unzone", "rewrite"], options: &[("share", &["l"])] };

fn run(verb: Verb) -> Result<u8, Stop> {
    let client = Client::from_environment()?;
    match verb {
        Verb::Create(arguments) => create(&client, arguments),
        Verb::Destroy(arguments) => Ok(destroy(&client, &arguments)?),
        Verb::List(arguments) => list::run(&client, &arguments),
        Verb::Get(arguments) => get::run(&client, &arguments),
        Verb::Set { words, no_mount } => set(&client, &words, no_mount),
        Verb::Inherit { recursive, received, property, names } => inherit(&client, (recursive, received), &property, names),
        Verb::Snapshot { recursive, properties, names } => snapshot(&client, recursive, &properties, names),
        Verb::Rename { parents, recursive, force, no_unmount, from, to } => {
            let conflict = [(parents && recursive, "-p and -r"), (no_unmount && parents, "-u and -p")];
            if let Some((_, options)) = conflict.iter().find(|(both, _)| *both) {
                return Err(Stop::usage(format!("{options} options are mutually exclusive")));
            }
            if recursive && !from.contains('@') {
                return Err(Stop::usage("source dataset for recursive rename must be a snapshot"));
            }
            Ok(done(&client, &Request::DatasetRename(DatasetRename { from, to, parents, recursive, force, no_unmount }))?)
        }
        Verb::Hold(arguments) if arguments.tag.starts_with('.') => Err(Stop::usage("tag may not start with '.'")),
        Verb::Hold(arguments) => hold(&client, arguments, Request::Hold),
        Verb::Release(arguments) => hold(&client, arguments, Request::Release),
        Verb::Holds(arguments) => holds::run(&client, &arguments),
        Verb::Bookmark { source, bookmark } => bookmark::run(&client, &source, &bookmark),
        Verb::Redact { snapshot, bookmark, clones } => redact::run(&client, RedactRequest { snapshot, bookmark, clones }),
        Verb::Clone { parents, properties, origin, name } => {
            let properties = cli::properties(DATASET, &properties)?;
            Ok(done(&client, &Request::DatasetClone(DatasetClone { origin, name, properties, parents }))?)
        }
        Verb::Promote { name } => Ok(done(&client, &Request::DatasetPromote(DatasetPromote { name }))?),
        Verb::Rollback { recursive, clones, force, name } => {
            Ok(done(&client, &Request::DatasetRollback(DatasetRollback { name, recursive, clones, force }))?)
        }
        Verb::Send(arguments) => send::run(&client, &arguments),
        Verb::Receive(arguments) => receive::run(client, arguments),
        Verb::LoadKey(arguments) => keys::load(&client, &arguments),
        Verb::UnloadKey(arguments) => keys::unload(&client, &arguments),
        Verb::ChangeKey(arguments) => keys::change(&client, &arguments),
        Verb::Mount { all, overlay, options, names, recursive, json, verbose, load_keys, force } => {
            if names.len() > 1 && !recursive {
                return Err(Stop::usage("too many arguments"));
            }
            let request = MountRequest { name: names.first().cloned(), all, options, overlay, force, ..MountRequest::default() };
            mount(&client, request, &Mount { names, recursive, json, verbose, load_keys })
        }
        Verb::Unmount { all, force, unload_keys, target } => unmount(&client, UnmountRequest { target, all, force }, unload_keys),
        Verb::Share(arguments) => share::share(&client, &arguments),
        Verb::Unshare(arguments) => share::unshare(&client, &arguments),
        Verb::Userspace(arguments) => userspace::run(&client, &arguments, "user"),
        Verb::Groupspace(arguments) => userspace::run(&client, &arguments, "group"),
        Verb::Projectspace(arguments) => userspace::run(&client, &arguments.with_project(), "project"),
        Verb::Upgrade(arguments) => upgrade::run(&client, &arguments),
        Verb::Project(arguments) => project::run(&client, &arguments),
        Verb::Allow(arguments) => allow::run(&client, &arguments),
        Verb::Unallow(arguments) => allow::take_back(&client, &arguments),
        Verb::Wait(arguments) => wait::run(&client, &arguments),
        Verb::Diff(arguments) => diff::run(&client, &arguments),
        Verb::DirectStats(arguments) => direct_stats::run(&client, &arguments),
        Verb::Version { json } => Ok(version(json)),
    }
}

fn create(client: &Client, arguments: args::Create) -> Result<u8, Stop> {
    let volume = arguments.volume_size.is_some();
    if !volume && (arguments.sparse || arguments.block_size.is_some()) {
        return Err(Stop::usage("'-s' and '-b' can only be used when creating a volume"));
    }
    if volume && arguments.no_mount {
        return Err(Stop::usage("'-u' can only be used when creating a filesystem"));
    }
    let word = |name: &str, value: &Option<String>| value.iter().map(|value| format!("{name}={value}")).collect::<Vec<_>>();
    let words = [word("volsize", &arguments.volume_size), word("volblocksize", &arguments.block_size), arguments.properties].concat();
    let wanted = properties(DATASET, &words)?;
    let key = match arguments.dry_run {
        true => None,
        false => {
            let is_above = || keys::is_below_encrypted(client, &arguments.name);
            cli::keys::of_new(&format!("cannot create '{}'", arguments.name), &wanted, is_above)?
        }
    };
    let request = DatasetCreate {
        properties: wanted,
        key,
        volume,
        sparse: arguments.sparse,
        parents: arguments.parents,
        no_mount: arguments.no_mount,
        dry_run: arguments.dry_run,
        name: arguments.name,
    };
    let (name, dry_run, parents) = (request.name.clone(), request.dry_run, request.parents);
    let (properties, remarks) = match client.call(&Request::DatasetCreate(request))? {
        Response::Created { properties, remarks } => (properties, remarks),
        // `-p` finds that it is there.
        Response::Done { .. } => return Ok(0),
        other => return Err(cli::unexpected(&format!("cannot create '{name}'"), other).into()),
    };
    let would = if dry_run { "would create" } else { "create" };
    if arguments.parsable {
        if parents {
            cli::outln!("create_ancestors\t{name}");
        }
        cli::outln!("create\t{name}");
        properties.iter().for_each(|(property, value)| cli::outln!("property\t{property}\t{value}"));
    } else if arguments.verbose {
        if parents {
            cli::outln!("{would} ancestors of {name}");
        }
        cli::outln!("{would} {name}");
        properties.iter().for_each(|(property, value)| cli::outln!("\t{property}={value}"));
    }
    remarks.iter().for_each(cli::say);
    Ok(0)
}

/// Exit code of what cannot be done with bookmarks, as OpenZFS's command has it.
const EXIT_NOT_WITH_BOOKMARKS: u8 = 255;

fn destroy(client: &Client, arguments: &args::Destroy) -> Result<u8, Failure> {
    let is_bookmark = arguments.name.contains('#');
    let recursive = arguments.recursive || arguments.recursive_clones;
    let refused = [(arguments.dry_run, "dryrun"), (arguments.defer, "defer destroy"), (recursive, "recursive")];
    if let (true, Some((_, what))) = (is_bookmark, refused.iter().find(|(is_given, _)| *is_given)) {
        cli::errln!("{what} is not supported with bookmark");
        return Ok(EXIT_NOT_WITH_BOOKMARKS);
    }
    let request = DatasetDestroy {
        name: arguments.name.clone(),
        recursive,
        clones: arguments.recursive_clones,
        force: arguments.force,
        dry_run: arguments.dry_run,
        defer: arguments.defer,
    };
    let (names, reclaim_bytes) = match client.call(&Request::DatasetDestroy(request))? {
        Response::Destroyed { names, reclaim_bytes } => (names, reclaim_bytes),
        other => return Err(cli::unexpected("cannot destroy", other)),
    };
    if is_bookmark {
        return Ok(0);
    }
    let is_snapshot = arguments.name.contains('@');
    let verb = if arguments.dry_run { "would" } else { "will" };
    if arguments.parsable {
        names.iter().for_each(|name| cli::outln!("destroy\t{name}"));
        if is_snapshot {
            cli::outln!("reclaim\t{reclaim_bytes}");
        }
    } else if arguments.verbose {
        names.iter().for_each(|name| cli::outln!("{verb} destroy {name}"));
        if is_snapshot {
            cli::outln!("{verb} reclaim {}", nice_bytes(reclaim_bytes));
        }
    }
    Ok(0)
}

/// Sets `property=value …` of the datasets that follow, in this order only.
fn set(client: &Client, words: &[String], no_mount: bool) -> Result<u8, Stop> {
    let split = words.iter().position(|word| !word.contains('=')).unwrap_or(words.len());
    let (pairs, names) = words.split_at(split);
    if pairs.is_empty() {
        return Err(Stop::usage("missing property=value argument(s)"));
    }
    if names.is_empty() {
        return Err(Stop::usage("missing dataset name(s)"));
    }
    if names.iter().any(|word| word.contains('=')) {
        return Err(Stop::usage("invalid argument order"));
    }
    let properties = properties(DATASET, pairs)?;
    each(names.to_vec(), |name| done(client, &Request::DatasetSet(DatasetSet { name, properties: properties.clone(), no_mount })))
}

/// Goes on with the next name when one fails; the exit code says that one did.
fn each(names: Vec<String>, mut work: impl FnMut(String) -> Result<u8, Failure>) -> Result<u8, Stop> {
    let mut code = 0;
    for name in names {
        if let Err(failure) = work(name) {
            cli::errln!("{failure}");
            code = cli::EXIT_FAILURE;
        }
    }
    Ok(code)
}

fn inherit(client: &Client, (recursive, received): (bool, bool), property: &str, names: Vec<String>) -> Result<u8, Stop> {
    let Ok(property) = property::canonical(DATASET, property) else {
        return Err(Stop::usage(format!("invalid property '{property}'")));
    };
    each(names, |name| done(client, &Request::DatasetInherit(DatasetInherit { name, property: property.clone(), recursive, received })))
}

/// True when nothing was done, for certain: a daemon that goes away in the middle may have done it.
fn is_certain(failure: &Failure) -> bool {
    failure.kind != ErrorKind::Disconnected
}

fn snapshot(client: &Client, recursive: bool, properties: &[String], names: Vec<String>) -> Result<u8, Stop> {
    let properties = cli::properties(DATASET, properties)?;
    let is_several = recursive || names.len() > 1;
    match done(client, &Request::Snapshot(SnapshotCreate { names, recursive, properties })) {
        Err(failure) if is_several && is_certain(&failure) => {
            cli::errln!("{failure}\nno snapshots were created");
            Ok(cli::EXIT_FAILURE)
        }
        other => Ok(other?),
    }
}

/// Takes or releases holds, as `request` says, on one snapshot after the other.
fn hold(client: &Client, arguments: args::Hold, request: fn(SnapshotHold) -> Request) -> Result<u8, Stop> {
    let args::Hold { recursive, tag, names } = arguments;
    each(names, |name| done(client, &request(SnapshotHold { name, tag: tag.clone(), recursive })))
}

/// Options of `zfs mount` that are the command's own business.
struct Mount {
    /// Names of file systems; several with `-R` only.
    names: Vec<String>,
    recursive: bool,
    json: bool,
    verbose: bool,
    load_keys: bool,
}

fn mount(client: &Client, request: MountRequest, how: &Mount) -> Result<u8, Stop> {
    match (&request.name, request.all, how.recursive) {
        (Some(_), true, _) => return Err(Stop::usage("too many arguments")),
        _ if request.options.iter().any(String::is_empty) => return Err(Stop::usage("empty mount options (-o) specified")),
        (None, _, true) => return Err(Stop::usage("no dataset provided")),
        (None, false, false) if !request.options.is_empty() => {
            return Err(Stop::usage("missing filesystem argument (specify -a for all)"));
        }
        (Some(_), ..) if how.json => return Err(Stop::usage("too many arguments")),
        (None, false, false) => return Ok(mounts(client, how.json)?),
        _ => {}
    }
    let mut names = Vec::new();
    for name in how.names.iter().filter(|_| how.recursive) {
        let more = cli::unlock::mountable(client, name)?.into_iter().map(Some);
        names.extend(more.filter(|name| !names.contains(name)).collect::<Vec<_>>());
    }
    if !how.recursive {
        names.push(request.name.clone());
    }
    let mut code = 0;
    for name in names {
        if how.load_keys {
            code = code.max(keys::load_to_mount(client, name.as_ref())?);
        }
        let request = MountRequest { name: name.clone(), ..request.clone() };
        match done(client, &Request::Mount(request)) {
            Ok(_) => name.iter().filter(|_| how.verbose).for_each(|name| cli::outln!("mounted {name}")),
            Err(failure) => {
                cli::errln!("{failure}");
                code = cli::EXIT_FAILURE;
            }
        }
    }
    Ok(code)
}

/// Unmounts; with `unload_keys` the keys of encryption roots that are mounted no longer are forgotten (OpenZFS: `zfs_unmount`).
fn unmount(client: &Client, request: UnmountRequest, unload_keys: bool) -> Result<u8, Stop> {
    if request.all == request.target.is_some() {
        return Err(Stop::usage(if request.all { "too many arguments" } else { "missing filesystem argument" }));
    }
    if !unload_keys {
        return Ok(done(client, &Request::Unmount(request))?);
    }
    let before = share::mounted(client)?;
    let mut code = done(client, &Request::Unmount(request))?;
    let left = share::mounted(client)?;
    for one in before.iter().filter(|one| left.iter().all(|other| other.name != one.name)) {
        code = code.max(keys::unload_unmounted(client, &one.name)?);
    }
    Ok(code)
}

fn mounts(client: &Client, as_json: bool) -> Result<u8, Failure> {
    let mounts = share::mounted(client)?;
    if as_json {
        let entries: Map<String, serde_json::Value> = mounts
            .into_iter()
            .map(|mount| (mount.name.clone(), json!({"filesystem": mount.name, "mountpoint": mount.mountpoint})))
            .collect();
        if !entries.is_empty() {
            cli::outln!("{}", cli::json::envelope("zfs mount", "datasets", entries));
        }
        return Ok(0);
    }
    mounts.iter().for_each(|mount| cli::outln!("{:<30}  {}", mount.name, mount.mountpoint));
    Ok(0)
}

fn version(json: bool) -> u8 {
    let version = env!("CARGO_PKG_VERSION");
    if json {
        cli::outln!("{}", cli::json::version("zfs", version));
    } else {
        cli::outln!("zirconia-{version}\non-disk format: pool version 5000, file system version 5");
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, somebody is told that no snapshots were created, and all are there.
    #[test]
    fn after_a_lost_daemon_nobody_says_that_nothing_was_done() {
        let of = |kind| is_certain(&Failure::new(kind, "cannot create snapshots", "why"));
        assert_eq!([ErrorKind::Disconnected, ErrorKind::Exists, ErrorKind::NoSpace].map(of), [false, true, true]);
    }
}
