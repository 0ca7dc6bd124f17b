//! `compatibility=` of pools: files that name the features that a pool may have, so that older systems can use it (OpenZFS:
//! `zpool_load_compat`).

use std::collections::BTreeSet;
use std::path::Path;

/// Folders in which names without a slash are looked for; the first one that has the file counts.
const FOLDERS: [&str; 2] = ["/etc/zfs/compatibility.d", "/usr/share/zfs/compatibility.d"];

/// Names of the features that a value allows: None for all. Of several files those that each of them names.
pub(crate) fn allowed(value: &str) -> Result<Option<BTreeSet<String>>, String> {
    match value {
        "" | "off" => return Ok(None),
        "legacy" => return Ok(Some(BTreeSet::new())),
        _ => {}
    }
    let mut allowed: Option<BTreeSet<String>> = None;
    for name in value.split(',') {
        let text = read(name).ok_or_else(|| format!("error reading compatibility file '{name}'"))?;
        let set = parse(&text);
        let unknown: Vec<&str> = set.iter().map(String::as_str).filter(|feature| !is_feature(feature)).collect();
        if !unknown.is_empty() {
            return Err(format!("unknown features in compatibility file '{name}': {}", unknown.join(", ")));
        }
        allowed = Some(match allowed {
            None => set,
            Some(before) => before.intersection(&set).cloned().collect(),
        });
    }
    Ok(allowed)
}

/// True when a feature that is known here is enabled, by its references, and not among those that are allowed.
pub(crate) fn is_exceeded(allowed: &BTreeSet<String>, features: &[(String, String, Option<u64>)]) -> bool {
    let is_beyond = |name: &String| pool::feature_by_name(name).is_some() && !allowed.contains(name);
    features.iter().any(|(name, _, references)| references.is_some() && is_beyond(name))
}

/// Bytes of the largest file that is read, as in OpenZFS.
const BYTES_MAX: u64 = 16 << 10;

fn read(name: &str) -> Option<String> {
    if name.contains('/') {
        return name.starts_with('/').then(|| text(Path::new(name))).flatten();
    }
    FOLDERS.iter().find_map(|folder| text(&Path::new(folder).join(name)))
}

fn text(path: &Path) -> Option<String> {
    String::from_utf8(service::given::read(path, BYTES_MAX).ok()?).ok()
}

fn parse(text: &str) -> BTreeSet<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines
        .flat_map(|line| line.split(|letter: char| letter.is_whitespace() || letter == ','))
        .filter(|word| !word.is_empty())
        .map(String::from)
        .collect()
}

/// True for the form of a feature's name: features of newer systems are names too, and only the form tells them from typing errors.
fn is_feature(word: &str) -> bool {
    word.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a pool that an old system is to read gets features that it does not know.
    #[test]
    fn files_allow_what_all_of_them_name() {
        assert_eq!(allowed("off"), Ok(None));
        assert_eq!(allowed("legacy"), Ok(Some(BTreeSet::new())));
        assert!(allowed("no-such-set-of-features").is_err());
        assert_eq!(parse("# old\nasync_destroy, bookmarks # two\n\nlz4_compress\n").len(), 3);
        let folder = std::env::temp_dir().join(format!("zirconia-compatibility-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).expect("written");
            folder.join(name).display().to_string()
        };
        let both = format!("{},{}", file("one", "a b c"), file("two", "b c d"));
        assert_eq!(allowed(&both), Ok(Some(["b", "c"].map(String::from).into())));
        assert!(allowed(&file("wrong", "a B!")).is_err());
        assert!(allowed("/dev/zero").is_err());
        assert!(allowed(&file("large", &"# more\n".repeat(3000))).is_err());
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
