//! `zfs receive`: the stream on standard input goes to the daemon as it is.

use crate::args::Receive;
use cli::property::{DATASET, described};
use cli::{Client, Stop, done, properties};
use control_api::{DatasetReceive, Failure, Request, SentName};
use std::io::IsTerminal;
use std::os::fd::AsFd;

/// Runs the verb.
pub fn run(client: Client, arguments: Receive) -> Result<u8, Stop> {
    let has_others =
        arguments.resumable || arguments.no_mount || arguments.dry_run || arguments.without_pool || arguments.last || arguments.heal;
    let is_abort = arguments.abort.is_some();
    if is_abort && has_others {
        return Err(Stop::usage("invalid option combination: '-A' goes with none of -s, -n, -u, -c, -d, -e"));
    }
    let changes = arguments.resumable || arguments.force || !arguments.properties.is_empty() || !arguments.excluded.is_empty();
    if arguments.heal && changes {
        return Err(Stop::usage("invalid option combination: '-c' goes with none of -s, -F, -o, -x"));
    }
    if arguments.without_pool && arguments.last {
        return Err(Stop::usage("invalid option combination: -d and -e are mutually exclusive"));
    }
    if is_abort && arguments.name.is_some() {
        return Err(Stop::usage("too many arguments"));
    }
    if !is_abort && arguments.name.is_none() {
        return Err(Stop::usage("missing snapshot argument"));
    }
    if !is_abort && std::io::stdin().is_terminal() {
        cli::errln!("Error: Backup stream can not be read from a terminal.\nYou must redirect standard input.");
        return Ok(cli::EXIT_FAILURE);
    }
    let request = Request::Receive(request(arguments)?);
    if is_abort {
        return Ok(done(&client, &request)?);
    }
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    let input = input.map_err(|error| Failure::new(control_api::ErrorKind::Io, "cannot receive", cli::os_error(&error)))?;
    Ok(done(&client.attach(input), &request)?)
}

fn request(arguments: Receive) -> Result<DatasetReceive, Stop> {
    let mut properties = properties(DATASET, &arguments.properties)?;
    let origin = properties.remove("origin");
    let own = |name: String| described(DATASET, &name).map_or_else(|| name.clone(), |known| known.name.to_string());
    let excluded: Vec<String> = arguments.excluded.into_iter().map(own).collect();
    if excluded.iter().any(|name| name.contains('=')) {
        return Err(Stop::usage("invalid character '=' in property argument"));
    }
    let is_given_again = |(index, name): &(usize, &String)| properties.contains_key(*name) || excluded[..*index].contains(name);
    if let Some((_, name)) = excluded.iter().enumerate().find(is_given_again) {
        return Err(Stop::usage(format!("property '{name}' specified multiple times")));
    }
    let sent_name = match (arguments.last, arguments.without_pool) {
        (true, _) => SentName::Last,
        (false, true) => SentName::WithoutPool,
        (false, false) => SentName::Below,
    };
    Ok(DatasetReceive {
        abort: arguments.abort.is_some(),
        target: arguments.abort.or(arguments.name).unwrap_or_default(),
        sent_name,
        properties,
        excluded,
        origin,
        force: arguments.force,
        force_unmount: arguments.force_unmount,
        resumable: arguments.resumable,
        no_mount: arguments.no_mount,
        dry_run: arguments.dry_run,
        no_holds: arguments.no_holds,
        heal: arguments.heal,
        verbose: arguments.verbose,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Verb};
    use clap::Parser;

    fn of(words: &[&str]) -> Result<DatasetReceive, Stop> {
        match Arguments::try_parse_from(words.iter().copied()).expect("a command line").verb {
            Verb::Receive(arguments) => request(arguments),
            other => panic!("{other:?}"),
        }
    }

    /// If this fails, scripts that only try a receive print lines that OpenZFS does not print.
    #[test]
    fn a_dry_run_says_nothing_unless_it_is_told_to() {
        assert!(!of(&["zfs", "receive", "-n", "b/x"]).expect("valid").verbose);
        assert!(of(&["zfs", "receive", "-nv", "b/x"]).expect("valid").verbose);
    }

    /// If this fails, zrepl takes it that receives cannot be resumed (it looks for these words in the usage), or the wrong dataset is given up.
    #[test]
    fn a_receive_is_given_up_by_its_name() {
        use clap::CommandFactory;
        let command = Arguments::command();
        assert!(cli::usage(&command, command.find_subcommand("receive")).contains("-A <filesystem|volume>"));
        let asked = of(&["zfs", "receive", "-A", "b/x"]).expect("valid");
        assert_eq!((asked.abort, asked.target.as_str()), (true, "b/x"));
    }

    /// If this fails, a replica is mounted over what it is a copy of, or gets other properties than it was told.
    #[test]
    fn properties_go_by_their_own_names() {
        let asked =
            of(&["zfs", "recv", "-duFo", "compress=off", "-o", "origin=b/x@s", "-x", "mountpoint", "-x", "recsize", "b/x"]).expect("valid");
        assert_eq!((asked.sent_name, asked.no_mount, asked.force, asked.target.as_str()), (SentName::WithoutPool, true, true, "b/x"));
        assert_eq!(asked.properties.into_iter().collect::<Vec<_>>(), [("compression".to_string(), "off".to_string())]);
        assert_eq!((asked.excluded, asked.origin.as_deref()), (vec!["mountpoint".to_string(), "recordsize".to_string()], Some("b/x@s")));
        assert!(of(&["zfs", "receive", "-o", "recordsize=4K", "-x", "recsize", "b/x"]).is_err(), "set and not to be set");
        assert!(of(&["zfs", "receive", "-x", "recordsize", "-x", "recsize", "b/x"]).is_err(), "twice");
    }
}
