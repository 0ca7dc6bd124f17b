//! Doc comments begin with what the item is, not with a pronoun or a question word that leaves the noun out ("Whose.", "How many there are.").

use std::ops::Range;

/// Beginnings that leave the noun out.
const NOUNLESS: &[&str] = &[
    "As many", "For", "He", "Here", "His", "How", "It", "Its", "Of", "Our", "So many", "So much", "That", "The same", "Their", "Theirs",
    "Them", "These", "They", "This", "Those", "What", "When", "Where", "Whether", "Which", "While", "Who", "Whom", "Whose", "Why", "With",
    "Without",
];

/// Signature of the scenarios of `test/commands` and of parts of them.
const SCENARIO: &str = "(world: &World) -> Result<(), Failure> {";

/// Ends of the names of derives that make help texts of doc comments (clap, also under names as `ClapArgs`).
const OF_HELP: &[&str] = &["Args", "Parser", "Subcommand", "ValueEnum"];

/// Line (1-based) and first words of each doc comment of a file that leaves the noun out. Those of tests and scenarios are left alone: they
/// are sentences about what users lose; and so are those of command lines: they are help texts.
pub fn nounless(name: &str, text: &str) -> Vec<(usize, &'static str)> {
    let lines: Vec<&str> = text.lines().collect();
    let help = help_texts(&lines);
    let is_doc = |index: usize| lines[index].trim_start().starts_with("///");
    let begins = |index: &usize| is_doc(*index) && (*index == 0 || !is_doc(*index - 1));
    let is_left_alone = |index: usize| help.iter().any(|item| item.contains(&index)) || is_of_test(name, &lines[index..]);
    let found = (0..lines.len()).filter(begins).filter(|index| !is_left_alone(*index));
    found.filter_map(|index| Some((index + 1, beginning(lines[index].trim_start().trim_start_matches('/').trim_start())?))).collect()
}

/// True when a line is a doc comment or an attribute.
fn is_above_item(line: &str) -> bool {
    line.trim_start().starts_with("///") || line.trim_start().starts_with("#[")
}

/// True when the lines of the file `name`, which begin with a doc comment, lead to a test or to a scenario.
fn is_of_test(name: &str, lines: &[&str]) -> bool {
    let above = lines.iter().take_while(|line| is_above_item(line)).count();
    let is_scenario = name.starts_with("test/commands/") && lines.get(above).is_some_and(|line| line.ends_with(SCENARIO));
    is_scenario || lines[..above].iter().any(|line| line.trim() == "#[test]")
}

/// Ranges of lines (0-based) of the items that clap makes command lines of, with what stands above each.
fn help_texts(lines: &[&str]) -> Vec<Range<usize>> {
    let is_derive = |line: &str| {
        let names = line.trim().strip_prefix("#[derive(").and_then(|rest| rest.strip_suffix(")]"));
        names.is_some_and(|names| names.split(", ").any(|name| OF_HELP.iter().any(|end| name.ends_with(end))))
    };
    let indent = |line: &str| line.len() - line.trim_start().len();
    let item = |index: usize| {
        let above = lines[..index].iter().rev().take_while(|line| is_above_item(line)).count();
        let ends = |line: &&str| indent(line) == indent(lines[index]) && line.ends_with(['}', ';']);
        let length = lines[index..].iter().position(ends).map_or(lines.len() - index, |last| last + 1);
        index - above..index + length
    };
    (0..lines.len()).filter(|index| is_derive(lines[*index])).map(item).collect()
}

/// Beginning of a text that leaves the noun out, as a whole word.
fn beginning(text: &str) -> Option<&'static str> {
    let is_word =
        |word: &&&str| text.strip_prefix(**word).is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'));
    NOUNLESS.iter().find(is_word).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the rule the thousand comments that nobody could read without the code come back one by one.
    #[test]
    fn a_doc_comment_without_its_noun_is_found() {
        let text = "/// Whose.\npub a: u8,\n/// Items of the list.\n/// It goes on here.\npub b: u8,\n    /// How many there are.\n    pub c: u8,\n";
        assert_eq!(nounless("storage/x/src/a.rs", text), vec![(1, "Whose"), (6, "How")]);
    }

    #[test]
    fn tests_and_scenarios_are_left_alone() {
        assert!(nounless("storage/x/src/a.rs", "/// What users lose.\n#[test]\nfn a() {}\n").is_empty());
        let scenario = "/// What users lose.\npub fn a(world: &World) -> Result<(), Failure> {\n";
        assert!(nounless("test/commands/src/a.rs", scenario).is_empty());
        assert_eq!(nounless("test/torture/src/a.rs", scenario), vec![(1, "What")]);
    }

    /// If this fails, the check refuses help texts, and whoever obeys it spoils what `--help` prints; or it sees nothing behind them.
    #[test]
    fn help_texts_are_left_alone_and_what_follows_is_not() {
        let after = "/// Whose.\npub c: u8,\n";
        let lines = "/// How to print.\n#[derive(Debug, ClapArgs)]\npub struct A {\n    /// How.\n    #[arg(long)]\n    pub a: u8,\n}\n";
        assert_eq!(nounless("bin/x/src/a.rs", &format!("{lines}{after}")), vec![(8, "Whose")]);
        let inner = "mod a {\n    #[derive(clap::Subcommand)]\n    enum A {\n        /// What to do.\n        B { a: u8 },\n    }\n    /// Whose.\n    struct C;\n}\n";
        assert_eq!(nounless("bin/x/src/a.rs", inner), vec![(7, "Whose")]);
        let unit = "#[derive(Args)]\nstruct A;\n";
        assert_eq!(nounless("bin/x/src/a.rs", &format!("{unit}{after}")), vec![(3, "Whose")]);
        assert_eq!(nounless("bin/x/src/a.rs", "/// Whose.\n#[derive(Debug)]\nstruct A;\n"), vec![(1, "Whose")]);
    }
}
