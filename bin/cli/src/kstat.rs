//! Files of statistics that the daemon shows below its state directory, in the form of OpenZFS's: what `arcstat` and `zilstat` read.

use control_api::{ErrorKind, Failure, StateDir};
use std::path::{Path, PathBuf};

/// Failure of a program that shows statistics.
pub fn failed(why: impl ToString) -> Failure {
    Failure::new(ErrorKind::Io, "cannot show statistics", why.to_string())
}

/// Folder of the statistics of the caller's daemon.
///
/// # Errors
/// There is no place for a state directory.
pub fn folder() -> Result<PathBuf, Failure> {
    Ok(StateDir::from_environment(rustix::process::geteuid().is_root()).map_err(failed)?.kstat())
}

/// Names and values of a file, in its order.
///
/// # Errors
/// The file cannot be read: with the advice to start the daemon.
pub fn read(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    Ok(entries(&text))
}

/// Failure of a look at a file or folder of the statistics, with the advice to start the daemon.
pub fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    failed(format!("{}: {error}", path.display())).advise("start the daemon ('zirconia start'); it needs FUSE to show statistics as files")
}

/// Entries of a file: two lines of headings, then a name, the number of its type, and the value, which may have spaces, on each line.
fn entries(text: &str) -> Vec<(String, String)> {
    let entry = |line: &str| {
        let (name, rest) = line.split_once(char::is_whitespace)?;
        let (_, value) = rest.trim_start().split_once(char::is_whitespace)?;
        Some((name.to_string(), value.trim().to_string()))
    };
    text.lines().skip(2).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a dataset with a space in its name goes by half of it.
    #[test]
    fn values_may_have_spaces() {
        let text = "9 1 0x01 2 544 0 0\nname                            type data\n\
                    dataset_name                    7    tank/my files\nwrites                          4    12\n";
        let expected = [("dataset_name", "tank/my files"), ("writes", "12")].map(|(name, value)| (name.to_string(), value.to_string()));
        assert_eq!(entries(text), expected);
    }
}
