//! The part of a manual page that lists verbs and options, made from the definitions that read the command line (mdoc).
//!
//! It stands between two marker lines of a page in `man/`; the rest is written by hand. A test of each program calls [`check`].

use crate::program::value_name;
use clap::{Arg, ArgAction, Command};
use std::path::Path;

/// Line before the generated part.
pub const BEGIN: &str = ".\\\" BEGIN of what is made from the program's definitions";
/// Line after the generated part.
pub const END: &str = ".\\\" END of what is made from the program's definitions";

/// Text as mdoc takes it: no line starts with a control character, no backslash is an escape.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e");
    let lines = text.lines().map(str::trim).map(|line| if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_string() });
    lines.collect::<Vec<_>>().join("\n")
}

/// Argument of a macro line: quoted when it has spaces.
fn quoted(word: &str) -> String {
    if word.contains(' ') { format!("\"{word}\"") } else { word.to_string() }
}

fn is_shown(arg: &Arg) -> bool {
    !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
}

fn flags(arg: &Arg) -> Vec<String> {
    let short = arg.get_short().map(|letter| letter.to_string());
    let long = arg.get_long().map(|word| format!("-{word}"));
    short.into_iter().chain(long).collect()
}

/// Macros of `-o property=value`: `Fl o Ar property=value`.
fn macros(arg: &Arg) -> String {
    let value = if arg.get_action().takes_values() { format!(" Ar {}", quoted(&value_name(arg))) } else { String::new() };
    flags(arg).iter().map(|flag| format!("Fl {flag}{value}")).collect::<Vec<_>>().join(" , ")
}

/// Text on one verb (or a program without verbs): its synopsis, what it does, its options.
fn verb(command: &Command, is_program: bool) -> String {
    let mut text = String::from(".It Xo\n.Nm\n");
    if !is_program {
        text.push_str(&format!(".Cm {}\n", command.get_name()));
    }
    let arguments: Vec<&Arg> = command.get_arguments().filter(|arg| is_shown(arg)).collect();
    let (positionals, options): (Vec<&Arg>, Vec<&Arg>) = arguments.into_iter().partition(|arg| arg.is_positional());
    let plain: String = options.iter().filter(|arg| !arg.get_action().takes_values()).filter_map(|arg| arg.get_short()).collect();
    if !plain.is_empty() {
        text.push_str(&format!(".Op Fl {plain}\n"));
    }
    for arg in options.iter().filter(|arg| arg.get_action().takes_values() || arg.get_short().is_none()) {
        let dots = if matches!(arg.get_action(), ArgAction::Append) && arg.get_value_delimiter().is_none() { " ..." } else { "" };
        let brackets = if arg.is_required_set() { "" } else { "Op " };
        text.push_str(&format!(".{brackets}{}{dots}\n", macros(arg)));
    }
    for arg in positionals.iter() {
        let dots = if matches!(arg.get_action(), ArgAction::Append) { " ..." } else { "" };
        // The angle brackets inside of a name, with those that usage texts put around it, are for several words in one place; `.Ar` underlines instead.
        let name = value_name(arg).replace(['<', '>'], "");
        text.push_str(&if arg.is_required_set() { format!(".Ar {name}{dots}\n") } else { format!(".Op Ar {name}{dots}\n") });
    }
    text.push_str(".Xc\n");
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    text.push_str(&escape(&about).replace("\n\n", "\n.Pp\n"));
    text.push_str(if text.ends_with('.') { "\n" } else { ".\n" });
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    if !aliases.is_empty() && !is_program {
        text.push_str(&format!("Also called\n.Cm {} .\n", aliases.join(" , ")));
    }
    if !options.is_empty() {
        text.push_str(".Bl -tag -width Ds\n");
        for arg in options {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!(".It {}\n{}.\n", macros(arg), escape(help.trim_end_matches('.'))));
        }
        text.push_str(".El\n");
    }
    text
}

/// Text that stands between the markers.
pub fn generated(command: &Command) -> String {
    let verbs: Vec<&Command> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
    let body: String = if verbs.is_empty() { verb(command, true) } else { verbs.into_iter().map(|one| verb(one, false)).collect() };
    format!("{BEGIN}\n.Bl -tag -width Ds\n{body}.El\n{END}\n")
}

/// Command and all verbs below it.
fn with_verbs(command: &Command) -> Vec<&Command> {
    std::iter::once(command).chain(command.get_subcommands().flat_map(with_verbs)).collect()
}

/// Checks a page; Err says that the generated part is stale, or its prose names an option that the program lacks.
///
/// With `ZIRCONIA_BLESS` in the environment the generated part is written anew first.
pub fn check(command: &Command, page: &Path) -> Result<(), String> {
    inspect(command, page, std::env::var_os("ZIRCONIA_BLESS").is_some())
}

fn inspect(command: &Command, page: &Path, bless: bool) -> Result<(), String> {
    let shown = page.display();
    let text = std::fs::read_to_string(page).map_err(|error| format!("{shown}: {error}"))?;
    let (before, rest) = text.split_once(BEGIN).ok_or_else(|| format!("{shown}: no line '{BEGIN}'"))?;
    let (old, after) = rest.split_once(&format!("{END}\n")).ok_or_else(|| format!("{shown}: no line '{END}'"))?;
    let new = generated(command);
    if bless {
        std::fs::write(page, format!("{before}{new}{after}")).map_err(|error| format!("{shown}: {error}"))?;
    } else if format!("{BEGIN}{old}{END}\n") != new {
        return Err(format!("{shown} is stale: run the tests of this program with ZIRCONIA_BLESS=1"));
    }
    let known: Vec<String> = with_verbs(command).into_iter().flat_map(Command::get_arguments).flat_map(flags).collect();
    for line in before.lines().chain(after.lines()).filter(|line| line.starts_with('.')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let named = words.windows(2).filter(|pair| pair[0].trim_start_matches('.') == "Fl").map(|pair| pair[1]);
        for flag in named {
            let is_known =
                known.iter().any(|other| other == flag) || !flag.starts_with('-') && flag.chars().all(|c| known.contains(&c.to_string()));
            if !is_known {
                return Err(format!("{shown} names the option -{flag}, which the program lacks"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Command {
        let option = Arg::new("o").short('o').action(ArgAction::Append).value_name("property=value").help("A property");
        let needed = Arg::new("secret").long("secret").required(true).value_name("file").help("A secret");
        let pool = Arg::new("pool").required(true);
        Command::new("zpool").subcommand(Command::new("create").about("Make a pool.").arg(option).arg(needed).arg(pool))
    }

    #[test]
    fn an_option_of_the_program_stands_on_the_page() {
        let text = generated(&program());
        // What has to be there is in no brackets: who leaves it out is refused.
        let wanted = ".Cm create\n.Op Fl o Ar property=value ...\n.Fl -secret Ar file\n.Ar pool\n.Xc\nMake a pool.\n";
        assert!(text.contains(wanted), "{text}");
        assert!(text.contains(".It Fl o Ar property=value\nA property.\n"), "{text}");
    }

    #[test]
    fn a_stale_page_and_an_invented_option_are_found() {
        let path = std::env::temp_dir().join(format!("manual-{}.8", std::process::id()));
        let page = |prose: &str, body: &str| std::fs::write(&path, format!("{prose}\n{body}")).expect("a temporary file");
        let good = generated(&program());
        page(".Dt ZPOOL 8", &good);
        assert_eq!(inspect(&program(), &path, false), Ok(()));
        page(".Fl q", &good);
        assert!(inspect(&program(), &path, false).expect_err("invented").contains("-q"));
        page(".Dt ZPOOL 8", &good.replace("A property", "Another"));
        assert!(inspect(&program(), &path, false).expect_err("stale").contains("stale"));
        std::fs::remove_file(&path).expect("a temporary file");
    }
}
