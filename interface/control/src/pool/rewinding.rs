//! `zpool import -F`, `-X`, `-T` and `--rewind-to-checkpoint`: the state of a pool that is to be taken, and what `-n` tells of all that could be.

use crate::failure::pool_failure;
use control_api::{Failure, PoolImport, Remark, RewindPointReport, RewindReport, shown};
use exec::Exec;
use ondisk::Txg;
use pool::{FoundPool, ImportOptions, KeptDataset, Pool, PoolError, Rewind, RewindPoint, Runtime};
use std::collections::{BTreeMap, BTreeSet};

/// Extent to which a request lets a pool go back.
pub(crate) fn rewind_of(request: &PoolImport) -> Rewind {
    if request.checkpoint {
        return Rewind::Checkpoint;
    }
    match (request.txg, request.rewind, request.extreme) {
        (Some(txg), ..) => Rewind::To(Txg(txg)),
        (None, true, true) => Rewind::Any,
        (None, true, false) => Rewind::Recent,
        (None, false, _) => Rewind::Never,
    }
}

/// Remark about an import that takes the newest whole state, of this txg and time, though newer ones may be among those that are damaged.
pub(crate) fn age_of((txg, time): (Txg, u64), now: u64) -> Remark {
    let seconds = now.saturating_sub(time);
    let age = match seconds {
        0..120 => format!("{seconds} seconds"),
        120..7200 => format!("{} minutes", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    };
    let lost = "newer ones may be lost with the uberblocks that are damaged";
    Remark::Output(format!("The state that was found is {age} old (txg {}); {lost}.", txg.0))
}

/// Failure with advice where what is damaged may be whole in an older state that the import was not allowed to take.
pub(crate) fn advised(failure: Failure, error: &PoolError, rewind: Rewind) -> Failure {
    let is_damage =
        matches!(error, PoolError::Corrupt(_) | PoolError::Object(..) | PoolError::Dmu(_) | PoolError::Zap(_) | PoolError::Dsl(_));
    if !is_damage || failure.next.is_some() {
        return failure;
    }
    match rewind {
        Rewind::Never => failure.advise("'zpool import -nF' tells whether a state that is a little older can be taken, '-F' takes it"),
        Rewind::Recent => failure.advise("'zpool import -nFX' tells whether any older state can be taken, '-FX' takes it"),
        Rewind::Any | Rewind::To(_) | Rewind::Checkpoint => failure,
    }
}

/// Report of a pool that went back at its import; None of one that did not.
pub(crate) fn report_of(pool: &Pool) -> Option<RewindReport> {
    let rewound = pool.rewound()?;
    Some(RewindReport {
        pool: pool.name(),
        dry_run: false,
        time: Some(rewound.timestamp),
        lost_seconds: rewound.lost_seconds,
        data_errors: rewound.data_errors,
        points: Vec::new(),
        failure: None,
    })
}

/// Remark about a pool that went back and can be written: blocks of its files may have been used again since, and without `-T` not all of them were
/// read.
pub(crate) fn remark_of(report: &RewindReport) -> Remark {
    let pool = shown(&report.pool);
    Remark::Output(format!("'zpool scrub {pool}' tells whether any files were written over since then."))
}

/// Tries all states that an import with these options may take, and tells which it would, and what each one has.
pub(crate) fn preview(
    exec: &Exec,
    found: &FoundPool,
    options: &ImportOptions,
    runtime: Runtime,
    what: &str,
) -> Result<RewindReport, Failure> {
    let failed = |error: PoolError| advised(pool_failure(what.to_string(), &error), &error, options.rewind);
    let points = found.rewind_points(exec, options, &runtime).map_err(failed)?;
    let taken = points.iter().find(|point| point.problem.is_none());
    let newest_problem = points.first().map_or(Some(PoolError::NoUberblock), |point| point.problem.clone());
    // Who has none that can be read knows of none that is lost.
    let reference = points.iter().find(|point| !point.datasets.is_empty()).map_or(&[] as &[KeptDataset], |point| point.datasets.as_slice());
    Ok(RewindReport {
        pool: shown(found.name()).into_owned(),
        dry_run: true,
        time: taken.map(|point| point.state.timestamp),
        lost_seconds: taken.map_or(0, |point| point.state.lost_seconds),
        data_errors: taken.map_or(0, |point| point.state.data_errors),
        points: points.iter().map(|point| row(point, reference)).collect(),
        failure: if taken.is_some() { None } else { newest_problem.map(failed) },
    })
}

/// Report of a state, beside the newest that could be read.
fn row(point: &RewindPoint, reference: &[KeptDataset]) -> RewindPointReport {
    let kept: BTreeMap<&str, Txg> = point.datasets.iter().map(|dataset| (dataset.name.as_str(), dataset.changed)).collect();
    let is_read = !point.datasets.is_empty();
    let names = |is_it: &dyn Fn(&KeptDataset) -> bool| -> Vec<String> {
        let found: BTreeSet<&str> =
            reference.iter().filter(|dataset| is_read && is_it(dataset)).map(|dataset| dataset.name.as_str()).collect();
        found.into_iter().map(str::to_string).collect()
    };
    RewindPointReport {
        txg: point.state.txg.0,
        time: point.state.timestamp,
        lost_seconds: point.state.lost_seconds,
        data_errors: point.state.data_errors,
        problem: point.problem.as_ref().map(ToString::to_string),
        datasets: is_read.then_some(point.datasets.len() as u64),
        missing: names(&|dataset| !kept.contains_key(dataset.name.as_str())),
        changed: names(&|dataset| kept.get(dataset.name.as_str()).is_some_and(|changed| *changed < dataset.changed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::Rewound;

    /// If this fails, somebody goes back without having been told which datasets, or whose last changes, are lost by it.
    #[test]
    fn what_a_state_lacks_is_named() {
        let dataset = |name: &str, changed| KeptDataset { name: name.to_string(), changed: Txg(changed) };
        let newest = [dataset("tank", 5), dataset("tank/a", 9), dataset("tank/a@s", 4), dataset("tank/b", 10)];
        let state = Rewound { txg: Txg(8), timestamp: 100, lost_seconds: 7, data_errors: 3 };
        let older = vec![dataset("tank", 5), dataset("tank/a", 8), dataset("tank/a@s", 4), dataset("tank/gone", 3)];
        let report = row(&RewindPoint { state: state.clone(), problem: None, datasets: older }, &newest);
        assert_eq!((report.missing, report.changed), (vec!["tank/b".to_string()], vec!["tank/a".to_string()]));
        assert_eq!((report.txg, report.time, report.lost_seconds, report.data_errors, report.datasets), (8, 100, 7, 3, Some(4)));
        let damaged = RewindPoint { state, problem: Some(PoolError::NoUberblock), datasets: Vec::new() };
        let report = row(&damaged, &newest);
        assert_eq!((report.datasets, report.missing.len(), report.changed.len()), (None, 0, 0), "nobody knows what it has");
        assert!(report.problem.is_some());
    }

    /// If this fails, nobody sees that the last changes went with the uberblocks that are damaged.
    #[test]
    fn the_age_of_a_state_is_told() {
        for (time, age) in [(1000, "0 seconds"), (881, "119 seconds"), (880, "2 minutes"), (2000, "0 seconds")] {
            let Remark::Output(said) = age_of((Txg(7), time), 1000) else { panic!("no output") };
            assert!(said.starts_with(&format!("The state that was found is {age} old (txg ")), "{said}");
        }
        let Remark::Output(said) = age_of((Txg(7), 0), 400_000) else { panic!("no output") };
        assert!(said.contains(" 4 days old "), "{said}");
    }

    /// If this fails, somebody takes a pool for lost of which an older state is whole.
    #[test]
    fn who_has_a_damaged_pool_is_told_of_older_states() {
        let next = |error: PoolError, rewind| advised(pool_failure("cannot import 'tank'".to_string(), &error), &error, rewind).next;
        let of = |rewind| next(PoolError::Corrupt("x"), rewind).unwrap_or_default();
        assert!(of(Rewind::Never).starts_with("'zpool import -nF' ") && of(Rewind::Recent).starts_with("'zpool import -nFX' "));
        assert_eq!((of(Rewind::Any), next(PoolError::Closed, Rewind::Never)), (String::new(), None));
    }

    /// If this fails, an import goes back although nobody said so, or further than somebody said.
    #[test]
    fn a_pool_goes_back_as_far_as_was_said() {
        let of = |rewind, extreme, txg| rewind_of(&PoolImport { rewind, extreme, txg, ..PoolImport::default() });
        assert_eq!(of(false, true, None), Rewind::Never);
        assert_eq!((of(true, false, None), of(true, true, None)), (Rewind::Recent, Rewind::Any));
        assert_eq!(of(true, true, Some(7)), Rewind::To(Txg(7)));
        assert_eq!(rewind_of(&PoolImport { checkpoint: true, ..PoolImport::default() }), Rewind::Checkpoint);
    }
}
