//! Permissions that were delegated to users (OpenZFS: `dsl_deleg.c`): read, so that they can be shown.
//!
//! A directory's table leads from whom to a table whose names are the permissions. Whom is a letter for the kind (`u`ser, `g`roup, `e`veryone,
//! `c`reator, `s`et; large where the permissions are sets), one for the place (`l`ocal, `d`escendants, `-`), a `$` and the number or name.

use super::tree::Tree;
use crate::DslError;

/// Permissions that somebody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegation {
    /// Somebody, as it is stored: `ul$1000`, `s-$@set`.
    pub who: String,
    /// Permissions, or sets of permissions (`@set`), sorted.
    pub permissions: Vec<String>,
}

/// Permissions that were delegated at a dataset and above it, by the full names of the datasets that have some; its own come first.
pub(super) fn above(tree: &Tree, name: &str) -> Result<Vec<(String, Vec<Delegation>)>, DslError> {
    let mut found = Vec::new();
    let mut next = Some(tree.find_dir(name)?);
    while let Some(dir) = next {
        let table = dir.phys().dd_deleg_zapobj;
        if table != 0 {
            found.push((dir.full_name(), of_table(tree, table)?));
        }
        next = dir.parent();
    }
    Ok(found)
}

fn of_table(tree: &Tree, table: u64) -> Result<Vec<Delegation>, DslError> {
    let mut sets = Vec::new();
    tree.meta.zap(table)?.for_each(|entry| {
        sets.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.first_integer));
        Ok(())
    })?;
    let mut found = Vec::new();
    for (who, set) in sets {
        let mut permissions = Vec::new();
        tree.meta.zap(set)?.for_each(|entry| {
            permissions.push(String::from_utf8_lossy(&entry.name).into_owned());
            Ok(())
        })?;
        permissions.sort();
        found.push(Delegation { who, permissions });
    }
    found.sort_by(|a, b| a.who.cmp(&b.who));
    Ok(found)
}
