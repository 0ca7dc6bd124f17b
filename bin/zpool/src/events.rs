//! `zpool events`: what happened to pools, as OpenZFS 2.3 prints it.

use crate::args;
use cli::{Client, Stop};
use control_api::{EventReport, PoolEvents, Request, Response};

/// Milliseconds that a request of `-f` waits for the next event before it is made again.
const FOLLOW_MS: u64 = 2_000;

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::Events) -> Result<u8, Stop> {
    if arguments.clear {
        if arguments.pool.is_some() || arguments.verbose || arguments.scripted || arguments.follow {
            return Err(Stop::usage("invalid options combined with -c"));
        }
        return match client.call(&Request::PoolEvents(PoolEvents { clear: true, ..PoolEvents::default() }))? {
            Response::EventsCleared { count } => {
                cli::outln!("cleared {count} events");
                Ok(0)
            }
            other => Err(cli::unexpected("cannot clear events", other).into()),
        };
    }
    if let Some(name) =
        arguments.pool.as_ref().filter(|name| name.contains(['/', '@', '#', '%']) || !name.starts_with(|c: char| c.is_ascii_alphabetic()))
    {
        return Err(Stop::usage(format!("invalid pool name '{name}'")));
    }
    let (mut after, mut is_first) = (0, true);
    loop {
        let wait_ms = if arguments.follow && !is_first { FOLLOW_MS } else { 0 };
        let request = PoolEvents { pool: arguments.pool.clone(), after, clear: false, wait_ms };
        let events = match client.call(&Request::PoolEvents(request))? {
            Response::Events(events) => events,
            other => return Err(cli::unexpected("cannot show events", other).into()),
        };
        // Who may not see them gets no heading either.
        if is_first && !arguments.scripted {
            cli::outln!("{:<30} CLASS", "TIME");
        }
        is_first = false;
        for event in &events {
            cli::out!("{}", text(event, arguments.scripted, arguments.verbose));
            after = event.eid;
        }
        cli::print::flush();
        if !arguments.follow {
            return Ok(0);
        }
    }
}

/// Text of one event: time and class, and its fields below when asked for.
fn text(event: &EventReport, scripted: bool, verbose: bool) -> String {
    let (seconds, nanoseconds) = event.time;
    let mut text = format!("{}.{nanoseconds:09}", cli::time::event(seconds));
    text.push(if scripted { '\t' } else { ' ' });
    text.push_str(&event.class);
    text.push('\n');
    if verbose {
        text.push_str(&format!("        class = \"{}\"\n", event.class));
        text.extend(event.fields.iter().map(|(name, value)| format!("        {name} = {value}\n")));
        text.push_str(&format!("        time = {seconds:#x} {nanoseconds:#x} \n        eid = {:#x}\n\n", event.eid));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts split these lines at the blank after the time.
    #[test]
    fn an_event_reads_as_openzfs_prints_it() {
        let event = EventReport {
            eid: 7,
            time: (1_795_298_460, 5),
            class: "ereport.fs.zfs.dio_verify_wr".into(),
            fields: vec![("pool".into(), "\"tank\"".into()), ("zio_size".into(), "0x20000".into())],
        };
        let date = cli::time::event(1_795_298_460);
        assert_eq!(text(&event, false, false), format!("{date}.000000005 ereport.fs.zfs.dio_verify_wr\n"));
        assert_eq!(
            text(&event, true, true),
            date + ".000000005\tereport.fs.zfs.dio_verify_wr\n        class = \"ereport.fs.zfs.dio_verify_wr\"\n        \
             pool = \"tank\"\n        zio_size = 0x20000\n        time = 0x6b02149c 0x5 \n        eid = 0x7\n\n"
        );
    }
}
