//! `zpool initialize` and `zpool trim`, and what `zpool status -i -t` says of them.

use crate::{args, wait};
use cli::{Client, Stop, time};
use control_api::{PoolSweep, Request, Response, SweepChange, SweepReport, SweepVerb, VdevReport};

/// Exit code of OpenZFS's programs when a device was refused.
const EXIT_REFUSED: u8 = 255;

/// Runs `zpool initialize`.
pub fn initialize(client: &Client, arguments: &args::Initialize) -> Result<u8, Stop> {
    let chosen =
        [(arguments.cancel, SweepChange::Cancel), (arguments.suspend, SweepChange::Suspend), (arguments.uninit, SweepChange::Forget)];
    let change = one_of(&chosen, SweepChange::Start { rate_bytes_per_second: 0, secure: false })?;
    if arguments.wait && !matches!(change, SweepChange::Start { .. }) {
        return Err(Stop::usage("-w cannot be used with -c, -s or -u"));
    }
    let request = PoolSweep { pool: arguments.pool.clone(), devices: arguments.devices.clone(), verb: SweepVerb::Initialize, change };
    run(client, request, arguments.wait.then_some("initialize"))
}

/// Runs `zpool trim`.
pub fn trim(client: &Client, arguments: &args::Trim) -> Result<u8, Stop> {
    let rate = match &arguments.rate {
        None => 0,
        Some(text) => bytes(text).ok_or_else(|| Stop::usage(format!("invalid value for rate: bad numeric value '{text}'")))?,
    };
    let chosen = [(arguments.cancel, SweepChange::Cancel), (arguments.suspend, SweepChange::Suspend)];
    let change = one_of(&chosen, SweepChange::Start { rate_bytes_per_second: rate, secure: arguments.secure })?;
    if !matches!(change, SweepChange::Start { .. }) {
        for (given, option) in [(arguments.secure, "-d"), (arguments.rate.is_some(), "-r")] {
            if given {
                return Err(Stop::usage(format!("{option} cannot be combined with the -c or -s options")));
            }
        }
        if arguments.wait {
            return Err(Stop::usage("-w cannot be used with -c or -s"));
        }
    }
    let request = PoolSweep { pool: arguments.pool.clone(), devices: arguments.devices.clone(), verb: SweepVerb::Trim, change };
    run(client, request, arguments.wait.then_some("trim"))
}

fn one_of(chosen: &[(bool, SweepChange)], otherwise: SweepChange) -> Result<SweepChange, Stop> {
    let mut given = chosen.iter().filter(|(given, _)| *given).map(|(_, change)| *change);
    let first = given.next().unwrap_or(otherwise);
    if let Some(other) = given.next() {
        let letter = match other {
            SweepChange::Cancel => "-c",
            SweepChange::Suspend => "-s",
            _ => "-u",
        };
        return Err(Stop::usage(format!("{letter} cannot be combined with other options")));
    }
    Ok(first)
}

/// Bytes of `100M` (OpenZFS: `zfs_nicestrtonum`).
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        "e" => 60,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn run(client: &Client, request: PoolSweep, activity: Option<&str>) -> Result<u8, Stop> {
    let (pool, devices) = (request.pool.clone(), request.devices.clone());
    let failures = match client.call(&Request::PoolSweep(request))? {
        Response::Swept { failures } => failures,
        other => return Err(cli::unexpected("cannot sweep", other).into()),
    };
    failures.iter().for_each(|failure| cli::errln!("{failure}"));
    if !failures.is_empty() {
        return Ok(EXIT_REFUSED);
    }
    if let Some(activity) = activity {
        wait::until_swept(client, &pool, activity, &devices)?;
    }
    Ok(0)
}

/// Notes behind a leaf's counters (OpenZFS: `print_status_initialize`, `print_status_trim`).
pub fn notes(vdev: &VdevReport, arguments: &args::Status) -> String {
    if !vdev.children.is_empty() {
        return String::new();
    }
    let initialize = note(vdev.initialize.as_ref(), arguments.initialize, ("initializ", "uninitialized"));
    let never = if vdev.trim_unsupported { "trim unsupported" } else { "untrimmed" };
    initialize + &note(vdev.trim.as_ref(), arguments.trim, ("trimm", never))
}

fn note(sweep: Option<&SweepReport>, verbose: bool, (stem, never): (&str, &str)) -> String {
    let state = sweep.map_or("", |sweep| sweep.state.as_str());
    let (Some(sweep), true) = (sweep.filter(|_| matches!(state, "active" | "suspended" | "complete")), verbose) else {
        return match (verbose, state) {
            (true, _) => format!("  ({never})"),
            (false, "active") => format!("  ({stem}ing)"),
            (false, _) => String::new(),
        };
    };
    let percent = if state == "complete" { 100 } else { (sweep.done_bytes * 100 / (sweep.estimated_bytes + 1)).min(100) };
    let since = match state {
        "suspended" => "suspended, started at",
        "active" => "started at",
        _ => "completed at",
    };
    format!("  ({percent}% {stem}ed, {since} {})", time::long(sweep.action_time))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts wait for these words.
    #[test]
    fn sweeps_read_as_openzfs_prints_them() {
        let sweep = |state: &str| SweepReport { state: state.into(), action_time: 0, done_bytes: 50, estimated_bytes: 100, errors: 0 };
        let (words, epoch) = (("trimm", "untrimmed"), time::long(0));
        assert_eq!(note(Some(&sweep("active")), true, words), format!("  (49% trimmed, started at {epoch})"));
        assert_eq!(note(Some(&sweep("complete")), true, words), format!("  (100% trimmed, completed at {epoch})"));
        assert_eq!(note(Some(&sweep("suspended")), true, words), format!("  (49% trimmed, suspended, started at {epoch})"));
        assert_eq!(note(Some(&sweep("canceled")), true, words), "  (untrimmed)");
        assert_eq!((note(None, true, words).as_str(), note(None, false, words).as_str()), ("  (untrimmed)", ""));
        assert_eq!(note(Some(&sweep("active")), false, words), "  (trimming)");
        assert_eq!(note(Some(&sweep("complete")), false, words), "");
    }

    #[test]
    fn rates_have_units() {
        assert_eq!(
            [bytes("100"), bytes("1k"), bytes("2M"), bytes("1GiB"), bytes("x"), bytes("5q")],
            [Some(100), Some(1024), Some(2 << 20), Some(1 << 30), None, None]
        );
    }
}
