//! What `zpool status` says of expansions of RAID-Z vdevs (OpenZFS: `print_raidz_expand_status`, `raidz_expand_status_nvlist`).

use cli::number::nice_count;
use cli::options::Output;
use cli::{json, time};
use control_api::ExpansionReport;
use serde_json::{Value, json};

/// Seconds from which on OpenZFS gives no estimate.
const ESTIMATE_SECONDS_MAX: u64 = 30 * 24 * 3600;

/// Time that something takes: hours, minutes and seconds, with days before them if there are any (OpenZFS: `secs_to_dhms`).
fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let clock = format!("{hours:02}:{minutes:02}:{:02}", seconds % 60);
    if days == 0 { clock } else { format!("{days} days {clock}") }
}

fn between(start: i64, end: i64) -> u64 {
    u64::try_from(end.saturating_sub(start)).unwrap_or(0)
}

/// Lines of an expansion, behind their heading; `now` are seconds since the epoch.
pub fn lines(expansion: &ExpansionReport, now: i64) -> String {
    let ExpansionReport { name, start_time, end_time, .. } = expansion;
    if expansion.state != "active" {
        let (copied, took) = (nice_count(expansion.reflowed_bytes), duration(between(*start_time, *end_time)));
        return format!("expanded {name} copied {copied} in {took}, on {}\n", time::long(*end_time));
    }
    let (copied, total) = (expansion.reflowed_bytes.max(1), expansion.to_reflow_bytes);
    let rate = (copied / between(*start_time, now).max(1)).max(1);
    let left = total.saturating_sub(copied) / rate;
    let until = match left {
        _ if expansion.is_waiting => ", paused for resilver or clear".to_string(),
        0..ESTIMATE_SECONDS_MAX => format!(", {} to go", duration(left)),
        _ => ", (copy is slow, no estimated time)".to_string(),
    };
    format!(
        "expansion of {name} in progress since {}\n\t{} / {} copied at {}/s, {:.2}% done{until}\n",
        time::long(*start_time),
        nice_count(copied),
        nice_count(total),
        nice_count(rate),
        copied as f64 * 100.0 / total.max(1) as f64
    )
}

/// JSON `raidz_expand_stats`.
pub fn as_json(expansion: &ExpansionReport, output: &Output) -> Value {
    let date = |seconds: i64| match (output.is_exact(), seconds) {
        (true, seconds) => json::number(seconds.max(0) as u64, output.json.json_int),
        (false, 0) => json!("-"),
        (false, seconds) => json!(time::long(seconds)),
    };
    let state = if expansion.state == "active" { "SCANNING" } else { "FINISHED" };
    json!({
        "name": expansion.name,
        "state": state,
        "expanding_vdev": json::number(expansion.vdev, output.json.json_int),
        "start_time": date(expansion.start_time),
        "end_time": date(expansion.end_time),
        "to_reflow": json::size(expansion.to_reflow_bytes, output),
        "reflowed": json::size(expansion.reflowed_bytes, output),
        "waiting_for_resilver": json::number(u64::from(expansion.is_waiting), output.json.json_int)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expansion(state: &str) -> ExpansionReport {
        ExpansionReport {
            name: "raidz1-0".into(),
            vdev: 0,
            state: state.into(),
            start_time: 1000,
            end_time: if state == "active" { 0 } else { 1000 + 90_061 },
            to_reflow_bytes: 4 << 20,
            reflowed_bytes: 1 << 20,
            is_waiting: false,
        }
    }

    /// If this fails, scripts that wait for OpenZFS's words see no expansion, or one that never ends.
    #[test]
    fn expansions_are_told_as_openzfs_tells_them() {
        let active = lines(&expansion("active"), 1004);
        assert!(active.starts_with("expansion of raidz1-0 in progress since "), "{active}");
        assert!(active.ends_with("\n\t1M / 4M copied at 256K/s, 25.00% done, 00:00:12 to go\n"), "{active}");
        let waiting = lines(&ExpansionReport { is_waiting: true, ..expansion("active") }, 1004);
        assert!(waiting.ends_with("25.00% done, paused for resilver or clear\n"), "{waiting}");
        assert!(lines(&expansion("finished"), 9000).starts_with("expanded raidz1-0 copied 1M in 1 days 01:01:01, on "));
    }
}
