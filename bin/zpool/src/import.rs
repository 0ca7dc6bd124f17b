//! `zpool import`: the listing, and the import itself.

use crate::names::{Names, tree};
use crate::{args, rewind};
use cli::{Client, Stop, absolute};
use control_api::{Failure, ImportCandidate, ImportSearch, PoolImport, Request, Response, VDEV_CLASSES, VdevReport};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// Time after which somebody who waits is told what for.
const PATIENCE: Duration = Duration::from_secs(4);

/// Runs the verb.
pub fn run(client: &Client, arguments: args::Import) -> Result<u8, Stop> {
    let mut paths: Vec<String> = arguments.search.iter().map(|path| absolute(path)).collect();
    if paths.is_empty() {
        let usual = std::env::var("ZPOOL_IMPORT_PATH").unwrap_or_default();
        paths.extend(usual.split(':').filter(|path| !path.is_empty()).map(absolute));
    }
    let txg = arguments.txg.as_deref().map(txg_number).transpose()?;
    // -T is -FX, with an end.
    let goes_back = arguments.rewind || txg.is_some();
    if (arguments.dry_run || arguments.extreme) && !goes_back {
        return Err(Stop::usage("-n or -X only meaningful with -F"));
    }
    check(&arguments)?;
    let cache_file = arguments.cache_file.as_deref().map(absolute);
    let search = ImportSearch { paths, destroyed: arguments.destroyed, cache_file };
    if arguments.pool.is_none() && !arguments.all {
        return Ok(show(client, search)?);
    }
    let unlocks = arguments.load_keys && !arguments.dry_run;
    let before = if unlocks { cli::unlock::pools(client)? } else { Vec::new() };
    let request = PoolImport {
        search,
        pool: arguments.pool,
        new_name: arguments.new_name,
        temporary: arguments.temporary,
        all: arguments.all,
        no_mount: arguments.no_mount || arguments.load_keys,
        force: arguments.force,
        altroot: arguments.altroot,
        properties: crate::create::pool_properties(&arguments.properties)?,
        rewind: goes_back,
        extreme: arguments.extreme,
        txg,
        dry_run: arguments.dry_run,
        missing_log: arguments.missing_log,
        checkpoint: arguments.checkpoint,
    };
    let goes_back = goes_back || arguments.checkpoint;
    let answer = patiently(client, || rewind::ask(client, goes_back, &Request::PoolImport(request)));
    let imported = answer.and_then(|answer| rewind::answered("cannot import", answer));
    // Of several pools some are there although others could not be imported.
    let unlocked = if unlocks { unlock(client, &before)? } else { 0 };
    Ok(imported?.max(unlocked))
}

/// Refuses what does not go together.
fn check(arguments: &args::Import) -> Result<(), Stop> {
    if arguments.all && arguments.pool.is_some() {
        return Err(Stop::usage("too many arguments"));
    }
    if arguments.cache_file.is_some() && (!arguments.search.is_empty() || arguments.scan) {
        return Err(Stop::usage("-c is incompatible with -d and -s"));
    }
    if arguments.checkpoint && (arguments.rewind || arguments.txg.is_some()) {
        return Err(Stop::usage("--rewind-to-checkpoint is incompatible with -F and -T"));
    }
    if arguments.temporary && arguments.new_name.is_none() {
        return Err(Stop::usage("-t needs a new pool name"));
    }
    if arguments.load_keys && arguments.no_mount {
        return Err(Stop::usage("-l is incompatible with -N"));
    }
    if arguments.load_keys && arguments.pool.is_none() && !arguments.all {
        return Err(Stop::usage("-l is only meaningful during an import"));
    }
    Ok(())
}

/// Loads the keys of pools that were not there before, and mounts what they have; gives the exit code.
fn unlock(client: &Client, before: &[String]) -> Result<u8, Failure> {
    let mut code: u8 = 0;
    for pool in cli::unlock::pools(client)?.iter().filter(|pool| !before.contains(pool)) {
        code = code.max(cli::unlock::open(client, pool, &[])?);
    }
    Ok(code)
}

/// Number of a transaction group as a command line has it: decimal, or with `0x` (OpenZFS: `strtoull`).
fn txg_number(word: &str) -> Result<u64, Stop> {
    let number = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    number.map_err(|_| Stop::usage("invalid txg value"))
}

/// Does what may take its time, and says after a while what for: nobody should take the look for another system's activity for a command that hangs.
fn patiently<R>(client: &Client, work: impl FnOnce() -> R) -> R {
    let (ended, waiting) = std::sync::mpsc::channel::<()>();
    let log = client.state().log().display().to_string();
    // Without a thread for it nothing is said.
    let teller = std::thread::Builder::new().spawn(move || {
        if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            cli::errln!(
                "waiting: devices are searched, and a pool that another system may have imported is watched for a while; see {log}"
            );
        }
    });
    let result = work();
    drop(ended);
    let _ = teller.map(std::thread::JoinHandle::join);
    result
}

fn show(client: &Client, search: ImportSearch) -> Result<u8, Failure> {
    let candidates = match patiently(client, || client.call(&Request::PoolImportScan(search)))? {
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
    let mut text = format!("   pool: {}\n     id: {}\n", candidate.name, candidate.guid);
    let destroyed = if candidate.is_destroyed { " (DESTROYED)" } else { "" };
    text.push_str(&format!("  state: {}{destroyed}\n", candidate.state));
    if let Some(status) = &candidate.status {
        text.push_str(&format!("status: {status}\n"));
    }
    candidate.unsupported_features.iter().for_each(|feature| text.push_str(&format!("\t{feature}\n")));
    if let Some(action) = &candidate.action {
        text.push_str(&format!(" action: {action}\n"));
    }
    if let Some(comment) = &candidate.comment {
        text.push_str(&format!("comment: {comment}\n"));
    }
    if let Some(id) = &candidate.message_id {
        text.push_str(&format!("   see: https://openzfs.github.io/openzfs-docs/msg/{id}\n"));
    }
    text.push_str(" config:\n\n");
    let names = Names::new(false, false, false);
    // What no label was found of has no line of its own.
    let is_shown = |vdev: &VdevReport| vdev.kind != "missing";
    let of_class = |class: Option<&str>| -> Vec<VdevReport> {
        candidate.vdevs.children.iter().filter(|vdev| is_shown(vdev) && vdev.class() == class).cloned().collect()
    };
    let data = VdevReport { children: of_class(None), ..candidate.vdevs.clone() };
    let classes = VDEV_CLASSES.map(|class| VdevReport { name: class.into(), children: of_class(Some(class)), ..VdevReport::default() });
    let (data, classes) = (tree(&data, names), classes.each_ref().map(|class| tree(class, names)));
    let width = data.iter().chain(classes.iter().flatten()).map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let row = |(name, vdev): &(String, &VdevReport)| {
        let note = vdev.note.as_deref().map_or(String::new(), |note| format!("  {note}"));
        format!("\t{name:width$}  {}{note}\n", vdev.state)
    };
    text.extend(data.iter().map(row));
    for class in classes.iter().filter(|class| class.len() > 1) {
        text.push_str(&format!("\t{}\n", class[0].0));
        text.extend(class.iter().skip(1).map(row));
    }
    if candidate.has_more_devices {
        text.push_str(
            "\n\tAdditional devices are known to be part of this pool, though their\n\texact configuration cannot be determined.\n",
        );
    }
    text
}
