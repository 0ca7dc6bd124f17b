//! `zpool history`: the commands that changed pools, oldest first.

use crate::{args, list};
use cli::{Client, time};
use control_api::{ErrorKind, Failure, PoolHistory, PoolHistoryReport, Request, Response};

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::History) -> Result<u8, Failure> {
    match ask(client, arguments, arguments.pools.clone()) {
        // One of several is too old to have a history: the others have theirs shown.
        Err(failure) if failure.kind == ErrorKind::Unsupported && arguments.pools.len() != 1 => one_by_one(client, arguments),
        answer => {
            answer?.into_iter().for_each(|report| show(report, arguments.long));
            Ok(0)
        }
    }
}

fn ask(client: &Client, arguments: &args::History, pools: Vec<String>) -> Result<Vec<PoolHistoryReport>, Failure> {
    match client.call(&Request::PoolHistory(PoolHistory { pools, internal: arguments.internal }))? {
        Response::History(reports) => Ok(reports),
        other => Err(cli::unexpected("cannot show history", other)),
    }
}

fn one_by_one(client: &Client, arguments: &args::History) -> Result<u8, Failure> {
    let pools = match arguments.pools.is_empty() {
        true => list::reports(client, Vec::new(), false)?.into_iter().map(|report| report.name).collect(),
        false => arguments.pools.clone(),
    };
    let mut code = 0;
    for pool in pools {
        match ask(client, arguments, vec![pool]) {
            Ok(reports) => reports.into_iter().for_each(|report| show(report, arguments.long)),
            Err(failure) => {
                cli::errln!("{failure}");
                code = cli::EXIT_FAILURE;
            }
        }
    }
    Ok(code)
}

fn show(report: PoolHistoryReport, long: bool) {
    cli::outln!("History for '{}':", report.pool);
    for record in report.records {
        let who = record.who.filter(|_| long).map_or(String::new(), |who| format!(" [{who}]"));
        cli::outln!("{} {}{who}", time::history(record.time), record.text);
    }
    cli::outln!();
}
