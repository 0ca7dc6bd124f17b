//! `zpool wait`: asks again until nothing is busy, so that no single call is long; with an interval it prints what is left meanwhile
//! (OpenZFS: `zpool_do_wait`, `print_wait_status_row`).

use crate::{args, list};
use cli::number::nice_count;
use cli::repeat::{Repeat, timestamp};
use cli::{Client, Stop, find, show};
use control_api::{ErrorKind, Failure, PoolReport, PoolWait, Request, Response, VdevReport};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(5000);
/// Number of lines of a terminal that does not say how many it has: headings are repeated after so many.
const TERMINAL_LINES: u64 = 24;
/// Number of columns that a number for people takes.
const NUMBER_WIDTH: usize = 6;

/// Names of what can be waited for, in the order of the columns.
const ACTIVITIES: [&str; 9] = ["discard", "free", "initialize", "replace", "remove", "resilver", "scrub", "trim", "raidz_expand"];

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::Wait) -> Result<u8, Stop> {
    if let Some(unknown) = arguments.activities.iter().find(|activity| !ACTIVITIES.contains(&activity.as_str())) {
        return Err(Stop::usage(format!("invalid activity '{unknown}'")));
    }
    timestamp(arguments.timestamp.as_deref())?;
    let (names, Repeat { interval, count }) = Repeat::split(&arguments.words)?;
    let pool = match (names.as_slice(), count) {
        ([], None) => return Err(Stop::usage("missing 'pool' argument")),
        ([pool], None) => pool,
        _ => return Err(Stop::usage("too many arguments")),
    };
    let Some(interval) = interval else {
        until_idle(client, pool, &arguments.activities)?;
        return Ok(0);
    };
    let pause = Duration::try_from_secs_f64(interval).map_err(|_| Stop::usage(format!("invalid interval '{interval}'")))?;
    let mut next = Instant::now();
    for row in 0.. {
        let Some(report) = list::reports(client, vec![pool.clone()], false).map(|reports| reports.into_iter().next()).or_else(gone(row))?
        else {
            break;
        };
        cli::out!("{}", text(&report, arguments, row)?);
        cli::print::flush();
        next += pause;
        if waited(client, pool, (&arguments.activities, &[]), Some(next))? {
            break;
        }
    }
    Ok(0)
}

/// Returns when none of the activities runs (all of them when none is named).
pub fn until_idle(client: &Client, pool: &str, activities: &[String]) -> Result<(), Failure> {
    waited(client, pool, (activities, &[]), None).map(drop)
}

/// Returns when none of the devices is initialized or trimmed any more; with none named, none of the pool's.
pub fn until_swept(client: &Client, pool: &str, activity: &str, devices: &[String]) -> Result<(), Failure> {
    waited(client, pool, (&[activity.to_string()], devices), None).map(drop)
}

/// Turns the failure of a pool that left while somebody waits for it into an end: it has nothing more to do.
fn gone<T>(asked_before: u64) -> impl Fn(Failure) -> Result<Option<T>, Failure> {
    move |failure| if asked_before > 0 && failure.kind == ErrorKind::NotFound { Ok(None) } else { Err(failure) }
}

/// Waits until none of the activities runs, or until then; true when none does.
fn waited(client: &Client, pool: &str, (activities, devices): (&[String], &[String]), until: Option<Instant>) -> Result<bool, Failure> {
    for round in u64::from(until.is_some()).. {
        let left = until.map_or(STEP, |until| until.saturating_duration_since(Instant::now()));
        let deadline_ms = u64::try_from(left.min(STEP).as_millis()).unwrap_or(0);
        let request = PoolWait { pool: pool.to_string(), activities: activities.to_vec(), devices: devices.to_vec(), deadline_ms };
        match client.call(&Request::PoolWait(request)).map(Some).or_else(gone(round))? {
            None => return Ok(true),
            Some(Response::Busy(busy)) if busy.is_empty() => return Ok(true),
            Some(Response::Busy(_)) if left <= STEP && until.is_some() => return Ok(false),
            Some(Response::Busy(_)) => {}
            Some(other) => return Err(cli::unexpected("cannot wait", other)),
        }
    }
    Ok(true)
}

/// Text of one row, with what comes before it.
fn text(report: &PoolReport, arguments: &args::Wait, row: u64) -> Result<String, Stop> {
    let mut out = timestamp(arguments.timestamp.as_deref())?.map(|stamp| stamp + "\n").unwrap_or_default();
    let left = remaining(report);
    let wanted = |activity: &str| arguments.activities.is_empty() || arguments.activities.iter().any(|wanted| wanted == activity);
    let columns = || ACTIVITIES.iter().zip(left).enumerate().filter(|(_, (activity, _))| wanted(activity));
    let width = |activity: &str| activity.len().max(NUMBER_WIDTH) + 2;
    let again = std::io::stdout().is_terminal() && row.is_multiple_of(TERMINAL_LINES - 1);
    if !arguments.scripted && (row == 0 || again) {
        out.extend(columns().map(|(_, (activity, _))| format!("{:>1$}", activity.to_uppercase(), width(activity))));
        out.push('\n');
    }
    out.extend(columns().map(|(index, (activity, bytes))| {
        let number = if arguments.parsable { bytes.to_string() } else { nice_count(bytes) };
        match (arguments.scripted, index) {
            (true, 0) => number,
            // As OpenZFS: also before the first that is shown, if it is not the first that there is.
            (true, _) => format!("\t{number}"),
            (false, _) => format!(" {number:>0$}", width(activity) - 1),
        }
    }));
    out.push('\n');
    Ok(out)
}

/// Bytes of work that are left, by activity.
fn remaining(report: &PoolReport) -> [u64; ACTIVITIES.len()] {
    let scan = report.scan.as_ref().filter(|scan| scan.state == "scanning");
    // What a resilver passes over is no work.
    let scanned =
        scan.map(|scan| (scan.function == "resilver", scan.to_examine_bytes.saturating_sub(scan.issued_bytes + scan.skipped_bytes)));
    let rebuilds = report.rebuilds.iter().filter(|rebuild| rebuild.state == "active");
    let resilver = match scanned {
        Some((true, left)) => left,
        Some((false, _)) => 0,
        None => rebuilds.map(|rebuild| rebuild.to_scan_bytes.saturating_sub(rebuild.rebuilt_bytes)).sum(),
    };
    ACTIVITIES.map(|activity| match activity {
        "free" => find(&report.properties, "freeing").and_then(|freeing| show(&freeing.value, true).parse().ok()).unwrap_or(0),
        "initialize" | "trim" => swept(&report.vdevs, activity),
        "replace" if stands_in(&report.vdevs) => resilver,
        "resilver" => resilver,
        "scrub" => scanned.filter(|(resilvers, _)| !resilvers).map_or(0, |(_, left)| left),
        "remove" => {
            let active = report.removal.as_ref().filter(|removal| removal.state == "active");
            active.map_or(0, |removal| removal.to_copy_bytes.saturating_sub(removal.copied_bytes))
        }
        "discard" => report.checkpoint.as_ref().filter(|known| known.is_discarding).map_or(0, |known| known.bytes),
        "raidz_expand" => {
            let active = report.expansion.as_ref().filter(|expansion| expansion.state == "active");
            active.map_or(0, |expansion| expansion.to_reflow_bytes.saturating_sub(expansion.reflowed_bytes))
        }
        _ => 0,
    })
}

/// Bytes of free space that are still to be initialized or trimmed.
fn swept(vdev: &VdevReport, activity: &str) -> u64 {
    let sweep = if activity == "trim" { &vdev.trim } else { &vdev.initialize };
    let active = sweep.as_ref().filter(|sweep| sweep.state == "active");
    let own = active.map_or(0, |sweep| sweep.estimated_bytes.saturating_sub(sweep.done_bytes));
    own + vdev.children.iter().map(|child| swept(child, activity)).sum::<u64>()
}

/// True when a device is being replaced, or a spare stands in for one: a resilver is for it then.
fn stands_in(vdev: &VdevReport) -> bool {
    matches!(vdev.kind.as_str(), "replacing" | "spare" | "dspare") || vdev.children.iter().any(stands_in)
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::{ScanReport, SweepReport};

    fn report() -> PoolReport {
        let sweep = SweepReport { state: "active".into(), action_time: 0, done_bytes: 1 << 20, estimated_bytes: 3 << 20, errors: 0 };
        let leaf = VdevReport { kind: "file".into(), trim: Some(sweep), ..VdevReport::default() };
        let pair = VdevReport { kind: "replacing".into(), children: vec![leaf.clone(), leaf], ..VdevReport::default() };
        let scan = ScanReport {
            function: "resilver".into(),
            state: "scanning".into(),
            to_examine_bytes: 1_000_000,
            issued_bytes: 100_000,
            skipped_bytes: 500_000,
            ..ScanReport::default()
        };
        PoolReport { vdevs: VdevReport { children: vec![pair], ..VdevReport::default() }, scan: Some(scan), ..PoolReport::default() }
    }

    fn arguments(activities: &[&str]) -> args::Wait {
        let activities = activities.iter().map(|activity| activity.to_string()).collect();
        args::Wait { scripted: false, parsable: false, timestamp: None, activities, words: Vec::new() }
    }

    /// Scripts read these columns.
    #[test]
    fn rows_are_as_openzfs_prints_them() {
        let rows = text(&report(), &arguments(&[]), 0).expect("valid");
        let expected = "  DISCARD    FREE  INITIALIZE  REPLACE  REMOVE  RESILVER   SCRUB    TRIM  RAIDZ_EXPAND\n        \
                        0       0           0     391K       0      391K       0      4M             0\n";
        assert_eq!(rows, expected);
        let scripted = args::Wait { scripted: true, parsable: true, ..arguments(&[]) };
        assert_eq!(text(&report(), &scripted, 0).expect("valid"), "0\t0\t0\t400000\t0\t400000\t0\t4194304\t0\n");
        let some = args::Wait { scripted: true, parsable: true, ..arguments(&["trim", "resilver"]) };
        assert_eq!(text(&report(), &some, 3).expect("valid"), "\t400000\t4194304\n");
        assert_eq!(text(&report(), &arguments(&["scrub"]), 1).expect("valid"), "       0\n");
    }
}
