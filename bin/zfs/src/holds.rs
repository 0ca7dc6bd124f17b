//! `zfs holds`: who holds snapshots, and since when.

use crate::args;
use cli::table::{Align, Column, Table};
use cli::{Client, Stop};
use control_api::{HoldsQuery, HoldsReport, Request, Response};

/// Runs the verb: snapshots that cannot be opened are reported and passed over.
pub fn run(client: &Client, arguments: &args::Holds) -> Result<u8, Stop> {
    let (mut reports, mut code) = (Vec::<HoldsReport>::new(), 0);
    for name in &arguments.names {
        let query = HoldsQuery { name: name.clone(), recursive: arguments.recursive };
        match client.call(&Request::Holds(query)) {
            Ok(Response::Holds(found)) => {
                // A snapshot that two names lead to stands once.
                reports.retain(|known| !found.iter().any(|report| report.name == known.name));
                reports.extend(found);
            }
            Ok(other) => return Err(cli::unexpected("cannot get holds", other).into()),
            Err(failure) => {
                cli::errln!("{failure}");
                code = cli::EXIT_FAILURE;
            }
        }
    }
    cli::out!("{}", table(&reports, arguments.parsable).render(arguments.scripted));
    if reports.is_empty() {
        cli::errln!("no datasets available");
    }
    Ok(code)
}

fn table(reports: &[HoldsReport], exact: bool) -> Table {
    let mut table = Table::new(["NAME", "TAG", "TIMESTAMP"].map(|heading| Column::new(heading, Align::Left)));
    for report in reports {
        for hold in &report.holds {
            let time = if exact { hold.time.to_string() } else { cli::time::hold(hold.time) };
            table.row(vec![report.name.clone(), hold.tag.clone(), time]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::HoldReport;

    /// If this fails, scripts that release what they hold look for tags in another column.
    #[test]
    fn every_hold_is_a_line_of_name_tag_and_time() {
        let hold = |tag: &str, time| HoldReport { tag: tag.into(), time };
        let reports = [
            HoldsReport { name: "tank@a".into(), holds: vec![hold("keep", 7), hold("my tag", 1_795_298_460)] },
            HoldsReport { name: "tank@bcd".into(), holds: Vec::new() },
        ];
        let text = "NAME    TAG     TIMESTAMP\ntank@a  keep    7\ntank@a  my tag  1795298460\n";
        assert_eq!(table(&reports, true).render(false), text);
        assert_eq!(table(&reports, true).render(true), "tank@a\tkeep\t7\ntank@a\tmy tag\t1795298460\n");
        assert_eq!(table(&[], false).render(false), "NAME  TAG  TIMESTAMP\n");
    }
}
