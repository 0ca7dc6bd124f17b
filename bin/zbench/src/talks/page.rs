//! The page of the talks: one HTML file that needs nothing else, and the summary for a terminal.

use super::cell::{Answer, Cell, Kind, Talk};
use crate::report::escape;
use std::fmt::Write;

const STYLE: &str = "body{font:14px/1.45 sans-serif;margin:2em auto;max-width:1380px;padding:0 1em;color:#222;background:#fff}\
h1{font-size:22px}h2{font-size:17px;margin-top:1.6em}table{border-collapse:collapse;font-size:13px;width:100%}\
td,th{padding:4px 8px;text-align:left;vertical-align:top;border-bottom:1px solid #e4e4e4}td.value{font-weight:bold}\
tr.measured td.kind{color:#176f2c}tr.modelled td.kind{color:#1f5fa8}tr.impossible td.kind{color:#8a6d00}code{font-size:11px}";

const TITLE: &str = "Five talks about OpenZFS, number by number, beside Zirconia";

const WORDS: &str = "<p>Each row is a number that was shown in a talk, and ours. <b>Measured</b>: on the machine named above, by the command that stands \
beside it. <b>Modelled</b>: by the engine or the scheduler on modelled drives in virtual time; the same in each run. Virtual time knows no cost of \
processors or memory, of which the talks' machines had limits too, so a modelled share says what the engine asks of its drives, not what a server reaches. \
<b>Not here</b>: neither, and why. Machines, drives and software differ from row to row: numbers of different rows are not to be compared.</p>\n";

/// Cells of a talk with their answers.
pub type Answered<'a> = (&'a Talk, Vec<(&'a Cell, Answer)>);

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Measured => "measured",
        Kind::Modelled => "modelled",
        Kind::Impossible => "not here",
    }
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Measured => "measured",
        Kind::Modelled => "modelled",
        Kind::Impossible => "impossible",
    }
}

fn row(page: &mut String, cell: &Cell, answer: &Answer) {
    let how = if answer.kind == Kind::Impossible { escape(&answer.how) } else { format!("<code>{}</code>", escape(&answer.how)) };
    let _ = writeln!(
        page,
        "<tr class=\"{}\"><td>{}</td><td>{}</td><td>{}</td><td class=\"value\">{}</td><td class=\"kind\">{}</td><td>{how}</td></tr>",
        class(answer.kind),
        escape(cell.slide),
        escape(cell.what),
        escape(cell.theirs),
        escape(&answer.value),
        word(answer.kind)
    );
}

/// Page with a header that says what machine it was.
pub fn html(header: &str, command: &str, talks: &[Answered<'_>]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{TITLE}</title><style>{STYLE}</style></head><body>\n\
         <h1>{TITLE}</h1>\n<p>{}</p>\n<p><code>{}</code></p>\n{WORDS}",
        escape(header),
        escape(command)
    );
    for (talk, cells) in talks {
        let _ = writeln!(page, "<h2>{}</h2>\n<table>", escape(talk.title));
        page.push_str(
            "<tr><th>slide</th><th>what, and where</th><th>the talk's</th><th>ours</th><th>how</th><th>command, or why not</th></tr>\n",
        );
        cells.iter().for_each(|(cell, answer)| row(&mut page, cell, answer));
        page.push_str("</table>\n");
    }
    page.push_str("</body></html>\n");
    page
}

/// Summary: a line for each talk, and one for all.
pub fn summary(talks: &[Answered<'_>]) -> String {
    let mut text = String::new();
    let mut line = |name: &str, cells: &[&Answer]| {
        let count = |kind| cells.iter().filter(|answer| answer.kind == kind).count();
        let [measured, modelled, impossible] = [Kind::Measured, Kind::Modelled, Kind::Impossible].map(count);
        let _ = writeln!(text, "{name:<40} {:>3} numbers: {measured} measured, {modelled} modelled, {impossible} not here", cells.len());
    };
    for (talk, cells) in talks {
        line(talk.name, &cells.iter().map(|(_, answer)| answer).collect::<Vec<_>>());
    }
    line("all", &talks.iter().flat_map(|(_, cells)| cells.iter().map(|(_, answer)| answer)).collect::<Vec<_>>());
    text
}
