//! Names of datasets and snapshots: those below one, and those that a range means.

use crate::failure;
use crate::pool::OpenPool;
use control_api::Failure;

/// Part of a name before `@`.
pub(crate) fn filesystem_of(name: &str) -> &str {
    name.split_once('@').map_or(name, |(filesystem, _)| filesystem)
}

/// Names of the dataset and everything below it, parents first, snapshots left out.
pub(crate) fn descendants(pool: &OpenPool, name: &str) -> Result<Vec<String>, Failure> {
    let mut names = vec![name.to_string()];
    let mut children = pool.dsl().children(name).map_err(|error| failure::dataset("list children of", name, &error))?;
    children.sort();
    for child in children {
        names.extend(descendants(pool, &format!("{name}/{child}"))?);
    }
    Ok(names)
}

/// Snapshots that `a`, `a%b`, `%b`, `a%` or `%` means, among those that exist (oldest first).
pub(crate) fn select_range(known: &[String], word: &str) -> Vec<String> {
    let Some((first, last)) = word.split_once('%') else {
        return known.iter().filter(|name| *name == word).cloned().collect();
    };
    let start = if first.is_empty() { Some(0) } else { known.iter().position(|name| name == first) };
    let end = if last.is_empty() { known.len().checked_sub(1) } else { known.iter().position(|name| name == last) };
    match (start, end) {
        (Some(start), Some(end)) if start <= end => known[start..=end].to_vec(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_snapshots_names_exactly_those_between() {
        let known: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        assert_eq!(select_range(&known, "b"), ["b"]);
        assert_eq!(select_range(&known, "a%b"), ["a", "b"]);
        assert_eq!(select_range(&known, "%b"), ["a", "b"]);
        assert_eq!(select_range(&known, "b%"), ["b", "c"]);
        assert!(select_range(&known, "c%a").is_empty(), "a range the wrong way round destroys nothing");
        assert!(select_range(&known, "x%").is_empty());
    }
}
