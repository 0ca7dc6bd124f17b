//! `zfs send`: writes a stream to the standard output, and says on the standard error how far it is.

use clap::Args;
use cli::number::{nice_bytes, nice_count};
use cli::{Client, Stop, unexpected};
use control_api::{ErrorKind, Failure, Named, Piece, Request, Response, SendNote, SendPlan, SendRequest, SendStep, name_objection};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Pause between two lines of progress.
const SECOND: Duration = Duration::from_secs(1);
/// Exit code of a token that is none, as OpenZFS's command has it.
const EXIT_BAD_TOKEN: u8 = 255;

/// `zfs send`.
#[derive(Debug, Args)]
pub struct SendArguments {
    /// Does nothing: deduplicated streams are no longer made.
    #[arg(short = 'D', long = "dedup")]
    pub dedup: bool,
    /// Leave blocks above 128 KiB whole.
    #[arg(short = 'L', long = "large-block")]
    pub large_block: bool,
    /// Print in a form for scripts.
    #[arg(short = 'P', long = "parsable")]
    pub parsable: bool,
    /// A package of everything below, with all snapshots and properties.
    #[arg(short = 'R', long = "replicate")]
    pub replicate: bool,
    /// Show progress in the title of the process; there is none here.
    #[arg(short = 'V', long = "proctitle")]
    pub title: bool,
    /// What came of an interrupted receive, up to where it ended.
    #[arg(short = 'S', long = "saved")]
    pub saved: bool,
    /// Properties as they were received.
    #[arg(short = 'b', long = "backup")]
    pub backup: bool,
    /// Send blocks as they are compressed.
    #[arg(short = 'c', long = "compressed")]
    pub compressed: bool,
    /// Send contents that lie in block pointers as they are.
    #[arg(short = 'e', long = "embed")]
    pub embed: bool,
    /// With holds.
    #[arg(short = 'h', long = "holds")]
    pub holds: bool,
    /// Only say what would be sent.
    #[arg(short = 'n', long = "dryrun")]
    pub dry_run: bool,
    /// With properties.
    #[arg(short = 'p', long = "props")]
    pub props: bool,
    /// Pass over datasets that have no such snapshot.
    #[arg(short = 's', long = "skip-missing")]
    pub skip_missing: bool,
    /// Say what is sent, and every second how much; twice: also of how many pieces.
    #[arg(short = 'v', long = "verbose", action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// As it lies on devices: `-c -e -L`, and what is encrypted without its key.
    #[arg(short = 'w', long = "raw")]
    pub raw: bool,
    /// Leave out what the list of this bookmark of the snapshot has (redact).
    #[arg(short = 'd', long = "redact", value_name = "bookmark")]
    pub redact: Option<String>,
    /// Snapshot or bookmark to start from.
    #[arg(short = 'i', value_name = "snapshot|bookmark")]
    pub from: Option<String>,
    /// Snapshot to start from, with all in between.
    #[arg(short = 'I', value_name = "snapshot", conflicts_with = "from")]
    pub all_from: Option<String>,
    /// Go on with a stream that broke off.
    #[arg(short = 't', long = "resume", value_name = "receive_resume_token")]
    pub token: Option<String>,
    /// Leave this out of a package, with everything below.
    #[arg(short = 'X', long = "exclude", value_name = "dataset", value_delimiter = ',')]
    pub excluded: Vec<String>,
    /// Snapshot, or what is not mounted as it is now.
    #[arg(value_name = "filesystem|volume|snapshot", long_help = "snapshot argument")]
    pub name: Option<String>,
}

/// Does `zfs send`.
pub fn run(client: &Client, arguments: &SendArguments) -> Result<u8, Stop> {
    if arguments.dedup {
        cli::errln!("WARNING: deduplicated send is no longer supported.  A regular,\nnon-deduplicated stream will be generated.\n");
    }
    let request = request_of(arguments)?;
    if !request.excluded.is_empty() && !request.replicate {
        cli::errln!("Cannot specify dataset exclusion (-X) on a non-recursive send.");
        return Ok(cli::EXIT_FAILURE);
    }
    let is_head = request.token.is_none() && !request.name.contains('@');
    if is_head && (request.props || request.backup || request.holds) {
        cli::errln!("Error: Unsupported flag with filesystem or bookmark.");
        return Ok(cli::EXIT_FAILURE);
    }
    if !arguments.dry_run && std::io::stdout().is_terminal() {
        cli::errln!("Error: Stream can not be written to a terminal.\nYou must redirect standard output.");
        return Ok(cli::EXIT_FAILURE);
    }
    let is_token = request.token.is_some();
    match sent(client, arguments, request) {
        Ok(()) => Ok(0),
        Err(failure) if is_token => {
            cli::errln!("{failure}");
            Ok(EXIT_BAD_TOKEN)
        }
        Err(failure) => Err(failure.into()),
    }
}

/// True when something is to be said about what is sent.
fn is_verbose(arguments: &SendArguments) -> bool {
    arguments.verbose > 0 || arguments.parsable || arguments.title
}

fn sent(client: &Client, arguments: &SendArguments, request: SendRequest) -> Result<(), Failure> {
    if is_verbose(arguments) || arguments.dry_run {
        let plan = match client.call(&Request::SendPlan(request.clone()))? {
            Response::SendPlan(plan) => plan,
            other => return Err(unexpected("cannot send", other)),
        };
        // The stream itself warns, too.
        plan.warnings.iter().filter(|_| arguments.dry_run).for_each(|warning| cli::errln!("{warning}"));
        if is_verbose(arguments) {
            show(arguments, &plan);
        }
    }
    if arguments.dry_run { Ok(()) } else { stream(client, arguments, request) }
}

/// Request that the words mean.
fn request_of(arguments: &SendArguments) -> Result<SendRequest, Stop> {
    let is_package = arguments.replicate || arguments.props || arguments.backup || arguments.holds;
    let given = arguments.from.as_ref().or(arguments.all_from.as_ref());
    let request = SendRequest {
        all: arguments.all_from.is_some(),
        replicate: arguments.replicate,
        skip_missing: arguments.skip_missing,
        props: arguments.props,
        backup: arguments.backup,
        holds: arguments.holds,
        large_blocks: arguments.large_block || arguments.raw,
        embedded: arguments.embed || arguments.raw,
        compressed: arguments.compressed || arguments.raw,
        raw: arguments.raw,
        excluded: arguments.excluded.clone(),
        saved: arguments.saved,
        ..SendRequest::default()
    };
    let is_dataset = |name: &&String| name.contains('/') && name_objection(name, Named::Dataset, false).is_none();
    if let Some(name) = arguments.excluded.iter().find(|name| !is_dataset(name)) {
        return Err(Stop::usage(format!("-X {name}: not a valid non-root dataset name.")));
    }
    if let Some(token) = &arguments.token {
        if given.is_some() || is_package || arguments.saved || arguments.redact.is_some() {
            return Err(Stop::usage("invalid flags combined with -t"));
        }
        if arguments.name.is_some() {
            return Err(Stop::usage("too many arguments"));
        }
        return Ok(SendRequest { token: Some(token.clone()), ..request });
    }
    let Some(name) = arguments.name.clone() else { return Err(Stop::usage("missing snapshot argument")) };
    if arguments.skip_missing && !arguments.replicate {
        return Err(Stop::usage("skip-missing flag can only be used in conjunction with replicate"));
    }
    if arguments.saved && (given.is_some() || is_package || arguments.redact.is_some()) {
        return Err(Stop::usage("incompatible flags combined with saved send flag"));
    }
    if arguments.saved && name.contains('@') {
        return Err(Stop::usage("saved send must specify the dataset with partially-received state"));
    }
    let dataset = name.split('@').next().unwrap_or(&name).to_string();
    let redact = redaction_of(arguments, &dataset)?;
    let from = match given {
        None => None,
        Some(from) if request.all || request.replicate => Some(base_of_several(from, &dataset)?),
        Some(from) => Some(base_of_one(from, &dataset)),
    };
    if (request.all || request.replicate) && !name.contains('@') {
        return Err(Stop::usage("argument must be a snapshot"));
    }
    Ok(SendRequest { name, from, redact, ..request })
}

/// Full name of the bookmark that a stream is redacted by: only those of the snapshot's own dataset count.
fn redaction_of(arguments: &SendArguments, dataset: &str) -> Result<Option<String>, Stop> {
    let Some(bookmark) = &arguments.redact else { return Ok(None) };
    let why = match (arguments.raw, arguments.replicate || arguments.all_from.is_some()) {
        (true, _) => "Error: raw sends may not be redacted.",
        (false, true) => "Error: multiple snapshots cannot be sent redacted.",
        (false, false) => return Ok(Some(format!("{dataset}#{}", bookmark.rsplit('#').next().unwrap_or(bookmark)))),
    };
    Err(Stop::Failed(Failure::new(ErrorKind::Invalid, why, "")))
}

/// Full name of the base of one stream; `@a` and `#a` are of the same dataset.
fn base_of_one(from: &str, dataset: &str) -> String {
    if !from.contains(['@', '#']) {
        cli::errln!("Warning: incremental source didn't specify type, assuming snapshot. Use '@' or '#' prefix to avoid ambiguity.");
        return format!("{dataset}@{from}");
    }
    if from.starts_with(['@', '#']) { format!("{dataset}{from}") } else { from.to_string() }
}

/// Full name of the base of several streams, which is a snapshot.
fn base_of_several(from: &str, dataset: &str) -> Result<String, Stop> {
    if from.contains('#') {
        return Err(Stop::Failed(Failure::new(ErrorKind::Invalid, "Error: multiple snapshots cannot be sent from a bookmark.", "")));
    }
    Ok(match from.split_once('@') {
        None => format!("{dataset}@{from}"),
        Some(("", snapshot)) => format!("{dataset}@{snapshot}"),
        Some(_) => from.to_string(),
    })
}

/// Line about one stream, in OpenZFS's words (`send_print_verbose`).
fn line(step: &SendStep, parsable: bool) -> String {
    let SendStep { from, to, bytes } = step;
    if parsable {
        return match from {
            Some(from) => format!("incremental\t{from}\t{to}\t{bytes}"),
            None => format!("full\t{to}\t{bytes}"),
        };
    }
    let what = match from {
        Some(from) if from.contains(['@', '#']) => format!("send from {from} to {to}"),
        Some(from) => format!("send from @{from} to {to}"),
        None => format!("full send of {to}"),
    };
    if *bytes == 0 { what } else { format!("{what} estimated size is {}", nice_bytes(*bytes)) }
}

/// Says what would be, or is about to be, sent: on the standard output where nothing else goes there.
fn show(arguments: &SendArguments, plan: &SendPlan) {
    let mut lines = Vec::new();
    if arguments.token.is_some() {
        lines.push(format!("resume token contents:\n{}", plan.token.trim_end_matches('\n')));
    }
    lines.extend(plan.steps.iter().map(|step| line(step, arguments.parsable)));
    let total: u64 = plan.steps.iter().map(|step| step.bytes).sum();
    match (arguments.token.is_some(), arguments.parsable) {
        (true, _) => {}
        (false, true) => lines.push(format!("size\t{total}")),
        (false, false) => lines.push(format!("total estimated size is {}", nice_count(total))),
    }
    for line in lines {
        if arguments.dry_run { cli::outln!("{line}") } else { cli::errln!("{line}") }
    }
}

/// Progress of a stream, told once a second.
struct Progress<'a> {
    arguments: &'a SendArguments,
    name: String,
    bytes: u64,
    pieces: u64,
    said: Instant,
}

impl Progress<'_> {
    fn begin(&mut self, name: String) {
        (self.name, self.bytes, self.pieces) = (name, 0, 0);
        if self.arguments.verbose > 0 && !self.arguments.parsable {
            let pieces = if self.arguments.verbose > 1 { "   BLOCKS    " } else { "" };
            cli::errln!("TIME        SENT   {pieces}SNAPSHOT {}", self.name);
        }
    }

    fn say(&mut self) {
        if self.arguments.verbose == 0 || self.said.elapsed() < SECOND {
            return;
        }
        self.said = Instant::now();
        let (time, name) = (cli::time::clock(), &self.name);
        match (self.arguments.parsable, self.arguments.verbose > 1) {
            (true, true) => cli::errln!("{time}\t{}\t{}\t{name}", self.bytes, self.pieces),
            (true, false) => cli::errln!("{time}\t{}\t{name}", self.bytes),
            (false, true) => cli::errln!("{time}   {:>5}    {:>8}    {name}", nice_count(self.bytes), self.pieces),
            (false, false) => cli::errln!("{time}   {:>5}   {name}", nice_bytes(self.bytes)),
        }
    }
}

/// Writes the stream to the standard output.
fn stream(client: &Client, arguments: &SendArguments, request: SendRequest) -> Result<(), Failure> {
    let what = if request.token.is_some() { "cannot resume send".to_string() } else { format!("warning: cannot send '{}'", request.name) };
    let broken = |error: &std::io::Error| Failure::new(ErrorKind::Io, what.clone(), cli::os_error(error));
    let mut output = cli::print::raw_output().map_err(|error| broken(&error))?;
    let mut progress = Progress { arguments, name: String::new(), bytes: 0, pieces: 0, said: Instant::now() };
    let mut is_whole = false;
    let mut take = |piece: Piece<'_>| -> Result<(), Failure> {
        match piece {
            Piece::Data(bytes) => {
                output.write_all(bytes).map_err(|error| broken(&error))?;
                (progress.bytes, progress.pieces) = (progress.bytes + bytes.len() as u64, progress.pieces + 1);
            }
            Piece::Note(SendNote::Begins { name }) => progress.begin(name),
            Piece::Note(SendNote::Warning { text }) => cli::errln!("{text}"),
            Piece::Note(SendNote::Ended) => is_whole = true,
            Piece::Note(SendNote::Failed(failure)) => return Err(failure),
            Piece::Idle => {}
        }
        progress.say();
        Ok(())
    };
    client.stream(&Request::Send(request), &mut take)?;
    if is_whole { Ok(()) } else { Err(Failure::new(ErrorKind::Disconnected, what, "the daemon ended before the stream did")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs that send for others read these lines.
    #[test]
    fn lines_are_those_of_openzfs() {
        let step = |from: Option<&str>, bytes| SendStep { from: from.map(String::from), to: "tank/a@b".into(), bytes };
        assert_eq!(line(&step(None, 2048), true), "full\ttank/a@b\t2048");
        assert_eq!(line(&step(Some("tank/a@a"), 5), true), "incremental\ttank/a@a\ttank/a@b\t5");
        assert_eq!(line(&step(None, 624), false), "full send of tank/a@b estimated size is 624B");
        assert_eq!(line(&step(Some("a"), 0), false), "send from @a to tank/a@b");
        assert_eq!(line(&step(Some("tank/a#m"), 2048), false), "send from tank/a#m to tank/a@b estimated size is 2K");
    }

    #[test]
    fn a_base_may_be_named_in_short() {
        assert_eq!(base_of_one("#m", "tank/a"), "tank/a#m");
        assert_eq!(base_of_one("tank@a", "tank/a"), "tank@a");
        assert_eq!(base_of_several("@x", "tank/a").ok().as_deref(), Some("tank/a@x"));
        assert!(base_of_several("#x", "tank/a").is_err(), "no package starts from a bookmark");
    }

    /// If this fails, a stream goes out whole, or by another dataset's list.
    #[test]
    fn a_redacted_stream_goes_by_a_bookmark_of_its_dataset() {
        use clap::{Command, FromArgMatches};
        let given = |words: &[&str]| {
            let matches =
                SendArguments::augment_args(Command::new("send")).disable_help_flag(true).try_get_matches_from(words).expect("words");
            redaction_of(&SendArguments::from_arg_matches(&matches).expect("arguments"), "tank/a")
        };
        for words in [["send", "--redact", "r"], ["send", "-d", "#r"], ["send", "-d", "tank/b#r"]] {
            assert_eq!(given(&words).ok().flatten().as_deref(), Some("tank/a#r"), "{words:?}");
        }
        assert!(matches!(given(&["send"]), Ok(None)));
        assert!(matches!(given(&["send", "-wd", "r"]), Err(Stop::Failed(_))));
        assert!(matches!(given(&["send", "-Rd", "r"]), Err(Stop::Failed(_))));
    }
}
