//! `zpool create`: checks on replication, and the dry run.

use crate::{args, spec};
use cli::property::{DATASET, POOL, VDEV, described, is_asked};
use cli::{Client, Stop, done};
use control_api::{ErrorKind, Failure, NewVdevs, PoolCreate, Request, VDEV_CLASSES, VdevSpec};
use std::collections::BTreeMap;

/// Runs the verb.
pub fn run(client: &Client, arguments: args::Create) -> Result<u8, Stop> {
    let wanted = match spec::parse(&arguments.vdevs) {
        Ok(wanted) => wanted,
        Err(wrong) => return wrong.end(),
    };
    if let Some(why) = spec::unknown_of(&arguments.vdevs) {
        cli::errln!("{why}");
        return Ok(cli::EXIT_FAILURE);
    }
    if wanted.vdevs.is_empty() {
        cli::errln!("invalid vdev specification: at least one toplevel vdev must be specified");
        return Ok(cli::EXIT_FAILURE);
    }
    let (pool, dry_run) = (arguments.pool.clone(), arguments.dry_run);
    let mut request = PoolCreate {
        pool: arguments.pool,
        new: wanted.clone(),
        properties: pool_properties(&arguments.properties)?,
        fs_properties: root_properties(&arguments.fs_properties)?,
        key: None,
        mountpoint: arguments.mountpoint,
        altroot: arguments.altroot,
        force: arguments.force,
        dry_run: true,
        no_features: arguments.no_features,
        temporary_name: arguments.temporary_name,
    };
    if let Some(why) = spec::unresolved(&wanted) {
        return Ok(spec::absent_beside(&why, done(client, &Request::PoolCreate(request))));
    }
    let data: Vec<VdevSpec> = wanted.data().cloned().collect();
    let objections = if arguments.force { Vec::new() } else { spec::objections(&data, None) };
    if !objections.is_empty() {
        // The daemon tells what the devices hold, which force would override too.
        return Err(spec::objected(&objections, done(client, &Request::PoolCreate(request))).into());
    }
    if !dry_run {
        request.key = cli::keys::of_new(&format!("cannot create '{pool}'"), &request.fs_properties, || false)?;
        request.dry_run = false;
    }
    // The daemon checks names, devices and properties also for a dry run, and then changes nothing.
    let code = done(client, &Request::PoolCreate(request))?;
    if dry_run {
        cli::out!("{}", layout(&pool, &wanted));
    }
    Ok(code)
}

/// Properties of a pool that is made or imported (OpenZFS: `add_prop_list`).
pub fn pool_properties(words: &[String]) -> Result<BTreeMap<String, String>, Stop> {
    let properties = cli::properties(POOL, words)?;
    let is_known = |name: &str| described(POOL, name).is_some() || described(VDEV, name).is_some() || name.starts_with("feature@");
    match properties.keys().find(|name| !is_known(name)) {
        None => Ok(properties),
        Some(name) => {
            let failure = Failure::new(ErrorKind::Invalid, format!("property '{name}' is not a valid pool or vdev property"), "");
            let is_users = name.contains(':');
            Err(if is_users { failure.advise("set properties of your own once the pool is there: zpool set") } else { failure }.into())
        }
    }
}

/// Properties of the file system of a pool that is made.
fn root_properties(words: &[String]) -> Result<BTreeMap<String, String>, Stop> {
    let properties = cli::properties(DATASET, words)?;
    let is_known = |name: &str| described(DATASET, name).is_some() || name.contains(':') || is_asked(name);
    match properties.keys().find(|name| !is_known(name)) {
        None => Ok(properties),
        Some(name) => Err(Failure::new(ErrorKind::Invalid, format!("property '{name}' is not a valid filesystem property"), "").into()),
    }
}

fn layout(pool: &str, wanted: &NewVdevs) -> String {
    let lines = |vdevs: &[VdevSpec]| spec::vdev_lines(vdevs, &str::to_string);
    let mut text = format!("would create '{pool}' with the following layout:\n\n\t{pool}\n{}", lines(&wanted.vdevs));
    for class in VDEV_CLASSES {
        let vdevs = wanted.of_class(class);
        if !vdevs.is_empty() {
            text.push_str(&format!("\t{class}\n{}", lines(vdevs)));
        }
    }
    for (class, list) in [("cache", &wanted.caches), ("spares", &wanted.spares)] {
        if !list.is_empty() {
            text.push_str(&format!("\t{class}\n"));
            list.iter().for_each(|path| text.push_str(&format!("\t  {path}\n")));
        }
    }
    text
}
