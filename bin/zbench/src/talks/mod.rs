//! `zbench talks`: every number of five talks about OpenZFS beside ours, on one page: measured here, modelled in virtual time, or not possible here and why.
//!
//! The table of the numbers ([`table`]) says how ours is got; none of ours is written down. What cannot be got says why in its cell: none is empty.

mod cell;
mod measured;
mod modelled;
mod page;
mod table;

use crate::machine::Machine;
use crate::measure::Verdicts;
use crate::report;
use cell::{Answer, Kind, Program, Talk, Way};
use clap::Args as ClapArgs;
use measured::Results;
use modelled::Models;
use page::Answered;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// What to show.
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// Files that `zbench zia`, `resilver` and `matrix` wrote with --json, or what `zbench block` printed: where the layout is the talk's, their
    /// figures are taken before anything is measured
    #[arg(long, value_name = "FILE")]
    results: Vec<PathBuf>,
    /// Smaller pools and single turns
    #[arg(long)]
    quick: bool,
    /// The page to write
    #[arg(default_value = "docs/bench/talks.html")]
    html: PathBuf,
}

/// Results of programs that ran, or why they did not.
type Ran = BTreeMap<Program, Result<Results, String>>;

/// Sources of the figures.
struct Sources<R> {
    is_quick: bool,
    models: Models,
    /// Results that were there before.
    given: Results,
    ran: Ran,
    /// Runs a program.
    run: R,
}

fn impossible(why: String) -> Answer {
    Answer { kind: Kind::Impossible, value: "–".to_string(), how: why }
}

/// Answer of a model, with the command that gives it.
fn of_model(value: Result<String, String>, how: String) -> Answer {
    match value {
        Ok(value) => Answer { kind: Kind::Modelled, value, how },
        Err(why) => impossible(format!("{how}: {why}")),
    }
}

impl<R: FnMut(Program) -> Result<Results, String>> Sources<R> {
    fn answer(&mut self, way: Way) -> Answer {
        match way {
            Way::Pool(drives, line, figure) => {
                let how = format!("zbench survey {}", self.models.line(drives, line));
                of_model(self.models.pool(drives, line, figure), how)
            }
            Way::Bare(bare) => {
                let counts = bare.over.map_or_else(|| bare.devices.to_string(), |over| format!("{over},{}", bare.devices));
                of_model(modelled::bare(bare), format!("zbench survey {}", modelled::bare_line(bare, &counts)))
            }
            Way::StandsOut(line) => of_model(modelled::stands_out(line), format!("zbench survey {line}")),
            Way::Nvme(load) => of_model(Ok(modelled::nvme(load)), "the scheduler's model of this drive, 512 I/Os at once".to_string()),
            Way::DiskWait => of_model(Ok(modelled::disk_wait()), "the scheduler and its model of a disk of 7,200 rpm".to_string()),
            Way::Measured(program, pick) => self.measured(program, pick),
            Way::Impossible(why) => impossible(why.to_string()),
        }
    }

    fn measured(&mut self, program: Program, pick: fn(&Results) -> Option<String>) -> Answer {
        let how = format!("zbench {}", program.parameters(self.is_quick));
        if let Some(value) = pick(&self.given) {
            let name = how.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
            return Answer { kind: Kind::Measured, value, how: format!("{name}, from a file of its results") };
        }
        match self.ran.entry(program).or_insert_with(|| (self.run)(program)) {
            Ok(results) => match pick(results) {
                Some(value) => Answer { kind: Kind::Measured, value, how },
                None => impossible(format!("{how} did not measure it on this machine")),
            },
            Err(why) => impossible(format!("{how}: {why}")),
        }
    }

    /// Answers for all cells, in their order.
    fn answers<'a>(&mut self, talks: &'a [Talk]) -> Vec<Answered<'a>> {
        let mut answered = Vec::with_capacity(talks.len());
        for talk in talks {
            let cells: Vec<_> = talk.cells.iter().map(|cell| (cell, self.answer(cell.ours))).collect();
            answered.push((talk, cells));
        }
        answered
    }
}

fn show(args: &Args) -> Result<(), String> {
    let machine = Machine::describe();
    let header = machine.header();
    println!("{header}");
    let mut given = Results::default();
    args.results.iter().try_for_each(|path| given.read(path))?;
    let run = |program: Program| {
        eprintln!("zbench {} …", program.parameters(args.quick));
        program.run(args.quick)
    };
    let mut sources = Sources { is_quick: args.quick, models: Models::new(args.quick), given, ran: Ran::new(), run };
    let answers = sources.answers(&table::TALKS);
    let html = page::html(&header.replace('\n', "; "), &report::command_line(), &answers);
    std::fs::write(&args.html, html).map_err(|error| format!("{}: {error}", args.html.display()))?;
    print!("{}", page::summary(&answers));
    for (program, result) in &sources.ran {
        if let Err(why) = result {
            println!("not measured: zbench {}: {why}", program.parameters(args.quick));
        }
    }
    println!("{}", args.html.display());
    Ok(())
}

/// Writes the page and prints the summary.
pub fn run(args: &Args) -> ExitCode {
    Verdicts::conclude("talks", |_| show(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers without anything that takes time: models are left alone.
    fn answers() -> Vec<Answered<'static>> {
        let run = |_: Program| -> Result<Results, String> { Err("a <tool> & its \"friend\" are missing".to_string()) };
        let mut sources = Sources { is_quick: true, models: Models::new(true), given: Results::default(), ran: Ran::new(), run };
        let mut cheap = |way: Way| match way {
            Way::Measured(..) | Way::Impossible(_) => sources.answer(way),
            _ => of_model(Ok("1".to_string()), "zbench survey".to_string()),
        };
        let mut answered = Vec::new();
        for talk in &table::TALKS {
            let cells: Vec<_> = talk.cells.iter().map(|cell| (cell, cheap(cell.ours))).collect();
            answered.push((talk, cells));
        }
        answered
    }

    /// Names of the tags that are open at the end, or that close what is not open.
    fn unbalanced(html: &str) -> Vec<String> {
        let (mut open, mut wrong) = (Vec::new(), Vec::new());
        for tag in html.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').expect("a tag ends");
            let name: String = tag.chars().skip_while(|first| *first == '/').take_while(|letter| letter.is_alphanumeric()).collect();
            match tag.starts_with('/') {
                _ if tag.starts_with('!') || name == "meta" => {}
                true if open.last() == Some(&name) => {
                    open.pop();
                }
                true => wrong.push(name),
                false => open.push(name),
            }
        }
        wrong.extend(open);
        wrong
    }

    /// If this fails, the page leaves out what a talk showed, or says nothing of ours beside it.
    #[test]
    fn no_cell_is_empty_and_there_are_enough_of_them() {
        let answers = answers();
        assert!(answers.iter().map(|(_, cells)| cells.len()).sum::<usize>() >= 40);
        for (talk, cells) in &answers {
            assert!(!cells.is_empty() && !talk.name.is_empty(), "{}", talk.title);
            for (cell, answer) in cells {
                for text in [cell.slide, cell.what, cell.theirs, answer.value.as_str(), answer.how.as_str()] {
                    assert!(!text.trim().is_empty(), "{}: {cell:?} {answer:?}", talk.title);
                }
            }
        }
        let summary = page::summary(&answers);
        assert_eq!(summary.lines().count(), table::TALKS.len() + 1, "{summary}");
    }

    /// If this fails, a browser shows something else than the table, or what a tool said becomes part of the page.
    #[test]
    fn the_page_is_well_formed_and_escaped() {
        let page = page::html("a machine <of> ours & theirs", "zbench talks", &answers());
        assert_eq!(unbalanced(&page), Vec::<String>::new());
        assert!(page.contains("a machine &lt;of&gt; ours &amp; theirs") && !page.contains("<of>"));
        assert!(page.contains("a &lt;tool&gt; &amp; its") && !page.contains("<tool>"));
        assert!(!page.contains("<td></td>") && !page.contains("http://") && !page.contains("<script"));
        assert_eq!(
            page,
            page::html("a machine <of> ours & theirs", "zbench talks", &answers()),
            "the page is the same for the same answers"
        );
    }

    /// If this fails, results that somebody measured with care are thrown away and measured again.
    #[test]
    fn results_that_are_given_are_taken_and_a_program_runs_once() {
        let mut runs = 0;
        let mut given = Results::default();
        given.add("{\"load\":\"none\",\"layout\":\"raidz1:10\",\"seconds\":1.0,\"written\":50000000,\"raw_mb\":100.0,\"cpu\":1.0}");
        let run = |_: Program| -> Result<Results, String> {
            runs += 1;
            Ok(Results::default())
        };
        let mut sources = Sources { is_quick: false, models: Models::new(true), given, ran: Ran::new(), run };
        let share = |load: &'static str| match load {
            "none" => Way::Measured(Program::Resilver, |results| results.resilver_share("none")),
            _ => Way::Measured(Program::Resilver, |results| results.resilver_share("read")),
        };
        let found = sources.answer(share("none"));
        assert_eq!((found.kind, found.value.as_str()), (Kind::Measured, "50.0 % of its write bandwidth"));
        assert_eq!(sources.answer(share("read")).kind, Kind::Impossible);
        assert_eq!(sources.answer(share("read")).kind, Kind::Impossible);
        drop(sources);
        assert_eq!(runs, 1);
    }
}
