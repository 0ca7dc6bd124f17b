//! Requests and reports about what changed between snapshots.

use serde::{Deserialize, Serialize};

/// `zfs diff`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffQuery {
    /// Older snapshot: its full name, or `@` and what follows it where `to` names the file system.
    pub from: String,
    /// Newer snapshot or file system, or `@` and a snapshot's name; None for the file system of `from` as it is now.
    pub to: Option<String>,
}

impl DiffQuery {
    /// Word that names a file system in full: the older snapshot's, or else the newer one's.
    pub fn full_name(&self) -> &str {
        if self.from.starts_with('@') { self.to.as_deref().unwrap_or(&self.from) } else { &self.from }
    }
}

/// Answer to `zfs diff`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffReport {
    /// Path at which the file system is mounted, which precedes all others; empty for `/`.
    pub mountpoint: String,
    /// Differences, in the order of the files' numbers.
    pub entries: Vec<DiffEntry>,
}

/// Difference between two states of a file system. Paths may have any bytes: each is the character of its number, U+0000 to U+00FF.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffEntry {
    /// Kind of the difference, as OpenZFS writes it: `+`, `-`, `M`, `R`.
    pub kind: char,
    /// Path below the mountpoint; of what was renamed the older one.
    pub path: String,
    /// Newer path of what was renamed.
    pub new_path: Option<String>,
    /// Number of links that a file has more, or fewer below 0; 0 where that is not what changed.
    pub links: i64,
    /// Type and permissions of the file, as stat(2) has them.
    pub mode: u64,
    /// Change time: seconds since the epoch.
    pub ctime_seconds: i64,
    /// Change time: nanoseconds of the second.
    pub ctime_nanoseconds: u32,
}

/// Text of a path that may have any bytes, as reports carry it.
pub fn text_of_bytes(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// Bytes of a path that a report carries.
pub fn bytes_of_text(text: &str) -> Vec<u8> {
    text.chars().map(|letter| u8::try_from(letter).unwrap_or(b'?')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, whoever copies by `zfs diff -h` misses files whose names are no UTF-8.
    #[test]
    fn a_path_of_any_bytes_arrives_as_it_is() {
        let all: Vec<u8> = (0..=255).collect();
        let entry = DiffEntry { path: text_of_bytes(&all), ..DiffEntry::default() };
        let sent = serde_json::to_string(&entry).expect("plain data");
        let got: DiffEntry = serde_json::from_str(&sent).expect("as it was sent");
        assert_eq!(bytes_of_text(&got.path), all);
    }
}
