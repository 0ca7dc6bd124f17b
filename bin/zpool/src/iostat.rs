//! `zpool iostat`: rates between two snapshots of the daemon's counters (the first line is since import).

use crate::args;
use cli::Client;
use cli::number::{nice_bytes, nice_count, nice_time_ns};
use control_api::{Failure, IostatReport, IostatVdev, PoolNames, Request, Response};
use std::time::Duration;

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::Iostat) -> Result<u8, Failure> {
    let (pools, interval, count) = split(&arguments.words)?;
    let mut before: Option<IostatReport> = None;
    let mut shown = 0;
    let mut is_first = true;
    loop {
        let now = snapshot(client, &pools)?;
        if !(is_first && arguments.skip_first && interval.is_some()) {
            print(arguments, before.as_ref(), &now, shown == 0 || !arguments.headings_once);
            shown += 1;
        }
        is_first = false;
        before = Some(now);
        match (interval, count) {
            (None, _) => return Ok(0),
            (Some(_), Some(count)) if shown >= count => return Ok(0),
            (Some(seconds), _) => std::thread::sleep(Duration::from_secs_f64(seconds)),
        }
    }
}

fn snapshot(client: &Client, pools: &[String]) -> Result<IostatReport, Failure> {
    match client.call(&Request::PoolIostat(PoolNames { pools: pools.to_vec() }))? {
        Response::Iostat(report) => Ok(report),
        other => Err(cli::unexpected("cannot show statistics", other)),
    }
}

/// Pools, seconds between lines, number of lines.
type Schedule = (Vec<String>, Option<f64>, Option<u64>);

/// Trailing numbers are interval and count.
fn split(words: &[String]) -> Result<Schedule, Failure> {
    let is_number = |word: &String| word.parse::<f64>().is_ok();
    let names = words.iter().take_while(|word| !is_number(word)).count();
    let (pools, numbers) = words.split_at(names);
    let interval = numbers.first().and_then(|word| word.parse::<f64>().ok());
    let count = numbers.get(1).and_then(|word| word.parse::<u64>().ok());
    if numbers.len() > 2
        || (numbers.len() == 2 && count.is_none())
        || interval.is_some_and(|seconds| !(seconds > 0.0 && seconds.is_finite()))
    {
        return Err(cli::invalid("cannot show statistics", "give an interval above zero and a whole count after the pools"));
    }
    Ok((pools.to_vec(), interval, count))
}

struct Row {
    name: String,
    cells: Vec<String>,
}

fn print(arguments: &args::Iostat, before: Option<&IostatReport>, now: &IostatReport, headings: bool) {
    let seconds = before.map_or(now.time_ns, |before| now.time_ns.saturating_sub(before.time_ns)).max(1) as f64 / 1e9;
    let mut rows = Vec::new();
    for pool in &now.pools {
        let old = before.and_then(|before| before.pools.iter().find(|other| other.name == pool.name));
        collect(arguments, pool, old, seconds, 0, &mut rows);
    }
    if arguments.scripted {
        for row in &rows {
            println!("{}\t{}", row.name.trim(), row.cells.join("\t"));
        }
        return;
    }
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(4).max(10);
    if headings {
        let latency = if arguments.latency { ["", "  total_wait  ", "   read  write", "  -----  -----"] } else { [""; 4] };
        println!("{:width$}    capacity     operations     bandwidth  {}", "", latency[1]);
        println!("{:width$}  alloc   free   read  write   read  write{}", "pool", latency[2]);
        println!("{}  -----  -----  -----  -----  -----  -----{}", "-".repeat(width), latency[3]);
    }
    for row in &rows {
        let cells: String = row.cells.iter().map(|cell| format!("  {cell:>5}")).collect();
        println!("{:width$}{cells}", row.name);
    }
    if arguments.verbose {
        println!("{}  -----  -----  -----  -----  -----  -----", "-".repeat(width));
    }
}

fn collect(arguments: &args::Iostat, vdev: &IostatVdev, old: Option<&IostatVdev>, seconds: f64, depth: usize, rows: &mut Vec<Row>) {
    let since = |new: u64, field: fn(&IostatVdev) -> u64| new.saturating_sub(old.map_or(0, field));
    let rate = |delta: u64| (delta as f64 / seconds).round() as u64;
    let bytes = |value: u64| if arguments.parsable { value.to_string() } else { nice_bytes(value).trim_end_matches('B').to_string() };
    let count = |value: u64| if arguments.parsable { value.to_string() } else { nice_count(value) };
    let optional = |value: Option<u64>| value.map_or_else(|| "-".to_string(), bytes);
    let reads = since(vdev.read_operations, |old| old.read_operations);
    let writes = since(vdev.write_operations, |old| old.write_operations);
    let mut cells = vec![
        optional(vdev.allocated_bytes),
        optional(vdev.free_bytes),
        count(rate(reads)),
        count(rate(writes)),
        bytes(rate(since(vdev.read_bytes, |old| old.read_bytes))),
        bytes(rate(since(vdev.written_bytes, |old| old.written_bytes))),
    ];
    if arguments.latency {
        let wait = |total: u64, operations: u64| {
            let mean = total.checked_div(operations).unwrap_or(0);
            if arguments.parsable { mean.to_string() } else { nice_time_ns(mean) }
        };
        cells.push(wait(since(vdev.read_ns, |old| old.read_ns), reads));
        cells.push(wait(since(vdev.write_ns, |old| old.write_ns), writes));
    }
    rows.push(Row { name: format!("{}{}", "  ".repeat(depth), vdev.name), cells });
    if arguments.verbose {
        for (index, child) in vdev.children.iter().enumerate() {
            collect(arguments, child, old.and_then(|old| old.children.get(index)), seconds, depth + 1, rows);
        }
    }
}
