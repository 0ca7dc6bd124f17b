//! What `zpool status` says of removals of top-level vdevs (OpenZFS: `print_removal_status`, `removal_status_nvlist`).

use cli::number::nice_count;
use cli::options::Output;
use cli::{json, time};
use control_api::RemovalReport;
use serde_json::{Value, json};

/// Hours from which on OpenZFS gives no estimate.
const ESTIMATE_HOURS_MAX: u64 = 30 * 24;

/// Lines of a removal, behind their heading; `now` are seconds since the epoch.
pub fn lines(removal: &RemovalReport, now: i64) -> String {
    let mut text = match removal.state.as_str() {
        "finished" => {
            let minutes = removal.end_time.saturating_sub(removal.start_time).max(0) / 60;
            let (copied, end) = (nice_count(removal.copied_bytes), time::long(removal.end_time));
            format!("Removal of vdev {} copied {copied} in {}h{}m, completed on {end}\n", removal.vdev, minutes / 60, minutes % 60)
        }
        "canceled" => format!("Removal of {} canceled on {}\n", removal.name, time::long(removal.end_time)),
        _ => active_lines(removal, now),
    };
    if removal.mapping_bytes > 0 {
        text.push_str(&format!("\t{} memory used for removed device mappings\n", nice_count(removal.mapping_bytes)));
    }
    text
}

fn active_lines(removal: &RemovalReport, now: i64) -> String {
    let (copied, total) = (removal.copied_bytes.max(1), removal.to_copy_bytes);
    let elapsed = u64::try_from(now.saturating_sub(removal.start_time)).unwrap_or(0).max(1);
    let rate = (copied / elapsed).max(1);
    let minutes = total.saturating_sub(copied) / rate / 60;
    let left = if minutes / 60 < ESTIMATE_HOURS_MAX {
        format!("{}h{}m to go", minutes / 60, minutes % 60)
    } else {
        "(copy is slow, no estimated time)".to_string()
    };
    format!(
        "Evacuation of {} in progress since {}\n\t{} copied out of {} at {}/s, {:.2}% done, {left}\n",
        removal.name,
        time::long(removal.start_time),
        nice_count(copied),
        nice_count(total),
        nice_count(rate),
        copied as f64 * 100.0 / total.max(1) as f64
    )
}

/// JSON `removal_stats`.
pub fn as_json(removal: &RemovalReport, output: &Output) -> Value {
    let date = |seconds: i64| match (output.is_exact(), seconds) {
        (true, seconds) => json::number(seconds.max(0) as u64, output.json.json_int),
        (false, 0) => json!("-"),
        (false, seconds) => json!(time::long(seconds)),
    };
    json!({
        "name": removal.name,
        "state": removal.state.to_uppercase(),
        "removing_vdev": json::number(removal.vdev, output.json.json_int),
        "start_time": date(removal.start_time),
        "end_time": date(removal.end_time),
        "to_copy": json::size(removal.to_copy_bytes, output),
        "copied": json::size(removal.copied_bytes, output),
        "mapping_memory": json::size(removal.mapping_bytes, output)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removal(state: &str) -> RemovalReport {
        RemovalReport {
            name: "mirror-1".into(),
            vdev: 1,
            state: state.into(),
            start_time: 1000,
            end_time: 8260,
            to_copy_bytes: 4 << 30,
            copied_bytes: 1 << 30,
            mapping_bytes: 0,
        }
    }

    /// If this fails, scripts that wait for OpenZFS's words see no removal, or one that never ends.
    #[test]
    fn lines_are_those_of_openzfs() {
        let active = lines(&removal("active"), 1100);
        assert!(active.starts_with("Evacuation of mirror-1 in progress since "), "{active}");
        assert!(active.ends_with("\n\t1G copied out of 4G at 10.2M/s, 25.00% done, 0h5m to go\n"), "{active}");
        let slow = lines(&RemovalReport { copied_bytes: 0, ..removal("active") }, 1100);
        assert!(slow.ends_with("\n\t1 copied out of 4G at 1/s, 0.00% done, (copy is slow, no estimated time)\n"), "{slow}");
        let finished = lines(&RemovalReport { mapping_bytes: 96, ..removal("finished") }, 9000);
        assert!(finished.starts_with("Removal of vdev 1 copied 1G in 2h1m, completed on "), "{finished}");
        assert!(finished.ends_with("\n\t96 memory used for removed device mappings\n"), "{finished}");
        assert!(lines(&removal("canceled"), 9000).starts_with("Removal of mirror-1 canceled on "));
    }
}
