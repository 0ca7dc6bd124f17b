//! What `zpool status` says of sequential rebuilds (OpenZFS: `print_rebuild_status`, `scan_status_nvlist`).

use cli::number::{duration, nice_bytes, nice_time_ns};
use cli::options::Output;
use cli::{json, time};
use control_api::{RebuildReport, ScanReport};
use serde_json::{Map, Value, json};

/// Bytes per second below which OpenZFS gives no estimate.
const ESTIMATE_RATE_MIN: u64 = 10 << 20;

/// Choice of the `scan:` lines that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// True to show those of the scan.
    pub scan: bool,
    /// True to show those of rebuilds.
    pub rebuilds: bool,
}

/// Chooses the lines: those of a scrub always; of a resilver and rebuilds what runs, else what ended last (OpenZFS: `print_scan_status`).
pub fn shown(scan: Option<&ScanReport>, rebuilds: &[RebuildReport]) -> Shown {
    let active = rebuilds.iter().any(|rebuild| rebuild.state == "active");
    let ended = rebuilds.iter().map(|rebuild| rebuild.end_time).max().unwrap_or(0);
    let Some(scan) = scan else { return Shown { scan: false, rebuilds: active || ended > 0 } };
    if scan.function != "resilver" {
        return Shown { scan: true, rebuilds: active || ended > 0 };
    }
    let resilvers = scan.state == "scanning";
    let later = resilvers || (!active && scan.end_time > ended);
    Shown { scan: later, rebuilds: !later && (active || ended > scan.end_time) }
}

/// Rate in bytes per second.
fn rate(bytes: u64, time_ms: u64) -> u64 {
    bytes / (time_ms + 1) * 1000
}

/// Lines of one rebuild.
pub fn lines(rebuild: &RebuildReport) -> String {
    match rebuild.state.as_str() {
        "complete" => {
            let elapsed = duration(rebuild.scan_time_ms / 1000);
            let (bytes, end) = (nice_bytes(rebuild.rebuilt_bytes), time::long(rebuild.end_time));
            format!("  scan: resilvered ({}) {bytes} in {elapsed} with {} errors on {end}\n", rebuild.name, rebuild.errors)
        }
        "canceled" => format!("  scan: resilver ({}) canceled on {}\n", rebuild.name, time::long(rebuild.end_time)),
        _ => active_lines(rebuild),
    }
}

fn active_lines(rebuild: &RebuildReport) -> String {
    let at = |rate: u64| if rate > 0 { format!(" at {}/s", nice_bytes(rate)) } else { String::new() };
    let total = rebuild.to_scan_bytes.max(rebuild.scanned_bytes);
    let to_issue = total.saturating_sub(rebuild.pass_skipped_bytes).max(rebuild.issued_bytes);
    let scan_rate = rate(rebuild.pass_scanned_bytes, rebuild.pass_time_ms);
    let issue_rate = rate(rebuild.pass_issued_bytes, rebuild.pass_time_ms);
    let percent = (rebuild.scanned_bytes as f64 * 100.0 / (total + 1) as f64).min(100.0);
    let left = if scan_rate >= ESTIMATE_RATE_MIN {
        format!(", {} to go", duration((total - rebuild.scanned_bytes) / scan_rate))
    } else {
        ", no estimated completion time".to_string()
    };
    format!(
        "  scan: resilver ({}) in progress since {}\n\t{} / {} scanned{}, {} / {} issued{}\n\t{} resilvered, {percent:.2}% done{left}\n",
        rebuild.name,
        time::long(rebuild.start_time),
        nice_bytes(rebuild.scanned_bytes),
        nice_bytes(total),
        at(scan_rate),
        nice_bytes(rebuild.issued_bytes),
        nice_bytes(to_issue),
        at(issue_rate),
        nice_bytes(rebuild.rebuilt_bytes)
    )
}

/// JSON `rebuild_stats`: the rebuilds by the names of their vdevs.
pub fn as_json(rebuilds: &[RebuildReport], output: &Output) -> Value {
    let date = |seconds: i64| match (output.is_exact(), seconds) {
        (true, seconds) => json::number(seconds.max(0) as u64, output.json.json_int),
        (false, 0) => json!("-"),
        (false, seconds) => json!(time::long(seconds)),
    };
    let span = |milliseconds: u64| {
        let nanoseconds = milliseconds.saturating_mul(1_000_000);
        if output.is_exact() { json::number(nanoseconds, output.json.json_int) } else { json!(nice_time_ns(nanoseconds)) }
    };
    let size = |bytes: u64| json::size(bytes, output);
    let entry = |rebuild: &RebuildReport| {
        json!({
            "name": rebuild.name,
            "state": rebuild.state.to_uppercase(),
            "start_time": date(rebuild.start_time),
            "end_time": date(rebuild.end_time),
            "scan_time": span(rebuild.scan_time_ms),
            "scanned": size(rebuild.scanned_bytes),
            "issued": size(rebuild.issued_bytes),
            "rebuilt": size(rebuild.rebuilt_bytes),
            "to_scan": size(rebuild.to_scan_bytes),
            "errors": json::count(rebuild.errors, output),
            "pass_time": span(rebuild.pass_time_ms),
            "pass_scanned": size(rebuild.pass_scanned_bytes),
            "pass_issued": size(rebuild.pass_issued_bytes),
            "pass_skipped": size(rebuild.pass_skipped_bytes)
        })
    };
    Value::Object(rebuilds.iter().map(|rebuild| (rebuild.name.clone(), entry(rebuild))).collect::<Map<String, Value>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rebuild(state: &str) -> RebuildReport {
        RebuildReport {
            name: "mirror-0".into(),
            guid: 5,
            state: state.into(),
            start_time: 0,
            end_time: if state == "active" { 0 } else { 61 },
            scan_time_ms: 61_500,
            scanned_bytes: 1 << 30,
            issued_bytes: 1 << 30,
            rebuilt_bytes: 1 << 30,
            to_scan_bytes: 2 << 30,
            errors: 0,
            pass_time_ms: 9_999,
            pass_scanned_bytes: 1 << 30,
            pass_issued_bytes: 1 << 30,
            pass_skipped_bytes: 0,
        }
    }

    /// Scripts wait for these words.
    #[test]
    fn a_rebuild_reads_as_openzfs_prints_it() {
        let (begun, ended) = (cli::time::long(0), cli::time::long(61));
        let done = format!("  scan: resilvered (mirror-0) 1G in 00:01:01 with 0 errors on {ended}\n");
        assert_eq!(lines(&rebuild("complete")), done);
        assert_eq!(lines(&rebuild("canceled")), format!("  scan: resilver (mirror-0) canceled on {ended}\n"));
        let active = format!(
            "  scan: resilver (mirror-0) in progress since {begun}\n\
             \t1G / 2G scanned at 102M/s, 1G / 2G issued at 102M/s\n\t1G resilvered, 50.00% done, 00:00:10 to go\n"
        );
        assert_eq!(lines(&rebuild("active")), active);
        // More was allocated since it began than was thought: never above all, never negative.
        let grown = lines(&RebuildReport { scanned_bytes: 3 << 30, pass_scanned_bytes: 3 << 30, ..rebuild("active") });
        assert!(grown.contains("3G / 3G scanned") && grown.contains("100.00% done, 00:00:00 to go"), "{grown}");
    }

    /// If this fails, an old resilver hides the rebuild that runs, or the other way round.
    #[test]
    fn what_runs_or_ended_last_is_told() {
        let scan = |function: &str, state: &str, end_time| ScanReport {
            function: function.into(),
            state: state.into(),
            start_time: 0,
            end_time,
            pause_time: 0,
            to_examine_bytes: 0,
            examined_bytes: 0,
            issued_bytes: 0,
            skipped_bytes: 0,
            repaired_bytes: 0,
            errors: 0,
            rate_bytes_per_second: 0,
            ..ScanReport::default()
        };
        let told = |scan: Option<ScanReport>, rebuilds: &[RebuildReport]| {
            let shown = shown(scan.as_ref(), rebuilds);
            (shown.scan, shown.rebuilds)
        };
        assert_eq!(told(None, &[]), (false, false));
        assert_eq!(told(Some(scan("scrub", "scanning", 0)), &[rebuild("complete")]), (true, true));
        assert_eq!(told(Some(scan("resilver", "finished", 9)), &[rebuild("active")]), (false, true));
        assert_eq!(told(Some(scan("resilver", "finished", 9)), &[rebuild("complete")]), (false, true));
        assert_eq!(told(Some(scan("resilver", "finished", 99)), &[rebuild("complete")]), (true, false));
        assert_eq!(told(Some(scan("resilver", "scanning", 0)), &[rebuild("complete")]), (true, false));
    }
}
