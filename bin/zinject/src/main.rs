//! `zinject`: simulated faults of devices and data, for tests of pools and of what is built on them; options and output of OpenZFS's
//! program. The handlers live in the daemon.
#![forbid(unsafe_code)]
// `println!` panics when its reader is gone: see `cli::print`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod show;

use args::{Arguments, Task, Wrong};
use clap::Parser;
use cli::Client;
use control_api::{ErrorKind, Failure, InjectAdd, InjectFault, InjectReport, MountRequest, Request, Response, UnmountRequest};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

const USAGE: &str = "usage:

\tzinject
\tzinject -c <id|all>
\tzinject -d device [-e errno] [-L <nvlist|uber|pad1|pad2>] [-F]
\t\t[-T <read|write|free|claim|flush|trim|all|probe>] [-f frequency] pool
\tzinject -d device -A <degrade|fault> pool
\tzinject -d device -D latency:lanes [-T <read|write|all>] pool
\tzinject -P import|export -s <seconds> pool
\tzinject -I [-s <seconds>] pool
\tzinject -b objset:object:level:blkid [-e errno] pool
\tzinject [-q] <-t type> [-C dvas] [-e errno] [-l level]
\t\t[-r range] [-a] [-m] [-u] [-f freq] <object>
\tzinject <-a | -u pool>

See zinject(8).
";

fn main() -> ExitCode {
    if let Some(code) = cli::refuse_bytes(2) {
        return code;
    }
    let words = std::env::args_os().count();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error),
    };
    match arguments.task(words <= 1) {
        Err(Wrong { why, code, usage }) => {
            cli::errln!("{why}");
            if usage {
                cli::out!("{USAGE}");
            }
            ExitCode::from(code)
        }
        Ok(Task::Help) => {
            cli::out!("{USAGE}");
            ExitCode::SUCCESS
        }
        Ok(task) => match run(&arguments, task) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                cli::errln!("{failure}");
                ExitCode::from(cli::EXIT_FAILURE)
            }
        },
    }
}

/// Says what is wrong with the words, as OpenZFS does.
fn explain(error: &clap::Error) -> ExitCode {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(text)) => text.trim_start_matches('-').chars().next().unwrap_or(' '),
        _ => ' ',
    };
    let (why, code) = match error.kind() {
        ErrorKind::UnknownArgument => (format!("invalid option '{argument}'"), 2),
        _ => (format!("option -{argument} requires an operand"), 1),
    };
    cli::errln!("{why}");
    cli::out!("{USAGE}");
    ExitCode::from(code)
}

fn run(arguments: &Arguments, task: Task) -> Result<(), Failure> {
    let client = Client::from_environment()?;
    match task {
        Task::List => {
            let handlers = ask(&client, &Request::InjectList)?;
            if handlers.is_empty() {
                cli::outln!("No handlers registered.\nRun 'zinject -h' for usage information.");
            } else {
                cli::out!("{}", show::tables(&handlers));
            }
        }
        Task::Clear(id) => {
            ask(&client, &Request::InjectClear { id })?;
            cli::outln!("{}", id.map_or("removed all registered handlers".to_string(), |id| format!("removed handler {id}")));
        }
        Task::Add(request) => add(&client, arguments, *request)?,
        Task::Help => {}
    }
    Ok(())
}

fn add(client: &Client, arguments: &Arguments, mut request: InjectAdd) -> Result<(), Failure> {
    let mut remount = None;
    if let Some(InjectFault::File { path, dataset, inode, .. }) = &mut request.fault {
        let metadata = std::fs::metadata(&*path)
            .map_err(|error| Failure::new(ErrorKind::NotFound, format!("cannot find mountpoint for '{path}'"), error.to_string()))?;
        *inode = metadata.ino();
        if arguments.remount {
            remount = dataset_of(client, path)?;
            dataset.clone_from(&remount);
        }
    }
    if let (true, Some(InjectFault::File { path, .. })) = (arguments.flush, &request.fault) {
        forget_pages(path);
    }
    if let Some(dataset) = &remount {
        client.perform(&Request::Unmount(UnmountRequest { target: Some(dataset.clone()), ..UnmountRequest::default() }))?;
    }
    let added = ask(client, &Request::InjectAdd(request));
    if let Some(dataset) = &remount {
        client.perform(&Request::Mount(MountRequest { name: Some(dataset.clone()), ..MountRequest::default() }))?;
    }
    for report in added? {
        cli::out!("{}", if arguments.quiet { format!("{}\n", report.id) } else { show::added(&report) });
    }
    Ok(())
}

/// Makes the kernel forget what it has of the file: the kernel, not the daemon, would answer the next read.
fn forget_pages(path: &str) {
    if let Ok(file) = std::fs::File::open(path) {
        // Where that does not work, reads are answered from memory as before.
        let _ = file.sync_all();
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

/// Name of the dataset that is mounted where the path is.
fn dataset_of(client: &Client, path: &str) -> Result<Option<String>, Failure> {
    let Response::Mounts(mounts) = client.call(&Request::Mount(MountRequest::default()))? else { return Ok(None) };
    let inside = mounts.into_iter().filter(|mount| std::path::Path::new(path).starts_with(&mount.mountpoint));
    Ok(inside.max_by_key(|mount| mount.mountpoint.len()).map(|mount| mount.name))
}

fn ask(client: &Client, request: &Request) -> Result<Vec<InjectReport>, Failure> {
    match client.call(request)? {
        Response::Injections(handlers) => Ok(handlers),
        other => Err(cli::unexpected("cannot inject", other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Users would look for an option that is not described, or try one that is not there.
    #[test]
    fn the_manual_page_has_every_option() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/man8/zinject.8");
        assert_eq!(cli::manual::check(&Arguments::command(), page.as_ref()), Ok(()));
    }

    fn task(line: &str) -> Result<Task, Wrong> {
        let words = std::iter::once("zinject").chain(line.split_whitespace());
        Arguments::try_parse_from(words).expect("words").task(line.is_empty())
    }

    /// Scripts that inject a fault into the wrong thing test nothing.
    #[test]
    fn options_mean_what_they_mean_to_openzfs() {
        let fault = |line: &str| match task(line) {
            Ok(Task::Add(request)) => (request.fault.clone(), request.frequency),
            other => panic!("{line}: {other:?}"),
        };
        let device = |error: &str, io: &str| InjectFault::Device { device: "sda".into(), error: error.into(), io: io.into(), label: None };
        assert_eq!(fault("-d sda tank"), (Some(device("nxio", "all")), 0));
        assert_eq!(fault("-d sda -e io -T write -f 50 tank"), (Some(device("io", "write")), 2_147_483_647));
        let delay = InjectFault::Delay { device: "sda".into(), delay_ms: 20, lanes: 4, io: "all".into() };
        assert_eq!(fault("-d sda -D 20:4 tank"), (Some(delay), 0));
        let block = InjectFault::Block { objset: 54, object: 2, level: 0, block: 31, error: "checksum".into() };
        assert_eq!(fault("-b 36:2:0:1f -e checksum tank"), (Some(block), 0));
        assert_eq!(fault("-a"), (None, 0));
        assert_eq!(task("-c all"), Ok(Task::Clear(None)));
        assert_eq!(task(""), Ok(Task::List));
    }

    #[test]
    fn wrong_lines_are_refused_with_openzfs_words_and_codes() {
        let lines = [
            ("-e bad -d sda tank", 1, "invalid error type 'bad': must be one of: io decompress decrypt nxio dtl corrupt noop"),
            ("-d sda", 2, "device (-d) injection requires a single pool name"),
            ("-d sda -e corrupt tank", 1, "device corrupt errors require io type read and a frequency value"),
            ("-d sda -t data tank", 2, "device (-d) incompatible with data error injection"),
            ("-f 200 -d sda tank", 1, "out of range: frequency value must be in the range [0.0001, 100.0]"),
            ("-D 0:1 -d sda tank", 1, "invalid i/o delay value: '0:1'"),
            ("-t data", 2, "missing object"),
            ("-t data -C 0,0 /f", 1, "invalid DVA list '0,0': DVAs should be 0 indexed and separated by commas."),
            ("-s 5 tank", 2, "-s or -g meaningless without -I (ignore writes)"),
            ("-c 1 tank", 2, "extraneous argument to '-c'"),
            ("-q", 2, "at least one of '-b', '-d', '-t', '-a', '-p', '-I' or '-u' must be specified"),
        ];
        for (line, code, why) in lines {
            let Err(wrong) = task(line) else { panic!("{line} was taken") };
            assert_eq!((wrong.code, wrong.why.as_str()), (code, why), "{line}");
        }
        assert!(task("-p spa_vdev_exit tank").is_err_and(|wrong| wrong.why.contains("panics cannot be injected")));
    }
}
