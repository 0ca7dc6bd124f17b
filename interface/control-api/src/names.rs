//! Names of datasets and pools as command lines have them: what is wrong with one, in the words of OpenZFS's commands
//! (`zfs_validate_name`, `zpool_name_valid`).

/// Most bytes of a dataset's name, final zero byte included.
const DATASET_BYTES_MAX: usize = 256;
/// Most bytes of a pool's name likewise: the names of its hidden snapshot are made of it.
const POOL_BYTES_MAX: usize = 240;
/// Words that no pool's name may begin with.
const RESERVED: [&str; 4] = ["mirror", "raidz", "draid", "spare"];

/// Kinds of what a name may be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// File system or volume.
    Dataset,
    /// Snapshot.
    Snapshot,
    /// Bookmark.
    Bookmark,
    /// File system, volume or snapshot.
    Either,
}

/// True for a character that names of datasets and pools have.
fn is_allowed(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_.: ".contains(letter)
}

/// Reason why nothing of this kind has such a name; `is_new` for what is to be made or renamed, which has no `%` either.
pub fn name_objection(name: &str, named: Named, is_new: bool) -> Option<String> {
    let wrong = |why: &str| Some(why.to_string());
    match named {
        Named::Dataset | Named::Bookmark if name.contains('@') => return wrong("snapshot delimiter '@' is not expected here"),
        Named::Snapshot if !name.contains('@') => return wrong("missing '@' delimiter in snapshot name"),
        Named::Bookmark if !name.contains('#') => return wrong("missing '#' delimiter in bookmark name"),
        Named::Dataset | Named::Snapshot | Named::Either if name.contains('#') => {
            return wrong("bookmark delimiter '#' is not expected here");
        }
        _ if is_new && name.contains('%') => return wrong("invalid character % in name"),
        _ if name.len() >= DATASET_BYTES_MAX => return wrong("name is too long"),
        _ if name.starts_with('/') => return wrong("leading slash in name"),
        _ => {}
    }
    let delimiter = if named == Named::Bookmark { '#' } else { '@' };
    let (dataset, snapshot) = name.split_once(delimiter).map_or((name, None), |(dataset, snapshot)| (dataset, Some(snapshot)));
    let mut components: Vec<&str> = dataset.split('/').collect();
    if snapshot.is_none() && components.len() > 1 && components.last() == Some(&"") {
        components.pop();
        return components.into_iter().find_map(component_objection).or_else(|| wrong("trailing slash in name"));
    }
    components.into_iter().find_map(component_objection).or_else(|| snapshot.and_then(snapshot_objection))
}

/// Objection to a part of a name between slashes.
fn component_objection(component: &str) -> Option<String> {
    match component {
        "" => Some("empty component or misplaced '@' or '#' delimiter in name".to_string()),
        "." => Some("self reference, '.' is found in name".to_string()),
        ".." => Some("parent reference, '..' is found in name".to_string()),
        _ => component.chars().find(|letter| !is_allowed(*letter) && *letter != '%').map(invalid_character),
    }
}

/// Objection to what follows the `@` or `#`.
fn snapshot_objection(snapshot: &str) -> Option<String> {
    let end = snapshot.find(['/', '@', '#']).unwrap_or(snapshot.len());
    component_objection(&snapshot[..end]).or_else(|| match snapshot[end..].chars().next() {
        Some('@' | '#') => Some("multiple '@' and/or '#' delimiters in name".to_string()),
        Some(_) => Some("trailing slash in name".to_string()),
        None => None,
    })
}

fn invalid_character(letter: char) -> String {
    format!("invalid character '{letter}' in name")
}

/// Reason why no pool can have this name, open or on devices.
pub fn pool_name_objection(name: &str) -> Option<String> {
    if name.len() >= POOL_BYTES_MAX {
        return Some("name is too long".to_string());
    }
    if let Some(letter) = name.chars().find(|letter| !is_allowed(*letter)) {
        return Some(format!("invalid character '{letter}' in pool name"));
    }
    (!name.starts_with(|first: char| first.is_ascii_alphabetic())).then(|| "name must begin with a letter".to_string())
}

/// Reason why no pool gets this name: also one that the grammar of commands would misread.
pub fn new_pool_name_objection(name: &str) -> Option<String> {
    let is_reserved = name == "log" || RESERVED.iter().any(|word| name.starts_with(word));
    pool_name_objection(name).or_else(|| is_reserved.then(|| "name is reserved".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users would look for a pool that they did not name, or for what is wrong with a name that looks fine.
    #[test]
    fn what_is_wrong_with_a_name_is_said_in_openzfs_words() {
        let empty = "empty component or misplaced '@' or '#' delimiter in name";
        let wrong = [
            ("/t/x", "leading slash in name"),
            ("/", "leading slash in name"),
            ("t/", "trailing slash in name"),
            ("t//", empty),
            ("t//x", empty),
            ("", empty),
            ("t/x@y", "snapshot delimiter '@' is not expected here"),
            ("t/x#y", "bookmark delimiter '#' is not expected here"),
            ("t/x%y", "invalid character % in name"),
            ("t/x*y", "invalid character '*' in name"),
            ("t/\u{e9}", "invalid character '\u{e9}' in name"),
            ("t/.", "self reference, '.' is found in name"),
            ("t/../x", "parent reference, '..' is found in name"),
        ];
        for (name, why) in wrong {
            assert_eq!(name_objection(name, Named::Dataset, true).as_deref(), Some(why), "{name:?}");
        }
        assert_eq!(name_objection(&"t".repeat(256), Named::Either, false).as_deref(), Some("name is too long"));
        let snapshots = [
            ("t/x", "missing '@' delimiter in snapshot name"),
            ("t@", empty),
            ("@a", empty),
            ("t/@a", empty),
            ("t@a@b", "multiple '@' and/or '#' delimiters in name"),
            ("t@a/b", "trailing slash in name"),
            ("t@a*", "invalid character '*' in name"),
            ("t@..", "parent reference, '..' is found in name"),
        ];
        for (name, why) in snapshots {
            assert_eq!(name_objection(name, Named::Snapshot, true).as_deref(), Some(why), "{name:?}");
        }
        let bookmarks = [
            ("t/x", "missing '#' delimiter in bookmark name"),
            ("t@a#b", "snapshot delimiter '@' is not expected here"),
            ("t#", empty),
            ("t#a#b", "multiple '@' and/or '#' delimiters in name"),
            ("t#a/b", "trailing slash in name"),
            ("t#a*", "invalid character '*' in name"),
        ];
        for (name, why) in bookmarks {
            assert_eq!(name_objection(name, Named::Bookmark, true).as_deref(), Some(why), "{name:?}");
        }
        assert_eq!(name_objection("t/x#a-b", Named::Bookmark, true), None);
        for name in ["t", "t/a-b_c.d:e f", "t/..a", "t@a", "t/x@..a", "t/%recv"] {
            assert_eq!(name_objection(name, Named::Either, false), None, "{name:?}");
        }
    }

    /// If this fails, a pool gets a name that commands take for something else, or that OpenZFS does not open.
    #[test]
    fn pools_have_names_that_every_command_understands() {
        let wrong = [
            ("1t", "name must begin with a letter"),
            ("", "name must begin with a letter"),
            ("t/x", "invalid character '/' in pool name"),
            ("t@x", "invalid character '@' in pool name"),
            ("mirror-1", "name is reserved"),
            ("raidz2", "name is reserved"),
            ("log", "name is reserved"),
        ];
        for (name, why) in wrong {
            assert_eq!(new_pool_name_objection(name).as_deref(), Some(why), "{name:?}");
        }
        assert_eq!(pool_name_objection(&"t".repeat(240)).as_deref(), Some("name is too long"));
        assert_eq!(
            (pool_name_objection("mirror"), new_pool_name_objection("logs"), new_pool_name_objection("my tank")),
            (None, None, None)
        );
    }
}
