//! `zpool import`: the listing, and the import itself.

use crate::{args, status};
use cli::{Client, Stop, absolute};
use control_api::{Failure, ImportCandidate, ImportSearch, PoolImport, Request, Response};

/// Runs the verb.
pub fn run(client: &Client, arguments: args::Import) -> Result<u8, Stop> {
    let mut paths: Vec<String> = arguments.search.iter().map(|path| absolute(path)).collect();
    if paths.is_empty() {
        let usual = std::env::var("ZPOOL_IMPORT_PATH").unwrap_or_default();
        paths.extend(usual.split(':').filter(|path| !path.is_empty()).map(absolute));
    }
    if arguments.dry_run && !arguments.rewind {
        return Err(Stop::usage("-n or -X only meaningful with -F"));
    }
    if arguments.all && arguments.pool.is_some() {
        return Err(Stop::usage("too many arguments"));
    }
    if arguments.cache_file.is_some() && (!arguments.search.is_empty() || arguments.scan) {
        return Err(Stop::usage("-c is incompatible with -d and -s"));
    }
    if arguments.temporary && arguments.new_name.is_none() {
        return Err(Stop::usage("-t needs a new pool name"));
    }
    let cache_file = arguments.cache_file.as_deref().map(absolute);
    let search = ImportSearch { paths, destroyed: arguments.destroyed, cache_file };
    if arguments.pool.is_none() && !arguments.all {
        return Ok(show(client, search)?);
    }
    let request = PoolImport {
        search,
        pool: arguments.pool,
        new_name: arguments.new_name,
        temporary: arguments.temporary,
        all: arguments.all,
        no_mount: arguments.no_mount,
        force: arguments.force,
        altroot: arguments.altroot,
        properties: cli::properties(cli::property::POOL, &arguments.properties)?,
        rewind: arguments.rewind,
        dry_run: arguments.dry_run,
    };
    Ok(cli::done(client, &Request::PoolImport(request))?)
}

fn show(client: &Client, search: ImportSearch) -> Result<u8, Failure> {
    let candidates = match client.call(&Request::PoolImportScan(search))? {
        Response::Importable(candidates) => candidates,
        other => return Err(cli::unexpected("cannot search for pools", other)),
    };
    if candidates.is_empty() {
        cli::errln!("no pools available to import");
        return Ok(cli::EXIT_FAILURE);
    }
    let blocks: Vec<String> = candidates.iter().map(describe).collect();
    cli::out!("{}", blocks.join("\n"));
    Ok(0)
}

fn describe(candidate: &ImportCandidate) -> String {
    let mut text = format!("   pool: {}\n     id: {}\n  state: {}\n", candidate.name, candidate.guid, candidate.state);
    if let Some(status) = &candidate.status {
        text.push_str(&format!("status: {}\n", status::wrap(status)));
    }
    if !candidate.unsupported_features.is_empty() {
        text.push_str("\tUnsupported features:\n");
        for feature in &candidate.unsupported_features {
            text.push_str(&format!("\t  {feature}\n"));
        }
    }
    if let Some(action) = &candidate.action {
        text.push_str(&format!(" action: {}\n", status::wrap(action)));
    }
    text.push_str(" config:\n\n");
    let rows = status::tree(&candidate.vdevs, status::Names::new(false, false, false));
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, vdev) in rows {
        let note = vdev.note.as_deref().map_or(String::new(), |note| format!("  {note}"));
        text.push_str(&format!("\t{name:width$}  {}{note}\n", vdev.state));
    }
    text
}
