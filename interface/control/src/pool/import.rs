//! `zpool import`: finding pools on devices, and choosing those that are to be imported.

use crate::device::devices::no_places;
use crate::failure::{because, joined, pool_failure};
use crate::pool::cache_file::read_cache;
use crate::pool::candidate::candidate;
use crate::pool::hostid::host;
use crate::pool::intake::{ImportWish, Intake};
use crate::pool::objections::{Occasion, objected, objection};
use crate::pool::properties::{altroot_of, cachefile_of, set_stored};
use crate::pool::rewinding::{age_of, preview, remark_of, report_of, rewind_of};
use control_api::{
    ErrorKind, Failure, ImportCandidate, ImportSearch, PoolImport, Remark, Response, RewindReport, new_pool_name_objection, shown,
};
use exec::{Mutex, OperationHandle};
use ondisk::Guid;
use pool::{FoundPool, ImportOptions, PoolError, PoolState, Rewind};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Pools that are imported at a time, per processor: they mostly wait for devices (OpenZFS: the task queue of `import_pools`).
const IMPORTS_PER_PROCESSOR: usize = 5;

/// Words about one pool that was imported, or would be.
#[derive(Default)]
struct Outcome {
    remarks: Vec<Remark>,
    rewound: Option<RewindReport>,
}

/// Pools that a search finds.
struct Found {
    /// Pools that are not open.
    closed: Vec<FoundPool>,
    /// Devices with the ids of pools that are open: those of these pools, or copies.
    open: Vec<FoundPool>,
}

fn found(intake: &Intake, search: &ImportSearch) -> Result<Found, Failure> {
    let open: Vec<Guid> = intake.pools.all().iter().map(|pool| pool.pool().guid()).collect();
    let cached = search.cache_file.as_deref().map(read_cache).transpose()?;
    let devices = match &cached {
        None => intake.devices.candidates(search)?,
        Some(cached) => intake.devices.candidates(&ImportSearch { paths: cached.places(), ..search.clone() })?,
    };
    let mut found = pool::find_pools(&intake.exec, devices);
    found.retain(|pool| cached.as_ref().is_none_or(|cached| cached.guids.contains(&pool.guid())));
    let (open, mut closed): (Vec<_>, Vec<_>) = found.into_iter().partition(|pool| open.contains(&pool.guid()));
    closed.retain(|pool| (pool.state() == PoolState::Destroyed) == search.destroyed);
    Ok(Found { closed, open })
}

/// Does `zpool import` without a pool: lists what could be imported.
pub(crate) fn scan(intake: &Intake, search: &ImportSearch) -> Result<Response, Failure> {
    check_places(search)?;
    let found = found(intake, search)?.closed;
    Ok(Response::Importable(found.iter().map(|found| report(intake, found)).collect()))
}

fn report(intake: &Intake, found: &FoundPool) -> ImportCandidate {
    let is_held = found.devices().any(|device| intake.devices.is_held(device.path()));
    candidate(&intake.exec, intake.settings.runtime(), found, host().id, is_held)
}

/// Reason why a search cannot find anything: of all places that it names. Those of a cache file may all be away.
fn misplaced(search: &ImportSearch) -> Option<String> {
    if search.cache_file.is_some() { None } else { no_places(&search.paths) }
}

fn check_places(search: &ImportSearch) -> Result<(), Failure> {
    misplaced(search).map_or(Ok(()), |why| Err(because(ErrorKind::NotFound, "cannot search for pools", why)))
}

/// Failure of a name that several pools have: their ids and states.
fn ambiguous(intake: &Intake, word: &str, matching: &[&FoundPool]) -> Failure {
    let guids = matching.iter().map(|pool| pool.guid()).collect();
    let line = |found: &&FoundPool| {
        let report = report(intake, found);
        format!("\t{}  {}", report.guid, report.state)
    };
    let lines: Vec<String> = matching.iter().map(line).collect();
    pool_failure(format!("cannot import '{word}'"), &PoolError::Ambiguous(guids)).advise(lines.join("\n"))
}

/// Does `zpool import` of a pool.
pub(crate) fn import(intake: &Arc<Intake>, request: &PoolImport) -> Result<Response, Failure> {
    let what = request.pool.as_ref().map_or_else(|| "cannot import".to_string(), |word| format!("cannot import '{word}'"));
    if let Some(why) = request.properties.iter().find_map(|(name, value)| objection(name, value, Occasion::Import)) {
        return Err(objected(&what, &why));
    }
    request.properties.get("cachefile").map(|value| cachefile_of(value, &what)).transpose()?;
    let read_only = request.properties.get("readonly").is_some_and(|value| value == "on");
    if request.pool.is_none() {
        check_places(&request.search)?;
    }
    let Found { closed: found, open } = found(intake, &request.search)?;
    let wanted: Vec<&FoundPool> = match &request.pool {
        Some(word) => {
            let matching: Vec<&FoundPool> = found.iter().filter(|pool| is_meant(pool, word)).collect();
            match matching.len() {
                0 => {
                    let failure = not_closed(intake, &open, word, (request.new_name.is_some(), what));
                    return Err(match misplaced(&request.search) {
                        Some(why) => failure.advise(why),
                        None => failure,
                    });
                }
                1 => matching,
                _ => return Err(ambiguous(intake, word, &matching)),
            }
        }
        None => found.iter().collect(),
    };
    let (mut remarks, mut reports, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for result in import_each(intake, &wanted, request, read_only) {
        match result {
            Ok(outcome) => {
                remarks.extend(outcome.remarks);
                reports.extend(outcome.rewound);
            }
            Err(failure) => failures.push(failure),
        }
    }
    // What is said of those that were imported is not lost with those that were not.
    joined(failures).map_err(|failure| remarked(failure, &remarks))?;
    Ok(if reports.is_empty() { Response::Done { remarks } } else { Response::Rewound { reports, remarks } })
}

fn remarked(mut failure: Failure, remarks: &[Remark]) -> Failure {
    if !remarks.is_empty() {
        let next = failure.next.take().map(|next| format!("{next}\n")).unwrap_or_default();
        let remarks: Vec<String> = remarks.iter().map(Remark::to_string).collect();
        failure.next = Some(next + &remarks.join("\n"));
    }
    failure
}

/// True for the pool that a word of the command line means: its name, or its id.
fn is_meant(found: &FoundPool, word: &str) -> bool {
    found.name() == word || word.parse::<u64>().is_ok_and(|id| id == found.guid().0)
}

/// Failure about a word that means no pool which could be imported, where `twins` are the devices with ids of pools that are open: those can be of
/// a copy, or the pool's own, for which somebody wants another name (`is_renamed`).
fn not_closed(intake: &Intake, twins: &[FoundPool], word: &str, (is_renamed, what): (bool, String)) -> Failure {
    let meant = twins.iter().find(|twin| is_meant(twin, word));
    let user = |twin: &FoundPool| intake.pools.find(|open| open.pool().guid() == twin.guid());
    if let Some((twin, user)) = meant.and_then(|twin| Some((twin, user(twin)?))) {
        let is_copy = twin.devices().any(|device| !user.uses(&device.path().to_string_lossy(), &|_| true));
        if is_copy || is_renamed || user.name() != word {
            return same_id(what, twin.guid(), &user.name(), is_copy);
        }
    }
    let id = word.parse::<u64>().ok().map(Guid);
    if intake.pools.any(|open| open.name() == word || Some(open.pool().guid()) == id) {
        return because(ErrorKind::Exists, what, "a pool with that name already exists")
            .advise("it is imported here already; see 'zpool list'");
    }
    pool_failure(what, &PoolError::NotFound)
}

/// Failure about a pool whose id an open pool `name` has.
fn same_id(what: String, id: Guid, name: &str, is_copy: bool) -> Failure {
    let next = if is_copy {
        format!(
            "no two pools of one id are open at once: export '{name}', import the copy alone (-d), 'zpool reguid' it, then import '{name}' again"
        )
    } else {
        format!("these are its devices: 'zpool export {name}' first")
    };
    because(ErrorKind::Exists, what, format!("a pool with this id ({}) is already imported as '{name}'", id.0)).advise(next)
}

/// Name that a pool gets: the new one, or what it calls itself, which anybody can have written to a disk (OpenZFS: `pool_namecheck`).
fn name_for<'a>(own: &'a str, new: Option<&'a str>, what: &str) -> Result<&'a str, Failure> {
    let name = new.unwrap_or(own);
    match new_pool_name_objection(name) {
        None => Ok(name),
        Some(why) if new.is_some() => Err(because(ErrorKind::Invalid, what, why)),
        Some(why) => Err(because(ErrorKind::Invalid, what, format!("invalid name: {}", shown(&why)))
            .advise("give it another name: zpool import ID NEWNAME ('zpool import' shows its id)")),
    }
}

/// Tells which state of a pool an import would take, and imports nothing.
fn previewed(intake: &Intake, found: &FoundPool, request: &PoolImport, (read_only, what): (bool, &str)) -> Result<Outcome, Failure> {
    let options = ImportOptions {
        read_only,
        force: request.force,
        missing_log: request.missing_log,
        rewind: rewind_of(request),
        host: host(),
        ..ImportOptions::default()
    };
    let report = preview(&intake.exec, found, &options, intake.settings.runtime(), what)?;
    Ok(Outcome { rewound: Some(report), ..Outcome::default() })
}

/// Imports several pools at a time: each waits for devices of its own (OpenZFS: `import_pools`). Gives what became of each, in their order.
fn import_each(intake: &Arc<Intake>, wanted: &[&FoundPool], request: &PoolImport, read_only: bool) -> Vec<Result<Outcome, Failure>> {
    if wanted.len() < 2 {
        return wanted.iter().map(|pool| import_one(intake, pool, request, read_only)).collect();
    }
    let exec = &intake.exec;
    let queue = Arc::new(Mutex::new(wanted.iter().map(|&pool| pool.clone()).enumerate().collect::<VecDeque<_>>()));
    let results: Arc<Mutex<BTreeMap<usize, Result<Outcome, Failure>>>> = Arc::default();
    let import_next = |_: usize| {
        let (intake, request, queue, results) = (intake.clone(), request.clone(), queue.clone(), results.clone());
        let work = move || {
            loop {
                let next = queue.lock().pop_front();
                let Some((number, pool)) = next else { break };
                let result = import_one(&intake, &pool, &request, read_only);
                results.lock().insert(number, result);
            }
        };
        exec.spawn_operation("z-import", Box::new(work))
    };
    let at_a_time = wanted.len().min(exec.parallelism().max(1) * IMPORTS_PER_PROCESSOR);
    let workers: Vec<OperationHandle> = (0..at_a_time).map(import_next).collect();
    workers.into_iter().for_each(OperationHandle::join);
    let mut results = std::mem::take(&mut *results.lock());
    let lacking = || Err(because(ErrorKind::Internal, "cannot import", "an import did not come to its end"));
    (0..wanted.len()).map(|number| results.remove(&number).unwrap_or_else(lacking)).collect()
}

fn import_one(intake: &Intake, found: &FoundPool, request: &PoolImport, read_only: bool) -> Result<Outcome, Failure> {
    let what = format!("cannot import '{}'", shown(found.name()));
    let name = name_for(found.name(), request.new_name.as_deref(), &what)?.to_string();
    altroot_of(request.altroot.as_ref(), &request.properties, &what)?;
    let Some(_claim) = intake.pools.claim(&name, Some(found.guid())) else {
        return Err(because(ErrorKind::Exists, what, format!("a pool named '{name}' is already imported"))
            .advise("give it another name: zpool import POOL NEWNAME"));
    };
    let goes_back = rewind_of(request) != Rewind::Never;
    let devices = found.devices().chain(found.devices_that_left().filter(|_| goes_back));
    let paths: Vec<String> = devices.map(|device| device.path().to_string_lossy().into_owned()).collect();
    if request.dry_run {
        return previewed(intake, found, request, (read_only, &what));
    }
    let response = intake.import_devices(&paths, found.guid(), &ImportWish::new(request, read_only, false, what.clone()))?;
    // Who goes back to a checkpoint knows what to (OpenZFS says nothing of it, either).
    let opened = intake.pools.get(&name).filter(|_| !request.checkpoint);
    let mut outcome = Outcome { remarks: Vec::new(), rewound: opened.and_then(|open| report_of(open.pool())) };
    if let Response::Done { remarks } = response {
        outcome.remarks = remarks;
    }
    if let Some(newest) = found.newest().filter(|_| !goes_back && found.damaged_uberblocks() > 0) {
        let now = u64::try_from(intake.exec.wall_clock().0).unwrap_or_default();
        outcome.remarks.push(age_of(newest, now));
    }
    if !read_only {
        outcome.remarks.extend(outcome.rewound.as_ref().map(remark_of));
    }
    outcome.remarks.extend(set_asked(intake, request, &name, read_only, &what)?);
    Ok(outcome)
}

/// Sets the properties that an import was asked for and that the pool keeps; tells which it could not (OpenZFS: `spa_import`).
fn set_asked(intake: &Intake, request: &PoolImport, name: &str, read_only: bool, what: &str) -> Result<Vec<Remark>, Failure> {
    let kept = || request.properties.iter().filter(|(property, _)| !matches!(property.as_str(), "readonly" | "cachefile" | "altroot"));
    if read_only {
        let unset = |(property, _)| Remark::Warning(format!("warning: property '{property}' was not set: '{name}' is read-only"));
        return Ok(kept().map(unset).collect());
    }
    let Some(open) = intake.pools.get(name).filter(|_| kept().next().is_some()) else { return Ok(Vec::new()) };
    let what = format!("{what} with its properties");
    kept().try_for_each(|(property, value)| set_stored(&open, property, value, &what))?;
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a disk that somebody left lying around mounts over other folders, or is taken for options by scripts.
    #[test]
    fn what_a_pool_calls_itself_is_no_name_until_it_is_checked() {
        for evil in ["../../xx", "tb/abcde", "a\u{1b}[2J", "a\nb", "mirror-0", "-f-oroot", "", "a@b"] {
            let failure = name_for(evil, None, "cannot import").expect_err(evil);
            assert!(failure.why.starts_with("invalid name"), "{failure}");
            assert_eq!(name_for(evil, Some("tank"), "cannot import").expect("a new name"), "tank");
        }
        assert_eq!(name_for("my tank", None, "").expect("as OpenZFS names pools"), "my tank");
    }
}
