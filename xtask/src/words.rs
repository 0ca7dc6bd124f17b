//! Doc comments begin with what the item is, not with a pronoun or a question word that leaves the noun out ("Whose.", "How many there are.").

/// Folders whose doc comments keep the rule; the list only grows.
const CLEAN: &[&str] = &["accel/", "base/", "compute/", "format/", "object/", "storage/", "test/need/", "test/sim/"];

/// Beginnings that leave the noun out.
const NOUNLESS: &[&str] = &[
    "As many", "He", "His", "How", "It", "Its", "Of", "So many", "So much", "The same", "Their", "Theirs", "Them", "These", "They",
    "Those", "What", "When", "Where", "Whether", "Which", "Who", "Whom", "Whose", "Why",
];

/// Line (1-based) and first words of each doc comment of a file in a clean folder that leaves the noun out. Those of tests are left alone:
/// they are sentences about what users lose.
pub fn nounless(name: &str, text: &str) -> Vec<(usize, &'static str)> {
    if !CLEAN.iter().any(|folder| name.starts_with(folder)) {
        return Vec::new();
    }
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let begins = |index: &usize| lines[*index].starts_with("///") && (*index == 0 || !lines[*index - 1].starts_with("///"));
    let found = (0..lines.len()).filter(begins).filter(|index| !is_of_test(&lines[*index..]));
    found.filter_map(|index| Some((index + 1, beginning(lines[index].trim_start_matches('/').trim_start())?))).collect()
}

/// True when the lines, which begin with a doc comment, lead to a test.
fn is_of_test(lines: &[&str]) -> bool {
    lines.iter().take_while(|line| line.starts_with("///") || line.starts_with("#[")).any(|line| *line == "#[test]")
}

/// The beginning of a text that leaves the noun out, as a whole word.
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
    fn tests_and_folders_that_are_not_clean_yet_are_left_alone() {
        assert!(nounless("storage/x/src/a.rs", "/// What users lose.\n#[test]\nfn a() {}\n").is_empty());
        assert!(nounless("interface/x/src/a.rs", "/// Whose.\npub a: u8,\n").is_empty());
    }
}
