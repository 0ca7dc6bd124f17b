//! Command lines in the units of systemd that are installed (`packaging/systemd`). A test of each program looks whether it understands its own.

use std::path::Path;

/// Words of the command lines of a program in the units, its name first, without what the environment adds. A folder that cannot be read has none.
pub fn command_lines(program: &str) -> Vec<Vec<String>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd"));
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    texts.flat_map(|text| text.lines().filter_map(|line| words(line, program)).collect::<Vec<_>>()).collect()
}

/// Words of a line that runs a program.
fn words(line: &str, program: &str) -> Option<Vec<String>> {
    let (key, command) = line.split_once('=')?;
    let command = command.trim_start_matches('-').strip_prefix("@BINDIR@/").filter(|_| key.starts_with("Exec"))?;
    let words: Vec<String> = command.split_whitespace().filter(|word| !word.starts_with('$')).map(String::from).collect();
    (words.first().map(String::as_str) == Some(program)).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line that is not found is not checked, and first fails at a boot.
    #[test]
    fn lines_are_found_by_their_program() {
        assert_eq!(words("ExecStart=-@BINDIR@/zpool scrub %i", "zpool"), Some(vec!["zpool".into(), "scrub".into(), "%i".into()]));
        assert_eq!(words("ExecStart=@BINDIR@/zpool import -a $OPTIONS", "zpool").map(|words| words.len()), Some(3));
        assert_eq!(words("ExecStart=@BINDIR@/zpool import -a", "zfs"), None);
        assert_eq!(words("Description=@BINDIR@/zpool", "zpool"), None);
        assert!(command_lines("zpool").len() >= 4 && !command_lines("zfs").is_empty() && !command_lines("zirconia").is_empty());
    }
}
