//! `zpool create`: checks on replication, and the dry run.

use crate::{args, spec};
use cli::property::{DATASET, POOL};
use cli::{Client, Stop, done};
use control_api::{NewVdevs, PoolCreate, Request};

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
    let forceable = spec::mismatch(&wanted.vdevs).or_else(|| spec::unequal(&wanted.vdevs));
    if let (false, Some(why)) = (arguments.force, forceable) {
        return Ok(spec::say_forceable(&why));
    }
    let (pool, dry_run) = (arguments.pool.clone(), arguments.dry_run);
    let request = PoolCreate {
        pool: arguments.pool,
        new: wanted.clone(),
        properties: cli::properties(POOL, &arguments.properties)?,
        fs_properties: cli::properties(DATASET, &arguments.fs_properties)?,
        mountpoint: arguments.mountpoint,
        altroot: arguments.altroot,
        force: arguments.force,
        dry_run,
        no_features: arguments.no_features,
        temporary_name: arguments.temporary_name,
    };
    // The daemon checks names, devices and properties also for a dry run, and then changes nothing.
    let code = done(client, &Request::PoolCreate(request))?;
    if dry_run {
        cli::out!("{}", layout(&pool, &wanted));
    }
    Ok(code)
}

fn layout(pool: &str, wanted: &NewVdevs) -> String {
    let lines = |vdevs| spec::vdev_lines(vdevs, &str::to_string);
    let mut text = format!("would create '{pool}' with the following layout:\n\n\t{pool}\n{}", lines(&wanted.vdevs));
    if !wanted.logs.is_empty() {
        text.push_str(&format!("\tlogs\n{}", lines(&wanted.logs)));
    }
    if !wanted.spares.is_empty() {
        text.push_str("\tspares\n");
        wanted.spares.iter().for_each(|path| text.push_str(&format!("\t  {path}\n")));
    }
    text
}
