//! `zirconia-commands cli-table [--bless] [WORD…]`: every verb, option and property of OpenZFS's `zpool` and `zfs`, asked once of ours.
//!
//! Each form is asked in words of sh(1) that succeed where it does what it is for, with pools of its own on files. The outcomes stand in
//! `docs/cli-table.md`, which `--bless` writes and which a run must find as it is. What is to be asked is what the usage texts and manual pages of the
//! OpenZFS have that this machine has; where it has none, what the lists beside this file have. With words, only forms with one of them are asked, and
//! nothing is compared.

mod asked;
mod theirs;

use crate::world::{Failure, Options, Ran, World};
use asked::Form;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Time by which a form is through.
const DEADLINE: Duration = Duration::from_secs(60);
/// Table of the outcomes.
const TABLE: &str = "docs/cli-table.md";
/// Least part of a program's forms that work, in percent.
const FLOORS: [(&str, usize); 2] = [("zpool", 95), ("zfs", 90)];
/// Words of a refusal that says that something is not there.
const LACKING: [&str; 4] = ["this version", "not supported", "is not available", " here"];
/// Words of a warning about what is kept and changes nothing.
const WITHOUT_EFFECT: &str = "without effect";
/// Script that leaves nothing of the form before: no pool, and empty devices.
const RESET: &str = "for pool in $(zpool list -Ho name); do zpool destroy -f $pool || zpool export -f $pool; done; \
                     rm -rf $V $M; mkdir -p $V $M; for name in a b c d s l; do truncate -s 128M $V/$name; done; zpool events -c";

/// Outcome of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Works,
    /// Kept, which changes nothing.
    WithoutEffect(String),
    /// Refused by name.
    Lacking(String),
    /// Failure that does not say so.
    Other(String),
}

impl Outcome {
    fn of(ran: &Ran) -> Outcome {
        let line = |words: &[&str]| ran.err.lines().rev().find(|line| words.iter().any(|word| line.contains(word))).map(String::from);
        if ran.code == 0 {
            return line(&[WITHOUT_EFFECT]).map_or(Outcome::Works, Outcome::WithoutEffect);
        }
        // A command line that is not understood says nothing of what is lacking.
        match line(&LACKING).filter(|_| !ran.err.contains("usage:")) {
            Some(why) => Outcome::Lacking(why),
            None => Outcome::Other(format!("exit {}: {}", ran.code, ran.err.lines().next().unwrap_or("no message"))),
        }
    }

    /// Text of a cell.
    fn shown(&self) -> String {
        match self {
            Outcome::Works => "works".into(),
            Outcome::WithoutEffect(why) => format!("without effect: {why}"),
            Outcome::Lacking(why) => format!("lacking: {why}"),
            Outcome::Other(why) => format!("**fails**: {why}"),
        }
    }
}

/// Runs `zirconia-commands cli-table` with the words that follow; true when the table is as it was and enough of it works.
pub fn main(words: impl Iterator<Item = String>) -> bool {
    let words: Vec<String> = words.collect();
    let is_blessed = words.iter().any(|word| word == "--bless");
    let wanted: Vec<String> = words.into_iter().filter(|word| word != "--bless").collect();
    let done = outcomes(&wanted).and_then(|outcomes| if wanted.is_empty() { compared(&outcomes, is_blessed) } else { Ok(()) });
    if let Err(failure) = &done {
        println!("FAIL  cli-table\n{failure}");
    }
    done.is_ok()
}

/// Outcomes of all forms that have one of these words, or of all; those that nobody asks yet are failures.
fn outcomes(wanted: &[String]) -> Result<Vec<(Form, Outcome)>, Failure> {
    let mut forms = asked::all();
    match theirs::forms() {
        Some(theirs) => {
            let missing: Vec<String> = theirs.into_iter().filter(|name| forms.iter().all(|form| form.shown() != *name)).collect();
            forms.extend(missing.into_iter().map(|name| Form { group: name, name: String::new(), script: String::new() }));
        }
        None => println!("note: no OpenZFS is installed here: what it has is not looked at"),
    }
    forms.retain(|form| wanted.is_empty() || wanted.iter().any(|word| form.shown().contains(word.as_str())));
    let world = World::new(Options::default())?;
    let mut outcomes = Vec::new();
    for form in forms {
        let outcome = ask(&world, &form)?;
        if outcome != Outcome::Works {
            println!("{}: {}", form.shown(), outcome.shown());
        }
        outcomes.push((form, outcome));
    }
    Ok(outcomes)
}

fn ask(world: &World, form: &Form) -> Result<Outcome, Failure> {
    if form.script.is_empty() {
        return Ok(Outcome::Other("nobody asks it".into()));
    }
    let (reset, _) = world.script(RESET, DEADLINE)?.finish()?;
    if reset.code != 0 {
        return Err(reset.fault(format!("nothing can be asked after {}", form.shown())));
    }
    // What does not end is an outcome as well.
    let Ok((mut ran, _)) = world.script(&form.script, DEADLINE)?.finish() else {
        return Ok(Outcome::Other(format!("no answer within {} s", DEADLINE.as_secs())));
    };
    ran.err = ran.err.replace(&world.at(""), "");
    Ok(Outcome::of(&ran))
}

/// Compares the outcomes with the table, or writes it, and with what is to work.
fn compared(outcomes: &[(Form, Outcome)], is_blessed: bool) -> Result<(), Failure> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(TABLE);
    let text = table(outcomes);
    if is_blessed {
        std::fs::write(&path, &text)?;
    } else {
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        let differing: Vec<String> = text.lines().filter(|line| !before.lines().any(|other| other == *line)).map(String::from).collect();
        if before != text {
            return Err(format!("      {TABLE} says something else (--bless writes it):\n{}", differing.join("\n")).into());
        }
    }
    for (program, floor) in FLOORS {
        let (works, all) = count(outcomes, program);
        println!("{program}: {works} of {all} forms work ({} %, at least {floor} % are to)", 100 * works / all.max(1));
        if 100 * works < floor * all {
            return Err(format!("      {program}: {works} of {all} forms work, less than {floor} %").into());
        }
    }
    Ok(())
}

/// Number of forms of a program, or of a kind of properties, that work, and of all.
fn count(outcomes: &[(Form, Outcome)], of: &str) -> (usize, usize) {
    let of_it: Vec<&Outcome> = outcomes.iter().filter(|(form, _)| section(form) == of).map(|(_, outcome)| outcome).collect();
    (of_it.iter().filter(|outcome| ***outcome == Outcome::Works).count(), of_it.len())
}

/// Section of the table that a form belongs to.
fn section(form: &Form) -> &str {
    if form.group.starts_with("property ") {
        return if form.name.is_empty() { form.group.rsplit_once(' ').map_or("", |(group, _)| group) } else { &form.group };
    }
    form.group.split(' ').next().unwrap_or_default()
}

/// Text of the table.
fn table(outcomes: &[(Form, Outcome)]) -> String {
    let mut sections: BTreeMap<&str, Vec<&(Form, Outcome)>> = BTreeMap::new();
    outcomes.iter().for_each(|one| sections.entry(section(&one.0)).or_default().push(one));
    let mut text = String::from(
        "# Commands, form by form\n\
         Every verb, option and property that the usage texts and manual pages of OpenZFS 2.3.2 have, asked of our programs. Written by\n\
         `cargo xtask cli-table --bless`; `cargo xtask cli-table` fails when something has become different. *lacking*: refused, with these words.\n\n\
         | of | forms | work |\n| --- | --- | --- |\n",
    );
    // What is written to a string is written.
    for of in sections.keys() {
        let (works, all) = count(outcomes, of);
        let _ = writeln!(text, "| {of} | {all} | {works} |");
    }
    for (of, forms) in &sections {
        let _ = write!(text, "\n## {of}\n| form | outcome |\n| --- | --- |\n");
        for (form, outcome) in forms {
            let shown = if form.group.starts_with("property ") && !form.name.is_empty() { form.name.clone() } else { form.shown() };
            let _ = writeln!(text, "| `{shown}` | {} |", outcome.shown().replace('|', "\\|"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(code: i32, err: &str) -> Ran {
        let mut ran =
            Ran::of("zpool", &std::process::Output { status: std::process::ExitStatus::default(), stdout: Vec::new(), stderr: Vec::new() });
        (ran.code, ran.err) = (code, err.to_string());
        ran
    }

    /// A form that is broken would count as one that works, or as one that is refused on purpose.
    #[test]
    fn outcomes_are_told_apart() {
        assert_eq!(Outcome::of(&ran(0, "note")), Outcome::Works);
        assert!(matches!(Outcome::of(&ran(0, "warning: without effect: stored")), Outcome::WithoutEffect(_)));
        assert!(matches!(Outcome::of(&ran(1, "cannot x: 'zpool x' is not available in this version\n")), Outcome::Lacking(_)));
        assert!(matches!(Outcome::of(&ran(2, "invalid option 'x'\nusage:\n\tx\n")), Outcome::Other(_)));
        assert_eq!(Outcome::of(&ran(101, "")), Outcome::Other("exit 101: no message".into()));
    }

    /// Readers would count by hand.
    #[test]
    fn the_table_counts() {
        let form = |group: &str, name: &str| Form { group: group.into(), name: name.into(), script: "x".into() };
        let outcomes = [
            (form("zfs get", ""), Outcome::Works),
            (form("zfs get", "-j"), Outcome::Lacking("a | b".into())),
            (form("property of a pool", "size"), Outcome::Works),
            (form("property of a pool x", ""), Outcome::Other("nobody asks it".into())),
        ];
        let text = table(&outcomes);
        assert!(text.contains("| zfs | 2 | 1 |\n"), "{text}");
        assert!(text.contains("| property of a pool | 2 | 1 |\n"), "{text}");
        assert!(text.contains("| `zfs get -j` | lacking: a \\| b |\n"), "{text}");
        assert!(text.contains("| `size` | works |\n"), "{text}");
    }
}
