//! The frame of a command-line program: reads its words, runs a verb, explains a wrong line as OpenZFS's programs do.
//!
//! The usage text is made from the definitions that read the words (`clap`), so that it can neither lack an option nor invent one.

use crate::print;
use crate::stop::{EXIT_FAILURE, EXIT_USAGE, Stop};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Parser};
use std::path::Path;
use std::process::ExitCode;

/// Widest line of a synopsis, in characters.
const WIDTH: usize = 72;

/// Verbs and options that OpenZFS's program has and ours has not: said by name, not as a slip of the user's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lacking {
    /// Names of the verbs.
    pub verbs: &'static [&'static str],
    /// Names of verbs, and letters or long names (with a dash) of their options.
    pub options: &'static [(&'static str, &'static [&'static str])],
}

impl Lacking {
    /// Message about an option of a verb, as clap names it.
    fn option(&self, program: &str, verb: Option<&Command>, argument: &str) -> Option<String> {
        let verb = verb?.get_name();
        let (_, options) = self.options.iter().find(|(known, _)| *known == verb)?;
        let given = argument.strip_prefix('-')?.split('=').next()?;
        options.contains(&given).then(|| format!("cannot {verb}: option '-{given}' of '{program} {verb}' is not available in this version"))
    }
}

/// Runs a program: `run` gets the words read; the result is the exit code.
pub fn run<A: Parser>(run: impl FnOnce(A) -> Result<u8, Stop>) -> ExitCode {
    run_with(&Lacking::default(), run)
}

/// Does [`run`] for a program that lacks something of its model.
pub fn run_with<A: Parser>(lacking: &Lacking, run: impl FnOnce(A) -> Result<u8, Stop>) -> ExitCode {
    let code = run_words(lacking, run);
    print::flush();
    // OpenZFS's commands do so for whoever looks for leaks in them.
    if std::env::var_os("ZFS_ABORT").is_some() {
        crate::outln!("dumping core by request");
        print::flush();
        std::process::abort();
    }
    code
}

/// True when this program was called by one of these names, which are links to it.
pub fn is_called(names: &[&str]) -> bool {
    let first = std::env::args_os().next();
    let called = first.as_deref().map(Path::new).and_then(Path::file_name);
    called.is_some_and(|called| names.iter().any(|own| called == *own))
}

/// Words of this program's command line.
///
/// # Errors
/// The first that is not UTF-8, shown as far as it can be: names of datasets and properties have no other bytes, and requests, which are JSON,
/// carry no paths with others.
pub fn words() -> Result<Vec<String>, String> {
    std::env::args_os()
        .map(|word| word.into_string().map_err(|word| format!("argument {word:?} is not UTF-8: such names are not supported")))
        .collect()
}

/// Fails for words that are no text: no usage would help.
fn not_text(why: &str, code: u8) -> ExitCode {
    crate::errln!("{why}");
    ExitCode::from(code)
}

/// Failure of a program whose command line has something that is no text, with the exit code for wrong use.
pub fn refuse_bytes(code: u8) -> Option<ExitCode> {
    words().err().map(|why| not_text(&why, code))
}

/// Fails for what is not there yet: a failure, and no wrong use.
fn not_there(why: &str) -> ExitCode {
    crate::errln!("{why}");
    ExitCode::from(EXIT_FAILURE)
}

/// Words of the command line of a program without verbs.
///
/// # Errors
/// The exit code, after what is wrong was said (`wrong`), or what was asked for was shown.
pub fn parsed<A: Parser>(wrong: u8) -> Result<A, ExitCode> {
    A::try_parse().map_err(|error| {
        if error.use_stderr() {
            crate::err!("{error}");
            return ExitCode::from(wrong);
        }
        let _ = error.print();
        ExitCode::SUCCESS
    })
}

fn run_words<A: Parser>(lacking: &Lacking, run: impl FnOnce(A) -> Result<u8, Stop>) -> ExitCode {
    let command = as_getopt(A::command());
    let words = match words() {
        Ok(words) => words,
        Err(why) => return not_text(&why, EXIT_USAGE),
    };
    match words.get(1).map(String::as_str) {
        None => return wrong(&command, None, "missing command"),
        Some("-?" | "--help" | "-h") => return help(&command, None),
        Some("help") => return help(&command, words.get(2).map(String::as_str)),
        Some(verb) if lacking.verbs.contains(&verb) && find(&command, verb).is_none() => {
            return not_there(&format!("cannot {verb}: '{} {verb}' is not available in this version", command.get_name()));
        }
        Some(verb) if !verb.starts_with('-') && find(&command, verb).is_none() => {
            return wrong(&command, None, &format!("unrecognized command '{verb}'"));
        }
        Some(_) => {}
    }
    let verb = words.get(1).and_then(|verb| find(&command, verb));
    let words = if std::env::var_os("POSIXLY_CORRECT").is_some() { operands_last(verb, words.clone()) } else { words.clone() };
    let arguments = match command.clone().try_get_matches_from(words).and_then(|found| A::from_arg_matches(&found)) {
        Ok(arguments) => arguments,
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let argument = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::String(text)) if error.kind() == ErrorKind::UnknownArgument => text.clone(),
                _ => String::new(),
            };
            return match lacking.option(command.get_name(), verb, &argument) {
                Some(why) => not_there(&why),
                None => wrong(&command, verb, &explain(&error, verb)),
            };
        }
    };
    match run(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(Stop::Usage(why)) => wrong(&command, verb, &why),
        Err(Stop::Failed(failure)) => {
            crate::errln!("{failure}");
            ExitCode::from(EXIT_FAILURE)
        }
    }
}

/// Command whose options take the next word for their value whatever it begins with, as getopt(3) does.
fn as_getopt(command: Command) -> Command {
    let has_one_value = |arg: &Arg| !arg.is_positional() && arg.get_action().takes_values() && arg.get_num_args().is_none();
    command.mut_args(|arg| if has_one_value(&arg) { arg.allow_hyphen_values(true) } else { arg }).mut_subcommands(as_getopt)
}

/// Words with a `--` before the first operand, behind which getopt(3) takes nothing for an option when `POSIXLY_CORRECT` is set.
fn operands_last(verb: Option<&Command>, mut words: Vec<String>) -> Vec<String> {
    let takes_value = |letter: char| {
        let known = verb.and_then(|verb| verb.get_arguments().find(|arg| arg.get_short() == Some(letter)));
        known.is_some_and(|arg| arg.get_action().takes_values())
    };
    let mut at = 2;
    while let Some(word) = words.get(at) {
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else { break };
        if letters == "-" {
            return words;
        }
        // The value of an option that is the last of its word is the next one.
        let valued = letters.chars().position(takes_value).filter(|_| !letters.starts_with('-'));
        at += if valued.is_some_and(|index| index + 1 == letters.chars().count()) { 2 } else { 1 };
    }
    words.insert(at.min(words.len()), "--".to_string());
    words
}

fn find<'a>(command: &'a Command, verb: &str) -> Option<&'a Command> {
    command.get_subcommands().find(|other| other.get_name() == verb || other.get_all_aliases().any(|alias| alias == verb))
}

fn wrong(command: &Command, verb: Option<&Command>, why: &str) -> ExitCode {
    crate::errln!("{why}");
    crate::err!("{}", usage(command, verb));
    ExitCode::from(EXIT_USAGE)
}

fn help(command: &Command, topic: Option<&str>) -> ExitCode {
    let verb = topic.and_then(|topic| find(command, topic));
    if let (Some(topic), None) = (topic, verb) {
        return wrong(command, None, &format!("unrecognized command '{topic}'"));
    }
    crate::out!("{}", usage(command, verb));
    ExitCode::SUCCESS
}

/// Usage of one verb, or of all.
pub fn usage(command: &Command, verb: Option<&Command>) -> String {
    if let Some(verb) = verb {
        return format!("usage:\n{}", synopsis(verb));
    }
    let program = command.get_name();
    let verbs: String = command.get_subcommands().map(synopsis).collect();
    format!(
        "usage: {program} command args ...\nwhere 'command' is one of the following:\n\n{verbs}\n\
         For further help on a command, run: {program} help [<command>], or read {program}(8)\n"
    )
}

/// Synopsis of a verb, or of those below it.
fn synopsis(verb: &Command) -> String {
    if verb.has_subcommands() {
        return verb.get_subcommands().map(|below| synopsis_of(&format!("{} {}", verb.get_name(), below.get_name()), below)).collect();
    }
    synopsis_of(verb.get_name(), verb)
}

/// Synopsis `\tname [-flags] [-o value] ... <positional> ...` of a verb, broken into lines.
fn synopsis_of(name: &str, verb: &Command) -> String {
    let shown = |arg: &&Arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version");
    let mut words = vec![name.to_string()];
    let options: Vec<&Arg> = verb.get_arguments().filter(shown).filter(|arg| !arg.is_positional()).collect();
    let (flags, valued): (Vec<&Arg>, Vec<&Arg>) = options.into_iter().partition(|arg| !arg.get_action().takes_values());
    let mut letters: Vec<char> = flags.iter().filter_map(|arg| arg.get_short()).collect();
    letters.sort_by_key(|letter| (letter.to_ascii_lowercase(), letter.is_ascii_lowercase()));
    if !letters.is_empty() {
        words.push(format!("[-{}]", letters.iter().collect::<String>()));
    }
    words.extend(flags.iter().filter(|arg| arg.get_short().is_none()).filter_map(|arg| arg.get_long()).map(|long| format!("[--{long}]")));
    for arg in valued {
        let name = arg.get_short().map_or_else(|| format!("--{}", arg.get_long().unwrap_or_default()), |short| format!("-{short}"));
        let more = match (arg.get_value_delimiter(), arg.get_action()) {
            (Some(_), _) => "[,...]]".to_string(),
            (None, clap::ArgAction::Append) => "] ...".to_string(),
            _ => "]".to_string(),
        };
        words.push(format!("[{name} {}{more}", value_name(arg)));
    }
    for arg in verb.get_positionals().filter(shown) {
        let more = if arg.get_action().takes_values() && is_repeated(arg) { " ..." } else { "" };
        let name = value_name(arg);
        words.push(if arg.is_required_set() { format!("<{name}>{more}") } else { format!("[{name}]{more}") });
    }
    let mut lines = vec![String::new()];
    for word in words {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
            lines.push(format!("    {word}"));
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(&word);
        }
    }
    lines.iter().map(|line| format!("\t{line}\n")).collect()
}

fn is_repeated(arg: &Arg) -> bool {
    matches!(arg.get_action(), clap::ArgAction::Append) || arg.get_num_args().is_some_and(|range| range.max_values() > 1)
}

/// Word that stands for the value of an option or for a positional.
pub(crate) fn value_name(arg: &Arg) -> String {
    match arg.get_value_names() {
        Some([name, ..]) if name.as_str() != arg.get_id().as_str().to_uppercase() => name.to_string(),
        _ => arg.get_id().to_string(),
    }
}

/// Line about what is wrong, in OpenZFS's words.
fn explain(error: &clap::Error, verb: Option<&Command>) -> String {
    let context = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(list)) => list.first().cloned().unwrap_or_default(),
        _ => String::new(),
    };
    let argument = context(ContextKind::InvalidArg);
    match error.kind() {
        ErrorKind::UnknownArgument if argument.starts_with("--") => format!("invalid option '{argument}'"),
        ErrorKind::UnknownArgument if argument.len() > 1 && argument.starts_with('-') => {
            format!("invalid option '{}'", argument.trim_start_matches('-'))
        }
        ErrorKind::UnknownArgument | ErrorKind::TooManyValues => "too many arguments".to_string(),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "missing command".to_string(),
        ErrorKind::InvalidSubcommand => format!("unrecognized command '{}'", context(ContextKind::InvalidSubcommand)),
        ErrorKind::MissingRequiredArgument => {
            let name = argument.trim_start_matches('<').rsplit_once('>').map_or(argument.as_str(), |(name, _)| name).to_lowercase();
            format!("missing {}", spoken(verb, &name))
        }
        ErrorKind::InvalidValue | ErrorKind::WrongNumberOfValues | ErrorKind::TooFewValues
            if context(ContextKind::InvalidValue).is_empty() =>
        {
            let letter = argument.split_whitespace().next().unwrap_or_default().trim_start_matches('-').to_string();
            format!("missing argument for '{letter}' option")
        }
        ErrorKind::ArgumentConflict => {
            format!("invalid combination of options: '{}' cannot be used more than once or with the others", argument.trim())
        }
        _ => format!("invalid value '{}' for '{}'", context(ContextKind::InvalidValue), argument.trim()),
    }
}

/// Name of a missing positional: its `long_help` when it has one.
fn spoken(verb: Option<&Command>, name: &str) -> String {
    let arg = verb.and_then(|verb| verb.get_positionals().find(|arg| value_name(arg).to_lowercase() == name));
    match arg.and_then(Arg::get_long_help) {
        Some(words) => words.to_string(),
        None => format!("{} argument", name.replace('_', " ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, scripts that ask for it find options where they mean names.
    #[test]
    fn nothing_behind_an_operand_is_an_option_where_posix_is_asked_for() {
        let verb = Command::new("get").arg(Arg::new("fields").short('o')).arg(Arg::new("deep").short('r').action(clap::ArgAction::SetTrue));
        let words = |line: &str| operands_last(Some(&verb), line.split(' ').map(String::from).collect()).join(" ");
        assert_eq!(words("zfs get all -r"), "zfs get -- all -r");
        assert_eq!(words("zfs get -r -o name all -r"), "zfs get -r -o name -- all -r");
        assert_eq!(words("zfs get -ro name -oname all"), "zfs get -ro name -oname -- all");
        assert_eq!(words("zfs get -r -- -x"), "zfs get -r -- -x");
        assert_eq!(words("zfs get"), "zfs get --");
    }

    /// A mistyped value of an option would be told as an option that does not exist.
    #[test]
    fn values_may_begin_with_a_dash() {
        let create = Command::new("create").arg(Arg::new("size").short('V')).arg(Arg::new("name"));
        let program = as_getopt(Command::new("zfs").subcommand(create));
        let found = program.try_get_matches_from(["zfs", "create", "-V", "-1", "tank/a"]).expect("a value");
        let (_, create) = found.subcommand().expect("a verb");
        assert_eq!(create.get_one::<String>("size").map(String::as_str), Some("-1"));
    }

    /// Users of a verb that has verbs of its own could not find out which, nor what is wrong with theirs.
    #[test]
    fn verbs_below_a_verb_are_named() {
        let list = Command::new("list").arg(Arg::new("scripted").short('H').action(clap::ArgAction::SetTrue));
        let load = Command::new("load").arg(Arg::new("path").required(true));
        let provider = Command::new("provider").subcommand_required(true).arg_required_else_help(true).subcommands([list, load]);
        let program = Command::new("zirconia").subcommand(provider);
        let verb = find(&program, "provider");
        assert_eq!(usage(&program, verb), "usage:\n\tprovider list [-H]\n\tprovider load <path>\n");
        let why = |line: &str| explain(&program.clone().try_get_matches_from(line.split(' ')).unwrap_err(), verb);
        assert_eq!(why("zirconia provider"), "missing command");
        assert_eq!(why("zirconia provider lst"), "unrecognized command 'lst'");
    }

    /// Users who type what OpenZFS has would look for their slip.
    #[test]
    fn what_is_lacking_is_named() {
        let lacking = Lacking { verbs: &["split"], options: &[("import", &["t", "-rewind-to-checkpoint"])] };
        let import = Command::new("import");
        let why = |argument: &str| lacking.option("zpool", Some(&import), argument);
        assert_eq!(why("-t").as_deref(), Some("cannot import: option '-t' of 'zpool import' is not available in this version"));
        assert!(why("--rewind-to-checkpoint").is_some());
        assert_eq!((why("-q"), why("name")), (None, None));
    }
}
