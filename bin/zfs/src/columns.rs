//! What to ask the daemon for, and which columns show it.

use crate::args::Select;
use cli::Stop;
use cli::property::{self, DATASET};
use control_api::DatasetQuery;

/// Types of datasets that a verb shows when `-t` does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// Types for `list`: file systems and volumes; a snapshot when it is named.
    Data,
    /// Types for `get`: snapshots and bookmarks too.
    All,
}

/// Columns of `-o` with `space` expanded and every name checked.
pub fn expand(columns: &[String]) -> Result<Vec<String>, Stop> {
    const SPACE: [&str; 7] = ["name", "available", "used", "usedbysnapshots", "usedbydataset", "usedbyrefreservation", "usedbychildren"];
    match columns {
        [space] if space == "space" => Ok(SPACE.map(String::from).to_vec()),
        [all] if all == "all" => {
            let names = DATASET.iter().map(|property| property.name);
            Ok(names.filter(|name| !property::HIDDEN.contains(name)).map(String::from).collect())
        }
        named => named.iter().map(|name| property::canonical(DATASET, name)).collect(),
    }
}

fn types(words: &[String], default: Default) -> Result<Vec<&'static str>, Stop> {
    if words.is_empty() {
        return Ok(match default {
            Default::Data => vec!["filesystem", "volume"],
            Default::All => vec!["filesystem", "volume", "snapshot", "bookmark"],
        });
    }
    let mut types = Vec::new();
    for word in words {
        match word.as_str() {
            "all" => types.extend(["filesystem", "volume", "snapshot", "bookmark"]),
            "filesystem" | "fs" => types.push("filesystem"),
            "volume" | "vol" => types.push("volume"),
            "snapshot" | "snap" => types.push("snapshot"),
            "bookmark" => types.push("bookmark"),
            other => return Err(Stop::usage(format!("invalid type '{other}'"))),
        }
    }
    Ok(types)
}

fn depth(word: Option<&str>) -> Result<Option<u32>, Stop> {
    let Some(word) = word else { return Ok(None) };
    match word.parse::<i64>() {
        Ok(depth) if depth < 0 => Err(Stop::usage("Depth can not be negative.")),
        Ok(depth) => Ok(Some(u32::try_from(depth).unwrap_or(u32::MAX))),
        Err(_) => Err(Stop::usage(format!("{word} is not an integer"))),
    }
}

/// Question to the daemon about one name (None: about everything).
pub fn query(name: Option<&str>, select: &Select, default: Default) -> Result<DatasetQuery, Stop> {
    let mut types = types(&select.types, default)?;
    let depth = match (depth(select.depth.as_deref())?, select.recursive) {
        (Some(depth), _) => Some(depth),
        (None, true) => None,
        (None, false) if name.is_none() => None,
        // Snapshots of a named file system are one level below it.
        (None, false) if types == ["snapshot"] || types == ["bookmark"] => Some(1),
        (None, false) => Some(0),
    };
    if select.types.is_empty() && name.is_some_and(|name| name.contains('@')) {
        types.push("snapshot");
    }
    let names = name.map(String::from).into_iter().collect();
    Ok(DatasetQuery { names, depth, types: types.into_iter().map(String::from).collect(), asked: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cli::options::Output;

    fn select(types: &[&str], depth: Option<&str>) -> Select {
        Select {
            output: Output::default(),
            recursive: false,
            depth: depth.map(String::from),
            types: types.iter().map(|word| (*word).to_string()).collect(),
        }
    }

    #[test]
    fn snapshots_of_a_named_file_system_are_listed_without_r() {
        let asked = query(Some("tank"), &select(&["snap"], None), Default::Data).expect("valid");
        assert_eq!((asked.depth, asked.types), (Some(1), vec!["snapshot".to_string()]));
        assert_eq!(query(Some("tank"), &select(&[], None), Default::Data).expect("valid").depth, Some(0));
        assert_eq!(query(None, &select(&[], None), Default::Data).expect("valid").depth, None);
        assert_eq!(query(Some("tank"), &select(&["bookmark"], None), Default::Data).expect("valid").depth, Some(1));
        let every = query(Some("tank#a"), &select(&[], None), Default::All).expect("valid");
        assert_eq!((every.depth, every.types.last().map(String::as_str)), (Some(0), Some("bookmark")));
    }

    #[test]
    fn wrong_words_are_named() {
        let why = |types: &[&str], depth| match query(None, &select(types, depth), Default::Data) {
            Err(Stop::Usage(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(why(&["zvol"], None), "invalid type 'zvol'");
        assert_eq!(why(&[], Some("x")), "x is not an integer");
        assert_eq!(why(&[], Some("-1")), "Depth can not be negative.");
        assert!(matches!(expand(&["nosuch".to_string()]), Err(Stop::Usage(_))));
    }
}
