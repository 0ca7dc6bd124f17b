//! The `zfs` command: OpenZFS 2.3's verbs, options and output over Zirconia's daemon.
#![forbid(unsafe_code)]

mod args;
mod columns;
mod get;
mod list;

use args::{Arguments, Verb};
use clap::Parser;
use cli::Client;
use cli::number::nice_bytes;
use control_api::{
    DatasetCreate, DatasetDestroy, DatasetInherit, DatasetRename, DatasetSet, ErrorKind, Failure, MountRequest, Request, Response,
    SnapshotCreate, UnmountRequest,
};
use std::collections::BTreeMap;
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
        Verb::Create(arguments) => create(&client, arguments),
        Verb::Destroy(arguments) => destroy(&client, &arguments),
        Verb::List(arguments) => list::run(&client, &arguments),
        Verb::Get(arguments) => get::run(&client, &arguments),
        Verb::Set { words } => set(&client, words),
        Verb::Inherit { recursive, property, names, .. } => names
            .into_iter()
            .try_fold(0, |_, name| done(&client, &Request::DatasetInherit(DatasetInherit { name, property: property.clone(), recursive }))),
        Verb::Snapshot { recursive, properties, names } => {
            let properties = assignments(&properties, "cannot create snapshots")?;
            done(&client, &Request::Snapshot(SnapshotCreate { names, recursive, properties }))
        }
        Verb::Rename { parents, recursive, force, from, to } => {
            done(&client, &Request::DatasetRename(DatasetRename { from, to, parents, recursive, force }))
        }
        Verb::Mount { all, overlay, options, name, .. } => mount(&client, MountRequest { name, all, options, overlay }),
        Verb::Unmount { all, force, target } => {
            done(&client, &Request::Unmount(UnmountRequest { target: target.map(absolute), all, force }))
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
    Failure::new(ErrorKind::Invalid, what, why)
}

/// A path as a path, a dataset as a dataset.
fn absolute(target: String) -> String {
    if target.starts_with('/') || target.starts_with('.') {
        return std::path::absolute(&target).map_or(target, |path| path.to_string_lossy().into_owned());
    }
    target
}

fn assignments(words: &[String], what: &str) -> Result<BTreeMap<String, String>, Failure> {
    let mut map = BTreeMap::new();
    for word in words {
        let (name, value) =
            word.split_once('=').ok_or_else(|| usage(what, &format!("missing '=' for property=value argument '{word}'")))?;
        if map.insert(name.to_string(), value.to_string()).is_some() {
            return Err(usage(what, &format!("property '{name}' specified multiple times")));
        }
    }
    Ok(map)
}

fn create(client: &Client, arguments: args::Create) -> Result<u8, Failure> {
    let what = format!("cannot create '{}'", arguments.name);
    if arguments.volume_size.is_some() {
        return Err(Failure::new(ErrorKind::Unsupported, what, "volumes are not available in this version"));
    }
    let request = DatasetCreate {
        properties: assignments(&arguments.properties, &what)?,
        parents: arguments.parents,
        no_mount: arguments.no_mount,
        dry_run: arguments.dry_run,
        name: arguments.name,
    };
    if arguments.dry_run || arguments.verbose {
        println!("{} {}", if arguments.dry_run { "would create" } else { "create" }, request.name);
        for (name, value) in &request.properties {
            println!("\t{name}={value}");
        }
    }
    done(client, &Request::DatasetCreate(request))
}

fn destroy(client: &Client, arguments: &args::Destroy) -> Result<u8, Failure> {
    let request = DatasetDestroy {
        name: arguments.name.clone(),
        recursive: arguments.recursive || arguments.recursive_clones,
        force: arguments.force,
        dry_run: arguments.dry_run,
    };
    let (names, reclaim_bytes) = match client.call(&Request::DatasetDestroy(request))? {
        Response::Destroyed { names, reclaim_bytes } => (names, reclaim_bytes),
        other => return Err(cli::unexpected("cannot destroy", other)),
    };
    if arguments.verbose || arguments.dry_run {
        for name in &names {
            if arguments.parsable {
                println!("destroy\t{name}");
            } else {
                println!("{} {name}", if arguments.dry_run { "would destroy" } else { "will destroy" });
            }
        }
        if arguments.parsable {
            println!("reclaim\t{reclaim_bytes}");
        } else if arguments.name.contains('@') {
            println!("{} {}", if arguments.dry_run { "would reclaim" } else { "will reclaim" }, nice_bytes(reclaim_bytes));
        }
    }
    Ok(0)
}

fn set(client: &Client, words: Vec<String>) -> Result<u8, Failure> {
    let what = "cannot set property";
    let split = words.iter().position(|word| !word.contains('=')).unwrap_or(words.len());
    let (pairs, names) = words.split_at(split);
    if pairs.is_empty() || names.is_empty() {
        return Err(usage(what, "give property=value, then datasets"));
    }
    let properties = assignments(pairs, what)?;
    for name in names {
        done(client, &Request::DatasetSet(DatasetSet { name: name.clone(), properties: properties.clone() }))?;
    }
    Ok(0)
}

fn mount(client: &Client, request: MountRequest) -> Result<u8, Failure> {
    if request.name.is_some() || request.all {
        return done(client, &Request::Mount(request));
    }
    match client.call(&Request::Mount(request))? {
        Response::Mounts(mounts) => {
            for mount in mounts {
                println!("{:<30}  {}", mount.name, mount.mountpoint);
            }
            Ok(0)
        }
        other => Err(cli::unexpected("cannot list mounts", other)),
    }
}

fn version(json: bool) -> u8 {
    let version = env!("CARGO_PKG_VERSION");
    if json {
        let text = serde_json::json!({
            "output_version": {"command": "zfs version", "vers_major": 0, "vers_minor": 1},
            "zfs_version": {"userland": format!("zirconia-{version}"), "kernel": "none"}
        });
        println!("{text}");
    } else {
        println!("zirconia-{version}\non-disk format: pool version 5000, file system version 5");
    }
    0
}
