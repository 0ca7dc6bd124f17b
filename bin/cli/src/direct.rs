//! Counts of direct I/O as `zfs direct-stats` and `zpool iostat --direct` print them: what was direct, what was not, and what
//! would have made it so.

use crate::number::{nice_bytes, nice_count};
use crate::options::Output;
use crate::table::{Align, Column, Table};
use crate::{Client, json};
use control_api::{DirectCount, DirectQuery, DirectReport, DirectTarget, Failure, Request, Response};
use serde_json::{Map, Value, json};

/// Asks for the counts of `targets` (none: every pool) and prints them; `key` names the JSON object that holds them.
pub fn print(client: &Client, targets: Vec<DirectTarget>, output: &Output, command: &str, key: &str) -> Result<u8, Failure> {
    let reports = match client.call(&Request::Direct(DirectQuery { targets }))? {
        Response::Direct(reports) => reports,
        other => return Err(crate::unexpected("cannot show direct I/O", other)),
    };
    if output.json.json {
        crate::outln!("{}", as_json(&reports, output, command, key));
    } else {
        crate::out!("{}", as_table(&reports, output));
    }
    Ok(0)
}

/// Advice where buffers were changed.
const CHANGED: &str = "do not change a buffer while a request uses it";

fn as_table(reports: &[DirectReport], output: &Output) -> String {
    let columns =
        [("NAME", Align::Left), ("PART", Align::Left), ("REQUESTS", Align::Right), ("BYTES", Align::Right), ("REMEDY", Align::Left)];
    let mut table = Table::new(columns.map(|(heading, align)| Column::new(heading, align)));
    for report in reports {
        let mut row = |part: &str, count: DirectCount, remedy: &str| {
            let (requests, bytes) = (count.requests, count.bytes);
            let numbers =
                if output.is_exact() { [requests.to_string(), bytes.to_string()] } else { [nice_count(requests), nice_bytes(bytes)] };
            let [requests, bytes] = numbers;
            table.row(vec![report.name.clone(), part.to_string(), requests, bytes, remedy.to_string()]);
        };
        row("asked", report.asked, "-");
        row("direct_read", report.direct_reads, "-");
        row("direct_write", report.direct_writes, "-");
        row("refused", report.refused, "-");
        let remedy = |count: DirectCount| if count.requests > 0 { CHANGED } else { "-" };
        row("verify_write", report.verify_writes, remedy(report.verify_writes));
        row("verify_read", report.verify_reads, remedy(report.verify_reads));
        row("shared_read", report.shared_reads, "-");
        row("coalesced_write", report.coalesced_writes, "-");
        for fallback in &report.fallbacks {
            row(&fallback.reason, fallback.count, &fallback.remedy);
        }
    }
    table.render(output.scripted)
}

fn as_json(reports: &[DirectReport], output: &Output, command: &str, key: &str) -> String {
    let count = |count: DirectCount| json!({"requests": json::count(count.requests, output), "bytes": json::size(count.bytes, output)});
    let entry = |report: &DirectReport| {
        let fallbacks: Map<String, Value> = report
            .fallbacks
            .iter()
            .map(|fallback| {
                let mut entry = count(fallback.count);
                entry["remedy"] = json!(fallback.remedy);
                (fallback.reason.clone(), entry)
            })
            .collect();
        json!({
            "name": report.name, "type": report.kind.to_uppercase(), "asked": count(report.asked),
            "direct_read": count(report.direct_reads), "direct_write": count(report.direct_writes),
            "refused": count(report.refused), "verify_write": count(report.verify_writes), "verify_read": count(report.verify_reads),
            "shared_read": count(report.shared_reads), "coalesced_write": count(report.coalesced_writes), "fallbacks": fallbacks
        })
    };
    json::envelope(command, key, reports.iter().map(|report| (report.name.clone(), entry(report))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::DirectFallback;

    #[test]
    fn what_was_not_direct_comes_with_its_reason_and_remedy() {
        let count = |requests, bytes| DirectCount { requests, bytes };
        let fallback = DirectFallback { reason: "head".into(), count: count(1, 65536), remedy: "start on a boundary".into() };
        let report = DirectReport {
            name: "tank/fs".into(),
            kind: "filesystem".into(),
            asked: count(2, 1 << 20),
            direct_writes: count(2, 983_040),
            verify_writes: count(3, 393_216),
            shared_reads: count(31, 1_015_808),
            coalesced_writes: count(2, 2 << 20),
            fallbacks: vec![fallback],
            ..DirectReport::default()
        };
        let table = as_table(std::slice::from_ref(&report), &Output { scripted: true, parsable: true, ..Output::default() });
        assert_eq!(table.lines().last(), Some("tank/fs\thead\t1\t65536\tstart on a boundary"));
        assert!(table.starts_with("tank/fs\tasked\t2\t1048576\t-\n"));
        assert!(table.contains("\tshared_read\t31\t1015808\t-\n") && table.contains("\tcoalesced_write\t2\t2097152\t-\n"), "{table}");
        assert!(table.contains("\tverify_write\t3\t393216\tdo not change") && table.contains("\tverify_read\t0\t0\t-\n"), "{table}");
        let text = as_json(&[report], &Output::default(), "zfs direct-stats", "datasets");
        assert!(text.contains(r#""head":{"requests":"1","bytes":"64K","remedy":"start on a boundary"}"#), "{text}");
    }
}
