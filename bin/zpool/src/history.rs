//! `zpool history`: the commands that changed pools, oldest first.

use crate::args;
use cli::{Client, time};
use control_api::{Failure, PoolHistory, Request, Response};

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::History) -> Result<u8, Failure> {
    let request = PoolHistory { pools: arguments.pools.clone(), internal: arguments.internal };
    let reports = match client.call(&Request::PoolHistory(request))? {
        Response::History(reports) => reports,
        other => return Err(cli::unexpected("cannot show history", other)),
    };
    for report in reports {
        cli::outln!("History for '{}':", report.pool);
        for record in report.records {
            let who = record.who.filter(|_| arguments.long).map_or(String::new(), |who| format!(" [{who}]"));
            cli::outln!("{} {}{who}", time::history(record.time), record.text);
        }
        cli::outln!();
    }
    Ok(0)
}
