//! `zfs bookmark`: bookmarks of snapshots and of other bookmarks.

use cli::{Client, Stop, done};
use control_api::{BookmarkCreate, DatasetQuery, ErrorKind, Request};

/// Runs the verb.
pub fn run(client: &Client, source: &str, bookmark: &str) -> Result<u8, Stop> {
    let (source, bookmark) = in_full(source, bookmark)?;
    let kind = if source.contains('@') { "snapshot" } else { "bookmark" };
    let query = DatasetQuery { names: vec![source.clone()], depth: Some(0), types: vec![kind.to_string()], asked: Vec::new() };
    match client.call(&Request::DatasetQuery(query)) {
        // As OpenZFS's command has it, a source that cannot be opened is a wrong command line.
        Err(failure) if matches!(failure.kind, ErrorKind::NotFound | ErrorKind::Invalid) => return Err(Stop::usage(failure.to_string())),
        Err(failure) => return Err(failure.into()),
        Ok(_) => {}
    }
    Ok(done(client, &Request::Bookmark(BookmarkCreate { source, bookmark }))?)
}

/// Names in full: one of both may leave the dataset to the other.
fn in_full(source: &str, bookmark: &str) -> Result<(String, String), Stop> {
    if !source.contains(['@', '#']) {
        return Err(Stop::usage(format!("invalid source name '{source}': must contain a '@' or '#'")));
    }
    if !bookmark.contains('#') {
        return Err(Stop::usage(format!("invalid bookmark name '{bookmark}': must contain a '#'")));
    }
    let below = |name: &str, short: &str| format!("{}{short}", name.split(['@', '#']).next().unwrap_or_default());
    match (source.starts_with(['@', '#']), bookmark.starts_with('#')) {
        (true, true) => Err(Stop::usage("either source or bookmark must be specified as full dataset paths")),
        (true, false) => Ok((below(bookmark, source), bookmark.to_string())),
        (false, true) => Ok((source.to_string(), below(source, bookmark))),
        (false, false) => Ok((source.to_string(), bookmark.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a bookmark is made of another file system's snapshot, or scripts that name the short form are refused.
    #[test]
    fn one_name_leaves_the_dataset_to_the_other() {
        let full = |source: &str, bookmark: &str| in_full(source, bookmark).expect("two names");
        let both = ("tank/a@s".to_string(), "tank/a#m".to_string());
        assert_eq!(full("tank/a@s", "tank/a#m"), both);
        assert_eq!(full("@s", "tank/a#m"), both);
        assert_eq!(full("tank/a@s", "#m"), both);
        assert_eq!(full("#m", "tank/a#n"), ("tank/a#m".to_string(), "tank/a#n".to_string()));
        let wrong = |source: &str, bookmark: &str| match in_full(source, bookmark) {
            Err(Stop::Usage(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(wrong("tank/a", "tank/a#m"), "invalid source name 'tank/a': must contain a '@' or '#'");
        assert_eq!(wrong("tank/a@s", "tank/a@m"), "invalid bookmark name 'tank/a@m': must contain a '#'");
        assert_eq!(wrong("@s", "#m"), "either source or bookmark must be specified as full dataset paths");
    }
}
