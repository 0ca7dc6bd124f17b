//! Words about pools that go back to an older state: OpenZFS's (`zpool_rewind_exclaim`), and below them what each state has.

use cli::Client;
use control_api::{Failure, Request, Response, RewindPointReport, RewindReport};

/// Seconds above which a loss is told in minutes.
const MINUTES_ABOVE: u64 = 120;
/// Names that one line lists; the others are counted.
const NAMES_MAX: usize = 12;

/// Asks the daemon; where pools may go back, all of their metadata is read for it, and files, however long that takes.
pub fn ask(client: &Client, goes_back: bool, request: &Request) -> Result<Response, Failure> {
    if goes_back { Client::from_environment()?.unhurried().call(request) } else { client.call(request) }
}

/// Prints the answer to a request with which pools may have gone back; gives the exit code.
pub fn answered(what: &str, answer: Response) -> Result<u8, Failure> {
    let (code, remarks) = match answer {
        Response::Done { remarks } => (0, remarks),
        Response::Rewound { reports, remarks } => (tell(&reports), remarks),
        other => return Err(cli::unexpected(what, other)),
    };
    remarks.iter().for_each(cli::say);
    Ok(code)
}

/// Prints what became of pools, or would; gives the exit code.
fn tell(reports: &[RewindReport]) -> u8 {
    let mut code = 0;
    for report in reports {
        cli::out!("{}", text(report));
        if let Some(failure) = &report.failure {
            cli::errln!("{failure}");
            code = cli::EXIT_FAILURE;
        }
    }
    code
}

fn text(report: &RewindReport) -> String {
    let mut text = String::new();
    if let Some(time) = report.time {
        let (pool, date) = (&report.pool, date(time));
        text = match report.dry_run {
            true => format!("Would be able to return {pool} to its state as of {date}.\n"),
            false => format!("Pool {pool} returned to its state as of {date}.\n"),
        };
        let discard = if report.dry_run { "Would discard" } else { "Discarded" };
        match report.lost_seconds {
            0 => {}
            lost if lost > MINUTES_ABOVE => {
                text.push_str(&format!("{discard} approximately {} minutes of transactions.\n", (lost + 30) / 60));
            }
            lost => text.push_str(&format!("{discard} approximately {lost} seconds of transactions.\n")),
        }
    }
    if report.data_errors > 0 {
        let (errors, remain) = (damaged(report.data_errors), if report.dry_run { "will remain" } else { "remain" });
        text.push_str(&format!("After rewind, {errors} {remain}.\n"));
    }
    let taken = report.points.iter().position(|point| point.problem.is_none());
    for (index, point) in report.points.iter().enumerate() {
        text.push_str(&row(point, taken == Some(index)));
    }
    text
}

fn row(point: &RewindPointReport, is_taken: bool) -> String {
    let verdict = match &point.problem {
        Some(problem) => format!("cannot be taken: {problem}"),
        None if is_taken => "would be taken".to_string(),
        None => format!("could be taken with -T {}", point.txg),
    };
    let mut text = format!("\ntxg {}, {}, {} seconds before the newest: {verdict}\n", point.txg, date(point.time), point.lost_seconds);
    if let Some(count) = point.datasets {
        text.push_str(&format!("\tkeeps: {count} datasets and snapshots\n"));
    }
    if point.data_errors > 0 {
        text.push_str(&format!("\thas: {}\n", damaged(point.data_errors)));
    }
    for (what, names) in [("lacks", &point.missing), ("lacks the last changes of", &point.changed)] {
        if !names.is_empty() {
            text.push_str(&format!("\t{what}: {}\n", listed(names)));
        }
    }
    text
}

/// Count of damaged blocks of files.
fn damaged(count: u64) -> String {
    format!("{count} damaged {} of files", if count == 1 { "block" } else { "blocks" })
}

/// Names in one line, the first of many.
fn listed(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_MAX).map(|name| control_api::shown(name).into_owned()).collect::<Vec<String>>().join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn date(seconds: u64) -> String {
    cli::time::long(i64::try_from(seconds).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, scripts that look for OpenZFS's words find none, and people choose a state without knowing what it costs.
    #[test]
    fn a_loss_is_told_before_it_happens() {
        let point = |txg, problem: Option<&str>, missing: &[&str]| RewindPointReport {
            txg,
            lost_seconds: 17,
            problem: problem.map(str::to_string),
            datasets: problem.is_none().then_some(3),
            missing: missing.iter().map(|name| name.to_string()).collect(),
            ..RewindPointReport::default()
        };
        let many: Vec<String> = (0..20).map(|number| format!("tank/{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let points = vec![point(9, Some("damaged"), &[]), point(8, None, &["tank/a"]), point(7, None, &many)];
        let report =
            RewindReport { pool: "tank".into(), dry_run: true, time: Some(5), lost_seconds: 17, data_errors: 1, points, failure: None };
        let said = text(&report);
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].starts_with("Would be able to return tank to its state as of "), "{said}");
        assert_eq!(lines[1], "Would discard approximately 17 seconds of transactions.");
        assert_eq!(lines[2], "After rewind, 1 damaged block of files will remain.");
        assert!(said.contains("17 seconds before the newest: cannot be taken: damaged\n"), "{said}");
        assert!(said.contains(": would be taken\n\tkeeps: 3 datasets and snapshots\n\tlacks: tank/a\n"), "{said}");
        assert!(said.contains(": could be taken with -T 7\n") && said.contains("tank/11 and 8 more\n"), "{said}");
        let done = text(&RewindReport { dry_run: false, lost_seconds: 150, data_errors: 0, points: Vec::new(), ..report });
        assert!(done.starts_with("Pool tank returned to its state as of "), "{done}");
        assert!(done.ends_with("\nDiscarded approximately 3 minutes of transactions.\n"), "{done}");
    }
}
